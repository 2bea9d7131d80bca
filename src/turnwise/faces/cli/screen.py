"""A run on a terminal: the answer goes to standard output, everything else to standard error."""

import sys
from typing import TYPE_CHECKING, TextIO

import msgspec

from turnwise.drivers.watching import (
    FrameSeen,
    RequestFinished,
    RequestStarted,
    Seen,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from turnwise.faces.cli.text import clean, shortened, style
from turnwise.faces.results import RunResult
from turnwise.turn.config import TurnResult
from turnwise.vocab import (
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
)

if TYPE_CHECKING:
    from rich.status import Status

LINE = 100  # characters of a call or a result shown on one line


class Screen:
    """Shows what happens as it happens. Where standard output is no terminal it gets the answer only, once it is there,
    unless it `follows`. `notes` is where everything but the answer goes."""

    def __init__(self, *, notes: TextIO | None = None, follows: bool = False) -> None:
        self._notes = sys.stderr if notes is None else notes
        self._live = follows or sys.stdout.isatty()
        self._names: dict[str, str] = {}  # of calls at hand, by id
        self._spinner: Status | None = None
        self._shown: list[str] = []  # of the response at hand
        self._at_line_start = True
        self._seconds = 0.0

    def __call__(self, seen: Seen) -> None:
        match seen:
            case RequestStarted():
                self._shown.clear()
                self._spin(f"step {seen.step}: waiting for {clean(seen.model)}")
            case FrameSeen(frame=TextDelta(text=text) | RefusalDelta(text=text)):
                self._show_text(text)
            case FrameSeen(frame=ReasoningDelta()):
                self._spin("reasoning")
            case FrameSeen(frame=ToolCallDelta(name=name)):
                if name:
                    self._spin(f"writing a call of {clean(name)}")
            case RequestFinished():
                self._seconds += seen.seconds
                self._stop_spinner()
            case ToolStarted():
                self._names[seen.call.id] = seen.call.name
                self._note(f"{style('→', 'cyan', stream=self._notes)} {describe_call(seen.call, stream=self._notes)}")
                self._spin(f"{clean(seen.call.name)} runs")
            case ToolFinished(result=result):
                self._seconds += seen.seconds
                name = clean(self._names.pop(result.call_id, result.name))
                mark = ("✗", "red") if result.is_error else ("✓", "green")
                shown = describe_result(result, stream=self._notes)
                self._note(f"{style(*mark, stream=self._notes)} {name}: {shown}")
            case TurnFinished():
                self._finish(seen.result)
            case _:
                pass

    def close(self) -> None:
        self._stop_spinner()

    def _show_text(self, text: str) -> None:
        self._stop_spinner()
        self._shown.append(text)
        if self._live:
            sys.stdout.write(clean(text))
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def _finish(self, result: TurnResult) -> None:
        self._stop_spinner()
        if not self._live or "".join(self._shown) != result.text:
            self._end_line()
            sys.stdout.write(clean(result.text))
            self._at_line_start = result.text.endswith("\n")
        self._end_line()
        sys.stdout.flush()

    def _note(self, line: str) -> None:
        self._stop_spinner()
        self._end_line()
        self._notes.write(line + "\n")
        self._notes.flush()

    def _end_line(self) -> None:
        if not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True

    def _spin(self, text: str) -> None:
        if not self._notes.isatty() or not self._at_line_start:
            return
        if self._spinner is None:
            from rich.console import Console
            from rich.markup import escape

            self._spinner = Console(file=self._notes).status(escape(text), spinner="dots")
            self._spinner.start()
        else:
            from rich.markup import escape

            self._spinner.update(escape(text))

    def _stop_spinner(self) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None


def describe_call(call: ToolCall, *, stream: TextIO | None = None) -> str:
    """`read notes.txt`: the name and the arguments on one line."""
    try:
        decoded: object = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        decoded = call.arguments
    match decoded:
        case dict():
            values = [str(value) for value in decoded.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
            text = " ".join(values)
        case _:
            text = str(decoded)
    return f"{style(clean(call.name), 'bold', stream=stream)} {shortened(text, limit=LINE)}"


def describe_result(result: ToolResult, *, stream: TextIO | None = None) -> str:
    text = "".join(part.text for part in result.content if isinstance(part, Text))
    lines = text.count("\n") + (not text.endswith("\n"))
    first = shortened(text, limit=LINE) if result.is_error or lines == 1 else f"{lines} lines, {len(text)} characters"
    return style(first or "nothing", "dim", stream=stream)


def outcome_line(result: RunResult, *, seconds: float) -> str:
    """What stands below the answer: how it ended, and what it took."""
    usage = result.usage
    counts = (
        f"{_many(result.steps, 'step')}, {_many(result.requests, 'request')}, "
        f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {seconds:.1f} s"
    )
    kept = f", session {result.session[-8:]}" if result.session else ""
    if result.complete:
        return style(f"{counts}{kept}", "dim", stream=sys.stderr)
    return f"{style(describe_end(result), 'yellow', stream=sys.stderr)} {style(f'({counts}{kept})', 'dim', stream=sys.stderr)}"


def describe_end(result: RunResult) -> str:
    match result.stop_reason:
        case StopReason.WAITING:
            return f"waiting for results of: {', '.join(clean(call.name) for call in result.pending)}"
        case StopReason.CANCELLED:
            return "cancelled"
        case StopReason.REFUSED:
            return "refused"
        case StopReason.PROVIDER_FAILED:
            return "the provider failed"
        case StopReason.ANSWERED:
            return "answered from incomplete data"
        case other:
            return f"answered from incomplete data: {other}"


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
