"""What a client is told while a run works: one line at a time, the latest, and only where it wants any."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from turnwise.coding_agent.asked_calls import MAX_TITLE, title_of
from turnwise.coding_agent.text import shortened
from turnwise.running.watcher_events import (
    AskOpened,
    AttemptDiscarded,
    ChildSeen,
    RequestStarted,
    RunNoted,
    ToolProgress,
    ToolsetNoted,
    ToolStarted,
    WatcherEvent,
)

TellClient = Callable[[float, str], Awaitable[None]]
"""Tells the client a number, which grows, and a line."""


class Progress:
    """Watches a run. Between two lines that are sent, only the latest is kept: a slow client holds nothing up."""

    def __init__(self) -> None:
        self._report: TellClient | None = None
        self._line = ""
        self._steps = 0
        self._task: asyncio.Task[None] | None = None

    def report_to(self, report: TellClient | None) -> None:
        """From now on; None: to nobody."""
        self._report = report
        if report is not None:
            self._send_soon()

    def see(self, seen: WatcherEvent) -> None:
        if line := line_of(seen):
            self._line = line
            self._steps += 1
            self._send_soon()

    async def flush(self) -> None:
        while self._task is not None:
            await asyncio.wait((self._task,))

    def _send_soon(self) -> None:
        if self._task is None and self._report is not None and self._line:
            self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while self._line and self._report is not None:
                    line, self._line = self._line, ""
                    await self._report(float(self._steps), line)
        finally:
            self._task = None


def line_of(seen: WatcherEvent, *, path: tuple[str, ...] = ()) -> str:
    """Empty for what needs no line."""
    match seen:
        case ChildSeen(path=names, seen=inner):
            return line_of(inner, path=names)
        case RequestStarted(number=number, step=step):
            said = f"step {step}: request {number}"
        case ToolStarted(call=call):
            return title_of(call, path=path)
        case ToolProgress(line=line):
            said = line
        case AskOpened(call=call):
            said = f"asking about {call.name}"
        case AttemptDiscarded(retry_in_s=retry_in_s):
            said = f"the request failed and is sent again in {retry_in_s:g} s"
        case ToolsetNoted(text=text) | RunNoted(text=text):
            said = text
        case _:
            return ""
    return shortened(" › ".join([*path, said]), limit=MAX_TITLE)
