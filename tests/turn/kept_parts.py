"""The parts of the kept sessions: what each is made of, how it is written, and how it is compared with the machine of today."""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import msgspec

from lab.failing import FAMILIES
from turn.kept_corpus import Recorded, played, recorded_in, stood_in
from turn.kept_drawing import WAYS, draw_session, draw_world
from turn.kept_lab import lab_sessions
from turn.kept_sessions import (
    FOLDER,
    SUFFIX,
    WIDTH,
    KeptSession,
    Output,
    digest_of,
    digests_of,
    outputs_of,
    read_part,
    write_part,
)
from turn.kept_tries import outputs_of_tries
from turnwise.turn.events import Event

DRAWN = 5_000
IN_A_PART = 250
WORLDS = 1_000
TRIED_EACH = 13  # one of so many sessions is tried at all of its places; of each way, so no multiple of their number
TRIED_EVENTS = 40  # a longer one is not: each place is reached anew, from the beginning
RECORDINGS = "recordings"
STAND_INS = "stand-ins"
ALLOWED = FOLDER / "allowed.toml"
Turns = Sequence[Sequence[Event]]


class Difference(NamedTuple):
    """The first output of a session that is not what was kept. `place` counts its outputs; the form is the new one's."""

    session: str
    place: int
    where: str
    form: bytes
    about: str = ""

    @property
    def key(self) -> str:
        """As the list of allowed differences names it."""
        return f"{self.session}: {self.where}"


class Compared(NamedTuple):
    sessions: int
    outputs: int
    differences: tuple[Difference, ...]


class AllowedDifference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bug of the machine that made the kept digests: what differs now, why the old output was wrong, and the test that
    shows it."""

    sessions: tuple[str, ...]
    why: str
    test: str


def part_names() -> list[str]:
    drawn = [f"drawn-{number:02d}" for number in range(DRAWN // IN_A_PART)]
    return [*drawn, "worlds", "lab", STAND_INS, RECORDINGS]


def file_of(part: str, *, folder: Path = FOLDER) -> Path:
    return folder / f"{part}{SUFFIX}"


# writing


def make_part(part: str, *, corpus: Path | None) -> Iterator[KeptSession]:
    """The sessions of a part, with the digests of the machine at hand."""
    match part.partition("-"):
        case ("drawn", _, number):
            for seed in range(int(number) * IN_A_PART, (int(number) + 1) * IN_A_PART):
                way = tuple(WAYS)[seed % len(WAYS)]
                yield _kept(f"drawn {seed} {way}", draw_session(way, seed=seed), is_tried=seed % TRIED_EACH == 0)
        case ("worlds", _, _):
            for seed in range(WORLDS):
                yield _kept(f"world {seed}", draw_world(seed), is_tried=seed % TRIED_EACH == 0)
        case ("lab", _, _):
            for name, turns in lab_sessions():
                yield _kept(name, turns, is_tried=_is_tried_family(name))
        case _:
            for recorded in _recorded(part, corpus=corpus):
                digests = digests_of(outputs_of(played(recorded)))
                yield KeptSession(name=recorded.name, digests=digests, told=recorded.told)


def _recorded(part: str, *, corpus: Path | None) -> Iterator[Recorded]:
    if part == STAND_INS:
        return stood_in()
    assert corpus is not None, "there are no recordings here"
    return recorded_in(corpus)


def _is_tried_family(name: str) -> bool:
    """One of a script's families, not the same of each script."""
    script, family, way = name.split()
    return way == "stream" and FAMILIES[len(script) % len(FAMILIES)] == family


def _kept(name: str, turns: tuple[tuple[Event, ...], ...], *, is_tried: bool) -> KeptSession:
    is_tried = is_tried and sum(map(len, turns)) <= TRIED_EVENTS
    return KeptSession(
        name=name, digests=digests_of(_outputs(turns, is_tried=is_tried)), turns=turns, is_tried=is_tried
    )


def write(part: str, *, corpus: Path | None, folder: Path = FOLDER) -> Path:
    file = file_of(part, folder=folder)
    write_part(file, sessions=make_part(part, corpus=corpus))
    return file


# comparing


def compare(part: str, *, corpus: Path | None, folder: Path = FOLDER) -> Compared:
    """Each kept session of the part, through the machine of today."""
    kept = read_part(file_of(part, folder=folder))
    if part in (RECORDINGS, STAND_INS):
        known = {session.name: session for session in kept}
        return _compared_recordings(known, recorded=_recorded(part, corpus=corpus))
    sessions = outputs = 0
    found: list[Difference] = []
    for session in kept:
        sessions += 1
        outputs += len(session.digests) // WIDTH
        if (difference := difference_in(session, outputs=outputs_of_session(session))) is not None:
            found.append(difference)
    return Compared(sessions, outputs, tuple(found))


def outputs_of_session(session: KeptSession) -> Iterator[Output]:
    return _outputs(session.turns, is_tried=session.is_tried)


def _outputs(turns: Turns, *, is_tried: bool) -> Iterator[Output]:
    return chain(outputs_of(turns), outputs_of_tries(turns) if is_tried else ())


def difference_in(session: KeptSession, *, outputs: Iterable[Output], about: str = "") -> Difference | None:
    place, digests = -1, session.digests
    last = "its beginning"
    for place, (where, form) in enumerate(outputs):
        last = str(where)
        if digests[place * WIDTH : (place + 1) * WIDTH] != digest_of(form):
            return Difference(session.name, place, last, form, about)
    if (place + 1) * WIDTH != len(digests):
        return Difference(session.name, place + 1, f"nothing comes after {last}", b"null", about)
    return None


def _compared_recordings(kept: dict[str, KeptSession], *, recorded: Iterable[Recorded]) -> Compared:
    found: list[Difference] = []
    seen: set[str] = set()
    for one in recorded:
        seen.add(one.name)
        session = kept.get(one.name)
        if session is None or session.told != one.told:
            where = "the recording is new" if session is None else "the decoders read the recording otherwise"
            found.append(
                Difference(one.name, 0, f"{where}: write this part anew, the machine is not judged", b"null", one.about)
            )
        elif (difference := difference_in(session, outputs=outputs_of(played(one)), about=one.about)) is not None:
            found.append(difference)
    found += [Difference(name, 0, "the recording is gone", b"null") for name in sorted(kept.keys() - seen)]
    return Compared(len(seen), sum([len(one.digests) // WIDTH for one in kept.values()]), tuple(found))


# allowed differences


def allowed_differences(file: Path = ALLOWED) -> tuple[AllowedDifference, ...]:
    listed = tomllib.loads(file.read_text(encoding="utf-8")).get("difference", [])
    return msgspec.convert(listed, tuple[AllowedDifference, ...])


def without_parts(text: str, *, parts: Iterable[str]) -> str:
    """The list, as its file has it, without these parts: their digests were made anew, so nothing of them differs."""
    made = frozenset(parts)
    found = [text.partition("\n[[difference]]")[0].rstrip() + "\n"]
    for one in msgspec.convert(tomllib.loads(text).get("difference", []), tuple[AllowedDifference, ...]):
        if left := [key for key in one.sessions if part_of(key) not in made]:
            sessions = "".join([f"    {_quoted(key)},\n" for key in left])
            found.append(
                f"\n[[difference]]\nsessions = [\n{sessions}]\nwhy = {_quoted(one.why)}\ntest = {_quoted(one.test)}\n"
            )
    return "".join(found)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def judge(
    differences: Sequence[Difference], *, allowed: Sequence[AllowedDifference], is_of_part: Callable[[str], bool]
) -> tuple[list[Difference], list[str]]:
    """Those that nobody allowed, and those of the list that do not differ (any more) in the parts that were compared."""
    listed = {key for one in allowed for key in one.sessions}
    found = {one.key for one in differences}
    stale = sorted([key for key in listed - found if is_of_part(key)])
    return [one for one in differences if one.key not in listed], stale


def part_of(key: str) -> str:
    """The part that a session is in, by its name or by what the list of allowed differences says of it."""
    kind, _, rest = key.partition(" ")
    if kind == "drawn":
        return f"drawn-{int(rest.split()[0]) // IN_A_PART:02d}"
    return {"world": "worlds", "recording": RECORDINGS, "stand-in": STAND_INS}.get(kind, "lab")
