"""Room in a turn: output limits from the model's, results of bounded size, compaction, and what a provider tells."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pytest

from tables import each
from turn.playing import ASK, CONFIG, Played, call, play, says, session_messages
from turnwise.rules.compaction import LEFT_OUT, MORE_FOLLOWS, SUMMARY_HEAD
from turnwise.rules.limits import MaxCost, MaxRequests, MaxTokens, most_usd
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.prompt_room import ModelLimits, message_bytes, output_reserve, prompt_capacity, window_of
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    PlannedCall,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, replay
from turnwise.turn.room import NO_ROOM
from turnwise.turn.step_request import MAX_CORRECTIONS
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
    ToolCall,
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
def test_a_prompt_that_is_too_long_only_by_our_guess_goes_out() -> None:
    """Proves: three bytes a token are a guess, so the provider's count or its refusal decides; what no text can fit does not."""
    huge = Message("user", (Text("x" * 3 * 16_000),))
    played = play([says("Hello.")], config=ROOMY, input=(huge,))
    assert (played.result.text, played.result.complete) == ("Hello.", True)
    asked = played.requests[0].request.settings.max_output_tokens
    assert asked is not None and 3_700 < asked < 4_000  # what four bytes a token would leave
    told = "prompt is too long: 16100 tokens > 16000 maximum"
    refused_once = play([failed(1, told)], config=ROOMY, input=(huge,))
    assert (refused_once.result.text, refused_once.result.origin) == (NO_ROOM, "local")
    longer = play([says("Hello.")], config=ROOMY, input=(Message("user", (Text("x" * 100_000),)),))
    assert longer.requests[0].request.settings.max_output_tokens == 1_024
    longest = play([], config=ROOMY, input=(Message("user", (Text("x" * 8 * 16_000),)),))
    assert (longest.requests, longest.result.text, longest.result.origin) == ([], NO_ROOM, "local")
    assert (longest.result.stop_reason, longest.result.complete) == (StopReason.BUDGET, False)


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
        calls = {p.id for m in request.request.messages for p in m.parts if isinstance(p, ToolCall)}
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


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize("summary", ["SUMMARY: parts were read.", ""])
@pytest.mark.parametrize("kind", ["requests", "money"])
def test_a_summary_never_takes_the_request_that_is_kept_for_the_answer(kind: str, summary: str) -> None:
    """Proves: whatever the limit, the last request is the model's answer, with tools forbidden, also where the one before it was
    a summary; where there is no room for both the older part is left out and no summary is asked for."""
    plain = _play_with_summaries(steps(60), summary=summary)
    first = [request.purpose for request in plain.requests].index("compact") + 1
    row = PriceRow(plan="request", source="test", request_usd=Decimal("0.01"))
    for most in range(first - 2, first + 6):
        limit = MaxRequests(most) if kind == "requests" else MaxCost(most * Decimal("0.01"))
        config = msgspec.structs.replace(ROOMY, limits=limit, prices={"m": row} if kind == "money" else {})
        played = _play_with_summaries(steps(60), summary=summary, config=config)
        last = played.requests[-1]
        assert len(played.requests) <= most
        assert (last.purpose, last.request.tool_choice) == ("step", "none"), (
            most,
            [one.purpose for one in played.requests],
        )
        assert (played.result.text, played.result.origin) == ("Done.", "model"), most


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize("kind", ["tokens", "money"])
def test_a_limit_of_tokens_holds_through_summaries_and_ends_with_the_models_answer(kind: str) -> None:
    """Proves: what a summary took is counted and the smaller prompt behind it as well, so the answer is asked for in time and not
    too early; by the provider's own count nothing goes over."""
    row = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(3), output=Decimal(15)),))
    summaries = 0
    for most in range(50_000, 450_000, 25_000):
        limit = MaxTokens(most) if kind == "tokens" else MaxCost(most * 3 / Decimal(1_000_000))
        config = msgspec.structs.replace(ROOMY, limits=limit, prices={"m": row} if kind == "money" else {})
        played = _play_with_summaries(steps(90), summary="SUMMARY " * 100, config=config, bytes_a_token=4)
        result, last = played.result, played.requests[-1]
        summaries += result.requests_by_purpose.get("compact", 0)
        assert (last.purpose, last.request.tool_choice, result.origin) == ("step", "none", "model"), most
        if kind == "tokens":
            assert result.usage.input_tokens + result.usage.output_tokens <= most
        else:
            assert result.charged_usd is not None and result.charged_usd <= most_usd(limit)
    assert summaries > 10


def _play_with_summaries(
    script: list[Response],
    *,
    summary: str,
    earlier: tuple[Message, ...] = (),
    config: TurnConfig = ROOMY,
    bytes_a_token: int = 0,
) -> Played:
    """Steps as scripted, then the answer; a summary wherever one is asked for. With `bytes_a_token` the provider counts."""
    started = TurnStarted(config=config, input=(ASK,))
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
        if bytes_a_token and isinstance(command, SendRequest) and isinstance(event, ResponseReceived):
            usage = Usage(
                input_tokens=sum([_weight(message) for message in command.request.messages]) // bytes_a_token,
                output_tokens=_weight(event.response.message) // bytes_a_token,
            )
            event = ResponseReceived(number=event.number, response=msgspec.structs.replace(event.response, usage=usage))
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
def test_a_window_that_the_provider_tells_is_taken_and_each_overflow_shrinks() -> None:
    """Proves: the figures of the error decide; a second overflow of the same request, and one later in the turn, find
    something smaller to send, at last for the answer alone; where no model's window is so small the error stands."""
    told = "prompt is too long: 15000 tokens > 12000 maximum"
    less = "prompt is too long: 12500 tokens > 12000 maximum"
    script = [*steps(4), failed(5, told), failed(6, less), says("SUMMARY"), *steps(7)[4:], failed(11, less)]
    script += [says("SUMMARY"), says("Done.")]
    played = play(script, config=ROOMY, run=_half_large)
    purposes = [request.purpose for request in played.requests]
    assert purposes == [*["step"] * 5, "retry", "compact", "retry", *["step"] * 3, "compact", "retry"]
    for refused_at, again_at in ((4, 5), (5, 7), (10, 12)):
        before, after = played.requests[refused_at].request, played.requests[again_at].request
        assert sum(map(_weight, after.messages)) * 10 < sum(map(_weight, before.messages)) * 9
    assert (played.result.text, played.result.complete) == ("Done.", True)
    said = "Your input exceeds the context window of this model."
    never = play([failed(number, said) for number in range(1, 4)], config=ROOMY, earlier=_long_earlier())
    assert (never.result.origin, never.result.stop_reason) == ("local", StopReason.PROVIDER_FAILED)
    first, second, third = [sum(map(_weight, sent.request.messages)) for sent in never.requests]
    assert second * 10 < first * 9 and third * 10 < second * 9
    assert [sent.request.tool_choice for sent in never.requests] == ["auto", "auto", "none"]


def _long_earlier() -> tuple[Message, ...]:
    """Of which only one message can be made smaller."""
    return (Message("user", (Text("x" * 20_000),)), Message("assistant", (Text("y" * 4_000),)))


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


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(
    "said",
    ["prompt is too long: 15500 tokens > 16000 maximum", "Your input exceeds the context window of this model."],
)
def test_a_request_for_a_summary_that_is_refused_is_made_smaller(said: str) -> None:
    """Proves: a part of the history is summarised, then the rest; nothing is left out, and each request is a summary's."""
    talk = [one for number in range(60) for one in _exchange(number)]
    script = [failed(1, said), says("SUMMARY"), says("Done.")]
    played = play(script, config=ROOMY, earlier=tuple(talk))
    assert [request.purpose for request in played.requests] == ["compact", "compact", "step"]
    refused_one, first, _ = [sum(map(_weight, sent.request.messages)) for sent in played.requests]
    assert first * 10 < refused_one * 9
    shown = "\n".join([words(sent.request) for sent in played.requests[1:]])
    assert all(f"answer {number} " in shown for number in range(60))
    last = words(played.requests[-1].request)
    assert (f"{SUMMARY_HEAD}\nSUMMARY" in last, LEFT_OUT in last) == (True, False)
    assert MORE_FOLLOWS in words(played.requests[1].request)
    assert (played.result.text, played.result.complete) == ("Done.", True)
    assert [one for one in replay_from(played, talk) if isinstance(one, SendRequest)] == played.requests


def _exchange(number: int) -> tuple[Message, Message]:
    return Message("user", (Text(f"question {number}"),)), Message("assistant", (Text(f"answer {number} " * 60),))


def replay_from(played: Played, earlier: Sequence[Message]) -> list[Command]:
    started, *later = played.events
    assert isinstance(started, TurnStarted)
    turn, command = Turn.start(started, earlier=tuple(earlier))
    return [command, *[turn.receive(event) for event in later]]


@pytest.mark.promise("cut:budget")
def test_a_summary_that_is_refused_again_and_again_is_done_without() -> None:
    """Proves: the number of requests is bounded; then a word stands in its place, and the answer is forced."""
    talk = [one for number in range(60) for one in _exchange(number)]
    said = "Your input exceeds the context window of this model."
    refusals = [failed(number, said) for number in range(1, 6)]
    assert len(refusals) <= 1 + MAX_CORRECTIONS
    played = play([*refusals, says("So far.")], config=ROOMY, earlier=tuple(talk))
    assert [request.purpose for request in played.requests] == [*["compact"] * len(refusals), "step"]
    sizes = [sum(map(_weight, sent.request.messages)) for sent in played.requests[: len(refusals)]]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] * 8 < sizes[0]
    last = words(played.requests[-1].request)
    assert (LEFT_OUT in last, "answer 50 " in last, "question 50" in last) == (True, False, True)
    assert (played.result.stop_reason, played.result.complete) == (StopReason.BUDGET, False)


def _served(turn: Turn, command: Command, *, bytes_a_token: float, window: int, tells: bool, count: int) -> list[str]:
    """A provider that counts every byte, refuses what is past its window, and wants `count` steps: its purposes and words."""
    seen: list[str] = []
    step = 0
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number, request=request, purpose=purpose):
                tokens = int(len(msgspec.json.encode((request.messages, request.tools))) / bytes_a_token)
                asked = request.settings.max_output_tokens or 0
                if tokens + asked > window:
                    seen.append("overflow")
                    counts = (
                        f"maximum context length is {window} tokens. However, you requested {tokens + asked} tokens "
                    )
                    counts += f"({tokens} in the messages, {asked} in the completion)."
                    command = turn.receive(failed(number, counts if tells else "input exceeds the context window"))
                    continue
                seen.append(purpose)
                step += purpose != "compact"
                reply = says("SUMMARY " * 40) if purpose == "compact" else says(call(f"c{number}"))
                if request.tool_choice == "none" or step == count:
                    reply = reply if purpose == "compact" else says("Done.")
                reply = msgspec.structs.replace(reply, usage=Usage(input_tokens=tokens, output_tokens=30))
                command = turn.receive(ResponseReceived(number=number, response=reply))
            case RunTools(calls=planned):
                size = (5_000, 20_000)[step % 2]
                results = [
                    ToolResult(call_id=p.call.id, name="read", content=(Text("0af3" * (size // 4)),)) for p in planned
                ]
                command = turn.receive(ToolsFinished(results=tuple(results)))
            case _:
                raise AssertionError(command)
    assert command.result.text == "Done."
    assert (command.result.complete, command.result.steps) == (True, count)
    return seen


@pytest.mark.promise("cut:budget")
@each("tells", [True, False])
@each("bytes_a_token", [1.2, 1.5, 2, 2.5, 4])
def test_dense_text_is_planned_for_by_what_the_provider_counted(bytes_a_token: float, tells: bool) -> None:
    """Proves: results of hex digits fill the window twice as fast as the guess; all steps are made, with hardly an overflow."""
    limits = ModelLimits(context_window_tokens=32_000)
    config = msgspec.structs.replace(ROOMY, model_limits=limits, tools=(CONFIG.tools[0],), max_steps=150)
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    seen = _served(turn, command, bytes_a_token=bytes_a_token, window=32_000, tells=tells, count=100)
    assert seen.count("overflow") <= 1
    assert 0 < seen.count("compact") < 20


@pytest.mark.promise("cut:budget")
def test_words_that_nobody_knows_after_a_long_prompt_are_taken_for_an_overflow_once() -> None:
    """Proves: one try with half of the prompt where it is larger than all that went through; where that fails as well it
    was about something else, and the provider's words and the history stand."""
    unknown: TurnConfig = msgspec.structs.replace(CONFIG, room="compact")
    odd = "Sorry, that is more than I can chew."
    script = [*steps(4), failed(5, odd, FaultKind.BAD_REQUEST)]
    played = play([*script, says("Done.")], config=unknown, run=_half_large)
    assert [request.purpose for request in played.requests][-2:] == ["step", "retry"]
    before, after = played.requests[-2].request, played.requests[-1].request
    assert sum(map(_weight, after.messages)) < sum(map(_weight, before.messages)) * 6 // 10
    assert played.result.text == "Done."
    twice = play([*script, failed(6, odd, FaultKind.BAD_REQUEST)], config=unknown, run=_half_large)
    assert (twice.result.stop_reason, len(twice.requests)) == (StopReason.PROVIDER_FAILED, 6)
    talk = tuple([one for number in range(60) for one in _exchange(number)])
    refused_summary = [failed(number, odd, FaultKind.BAD_REQUEST) for number in (1, 2)]
    kept = play(refused_summary, config=unknown, earlier=talk)
    assert [request.purpose for request in kept.requests] == ["step", "compact"]
    assert (kept.result.stop_reason, odd in kept.result.text) == (StopReason.PROVIDER_FAILED, True)
    assert kept.turn.known.history.messages == [*talk, ASK]


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


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "told by a refusal"])
def test_a_summary_asks_for_no_more_output_than_the_model_has(is_known: bool) -> None:
    """Its share of the window may be more than the model can write: the request was refused, and sent again as it was."""
    limits = ModelLimits(context_window_tokens=30_000, max_output_tokens=512 if is_known else None)
    config = msgspec.structs.replace(CONFIG, room="compact", model_limits=limits, tools=(), system=())
    pair = (Message("user", (Text("x" * 5_000),)), Message("assistant", (Text("x" * 5_000),)))
    told = "max_tokens: 8192 > 512, which is the maximum allowed number of output tokens for m"
    refused = [] if is_known else [failed(1, told, FaultKind.BAD_REQUEST)]
    played = play([*refused, says("What was said."), says("Hi.")], config=config, earlier=pair * 10)
    assert [sent.purpose for sent in played.requests][-2:] == ["compact", "step"]
    summary = played.requests[-2].request
    assert summary.settings.max_output_tokens == 512
    assert f"At most {512 * 2 // 3} words" in text_of(summary.messages[-1])
