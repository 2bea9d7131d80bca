"""What a session tells that runs elsewhere, a line each: short ones for people, those of `run --json` for programs."""

import sys
from typing import assert_never

import msgspec

from turnwise.coding_agent.text import clean_row, shortened, visible_line
from turnwise.replay.live_session import SessionEvent
from turnwise.replay.replayed_events import PersonSpoke
from turnwise.running.watcher_events import (
    AskClosed,
    AskOpened,
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
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
)
from turnwise.terminal.events import JsonLines
from turnwise.vocab import Text, TextDelta, ToolResult

SHOWN = 200  # characters of arguments, results and words: all of them are in the session


class EventLines:
    """Writes each to standard output at once."""

    def __init__(self, *, as_json: bool) -> None:
        self._place: dict[str, object] = {"n": 0}
        self._json = JsonLines(within=self._place) if as_json else None

    def __call__(self, event: SessionEvent) -> None:
        self._place.update(n=event.number, turn=event.turn)
        seen = event.seen
        if self._json is None:
            line = _spoken(seen) if isinstance(seen, PersonSpoke) else _seen(seen)
            if line:
                sys.stdout.write(f"  {clean_row(line)}\n")
                sys.stdout.flush()
        elif isinstance(seen, PersonSpoke):
            sys.stdout.write(msgspec.json.encode(_spoken_as_data(seen) | self._place).decode() + "\n")
            sys.stdout.flush()
        else:
            self._json(seen)


def _spoken_as_data(spoke: PersonSpoke) -> dict[str, object]:
    if spoke.words:
        return {"event": "words", "text": spoke.words}
    answers = [
        {"id": ask.call.id, "name": ask.call.name, "verdict": None if given is None else given.verdict}
        for ask, given in spoke.asked
    ]
    return {"event": "answers", "answers": answers}


def _spoken(spoke: PersonSpoke) -> str:
    if spoke.words:
        return f"a word in between: {_short(spoke.words)}"
    answers = [f"{ask.call.name}: {'no answer' if given is None else given.verdict}" for ask, given in spoke.asked]
    return f"answered: {_short(', '.join(answers))}"


def _seen(seen: WatcherEvent) -> str:
    """ "" for what needs no line."""
    match seen:
        case StepStarted(step=step):
            return f"step {step}"
        case ToolStarted(call=call):
            return f"{visible_line(call.name)} {_short(call.arguments)}"
        case ToolFinished(result=result) | CallAnswered(result=result):
            return f"{visible_line(result.name)} {'failed' if result.is_error else 'gave'}: {_short(_text(result))}"
        case FrameSeen(frame=TextDelta(text=text)):
            return f"says: {_short(text)}"
        case RequestFinished(fault=fault) if fault is not None:
            return f"request {seen.number} failed: {_short(fault.message)}"
        case AttemptDiscarded(retry_in_s=retry_in_s):
            return f"request {seen.number} is sent again in {retry_in_s:g} s"
        case AskOpened(call=call, question=question):
            return f"{visible_line(call.name)} asks: {_short(question)}"
        case AskClosed(answer=answer):
            return f"answered by {answer.by}: {answer.verdict} {_short(answer.text)}".rstrip()
        case ToolsetNoted(text=text) | RunNoted(text=text):
            return _short(text)
        case FrameSeen() | RequestStarted() | RequestFinished() | ToolProgress() | TurnFinished() | ChildSeen():
            return ""
        case _:
            assert_never(seen)


def _text(result: ToolResult) -> str:
    return "".join([part.text for part in result.content if isinstance(part, Text)])


def _short(text: str) -> str:
    return shortened(visible_line(text), limit=SHOWN)
