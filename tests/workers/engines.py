"""Our own workers and Temporal, as `turnwise.testing.engine_conformance` sees an engine."""

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

from terminal.forking import Process
from turnwise import Approval, CallerError, Journal, OneAsk, StopReason, answer_asks, cancel_turns, submit_turn
from turnwise.testing import engine_conformance as kit
from turnwise.workers.remote_turns import open_asks
from turnwise.workers.temporal_sessions import EngineTurn, TemporalTurns
from workers.farm import WorkerProcess

AGENT = ("kit=turnwise.testing.engine_conformance:agent",)


class KitWorkers:
    """The worker processes of one test, in the folder that the suite looks at. `end` it."""

    options: tuple[str, ...] = ()

    def __init__(self, folder: Path, *, dsn: str) -> None:
        self.folder, self.dsn = folder, dsn
        self.journal = Journal(dsn)
        self.environment = {
            **os.environ,
            "TURNWISE_DATABASE": dsn,
            kit.FOLDER: str(folder),
            "SSL_CERT_FILE": os.devnull,
            "NO_COLOR": "1",
        }
        self.started: list[WorkerProcess] = []

    def start_worker(self, *options: str, real: bool = False) -> Process:
        worker = WorkerProcess(self, *self.options, *options, real=real, agents=AGENT)
        self.started.append(worker)
        worker.until("ready")
        return worker.process

    def end(self) -> None:
        for worker in self.started:
            with contextlib.suppress(ProcessLookupError):
                worker.send(signal.SIGKILL)
            worker.end()
        self.journal.close()


class OwnWorkers(KitWorkers):
    """The queue in the journal's database."""

    options = ("--lease", "4", "--grace", "2")

    async def submit(self, session: str, key: str, prompt: str) -> None:
        """The queue takes no key: an accepted turn, which never begins, remembers it."""
        if self.journal.accept(session, key, prompt):
            await submit_turn(self.dsn, prompt, agent="kit", session=session)

    async def answer(self, session: str, key: str, approvals: Sequence[Approval]) -> None:
        await answer_asks(self.dsn, session, approvals)

    async def cancel(self, session: str, key: str) -> None:
        await cancel_turns(self.dsn, session)

    async def asks(self, session: str) -> Sequence[OneAsk]:
        try:
            return (await open_asks(self.dsn, session)).asked.asks
        except CallerError:
            return ()


class TemporalWorkers(KitWorkers):
    """Temporal, with heartbeats so short that a test can wait for the lack of them."""

    def __init__(self, folder: Path, *, dsn: str, address: str, task_queue: str) -> None:
        super().__init__(folder, dsn=dsn)
        self.options = ("--engine", "temporal", "--address", address, "--task-queue", task_queue, "--grace", "2")
        self.address, self.task_queue = address, task_queue
        self._turns: TemporalTurns | None = None

    async def turns(self) -> TemporalTurns:
        if self._turns is None:
            client = await Client.connect(self.address)
            self._turns = TemporalTurns(client, journal=self.journal, task_queue=self.task_queue)
        return self._turns

    async def submit(self, session: str, key: str, prompt: str) -> None:
        await (await self.turns()).submit(session, EngineTurn("kit", key, heartbeat_s=5), prompt)

    async def answer(self, session: str, key: str, approvals: Sequence[Approval]) -> None:
        await (await self.turns()).answer(session, key, approvals)

    async def cancel(self, session: str, key: str) -> None:
        await (await self.turns()).cancel(session, key)

    async def asks(self, session: str) -> Sequence[OneAsk]:
        found = self.journal.known_session(session)
        if found is None or all(turn.stop_reason is not StopReason.WAITING for turn in found.turns):
            return ()
        return kit.agent(self.folder, journal=self.journal).open_asks(session)
