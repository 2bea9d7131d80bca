"""Sentences of docs/limits.md that no other test would miss: each test here fails where the code does something else."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec
import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, READ, call, done, play, says
from turnwise.rules.answer_room import QUOTED, SYNTHESIS, fit_answer
from turnwise.rules.limits import ANSWER_TOKENS, ANSWER_WORDS_TOKENS, LEAST_ANSWER_TOKENS, MaxCost, MaxTokens, Spent
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.rules.reservations import NOTHING_LEFT, least_of, shares_of
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.events import (
    Asked,
    Event,
    FinishTurn,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, fold_session
from turnwise.turn.turn_spending import Pacing
from turnwise.vocab import Fault, FaultKind, Message, Response, Text, ToolResult, Usage, text_of

UNKNOWN = replace(CONFIG, room="compact", max_steps=100)
TOO_LONG = Fault(
    kind=FaultKind.CONTEXT_OVERFLOW, message="Your input exceeds the context window of this model.", status=400
)


class Tried(msgspec.Struct):
    """What a turn was asked for: the size of each request, and the most that its prompt may have after what came of it."""

    sizes: list[int]
    learned: list[int | None]
    result: TurnResult
    events: list[Event]


def tried(
    script: Sequence[Response | Fault], *, config: TurnConfig = UNKNOWN, history: tuple[Message, ...] = ()
) -> Tried:
    started = TurnStarted(config=config, input=(ASK,), history=history)
    turn, command = Turn.start(started)
    events: list[Event] = [started]
    coming, sizes, learned = list(script), list[int](), list[int | None]()
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number, request=request):
                sizes.append(sum(map(message_bytes, request.messages)))
                came = coming.pop(0) if coming else TOO_LONG
                event: Event = (
                    ResponseReceived(number=number, response=came)
                    if isinstance(came, Response)
                    else RequestFailed(number=number, fault=came)
                )
            case RunTools(calls=planned):
                event = ToolsFinished(results=tuple([done(plan) for plan in planned]))
            case _:
                raise AssertionError(command)
        events.append(event)
        command = turn.receive(event)
        if isinstance(event, ResponseReceived | RequestFailed):
            learned.append(turn.known.config.model_limits.max_input_tokens)
    return Tried(sizes, learned, command.result, events)


def talk(count: int, *, size: int) -> tuple[Message, ...]:
    said = [
        [Message("user", (Text(f"{nth} {'x' * size}"),)), Message("assistant", (Text("Yes."),))] for nth in range(count)
    ]
    return tuple([one for pair in said for one in pair])


@pytest.mark.promise("cut:budget")
def test_a_refusal_without_figures_takes_the_prompt_for_a_tenth_too_long_then_a_quarter_then_half() -> None:
    """limits.md: of what was asked for each time."""
    found = tried([], history=talk(200, size=30_000))
    shares = [
        learned * 3 / size
        for size, learned in zip(found.sizes, found.learned[:-1], strict=False)
        if learned is not None
    ]
    assert [round(share, 2) for share in shares[:3]] == [0.90, 0.75, 0.50]


@pytest.mark.promise("cut:budget")
def test_a_refused_prompt_is_made_smaller_six_times_at_most_without_an_answer() -> None:
    """limits.md: here each refusal names figures that leave room for more; then the answer is forced once, and ours at last."""
    script = [
        replace(TOO_LONG, message=f"prompt is too long: {most + 900} tokens > {most} maximum")
        for most in range(100_000, 60_000, -2_000)
    ]
    found = tried(script, history=talk(200, size=30_000))
    assert (len(found.sizes), found.result.origin) == (1 + 6 + 1, "local")


@pytest.mark.promise("cut:budget")
def test_each_overflow_of_a_turn_is_met_anew_once_an_answer_came() -> None:
    """limits.md: each time, not once a turn. Three steps, each refused once: each learns as the first one did, a tenth less."""
    turn, command = Turn.start(TurnStarted(config=UNKNOWN, input=(ASK,), history=talk(60, size=3_000)))
    shares: list[float] = []
    number = 0
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(purpose="step", request=request) if len(shares) < 3:
                command = turn.receive(RequestFailed(number=command.number, fault=TOO_LONG))
                learned = turn.known.config.model_limits.max_input_tokens
                shares.append((learned or 0) * 3 / sum(map(message_bytes, request.messages)))
            case SendRequest(purpose="compact"):
                command = turn.receive(ResponseReceived(number=command.number, response=says("SUMMARY")))
            case SendRequest():
                number += 1
                result = (
                    says("Done.") if len(shares) == 3 else says(call(f"c{number}", arguments=f'{{"path":"{number}"}}'))
                )
                command = turn.receive(ResponseReceived(number=command.number, response=result))
            case RunTools(calls=planned):
                command = turn.receive(ToolsFinished(results=tuple([done(plan) for plan in planned])))
            case _:
                raise AssertionError(command)
    assert (command.result.text, command.result.origin) == ("Done.", "model")
    assert [round(share, 1) for share in shares] == [0.9] * 3


@pytest.mark.promise("cut:budget")
def test_what_refusals_without_figures_taught_is_forgotten_where_no_answer_came_of_it() -> None:
    """limits.md: the next turn of the session is not to suffer for it; what an answer has proven is kept."""
    never = tried([], history=talk(40, size=4_000))
    assert never.learned[-1] is not None and never.result.origin == "local"
    answered = tried([TOO_LONG, says("SUMMARY"), says("Done.")], history=talk(40, size=4_000))
    assert answered.result.origin == "model"
    after = [fold_session([one.events]).carried.left for one in (never, answered)]
    assert [one is not None and one.config.model_limits.max_input_tokens is None for one in after] == [True, False]


@pytest.mark.promise("end:budget")
def test_the_words_that_turnwise_adds_to_the_answers_request_count() -> None:
    """limits.md, of a limit of tokens: what the answer may hold is what its prompt leaves, our own words in it."""
    responses = [replace(says(call("a")), usage=Usage(input_tokens=2_000, output_tokens=500)), says("So.")]
    config = replace(
        CONFIG,
        limits=MaxTokens(6_000),
        room="compact",
        model_limits=ModelLimits(context_window_tokens=200_000, max_output_tokens=64_000),
        tools=(READ,),
    )
    played = play(responses, config=config)
    asked = played.requests[-1].request
    assert asked.tool_choice == "none" and SYNTHESIS in text_of(asked.messages[-1])
    left = 6_000 - 2_500 - 2_500 - len(SYNTHESIS.encode()) // 3
    assert asked.settings.max_output_tokens is not None
    assert left - 60 < asked.settings.max_output_tokens <= left


@pytest.mark.promise("end:budget")
def test_the_time_that_a_person_takes_says_nothing_of_the_next_step() -> None:
    """limits.md: an ask of five minutes does not make steps look longer; a tool that takes as long does."""
    begun = (
        Pacing().begin_plain_step(20, steps=0).saw(ResponseReceived(number=1, response=says("x"), at_s=5.0), messages=1)
    )
    asked = begun.saw(Asked(approvals=(), at_s=305.0), messages=1).saw(
        ToolsFinished(results=(), at_s=306.0), messages=1
    )
    worked = begun.saw(ToolsFinished(results=(), at_s=306.0), messages=1)
    longest = [one.begin_plain_step(20, steps=1).longest_step_s for one in (asked, worked)]
    assert longest == [6.0, 306.0]


@pytest.mark.promise("cut:budget")
def test_the_last_results_are_quoted_where_their_steps_are_left_out() -> None:
    """limits.md: last of all, of steps whose calls alone are too long; the message to answer stays whole."""
    calls = [call(f"c{nth}", arguments=f'{{"path":"{"p" * 2_000}{nth}"}}') for nth in range(8)]
    results = [
        ToolResult(call_id=one.id, name="read", content=(Text(f"content {one.id} " + "y" * 500),)) for one in calls
    ]
    messages = (ASK, Message("assistant", tuple(calls)), Message("tool", tuple(results)))
    fitted = fit_answer(messages, sizes=[message_bytes(one) for one in messages], limit_bytes=6_000)
    assert fitted is not None and sum(fitted.sizes) <= 6_000
    assert {one.role for one in fitted.messages} == {"user"} and ASK in fitted.messages
    quoted = next(text_of(one) for one in fitted.messages if QUOTED in text_of(one))
    assert [f"- read: content {one.id} " in quoted for one in calls] == [True] * 8


@pytest.mark.promise("end:budget")
def test_a_share_of_the_money_that_pays_for_no_answer_starts_no_sub_agent() -> None:
    """limits.md: enough by token is a short answer, its prompt not counted; as many of the first as possible get it."""
    row = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(1), output=Decimal(10)),))
    least = Decimal(10) * LEAST_ANSWER_TOKENS / 1_000_000
    assert least_of(row) == least
    for money, started in ((4 * least, 4), (4 * least - Decimal("0.000001"), 3), (least, 1)):
        share, count = shares_of(MaxCost(money), spent=Spent(), among=4, least_usd=[least] * 4)
        assert (count, isinstance(share.limit, MaxCost) and share.limit.usd >= least) == (started, True)
    assert shares_of(MaxCost(least / 2), spent=Spent(), among=4, least_usd=[least] * 4) == (NOTHING_LEFT, 0)


@pytest.mark.promise("end:budget")
def test_tokens_are_divided_among_sub_agents_and_500_are_kept_for_what_they_bring() -> None:
    """limits.md: of what is left beside the answer: its prompt with what the sub-agents bring, our words, and its own tokens."""
    task = replace(READ, spec=replace(READ.spec, name="task"), child=True)
    for count in (1, 3):
        calls = [call(f"c{nth}", "task") for nth in range(count)]
        first = replace(says(*calls), usage=Usage(input_tokens=2_000, output_tokens=100))
        config = replace(CONFIG, limits=MaxTokens(20_000), tools=(task,))
        played = play([first, replace(says("So."), usage=Usage(input_tokens=2_500, output_tokens=10))], config=config)
        kept = 2_100 + 500 + ANSWER_WORDS_TOKENS + ANSWER_TOKENS
        grants = [plan.grant for plan in played.ran[0]]
        assert grants == [MaxTokens((20_000 - 2_100 - kept) // count)] * count
