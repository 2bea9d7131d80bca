"""What a run is at, for the line that waits: what it does and for how long, which step of how many, what it has spent so far.

A value that is told what is seen, and when; it looks at no clock and writes nothing.
"""

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from turnwise.agent.formatting import many
from turnwise.coding_agent.text import clean, clean_line, shortened, visible_line
from turnwise.rules.pricing import sum_of, usd_said
from turnwise.running.watcher_events import (
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
    WatcherEvent,
)
from turnwise.turn.config import MAX_STEPS, Deadlines
from turnwise.vocab import CallForming, ReasoningDelta, TextDelta, ToolCallDelta

QUIET_S = 5  # a model that pauses for less is at work as usual
# What a narrow terminal leaves out, the first of them first.
GIVES_WAY = ("tokens", "requests", "window", "money", "output", "mode", "step")
LONG_S = 10  # a wait that is worth saying when it ends
MOST_S = 300  # that are shown as seconds
NAME = 60  # characters of a model's or a tool's name
SHOWN_OUTPUT = 20  # characters of a command's output: less says nothing
HOW_TO_STOP = " · Ctrl-C stops"
WRITING_CALL = "writing a call"  # into its text: of which tool is known once it is whole


class WaitBounds(msgspec.Struct, frozen=True, kw_only=True):
    """What is waited for, and how long: the run's steps, and the seconds after which a request is given up. `window` is what the
    model takes, in tokens."""

    max_steps: int = MAX_STEPS
    first_event_s: float | None = None  # None: not known
    idle_s: float | None = Deadlines().idle_s
    window: int | None = None


class _Call(msgspec.Struct):
    name: str
    since_s: float
    line: str = ""  # the last of its output
    lines: tuple[str, ...] = ()  # the last ones, of a command


class Waiting:
    """One turn, as it is seen. `show` gives its line; empty: there is nothing to wait for. `used` is what of the window was used
    last, in tokens."""

    def __init__(self, bounds: WaitBounds, *, used: int = 0) -> None:
        self._bounds = bounds
        self.used = used
        self._step = 0
        self._what = ""
        self._since_s = 0.0
        self._until_s: float | None = None  # when it is over by itself: the wait before a retry
        self._heard_s: float | None = None  # when the last piece of the current response came
        self._deadline_s: float | None = None
        self._written = 0  # characters of the call that is being written
        self._calls: dict[str, _Call] = {}
        self._spent = _Spent()
        self._is_stopping = False

    def saw(self, seen: WatcherEvent, *, now_s: float) -> None:
        match seen:
            case ChildSeen():
                self._saw_child(seen)
            case FrameSeen():
                self._saw_frame(seen, now_s=now_s)
            case StepStarted(step=step):
                self._step = step
            case RequestStarted():
                self._spent.begin()
                self._step = seen.step
                self._do(f"waiting for {_name(seen.model)}", now_s=now_s)
                if "continue" in (seen.purpose, seen.retry_of):
                    self._do("cut by the output limit: going on there", now_s=now_s)
                self._deadline_s = self._bounds.first_event_s
            case RequestFinished():
                self._spent.end(seen)
                if seen.response is not None and seen.response.usage is not None:
                    last = seen.response.usage.last_sampling
                    self.used = last.input_tokens + last.output_tokens
                self._do("", now_s=now_s)
            case AttemptDiscarded(retry_in_s=seconds):
                self._do("trying again", now_s=now_s)
                self._until_s = now_s + seconds
            case ToolStarted(call=call):
                self._calls[call.id] = _Call(_name(call.name), now_s)
            case ToolProgress(call=call) if found := self._calls.get(call.id):
                found.line, found.lines = seen.line, seen.lines
            case ToolFinished(result=result):
                self._calls.pop(result.call_id, None)
            case CallAnswered(call=call):
                self._calls.pop(call.id, None)
            case _:  # nothing to wait for; the screen shows it
                pass

    def stopping(self, *, now_s: float) -> None:
        self._calls.clear()
        self._is_stopping = True
        self._do("stopping (Ctrl-C again ends turnwise at once)", now_s=now_s)

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of the output of the command that was begun last, clean."""
        found = [call.lines for call in self._calls.values() if call.lines]
        return tuple([visible_line(line) for line in found[-1]]) if found and not self._is_stopping else ()

    @property
    def window_said(self) -> str:
        """`93 % of the window left`; empty if that is not known."""
        if not self._bounds.window or not self.used:
            return ""
        return f"{max(0, 100 - self.used * 100 // self._bounds.window)} % of the window left"

    def show(self, *, now_s: float, columns: int, mode: str = "") -> str:
        """At most `columns` characters, clean: what it is at; as far as there is room, the mode, what it has spent, and how it
        is stopped."""
        doing, output = self._doing(now_s)
        if not doing:
            return ""
        most = f" of {self._bounds.max_steps}" if self._step <= self._bounds.max_steps else ""  # a person allowed more
        pieces = {
            "mode": mode,
            "step": f"step {self._step}{most}: " if self._step else "",
            "doing": doing,
            "output": output[:SHOWN_OUTPUT],
            **self._spent.said(),
            "window": self.window_said,
        }
        for name in ("", *GIVES_WAY):
            pieces.pop(name, None)
            if len(_joined(pieces)) <= columns:
                break
        if pieces.get("output") and (room := columns - len(_joined(pieces)) + len(pieces["output"])):
            pieces["output"] = shortened(output, limit=room)
        line = _joined(pieces)
        if not self._is_stopping and len(line) + len(HOW_TO_STOP) <= columns:
            return f"{line}{HOW_TO_STOP}"
        return shortened(line, limit=max(1, columns))

    def _do(self, what: str, *, now_s: float) -> None:
        self._what, self._since_s = what, now_s
        self._until_s = self._heard_s = self._deadline_s = None
        self._written = 0

    def _doing(self, now_s: float) -> tuple[str, str]:
        """What is done, in words; and the last line of output, if a command runs."""
        if self._calls and not self._what:
            calls = [*self._calls.values()]
            names = calls[0].name if len(calls) == 1 else f"{len(calls)} calls"
            verb = "runs" if len(calls) == 1 else "run"
            lines = [clean_line(call.line) for call in calls if call.line and not call.lines]
            return f"{names} {verb}, {_for(now_s - calls[0].since_s)}", lines[-1] if lines else ""
        if not self._what:
            return "", ""
        if self._until_s is not None:
            left_s = self._until_s - now_s
            return (f"{self._what} in {_for(left_s + 0.99)}" if left_s > 0 else self._what), ""
        if self._heard_s is not None and (quiet_s := now_s - self._heard_s) >= QUIET_S:
            return f"nothing for {_for(quiet_s)}{_giving_up(self._bounds.idle_s, waited_s=quiet_s)}", ""
        waited_s = now_s - self._since_s
        end = _giving_up(self._deadline_s, waited_s=waited_s) if waited_s >= LONG_S else ""
        size = f" ({self._written:,} characters)" if self._written else ""
        return f"{self._what}{size}, {_for(waited_s)}{end}", ""

    def _saw_frame(self, seen: FrameSeen, *, now_s: float) -> None:
        first = self._heard_s is None
        match seen.frame:
            case ReasoningDelta():
                self._turn_to("reasoning", now_s=now_s)
            case ToolCallDelta(name=name, arguments=arguments):
                if name:
                    self._turn_to(f"writing a call of {_name(name)}", now_s=now_s)
                self._written += len(arguments or "")
            case CallForming(characters=characters):
                self._turn_to(WRITING_CALL, now_s=now_s)
                self._written = characters
            case TextDelta() if self._what == WRITING_CALL:  # it was words
                self._turn_to("answering", now_s=now_s)
            case _ if first:
                self._turn_to("answering", now_s=now_s)
            case _:
                pass
        self._heard_s = now_s

    def _turn_to(self, what: str, *, now_s: float) -> None:
        if what != self._what:
            self._do(what, now_s=now_s)

    def _saw_child(self, child: ChildSeen) -> None:
        """What a sub-agent spends is spent here; what its command says is said by the call that started it."""
        match child.seen:
            case RequestStarted():
                self._spent.begin()
            case RequestFinished():
                self._spent.end(child.seen)
            case ToolProgress(line=line, lines=lines):
                for call in self._calls.values():
                    call.line, call.lines = line, lines
            case _:
                pass


class _Spent:
    """Requests, tokens and money so far; a request counts from when it leaves."""

    def __init__(self) -> None:
        self._requests = 0
        self._tokens = 0
        self._prices: list[Decimal | None] = []
        self._at_least = 0  # of them only a part

    def begin(self) -> None:
        self._requests += 1

    def end(self, seen: RequestFinished) -> None:
        if not seen.sent:
            self._requests -= 1
            return
        if seen.response is not None and seen.response.usage is not None:
            usage = seen.response.usage
            self._tokens += usage.input_tokens + usage.output_tokens
        self._prices.append(seen.usd)
        self._at_least += seen.usd_at_least

    def said(self) -> dict[str, str]:
        """The pieces of it. None before the first request has ended."""
        if not self._prices:
            return {}
        cost = sum_of(self._prices, at_least=self._at_least)
        at_least = "at least " if cost.is_partial else ""
        money = "cost unknown" if cost.unknown == cost.requests else f"{at_least}{usd_said(cost.usd)}"
        return {"requests": many(self._requests, "request"), "tokens": f"{self._tokens:,} tokens", "money": money}


def _joined(pieces: Mapping[str, str]) -> str:
    output = f": {pieces['output']}" if pieces.get("output") else ""
    at_work = f"{pieces.get('step', '')}{pieces['doing']}{output}"
    spent = ", ".join([pieces[name] for name in ("requests", "tokens", "money") if name in pieces])
    return " · ".join([one for one in (pieces.get("mode"), at_work, spent, pieces.get("window")) if one])


def _name(text: str) -> str:
    return shortened(clean(text), limit=NAME)


def _for(seconds: float) -> str:
    """`12 s`, `7 min 5 s`: whole seconds, as they are counted."""
    whole = max(0, int(seconds))
    return f"{whole} s" if whole <= MOST_S else f"{whole // 60} min {whole % 60} s"


def _giving_up(deadline_s: float | None, *, waited_s: float) -> str:
    """Keep-alives of a provider may renew a deadline that seems to be over."""
    return "" if deadline_s is None or waited_s > deadline_s else f", giving up at {_for(deadline_s)}"
