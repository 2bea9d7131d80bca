"""Where exactly a limit ends the work: at its last second, token and cent, and not one before (issue 18: mutants that no test
noticed). Events in, commands out."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from msgspec.structs import replace

from tables import each
from turn.playing import ASK, CONFIG, READ, Played, call, cut, done, play, results_in, says
from turn.test_last_request import against_window, steps
from turn.test_verdicts import HELD, allow
from turnwise.rules.answer_room import SYNTHESIS
from turnwise.rules.limits import MaxCost, MaxRequests, MaxTokens, MaxWallTime, Spent
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.prompt_room import ModelLimits, message_bytes
from turnwise.rules.reservations import Place
from turnwise.turn.config import ChildReport, ToolOffer
from turnwise.turn.events import (
    Asked,
    Command,
    HooksRan,
    RequestFailed,
    ResponseReceived,
    RunHooks,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Response,
    Settings,
    StopReason,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
)

RESET = Fault(kind=FaultKind.DISCONNECTED, message="reset")
A_MOMENT = 1e-6  # seconds
LONG_CALL = '{"path":"' + "".join([f"{number:04} " for number in range(60)])
TASK = ToolOffer(spec=ToolSpec(name="task", parameters=READ.spec.parameters), child=True)


def counted(response: Response, input: int, output: int) -> Response:
    return replace(response, usage=Usage(input_tokens=input, output_tokens=output))


# time


def steps_within(limit_s: float, took: Sequence[tuple[float, float]]) -> int:
    """How many requests may call tools before the answer is asked for, where requests and tools take so long."""
    config = replace(CONFIG, limits=MaxWallTime(limit_s), max_steps=100)
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    at_s = 0.0
    for number, (request_s, tools_s) in enumerate(took):
        if not isinstance(command, SendRequest) or command.request.tool_choice == "none":
            return number
        at_s += request_s
        ran = turn.receive(ResponseReceived(number=number + 1, response=says(call(f"c{number}")), at_s=at_s))
        assert isinstance(ran, RunTools)
        at_s += tools_s
        results = tuple([done(plan) for plan in ran.calls])
        command = turn.receive(ToolsFinished(results=results, at_s=at_s))
    return len(took)


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("took", "edges"),
    [
        # what has passed, a step like the longest, an answer like the longest request
        ([(10, 5), (10, 5), (10, 5)], [15 + 15 + 10, 30 + 15 + 10]),
        ([(10, 5), (2, 1), (2, 1)], [15 + 15 + 10, 18 + 15 + 10]),
        ([(10, 5), (20, 2), (1, 1)], [15 + 15 + 10, 37 + 22 + 20]),
        ([(0, 5), (0, 0), (0, 0)], [5 + 5 + 0, 5 + 5 + 0]),
    ],
)
def test_a_step_is_allowed_to_the_second(took: Sequence[tuple[float, float]], edges: Sequence[float]) -> None:
    """Proves: the longest step and the longest request so far decide, each by itself, and the limit itself is still allowed."""
    for number, edge in enumerate(edges, 1):
        assert steps_within(edge, took) > number
        assert steps_within(edge - A_MOMENT, took) <= number


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("waits", [0.0, 3.0])
@pytest.mark.parametrize(("short", "choice"), [(0.0, "auto"), (A_MOMENT, "none")])
def test_the_time_that_a_person_took_makes_no_step_longer(waits: float, short: float, choice: str) -> None:
    """Proves: the answer to an ask moves the clock and not the measure of a step: 8 s and 8 s and 4 s, whatever it took."""
    config = replace(HELD, limits=MaxWallTime(20 + waits - short), max_steps=100)
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(call("a", "write")), at_s=4.0))
    ran = turn.receive(Asked(approvals=(allow("a"),), at_s=4.0 + waits))
    assert isinstance(ran, RunTools)
    after = turn.receive(ToolsFinished(results=tuple([done(plan) for plan in ran.calls]), at_s=8.0 + waits))
    assert isinstance(after, SendRequest) and after.request.tool_choice == choice


@pytest.mark.promise("end:budget", "wait:retry")
@pytest.mark.parametrize(("short", "purpose"), [(0.0, "continue"), (A_MOMENT, "step")])
def test_what_goes_on_with_a_cut_call_leaves_time_for_the_answer(short: float, purpose: str) -> None:
    """Proves: a request within a step is made while it and the answer after it may each take as long as the longest so far."""
    config = replace(CONFIG, limits=MaxWallTime(10 + 2 * 10 - short), recover="continue", tools=(READ,))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    begun = replace(says(cut("a", LONG_CALL)), finish=FinishReason.LENGTH)
    after = turn.receive(ResponseReceived(number=1, response=begun, at_s=10.0))
    assert isinstance(after, SendRequest) and after.purpose == purpose


def calls_after(at_s: float, *, limit_s: float | None, hooks: bool = False) -> tuple[Turn, Command]:
    """A turn whose first response came at that time and has a call, and what it orders."""
    limits = None if limit_s is None else MaxWallTime(limit_s)
    config = replace(CONFIG, limits=limits, hooks=("before_tool",) if hooks else ())
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    return turn, turn.receive(ResponseReceived(number=1, response=says(call("a")), at_s=at_s))


@pytest.mark.promise("end:budget")
@each(
    ("at_s", "limit_s", "most_s"),
    [
        (10.0, None, None),
        # as long as the longest request is kept for the answer
        (10.0, 60.0, 40.0),
        (10.0, 20.5, 0.5),
        # or a tenth of what is left, 10 s at the most
        (1.0, 51.0, 45.0),
        (1.0, 201.0, 190.0),
        # where that is all, half of what is left
        (10.0, 20.0, 5.0),
        (10.0, 11.0, 0.5),
        (10.0, 10.0, 0.0),
        # to the millisecond, never more
        (0.0006, 1.0, 0.899),
    ],
)
def test_calls_end_in_time_for_the_answer(at_s: float, limit_s: float | None, most_s: float | None) -> None:
    """Proves: what the calls of a step may take together."""
    _, command = calls_after(at_s, limit_s=limit_s)
    assert isinstance(command, RunTools) and command.most_s == most_s


@pytest.mark.promise("end:budget")
def test_all_that_is_done_about_the_calls_of_a_step_has_one_deadline() -> None:
    """Proves: what a hook took is gone for the tools, and each step has a deadline of its own."""
    turn, command = calls_after(10.0, limit_s=100.0, hooks=True)
    assert isinstance(command, RunHooks)
    ran = turn.receive(HooksRan(at_s=40.0))
    assert isinstance(ran, RunTools) and ran.most_s == 100 - 10 - 10 - 30
    turn.receive(ToolsFinished(results=tuple([done(plan) for plan in ran.calls]), at_s=41.0))
    turn.receive(ResponseReceived(number=2, response=says(call("b")), at_s=42.0))
    ran = turn.receive(HooksRan(at_s=95.0))
    assert isinstance(ran, RunTools) and ran.most_s == 0.0


# tokens


def output_of(played: Played) -> list[int | None]:
    return [sent.request.settings.max_output_tokens for sent in played.requests]


def tokens_of(*messages: Message) -> int:
    """Our guess at what nobody has counted yet."""
    return -(-sum([message_bytes(one) for one in messages]) // 3)


@pytest.mark.promise("end:budget")
def test_a_step_may_say_half_of_what_two_prompts_and_the_answer_leave() -> None:
    """Proves: to the token, by what the provider counted of the last prompt and response, and our guess at what came since."""
    script = [counted(says(call("a")), 1_000, 200), counted(says(call("b")), 1_300, 700), says("So.")]
    played = play(script, config=replace(CONFIG, limits=MaxTokens(20_000), tools=(READ,)))
    result = tokens_of(played.requests[1].request.messages[-1])
    assert output_of(played)[1:] == [
        (20_000 - 1_200 - 2 * (1_200 + result) - 1_000) // 2,
        (20_000 - 3_200 - 2 * (2_000 + result) - 1_000) // 2,
    ]


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("id", ["a", "ab", "abc"])
def test_a_count_of_the_prompt_alone_is_none(id: str) -> None:
    """Proves: of a provider that does not say what its response took the prompt is guessed, to the byte."""
    usage = Usage(input_tokens=1_000, untold=("output_tokens",))
    script = [replace(says(call(id)), usage=usage), says("So.")]
    played = play(script, config=replace(CONFIG, limits=MaxTokens(15_000), tools=(READ,)))
    bytes_ = sum([message_bytes(one) for one in played.requests[1].request.messages])
    prompt = -(-(played.turn.known.history.before_bytes + bytes_) // 3)
    assert output_of(played)[1] == (15_000 - 1_000 - 2 * prompt - 1_000) // 2


@pytest.mark.promise("end:budget")
def test_the_answer_may_say_all_that_its_prompt_leaves() -> None:
    """Proves: our own words stand in that prompt, and the history does not hold them."""
    config = replace(CONFIG, limits=MaxTokens(8_000) | MaxRequests(2), tools=(READ,))
    played = play([counted(says(call("a")), 1_000, 200), says("So.")], config=config)
    *_, result, words = played.requests[1].request.messages
    assert words == Message("user", (Text(SYNTHESIS),))
    assert output_of(played)[1] == 8_000 - 1_200 - (1_200 + tokens_of(result) + tokens_of(words))


@pytest.mark.promise("end:budget", "cut:budget")
@pytest.mark.parametrize("most", [13_157, 14_978])
def test_a_prompt_that_was_made_smaller_for_the_answer_is_the_answers_alone(most: int) -> None:
    """Proves: though what is left of it would leave room for a step, that step would not see what was left out."""
    limits = ModelLimits(context_window_tokens=8_000, max_output_tokens=1_000)
    config = replace(CONFIG, room="compact", model_limits=limits, limits=MaxTokens(most))
    played = against_window(steps(of=20), sizes=[3_000] * 20, config=config, window=8_000)
    assert [sent.request.tool_choice for sent in played.requests] == ["auto", "none"]
    assert (played.result.text, played.result.stop_reason) == ("Done.", StopReason.BUDGET)
    assert len(results_in(played.turn.known.history.messages)) == 20


# money


ROW = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(1), output=Decimal(10)),))
MICRO = Decimal("0.000001")


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize("ceiling", [None, 150, 5_000])
def test_a_request_of_unknown_price_counts_with_our_own_words_in_its_prompt(ceiling: int | None) -> None:
    """Proves: an output like the longest so far within the request's own limit, and a prompt with all that came since."""
    config = replace(CONFIG, limits=MaxCost(Decimal(1)) | MaxRequests(2), prices={"m": ROW})
    config = replace(config, settings=Settings(max_output_tokens=ceiling))
    script = [counted(says(call("a")), 1_000, 200), RequestFailed(number=2, fault=RESET)]
    played = play(script, config=config)
    *_, result, words = played.requests[1].request.messages
    prompt, output = 1_200 + tokens_of(result) + tokens_of(words), min(200, ceiling or 200)
    assert words == Message("user", (Text(SYNTHESIS),))
    assert played.result.charged_usd == (1_000 + 200 * 10 + prompt + output * 10) * MICRO
    assert played.result.also_spent == Spent(projected=1)


# sub-agents


def reported(id: str, *, requests: int) -> ChildReport:
    return ChildReport(call_id=id, session_id=f"s/{id}", stop_reason=StopReason.ANSWERED, requests=requests)


def ended(*reports: ChildReport) -> ToolsFinished:
    results = [ToolResult(call_id=one.call_id, name="task", content=(Text("did it"),)) for one in reports]
    return ToolsFinished(results=tuple(results), children=reports)


@pytest.mark.promise("safe:bounded")
def test_the_places_of_sub_agents_are_counted_over_the_steps() -> None:
    """Proves: what an earlier step's sub-agents used is gone for those of the next, theirs and their requests."""
    config = replace(CONFIG, tools=(TASK, READ), max_subagents=3, max_subagent_requests=10)
    script = [
        says(call("a", "task")),
        ended(reported("a", requests=4)),
        says(call("b", "task"), call("c", "task")),
        ended(reported("b", requests=2), reported("c", requests=2)),
        says(call("d", "task")),
        says("So."),
    ]
    played = play(script, config=config)
    places = {plan.call.id: plan.place for ran in played.ran for plan in ran}
    assert places == {
        "a": Place(subagents=2, requests=10),
        "b": Place(subagents=0, requests=3),
        "c": Place(subagents=0, requests=3),
    }
    assert "the limit of 3 sub-agents is reached (3 started" in results_in(played.result.messages)["d"]
    assert [child.call_id for child in played.result.children] == ["a", "b", "c"]
