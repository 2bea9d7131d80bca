"""What a user has around the workers: whatever ends is started again. And what happens to them."""

import random
import signal
import threading
from collections import Counter
from collections.abc import Callable

import psycopg

from workers.farm import Farm, WorkerProcess, until

OPEN_TURNS = "select count(*) from turnwise.turn where status = 'running' and split_part(owner, ':', 2) = %s"


class Supervisor:
    """Keeps `count` workers alive. `ends` counts the exit codes of those that ended. `end` it."""

    def __init__(self, farm: Farm, *options: str, count: int) -> None:
        self._farm, self._options = farm, options
        self._stops = threading.Event()
        self._lock = threading.Lock()
        self._alive: dict[int, WorkerProcess] = {}
        self._frozen: set[int] = set()
        self._ended_here: set[WorkerProcess] = set()  # by `end`
        self.ends: Counter[int] = Counter()
        self._threads = [threading.Thread(target=self._keep, args=(slot,), daemon=True) for slot in range(count)]
        for thread in self._threads:
            thread.start()

    def _keep(self, slot: int) -> None:
        while not self._stops.is_set():
            with self._lock:
                if self._stops.is_set():
                    return
                worker = self._alive[slot] = WorkerProcess(self._farm, *self._options, real=True)
            code = worker.wait()
            with self._lock:
                self._frozen.discard(slot)
                if worker not in self._ended_here:
                    self.ends[code] += 1
            worker.end()

    def send(self, number: signal.Signals, *, slot: int) -> WorkerProcess:
        """To the worker of that place, which runs."""
        with self._lock:
            worker = self._alive[slot]
            worker.process.send_signal(number)
            if number == signal.SIGSTOP:
                self._frozen.add(slot)
            if number == signal.SIGCONT:
                self._frozen.discard(slot)
            return worker

    def running(self) -> list[int]:
        """The places of workers that run and are not frozen."""
        with self._lock:
            return [
                slot
                for slot, worker in self._alive.items()
                if slot not in self._frozen and worker.process.poll() is None
            ]

    def end(self) -> None:
        self._stops.set()
        with self._lock:
            for worker in self._alive.values():
                if worker.process.poll() is None:
                    self._ended_here.add(worker)
                    worker.process.kill()
        for thread in self._threads:
            thread.join()


class Troubles:
    """Befall workers and their database, one by one, and are counted."""

    def __init__(self, supervisor: Supervisor, *, dsn: str, restart: Callable[[], None], seed: int) -> None:
        self._supervisor, self._dsn, self._restart = supervisor, dsn, restart
        self._drawn = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._kinds = {
            "kill": self._kill,
            "freeze": self._freeze,
            "cut": self._cut,
            "stop": self._stop,
            "restart": restart,
        }

    def befall(self, kind: str) -> None:
        self._kinds[kind]()
        self.counts[kind] += 1

    def _one(self) -> int:
        """A worker that runs."""
        until(lambda: bool(self._supervisor.running()))
        return self._drawn.choice(self._supervisor.running())

    def _kill(self) -> None:
        """One that did not end by itself in that moment."""
        until(lambda: self._supervisor.send(signal.SIGKILL, slot=self._one()).wait() == -signal.SIGKILL)

    def _stop(self) -> None:
        self._supervisor.send(signal.SIGTERM, slot=self._one())

    def _freeze(self) -> None:
        """Until others have all of its turns; then it is thawed."""
        slot = self._one()
        frozen = self._supervisor.send(signal.SIGSTOP, slot=slot)
        until(lambda: self._open_turns_of(frozen.process.pid) == 0)
        self._supervisor.send(signal.SIGCONT, slot=slot)

    def _open_turns_of(self, process: int) -> int:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                (found,) = connection.execute(OPEN_TURNS, (str(process),)).fetchone() or (0,)
            return found
        except psycopg.OperationalError:
            return 1

    def _cut(self) -> None:
        """Every connection of every worker."""
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where backend_type = 'client backend' and pid <> pg_backend_pid() and datname = current_database()"
            )
