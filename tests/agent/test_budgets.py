"""`Budget`: many runs, of several agents and at once, within one limit (promise end:budget)."""

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from left_journals import copy_of_a_crash
from never_stopping import after, look_of, never_stops
from thoroughness import examples
from turnwise import (
    Agent,
    Budget,
    BudgetSpent,
    CallerError,
    Journal,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    Model,
    RunResult,
    StopReason,
    Subagents,
)
from turnwise.journal.budgets import BudgetRun
from turnwise.journal.prices import Prices, read_prices
from turnwise.lab import Lab
from turnwise.rules.limits import AllOf, Leaf, Limit, Spent, is_over, leaves_of
from turnwise.rules.reservations import BudgetPart, RunSpending, amount_of, leaves_of_budget, reserve, shown, unspent
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import FinishReason, Message, Response, Text, Usage
from waits import HANG_S

PRICES = Prices(user=read_prices({"*": {"input": "3", "output": "15"}}, named="the test's prices", source="test"))
RUNS = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 9), st.none() | st.integers(0, 90)), min_size=1, max_size=7
)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(60), deadline=None)
@given(runs=RUNS, limit=st.integers(1, 20), per_run=st.none() | st.integers(1, 8))
def test_however_runs_interleave_they_make_no_request_too_many(
    runs: Sequence[tuple[int, int, int | None]], limit: int, per_run: int | None
) -> None:
    """Proves: requests that left, and the bill, are within the limit; each run that began ended with an answer; what was not
    spent is free again."""
    budget = Budget(MaxRequests(limit), per_run=None if per_run is None else MaxRequests(per_run))

    async def all_runs() -> tuple[list[Any], int]:
        made = [(passes, never_stops(budget, passes=slow), ends) for passes, slow, ends in runs]
        ended = await asyncio.gather(*[after(passes, agent, cancelled=ends) for passes, (agent, _), ends in made])
        return ended, sum(len(model.requests) for _, (_, model), _ in made)

    ended, left = asyncio.run(all_runs())
    results = [one for one in ended if isinstance(one, RunResult)]
    assert left <= limit
    assert sum(len(one.ledger) for one in results) <= len(budget.ledger) == budget.spent.requests <= limit
    assert all(one.text == "That is all." and one.stop_reason is StopReason.BUDGET for one in results)
    assert all(one.requests <= (per_run or limit) for one in results)
    assert budget.left == MaxRequests(limit - budget.spent.requests)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(25), deadline=None)
@given(
    runs=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=4),
    cents=st.integers(2, 12),
    share=st.integers(1, 4),
)
def test_however_runs_interleave_they_spend_no_more_money(
    runs: Sequence[tuple[int, int]], cents: int, share: int
) -> None:
    """Proves: by the lab's own count of tokens the runs cost no more than the budget, but for what one guess of each run was off:
    at most the output of its last request (docs/limits.md)."""
    usd = Decimal(cents) / 100
    budget = Budget(MaxCost(usd), per_run=MaxCost(usd / share))

    async def all_runs() -> list[Any]:
        agents = [
            Agent(
                Model("openai_chat:never-stops", base_url="http://127.0.0.1:9/v1", transport=Lab().transport()),
                tools=[look_of(slow)],
                limits=budget,
                observation={"prices": PRICES},
            )
            for _, slow in runs
        ]
        return await asyncio.gather(
            *[after(passes, agent, cancelled=None) for (passes, _), agent in zip(runs, agents, strict=True)]
        )

    results = [one for one in asyncio.run(all_runs()) if isinstance(one, RunResult)]
    entries = [one.ledger[-1] for one in results if one.ledger]
    off = sum(
        [Decimal(one.usage.output_tokens) * 15 / 1_000_000 for one in entries if one.usage is not None], Decimal(0)
    )
    spent = sum([one.cost_usd or Decimal(0) for one in results], Decimal(0))
    assert spent == budget.spent.cost_usd <= usd + off
    assert all(one.text for one in results)


async def test_each_run_reserves_its_part_and_gives_back_what_is_left_over() -> None:
    """Proves: while runs go on their parts are not free, afterwards only what they spent is gone."""
    budget = Budget(MaxRequests(10) | MaxToolCalls(9), per_run=MaxRequests(4) | MaxToolCalls(3) | MaxSteps(2))
    agent, _ = never_stops(budget)
    seen: list[object] = []
    result = await agent.run("Look.", watch=lambda _: seen.append(budget.left))
    assert set(map(str, seen)) == {str(MaxRequests(6) | MaxToolCalls(6))}
    assert (result.requests, result.stop_reason) == (2, StopReason.STEP_LIMIT)
    assert budget.left == MaxRequests(8) | MaxToolCalls(8)
    assert (budget.spent.requests, budget.spent.tool_calls, budget.spent.input_tokens) == (2, 1, 20)
    assert [(one["path"], one["number"]) for one in budget.ledger.to_rows()] == [("", 1), ("", 2)]


async def test_a_run_for_which_nothing_is_left_sends_nothing() -> None:
    """Proves: BudgetSpent, which is a CallerError, says whether the budget is spent or other runs have it."""
    budget = Budget(MaxRequests(3))
    agent, model = never_stops(budget)
    begun = asyncio.Event()
    first = asyncio.create_task(agent.run("Look.", watch=lambda _: begun.set()))
    await asyncio.wait_for(begun.wait(), HANG_S)
    with pytest.raises(BudgetSpent, match=r"0 of `MaxRequests.* beside a run that has not ended.*per_run"):
        await agent.run("Look.")
    assert (await first).requests == 3
    with pytest.raises(BudgetSpent, match="the budget is spent: 0 of") as raised:
        await agent.run("Look.")
    assert isinstance(raised.value, CallerError) and len(model.requests) == 3


async def test_the_last_run_gets_what_is_left() -> None:
    """Proves: a part may be smaller than `per_run`, and still ends with the model's answer."""
    budget = Budget(MaxRequests(5), per_run=MaxRequests(3))
    agent, _ = never_stops(budget)
    results = [await agent.run("Look.") for _ in range(2)]
    assert [(one.requests, one.text, one.written_locally) for one in results] == [
        (3, "That is all.", False),
        (2, "That is all.", False),
    ]


async def test_a_run_may_name_a_budget_of_its_own() -> None:
    """Proves: `run(limits=budget)` stands in place of the agent's limits, whichever kind they are."""
    own, other = Budget(MaxRequests(9)), Budget(MaxRequests(2))
    agent, _ = never_stops(own)
    assert (await agent.run("Look.", limits=other)).requests == 2
    assert (await agent.run("Look.", limits=MaxRequests(4))).requests == 4
    assert (own.spent.requests, other.spent.requests) == (0, 2)


@pytest.mark.parametrize("shared", [True, False], ids=["one budget", "two budgets"])
async def test_sub_agents_spend_the_part_of_the_run_that_started_them(shared: bool) -> None:
    """Proves: with the same budget nothing is reserved or counted twice; another budget of the child's counts the child alone."""
    budget = Budget(MaxRequests(10), per_run=MaxRequests(6))
    below = budget if shared else Budget(MaxRequests(2))
    child, _ = never_stops(below)
    model = ScriptedModel([[call("task", prompt="Look.")], "Done."])
    agent = Agent(
        Model("openai_chat:m", transport=model),
        tools=[Subagents({"helper": child})],
        limits=budget,
    )
    result = await agent.run("Have it looked for.")
    made = result.own.requests + sum(one.requests for one in result.children)
    assert made == len(result.ledger) == budget.spent.requests == len(budget.ledger) <= 6
    assert below.spent.requests == (made if shared else 2)
    assert {one.path for one in below.ledger} == ({(), ("helper",)} if shared else {("helper",)})


async def test_a_tool_that_runs_an_agent_reserves_for_it() -> None:
    """Proves: what a tool starts by itself is no sub-agent, so it is counted as a run of its own, and not left out."""
    budget = Budget(MaxRequests(9), per_run=MaxRequests(3))
    inner, inner_model = never_stops(budget)

    async def ask_inside() -> str:
        """Ask another agent."""
        return (await inner.run("Look.")).text

    model = ScriptedModel([[call("ask_inside")], "Done."])
    agent = Agent(Model("openai_chat:m", transport=model), tools=[ask_inside], limits=budget)  # pyright: ignore[reportArgumentType]
    await agent.run("Ask.")
    assert budget.spent.requests == len(model.requests) + len(inner_model.requests) == 5


@pytest.mark.parametrize("limit", [9, 3])
async def test_a_turn_that_goes_on_reserves_what_it_began_with(limit: int, tmp_path: Path) -> None:
    """Proves: a turn keeps its limits over a crash, so a budget that has less left refuses it; its requests of before count."""
    path, left = tmp_path / "turns.db", tmp_path / "left.db"

    async def search(pattern: str) -> str:
        """Search."""
        if not left.exists():
            copy_of_a_crash(path, left)
        return "nothing"

    def agent_in(journal: Journal, budget: Budget) -> Agent:
        model = ScriptedModel([[call("search", pattern="a")], "That is all."])
        return Agent(
            Model("openai_chat:m", transport=model),
            tools=[search],
            limits=budget,
            journal=journal,
            observation={"folder": tmp_path},
        )  # pyright: ignore[reportArgumentType]

    with Journal(path) as journal:
        result = await agent_in(journal, Budget(MaxRequests(9), per_run=MaxRequests(5))).run("Look.")
        assert result.requests == 2
    budget = Budget(MaxRequests(limit), per_run=MaxRequests(5) if limit > 5 else None)
    with Journal(left) as journal:
        agent = agent_in(journal, budget)
        if limit < 5:
            with pytest.raises(BudgetSpent):
                await agent.resume(result.session)
            return
        assert (await agent.resume(result.session)).text
    assert 2 <= budget.spent.requests <= 5


async def test_a_run_that_fails_before_its_turn_gives_its_part_back() -> None:
    """Proves: an error of the caller's costs nothing."""
    budget = Budget(MaxRequests(4))
    agent, _ = never_stops(budget)
    with pytest.raises(CallerError):
        await agent.run("Look.", results={"call_unknown": "x"})
    assert budget.left == MaxRequests(4)


async def test_a_budget_of_money_needs_prices() -> None:
    """Proves: as a limit of cost does; nothing is reserved or sent."""
    budget = Budget(MaxCost("1.00"))
    agent, model = never_stops(budget)
    with pytest.raises(CallerError, match="cannot hold"):
        await agent.run("Look.")
    assert (model.requests, budget.left) == ([], MaxCost("1.00"))


@pytest.mark.promise("end:budget")
async def test_tokens_that_nobody_told_count_with_the_whole_part() -> None:
    """Proves: a provider that reports no usage does not make a budget of tokens endless."""
    budget = Budget(MaxTokens(8_000), per_run=MaxTokens(3_000))
    for left in (5_000, 2_000, 0):
        answer = Message("assistant", (Text("A short answer."),))
        model = ScriptedModel([Response(message=answer, finish=FinishReason.STOP, usage=None)])
        at = {"transport": model}
        assert (await Agent(Model("openai_chat:m", **at), limits=budget).run("Go.")).text == "A short answer."  # pyright: ignore[reportArgumentType]
        assert budget.left == MaxTokens(left)


def test_a_budget_is_joined_with_no_limit() -> None:
    """Proves: the error says where the limit belongs."""
    budget: Any = Budget(MaxRequests(3))
    for join in (lambda: budget | MaxSteps(3), lambda: MaxSteps(3) | budget, lambda: budget & MaxSteps(3)):
        with pytest.raises(CallerError, match="into its `per_run`"):
            join()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Budget(MaxRequests(0)), "allows nothing"),
        (lambda: Budget("3"), "must be a limit"),  # pyright: ignore[reportArgumentType]
        (lambda: Budget(MaxRequests(3), per_run=3), "`per_run` of a budget must be a limit"),  # pyright: ignore[reportArgumentType]
        (lambda: Budget(MaxRequests(3) | MaxCost("1"), per_run=MaxRequests(1)), "says nothing about `MaxCost"),
        (lambda: Budget(MaxTokens(9_000), per_run=MaxTokens(2_000, "output")), "says nothing about `MaxTokens"),
    ],
)
def test_a_budget_that_cannot_hold_is_an_error_where_it_is_made(make: Any, said: str) -> None:
    """Proves: each says what is wrong and what to do."""
    with pytest.raises(CallerError, match=said):
        make()


AMOUNTS: dict[type, Any] = {MaxCost: "0.90", MaxTokens: 9_000, MaxWallTime: 90.0}
PLANNED: dict[type, Any] = {
    MaxCost: MaxCost(Decimal("0.30")),
    MaxTokens: MaxTokens(3_000),
    MaxWallTime: MaxWallTime(30.0),
}


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("kind", get_args(Leaf))
async def test_a_budget_takes_every_limit_that_an_agent_takes(kind: Any) -> None:
    """Proves: of each kind, alone, with `|` and with `&`; runs share it and count against it. A new kind that the agent or the
    budget does not know fails here (issue 40)."""
    limit, part = kind(AMOUNTS.get(kind, 9)), PLANNED.get(kind, kind(3))
    answer = Message("assistant", (Text("Done."),))
    usage = Usage(input_tokens=10, output_tokens=10)
    said = Response(message=answer, finish=FinishReason.STOP, usage=usage)
    model = ScriptedModel([said] * 3)
    at: Any = {"transport": model}
    priced: Any = {"prices": PRICES}
    assert (await Agent(Model("openai_chat:m", **at), limits=limit, observation=priced).run("Go.")).text == "Done."
    for whole in (limit, limit | MaxRequests(50), limit & MaxRequests(50)):
        per_run = part | MaxRequests(5) if whole is not limit else part
        budget = Budget(whole, per_run=per_run)
        async with budget.reserving(run_of("a"), per_run) as one, budget.reserving(run_of("b"), per_run) as other:
            assert kind in {type(leaf) for leaf in leaves_of(one.limit)} & {
                type(leaf) for leaf in leaves_of(other.limit)
            }
        assert budget.left == whole
    budget = Budget(limit, per_run=part)
    agent = Agent(Model("openai_chat:m", **at), limits=budget, observation=priced)
    results = [await agent.run("Go.") for _ in range(2)]
    assert [one.text for one in results] == ["Done."] * 2
    (amount,), (left,) = [[amount_of(leaf) for leaf in leaves_of(one)] for one in (limit, budget.left)]
    assert left <= amount if kind in (MaxToolCalls, MaxWallTime) else left < amount


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize(
    ("whole", "spends", "lefts"),
    [
        (MaxSteps(5), [Spent(steps=2), Spent(steps=2)], [MaxSteps(3), MaxSteps(1)]),
        (MaxWallTime(10.0), [Spent(elapsed_s=4.5)], [MaxWallTime(5.5)]),
        (
            MaxRequests(3) & MaxToolCalls(2),
            [Spent(requests=5, tool_calls=1), Spent(requests=9, tool_calls=1)],
            [MaxRequests(0) & MaxToolCalls(1), MaxRequests(0) & MaxToolCalls(0)],
        ),
    ],
)
def test_what_runs_have_spent_is_not_there_for_the_next_one(
    whole: Limit, spends: list[Spent], lefts: list[Limit]
) -> None:
    """Proves: of steps, of time, and of both sides of `&`: it is spent once each side is."""
    limits = leaves_of_budget(whole)
    state = unspent(limits)
    for spent, left in zip(spends, lefts, strict=True):
        reserved = reserve(whole, state=state, free=state.free(limits), asked=None)
        assert reserved is not None
        state = state.with_part("t", BudgetPart(reserved.amounts, "p"))
        assert reserve(whole, state=state, free=state.free(limits), asked=None) is None
        state = state.settled("t", limits=limits, spending=RunSpending(spent))
        assert shown(whole, amounts=state.free(limits)) == left
    if isinstance(whole, AllOf):
        assert reserve(whole, state=state, free=state.free(limits), asked=None) is None


SMALL = st.one_of(
    st.builds(MaxRequests, st.integers(1, 6)),
    st.builds(MaxToolCalls, st.integers(1, 6)),
    st.builds(MaxSteps, st.integers(1, 6)),
)
SMALL_FORMULAS = st.recursive(
    SMALL,
    lambda inner: st.builds(lambda one, other, both: one & other if both else one | other, inner, inner, st.booleans()),
)
COUNTS = st.builds(
    lambda requests, calls, steps: Spent(requests=requests, tool_calls=calls, steps=steps),
    *[st.integers(0, 9) for _ in range(3)],
)


@pytest.mark.promise("end:budget")
@settings(max_examples=examples(300), deadline=None)
@given(
    whole=SMALL_FORMULAS,
    moves=st.lists(
        st.tuples(st.booleans(), st.none() | SMALL | SMALL_FORMULAS, st.lists(COUNTS, max_size=4)), max_size=7
    ),
)
@example(
    whole=MaxRequests(5) & MaxToolCalls(5),
    moves=[
        (True, MaxRequests(2) | MaxToolCalls(2), []),
        (True, None, [Spent(requests=9, tool_calls=3)]),
        (False, None, []),
        (True, None, [Spent(requests=1, tool_calls=9)]),
    ],
)
def test_runs_of_any_formula_are_together_never_beyond_it(
    whole: Limit, moves: list[tuple[bool, Limit | None, list[Spent]]]
) -> None:
    """Proves: whatever runs begin, ask for and spend within their own limits, the budget's formula is not exceeded."""
    limits = leaves_of_budget(whole)
    state, done, running = unspent(limits), Spent(), dict[str, tuple[Limit, Spent]]()
    for number, (begins, asked, spends) in enumerate(moves):
        if begins:
            found = reserve(whole, state=state, free=state.free(limits), asked=asked)
            if found is not None:
                spent = max(
                    [one for one in spends if not is_over(found.limit, spent=one)],
                    key=lambda one: one.requests + one.tool_calls,
                    default=Spent(),
                )
                state = state.with_part(str(number), BudgetPart(found.amounts, "p"))
                running[str(number)] = (found.limit, spent)
        elif running:
            turn, (_, spent) = next(iter(running.items()))
            del running[turn]
            done += spent
            state = state.settled(turn, limits=limits, spending=RunSpending(spent))
        assert not is_over(whole, spent=sum([spent for _, spent in running.values()], done))


def run_of(turn: str) -> BudgetRun:
    return BudgetRun(turn=turn, root_session="s", root_turn=turn)
