"""`MaxToolCalls`: what counts, which calls run, how sub-agents share it, and that the turn ends with the model's answer."""

import pytest
from msgspec.structs import replace

from turn.limited_world import LIMITED, Move, World
from turn.playing import CLIENT, CONFIG, READ, Played, call, play, results_in, says
from turn.test_verdicts import HELD, allow
from turnwise.rules.limits import Limit, MaxRequests, MaxToolCalls, Spent
from turnwise.turn.commands import Ask, Command
from turnwise.turn.config import ChildReport, ToolOffer, TurnConfig
from turnwise.turn.events import Asked, Event, ToolsFinished
from turnwise.turn.granting import NO_MORE_CALLS
from turnwise.vocab import StopReason, Text, ToolResult, ToolSpec

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
