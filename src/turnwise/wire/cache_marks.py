"""Marks by which a provider is asked to keep a prompt: `cache_control` of Anthropic's API, and of gateways to its models.

A mark says: keep everything up to here. Sources (Anthropic docs, "Prompt caching"): at most four in a request; the API looks
back over 20 content blocks from each for an earlier one; what is kept for an hour has to stand before what is kept for five
minutes. The marks are no part of what is compared.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from turnwise.vocab import Request
from turnwise.vocab.json_values import is_json_array, is_json_object
from turnwise.wire.json_fields import UNREADABLE, encode, read_fields, read_items
from turnwise.wire.offers import instructions
from turnwise.wire.profiles import Profile

MARK_NAME = b'"cache_control"'
MOST_MARKS = 4

Ttl = Literal["5m", "1h"]
Placed = tuple[int, Ttl]
"""A mark, and where it stands."""

MARKS: dict[Ttl, bytes] = {
    "5m": b',"cache_control":{"type":"ephemeral"}',
    "1h": b',"cache_control":{"type":"ephemeral","ttl":"1h"}',
}
"""As they stand in a body: behind the last field of an object."""


class Marking(msgspec.Struct, frozen=True, kw_only=True):
    """Where marks may go in a body, beside the ends of messages. `in_head` are places in its head, each before an object's
    closing brace, the most useful last. `own` are the marks that the user set in the head and `behind` those in the tail, in
    order. `at_end`: the body takes a field for its end. `place` gives where in an item a mark goes, None where it takes none."""

    ttl: Ttl = "5m"
    in_head: tuple[int, ...] = ()
    own: tuple[Placed, ...] = ()
    at_top: Ttl | None = None  # the user's own field for the end of the body
    at_end: bool = False
    passing: int = 0
    shared_only: bool = False  # no marks on messages
    place: Callable[[bytes], int | None]


def marking_of(
    head: bytes,
    *,
    arrays: Mapping[str, bytes],
    hour: bool,
    passing: int,
    place: Callable[[bytes], int | None],
    at_top: bytes | None = None,
    at_end: bool = False,
) -> Marking:
    """Marks at the ends of these arrays of a head, the most useful last, and of messages as `place` finds it. `at_top` is what
    the user wrote into the field for the end of the body."""
    own: list[Placed] = []
    ends: list[int] = []
    for name, array in arrays.items():
        begins = head.find(b'"%b":%b' % (name.encode(), array))
        items = _items(array)
        # What stands elsewhere is read first all the same.
        at = begins + len(name) + len(b'"":[') if begins >= 0 else -1
        for item in items:
            found = own_marks(item)
            own += marks_at(at, ttls=found)
            at += len(item) + 1 if begins >= 0 else 0
            if item is items[-1] and not found and begins >= 0:
                ends.append(at - 2)
    return Marking(
        ttl="1h" if hour else "5m",
        in_head=tuple(ends),
        own=tuple(own),
        at_top=own_mark_at_top(at_top),
        at_end=at_end,
        passing=passing,
        place=place,
    )


def _items(array: bytes) -> list[bytes]:
    """Its objects, where they stand in it without a blank between them."""
    try:
        items = [bytes(raw) for raw in read_items(array)]
    except UNREADABLE:
        return []
    is_plain = b"[" + b",".join(items) + b"]" == array and all(item.endswith(b"}") for item in items)
    return items if is_plain else []


def marks_at(at: int, *, ttls: Sequence[Ttl]) -> list[Placed]:
    return [(at, ttl) for ttl in ttls]


def own_marks(item: bytes) -> list[Ttl]:
    """The marks that the user set in an item: on itself, on its content, and on what that holds."""
    if MARK_NAME not in item:
        return []
    try:
        return _marks_in(msgspec.json.decode(item), depth=3)
    except UNREADABLE:
        return []


def placed_marks(item: bytes, *, at: int) -> list[Placed]:
    """The user's marks in a message that begins at this place: those of its content, then its own."""
    if not (found := own_marks(item)):
        return []
    fields = read_fields(item)
    content = bytes(fields.get("content", b""))
    begins = at + item.find(content) + 1
    placed: list[Placed] = []
    for block in _items(content):
        placed += marks_at(begins, ttls=own_marks(block))
        begins += len(block) + 1
    return [*placed, *marks_at(at + len(item), ttls=found[len(placed) :])]


def _marks_in(value: object, *, depth: int) -> list[Ttl]:
    if not is_json_object(value):
        return []
    found: list[Ttl] = []
    content = value.get("content")
    if is_json_array(content) and depth > 1:
        for one in content:
            found += _marks_in(one, depth=depth - 1)
    return [*found, *_ttl_of(value.get("cache_control"))]


def _ttl_of(mark: object) -> list[Ttl]:
    if not is_json_object(mark):
        return []
    return ["1h" if mark.get("ttl") == "1h" else "5m"]


def own_mark_at_top(value: bytes | None) -> Ttl | None:
    """What the user's field for the end of the body says, if there is one."""
    if value is None:
        return None
    try:
        found = _ttl_of(msgspec.json.decode(value))
    except UNREADABLE:
        found = []
    return found[0] if found else None


def chosen(
    places: Sequence[tuple[int, int]], *, own: Sequence[Placed], ttl: Ttl, most: int = MOST_MARKS
) -> list[Placed]:
    """Where our marks go, in the order of the body. `places` are (how useful, where); the user's `own` count, too, and what is
    kept for an hour stays before what is not."""
    kept = sorted(places, reverse=True)[: max(0, most - len(own))]
    return [(at, _ttl_at(at, own=own, ttl=ttl)) for at in sorted([at for _, at in kept])]


def _ttl_at(at: int, *, own: Sequence[Placed], ttl: Ttl) -> Ttl:
    if any(theirs == "1h" and place >= at for place, theirs in own):
        return "1h"
    return "5m" if any(theirs == "5m" and place < at for place, theirs in own) else ttl


def end_of_content(item: bytes) -> int | None:
    """Where a mark goes in a message whose content is a list of objects: in the last one that takes a mark. None where there is
    none, and where the user has set one at the end."""
    if not item.endswith(b"}]}"):
        return None
    try:
        fields = read_fields(item)
        content = bytes(fields["content"])
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
        return None
    blocks = _items(content)
    if list(fields)[-1] != "content" or not blocks or own_marks(blocks[-1]):
        return None
    end = len(item) - len(b"]}")
    for block in reversed(blocks):
        if own_marks(block):
            return None
        if _takes_mark(block):
            return end - 1
        end -= len(block) + 1
    return None


class LastBlock(NamedTuple):
    """Of the blocks of a message the last that takes a mark, or has one; `place` is where a mark goes."""

    place: int
    is_marked: bool


def last_block(item: bytes) -> LastBlock | None:
    """The block that the field for the end of the body marks, if this message holds it: the last one that may be marked
    (Anthropic docs, "Automatic caching")."""
    try:
        content = bytes(read_fields(item)["content"])
    except (msgspec.DecodeError, KeyError, UnicodeDecodeError):
        return None
    blocks = _items(content)
    end = item.rfind(content) + len(content) - len("]")
    for block in reversed(blocks):
        if own_marks(block) or _takes_mark(block):
            return LastBlock(end - 1, bool(own_marks(block)))
        end -= len(block) + 1
    return None


def _takes_mark(block: bytes) -> bool:
    """Anthropic docs, "Prompt caching", "What cannot be cached": thinking and empty text blocks are refused with a mark. White
    space counts as empty: gateways and the API take it away."""
    if not block.startswith((b'{"type":"text"', b'{"type":"thinking"', b'{"type":"redacted_thinking"')):
        return True
    said = msgspec.json.decode(block, type=dict[str, object])
    return bool(str(said.get("text") or "").strip())


def end_of_message(item: bytes) -> int | None:
    """Where a mark of the message itself goes. None where it has one."""
    return None if own_marks(item) else len(item) - 1


# The key by which OpenAI's API, and those who took it over, lead requests with one beginning to one cache.


KEY_CHARACTERS = 64  # OpenAI answers 400 to more
# A token has a byte at the least, so requests of which these bytes differ share fewer than 1,024 tokens, and fewer are kept
# nowhere: the key never parts a request from what it could read. The whole text would: with a date at the end of the
# instructions each day had a key of its own, while their beginning is still in the cache.
KEY_BYTES = 1024


def cache_key_fields(request: Request, profile: Profile, *, tools: Iterable[msgspec.Raw]) -> dict[str, object]:
    """Fields of a body of Chat Completions or Responses, with these `tools` as they are sent (JSON).

    What is kept for longer is asked for by `24h`: the APIs know no hour (OpenAI API reference, `prompt_cache_retention`).
    """
    cache = request.cache
    if cache is None or profile.cache_way(request.model) != "key":
        return {}
    fields: dict[str, object] = {
        "prompt_cache_key": (cache.key or _key_of(_beginning(request, profile, tools=tools)))[:KEY_CHARACTERS]
    }
    if cache.hour and profile.keeps_a_day(request.model):
        fields["prompt_cache_retention"] = "24h"
    return fields


def _beginning(request: Request, profile: Profile, *, tools: Iterable[msgspec.Raw]) -> Iterator[bytes]:
    """Of the prompt, in its order: OpenAI puts the tools before the instructions (OpenAI Cookbook, "Prompt Caching 201")."""
    yield from map(bytes, tools)
    for text in instructions(request, profile):
        yield encode(text.text)


def _key_of(begins: Iterable[bytes]) -> str:
    """The same for all prompts that begin so, in any session and process; nothing of them can be read in it."""
    began = b""
    for piece in begins:
        began += piece
        if len(began) >= KEY_BYTES:
            break
    return hashlib.blake2b(began[:KEY_BYTES], digest_size=16).hexdigest()
