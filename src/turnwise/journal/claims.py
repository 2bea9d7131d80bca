"""A turn that a worker has claimed, and the lease under which its pen writes."""

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from turnwise.base.activity import Activity
from turnwise.turn.approvals import Approval, AskOrigin, OneAsk


class AsksOfSubAgents(Protocol):
    """What those who run the sub-agents of a claimed turn ask a person."""

    async def put(
        self,
        asks: Sequence[OneAsk],
        *,
        path: tuple[str, ...],
        origin: AskOrigin,
        deadline_s: float,
        keep: Callable[[Approval], object],
    ) -> Sequence[Approval]:
        """What was answered in time; `keep` is told of each answer as soon as it is there."""
        ...

    async def given(self, asks: Sequence[OneAsk], *, origin: AskOrigin) -> Sequence[Approval]:
        """What was answered while no process ran the sub-agent. Raises JournalFailed."""
        ...


class Lease(Protocol):
    """What the pen of a claimed turn asks."""

    @property
    def is_over(self) -> bool:
        """Whether the turn was let go: its pen writes nothing more."""
        ...

    @property
    def ends(self) -> bool:
        """Whether the worker stops, and the turn goes to another one before its next request."""
        ...

    @property
    def activity(self) -> Activity:
        """Of the turn and its sub-agents."""
        ...

    def check(self) -> None:
        """Ends the process where the lease may have lapsed."""
        ...

    def let_go(self) -> None:
        """Raises JournalFailed. On return of that the turn is anybody's."""
        ...

    def ask(self, asks: Sequence[OneAsk], *, deadline_s: float, folder: str) -> Sequence[Approval]:
        """What a person has answered, or nothing where the time is over. Raises JournalFailed where nobody was asked yet: the
        turn is nobody's then, and goes on with the answers."""
        ...

    @property
    def below(self) -> "AsksOfSubAgents":
        """By which the asks of the turn's sub-agents reach a person, while the turn keeps running."""
        ...


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody else runs the turn while its `epoch` stands. `is_new`: nothing of it is recorded, so it begins with `prompt`.
    `number` identifies the row; `turn_id` is what the row was called when it was claimed. `since_s`: the lease began then or
    later, by `lease_clock()`. `tried_from`: what was tried up to that epoch does not count. `asked` are the calls that a person
    was asked about last, each with what stands for it, and `answers` what they said. `wishes` is what the turn may have at most,
    as text that nobody has read yet. `cancel`: it was cancelled before, and ends before anything more happens."""

    session: str
    turn_id: str
    number: int
    epoch: int
    agent: str
    prompt: str
    is_new: bool
    since_s: float
    tried_from: int = 0
    asked: tuple[tuple[str, str], ...] = ()
    answers: tuple[Approval, ...] = ()
    wishes: str = ""
    cancel: bool = False
