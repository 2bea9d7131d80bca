"""`MaxToolCalls`: what counts, which calls run, how sub-agents share it, and that the turn ends with the model's answer."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from thoroughness import examples
from turn.limited_world import LIMITED, Move, World
from turn.playing import ASK, CLIENT, CONFIG, READ, Played, call, done, play, results_in, says
from turn.test_verdicts import HELD, allow
from turnwise.rules.limits import (
    Limit,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    Spent,
    counts_tool_calls,
    is_over,
    leaves_of,
)
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.call_sorting import NO_MORE_CALLS
from turnwise.turn.config import ChildReport, ToolOffer, TurnConfig
from turnwise.turn.events import (
    Ask,
    Asked,
    Command,
    Event,
    FinishTurn,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import StopReason, Text, ToolResult, ToolSpec, Usage

TASK = ToolOffer(spec=ToolSpec(name="task"), child=True)


def limited(limit: Limit, *tools: ToolOffer) -> TurnConfig:
    return replace(CONFIG, limits=limit, tools=tools or CONFIG.tools)


def ran(played: Played) -> list[list[str]]:
    return [[plan.call.id for plan in planned] for planned in played.ran]


@pytest.mark.promise("end:budget", "end:forced-answer")
def test_after_so_many_calls_the_model_is_made_to_answer() -> None:
    """The last allowed call is followed by the answer's request, which forbids tools."""
    played = play([says(call("a")), says(call("b")), says("So.")], config=limited(MaxToolCalls(2)))
    assert ran(played) == [["a"], ["b"]]
    assert [sent.request.tool_choice for sent in played.requests] == ["auto", "auto", "none"]
    result = played.result
    assert (result.text, result.stop_reason, result.complete) == ("So.", StopReason.BUDGET, False)
    assert result.also_spent == Spent(tool_calls=2)


@pytest.mark.promise("end:budget")
def test_of_calls_in_one_response_those_beyond_do_not_run_and_are_told() -> None:
    """The first ones run. Each call has its result, and none is asked about in vain."""
    played = play(
        [says(call("a")), says(call("b"), call("c"), call("d")), says("So.")], config=limited(MaxToolCalls(2))
    )
    assert ran(played) == [["a"], ["b"]]
    results = results_in(played.result.messages)
    assert list(results) == ["a", "b", "c", "d"]
    assert NO_MORE_CALLS in results["c"] and NO_MORE_CALLS in results["d"] and NO_MORE_CALLS not in results["b"]
    assert (played.result.text, played.result.also_spent) == ("So.", Spent(tool_calls=2))


def test_nobody_is_asked_about_a_call_that_the_limit_leaves_no_room_for() -> None:
    """An answer would be for nothing. A call that the person denies does not count."""
    asked: list[list[str]] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, Ask)
        asked.append([one.call.id for one in command.asks])
        return Asked(approvals=tuple([allow(id) for id in asked[-1] if id != "a"]))

    script = [
        says(call("a", "write"), call("b", "write"), call("c", "write")),
        says(call("d", "write"), call("e", "write")),
        says("So."),
    ]
    played = play(script, config=replace(HELD, limits=MaxToolCalls(2)), answer=answer)
    assert (asked, ran(played)) == ([["a", "b"], ["d"]], [["b"], ["d"]])
    assert played.result.also_spent == Spent(tool_calls=2)


def test_a_call_that_does_not_run_does_not_count() -> None:
    """Unknown, unfit, or a client's own: only what is handed to a tool here counts."""
    script = [
        says(call("a", "nothing_like_it"), call("b", arguments='{"path":1}')),
        says(call("c")),
        says(call("d", "client", "{}")),
    ]
    played = play(script, config=limited(MaxToolCalls(2), READ, CLIENT))
    assert ran(played) == [["c"]]
    assert (played.result.stop_reason, played.result.also_spent) == (StopReason.WAITING, Spent(tool_calls=1))


@pytest.mark.promise("end:budget")
def test_calls_of_a_program_count_and_the_program_does_not() -> None:
    """Or one call would be as many as it likes."""
    world = World([Move("program", calls=5), Move("reads")], window=100_000, request_s=1.0, summary="")
    game = world.play(replace(LIMITED, limits=MaxToolCalls(3)))
    assert (world.tool_calls, game.result.also_spent.tool_calls) == (3, 3)
    assert (game.result.stop_reason, game.result.origin) == (StopReason.BUDGET, "model")


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("limit", "stops", "calls"),
    [
        (MaxToolCalls(1) | MaxRequests(9), StopReason.BUDGET, 1),
        (MaxToolCalls(9) | MaxRequests(2), StopReason.BUDGET, 1),
        (MaxToolCalls(1) & MaxRequests(4), StopReason.BUDGET, 3),
        (MaxToolCalls(3) & MaxRequests(2), StopReason.BUDGET, 3),
    ],
)
def test_it_composes_with_the_other_limits(limit: Limit, stops: StopReason, calls: int) -> None:
    """By `|` the first one ends the turn, by `&` the last."""
    script = [*[says(call(f"c{number}")) for number in range(calls)], says("So.")]
    played = play(script, config=limited(limit))
    assert (len(played.ran), played.result.stop_reason, played.result.text) == (calls, stops, "So.")


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("ended", "made", "left"), [(StopReason.ANSWERED, 1, 5), (StopReason.ANSWERED, 3, 3), (None, 0, 3)]
)
def test_sub_agents_share_what_is_left_and_give_back_what_they_leave(
    ended: StopReason | None, made: int, left: int
) -> None:
    """Of 8 two are the tasks themselves: each may make 3. One that did not come to an end has made all of them."""
    reports = [
        ChildReport(call_id="a", session_id="s", stop_reason=ended, also_spent=Spent(tool_calls=made)),
        ChildReport(call_id="b", session_id="s", stop_reason=StopReason.ANSWERED),
    ]
    results = tuple([ToolResult(call_id=id, name="task", content=(Text("done"),)) for id in ("a", "b")])
    again = [says(call(f"r{number}")) for number in range(left)]
    script = [
        says(call("a", "task", "{}"), call("b", "task", "{}")),
        ToolsFinished(results=results, children=tuple(reports)),
        *again,
        says("So."),
    ]
    played = play(script, config=limited(MaxToolCalls(8), TASK, READ))
    assert [plan.grant for plan in played.ran[0]] == [MaxToolCalls(3), MaxToolCalls(3)]
    assert (len(played.ran) - 1, played.result.text, played.result.stop_reason) == (left, "So.", StopReason.BUDGET)


def test_where_too_little_is_left_the_first_sub_agents_run_and_the_others_do_not_count() -> None:
    """As with every limit: the first ones get enough."""
    script = [
        says(call("a", "task", "{}"), call("b", "task", "{}"), call("c", "task", "{}")),
        ToolsFinished(
            results=(ToolResult(call_id="a", name="task", content=(Text("done"),)),),
            children=(ChildReport(call_id="a", session_id="s", stop_reason=StopReason.ANSWERED),),
        ),
        says("So."),
    ]
    played = play(script, config=limited(MaxToolCalls(4), TASK, READ))
    assert (ran(played), [plan.grant for plan in played.ran[0]]) == ([["a"]], [MaxToolCalls(1)])
    assert played.result.also_spent == Spent(tool_calls=1)


def test_without_such_a_limit_nothing_of_it_is_counted_or_journalled() -> None:
    """The journals of turns that do not ask for it stay as they were."""
    played = play([says(call("a")), says("So.")], config=limited(MaxRequests(9)))
    assert played.result.also_spent == Spent()


LEAVES = st.one_of(
    st.builds(MaxToolCalls, st.integers(1, 12)),
    st.builds(MaxRequests, st.integers(1, 8)),
    st.builds(MaxSteps, st.integers(1, 8)),
    st.builds(MaxWallTime, st.floats(2.0, 60.0)),
    st.builds(MaxTokens, st.integers(2_000, 40_000)),
)
FORMULAS = st.recursive(
    LEAVES,
    lambda inner: st.builds(lambda one, other, both: one & other if both else one | other, inner, inner, st.booleans()),
    max_leaves=4,
)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(250), deadline=None)
@given(limit=FORMULAS, responses=st.lists(st.tuples(st.integers(1, 9), st.sampled_from([0.0, 1.0, 30.0])), max_size=6))
@example(limit=MaxToolCalls(3) & MaxRequests(1), responses=[(5, 0.0)])
@example(limit=MaxToolCalls(3) & MaxWallTime(10.0), responses=[(5, 100.0)])
@example(limit=(MaxToolCalls(2) | MaxRequests(9)) & MaxSteps(1), responses=[(5, 0.0)])
def test_no_formula_lets_a_call_in_that_leaves_no_answer(limit: Limit, responses: list[tuple[int, float]]) -> None:
    """Proves: `&` is judged once a call, with the answer's request counted, so the calls that a formula lets in are never above
    it. It was judged once a response: `MaxToolCalls(3) & MaxRequests(1)` ran five calls, and no answer came (issue 40)."""
    config = replace(limited(limit), retry=RetryPolicy(attempts=1))
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    coming, requests, ran, at_s = list(responses), 0, 0, 0.0
    seconds = 0.0
    while not isinstance(command, FinishTurn):
        if isinstance(command, SendRequest):
            requests, at_s = requests + 1, at_s + 1.0
            calls, seconds = coming.pop(0) if coming and command.request.tool_choice != "none" else (0, 0.0)
            asked = [call(f"c{requests}-{number}") for number in range(calls)]
            said = replace(says(*asked or ["So."]), usage=Usage(input_tokens=100 * requests, output_tokens=20))
            command = turn.receive(ResponseReceived(number=command.number, response=said, at_s=at_s))
            continue
        assert isinstance(command, RunTools), command
        ran += len(command.calls)
        at_s += seconds if command.most_s is None else min(seconds, command.most_s)
        answer = Spent(steps=requests + 1, requests=requests + 1, tool_calls=ran, elapsed_s=at_s)
        assert not is_over(limit, spent=answer), command.calls
        command = turn.receive(ToolsFinished(results=tuple([done(plan) for plan in command.calls]), at_s=at_s))
    assert command.result.origin == "model" or not requests or counts_tokens(limit), command.result.text
    assert command.result.also_spent.tool_calls == (ran if counts_tool_calls(limit) else 0)


def counts_tokens(limit: Limit) -> bool:
    """Only guesses are known of tokens, and of the results that calls bring."""
    return any(isinstance(one, MaxTokens) for one in leaves_of(limit))
