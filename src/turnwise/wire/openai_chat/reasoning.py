"""Reasoning in Chat Completions: five places where it may stand, counted once; `reasoning_details` kept for replay."""

from typing import cast

import msgspec

from turnwise.vocab import Opaque
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.chunks import ContentPart, Delta
from turnwise.wire.openai_chat.fields import NAME

CONTENT, REASONING_CONTENT, REASONING, DETAILS = 1, 2, 3, 4


class ReasoningReader:
    """Takes each delta's reasoning from one source: the first that ever said something (several often say the same).

    Within a chunk the order is typed content, `reasoning_content`, `reasoning`, `reasoning_details`.
    """

    __slots__ = ("_details", "_latest", "_said", "_source")

    def __init__(self) -> None:
        self._source = 0
        self._details: list[dict[str, object]] = []
        self._latest: dict[tuple[object, object], int] = {}
        self._said = True

    def read(self, delta: Delta, *, thinking: str) -> str:
        """The reasoning that this delta adds; `thinking` is what its typed content holds."""
        details = self._keep(delta.reasoning_details) if delta.reasoning_details else ""
        said = (
            (CONTENT, thinking),
            (REASONING_CONTENT, delta.reasoning_content),
            (REASONING, delta.reasoning),
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
        return Opaque(NAME, msgspec.json.encode({"reasoning_details": _joined(self._details)}).decode())

    def _keep(self, raws: list[msgspec.Raw]) -> str:
        """Fragments of one entry share its type and index; their texts are joined, later fields (a signature) added.

        Source: OpenRouter docs, "Preserving reasoning": the sequence sent back must be the one that was received.
        """
        texts: list[str] = []
        for raw in raws:
            try:
                detail = msgspec.json.decode(raw, type=dict[str, object])
            except UNREADABLE:
                continue
            self._said = False
            for key in ("text", "summary"):
                value = detail.get(key)
                if isinstance(value, str):
                    texts.append(value)
                    detail[key] = [value]
            place = (detail.get("type"), msgspec.json.encode(detail.get("index")))
            at = self._latest.get(place)
            if at is None or not _continues(self._details[at], detail):
                self._latest[place] = len(self._details)
                self._details.append(detail)
            else:
                _extend(self._details[at], detail)
        return "".join(texts)


def _continues(entry: dict[str, object], detail: dict[str, object]) -> bool:
    """Only text comes in fragments; encrypted data comes whole, and another id is another entry."""
    if "data" in detail or "data" in entry:
        return False
    ids = (entry.get("id"), detail.get("id"))
    return None in ids or ids[0] == ids[1]


def _extend(entry: dict[str, object], detail: dict[str, object]) -> None:
    for key, value in detail.items():
        pieces = entry.get(key)
        if isinstance(value, list) and isinstance(pieces, list):
            cast("list[object]", pieces).extend(cast("list[object]", value))
        elif value is not None:
            entry[key] = value


def _joined(details: list[dict[str, object]]) -> list[dict[str, object]]:
    return [
        {
            key: "".join(cast("list[str]", value)) if key in ("text", "summary") and isinstance(value, list) else value
            for key, value in detail.items()
        }
        for detail in details
    ]


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
