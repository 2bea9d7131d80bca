"""Recovery of a cut response by itself, as anything that asks a provider can use it: no turn, no driver (cut:continued)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from families import traits_of
from tables import each
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.recovery import (
    MAX_TEXT_CONTINUATIONS,
    Continuing,
    Means,
    Settled,
    as_far_as_it_came,
    ate_all,
    begin,
    continue_request,
    find_cut,
    give_up,
    roomier,
    take_reply,
)
from turnwise.vocab import (
    ArgumentsState,
    File,
    FinishReason,
    Message,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Response,
    Text,
    ToolCall,
    ToolSpec,
    Usage,
    calls_of,
    text_of,
)

PATHS = [f"/srv/photos/{number:05d}-{number * 7919 % 1000}.jpg" for number in range(400)]
ARGUMENTS = json.dumps({"path": "/list", "lines": PATHS})
WORDS = " ".join([f"Chapter {number} is about {number * 31 % 977} of the lanterns." for number in range(400)])
LIMIT = 64
REQUEST = Request(
    model="m",
    messages=(Message("user", (Text("Write it."),)),),
    tools=(ToolSpec(name="write", parameters='{"type": "object"}'),),
)
MEANS = Means(recover="continue", callable=("write",), limits=ModelLimits(), traits=traits_of("openai_chat"))


def _cut_response(*parts: Part) -> Response:
    usage = Usage(input_tokens=10, output_tokens=LIMIT)
    return Response(model="m", message=Message("assistant", parts), finish=FinishReason.LENGTH, usage=usage)


def _call(arguments: str, *, id: str = "c1", name: str = "write") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments, state=ArgumentsState.TRUNCATED)


def _begin(response: Response, *, means: Means = MEANS) -> Continuing | Settled:
    cut = find_cut(response, limit_tokens=LIMIT, hands_out_objects=False, request=REQUEST)
    assert cut is not None
    return begin(response, cut=cut, request=REQUEST, means=means)


def _served(request: Request, *, whole: str, characters: int) -> Response:
    """What a model that goes on rightly writes: from the end of what it is shown, as much as its limit allows."""
    shown = text_of(request.messages[-1 if request.messages[-1].role == "assistant" else -2])
    at = whole.rindex(shown[-40:]) + len(shown[-40:])
    rest = whole[at : at + characters]
    if at + characters >= len(whole):
        return Response(model="m", message=Message("assistant", (Text(rest),)), finish=FinishReason.STOP)
    return _cut_response(Text(rest))


def _recovered(
    found: Continuing | Settled, *, whole: str, characters: int, means: Means = MEANS
) -> tuple[Settled, int]:
    requests = 0
    while isinstance(found, Continuing):
        requests += 1
        reply = _served(continue_request(found, means=means), whole=whole, characters=characters)
        found = take_reply(found, reply=reply, limit_tokens=LIMIT)
    return found, requests


@pytest.mark.promise("cut:continued")
@given(at=st.integers(200, len(ARGUMENTS) - 40), characters=st.integers(2_000, 20_000), prefill=st.booleans())
def test_a_call_that_was_cut_anywhere_is_whole_in_the_end(at: int, characters: int, prefill: bool) -> None:
    """The core takes a request, a response, names, limits and prefill as data, and gives the next request or the one response."""
    means = replace(MEANS, prefill=prefill)
    found = _begin(_cut_response(_call(ARGUMENTS[:at])), means=means)
    settled, requests = _recovered(found, whole=ARGUMENTS, characters=characters, means=means)
    (call,) = calls_of(settled.response.message)
    assert requests >= 1
    assert (call.state, json.loads(call.arguments)) == (ArgumentsState.COMPLETE, json.loads(ARGUMENTS))
    assert settled.response.finish is FinishReason.TOOL_CALLS


@pytest.mark.promise("cut:text-continued")
@given(at=st.integers(200, len(WORDS) - 40), characters=st.integers(2_000, 20_000))
def test_a_text_that_was_cut_anywhere_is_whole_in_the_end(at: int, characters: int) -> None:
    settled, _ = _recovered(_begin(_cut_response(Text(WORDS[:at]))), whole=WORDS, characters=characters)
    assert text_of(settled.response.message) == WORDS
    assert settled.response.finish is FinishReason.STOP


@pytest.mark.promise("cut:continued")
def test_two_cut_calls_are_gone_on_with_one_after_the_other() -> None:
    """Parallel calls that one limit cut: each has requests of its own, and both stand in one response."""
    other = json.dumps({"path": "/other", "lines": [path[::-1] for path in PATHS]})
    found = _begin(_cut_response(_call(ARGUMENTS[:900]), _call(other[:900], id="c2")))
    texts: list[str] = []
    while isinstance(found, Continuing):
        whole = ARGUMENTS if found.place == 0 else other
        texts.append("first" if found.place == 0 else "second")
        request = continue_request(found, means=MEANS)
        found = take_reply(found, reply=_served(request, whole=whole, characters=len(whole)), limit_tokens=LIMIT)
    assert texts == ["first", "second"]
    assert [call.arguments for call in calls_of(found.response.message)] == [ARGUMENTS, other]


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize(
    "means",
    [replace(MEANS, recover="split"), replace(MEANS, recover="off"), replace(MEANS, callable=())],
    ids=["split", "off", "a tool that may not be called"],
)
def test_a_cut_call_that_is_not_to_be_gone_on_with_stays_truncated(means: Means) -> None:
    """Nothing is asked for, and the call can never run: it keeps its state and what came of it."""
    settled = _begin(_cut_response(_call(ARGUMENTS[:900])), means=means)
    assert isinstance(settled, Settled)
    (call,) = calls_of(settled.response.message)
    assert (call.state, call.arguments) == (ArgumentsState.TRUNCATED, ARGUMENTS[:900])


def test_what_was_joined_before_the_last_request_failed_is_not_lost() -> None:
    """A continuation that is given up leaves a text as far as it came, and a call truncated."""
    found = _begin(_cut_response(Text(WORDS[:900])))
    assert isinstance(found, Continuing)
    reply = _served(continue_request(found, means=MEANS), whole=WORDS, characters=3_000)
    found = take_reply(found, reply=reply, limit_tokens=LIMIT)
    assert isinstance(found, Continuing)
    so_far = text_of(as_far_as_it_came(found).message)
    settled = give_up(found, why="the request failed: server")
    assert isinstance(settled, Settled)
    assert text_of(settled.response.message) == so_far == WORDS[: len(so_far)]
    assert len(so_far) > 3_000
    assert settled.response.finish is FinishReason.LENGTH
    assert [repair.kind for repair in settled.repairs][-1] == "continuation_refused"


def test_a_text_that_never_ends_is_given_up_after_so_many_requests() -> None:
    """A bound of its own: it holds without a turn's limits (promise wait:bounded)."""
    endless = " ".join([f"{number} bottles of {number * 7 % 1009} on the wall." for number in range(60_000)])
    settled, requests = _recovered(_begin(_cut_response(Text(endless[:4_000]))), whole=endless, characters=4_000)
    assert requests == MAX_TEXT_CONTINUATIONS
    assert settled.repairs[-1].what == f"it was still cut after {MAX_TEXT_CONTINUATIONS} continuations"


@pytest.mark.parametrize(
    ("limits", "ceiling", "most"),
    [
        (ModelLimits(max_output_tokens=4_000), None, 4_000),
        (ModelLimits(max_output_tokens=4_000), 1_000, 1_000),
        (ModelLimits(max_output_tokens=LIMIT), None, None),
        (ModelLimits(), None, None),
    ],
    ids=["what the model gives", "the user's ceiling", "no more than it had", "nobody knows the model's limit"],
)
def test_a_call_without_a_beginning_is_asked_for_once_more_with_more_room(
    limits: ModelLimits, ceiling: int | None, most: int | None
) -> None:
    means = replace(MEANS, limits=limits, ceiling_tokens=ceiling)
    response = _cut_response(_call(""))
    cut = find_cut(response, limit_tokens=LIMIT, hands_out_objects=False, request=REQUEST)
    assert cut is not None
    settled = begin(response, cut=cut, request=REQUEST, means=means)
    assert isinstance(settled, Settled)
    more = roomier(settled, cut=cut, request=REQUEST, limit_tokens=LIMIT, means=means)
    assert (None if more is None else more.max_output_tokens) == most


@pytest.mark.promise("cut:thinking-ate-all")
@each(
    ("parts", "ate"),
    [
        ((Reasoning("so"),), True),
        ((), True),  # a provider may hide its reasoning
        ((Reasoning("so"), Text(" \n")), True),
        ((Reasoning("so"), Text("It is")), False),
        ((Reasoning("so"), _call("")), False),
        ((Reasoning("so"), Refusal("no")), False),
        ((Reasoning("so"), File(media_type="image/png", data=b"p")), False),
        ((Reasoning("so"), ProviderItem(family="anthropic_messages", kind="x", json="{}")), False),
    ],
)
def test_reasoning_ate_all_where_the_limit_fell_before_anything_else_came(parts: tuple[Part, ...], ate: bool) -> None:
    """Proves: a text, a refusal, a call, a file and an item of the provider's are each something."""
    response = _cut_response(*parts)
    cut = find_cut(response, limit_tokens=LIMIT, hands_out_objects=False)
    assert cut is not None
    assert ate_all(response, cut=cut) is ate
