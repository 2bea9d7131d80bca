"""Reasoning in Chat Completions: six places where it may stand, counted once; `reasoning_details` kept for replay."""

from typing import Protocol

import msgspec

from turnwise.vocab import Opaque
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.chunks import ContentPart
from turnwise.wire.openai_chat.fields import NAME

CONTENT, REASONING_CONTENT, REASONING, REASONING_TEXT, DETAILS = 1, 2, 3, 4, 5

TEXTS = ("text", "summary")
"""The fields of a detail that come in pieces."""


class ReasoningFields(Protocol):
    """A delta, as far as its reasoning goes."""

    @property
    def reasoning_content(self) -> str | None: ...
    @property
    def reasoning(self) -> str | None: ...
    @property
    def reasoning_text(self) -> str | None: ...
    @property
    def reasoning_details(self) -> list[msgspec.Raw] | None: ...


class _Detail:
    """One entry of `reasoning_details` under way. `texts` holds the pieces of the fields that are texts."""

    __slots__ = ("fields", "texts")

    def __init__(self) -> None:
        self.fields: dict[str, object] = {}
        self.texts: dict[str, list[str]] = {}

    def add(self, fields: dict[str, object]) -> list[str]:
        """Returns the texts that it brings."""
        found: list[str] = []
        is_first = not self.fields
        for key, value in fields.items():
            if key in TEXTS and isinstance(value, str):
                found.append(value)
                self.texts.setdefault(key, []).append(value)
            if is_first or value is not None:
                self.fields[key] = value
        return found

    def is_continued_by(self, fields: dict[str, object]) -> bool:
        """Only text comes in fragments; encrypted data comes whole, and another id is another entry."""
        if "data" in fields or "data" in self.fields:
            return False
        ids = (self.fields.get("id"), fields.get("id"))
        return None in ids or ids[0] == ids[1]

    def joined(self) -> dict[str, object]:
        return self.fields | {key: "".join(pieces) for key, pieces in self.texts.items()}


class ReasoningReader:
    """Takes each delta's reasoning from one source: the first that ever said something (several often say the same).

    Within a chunk the order is typed content, `reasoning_content`, `reasoning`, `reasoning_text`, `reasoning_details`.
    """

    __slots__ = ("_details", "_latest", "_said", "_source")

    def __init__(self) -> None:
        self._source = 0
        self._details: list[_Detail] = []
        self._latest: dict[tuple[bytes, bytes], _Detail] = {}
        self._said = True

    def read(self, delta: ReasoningFields, *, thinking: str) -> str:
        """The reasoning that this delta adds; `thinking` is what its typed content holds."""
        details = self._keep(delta.reasoning_details) if delta.reasoning_details else ""
        said = (
            (CONTENT, thinking),
            (REASONING_CONTENT, delta.reasoning_content),
            (REASONING, delta.reasoning),
            (REASONING_TEXT, delta.reasoning_text),
            (DETAILS, details),
        )
        for source, text in said:
            if text and (not self._source or self._source == source):
                self._source = source
                return text
        return ""

    def opaque(self) -> Opaque | None:
        """The details so far in whole entries, or None if there is nothing new to say."""
        if self._said:
            return None
        self._said = True
        details = [detail.joined() for detail in self._details]
        try:
            return Opaque(NAME, msgspec.json.encode({"reasoning_details": details}).decode())
        except UNREADABLE:  # nested so deeply that it could be read, but only just
            return None

    def _keep(self, raws: list[msgspec.Raw]) -> str:
        """Fragments of one entry share its type and index; their texts are joined, later fields (a signature) added.

        Source: OpenRouter docs, "Preserving reasoning": the sequence sent back must be the one that was received.
        """
        texts: list[str] = []
        for raw in raws:
            try:
                fields = msgspec.json.decode(raw, type=dict[str, object])
                place = (msgspec.json.encode(fields.get("type")), msgspec.json.encode(fields.get("index")))
            except UNREADABLE:
                continue
            self._said = False
            detail = self._latest.get(place)
            if detail is None or not detail.is_continued_by(fields):
                detail = self._latest[place] = _Detail()
                self._details.append(detail)
            texts += detail.add(fields)
        return "".join(texts)


def split_content(parts: list[ContentPart]) -> tuple[str, str, str]:
    """Typed content -> text, thinking, refusal."""
    texts: list[str] = []
    thinking: list[str] = []
    refusals: list[str] = []
    for part in parts:
        if part.text and part.type != "thinking":
            texts.append(part.text)
        if part.thinking:
            thinking.append(
                part.thinking if isinstance(part.thinking, str) else "".join([p.text or "" for p in part.thinking])
            )
        if part.refusal:
            refusals.append(part.refusal)
    return "".join(texts), "".join(thinking), "".join(refusals)
