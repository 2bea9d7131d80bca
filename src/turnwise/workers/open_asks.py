"""The asks of a turn, or of its sub-agents while it runs, and the answers so far: two columns of its row, as text.

They are read strictly, because anybody with write access to the database may write anything there.
"""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from turnwise.turn.config import Approval, AskOrigin, OneAsk, mark_of
from turnwise.vocab import ToolCall

Read = TypeVar("Read")


class AskBelow(msgspec.Struct, frozen=True, kw_only=True):
    """An ask of a sub-agent. `path` names the agents that lead to it, outermost first. People know it by `id`. From `until` on it
    takes no answer: the server's time, UTC, seconds since 1970."""

    ask: OneAsk
    path: tuple[str, ...]
    origin: AskOrigin
    id: str = ""
    until: float = 0.0

    @property
    def key(self) -> tuple[str, int, str, str]:
        """Identifies the ask in every process that continues the turn."""
        return self.origin.turn_id, self.origin.step, self.ask.call.id, self.ask.digest

    @property
    def named(self) -> OneAsk:
        """The ask, with the id that people know."""
        return msgspec.structs.replace(self.ask, call=msgspec.structs.replace(self.ask.call, id=self.id))


class AskedElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """The asks, the folder in which the calls would run, and the worker. `below`: the asks of sub-agents while the turn runs.
    `past`: ids of such asks that take no answer any more; these ids are not used again."""

    asks: tuple[OneAsk, ...]
    folder: str = ""
    worker: str = ""
    below: tuple[AskBelow, ...] = ()
    past: tuple[str, ...] = ()

    def open_below(self, *, now_s: float) -> tuple[AskBelow, ...]:
        return tuple([one for one in self.below if one.until > now_s])


class GivenAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer, and when it came (UTC, seconds since 1970)."""

    approval: Approval
    at: float


class ShownAsk(msgspec.Struct, frozen=True, kw_only=True):
    """One ask as `status` shows it. An answer names its `id`, and the `mark` of everything that it shows. `answer` is empty until
    there is one. `path` leads to the sub-agent that asks. The call would run in `folder`. From `until` on, the ask takes no
    answer."""

    id: str
    kind: str
    tool: str
    arguments: str
    subject: str
    why: str
    options: tuple[str, ...]
    answer: str
    path: tuple[str, ...] = ()
    folder: str = ""
    until: float | None = None
    mark: str = ""


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
    """The asks in this text: NOTHING_ASKED if it is empty, UNREADABLE if it cannot be read."""
    if text is None:
        return NOTHING_ASKED
    return _read(text, AskedElsewhere) or UNREADABLE


def read_answers(text: str | None) -> tuple[GivenAnswer, ...]:
    """The answers in this text; none if it cannot be read, so that nothing is allowed by accident."""
    return () if text is None else _read(text, tuple[GivenAnswer, ...]) or ()


def write_text(value: AskedElsewhere | Sequence[GivenAnswer]) -> str:
    return msgspec.json.encode(value).decode()


def listed_as(asks: Iterable[OneAsk]) -> tuple[tuple[str, str], ...]:
    """The calls of these asks, each with the digest of everything that was shown of it."""
    return tuple([(ask.call.id, ask.digest) for ask in asks])


def shown_asks(asked: AskedElsewhere, *, answers: Sequence[GivenAnswer], until: float | None) -> tuple[ShownAsk, ...]:
    """The asks of a turn that waits until then."""
    given = _verdicts(answers)
    return tuple(
        [_shown(ask, answer=given.get(ask.call.id, ""), folder=asked.folder, until=until) for ask in asked.asks]
    )


def shown_below(asks: Sequence[AskBelow], *, answers: Sequence[GivenAnswer]) -> tuple[ShownAsk, ...]:
    """The asks of a running turn's sub-agents."""
    given = _verdicts(answers)
    return tuple(
        [
            _shown(one.named, answer=given.get(one.id, ""), folder=one.origin.folder, until=one.until, path=one.path)
            for one in asks
        ]
    )


def _verdicts(answers: Sequence[GivenAnswer]) -> dict[str, str]:
    return {one.approval.call_id: one.approval.verdict for one in answers}


def _shown(ask: OneAsk, *, answer: str, folder: str, until: float | None, path: tuple[str, ...] = ()) -> ShownAsk:
    return ShownAsk(
        id=ask.call.id,
        kind=ask.kind,
        tool=ask.call.name,
        arguments=ask.arguments,
        subject=ask.subject,
        why=ask.why,
        options=ask.options,
        answer=answer,
        path=path,
        folder=folder,
        until=until,
        mark=mark_of([ask]),
    )


def _read(text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
