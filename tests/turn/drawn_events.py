"""What a turn can be told: an event for each command, the sound and the absurd."""

from collections.abc import Sequence
from typing import Literal

import msgspec
from hypothesis import strategies as st

from turn.drawn import SIZES, TOOLS, approvals, at_work, faults, preparations, responses, results, texts, times
from turnwise.rules.limits import AllOf, AnyOf, Limit, MaxRequests
from turnwise.rules.permission_facts import CallFacts, CommandFact, PathFact, ShellFacts, Word
from turnwise.turn.config import Approval, ChildReport, OneAsk
from turnwise.turn.events import (
    Ask,
    Asked,
    CallsInspected,
    Command,
    Event,
    FinishTurn,
    HookOutcome,
    HooksRan,
    InspectCalls,
    Interrupted,
    MessageArrived,
    PlannedCall,
    PrepareStep,
    RequestFailed,
    ResponseReceived,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    ToolsFinished,
    Wait,
    WaitOver,
)
from turnwise.vocab import File, Message, StopReason, Text, ToolCall, ToolResult, Usage

STRAY = "No call that ran has said this."
paths = st.builds(
    PathFact,
    given=st.just("a"),
    resolved=st.sampled_from(["/w/a", "/etc/a", "/w/.env", ""]),
    lexical=st.just("/w/a"),
    inside=st.booleans(),
    access=st.sampled_from(["read", "write"]),
)
shells = st.sampled_from(
    [
        ShellFacts(commands=(CommandFact(words=(Word("ls"),), text="ls"),)),
        ShellFacts(commands=(CommandFact(words=(Word("rm"), Word("-rf"), Word("/")), text="rm -rf /"),)),
        ShellFacts(parsed=False, problem="it ends in the middle"),
    ]
)
MOST_INSIDE = 12  # calls of a program
calls_inside = st.builds(
    ToolCall,
    id=st.just(""),
    name=st.sampled_from([*TOOLS, "script", "unknown"]),
    arguments=st.sampled_from(["{}", '{"a":1}', '{"a":2}', '{"a":"no"}', '{"input":"p"}']),
)
jitters = st.sampled_from([0.0, 0.25, 0.999])
words_in_between = st.builds(
    Message,
    st.just("user"),
    st.lists(st.builds(Text, texts) | st.just(File(media_type="image/png", data=b"1")), max_size=2).map(tuple),
)


def next_event(data: st.DataObject, command: Command, *, said: int = 0, busy: bool = False) -> Event:
    """Whatever could be reported after `command`: sound, absurd, a word in between (its number is `said`), an interrupt.
    A `busy` model mostly calls tools."""
    rare = data.draw(st.integers(0, 23))
    if rare == 0:
        return _interrupt(data, command)
    if rare == 1:
        word = data.draw(words_in_between)
        return MessageArrived(message=Message("user", (Text(f"word {said}"), *word.parts)), at_s=data.draw(times))
    match command:
        case PrepareStep():
            return data.draw(preparations)
        case SendRequest(number=number):
            return _reply(data, number=number, busy=busy)
        case Wait():
            return WaitOver(at_s=data.draw(times))
        case InspectCalls(calls=calls):
            facts = [_facts(data, plan) for plan in calls if data.draw(st.integers(0, 3))]
            return CallsInspected(
                facts=(*facts, *data.draw(st.sampled_from([(), (CallFacts(call_id="zz", tool="t", effect="none"),)])))
            )
        case RunHooks():
            return HooksRan(outcomes=tuple(_outcomes(data, command)), at_s=data.draw(times))
        case Ask(asks=asks):
            return Asked(approvals=tuple(draw_approvals(data, asks)), at_s=data.draw(times))
        case RunTools(calls=planned):
            return _ran(data, planned)
        case RunScript():
            return _program(data, command)
        case FinishTurn():
            raise AssertionError("nothing comes after the end")


def _reply(data: st.DataObject, *, number: int, busy: bool) -> Event:
    jitter, at_s = data.draw(jitters), data.draw(times)
    if data.draw(st.integers(0, 11)):
        said = at_work if busy and data.draw(st.integers(0, 4)) else responses
        return ResponseReceived(number=number, response=data.draw(said), at_s=at_s, jitter=jitter)
    sent = data.draw(st.integers(0, 3)) > 0
    partial = data.draw(responses_or_none) if sent else None
    fault = data.draw(faults)
    return RequestFailed(number=number, fault=fault, partial=partial, at_s=at_s, jitter=jitter, sent=sent)


pairs_of_results = st.lists(results, max_size=2)
responses_or_none = st.none() | responses
kinds_of_interrupts: st.SearchStrategy[Literal["cancel", "deadline"]] = st.sampled_from(["cancel", "deadline"])


def _interrupt(data: st.DataObject, command: Command) -> Interrupted:
    kind: Literal["cancel", "deadline"] = data.draw(kinds_of_interrupts)
    given = tuple(data.draw(pairs_of_results))
    started = data.draw(st.none() | st.just(()) | st.just(tuple([result.call_id for result in given])))
    children: tuple[ChildReport, ...] = ()
    if isinstance(command, RunTools):
        children = reports_of(data, command.calls)
        given = (*given, *[said_by(plan) for plan in command.calls if data.draw(st.booleans())])
        started = data.draw(st.none() | st.just(tuple([result.call_id for result in given])))
    sent = not isinstance(command, SendRequest) or data.draw(st.integers(0, 3)) > 0
    partial = data.draw(responses_or_none) if isinstance(command, SendRequest) and sent else None
    return Interrupted(kind=kind, results=given, started=started, partial=partial, sent=sent, children=children)


def said_by(plan: PlannedCall, text: str = "") -> ToolResult:
    """What a tool returns; nobody else says it of this call."""
    words = (Text(f"did {plan.call.id}"), *([Text(text)] if text else []))
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=words)


def _ran(data: st.DataObject, planned: Sequence[PlannedCall]) -> ToolsFinished:
    text = data.draw(st.sampled_from(SIZES))
    sound = [said_by(plan, text) for plan in planned]
    some = st.lists(st.sampled_from(sound), max_size=4, unique_by=lambda one: one.call_id)
    kept = sound if data.draw(st.booleans()) else data.draw(some)
    ids = {plan.call.id for plan in planned}
    strays = [ToolResult(call_id=id, name="read", content=(Text(STRAY),)) for id in ("a", "b", "a_2") if id not in ids]
    extra = data.draw(st.lists(st.sampled_from(strays), max_size=2)) if strays else []
    if data.draw(st.integers(0, 4)) == 0:
        extra += data.draw(st.lists(results, max_size=1))
    reports = reports_of(data, planned)
    return ToolsFinished(results=(*kept, *extra), children=reports, at_s=data.draw(times))


def _program(data: st.DataObject, command: RunScript) -> ScriptCalled | ScriptFinished:
    """Mostly it ends; else it calls what it likes, under ids of its own."""
    before = int(command.results[-1].call_id.rpartition("/")[2]) if command.results else 0
    if command.stop or before > MOST_INSIDE or data.draw(st.integers(0, 2)) == 0:
        text, is_error = data.draw(texts), data.draw(st.booleans())
        return ScriptFinished(call_id=command.call.id, text=text, is_error=is_error, at_s=data.draw(times))
    inner = data.draw(st.lists(calls_inside, min_size=1, max_size=3))
    named = [
        msgspec.structs.replace(call, id=f"{command.call.id}/{number}")
        for number, call in enumerate(inner, start=before + 1)
    ]
    return ScriptCalled(call_id=command.call.id, calls=tuple(named), at_s=data.draw(times))


def reports_of(data: st.DataObject, planned: Sequence[PlannedCall]) -> tuple[ChildReport, ...]:
    """What children spent: within what they were granted."""
    reports: list[ChildReport] = []
    for plan in planned:
        if plan.call.name == "task":
            most = min(most_requests(plan.grant), 5)
            requests = data.draw(st.integers(0, int(most)))
            usage = Usage(input_tokens=requests * 50, output_tokens=requests * 5)
            ended = data.draw(st.sampled_from([None, StopReason.ANSWERED, StopReason.BUDGET]))
            reports.append(
                ChildReport(call_id=plan.call.id, session_id="c", stop_reason=ended, requests=requests, usage=usage)
            )
    return tuple(reports)


def most_requests(limit: Limit | None) -> float:
    match limit:
        case MaxRequests(requests):
            return requests
        case AnyOf(limits):
            return min([most_requests(one) for one in limits])
        case AllOf(limits):
            return max([most_requests(one) for one in limits])
        case _:
            return float("inf")


def _facts(data: st.DataObject, plan: PlannedCall) -> CallFacts:
    name = plan.call.name
    unknown = data.draw(st.sampled_from(["", "", "", "the folder cannot be read"]))
    if name == "shell":
        return CallFacts(
            call_id=plan.call.id, tool=name, effect="execute", shell=data.draw(st.none() | shells), unknown=unknown
        )
    found = tuple(data.draw(st.lists(paths, max_size=2)))
    return CallFacts(call_id=plan.call.id, tool=name, effect="write", paths=found, unknown=unknown)


def _outcomes(data: st.DataObject, order: RunHooks) -> list[HookOutcome]:
    if order.point == "before_request":
        denied = data.draw(st.sampled_from([None, None, None, "", "not this one"]))
        return [HookOutcome(by="h", denied=denied)] if denied is not None else []
    outcomes: list[HookOutcome] = []
    for plan in order.calls:
        for by in data.draw(st.lists(st.sampled_from(["first", "second"]), max_size=2)):
            outcomes.append(data.draw(_outcome(plan.call, by=by)))
    stray = ToolCall(id="gone", name="read", arguments="{}")
    return [*outcomes, *data.draw(st.lists(_outcome(stray, by="stray"), max_size=1))]


def _outcome(call: ToolCall, *, by: str) -> st.SearchStrategy[HookOutcome]:
    changed = ToolResult(call_id=call.id, name="whatever", content=(Text("the hook's own"),))
    return st.sampled_from(
        [
            HookOutcome(by=by, call_id=call.id),
            HookOutcome(by=by, call_id=call.id, denied=""),
            HookOutcome(by=by, call_id=call.id, denied="no"),
            HookOutcome(by=by, call_id=call.id, arguments='{"a":2}'),
            HookOutcome(by=by, call_id=call.id, arguments='{"a":"x"'),
            HookOutcome(by=by, call_id=call.id, arguments='{"a":"no number"}'),
            HookOutcome(by=by, call_id=call.id, result=changed),
        ]
    )


def draw_approvals(data: st.DataObject, asks: Sequence[OneAsk]) -> list[Approval]:
    """Answers to some of the asks, of the subject that was shown or of another one, and to what nobody asked."""
    given: list[Approval] = []
    for ask in asks:
        verdict: Literal["allow", "deny", "later"] | None = data.draw(
            st.sampled_from([None, "allow", "allow", "deny", "later"])
        )
        if verdict is not None:
            given.append(
                Approval(
                    call_id=ask.call.id,
                    verdict=verdict,
                    by=data.draw(st.sampled_from(["person", "default", "program"])),
                    text=data.draw(st.sampled_from(["", "blue", " "])),
                    always=data.draw(st.booleans()),
                    subject=data.draw(st.sampled_from(["", ask.subject, "a subject of before"])),
                    digest=data.draw(st.sampled_from(["", ask.digest, "a digest of before"])),
                )
            )
    return [*given, *data.draw(st.lists(approvals, max_size=1))]
