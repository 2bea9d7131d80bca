"""What is stored at the provider, and how a request names it: with the gateway's key each client could use what is another's."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import msgspec

from turnwise.relay.refusals import RequestRefused
from turnwise.vocab import ProviderItem, Request
from turnwise.wire.gemini.fields import camel
from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.json_fields import UNREADABLE, Fields, is_null
from turnwise.wire.profiles import FamilyName

FALSE = msgspec.Raw(b"false")

STORED = "with the gateway's key it could be another client's; the route has to belong to one client (`one_client`)"
STORES = (
    "what a provider stores can be read with the gateway's key; the route has to belong to one client (`one_client`)"
)

# --- fields of the body

FieldTest = Callable[[msgspec.Raw], bool]


def _is_said(raw: msgspec.Raw) -> bool:
    return not is_null(raw)


def _is_on(raw: msgspec.Raw) -> bool:
    return not is_null(raw) and raw != FALSE


class _Skill(msgspec.Struct):
    type: str


class _NewContainer(msgspec.Struct):
    id: str | None = None
    skills: tuple[_Skill, ...] = ()


def _names_container(raw: msgspec.Raw) -> bool:
    """A container that exists. One without an id is made for this request: it only says which skills it has, and those of type
    `anthropic` are everybody's."""
    if is_null(raw):
        return False
    try:
        new = msgspec.json.decode(raw, type=_NewContainer)
    except UNREADABLE:
        return True
    return new.id is not None or any(skill.type != "anthropic" for skill in new.skills)


STORED_FIELDS: Mapping[FamilyName, Mapping[str, tuple[FieldTest, str]]] = {
    "openai_chat": {"store": (_is_on, STORES), "data_sources": (_is_said, STORED)},
    "openai_responses": {
        "previous_response_id": (_is_said, STORED),
        "conversation": (_is_said, STORED),
        "prompt": (_is_said, STORED),
        "store": (_is_on, STORES),
        "background": (_is_on, STORES),
    },
    "anthropic_messages": {"container": (_names_container, STORED), "thread": (_is_said, STORES)},
    "gemini": {
        "cachedContent": (_is_said, STORED),
        "continuationToken": (_is_said, STORED),
        "store": (_is_on, STORES),
    },
}
"""Fields of the body that name or make what stays at the provider: when they do, and why that is refused."""

# --- names further inside

NAMES: Mapping[FamilyName, tuple[str, ...]] = {
    "openai_chat": ("file_id", "file_ids", "vector_store_ids", "collection_ids", "audio.id"),
    "openai_responses": (
        *("file_id", "file_ids", "vector_store_ids", "collection_ids", "container", "container_id", "skill_id"),
        "image_generation_call",
    ),
    "anthropic_messages": ("file_id", "file_ids"),
    "gemini": ("fileUri", "fileSearchStoreNames", "retrieval"),
}
"""Keys of content and tools whose value names what is stored. Gemini's by their camelCase names; of a `fileUri`, Google's alone.
`audio.id`, a `container` that is a text and an `image_generation_call` without its result have code of their own. Sources: the
references of OpenAI, xAI, Mistral, Anthropic and Google: files, file search, code execution, skills."""

FREE: Mapping[FamilyName, frozenset[str]] = {
    "openai_chat": frozenset(["function", "functions", "function_call", "custom", "metadata", "response_format"]),
    "openai_responses": frozenset(
        "parameters schema input_schema arguments metadata filters attributes headers annotations results".split()
    ),
    "anthropic_messages": frozenset(["input", "input_schema", "schema", "metadata", "citations"]),
    "gemini": frozenset(
        "args response functionDeclarations responseSchema responseJsonSchema labels executableCode".split()
    ),
}
"""Keys behind which somebody's own JSON stands (a schema, arguments, a result, what a search found): there every name is free."""


def _as_written(name: str) -> str:
    """A pattern for the key in a body: `fileUri` may be `file_uri`, and `audio.id` begins with `audio`."""
    return re.sub("[A-Z]", lambda capital: f"_?[{capital[0]}{capital[0].lower()}]", name.partition(".")[0])


_WRITTEN: Mapping[FamilyName, re.Pattern[bytes]] = {
    family: re.compile("|".join([r"\\u00", *map(_as_written, names)]).encode()) for family, names in NAMES.items()
}
"""A value without a match has none of the keys: most are not walked through. A key may be written with escapes."""

Pairs = tuple[tuple[str, object], ...]
"""An object as its keys and values, in order: a key may stand twice, and which one counts is the upstream's choice."""


def refuse_stored(family: FamilyName, fields: Fields) -> None:
    """Raises RequestRefused for what only a route of one client may ask: a field of the body, or a name inside one."""
    is_gemini = family == "gemini"
    found = STORED_FIELDS[family]
    for given, raw in fields.items():
        says, why = found.get(camel(given) if is_gemini else given, (None, ""))
        if says is not None and says(raw):
            raise RequestRefused(f"`{given}` is not served here: {why}", field=given)
        if (name := _stored_name(raw, of=given, family=family)) is not None:
            raise RequestRefused(f"`{name}` in `{given}` is not served here: {STORED}", field=given)


def refuse_references(request: Request) -> None:
    """Raises RequestRefused for items of which only the id was sent."""
    for message in request.messages:
        for part in message.parts:
            if type(part) is ProviderItem and part.kind == "item_reference":
                raise RequestRefused(f"`item_reference` in `input` is not served here: {STORED}", field="input")


def _stored_name(raw: msgspec.Raw, *, of: str, family: FamilyName) -> str | None:
    """The first key within a field's value that names something stored; None where there is none."""
    key = camel(of) if family == "gemini" else of
    if key in FREE[family] or bytes(memoryview(raw)[:1]) not in (b"{", b"["):
        return None
    text = bytes(memoryview(raw))
    if _WRITTEN[family].search(text) is None:
        return None
    try:
        value: object = json.loads(text, object_pairs_hook=tuple, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"`{of}` cannot be read: {error}", field=of) from None
    return next(_names_within(value, family=family), None)


def _names_within(value: object, *, family: FamilyName) -> Iterator[str]:
    """An object in `value` is `Pairs`. Depth is bounded by `check_size`."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _names_within(item, family=family)
    elif isinstance(value, tuple):
        pairs = cast("Pairs", value)
        yield from _references(pairs, family=family)
        for given, inner in pairs:
            if (camel(given) if family == "gemini" else given) not in FREE[family]:
                yield from _names_within(inner, family=family)


def _references(pairs: Pairs, *, family: FamilyName) -> Iterator[str]:
    """The keys of one object that name something stored."""
    match family:
        case "openai_chat":
            # What the model said before, by its id.
            if any(
                key == "id"
                for audio in _values(pairs, "audio")
                if isinstance(audio, tuple)
                for key, _ in cast("Pairs", audio)
            ):
                yield "audio.id"
        case "openai_responses":
            is_image = "image_generation_call" in _values(pairs, "type")
            if is_image and not ((results := _values(pairs, "result")) and all(results)):
                yield "image_generation_call"
        case "anthropic_messages":
            kinds = _values(pairs, "type")
            if kinds and all(isinstance(kind, str) and kind.endswith("_output") for kind in kinds):
                return  # it tells of a file that a tool has made
        case "gemini":
            pass
    for given, value in pairs:
        key = camel(given) if family == "gemini" else given
        if key in NAMES[family] and value and _is_reference(key, value):
            yield given


def _values(pairs: Pairs, key: str) -> list[object]:
    return [value for given, value in pairs if given == key]


def _is_reference(key: str, value: object) -> bool:
    if key in ("container", "fileUri"):
        return isinstance(value, str) and (key == "container" or is_own_file(value))
    return key != "image_generation_call"
