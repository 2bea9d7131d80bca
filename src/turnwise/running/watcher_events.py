"""What watchers of a turn are told while it runs: small frozen events on a side branch. Nothing depends on them."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from decimal import Decimal
from typing import Protocol

import msgspec

from turnwise.base.clock import Clock
from turnwise.errors import JournalFailed
from turnwise.journal.ledger import CacheMissed, Ledger
from turnwise.journal.turn_writer import LoopPen
from turnwise.turn.attempt import LOST_PIECE
from turnwise.turn.config import Approval, TurnConfig, TurnResult
from turnwise.turn.events import (
    Command,
    Purpose,
    RequestFailed,
    ResponseReceived,
    RunScript,
    ScriptFinished,
    SendRequest,
    Wait,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import Fault, Frame, Message, Response, Text, ToolCall, ToolResult


class StepStarted(msgspec.Struct, frozen=True, tag="step_started"):
    """A model step begins. `step` counts from 1."""

    step: int  # 1 for the first


class RequestStarted(msgspec.Struct, frozen=True, tag="request_started"):
    """A request is about to leave.

    - `number` counts the turn's requests from 1; `step` counts its steps from 1.
    - `purpose` says what the request is for: `step`, `retry`, `continue`, `compact` (a summary), `answer` and so on.
    - `retry_of` is the purpose of the first attempt, if this is another attempt.
    """

    number: int  # the turn's requests count from 1
    step: int
    purpose: Purpose
    model: str
    retry_of: Purpose | None = None  # a further attempt at a request of that purpose


class FrameSeen(msgspec.Struct, frozen=True, tag="frame_seen", gc=False):
    """A piece of the response to request `number` has arrived, with its faults mended. `frame` is often a `TextDelta`."""

    number: int
    frame: Frame


class RequestFinished(msgspec.Struct, frozen=True, tag="request_finished"):
    """Request `number` is over, after `seconds`.

    - `response` is the whole response. None: there is none, and `fault` says why.
    - `fault` can stand beside a response: the provider reported an error inside it.
    - `sent` is False if no connection was made. Such a request does not count, and the next request has its number.
    - `usd` is the cost in US dollars. None: the price is not known. `usd_at_least`: it is only the part that is known.
    - `cache_missed` is set if the provider's cache should have covered more of the prompt.

    Response and fault are both None if the turn was cancelled before the request left.
    """

    number: int
    response: Response | None
    fault: Fault | None
    seconds: float
    sent: bool = True
    usd: Decimal | None = None
    cache_missed: CacheMissed | None = None
    usd_at_least: bool = False


class AttemptDiscarded(msgspec.Struct, frozen=True, tag="attempt_discarded"):
    """Request `number` failed: ignore its partial output. The next attempt follows in `retry_in_s` seconds.

    `fault` is None if the stream ended without any output.
    """

    number: int
    fault: Fault | None
    retry_in_s: float


class ToolStarted(msgspec.Struct, frozen=True, tag="tool_started"):
    """A tool starts to run this call."""

    call: ToolCall


class ToolProgress(msgspec.Struct, frozen=True, tag="tool_progress"):
    """A running tool reports its progress.

    `line` is the last line of the command's output, or of the text that the tool reports (`RunContext.report`). It has
    at most 200 characters. Events come a few times a second at most. A command's first line comes after a quarter of a
    second. A tool's first report comes at once, and its last one always comes. The line is not part of the tool's
    result. `lines` are the last lines of a command's output, at most 5, the newest last; empty for a report.
    """

    call: ToolCall
    line: str
    lines: tuple[str, ...] = ()


class FilesChanged(msgspec.Struct, frozen=True, tag="files_changed"):
    """A file tool has changed files.

    `diff` is a unified diff of what it did, of at most 2,000 lines. `added` and `removed` count all lines.
    """

    call: ToolCall
    diff: str
    added: int
    removed: int


class AskOpened(msgspec.Struct, frozen=True, tag="ask_opened"):
    """A running tool asks a person a question (`RunContext.ask`).

    The person has `deadline_s` seconds. `options` are the answers that the tool offers.
    """

    call: ToolCall
    question: str
    options: tuple[str, ...]
    deadline_s: float


class AskClosed(msgspec.Struct, frozen=True, tag="ask_closed"):
    """A tool's question is answered or over.

    `answer.by` says how: `person`; `default` (nobody was there, or nobody answered in time); or `failed` (the approver
    failed, or the call ended before the answer).
    """

    call: ToolCall
    answer: Approval


class ToolFinished(msgspec.Struct, frozen=True, tag="tool_finished"):
    """A tool's call is over, after `seconds`. `result` is what the model reads.

    `error` is the exception that the tool raised, unless that is a ToolFault: the model reads only its class. No journal
    keeps it.
    """

    result: ToolResult
    seconds: float
    error: BaseException | None = None


class CallAnswered(msgspec.Struct, frozen=True, tag="call_answered"):
    """turnwise itself answers this call.

    Either the call did not run: it was denied, cut, unknown, malformed or not allowed in this step. Or its run was
    stopped; then a `ToolStarted` came before.
    """

    call: ToolCall
    result: ToolResult


class ChildSeen(msgspec.Struct, frozen=True, tag="child_seen"):
    """A sub-agent shows an event.

    `seen` is the event. `call_id` is the parent's call that started the sub-agent. `path` names the sub-agents that
    lead to it, outermost first.
    """

    call_id: str
    path: tuple[str, ...]
    seen: "WatcherEvent"


class ToolsetNoted(msgspec.Struct, frozen=True, tag="toolset_noted"):
    """A toolset tells what a person should know of it: an MCP server did not start in time, died, or runs again."""

    text: str


class RunNoted(msgspec.Struct, frozen=True, tag="run_noted"):
    """turnwise tells what a person should know of the run: a setting that the model does not take, or a missing call."""

    text: str


class TurnFinished(msgspec.Struct, frozen=True, tag="turn_finished"):
    """The turn is over."""

    result: TurnResult


WatcherEvent = (
    StepStarted
    | RequestStarted
    | FrameSeen
    | RequestFinished
    | AttemptDiscarded
    | ToolStarted
    | ToolProgress
    | FilesChanged
    | AskOpened
    | AskClosed
    | ToolFinished
    | CallAnswered
    | ChildSeen
    | ToolsetNoted
    | RunNoted
    | TurnFinished
)
"""A face shows the kind and the values of each of these for which it has no line of its own: no event is hidden. To let tools
tell another event, add it here; `running/progress.telling` tells it."""


def kind_of(seen: WatcherEvent) -> str:
    """Its tag: `tool_started`."""
    return str(seen.__struct_config__.tag)


Watch = Callable[[WatcherEvent], object]
"""Called in the event loop, in order, while the turn waits for it: it must be quick (put the event into a queue). If it raises,
it is not called again in this turn, and the turn continues."""

Feed = Callable[[Sequence[WatcherEvent]], object]
"""A `Watch` for batches: all frames of one read come together, every other event comes alone."""

_log = logging.getLogger("turnwise")


class FrameTaker(Protocol):
    """Takes the frames of a response, and raises nothing."""

    def __call__(self, frames: Sequence[Frame], /, *, number: int) -> None: ...


class Watchers:
    """Tells a `Watch`, a `Feed`, and the observer of the turn (`inner`), as far as they exist. None of them can harm the turn or
    each other. `elsewhere` takes the frames for other processes; it is told nothing else."""

    def __init__(
        self,
        watch: Watch | None,
        *,
        feed: Feed | None,
        inner: Feed | None = None,
        elsewhere: FrameTaker | None = None,
    ) -> None:
        self._watch = watch
        self._elsewhere = elsewhere
        self._feed = feed
        self._inner = inner

    @property
    def are_there(self) -> bool:
        return self._watch is not None or self._feed is not None or self._inner is not None

    @property
    def take_frames(self) -> bool:
        return self.are_there or self._elsewhere is not None

    def listen(self, feed: Feed) -> None:
        """From now on this feed is told, in place of another one."""
        self._feed = feed

    def leave(self) -> None:
        """From now on nobody is told anything."""
        self._watch = self._feed = self._inner = self._elsewhere = None

    def tell(self, seen: WatcherEvent) -> None:
        if self.are_there:
            self._tell((seen,))

    def tell_frames(self, frames: Sequence[Frame], *, number: int) -> None:
        """`frames` are what one read brought of the response to request `number`."""
        if frames and self._elsewhere is not None:
            self._elsewhere(frames, number=number)
        if frames and self.are_there:
            # a read usually has one frame, and speed counts
            self._tell(
                [FrameSeen(number, frame) for frame in frames] if len(frames) > 1 else (FrameSeen(number, frames[0]),)
            )

    def _tell(self, batch: Sequence[WatcherEvent]) -> None:
        if self._inner is not None:
            self._inner(batch)  # it raises nothing
        if self._feed is not None:
            try:
                self._feed(batch)
            except Exception:  # noqa: BLE001 (a watcher is a stranger; the turn must not end by it)
                self._feed = None
                _warn()
        if self._watch is not None:
            try:
                for seen in batch:
                    self._watch(seen)
            except Exception:  # noqa: BLE001 (as above)
                self._watch = None
                _warn()


def both(one: Feed, other: Feed) -> Feed:
    """A feed that tells two, neither of which raises."""

    def tell(batch: Sequence[WatcherEvent]) -> None:
        one(batch)
        other(batch)

    return tell


class Backlog:
    """Events that one consumer has not taken yet. Taking never waits while there are any: a slow consumer gets larger batches and
    does not slow down the turn, whose responses are bounded."""

    def __init__(self) -> None:
        self._seen: list[WatcherEvent] = []
        self._closed = False
        self._wake: asyncio.Future[None] | None = None

    def put(self, batch: Sequence[WatcherEvent]) -> None:
        self._seen += batch
        if self._wake is not None:
            self._wake_up()

    def close(self) -> None:
        self._closed = True
        self._wake_up()

    async def take(self) -> Sequence[WatcherEvent]:
        """All events so far, as soon as there is one; nothing once it is closed and empty."""
        while not self._seen and not self._closed:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        seen, self._seen = self._seen, []
        return seen

    def _wake_up(self) -> None:
        wake, self._wake = self._wake, None
        if wake is not None and not wake.done():
            wake.set_result(None)


def _warn() -> None:
    _log.warning("the watcher of a turn raised and is not called again in this turn", exc_info=True)


# Observers of a whole turn from inside. Spans and metrics are made with them (`telemetry`).


class ObservedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that begins, as an observer sees it. `input` is its input; `scrub` removes the endpoint's key from a text."""

    config: TurnConfig
    input: tuple[Message, ...]
    path: tuple[str, ...]
    provider: str
    base_url: str
    scrub: Callable[[str], str]
    ledger: Ledger
    clock: Clock
    is_resumed: bool


class TurnObserver(Protocol):
    """Observes one turn from its beginning to its end. It raises nothing.

    The turn runs in `around`, and its result is returned after `settled` has returned. `asked` is called with each request that
    is about to leave, in that request's context, and returns headers to send with it. `see` gets what watchers are told; for
    calls, in the context in which they run.
    """

    def around(self) -> AbstractContextManager[None]: ...

    async def settled(self) -> None: ...

    def asked(self, order: SendRequest, /) -> tuple[tuple[str, str], ...]: ...

    def see(self, batch: Sequence[WatcherEvent], /) -> None: ...


Observe = Callable[[ObservedTurn], TurnObserver]
"""Makes the observer of a turn that is about to begin. It raises nothing."""


# What the watchers of one turn are told: each call once and each result once, from whatever source.


class LiveTeller:
    """Tells the watchers. `unanswered` are the calls whose result they have not seen, by id."""

    def __init__(self, watchers: Watchers, *, journal: LoopPen | None) -> None:
        self._watchers = watchers
        self.tell = watchers.tell
        self._journal = journal
        self.unanswered: dict[str, ToolCall] = {}
        self._step = 0
        self._told = 0  # messages that the turn has added, whose results the watchers have seen

    def begin(self, turn: Turn) -> None:
        """The watchers know what the turn has added so far."""
        self._told = len(turn.added)

    async def enter_step(self, step: int) -> None:
        if step != self._step:
            self._step = step
            if self._watchers.are_there:
                await self.of_event(StepStarted(step))

    async def discarded(self, event: ResponseReceived | RequestFailed, *, following: Command) -> None:
        """A failed request is given up and will be sent again: watchers ignore what they saw of it."""
        seconds = following.seconds if isinstance(following, Wait) else 0.0
        fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
        if isinstance(event, ResponseReceived) and event.response.lost:
            fault = fault or LOST_PIECE
        await self.of_event(AttemptDiscarded(number=event.number, fault=fault, retry_in_s=seconds))

    async def answered(self, turn: Turn) -> None:
        """Tell the results in new messages that no tool has given."""
        added = turn.added
        told, self._told = self._told, len(added)
        for message in added[told:]:
            for part in message.parts:
                if type(part) is ToolCall:
                    self.unanswered[part.id] = part
                elif type(part) is ToolResult and (call := self.unanswered.pop(part.call_id, None)):
                    await self.of_event(CallAnswered(call, part))

    def answered_in_program(self, command: RunScript) -> None:
        for result in command.results:
            if inner := self.unanswered.pop(result.call_id, None):
                said = (Text(result.text),)
                answer = ToolResult(call_id=inner.id, name=inner.name, content=said, is_error=result.is_error)
                self.tell(CallAnswered(inner, answer))

    def program_ended(self, call: ToolCall, event: ScriptFinished, *, seconds: float) -> None:
        self.unanswered.pop(call.id, None)
        said = (Text(event.text),)
        self.tell(
            ToolFinished(ToolResult(call_id=call.id, name=call.name, content=said, is_error=event.is_error), seconds)
        )

    async def of_event(self, seen: WatcherEvent) -> None:
        """Tell what follows from an event. The event may not be written yet, and a watcher may be slow."""
        if self._watchers.are_there:
            if self._journal is not None:
                with contextlib.suppress(
                    JournalFailed
                ):  # the next step also tries to write, and does not run without it
                    await self._journal.write()
            self.tell(seen)


def gives_up(command: Command) -> bool:
    """Whether another request follows a failed one in its place."""
    return type(command) is Wait or (type(command) is SendRequest and command.retry_of is not None)
