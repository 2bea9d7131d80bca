"""What the watchers of one turn are told of it: each call once, and each result once, whoever has given it."""

import contextlib

from turnwise.errors import JournalFailed
from turnwise.journal.loop_writer import LoopPen
from turnwise.running.watcher_events import (
    AttemptDiscarded,
    CallAnswered,
    StepStarted,
    ToolFinished,
    WatcherEvent,
    Watchers,
)
from turnwise.turn.attempt import LOST_PIECE
from turnwise.turn.commands import Command, RunScript, SendRequest, Wait
from turnwise.turn.events import RequestFailed, ResponseReceived, ScriptFinished
from turnwise.turn.machine import Turn
from turnwise.vocab import Text, ToolCall, ToolResult


class LiveTeller:
    """Tells the watchers. `unanswered` are the calls whose result they have not seen, by id."""

    def __init__(self, watchers: Watchers, *, journal: LoopPen | None) -> None:
        self.are_there = watchers.are_there
        self.tell = watchers.tell
        self._journal = journal
        self.unanswered: dict[str, ToolCall] = {}
        self._step = 0
        self._told = 0  # messages that the turn has added, whose results the watchers have seen

    def begin(self, turn: Turn) -> None:
        """What the turn has added so far is known."""
        self._told = len(turn.added)

    async def enter_step(self, step: int) -> None:
        if step != self._step:
            self._step = step
            if self.are_there:
                await self.of_event(StepStarted(step))

    async def discarded(self, event: ResponseReceived | RequestFailed, *, following: Command) -> None:
        """A failed request that is to be sent again is given up, with whatever of it was shown."""
        seconds = following.seconds if isinstance(following, Wait) else 0.0
        fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
        if isinstance(event, ResponseReceived) and event.response.lost:
            fault = fault or LOST_PIECE
        await self.of_event(AttemptDiscarded(number=event.number, fault=fault, retry_in_s=seconds))

    async def answered(self, turn: Turn) -> None:
        """Tell of the results in new messages that no tool has given."""
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
        """Of what follows from an event that may not be written yet; a watcher may be slow."""
        if self.are_there:
            if self._journal is not None:
                with contextlib.suppress(JournalFailed):  # what comes next is tried too, and is not done without it
                    await self._journal.write()
            self.tell(seen)


def gives_up(command: Command) -> bool:
    """Whether what follows a failed request is another one in its place."""
    return type(command) is Wait or (type(command) is SendRequest and command.retry_of is not None)
