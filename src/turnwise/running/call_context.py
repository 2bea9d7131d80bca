"""What the calls of a turn have around them."""

import math
from collections.abc import Callable

import msgspec

from turnwise.base.clock import Clock
from turnwise.journal.turn_ledger import Bookkeeper
from turnwise.journal.turn_writer import TurnJournal
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Approver, ask
from turnwise.running.asking_elsewhere import approver_below
from turnwise.running.resumption import LeftTurn
from turnwise.running.runner_config import RunnerMeans
from turnwise.running.tools import Around
from turnwise.running.watcher_events import AskClosed, AskOpened, Watch
from turnwise.turn.approvals import Approval, AskOrigin, OneAsk, ResumeTerms
from turnwise.turn.commands import Ask
from turnwise.turn.config import TurnConfig


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


class ToolAsks:
    """Puts asks to `approver`, who has `ask_s` seconds for each. If nobody is there (no approver, a policy that is not attended),
    the policy's `unattended` counts, and without a policy it is a denial. An ask that nobody answers in time is denied."""

    def __init__(
        self,
        *,
        approver: Approver | None,
        policy: Policy | None,
        ask_s: float,
        clock: Clock,
        path: tuple[str, ...],
        scrub: Callable[[str], str],
        turn_id: str,
        tell: Watch,
    ) -> None:
        self._approver = approver if policy is None or policy.attended else None
        self._unattended = "deny" if policy is None else policy.unattended
        self._ask_s, self._clock, self._path, self._scrub, self._tell = ask_s, clock, path, scrub, tell
        self._origin = AskOrigin(turn_id=turn_id, folder="" if policy is None else policy.workspace)

    async def put(self, one: OneAsk, /, *, left_s: float) -> Approval:
        """The answer, or its default (`by="default"`). Left for later is denied: the tool runs now."""
        deadline_s = min(self._ask_s, left_s)
        self._tell(AskOpened(one.call, one.subject, one.options, deadline_s))
        answer = Approval(call_id=one.call.id, verdict="deny", by="failed", text="the call ended before the answer")
        try:
            most_s = None if math.isinf(left_s) else left_s
            answer = await self._answer(one, deadline_s=deadline_s, most_s=most_s)
        finally:
            self._tell(AskClosed(one.call, answer))
        return answer

    async def _answer(self, one: OneAsk, *, deadline_s: float, most_s: float | None) -> Approval:
        default = Approval(call_id=one.call.id, verdict="deny", by="default")
        if self._approver is None:
            return msgspec.structs.replace(default, verdict=self._unattended)
        asked = await ask(
            Ask(step=0, asks=(one,), deadline_s=deadline_s),
            approver=self._approver,
            clock=self._clock,
            path=self._path,
            scrub=self._scrub,
            origin=self._origin,
            most_s=most_s,
        )
        for answer in asked.approvals:
            verdict = "allow" if answer.verdict == "allow" else "deny"
            return msgspec.structs.replace(answer, verdict=verdict, always=False)
        return default
