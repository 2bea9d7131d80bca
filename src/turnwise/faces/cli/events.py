"""`--json`: one JSON object a line, while it happens; the last is the result."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.drivers.running.watching import (
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
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
from turnwise.faces.cli.failures import USAGE
from turnwise.faces.cli.last_line import Unable
from turnwise.faces.results import RunResult
from turnwise.vocab import NO_USAGE, ReasoningDelta, RefusalDelta, StopReason, Text, TextDelta, ToolCall, ToolResult

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


class JsonLines:
    """Writes each event to standard output at once, so that a reader of the pipe can follow."""

    def __init__(self, *, within: Mapping[str, object] | None = None) -> None:
        self._within = within or {}  # what each line of a sub-agent says besides: which one it is
        self._children: dict[tuple[str, ...], JsonLines] = {}
        self._started: set[str] = set()  # ids of calls at hand
        self._goes_on = False  # the response at hand is the rest of a cut one: JSON, or a text that overlaps

    def __call__(self, seen: WatcherEvent) -> None:
        match seen:
            case ChildSeen(call_id=call_id, path=path):
                within = {"path": path, "parent": call_id}
                self._children.setdefault((*path, call_id), JsonLines(within=within))(seen.seen)
            case StepStarted(step=step):
                self._write({"event": "step", "step": step})
            case FrameSeen() if self._goes_on:
                pass
            case RequestStarted():
                self._goes_on = "continue" in (seen.purpose, seen.retry_of)
                again = {"retry_of": seen.retry_of} if seen.retry_of else {}
                self._write(
                    {
                        "event": "request",
                        "number": seen.number,
                        "step": seen.step,
                        "purpose": seen.purpose,
                        "model": seen.model,
                        **again,
                    }
                )
            case FrameSeen(frame=TextDelta(text="") | ReasoningDelta(text="") | RefusalDelta(text="")):
                pass
            case FrameSeen(frame=TextDelta(text=text)):
                self._write({"event": "text", "delta": text})
            case FrameSeen(frame=ReasoningDelta(text=text)):
                self._write({"event": "reasoning", "delta": text})
            case FrameSeen(frame=RefusalDelta(text=text)):
                self._write({"event": "refusal", "delta": text})
            case RequestFinished():
                self._write(
                    {
                        "event": "response",
                        "number": seen.number,
                        "finish_reason": seen.response and seen.response.finish,
                        "fault": seen.fault,
                        "seconds": round(seen.seconds, 6),
                        **({} if seen.sent else {"sent": False}),
                        **({} if seen.cache_missed is None else {"cache_missed": seen.cache_missed}),
                    }
                )
            case AttemptDiscarded():
                self._write(
                    {
                        "event": "discarded",
                        "number": seen.number,
                        "fault": seen.fault,
                        "retry_in_s": seen.retry_in_s,
                    }
                )
            case ToolStarted(call=call):
                self._write_call(call)
            case ToolFinished(result=result):
                self._write_result(result, seconds=round(seen.seconds, 6))
            case CallAnswered(call=call, result=result):
                if call.id not in self._started:
                    self._write_call(call)
                self._write_result(result, seconds=None)
            case FrameSeen() | ToolProgress() | TurnFinished():
                pass  # told by other lines: `tool_call`, `response`, `tool_result`, `result`
            case _:
                self._write_plainly(seen)

    def tell(self, line: str) -> None:
        self._write({"event": "note", "text": line})

    def close(self) -> None:
        with contextlib.suppress(OSError):  # raised already, by the line that could not be written
            sys.stdout.flush()

    def finish(
        self,
        result: RunResult,
        *,
        code: int,
        denied: Sequence[DeniedCall] = (),
        event: Literal["result", "resumed"] = "result",
    ) -> None:
        """`resumed`: another turn follows."""
        self._write({"event": event, **result_fields(result, denied=denied), "exit_code": code})

    def summarise(self, sessions: Sequence[Mapping[str, object]], *, failed: int, code: int) -> None:
        """The last line of several sessions: what came of each."""
        self._write({"event": "summary", "sessions": sessions, "failed": failed, "exit_code": code})

    def _write_call(self, call: ToolCall) -> None:
        self._started.add(call.id)
        self._write({"event": "tool_call", "id": call.id, "name": call.name, "arguments": call.arguments})

    def _write_result(self, result: ToolResult, *, seconds: float | None) -> None:
        """`seconds` is None where no tool gave the result."""
        self._started.discard(result.call_id)
        self._write(
            {
                "event": "tool_result",
                "id": result.call_id,
                "name": result.name,
                "is_error": result.is_error,
                "text": text_of_result(result),
                "seconds": seconds,
            }
        )

    def _write_plainly(self, seen: WatcherEvent) -> None:
        """An event that has no line of its own here: all that it holds, under the names that it has in the library."""
        self._write({"event": kind_of(seen), **msgspec.structs.asdict(seen)})

    def _write(self, line: dict[str, object]) -> None:
        write_line({**line, **self._within})


def write_line(line: Mapping[str, object]) -> None:
    """On standard output, at once."""
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


def result_fields(result: RunResult, *, denied: Sequence[DeniedCall]) -> dict[str, object]:
    """What there is to say of a turn that has ended, under the names of docs/cli.md."""
    usage = result.usage
    return {
        "text": result.text,
        "stop_reason": result.stop_reason,
        "complete": result.complete,
        "why_incomplete": result.why_incomplete,
        "fault": result.fault,
        "steps": result.steps,
        "requests": result.requests,
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


def write_unable(unable: Unable) -> None:
    """The last line of a command that came to no result of a turn. `requests` is null where some may have been sent."""
    result = RunResult(
        text=unable.why,
        stop_reason=StopReason.CANCELLED,  # below stands the reason itself
        complete=False,
        why_incomplete=unable.why,
        output_or_none=None,
        steps=0,
        requests=0,
        requests_by_purpose={},
        usage=NO_USAGE,
        recovery_usage=NO_USAGE,
        reasoning="",
        repairs=(),
        pending=(),
        asks=(),
        unread=(),
        children=(),
        fault=None,
        written_locally=True,
        history=(),
        messages=(),
        new_messages=(),
        session="",
        prefix_changes=(),
    )
    of_command = {"stop_reason": unable.stop_reason, "exit_code": unable.exit_code}
    sent = {} if unable.exit_code == USAGE else {"requests": None}
    write_line({"event": "result", **result_fields(result, denied=()), **of_command, **sent})
