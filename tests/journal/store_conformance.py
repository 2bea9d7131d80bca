"""One suite for every store that keeps a journal: the same calls give the same answers, whatever keeps them.

Each `check_` takes the target of a journal that is not there yet (a path, or the address of an empty database), and raises
AssertionError where something does not hold. `test_journal_stores.py` runs them.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path

import msgspec

from families import of_family
from left_journals import unseen_owner
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.budgets import BudgetRow, BudgetRun
from turnwise.journal.direct_ledger import (
    EntryBecame,
    EntryLeaves,
    EntryStayed,
    LedgerLine,
    RepairSeen,
    RequestSum,
    gateway_session,
)
from turnwise.journal.journal import Journal, JournalEntry
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import By, LedgerSpan
from turnwise.journal.turn_writer import JournalRecord, RequestSent, ScriptBegan, ToolsStarted, TurnJournal
from turnwise.rules.reservations import BudgetState
from turnwise.testing.fake_clock import FakeClock
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.events import RequestFailed, ResponseReceived, ToolsFinished, TurnStarted
from turnwise.vocab import (
    NO_USAGE,
    Fault,
    FaultKind,
    FinishReason,
    Message,
    Opaque,
    Response,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from turnwise.vocab.file_names import shown_name
from waits import HANG_S

TESTS = Path(__file__).resolve().parents[1]
Target = Path | str
NOW = 1_700_000_000.0
BYS: tuple[By, ...] = ("day", "session", "model", "purpose")
# What text of a database may not be able to hold: NUL, half of a surrogate pair in JSON, characters beyond 16 bits, what looks
# like a value's place in SQL or like an escape.
ODD_TEXTS = (
    "grüß dich",
    "a\0b",
    "\x1a001a",
    "😀",
    "%s ? :name $1",
    "\\u0000",
    "'\"; drop table turn; --",
    "\u2028\uffff",
)
ODD_JSON = r'{"nul":"\u0000","half":"\ud83d","whole":"\ud83d\ude00","number":1.50,"twice":1,"twice":2}'
LARGE = 3_000_000  # characters of one record


def result(*, complete: bool = True) -> TurnResult:
    """A turn's end."""
    return TurnResult(
        text="hi", stop_reason=StopReason.ANSWERED, complete=complete, steps=1, requests=1, usage=NO_USAGE, messages=()
    )


def started(turn: str, text: str) -> TurnStarted:
    config = TurnConfig(session_id="s", turn_id=turn, model="m", **of_family("openai_chat"))
    return TurnStarted(config=config, input=(Message("user", (Text(text),)),))


def records() -> list[JournalRecord]:
    """Some of each kind, with all that is hard to keep."""
    called = ToolCall(
        id="c1", name="look", arguments='{"a":"\\u0000"}', opaque=Opaque(family="openai_chat", json=ODD_JSON)
    )
    response = Response(message=Message("assistant", (called,)), finish=FinishReason.TOOL_CALLS)
    return [
        *[started(f"t{number}", text) for number, text in enumerate(ODD_TEXTS)],
        RequestSent(number=1, purpose="step", url="http://x/ü", body_sha256="00", body_bytes=2),
        ResponseReceived(number=1, response=response),
        ToolsStarted(step=1, call_ids=("c1",)),
        ToolsFinished(results=(ToolResult(call_id="c1", name="look", content=(Text("x" * LARGE),)),)),
        RequestFailed(number=2, fault=Fault(kind=FaultKind.TIMEOUT, message="\0"), sent=False),
    ]


def entry(number: int, **fields: object) -> LedgerEntry:
    """A request as it leaves."""
    plain = LedgerEntry(
        session="s1",
        turn="t1",
        root_session="s1",
        root_turn="t1",
        number=number,
        step=number,
        purpose="step",
        provider="openai",
        model="m",
        started=NOW + number,
        sent_bytes=10,
    )
    return msgspec.structs.replace(plain, **fields)


def ended(number: int, **fields: object) -> LedgerEntry:
    """A request with all that can be known of it."""
    usage = Usage(
        input_tokens=50,
        output_tokens=4,
        reasoning_tokens=3,
        cache_read_tokens=2,
        cache_write_tokens=9,
        provider='{"x":"\\u0000"}',
    )
    known: dict[str, object] = {
        "first_event": NOW + number + 0.125,
        "ended": NOW + number + 0.7,
        "received_bytes": 99,
        "outcome": "ok",
        "calls": 3,
        "programs": 1,
        "program_calls": 5,
        "usage": usage,
        "plan": "request",
        "usd": Decimal("0.0000000123456789012345"),
        "priced_by": "provider",
        "price_note": "ünknown\0",
        "cache_saved_usd": Decimal("-1.50"),
        "cache_write_usd": Decimal("1.75"),
        "cache_missed_tokens": 4_096,
    }
    return entry(number, **{**known, **fields})


def sent(number: int) -> RequestSent:
    return RequestSent(number=number, purpose="step", url="u", body_sha256="", body_bytes=10)


def begin(journal: Journal, session: str = "s1", turn: str = "t1", **more: object) -> TurnJournal:
    given = {"folder": "/here", "title": "go", **more}
    return journal.begin_turn(turn_id=turn, session_id=session, **given)  # pyright: ignore[reportArgumentType]


def opened(target: Target, *, after_s: float = 0.0) -> Journal:
    return Journal(target, clock=FakeClock(now=NOW + after_s))


# -- what is written comes back


def check_records_come_back(target: Target) -> None:
    """Whole values, in order, with their times, from another opening: whatever characters they have, and however long."""
    with opened(target) as journal:
        pen = begin(journal)
        for number, record in enumerate(records()):
            (pen.append if number % 3 else pen.later)(record)
        pen.close(result())
    with opened(target) as journal:
        found = journal.entries("t1")
        assert found == [JournalEntry(seq=n, time=NOW, record=record) for n, record in enumerate(records(), 1)]
        assert journal.requests_by_purpose("t1") == {"step": 1}


def check_texts_come_back(target: Target) -> None:
    """Titles and ids are kept as they were given, folders as they are shown; all are found again by what was given."""
    with opened(target) as journal:
        for number, text in enumerate(ODD_TEXTS):
            begin(journal, f"session{number}", f"{text}{number}", folder=text, title=text).close(result())
        for number, text in enumerate(ODD_TEXTS):
            last = journal.last_session(text)
            assert last is not None
            assert (last.row.id, last.row.folder, last.row.title) == (f"session{number}", shown_name(text), text)
            assert [turn.id for turn in last.turns] == [f"{text}{number}"]


def check_sessions_are_found(target: Target) -> None:
    """By part, folder and parent; the latest first. What fits none or several is told."""
    clock = FakeClock(now=NOW)
    with Journal(target, clock=clock) as journal:
        for number, (session, folder) in enumerate([("aaaa1111", "/a"), ("aaaa2222", "/b"), ("bbbb2222", "/a")]):
            begin(journal, session, f"t{number}", folder=folder).close(result(complete=number != 1))
            asyncio.run(clock.advance(1))
        begin(journal, "child", "c1", folder="/a", parent=("t0", "call 1")).abandon()
        begin(journal, "aaaa1111", "a later one, whose id comes first")
        assert [(row.id, row.turns, row.status, row.complete) for row in journal.sessions()] == [
            ("aaaa1111", 2, "running", None),
            ("bbbb2222", 1, "done", True),
            ("aaaa2222", 1, "done", False),
        ]
        assert [row.id for row in journal.sessions(limit=1)] == ["aaaa1111"]
        assert journal.count_sessions() == 3
        turns = journal.find_session_by_part("1111").turns
        assert [(turn.id, turn.status) for turn in turns] == [
            ("t0", "done"),
            ("a later one, whose id comes first", "running"),
        ]
        ((call, child),) = journal.children("t0")
        assert (call, child.row.id, child.row.status) == ("call 1", "child", "lost")
        assert journal.last_session("/nowhere") is None
        _refused(lambda: journal.find_session_by_part("aaaa"), "fits several sessions: aaaa1111, aaaa2222")
        _refused(lambda: journal.find_session_by_part("AAAA1"), "there is no session")
        strange = ("%", "aaaa____", "aaaa*", "aaaa1111 ", "aaaa1111\0", "aaaa1111\ud800")
        for part in ("aaaa1", "1111", "aaaa11111", "AAAA1111", "", *strange):
            _refused(lambda part=part: journal.find_session(part), "there is no session")


def check_the_time_of_a_session_is_true(target: Target) -> None:
    """It is that of its last turn's end, else of that turn's beginning."""
    with opened(target) as journal:
        begin(journal, started=started("t1", "a"))
    with opened(target, after_s=60.0) as journal:
        begin(journal, session="s2", turn="t2")
    with opened(target, after_s=120.0) as journal:
        journal.leave("t1")
        pen = journal.resume_turn("t1")
        pen.append(sent(1))
    with opened(target, after_s=180.0) as journal:
        assert [(row.id, row.updated) for row in journal.sessions()] == [("s2", NOW + 60.0), ("s1", NOW)]
        journal.leave("t1")
        journal.resume_turn("t1").close(result())
        assert journal.sessions()[0].updated == NOW + 180.0


def check_a_clock_that_goes_back_changes_no_order(target: Target) -> None:
    """The session that was begun last is the last one: by what the journal has written, not by the wall clock alone."""
    with opened(target, after_s=3_600.0) as journal:
        begin(journal, session="s1", turn="t1").close(result())
    for nth in range(2, 5):
        with opened(target, after_s=60.0 * (5 - nth)) as journal:
            begin(journal, session=f"s{nth}", turn=f"t{nth}").close(result())
            assert [row.id for row in journal.sessions()] == [f"s{number}" for number in range(nth, 0, -1)]
            last = journal.last_session("/here")
            assert last is not None and last.row.id == f"s{nth}"


def check_many_turns_stay_apart(target: Target) -> None:
    """Sixty turns of one session: each has its own records, and they come in the order in which they began."""
    with opened(target) as journal:
        for number in range(60):
            pen = begin(journal, turn=f"{97 - number}")
            pen.later(started(str(number), "x"))
            pen.append(sent(number))
            pen.close(result())
        session = journal.last_session("/here")
        assert session is not None
        assert [turn.id for turn in session.turns] == [f"{97 - number}" for number in range(60)]
        assert all(
            journal.events(f"{97 - number}") == [started(str(number), "x")]
            and len(journal.entries(f"{97 - number}")) == 2
            for number in range(60)
        )


# -- who may write


def check_another_epoch_writes_nothing(target: Target) -> None:
    """A turn that another one has taken over takes no more records and sends no more requests. What became of the requests
    that it has sent is kept (promise keep:crash)."""
    with opened(target) as journal, opened(target) as other:
        pen = begin(journal)
        pen.append(started("t1", "a"))
        pen.request_leaves(sent(1), entry(1))
        pen.request_leaves(sent(2), entry(2))
        other.leave("t1")  # as if its process were gone
        begin(other, turn="t2")
        before = other.entries("t1")
        pen.request_became(ended(1))
        pen.request_stayed(entry(2))
        pen.later(started("t1", "waits"))
        _refused(lambda: pen.append(started("t1", "b")), "another process has taken this turn over")
        _refused(lambda: pen.request_leaves(sent(3), entry(3)), "another process has taken this turn over")
        pen.close(result())
        assert other.entries("t1") == before and len(before) == 3
        assert other.ledger.entries(LedgerSpan()) == [ended(1)]
        session = other.last_session("/here")
        assert session is not None and [turn.status for turn in session.turns] == ["lost", "running"]


def check_a_left_turn_is_taken_over(target: Target) -> None:
    """The new pen goes on behind the last record and knows the requests that were sent; the old one writes no record any more.
    How often that was in vain is counted."""
    with opened(target) as journal, opened(target) as other:
        pen = begin(journal, started=started("t1", "a"))
        assert pen.has_begun
        pen.request_leaves(sent(1), entry(1))
        _refused(lambda: other.resume_turn("t1"), "session `s1` is running")
        other.leave("t1")  # as if its process were gone
        tries = [other.resume_turn("t1") and other.tries_in_vain("t1")]
        other.leave("t1")
        new = other.resume_turn("t1")
        tries.append(other.tries_in_vain("t1"))
        new.request_became(ended(1))
        new.append(started("t1", "b"))
        tries.append(other.tries_in_vain("t1"))
        assert tries == [1, 2, 0] and new.has_begun
        _count_tries_without_progress(other)
        _refused(lambda: pen.append(started("t1", "c")), "another process has taken this turn over")
        found = [one.record for one in journal.entries("t1")]
        assert found == [started("t1", "a"), sent(1), started("t1", "b")]
        assert journal.ledger.entries(LedgerSpan()) == [ended(1)]
        new.close(result())
        _refused(lambda: other.resume_turn("t1"), "has ended: there is nothing to resume")
        begin(journal, turn="t2", started=started("t2", "d")).abandon()
        begin(journal, turn="t3").close(result())
        _refused(lambda: journal.resume_turn("t2"), "has continued without that turn")
        _refused(lambda: journal.resume_turn("t9"), "there is no turn `t9`")


def check_the_callers_word_takes_a_turn_over(target: Target) -> None:
    """A turn of a process that cannot be seen from here goes to the caller who says that it is gone."""
    with opened(target) as journal:
        begin(journal, started=started("t1", "a"))
        with journal._store.transaction() as connection:
            connection.execute("update turn set owner = ?", (unseen_owner(),))
        _refused(lambda: journal.resume_turn("t1"), "--take-over")
        assert journal.take_over("s1").turns[-1].status == "lost"
        journal.resume_turn("t1").close(result())


def _count_tries_without_progress(journal: Journal) -> None:
    """That a request was lost and is sent again, or that a program has begun, is no progress of the turn; another failure is."""
    pen = begin(journal, session="s8", turn="t8", started=started("t8", "a"))
    pen.append(sent(1))
    fault = Fault(kind=FaultKind.DISCONNECTED, message='it is "lost":true}')
    lost = RequestFailed(number=1, fault=fault, lost=True)
    tries: list[int] = []
    for record in (lost, sent(2), ScriptBegan(call_id="c", time=1.0), RequestFailed(number=2, fault=fault)):
        journal.leave("t8")
        pen = journal.resume_turn("t8")
        pen.append(record)
        tries.append(journal.tries_in_vain("t8"))
    assert tries == [1, 2, 3, 0]
    pen.close(result())


def check_one_turn_at_a_time(target: Target) -> None:
    """A session that runs is not begun again, here or from another opening; one that was left is free."""
    with opened(target) as journal, opened(target) as other:
        pen = begin(journal)
        for one in (journal, other):
            _refused(lambda one=one: begin(one, turn="t2"), "session `s1` is running already")
        pen.abandon()
        begin(other, turn="t2").close(result())
        assert [row.status for row in journal.sessions()] == ["done"]


# -- the ledger


def check_ledger(target: Target) -> None:
    """Entries come back as they were written, whichever way they were; those that never left are gone."""
    with opened(target) as journal:
        pen = begin(journal)
        for number in (1, 2, 3):
            pen.request_leaves(sent(number), entry(number))
        pen.request_became(ended(1))
        pen.request_stayed(entry(2))
        pen.request_became(ended(3, plan=None, usd=None, priced_by=None, cache_saved_usd=None, cache_write_usd=None))
        pen.write()
        line, other = LedgerLine(), LedgerLine()
        gateways = entry(4, session=gateway_session("me"), root_session=gateway_session("me"), turn="g", root_turn="g")
        whole = msgspec.structs.replace(gateways, outcome="ok", ended=NOW + 9)
        journal.direct.write([EntryLeaves(line=line, entry=gateways), EntryLeaves(line=other, entry=entry(5))])
        journal.direct.write([EntryBecame(line=line, entry=whole), EntryStayed(line=other)])
        kept = ended(3, plan=None, usd=None, priced_by=None, cache_saved_usd=None, cache_write_usd=None)
        assert journal.ledger.entries(LedgerSpan()) == [ended(1), kept, whole]
        (total,) = journal.ledger.totals(LedgerSpan(session="s1"), by="session")
        assert (total.cost.usd, total.cost.requests, total.cost.unknown) == (ended(1).usd, 2, 1)
        assert type(total.input_tokens) is int and total.input_tokens == 100
        assert journal.repairs.requests() == [RequestSum(provider="openai", model="m", requests=1, failed=0)]


def answers(target: Target) -> list[object]:
    """What a journal says of a ledger of 40 entries: equal for all stores."""
    with opened(target) as journal:
        lines = [LedgerLine() for _ in range(40)]
        kept = [_one_of_many(number) for number in range(40)]
        pairs = list(zip(lines, kept, strict=True))
        journal.direct.write([EntryLeaves(line=line, entry=one) for line, one in pairs])
        journal.direct.write([EntryBecame(line=line, entry=one) for line, one in pairs if one.ended is not None])
        journal.repairs.write([_seen(number) for number in range(20)])
        begin(journal, "s0", "t0", title="first\0")
        spans = (LedgerSpan(), LedgerSpan(since=NOW + 100_000, until=NOW + 900_000), LedgerSpan(session="s1"))
        return [
            *[journal.ledger.totals(span, by=by) for span in spans for by in BYS],
            *[journal.ledger.bills_by_request(span) for span in spans],
            journal.ledger.bills_by_request(LedgerSpan(), latest=2),
            journal.ledger.count_turns_by_request(LedgerSpan()),
            journal.ledger.entries(LedgerSpan()),
            journal.ledger.titles(["s0", "s1"]),
            journal.repairs.sums(),
            journal.repairs.requests(),
        ]


def _one_of_many(number: int) -> LedgerEntry:
    root = gateway_session("") if number % 10 == 0 else f"s{number % 3}"
    fields: dict[str, object] = {
        "root_session": root,
        "root_turn": f"t{number % 7}",
        "path": ("scout",) if number % 4 == 0 else (),
        "purpose": ("step", "retry", "continue", "answer")[number % 4],
        "model": ("B", "a", "_", "ä")[number // 3 % 4],  # in the order of bytes, not of a language
        "started": NOW + number * 43_200,
    }
    if number % 5 == 4:
        return entry(number, **fields)
    plan = ("request", "tokens", "free", None)[number % 4]
    usd = Decimal(number) / 8 if number % 3 else Decimal("1E-15") * number
    return ended(
        number,
        **fields,
        ended=NOW + number * 43_200 + 2,
        outcome="overloaded" if number % 6 == 5 else "ok",
        plan=plan,
        usd=usd if plan else None,
    )


def _seen(number: int) -> RepairSeen:
    day = f"2026-01-{number % 3 + 1:02}"
    return RepairSeen(day=day, provider="p", family="f", model="m" * number * 9, kind=f"k{number % 4}", times=number)


def check_same_answers(target: Target, other: Target) -> None:
    """Two stores say the same of the same entries."""
    for one, two in zip(answers(target), answers(other), strict=True):
        assert one == two, (one, two)
        assert msgspec.json.encode(one) == msgspec.json.encode(two)


# -- several at once


def check_threads_share_a_journal(target: Target) -> None:
    """Eight threads begin, write, read and end turns over one journal: none falls into another's transaction."""
    problems: list[BaseException] = []
    together = threading.Barrier(8, timeout=HANG_S)

    def live(journal: Journal, name: str) -> None:
        try:
            together.wait()
            for number in range(10):
                pen = begin(journal, f"session{name}", f"{name}-{number}")
                _refused(lambda: begin(journal, f"session{name}", "again"), "running already")
                pen.later(started(name, str(number)))
                pen.append(sent(number))
                pen.close(result())
                assert len(journal.find_session(f"session{name}").turns) == number + 1
        except BaseException as error:  # noqa: BLE001 (a thread's failure is told by the caller's own thread)
            problems.append(error)

    with opened(target) as journal:
        threads = [threading.Thread(target=live, args=(journal, name)) for name in "abcdefgh"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        assert problems == []
        assert all(
            journal.events(f"{name}-{number}") == [started(name, str(number))]
            for name in "abcdefgh"
            for number in range(10)
        )


def check_processes_share_a_journal(target: Target) -> None:
    """Four processes open a journal that is not there yet at the same moment, and write 100 records each: none is lost."""
    children = [_writer(target, name, count=100) for name in "abcd"]
    for child in children:
        _, said = child.communicate(timeout=HANG_S)
        assert child.returncode == 0, said
    with opened(target) as journal:
        assert [len(journal.entries(f"t{name}")) for name in "abcd"] == [100] * 4
        assert {row.status for row in journal.sessions()} == {"lost"}  # their processes went without a word


def check_one_process_wins_a_session(target: Target) -> None:
    """Of four processes that begin a turn of one session at the same moment, one does; the others are told."""
    with opened(target):
        children = [_writer(target, name, count=5, session="one", waits=True) for name in "abcd"]
        said = [_line_of(child) for child in children]
        for child in children:
            child.communicate(timeout=HANG_S)
        assert sorted(said) == ["refused\n"] * 3 + ["written\n"], said


def check_a_killed_process_loses_nothing(target: Target) -> None:
    """kill -9: all that was appended is there, the turn is `lost`, and the session goes on (promise keep:crash)."""
    child = _writer(target, "a", count=7, waits=True)
    try:
        assert _line_of(child) == "written\n"
        with opened(target) as journal:
            _refused(lambda: begin(journal, "sa", "t2"), "running already")
            child.kill()
            child.communicate(timeout=HANG_S)
            session = journal.last_session("/here")
            assert session is not None and [turn.status for turn in session.turns] == ["lost"]
            assert len(journal.entries("ta")) == 7
            begin(journal, "sa", "t2").append(sent(1))
    finally:
        child.kill()
        child.communicate(timeout=HANG_S)


_WRITER = """
import json, sys
from turnwise.errors import CallerError
from turnwise.base.clock import SystemClock
from journal.store_conformance import Journal, begin, sent

given = json.loads(sys.stdin.readline())
journal = Journal(given["target"], clock=SystemClock())
try:
    pen = begin(journal, given["session"], "t" + given["name"])
    for number in range(given["count"]):
        pen.append(sent(number))
except CallerError:
    print("refused", flush=True)
else:
    print("written", flush=True)
if given["waits"]:
    sys.stdin.read()
"""


def _writer(
    target: Target, name: str, *, count: int, session: str = "", waits: bool = False
) -> "subprocess.Popen[str]":
    """The target goes by standard input: a command line is seen by all users, and an address may hold a password."""
    child = subprocess.Popen(
        [sys.executable, "-c", _WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
    )
    assert child.stdin is not None
    given = {"target": str(target), "name": name, "count": count, "session": session or f"s{name}", "waits": waits}
    child.stdin.write(json.dumps(given) + "\n")
    child.stdin.flush()
    return child


def _line_of(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline()


def _refused(call: Callable[[], object], text: str) -> None:
    try:
        call()
    except (CallerError, JournalFailed) as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"nothing was refused, but for: {text}")


def check_budgets(target: Target) -> None:
    """One process at a time changes a budget, which is found by its name alone, as are its runs and their requests."""
    new = BudgetState(counts=("MaxRequests", "MaxCost"), used=(0, Decimal(0)))
    run = BudgetRun(turn="t1", root_session="s1", root_turn="t1")
    changes = 40

    def add_one(row: BudgetRow) -> None:
        state = row.read(new)
        row.write(msgspec.structs.replace(state, used=(state.used[0] + 1, state.used[1] + Decimal("0.000000001"))))

    def many_times() -> None:
        with opened(target) as own:
            for _ in range(changes):
                own.budgets.change("grüß 😀 '%s' ?", add_one)

    with opened(target) as journal:
        book = journal.budgets
        assert book.look("team", new=new) == new and book.runs_of("team", ["t1"]) == [] == book.entries(
            "team", without=()
        )
        threads = [threading.Thread(target=many_times) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
        found = book.look("grüß 😀 '%s' ?", new=new)
        assert found.used == (3 * changes, Decimal("0.000000001") * 3 * changes)
        assert book.look("team", new=new) == new

        def fails(row: BudgetRow) -> None:
            add_one(row)
            raise ValueError("all or nothing")

        with contextlib.suppress(ValueError):
            book.change("team", fails)
        assert book.look("team", new=new) == new
        for _ in range(2):  # a second time, as after a lost connection
            book.change("team", lambda row: row.keep_run(run))
        assert book.runs_of("team", ["t1", "t2"]) == [run]
        pen = begin(journal)
        pen.request_leaves(sent(1), entry(1))
        pen.request_became(ended(1))
        pen.close(result())
        assert [one.number for one in book.entries("team", without=())] == [1]
        assert book.entries("team", without=("t1",)) == []


ALONE: Sequence[Callable[[Target], None]] = (
    check_records_come_back,
    check_texts_come_back,
    check_sessions_are_found,
    check_the_time_of_a_session_is_true,
    check_a_clock_that_goes_back_changes_no_order,
    check_many_turns_stay_apart,
    check_another_epoch_writes_nothing,
    check_a_left_turn_is_taken_over,
    check_the_callers_word_takes_a_turn_over,
    check_one_turn_at_a_time,
    check_ledger,
    check_budgets,
    check_threads_share_a_journal,
    check_processes_share_a_journal,
    check_one_process_wins_a_session,
    check_a_killed_process_loses_nothing,
)
"""All checks that take one target."""
