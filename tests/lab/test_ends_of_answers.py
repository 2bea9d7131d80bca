"""Each cell of the table of ends, over real sockets: what the server counts, the ledger has (issue 40, "One end")."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from flat_agents import flat_agent
from gateway.calling import call_of
from gateway.relayed import Gathered, profile_of
from lab.ends_of_answers import ENDS_OF_BODIES, End, Held, Row, begun, draw, row_of, unmarked, whole
from lab.raw_server import Body, serving
from lab.test_closed_responses import FAMILIES, PATH
from tables import each
from turnwise import Deadlines, RetryPolicy
from turnwise.assembly.response_reading import read_body
from turnwise.base.clock import SystemClock
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.gateway.accounts import AccountMeans
from turnwise.gateway.config import GatewayConfig, GatewayDeadlines, GatewayRoute, UpstreamAddress
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.journal.journal import Journal
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.vocab import calls_of, text_of
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import FamilyName
from waits import HANG_S
from whole_streams import read_stream

SAID = "It is done."
WAYS: list[tuple[Held, bool]] = [("text", True), ("call", True), ("text", False), ("call", False)]
IDLE_S, WHOLE_S = 0.3, 1.0
TIMES = GatewayDeadlines(first_event_s=HANG_S, next_event_s=IDLE_S, whole_s=WHOLE_S, retry_s=HANG_S, total_s=HANG_S)


ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_drawn_from_the_table() -> None:
    """docs/ends.md says what is tried here."""
    assert (ROOT / "docs" / "ends.md").read_text(encoding="utf-8") == draw(), "run python scripts/draw_ends.py"


class Came(NamedTuple):
    """What came of one run, or of one client's request."""

    requests: int
    text: str
    calls: list[object]
    is_whole: bool


async def run_all(family: str, bodies: Sequence[Body], *, stream: bool, runs: int = 1) -> list[Came]:
    """By one agent, whose ledger is compared with the server's count."""
    ran: list[object] = []

    async def read(path: str) -> str:
        ran.append({"path": path})
        return "a note"

    came: list[Came] = []
    async with serving(bodies) as served, AiohttpTransport(env={}) as transport:
        agent = flat_agent(
            f"{family}:m",
            base_url=served.url,
            transport=transport,
            api_key="k",
            tools=[read],
            stream=stream,
            retry=RetryPolicy(base_s=0.001),
            deadlines=Deadlines(first_event_s=HANG_S, idle_s=IDLE_S, total_s=HANG_S if stream else WHOLE_S),
        )
        for _ in range(runs):
            before = served.requests
            ran.clear()
            result = await agent.run("Please.")
            assert len(result.ledger) == result.requests == served.requests - before
            came.append(Came(served.requests - before, result.text, [*ran], result.complete))
    return came


async def relay_all(
    family: FamilyName, bodies: Sequence[Body], *, stream: bool, ledger: tuple[LedgerThread, Path], asked: int = 1
) -> list[Came]:
    """By one gateway, for a client of the upstream's family."""
    came: list[Came] = []
    async with serving(bodies) as served, AiohttpTransport(env={}) as transport:
        upstream = UpstreamAddress(url=served.url, family=family, key_env="K")
        means = ServiceMeans(
            transport=transport, clock=SystemClock(), env={"K": "k"}, accounts=AccountMeans(ledger=ledger[0])
        )
        service = RelayService(
            GatewayConfig(routes=(GatewayRoute(upstream=upstream),), deadlines=TIMES), means=means, forward_key=False
        )
        for _ in range(asked):
            before, outlet = served.requests, Gathered()
            call = msgspec.structs.replace(call_of(family, "m", stream=stream, tool="read"), id=served.url)
            await asyncio.wait_for(service.answer(call, outlet), HANG_S)
            told, here, profile = b"".join(outlet.pieces), find_family(family), profile_of(family)
            if stream:
                got = read_stream([told], family=here, profile=profile)
            else:
                got = read_body(told, family=here, profile=profile)[0]
            is_whole = outlet.status == 200 and got.fault is None and not got.lost
            calls: list[object] = [json.loads(one.arguments) for one in calls_of(got.message)] if is_whole else []
            came.append(Came(served.requests - before, text_of(got.message), calls, is_whole))
    with Journal(ledger[1], clock=SystemClock()) as journal:
        entries = [one for one in journal.ledger.entries(LedgerSpan()) if one.turn == served.url]
    assert len(entries) == served.requests
    return came


class Tried(NamedTuple):
    """One cell: what the server sends, and how many requests the first run, and the last one, should take."""

    name: str
    bodies: list[Body]
    first: int
    last: int | None = None  # of a second run
    fails: bool = False


def cells(family: str, *, held: Held, stream: bool, end: End, row: Row, gateway: bool) -> list[Tried]:
    def sent(pieces: tuple[bytes, ...], by: End = end) -> Body:
        return by.of(pieces, stream=stream)

    ends_in_order = End("last chunk")
    good = sent(whole(family, held=held, stream=stream), ends_in_order)
    found = [Tried("marked", [sent(whole(family, held=held, stream=stream))], 1)]
    if not stream or (held == "call" and family != "gemini"):
        found.append(Tried("open", [sent(begun(family, held=held, stream=stream)), good], 2))
    if not stream:
        return found
    bare = sent(unmarked(family, held=held))
    found.append(Tried("first", [bare, good], 2))
    is_known = gateway and (held == "text" or family != "gemini")  # the client has words, or half a call
    second = row.gateway if is_known else row.second
    count = 3 if second == "asked again" else 2
    found.append(Tried("second", [bare, bare, *[good] * (count - 2)], count, fails=second == "one error"))
    if held == "text" and second != "one error":
        taken = row.third == "taken"
        later = [bare] if taken else [bare, good]
        found.append(Tried("third", [*[bare] * 2, *[good] * (count - 2), *later], count, 1 if taken else 2))
    return found


@pytest.mark.costly
@pytest.mark.promise("wait:retry", "wait:stream", "bill:wire")
@each("family", FAMILIES)
@each(("held", "stream"), WAYS, meeting="each")
async def test_the_library_does_what_the_table_says(family: str, held: Held, stream: bool) -> None:
    """Requests, words and runs of the tool, for each way in which the body ends."""

    async def try_one(end: End, one: Tried) -> tuple[str, list[Came]]:
        told = [
            *one.bodies,
            *([End("last chunk").of(whole(family, held="text", stream=stream), stream=stream)] * (held == "call")),
        ]
        return f"{end} {one.name}", await run_all(family, told, stream=stream, runs=1 if one.last is None else 2)

    trying = [
        (end, one)
        for end in ENDS_OF_BODIES
        for one in cells(
            family, held=held, stream=stream, end=end, row=row_of(end, family=family, held=held), gateway=False
        )
    ]
    more = held == "call"  # the step behind the call
    expected = {
        f"{end} {one.name}": [
            Came(requests + more, SAID, [PATH] * more, True)
            for requests in (one.first, one.last)
            if requests is not None
        ]
        for end, one in trying
    }
    assert dict(await asyncio.gather(*[try_one(end, one) for end, one in trying])) == expected


@pytest.mark.costly
@pytest.mark.promise("heal:every-case", "bill:wire")
@each("family", FAMILIES)
@each(("held", "stream"), WAYS, meeting="each")
async def test_the_gateway_does_what_the_table_says(
    family: FamilyName, held: Held, stream: bool, tmp_path: Path
) -> None:
    """The client gets the whole answer once, or one error."""
    ledger = LedgerThread(tmp_path / "journal.db", clock=SystemClock())

    async def try_one(end: End, one: Tried) -> tuple[str, list[Came]]:
        asked = 1 if one.last is None else 2
        came = await relay_all(family, one.bodies, stream=stream, ledger=(ledger, tmp_path / "journal.db"), asked=asked)
        return f"{end} {one.name}", came

    trying = [
        (end, one)
        for end in ENDS_OF_BODIES
        for one in cells(
            family, held=held, stream=stream, end=end, row=row_of(end, family=family, held=held), gateway=True
        )
    ]
    text = SAID if held == "text" else ""
    calls: list[object] = [] if held == "text" else [PATH]
    expected = {
        f"{end} {one.name}": [
            Came(requests, text, [] if one.fails else calls, not one.fails)
            for requests in (one.first, one.last)
            if requests is not None
        ]
        for end, one in trying
    }
    try:
        assert dict(await asyncio.gather(*[try_one(end, one) for end, one in trying])) == expected
    finally:
        await asyncio.to_thread(ledger.close)
