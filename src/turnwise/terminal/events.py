"""`--json`: one JSON object a line, as it happens; the last line is the result."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from typing import Literal

from turnwise.agent.results import OwnSpending, RunResult
from turnwise.coding_agent.run_events import DeniedCall, EventObjects, result_fields
from turnwise.running.watcher_events import WatcherEvent
from turnwise.terminal.failures import USAGE, Unable, write_json
from turnwise.vocab import NO_USAGE, StopReason


class JsonLines:
    """Writes each event to standard output at once, so that a reader of the pipe can follow."""

    def __init__(self, *, within: Mapping[str, object] | None = None) -> None:
        self._within = within or {}  # further fields of each line: which session it belongs to
        self._objects = EventObjects(within=self._within)

    def __call__(self, seen: WatcherEvent) -> None:
        for told in self._objects.of_event(seen):
            write_line(told)

    def tell(self, line: str) -> None:
        self._write({"event": "note", "text": line})

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the line that could not be written has raised already
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
        """The last line of several sessions: the outcome of each."""
        self._write({"event": "summary", "sessions": sessions, "failed": failed, "exit_code": code})

    def _write(self, line: dict[str, object]) -> None:
        write_line({**line, **self._within})


def write_line(line: Mapping[str, object]) -> None:
    """Write the line on standard output, at once."""
    write_json(line)
    sys.stdout.buffer.flush()


def write_unable(unable: Unable) -> None:
    """The last line of a command that got no turn's result. `requests` is null if some may have been sent."""
    result = RunResult(
        shown_text=unable.why,
        stop_reason=StopReason.CANCELLED,  # the reason itself is below
        complete=False,
        why_incomplete=unable.why,
        output_or_none=None,
        steps=0,
        requests=0,
        requests_by_purpose={},
        usage=NO_USAGE,
        own=OwnSpending(steps=0, requests=0, usage=NO_USAGE),
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
