"""Gateways under load and faults: many streams, bursts on a full budget, a killed one, a frozen one, a database that restarts.

Usage: python scripts/gateway_load.py [--database sqlite|postgres] [--gateways N] [--workers N] [--streams N] [--pieces N]
           [--burst N] [--fits N] [--kill] [--freeze S] [--restart] [--scenarios N] [--seed N] [--json]

The upstream is in this process and keeps a bill of its own: which client's request came to it, and the tokens that it generated.
With --workers the gateways are one, with so many processes. In each scenario drawn from the seed, requests meet errors, cuts,
lost connections and limits, so they are asked again, continued, or go to another upstream. At the end: no more requests of the
full budget came to the upstream than fit into it, nothing is reserved any more, and the ledger has the upstream's bill, request
by request; no stream breaks off but those that the killed or frozen process has, which are counted before. A request of a
process that was killed has a row without an end, and its budget counts it at its most.

Exit codes: 0 all of it holds, 1 something does not, 2 it could not be tried.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

PIECE_S = 0.2
PROMPT_TOKENS = 7
START_S, END_S = 120.0, 120.0
SETTLED_S = 30.0  # for what the gateways still have to write
NONCE = re.compile(rb"nonce-([a-z]+-[0-9]+)")
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FAULTS = ("500", "429", "drop", "cut", "length", "silent")
# The deadlines are longer than this process is busy with others: what a gateway has not read when it gives up, it cannot bill.
CONFIG = """
port = 0
[bounds]
streams = 5000
connections = 5000
[deadlines]
first_event_s = 60
next_event_s = 600
[unreachable_store]
goes_on_s = 0
[[route]]
upstream = {{ url = "{one}/v1", model = "m" }}
fallbacks = [{{ url = "{two}/v1", model = "m" }}]
retry = 1
"""

# --- the upstream, and its bill


def event(delta: object, *, finish: str | None = None, tokens: int) -> bytes:
    """As servers send it that tell the usage so far in every chunk."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, "total_tokens": PROMPT_TOKENS + tokens}
    chunk = {
        "id": "c1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }
    return chunked(b"data: " + json.dumps(chunk).encode() + b"\n\n")


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Bill:
    """What the upstream has had of each client's request: how often, and how many tokens it has told of them."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        # What the next requests meet; then they are answered.
        self.plans: defaultdict[str, list[str]] = defaultdict(list)
        self._came = asyncio.Condition()

    async def until(self, requests: int) -> None:
        """So many have come."""
        async with asyncio.timeout(START_S), self._came:
            await self._came.wait_for(lambda: self.requests.total() >= requests)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                found = LENGTH.search(head)
                body = await reader.readexactly(0 if found is None else int(found[1]))
                if not await self._answer(body, reader, writer):
                    break
        writer.transport.abort()

    async def _answer(self, body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection stands."""
        found = NONCE.search(body)
        assert found is not None, body
        nonce = found[1].decode()
        self.requests[nonce] += 1
        async with self._came:
            self._came.notify_all()
        plan = self.plans[nonce].pop(0) if self.plans[nonce] else "whole"
        what, _, pieces = plan.partition(" ")
        match what:
            case "500" | "429":
                said = b'{"error":{"message":"not now","type":"server_error","code":null}}'
                writer.write(
                    b"HTTP/1.1 %b No\r\ncontent-type: application/json\r\nretry-after: 0\r\ncontent-length: %d\r\n\r\n%b"
                    % (what.encode(), len(said), said)
                )
                return True
            case "drop":
                return False
            case "silent":
                await reader.read()  # until the gateway leaves
                return False
            case _:
                return await self._generate(what, nonce, body, writer, pieces=int(pieces or 3))

    async def _generate(self, what: str, nonce: str, body: bytes, writer: asyncio.StreamWriter, *, pieces: int) -> bool:
        self.tokens[nonce] += PROMPT_TOKENS
        if b'"stream":true' not in body.replace(b" ", b""):
            self.tokens[nonce] += pieces
            usage = {
                "prompt_tokens": PROMPT_TOKENS,
                "completion_tokens": pieces,
                "total_tokens": PROMPT_TOKENS + pieces,
            }
            choice = {"index": 0, "message": {"role": "assistant", "content": "A word."}, "finish_reason": "stop"}
            said = json.dumps(
                {
                    "id": "c1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                }
            )
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(said), said.encode())
            )
            return True
        writer.write(HEAD)
        for number in range(1, pieces + 1):
            writer.write(event({"role": "assistant", "content": f"word {number} "}, tokens=number))
            self.tokens[nonce] += 1
            if what == "stream":
                await writer.drain()
                await asyncio.sleep(PIECE_S)
        if what == "cut":
            await writer.drain()
            return False
        finish = "length" if what == "length" else "stop"
        writer.write(event({}, finish=finish, tokens=pieces) + chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        return True


# --- gateways, and their clients


class Served(NamedTuple):
    process: "subprocess.Popen[bytes]"
    port: int

    def serving(self, workers: int) -> list[int]:
        """The processes that serve: those of a parent with so many workers, or it alone."""
        own = self.process.pid
        if not workers:
            return [own]
        return [int(pid) for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split()]

    def clients_of(self, pid: int) -> int:
        """How many clients are connected to the process."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "01" and row[1].endswith(f":{self.port:04X}")}
        found = 0
        for one in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found += str(one.readlink()) in inodes
        return found

    async def until_all_serve(self, workers: int) -> None:
        """The first worker serves before the others have begun: until each has a connection."""
        tried: list[
            tuple[asyncio.StreamReader, asyncio.StreamWriter]
        ] = []  # a reader that nobody has ends its connection
        async with asyncio.timeout(START_S):
            while len(pids := self.serving(workers)) < workers or not all(map(self.clients_of, pids)):
                tried.append(await asyncio.open_connection("127.0.0.1", self.port))
                await asyncio.sleep(0.05)
        for _, writer in tried:
            writer.transport.abort()


@contextlib.contextmanager
def served(folder: Path, *words: str) -> Iterator[Served]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment(folder)}
    line = [
        sys.executable,
        "-m",
        "turnwise",
        "gateway",
        "--config",
        str(folder / "gateway.toml"),
        "--json",
        "--quiet",
        *words,
    ]
    with (
        (folder / "log").open("ab") as log,
        subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, env=env) as process,
    ):
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            if not said:
                raise RuntimeError(f"a gateway does not start: {(folder / 'log').read_text()[-500:]}")
            yield Served(process, json.loads(said)["port"])
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def environment(folder: Path) -> dict[str, str]:
    return {
        "TURNWISE_STATE_DIR": str(folder / "state"),
        "XDG_CONFIG_HOME": str(folder / "config"),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "TURNWISE_PRICES": str(folder / "prices.toml"),
    }


class Told(NamedTuple):
    """An answer: its status, and whether it came to its end."""

    status: int
    is_whole: bool


class Clients:
    """Each request has a name, by which the bill and the ledger have it."""

    def __init__(self, ports: Sequence[int], bill: Bill) -> None:
        self._ports, self._bill = ports, bill
        self._numbers: Counter[str] = Counter()

    async def ask(self, kind: str, key: str, *, plan: Sequence[str] = (), streams: bool = True) -> Told:
        number = self._numbers[kind] = self._numbers[kind] + 1
        nonce = f"{kind}-{number}"
        self._bill.plans[nonce] = list(plan)
        body = {
            "model": "m",
            "stream": streams,
            "max_tokens": 300,
            "messages": [{"role": "user", "content": f"nonce-{nonce}"}],
        }
        content = json.dumps(body).encode()
        port = self._ports[number % len(self._ports)]
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return Told(0, False)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {key}\r\n"
            f"connection: close\r\nx-request-id: {nonce}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        said = b""
        with contextlib.suppress(OSError):
            writer.write(head.encode() + content)
            async with asyncio.timeout(END_S * 2):
                said = await reader.read()
        writer.transport.abort()
        status = int(said.split(b" ", 2)[1]) if said.startswith(b"HTTP/1.1 ") else 0
        return Told(status, b"[DONE]" in said if streams else status == 200)


@contextlib.asynccontextmanager
async def upstreams(bill: Bill) -> AsyncIterator[tuple[str, str]]:
    servers = [await asyncio.start_server(bill.serve, "127.0.0.1", 0, backlog=4096) for _ in range(2)]
    try:
        one, two = (f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in servers)
        yield one, two
    finally:
        for server in servers:
            server.close()


# --- what is done to them


class Fire:
    def __init__(self, gateways: Sequence[Served], options: argparse.Namespace, *, postgres: Any) -> None:
        self._gateways, self._options, self._postgres = gateways, options, postgres
        self.streams: list[int] = []  # of each process, the victims first and last
        self.killed = self.may_lose = 0  # of them

    async def burn(self) -> None:
        """One is killed, another one frozen, the database restarts."""
        options = self._options
        every = [(pid, gateway) for gateway in self._gateways for pid in gateway.serving(options.workers)]
        victims = [pid for pid, _ in every]
        held = {pid: gateway.clients_of(pid) for pid, gateway in every}
        self.streams = list(held.values())
        self.killed = held[victims[0]] if options.kill else 0
        self.may_lose = self.killed + (held[victims[-1]] if options.freeze else 0)
        if options.kill:
            os.kill(victims[0], signal.SIGKILL)
        if options.restart and self._postgres is not None:
            await asyncio.to_thread(self._postgres.crash)
            await asyncio.to_thread(self._postgres.start)
        if options.freeze:
            os.kill(victims[-1], signal.SIGSTOP)
            await asyncio.sleep(options.freeze)
            os.kill(victims[-1], signal.SIGCONT)


def drawn_plan(chance: random.Random) -> list[str]:
    """What a request meets before it is answered, and how long the answer is."""
    found = [chance.choice(FAULTS[:5] if chance.random() < 0.98 else FAULTS) for _ in range(chance.randint(0, 3))]
    pieces = [f"{one} {chance.randint(1, 60)}" if one in ("cut", "length") else one for one in found]
    return [*pieces, f"whole {chance.randint(1, 60)}"]


# --- what has to be true in the end


def findings(target: Path | str, bill: Bill, *, fits: int, killed: bool) -> dict[str, Any]:
    from turnwise import Journal
    from turnwise.gateway.shared_clients import SharedClients
    from turnwise.journal.ledger_queries import LedgerSpan
    from turnwise.journal.request_budgets import held_rows

    SharedClients(Journal(target), now=time.time).close()  # as a gateway that starts: it looks after the dead
    with Journal(target) as journal:
        held = {row.name: row.state for row in held_rows(journal.gateway.store)}
        rows, tokens, open_rows = Counter[str](), Counter[str](), Counter[str]()
        for entry in journal.ledger.entries(LedgerSpan()):
            rows[entry.root_turn] += 1
            if entry.usage is not None:
                tokens[entry.root_turn] += entry.usage.input_tokens + entry.usage.output_tokens
            if entry.ended is None:
                open_rows[entry.root_turn] += 1
    wrong = [
        f"{nonce}: {rows[nonce]} rows and {tokens[nonce]} tokens in the ledger, "
        f"{bill.requests[nonce]} and {bill.tokens[nonce]} billed"
        for nonce in sorted({*rows, *bill.requests})
        if not (killed and open_rows[nonce])
        and (rows[nonce], tokens[nonce]) != (bill.requests[nonce], bill.tokens[nonce])
    ]
    full = sum([count for nonce, count in bill.requests.items() if nonce.startswith("burst-")])
    reserved = {name: len(state.parts) for name, state in held.items() if state.parts}
    spent = {name.split("/")[2]: state.used[1] for name, state in held.items() if "/month/" in name}
    return {
        "upstream_requests": bill.requests.total(),
        "ledger_rows": rows.total(),
        "of_the_full_budget": full,
        "without_an_end": open_rows.total(),
        "reserved": reserved,
        "ledger_tokens": tokens.total(),
        "billed_tokens": bill.tokens.total(),
        "budget_tokens": spent,
        "wrong": wrong[:20],
        "holds": not (
            wrong or reserved or full > fits or sum(spent.values()) < bill.tokens.total() or (open_rows and not killed)
        ),
    }


async def settled(target: Path | str) -> None:
    """Until each request has its end in the ledger, as far as living gateways write it."""
    from turnwise import Journal
    from turnwise.journal.ledger_queries import LedgerSpan

    ends_s = time.monotonic() + SETTLED_S
    with Journal(target) as journal:
        while any(one.ended is None for one in journal.ledger.entries(LedgerSpan())):
            await asyncio.sleep(0.5)
            if time.monotonic() > ends_s:
                break


async def tried(options: argparse.Namespace, folder: Path, *, postgres: Any) -> dict[str, Any]:
    from gateway.budgeted import add_key, limits

    target: Path | str = folder / "state" / "journal.db" if postgres is None else postgres.dsn
    words = [
        *(() if postgres is None else ("--database", postgres.dsn)),
        *(("--workers", str(options.workers)) if options.workers else ()),
    ]
    free = add_key(target, limits(tokens_month=10**12, requests_minute=10**9, streams=10**6), name="free")
    full = add_key(target, limits(requests_month=options.fits, tokens_month=10**12), name="full")
    (folder / "prices.toml").write_text("m = { input = 1, output = 10 }\n")
    bill, chance = Bill(), random.Random(options.seed)
    async with upstreams(bill) as (one, two):
        (folder / "gateway.toml").write_text(CONFIG.format(one=one, two=two))
        with ExitStack() as stack:
            number = 1 if options.workers else options.gateways
            gateways = [await asyncio.to_thread(stack.enter_context, served(folder, *words)) for _ in range(number)]
            for each in gateways:
                await each.until_all_serve(options.workers)
            clients = Clients([each.port for each in gateways], bill)
            began_s = time.monotonic()
            streams = [
                asyncio.ensure_future(clients.ask("stream", free, plan=[f"stream {options.pieces}"]))
                for _ in range(options.streams)
            ]
            await bill.until(options.streams)
            fire = Fire(gateways, options, postgres=postgres)
            burning = asyncio.ensure_future(fire.burn())
            bursts = await asyncio.gather(*[clients.ask("burst", full, streams=False) for _ in range(options.burst)])
            burst_s = time.monotonic() - began_s
            ended = await asyncio.gather(*streams)
            await burning
            alive = Clients([each.port for each in gateways if each.process.poll() is None], bill)
            drawn: Counter[Told] = Counter()
            for _ in range(options.scenarios):
                plans = [drawn_plan(chance) for _ in range(chance.randint(2, 8))]
                drawn.update(await asyncio.gather(*[alive.ask("drawn", free, plan=plan) for plan in plans]))
            await settled(target)
            await asyncio.to_thread(stack.close)
    found = findings(target, bill, fits=options.fits, killed=options.kill)
    lost = sum([not one.is_whole for one in ended])
    return {
        "database": options.database,
        "streams": dict(Counter([f"{one.status}{'' if one.is_whole else ' broken off'}" for one in ended])),
        "bursts": dict(Counter([one.status for one in bursts])),
        "burst_s": round(burst_s, 1),
        "drawn": {f"{told.status}{'' if told.is_whole else ' broken off'}": count for told, count in drawn.items()},
        "streams_by_process": fire.streams,
        "lost": lost,
        "may_lose": fire.may_lose,
        **found,
        "holds": found["holds"] and lost <= fire.may_lose and found["without_an_end"] <= fire.killed,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--gateways", type=int, default=3, help="gateways on one journal (%(default)s)")
    parser.add_argument("--workers", type=int, default=0, help="instead one gateway with so many processes")
    parser.add_argument("--streams", type=int, default=1000, help="streams of five pieces a second (%(default)s)")
    parser.add_argument("--pieces", type=int, default=100, help="of each stream (%(default)s)")
    parser.add_argument("--burst", type=int, default=2000, help="short requests at once on a full budget (%(default)s)")
    parser.add_argument("--fits", type=int, default=100, help="of which so many fit (%(default)s)")
    parser.add_argument("--kill", action="store_true", help="kill -9 of one process")
    parser.add_argument("--freeze", type=float, default=0.0, help="seconds that one is frozen; its lease is 40")
    parser.add_argument("--restart", action="store_true", help="restart PostgreSQL")
    parser.add_argument("--scenarios", type=int, default=50, help="drawn ones (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="everything as JSON")
    options = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        postgres = None
        os.environ.update(environment(Path(folder)))
        if options.database == "postgres":
            from postgres_server import NoPostgres, PostgresServer, find_programs

            try:
                postgres = PostgresServer(find_programs())
            except NoPostgres as error:
                print(f"gateway_load: {error}", file=sys.stderr)
                return 2
            stack.callback(postgres.stop)
        found = asyncio.run(tried(options, Path(folder), postgres=postgres))
    print(json.dumps(found) if options.json else "\n".join([f"{name}: {value}" for name, value in found.items()]))
    return 0 if found["holds"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
