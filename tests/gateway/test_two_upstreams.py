"""Two upstreams on real sockets, one of which misbehaves: what the client gets, who is asked how often, what is billed, and who
is asked next."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import pytest

from gateway.calling import call_of
from gateway.misbehaving import (
    BODY,
    DONE,
    EVENTS,
    HTML,
    JSON,
    OPENING,
    STREAM,
    WORDS,
    Misbehaving,
    Play,
    begun,
    body,
    chunk,
    chunked,
    closing,
    error,
    event,
    events,
    head,
    said,
    sized,
)
from gateway.relayed import FAMILIES, Answer, Gathered, strictly
from gateway.test_reloading import certified
from lab.failing import DEADLINES
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.gateway.accounts import AccountMeans
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.config import GatewayConfig, GatewayDeadlines, GatewayRoute, UpstreamAddress
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.journal.journal import Journal
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.journal.prices import Prices, read_prices
from turnwise.relay.client_exchange import RelayEnd
from turnwise.testing import FakeClock
from turnwise.vocab import Fault, Response, Text
from turnwise.wire.profiles import FamilyName
from waits import HANG_S

Gets = Literal["next", "own", "torn", "refusal"]
"""The client gets the answer of the next upstream, the misbehaving one's own, a beginning and an error, or a status of 4xx."""


class Case(NamedTuple):
    """Of one way to misbehave, for a stream or for an answer without one. `outcome`: what the ledger says of each of the `asks`
    requests that the upstream got; "" where none left. `cools_s`: for so long it is left alone. `waits_s`: seconds that pass
    while it is waited for, for each of the requests. `tls`: how it begins. `is_known`: it has answered well before."""

    play: Play
    gets: Gets
    outcome: str
    cools_s: float
    asks: int
    waits_s: tuple[float, ...]
    tls: str
    is_known: bool


Given = Play | bytes


def way(
    stream: Given,
    whole: Given | None = None,
    *,
    gets: Gets | tuple[Gets, Gets] = "next",
    outcome: str | tuple[str, str] = "protocol",
    cools_s: float | tuple[float, float] = 2,
    waits_s: tuple[float, ...] = (),
    asks: int | tuple[int, int] = 1,
    tls: str = "",
    is_known: bool = False,
) -> tuple[Case, Case]:
    """For a stream, and without one. What is given once counts for both."""
    cases: list[Case] = []
    for at, given in enumerate((stream, stream if whole is None else whole)):
        play = given if isinstance(given, Play) else Play(given)
        one = outcome if isinstance(outcome, str) else outcome[at]
        cools = cools_s[at] if isinstance(cools_s, tuple) else cools_s
        number = asks[at] if isinstance(asks, tuple) else asks
        cases.append(
            Case(play, gets if isinstance(gets, str) else gets[at], one, cools, number, waits_s, tls, is_known)
        )
    return cases[0], cases[1]


PAGE = b"<!DOCTYPE html><html><head><title>502</title></head><body><h1>Bad Gateway</h1></body></html>"
QUOTA = b'{"error":{"message":"no money","type":"insufficient_quota","code":"insufficient_quota"}}'
OVERLOADED = b'{"error":{"message":"not now","code":529}}'
SAID, TOLD = said(*WORDS), b"data: " + OVERLOADED + b"\n\n"
LONG = b"x" * 60_000
YEAR_S = 31_536_000
GZIPPED: dict[str, Any] = {"content_encoding": "gzip"}
OTHER, OTHER_BODY = chunked(events("Of", " another")), sized(body("Of", " another"))
NOON: dict[str, Any] = {"date": "Mon, 30 Nov 2026 12:00:00 GMT", "retry_after": "Mon, 30 Nov 2026 12:00:30 GMT"}
HALF = begun(kind=JSON) + b"400\r\n{"
BROKEN = sized(b"\x1f\x8bnonsense", **GZIPPED)
UNFRAMED = head(200, transfer_encoding="chunked") + b"zz\r\n"
MANY: dict[str, Any] = {f"x_{number}": 1 for number in range(40_000)}


def gzipped(*pieces: bytes) -> bytes:
    """A stream without its end."""
    packing = zlib.compressobj(wbits=31)
    return packing.compress(b"".join(pieces)) + packing.flush(zlib.Z_SYNC_FLUSH)


def breaks(
    stream: Given,
    whole: Given,
    *,
    outcome: str | tuple[str, str] = "disconnected",
    waits_s: tuple[float, ...] = (),
    cools_s: float = 2,
) -> tuple[Case, Case]:
    """Behind words: the stream is asked for again there, to go on behind them, and then ends with an error."""
    return way(
        stream,
        whole,
        gets=("torn", "next"),
        outcome=outcome,
        cools_s=(0, cools_s),
        asks=(2, 1),
        waits_s=waits_s,
        is_known=True,
    )


WAYS: Mapping[str, tuple[Case, Case]] = {
    # -- no connection
    "refused": way(b"", outcome="", asks=0, tls="refused"),
    "no TLS where it is asked for": way(Play(error(400), "at once"), outcome="", asks=0, tls="none"),
    "an unknown certificate": way(b"", outcome="", asks=0, tls="unknown"),
    # -- no word, or too late
    "closes without a word": way(Play(then="closes"), outcome="disconnected"),
    "resets without a word": way(Play(then="resets"), outcome="disconnected"),
    "closes a kept connection": way(Play(then="closes"), outcome="disconnected", is_known=True),
    "silent": way(Play(then="sticks"), outcome="timeout", cools_s=30, waits_s=(20,)),
    "half a head, then silent": way(
        Play(b"HTTP/1.1 200 OK\r\nx: ", "sticks"), outcome="timeout", cools_s=30, waits_s=(20,)
    ),
    "drips its head": way(
        Play(b"HTTP/1.1 200 OK\r\nx: ", "sticks", drips=b"y"), outcome="timeout", cools_s=30, waits_s=(20,)
    ),
    "a head, then silent": way(
        Play(begun(), "sticks"), Play(head(content_length=99), "sticks"), outcome="timeout", cools_s=30, waits_s=(20,)
    ),
    "a length that never comes": way(
        Play(head(content_length=10**12), "sticks"), outcome="timeout", cools_s=30, waits_s=(20,)
    ),
    "comments alone": way(
        Play(begun(), "sticks", drips=chunk(b": still here\n\n")),
        Play(begun(kind=JSON), "sticks", drips=chunk(b" ")),
        outcome="timeout",
        cools_s=30,
        waits_s=(20,),
    ),
    "drips an event": way(
        Play(begun(b"data: "), "sticks", drips=chunk(b"x")),
        Play(begun(b'{"id":"', kind=JSON), "sticks", drips=chunk(b"x")),
        outcome="timeout",
        cools_s=30,
        waits_s=(20,),
    ),
    "slow to begin": way(
        Play(then="goes on", more=chunked(EVENTS)),
        Play(then="goes on", more=sized(BODY)),
        gets="own",
        outcome="ok",
        cools_s=0,
        waits_s=(19,),
    ),
    # -- a refusal
    "500": way(error(500), outcome="server"),
    "500 that breaks off": way(Play(head(500, content_length=99) + b'{"error"', "closes"), outcome="server"),
    "500 that never ends": way(
        Play(head(500, content_length=99) + b'{"error"', "sticks"), outcome="server", waits_s=(10,)
    ),
    "502 with a page": way(sized(PAGE, 502, HTML), outcome="server"),
    "503 that says when": way(error(503, retry_after=7), outcome="overloaded", cools_s=7),
    "504": way(error(504), outcome="timeout"),
    "529": way(error(529), outcome="overloaded"),
    "599 without a body": way(sized(b"", 599), outcome="server"),
    "429": way(error(429), outcome="rate_limited", cools_s=5),
    "429 that says when": way(error(429, retry_after=40), outcome="rate_limited", cools_s=40),
    "429 that says a date": way(error(429, **NOON), outcome="rate_limited", cools_s=30),
    "429 that says nonsense": way(error(429, retry_after="soon"), outcome="rate_limited", cools_s=5),
    "429 for a year": way(error(429, retry_after=YEAR_S), outcome="rate_limited", cools_s=3600),
    "429 without money": way(sized(QUOTA, 429), outcome="quota", cools_s=60),
    "402": way(error(402), outcome="quota", cools_s=60),
    "401": way(error(401), outcome="auth", cools_s=60),
    "403": way(error(403), outcome="auth", cools_s=60),
    "404": way(error(404), outcome="not_found", cools_s=0),
    "408": way(error(408), outcome="timeout"),
    "400": way(error(400), gets="refusal", outcome="bad_request", cools_s=0),
    "413": way(error(413), gets="refusal", outcome="bad_request", cools_s=0),
    # -- no answer
    "307": way(sized(b"", 307, location="http://127.0.0.1:1/elsewhere")),
    "301 to a page": way(sized(PAGE, 301, HTML, location="/login")),
    "304": way(head(304, "")),
    "200 with a page": way(sized(PAGE, 200, HTML)),
    "a page that calls itself a stream": way(sized(PAGE, 200, STREAM)),
    "200 with words": way(sized(b"busy", 200, "text/plain")),
    "200 with an error": way(chunked(TOLD, DONE), sized(OVERLOADED), outcome="overloaded"),
    "an opening, then an error": way(chunked(OPENING, TOLD, DONE), sized(OVERLOADED), outcome="overloaded"),
    "an opening, then a reset": way(
        Play(begun(OPENING), "resets"), Play(begun(BODY[:9], kind=JSON), "resets"), outcome="disconnected"
    ),
    "an opening, then silent": way(
        Play(begun(OPENING), "sticks"),
        Play(begun(BODY[:9], kind=JSON), "sticks"),
        outcome="timeout",
        cools_s=30,
        waits_s=(20,),
    ),
    "an empty body": way(sized(b"", 200, STREAM), outcome="disconnected"),
    "an empty object": way(sized(b"{}")),
    "204": way(head(204, ""), outcome="disconnected"),
    "[DONE] alone": way(chunked(DONE), sized(b"null"), outcome=("disconnected", "protocol")),
    "noise": way(sized(bytes(range(256)) * 4)),
    # -- HTTP that is none, or another one
    "another protocol": way(Play(b"SSH-2.0-OpenSSH_9.2\r\n", "closes")),
    "a head that is too long": way(chunked(EVENTS, x=2 * LONG.decode()), sized(BODY, x=2 * LONG.decode())),
    "too many headers": way(chunked(EVENTS, **MANY), sized(BODY, **MANY)),
    "100 without an end": way(head(100, "") * 1_100),
    "101": way(head(101, "", upgrade="websocket", connection="upgrade"), outcome="server"),
    "103, then the answer": way(
        head(103, "", link="</x>") + chunked(EVENTS),
        head(103, "", link="</x>") + sized(BODY),
        gets="own",
        outcome="ok",
        cools_s=0,
    ),
    "HTTP 1.0": way(
        Play(head(200, STREAM, version="1.0") + EVENTS, "closes"),
        Play(head(version="1.0") + BODY, "closes"),
        gets="own",
        outcome="ok",
        cools_s=0,
    ),
    "two lengths": way(head(200, content_length=5)[:-2] + b"content-length: 7\r\n\r\n" + BODY),
    "a length of more than comes": way(
        Play(head(200, STREAM, content_length=len(EVENTS) + 9) + EVENTS, "closes"),
        Play(head(content_length=len(BODY) + 9) + BODY, "closes"),
        gets="own",
        outcome="ok",
        cools_s=0,
    ),
    "a length of less than comes": way(
        head(200, STREAM, content_length=20) + EVENTS, head(content_length=20) + BODY, outcome="disconnected"
    ),
    "half a chunk": way(Play(begun() + b"400\r\ndata: {", "closes"), Play(HALF, "closes"), outcome="disconnected"),
    "a chunk without a size": way(
        Play(UNFRAMED + EVENTS, "closes"), Play(UNFRAMED + BODY, "closes"), outcome="disconnected"
    ),
    "a broken gzip": way(BROKEN, outcome="disconnected"),
    "a coding that nobody asked for": way(chunked(EVENTS, content_encoding="br"), sized(BODY, content_encoding="br")),
    "another type": way(
        chunked(EVENTS, kind="text/plain"), sized(BODY, 200, "text/plain"), gets="own", outcome="ok", cools_s=0
    ),
    "no type": way(chunked(EVENTS, kind=""), sized(BODY, 200, ""), gets="own", outcome="ok", cools_s=0),
    "each in place of the other": way(sized(BODY), chunked(EVENTS), gets="own", outcome="ok", cools_s=0),
    # -- too much
    "an event without an end": way(
        chunked(b"data: {" + LONG), sized(b'{"id":"' + LONG), outcome=("disconnected", "too_large"), cools_s=(2, 0)
    ),
    "words without an end": way(
        chunked(*SAID, *[event({"content": "x" * 5000})] * 20),
        sized(b'{"id":"' + LONG),
        gets=("torn", "next"),
        outcome="too_large",
        cools_s=0,
    ),
    "a second answer in the stream": way(
        chunked(EVENTS, *SAID, DONE), sized(BODY + BODY), gets="own", outcome="ok", cools_s=0
    ),
    "a second answer behind it": way(
        chunked(EVENTS) + OTHER, sized(BODY) + OTHER_BODY, gets="own", outcome="ok", cools_s=0
    ),
    "a second answer later": way(
        Play(chunked(EVENTS), drips=OTHER), Play(sized(BODY), drips=OTHER_BODY), gets="own", outcome="ok", cools_s=0
    ),
    # -- it breaks off behind words
    "half a chunk behind words": breaks(Play(begun(*SAID) + b"400\r\ndata: {", "closes"), Play(HALF, "closes")),
    "a gzip that breaks off": breaks(chunked(gzipped(*SAID), **GZIPPED), sized(gzip.compress(BODY)[:-40], **GZIPPED)),
    "reset behind words": breaks(Play(begun(*SAID), "resets"), Play(begun(BODY[:50], kind=JSON), "resets")),
    "closed behind words": breaks(
        Play(head(200, STREAM) + b"".join(SAID), "closes"),
        Play(head() + BODY[:50], "closes"),
        outcome=("ok", "disconnected"),
    ),
    "ends behind words": breaks(chunked(*SAID), chunked(BODY[:50], kind=JSON), outcome=("ok", "disconnected")),
    "an error behind words": breaks(chunked(*SAID, TOLD, DONE), sized(OVERLOADED), outcome="overloaded"),
    "silent behind words": breaks(
        Play(begun(*SAID), "sticks"),
        Play(begun(BODY[:50], kind=JSON), "sticks"),
        outcome="timeout",
        waits_s=(20, 20),
        cools_s=30,
    ),
}


# A silence is as long whether or not its beginning was read before: no test depends on who is faster.
TIMES = GatewayDeadlines(first_event_s=20, next_event_s=20, whole_s=20)
BOUNDS = Bounds(response_bytes=40_000)
PRICES = Prices(user=read_prices({"*": {"request": 1}}, named="test", source="test"))
LOOPS = 50  # of the event loop: what was written to a socket of this process has been read


class Client(Gathered):
    def __init__(self) -> None:
        super().__init__()
        self.hears = asyncio.Event()

    async def send(self, data: bytes) -> None:
        await super().send(data)
        self.hears.set()


class Pair:
    """A gateway before two upstreams; every conversation prefers the one that misbehaves."""

    def __init__(self, service: RelayService, *, clock: FakeClock, ill: Misbehaving, well: Misbehaving) -> None:
        self.service, self.clock, self.ill, self.well = service, clock, ill, well
        self.family: FamilyName = "openai_chat"
        self.stream = True
        self._number = 0

    def begin(self) -> "tuple[Client, asyncio.Task[None]]":
        self._number += 1
        call = msgspec.structs.replace(call_of(self.family, "m", stream=self.stream), id=f"tw-{self._number}")
        client = Client()
        return client, asyncio.ensure_future(self.service.answer(call, client))

    async def end(self, client: Client, task: "asyncio.Task[None]") -> Response | Fault:
        await asyncio.wait_for(task, HANG_S)
        answer = Answer(client.status, client.headers, b"".join(client.pieces), RelayEnd(), 0)
        return strictly(answer, client=self.family, stream=self.stream)

    async def asked(self) -> tuple[int, int]:
        """Of each upstream, for one more request, which is answered well."""
        before = self.ill.asked, self.well.asked
        assert_whole(await self.end(*self.begin()))
        return self.ill.asked - before[0], self.well.asked - before[1]


def assert_whole(found: Response | Fault) -> None:
    assert isinstance(found, Response) and found.fault is None and words_of(found) == "".join(WORDS), found


def words_of(found: Response) -> str:
    return "".join([part.text for part in found.message.parts if isinstance(part, Text)])


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, str]:
    (folder / name).mkdir()
    named, key = certified(folder / name, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(named, key)
    return context, named


@asynccontextmanager
async def pair(folder: Path, *, tls: str) -> AsyncIterator[Pair]:
    env, known, at_first = {"KEY": "sk-key-of-all"}, None, None
    if tls in ("none", "unknown"):
        known, env["REQUESTS_CA_BUNDLE"] = certificate(folder, "known")
        at_first = certificate(folder, "unknown")[0] if tls == "unknown" else None
    ill, well = Misbehaving(tls=known), Misbehaving()
    clock = FakeClock()
    ledger = LedgerThread(folder / "journal.db", clock=clock)
    try:
        async with closing(ill, well), AiohttpTransport(env=env) as transport:
            await well.open(tls=None)
            if tls != "refused":
                await ill.open(tls=at_first)
            shares = (("ill", ill, 1000), ("well", well, 0.001))
            upstreams = tuple(
                [
                    UpstreamAddress(url=one.url, family="openai_chat", key_env="KEY", weight=weight, model=name)
                    for name, one, weight in shares
                ]
            )
            accounts = AccountMeans(ledger=ledger, clock=clock, prices=PRICES)
            means = ServiceMeans(transport=transport, clock=clock, env=env, deadlines=DEADLINES, accounts=accounts)
            config = GatewayConfig(routes=(GatewayRoute(upstream=upstreams),), bounds=BOUNDS, deadlines=TIMES)
            yield Pair(RelayService(config, means=means, forward_key=False), clock=clock, ill=ill, well=well)
    finally:
        await asyncio.to_thread(ledger.close)


def billed(folder: Path) -> list[tuple[str, str | None, Decimal | None]]:
    """Every request of the ledger, in the order in which they left."""
    with Journal(folder / "journal.db", clock=FakeClock()) as journal:
        return [(one.model, one.outcome, one.usd) for one in journal.ledger.entries(LedgerSpan())]


CASES = [
    (name, is_stream, family)
    for number, (name, both) in enumerate(WAYS.items())
    for is_stream, case in zip((True, False), both, strict=True)
    for family in (FAMILIES if case.gets in ("torn", "refusal") else (FAMILIES[(number + is_stream) % 4],))
]


@pytest.mark.costly
@pytest.mark.promise("serve:upstreams")
@pytest.mark.parametrize(("name", "is_stream", "family"), CASES)
async def test_an_upstream_that_misbehaves_beside_one_that_is_well(
    name: str, is_stream: bool, family: FamilyName, tmp_path: Path
) -> None:
    """Proves: the answer is whole and nobody else's, or, behind its first word, ends with one error; each upstream is asked as
    often as the ledger says, and only whole answers have a price; it is left alone for its time, then one request looks."""
    case = WAYS[name][not is_stream]
    async with pair(tmp_path, tls=case.tls) as there:
        there.family, there.stream = family, is_stream
        ill, well = there.ill, there.well
        if case.is_known:
            assert await there.asked() == (1, 0)
        before, ill.play = ill.asked, case.play
        ill.came.clear()
        client, task = there.begin()
        await pass_time(case, there, client)
        found = await there.end(client, task)
        if case.gets == "refusal":
            assert isinstance(found, Fault) and found.status in (400, 413)
        elif case.gets == "torn":
            assert isinstance(found, Response) and found.fault is not None
            assert words_of(found).startswith("".join(WORDS))
        else:
            assert_whole(found)
        assert (ill.asked - before, well.asked) == (case.asks, int(case.gets == "next"))
        if case.play.drips and case.gets == "own":
            await ill.drip(case.play.drips)
            for _ in range(LOOPS):
                await asyncio.sleep(0)
        await ill.heal(anew=case.cools_s > 0)
        if case.cools_s:
            await look_again(case, there)
        else:
            assert await there.asked() == (1, 0)
    bills = billed(tmp_path)[int(case.is_known) :]
    own = [("ill", case.outcome, Decimal(1) if case.gets == "own" else None)] * case.asks
    others = [("well", "ok", Decimal(1))] * (case.gets == "next")
    assert bills[: len(own + others)] == own + others
    assert len(bills) == ill.asked + well.asked - case.is_known
    assert {bill[1:] for bill in bills[len(own + others) :]} == {("ok", Decimal(1))}


async def pass_time(case: Case, there: Pair, client: Client) -> None:
    for seconds in case.waits_s[: case.asks]:
        await asyncio.wait_for(there.ill.came.wait(), HANG_S)
        there.ill.came.clear()
        if case.gets == "torn":
            await asyncio.wait_for(client.hears.wait(), HANG_S)
        for _ in range(4):
            if case.play.drips:
                await there.ill.drip(case.play.drips)
            await there.clock.advance(seconds / 4)
    there.ill.go_on.set()


async def look_again(case: Case, there: Pair) -> None:
    """It is well by now. Nobody asks it before its time; then one request does, and no other one waits for that."""
    for _ in range(2):
        assert await there.asked() == (0, 1)
        await there.clock.advance(case.cools_s / 2 - 0.25)
    assert await there.asked() == (0, 1)
    await there.clock.advance(0.5)
    there.ill.held = asyncio.Event()
    there.ill.came.clear()
    looking = there.begin()
    await asyncio.wait_for(there.ill.came.wait(), HANG_S)
    assert await there.asked() == (0, 1)
    there.ill.held.set()
    assert_whole(await there.end(*looking))
    assert await there.asked() == (1, 0)
