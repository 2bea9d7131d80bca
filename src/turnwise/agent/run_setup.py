"""What a run does before its turn begins: it opens what it works with, reads prices, and reserves its part of a budget."""

import asyncio
import contextlib
from decimal import Decimal

import msgspec

from turnwise.agent.agent_setup import AgentSetup
from turnwise.agent.budgets import Reservation
from turnwise.agent.model_prices import with_prices
from turnwise.endpoints.transport import Transport
from turnwise.journal.budgets import BudgetRun
from turnwise.journal.journal import Journal
from turnwise.rules.limits import counts_cost
from turnwise.rules.shares import least_of
from turnwise.running.tools import ChildOrder
from turnwise.turn.config import TurnConfig


class KeptOpen:
    """What an agent keeps open while it is used by `async with`: in each event loop once, and until the last has left it."""

    def __init__(self) -> None:
        self._of_loops: dict[asyncio.AbstractEventLoop, tuple[Transport, list[contextlib.AsyncExitStack]]] = {}

    def transport(self) -> Transport | None:
        """That of this event loop; None: nothing is open in it."""
        kept = self._of_loops.get(asyncio.get_running_loop())
        return None if kept is None else kept[0]

    async def enter(self, setup: AgentSetup) -> None:
        async with contextlib.AsyncExitStack() as opening:
            transport = self.transport() or await open_transport(opening, given=setup.given_transport)
            if setup.toolsets:
                from turnwise.agent.turn_toolsets import opened

                await opening.enter_async_context(opened(setup))
            kept = self._of_loops.setdefault(asyncio.get_running_loop(), (transport, []))
            kept[1].append(opening.pop_all())

    async def leave(self) -> None:
        """The transport is closed with the last: it belongs to the first stack."""
        loop = asyncio.get_running_loop()
        stacks = self._of_loops[loop][1]
        stack = stacks.pop()
        if not stacks:
            del self._of_loops[loop]
        await stack.aclose()


async def reserved(
    setup: AgentSetup,
    config: TurnConfig,
    *,
    stack: contextlib.AsyncExitStack,
    whole: bool = False,
    journal: Journal | None,
    run: BudgetRun | None = None,
) -> tuple[TurnConfig, Reservation | None]:
    """The configuration with the run's part of its budget, and that part, until `stack` is left. `whole`: of a turn that goes on,
    with what it began with. `run` is the run in its tree; None: it is the root. Raises BudgetSpent."""
    if setup.budget is None:
        return config, None
    setup.budget.check_journal(journal)
    run = run or BudgetRun(turn=config.turn_id, root_session=config.session_id, root_turn=config.turn_id)
    row = config.prices.get(config.model)
    least_usd = Decimal(0) if row is None else least_of(row)
    part = await stack.enter_async_context(setup.budget.reserving(run, config.limits, least_usd=least_usd, whole=whole))
    return config if whole else msgspec.structs.replace(config, limits=part.limit), part


def run_below(config: TurnConfig, *, order: ChildOrder, path: tuple[str, ...]) -> BudgetRun:
    """A sub-agent's run in the tree of its root, whose ledger now knows it."""
    session, turn = config.session_id, config.turn_id
    if order.ledger is not None:
        order.ledger.begin_below(config.turn_id, parent=order.parent_turn)
        session, turn = order.ledger.root_session, order.ledger.root_turn
    return BudgetRun(turn=config.turn_id, root_session=session, root_turn=turn, path=path)


async def furnished(setup: AgentSetup, *, stack: contextlib.AsyncExitStack, has_approver: bool) -> AgentSetup:
    from turnwise.agent.turn_toolsets import with_open_toolsets  # most agents have no toolsets

    return await with_open_toolsets(setup, stack=stack, has_approver=has_approver)


async def priced(setup: AgentSetup, config: TurnConfig) -> TurnConfig:
    """The configuration with the prices that a limit of cost needs, those of its sub-agents looked at as well.

    Raises CallerError where one is not known: a limit that cannot hold is none.
    """
    if not counts_cost(config.limits):
        return config
    prices = await setup.prices.of_turn(config)
    least_usd = {
        tool: {name: await agent.least_usd(config.limits) for name, agent in one.agents.items()}
        for tool, one in setup.delegations.items()
    }
    return with_prices(config, prices=prices, least_usd=least_usd)


async def open_transport(stack: contextlib.AsyncExitStack, *, given: Transport | None) -> Transport:
    if given is not None:
        return given
    from turnwise.endpoints.aiohttp_transport import AiohttpTransport

    return await stack.enter_async_context(AiohttpTransport())
