"""A journal that takes nothing more: the turn ends with a result that says so, and nothing is done that is not recorded.

The failures are real: SQLite runs out of pages (SQLITE_FULL), or of the right to write.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from families import of_family
from flat_agents import flat_agent
from turnwise import Journal, RunResult, tool
from turnwise.agent.run_setup import RunOptions
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.turn_writer import RequestSent, ToolsStarted
from turnwise.rules.answer_room import exit_code
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.running.watcher_events import CallAnswered, ToolFinished, ToolStarted, WatcherEvent
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL, Line
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, StopReason, Text, ToolResult, calls_of

FAMILY = "anthropic_messages"
LONG = "x" * 6000  # more than a page of SQLite's: each record needs room of its own
FULL = "database or disk is full"
READ_ONLY = "attempt to write a readonly database"


def pages(journal: Journal) -> int:
    with journal._store.statement() as connection:
        return connection.execute("pragma page_count").fetchone()[0]


def allow_pages(journal: Journal, number: int) -> None:
    with journal._store.statement() as connection:
        connection.execute(f"pragma max_page_count = {number}")


def forbid_writing(journal: Journal, *, forbidden: bool = True) -> None:
    with journal._store.statement() as connection:
        connection.execute(f"pragma query_only = {int(forbidden)}")


class Went(NamedTuple):
    """A turn, by what came of it and by what others have seen of it."""

    result: RunResult | None
    error: str
    sent: int
    ran: list[str]
    seen: list[WatcherEvent]


async def work(journal: Journal, *, session: str = "", lines: list[Line] | None = None, prompt: str = LONG) -> Went:
    """A turn of two tool calls in two steps, with long texts."""
    ran: list[str] = []
    seen: list[WatcherEvent] = []

    @tool
    def note(text: str) -> str:
        """Keep a note."""
        ran.append(text)
        return LONG

    steps: list[Line] = [[Text(LONG), call("note", text="a")], [Text(LONG), call("note", text="b")], LONG]
    model = ScriptedModel(lines or steps, family=FAMILY)
    agent = flat_agent(f"{FAMILY}:m", base_url=BASE_URL, tools=[note], transport=model, journal=journal)
    result, error = None, ""
    try:
        options: RunOptions = {"watch": seen.append, "drop_left": True}
        result = await agent.run(prompt, **(options | {"session": session} if session else options))
    except CallerError as caught:
        error = str(caught)
    return Went(result, error, len(model.asked), ran, seen)


def is_paired(seen: list[WatcherEvent]) -> bool:
    """Every call that was shown has one result."""
    begun = [one.call.id for one in seen if isinstance(one, ToolStarted)]
    answered = [one.result.call_id for one in seen if isinstance(one, ToolFinished | CallAnswered)]
    return len(set(answered)) == len(answered) and set(begun) <= set(answered)


def results_of(messages: tuple[Message, ...]) -> tuple[list[str], list[str]]:
    called = [made.id for message in messages for made in calls_of(message)]
    answered = [part.call_id for message in messages for part in message.parts if isinstance(part, ToolResult)]
    return called, answered


@pytest.mark.promise("keep:crash", "bill:wire", "step:every-call-answered", "end:never-empty", "end:reason")
async def test_a_disk_that_is_full_at_any_page_ends_the_turn_with_a_result(tmp_path: Path) -> None:
    """Proves: wherever in the turn no further page can be had, what was sent and what ran is in the journal and in the result,
    every call is answered, the result says why it ended, and the session goes on once there is room again."""
    with Journal(tmp_path / "whole.db", clock=SystemClock()) as journal:
        first = pages(journal)
        whole = await work(journal)
        last = pages(journal)
    assert whole.result is not None and whole.result.complete and last - first >= 12
    ends: set[tuple[int, int]] = set()
    for most in range(first, last + 1):
        with Journal(tmp_path / f"{most}.db", clock=SystemClock()) as journal:
            allow_pages(journal, most)
            went = await work(journal)
            allow_pages(journal, 2**20)
            ledger = journal.ledger.entries(LedgerSpan())
            rows = journal.sessions()
            records = [] if not rows else journal.entries(journal.find_session(rows[0].id).turns[0].id)
            recorded_calls = [
                id for entry in records if isinstance(entry.record, ToolsStarted) for id in entry.record.call_ids
            ]
            assert len(ledger) == went.sent, "no request left that is not entered"
            assert sum(isinstance(entry.record, RequestSent) for entry in records) == went.sent
            assert len(recorded_calls) == len(went.ran), "no tool ran that is not recorded"
            assert is_paired(went.seen)
            ends.add((went.sent, len(went.ran)))
            if went.result is None:  # the turn had not begun
                assert (went.sent, went.ran) == (0, []) and FULL in went.error
                continue
            result = went.result
            assert result.requests == went.sent == len(result.ledger)
            called, answered = results_of(result.new_messages)
            assert called == answered and result.text.strip()
            if result.complete:
                assert result.stop_reason is StopReason.ANSWERED and rows[0].status == "done"
                continue
            assert (result.stop_reason, exit_code(result.stop_reason, complete=False)) == (StopReason.JOURNAL_FAILED, 7)
            (told,) = [repair for repair in result.repairs if repair.kind == "not_recorded"]
            assert FULL in told.what and (FULL in result.text or result.text == LONG)
            assert rows[0].status == "lost"
            again = await work(journal, session=result.session, lines=["Back."], prompt="And?")
            assert again.result is not None and again.result.complete, again.error
            assert sum(turn.status == "done" for turn in journal.find_session(result.session).turns) == 1
    assert ends >= {(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (3, 2)}, "it filled up at every kind of place"


@pytest.mark.promise("keep:crash")
async def test_an_answer_that_could_not_be_recorded_is_shown_but_not_complete(tmp_path: Path) -> None:
    """Full at the turn's very end: the text is the model's, its result says that the session does not hold it."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:

        def fill(_: object) -> str:
            forbid_writing(journal)
            return "The answer."

        went = await work(journal, lines=[fill], prompt="Go.")
        forbid_writing(journal, forbidden=False)
        assert went.result is not None
        assert (went.result.text, went.result.stop_reason) == ("The answer.", StopReason.JOURNAL_FAILED)
        assert not went.result.complete and not went.result.written_locally
        (told,) = went.result.repairs
        assert (told.kind, told.where, READ_ONLY in told.what) == ("not_recorded", "journal", True)
        (entry,) = journal.ledger.entries(LedgerSpan())
        assert entry.outcome is None, "it was sent, and nobody wrote down what became of it"
        assert went.result.ledger[0].outcome == "ok"


@contextmanager
def another_takes_over(path: Path) -> Iterator[Callable[[], None]]:
    def take() -> None:
        with sqlite3.connect(path) as other:
            other.execute("update turn set epoch = epoch + 1")
        other.close()

    yield take


@pytest.mark.promise("keep:crash", "bill:wire")
async def test_a_turn_that_another_process_took_over_ends_with_a_result(tmp_path: Path) -> None:
    """What was sent is counted, though the rest is the other's."""
    path = tmp_path / "j.db"
    with Journal(path, clock=SystemClock()) as journal, another_takes_over(path) as take:

        def reply(_: object) -> Any:
            take()
            return call("note", text="a")

        went = await work(journal, lines=[reply], prompt="Go.")
        assert went.result is not None and went.ran == [] and is_paired(went.seen)
        assert (went.result.stop_reason, went.result.requests) == (StopReason.JOURNAL_FAILED, 1)
        assert "another process has taken this turn over" in went.result.text
        (entry,) = journal.ledger.entries(LedgerSpan())
        assert entry.outcome == "ok", "what became of it is kept"


@pytest.mark.promise("wait:child", "bill:wire")
async def test_a_sub_agent_whose_journal_fails_counts_what_it_sent(tmp_path: Path) -> None:
    """The parent ends likewise, and knows the child's requests."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:

        def fill(_: object) -> Any:
            forbid_writing(journal)
            return "The child's answer."

        model = ScriptedModel([call("task", agent="helper", prompt="Go."), fill], family=FAMILY)
        child = flat_agent(f"{FAMILY}:m", base_url=BASE_URL, transport=model, journal=journal)
        parent = flat_agent(
            f"{FAMILY}:m", base_url=BASE_URL, transport=model, journal=journal, agents={"helper": child}
        )
        result = await parent.run("Go.")
        forbid_writing(journal, forbidden=False)
        assert (result.stop_reason, result.own.requests, len(result.ledger)) == (StopReason.JOURNAL_FAILED, 1, 2)
        (report,) = result.children
        assert (report.stop_reason, report.requests) == (StopReason.JOURNAL_FAILED, 1)
        (said,) = [part for message in result.new_messages for part in message.parts if isinstance(part, ToolResult)]
        assert said.is_error and "The child's answer." in said.content[0].text  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_sub_agent_that_cannot_be_recorded_does_not_begin(tmp_path: Path) -> None:
    """Its call gets an error as its result; nothing of it is sent."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        model = ScriptedModel([call("task", agent="helper", prompt="Go.")], family=FAMILY)
        child = flat_agent(f"{FAMILY}:m", base_url=BASE_URL, transport=model, journal=journal)
        parent = flat_agent(
            f"{FAMILY}:m", base_url=BASE_URL, transport=model, journal=journal, agents={"helper": child}
        )

        def watch(seen: WatcherEvent) -> None:
            if isinstance(seen, ToolStarted):
                forbid_writing(journal)

        result = await parent.run("Go.", watch=watch)
        forbid_writing(journal, forbidden=False)
        assert (result.stop_reason, result.requests, len(model.asked)) == (StopReason.JOURNAL_FAILED, 1, 1)
        (said,) = [part for message in result.new_messages for part in message.parts if isinstance(part, ToolResult)]
        assert said.is_error and "JournalFailed: the tool failed" in said.content[0].text  # pyright: ignore[reportAttributeAccessIssue]


async def test_a_word_in_between_that_cannot_be_recorded_is_not_taken(tmp_path: Path) -> None:
    """`say` is false, and the turn ends: nothing that follows could be recorded either."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        said: list[bool] = []

        @tool
        async def wait() -> str:
            """Wait."""
            forbid_writing(journal)
            said.append(run.say("Stop that."))
            return "waited"

        model = ScriptedModel([call("wait"), "Never."], family=FAMILY)
        agent = flat_agent(f"{FAMILY}:m", base_url=BASE_URL, tools=[wait], transport=model, journal=journal)
        run = agent.start("Go.")
        result = await run
        forbid_writing(journal, forbidden=False)
        assert (said, result.stop_reason, len(model.asked)) == ([False], StopReason.JOURNAL_FAILED, 1)
        called, answered = results_of(result.new_messages)
        assert called == answered == [made.id for message in result.new_messages for made in calls_of(message)]


async def test_a_journal_that_cannot_take_the_beginning_is_the_callers_matter(tmp_path: Path) -> None:
    """Nothing was sent, so nothing is hidden by the error; with room again, the same session may begin."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        forbid_writing(journal)
        went = await work(journal)
        assert went.result is None and READ_ONLY in went.error and went.sent == 0
        forbid_writing(journal, forbidden=False)
        assert journal.sessions() == []
        pen = journal.begin_turn(turn_id="t1", session_id="session1", folder="/here", title="go")
        forbid_writing(journal)
        started = TurnStarted(
            config=TurnConfig(session_id="session1", turn_id="t1", model="m", **of_family("openai_chat")),
            input=(Message("user", (Text("go"),)),),
        )
        model = ScriptedModel(["Never."], family=FAMILY)
        with pytest.raises(JournalFailed, match=READ_ONLY):
            await Runner(RunnerMeans(endpoint=model.endpoint, transport=model)).run(started, journal=pen)
        forbid_writing(journal, forbidden=False)
        assert model.asked == []
        journal.begin_turn(turn_id="t2", session_id="session1", folder="/here", title="go").abandon()
        assert [turn.status for turn in journal.find_session("session1").turns] == ["lost", "lost"]
