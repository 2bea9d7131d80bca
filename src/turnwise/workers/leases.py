"""The leases that a worker holds. One thread renews them, and the process ends if a lease may have lapsed.

The event loop's thread may wait for the journal's database longer than a lease lasts, and a process may be frozen. So the renewal
has its own connection, and a second thread only watches the clock. If the event loop shows no sign of life, its leases are no
longer renewed: none of its turns continues, and none of them hears that it was cancelled.
"""

import contextlib
import os
import selectors
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import NoReturn

from turnwise.base.activity import Activity
from turnwise.base.clock import Clock
from turnwise.errors import JournalFailed, TurnwiseError
from turnwise.journal.owners import Claim
from turnwise.journal.postgres.connection import BoundedConnection, connect
from turnwise.turn.config import Approval, OneAsk
from turnwise.workers.asks_below import AsksBelow, InThread
from turnwise.workers.open_asks import AskedElsewhere, listed_as
from turnwise.workers.pieces import TurnPieces
from turnwise.workers.queue import TurnQueue, WorkerTerms, lease_clock, listen, take_up

FENCED = 70  # exit code
OWN_END = 0.8  # of the lease, counted from the last successful renewal: other workers wait for all of it
HELD_WITHIN = 0.5  # of the lease: a claim that took longer is given back; it is no reason to end the process
RENEWALS = 3  # in the time of one lease
AGAIN_S = 0.1  # until a turn whose row was locked is renewed
LONGEST_WAIT_S = 5.0
RECONNECT_S = 0.5
JOIN_S = 15.0
SILENT_S = 25.0  # the event loop may wait 22 s for the journal's database
_POLL: Callable[[], selectors.BaseSelector] = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Leases:
    """Holds and renews leases. Threads of this object call `on_lost` and `on_cancel` with a claim, `on_ring` when there may be a
    turn, `on_trouble` with the reason why nothing is renewed, `on_follower` with a session that somebody new follows, and
    `on_followed` with the numbers of the turns that are followed. Nothing is renewed if the event loop sends no `beat` for the
    time of a lease and for `silent_s`."""

    def __init__(
        self,
        dsn: str,
        *,
        terms: WorkerTerms,
        clock: Clock,
        on_lost: Callable[[Claim], None],
        on_cancel: Callable[[Claim], None],
        on_ring: Callable[[], None],
        on_trouble: Callable[[str], None] = lambda why: None,
        on_follower: Callable[[str], None] = lambda session: None,
        on_followed: Callable[[Collection[int]], None] = lambda numbers: None,
        silent_s: float = SILENT_S,
    ) -> None:
        self._terms = terms
        self._on_follower, self._on_followed = on_follower, on_followed
        self._on_trouble, self._silent_s = on_trouble, max(silent_s, terms.lease_s)
        self._beat_s = lease_clock()
        self._trouble = ""  # the last one that was told
        self._queue = TurnQueue(dsn, clock=clock)
        self._on_lost, self._on_cancel, self._on_ring = on_lost, on_cancel, on_ring
        self._held: dict[int, tuple[Claim, float]] = {}  # by the turn's number: the claim, and when it was renewed
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._bell: BoundedConnection | None = None
        self._woken, self._wakes = os.pipe()
        self._threads = [
            threading.Thread(target=self._renew_on, name="turnwise leases", daemon=True),
            threading.Thread(target=self._watch, name="turnwise lease clock", daemon=True),
        ]

    @property
    def beats_s(self) -> float:
        """How often the event loop must say that it runs."""
        return min(self._terms.lease_s, self._silent_s) / RENEWALS

    def beat(self) -> None:
        """The event loop runs. Call this in its thread."""
        self._beat_s = lease_clock()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop renewing."""
        self._ended.set()
        os.write(self._wakes, b".")
        for thread in self._threads:
            thread.join(JOIN_S)
        with contextlib.suppress(TurnwiseError):  # its row lapses by itself
            self._queue.leave(self._terms)
        self._queue.close()
        os.close(self._wakes)
        os.close(self._woken)

    def hold(self, claim: Claim) -> bool:
        """Hold the claim, if enough of its lease is left. False: it is not held, and the caller must give it back."""
        if lease_clock() - claim.since_s > HELD_WITHIN * self._terms.lease_s:
            return False
        with self._lock:
            self._held[claim.number] = (claim, claim.since_s)
        return True

    def drop(self, claim: Claim) -> None:
        with self._lock:
            self._held.pop(claim.number, None)

    def check(self) -> None:
        """End the process if one of its leases may have lapsed."""
        now = lease_clock()
        with self._lock:
            oldest = min([renewed for _, renewed in self._held.values()], default=now)
        if now - oldest > OWN_END * self._terms.lease_s:
            _end_ourselves(now - oldest)

    def _watch(self) -> None:
        while not self._ended.wait(min(1.0, self._terms.lease_s / 20)):
            self.check()

    def _renew_on(self) -> None:
        wait_s = usual_s = min(LONGEST_WAIT_S, self._terms.lease_s / RENEWALS)
        while not self._ended.is_set():
            try:
                rung = self._wait_for_the_bell(wait_s)
                self._check_loop()
                wait_s = usual_s if self._renew() else min(AGAIN_S, usual_s)
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 (whatever it is: `check` ends the process if this goes on)
                self._tell_trouble(error)
                self._drop_bell()
                self._ended.wait(min(RECONNECT_S, usual_s))
                rung = True
            if rung:
                self._on_ring()
        self._drop_bell()

    def _check_loop(self) -> None:
        silent_s = lease_clock() - self._beat_s
        if silent_s > self._silent_s:
            raise TimeoutError(f"the event loop does not run: it said nothing for {silent_s:.0f} s")

    def _tell_trouble(self, error: Exception) -> None:
        """Tell a trouble once, until it is over. The text of a foreign exception is not shown, because it may hold a secret."""
        why = str(error) if isinstance(error, TurnwiseError | TimeoutError) else f"`{type(error).__name__}`"
        if why.partition(":")[0] != self._trouble:
            self._trouble = why.partition(":")[0]
            with contextlib.suppress(Exception):
                self._on_trouble(f"the leases are not renewed: {why}")

    def _wait_for_the_bell(self, wait_s: float) -> bool:
        """Whether somebody rang, or may have rung while nobody listened."""
        if self._bell is None or self._bell.closed:
            self._bell = connect(self._queue.address)
            listen(self._bell, on_follower=self._on_follower)
            return True
        rung = _is_ready((self._bell.fileno(), self._woken), selectors.EVENT_READ, wait_s=wait_s)
        if rung:
            take_up(self._bell)
        return rung

    def _renew(self) -> bool:
        """Renew the leases. Returns whether all turns that are ours have a new lease."""
        started = lease_clock()
        with self._lock:
            held = [claim for claim, _ in self._held.values()]
        ours = self._queue.renew(held, terms=self._terms)
        self._on_followed([number for number, turn in ours.items() if turn.is_followed])
        self.check()  # a lease that lapsed ends the process, whichever thread finds it first
        for claim in held:
            found = ours.get(claim.number)
            if found is None or found.is_over:
                self.drop(claim)
            if found is None:
                self._on_lost(claim)
                continue
            with self._lock:
                if claim.number in self._held and found.is_renewed:
                    self._held[claim.number] = (claim, started)
            if found.cancel:
                self._on_cancel(claim)
        return all(turn.is_renewed or turn.is_over for turn in ours.values())

    def _drop_bell(self) -> None:
        if self._bell is not None:
            self._bell.close()
            self._bell = None


class TurnLease:
    """The lease of one claimed turn, for the turn's pen. `is_over`: the worker gave the turn back; `asks`: it waits for a person.
    `on_rest` is called whenever all of the turn only waits, and `on_pieces` when `pieces` has some to send."""

    def __init__(
        self,
        claim: Claim,
        *,
        leases: Leases,
        queue: TurnQueue,
        ends: Callable[[], bool],
        in_thread: InThread,
        on_asks: Callable[[tuple[str, ...]], None],
        on_rest: Callable[[], None],
        on_pieces: Callable[[], None],
    ) -> None:
        self._claim = claim
        self._leases = leases
        self._queue = queue
        self._ends = ends
        self.is_over = False
        self.asks = False
        self.pieces = TurnPieces(wake=on_pieces)
        self.see_frames = self.pieces.see
        self.activity = Activity(on_rest=on_rest)
        self.below = AsksBelow(
            claim,
            queue=queue,
            in_thread=in_thread,
            activity=self.activity,
            is_over=lambda: self.is_over,
            on_lost=self._write_nothing,
            on_asks=on_asks,
        )

    @property
    def ends(self) -> bool:
        return self._ends()

    def check(self) -> None:
        self._leases.check()

    def let_go(self) -> NoReturn:
        """Make sure that the turn's pen here writes nothing more, before another worker may continue the turn."""
        self.is_over = True
        self._leases.drop(self._claim)
        self._queue.release(self._claim, blameless=True)
        raise JournalFailed("this worker stops: another one goes on with the turn")

    def ask(self, asks: Sequence[OneAsk], *, deadline_s: float, folder: str) -> Sequence[Approval]:
        if listed_as(asks) == self._claim.asked:
            return self._claim.answers
        if deadline_s <= 0:
            return ()
        self.is_over = True
        self._leases.drop(self._claim)
        self._queue.park(self._claim, asked=AskedElsewhere(asks=tuple(asks), folder=folder), deadline_s=deadline_s)
        self.asks = True
        raise JournalFailed("a person is asked: the turn goes on with the answer")

    def _write_nothing(self) -> None:
        """Write nothing more: another worker may have the turn, and its sub-agents."""
        self.is_over = True


def _is_ready(numbers: Sequence[int], event: int, *, wait_s: float) -> bool:
    """Whether one of these descriptors is ready. Works also in a process with thousands of them."""
    with _POLL() as poll:
        for number in numbers:
            poll.register(number, event)
        return bool(poll.select(wait_s))


def _end_ourselves(since_s: float) -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        line = (
            f"turnwise: no lease was renewed for {since_s:.1f} s: this worker ends, and others go on with its turns\n"
        )
        log = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
        if _is_ready(
            (log,), selectors.EVENT_WRITE, wait_s=0
        ):  # a pipe without a reader does not keep the process alive
            os.write(log, line.encode())
    os._exit(FENCED)
