"""Turns that wait for a worker, over a real PostgreSQL: who may run what, and when."""

import threading
from collections.abc import Callable, Iterator
from decimal import Decimal

import psycopg
import pytest

from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalFailed, TurnRefused
from turnwise.journal.owners import Claim
from turnwise.journal.postgres.connection import connect
from turnwise.settings.options import RunSettings
from turnwise.workers.ask_answers import answer, open_asks
from turnwise.workers.queue import MOST_TRIES, HeldTurn, TurnQueue, WorkerTerms
from turnwise.workers.turn_status import NO_WISHES, TurnWishes, read_wishes, status_of, write_wishes
from waits import HANG_S

ONE = WorkerTerms(name="worker@one:1:1", agents=("helper",))
TWO = WorkerTerms(name="worker@two:1:1", agents=("helper",))

RENEWED = HeldTurn(is_over=False, is_renewed=True, cancel=False)


@pytest.fixture
def other(postgres_dsn: str) -> Iterator[TurnQueue]:
    found = TurnQueue(postgres_dsn, clock=SystemClock())
    yield found
    found.close()


def change(dsn: str, sql: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"set search_path = turnwise; {sql}".encode())


def claimed(queue: TurnQueue, terms: WorkerTerms = ONE) -> Claim:
    claim = queue.claim(terms)
    assert claim is not None
    return claim


@pytest.mark.parametrize("id", ["x" * 100_000, "a\0b", "\ud800", "a\nb"], ids=["long", "nul", "half", "lines"])
def test_what_can_be_no_session_is_refused_by_name(queue: TurnQueue, postgres_dsn: str, id: str) -> None:
    """Proves: whatever takes a session's id refuses such a text in one short line as the caller's mistake, before the server
    does: that one would make a failure of the journal of it, or the whole text would stand in the message."""
    with Journal(postgres_dsn) as journal:
        questions: list[Callable[[], object]] = [
            lambda: queue.submit("Go.", agent="helper", session=id),
            lambda: queue.cancel(id),
            lambda: queue.status(id),
            lambda: open_asks(queue, id),
            lambda: answer(queue, id, [], clock=SystemClock()),
            lambda: journal.find_session(id),
            lambda: journal.find_session_by_part(id),
            lambda: journal.take_over(id),
            lambda: journal.resume_turn(id),
        ]
        for question in questions:
            with pytest.raises(CallerError, match=r"there is no|is no session id") as refused:
                question()
            assert not isinstance(refused.value, JournalFailed)
            assert len(str(refused.value)) < 250 and str(refused.value).isprintable()


def test_numbers_that_no_row_can_hold_are_refused_by_name(queue: TurnQueue) -> None:
    for question in (
        lambda: queue.submit("Go.", agent="helper", priority=2**31),
        lambda: queue.submit("Go.", agent="helper", priority=-(2**31)),
        lambda: queue.status(limit=-1),
        lambda: queue.status(limit=2**63),
    ):
        with pytest.raises(CallerError, match="must be from") as refused:
            question()
        assert not isinstance(refused.value, JournalFailed)


def test_a_turn_is_claimed_once(queue: TurnQueue, other: TurnQueue) -> None:
    """Proves: what was submitted is given to one worker whole; another one finds nothing, and `status` says who has it."""
    wishes = TurnWishes(most=RunSettings(max_steps=3, max_cost=Decimal("0.5")))
    session = queue.submit("Gö\0! %s", agent="helper", needs=[], wishes=wishes)
    claim = claimed(queue)
    assert (claim.session, claim.agent, claim.prompt, claim.epoch, claim.is_new) == (
        session,
        "helper",
        "Gö\0! %s",
        1,
        True,
    )
    assert read_wishes(claim.wishes) == wishes
    assert other.claim(TWO) is None
    (status,) = other.status(session)
    assert (status.status, status.worker, status.waits_for) == ("running", ONE.name, "")


def test_workers_that_claim_at_once_share_the_turns(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: of 24 turns each is claimed once, whichever of four workers asks, while others are still submitted."""
    found: list[Claim] = []

    def work(number: int) -> None:
        own = TurnQueue(postgres_dsn, clock=SystemClock())
        terms = WorkerTerms(name=f"worker@{number}:1:1", agents=("helper",))
        own.submit("late", agent="helper")
        while (claim := own.claim(terms)) is not None:
            found.append(claim)
        own.close()

    for number in range(20):
        queue.submit(f"{number}", agent="helper")
    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    while (claim := queue.claim(ONE)) is not None:  # one that was locked while others looked
        found.append(claim)
    assert len(found) == len({claim.session for claim in found}) == 24


def test_a_session_has_one_turn_at_a_time_in_order(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: the second turn of a session waits for the end of the first, whatever its priority; other sessions go on."""
    session = queue.submit("first", agent="helper")
    queue.submit("second", agent="helper", session=session, priority=9)
    assert claimed(queue).prompt == "first"
    assert queue.claim(TWO) is None
    assert [status.waits_for for status in queue.status(session)] == ["the turn before it", ""]
    elsewhere = queue.submit("elsewhere", agent="helper")
    assert claimed(queue, TWO).session == elsewhere
    change(postgres_dsn, f"update turn set status = 'done' where session = '{session}' and status = 'running'")
    assert claimed(queue, TWO).prompt == "second"


def test_a_turn_that_waits_for_an_answer_blocks_its_session(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: order is kept while a person is asked, and `status` says so."""
    session = queue.submit("first", agent="helper")
    claimed(queue)
    change(postgres_dsn, "update turn set status = 'waiting'")
    queue.submit("second", agent="helper", session=session)
    assert queue.claim(ONE) is None
    assert queue.status(session)[0].waits_for == "an answer to the turn before it"


def test_the_more_urgent_turn_is_claimed_first(queue: TurnQueue) -> None:
    """Proves: priorities count across sessions; among equals the older one is first."""
    for prompt, priority in (("low", -1), ("a", 0), ("b", 0), ("high", 5)):
        queue.submit(prompt, agent="helper", priority=priority)
    assert [claimed(queue).prompt for _ in range(4)] == ["high", "a", "b", "low"]


def test_a_turn_waits_for_a_worker_that_has_its_agent_and_what_it_needs(queue: TurnQueue) -> None:
    """Proves: a worker without the agent or the folder leaves the turn, and `status` says what it waits for."""
    session = queue.submit("Go", agent="special", needs=["folder:/srv/x"])
    assert queue.claim(ONE) is None
    assert queue.status(session)[0].waits_for == "a worker with the agent `special`"
    poor = WorkerTerms(name="worker@poor:1:1", agents=("special",))
    queue.renew([], terms=poor)
    assert queue.claim(poor) is None
    assert queue.status(session)[0].waits_for == "a worker with the agent `special` that offers `folder:/srv/x`"
    rich = WorkerTerms(name="worker@rich:1:1", agents=("special",), offers=("folder:/srv/x", "gpu"))
    queue.renew([], terms=rich)
    assert queue.status(session)[0].waits_for == "a free worker"
    assert claimed(queue, rich).session == session


def test_a_turn_that_is_given_back_counts_no_try(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a claim raises the epoch and giving back does not, so a turn that several workers in a row hand over, with a record
    or without, is not taken for one that kills its workers."""
    queue.submit("Go", agent="helper")
    for epoch in (1, 2):
        claim = claimed(queue)
        assert claim.epoch == epoch
        queue.release(claim)
    change(
        postgres_dsn,
        "insert into record (turn, seq, epoch, kind, body, t) select number, 1, 2, 'turn_started', '{}', 0 from turn",
    )
    for epoch in (3, 4):
        claim = claimed(queue)
        assert claim.epoch == epoch
        queue.release(claim)


@pytest.mark.promise("keep:machines")
def test_a_lock_that_a_frozen_process_holds_stops_nobody_else(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: while somebody has locked the rows of two turns and of a session, the turns of other sessions are claimed, held
    turns are renewed, and one whose own row is locked stays its worker's. Once, each claim waited for the lock until its worker
    ended itself."""
    for prompt in ("locked turn", "locked session", "held", "held and locked"):
        queue.submit(prompt, agent="helper", priority=9 if prompt.startswith("held") else 1)
    held = [claimed(queue), claimed(queue)]
    queue.submit("free", agent="helper")
    with psycopg.connect(postgres_dsn) as frozen:
        frozen.execute("set search_path = turnwise")
        frozen.execute("select 1 from turn where prompt in ('locked turn', 'held and locked') for update")
        frozen.execute("select 1 from session where title = 'locked session' for update")
        assert claimed(queue, TWO).prompt == "free"
        assert queue.claim(TWO) is None
        assert queue.renew(held, terms=ONE) == {
            held[0].number: RENEWED,
            held[1].number: HeldTurn(is_over=False, is_renewed=False, cancel=False),
        }
    assert queue.renew(held, terms=ONE) == {claim.number: RENEWED for claim in held}
    assert [claimed(queue, TWO).prompt for _ in range(2)] == ["locked turn", "locked session"]


def test_a_frozen_process_keeps_a_lock_for_five_seconds(queue: TurnQueue) -> None:
    """Proves: the server ends a transaction in which nothing happens, before those who wait for its locks give up after 10 s."""
    connection = connect(queue.address)
    found = connection.execute(
        "select current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout')"
    ).fetchone()
    connection.close()
    assert found == ("5s", "10s")


def test_a_lease_that_lapsed_is_taken_over_and_not_renewed(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: the next worker has a higher epoch; the first one's renewal, release and failure change nothing any more."""
    queue.submit("Go", agent="helper")
    first = claimed(queue)
    change(postgres_dsn, "update turn set lease_until = now() - interval '1 s'")
    second = claimed(queue, TWO)
    assert second.epoch == first.epoch + 1
    assert queue.renew([first], terms=ONE) == {}
    queue.release(first)
    queue.fail(first, problem="late")
    assert queue.renew([second], terms=TWO) == {second.number: RENEWED}
    assert queue.status()[0].status == "running"


def test_a_lapsed_lease_that_nobody_took_is_renewed(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a worker that comes late goes on if no other one has the turn, and then none gets it."""
    queue.submit("Go", agent="helper")
    claim = claimed(queue)
    change(postgres_dsn, "update turn set lease_until = now() - interval '1 s'")
    assert queue.renew([claim], terms=ONE) == {claim.number: RENEWED}
    assert queue.claim(TWO) is None


def test_a_released_turn_is_claimed_at_once(queue: TurnQueue) -> None:
    """Proves: a worker that stops hands its turn over without waiting for the lease."""
    queue.submit("Go", agent="helper")
    first = claimed(queue)
    assert first.wishes == ""
    queue.release(first)
    assert queue.status()[0].status == "queued"
    assert claimed(queue, TWO).prompt == "Go"
    assert queue.renew([first], terms=ONE) == {}


def test_a_turn_that_kills_its_workers_ends(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: after five claims without a record it is not claimed again; it has ended, and `status` says why."""
    session = queue.submit("Go", agent="helper")
    for _ in range(MOST_TRIES):
        claimed(queue)
        change(postgres_dsn, "update turn set lease_until = now() - interval '1 s'")
    assert queue.claim(ONE) is None
    (status,) = queue.status(session)
    assert status.status == "lost" and status.finished is not None
    assert status.problem == "it was claimed 5 times, and each time the worker died before anything was recorded"


def test_a_cancelled_turn_ends_or_its_worker_is_told(queue: TurnQueue) -> None:
    """Proves: a turn that waits ends at once; the worker of one that runs hears of it with its next renewal."""
    session = queue.submit("first", agent="helper")
    queue.submit("second", agent="helper", session=session)
    claim = claimed(queue)
    assert queue.cancel(session) == 2
    assert queue.renew([claim], terms=ONE) == {claim.number: HeldTurn(False, True, True)}
    assert sorted([(status.status, status.stop_reason) for status in queue.status(session)], key=str) == [
        ("done", "cancelled"),
        ("running", None),
    ]


def test_a_cancelled_turn_whose_worker_died_begins_at_no_other_one(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: nothing of it was recorded, so it ends without any worker, and the session's next turn begins."""
    session = queue.submit("first", agent="helper")
    claimed(queue)
    queue.cancel(session)
    queue.submit("second", agent="helper", session=session)
    change(postgres_dsn, "update turn set lease_until = now() - interval '1 s' where status = 'running'")
    assert claimed(queue, TWO).prompt == "second"
    assert [(status.status, status.stop_reason) for status in queue.status(session)] == [
        ("running", None),
        ("done", "cancelled"),
    ]


def test_an_unknown_session_is_refused(queue: TurnQueue) -> None:
    """Proves: a typo in an id starts no session."""
    with pytest.raises(CallerError, match="there is no session `abcd`: leave it out to start a new one"):
        queue.submit("Go", agent="helper", session="abcd")
    assert queue.status() == []


def test_what_cannot_be_read_is_shown_or_refused_and_not_left_out() -> None:
    """Proves: a row that nobody can read still says which turn of which agent it is; of wishes no limit is lost, and an amount
    that is none is refused."""
    found = status_of(["a session", "queued", "helper", 0, 17])
    assert (found.session, found.status, found.agent) == ("a session", "queued", "helper")
    assert found.problem == "its row cannot be read (ValueError)"
    assert (NO_WISHES.model, NO_WISHES.instructions, NO_WISHES.effects, NO_WISHES.most) == ("", "", None, RunSettings())
    assert read_wishes("") == NO_WISHES
    for most in (RunSettings(max_steps=3), RunSettings(max_cost=Decimal("0.5"))):
        wishes = TurnWishes(most=most)
        assert read_wishes(write_wishes(wishes)) == wishes
    for amount in ("0", "-1", "NaN", "Infinity"):
        with pytest.raises(TurnRefused, match="`max_cost` is no amount of money"):
            read_wishes(f'{{"max_cost":"{amount}"}}')
