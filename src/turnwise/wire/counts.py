"""What a count of tokens is, and how the usage objects of one response become one: the same in every family."""

from collections.abc import Iterable, Mapping
from typing import Annotated, TypeVar

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Untold, Usage, with_untold
from turnwise.wire.healing import is_utf8
from turnwise.wire.json_fields import NULL, UNREADABLE, Fields, is_object, read_fields, without, write_object
from turnwise.wire.profiles import FamilyName
from turnwise.wire.usage_fields import read_terms, shown

MAX_COUNT = 2**40  # far beyond any window and any bill: what is larger was not counted
# Of one usage object, and of the merged one. Real ones have less than 2 KiB, but for Anthropic's with an entry of 250 bytes for
# each sampling of a loop of its own tools.
MAX_BYTES = 64 * 1024
NO_KEYS: frozenset[str] = frozenset()
MAX_KEYS = 64  # of the merged object; real ones have about 20

TokenCount = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None
"""A count in a usage object. Decode it with `strict=False`: gateways write 1.0 and "1"."""

Counts = TypeVar("Counts")

_count = msgspec.json.Decoder(Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)], strict=False)
_number = msgspec.json.Decoder(float, strict=False)


def total_of(*counts: int | None) -> int:
    """The sum of parts that are counted apart, itself a count."""
    return min(sum([count or 0 for count in counts]), MAX_COUNT)


def read_counts(text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Counts]) -> Counts | None:
    """The counts of a usage object. What is no count is left out; None where `text` is no object at all."""
    return read_told(text, decoder)[0]


def read_told(text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Counts]) -> tuple[Counts | None, frozenset[str]]:
    """The same, and the keys whose values, or values below them, were left out because they are no counts."""
    try:
        return decoder.decode(text), NO_KEYS
    except UNREADABLE:
        pass
    try:
        kept, misfits = _without_misfits(text, decoder)
        return decoder.decode(kept), misfits
    except UNREADABLE:
        return None, NO_KEYS


def marked(
    usage: Usage, *, is_output_told: bool, misfits: frozenset[str], counts: Mapping[str, tuple[Untold, ...]]
) -> Usage:
    """The usage with what nobody told. A prompt has at least one token, so an input of 0 was not counted. `counts` are those
    that a misfit under a key leaves untold."""
    if usage.input_tokens and is_output_told and not misfits:
        return usage
    untold: list[Untold] = [] if usage.input_tokens else ["input_tokens"]
    if not is_output_told:
        untold.append("output_tokens")
    for key in sorted(misfits):
        untold += counts.get(key, ())
    return with_untold(usage, tuple(untold))


def says_same(one: Usage | None, other: Usage) -> bool:
    """Whether both have the same counts, whoever told them."""
    return one is not None and replace(one, untold=(), terms=()) == replace(other, untold=(), terms=())


def with_terms(usage: Usage, text: bytes | msgspec.Raw, *, family: FamilyName, tier: str = "") -> Usage:
    """The usage with how the request was served, and with the fields of `text` that nobody reads. `tier` is what the response
    says of it beside its usage."""
    terms, unread = read_terms(text, family=family)
    if tier and not any(term.startswith("service_tier=") for term in terms):
        terms = (*terms, shown(f"service_tier={tier}"))
    return replace(usage, terms=terms, unread=unread) if terms or unread else usage


class MergedUsage:
    """The usage objects of one response, merged into one. A later value replaces an earlier one unless it takes something
    away: null, 0, and what is no count in place of a count change nothing."""

    __slots__ = ("_fields", "_last", "text")

    def __init__(self) -> None:
        self.text = b""  # of the merged object
        self._fields: Fields = {}
        self._last = b""

    def add(self, raw: bytes | msgspec.Raw) -> bool:
        """Take one more object; returns whether it may say something new."""
        text = bytes(raw)
        if text == self._last or len(text) > MAX_BYTES or not is_utf8(text):
            return False
        self._last = text
        try:
            more = read_fields(text)
            fields = _merged(self._fields, more, is_whole=True) if self._fields else more
        except UNREADABLE:
            return False
        if self._fields:
            text = write_object(fields)
        if not more or len(text) > MAX_BYTES:
            return False
        self._fields, self.text = fields, text
        return True

    def drop(self, keys: Iterable[str]) -> None:
        """Forget these fields, so that even zeros can take their place."""
        self._fields = without(self._fields, keys)
        self.text = write_object(self._fields)


def _merged(before: Fields, more: Fields, *, is_whole: bool) -> Fields:
    fields = dict(before)
    for key, value in more.items():
        if key in fields:
            fields[key] = _later(key, fields[key], value, is_whole=is_whole)
        elif len(fields) < MAX_KEYS:
            fields[key] = value
    return fields


def _later(key: str, before: msgspec.Raw, value: msgspec.Raw, *, is_whole: bool) -> msgspec.Raw:
    """The value that counts of two that stood under one key. Only one level of details has counts in any family."""
    if value in (before, NULL):
        return before
    if before == NULL:
        return value
    if not is_object(before):
        return before if _is_lesser(key, before, value) else value
    if not is_object(value):
        return before
    if not is_whole:
        return value
    return msgspec.Raw(write_object(_merged(read_fields(before), read_fields(value), is_whole=False)))


def _is_lesser(key: str, before: msgspec.Raw, value: msgspec.Raw) -> bool:
    """Zeros come from gateways that count nothing themselves; costs are numbers too."""
    if _number_of(value) == 0:
        return bool(_number_of(before))
    return "token" in key.casefold() and _is_count(before) and not _is_count(value)


def _number_of(raw: msgspec.Raw) -> float | None:
    try:
        return _number.decode(raw)
    except UNREADABLE:
        return None


def _is_count(raw: msgspec.Raw) -> bool:
    try:
        _count.decode(raw)
    except UNREADABLE:
        return False
    return True


def _without_misfits(text: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[Counts]) -> tuple[bytes, frozenset[str]]:
    """The object without the fields that `decoder` refuses; of details, without those of theirs that it refuses. And the keys
    of all these."""

    def fits(key: str, value: bytes | msgspec.Raw) -> bool:
        try:
            decoder.decode(write_object({key: value}))
        except UNREADABLE:
            return False
        return True

    kept: dict[str, bytes | msgspec.Raw] = {}
    misfits: list[str] = []
    for key, value in read_fields(text).items():
        if fits(key, value):
            kept[key] = value
            continue
        misfits.append(key)
        if is_object(value):
            details = {name: raw for name, raw in read_fields(value).items() if fits(key, write_object({name: raw}))}
            if fits(key, write_object(details)):
                kept[key] = write_object(details)
    return write_object(kept), frozenset(misfits)
