"""What of a history is not the same in another API's messages, found by reading them again and told by name."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from turnwise.relay.foreign_parts import INNER
from turnwise.relay.terms import NOT_CARRIED
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Text,
    ToolCall,
    ToolResult,
)
from turnwise.wire.json_fields import UNREADABLE, is_object, read_fields
from turnwise.wire.registry import MODULES
from turnwise.wire.relay_facts import relay_facts

Fact = tuple[str, str]
"""Something that a history holds: what became of it where it is missing, in words, and its value."""

TEXT, THOUGHT = "text is left out", "reasoning is left out"
_JOINED = frozenset({TEXT, THOUGHT})  # an API may join the pieces of these: they are looked for in all of its text


def losses_between(given: Sequence[Message], kept: Sequence[Message], *, of: Sequence[Message]) -> tuple[Repair, ...]:
    """What `given` holds and `kept` does not: each kind once, with its first message and how often it was lost. The places are
    those in `of`, from which `given` was made.

    Order, the bounds between neighbouring texts and messages, and white space do not count.
    """
    numbers = _places(given, of=of)
    there = Counter([fact for message in kept for fact in _facts(message)])
    joined = {word: _squeezed([value for kind, value in there if kind == word]) for word in _JOINED}
    lost: Counter[str] = Counter()
    places: dict[str, int] = {}
    for place, message in zip(numbers, given, strict=True):
        for fact in _facts(message):
            if there[fact] > 0:
                there[fact] -= 1
            elif fact[0] not in _JOINED or _squeezed([fact[1]]) not in joined[fact[0]]:
                lost[fact[0]] += 1
                places.setdefault(fact[0], place)
    return tuple([not_kept(word, place=f"messages[{places[word]}]", times=times) for word, times in lost.items()])


def _places(given: Sequence[Message], *, of: Sequence[Message]) -> list[int]:
    """Where each message stood before some were changed, added or left out."""
    places: list[int] = []
    there, last = {id(message): place for place, message in enumerate(of)}, -1
    for message in given:
        last = there.get(id(message), min(last + 1, len(of) - 1))
        places.append(last)
    return places


def field_losses(opaque: Opaque | None, *, place: str) -> list[Repair]:
    """The fields of a text that goes on as a plain string."""
    return [not_kept(word, place=place) for word, _ in _fields(opaque)]


def not_kept(word: str, *, place: str, times: int = 1) -> Repair:
    return Repair(NOT_CARRIED, f"`{place}`", word if times == 1 else f"{word} ({times} times)")


def _squeezed(texts: Sequence[str]) -> str:
    return "".join(["".join(text.split()) for text in texts])


def _facts(message: Message) -> Iterator[Fact]:
    for part in message.parts:
        if message.role == "system" and isinstance(part, Text):
            yield "a system message in mid-conversation goes as the user's", part.text
        yield from _facts_of(part)


def _facts_of(part: Part) -> Iterator[Fact]:
    match part:
        case Text(text=text, citations=citations, opaque=opaque):
            yield from [(TEXT, _plain(text))] if text.strip() else []
            yield from [("citations are left out", citation.raw) for citation in citations]
            yield from _fields(opaque)
        case Reasoning(text=text, opaque=opaque):
            if text.strip():
                yield THOUGHT, text
            elif opaque is not None:
                yield "reasoning without a text is left out", _plain(opaque.json)
            yield from _fields(opaque)
        case Refusal(text=text, opaque=opaque):
            yield "a refusal goes as plain text", text
            yield from _fields(opaque)
        case File():
            yield from _file(part)
        case ToolCall():
            yield from _call(part)
        case ToolResult(content=content, is_error=is_error, opaque=opaque):
            yield "a result is left out", ""
            if is_error:
                yield "only its text says that a result is an error", ""
            for inner in content:
                yield from _facts_of(inner)
            yield from _fields(opaque)
        case ProviderItem(family=family, kind=kind, json=json):
            yield f"`{kind}`, an item of `{family}`, is left out", _plain(json)


def _file(file: File) -> Iterator[Fact]:
    value = (file.data or b"").hex() or file.url or file.file_id or ""
    yield "a file is left out, or a line of text stands in its place", value
    if file.name is not None:
        yield "the name of a file is left out", file.name
    yield from _fields(file.opaque)


def _call(call: ToolCall) -> Iterator[Fact]:
    yield "a call is left out", call.name
    yield "the id of a call is written otherwise", call.id
    if call.state is not ArgumentsState.COMPLETE:
        yield "arguments that are not complete go as `{}`", call.arguments
    elif call.free_form:
        yield "a free-form call goes as JSON, with its text in `input`", call.arguments
    else:
        yield "arguments that are no JSON object are written otherwise", _plain(call.arguments)
    yield from _fields(call.opaque)


def _fields(opaque: Opaque | None) -> Iterator[Fact]:
    if opaque is None:
        return
    try:
        fields = read_fields(opaque.json)
    except UNREADABLE:
        fields = {"opaque": msgspec.Raw(opaque.json.encode())}
    silent = relay_facts(opaque.family).silent if opaque.family in MODULES else frozenset[str]()
    for key, raw in fields.items():
        inner = read_fields(raw) if key in INNER and is_object(raw) else {key: raw}
        for name, value in inner.items():
            if name not in silent:
                yield f"`{name}`, which only `{opaque.family}` reads, is left out", _plain(bytes(value).decode())


def _plain(text: str) -> str:
    """JSON in one way of writing; any other text as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
    except UNREADABLE:
        return text
