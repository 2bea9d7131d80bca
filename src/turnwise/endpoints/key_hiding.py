"""Striking the key out of what a provider says: some quote it back, about a request in any field, and gateways in an answer.

What goes back to the provider unchanged stays as it is: names, ids and arguments of calls (which run as the model wrote them),
opaque data and items, and reasoning that is signed.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from turnwise.endpoints.escapes import may_escape
from turnwise.endpoints.key_forms import begins_at, hide_forms
from turnwise.vocab import (
    Citation,
    CitationAdded,
    Faulted,
    Finished,
    Frame,
    Lost,
    Mended,
    Message,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Response,
    Started,
    Text,
    TextDelta,
    UsageReported,
)

Quote = TypeVar("Quote", bound=msgspec.Struct)
Scrub = Callable[[str], str]

_QUOTING = frozenset([Started, Finished, Faulted, Mended, Lost, UsageReported])
_Delta = TextDelta | ReasoningDelta | RefusalDelta
START = 4  # characters of a form that are enough to wait for the rest of it; fewer begin many words


def hide_in(value: Quote, *, scrub: Scrub) -> Quote:
    """The struct with all its texts scrubbed, also those of structs inside it."""
    changed: dict[str, object] = {}
    for name in value.__struct_fields__:
        field: object = getattr(value, name)
        if isinstance(field, msgspec.Struct):
            hidden: object = hide_in(field, scrub=scrub)
        elif isinstance(field, str):
            hidden = scrub(field)
        else:
            continue
        if hidden != field:
            changed[name] = hidden
    return msgspec.structs.replace(value, **changed) if changed else value


def hide_in_frames(frames: Sequence[Frame], *, scrub: Scrub) -> Sequence[Frame]:
    if len(frames) == 1:  # the ordinary read, told first because speed counts
        return frames if type(frames[0]) not in _QUOTING else [hide_in(frames[0], scrub=scrub)]
    if _QUOTING.isdisjoint(map(type, frames)):
        return frames
    return [hide_in(frame, scrub=scrub) if type(frame) in _QUOTING else frame for frame in frames]


class WordsHider:
    """Strikes forms of a key out of the words of one response as they come. A key may come in many deltas, so the end of a
    delta that may be the beginning of one waits for the next; `flush` gives what still waits."""

    def __init__(self, forms: tuple[str, ...]) -> None:
        self._forms = forms
        self._starts = tuple(dict.fromkeys([form[:START] for form in forms]))
        self._last: _Delta | None = None  # the delta that came last; its kind and block are those of the tail
        self._tail: str = ""  # the last characters of that block ...
        self._shown: int = 0  # ... of which so many have been given

    def hide(self, frames: Sequence[Frame]) -> Sequence[Frame]:
        if not self._forms:
            return frames
        hidden: list[Frame] = []
        for frame in frames:
            if isinstance(frame, TextDelta | ReasoningDelta | RefusalDelta):
                hidden += self._delta(frame)
            else:
                hidden += self.flush()
                hidden.append(_without_forms(frame, forms=self._forms))
        return hidden

    def flush(self) -> list[Frame]:
        last, tail, shown = self._last, self._tail, self._shown
        self._last, self._tail, self._shown = None, "", 0
        text = _unshown(hide_forms(tail, forms=self._forms), of=tail, shown=shown)
        return [] if last is None or not text else [msgspec.structs.replace(last, text=text)]

    def _delta(self, frame: _Delta) -> list[Frame]:
        last = self._last
        before = self.flush() if last is None or type(last) is not type(frame) or last.block != frame.block else []
        shown = self._shown
        joined = self._tail + frame.text
        self._last = frame
        if shown == len(self._tail) and not (may_escape(joined) or any(start in joined for start in self._starts)):
            self._tail = joined[-(START - 1) :]
            self._shown = len(self._tail)
            return [*before, frame]
        waits_at = begins_at(joined, forms=self._forms, least=START)
        ready = hide_forms(joined[:waits_at], forms=self._forms)
        text = _unshown(ready, of=joined, shown=min(shown, waits_at))
        self._tail, self._shown = joined[waits_at:], max(shown - waits_at, 0)
        if not self._tail:
            self._tail = ready[-(START - 1) :]
            self._shown = len(self._tail)
        return [*before, msgspec.structs.replace(frame, text=text)] if text else before


def _unshown(hidden: str, *, of: str, shown: int) -> str:
    """What is left to show of a text of which the first characters were shown as they were."""
    return hidden[shown:] if hidden[:shown] == of[:shown] else hidden


def _without_forms(frame: Frame, *, forms: tuple[str, ...]) -> Frame:
    match frame:
        case PartDone(part=part):
            hidden = _part_without(part, forms=forms)
            return frame if hidden is part else msgspec.structs.replace(frame, part=hidden)
        case CitationAdded(citation=citation):
            return msgspec.structs.replace(frame, citation=_citation_without(citation, forms=forms))
        case _:
            return frame


def _part_without(part: Part, *, forms: tuple[str, ...]) -> Part:
    """The same part where it has none of them."""
    match part:
        case Text(text=text, citations=citations):
            cited = tuple([_citation_without(one, forms=forms) for one in citations])
            hidden = hide_forms(text, forms=forms)
            return part if (hidden, cited) == (text, citations) else Text(hidden, cited, part.opaque)
        case Refusal(text=text) | Reasoning(text=text, opaque=None):
            hidden = hide_forms(text, forms=forms)
            return part if hidden == text else msgspec.structs.replace(part, text=hidden)
        case _:
            return part


def _citation_without(citation: Citation, *, forms: tuple[str, ...]) -> Citation:
    return hide_in(citation, scrub=lambda text: hide_forms(text, forms=forms))


def hide_in_words(message: Message, *, forms: tuple[str, ...]) -> Message:
    """The message without these forms of a key in its words and sources; the very same where it has none."""
    if not forms:
        return message
    parts = tuple([_part_without(part, forms=forms) for part in message.parts])
    same = all(one is other for one, other in zip(parts, message.parts, strict=True))
    return message if same else Message(message.role, parts)


def hide_in_response(response: Response, *, scrub: Scrub, forms: tuple[str, ...]) -> Response:
    """All of it but what goes back unchanged; `forms` of the key are looked for in the model's words."""
    message, usage = hide_in_words(response.message, forms=forms), response.usage
    if usage is not None and scrub(usage.provider) != usage.provider:
        usage = hide_in(usage, scrub=scrub)
    if message is not response.message or usage is not response.usage:
        response = msgspec.structs.replace(response, message=message, usage=usage)

    def hide(text: str | None) -> str | None:
        return None if text is None else scrub(text)

    quoted = [response.provider_finish, response.explanation, response.id, response.model]
    if response.fault is None and not response.repairs and [hide(text) for text in quoted] == quoted:
        return response
    return msgspec.structs.replace(
        response,
        provider_finish=hide(response.provider_finish),
        explanation=hide(response.explanation),
        id=hide(response.id),
        model=hide(response.model),
        repairs=tuple([hide_in(repair, scrub=scrub) for repair in response.repairs]),
        fault=None if response.fault is None else hide_in(response.fault, scrub=scrub),
    )
