"""Ask a person, within the deadline: an ask without an answer by then gets its default (promise wait:ask)."""

import asyncio
import contextlib
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import msgspec

from turnwise.base.clock import Clock, Timer, wait_for_task
from turnwise.base.threads import in_thread, is_async
from turnwise.journal.turn_writer import LoopPen, TurnJournal
from turnwise.running.tool_output import class_name, journalable, traceback_of
from turnwise.turn.config import Approval, AskOrigin, OneAsk, holds, settled
from turnwise.turn.events import Ask, Asked

SETTLE_S = 0.5
BEHIND_S = (
    5.0  # an approver that says when it shows an ask keeps the time itself; turnwise ends it this long after that time
)
QUEUE_S = 24 * 3600.0  # how long all asks together may wait until a person sees them
KEEP_S = 15.0  # for an answer from another thread to be recorded: longer than the journal waits
THREAD = "turnwise-approver"

_log = logging.getLogger("turnwise")


Recorder = Callable[[Approval], "asyncio.Future[None] | None"]
"""Records an answer. None: it is recorded. Otherwise the result says when it is."""


def _nobody_keeps(_approval: Approval) -> None:
    return None


def _runs_on() -> None:
    return None


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """All asks of one step, as the approver gets them.

    - `deadline_s`: seconds until the defaults apply. They run from now on, unless the approver says when it shows an ask.
    - `path` names the sub-agents that lead to the ask, outermost first. It is empty at the root.
    - `origin` is the turn that asks.
    - `keep`: call it with each answer as soon as you have it. The answer then survives a crash, whatever happens to the
      others.
    - `waits`: call it while nothing is on the screen, for example because another ask is. The time stands still.
    - `shown`: call it when an ask is on the screen. From then on there are `deadline_s` seconds again, or fewer if the turn's
      time ends before. It returns the seconds, or None if nothing measures them. You leave out an ask that got no answer by
      then, and go on with the next.
    """

    asks: tuple[OneAsk, ...]
    deadline_s: float
    path: tuple[str, ...] = ()
    keep: Callable[[Approval], object] = _nobody_keeps
    origin: AskOrigin = AskOrigin()
    waits: Callable[[], object] = _runs_on
    shown: Callable[[], float | None] = _runs_on


Approver = Callable[[Asking], Awaitable[Sequence[Approval]] | Sequence[Approval]]


async def leave_for_later(asking: Asking) -> Sequence[Approval]:
    """The approver of an agent with `Policy(unattended="later")`: the run ends as `waiting`. A worker lets its turn wait for a
    person in place of that."""
    return [Approval(call_id=ask.call.id, verdict="later", by="default") for ask in asking.asks]


"""Returns an approval for each ask that it decides. Asks that it leaves out get their default. It is cancelled at the deadline. A
function that is not `async def` runs in a thread of its own, so it may block; at the deadline it is left behind."""


class _Raised(msgspec.Struct, frozen=True):
    error: BaseException


async def put(approver: Approver, asking: Asking) -> Sequence[Approval]:
    """The answers of the approver, plain or async. Raises what it raises."""

    def call() -> object:
        try:
            return approver(asking)
        except BaseException as error:  # noqa: BLE001 (raised again by the one who waits)
            return _Raised(error)

    said = cast("object", approver(asking) if is_async(approver) else await in_thread(call, name=THREAD))
    if isinstance(said, _Raised):
        raise said.error
    return cast("Sequence[Approval]", await said if inspect.isawaitable(said) else said)


async def ask(
    order: Ask,
    *,
    approver: Approver | None,
    clock: Clock,
    path: tuple[str, ...] = (),
    scrub: Callable[[str], str] = str,
    over: "asyncio.Future[None] | None" = None,
    record: Recorder = _nobody_keeps,
    origin: AskOrigin = AskOrigin(),  # noqa: B008 (frozen)
    most_s: float | None = None,
) -> Asked:
    """The answers that came in time, one for each call. `over` ends the time before the deadline. If an approver raises or
    returns nonsense, its asks are denied and the model is told why; asks that it left out are left out here. What it raised goes
    through `scrub`. `record` gets each early answer while others are still open. All of it ends within `most_s`, whenever the
    approver shows an ask, because the turn's answer comes after it."""
    if approver is None:
        return Asked()
    kept = KeptAnswers(order.asks, record=record)
    over = asyncio.get_running_loop().create_future() if over is None else over
    time = AskTime(order, clock=clock, over=over, most_s=most_s)
    asking = Asking(
        asks=order.asks,
        deadline_s=order.deadline_s,
        path=path,
        keep=kept.keep,
        origin=origin,
        waits=time.stop,
        shown=time.start_anew,
    )
    task = asyncio.create_task(_answers(approver, asking, scrub=scrub))
    try:
        ended = await wait_for_task(task, clock=clock, timeout_s=time.most_s, over=over)
    except asyncio.CancelledError:
        task.cancel()
        await wait_for_task(task, clock=clock, timeout_s=SETTLE_S)
        raise
    finally:
        time.close()
    if not ended:
        kept.close()
        task.cancel()
        await wait_for_task(task, clock=clock, timeout_s=SETTLE_S)
        return Asked(approvals=kept.given)
    kept.close()
    answers = _failed(asking, why="it cancelled itself") if task.cancelled() else task.result()
    early = {one.call_id for one in kept.given}
    answers = [one for one in answers if one.by != "failed" or one.call_id not in early]
    return Asked(approvals=_kept((*kept.given, *answers), asks=order.asks))


class AskTime:
    """The time of one group of asks. It runs from the beginning, unless the approver says that it shows one ask after the other:
    then it stands still while no ask is shown, and starts again with each. `over` is set at its end, at the latest after
    `most_s`. Use it in the event loop's thread, or from any other."""

    def __init__(self, order: Ask, *, clock: Clock, over: "asyncio.Future[None]", most_s: float | None) -> None:
        self._over = over
        queued_s = QUEUE_S + len(order.asks) * (order.deadline_s + BEHIND_S)
        self.most_s = queued_s if most_s is None else max(most_s, order.deadline_s)
        self._deadline_s, self._clock = order.deadline_s, clock
        self._until_s = clock.monotonic() + self.most_s
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._is_closed = False
        self._timer: Timer | None = clock.call_later(order.deadline_s, self._end)

    def stop(self) -> None:
        self._here(lambda: self._set(None))

    def start_anew(self) -> float:
        left_s = max(min(self._deadline_s, self._until_s - self._clock.monotonic()), 0.0)
        self._here(lambda: self._set(left_s + BEHIND_S))
        return left_s

    def close(self) -> None:
        self._set(None)
        self._is_closed = True

    def _here(self, change: Callable[[], object]) -> None:
        if threading.get_ident() == self._thread:
            change()
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(change)

    def _set(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None or self._is_closed else self._clock.call_later(seconds, self._end)

    def _end(self) -> None:
        if not self._over.done():
            self._over.set_result(None)


class KeptAnswers:
    """The answers that an approver has given while other asks are still open."""

    def __init__(self, asks: Sequence[OneAsk], *, record: Recorder) -> None:
        self._asks = asks
        self._record = record
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._given: dict[str, Approval] = {}
        self._is_over = False

    @property
    def given(self) -> tuple[Approval, ...]:
        return tuple(self._given.values())

    def close(self) -> None:
        """Answers from now on are too late."""
        self._is_over = True

    def keep(self, approval: Approval) -> None:
        """On return the answer is recorded, also if an approver gives it in its own thread. In the event loop's thread it is
        recorded too, unless the journal is busy: then it follows as soon as possible. The first answer to an ask counts. Raises
        ValidationError for a value that is not an approval."""
        answer = msgspec.convert(msgspec.to_builtins(approval), Approval)
        if threading.get_ident() == self._thread:
            self._keep(answer)
            return
        done = threading.Event()

        def keep_here() -> None:
            written = self._keep(answer)
            if written is None:
                done.set()
            else:
                written.add_done_callback(lambda _: done.set())

        with contextlib.suppress(RuntimeError):  # the loop has ended, and nothing is recorded any more
            self._loop.call_soon_threadsafe(keep_here)
            done.wait(KEEP_S)

    def _keep(self, answer: Approval) -> "asyncio.Future[None] | None":
        """None: the answer is recorded, or need not be. Otherwise the result says when it is."""
        if self._is_over or answer.call_id in self._given:
            return None
        written: asyncio.Future[None] | None = None
        for kept in _kept((msgspec.structs.replace(answer, text=journalable(answer.text)),), asks=self._asks):
            self._given[kept.call_id] = kept
            written = self._record(kept)
        return written


def _kept(answers: Sequence[Approval], *, asks: Sequence[OneAsk]) -> tuple[Approval, ...]:
    """One answer for each ask. `always` is dropped if the answer was given for something else."""
    asked = {one.call.id: one for one in asks}
    kept: list[Approval] = []
    for approval in settled(answers).values():
        if (one := asked.get(approval.call_id)) is not None:
            always = approval.always and holds(approval, ask=one)
            kept.append(msgspec.structs.replace(approval, always=always))
    return tuple(kept)


async def _answers(approver: Approver, asking: Asking, *, scrub: Callable[[str], str]) -> list[Approval]:
    """The approver's answers. Raises nothing but a cancellation, because an approver is foreign code."""
    try:
        given = cast("object", await put(approver, asking))
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 (`sys.exit()` in it must not end the program)
        # the model reads why the asks are denied: the exception's own text is for the log
        return _failed(asking, why=f"it raised {class_name(error)}", logged=traceback_of(error, scrub=scrub))
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return _failed(asking, why=f"it answered with `{type(given).__name__}`, which is no list of approvals")
    answers: list[Approval] = []
    nonsense = ""
    for one in cast("Sequence[object]", given):
        try:
            answer = msgspec.convert(msgspec.to_builtins(one), Approval)
            answers.append(msgspec.structs.replace(answer, text=journalable(answer.text)))
        except (msgspec.ValidationError, TypeError) as error:
            nonsense = f"it gave an answer that is no approval: {scrub(str(error))}"
    # after its other answers: it is unknown which ask the invalid answer was for
    left = {one.call.id for one in asking.asks} - {one.call_id for one in answers}
    return answers + [one for one in (_failed(asking, why=nonsense) if nonsense else []) if one.call_id in left]


def _failed(asking: Asking, *, why: str, logged: str = "") -> list[Approval]:
    """Denials, because the approver failed."""
    why = journalable(why)
    _log.warning("the approver failed, and its asks are denied: %s", logged or why)
    return [Approval(call_id=one.call.id, verdict="deny", by="failed", text=why) for one in asking.asks]


# How the asks of a turn reach a person who is not at its worker.


def approver_below(journal: TurnJournal | None) -> Approver | None:
    """Puts the asks of the turn's sub-agents to a person on any machine. None if no worker's lease keeps the turn."""
    lease = None if journal is None else journal.own_lease
    if lease is None:
        return None

    async def approve(asking: Asking) -> Sequence[Approval]:
        if any(ask.by == "tool" for ask in asking.asks):
            return ()  # a crash would leave it in the turn's row, and its call is not continued
        return await lease.below.put(
            asking.asks, path=asking.path, origin=asking.origin, deadline_s=asking.deadline_s, keep=asking.keep
        )

    return approve


async def given_in_time(
    journal: LoopPen | None, asks: Sequence[OneAsk], *, origin: AskOrigin, is_below: bool
) -> Sequence[Approval]:
    """The answers that came while no process ran the turn, to asks whose time is now over. Raises JournalFailed."""
    if journal is None or (lease := journal.pen.lease) is None:
        return ()
    if is_below:
        return await lease.below.given(asks, origin=origin)
    return await journal.ask_elsewhere(asks, deadline_s=0.0, folder=origin.folder) or ()
