"""What a stream says otherwise than its API's reference is told, also where the assembler has nothing to mend."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from gateway.relayed import ask, relayed
from recordings import profile_of, spoken
from tables import each
from thoroughness import spread
from turnwise.assembly.response_reading import ResponseReader
from turnwise.lab import builtin_scripts
from turnwise.relay.breaches import MOST_TOLD, Deviations
from turnwise.relay.client_exchange import RelayRules
from turnwise.relay.event_reader import EventSplitter
from turnwise.vocab import Repair
from turnwise.wire.family import MODULES, family
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile, builtin_profiles
from turnwise.wire.relay_facts import relay_facts

AS_IT_COMES = RelayRules(heals=False, continues="off")
# Scripts of several steps end early here: one request each.
SCRIPTS = tuple([name for name in builtin_scripts() if not name.startswith(("loop-", "never-", "poll-", "script-"))])


@pytest.mark.costly
@pytest.mark.promise("heal:told")
@each("script", spread(SCRIPTS, one_of=2, name="changed streams"))
def test_whatever_the_gateway_changes_in_a_stream_is_told(script: str) -> None:
    """Proves: between equal families an answer with other bytes than the provider's has a repair or a fault; and one with the
    same bytes has none."""
    for name in [name for name in MODULES if relay_facts(name).has_door]:
        mended = relayed(ask(script), upstream=name, client=name)
        came = relayed(ask(script), upstream=name, client=name, rules=AS_IT_COMES)
        told = bool(mended.end.repairs) or mended.end.fault is not None
        assert told or mended.body == came.body, name
        mends = {repair.kind for repair in mended.end.repairs} - {"asked_again"}
        assert not mends or mended.body != came.body or mended.end.fault is not None, name


@each(
    ("script", "client", "kinds"),
    [
        ("shared-index", "openai_chat", ["index_shared"]),
        ("shared-index", "gemini", ["index_shared"]),
        ("no-index", "openai_chat", ["index_missing"]),
        ("no-index-two", "openai_chat", ["index_missing", "index_missing"]),
        ("first-index-1", "openai_chat", ["index_skipped"]),
        ("id-in-every-chunk", "openai_chat", ["id_repeated"]),
        ("object-args", "openai_chat", ["arguments_object"]),
        ("null-args", "openai_chat", ["arguments_empty"]),
        ("empty-args", "openai_chat", ["arguments_empty"]),
        ("finish-stop-with-calls", "openai_chat", ["finish_hides_calls"]),
        ("no-done", "openai_chat", ["end_mark_missing"]),
        ("fault-sent-twice", "openai_chat", ["goes_on_after_end"]),
        ("late-args", "openai_chat", ["goes_on_after_finish"]),
        ("parallel-calls", "openai_chat", []),
        ("interleaved", "openai_chat", []),
        ("plain-answer", "anthropic_messages", []),
    ],
)
def test_each_deviation_of_chat_completions_is_told_by_name(script: str, client: str, kinds: list[str]) -> None:
    """Proves: whichever family the client speaks, the provider's own stream is judged."""
    answer = relayed(ask(script), upstream="openai_chat", client=client)
    assert [repair.kind for repair in answer.end.repairs] == kinds


@pytest.mark.parametrize("name", ["openai_responses", "anthropic_messages", "gemini"])
def test_a_response_that_is_sent_twice_is_told_in_every_family(name: str) -> None:
    """Proves: what follows the end is left out, and not in silence."""
    answer = relayed(ask("fault-sent-twice"), upstream=name, client=name)
    assert [repair.kind for repair in answer.end.repairs] == ["goes_on_after_end"]


def test_a_cut_call_that_nothing_would_show_is_told() -> None:
    """Proves: Gemini's calls are objects, so a cut one is left out, for streams and for whole answers."""
    for stream in (True, False):
        answer = relayed(ask("cut-call", stream=stream), upstream="gemini", client="gemini")
        assert [repair.kind for repair in answer.end.repairs] == ["cut_call_left_out"]


def told_of(pieces: Iterable[bytes], *, profile: Profile, forces_call: bool = False) -> list[Repair]:
    found = family(profile.family)
    reader, splitter = ResponseReader(found, profile=profile), EventSplitter(DEFAULT_LIMITS)
    deviations = Deviations(found.name, forces_call=forces_call)
    events = [event for piece in pieces for event in splitter.feed(piece)]
    for event in [*events, *([rest] if (rest := splitter.rest()) else [])]:
        frames = reader.decode(event)
        reader.heal(frames)
        deviations.take(event, frames)
    return list(deviations.added_to(reader.finish()).repairs)


CHAT = builtin_profiles()["openai_chat"]


def chunk(finish: str | None = None, **call: object) -> bytes:
    delta = {"tool_calls": [call]} if call else {}
    return (
        b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}) + b"\n\n"
    )


def test_a_forced_call_that_ends_as_an_answer_is_no_fault_of_the_provider() -> None:
    """Proves: OpenAI's own server ends a forced call with `stop`; unasked it is a deviation."""
    call = chunk(index=0, id="a", function={"name": "f", "arguments": "{}"})
    pieces = [call, chunk("stop"), b"data: [DONE]\n\n"]
    assert [repair.kind for repair in told_of(pieces, profile=CHAT)] == ["finish_hides_calls"]
    assert [repair.kind for repair in told_of(pieces, profile=CHAT, forces_call=True)] == ["finish_of_forced_call"]


def test_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    """Proves: each of them is told. From a mutant: no test of the relay had two."""
    pieces = [chunk(function={"name": name, "arguments": "{}"}) for name in ("f", "g")]
    told = told_of([*pieces, chunk("tool_calls"), b"data: [DONE]\n\n"], profile=CHAT)
    assert [repair.where for repair in told if repair.kind == "index_missing"] == ["call 0", "call 1"]


def test_a_stream_of_deviations_is_told_within_a_bound() -> None:
    """Proves: a provider that gets each of a thousand calls wrong fills no log."""
    calls = [
        chunk(index=0, id=str(number), function={"name": "f", "arguments": f'{{"a": {number}}}'})
        for number in range(1_000)
    ]
    told = [repair.kind for repair in told_of([*calls, chunk("tool_calls")], profile=CHAT)]
    assert told.count("index_shared") == MOST_TOLD


@pytest.mark.costly
def test_recorded_streams_deviate_only_where_their_providers_are_known_for_it(corpus: Path) -> None:
    """Proves: of all recorded streams of the four families these are told, and no healthy one."""
    found: Counter[tuple[str, str]] = Counter()
    for row in spoken(corpus):
        profile = profile_of(row)
        kinds = {repair.kind for repair in told_of([row.path.read_bytes()], profile=profile)}
        found.update([(kind, row.provider or "reported") for kind in kinds & NEW])
    providers = {row.provider or "reported" for row in spoken(corpus)}
    assert found == {(kind, provider): count for (kind, provider), count in RECORDED.items() if provider in providers}


NEW = frozenset(
    "index_missing index_shared index_skipped id_repeated arguments_object arguments_empty finish_hides_calls "
    "end_mark_missing goes_on_after_end goes_on_after_finish".split()
)
# How many streams of each provider; `finish_hides_calls` of OpenAI's own is a call that the request forced.
RECORDED = {
    ("arguments_empty", "databricks"): 2,
    ("arguments_empty", "openai"): 1,
    ("arguments_object", "reported"): 1,
    ("end_mark_missing", "huggingface"): 4,
    ("end_mark_missing", "perplexity"): 5,
    ("end_mark_missing", "writer"): 3,
    ("finish_hides_calls", "openai"): 1,
    ("finish_hides_calls", "reported"): 1,
    ("goes_on_after_end", "anthropic"): 1,
    ("goes_on_after_finish", "reported"): 1,
    ("id_repeated", "openai"): 1,
    ("id_repeated", "reported"): 1,
    ("index_missing", "mistral"): 2,
    ("index_missing", "reported"): 2,
    ("index_skipped", "openai-compatible"): 1,
    ("index_skipped", "reported"): 1,
}
