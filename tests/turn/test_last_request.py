"""The request that a limit keeps for the answer is spent on the model's own answer."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tables import each
from turn.playing import ASK, CONFIG, Played, call, play, results_in, says, session_messages
from turn.test_output import TYPED
from turnwise.rules.answer_room import QUOTED, fit_answer
from turnwise.rules.compaction import LEFT_OUT, SUMMARY_HEAD
from turnwise.rules.limits import Limit, MaxCost, MaxRequests, MaxTokens
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import (
    Event,
    FinishTurn,
    Interrupted,
    PlannedCall,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, replay
from turnwise.vocab import (
    Fault,
    FaultKind,
    Message,
    Response,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    calls_of,
    text_of,
)

SMALL = ModelLimits(context_window_tokens=8_000, max_output_tokens=2_000)
ROOMY = replace(CONFIG, room="compact", model_limits=SMALL, max_steps=100)


def prompt_of(command: SendRequest) -> int:
    return sum([message_bytes(one) for one in command.request.messages]) // 4


def against_window(
    script: Sequence[Response],
    *,
    sizes: Sequence[int],
    config: TurnConfig,
    window: int,
    summary: str = "SUMMARY",
    tells: str = "too long",
) -> Played:
    """Steps as scripted against a provider that counts four bytes a token and refuses what does not fit."""
    started = TurnStarted(config=config, input=(ASK,))
    turn, command = Turn.start(started)
    events: list[Event] = [started]
    requests: list[SendRequest] = []
    coming, size = list(script), list(sizes)
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number, request=request):
                requests.append(command)
                tokens = prompt_of(command)
                if tokens + (request.settings.max_output_tokens or 0) > window:
                    fault = Fault(kind=FaultKind.CONTEXT_OVERFLOW, message=tells, status=400)
                    event: Event = RequestFailed(number=number, fault=fault)
                else:
                    is_forced = request.tool_choice == "none"
                    said = says(summary if command.purpose == "compact" else "Done.") if is_forced else coming.pop(0)
                    usage = Usage(input_tokens=tokens, output_tokens=20)
                    event = ResponseReceived(number=number, response=replace(said, usage=usage))
            case RunTools(calls=planned):
                event = ToolsFinished(results=tuple([filled(plan, size.pop(0)) for plan in planned]))
            case _:
                raise AssertionError(command)
        events.append(event)
        command = turn.receive(event)
    return Played(requests, [], command.result, events, turn)


def filled(plan: PlannedCall, size: int) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("word " * (size // 5)),))


def steps(*, of: int) -> list[Response]:
    """Steps with so many calls each."""
    return [calls(of, step=step) for step in range(30)]


def calls(count: int, *, step: int) -> Response:
    return says(*[call(f"c{step}_{nth}", arguments=f'{{"path":"{step}_{nth}"}}') for nth in range(count)])


def said_of(played: Played) -> tuple[str, str]:
    return played.result.origin, played.result.text


def shown(command: SendRequest) -> str:
    return "\n".join([text_of(message) for message in command.request.messages])


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize("tells", ["too long", "prompt is too long: 9000 tokens > 8000 maximum"])
def test_after_an_overflow_with_one_request_left_the_answer_is_the_models(tells: str) -> None:
    """Proves: what is old is shortened for nothing, and the last request is the answer's, as after a 500 (issue 14, line 2). The
    provider's window is half of what was thought."""
    wide = replace(ROOMY, model_limits=replace(SMALL, context_window_tokens=16_000))
    for most in range(2, 12):
        config = replace(wide, limits=MaxRequests(most))
        played = against_window(steps(of=1), sizes=[4_000] * 30, config=config, window=8_000, tells=tells)
        assert played.result.requests <= most
        last = played.events[-1]
        if isinstance(last, RequestFailed):  # the answer's own request was the first that did not fit: nobody knew it
            assert (most, played.requests[-1].request.tool_choice) == (7, "none")
            continue
        assert said_of(played) == ("model", "Done."), most
        assert played.requests[-1].request.tool_choice == "none"


@pytest.mark.promise("end:budget", "cut:budget")
@each(("of", "size"), [(1, 12_000), (2, 12_000), (8, 6_000), (20, 50_000), (60, 3_000), (128, 400)])
@each("summary", ["SUMMARY", ""])
def test_however_little_room_there_is_the_last_request_is_the_models_answer(of: int, size: int, summary: str) -> None:
    """Proves: whatever is left out for it, the request that a limit keeps is built and fits, also after 20 huge results in a
    window of 8,000 tokens; a larger limit is answered no worse (issue 14, line 2)."""
    for most in (1, 2, 3, 4, 5, 6, 9, None):
        config = replace(ROOMY, limits=None if most is None else MaxRequests(most), max_steps=12)
        played = against_window(steps(of=of), sizes=[size] * 4_000, config=config, window=8_000, summary=summary)
        assert said_of(played) == ("model", "Done."), most
        assert most is None or played.result.requests <= most


@pytest.mark.promise("end:budget", "keep:replay")
def test_what_the_answer_has_no_room_for_stays_in_the_session() -> None:
    """Proves: only the answer's request carries less; the history that the next turn begins with is whole, on replay too."""
    config = replace(ROOMY, limits=MaxRequests(3))
    played = against_window(steps(of=20), sizes=[50_000] * 99, config=config, window=8_000)
    assert said_of(played) == ("model", "Done.")
    assert len(results_in(played.turn.known.history.messages)) == 20
    assert (
        played.turn.known.history.sizes
        == [message_bytes(one) for one in played.turn.known.history.messages][: len(played.turn.known.history.sizes)]
    )
    assert session_messages([played.events]) == played.result.messages
    assert [one for one in replay(played.events) if isinstance(one, SendRequest)] == played.requests
    assert "compaction" in played.result.prefix_changes[-1]


ROW = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(3), output=Decimal(15)),))


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("kind", ["tokens", "money"])
def test_a_limit_of_tokens_or_money_is_answered_by_the_model_though_the_results_cost_more(kind: str) -> None:
    """Proves: a result that alone is more than the limit leaves room for the answer's request: it is shortened for that, and
    nothing goes over. A smaller limit had the model's answer and a larger one had ours."""
    wide = replace(ROOMY, model_limits=ModelLimits(context_window_tokens=200_000, max_output_tokens=4_000))
    for most in range(2_500, 60_000, 2_500):
        limit: Limit = MaxTokens(most) if kind == "tokens" else MaxCost(most * 3 / Decimal(1_000_000))
        config = replace(wide, limits=limit, prices={"m": ROW} if kind == "money" else {})
        played = against_window(steps(of=1), sizes=[90_000] * 30, config=config, window=200_000)
        assert said_of(played) == ("model", "Done."), most
        usage = played.result.usage
        assert kind == "money" or usage.input_tokens + usage.output_tokens <= most
        assert kind == "tokens" or (played.result.charged_usd or 0) <= most * 3 / Decimal(1_000_000)


def failed(number: int, kind: FaultKind = FaultKind.SERVER) -> RequestFailed:
    return RequestFailed(number=number, fault=Fault(kind=kind, message="busy", status=500))


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("after", [(failed(2),), (says(""), says("")), (says(call("a")), failed(3))])
def test_an_answer_that_does_not_fit_stands_where_no_better_one_comes(
    after: Sequence[Response | RequestFailed],
) -> None:
    """Proves: a correction that brings nothing does not take the model's own answer away, so a request more is answered with no
    less than without it."""
    played = play([says("no"), *after], config=TYPED)
    assert (played.result.text, played.result.origin, played.result.output) == ("no", "model", None)
    assert (played.result.complete, played.result.stop_reason) == (False, StopReason.ANSWERED)
    once = play([says("no")], config=replace(TYPED, limits=MaxRequests(1)))
    assert said_of(once) == said_of(played)


@pytest.mark.promise("end:budget")
def test_time_that_is_up_in_a_correction_leaves_the_answer_that_was_there() -> None:
    """Proves: the model's text stands, and the stop reason says why it was not corrected."""
    ended = play([says("no"), Interrupted(kind="deadline")], config=TYPED).result  # type: ignore[list-item]
    assert (ended.text, ended.origin, ended.stop_reason) == ("no", "model", StopReason.TIME_LIMIT)
    stopped = play([says("no"), Interrupted(kind="cancel")], config=TYPED).result  # type: ignore[list-item]
    assert (stopped.origin, stopped.stop_reason) == ("local", StopReason.CANCELLED)
    assert "The model had said:\nno" in stopped.text


def talk(sizes: Sequence[tuple[str, int]]) -> list[Message]:
    """A session of the user's messages, steps with results, and summaries, of these sizes."""
    messages = [ASK]
    for nth, (kind, size) in enumerate(sizes):
        text = "words " * (size // 6)
        if kind == "step":
            asked = says(call(f"c{nth}"), call(f"d{nth}")).message
            found = [ToolResult(call_id=one.id, name=one.name, content=(Text(text),)) for one in calls_of(asked)]
            messages += [asked, Message("tool", tuple(found))]
        else:
            messages.append(Message("user", (Text(f"{SUMMARY_HEAD}\n{text}" if kind == "summary" else text),)))
    return messages


PIECES = st.tuples(st.sampled_from(["step", "step", "user", "summary"]), st.integers(0, 40_000))


@pytest.mark.promise("cut:budget", "step:every-call-answered")
@given(st.lists(PIECES, max_size=12), st.integers(2_000, 60_000))
def test_what_is_left_fits_and_every_call_has_its_result(sizes: list[tuple[str, int]], limit: int) -> None:
    """Proves: for every session, it fits into what there is, the message to answer is whole, calls and results are pairs, and
    what fits as it is stays as it is. Only the message to answer can be too large."""
    messages = talk(sizes)
    weights = [message_bytes(one) for one in messages]
    fitted = fit_answer(messages, sizes=weights, limit_bytes=limit)
    if fitted is None:
        users = len([one for one in messages if one.role == "user"])
        assert messages[-1].role == "user" or users * 400 > limit
        return
    assert [message_bytes(one) for one in fitted.messages] == list(fitted.sizes)
    assert sum(fitted.sizes) <= limit
    assert [one.id for one in map_calls(fitted.messages)] == list(results_in(fitted.messages))
    if messages[-1].role == "user":
        assert fitted.messages[-1] == messages[-1]
    if sum(weights) <= limit:
        assert fitted.messages == tuple(messages)
    texts = "\n".join([text_of(one) for one in fitted.messages])
    assert len(fitted.messages) >= len(messages) or LEFT_OUT in texts or QUOTED in texts


def map_calls(messages: Sequence[Message]) -> list[ToolCall]:
    return [one for message in messages for one in calls_of(message)]
