"""Who observes a whole turn from within: spans and metrics are made so (`telemetry`)."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from turnwise.base.clock import Clock
from turnwise.journal.ledger import Ledger
from turnwise.running.watcher_events import WatcherEvent
from turnwise.turn.commands import SendRequest
from turnwise.turn.config import TurnConfig
from turnwise.vocab import Message


class ObservedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that begins, as an observer sees it. `input` is what it was given; `scrub` removes the endpoint's key from
    a text."""

    config: TurnConfig
    input: tuple[Message, ...]
    path: tuple[str, ...]
    provider: str
    base_url: str
    scrub: Callable[[str], str]
    ledger: Ledger
    clock: Clock
    is_resumed: bool


class TurnObserver(Protocol):
    """Observes one turn from its beginning to its end. It raises nothing.

    The turn runs in `around`, and its result is given out once `settled` has returned. `asked` comes with each request that is
    about to leave, in the context in which it does, and gives the headers that go with it; `see` gets what watchers are told,
    calls in the context in which they run.
    """

    def around(self) -> AbstractContextManager[None]: ...

    async def settled(self) -> None: ...

    def asked(self, order: SendRequest, /) -> tuple[tuple[str, str], ...]: ...

    def see(self, batch: Sequence[WatcherEvent], /) -> None: ...


Observe = Callable[[ObservedTurn], TurnObserver]
"""Makes the observer of a turn that is about to begin. It raises nothing."""
