"""kill -9 at every write to the journal, and at drawn moments, of turns of all kinds: each goes on and ends as it would have.

The world counts what tools did, the lab what was sent. The journal is believed in nothing.
"""

import os
import random
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from crashes.dying import Ended, Order
from crashes.dying_processes import Processes, dying_processes
from crashes.turns import EFFECTS, KINDS, TELLING, World, all_scripts
from terminal.running import running_lab
from thoroughness import profile, rounds
from turnwise import Journal
from turnwise.agent.resume_lookup import read_session
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import Session
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.turn_writer import ToolsStarted
from turnwise.lab import Lab
from turnwise.turn.machine import restore
from turnwise.turn.outcomes import UNKNOWN_OUTCOME
from turnwise.vocab import Message, Text, ToolCall, ToolResult

# In the usual run one of so many places of each kind, in the check fewer; the wide one takes all.
FEWEST = 5
EVERY = 15 if profile() == "check" else FEWEST
MOST_WRITES = 200
MOMENTS = int(os.environ.get("TURNWISE_CRASH_MOMENTS") or len(rounds(60, check=6)))
LONGEST_US = (
    60_000  # a turn of these takes about half of it on a quiet machine; a later kill finds it ended, which is fine
)
MOST_LIVES = 4  # of one turn in the runs at drawn moments


class Scene(NamedTuple):
    lab: Lab
    processes: Processes


@pytest.fixture(scope="module")
def scene() -> Generator[Scene]:
    with running_lab(all_scripts()) as lab, dying_processes() as processes:
        yield Scene(lab, processes)


class Story:
    """One turn, in as many processes as it takes."""

    def __init__(self, scene: Scene, *, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._scene = scene
        self.kind = kind
        self.world = World(folder)
        self.sent_before = len(scene.lab.requests)

    def live(self, *, dies_at: int | None = None, before: bool = False, kill_after_us: int = 0) -> Ended | None:
        """The next process: it begins the turn, or goes on with it."""
        order = Order(
            kind=self.kind,
            url=f"{self._scene.lab.url}/v1",
            folder=str(self.world.folder),
            session=self.session_left(),
            dies_at=dies_at,
            before=before,
        )
        ended = self._scene.processes(order, kill_after_us=kill_after_us)
        assert ended is None or not ended.error, ended.error
        return ended

    def session_left(self) -> str:
        """The session to go on with; empty where none was begun."""
        if not (self.world.folder / "journal.db").exists():
            return ""
        with self.journal() as journal:
            rows = journal.sessions()
            return rows[0].id if rows else ""

    def is_over(self) -> bool:
        with self.journal() as journal:
            rows = journal.sessions()
            return bool(rows) and rows[0].status not in ("running", "lost")

    def journal(self) -> Journal:
        return Journal(self.world.folder / "journal.db", clock=SystemClock())

    @property
    def sent(self) -> int:
        return len(self._scene.lab.requests) - self.sent_before


class Told(NamedTuple):
    """What the sessions of a turn say of its calls."""

    names: Counter[str]  # results by the name in the call's arguments
    unknown: Counter[str]  # of those: told as unknown


def calls_told(journal: Journal, session: Session) -> Told:
    """Of the session and those below it. Each call has one result."""
    names, unknown = Counter[str](), Counter[str]()
    messages: Sequence[Message] = read_session(journal, session).messages
    calls = {part.id: part for message in messages for part in message.parts if isinstance(part, ToolCall)}
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
    assert len({result.call_id for result in results}) == len(results), "a call has two results"
    for result in results:
        said = "".join([part.text for part in result.content if isinstance(part, Text)])
        name = calls[result.call_id].arguments
        names[name] += 1
        unknown[name] += UNKNOWN_OUTCOME in said
    for turn in session.turns:
        for _, child in journal.children(turn.id):
            below = calls_told(journal, child)
            names += below.names
            unknown += below.unknown
    return Told(names, +unknown)


def begun_calls(journal: Journal, session: Session) -> set[str]:
    """The ids of the calls whose start was recorded, of the session and those below it."""
    begun: set[str] = set()
    for turn in session.turns:
        for entry in journal.entries(turn.id):
            if isinstance(entry.record, ToolsStarted):
                assert len(entry.record.call_ids) == 1, "each start is a record of its own"
                begun.update(entry.record.call_ids)
        for _, child in journal.children(turn.id):
            begun |= begun_calls(journal, child)
    return begun


class Usual(NamedTuple):
    """How a turn ends that nobody kills, and what it does to the world."""

    ended: Ended
    effects: frozenset[str]
    files: dict[str, str]


def check(story: Story, ended: Ended, *, usual: Usual, died: str) -> None:
    """What must hold of every turn, wherever it was killed."""
    where = f"{story.kind}, killed {died}"
    effects = Counter(story.world.lines(EFFECTS))
    assert all(times == 1 for times in effects.values()), f"{where}: done twice: {effects}"
    assert story.world.files() == usual.files, where
    with story.journal() as journal:
        session = journal.find_session(ended.session)
        (turn,) = session.turns
        assert turn.status == ("waiting" if ended.pending else "done"), where
        told = calls_told(journal, session)
        assert story.kind not in TELLING or not told.unknown, where
        of_programs = story.kind == "program"  # one that fails in its middle leaves the rest undone
        assert of_programs or len(usual.effects - effects.keys()) <= sum(told.unknown.values()) <= 3, (
            f"{where}: not done, and not told"
        )
        if not told.unknown:
            assert (ended.text, ended.stop_reason) == (usual.ended.text, usual.ended.stop_reason), where
        assert (ended.stop_reason, ended.complete) == (usual.ended.stop_reason, usual.ended.complete), where
        replayed, _ = restore(journal.events(turn.id))
        assert replayed.result is not None and replayed.result.text == ended.text, where
        begun = begun_calls(journal, session)
        for call_id in unknown_ids(journal, session):  # a program tells it of the calls that it made
            is_begun = call_id in begun or any(one.startswith(f"{call_id}/") for one in begun)
            assert is_begun, f"{where}: what had not started is told as unknown"
        entries = journal.ledger.entries(LedgerSpan(session=ended.session))
        lost = [entry for entry in entries if entry.outcome == "lost"]
        assert all(entry.outcome for entry in entries), f"{where}: a request without an outcome"
        assert len(entries) - len(lost) <= story.sent <= len(entries), (
            f"{where}: {story.sent} sent, {len(entries)} entered"
        )


def unknown_ids(journal: Journal, session: Session) -> list[str]:
    found = [
        part.call_id
        for message in read_session(journal, session).messages
        for part in message.parts
        if isinstance(part, ToolResult)
        and any(isinstance(one, Text) and UNKNOWN_OUTCOME in one.text for one in part.content)
    ]
    for turn in session.turns:
        for _, child in journal.children(turn.id):
            found += unknown_ids(journal, child)
    return found


def play(scene: Scene, *, kind: str, folder: Path, every: int) -> int:
    """Kill it at each of the places, and go on; how many there were."""
    first = Story(scene, kind=kind, folder=folder / "usual")
    lived = first.live()
    assert lived is not None and lived.writes < MOST_WRITES
    usual = Usual(lived, frozenset(first.world.lines(EFFECTS)), first.world.files())
    check(first, lived, usual=usual, died="never")
    places = [(at, before) for at in range(1, lived.writes + 1) for before in (True, False)]
    chosen = places[random.Random(kind).randrange(every) :: every]
    for at, before in chosen:
        died = f"{'before' if before else 'behind'} write {at}"
        story = Story(scene, kind=kind, folder=folder / f"{at}-{before}")
        ended = story.live(dies_at=at, before=before)
        if ended is None and story.session_left():
            ended = None if story.is_over() else story.live()
        if ended is not None:
            check(story, ended, usual=usual, died=died)
    return len(chosen)


@pytest.mark.promise("keep:crash", "bill:wire", "step:every-call-answered")
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_killed_at_a_write_goes_on(scene: Scene, tmp_path: Path, kind: str) -> None:
    """Proves: whichever write to the journal is the process's last, the turn ends as it would have, nothing is done twice, and
    the bill is true. A sample of the places."""
    assert play(scene, kind=kind, folder=tmp_path, every=EVERY)


@pytest.mark.wide
@pytest.mark.promise("keep:crash", "bill:wire")
@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_killed_at_any_write_goes_on(scene: Scene, tmp_path: Path, kind: str) -> None:
    """Proves the same of every place."""
    assert play(scene, kind=kind, folder=tmp_path, every=1) > FEWEST


def at_moments(scene: Scene, *, folder: Path, number: int, seed: int) -> None:
    chance = random.Random(seed)
    usual: dict[str, Usual] = {}
    for place in range(number):
        kind = KINDS[place % len(KINDS)]
        if kind not in usual:
            first = Story(scene, kind=kind, folder=folder / f"usual-{kind}")
            ended = first.live()
            assert ended is not None
            usual[kind] = Usual(ended, frozenset(first.world.lines(EFFECTS)), first.world.files())
        story = Story(scene, kind=kind, folder=folder / str(place))
        moments = [chance.randrange(500, LONGEST_US) for _ in range(MOST_LIVES - 1)]
        ended = None
        for moment in (*moments, 0):
            ended = story.live(kill_after_us=moment)
            if ended is not None or (story.session_left() and story.is_over()):
                break
        if ended is not None:
            check(story, ended, usual=usual[kind], died=f"after {moments} us")


@pytest.mark.costly
@pytest.mark.promise("keep:crash", "bill:wire")
def test_turns_killed_at_drawn_moments_go_on(scene: Scene, tmp_path: Path) -> None:
    """Proves: the moment does not matter; a turn may be killed several times."""
    at_moments(scene, folder=tmp_path, number=MOMENTS, seed=20)
