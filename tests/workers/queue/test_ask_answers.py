"""What a turn asks a person, and the answers, over a real PostgreSQL."""

import threading
from collections.abc import Iterator

import psycopg
import pytest

from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError, JournalFailed
from turnwise.journal.owners import Claim
from turnwise.turn.config import Approval, OneAsk
from turnwise.vocab import ToolCall
from turnwise.workers.ask_answers import answer, open_asks
from turnwise.workers.open_asks import AskedElsewhere, read_answers, read_asked
from turnwise.workers.queue import TurnQueue, WorkerTerms
from waits import HANG_S

ONE = WorkerTerms(name="worker@one:1:1", agents=("helper",))
TWO = WorkerTerms(name="worker@two:1:1", agents=("helper",))
CLOCK = SystemClock()


@pytest.fixture
def other(postgres_dsn: str) -> Iterator[TurnQueue]:
    found = TurnQueue(postgres_dsn, clock=CLOCK)
    yield found
    found.close()


def asking(*ids: str) -> AskedElsewhere:
    asks = [OneAsk(call=ToolCall(id=id, name="do"), arguments="{}", subject="do", digest=f"of {id}") for id in ids]
    return AskedElsewhere(asks=tuple(asks), folder="/srv/ä b")


def parked(queue: TurnQueue, dsn: str, *ids: str, deadline_s: float = 600.0) -> Claim:
    """A turn that has begun, and asks."""
    queue.submit("Go.", agent="helper")
    claim = queue.claim(ONE)
    assert claim is not None
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into turnwise.record values (%s, 1, 1, 'any', '{}', 0)", (claim.number,))
    queue.park(claim, asked=asking(*ids), deadline_s=deadline_s)
    return claim


def allow(id: str, *, digest: str = "") -> Approval:
    return Approval(call_id=id, verdict="allow", digest=digest)


def test_an_answered_turn_goes_on_with_its_answers(queue: TurnQueue, other: TurnQueue, postgres_dsn: str) -> None:
    """Proves: nobody claims a turn that asks; once all is answered any worker does, with the answers bound to what was asked, and
    the one that asked has it no more."""
    asked = parked(queue, postgres_dsn, "a", "b")
    assert queue.renew([asked], terms=ONE)[asked.number].is_over and other.claim(TWO) is None
    (status,) = other.status(asked.session)
    assert (status.waits_for, status.asks_folder, [ask.id for ask in status.asks]) == (
        "a person's answer",
        "/srv/ä b",
        ["a", "b"],
    )
    assert status.asks_until is not None and status.asks_until == status.asks[0].until > CLOCK.now()
    assert answer(other, asked.session, [allow("b")], clock=CLOCK) == 1
    assert other.claim(TWO) is None
    assert [ask.answer for ask in other.status(asked.session)[0].asks] == ["", "allow"]
    assert answer(queue, asked.session, [Approval(call_id="a", verdict="deny", text="no")], clock=CLOCK) == 0
    with pytest.raises(CallerError, match="takes no answer any more: it was answered already"):
        answer(queue, asked.session, [allow("a")], clock=CLOCK)
    claim = other.claim(TWO)
    assert claim is not None and claim.epoch == asked.epoch + 1
    assert claim.asked == (("a", "of a"), ("b", "of b"))
    assert [(one.call_id, one.verdict, one.digest) for one in claim.answers] == [
        ("b", "allow", "of b"),
        ("a", "deny", "of a"),
    ]
    with pytest.raises(JournalFailed, match="another process has taken this turn over"):
        queue.park(asked, asked=asking("c"), deadline_s=1.0)


def test_of_answers_at_once_one_counts(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: of eight people who answer the same ask at the same time one is heard, and seven are told so."""
    asked = parked(queue, postgres_dsn, "a", "b")
    told: list[str] = []

    def say() -> None:
        own = TurnQueue(postgres_dsn, clock=CLOCK)
        try:
            told.append(f"{answer(own, asked.session, [allow('a')], clock=CLOCK)} left")
        except CallerError as error:
            told.append(str(error))
        finally:
            own.close()

    threads = [threading.Thread(target=say) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert sorted(told) == ["1 left", *["`a` was answered already (allowed): the first answer counts"] * 7]


def test_an_answer_is_for_what_is_asked(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: an answer for another call, for what was shown before, or without a decision, is refused with all that came
    along."""
    asked = parked(queue, postgres_dsn, "a", "b")
    for wrong, why in (
        (allow("c"), "asks nothing about `c`; it asks about a, b"),
        (allow("a", digest="of what was"), "what is asked now is not what the answer is for"),
        (Approval(call_id="a", verdict="later"), "`later` is no answer here"),
    ):
        with pytest.raises(CallerError, match=why):
            answer(queue, asked.session, [allow("b"), wrong], clock=CLOCK)
    assert open_asks(queue, asked.session).answers == ()


def test_an_ask_whose_time_is_over_takes_no_answer(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a worker goes on without an answer, and whoever is late is told."""
    asked = parked(queue, postgres_dsn, "a", deadline_s=0.0)
    with pytest.raises(CallerError, match="takes no answer any more: its time is over"):
        answer(queue, asked.session, [allow("a")], clock=CLOCK)
    claim = queue.claim(TWO)
    assert claim is not None and claim.asked == (("a", "of a"),) and claim.answers == ()
    with pytest.raises(CallerError, match="nothing of session"):
        answer(queue, asked.session, [allow("a")], clock=CLOCK)


def test_columns_of_a_stranger_allow_nothing() -> None:
    """Proves: what is no list of answers is none, and what is no ask is shown as unreadable."""
    for text in (
        "",
        "{",
        "[" * 100_000,
        '{"asks":[{}]}',
        '[{"approval":{"call_id":1,"verdict":"allow"},"at":0}]',
        "\ud800",
    ):
        assert read_answers(text) == ()
        assert [(ask.call.id, ask.subject) for ask in read_asked(text).asks] == [("unreadable", "")]
    assert read_answers(None) == () and read_asked(None).asks == ()
