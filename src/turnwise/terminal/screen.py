"""A run on a terminal: the answer goes to standard output, everything else to standard error."""

import math
import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import msgspec

from turnwise.agent.formatting import cost_said, many, tokens_said
from turnwise.agent.results import RunResult
from turnwise.base.clock import Clock, SystemClock
from turnwise.coding_agent.asked_calls import confusables_in
from turnwise.coding_agent.interruptible_run import ShownTurn, unseen
from turnwise.coding_agent.plan import PLAN, SHOWN_STEPS, PlanArguments, Plans, plan_rows
from turnwise.coding_agent.progress_line import WaitBounds, Waiting
from turnwise.coding_agent.run_events import FailedModel, describe_end, describe_fault
from turnwise.coding_agent.shown_work import (
    SHOWN_LINES,
    TAIL_LINES,
    Folds,
    diff_lines,
    diff_title,
    ended_command,
    thought_said,
)
from turnwise.coding_agent.text import (
    clean,
    clean_answer,
    clean_line,
    clean_row,
    has_colour,
    short_id,
    shortened,
    style,
    visible_line,
)
from turnwise.rules.advice import for_people
from turnwise.running.watcher_events import (
    AskClosed,
    AskOpened,
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FilesChanged,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    RunNoted,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolsetNoted,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
    kind_of,
)
from turnwise.terminal.rows import COLOUR, Rows, coloured, columns_of, fitted
from turnwise.terminal.status_line import StatusLine, terminal_size
from turnwise.turn.config import TurnResult
from turnwise.vocab import (
    FinishReason,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
)
from turnwise.wire.json_fields import UNREADABLE

if TYPE_CHECKING:
    from turnwise.terminal.live_answer import LiveAnswer


@contextmanager
def spinning() -> "Generator[Callable[[str], object] | None]":
    """A line on standard error that says what happens now, and a function that changes it; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False, markup=False, emoji=False).status("") as status:
        yield status.update


LINE = 100  # characters of a call or a result shown on one line
FLOWS_S = 2.0  # an answer with shorter pauses needs no other sign of life
GONE_ON_WITH = frozenset({FinishReason.LENGTH, FinishReason.PAUSE, FinishReason.CUT})
MAX_LINE = 200  # of a line of output
ERROR_LINE = 240  # of a result that says what went wrong, and what to do


class Screen:
    """Shows what happens as it happens. Standard output without a terminal gets only the answer, once it is complete, unless it
    `follows`. Everything but the answer goes to `notes`. At a terminal with colours, answers are rendered, unless `plain`.
    `folds` are the texts that the key `opens` opens; `plan` is the task list of the session, and `mode` says its mode."""

    def __init__(
        self,
        *,
        notes: TextIO | None = None,
        follows: bool = False,
        plain: bool = False,
        clock: Clock | None = None,
        size: Callable[[], os.terminal_size] | None = None,
        opens: str = "",
    ) -> None:
        self.folds = Folds()
        self.plan: PlanArguments | None = None
        self.mode: Callable[[], str] = str
        self._opens = opens
        self._notes = sys.stderr if notes is None else notes
        self._clock = clock or SystemClock()
        is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self._live = follows or sys.stdout.isatty()
        self._columns = partial(columns_of, self._notes) if size is None else lambda: size().columns
        self._size = size or partial(terminal_size, sys.stdout if is_terminal else self._notes)
        self._renders = is_terminal and not plain and has_colour(sys.stdout)
        self._answer: LiveAnswer | None = None
        self._calls: dict[str, ToolCall] = {}  # current ones, by id
        self._plans = Plans()
        self._thoughts: list[str] = []  # of the current response
        self._thinks_since_s = 0.0
        self._shows_work = self._notes.isatty()
        self._waiting = Waiting(WaitBounds())
        self._status: StatusLine | None = None
        if self._notes.isatty() and os.environ.get("TERM") != "dumb":
            self._status = StatusLine(
                self._notes,
                clock=self._clock,
                size=self._size,
                show=self._waits_for,
                above=self._rows_above,
                row=self._row_at_hand,
            )
        self._shown: list[str] = []  # of the current response
        self._shown_before: list[str] = []  # of the turn's earlier responses
        self._shown_results: set[str] = set()  # ids of calls whose whole result is on the screen
        self._shown_s = -math.inf  # when some of it was shown
        self._at_line_start = True
        self._goes_on = False  # the current response is the rest of a cut one: JSON, or a text that overlaps
        self._is_at_work = False  # a turn is
        self._may_continue = False  # the response has not ended, or was cut: the current text may still continue
        self._held: list[Callable[[], None]] | None = None
        self._children: dict[tuple[str, ...], dict[str, str]] = {}  # names of current calls, by path and id

    @property
    def window_said(self) -> str:
        return self._waiting.window_said

    def begin(self, bounds: WaitBounds) -> None:
        """A turn is about to run within these bounds."""
        self._waiting = Waiting(bounds, used=self._waiting.used)
        self._shown_before.clear()
        self._shown_results.clear()

    def __call__(self, seen: WatcherEvent) -> None:
        now_s = self._clock.monotonic()
        if self._status is not None:
            self._waiting.saw(seen, now_s=now_s)
        if self._held is not None:
            self._held.append(lambda: self._see(seen, now_s=now_s))
            return
        self._see(seen, now_s=now_s)

    def _see(self, seen: WatcherEvent, *, now_s: float) -> None:
        if (plan := self._plans.of_event(seen)) is not None:
            self.plan = plan
            self._note(style(plan.said, "dim", stream=self._notes))
            return
        if self._thoughts and _ends_thought(seen):
            self._fold_thought(now_s)
        match seen:
            case ChildSeen():
                self._note_child(seen)
            case RequestStarted(purpose="continue") | RequestStarted(retry_of="continue"):
                self._goes_on = True
                self._wait()
            case FrameSeen() if self._goes_on:
                pass
            case FrameSeen(frame=TextDelta(text=text) | RefusalDelta(text=text)):
                self._show_text(text)
            case FrameSeen(frame=ReasoningDelta(text=text)) if text and self._shows_work:
                if not self._thoughts:
                    self._thinks_since_s = now_s
                self._thoughts.append(text)
            case RequestStarted():
                self._goes_on = False
                self._close_answer()
                self._shown_before += self._shown
                self._shown.clear()
                self._wait()
            case RequestFinished(response=response):
                if response is not None and response.finish not in GONE_ON_WITH:
                    self._close_answer()
            case AttemptDiscarded():
                self._note_discarded(seen)
            case StepStarted():
                self._wait()
            case ToolStarted(call=call) if call.name == PLAN:
                self._wait()  # told once it has ended well
            case ToolStarted():
                self._wait()
                self._note_call(seen.call)
            case ToolFinished(result=result):
                self._note_result(result, ran=True)
            case FilesChanged():
                self._note_diff(seen)
            case CallAnswered(call=call, result=result):
                if call.id not in self._calls:
                    self._note_call(call)
                self._note_result(result)
            case TurnFinished():
                self._finish(seen.result)
            case FrameSeen() | ToolProgress():
                pass  # the rows below the text show them
            case _:
                self._note(describe_event(seen, stream=self._notes))

    def tell(self, line: str) -> None:
        """Tell something about the run itself."""
        if self._held is not None:
            self._held.append(lambda: self.tell(line))
            return
        self._note(style(clean_row(line), "dim", stream=self._notes))

    def stopping(self) -> None:
        """The turn is about to end; this may take a moment."""
        self._waiting.stopping(now_s=self._clock.monotonic())
        self._shown_s = -math.inf
        if self._held is None and self._status is not None:
            self._wait()
            self._status.draw()

    def hold(self) -> None:
        """Show nothing from now on: somebody is asked, or types."""
        if self._held is None:
            self._stop_status()
            self._end_line(keeps_word=True)
            self._held = []

    def release(self) -> None:
        """Show what happened meanwhile."""
        held, self._held = self._held or [], None
        for show in held:
            show()
        if self._is_at_work:
            self._wait()

    def close(self) -> None:
        self._is_at_work = False
        self.release()
        self._wait_no_more()

    def _show_text(self, text: str) -> None:
        self._clear_status()
        before = self._shown[-1] if self._shown else ""
        if text:
            self._shown.append(text)
        if not self._live:
            return
        # a carriage return at the end of a piece may be the first half of a line end
        if before.endswith("\r"):
            before, text = before[:-1], f"\r{text}"
        if shown := clean_answer(text.removesuffix("\r"), before=before[-1:]):
            self._may_continue = True
            self._shown_s = self._clock.monotonic()
            self._write_answer(shown)

    def _write_answer(self, text: str) -> None:
        if self._renders:
            self._live_answer().write(text)
        elif text:
            sys.stdout.write(text)
            sys.stdout.flush()
            self._at_line_start = text.endswith("\n")

    def _live_answer(self) -> "LiveAnswer":
        """Its modules are loaded once an answer comes, or while one is awaited: a run without an answer does not pay for them."""
        if self._answer is None:
            from turnwise.terminal.live_answer import LiveAnswer

            self._answer = LiveAnswer(sys.stdout, size=self._size)
        return self._answer

    def _note_discarded(self, seen: AttemptDiscarded) -> None:
        """The text above this note on the screen is not part of the answer. The rest of a cut response was not shown at all."""
        why = "the stream broke off" if seen.fault is None else describe_fault(seen.fault)
        again = f"trying again in {seen.retry_in_s:.1f} s" if seen.retry_in_s else "asking another model"
        if self._goes_on:
            return
        self._close_answer()
        lost = "discarded what had come, " if self._shown else ""
        self._shown.clear()
        self._note(style(f"✗ {why}: {lost}{again}", "yellow", stream=self._notes))

    def _note_call(self, call: ToolCall) -> None:
        self._calls[call.id] = call
        self._note(self._call_line(call))

    def _note_diff(self, seen: FilesChanged, *, indent: str = "") -> None:
        """The beginning of what a call has changed, at a terminal; all of it can be opened."""
        if not self._shows_work:
            return
        title, (_, *lines) = diff_title(seen), diff_lines(seen.diff)
        marks = confusables_in(lines[:SHOWN_LINES], folder=Path.cwd)
        self._note(f"{indent}  {style(title, 'bold', stream=self._notes)}")
        for line in lines[:SHOWN_LINES]:
            self._note(indent + marks.mark(coloured(line, stream=self._notes)), as_it_is=True)
        for line in marks.lines:
            self._note(f"{indent}  {style(line, 'red', 'bold', stream=self._notes)}")
        self._fold(title, lines, hidden=len(lines) - SHOWN_LINES, indent=indent)

    def _fold(self, title: str, lines: Sequence[str], *, hidden: int, indent: str = "") -> None:
        if hidden > 0:
            self.folds.keep(title, lines)
            how = f", {self._opens} shows all" if self._opens else ""
            more = f"{hidden:,} more line{'' if hidden == 1 else 's'}"
            self._note(style(f"{indent}  … {more}{how}", "dim", stream=self._notes))

    def _fold_thought(self, now_s: float) -> None:
        text, seconds = clean("".join(self._thoughts)).strip(), now_s - self._thinks_since_s
        self._thoughts.clear()
        if text:
            said = thought_said(text, seconds=seconds)
            self.folds.keep(said, text.split("\n"))
            self._note(style(f"{said}{' · ' if self._opens else ''}{self._opens}", "dim", stream=self._notes))

    def _note_child(self, child: ChildSeen) -> None:
        """Show its calls and their results, indented, with the path that leads to it."""
        names = self._children.setdefault((*child.path, child.call_id), {})
        match child.seen:
            case ToolStarted(call=call):
                names[call.id] = call.name
                self._note_within(child.path, line=self._call_line(call))
            case FilesChanged():
                self._note_diff(child.seen, indent="  " * len(child.path))
            case ToolFinished(result=result):
                self._note_within(child.path, line=self._result_line(result, name=names.pop(result.call_id, None)))
            case CallAnswered(call=call, result=result):
                if names.pop(call.id, None) is None:
                    self._note_within(child.path, line=self._call_line(call))
                self._note_within(child.path, line=self._result_line(result, name=call.name))
            case AttemptDiscarded(fault=fault):
                why = "the stream broke off" if fault is None else describe_fault(fault)
                self._note_within(child.path, line=style(f"✗ {why}: trying again", "yellow", stream=self._notes))
            case StepStarted() | RequestStarted() | FrameSeen() | RequestFinished() | ToolProgress() | TurnFinished():
                pass  # of the agents below it, calls and failures are shown
            case ChildSeen():
                self._note_child(child.seen)
            case _:
                self._note_within(child.path, line=describe_event(child.seen, stream=self._notes))

    def _note_within(self, path: tuple[str, ...], *, line: str) -> None:
        self._note("  " * len(path) + style(f"{clean_line(' › '.join(path))}: ", "dim", stream=self._notes) + line)

    def _call_line(self, call: ToolCall) -> str:
        return f"{style('→', 'cyan', stream=self._notes)} {describe_call(call, stream=self._notes)}"

    def _result_line(self, result: ToolResult, *, name: str | None) -> str:
        mark = ("✗", "red") if result.is_error else ("✓", "green")
        return (
            f"{style(*mark, stream=self._notes)} {visible_line(name or result.name)}: "
            f"{describe_result(result, stream=self._notes)}"
        )

    def _note_result(self, result: ToolResult, *, ran: bool = False) -> None:
        call = self._calls.pop(result.call_id, None)
        if ran and self._shows_work and result.name == "bash":
            self._note_command(result, call=call)
            return
        self._note(self._result_line(result, name=call and call.name))
        if self._shows_work and is_shown_whole(result):
            self._shown_results.add(result.call_id)

    def _note_command(self, result: ToolResult, *, call: ToolCall | None) -> None:
        """How a command ended, and the last lines of its output."""
        ended = ended_command(result)
        title = self._result_line(result, name=None)
        if result.is_error:
            said = style(shortened(ended.end, limit=ERROR_LINE), "red", stream=self._notes)
            title = f"{style('✗', 'red', stream=self._notes)} bash: {said}"
        self._note(title)
        tail = ended.output[-TAIL_LINES:] if result.is_error or len(ended.output) > 1 else ()
        if hidden := len(ended.output) - len(tail) if tail else 0:
            self._fold(COLOUR.sub("", describe_call(call)) if call else "bash", ended.output, hidden=hidden)
        for line in tail:
            self._note(
                style(f"  {line if len(line) <= MAX_LINE else f'{line[:MAX_LINE]}…'}", "dim", stream=self._notes),
                as_it_is=True,
            )
        if not hidden and all(len(line) <= MAX_LINE for line in tail):
            self._shown_results.add(result.call_id)

    def _finish(self, result: TurnResult) -> None:
        self._wait_no_more()
        if self._live:
            self._write_unseen(result)
        else:
            self._write_answer(clean_answer(result.text))
        self._close_answer()
        self._end_line()
        sys.stdout.flush()

    def _write_unseen(self, result: TurnResult) -> None:
        shown = "".join(self._shown)
        if shown == result.text:
            return
        if self._goes_on and shown and result.text.startswith(shown):
            self._write_answer(clean_answer(result.text[len(shown) :], before=shown[-1:]))
            return
        before = "".join(self._shown_before)
        left = unseen(
            result,
            shown=ShownTurn(at_hand=shown, before=before, results=self._shown_results, notes=self._notes.isatty()),
        )
        if left.rest:
            self._write_answer(clean_answer(left.rest, before=shown[-1:]))
        self._close_answer()
        self._end_line()
        if left.answer:
            self._write_answer(clean_answer(left.answer))
        if left.own:
            self._write_own(clean_answer(left.own))

    def _write_own(self, text: str) -> None:
        """Text that is not the model's is not Markdown: it is shown as it is, in whole words."""
        if self._renders:
            rows = Rows(width=max(1, self._size().columns - 1))
            text = f"{rows.write(text)}{rows.flush()}"
        sys.stdout.write(text)
        self._at_line_start = text.endswith("\n")

    def _note(self, line: str, *, as_it_is: bool = False) -> None:
        self._clear_status()
        self._end_line()
        self._notes.write(f"{line if as_it_is else fitted(line, columns=self._columns())}\n")
        self._notes.flush()

    def _end_line(self, *, keeps_word: bool = False) -> None:
        """The next text begins at the left."""
        if self._answer is not None and self._may_continue:
            self._answer.pause(keeps_word=keeps_word)
        elif not self._at_line_start:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._at_line_start = True

    def _close_answer(self) -> None:
        """The current text has ended: its last block is rendered."""
        self._clear_status()
        self._may_continue = False
        if self._answer is not None:
            self._answer.close()

    def _wait(self) -> None:
        """From now on the waiting line is shown whenever nothing else comes."""
        self._is_at_work = True
        if self._status is not None:
            self._status.start()

    def _wait_no_more(self) -> None:
        self._is_at_work = False
        self._stop_status()

    def _stop_status(self) -> None:
        if self._status is not None:
            self._clear_status()
            self._status.stop()

    def _clear_status(self) -> None:
        if self._status is not None and not self._status.clear() and self._answer is not None:
            self._answer.leave_row()

    def _waits_for(self, columns: int) -> str:
        """The waiting line; none while an answer flows, or has a row that only it may use."""
        now_s = self._clock.monotonic()
        if self._renders:
            self._live_answer()
        if now_s - self._shown_s < FLOWS_S or not self._at_line_start:
            return ""
        return self._waiting.show(now_s=now_s, columns=columns, mode=self.mode())

    def _rows_above(self, most: int) -> Sequence[str]:
        """The end of a command's output, then the plan: as much as fits."""
        plan = plan_rows(self.plan, most=most) if most < SHOWN_STEPS else plan_rows(self.plan)
        room = most - len(plan)
        return [*self._waiting.tail[-room:], *plan] if room > 0 else plan

    def _row_at_hand(self) -> str:
        return "" if self._answer is None else self._answer.row


def _ends_thought(seen: WatcherEvent) -> bool:
    match seen:
        case FrameSeen(frame=TextDelta(text=text) | RefusalDelta(text=text)):
            return bool(text)
        case FrameSeen(frame=frame):
            return isinstance(frame, ToolCallDelta)
        case _:
            return isinstance(seen, RequestFinished | AttemptDiscarded | TurnFinished)


def describe_event(seen: WatcherEvent, *, stream: TextIO | None = None) -> str:
    """`· tool_noted read: 3 files`: the line of an event without a line of its own, with the name of its call and its plain
    values."""
    match seen:
        case AskOpened(call=call, question=question):
            return style(f"· {visible_line(call.name)} asks: {shortened(question, limit=LINE)}", "dim", stream=stream)
        case AskClosed(call=call, answer=answer):
            said = " ".join([answer.verdict, f"({answer.by})", answer.text]).rstrip()
            return style(
                f"· {visible_line(call.name)} was answered: {shortened(said, limit=LINE)}", "dim", stream=stream
            )
        case ToolsetNoted(text=text) | RunNoted(text=text):
            return style(f"· {clean_line(text)}", "yellow", stream=stream)
        case _:
            pass
    values = [getattr(seen, name) for name in seen.__struct_fields__]
    of = "".join([f" {visible_line(value.name)}" for value in values if isinstance(value, ToolCall)])
    said = " ".join([str(value) for value in values if isinstance(value, str | int | float)])
    text = f"· {clean(kind_of(seen))}{of}{': ' if said else ''}{shortened(said, limit=LINE)}"
    return style(text, "dim", stream=stream)


def describe_call(call: ToolCall, *, stream: TextIO | None = None) -> str:
    """`read notes.txt`: the name and the arguments on one line."""
    try:
        decoded: object = msgspec.json.decode(call.arguments)
        match decoded:
            case dict():
                values = [str(value) for value in decoded.values()]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
                text = " ".join(values)
            case _:
                text = str(decoded)
    except UNREADABLE:
        text = call.arguments
    return f"{style(visible_line(call.name), 'bold', stream=stream)} {shortened(text, limit=LINE)}"


def describe_result(result: ToolResult, *, stream: TextIO | None = None) -> str:
    texts = [part for part in result.content if isinstance(part, Text)]
    text = for_people("".join(part.text for part in texts if not part.note))
    heads = [part.text.strip().partition("\n")[0] for part in texts if part.note]
    notes = "".join([f"; {shortened(head, limit=LINE)}" for head in heads])
    lines = text.count("\n") + (not text.endswith("\n"))
    if result.is_error:
        shown = shortened(text, limit=ERROR_LINE)
    else:
        shown = shortened(text, limit=LINE) if lines == 1 else f"{lines} lines, {len(text)} characters"
    return style(f"{shown or 'nothing'}{notes}", "dim", stream=stream)


def is_shown_whole(result: ToolResult) -> bool:
    """Whether the line of `describe_result` shows all of it."""
    texts = [part.text for part in result.content if isinstance(part, Text) and not part.note]
    text = for_people("".join(texts))
    limit = ERROR_LINE if result.is_error else LINE
    is_one_line = result.is_error or "\n" not in text.removesuffix("\n")
    return len(texts) == len(result.content) and is_one_line and len(" ".join(clean(text).split())) <= limit


def outcome_line(result: RunResult, *, seconds: float, asked: FailedModel) -> str:
    """The line below the answer: how it ended, and what it cost."""
    tokens = tokens_said(result.own.usage, entries=[entry for entry in result.ledger if not entry.path])
    below = result.requests - result.own.requests
    children = f" (and {below} by sub-agents)" if below > 0 else ""
    cost = f"cost {cost_said(result.cost)}, " if result.ledger else ""
    reached = (
        " reached the server" if result.stop_reason is StopReason.PROVIDER_FAILED and not result.own.requests else ""
    )
    requests = f"{many(result.own.requests, 'request')}{reached}{children}"
    counts = f"{many(result.steps, 'step')}, {requests}, {tokens}, {cost}{seconds:.1f} s"
    kept = f", session {short_id(result.session)}" if result.session else ""
    if result.complete:
        return style(f"{counts}{kept}", "dim", stream=sys.stderr)
    end = style(clean(describe_end(result, asked=asked)), "yellow", stream=sys.stderr)
    return f"{end} {style(f'({counts}{kept})', 'dim', stream=sys.stderr)}"
