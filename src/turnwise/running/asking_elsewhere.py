"""How what a turn asks reaches a person who is not at its worker."""

from collections.abc import Sequence

from turnwise.journal.claims import Lease
from turnwise.journal.loop_writer import LoopPen
from turnwise.journal.turn_writer import TurnJournal
from turnwise.running.approvals import Approver, Asking
from turnwise.turn.approvals import Approval, AskOrigin, OneAsk


def approver_below(journal: TurnJournal | None) -> Approver | None:
    """It puts the asks of the turn's sub-agents to a person on any machine. None where nobody keeps the turn for a worker."""
    lease = None if journal is None else journal.asks_below
    return None if lease is None else _of_lease(lease)


def _of_lease(lease: Lease) -> Approver:
    async def approve(asking: Asking) -> Sequence[Approval]:
        if any(ask.by == "tool" for ask in asking.asks):
            return ()  # a crash would leave it in the turn's row, and its call does not go on
        return await lease.below.put(
            asking.asks, path=asking.path, origin=asking.origin, deadline_s=asking.deadline_s, keep=asking.keep
        )

    return approve


async def given_in_time(
    journal: LoopPen | None, asks: Sequence[OneAsk], *, origin: AskOrigin, is_below: bool
) -> Sequence[Approval]:
    """The answers that were given while no process ran the turn, to asks whose time is over by now. Raises JournalFailed."""
    if journal is None or (lease := journal.pen.lease) is None:
        return ()
    if is_below:
        return await lease.below.given(asks, origin=origin)
    return await journal.ask_elsewhere(asks, deadline_s=0.0, folder=origin.folder) or ()
