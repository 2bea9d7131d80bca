"""What the limits give to calls that begin: their time, a sub-agent's share and place (issue 18: mutants that no test noticed).
Events in, commands out."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from tables import each
from turn.limited_world import BY_REQUEST
from turn.playing import ASK, CONFIG, READ, call, play, results_in, says
from turn.test_verdicts import ATTENDED, TASK
from turnwise.rules.advice import DO_IT_YOURSELF
from turnwise.rules.limits import Limit, MaxCost, MaxRequests, MaxSteps, MaxTokens, MaxWallTime
from turnwise.turn.config import Approval, Deadlines, TurnConfig, listed
from turnwise.turn.events import Ask, ResponseReceived, RunTools, ToolsFinished, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import NOTHING_LEFT_FOR_CHILD

MINUTE = MaxWallTime(60.0)
AT_S = (1.0, 20.0, 40.0, 59.5)
ALL_OF_IT = (53.1, 20.0, 10.0, 0.25)
NOTHING = (None, None, None, None)


@pytest.mark.promise("end:budget")
@each(
    ("limit", "given"),
    [
        (None, NOTHING),
        (MaxRequests(9), NOTHING),
        (MINUTE, ALL_OF_IT),
        (MINUTE | MaxRequests(9), ALL_OF_IT),
        (MINUTE & MaxRequests(9), NOTHING),
        (MINUTE & MaxRequests(2), NOTHING),
        (MINUTE & MaxRequests(1), ALL_OF_IT),
        (MINUTE & MaxTokens(500), ALL_OF_IT),
        (MINUTE & MaxSteps(2), NOTHING),
        (MINUTE & MaxSteps(1), ALL_OF_IT),
    ],
)
def test_calls_have_the_time_that_alone_holds_the_turn_once_the_answer_is_asked_for(
    limit: Limit | None, given: tuple[float | None, ...]
) -> None:
    """Proves: a tenth of what is left, or as long as the longest request took, is kept for the answer; half where that is less.
    Beside a limit that the answer's request does not end, time holds nothing back."""
    found: list[float | None] = []
    for at_s in AT_S:
        turn, _ = Turn.start(TurnStarted(config=replace(CONFIG, limits=limit), input=(ASK,)))
        command = turn.receive(ResponseReceived(number=1, response=says(call("a")), at_s=at_s))
        assert isinstance(command, RunTools)
        found.append(command.most_s)
    assert tuple(found) == given


@pytest.mark.promise("wait:ask", "end:budget")
@pytest.mark.parametrize(("at_s", "deadline_s"), [(1.0, 30.0), (20.0, 20.0), (40.0, 10.0), (59.5, 0.25)])
def test_a_person_has_the_deadline_or_what_the_calls_have(at_s: float, deadline_s: float) -> None:
    """Proves: of the two the earlier one; a sub-agent's whole turn is bounded in the same way."""
    config = replace(CONFIG, limits=MINUTE, policy=ATTENDED, deadlines=Deadlines(ask_s=30.0, child_s=30.0))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=says(call("a", "write")), at_s=at_s))
    assert isinstance(command, Ask) and command.deadline_s == deadline_s
    child = play_child(config, at_s=at_s)
    assert child == (None if at_s > 30.0 else deadline_s)


def play_child(config: TurnConfig, *, at_s: float) -> float | None:
    """The seconds that a sub-agent has; None if there is nothing left for it."""
    turn, _ = Turn.start(TurnStarted(config=replace(config, tools=(TASK,), policy=None), input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=says(call("a", "task", "{}")), at_s=at_s))
    return command.calls[0].timeout_s if isinstance(command, RunTools) else None


def test_sub_agents_do_not_begin_in_a_turn_whose_time_is_up() -> None:
    """Proves: they have a result that says so."""
    turn, _ = Turn.start(TurnStarted(config=replace(CONFIG, limits=MINUTE, tools=(TASK, READ)), input=(ASK,)))
    calls = says(call("a", "task", "{}"), call("b"))
    command = turn.receive(ResponseReceived(number=1, response=calls, at_s=61.0))
    assert isinstance(command, RunTools) and [plan.call.id for plan in command.calls] == ["b"]
    turn.receive(ToolsFinished(results=(), at_s=61.0))
    assert results_in(turn.messages)["a"] == NOTHING_LEFT_FOR_CHILD


DEAR = replace(TASK, child_usd={"cheap": Decimal("0.01"), "dear": Decimal("0.40")})


@pytest.mark.promise("end:budget")
@each(
    ("usd", "agents", "begun"),
    [
        ("0.10", ['{"agent":"cheap"}', '{"agent":"dear"}', "{}", '{"agent":3}', '{"agent":"gone"}'], [0]),
        ("0.35", ['{"agent":"dear"}'], []),
        ("0.35", ["{}"], []),
        ("0.35", ['{"agent":3}'], []),
        ("0.35", ['{"agent":"gone"}'], []),
        ("0.35", ['{"agent":"cheap"}'], [0]),
        ("0.90", ['{"agent":"dear"}'], [0]),
        ("0.90", ["{}"], [0]),
        ("0.90", ['{"agent":3}'], [0]),
        ("0.90", ['{"agent":"gone"}'], [0]),
        ("0.90", ['{"agent":"dear"}', '{"agent":"dear"}', '{"agent":"cheap"}'], [0, 1]),
    ],
)
def test_a_sub_agent_begins_where_its_share_pays_for_a_request_of_its_agent(
    usd: str, agents: list[str], begun: list[int]
) -> None:
    """Proves: the agent that is named decides what a request costs at the least; where none that is known is named, the dearest
    may be meant. Where there is too little for all of them, the first ones begin."""
    config = replace(CONFIG, tools=(DEAR,), limits=MaxCost(Decimal(usd)), prices={"m": BY_REQUEST})
    calls = [call(f"c{n}", "task", given) for n, given in enumerate(agents)]
    played = play([says(*calls), says("So.")], config=config)
    assert [plan.call.id for planned in played.ran for plan in planned] == [f"c{n}" for n in begun]
    texts = results_in(played.result.messages)
    assert [n for n in range(len(agents)) if texts[f"c{n}"] != NOTHING_LEFT_FOR_CHILD] == begun
    grants = [plan.grant for planned in played.ran for plan in planned]
    assert all(isinstance(grant, MaxCost) and grant.usd <= Decimal(usd) / len(begun) for grant in grants)


@pytest.mark.promise("safe:bounded")
@each("most", [0, 1, 2, 3])
@each("limit", [None, MaxRequests(20)], ids=["no limit", "limited"])
def test_a_tree_of_sub_agents_has_so_many_places(most: int, limit: Limit | None) -> None:
    """Proves: the first ones begin, each with its place; the others are told about the tree, and not about the limits."""
    config = replace(CONFIG, tools=(TASK, READ), max_subagents=most, max_subagent_requests=10, limits=limit)
    calls = [call(id, "task", "{}") for id in "abc"]
    played = play([says(*calls, call("r")), says("So.")], config=config)
    begun = list("abc"[:most])
    assert [plan.call.id for planned in played.ran for plan in planned] == [*begun, "r"]
    plans = [plan for planned in played.ran for plan in planned]
    assert [plan.place is None for plan in plans] == [False] * most + [True]
    for plan in plans[:most]:
        assert plan.place is not None and plan.place.requests is not None
        own = MaxRequests(plan.place.requests)
        assert plan.grant == own or (limit is not None and MaxRequests(plan.place.requests) in plan.grant.limits)  # type: ignore[union-attr]
    texts = results_in(played.result.messages)
    many = "1 sub-agent" if most == 1 else f"{most} sub-agents"
    full = f"Not run: the limit of {many} is reached ({most} started, theirs included). {DO_IT_YOURSELF}"
    assert [texts[id] for id in "abc"] == [f"did {id}" for id in begun] + [full] * (3 - most)


@pytest.mark.promise("wait:ask")
def test_an_approval_is_bound_to_what_was_listed() -> None:
    """Proves: its own digest stands; else that of its call, and one that was never listed is for nothing."""
    given = (
        Approval(call_id="a", verdict="allow"),
        Approval(call_id="b", verdict="allow", digest="own"),
        Approval(call_id="c", verdict="deny", text="no"),
        Approval(call_id="d", verdict="allow"),
    )
    found = listed(iter(given), digests={"a": "1", "b": "2", "d": ""})
    assert [one.digest for one in found] == ["1", "own", "not listed", "not listed"]
    assert [replace(one, digest="") for one in found] == [replace(one, digest="") for one in given]
