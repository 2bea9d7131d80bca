"""The gateway from its configuration to its last answer. Loaded by the command that serves."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from turnwise.drivers.own_loop import quickest_loop, run_to_end
from turnwise.faces.gateway.app import GatewayApp
from turnwise.faces.gateway.calls import GatewayService
from turnwise.faces.gateway.config import GatewayConfig
from turnwise.faces.gateway.keys import KeyRing
from turnwise.faces.gateway.routing import check_clients
from turnwise.faces.gateway.serve import BoundSocket, GatewayEnd, check_reach, serve


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
    return run_to_end(_run(means), new_loop=quickest_loop)


async def _run(means: GatewayMeans) -> GatewayEnd:
    config, ring = means.config, KeyRing(means.keys)
    listening = BoundSocket(config.host, config.port)
    try:
        check_reach(listening, has_keys=bool(ring.current()))
        if not means.forward_key:  # each client's own key opens its own store
            check_clients(config.routes, keys=ring.current())
        async with means.opens(config) as service:
            app = GatewayApp(service, rules=config.rules(forward_key=means.forward_key), keys=ring)
            return await serve(
                app, listening, bounds=config.bounds, grace_s=means.grace_s, ready=lambda: means.tells(listening)
            )
    finally:
        listening.close()
