"""What a turn asks a person while no process works on it, and what was answered so far: two columns of its row, as text.

They are read strictly. Whoever may write into the database may write anything there.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from turnwise.turn.approvals import Approval, OneAsk
from turnwise.vocab import ToolCall

Read = TypeVar("Read")


class AskedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, the folder in which the calls would run, and on which worker."""

    asks: tuple[OneAsk, ...]
    folder: str = ""
    worker: str = ""


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, and when it came: UTC, seconds since 1970."""

    approval: Approval
    at: float


class ShownAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One ask as `status` shows it. `id` names it in an answer; `answer` is "" until there is one."""

    id: str
    kind: str
    tool: str
    arguments: str
    subject: str
    why: str
    options: tuple[str, ...]
    answer: str


NOTHING_ASKED = AskedElsewhere(asks=())
UNREADABLE = AskedElsewhere(
    asks=(
        OneAsk(
            call=ToolCall(id="unreadable", name="unreadable", arguments=""),
            arguments="",
            subject="",
            why="what is asked cannot be read: it is damaged, or from a newer turnwise",
        ),
    )
)


def read_asked(text: str | None) -> AskedElsewhere:
    """NOTHING_ASKED where nothing stands there, UNREADABLE where nobody can say what."""
    if text is None:
        return NOTHING_ASKED
    return _read(text, AskedElsewhere) or UNREADABLE


def read_answers(text: str | None) -> tuple[GivenAnswer, ...]:
    """None of them where they cannot be read: nothing is allowed by accident."""
    return () if text is None else _read(text, tuple[GivenAnswer, ...]) or ()


def write_text(value: AskedElsewhere | Sequence[GivenAnswer]) -> str:
    return msgspec.json.encode(value).decode()


def listed_as(asks: Iterable[OneAsk]) -> tuple[tuple[str, str], ...]:
    """The calls that are asked about, each with what stands for all that was shown of it."""
    return tuple([(ask.call.id, ask.digest) for ask in asks])


def shown_asks(asked: AskedElsewhere, *, answers: Sequence[GivenAnswer]) -> tuple[ShownAsk, ...]:
    given = {one.approval.call_id: one.approval.verdict for one in answers}
    return tuple(
        [
            ShownAsk(
                id=ask.call.id,
                kind=ask.kind,
                tool=ask.call.name,
                arguments=ask.arguments,
                subject=ask.subject,
                why=ask.why,
                options=ask.options,
                answer=given.get(ask.call.id, ""),
            )
            for ask in asked.asks
        ]
    )


def _read(text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
