"""Several processes that serve one address (`--workers`). A small parent forks them, and another one where one has died.

They share the listening socket, so a connection that waits is taken by whichever has time: none is lost with a worker that dies,
and none waits for a frozen one. The parent has no thread and no event loop, so that it may fork at any time.
"""

import contextlib
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any

import msgspec

from turnwise.errors import CallerError
from turnwise.gateway.config import GatewayConfig
from turnwise.gateway.reloading import ConfigReading, has_terminal
from turnwise.gateway.worker_counts import without_gauges

MOST_WORKERS = 64
LOOK_S = 1.0
QUICK_S = 10.0  # a worker that lived shorter has died at once
MOST_QUICK = 5  # so often in a row, while no other one serves: then the parent gives up
LONGEST_WAIT_S = 4.0  # between two tries of one that dies at once
BEHIND_GRACE_S = 15.0  # for what a worker writes down at its end
_READY = 128  # and the worker's number, in one byte: above every signal
_PASSED = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))


class WorkerSeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker has of its parent. `ready` says that it serves, or has read its file again. `leash` is a descriptor that can
    be read once the parent is gone. `counts` is the file for its counts, `news` what its log says first."""

    number: int
    config: GatewayConfig
    ready: Callable[[], None]
    leash: int
    counts: Path
    news: str


class _Place:
    """The place of one worker, whichever process has it. `pid` 0: nobody."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.pid = 0
        self.began_s = 0.0
        self.due_s = -inf
        self.quick = 0
        self.is_ready = False
        self.news = ""


def _wake(number: int, frame: object) -> None:
    """Python writes the number to the pipe of its wake-ups."""


class WorkerProcesses:
    """The parent. `run` it once."""

    def __init__(
        self,
        number: int,
        *,
        config: GatewayConfig,
        reading: ConfigReading | None,
        tells: Callable[[], None],
        closes: Callable[[], None],
        ends_s: float,
    ) -> None:
        """`tells` is called once the first worker serves, `closes` once all have to end, for which they have `ends_s`. Raises
        CallerError."""
        if not hasattr(os, "fork"):
            raise CallerError("`--workers` needs a system that can fork processes: start several gateways instead")
        self._places = [_Place(each) for each in range(number)]
        self._config, self._reading = config, reading
        self._tells, self._closes, self._ends_s = tells, closes, ends_s
        self._folder = Path(tempfile.mkdtemp(prefix="turnwise-gateway-"))
        self._heard, self._tell = os.pipe()  # signals, and workers that are ready
        self._leash, self._held = os.pipe()
        for descriptor in (self._heard, self._tell):
            os.set_blocking(descriptor, False)
        self._had_terminal = has_terminal()
        self._has_served = False
        self._kill_s: float | None = None  # when workers that have been told to end are killed
        self._code = 0
        self._failure = ""

    def run(self) -> WorkerSeat:
        """Return in each worker. In the parent it ends the program, once all workers have. Raises CallerError in the parent."""
        before = {each: signal.signal(each, _wake) for each in (*_PASSED, signal.SIGCHLD)}
        signal.set_wakeup_fd(self._tell, warn_on_full_buffer=False)
        while True:
            if (place := self._fill()) is not None:
                return self._as_worker(place, before)
            if not any(place.pid for place in self._places) and self._kill_s is not None:
                break
            if select.select([self._heard], [], [], LOOK_S)[0]:
                for number in os.read(self._heard, 4096):
                    self._hear(number)
            self._reap()
            if self._kill_s is not None and time.monotonic() > self._kill_s:
                self._send(signal.SIGKILL)
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._failure:
            raise CallerError(self._failure)
        sys.exit(self._code)

    def _fill(self) -> _Place | None:
        """Fork a worker for each empty place; the place, in the worker. The first one shows whether it works at all."""
        for place in self._places if self._has_served else self._places[:1]:
            if place.pid or self._kill_s is not None or time.monotonic() < place.due_s:
                continue
            signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED)
            place.pid, place.began_s, place.is_ready = os.fork(), time.monotonic(), False
            if not place.pid:
                return place
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
        return None

    def _as_worker(self, place: _Place, before: Mapping[signal.Signals, Any]) -> WorkerSeat:
        """A group of its own: Ctrl-C at the terminal reaches the parent alone, which passes it on once."""
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED)
        os.setpgid(0, 0)
        os.close(self._held)
        os.close(self._heard)

        def ready() -> None:
            with contextlib.suppress(OSError):  # the parent is gone
                os.write(self._tell, bytes([_READY + place.number]))

        return WorkerSeat(
            number=place.number,
            config=self._config,
            ready=ready,
            leash=self._leash,
            counts=self._counts_of(place),
            news=place.news,
        )

    def _counts_of(self, place: _Place) -> Path:
        return self._folder / str(place.number)

    def _hear(self, number: int) -> None:
        if number >= _READY:
            self._places[number - _READY].is_ready = True
            if self._reading is not None:
                with contextlib.suppress(CallerError):  # the workers have told it
                    self._config = self._reading.read()
            if not self._has_served:
                self._has_served = True
                self._tells()
        elif number == signal.SIGHUP:
            self._send(number)
            if self._had_terminal and not has_terminal():  # and so the workers end
                self._end(signal.SIGTERM)
        elif number in _PASSED:
            self._end(number)

    def _end(self, number: int) -> None:
        if self._kill_s is None:
            self._kill_s = time.monotonic() + self._ends_s + BEHIND_GRACE_S
            self._closes()  # else connections would wait for somebody after the last worker has stopped to accept them
        self._send(number)

    def _send(self, number: int) -> None:
        """A worker that does not serve yet would die of SIGHUP, and reads the file as it is."""
        for place in self._places:
            if place.pid and (place.is_ready or number != signal.SIGHUP):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.pid, number)

    def _reap(self) -> None:
        for place in self._places:
            if not place.pid:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid:
                self._bury(place, os.waitstatus_to_exitcode(status))

    def _bury(self, place: _Place, code: int) -> None:
        pid, place.pid, place.is_ready = place.pid, 0, False
        without_gauges(self._counts_of(place))
        if self._kill_s is not None:
            self._code = max(self._code, code)
            return
        if not self._has_served:  # it has said why
            self._code = code if code > 0 else 1
            self._end(signal.SIGTERM)
            return
        now_s = time.monotonic()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        place.news = f"worker {place.number + 1} (process {pid}) {how}; this one takes its place"
        place.quick = 0 if now_s - place.began_s > QUICK_S else place.quick + 1
        place.due_s = now_s + min(0.125 * 2**place.quick, LONGEST_WAIT_S)
        if place.quick >= MOST_QUICK and not any(each.is_ready for each in self._places):
            self._failure = (
                f"worker {place.number + 1} died at once {place.quick} times, the last one {how}: its log says why"
            )
            self._end(signal.SIGTERM)
