"""No sequence of responses, results, failures and interrupts breaks a turn (done-when 4)."""

import json
from collections import Counter
from typing import Literal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turn.wire_prefix import Wire, check_prefixes, read_wire
from turnwise.rules.budget import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.history import heal
from turnwise.rules.limits import MaxRequests, MaxTokens, MaxWallTime
from turnwise.rules.stop import OUTCOMES
from turnwise.testing.pairing import pairing_faults
from turnwise.turn.commands import Command, FinishTurn, PrepareStep, RunTools, SendRequest
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.continuing import RECOVERY
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    StepPrepared,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.turn.snapshot import replay, session_messages
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Response,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.registry import family as find_family

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}'
OFFERS = (
    ToolOffer(spec=ToolSpec(name="read", parameters=SCHEMA), effect="read"),
    ToolOffer(spec=ToolSpec(name="write", parameters=SCHEMA), effect="write", exclusive=True),
    ToolOffer(spec=ToolSpec(name="ask_client"), client_side=True),
    ToolOffer(spec=ToolSpec(name="patch", free_form=True), timeout_s=1.0),
)

ids = st.sampled_from(["", "a", "b", "a_2", "x:1"])
names = st.sampled_from(["read", "write", "ask_client", "patch", "raed", "", "not a name", "n" * 70])
# Beginnings that can be gone on from, and replies that do so.
STORY = "The quick brown fox jumps over the lazy dog, again and again, until nobody counts any more"
BEGUN = '{"a":1,"more":"The quick brown fox jumps over the lazy dog, again and ag'
RESTS = [STORY[40:] + ", and then the end.", BEGUN[30:] + 'ain"}', STORY[40:] + ", and then the quick dog jumps"]
texts = st.sampled_from(["", " \n", "Hello.", '{"a":1}', '```json\n{"a":1}\n```', '{"a":"x"}', STORY, *RESTS])
arguments = st.sampled_from(
    ["{}", '{"a":1}', BEGUN, '{"a":"no"}', '{"a":', "[1]", "", '{"a":1}{"a":2}', '{"input":"p"}', "\ud800"]
)
opaques = st.none() | st.just(Opaque("gemini", "{}"))
calls = st.builds(
    ToolCall,
    id=ids,
    name=names,
    arguments=arguments,
    state=st.sampled_from(ArgumentsState),
    free_form=st.booleans(),
    reason=st.none() | st.just("cut inside the string at `$.a` after 3 characters"),
    alternatives=st.sampled_from([(), (), ('{"a":1}', '{"a":2}'), ('{"a":1}', '{"a":"no"}')]),
)
results = st.builds(
    ToolResult,
    call_id=ids,
    name=names,
    content=st.lists(st.builds(Text, texts) | st.just(File(media_type="image/png", data=b"1")), max_size=2).map(tuple),
    is_error=st.booleans(),
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts, opaque=opaques),
    st.builds(Reasoning, texts),
    st.builds(Refusal, texts),
    st.just(File(media_type="image/png", url="https://x/y.png")),
    st.just(ProviderItem("anthropic_messages", "server_tool_use", "{}")),
    calls,
    calls,
    results,
)
messages = st.builds(
    Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(parts, max_size=4).map(tuple)
)
faults = st.builds(Fault, kind=st.sampled_from(FaultKind), message=st.sampled_from(["", "overloaded"]))
any_responses = st.builds(
    Response,
    message=st.lists(parts, max_size=4).map(lambda some: Message("assistant", tuple(some))),
    finish=st.sampled_from(FinishReason),
    usage=st.none() | st.just(Usage(input_tokens=1, output_tokens=1)),
    fault=st.sampled_from([None, None, None, None, Fault(kind=FaultKind.SERVER, message="boom")]),
)
cut_responses = st.builds(
    Response,
    message=st.sampled_from(
        [
            (ToolCall(id="a", name="read", arguments=BEGUN, state=ArgumentsState.TRUNCATED),),
            (
                ToolCall(id="b", name="read", arguments='{"a":1}'),
                ToolCall(id="b", name="read", arguments=BEGUN, state=ArgumentsState.TRUNCATED),
                ToolCall(id="a", name="write", arguments=BEGUN, state=ArgumentsState.TRUNCATED),
            ),
            (Text(STORY),),
            (Reasoning("hm"),),
            *[(Text(rest),) for rest in RESTS],
        ]
    ).map(lambda some: Message("assistant", some)),
    finish=st.sampled_from([FinishReason.LENGTH, FinishReason.STOP, FinishReason.CUT]),
)
responses = any_responses | cut_responses
choices = st.sampled_from(["auto", "none", "required", NamedTool("read"), NamedTool("gone")])
outputs = st.none() | st.just(OutputSchema(schema=SCHEMA))
preparations = st.builds(
    StepPrepared,
    model=st.none() | st.just("m2"),
    tools=st.none() | st.lists(st.sampled_from(["read", "ask_client", "gone"]), max_size=2).map(tuple),
    tool_choice=st.none() | choices,
    parallel_tool_calls=st.none() | st.booleans(),
    instruction=st.none() | st.just("Be brief."),
    output=outputs,
    at_s=st.sampled_from([0.0, 4.0]),
)
limits = st.sampled_from(
    [None, None, MaxRequests(1), MaxRequests(3), MaxTokens(3_000) | MaxWallTime(20), MaxRequests(2) & MaxTokens(2_500)]
)
times = st.sampled_from([0.0, 3.0, 12.0])  # out of order too: a driver's clock is not ours to trust
configs = st.builds(
    TurnConfig,
    session_id=st.just("s"),
    turn_id=st.just("t"),
    model=st.just("m"),
    tools=st.sampled_from([(), OFFERS, OFFERS]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
    parallel_tool_calls=st.none() | st.booleans(),
    output=outputs,
    max_output_corrections=st.integers(0, 2),
    max_steps=st.integers(1, 8),
    limits=limits,
    allowed=st.sampled_from([("none", "read"), ("none", "read", "write")]),
    prepares_steps=st.booleans(),
    family=st.sampled_from(FAMILIES),
    accepts_prefill=st.booleans(),
    stream=st.booleans(),
    recover=st.sampled_from(["continue", "split", "off"]),
    model_limits=st.sampled_from([UNKNOWN_LIMITS, ModelLimits(context_window_tokens=9000, max_output_tokens=4000)]),
    default_max_tokens=st.sampled_from([None, 100]),
    tool_choice_none=st.sampled_from(["send", "drop_tools"]),
)
starts = st.builds(
    TurnStarted,
    config=configs,
    input=st.lists(messages, max_size=2).map(tuple),
    history=st.lists(messages, max_size=6).map(tuple),
)


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
        case RunTools(calls=planned):
            sound = [ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("ok"),)) for plan in planned]
            kept = data.draw(st.lists(st.sampled_from(sound), max_size=4, unique_by=lambda some: some.call_id))
            return ToolsFinished(results=(*kept, *data.draw(st.lists(results, max_size=1))), at_s=data.draw(times))
        case FinishTurn():
            raise AssertionError("nothing follows the end")


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


def check_end(end: FinishTurn, *, turn: Turn) -> None:
    result = end.result
    assert result.text.strip() or result.stop_reason is StopReason.WAITING
    assert (result.stop_reason, result.complete) in {(row.stop_reason, row.complete) for row in OUTCOMES}
    assert turn.config.recover != "off" or result.requests <= turn.config.max_steps + 1
    assert result.steps <= turn.config.max_steps
    if isinstance(turn.config.limits, MaxRequests):
        assert result.requests <= turn.config.limits.requests
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
    wires = [wire_of(each, config=started.config) for each in commands if isinstance(each, SendRequest)]
    check_prefixes(wires, named=command.result.prefix_changes)
    asked = [each.purpose for each in commands if isinstance(each, SendRequest)]
    assert len([purpose for purpose in asked if purpose not in RECOVERY]) <= started.config.max_steps + 1
    assert asked.count("retry") <= started.config.max_steps * 2
    assert started.config.recover != "off" or RECOVERY.isdisjoint(asked)
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
    """Each turn is folded without the messages of the one before it, and adds the same."""
    journals: list[list[Event]] = []
    messages: tuple[Message, ...] = ()
    for started in (first, second):
        turn, command = Turn.start(started, earlier=messages)
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
