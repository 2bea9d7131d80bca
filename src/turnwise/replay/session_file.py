"""One file that holds a session with its sub-agents: JSON lines, the first with the format's version, the last with a hash.

A line for each session, each of its turns and each record, in order; a sub-agent's session comes behind the turn that started it.
The file is a stranger's: its size is bounded, each line is decoded into the types of the journal, and nothing of it is executed.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from turnwise._version import __version__
from turnwise.base.clock import is_id
from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, JournalEntry, Session, SessionRow, TurnRow
from turnwise.journal.turn_writer import JournalRecord, events_of, with_traits
from turnwise.turn.events import Event

# A session as it was recorded: its turns with all that was written about them, and the sessions of its sub-agents.


MOST_LEVELS = 32  # of sub-agents below one another; turnwise itself starts three


class RecordedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """`children` are the sessions of its sub-agents, each with the call that it belongs to."""

    row: TurnRow
    entries: tuple[JournalEntry, ...]
    children: tuple[tuple[str, "RecordedSession"], ...] = ()

    @property
    def events(self) -> list[Event]:
        """Those alone that rebuild the turn."""
        return events_of(self.entries)


class RecordedSession(msgspec.Struct, frozen=True, kw_only=True):
    row: SessionRow
    turns: tuple[RecordedTurn, ...]


def read_recorded(journal: Journal, session: Session) -> RecordedSession:
    """All of the session that the journal has. Raises CallerError where a part of it cannot be read."""
    turns = [
        RecordedTurn(
            row=turn,
            entries=tuple(journal.entries(turn.id)),
            children=tuple([(call_id, read_recorded(journal, child)) for call_id, child in journal.children(turn.id)]),
        )
        for turn in session.turns
    ]
    return RecordedSession(row=session.row, turns=tuple(turns))


def all_sessions(session: RecordedSession) -> Iterator[RecordedSession]:
    """The session, and those below it, each before its own sub-agents."""
    yield session
    for turn in session.turns:
        for _, child in turn.children:
            yield from all_sessions(child)


VERSION = 1
FORMAT = "turnwise session"
MOST_FILE_BYTES = 256 * 1024 * 1024  # a session of 2,000 steps has 20
MOST_LINE_BYTES = 128 * 1024 * 1024  # a response may have 64 MiB, and JSON writes some characters in six


class FileHead(msgspec.Struct, frozen=True, kw_only=True, tag="head", tag_field="line"):
    """`made_by` is the turnwise that wrote it, `replaced` how many secrets have stand-ins."""

    format: str
    version: int
    made_by: str = ""
    replaced: int = 0


class SessionLine(msgspec.Struct, frozen=True, kw_only=True, tag="session", tag_field="line", omit_defaults=True):
    """`level` is 0 for the session itself, 1 for its sub-agents; these belong to `call` of the last turn one level above."""

    level: int
    row: SessionRow
    call: str = ""


class TurnLine(msgspec.Struct, frozen=True, kw_only=True, tag="turn", tag_field="line"):
    level: int
    row: TurnRow


class RecordLine(msgspec.Struct, frozen=True, kw_only=True, tag="record", tag_field="line"):
    """Of the last turn."""

    seq: int
    time: float
    record: JournalRecord


class FileEnd(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="line"):
    """`sha256` is that of all bytes before this line."""

    sha256: str


FileLine = FileHead | SessionLine | TurnLine | RecordLine | FileEnd
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(FileLine).decode
_decode_head = msgspec.json.Decoder(FileHead).decode


def write_session(path: Path, session: RecordedSession, *, replaced: int) -> None:
    """Write the file, for its owner alone, whole or not at all. Raises CallerError where one of that name is there already, or it
    cannot be written."""
    if path.exists() or path.is_symlink():
        raise CallerError(f"`{path}` exists already: choose another name, or remove it")
    head = FileHead(format=FORMAT, version=VERSION, made_by=__version__, replaced=replaced)
    digest, size = hashlib.sha256(), 0
    with in_place_of(path) as file:
        for line in (head, *_lines_of(session, level=0, call="")):
            text = _encode(line) + b"\n"
            size += len(text)
            if len(text) > MOST_LINE_BYTES or size > MOST_FILE_BYTES:
                raise CallerError(f"session `{session.row.id}` is too large for one file of {MOST_FILE_BYTES:,} bytes")
            digest.update(text)
            file.write(text)
        file.write(_encode(FileEnd(sha256=digest.hexdigest())) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _lines_of(session: RecordedSession, *, level: int, call: str) -> Iterator[FileLine]:
    yield SessionLine(level=level, row=session.row, call=call)
    for turn in session.turns:
        yield TurnLine(level=level, row=turn.row)
        for entry in turn.entries:
            yield RecordLine(seq=entry.seq, time=entry.time, record=entry.record)
        for call_id, child in turn.children:
            yield from _lines_of(child, level=level + 1, call=call_id)


def read_session_file(path: Path) -> RecordedSession:
    """The session. Raises CallerError for a file that cannot be read, is not a recorded session, is from a newer turnwise, or is
    damaged: with the line and what to do."""
    lines = _read_lines(path)
    _check_head(path, lines[0])
    body, end = lines[1:-1], lines[-1]
    try:
        last = _decode(end) if end else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        last = None
    whole = hashlib.sha256(b"".join([line + b"\n" for line in lines[:-1]])).hexdigest()
    if not isinstance(last, FileEnd):
        raise CallerError(f"`{path}` is not whole: its end is missing; get the file once more")
    if last.sha256 != whole:
        raise CallerError(f"`{path}` was changed or damaged: its hash is another one; get the file once more")
    return _Builder(path).build(body)


def _read_lines(path: Path) -> list[bytes]:
    match read_of_user(path, max_bytes=MOST_FILE_BYTES):
        case None:
            raise CallerError(
                f"`{path}` does not exist: give a file that `turnwise replay --export` wrote, or a session's id"
            )
        case LeftOut(is_too_long=True):
            raise CallerError(f"`{path}` has more than {MOST_FILE_BYTES:,} bytes: that is no file of `turnwise replay`")
        case LeftOut(why=why):
            raise CallerError(f"`{path}` {why}: give a file that `turnwise replay --export` wrote")
        case bytes() as content:
            return content.removesuffix(b"\n").split(b"\n")


def _check_head(path: Path, line: bytes) -> None:
    try:
        head = _decode_head(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        head = None
    if head is None or head.format != FORMAT:
        raise CallerError(f"`{path}` holds no session: `turnwise replay --export FILE SESSION` writes such a file")
    if head.version > VERSION:
        raise CallerError(
            f"`{path}` is from a newer turnwise ({head.made_by[:40]}; version {head.version} of the format, this one knows "
            f"{VERSION}): upgrade"
        )


class _Open(msgspec.Struct):
    """A session of which more may come. `turn` is its last one."""

    line: SessionLine
    turns: list[RecordedTurn]
    turn: TurnRow | None = None
    entries: list[JournalEntry] = []
    children: list[tuple[str, RecordedSession]] = []


class _Builder:
    """Puts the lines together again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: list[_Open] = []  # by level

    def build(self, lines: list[bytes]) -> RecordedSession:
        for number, text in enumerate(lines, start=2):
            if len(text) > MOST_LINE_BYTES:
                raise self._damaged(number, f"it has more than {MOST_LINE_BYTES:,} bytes")
            try:
                line = _decode(text)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                raise self._damaged(number, str(error)) from None
            if (why := self._take(line)) is not None:
                raise self._damaged(number, why)
        session = self._close(0)
        if session is None:
            raise CallerError(f"`{self._path}` holds no session: get the file once more")
        return session

    def _damaged(self, number: int, why: str) -> CallerError:
        return CallerError(f"`{self._path}`, line {number}: {why}; get the file once more")

    def _take(self, line: FileLine) -> str | None:
        """Why the line cannot stand there; None if it can."""
        match line:
            case SessionLine(row=row) if not is_id(row.id):
                return "the id of its session is none: one has letters, digits, `_` and `-`"
            case TurnLine(row=row) if not (is_id(row.id) and is_id(row.session)):
                return "the id of its turn or session is none: one has letters, digits, `_` and `-`"
            case SessionLine(level=level):
                above = self._open[level - 1] if 0 < level <= len(self._open) else None
                is_first = level == 0 and not self._open
                if level >= MOST_LEVELS or not (is_first or (above is not None and above.turn is not None)):
                    return "a session stands where none may stand"
                self._close(level)
                self._open.append(_Open(line=line, turns=[]))
            case TurnLine(level=level, row=row):
                if not 0 <= level < len(self._open):
                    return "a turn stands where none may stand"
                self._close(level + 1)
                _end_turn(self._open[level])
                self._open[level].turn = row
            case RecordLine(seq=seq, time=time, record=record):
                if not self._open or self._open[-1].turn is None:
                    return "a record stands where none may stand"
                self._open[-1].entries.append(JournalEntry(seq=seq, time=time, record=with_traits(record)))
            case _:
                return "a head or an end stands in the middle"
        return None

    def _close(self, level: int) -> RecordedSession | None:
        """The session of that level, whole; those below it belong to their turns now."""
        session: RecordedSession | None = None
        while len(self._open) > level:
            done = self._open.pop()
            _end_turn(done)
            session = RecordedSession(row=done.line.row, turns=tuple(done.turns))
            if self._open:
                self._open[-1].children.append((done.line.call, session))
        return session


def _end_turn(session: _Open) -> None:
    if session.turn is not None:
        session.turns.append(
            RecordedTurn(row=session.turn, entries=tuple(session.entries), children=tuple(session.children))
        )
    session.turn, session.entries, session.children = None, [], []
