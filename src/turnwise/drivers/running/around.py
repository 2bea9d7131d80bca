"""What the calls of a turn have around them."""

from turnwise.drivers.journal.bookkeeping import Bookkeeper
from turnwise.drivers.journal.pen import TurnJournal
from turnwise.drivers.running.asking_elsewhere import approver_below
from turnwise.drivers.running.means import RunnerMeans
from turnwise.drivers.running.resumption import LeftTurn
from turnwise.drivers.running.tool_asks import ToolAsks
from turnwise.drivers.running.watching import Watch
from turnwise.drivers.tools.tools import Around
from turnwise.turn.config import TurnConfig
from turnwise.turn.resume_terms import ResumeTerms


def around_of(
    config: TurnConfig,
    *,
    means: RunnerMeans,
    journal: TurnJournal | None,
    left: LeftTurn | None,
    tell: Watch,
    books: Bookkeeper,
) -> Around:
    """The same for all calls of the turn. `tell` reaches its watchers."""
    return Around(
        turn_id=config.turn_id,
        path=means.path,
        approver=means.safety.approver or approver_below(journal),
        watch=tell,
        ledger=books.ledger,
        journal=None if journal is None else journal.journal,
        ask_s=config.deadlines.ask_s,
        begun=frozenset() if left is None else left.begun,
        terms=ResumeTerms() if left is None else left.terms_below,
        enter=None if journal is None or journal.lease is None else journal.lease.check,
        activity=None if journal is None or journal.lease is None else journal.lease.activity,
        run=means.run,
        observe=means.observation.observe,
        answers=means.answers,
        put_ask=ToolAsks(
            approver=means.safety.approver,
            policy=config.policy,
            ask_s=config.deadlines.ask_s,
            clock=means.clock,
            path=means.path,
            scrub=means.endpoint.scrub,
            turn_id=config.turn_id,
            tell=tell,
        ).put,
    )
