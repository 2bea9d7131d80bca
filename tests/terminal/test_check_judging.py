"""The judgement of `turnwise check` is a function of what was observed."""

from collections.abc import Iterator

import pytest

from tables import each
from terminal.checked import check_server, profile_of
from terminal.running import running_lab
from turnwise.endpoints.endpoints import Endpoint
from turnwise.lab import Lab
from turnwise.lab.endpoint_check.judging import LACKS, judge
from turnwise.lab.endpoint_check.probes import MAX_WAITS, NAMES, PROBES, SoFar, estimate
from turnwise.lab.endpoint_check.shapes import MEANINGS, ORDER, WEIGHTS, Observed, meaning_of
from turnwise.rules.pricing import PriceRow
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Response, Text, Usage

SO_FAR = SoFar(model="m")


def answered(probe: str, text: str = "ready", *, finish: FinishReason = FinishReason.STOP, **more: float) -> Observed:
    request = next(one for one in PROBES if one.name == probe).build(SO_FAR)
    usage = Usage(input_tokens=20, output_tokens=5)
    response = Response(message=Message("assistant", (Text(text),)), finish=finish, usage=usage)
    return Observed(probe=probe, request=request, response=response, answered=True, **more)


def failed(probe: str, kind: FaultKind) -> Observed:
    request = next(one for one in PROBES if one.name == probe).build(SO_FAR)
    return Observed(probe=probe, request=request, fault=Fault(kind=kind, message="no"))


def changes_of(*observations: Observed, family: str = "openai_chat") -> dict[str, object]:
    found = judge(observations, profile=profile_of(family)).changes
    return {change.field: change.value for change in found}


def test_a_slow_beginning_raises_the_deadline_in_the_profile() -> None:
    assert changes_of(answered("cache", first_event_s=100.0)) == {"first_event_s": 300.0}
    assert changes_of(answered("cache", first_event_s=1.0)) == {}


def test_an_answer_in_words_where_a_schema_was_sent_changes_the_profile_and_other_json_does_not() -> None:
    """A server that keeps to a schema writes JSON, however weak its model is."""
    assert changes_of(answered("output", "The capital is Oslo.")) == {"output": "none"}
    for text in ('{"name": "Oslo"}', '```json\n{"name": 1}\n```', ""):
        assert changes_of(answered("output", text)) == {}
    assert changes_of(answered("output", "The", finish=FinishReason.LENGTH)) == {}


def test_the_answer_to_a_wrong_key_says_whether_one_is_needed() -> None:
    assert changes_of(failed("wrong-key", FaultKind.AUTH)) == {"key_required": True}
    assert changes_of(answered("wrong-key")) == {}
    found = judge([answered("wrong-key")], profile=profile_of("openai-chat")).changes
    assert [(change.field, change.value) for change in found] == [("key_required", False)]


@each("kind", FaultKind)
def test_every_fault_of_an_ordinary_probe_is_told(kind: FaultKind) -> None:
    judgement = judge([answered("body"), failed("stream", kind)], profile=profile_of("openai_chat"))
    assert judgement.outcome == "faults" and str(kind) in judgement.seen


@pytest.mark.parametrize("probe", ["wrong-model", "wrong-key"])
def test_a_refusal_that_was_asked_for_is_no_fault(probe: str) -> None:
    kind = FaultKind.NOT_FOUND if probe == "wrong-model" else FaultKind.AUTH
    judgement = judge([answered("body"), failed(probe, kind)], profile=profile_of("openai_chat"))
    assert judgement.outcome == "fine" and judgement.seen == {}
    odd = judge([answered("body"), failed(probe, FaultKind.SERVER)], profile=profile_of("openai_chat"))
    assert list(odd.seen) == ["odd_refusal"]


def test_what_is_gravest_comes_first() -> None:
    judgement = judge(
        [answered("body", ""), answered("call", "no"), answered("wrong-key")], profile=profile_of("openai_chat")
    )
    weights = [ORDER.index(meaning_of(name).weight) for name in judgement.seen]
    assert weights == sorted(weights, reverse=True) and len(set(weights)) == 3


def test_the_tables_name_one_another() -> None:
    assert set(LACKS) <= set(NAMES) and len(set(NAMES)) == len(NAMES)
    assert set(WEIGHTS) == set(ORDER) == {meaning.weight for meaning in MEANINGS.values()}
    assert meaning_of("a_new_repair").words == "a new repair"


def test_the_estimate_counts_what_may_come_on_top() -> None:
    endpoint = Endpoint(profile=profile_of("openai_chat"), base_url="http://x/v1")
    stream = [probe for probe in PROBES if probe.name == "stream"]
    told = estimate(stream, so_far=SO_FAR, endpoint=endpoint, row=PriceRow(plan="free", source="here"))
    assert (told.requests, told.more, told.usd) == (1, 1 + MAX_WAITS, 0)
    assert told.output_tokens == (2 + MAX_WAITS) * SO_FAR.max_output_tokens
    assert estimate(stream, so_far=SO_FAR, endpoint=endpoint, row=None).usd is None


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab() as lab:
        yield lab


async def test_a_server_on_a_socket_is_judged_as_one_in_memory(lab: Lab) -> None:
    judgement = await check_server(f"{lab.url}/v1", family="openai_chat", model="id-churn")
    assert judgement.outcome == "fine" and "id_churn" in judgement.seen
