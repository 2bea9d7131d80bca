"""What has happened is in the journal's file before anything is acted upon, though a step makes two transactions only
(promise keep:crash)."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from families import of_family, traits_of
from flat_agents import flat_agent
from lab.failing import settled
from turnwise import Agent, Journal, Model, tool
from turnwise.agent.agent import inside
from turnwise.base.clock import SystemClock
from turnwise.endpoints.transport import Circuits
from turnwise.errors import CallerError
from turnwise.journal.ledger import LedgerEntry
from turnwise.journal.ledger_queries import LedgerSpan
from turnwise.journal.turn_writer import RequestSent, TurnJournal, decode_record, encode_record
from turnwise.rules.permissions import Policy
from turnwise.rules.retries import CircuitPolicy
from turnwise.running.approvals import Asking
from turnwise.running.hooks import Hook
from turnwise.running.runner_config import EndpointRecovery
from turnwise.running.watcher_events import AttemptDiscarded, CallAnswered, StepStarted, WatcherEvent
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.turn.config import Approval, TurnConfig
from turnwise.turn.events import PrepareStep, StepPrepared, TurnStarted
from turnwise.vocab import NO_TRAITS, Fault, FaultKind, Message, Request, Text
from turnwise.wire.family import MODULES

ENTRY = LedgerEntry(
    session="s1",
    turn="t1",
    root_session="s1",
    root_turn="t1",
    number=1,
    step=1,
    purpose="step",
    provider="p",
    model="m",
    started=1.0,
    sent_bytes=3,
)
STARTED = TurnStarted(
    config=TurnConfig(session_id="s1", turn_id="t1", model="m", **of_family("openai_chat")),
    input=(Message("user", (Text("go"),)),),
)
SENT = RequestSent(number=1, purpose="step", url="u", body_sha256="", body_bytes=3)
BEFORE_STEP_1 = ["turn_started", "step_prepared", "request_sent"]
CALLED = [*BEFORE_STEP_1, "response_received", "hooks_ran", "asked"]
RAN = [*CALLED, "tools_started", "tools_finished"]


class File:
    """What another process would find if this one were killed now."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seen: list[tuple[str, Any]] = []

    def look(self, where: str) -> None:
        """Note what kinds of records are there, and which requests are known to have ended."""
        with sqlite3.connect(f"file:{self.path}?mode=ro", uri=True) as connection:
            kinds = [kind for (kind,) in connection.execute("select kind from written order by seq").fetchall()]
            ended = [outcome for (outcome,) in connection.execute("select outcome from request order by number")]
        connection.close()
        self.seen.append((where, (kinds, ended)))


async def test_nothing_begins_before_what_led_to_it_is_written(tmp_path: Path) -> None:
    """Seen from outside, when a request has left, a tool runs, a person is asked, a hook or `prepare_step` is run, a retry is
    waited for and a watcher is told."""
    file, clock = File(tmp_path / "j.db"), FakeClock()

    def answered(said: object) -> Any:
        def line(_: Request) -> Any:
            file.look("request")
            return said

        return line

    @tool(effect="execute")
    async def look(place: str) -> str:
        file.look("tool")
        return place

    def prepare(view: PrepareStep) -> StepPrepared | None:
        file.look("prepare")
        return None

    async def approve(asking: Asking) -> Sequence[Approval]:
        file.look("person")
        return [Approval(call_id=one.call.id, verdict="allow") for one in asking.asks]

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, AttemptDiscarded | CallAnswered):
            file.look(type(seen).__name__)

    async def hook(_: object) -> None:
        file.look("hook")

    overloaded = Fault(kind=FaultKind.OVERLOADED, message="later", status=529, retry_after_s=0)
    model = ScriptedModel(
        [answered(call("look", place="here")), answered(overloaded), answered(call("lost")), answered("Done.")],
        family="anthropic_messages",
    )
    with Journal(file.path, clock=clock) as journal:
        agent = flat_agent(
            "anthropic_messages:m",
            base_url=BASE_URL,
            tools=[look],
            transport=model,
            clock=clock,
            journal=journal,
            prepare_step=prepare,
            policy=Policy(attended=True),
            approver=approve,
            hooks=[Hook(point="before_tool", function=hook, name="h")],
        )
        await settled(agent.run("Look.", watch=watch), clock=clock)
    twice = [*RAN, "step_prepared", "request_sent", "request_failed"]
    again = [*twice, "wait_over", "request_sent"]
    lost = [*again, "response_received"]
    assert file.seen == [
        ("prepare", (["turn_started"], [])),
        ("request", (BEFORE_STEP_1, [None])),
        ("hook", ([*BEFORE_STEP_1, "response_received"], ["ok"])),
        ("person", (CALLED[:-1], ["ok"])),
        ("tool", ([*CALLED, "tools_started"], ["ok"])),
        ("prepare", (RAN, ["ok"])),
        ("request", (twice[:-1], ["ok", None])),
        ("AttemptDiscarded", (twice, ["ok", "overloaded"])),
        ("request", (again, ["ok", "overloaded", None])),
        ("CallAnswered", (lost, ["ok", "overloaded", "ok"])),
        ("prepare", (lost, ["ok", "overloaded", "ok"])),
        ("request", ([*lost, "step_prepared", "request_sent"], ["ok", "overloaded", "ok", None])),
    ]


async def test_results_are_written_before_a_watcher_is_told_of_a_step_that_sends_nothing(tmp_path: Path) -> None:
    """Proves: also where the endpoint is left alone for a while, so that no request writes what led to it."""
    file = File(tmp_path / "journal.db")
    circuits = Circuits(clock=SystemClock(), policy=CircuitPolicy(failures=1, open_s=3600))

    @tool
    def look() -> str:
        """Look."""
        circuits.saw((BASE_URL, "m"), fault=Fault(kind=FaultKind.OVERLOADED, message="busy", status=529))
        return "seen"

    def watch(seen: WatcherEvent) -> None:
        if isinstance(seen, StepStarted):
            file.look(f"step {seen.step}")

    model = ScriptedModel([call("look"), "done"], family="anthropic_messages")
    with Journal(file.path, clock=SystemClock()) as journal:
        agent = flat_agent("anthropic_messages:m", base_url=BASE_URL, tools=[look], transport=model, journal=journal)
        agent._recovery = EndpointRecovery(circuits=circuits)
        await agent.run("Look.", watch=watch)
    kinds = [kinds for _, (kinds, _) in file.seen]
    assert kinds[1][-1] == "tools_finished"


def begin(journal: Journal) -> TurnJournal:
    return journal.begin_turn(turn_id="t1", session_id="s1", folder="/here", title="go")


@pytest.mark.parametrize("written_by", ["append", "write", "request_leaves", "abandon"])
def test_what_waits_is_written_with_what_comes_next_in_order(written_by: str) -> None:
    with Journal(None, clock=FakeClock()) as journal:
        pen = begin(journal)
        pen.later(STARTED)
        assert journal.entries("t1") == []
        match written_by:
            case "append":
                pen.append(SENT)
            case "request_leaves":
                pen.request_leaves(SENT, ENTRY)
            case "write":
                pen.write()
            case _:
                pen.abandon()
        wanted = [STARTED, SENT] if written_by in ("append", "request_leaves") else [STARTED]
        assert [entry.record for entry in journal.entries("t1")] == wanted


def test_what_became_of_a_request_is_kept_though_the_turn_is_anothers(tmp_path: Path) -> None:
    """It was sent, so it is billed; the events are refused, and a request that was to leave is not entered."""
    path = tmp_path / "j.db"
    with Journal(path, clock=SystemClock()) as journal:
        pen = begin(journal)
        pen.request_leaves(SENT, ENTRY)
        with sqlite3.connect(path) as other:
            other.execute("update turn set epoch = 2")
        other.close()
        pen.request_became(msgspec.structs.replace(ENTRY, outcome="ok"))
        pen.later(STARTED)
        with pytest.raises(CallerError, match="taken this turn over"):
            pen.request_leaves(SENT, msgspec.structs.replace(ENTRY, number=2))
        assert [entry.record for entry in journal.entries("t1")] == [SENT]
        assert journal.ledger.entries(LedgerSpan()) == [msgspec.structs.replace(ENTRY, outcome="ok")]
        pen.abandon()


def test_a_request_that_was_left_behind_is_completed_after_the_turns_end() -> None:
    with Journal(None, clock=FakeClock()) as journal:
        pen = begin(journal)
        pen.request_leaves(SENT, ENTRY)
        pen.abandon()
        pen.request_became(msgspec.structs.replace(ENTRY, outcome="cancelled"))
        assert journal.ledger.entries(LedgerSpan()) == [msgspec.structs.replace(ENTRY, outcome="cancelled")]


def test_a_turn_of_before_is_read_with_what_its_family_takes() -> None:
    """Proves: a journal that has a family's name alone gives the same turn as one of today, which says what the family takes; a
    name that nobody knows stays as it is."""
    for name in MODULES:
        config = replace(STARTED.config, **of_family(name))
        for written in (config, replace(config, traits=NO_TRAITS)):
            read = decode_record(encode_record(replace(STARTED, config=written)))
            assert isinstance(read, TurnStarted)
            assert read.config.traits == traits_of(name)
    assert traits_of("gemini") != NO_TRAITS
    unknown = replace(STARTED, config=replace(STARTED.config, family="of_tomorrow", traits=NO_TRAITS))
    assert decode_record(encode_record(unknown)) == unknown


def test_an_agents_turns_know_what_their_family_takes() -> None:
    """Proves: the configuration of a run carries the traits of the family that its endpoint speaks."""
    for name in MODULES:
        agent = Agent(Model(f"{name}:m", base_url=BASE_URL))
        assert ((config := inside(agent).config).family, config.traits) == (name, traits_of(name))
