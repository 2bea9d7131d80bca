"""A run on a terminal: the answer goes to standard output, everything else to standard error."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

import msgspec

from turnwise.drivers.watching import (
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    Seen,
    ToolFinished,
    ToolStarted,
    TurnFinished,
)
from turnwise.faces.cli.text import clean, clean_answer, shortened, style
from turnwise.faces.results import RunResult
from turnwise.faces.saying import cost_said, many
from turnwise.rules.advice import for_people
from turnwise.turn.config import TurnResult
from turnwise.vocab import (
    Fault,
    FaultKind,
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
ERROR_LINE = 240  # of a result that says what went wrong, and what to do

# What a user may look at first, by what kind of failure the provider showed.
REMEDIES = {
    FaultKind.UNREACHABLE: "check the address (--base-url), and that the server runs",
    FaultKind.TIMEOUT: "try again later, or check the address (--base-url)",
    FaultKind.DISCONNECTED: "run it again with --continue",
    FaultKind.AUTH: "check the key, and that it may use this model",
    FaultKind.NOT_FOUND: "check the model's name and the address (--model, --base-url)",
    FaultKind.BAD_REQUEST: "check that the model and the API family fit together (--model)",
    FaultKind.CONTEXT_OVERFLOW: "start a new session, or ask for less at once",
    FaultKind.RATE_LIMITED: "wait, then run it again with --continue",
    FaultKind.QUOTA: "look at the account's plan and limits",
    FaultKind.OVERLOADED: "wait, then run it again with --continue",
    FaultKind.SERVER: "run it again with --continue",
    FaultKind.PROTOCOL: "check the address and the API family (--base-url, --model)",
    FaultKind.TOO_LARGE: "check the address and the API family (--base-url, --model)",
}


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
        self._goes_on = False  # the response at hand is the rest of a cut one: JSON, or a text that overlaps
        self._held: list[Callable[[], None]] | None = None
        self._children: dict[tuple[str, ...], dict[str, str]] = {}  # names of calls at hand, by path and id

    def __call__(self, seen: Seen) -> None:
        if self._held is not None:
            self._held.append(lambda: self(seen))
            return
        match seen:
            case ChildSeen():
                self._note_child(seen)
            case RequestStarted(purpose="continue") | RequestStarted(retry_of="continue"):
                self._goes_on = True
                self._spin("cut by the output limit: going on there")
            case FrameSeen() if self._goes_on:
                pass
            case RequestStarted():
                self._goes_on = False
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
                self._stop_spinner()
            case AttemptDiscarded():
                self._note_discarded(seen)
            case ToolStarted():
                self._names[seen.call.id] = seen.call.name
                self._note_call(seen.call)
                self._spin(f"{clean(seen.call.name)} runs")
            case ToolFinished(result=result):
                self._note_result(result)
            case CallAnswered(call=call, result=result):
                if call.id not in self._names:
                    self._note_call(call)
                self._note_result(result)
            case TurnFinished():
                self._finish(seen.result)
            case _:
                pass

    def tell(self, line: str) -> None:
        """Something about the run itself."""
        if self._held is not None:
            self._held.append(lambda: self.tell(line))
            return
        self._note(style(clean(line), "dim", stream=self._notes))

    def stopping(self) -> None:
        """The turn is about to end; what takes its time may be waited for a moment."""
        if self._held is None:
            self._spin("stopping (Ctrl-C again ends turnwise at once)")

    def hold(self) -> None:
        """Show nothing from now on: somebody is asked, or types."""
        if self._held is None:
            self._stop_spinner()
            self._end_line()
            self._held = []

    def release(self) -> None:
        """Show what happened meanwhile."""
        held, self._held = self._held or [], None
        for show in held:
            show()

    def close(self) -> None:
        self.release()
        self._stop_spinner()

    def _show_text(self, text: str) -> None:
        self._stop_spinner()
        before = self._shown[-1] if self._shown else ""
        if text:
            self._shown.append(text)
        if not self._live:
            return
        # a carriage return at the end of a piece may be the first half of a line end
        if before.endswith("\r"):
            before, text = before[:-1], f"\r{text}"
        if shown := clean_answer(text.removesuffix("\r"), before=before[-1:]):
            sys.stdout.write(shown)
            sys.stdout.flush()
            self._at_line_start = shown.endswith("\n")

    def _note_discarded(self, seen: AttemptDiscarded) -> None:
        """What stands above it on the screen is no part of the answer. The rest of a cut response was not shown at all."""
        why = "the stream broke off" if seen.fault is None else describe_fault(seen.fault)
        again = f"trying again in {seen.retry_in_s:.1f} s" if seen.retry_in_s else "asking another model"
        if self._goes_on:
            self._spin(f"{why}: {again}")
            return
        lost = "discarded what had come, " if self._shown else ""
        self._shown.clear()
        self._note(style(f"✗ {why}: {lost}{again}", "yellow", stream=self._notes))

    def _note_call(self, call: ToolCall) -> None:
        self._names[call.id] = call.name
        self._note(self._call_line(call))

    def _note_child(self, child: ChildSeen) -> None:
        """Its calls and their results, further in, with the path that leads to it."""
        names = self._children.setdefault((*child.path, child.call_id), {})
        match child.seen:
            case ToolStarted(call=call):
                names[call.id] = call.name
                self._note_within(child.path, line=self._call_line(call))
            case ToolFinished(result=result):
                self._note_within(child.path, line=self._result_line(result, name=names.pop(result.call_id, None)))
            case CallAnswered(call=call, result=result):
                if names.pop(call.id, None) is None:
                    self._note_within(child.path, line=self._call_line(call))
                self._note_within(child.path, line=self._result_line(result, name=call.name))
            case AttemptDiscarded(fault=fault):
                why = "the stream broke off" if fault is None else describe_fault(fault)
                self._note_within(child.path, line=style(f"✗ {why}: trying again", "yellow", stream=self._notes))
            case _:
                pass

    def _note_within(self, path: tuple[str, ...], *, line: str) -> None:
        self._note("  " * len(path) + style(f"{clean(' › '.join(path))}: ", "dim", stream=self._notes) + line)

    def _call_line(self, call: ToolCall) -> str:
        return f"{style('→', 'cyan', stream=self._notes)} {describe_call(call, stream=self._notes)}"

    def _result_line(self, result: ToolResult, *, name: str | None) -> str:
        mark = ("✗", "red") if result.is_error else ("✓", "green")
        return (
            f"{style(*mark, stream=self._notes)} {clean(name or result.name)}: "
            f"{describe_result(result, stream=self._notes)}"
        )

    def _note_result(self, result: ToolResult) -> None:
        self._note(self._result_line(result, name=self._names.pop(result.call_id, None)))

    def _finish(self, result: TurnResult) -> None:
        self._stop_spinner()
        shown = "".join(self._shown) if self._live else ""
        if shown != result.text:
            goes_on = self._goes_on and shown and result.text.startswith(shown)
            if not goes_on:
                self._end_line()
            text = clean_answer(
                result.text[len(shown) :] if goes_on else result.text, before=shown[-1:] if goes_on else ""
            )
            sys.stdout.write(text)
            self._at_line_start = text.endswith("\n")
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
    text = for_people("".join(part.text for part in result.content if isinstance(part, Text)))
    lines = text.count("\n") + (not text.endswith("\n"))
    if result.is_error:
        shown = shortened(text, limit=ERROR_LINE)
    else:
        shown = shortened(text, limit=LINE) if lines == 1 else f"{lines} lines, {len(text)} characters"
    return style(shown or "nothing", "dim", stream=stream)


def describe_fault(fault: Fault) -> str:
    status = f" ({fault.status})" if fault.status is not None else ""
    return f"{fault.kind}{status}, {shortened(clean(fault.message), limit=LINE)}"


def outcome_line(result: RunResult, *, seconds: float) -> str:
    """What stands below the answer: how it ended, and what it took."""
    usage = result.usage
    below = len(result.ledger) - result.requests
    children = f" (and {below} by sub-agents)" if below > 0 else ""
    cost = f"cost {cost_said(result.cost)}, " if result.ledger else ""
    counts = (
        f"{many(result.steps, 'step')}, {many(result.requests, 'request')}{children}, "
        f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out, {cost}{seconds:.1f} s"
    )
    kept = f", session {result.session[-8:]}" if result.session else ""
    if result.complete:
        return style(f"{counts}{kept}", "dim", stream=sys.stderr)
    return f"{style(describe_end(result), 'yellow', stream=sys.stderr)} {style(f'({counts}{kept})', 'dim', stream=sys.stderr)}"


def describe_end(result: RunResult) -> str:
    match result.stop_reason:
        case StopReason.WAITING:
            asked = {ask.call.id for ask in result.asks}
            calls = ", ".join([clean(call.name) for call in result.pending if call.id not in asked])
            wanted = [*(["an approval"] if asked else []), *([f"results of: {calls}"] if calls else [])]
            return f"waiting for {' and '.join(wanted)}"
        case StopReason.CANCELLED:
            return "cancelled"
        case StopReason.REFUSED:
            return "refused"
        case StopReason.PROVIDER_FAILED:
            return f"the provider failed: {remedy(result.fault)}"
        case StopReason.JOURNAL_FAILED:
            return "not recorded: the journal could not be written, so the session does not hold this turn's end"
        case StopReason.ANSWERED:
            why = f": {result.why_incomplete}" if result.why_incomplete else ""
            return f"answered from incomplete data{why}"
        case other:
            return f"answered from incomplete data: {other}"


def remedy(fault: Fault | None) -> str:
    return REMEDIES[FaultKind.SERVER if fault is None else fault.kind]
