"""The same faults over real sockets: what the server does to the connection is what the client makes of it."""

import msgspec
import pytest

from lab.failing import FAMILIES
from lab.test_faults import KEPT, LOST, fails
from turnwise.drivers.aiohttp_transport import AiohttpTransport
from turnwise.drivers.endpoints import Endpoint
from turnwise.drivers.runner import Runner
from turnwise.lab import Lab
from turnwise.lab.script import FaultName, Point, ScriptedFault
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import Deadlines, TurnConfig, TurnResult
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Text
from turnwise.wire.profiles import builtin_profiles

SOON = Deadlines(first_event_s=0.3, idle_s=0.2, total_s=5)
QUICKLY = RetryPolicy(base_s=0.001)
CELLS: tuple[tuple[FaultName, Point], ...] = (
    ("reset", "headers"),
    ("reset", "start"),
    ("reset", "text"),
    ("eof", "text"),
    ("pings", "start"),
    ("pings", "text"),
    ("stall", "text"),
    ("error-in-stream", "text"),
)


async def turn(lab: Lab, *, family: str, stream: bool = True) -> TurnResult:
    profile = builtin_profiles()[family]
    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model="fails",
        stream=stream,
        deadlines=SOON,
        retry=QUICKLY,
        family=family,
        profile=profile.name,
    )
    prefix = "" if family in ("anthropic_messages", "gemini") else "/v1"
    async with AiohttpTransport(env={}) as transport:
        runner = Runner(Endpoint(profile=profile, base_url=lab.url + prefix), transport=transport)
        return await runner.run(TurnStarted(config=config, input=(Message("user", (Text("Please."),)),)))


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
        result = await turn(lab, family=family)
        assert (result.text, result.requests, result.complete) == (LOST, 1, True)
