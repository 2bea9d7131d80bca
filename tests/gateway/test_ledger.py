"""Every request that the gateway sends upstream stands in the ledger before it leaves."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from gateway.relayed import Gathered
from gateway.served_gateway import BODY, ServedGateway, served_gateway
from gateway.test_service import chat, lab_at
from journal.test_prices import NOW
from journal.test_served_bills import BILLS, response_of
from lab.failing import settled
from terminal.running import running_lab
from turnwise.errors import CallerError, JournalFailed
from turnwise.gateway.accounts import Account, AccountMeans, SentRequest, open_accounts
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.journal.direct_ledger import ANY, LedgerLine
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import LedgerEntry, ReceivedResponse
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.ledger_thread import LedgerThread
from turnwise.lab import Lab
from turnwise.testing import FakeClock
from waits import HANG_S

PRICES = '[prices]\n"fault-once-503" = { request = 0.25, bills_errors = true }\n"*" = { request = 0.5 }\n'


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab() as lab:
        yield lab


@pytest.fixture
def served(lab: Lab, tmp_path: Path) -> Iterator[ServedGateway]:
    (tmp_path / "config" / "turnwise").mkdir(parents=True)
    (tmp_path / "config" / "turnwise" / "turnwise.toml").write_text(PRICES)
    with served_gateway(tmp_path, upstream=f"{lab.url}/v1") as served:
        yield served


def entries_of(served: ServedGateway) -> list[LedgerEntry]:
    with Journal(Path(served.env["TURNWISE_STATE_DIR"]) / "journal.db", clock=FakeClock()) as journal:
        return journal.ledger.entries(LedgerSpan())


def entry(number: int = 1) -> LedgerEntry:
    return LedgerEntry(
        session="gateway",
        turn="tw-1",
        root_session="gateway",
        root_turn="tw-1",
        number=number,
        step=1,
        purpose="step",
        provider="p",
        model="m",
        started=1.0,
        sent_bytes=3,
    )


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_a_killed_gateway_has_told_the_ledger_of_every_request_that_left(served: ServedGateway) -> None:
    """`kill -9` while a stream is open: the request of which nobody knows the end is there, too."""
    assert b"[DONE]" in served.chat("plain-answer")
    with served.stalling():
        served.process.kill()
        served.process.wait()
    report = served.usage()
    assert {row["key"]: row["cost"]["requests"] for row in report["rows"]} == {
        "openai_chat:plain-answer": 1,
        "openai_chat:fault-stall": 1,
    }
    assert [row["unfinished"] for row in report["rows"] if row["key"].endswith("stall")] == [1]


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_a_retry_is_in_the_ledger_with_its_purpose_and_its_price(served: ServedGateway) -> None:
    """Both requests, under the client's request id and its own session, priced as those of a run."""
    assert b"[DONE]" in served.chat("fault-once-503", x_request_id="asked-by-laptop")
    served.end()
    found = [(one.session, one.turn, one.number, one.purpose, one.outcome, one.usd) for one in entries_of(served)]
    assert found == [
        ("gateway", "asked-by-laptop", 1, "step", "overloaded", Decimal("0.25")),
        ("gateway", "asked-by-laptop", 2, "retry", "ok", Decimal("0.25")),
    ]
    assert served.run("sessions", "list", "--json") == ""
    (row,) = served.usage("--session", "gateway")["rows"]
    assert (row["cost"], row["again"]["requests"]) == ({"usd": "0.5", "requests": 2, "unknown": 0}, 1)


@pytest.mark.costly
def test_a_request_that_never_left_is_struck_out(tmp_path: Path) -> None:
    """No connection: nothing was billed."""
    file = tmp_path / "gateway.toml"
    file.write_text('[[route]]\nretry = 0\nupstream = { url = "http://127.0.0.1:9/v1" }\n')
    with served_gateway(tmp_path, "--config", str(file), upstream=None) as served:
        with served.ask("/v1/chat/completions", {"model": "m", **BODY}) as answer:
            assert answer.status == 502
        served.end()
        assert entries_of(served) == []


@pytest.mark.costly
def test_an_answer_that_the_client_left_is_a_cancelled_request(served: ServedGateway) -> None:
    """The upstream's request is broken off, and what had come of it is written down."""
    served.stalling().close()
    log = served.end()
    assert [(one.outcome, one.ended is not None) for one in entries_of(served)] == [("cancelled", True)], log


def test_a_request_whose_entry_cannot_be_written_does_not_leave(tmp_path: Path) -> None:
    """Whoever waits is told; once the file takes entries again, the ends that were kept are written."""

    async def run() -> list[LedgerEntry]:
        path = tmp_path / "journal.db"
        thread = LedgerThread(path, clock=FakeClock())
        first = await thread.leaves(entry())
        breaking = sqlite3.connect(path)
        breaking.execute("alter table request rename to elsewhere")
        thread.became(first, entry)
        with pytest.raises(JournalFailed):
            await thread.leaves(entry(2))
        assert not thread.is_well
        breaking.execute("alter table elsewhere rename to request")
        breaking.close()
        await thread.leaves(entry(3))
        assert thread.is_well
        await asyncio.to_thread(thread.close)
        with Journal(path, clock=FakeClock()) as journal:
            return journal.ledger.entries(LedgerSpan())

    assert [one.number for one in asyncio.run(run())] == [1, 3]


def test_clients_are_told_that_the_ledger_cannot_be_written(lab: Lab, served: ServedGateway) -> None:
    """An error, nothing goes upstream, and the gateway is not ready until the file takes entries again."""
    lab.reset()
    file = sqlite3.connect(Path(served.env["TURNWISE_STATE_DIR"]) / "journal.db")
    file.execute("alter table request rename to elsewhere")
    with served.ask("/v1/chat/completions", {"model": "plain-answer", **BODY}) as answer:
        assert (answer.status, b"cannot write its ledger" in answer.read()) == (500, True)
    assert served.get("/readyz") == b'{"status":"not ready"}'
    assert list(lab.requests) == []
    file.execute("alter table elsewhere rename to request")
    file.close()
    assert b"[DONE]" in served.chat("plain-answer")
    assert served.get("/readyz") == b'{"status":"ok"}'


def test_no_fallback_is_asked_after_the_ledger_could_not_be_written(tmp_path: Path) -> None:
    """Issue 40: the upstream is well, and the request stays here; the client learns why, whoever could answer a moment later."""

    class ForAMoment(LedgerThread):
        failed = 0

        async def leaves(self, entry: LedgerEntry) -> LedgerLine:
            if not self.failed:
                self.failed += 1
                raise JournalFailed("the disk is full")
            return await super().leaves(entry)

    async def run() -> tuple[int | None, bytes, list[str]]:
        async with Lab() as lab:
            clock, outlet, ledger = FakeClock(), Gathered(), ForAMoment(tmp_path / "journal.db", clock=FakeClock())
            route = GatewayRoute(upstream=lab_at(model="plain-answer"), fallbacks=(lab_at(model="usage"),))
            means = ServiceMeans(
                transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, accounts=AccountMeans(ledger=ledger)
            )
            gateway = RelayService(GatewayConfig(routes=(route,)), means=means, forward_key=False)
            await settled(gateway.answer(chat("any"), outlet), clock=clock)
            await asyncio.to_thread(ledger.close)
            return outlet.status, b"".join(outlet.pieces), [one.model for one in lab.requests]

    status, body, models = asyncio.run(run())
    assert (status, b"cannot write its ledger" in body, models) == (500, True, [])


def test_entries_of_many_tasks_are_written_while_another_process_holds_the_file(tmp_path: Path) -> None:
    """The event loop goes on meanwhile, and a request that is given up while its entry waits leaves none."""

    async def run() -> list[int]:
        path = tmp_path / "journal.db"
        thread = LedgerThread(path, clock=FakeClock())
        holding = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        holding.execute("begin immediate")
        waiting = [asyncio.create_task(thread.leaves(entry(number))) for number in range(1, 51)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait([waiting[0]])
        assert not any(task.done() for task in waiting[1:])
        threading.Thread(target=holding.execute, args=("commit",)).start()
        await asyncio.wait_for(asyncio.gather(*waiting[1:]), HANG_S)
        await asyncio.to_thread(thread.close)
        holding.close()
        with Journal(path, clock=FakeClock()) as journal:
            return sorted(one.number for one in journal.ledger.entries(LedgerSpan()))

    assert asyncio.run(run()) == list(range(2, 51))


@pytest.mark.promise("bill:served")
def test_a_relayed_request_costs_what_served_it(tmp_path: Path) -> None:
    """The gateway's ledger has the bill of a run: the advisor at its own price, and 'at least' for a tier that was not told."""
    bills = BILLS["anthropic"]

    async def run() -> list[LedgerEntry]:
        ledger = LedgerThread(tmp_path / "journal.db", clock=FakeClock())
        account = Account(chat("m"), means=AccountMeans(ledger=ledger, clock=FakeClock(now=NOW)))
        for bill, asked in (
            (bills["advisor"], ()),
            (bills["plain"], ("speed=fast",)),
            (bills["thinking"], ("speed=fast",)),
        ):
            sent = await account.sends("step", provider="anthropic", model=bill.model, sent_bytes=1, asked=asked)
            assert isinstance(sent, SentRequest)
            sent.ended(ReceivedResponse(response=response_of(bill, profile="anthropic")))
        await asyncio.to_thread(ledger.close)
        with Journal(tmp_path / "journal.db", clock=FakeClock()) as journal:
            return journal.ledger.entries(LedgerSpan())

    found = [(one.usd, one.priced_by) for one in asyncio.run(run())]
    assert found == [(Decimal("0.154004"), "table"), (Decimal("0.014"), "table"), (Decimal("0.014"), "least")]


def test_the_users_prices_and_journal_are_those_of_the_gateway(tmp_path: Path) -> None:
    """Proves: a request costs what the user's own file says and not what a project's does; it stands in the user's journal with
    its end, and so does what was mended, under the family of its upstream. A price that was added counts once the configuration
    is read again, and a file of prices that cannot be read is an error then."""
    folder = tmp_path / "config" / "turnwise"
    folder.mkdir(parents=True)
    (folder / "turnwise.toml").write_text(PRICES)
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "TURNWISE_STATE_DIR": str(tmp_path / "state")}

    async def run() -> None:
        async with Lab() as lab:
            clock = FakeClock(now=NOW)
            with open_accounts(env, clock=clock) as accounts:
                means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, accounts=accounts)
                config = GatewayConfig(routes=(GatewayRoute(upstream=lab_at()),))
                service = RelayService(config, means=means, forward_key=False)
                await asyncio.wait_for(service.answer(chat("id-missing", tools=BODY["tools"]), Gathered()), HANG_S)
                (folder / "prices.toml").write_text('"*" = { request = 0.75 }\n')
                service = service.renewed(config)
                await asyncio.wait_for(service.answer(chat("plain-answer"), Gathered()), HANG_S)
                (folder / "prices.toml").write_text('"*" = 0.75\n')
                with pytest.raises(CallerError, match=r"prices\.toml"):
                    service.renewed(config)

    asyncio.run(run())
    with Journal(tmp_path / "state" / "journal.db", clock=FakeClock()) as journal:
        found, later = sorted(journal.ledger.entries(LedgerSpan()), key=lambda one: one.usd or 0)
        mended = {(one.family, one.kind, one.times) for one in journal.repairs.sums()}
    assert (found.outcome, found.usd, found.ended) == ("ok", Decimal("0.5"), NOW)
    assert (later.model, later.usd) == ("plain-answer", Decimal("0.75"))
    assert mended == {("openai_chat", "id_missing", 1), ("openai_chat", ANY, 1)}


def test_requests_behind_each_other_wait_within_one_limit_for_a_held_ledger(tmp_path: Path) -> None:
    """Proves: a request that came while another one waited in vain waits only for the rest of its own limit, its failure ends
    nothing that runs, and once the file is free all ends are written."""

    async def run() -> tuple[list[int], list[int]]:
        path, waits, trying = tmp_path / "journal.db", list[int](), threading.Event()
        thread = LedgerThread(path, clock=FakeClock(), limit_s=1.0)
        first = await thread.leaves(entry())
        holding = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        holding.execute("begin immediate")

        def see(statement: str) -> None:
            name, _, number = statement.partition(" = ")
            if name == "pragma busy_timeout":
                waits.append(int(number))
            elif statement == "begin immediate":
                trying.set()

        with thread._journal._store.statement() as connection:
            assert isinstance(connection, sqlite3.Connection)
            connection.set_trace_callback(see)
        one = asyncio.create_task(thread.leaves(entry(2)))
        await asyncio.to_thread(trying.wait, HANG_S)
        other = asyncio.create_task(thread.leaves(entry(3)))
        await asyncio.sleep(0)
        thread.became(first, entry)
        done = await asyncio.wait_for(asyncio.gather(one, other, return_exceptions=True), HANG_S)
        assert [type(error) for error in done] == [JournalFailed, JournalFailed]
        holding.execute("commit")
        holding.close()
        await thread.leaves(entry(4))
        await asyncio.to_thread(thread.close)
        with Journal(path, clock=FakeClock()) as journal:
            return waits, sorted(one.number for one in journal.ledger.entries(LedgerSpan()))

    waits, numbers = asyncio.run(run())  # the full limit, 1,000 ms, was told with the first entry
    assert min(waits) < 1000
    assert numbers == [1, 4]
