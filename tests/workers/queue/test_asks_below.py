"""What sub-agents ask, in the row of their running turn, over a real PostgreSQL."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
import psycopg
import pytest

from turnwise.base.activity import Activity
from turnwise.errors import CallerError
from turnwise.journal.owners import Claim
from turnwise.turn.config import Approval, AskOrigin, OneAsk
from turnwise.vocab import ToolCall
from turnwise.workers.ask_answers import answer, open_asks
from turnwise.workers.asks_below import AsksBelow, NotOurs, answered, below, given, publish, take_out
from turnwise.workers.queue import TurnQueue
from waits import HANG_S
from workers.queue.test_ask_answers import CLOCK, ONE, TWO, allow

Result = TypeVar("Result")


def one_ask(id: str, *, tool: str = "do") -> OneAsk:
    return OneAsk(call=ToolCall(id=id, name=tool), arguments="{}", subject=tool, digest=f"of {tool}")


def of(turn: str, *asks: OneAsk, step: int = 1):
    return below(asks, path=("helper",), origin=AskOrigin(turn_id=turn, step=step, folder="/srv/ä b"))


def running(queue: TurnQueue, dsn: str) -> Claim:
    """A turn that has begun."""
    queue.submit("Go.", agent="helper")
    claim = queue.claim(ONE)
    assert claim is not None
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into turnwise.record values (%s, 1, 1, 'any', '{}', 0)", (claim.number,))
    return claim


def taken_over(queue: TurnQueue, dsn: str) -> Claim:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update turnwise.turn set lease_until = now() - interval '1 s'")
    claim = queue.claim(TWO)
    assert claim is not None
    return claim


def test_asks_of_several_sub_agents_stand_side_by_side(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: equal calls of two sub-agents have ids of their own; each is answered and taken out by itself; an id that was
    used once stands for nothing else, and whoever answers it late is told."""
    claim = running(queue, postgres_dsn)
    one = publish(queue, claim, of("t1", one_ask("call_1")), deadline_s=60.0)
    other = publish(queue, claim, of("t2", one_ask("call_1")), deadline_s=60.0)
    assert [ask.id for ask in (*one, *other)] == ["helper/call_1", "helper/call_1-2"]
    assert answer(queue, claim.session, [allow("helper/call_1-2", digest="of do")], clock=CLOCK) == 1
    (status,) = queue.status(claim.session)
    assert [(ask.id, ask.path, ask.folder, ask.answer) for ask in status.asks] == [
        ("helper/call_1", ("helper",), "/srv/ä b", ""),
        ("helper/call_1-2", ("helper",), "/srv/ä b", "allow"),
    ]
    assert take_out(queue, claim, other) == {"call_1": allow("call_1", digest="of do")}
    assert take_out(queue, claim, one) == {}
    assert queue.status(claim.session)[0].asks == ()
    (later,) = publish(queue, claim, of("t1", one_ask("call_1"), step=2), deadline_s=60.0)
    assert later.id == "helper/call_1-3"
    with pytest.raises(CallerError, match="`helper/call_1` takes no answer any more: it was answered already"):
        answer(queue, claim.session, [allow("helper/call_1")], clock=CLOCK)


def test_the_digest_binds_an_answer_to_what_was_shown(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: an answer for what was shown before is refused; an ask that is put again for something else has no answer."""
    claim = running(queue, postgres_dsn)
    publish(queue, claim, of("t1", one_ask("call_1")), deadline_s=60.0)
    with pytest.raises(CallerError, match="what is asked now is not what the answer is for"):
        answer(queue, claim.session, [allow("helper/call_1", digest="of another")], clock=CLOCK)
    assert answer(queue, claim.session, [allow("helper/call_1")], clock=CLOCK) == 0
    assert given(queue, claim, of("t1", one_ask("call_1", tool="undo"))) == {}
    assert given(queue, claim, of("t2", one_ask("call_1"))) == {}
    assert list(given(queue, claim, of("t1", one_ask("call_1")))) == ["call_1"]


def test_an_ask_of_a_sub_agent_takes_no_answer_behind_its_time(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: it is shown no more, and whoever answers is told, though its worker has not taken it out."""
    claim = running(queue, postgres_dsn)
    publish(queue, claim, of("t1", one_ask("call_1")), deadline_s=0.0)
    publish(queue, claim, of("t1", one_ask("call_2")), deadline_s=60.0)
    assert [ask.call.id for ask in open_asks(queue, claim.session).asked.asks] == ["helper/call_2"]
    with pytest.raises(CallerError, match="`helper/call_1` takes no answer any more"):
        answer(queue, claim.session, [allow("helper/call_1")], clock=CLOCK)


def test_a_worker_that_has_lost_the_turn_changes_no_asks(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: the next worker finds the asks and their answers as they stood; the old one can neither read nor write them."""
    claim = running(queue, postgres_dsn)
    asks = publish(queue, claim, of("t1", one_ask("call_1")), deadline_s=60.0)
    later = taken_over(queue, postgres_dsn)
    assert later.asked == () and answer(queue, claim.session, [allow("helper/call_1")], clock=CLOCK) == 0
    for change in (
        lambda: publish(queue, claim, of("t1", one_ask("call_2")), deadline_s=60.0),
        lambda: take_out(queue, claim, asks),
        lambda: given(queue, claim, asks),
    ):
        with pytest.raises(NotOurs):
            change()
    (again,) = publish(queue, later, of("t1", one_ask("call_1")), deadline_s=60.0)
    assert again.id == "helper/call_1" and list(given(queue, later, (again,))) == ["call_1"]


class Worker:
    """Asks below a claimed turn, as a worker puts them."""

    def __init__(self, queue: TurnQueue, claim: Claim) -> None:
        self.asks, self.has_kept, self.has_lost = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_over = False
        self.kept: list[Approval] = []
        self.below = AsksBelow(
            claim,
            queue=queue,
            in_thread=self._in_thread,
            activity=Activity(on_rest=lambda: None),
            is_over=lambda: self.is_over,
            on_lost=self._lose,
            on_asks=lambda path: self.asks.set(),
        )

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.to_thread(work)

    def _lose(self) -> None:
        self.is_over = True
        self.has_lost.set()

    def _keep(self, approval: Approval) -> None:
        self.kept.append(approval)
        self.has_kept.set()

    def put(self, *asks: OneAsk, deadline_s: float = 600.0):
        origin = AskOrigin(turn_id="t1", step=1)
        waiting = self.below.put(asks, path=("helper",), origin=origin, deadline_s=deadline_s, keep=self._keep)
        return asyncio.create_task(waiting)


def test_each_answer_is_passed_on_when_it_comes(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: the first of two answers is kept while the other is waited for, and with both the asks are out of the row."""

    async def scenario() -> None:
        claim = running(queue, postgres_dsn)
        worker = Worker(queue, claim)
        task = worker.put(one_ask("call_1"), one_ask("call_2"))
        await asyncio.wait_for(worker.asks.wait(), HANG_S)
        await asyncio.to_thread(answer, queue, claim.session, [allow("helper/call_2")], clock=CLOCK)
        worker.below.rung()
        await asyncio.wait_for(worker.has_kept.wait(), HANG_S)
        denied = Approval(call_id="helper/call_1", verdict="deny", text="no")
        await asyncio.to_thread(answer, queue, claim.session, [denied], clock=CLOCK)
        worker.below.rung()
        answers = await asyncio.wait_for(task, HANG_S)
        assert [(one.call_id, one.verdict) for one in answers] == [("call_2", "allow"), ("call_1", "deny")]
        assert worker.kept == list(answers) and queue.status(claim.session)[0].asks == ()

    asyncio.run(scenario())


def test_whoever_stops_waiting_takes_the_asks_out(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: a wait that is cancelled leaves nothing to answer; of a turn that was given back the asks stay; of one that is
    another's no answer comes, not even a denial."""

    async def scenario() -> None:
        claim = running(queue, postgres_dsn)
        for is_over, left in ((False, 0), (True, 1)):
            worker = Worker(queue, claim)
            task = worker.put(one_ask("call_1"))
            await asyncio.wait_for(worker.asks.wait(), HANG_S)
            worker.is_over = is_over
            task.cancel()
            await asyncio.wait([task], timeout=HANG_S)
            assert task.cancelled() and len(queue.status(claim.session)[0].asks) == left
        worker = Worker(queue, claim)
        task = worker.put(one_ask("call_2"))
        await asyncio.wait_for(worker.asks.wait(), HANG_S)
        taken_over(queue, postgres_dsn)
        worker.below.rung()
        await asyncio.wait_for(worker.has_lost.wait(), HANG_S)
        assert not task.done() and worker.kept == []
        task.cancel()
        await asyncio.wait([task], timeout=HANG_S)
        assert len(queue.status(claim.session)[0].asks) == 2

    asyncio.run(scenario())


def test_what_was_answered_before_is_not_asked_again(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: an answer that stands in the row is known for that ask alone, and used at once, and nobody is told of an ask;
    without one the wait ends in time."""

    async def scenario() -> None:
        claim = running(queue, postgres_dsn)
        publish(queue, claim, of("t1", one_ask("call_1")), deadline_s=60.0)
        answer(queue, claim.session, [allow("helper/call_1")], clock=CLOCK)
        worker = Worker(queue, claim)
        for ask, step, verdicts in (
            (one_ask("call_1"), 1, ["allow"]),
            (one_ask("call_1"), 2, []),
            (one_ask("c"), 1, []),
        ):
            known = await worker.below.given([ask], origin=AskOrigin(turn_id="t1", step=step))
            assert [approval.verdict for approval in known] == verdicts
        (found,) = await asyncio.wait_for(worker.put(one_ask("call_1"), deadline_s=HANG_S), HANG_S)
        assert found.verdict == "allow" and not worker.asks.is_set()
        assert await asyncio.wait_for(worker.put(one_ask("call_2"), deadline_s=0.5), HANG_S) == ()
        assert worker.asks.is_set(), "a person could see it"

    asyncio.run(scenario())


def test_an_answer_counts_for_what_was_shown_and_for_nothing_else(queue: TurnQueue, postgres_dsn: str) -> None:
    """Proves: an ask that has the id of one that was answered, and shows something else, has no answer."""
    claim = running(queue, postgres_dsn)
    (asked,) = publish(queue, claim, of("t1", one_ask("call_1")), deadline_s=60.0)
    assert answer(queue, claim.session, [allow("helper/call_1", digest="of do")], clock=CLOCK) == 0
    other = msgspec.structs.replace(asked, ask=one_ask("call_1", tool="undo"))
    assert answered(queue, claim, [other]) == {}
    assert list(answered(queue, claim, [asked])) == ["call_1"]
    assert take_out(queue, claim, [other]) == {}
