"""No sequence of responses, results, failures and interrupts breaks a turn (done-when 4)."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turn.drawn import SIZES, faults, preparations, responses, results, starts, times
from turn.wire_prefix import Wire, check_prefixes, read_wire
from turnwise.lab.raw import parse
from turnwise.lab.strict import ModelRules
from turnwise.lab.strict import check as judge
from turnwise.rules.history import heal
from turnwise.rules.limits import AllOf, AnyOf, Limit, MaxRequests
from turnwise.rules.stop import OUTCOMES
from turnwise.testing.pairing import pairing_faults
from turnwise.turn.commands import Command, FinishTurn, PrepareStep, RunTools, SendRequest, Wait
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.continuing import RECOVERY
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.turn.room import MAX_CORRECTIONS
from turnwise.turn.snapshot import fold_session, replay, session_messages
from turnwise.vocab import ArgumentsState, Message, StopReason, Text, ToolCall, ToolResult
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.registry import family as find_family


def next_event(data: st.DataObject, command: Command) -> Event:
    """Whatever could be reported after `command`: sound, absurd, or an interrupt."""
    if data.draw(st.integers(0, 15)) == 0:
        kind: Literal["cancel", "deadline"] = data.draw(st.sampled_from(["cancel", "deadline"]))
        given = tuple(data.draw(st.lists(results, max_size=2)))
        started = data.draw(st.none() | st.just(()) | st.just(tuple([result.call_id for result in given])))
        return Interrupted(kind=kind, results=given, started=started, partial=data.draw(st.none() | responses))
    match command:
        case PrepareStep():
            return data.draw(preparations)
        case SendRequest(number=number):
            if data.draw(st.integers(0, 15)) == 0:
                return RequestFailed(number=number, fault=data.draw(faults), partial=data.draw(st.none() | responses))
            return ResponseReceived(number=number, response=data.draw(responses), at_s=data.draw(times))
        case Wait():
            return WaitOver(at_s=data.draw(times))
        case RunTools(calls=planned):
            text = Text(data.draw(st.sampled_from(SIZES)))
            sound = [ToolResult(call_id=plan.call.id, name=plan.call.name, content=(text,)) for plan in planned]
            some = st.lists(st.sampled_from(sound), max_size=4, unique_by=lambda one: one.call_id)
            kept = sound if data.draw(st.booleans()) else data.draw(some)
            return ToolsFinished(results=(*kept, *data.draw(st.lists(results, max_size=1))), at_s=data.draw(times))
        case _:
            raise AssertionError(f"nothing that was configured leads to {command}")


def check_command(command: Command, *, turn: Turn) -> None:
    config = turn.config
    match command:
        case SendRequest(request=request):
            pausing = turn.paused and config.family == "anthropic_messages"
            may_end = config.accepts_prefill or pausing
            assert pairing_faults(request, family=config.family, may_end_with_assistant=may_end) == ()
            assert command.step <= config.max_steps
            if command.step == config.max_steps and config.tools:
                assert request.tool_choice == "none" or request.tools == ()
        case RunTools(calls=planned):
            assert planned
            for plan in planned:
                offer = turn.offers[plan.call.name]
                assert plan.call.state is ArgumentsState.COMPLETE
                assert offer.effect in config.allowed
                assert not offer.client_side
                assert offer.spec.free_form or isinstance(json.loads(plan.arguments), dict)
        case _:
            pass


def wire_of(sent: SendRequest, *, config: TurnConfig) -> Wire:
    """The request as it goes out to an endpoint of these facts."""
    rules = msgspec.structs.replace(
        builtin_profiles()[config.family],
        accepts_prefill=config.accepts_prefill,
        tool_choice_none=config.tool_choice_none,
        default_max_tokens=config.default_max_tokens,
    )
    call = find_family(config.family).encode_request(sent.request, rules)
    return read_wire(config.family, path=call.path, body=call.body)


def check_bytes(sent: Sequence[SendRequest], *, config: TurnConfig, result: TurnResult) -> None:
    """A strict server of the family takes every body, and what breaks its prefix cache is what the turn said."""
    check_prefixes([wire_of(each, config=config) for each in sent], named=result.prefix_changes)
    for each in sent:
        pauses = config.family == "anthropic_messages" and each.request.messages[-1].role == "assistant"
        body = wire_of(each, config=config).body
        judge(config.family, body=parse(body), rules=ModelRules(prefill=config.accepts_prefill or pauses))


def check_counts(sent: Sequence[SendRequest], *, config: TurnConfig, result: TurnResult) -> None:
    """No purpose is asked for more often than its rule allows, and all together no more than the limits."""
    asked = [each.purpose for each in sent if each.retry_of is None]
    attempts = config.retry.attempts * (1 + len(config.fallbacks))
    assert len(sent) <= len(asked) * attempts
    assert [each.number for each in sent] == list(range(1, len(sent) + 1))
    assert result.requests == len(sent) <= most_requests(config.limits)
    assert len([purpose for purpose in asked if purpose not in {*RECOVERY, "compact"}]) <= config.max_steps + 1
    assert asked.count("retry") <= config.max_steps * 2 + MAX_CORRECTIONS
    assert asked.count("compact") <= len(asked) - asked.count("compact") + 1
    assert config.recover != "off" or "continue" not in asked
    assert config.room == "compact" or "compact" not in asked
    assert config.room != "off" or config.recover != "off" or RECOVERY.isdisjoint(asked)


def most_requests(limit: Limit | None) -> float:
    match limit:
        case MaxRequests(requests):
            return requests
        case AnyOf(limits):
            return min([most_requests(one) for one in limits])
        case AllOf(limits):
            return max([most_requests(one) for one in limits])
        case _:
            return math.inf


def check_end(end: FinishTurn, *, turn: Turn) -> None:
    result = end.result
    assert result.text.strip() or result.stop_reason is StopReason.WAITING
    assert (result.stop_reason, result.complete) in {(row.stop_reason, row.complete) for row in OUTCOMES}
    assert result.steps <= turn.config.max_steps
    own = result.messages[len(turn.added) - len(result.messages) :]
    assert own == tuple(turn.added)
    pending = [call.id for call in result.pending]
    assert bool(pending) == (result.stop_reason is StopReason.WAITING)


def check_answered(turn: Turn, *, started: TurnStarted) -> None:
    """Every call that the turn added has exactly one result, but for pending ones."""
    assert turn.result is not None
    own = turn.added[len(started.input) :]
    asked = [part.id for message in own for part in message.parts if isinstance(part, ToolCall)]
    answered = Counter([part.call_id for message in own for part in message.parts if isinstance(part, ToolResult)])
    pending = {call.id for call in turn.result.pending}
    assert len(asked) == len(set(asked))
    assert answered == Counter([id for id in asked if id not in pending])


@pytest.mark.promise(
    "step:every-call-answered", "step:history-healed", "end:never-empty", "end:reason", "end:cap", "end:no-prefill"
)
@pytest.mark.promise("cut:never-run", "step:incomplete-response", "keep:replay", "step:prefix-stable")
@settings(max_examples=400, deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_every_sequence_ends_with_an_answer_a_reason_and_all_calls_answered(
    started: TurnStarted, data: st.DataObject
) -> None:
    """Always a command, each call exactly one result, text and reason at the end; every request passes a strict server."""
    turn, command = Turn.start(started)
    events: list[Event] = [started]
    commands = [command]
    while not isinstance(command, FinishTurn):
        check_command(command, turn=turn)
        events.append(next_event(data, command))
        command = turn.receive(events[-1])
        commands.append(command)
        assert len(events) < 100
    check_end(command, turn=turn)
    check_answered(turn, started=started)
    sent = [each for each in commands if isinstance(each, SendRequest)]
    check_bytes(sent, config=started.config, result=command.result)
    check_counts(sent, config=started.config, result=command.result)
    assert replay(events) == commands


@settings(max_examples=150, deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_a_turn_killed_anywhere_leaves_a_session_that_goes_on(started: TurnStarted, data: st.DataObject) -> None:
    """The fold of any prefix of a journal needs no result to be invented, whatever was at hand (kill -9)."""
    turn, command = Turn.start(started)
    events: list[Event] = [started]
    while not isinstance(command, FinishTurn) and data.draw(st.integers(0, 5)):
        events.append(next_event(data, command))
        command = turn.receive(events[-1])
    left = session_messages([events])
    waiting = isinstance(command, FinishTurn) and command.result.stop_reason is StopReason.WAITING
    own = left[len(started.history) + len(started.input) :]
    if not waiting:
        begun = (Message("user", (Text("hello"),)), *own)
        assert heal(begun, family=started.config.family, tool_names=turn.offers).repairs == ()
    again = TurnStarted(config=started.config, input=(Message("user", (Text("go on"),)),))
    _, command = Turn.start(again, earlier=left)
    if isinstance(command, SendRequest):
        assert pairing_faults(command.request, family=started.config.family) == ()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(first=starts, second=starts, data=st.data())
def test_the_fold_of_two_turns_is_what_they_added(first: TurnStarted, second: TurnStarted, data: st.DataObject) -> None:
    """Each turn starts from what the one before it carries on, and is folded to what it added."""
    journals: list[list[Event]] = []
    messages: tuple[Message, ...] = ()
    for started in (first, second):
        turn, command = Turn.start(started, earlier=fold_session(journals).carried)
        journals.append([started])
        while not isinstance(command, FinishTurn):
            journals[-1].append(next_event(data, command))
            command = turn.receive(journals[-1][-1])
        messages = (*messages, *started.history, *turn.added)
        assert session_messages(journals) == messages


@settings(max_examples=150, deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_a_turn_is_plain_data(started: TurnStarted, data: st.DataObject) -> None:
    """Encoded and decoded in mid-way it is equal, and gives the same commands."""
    try:
        msgspec.json.encode(started)
    except UnicodeEncodeError:
        return  # half of a surrogate pair stands in the drawn history; no journal can hold it
    turn, command = Turn.start(started)
    while not isinstance(command, FinishTurn):
        event = next_event(data, command)
        try:
            copy = msgspec.json.decode(msgspec.json.encode(turn), type=Turn)
        except UnicodeEncodeError:
            return
        assert copy == turn
        command = turn.receive(event)
        assert copy.receive(event) == command
