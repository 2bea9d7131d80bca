"""Room in a turn: output limits from the model's, results of bounded size, compaction, and what a provider tells."""

import msgspec
import pytest

from turn.playing import ASK, CONFIG, Played, call, play, says
from turnwise.rules.budget import ModelLimits, message_bytes, output_reserve, prompt_capacity, window_of
from turnwise.rules.compaction import LEFT_OUT, SUMMARY_HEAD
from turnwise.turn.commands import FinishTurn, PlannedCall, RunTools, SendRequest
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import Event, RequestFailed, ResponseReceived, ToolsFinished, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.turn.room import NO_ROOM
from turnwise.turn.snapshot import replay, session_messages
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Request,
    Response,
    Settings,
    StopReason,
    Text,
    ToolResult,
    Usage,
    text_of,
)

SMALL = ModelLimits(context_window_tokens=16_000, max_output_tokens=4_000)
ROOMY = msgspec.structs.replace(CONFIG, room="compact", model_limits=SMALL, max_steps=100)
LONG = "".join([f"line {number}\n" for number in range(5000)])


def large(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text(LONG),))


def failed(number: int, message: str, kind: FaultKind = FaultKind.CONTEXT_OVERFLOW) -> RequestFailed:
    return RequestFailed(number=number, fault=Fault(kind=kind, message=message, status=400))


def steps(count: int) -> list[Response]:
    return [says(call(f"c{number}", arguments=f'{{"path":"{number}"}}')) for number in range(count)]


def words(request: Request) -> str:
    return "\n".join([text_of(message) for message in request.messages])


@pytest.mark.promise("cut:budget")
def test_each_request_asks_for_what_the_model_can_give() -> None:
    """Proves: the model's limit, then what the window leaves; nothing where nobody knows, or it is off."""
    played = play([says("Hello.")], config=ROOMY)
    assert played.requests[0].request.settings == Settings(max_output_tokens=4000)
    huge = Message("user", (Text("x" * 3 * 13_000),))
    played = play([says("Hello.")], config=ROOMY, input=(huge,))
    asked = played.requests[0].request.settings.max_output_tokens
    assert asked is not None
    assert 2000 < asked < 3000
    for config in (msgspec.structs.replace(CONFIG, room="compact"), CONFIG):
        assert play([says("Hello.")], config=config).requests[0].request.settings == Settings()


@pytest.mark.promise("cut:budget")
def test_a_prompt_without_room_for_an_answer_ends_in_an_answer_of_ours() -> None:
    """Proves: no request that must fail, and the reason is told."""
    huge = Message("user", (Text("x" * 3 * 16_000),))
    played = play([], config=ROOMY, input=(huge,))
    assert (played.requests, played.result.text, played.result.origin) == ([], NO_ROOM, "local")
    assert (played.result.stop_reason, played.result.complete) == (StopReason.BUDGET, False)


@pytest.mark.promise("cut:budget")
def test_a_large_result_is_limited_when_it_enters_and_read_back_by_page() -> None:
    """Proves: head, tail and a handle; `read_result` gives the very characters that were left out; no tool runs for it."""
    back = '{"call_id":"a","offset":20000,"limit":1000}'
    played = play([says(call("a")), says(call("b", "read_result", back)), says("Done.")], config=ROOMY, run=large)
    assert [tool.name for tool in played.requests[0].request.tools] == ["read", "write", "client", "read_result"]
    shown = played.requests[1].request.messages[-1].parts[0]
    assert isinstance(shown, ToolResult)
    text = text_of(Message("user", shown.content))
    assert len(text) < 10_000
    assert (text[:2000], text[-2000:]) == (LONG[:2000], LONG[-2000:])
    assert 'call `read_result` with {"call_id": "a"' in text
    read = played.requests[2].request.messages[-1].parts[0]
    assert isinstance(read, ToolResult)
    assert text_of(Message("user", read.content)).startswith(LONG[20_000:21_000])
    assert [[one.call.id for one in ran] for ran in played.ran] == [["a"]]
    assert [one for one in replay(played.events) if isinstance(one, SendRequest)] == played.requests


@pytest.mark.promise("cut:budget")
def test_a_tool_of_that_name_is_the_users_own() -> None:
    """Proves: nothing of ours is offered beside it, and its calls run."""
    own = msgspec.structs.replace(
        CONFIG.tools[0], spec=msgspec.structs.replace(CONFIG.tools[0].spec, name="read_result")
    )
    config = msgspec.structs.replace(ROOMY, tools=(own,))
    played = play([says(call("a", "read_result")), says("Done.")], config=config)
    assert [tool.name for tool in played.requests[0].request.tools] == ["read_result"]
    assert len(played.ran) == 1


def _filling(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name="read", content=(Text(f"{plan.arguments} " + "word " * 300),))


@pytest.mark.promise("cut:budget")
def test_what_is_old_gives_way_and_a_summary_takes_its_place() -> None:
    """Proves: a request of purpose `compact` once, not a step; the user's words and pairs stay; the prompt is smaller."""
    script = steps(60)
    played = _play_with_summaries(script, summary="SUMMARY: parts were read.")
    purposes = [request.purpose for request in played.requests]
    assert purposes.count("compact") >= 1
    assert played.result.steps == 61
    assert played.result.requests == len(purposes)
    assert (played.result.text, played.result.complete) == ("Done.", True)
    after = played.requests[purposes.index("compact") + 1].request
    assert after.messages[0] == ASK
    assert f"{SUMMARY_HEAD}\nSUMMARY: parts were read." in words(after)
    asked = played.requests[purposes.index("compact")].request
    assert (asked.tool_choice, [tool.name for tool in asked.tools]) == (
        "none",
        ["read", "write", "client", "read_result"],
    )
    assert any(change.endswith(": compaction") for change in played.result.prefix_changes)
    for request in played.requests:
        results = {p.call_id for m in request.request.messages for p in m.parts if isinstance(p, ToolResult)}
        calls = {p.id for m in request.request.messages for p in m.parts if hasattr(p, "arguments")}
        assert results == calls
    assert [one for one in replay(played.events) if isinstance(one, SendRequest)] == played.requests


@pytest.mark.promise("cut:budget")
def test_without_a_summary_the_answer_is_forced() -> None:
    """Proves: an empty summary ends the turn with the model's answer, which is told that something is missing."""
    played = _play_with_summaries(steps(60), summary="")
    assert [request.purpose for request in played.requests[-2:]] == ["compact", "step"]
    last = played.requests[-1].request
    assert (last.tool_choice, LEFT_OUT in words(last)) == ("none", True)
    assert (played.result.stop_reason, played.result.complete) == (StopReason.BUDGET, False)


@pytest.mark.promise("cut:budget")
def test_a_session_is_read_again_as_it_was_though_a_turn_summarised_what_was_before() -> None:
    """Proves: a summary asked for because of earlier turns is not taken for a step when the journals are folded."""
    first = _play_with_summaries(steps(20), summary="SUMMARY")
    assert "compact" not in [request.purpose for request in first.requests]
    earlier = session_messages([first.events])
    second = _play_with_summaries(steps(30)[20:], summary="SUMMARY", earlier=earlier)
    assert "compact" in [request.purpose for request in second.requests]
    folded = session_messages([first.events, second.events])
    assert folded == (*first.result.messages, *second.result.messages)


def _play_with_summaries(script: list[Response], *, summary: str, earlier: tuple[Message, ...] = ()) -> Played:
    """Steps as scripted, then the answer; a summary wherever one is asked for."""
    started = TurnStarted(config=ROOMY, input=(ASK,))
    turn, command = Turn.start(started, earlier=earlier)
    events: list[Event] = [started]
    requests: list[SendRequest] = []
    coming = [*script, says("Done.")]
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(purpose="compact", number=number):
                event: Event = ResponseReceived(number=number, response=says(summary))
            case SendRequest(number=number, request=request):
                forced = request.tool_choice == "none"
                event = ResponseReceived(number=number, response=says("Done.") if forced else coming.pop(0))
            case RunTools(calls=planned):
                event = ToolsFinished(results=tuple([_filling(plan) for plan in planned]))
            case _:
                raise AssertionError(command)
        if isinstance(command, SendRequest):
            requests.append(command)
        events.append(event)
        command = turn.receive(event)
    return Played(requests, [], command.result, events, turn)


@pytest.mark.promise("cut:budget")
def test_an_output_limit_that_the_provider_tells_is_taken() -> None:
    """Proves: one retry with the limit that was told, and later requests keep it."""
    refused = failed(
        1, "max_tokens: 4000 > 2048, which is the maximum allowed number of output tokens for m", FaultKind.BAD_REQUEST
    )
    played = play([refused, says(call("a")), says("Done.")], config=ROOMY)
    assert [request.purpose for request in played.requests] == ["step", "retry", "step"]
    assert [request.request.settings.max_output_tokens for request in played.requests] == [4000, 2048, 2048]
    assert (played.result.complete, played.result.steps) == (True, 2)


@pytest.mark.promise("cut:budget")
def test_a_window_that_the_provider_tells_is_taken_and_an_overflow_retried_once() -> None:
    """Proves: the figures of the error decide; a second overflow ends the turn with the provider's words."""
    told = "prompt is too long: 15000 tokens > 12000 maximum"
    script = [*steps(4), failed(5, told), failed(6, told)]
    played = play(script, config=ROOMY, run=_half_large)
    assert [request.purpose for request in played.requests][-2:] == ["step", "retry"]
    before, after = played.requests[-2].request, played.requests[-1].request
    assert len(words(after)) <= len(words(before))
    assert sum(map(_weight, after.messages)) < sum(map(_weight, before.messages))
    assert (played.result.stop_reason, played.result.complete) == (StopReason.PROVIDER_FAILED, False)
    assert told in played.result.text


def _half_large(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text(LONG[:6000]),))


def _weight(message: Message) -> int:
    return len(msgspec.json.encode(message))


@pytest.mark.promise("cut:budget")
def test_an_overflow_without_figures_shrinks_once() -> None:
    """Proves: an unknown window is learned of by a refusal."""
    unknown: TurnConfig = msgspec.structs.replace(CONFIG, room="compact")
    said = "Your input exceeds the context window of this model."
    played = play([*steps(4), failed(5, said), says("Done.")], config=unknown, run=large)
    assert [request.purpose for request in played.requests][-2:] == ["step", "retry"]
    before, after = played.requests[-2].request, played.requests[-1].request
    assert sum(map(_weight, after.messages)) * 10 < sum(map(_weight, before.messages)) * 9
    assert (played.result.text, played.result.complete) == ("Done.", True)


def test_other_failures_end_the_turn_as_before() -> None:
    """Proves: what is not about room is not asked again."""
    for kind in (FaultKind.BAD_REQUEST, FaultKind.QUOTA, FaultKind.AUTH, FaultKind.SERVER):
        played = play([failed(1, "no", kind)], config=ROOMY)
        assert (len(played.requests), played.result.stop_reason) == (1, StopReason.PROVIDER_FAILED)


@pytest.mark.promise("cut:budget")
def test_the_providers_count_stands_over_our_guess() -> None:
    """Proves: what a request really took decides how much the next one may ask for."""
    counted = Response(
        message=Message("assistant", (call("a"),)),
        finish=FinishReason.TOOL_CALLS,
        usage=Usage(input_tokens=11_000, output_tokens=10),
    )
    config = msgspec.structs.replace(ROOMY, model_limits=msgspec.structs.replace(SMALL, max_output_tokens=8_000))
    played = play([counted, says("Done.")], config=config)
    asked = played.requests[1].request.settings.max_output_tokens
    assert asked is not None
    assert 4_500 < asked < 5_000


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(("over", "purposes"), [(0, ["step"]), (1, ["compact", "step"])])
def test_compaction_begins_where_the_response_would_have_less_than_its_reserve(over: int, purposes: list[str]) -> None:
    """One figure for both: the largest prompt that is left alone leaves just what its request asks for."""
    limits = ModelLimits(context_window_tokens=30_000, max_output_tokens=4_000)
    config = msgspec.structs.replace(CONFIG, room="compact", model_limits=limits, tools=(), system=())
    pair = (Message("user", (Text("x" * 3_000),)), Message("assistant", (Text("x" * 3_000),)))
    earlier = [one for _ in range(10) for one in pair]
    capacity = prompt_capacity(limits, settings=Settings())
    assert capacity == 30_000 - 4_000 == window_of(limits) - output_reserve(limits, settings=Settings())
    last = capacity * 3 - sum([message_bytes(one) for one in earlier]) - message_bytes(Message("user", (Text(""),)))
    ask = Message("user", (Text("y" * (last + over)),))
    played = play(
        [*[says("What was said.") for _ in purposes[:-1]], says("Hi.")],
        config=config,
        earlier=tuple(earlier),
        input=(ask,),
    )
    assert [sent.purpose for sent in played.requests] == purposes
    if not over:
        assert played.requests[0].request.settings.max_output_tokens == 4_000
