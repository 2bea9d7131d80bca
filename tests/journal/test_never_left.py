"""What never left costs nothing and counts nowhere (issue 14, line 4)."""

import asyncio
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from pathlib import Path

import pytest
from aiohttp import web

from endpoints.test_aiohttp_transport import raw, served
from flat_agents import flat_agent
from journal.ledgered import DEADLINES, FAMILIES, tools
from lab.failing import settled
from lab.test_fault_schedules import drawn_script
from turnwise import Agent, Journal, MaxCost, MaxRequests, MaxWallTime, Prices, RunResult, read_prices
from turnwise.base.clock import SystemClock
from turnwise.endpoints.aiohttp_transport import LARGE_BYTES, AiohttpTransport
from turnwise.endpoints.transport import HttpReply, HttpRequest, Transport
from turnwise.errors import CallerError, ProviderFault
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.lab import Lab, builtin_scripts
from turnwise.lab.script import parse_script
from turnwise.rules.retries import NO_RETRY, RetryPolicy
from turnwise.running.watcher_events import ChildSeen, RequestFinished, RequestStarted, WatcherEvent
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.turn.config import Deadlines
from turnwise.turn.events import FinishTurn, RequestFailed
from turnwise.turn.machine import replay
from turnwise.vocab import Fault, FaultKind
from waits import HANG_S

PLANS = {"step": {"step": "0.02"}, "request": {"request": "0.01"}, "tokens": {"input": 2, "output": 8}}
FAST = RetryPolicy(attempts=3, base_s=0.001, cap_s=0.001)
ANSWER = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050},
}


@asynccontextmanager
async def deaf() -> AsyncIterator[str]:
    """An address whose queue of connections is full, so that a further one never comes up."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for one in fillers:
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            for one in fillers:
                one.close()


def agent_of(url: str, *, plan: str = "step", **options: object) -> Agent:
    given: dict[str, object] = {"retry": NO_RETRY, "stream": False, **options}
    rows = read_prices({"*": PLANS[plan]}, named="test", source="test")
    return flat_agent("openai_chat:m", base_url=url, prices=Prices(user=rows), **given)  # pyright: ignore[reportArgumentType]


async def run(agent: Agent) -> RunResult:
    return await asyncio.wait_for(agent.run("Hello."), HANG_S)


def assert_nothing_counts(result: RunResult, journal: Journal | None = None) -> None:
    assert (result.requests, result.requests_by_purpose, list(result.ledger)) == (0, {}, [])
    assert (result.cost_usd, result.cost.requests, result.cost.unknown) == (Decimal(0), 0, 0)
    if journal is not None:
        assert journal.ledger.entries(LedgerSpan()) == []
        assert journal.ledger.totals(LedgerSpan(), by="purpose") == []


@pytest.mark.parametrize("plan", PLANS)
async def test_a_refused_connection_costs_nothing_and_counts_nowhere(plan: str, closed_port: int) -> None:
    """Each attempt was billed: `{step=0.02}` $0.02, by request each attempt. The attempts stay bounded."""
    with Journal(None, clock=SystemClock()) as journal:
        result = await run(agent_of(f"http://127.0.0.1:{closed_port}", plan=plan, retry=FAST, journal=journal))
        assert result.stop_reason == "provider_failed"
        assert_nothing_counts(result, journal)
        (turn,) = journal.find_session(result.session).turns
        failed = [one for one in journal.events(turn.id) if isinstance(one, RequestFailed)]
        assert [(one.number, one.sent) for one in failed] == [(1, False)] * 3
        assert journal.requests_by_purpose(turn.id) == {}


async def test_a_name_that_does_not_resolve_costs_nothing() -> None:
    """The first member of the class beside a refusal."""
    result = await run(agent_of("http://no-such-host.invalid"))
    assert result.fault is not None and result.fault.kind == "unreachable"
    assert_nothing_counts(result)


async def test_a_certificate_that_is_not_accepted_costs_nothing(tmp_path: Path) -> None:
    """TLS fails before a byte of the request; the same for a server without TLS."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)

    async with raw(silent) as url:
        result = await run(agent_of(url.replace("http:", "https:")))
    assert result.fault is not None and result.fault.kind == "unreachable"
    assert_nothing_counts(result)


async def test_a_proxy_that_refuses_costs_nothing() -> None:
    """Its refusal of the way is no answer of the provider's; the request itself was not given to it."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with raw(refuse) as proxy, AiohttpTransport(env={"https_proxy": proxy}) as transport:
        result = await run(agent_of("https://provider.invalid", transport=transport))
    assert result.fault is not None and "proxy" in result.fault.message
    assert_nothing_counts(result)


async def test_a_connect_that_takes_too_long_costs_nothing() -> None:
    """The deadline of the connect comes before anything is written."""
    async with deaf() as url:
        result = await run(agent_of(url, deadlines=Deadlines(connect_s=0.05)))
    assert result.fault is not None and result.fault.kind == "timeout"
    assert_nothing_counts(result)


async def test_a_connect_that_is_cancelled_costs_nothing() -> None:
    """By the user, in the connect: the entry that was written before is taken back, also from the journal."""
    with Journal(None, clock=SystemClock()) as journal:
        async with deaf() as url:
            agent = agent_of(url, journal=journal)
            turn = agent.start("Hello.")
            for _ in range(50):
                await asyncio.sleep(0)
            turn.interrupt()
            result = await asyncio.wait_for(turn, HANG_S)
        assert result.stop_reason == "cancelled"
        assert_nothing_counts(result, journal)


@pytest.mark.parametrize("limits", [MaxWallTime(1e-9), MaxWallTime(1e-9) | MaxCost(Decimal(1))])
async def test_a_turn_whose_time_is_over_before_it_begins_sends_and_counts_nothing(limits: object) -> None:
    """It had `requests=1` and a row with bytes in the ledger, and nothing on the wire."""
    got: list[bytes] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        got.append(await request.read())
        return web.json_response(ANSWER)

    with Journal(None, clock=SystemClock()) as journal:
        async with served(answer) as url:
            result = await run(agent_of(url, limits=limits, journal=journal))
        assert got == []
        assert_nothing_counts(result, journal)


async def test_what_never_left_uses_up_no_limit(closed_port: int) -> None:
    """Two refusals, then an answer: one request, of purpose `step`, and within limits of one request and of its price."""
    seen: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise AssertionError

    class Opens:
        """A transport whose first two connections are refused."""

        def __init__(self, inner: AiohttpTransport, url: str) -> None:
            self._inner = inner
            self._url = url

        def send(self, request: HttpRequest, /) -> object:
            seen.append(0)
            if len(seen) < 3:
                return self._inner.send(_to(request, f"http://127.0.0.1:{closed_port}"))
            return self._inner.send(request)

    async def hi(_: web.Request) -> web.StreamResponse:
        return web.json_response(ANSWER)

    with Journal(None, clock=SystemClock()) as journal:
        async with served(hi) as url, AiohttpTransport(env={}) as inner:
            agent = agent_of(
                url,
                retry=FAST,
                transport=Opens(inner, url),
                limits=MaxRequests(1) | MaxCost(Decimal("0.02")),
                journal=journal,
            )
            result = await run(agent)
        assert (result.text, result.requests, result.requests_by_purpose) == ("hi", 1, {"step": 1})
        (entry,) = result.ledger
        assert (entry.purpose, entry.retry_of, entry.number, entry.usd) == ("step", None, 1, Decimal("0.02"))
        assert journal.ledger.entries(LedgerSpan()) == [entry]


def _to(request: HttpRequest, base: str) -> HttpRequest:
    path = "/" + request.url.split("/", 3)[3]
    return HttpRequest(url=base + path, headers=request.headers, body=request.body, connect_s=request.connect_s)


@pytest.mark.parametrize("plan", PLANS)
async def test_a_request_that_nothing_came_back_for_counts_as_sent(plan: str) -> None:
    """Bytes have left, so nobody knows what they cost: the request stays in every count, and its price is unknown."""

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    async with raw(once) as url:
        result = await run(agent_of(url, plan=plan))
    assert (result.requests, result.cost.unknown, result.cost_usd) == (1, 1, None)


@pytest.mark.parametrize("size", [2, LARGE_BYTES + 1])
async def test_the_transport_knows_whether_a_byte_may_have_left(size: int, closed_port: int) -> None:
    """Also for the bodies that are written piece by piece."""

    async def hi(_: web.Request) -> web.StreamResponse:
        return web.json_response(ANSWER)

    headers = (("authorization", "Bearer k"),)
    async with served(hi) as url, AiohttpTransport(env={}) as transport:
        refused = transport.send(HttpRequest(url=f"http://127.0.0.1:{closed_port}/", headers=headers, body=b"x" * size))
        with pytest.raises(ProviderFault):
            async with refused:
                pass
        assert not refused.has_left
        sent = transport.send(HttpRequest(url=url, headers=headers, body=b"x" * size))
        async with sent:
            assert sent.has_left


class Shaky:
    """A lab's transport, some of whose connections are refused, or hang until they are given up. What reached the lab left."""

    def __init__(self, inner: Transport, *, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self.refused = 0

    def send(self, request: HttpRequest, /) -> AbstractAsyncContextManager[HttpReply]:
        match self._chance.choice(("refuse", "hang", "pass", "pass", "pass")):
            case "pass":
                return self._inner.send(request)
            case kind:
                self.refused += 1
                return NeverLeaves(hangs=kind == "hang")


class NeverLeaves:
    has_left = False

    def __init__(self, *, hangs: bool, raises: Exception | None = None) -> None:
        self._hangs = hangs
        self._raises = raises

    async def __aenter__(self) -> HttpReply:
        if self._raises is not None:
            raise self._raises
        if self._hangs:
            await asyncio.Event().wait()
        raise ProviderFault(Fault(kind=FaultKind.UNREACHABLE, message="no connection"))

    async def __aexit__(self, *_: object) -> None:
        raise AssertionError("it was never entered")


@pytest.mark.costly
@pytest.mark.promise("bill:wire")
async def test_ledger_is_what_the_lab_received_beside_refused_and_hanging_connections() -> None:
    """Property: seeded schedules of faults, limits and connections that never come up; journal, ledger, counts and money."""
    refused = 0
    for seed in range(120):
        chance = random.Random(seed)
        script = drawn_script(chance, name="script")
        most = chance.randint(1, 6)
        limits = chance.choice((None, MaxRequests(most), MaxWallTime(chance.randint(1, 90))))
        lab, clock = Lab([script]), FakeClock(now=1_700_000_000)
        shaky = Shaky(lab.transport(), chance=chance)
        with Journal(None, clock=clock) as journal:
            agent = flat_agent(
                f"{chance.choice(FAMILIES)}:script",
                base_url="http://lab.invalid",
                transport=shaky,
                clock=clock,
                tools=tools(["note"]),
                deadlines=DEADLINES,
                stream=chance.random() < 0.7,
                limits=limits,
                retry=RetryPolicy(attempts=chance.randint(1, 5)),
                prices=Prices(user=read_prices({"*": PLANS["request"]}, named="test", source="test")),
                journal=journal,
            )
            result = await settled(agent.run("Please."), clock=clock)
            sent = [(entry.number, entry.sent_bytes) for entry in result.ledger]
            assert sent == [(number, len(one.body)) for number, one in enumerate(lab.requests, start=1)], seed
            assert result.requests == lab.count() == sum(result.requests_by_purpose.values()), seed
            assert Counter([entry.purpose for entry in result.ledger]) == result.requests_by_purpose, seed
            assert all(entry.ended is not None for entry in result.ledger), seed
            assert journal.ledger.entries(LedgerSpan()) == list(result.ledger), seed
            (turn,) = journal.find_session(result.session).turns
            assert journal.requests_by_purpose(turn.id) == result.requests_by_purpose, seed
            last = replay(journal.events(turn.id))[-1]
            assert isinstance(last, FinishTurn)
            assert (last.result.requests, last.result.requests_by_purpose) == (
                result.requests,
                result.requests_by_purpose,
            )
            assert not isinstance(limits, MaxRequests) or result.requests <= limits.requests, seed
        refused += shaky.refused
    assert refused > 100


HANDS_OUT = parse_script(
    """
title = "hands out a task"
[[steps]]
calls = [{ name = "task", arguments = { agent = "one", prompt = "work" } }]
[[steps]]
text = "Done."
""",
    name="hands-out",
)


class NoWay:
    """A transport whose connections never come up: they hang, or something in it raises what is no fault of a provider."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def send(self, request: HttpRequest, /) -> NeverLeaves:
        return NeverLeaves(hangs=True, raises=RuntimeError("x") if self._kind == "raises" else None)


@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize("kind", ["raises", "interrupted", "overdue"])
async def test_a_sub_agent_whose_connect_was_cut_off_has_made_no_request(kind: str) -> None:
    """Proves: its report, the ledger, the lab and whoever watches count the same, also where the sub-agent has no result of its
    own: what was told as started counted there as sent."""
    lab, clock, seen = Lab([HANDS_OUT]), FakeClock(now=1_700_000_000), list[WatcherEvent]()
    child = flat_agent(
        "openai_chat:plain-answer",
        base_url="http://lab.invalid",
        transport=NoWay(kind),
        clock=clock,
        deadlines=DEADLINES,
        retry=NO_RETRY,
    )
    root = flat_agent(
        "openai_chat:hands-out",
        base_url="http://lab.invalid",
        transport=lab.transport(),
        clock=clock,
        agents={"one": child},
        deadlines=DEADLINES,
    )
    run = root.start("Go.", watch=seen.append)
    if kind == "interrupted":
        clock.call_later(5, run.interrupt)
    result = await settled(run, clock=clock)
    assert [one.requests for one in result.children] == [0]
    assert len(result.ledger) == lab.count() == result.requests
    below = [one.seen for one in seen if isinstance(one, ChildSeen)]
    counted = sum(isinstance(one, RequestStarted) for one in below)
    assert counted == sum(isinstance(one, RequestFinished) and not one.sent for one in below) == 1


class Readied(ScriptedModel):
    """Tells what the journal had of the turn when the transport was made ready."""

    def __init__(self, journal: Journal) -> None:
        super().__init__([call("nothing"), "Done."])
        self._journal = journal
        self.entered: list[int] = []

    def prepare(self, request: HttpRequest, /) -> None:
        assert request.body
        (row,) = self._journal.sessions(limit=2)
        (turn,) = self._journal.find_session(row.id).turns
        self.entered.append(len(self._journal.requests_by_purpose(turn.id)))


async def test_the_transport_is_ready_before_a_request_is_written_down(tmp_path: Path) -> None:
    """Proves: a death while modules are loaded and the session is opened leaves no request that looks lost; once a turn."""
    with Journal(tmp_path / "journal.db", clock=SystemClock()) as journal:
        model = Readied(journal)
        result = await flat_agent("openai_chat:m", base_url="http://model/v1", transport=model, journal=journal).run(
            "Go."
        )
    assert result.requests == 2 and model.entered == [0]


async def test_what_takes_its_time_is_done_when_a_transport_is_ready() -> None:
    """Proves: certificates that cannot be read are told by `prepare`, and behind it a request needs its connection only."""
    async with (
        Lab(builtin_scripts().values()) as lab,
        AiohttpTransport(env={"CURL_CA_BUNDLE": "/nowhere"}) as transport,
    ):
        with pytest.raises(CallerError, match="no readable CA bundle"):
            transport.prepare(HttpRequest(method="GET", url="https://localhost/", headers=(), body=b"", connect_s=1.0))
        request = HttpRequest(method="GET", url=f"{lab.url}/v1/models", headers=(), body=b"", connect_s=5.0)
        transport.prepare(request)
        async with transport.send(request) as reply:
            assert reply.status == 200
