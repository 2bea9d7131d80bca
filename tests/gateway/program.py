"""A gateway in a process of its own, before the echoing service: `python program.py GRACE_S KEYS`.
SIGUSR1 lets answers that wait go on."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from gateway.serving import Echo
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.serve import BoundSocket, GatewayMeans, run_gateway


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextlib.asynccontextmanager
async def opened(config: GatewayConfig) -> AsyncIterator[Echo]:
    echo = Echo()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, echo.go_on.set)
    try:
        yield echo
    finally:
        say(f"closed after {echo.ended}")


def tell(listening: BoundSocket) -> None:
    say(str(listening.own.port))


if __name__ == "__main__":
    means = GatewayMeans(
        config=GatewayConfig(routes=(GatewayRoute(upstream="openai:*"),), port=0),
        opens=opened,
        tells=tell,
        keys=Path(sys.argv[2]),
        grace_s=float(sys.argv[1]),
    )
    say(msgspec.json.encode(run_gateway(means)).decode())
