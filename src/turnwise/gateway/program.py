"""The gateway from its configuration to its last answer. Loaded by the command that serves."""

import gc
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import msgspec

from turnwise.base.own_loop import quickest_loop, run_to_end
from turnwise.gateway.app import GatewayApp
from turnwise.gateway.config import GatewayConfig
from turnwise.gateway.keys import KeyRing
from turnwise.gateway.passed_calls import GatewayService
from turnwise.gateway.routes import check_clients
from turnwise.gateway.serve import BoundSocket, GatewayEnd, check_reach, serve

# New objects between two searches for garbage in cycles, and how many searches before older objects are searched, too. With
# Python's own (700, 10, 10) each search of everything stops hundreds of streams for 50 ms, and leaves them out of the
# processor's caches.
SEARCHES = (10_000, 20, 50)


class GatewayMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What a gateway is made of. `opens` makes the service behind the doors, which is closed after the last answer. `tells` gets
    the socket once connections are taken."""

    config: GatewayConfig
    opens: Callable[[GatewayConfig], AbstractAsyncContextManager[GatewayService]]
    tells: Callable[[BoundSocket], None]
    keys: Path
    forward_key: bool = False
    grace_s: float = 30.0


def run_gateway(means: GatewayMeans) -> GatewayEnd:
    """Serve until SIGTERM or Ctrl-C. Raises CallerError for what is wrong before the first connection is taken."""
    with seldom_searched():
        return run_to_end(_run(means), new_loop=quickest_loop)


@contextmanager
def seldom_searched() -> Generator[None]:
    """Within it, garbage in cycles is looked for seldom, and never among what is loaded already."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*SEARCHES)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


async def _run(means: GatewayMeans) -> GatewayEnd:
    config, ring = means.config, KeyRing(means.keys)
    listening = BoundSocket(config.host, config.port)
    try:
        check_reach(listening, has_keys=bool(ring.current()))
        if not means.forward_key:  # each client's own key opens its own store
            check_clients(config.routes, keys=(ring.current() or {}).values())
        async with means.opens(config) as service:
            app = GatewayApp(service, rules=config.rules(forward_key=means.forward_key), keys=ring)
            return await serve(
                app, listening, bounds=config.bounds, grace_s=means.grace_s, ready=lambda: means.tells(listening)
            )
    finally:
        listening.close()
