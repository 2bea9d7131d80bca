"""Sessions whose events are kept, with a digest for each thing that the machine gave: the net under a rewrite of `turn/`.

A session is a line of JSON: its events, turn by turn, as the journal writes them, and one digest for each output of the
machine. An output is what a driver sees or a journal holds: the command that answers an event, and what the session is after
each turn. Replaying the events through any machine must give the same digests.
"""

import hashlib
import lzma
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import msgspec
from msgspec.structs import replace

from turnwise.errors import CallerError, TurnwiseBug
from turnwise.journal.turn_writer import with_traits
from turnwise.turn.events import Command, Event, TurnStarted
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionSoFar, Turn, fold_session

FOLDER = Path(__file__).resolve().parent / "kept"
SUFFIX = ".jsonl.xz"
DIGEST_BYTES = 4  # a difference is missed once in 4 billion outputs; a session has dozens
WIDTH = 2 * DIGEST_BYTES
# The canonical form: sets and dicts in order, everything else as it stands. What has its default is left out, as in a journal.
form_of = msgspec.json.Encoder(order="deterministic").encode


class Where(NamedTuple):
    """An output's place. `event` counts from 0, the beginning of the turn; `kind` is the event's, `what` says what was tried
    there beside the event itself."""

    turn: int
    event: int
    kind: str
    what: str = ""

    def __str__(self) -> str:
        tried = f", {self.what}" if self.what else ""
        return f"turn {self.turn}, event {self.event} ({self.kind}{tried})"


class Output(NamedTuple):
    where: Where
    form: bytes


class KeptSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a part. A session of recordings has no `turns`: they are made from the recordings, and `told` is the digest
    of what was made when the line was written. `is_tried`: interrupts, kills and words are tried at each of its places."""

    name: str
    digests: str
    turns: tuple[tuple[Event, ...], ...] = ()
    told: str = ""
    is_tried: bool = False


_decode = msgspec.json.Decoder(KeptSession).decode


def _known(event: Event) -> Event:
    """As a journal reads it: the kept sessions are of before a configuration said what its family takes."""
    return cast(Event, with_traits(event))


def digest_of(form: bytes) -> str:
    return hashlib.blake2b(form, digest_size=DIGEST_BYTES).hexdigest()


def kind_of(event: Event) -> str:
    return str(type(event).__struct_config__.tag)


def session_form(so_far: SessionSoFar) -> bytes:
    """What the next turn and the faces get of a session."""
    carried = so_far.carried
    return form_of([list(so_far.messages), so_far.asks, list(carried.messages), carried.words, carried.gave_way])


def said_by_machine(what: Command | tuple[object, ...] | Exception) -> bytes:
    """An error is known by its type, and by its words where they are the caller's to read."""
    if isinstance(what, CallerError):
        return form_of(["CallerError", str(what)])
    return form_of([type(what).__name__]) if isinstance(what, Exception) else form_of(what)


def outputs_of_turn(events: Sequence[Event], *, number: int, earlier: Carried) -> Iterator[Output]:
    """The command after each event. An error ends the turn: what comes after it has no state to meet."""
    started = events[0]
    assert isinstance(started, TurnStarted)
    where = Where(number, 0, kind_of(started))
    try:
        turn, command = Turn.start(started, earlier=earlier)
        yield Output(where, said_by_machine(command))
        for place, event in enumerate(events[1:], start=1):
            where = Where(number, place, kind_of(event))
            yield Output(where, said_by_machine(turn.receive(event)))
    except (CallerError, TurnwiseBug) as error:
        yield Output(where, said_by_machine(error))


def outputs_of(turns: Sequence[Sequence[Event]]) -> Iterator[Output]:
    """Of all events in order, and of the session after each turn."""
    earlier = Carried()
    for number, events in enumerate(turns, start=1):
        yield from outputs_of_turn(events, number=number, earlier=earlier)
        where = Where(number, len(events) - 1, kind_of(events[-1]), "the session then")
        try:
            so_far = fold_session(turns[:number])
        except (CallerError, TurnwiseBug) as error:
            yield Output(where, said_by_machine(error))
            return
        earlier = so_far.carried
        yield Output(where, session_form(so_far))


def digests_of(outputs: Iterable[Output]) -> str:
    return "".join([digest_of(output.form) for output in outputs])


def read_part(file: Path) -> Iterator[KeptSession]:
    with lzma.open(file, "rb") as lines:
        for line in lines:
            kept = _decode(line)
            yield replace(kept, turns=tuple([tuple([_known(event) for event in turn]) for turn in kept.turns]))


def write_part(file: Path, *, sessions: Iterable[KeptSession]) -> None:
    """The same sessions give the same bytes: xz holds no time and no name."""
    lines = b"".join([form_of(session) + b"\n" for session in sessions])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(lines, preset=9))


def parts_in(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))
