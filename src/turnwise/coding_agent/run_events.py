"""What happens in a run: an object for each event, the fields of its result (docs/cli.md, `--json`), and its end in words."""

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from turnwise.agent.results import RunResult
from turnwise.coding_agent.choice import Choice
from turnwise.coding_agent.plan import Plans
from turnwise.coding_agent.text import clean, short_id, shortened, visible_line
from turnwise.running.watcher_events import (
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FilesChanged,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
    kind_of,
)
from turnwise.vocab import (
    Fault,
    FaultKind,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
)

DENIED = "Denied: "  # how the results begin that the turn itself gives to calls that may not run


class DeniedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that was not allowed to run; `path` names the sub-agents that lead to it, `why` is what the model was told."""

    path: tuple[str, ...]
    name: str
    why: str


def denied_in(seen: WatcherEvent) -> DeniedCall | None:
    """The call that this event says was not allowed to run."""
    inner, path = (seen.seen, seen.path) if isinstance(seen, ChildSeen) else (seen, ())
    if isinstance(inner, CallAnswered) and (why := text_of_result(inner.result)).startswith(DENIED):
        return DeniedCall(path=path, name=inner.call.name, why=why)
    return None


def text_of_result(result: ToolResult) -> str:
    return "".join([part.text for part in result.content if isinstance(part, Text)])


class EventObjects:
    """Makes the objects of one run, event by event. `within` is added to each; to those of a sub-agent, which one it is."""

    def __init__(self, *, within: Mapping[str, object] | None = None) -> None:
        self._within = within or {}
        self._children: dict[tuple[str, ...], EventObjects] = {}
        self._started: set[str] = set()  # ids of open calls
        self._plans = Plans()
        self._goes_on = False  # the current response is the rest of a cut one: JSON, or a text that overlaps

    def of_event(self, seen: WatcherEvent) -> list[dict[str, object]]:
        """None, one or two: a call that never started is told with its answer."""
        if isinstance(seen, ChildSeen):
            within = {"path": seen.path, "parent": seen.call_id}
            child = self._children.setdefault((*seen.path, seen.call_id), EventObjects(within=within))
            return child.of_event(seen.seen)
        plan = self._plans.of_event(seen)
        plans = [] if plan is None else [{"event": "plan", "entries": plan.entries}]
        return [{**told, **self._within} for told in [*self._own(seen), *plans]]

    def _own(self, seen: WatcherEvent) -> list[dict[str, object]]:
        match seen:
            case StepStarted(step=step):
                return [{"event": "step", "step": step}]
            case FrameSeen() if self._goes_on:
                return []
            case RequestStarted():
                self._goes_on = "continue" in (seen.purpose, seen.retry_of)
                again = {"retry_of": seen.retry_of} if seen.retry_of else {}
                told = {"event": "request", "number": seen.number, "step": seen.step}
                return [{**told, "purpose": seen.purpose, "model": seen.model, **again}]
            case FrameSeen(frame=TextDelta(text="") | ReasoningDelta(text="") | RefusalDelta(text="")):
                return []
            case FrameSeen(frame=TextDelta(text=text)):
                return [{"event": "text", "delta": text}]
            case FrameSeen(frame=ReasoningDelta(text=text)):
                return [{"event": "reasoning", "delta": text}]
            case FrameSeen(frame=RefusalDelta(text=text)):
                return [{"event": "refusal", "delta": text}]
            case RequestFinished():
                return [_response_fields(seen)]
            case AttemptDiscarded():
                told = {"event": "discarded", "number": seen.number, "fault": seen.fault}
                return [{**told, "retry_in_s": seen.retry_in_s}]
            case ToolStarted(call=call):
                self._started.add(call.id)
                return [_call_fields(call)]
            case ToolFinished(result=result):
                self._started.discard(result.call_id)
                return [_tool_result_fields(result, seconds=round(seen.seconds, 6))]
            case CallAnswered(call=call, result=result):
                begun = [] if call.id in self._started else [_call_fields(call)]
                self._started.discard(result.call_id)
                return [*begun, _tool_result_fields(result, seconds=None)]
            case FilesChanged(call=call):
                told = {"event": "files_changed", "id": call.id, "name": call.name, "diff": seen.diff}
                return [{**told, "added": seen.added, "removed": seen.removed}]
            case FrameSeen() | ToolProgress() | TurnFinished():
                return []  # told by other objects: `tool_call`, `response`, `tool_result`, `result`
            case _:  # all that it holds, under the names that it has in the library
                return [{"event": kind_of(seen), **msgspec.structs.asdict(seen)}]


def _response_fields(seen: RequestFinished) -> dict[str, object]:
    return {
        "event": "response",
        "number": seen.number,
        "finish_reason": seen.response and seen.response.finish,
        "fault": seen.fault,
        "seconds": round(seen.seconds, 6),
        **({} if seen.sent else {"sent": False}),
        **({} if seen.cache_missed is None else {"cache_missed": seen.cache_missed}),
    }


def _call_fields(call: ToolCall) -> dict[str, object]:
    return {"event": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments}


def _tool_result_fields(result: ToolResult, *, seconds: float | None) -> dict[str, object]:
    """`seconds` is None where no tool gave the result."""
    return {
        "event": "tool_result",
        "id": result.call_id,
        "name": result.name,
        "is_error": result.is_error,
        "text": text_of_result(result),
        "seconds": seconds,
    }


def result_fields(result: RunResult, *, denied: Sequence[DeniedCall]) -> dict[str, object]:
    """The fields of a turn that has ended, under the names of docs/cli.md."""
    usage = result.own.usage
    return {
        "text": result.shown_text,
        "stop_reason": result.stop_reason,
        "complete": result.complete,
        "why_incomplete": result.why_incomplete,
        "fault": result.fault,
        "steps": result.steps,
        "requests": result.own.requests,
        "requests_by_purpose": result.requests_by_purpose,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.reasoning_tokens,
            "cache_read_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "recovery_usage": {
            "input_tokens": result.recovery_usage.input_tokens,
            "output_tokens": result.recovery_usage.output_tokens,
        },
        "cost_usd": result.cost_usd,
        "repairs": result.repairs,
        "asks": [
            {"id": ask.call.id, "name": ask.call.name, "arguments": ask.arguments, "kind": ask.kind}
            | {"subject": ask.subject, "why": ask.why}
            for ask in result.asks
        ],
        "denied": denied,
        "children": result.children,
        "session": result.session,
    }


# How a turn ended, in words; of a provider that failed, one line of advice with the command that shows more.


MESSAGE = 100  # characters of a provider's own message that are told

# What a user may look at first, by what kind of failure the provider showed.
REMEDIES = {
    FaultKind.UNREACHABLE: "check the address (--base-url), and that the server runs",
    FaultKind.TIMEOUT: "try again later, or check the address (--base-url)",
    FaultKind.DISCONNECTED: "run it again with --continue",
    FaultKind.AUTH: "check the key, and that it may use this model (`turnwise auth add` stores one; --api-key-env names a "
    "variable)",
    FaultKind.BAD_REQUEST: "check that the model and the API family fit together (--model)",
    FaultKind.CONTEXT_OVERFLOW: "start a new session, or ask for less at once",
    FaultKind.RATE_LIMITED: "wait, then run it again with --continue",
    FaultKind.QUOTA: "look at the account's plan and limits",
    FaultKind.OVERLOADED: "wait, then run it again with --continue",
    FaultKind.SERVER: "run it again with --continue",
    FaultKind.PROTOCOL: "check the address and the API family (--base-url, --model)",
    FaultKind.TOO_LARGE: "check the address and the API family (--base-url, --model)",
}


class FailedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Which model of which endpoint failed, and whether `/model` can be typed."""

    choice: Choice
    in_session: bool = False


def describe_end(result: RunResult, *, asked: FailedModel) -> str:
    match result.stop_reason:
        case StopReason.WAITING:
            approved = {ask.call.id for ask in result.asks}
            calls = ", ".join([visible_line(call.name) for call in result.pending if call.id not in approved])
            wanted = [*(["an approval"] if approved else []), *([f"results of: {calls}"] if calls else [])]
            return f"waiting for {' and '.join(wanted)}"
        case StopReason.CANCELLED:
            return "cancelled"
        case StopReason.GIVEN_UP | StopReason.TOOL_FAILED:
            return result.why_incomplete
        case StopReason.REFUSED:
            return "refused"
        case StopReason.PROVIDER_FAILED:
            return f"the provider failed: {remedy(result.fault, asked=asked)}"
        case StopReason.JOURNAL_FAILED:
            return "not recorded: the journal could not be written, so the session does not hold this turn's end"
        case StopReason.ANSWERED:
            why = f": {result.why_incomplete}" if result.why_incomplete else ""
            return f"answered from incomplete data{why}"
        case StopReason.STEP_LIMIT if result.session:
            return f"answered from incomplete data: step_limit; {_how_to_go_on(result, in_session=asked.in_session)}"
        case other:
            return f"answered from incomplete data: {other}"


def _how_to_go_on(result: RunResult, *, in_session: bool) -> str:
    """What gives the session as many steps again, and more."""
    if in_session:
        return "your next prompt has as many steps again"
    return f'`turnwise run --session {short_id(result.session)} --max-steps {2 * result.steps} "go on"` goes on'


def describe_fault(fault: Fault) -> str:
    status = f" ({fault.status})" if fault.status is not None else ""
    return f"{fault.kind}{status}, {shortened(clean(fault.message), limit=MESSAGE)}"


def remedy(fault: Fault | None, *, asked: FailedModel) -> str:
    if fault is not None and fault.kind is FaultKind.NOT_FOUND:
        return _not_found(fault, asked=asked)
    return REMEDIES[FaultKind.SERVER if fault is None else fault.kind]


def _not_found(fault: Fault, *, asked: FailedModel) -> str:
    """The model comes first where the server spoke of it."""
    lists = f"`{listing_line(asked.choice)}` lists the models there"
    way = "`/model` shows some, `/model NAME` takes one" if asked.in_session else lists
    said = fault.message.partition(" (asked for ")[0].lower()  # the URL may hold the name, too
    name = asked.choice.model.partition(":")[2].lower()
    if name in said or "model" in said:
        return f"check the model's name: {way}"
    return f"check the address (--base-url), then the model's name: {way}"


def listing_line(choice: Choice) -> str:
    """What lists the models of its endpoint. A query of the address may hold a key, and is left out."""
    words = ["turnwise", "models", choice.model.partition(":")[0]]
    if choice.base_url:
        words += ["--base-url", choice.base_url.partition("?")[0]]
    if choice.api_key_env:
        words += ["--api-key-env", choice.api_key_env]
    return shlex.join(words)
