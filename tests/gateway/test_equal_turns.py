"""A client that has waited too long asks the same once more: it gets the answer that is under way, and it is billed once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gateway.budgeted import PRICES, Budgeted, add_key, limits
from gateway.relayed import Gathered
from gateway.serving import Gateway
from gateway.test_service import chat, lab_at
from lab.failing import DEADLINES
from turnwise import Journal
from turnwise.gateway.accounts import Account, AccountMeans
from turnwise.gateway.app import DoorRules, GatewayApp
from turnwise.gateway.client_bounds import KeyRing
from turnwise.gateway.config import GatewayConfig, GatewayDeadlines, GatewayRoute
from turnwise.gateway.doors import ClientCall, ClientGone, same_turn_of
from turnwise.gateway.equal_turns import ANSWER_BYTES, MOST_TURNS, MOST_UNHEARD, PATIENCE_S, EqualTurns
from turnwise.gateway.serve import BoundSocket, serve
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.gateway.shared_clients import SharedClients
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.journal.request_budgets import held_rows
from turnwise.testing import FakeClock
from turnwise.testing.scripted_model import Piece, Reply, ScriptedTransport, Stall
from waits import HANG_S

ROUTE = GatewayRoute(upstream=lab_at(model="plain-answer"), retry=0)
SESSION = ("x-claude-code-session-id", "5f2c")
WORDS = ("The ", "first ", "answer.")


def event(**choice: object) -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13} if choice.get("finish_reason") else None
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode({**chunk, **({"usage": usage} if usage else {})}) + b"\n\n"


def word(text: str) -> bytes:
    return event(index=0, delta={"content": text}, finish_reason=None)


END = event(index=0, delta={}, finish_reason="stop") + b"data: [DONE]\n\n"


def stream(*pieces: Piece, before: Stall | None = None) -> Reply:
    return Reply(pieces=(*pieces, END), before=before)


def call_for(*headers: tuple[str, str], id: str = "tw-1", body: dict[str, Any] | None = None) -> ClientCall:
    same = same_turn_of([*headers, ("authorization", "Bearer tw-key")], ())
    return replace(chat("any", **(body or {})), id=id, same_turn=same)


class Client(Gathered):
    """A client that leaves, or reads only once it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.reads = asyncio.Event(), asyncio.Event()
        self.reads.set()

    async def send(self, data: bytes) -> None:
        await self.reads.wait()
        await super().send(data)

    @property
    def direct(self) -> Any:
        return super().direct if self.reads.is_set() else None

    async def gone(self) -> None:
        await self.left.wait()

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


class Asking:
    """One gateway before scripted replies."""

    def __init__(self, *replies: Reply, route: GatewayRoute = ROUTE, ledger: LedgerThread | None = None) -> None:
        self.transport, self.clock = ScriptedTransport(replies), FakeClock()
        self.accounts = AccountMeans(ledger=ledger, clock=self.clock, prices=PRICES)
        means = ServiceMeans(
            transport=self.transport,
            clock=self.clock,
            env={"LAB_KEY": "k"},
            deadlines=DEADLINES,
            accounts=self.accounts,
        )
        self.service = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)

    async def ask(self, call: ClientCall, client: Client) -> "asyncio.Task[None]":
        """It is under way: it has asked the upstream, or joined."""
        task = asyncio.create_task(self.service.answer(call, client))
        await self.clock.advance(0)
        return task

    async def leave(self, client: Client) -> None:
        client.left.set()
        await self.clock.advance(0)

    def counted(self, name: str) -> str:
        lines = self.accounts.counts.text().decode().splitlines()
        return next((line.split()[-1] for line in lines if line.startswith(name)), "0")


async def is_left(task: "asyncio.Task[None]") -> bool:
    """Whether it ended because the client was gone."""
    with contextlib.suppress(ClientGone):
        await asyncio.wait_for(task, HANG_S)
        return False
    return True


def entries_in(path: Path) -> list[LedgerEntry]:
    with Journal(path, clock=FakeClock()) as journal:
        return journal.ledger.entries(LedgerSpan())


@pytest.mark.promise("bill:wire")
async def test_a_client_that_comes_again_gets_the_whole_answer_and_is_billed_once(tmp_path: Path) -> None:
    """Its first request has waited in silence: five seconds after it left, the upstream's request is still under way. The
    ledger has one request with its price, and one that has joined and cost nothing."""
    said = asyncio.Event()
    ledger = LedgerThread(tmp_path / "journal.db", clock=FakeClock())
    there = Asking(stream(*map(word, WORDS), before=Stall(said)), ledger=ledger)
    first, second = Client(), Client()
    asked = await there.ask(call_for(SESSION), first)
    await until(lambda: len(there.transport.requests) == 1)
    await there.leave(first)
    await there.clock.advance(5)
    again = await there.ask(call_for(SESSION, id="tw-2"), second)
    said.set()
    await asyncio.wait_for(again, HANG_S)
    assert await is_left(asked)
    assert (len(there.transport.requests), there.transport.open) == (1, 0)
    assert second.headers["turnwise-joined"] == "tw-1"
    assert [text in second.body.decode() for text in (*WORDS, "[DONE]")] == [True] * 4
    assert there.counted("turnwise_gateway_joined_requests_total") == "1"
    assert there.counted('turnwise_gateway_requests_total{family="openai_chat",kind="generate",status="200"') == "1"
    await asyncio.to_thread(ledger.close)
    found = {one.turn: (one.outcome, one.usd, one.price_note) for one in entries_in(tmp_path / "journal.db")}
    assert found == {"tw-1": ("ok", Decimal("0.00004"), "test"), "tw-2": ("joined", Decimal(0), "joined tw-1")}
    with Journal(tmp_path / "journal.db", clock=FakeClock()) as journal:
        (total,) = journal.ledger.totals(LedgerSpan(), by="model")
    assert (total.cost.requests, total.joined, total.cost.unknown) == (1, 1, 0)


async def until(holds: Callable[[], bool]) -> None:
    """Threads answer at their own time."""
    async with asyncio.timeout(HANG_S):
        while not holds():  # noqa: ASYNC110 (nobody tells what happens in a thread)
            await asyncio.sleep(0.001)


async def test_clients_that_both_listen_get_every_event() -> None:
    """Proves: a late one begins with the first event, and nothing goes upstream a second time."""
    half, rest = asyncio.Event(), asyncio.Event()
    there = Asking(stream(word("The "), Stall(half), word("first "), word("words "), Stall(rest), word("answer.")))
    first, second = Client(), Client()
    tasks = [await there.ask(call_for(SESSION), first)]
    half.set()
    await there.clock.advance(0)
    assert b"first" in first.body
    tasks.append(await there.ask(call_for(SESSION, id="tw-2"), second))
    assert second.body == first.body
    rest.set()
    await asyncio.wait_for(asyncio.gather(*tasks), HANG_S)
    assert first.body == second.body and first.body.endswith(b"[DONE]\n\n")
    assert len(there.transport.requests) == 1


async def test_a_stream_goes_on_for_the_client_that_joined() -> None:
    """The first one leaves in the middle of it."""
    rest = asyncio.Event()
    there = Asking(stream(word("The "), Stall(rest), word("answer.")))
    first, second = Client(), Client()
    asked = await there.ask(call_for(SESSION), first)
    joined = await there.ask(call_for(SESSION, id="tw-2"), second)
    await there.leave(first)
    rest.set()
    await asyncio.wait_for(joined, HANG_S)
    assert await is_left(asked) and b"answer." not in first.body
    assert second.body.startswith(first.body) and second.body.endswith(b"[DONE]\n\n")


async def test_an_answer_that_is_no_stream_is_kept_until_its_client_comes_again() -> None:
    """Also if it has come whole while nobody listened."""
    body = b'{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant"'
    body += b',"content":"The answer."},"finish_reason":"stop"}]}'
    said = asyncio.Event()
    reply = Reply(pieces=(body,), headers={"content-type": "application/json"}, before=Stall(said))
    there = Asking(reply)
    first, second = Client(), Client()
    asked = await there.ask(call_for(SESSION, body={"stream": False}), first)
    await there.leave(first)
    said.set()
    await there.clock.advance(5)
    assert there.transport.open == 0 and not asked.done()
    await asyncio.wait_for(await there.ask(call_for(SESSION, body={"stream": False}), second), HANG_S)
    assert await is_left(asked) and len(there.transport.requests) == 1
    assert b"The answer." in second.body and int(second.headers["content-length"]) == len(second.body)


async def test_a_stream_that_has_begun_ends_when_its_client_leaves() -> None:
    """As without equal turns: nothing goes on for nobody, and who comes again is a new request."""
    there = Asking(stream(word("The "), Stall()), stream(word("Another.")))
    first, second = Client(), Client()
    asked = await there.ask(call_for(SESSION), first)
    await there.leave(first)
    assert await is_left(asked) and there.transport.open == 0
    await asyncio.wait_for(await there.ask(call_for(SESSION), second), HANG_S)
    assert b"Another." in second.body and "turnwise-joined" not in second.headers


@pytest.mark.parametrize(("rejoin_s", "kept"), [(None, 10.0), (3.0, 3.0), (0.0, 0.0)])
async def test_a_silent_upstream_is_kept_for_as_long_as_the_route_says(rejoin_s: float | None, kept: float) -> None:
    """Ten seconds if it says nothing; with 0 nothing is kept, and nobody joins."""
    route = replace(ROUTE, deadlines=GatewayDeadlines(rejoin_s=rejoin_s))
    there = Asking(*[stream(before=Stall())] * 2, route=route)
    first, second = Client(), Client()
    asked = await there.ask(call_for(SESSION), first)
    await there.leave(first)
    await there.clock.advance(kept * 0.9)
    assert there.transport.open == (1 if kept else 0)
    await there.clock.advance(kept * 0.2)
    assert await is_left(asked) and there.transport.open == 0
    asked = await there.ask(call_for(SESSION), second)
    third = await there.ask(call_for(SESSION), Client())
    assert len(there.transport.requests) == (2 if kept else 3) if kept else True
    for task in (asked, third):
        task.cancel()
    await asyncio.gather(asked, third, return_exceptions=True)


async def test_a_gateway_that_ends_waits_for_no_client_that_has_left() -> None:
    """Neither for what it has kept, nor for what a client leaves from then on; those who listen get their answer."""
    said = asyncio.Event()
    there = Asking(*[stream(before=Stall())] * 2, stream(word("The answer."), before=Stall(said)))
    clients = [Client(), Client(), Client()]
    tasks = [await there.ask(call_for((SESSION[0], str(at))), one) for at, one in enumerate(clients)]
    await there.leave(clients[0])
    assert there.transport.open == 3
    there.service.stop_keeping()
    await there.leave(clients[1])
    assert there.transport.open == 1 and [await is_left(task) for task in tasks[:2]] == [True, True]
    said.set()
    await asyncio.wait_for(tasks[2], HANG_S)
    assert b"The answer." in clients[2].body


OTHERS: dict[str, ClientCall] = {
    "no session": call_for(),
    "another session": call_for((SESSION[0], "6a1b")),
    "another agent of the session": call_for(SESSION, ("x-claude-code-agent-id", "a1")),
    "a key of its own": call_for(SESSION, ("idempotency-key", "k1")),
    "another body": call_for(SESSION, body={"temperature": 1}),
    "another client's key": replace(call_for(), same_turn=same_turn_of([SESSION, ("x-api-key", "tw-other")], ())),
    "another header": replace(call_for(SESSION), headers=(("openai-beta", "x"),)),
    "another query": replace(call_for(SESSION), query=(("beta", "true"),)),
}


@pytest.mark.parametrize("other", OTHERS)
async def test_what_differs_is_never_joined(other: str) -> None:
    """Two requests go upstream, while the first one still waits."""
    there = Asking(stream(before=Stall()), stream(word("Another.")))
    first = await there.ask(call_for(SESSION), Client())
    client = Client()
    await asyncio.wait_for(await there.ask(OTHERS[other], client), HANG_S)
    assert b"Another." in client.body and len(there.transport.requests) == 2
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)


async def test_equal_requests_of_an_evaluation_get_different_answers() -> None:
    """Without a session and an idempotency key each is a request of its own; with an equal idempotency key they are one."""
    there = Asking(*[stream(word(text)) for text in ("One.", "Two.", "Three.")])
    clients = [Client() for _ in range(4)]
    calls = [call_for(), call_for(), *[call_for(("idempotency-key", "k1")) for _ in range(2)]]
    await asyncio.gather(*[there.service.answer(call, client) for call, client in zip(calls, clients, strict=True)])
    bodies = [client.body for client in clients]
    assert len(there.transport.requests) == 3 and len(set(bodies)) == 3 and bodies[2] == bodies[3]


async def test_a_slow_client_holds_the_other_up_for_five_seconds_at_most() -> None:
    """Then its own answer breaks off, and the other gets all."""
    wait = asyncio.Event()
    long = [word("x" * 40_000) for _ in range(20)]
    there = Asking(stream(word("The "), Stall(wait), *long))
    slow, quick = Client(), Client()
    first = await there.ask(call_for(SESSION), slow)
    slow.reads.clear()
    second = await there.ask(call_for(SESSION), quick)
    wait.set()
    await there.clock.advance(PATIENCE_S / 2)
    assert not second.done() and not first.done()
    await there.clock.advance(PATIENCE_S)
    await asyncio.wait_for(second, HANG_S)
    assert quick.body.endswith(b"[DONE]\n\n") and len(quick.body) > 800_000
    assert await is_left(first) and b"[DONE]" not in slow.body


async def test_a_client_alone_may_read_as_slowly_as_it_likes() -> None:
    """It holds back the upstream, as without equal turns, and gets all of it."""
    there = Asking(stream(*[word("x" * 40_000) for _ in range(40)]))
    client = Client()
    client.reads.clear()
    task = await there.ask(call_for(SESSION), client)
    await there.clock.advance(5)
    client.reads.set()
    await asyncio.wait_for(task, HANG_S)
    assert client.body.endswith(b"[DONE]\n\n") and client.body.count(b"x" * 40_000) == 40


async def test_an_answer_past_its_bound_is_joined_by_nobody() -> None:
    """Its beginning is forgotten: who comes then is a new request."""
    hold = asyncio.Event()
    large = [word("x" * 50_000) for _ in range(ANSWER_BYTES // 50_000 + 1)]
    there = Asking(stream(*large, Stall(hold)), stream(word("Another.")))
    first, second = Client(), Client()
    task = await there.ask(call_for(SESSION), first)
    await until(lambda: first.body.count(b"data:") >= len(large))
    await asyncio.wait_for(await there.ask(call_for(SESSION), second), HANG_S)
    assert b"Another." in second.body
    hold.set()
    await asyncio.wait_for(task, HANG_S)
    assert first.body.endswith(b"[DONE]\n\n")


async def test_the_answers_that_may_be_joined_are_bounded_in_number() -> None:
    """Further ones are served as ever, and those that nobody listens to are few."""
    clock = FakeClock()
    turns = EqualTurns(clock)
    account = Account(chat("m"), means=AccountMeans(clock=clock))
    opened = [
        turns.open(str(number).encode(), route=ROUTE, account=account, rejoin_s=10) for number in range(MOST_TURNS + 1)
    ]
    assert [one.is_open for one in opened[-2:]] == [True, False]
    assert turns.has_many_unheard and MOST_UNHEARD < MOST_TURNS


async def test_an_error_that_nobody_heard_is_not_kept() -> None:
    """Who comes again asks the upstream anew, and may have more luck."""
    fails = asyncio.Event()
    refusal = Reply(status=400, pieces=(b'{"error":{"message":"no"}}',), headers={}, before=Stall(fails))
    there = Asking(refusal, stream(word("Another.")))
    first, second = Client(), Client()
    asked = await there.ask(call_for(SESSION), first)
    await there.leave(first)
    fails.set()
    assert await is_left(asked)
    await asyncio.wait_for(await there.ask(call_for(SESSION), second), HANG_S)
    assert b"Another." in second.body


async def test_a_refusal_reaches_all_who_wait_for_it() -> None:
    """The upstream's error is the answer to both."""
    fails = asyncio.Event()
    refusal = Reply(status=400, pieces=(b'{"error":{"message":"no"}}',), headers={}, before=Stall(fails))
    there = Asking(refusal)
    clients = [Client(), Client()]
    tasks = [await there.ask(call_for(SESSION), client) for client in clients]
    fails.set()
    await asyncio.wait_for(asyncio.gather(*tasks), HANG_S)
    assert [client.status for client in clients] == [400, 400] and clients[0].body == clients[1].body


async def test_an_answer_is_joined_across_a_reload_of_equal_routes() -> None:
    """With the route changed it is another request."""
    said = asyncio.Event()
    there = Asking(stream(word("The answer."), before=Stall(said)), stream(word("Another.")))
    first = await there.ask(call_for(SESSION), Client())
    there.service = there.service.renewed(GatewayConfig(routes=(replace(ROUTE, aliases={"a": "b"}),)))
    changed = Client()
    await asyncio.wait_for(await there.ask(call_for(SESSION), changed), HANG_S)
    there.service = there.service.renewed(GatewayConfig(routes=(ROUTE,)))
    same = Client()
    second = await there.ask(call_for(SESSION), same)
    said.set()
    await asyncio.wait_for(asyncio.gather(first, second), HANG_S)
    assert b"Another." in changed.body and b"The answer." in same.body
    assert len(there.transport.requests) == 2


@pytest.mark.promise("serve:budget")
async def test_who_joins_reserves_nothing(tmp_path: Path) -> None:
    """A budget of one request a day has room for both."""
    path, said = tmp_path / "journal.db", asyncio.Event()
    key = add_key(path, limits(requests_day=1))
    shared, ledger = SharedClients(Journal(path), now=FakeClock().now), LedgerThread(path, clock=FakeClock())
    there = Asking(stream(word("The answer."), before=Stall(said)), ledger=ledger)
    client = Budgeted(there.service, shared, lab=None).client(key)  # pyright: ignore[reportArgumentType]
    clients, tasks = [Client(), Client()], list[asyncio.Task[None]]()
    for number, one in enumerate(clients):
        call = replace(call_for(SESSION, id=f"tw-{number}"), client="laptop", limits=client)
        tasks.append(await there.ask(call, one))
        await until(lambda: len(there.transport.requests) == 1)
    said.set()
    await asyncio.wait_for(asyncio.gather(*tasks), HANG_S)
    assert [one.status for one in clients] == [200, 200]
    await asyncio.to_thread(ledger.close)
    (row,) = held_rows(shared.book.store)
    assert (row.state.used[0], row.state.parts) == (1, {})
    await asyncio.to_thread(shared.close)


async def test_a_request_that_joins_counts_as_one_of_this_minute(tmp_path: Path) -> None:
    """Proves: a client that asks the same all the time is stopped like any other, and its tokens and dollars stay its own."""
    path = tmp_path / "journal.db"
    key = add_key(path, limits(requests_minute=2, tokens_minute=10**9, requests_day=1))
    shared, ledger, said = (
        SharedClients(Journal(path), now=lambda: 0.0),
        LedgerThread(path, clock=FakeClock()),
        asyncio.Event(),
    )
    there = Asking(stream(*map(word, WORDS), before=Stall(said)), ledger=ledger)
    client = Budgeted(there.service, shared, lab=None).client(key)  # pyright: ignore[reportArgumentType]
    clients, calls = [Client(), Client(), Client()], [call_for(SESSION, id=f"tw-{number}") for number in (1, 2, 3)]
    asked = [asyncio.create_task(there.service.answer(replace(calls[0], limits=client), clients[0]))]
    await until(lambda: len(there.transport.requests) == 1)
    asked += [asyncio.create_task(there.service.answer(replace(calls[1], limits=client), clients[1]))]
    await until(lambda: there.counted("turnwise_gateway_joined_requests_total") == "1")
    await asyncio.wait_for(there.service.answer(replace(calls[2], limits=client), clients[2]), HANG_S)
    said.set()
    await asyncio.wait_for(asyncio.gather(*asked), HANG_S)
    await asyncio.to_thread(ledger.close)
    assert [one.status for one in clients] == [200, 200, 429]
    assert b"a minute" in clients[2].body
    used = {row.name.split("/")[3]: row.state.used[:2] for row in held_rows(shared.book.store)}
    assert used == {"minute": (2, 13), "day": (1, 13)}
    await asyncio.to_thread(shared.close)


@contextlib.asynccontextmanager
async def served(replies: Sequence[Reply]) -> AsyncIterator[tuple[Gateway, ScriptedTransport]]:
    """The whole gateway on loopback, its upstream a script."""
    there, listening, ready = Asking(*replies), BoundSocket("127.0.0.1", 0), asyncio.Event()
    app = GatewayApp(there.service, rules=DoorRules(), keys=KeyRing(Path("/nonexistent/keys.json")))
    serving = asyncio.create_task(serve(app, listening, bounds=DoorRules().bounds, grace_s=HANG_S, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), HANG_S)
        yield Gateway(listening, there.service), there.transport  # pyright: ignore[reportArgumentType]
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


async def test_a_connection_that_was_closed_is_joined_over_a_socket() -> None:
    """With real connections: the first client closes its own, the second one has the same headers, one without a session asks
    for itself."""
    said = asyncio.Event()
    replies = [stream(*map(word, WORDS), before=Stall(said)), stream(word("Another."))]
    body = msgspec.json.encode({"model": "m", "stream": True, "messages": [{"role": "user", "content": "Look."}]})
    async with served(replies) as (gateway, transport):
        request = gateway.post(body, x_claude_code_session_id="5f2c")
        _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request)
        await until(lambda: len(transport.requests) == 1)
        writer.close()
        await writer.wait_closed()
        assert b"Another." in await gateway.said(gateway.post(body))
        again = asyncio.create_task(gateway.said(request))
        assert transport.open == 1
        said.set()
        answer = await asyncio.wait_for(again, HANG_S)
    assert b"turnwise-joined: tw-" in answer and all(text.encode() in answer for text in WORDS)
    assert len(transport.requests) == 2
