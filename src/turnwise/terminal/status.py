"""`turnwise status`: the submitted turns, and what they wait for."""

import asyncio
import contextlib
import sys
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import click
import msgspec

from turnwise.agent.followed_session import watch_session
from turnwise.agent.resume_lookup import read_session
from turnwise.base.clock import SystemClock
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import confusables_in, decoded_texts
from turnwise.coding_agent.run_events import text_of_result
from turnwise.coding_agent.shown_work import diff_title
from turnwise.coding_agent.text import clean, clean_row, shortened, visible_line
from turnwise.errors import JournalFailed
from turnwise.journal.journal import Journal
from turnwise.replay.replayed_events import PersonSpoke, SessionEvent, TextPiece
from turnwise.running.watcher_events import (
    AskClosed,
    AskOpened,
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FilesChanged,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    RunNoted,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolsetNoted,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.terminal.command_options import json_option
from turnwise.terminal.databases import as_database_failure, checked_dsn, database_option, labels_given, open_queue
from turnwise.terminal.events import JsonLines
from turnwise.terminal.failures import FAILED, Failure, as_one_line
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.terminal.usage import Column, lines_of_table, width_of
from turnwise.vocab import Refusal, Text, TextDelta
from turnwise.workers.open_asks import ShownAsk
from turnwise.workers.turn_status import (
    A_PERSON,
    A_PERSON_BELOW,
    ALL_TURNS,
    STATES,
    QueueTotals,
    TurnFilter,
    TurnStatus,
)

if TYPE_CHECKING:
    from turnwise.workers.queue import TurnQueue

# The events of a session that runs elsewhere, one line each: short lines for people, those of `run --json` for programs.


SHOWN_CHARACTERS = 200  # characters of arguments, results and texts: the session has all of them


class EventLines:
    """Writes each event to standard output at once."""

    def __init__(self, *, as_json: bool) -> None:
        self._shown = ("", 0, 0)  # the turn and the request whose pieces were shown last, and how many characters
        self._is_in_line = False
        self._place: dict[str, object] = {"n": 0}
        self._json = JsonLines(within=self._place) if as_json else None

    def __call__(self, event: SessionEvent) -> None:
        self._place.update(n=event.number, turn=event.turn)
        seen = event.seen
        if isinstance(seen, TextPiece):
            self._show_piece(event.turn, seen)
        elif self._json is None:
            self.end_line()
            line = _spoken(seen) if isinstance(seen, PersonSpoke) else _seen(seen)
            if line and not self._has_shown(event):
                sys.stdout.write(f"  {clean_row(line)}\n")
                sys.stdout.flush()
        elif isinstance(seen, PersonSpoke):
            sys.stdout.write(msgspec.json.encode(_spoken_as_data(seen) | self._place).decode() + "\n")
            sys.stdout.flush()
        else:
            self._json(seen)

    def _show_piece(self, turn: str, piece: TextPiece) -> None:
        """For people, pieces that follow each other stand in one line. A piece that does not continue them is left out."""
        if self._json is not None:
            told = {"event": "text_piece", "request": piece.request, "at": piece.at, "text": piece.text}
            _write(told | self._place)
        elif piece.at == 0 or self._shown == (turn, piece.request, piece.at):
            before = "" if self._is_in_line and piece.at else "  says: "
            sys.stdout.write(before + clean_row(visible_line(piece.text)))
            sys.stdout.flush()
            self._shown, self._is_in_line = (turn, piece.request, piece.at + len(piece.text)), True

    def end_line(self) -> None:
        """End the line of pieces, if it is open."""
        if self._is_in_line:
            sys.stdout.write("\n")
            self._is_in_line = False

    def _has_shown(self, event: SessionEvent) -> bool:
        """Whether the pieces have shown all of the text that the event tells."""
        match event.seen:
            case FrameSeen(number=number, frame=TextDelta(text=text)):
                return self._shown == (event.turn, number, len(text))
            case _:
                return False


def _spoken_as_data(spoke: PersonSpoke) -> dict[str, object]:
    if spoke.words:
        return {"event": "words", "text": spoke.words}
    answers = [
        {"id": ask.call.id, "name": ask.call.name, "verdict": None if given is None else given.verdict}
        for ask, given in spoke.asked
    ]
    return {"event": "answers", "answers": answers}


def _spoken(spoke: PersonSpoke) -> str:
    if spoke.words:
        return f"a word in between: {_short(spoke.words)}"
    answers = [f"{ask.call.name}: {'no answer' if given is None else given.verdict}" for ask, given in spoke.asked]
    return f"answered: {_short(', '.join(answers))}"


def _seen(seen: WatcherEvent) -> str:
    """Empty for an event that needs no line."""
    match seen:
        case StepStarted(step=step):
            return f"step {step}"
        case ToolStarted(call=call):
            return f"{visible_line(call.name)} {_short(call.arguments)}"
        case ToolFinished(result=result) | CallAnswered(result=result):
            return f"{visible_line(result.name)} {'failed' if result.is_error else 'gave'}: {_short(text_of_result(result))}"
        case FrameSeen(frame=TextDelta(text=text)):
            return f"says: {_short(text)}"
        case RequestFinished(fault=fault) if fault is not None:
            return f"request {seen.number} failed: {_short(fault.message)}"
        case AttemptDiscarded(retry_in_s=retry_in_s):
            return f"request {seen.number} is sent again in {retry_in_s:g} s"
        case AskOpened(call=call, question=question):
            return f"{visible_line(call.name)} asks: {_short(question)}"
        case AskClosed(answer=answer):
            return f"answered by {answer.by}: {answer.verdict} {_short(answer.text)}".rstrip()
        case FilesChanged():
            return diff_title(seen)
        case ToolsetNoted(text=text) | RunNoted(text=text):
            return _short(text)
        case FrameSeen() | RequestStarted() | RequestFinished() | ToolProgress() | TurnFinished() | ChildSeen():
            return ""
        case _:
            assert_never(seen)


def _short(text: str) -> str:
    return shortened(visible_line(text), limit=SHOWN_CHARACTERS)


LOOK_AGAIN_S = 0.5
GIVE_UP_S = 60.0  # without the database
MOST_NUMBER = 2**31 - 1
SHOWN = 50
OPEN = ("queued", "running")
LONGEST_AGE_S = 10**9
ANSWERED = {"allow": "allowed", "deny": "denied"}

STATUS_EPILOG = """\b
Examples:
  turnwise status
  turnwise status --state waiting --agent helper --label team=sales
  turnwise status 019aa1b2c3d4e5f60718293a4b
  turnwise status 019aa1b2c3d4e5f60718293a4b --follow --json

Without a session, it begins with how many turns wait and run, by agent and state, and with the workers. Turns that have ended are
not counted. With --agent or --label, they are shown only with `--state ended`.

With --follow it waits until no turn of the session is open. It writes the session's events, from the first one or from number
N, and then the answer. You can stop it and start it again at any time.

\b
Exit codes:
  0  shown; with --follow: the last turn is complete
  1  the database failed; with --follow: the last turn is not complete
  2  wrong use, or no such session"""


@click.command(cls=EndsWithLine, epilog=STATUS_EPILOG)
@click.argument("session", default="")
@database_option
@click.option("--follow", is_flag=True, help="Wait for the end of the session's turns, and print the answer.")
@click.option(
    "--from",
    "first",
    type=click.IntRange(1, MOST_NUMBER),
    metavar="N",
    help="With --follow: begin with the event of this number. [default: 1]",
)
@click.option("--state", type=click.Choice(STATES), help="Without a session: only turns in this state.")
@click.option("--agent", default="", metavar="NAME", help="Without a session: only turns of this agent.")
@click.option(
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=TEXT",
    help="Without a session: only turns of sessions with this label. May be repeated.",
)
@json_option("One JSON object for the totals, and one a turn or event, on one line each.")
def status_command(
    session: str,
    database: str | None,
    follow: bool,
    first: int | None,
    state: str | None,
    agent: str,
    labels: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show how the queue stands and the turns that were submitted, the latest first, or the turns of SESSION."""
    if follow and not session:
        raise Failure("`--follow` needs a session")
    if first is not None and not follow:
        raise Failure("`--from` needs `--follow`")
    with as_one_line(), open_queue(database) as queue:
        only = TurnFilter(state=state or "", agent=agent, labels=labels_given(labels))
        if not session:
            totals = queue.totals(only=only)
            for line in [totals] if as_json else totals_said(totals):
                _write(line)
        turns = queue.status(session, limit=SHOWN, only=only)
        if session and not turns:
            raise Failure(f"no turn of a session `{session}` was submitted")
        _show_all(turns, as_json=as_json, is_filtered=only != ALL_TURNS)
        if follow:
            following = _Following(queue, session=session, turns=turns, as_json=as_json)
            run_to_end(following.run(checked_dsn(database), after=(first or 1) - 1))
            turns = following.turns
    if session and not any(is_open(turn) for turn in turns):
        with as_one_line(), as_database_failure():
            answer = _answer(checked_dsn(database), session)
        if as_json or answer:
            _write({"session": session, "answer": answer} if as_json else answer)
        if follow and not turns[0].complete:
            sys.exit(FAILED)


class _Following:
    """Writes the events of a session, and the state of its turns whenever that changes. `turns` is their current state."""

    def __init__(self, queue: "TurnQueue", *, session: str, turns: list[TurnStatus], as_json: bool) -> None:
        self._queue, self._session, self._as_json = queue, session, as_json
        self._show = EventLines(as_json=as_json)
        self.turns = turns

    async def run(self, dsn: str, *, after: int) -> None:
        looking = asyncio.create_task(self._look_on())
        try:
            async for event in watch_session(dsn, self._session, after=after, pieces=True, give_up_s=GIVE_UP_S):
                self._show(event)
        finally:
            looking.cancel()
            await asyncio.wait([looking])
        await self._look()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_AGAIN_S)
            with contextlib.suppress(JournalFailed):  # the other connection says so, if the problem lasts
                await self._look()

    async def _look(self) -> None:
        turns = await asyncio.to_thread(self._queue.status, self._session, limit=SHOWN)
        before, self.turns = self.turns, turns
        changed = [turn for turn in turns if turn not in before]
        if changed:
            self._show.end_line()
        _show_all(changed, as_json=self._as_json, is_change=True)


def is_open(turn: TurnStatus) -> bool:
    """Whether more events may come: a turn that waits for a person continues when the time is over."""
    return turn.status in OPEN or bool(turn.asks)


def _show_all(turns: list[TurnStatus], *, as_json: bool, is_change: bool = False, is_filtered: bool = False) -> None:
    if not turns and not as_json and not is_change:
        say("no such turn was submitted" if is_filtered else "no turn was submitted yet: `turnwise submit` does it")
    for turn in turns:
        _write(turn if as_json else line_of(turn))
        for line in [] if as_json else asks_said(turn):
            _write(line)


def totals_said(totals: QueueTotals) -> list[str]:
    """Two tables: the turns by agent and state, and the workers. A table without rows is left out."""
    rows = totals.turns
    agents = Column(name="agent", cells=[visible_line(one.agent) for one in rows])
    of_turns = [
        Column(name="state", cells=[one.state for one in rows], align="left"),
        Column(name="turns", cells=[f"{one.turns:,}" for one in rows]),
        Column(name="oldest", cells=[_age_said(one.oldest_s) for one in rows]),
    ]
    names = Column(name="worker", cells=[visible_line(one.name) for one in totals.workers])
    of_workers = [
        Column(name="runs", cells=[str(len(one.sessions)) for one in totals.workers]),
        Column(
            name="sessions",
            cells=[shortened(visible_line(" ".join(one.sessions)), limit=SHOWN_CHARACTERS) for one in totals.workers],
            align="left",
            rank=1,
        ),
    ]
    said: list[str] = []
    for name, columns in ((agents, of_turns), (names, of_workers)):
        if name.cells:
            said += [*lines_of_table(name, columns, width=width_of(sys.stdout), stream=sys.stdout), ""]
    return said


def _age_said(age_s: float) -> str:
    """The age of a turn, unless its row says something else."""
    return str(timedelta(seconds=int(age_s))) if 0 <= age_s < LONGEST_AGE_S else "unknown"


def line_of(turn: TurnStatus) -> str:
    """The state of the turn in one line, whatever the database holds."""
    said = [turn.session, turn.agent, turn.stop_reason or turn.status]
    if turn.waits_for:
        said.append(f"waits for {turn.waits_for}")
    if turn.worker:
        said.append(f"at {turn.worker}")
    if turn.cancel and turn.status == "running":
        said.append("is being cancelled")
    if turn.problem:
        said.append(turn.problem)
    return visible_line("  ".join(said))


def _answer(dsn: str, session: str) -> str:
    with Journal(dsn, clock=SystemClock()) as journal:
        messages = read_session(journal, journal.find_session(session)).messages
    if not messages or messages[-1].role != "assistant":
        return ""
    return "".join([part.text for part in messages[-1].parts if isinstance(part, Text | Refusal)])


def _write(value: Any) -> None:
    line = clean(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def asks_said(turn: TurnStatus) -> list[str]:
    """What the turn asks, in words a person can judge: a line for each ask, and how to answer. Empty if nothing is asked."""
    said: list[str] = []
    for (path, folder, until), asks in groupby(turn.asks, key=lambda ask: (ask.path, ask.folder, ask.until)):
        who = f"{visible_line('/'.join(path))} asks" if path else "asks"
        when = "" if until is None else f", until {datetime.fromtimestamp(until):%Y-%m-%d %H:%M:%S}"
        said.append(f"  {who}, in {visible_line(folder or 'a folder that is not known')}{when}:")
        said += [line for ask in asks for line in _ask_said(ask)]
    if turn.asks and turn.waits_for not in (A_PERSON, A_PERSON_BELOW):
        return [*said, "  it takes no answer any more: everything is answered, or its time is over"]
    first = next((ask for ask in turn.asks if not ask.answer), None)
    if first is not None and first.kind == "question":
        said.append(
            f"  answer: turnwise answer {visible_line(turn.session)} --reply {visible_line(first.id)}@{first.mark} "
            '"TEXT"  (or --deny)'
        )
    elif first is not None:
        said.append(
            f"  answer: turnwise answer {visible_line(turn.session)} --approve {visible_line(first.id)}@{first.mark}  (or --deny)"
        )
    return said


def _ask_said(ask: ShownAsk) -> list[str]:
    """Shows all of the arguments, because a person must see everything to judge. Words that look like others are marked."""
    answer = f"  ({ANSWERED.get(ask.answer, ask.answer)})" if ask.answer else ""
    if ask.kind == "question":
        options = [f"      {number}. {visible_line(option)}" for number, option in enumerate(ask.options, 1)]
        said = [f"    {visible_line(ask.id)}@{ask.mark}  asks: {visible_line(ask.subject)}{answer}", *options]
    else:
        said = [
            f"    {visible_line(ask.id)}@{ask.mark}  {visible_line(ask.tool)} {visible_line(ask.arguments)}{answer}",
            *([f"      {visible_line(ask.why)}"] if ask.why else []),
        ]
    texts = [ask.tool, *decoded_texts(ask.arguments), ask.subject, *ask.options]
    marks = confusables_in(texts, folder=lambda: Path(ask.folder))
    return [*map(marks.mark, said), *[f"      {line}" for line in marks.lines]]
