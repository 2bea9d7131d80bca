"""The one question before a request leaves this process: does anybody forbid it? By default nobody does.

`AiohttpTransport` asks it with the address of each request. `turnwise.testing.plugin` forbids requests while tests run.
"""

import contextlib
from collections.abc import Callable, Generator

RequestGuard = Callable[[str], None]
"""Raises for the URL of a request that must not leave."""

_guards: list[RequestGuard] = []


def check_may_leave(url: str) -> None:
    """Raises what a guard raises, before a name is looked up or a connection is opened."""
    for guard in _guards:
        guard(url)


@contextlib.contextmanager
def guarding(guard: RequestGuard) -> Generator[None]:
    """While the context is open, the guard is asked before each request of this process, in every thread."""
    _guards.append(guard)
    try:
        yield
    finally:
        _guards.remove(guard)
