"""What a finished answer took is freed when it ends: no collector has to look for it."""

import asyncio
import contextlib
import gc
from collections.abc import Iterator

import pytest

from gateway.calling import call_of, upstream_at
from gateway.relayed import FAMILIES, Gathered
from lab.failing import DEADLINES, settled
from thoroughness import spread
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientGone
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.testing import FakeClock
from turnwise.wire.profiles import FamilyName

ENDS = ("plain-text", "parallel-calls", "cut-call", "fault-reset", "fault-429", "fault-endless-line", "fault-html")


def left_in_cycles() -> list[str]:
    """The kinds of turnwise's objects that only the collector could free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = [f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage]
    gc.garbage.clear()
    is_test = ("turnwise.lab.", "turnwise.testing.")
    return sorted([kind for kind in found if kind.startswith("turnwise.") and not kind.startswith(is_test)])


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.costly
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("model", spread(ENDS, one_of=3, name="answers that are freed"))
@pytest.mark.parametrize("upstream", FAMILIES)
def test_an_answer_that_is_over_is_freed_without_the_collector(upstream: FamilyName, model: str) -> None:
    """Streamed and not, for a client of each family: four answers of 64 MB stayed until the next search, 2.4 GB of them."""

    async def run() -> list[str]:
        async with Lab() as lab:
            clock = FakeClock()
            means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, deadlines=DEADLINES)
            route = GatewayRoute(upstream=upstream_at(upstream))
            service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)
            for client in FAMILIES:
                for stream in (True, False):
                    call, outlet = call_of(client, model, stream=stream, tool="note", limit_tokens=6000), Gathered()
                    await settled(service.answer(call, outlet), clock=clock)
                    assert outlet.status, "it was answered"
            await asyncio.sleep(0)
            return left_in_cycles()

    assert asyncio.run(run()) == []


class Leaving(Gathered):
    """A client that leaves once it has read something."""

    def __init__(self) -> None:
        super().__init__()
        self._left = asyncio.Event()

    async def send(self, data: bytes) -> None:
        await super().send(data)
        self._left.set()

    async def gone(self) -> None:
        await self._left.wait()


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("upstream", FAMILIES)
def test_an_answer_that_its_client_left_is_freed_without_the_collector(upstream: FamilyName) -> None:
    """The task that served it ends with an error, whose frames hold all of it."""

    async def run() -> list[str]:
        async with Lab() as lab:
            clock = FakeClock()
            means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, deadlines=DEADLINES)
            route = GatewayRoute(upstream=upstream_at(upstream))
            service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)

            async def ask() -> None:
                with contextlib.suppress(ClientGone):
                    await service.answer(call_of(upstream, "fault-stall", stream=True, tool="note"), Leaving())

            await settled(ask(), clock=clock)
            await asyncio.sleep(0)
            return left_in_cycles()

    assert asyncio.run(run()) == []
