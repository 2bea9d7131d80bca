"""Sessions in a journal: those that the lab led, with all that a runner writes down, and those of which the events are kept."""

import asyncio
from collections.abc import Sequence

import msgspec

from lab.failing import settled
from turn.kept_lab import SAID, LabFiles, lab_config
from turnwise.agent.agent_setup import with_script
from turnwise.base.clock import SystemClock
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Circuits
from turnwise.errors import CallerError, TurnwiseBug
from turnwise.journal.journal import Journal
from turnwise.lab import Lab
from turnwise.lab.script import Script
from turnwise.replay.session_file import RecordedSession, read_recorded
from turnwise.running.runner import Runner
from turnwise.running.runner_config import EndpointRecovery, RunnerMeans
from turnwise.testing import FakeClock
from turnwise.turn.config import TurnResult
from turnwise.turn.events import Event, FinishTurn, TurnStarted
from turnwise.turn.machine import SessionFold, fold_session, restore
from turnwise.vocab import Message, Text
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

SESSION = "s0000001"


def led_by_lab(script: Script, *, family: str, stream: bool, said: Sequence[str] = SAID[:2]) -> RecordedSession:
    """A session with the lab, as the journal has it."""
    return asyncio.run(_led_by_lab(script, family=family, stream=stream, said=said))


async def _led_by_lab(script: Script, *, family: str, stream: bool, said: Sequence[str]) -> RecordedSession:
    jumps = not script.name.startswith("script-")
    tools = with_script(LabFiles().tools(), scripted=not jumps)
    lab, clock = Lab(scripts=[script]), FakeClock()
    own_clock = clock if jumps else SystemClock()
    with Journal(None, clock=clock) as journal:
        for number, words in enumerate(said):
            config = lab_config(script, family=family, stream=stream, tools=tools)
            config = msgspec.structs.replace(config, session_id=SESSION, turn_id=f"t{number}")
            started = TurnStarted(config=config, input=(Message("user", (Text(words),)),), keeps_waiting=True)
            runner = Runner(
                RunnerMeans(
                    endpoint=Endpoint(profile=builtin_profiles()[family], base_url="http://lab.invalid"),
                    transport=lab.transport(),
                    tools=tools,
                    clock=own_clock,
                    recovery=EndpointRecovery(circuits=Circuits(clock=own_clock), jitter=lambda: 0.5),
                )
            )
            pen = journal.begin_turn(turn_id=f"t{number}", session_id=SESSION, folder="/here", title="go")
            before = [journal.events(f"t{earlier}") for earlier in range(number)]
            running = runner.run(started, earlier=fold_session(before).carried, journal=pen)
            await (settled(running, clock=clock) if jumps else asyncio.wait_for(running, HANG_S))
        return read_recorded(journal, journal.find_session(SESSION))


def journalled(turns: Sequence[Sequence[Event]]) -> RecordedSession:
    """These turns, written into a journal and read back. One that has not ended is left there as a killed process leaves it."""
    fold = SessionFold()
    with Journal(None, clock=FakeClock()) as journal:
        for number, events in enumerate(turns):
            pen = journal.begin_turn(turn_id=f"t{number}", session_id=SESSION, folder="/here", title="go")
            for event in events:
                pen.later(event)
            result = _folded(fold, events)
            if result is None:
                pen.abandon()
            else:
                pen.close(result)
        return read_recorded(journal, journal.find_session(SESSION))


def _folded(fold: SessionFold, events: Sequence[Event]) -> TurnResult | None:
    """How the turn ended; None if it did not, or if it has an event that no turn takes."""
    started = events[0]
    assert isinstance(started, TurnStarted)
    try:
        turn, commands = restore(events, earlier=fold.carried)
    except (TurnwiseBug, CallerError):
        return None
    result = commands[-1].result if isinstance(commands[-1], FinishTurn) else None
    fold.take(turn, started=started)
    return result
