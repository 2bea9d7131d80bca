"""A turn that a worker has claimed, and the lease under which its pen writes."""

from typing import Protocol

import msgspec


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

    def check(self) -> None:
        """Ends the process where the lease may have lapsed."""
        ...

    def let_go(self) -> None:
        """Raises JournalFailed. On return of that the turn is anybody's."""
        ...


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """Nobody else runs the turn while its `epoch` stands. `is_new`: nothing of it is recorded, so it begins with `prompt`.
    `number` identifies the row; `turn_id` is what the row was called when it was claimed. `since_s`: the lease began then or
    later, by `lease_clock()`."""

    session: str
    turn_id: str
    number: int
    epoch: int
    agent: str
    prompt: str
    is_new: bool
    since_s: float
