"""What runs tell Python's `logging`: the logger `turnwise.runs`, without anything that a user, a model or a tool wrote.

The logger `turnwise.content` has these texts. It stays silent, also under a root logger that takes everything, until the program
sets its level: `logging.getLogger("turnwise.content").setLevel(logging.DEBUG)`. What tools raise goes to `turnwise.tools`.
"""

import logging
from collections.abc import Sequence

from turnwise.running.watcher_events import (
    AskClosed,
    AskOpened,
    CallAnswered,
    RequestFinished,
    RequestStarted,
    ToolFinished,
    ToolStarted,
    WatcherEvent,
)
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.events import Ask
from turnwise.vocab import Fault, Message, Text, ToolResult, text_of

_log = logging.getLogger("turnwise.runs")
_log.addHandler(
    logging.NullHandler()
)  # a program that does not ask for logs has no line about retries on its standard error
_contents = logging.getLogger("turnwise.content")
if _contents.level == logging.NOTSET:
    _contents.setLevel(logging.CRITICAL + 1)


class RunLog:
    """Logs one turn. `hears`: somebody reads its beginning, its end and its asks, and not only its retries. `sees`: its requests
    and tools, too."""

    def __init__(self, config: TurnConfig, *, path: tuple[str, ...]) -> None:
        self._config = config
        self._name = f"turn {config.turn_id}" + (f" ({'/'.join(path)})" if path else "")
        self._facts = {"turnwise_turn": config.turn_id, "turnwise_session": config.session_id, "turnwise_path": path}
        self.hears = _log.isEnabledFor(logging.INFO) or _contents.isEnabledFor(logging.DEBUG)
        self.sees = _log.isEnabledFor(logging.DEBUG) or _contents.isEnabledFor(logging.DEBUG)

    def began(self, given: Sequence[Message], *, is_resumed: bool) -> None:
        does = "goes on" if is_resumed else "begins"
        config = self._config
        self._say(logging.INFO, f"{does}: model {config.model}, session {config.session_id}, {len(config.tools)} tools")
        for message in given:
            self._content("input", text_of(message))

    def ended(self, result: TurnResult, *, seconds: float, usd: object) -> None:
        how = f"{result.stop_reason}{'' if result.complete else ', not complete'}"
        cost = "unknown" if usd is None else f"${usd}"
        counts = f"{result.steps} steps, {result.requests} requests, cost {cost}, {seconds:.1f} s"
        self._say(logging.INFO, f"ends: {how}; {counts}")
        self._content("answer", result.text)

    def retries(self, number: int, fault: Fault | None, *, in_s: float) -> None:
        self._say(logging.WARNING, f"request {number} is given up ({_said(fault)}); the next one leaves in {in_s:g} s")

    def asks(self, order: Ask) -> None:
        names = ", ".join([ask.call.name for ask in order.asks])
        self._say(logging.INFO, f"asks about {len(order.asks)} calls ({names}), for {order.deadline_s:g} s")

    def see(self, batch: Sequence[WatcherEvent]) -> None:
        for seen in batch:
            self._see(seen)

    def _see(self, seen: WatcherEvent) -> None:
        match seen:
            case RequestStarted():
                self._say(
                    logging.DEBUG, f"request {seen.number} leaves: {seen.purpose} of step {seen.step}, {seen.model}"
                )
            case RequestFinished():
                self._request_finished(seen)
            case ToolStarted(call=call):
                self._say(logging.DEBUG, f"tool {call.name} starts (call {call.id})")
                self._content(f"arguments of call {call.id}", call.arguments)
            case ToolFinished(result=result):
                failed = " with an error" if result.is_error else ""
                self._say(
                    logging.DEBUG,
                    f"tool {result.name} ended{failed} after {seen.seconds:.3f} s (call {result.call_id})",
                )
                self._content(f"result of call {result.call_id}", _text(result))
            case CallAnswered(call=call):
                self._say(logging.DEBUG, f"call {call.id} of {call.name} does not run, and is answered by turnwise")
            case AskOpened(call=call):
                self._say(logging.INFO, f"tool {call.name} asks a person, for {seen.deadline_s:g} s (call {call.id})")
            case AskClosed(call=call, answer=answer):
                self._say(
                    logging.INFO, f"tool {call.name} has its answer: {answer.verdict}, by {answer.by} (call {call.id})"
                )
            case _:
                pass

    def _request_finished(self, seen: RequestFinished) -> None:
        how = _said(seen.fault) if seen.response is None else str(seen.response.finish)
        self._say(logging.DEBUG, f"request {seen.number} ended: {how}, after {seen.seconds:.3f} s")
        if seen.response is not None and seen.response.repairs:
            kinds = ", ".join([repair.kind for repair in seen.response.repairs])
            self._say(logging.DEBUG, f"request {seen.number} was mended: {kinds}")
        if seen.fault is not None:
            self._content(f"fault of request {seen.number}", seen.fault.message)

    def _say(self, level: int, text: str) -> None:
        self._write(_log, level, text)

    def _content(self, what: str, text: str) -> None:
        if text and _contents.isEnabledFor(logging.DEBUG):
            self._write(_contents, logging.DEBUG, f"{what}: {text}")

    def _write(self, logger: logging.Logger, level: int, text: str) -> None:
        try:
            logger.log(level, "%s: %s", self._name, text, extra=self._facts)
        except Exception:  # noqa: BLE001 (a filter of the program's may raise; the turn must not end by it)
            self.sees = False


def log_of(config: TurnConfig, *, path: tuple[str, ...]) -> RunLog | None:
    """The log of a turn that begins; None if nobody reads even warnings."""
    return RunLog(config, path=path) if _log.isEnabledFor(logging.WARNING) else None


def _said(fault: Fault | None) -> str:
    if fault is None:
        return "no output"
    return str(fault.kind) if fault.status is None else f"{fault.kind}, {fault.status}"


def _text(result: ToolResult) -> str:
    return "".join([part.text for part in result.content if isinstance(part, Text)])
