"""What a session was about when it was left: the last thing that the person said, how it was answered, and when."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo

import msgspec

from turnwise.agent.formatting import PRICE_WANTED, cost_said, many, purposes_said
from turnwise.agent.results import RunResult
from turnwise.coding_agent.text import clean, shortened, visible_line
from turnwise.journal.journal import Journal, Session, TurnRow
from turnwise.rules.pricing import Cost
from turnwise.turn.config import ChildReport
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
)
from turnwise.vocab import NO_USAGE, FinishReason, Refusal, Response, Text, Usage, own_text_of

# When something was, as people say it.


MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


def when_said(at_s: float, *, now_s: float, zone: tzinfo | None = None) -> str:
    """`2 hours ago, 14:05`; with the date where it was not today. Seconds since 1970; `zone` is the machine's unless given."""
    at, now = (datetime.fromtimestamp(seconds, zone) for seconds in (at_s, now_s))
    if at.date() == now.date():
        day = ""
    elif at.date() == (now - timedelta(days=1)).date():
        day = "yesterday "
    else:
        day = f"{at:%Y-%m-%d} "
    return f"{_ago(now_s - at_s)}, {day}{at:%H:%M}"


def _ago(seconds: float) -> str:
    """A clock that was set back makes nothing lie in the future."""
    if seconds < MINUTE_S:
        return "just now"
    if seconds < HOUR_S:
        return f"{many(int(seconds // MINUTE_S), 'minute')} ago"
    if seconds < DAY_S:
        return f"{many(int(seconds // HOUR_S), 'hour')} ago"
    return f"{many(int(seconds // DAY_S), 'day')} ago"


PROMPT_CHARACTERS = 200
BEGINNING_CHARACTERS = 240
END_CHARACTERS = 120
LINE_CHARACTERS = 40  # of a prompt and of an answer where both stand on one line
READ_CHARACTERS = 4000  # of either end of a text: more is never shown

# How the last turn ended, where that is worth a word.
ENDS = {"waiting": "it waits for an answer of yours", "lost": "it was interrupted", "running": "it is running"}


class LastExchange(msgspec.Struct, frozen=True, kw_only=True):
    """`said` is empty where no person said anything, `answered` where the model said nothing. `at_s` is UTC, since 1970."""

    session: str
    turns: int
    folder: str
    model: str
    at_s: float
    said: str
    answered: str
    end: str = ""


def last_exchange(journal: Journal, session: Session) -> LastExchange | None:
    """None for a session without turns."""
    if not session.turns:
        return None
    said, answered, model = "", "", ""
    for turn in reversed(session.turns):
        events = journal.events(turn.id)
        started = started_of(events)
        if started is not None:
            model = model or f"{started.config.profile}:{started.config.model}"
            said = prompt_of(started)
        answered = answered or _answer_of(events)
        if said:  # a turn that only approves has none: what it is about was said before
            break
    last = session.turns[-1]
    return LastExchange(
        session=session.row.id,
        turns=len(session.turns),
        folder=session.row.folder,
        model=model,
        at_s=last.finished or last.created,
        said=said,
        answered=answered,
        end=_end_of(last),
    )


def exchange_lines(exchange: LastExchange, *, now_s: float) -> list[str]:
    """For an interactive session; all of it safe to print."""
    lines = [
        f"session {exchange.session[-8:]}, {many(exchange.turns, 'turn')}, in {visible_line(exchange.folder)} with "
        f"{visible_line(exchange.model)}; the last {when_said(exchange.at_s, now_s=now_s)}:"
    ]
    if exchange.said:
        lines.append(f"  you: {_both_ends(exchange.said, first=PROMPT_CHARACTERS, last=0)}")
    answer = _both_ends(exchange.answered, first=BEGINNING_CHARACTERS, last=END_CHARACTERS)
    notes = [*([] if answer else ["no answer"]), *([exchange.end] if exchange.end else [])]
    lines.append(" ".join(["  answer:", *([answer] if answer else []), *([f"({', '.join(notes)})"] if notes else [])]))
    return lines


def exchange_line(exchange: LastExchange, *, now_s: float) -> str:
    """The same in one line, for a single run."""
    said = shortened(exchange.said[:READ_CHARACTERS], limit=LINE_CHARACTERS)
    answer = shortened(exchange.answered[:READ_CHARACTERS], limit=LINE_CHARACTERS)
    about = f': "{said}"' if said else ""
    answered = f'answered "{answer}"' if answer else "no answer"
    end = f" ({exchange.end})" if exchange.end else ""
    return (
        f"continuing {exchange.session[-8:]} ({when_said(exchange.at_s, now_s=now_s)}; {visible_line(exchange.model)} in "
        f"{visible_line(exchange.folder)}){about}, {answered}{end}"
    )


def started_of(events: Sequence[Event]) -> TurnStarted | None:
    """How a turn began; None where its process was killed before it could say so."""
    return next((event for event in events if isinstance(event, TurnStarted)), None)


def prompt_of(started: TurnStarted) -> str:
    """What the person said; empty where the turn only answers what was asked."""
    return "\n".join([own_text_of(message) for message in started.input if message.role == "user"]).strip()


def _answer_of(events: Sequence[Event]) -> str:
    """The last words of the model in a turn; in front of the rest of a cut response stands what was cut."""
    pieces: list[str] = []
    for event in reversed(events):
        match event:
            case ResponseReceived(response=response) if not pieces or response.finish is FinishReason.LENGTH:
                pieces.append(_words_of(response))
            case ResponseReceived():
                break
            case RequestFailed(partial=Response() as response) if not pieces:
                pieces.append(_words_of(response))
            case Interrupted(partial=Response() as response) if not pieces:
                pieces.append(_words_of(response))
            case ToolsFinished() | ToolEnded() if pieces:
                break
            case _:
                pass
        if pieces and not pieces[-1].strip():
            pieces.pop()
    return "".join(reversed(pieces))


def _words_of(response: Response) -> str:
    return "".join([part.text for part in response.message.parts if isinstance(part, Text | Refusal)])


def _end_of(turn: TurnRow) -> str:
    if turn.status in ENDS:
        return ENDS[turn.status]
    if turn.complete or turn.stop_reason is None:
        return ""
    return f"it ended by {turn.stop_reason}"


def _both_ends(text: str, *, first: int, last: int) -> str:
    """On one line: all of it, or its beginning and its end."""
    head = " ".join(clean(text[:READ_CHARACTERS]).split())
    if len(text) <= READ_CHARACTERS and len(head) <= first + last:
        return head
    tail = " ".join(clean(text[-READ_CHARACTERS:]).split())
    beginning = _whole_words(head[:first])
    end = _whole_words(tail[-last:][::-1])[::-1] if last else ""
    return f"{beginning} … {end}".rstrip()


def _whole_words(piece: str) -> str:
    """Without the word that was cut at its end, unless it is half of all."""
    kept = piece.rpartition(" ")[0]
    return kept if len(kept) > len(piece) // 2 else piece


# What an interactive session has used, over all its turns.


class SessionSpent(msgspec.Struct, kw_only=True):
    """Sums of the turns that this process ran. `purposes` are the requests by purpose, sub-agents' under `child`."""

    turns: int = 0
    usage: Usage = NO_USAGE
    cost: Cost = Cost()
    purposes: Counter[str] = msgspec.field(default_factory=Counter[str])

    def add(self, result: RunResult) -> None:
        self.turns += 1
        self.usage += result.own.usage
        self.cost += result.cost
        self.purposes.update(result.requests_by_purpose)
        self._add_children(result.children)

    def _add_children(self, children: Sequence[ChildReport]) -> None:
        for child in children:
            self.usage += child.usage
            if child.requests:
                self.purposes["child"] += child.requests

    def lines(self) -> list[str]:
        usage, requests = self.usage, sum(self.purposes.values())
        parts = purposes_said(self.purposes)
        return [
            f"{many(self.turns, 'turn')}, {many(requests, 'request')}{f': {parts}' if parts else ''}",
            f"{usage.input_tokens:,} tokens in ({usage.cache_read_tokens:,} of them from the cache), "
            f"{usage.output_tokens:,} out ({usage.reasoning_tokens:,} of them reasoning)",
            *([f"cost {cost_said(self.cost)}"] if self.cost.requests else []),
            *([PRICE_WANTED] if self.cost.unknown else []),
        ]
