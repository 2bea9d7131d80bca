"""The same faults over real sockets: what the server does to the connection is what the client makes of it.

The clock is not the machine's: it stands still until the first request has arrived (or its finish reason, where that is what
comes before the silence), and again once a second one has, so that no deadline strikes what is only slow.
"""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from families import of_family
from lab.failing import FAMILIES
from lab.test_faults import KEPT, LOST, fails
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint
from turnwise.lab import Lab
from turnwise.lab.script import FaultName, FaultPoint, ScriptedFault
from turnwise.rules.retries import RetryPolicy
from turnwise.running.runner import Runner
from turnwise.running.runner_config import Observation, RunnerMeans
from turnwise.running.watcher_events import FrameSeen, WatcherEvent
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Text
from turnwise.vocab.frames import Finished
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

DEADLINES = Deadlines(first_event_s=3, idle_s=2, total_s=60)
QUICKLY = RetryPolicy(base_s=0.001)
STEP_S = 0.1
CELLS: tuple[tuple[FaultName, FaultPoint], ...] = (
    ("reset", "headers"),
    ("reset", "start"),
    ("reset", "text"),
    ("eof", "text"),
    ("pings", "start"),
    ("pings", "text"),
    ("stall", "text"),
    ("error-in-stream", "text"),
)


async def turn(lab: Lab, *, family: str, stream: bool = True, until_finish: bool = False) -> TurnResult:
    """One turn; with `until_finish` time begins to pass with the finish reason, else with the first request."""
    profile = builtin_profiles()[family]
    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model="fails",
        stream=stream,
        deadlines=DEADLINES,
        retry=QUICKLY,
        **of_family(family),
        profile=profile.name,
    )
    prefix = "" if family in ("anthropic_messages", "gemini") else "/v1"
    clock, finished = FakeClock(), asyncio.Event()

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, FrameSeen) and isinstance(seen.frame, Finished):
            finished.set()

    async with AiohttpTransport(env={}) as transport:
        endpoint = Endpoint(profile=profile, base_url=lab.url + prefix)
        runner = Runner(
            RunnerMeans(endpoint=endpoint, transport=transport, clock=clock, observation=Observation(watch=watch))
        )
        event = TurnStarted(config=config, input=(Message("user", (Text("Please."),)),))
        moves: Callable[[], bool] = finished.is_set if until_finish else lambda: lab.count() == 1
        return await passing(asyncio.create_task(runner.run(event)), clock=clock, moves=moves)


async def passing(running: "asyncio.Task[TurnResult]", *, clock: FakeClock, moves: Callable[[], bool]) -> TurnResult:
    """The result; while `moves` holds, time passes, a little whenever nothing else is to be done at once."""
    async with asyncio.timeout(HANG_S):
        while not running.done():
            await (clock.advance(STEP_S) if moves() else asyncio.sleep(0))
        return await running


@pytest.mark.promise("wait:retry", "wait:stream", "bill:wire")
@pytest.mark.parametrize("family", FAMILIES)
async def test_each_is_asked_for_again(family: str) -> None:
    """Twice, by the server's own count, and the second one's words only."""
    for kind, at in CELLS:
        async with Lab([fails(ScriptedFault(kind=kind, at=at))]) as lab:
            result = await turn(lab, family=family)
            assert (result.text, result.requests, lab.count(), result.complete) == (KEPT, 2, 2, True), (kind, at)
            assert b"LOST" not in msgspec.json.encode(result)


@pytest.mark.promise("wait:retry")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_body_that_breaks_off_is_asked_for_again(family: str) -> None:
    """With a connection that is reset, and with one that is closed in good order, too early."""
    for kind in ("reset", "eof"):
        async with Lab([fails(ScriptedFault(kind=kind, at="text"))]) as lab:
            result = await turn(lab, family=family, stream=False)
            assert (result.text, result.requests, lab.count()) == (KEPT, 2, 2), kind


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("family", FAMILIES)
async def test_a_connection_left_open_behind_the_finish_reason_is_a_whole_response(family: str) -> None:
    """It is closed by us, soon."""
    async with Lab([fails(ScriptedFault(kind="stall", at="finish"))]) as lab:
        result = await turn(lab, family=family, until_finish=True)
        assert (result.text, result.requests, result.complete) == (LOST, 1, True)
