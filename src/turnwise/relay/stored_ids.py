"""Where the ids of what is stored at a provider stand: in a path, in a body, and in the answers that make something.

With the gateway's key every client could use every id. Who may use one decides `gateway/stored_objects.py`; here they are found.
Sources: the API references of OpenAI, Anthropic and Google, 2026-11.
"""

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, cast

import msgspec

from turnwise.relay.client_request import RequestRefused, check_size, googles_addresses, read_body
from turnwise.vocab import Request
from turnwise.vocab.json_values import is_json_array
from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    is_object,
    read_fields,
    read_items,
    string_of,
)
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import Pairs, relay_facts

LONGEST_ID = 200


class StoredId(NamedTuple):
    """An object at a provider. Ids of different kinds may be alike."""

    kind: str
    id: str


class Collection(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one kind. `id_field` of an object has its id, behind a last slash if it is a path; `inside` is the field of the
    answer to a new one that holds the object. `items` is the field of a list that has the objects; "" where there is no list.
    `makes`: fields of an object, as a path with dots, that name objects of other kinds that the provider has made for it.
    `beneath`: kinds of what is made under an object, by the last word of its path. `is_free`: to make one costs nothing."""

    kind: str
    id_field: str = "id"
    inside: str = ""
    items: str = "data"
    makes: Mapping[str, str] = {}
    beneath: Mapping[str, str] = {}
    is_free: bool = False


def _of_google(kind: str, items: str, **more: object) -> Collection:
    return msgspec.convert({"kind": kind, "id_field": "name", "items": items, **more}, Collection)


UPLOAD_PARTS = "upload_parts"

COLLECTIONS: Mapping[str, Collection] = {
    "/v1/files": Collection(kind="files", is_free=True),
    "/v1/uploads": Collection(
        kind="uploads", items="", makes={"file.id": "files"}, beneath={"parts": UPLOAD_PARTS}, is_free=True
    ),
    "/v1/batches": Collection(kind="batches", makes={"output_file_id": "files", "error_file_id": "files"}),
    "/v1/messages/batches": Collection(kind="batches"),
    "/v1/responses": Collection(kind="responses", items=""),
    "/v1/conversations": Collection(kind="conversations", items=""),
    "/v1/chat/completions": Collection(kind="completions"),
    "/v1/containers": Collection(kind="containers"),
    "/v1/vector_stores": Collection(kind="vector_stores"),
}
"""By the path that makes and lists them; an id and what is beneath it follow behind."""

OF_GOOGLE: Mapping[str, Collection] = {
    "/files": _of_google("files", "files", inside="file", is_free=True),
    "/cachedContents": _of_google("cached_contents", "cachedContents"),
    "/batches": _of_google(
        "batches", "operations", makes={"response.responsesFile": "files", "metadata.output.responsesFile": "files"}
    ),
    "/interactions": Collection(kind="interactions", items="", inside="interaction"),
}
"""The same behind a version. Other vendors have some of these paths, too."""

_GOOGLES = re.compile(r"(?:/upload)?/v1(?:beta)?(?P<path>/.*)")
_BATCHED = re.compile(r"/models/[^/:]+:batchGenerateContent")
UPLOADS = "upload_ids"  # of Google's uploads that are under way


class StoredPlace(msgspec.Struct, frozen=True):
    """A path of a collection: of all its objects, of the one with this `id`, or of something `beneath` that."""

    collection: Collection
    id: str = ""
    beneath: str = ""


def place_of(path: str, family: FamilyName) -> StoredPlace | None:
    """Where the path leads at an upstream of this family. None if no collection has it."""
    every = COLLECTIONS
    if family == "gemini":
        within = _GOOGLES.fullmatch(path)
        every, path = OF_GOOGLE, "" if within is None else within["path"]
        if _BATCHED.fullmatch(path):
            return StoredPlace(OF_GOOGLE["/batches"])
    if (found := every.get(path)) is not None:
        return StoredPlace(found)
    for prefix, collection in every.items():
        if path.startswith(f"{prefix}/"):
            first, _, rest = path[len(prefix) + 1 :].partition("/")
            id, _, verb = first.partition(":")
            return StoredPlace(collection, id, rest or verb)
    return None


# --- in a request

NAMED: Mapping[str, str] = {
    "previous_response_id": "responses",
    "response_id": "responses",
    "conversation": "conversations",
    "conversation_id": "conversations",
    "file_id": "files",
    "file_ids": "files",
    "file_uri": "files",
    "part_ids": UPLOAD_PARTS,
    "training_file": "files",
    "validation_file": "files",
    "batch_id": "batches",
    "vector_store_id": "vector_stores",
    "vector_store_ids": "vector_stores",
    "container": "containers",
    "container_id": "containers",
    "cached_content": "cached_contents",
    "previous_interaction_id": "interactions",
}
"""Keys of a body whose value is an id, several, or an object with one; written `fileId` or `file_id`."""

# Keys that name what has no owner here. A value that says nothing is no name.
_NOBODYS = frozenset(
    """skill_id skill_ids collection_ids data_sources continuation_token file_search_store_names file_search_store_name retrieval
    thread thread_id assistant_id prompt_id agent_id library_ids""".split()
)
# Behind these stands somebody's own JSON; of other words of a body none is a name there.
_FREE = frozenset(
    """parameters schema input_schema function_declarations response_schema response_json_schema parameters_json_schema arguments
    args metadata labels attributes""".split()
)
_OF_FILE = re.compile(r"(?:^|/)files/[^/]+$")
_OF_FILES = re.compile(r"(?:^|/)files/|^\s*gs:", re.IGNORECASE)
_GOOGLES_NAME = re.compile(
    r"(?:https?://[A-Za-z0-9.:-]+/v1(?:beta)?/)?(?:files|cachedContents|batches)/([A-Za-z0-9_-]+)", re.ASCII
)
NOBODYS = "what is stored at the provider under this name has no owner that the gateway knows"


_BY_ID = {"item_reference": "", "reasoning": "encrypted_content", "image_generation_call": "result"}
"""Types of items of which the id alone may be sent, and the field that then is missing."""

_WORDS = tuple(
    [
        word.replace("_", "").encode()
        for word in (*NAMED, *_NOBODYS, *_BY_ID, '"audio"', '"prompt"', 'uri"', "file_name", r"\u00")
    ]
)


def _may_name(text: bytes) -> bool:
    """Most bodies have none of the words: their values are not built."""
    plain = text.replace(b"_", b"").lower()
    return any(word in plain for word in _WORDS)


def _folded(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda capital: f"_{capital[0]}", key).lower()


def ids_in_request(family: FamilyName, body: bytes) -> set[StoredId]:
    """The ids in a body of a `generate` path. Raises RequestRefused for a name of what nobody owns."""
    facts = relay_facts(family)
    for given, raw in read_body(body).items():
        found = facts.stored.fields.get(facts.spelling(given))
        is_made = given in ("store", "background") and facts.names_fields
        if found is not None and not is_made and _folded(given) not in NAMED and found.says(raw):
            raise RequestRefused(f"`{given}` is not served here: {NOBODYS}", field=given)
    free = frozenset(map(_folded, facts.stored.free))
    return set(_walk(_pairs_of(body), free=free)) if _may_name(body) else set()


def ids_of_files(request: Request) -> set[StoredId]:
    """Files at Google by an address in a field that other families have for any address."""
    return {stored_id("files", url) for url in googles_addresses(request)}


def ids_in_json(body: bytes) -> set[StoredId]:
    """The ids in any body that is passed on, of a batch of requests, too. Raises RequestRefused as above."""
    return set(_walk(_pairs_of(body), free=_FREE)) if _may_name(body) else set()


def ids_in_lines(text: bytes, *, is_batch: bool = True) -> set[StoredId]:
    """The ids in a file with a request on each line. Without `is_batch`, of those lines that a batch could have: not every
    provider looks what a file was uploaded for. Raises RequestRefused for a line without JSON."""
    found: set[StoredId] = set()
    if not is_batch and not _may_be_batch(text):
        return found
    for line in text.split(b"\n"):
        if not line.strip():
            continue
        try:
            fields = read_body(line.removeprefix(codecs.BOM_UTF8))  # so it is in UTF-8, too
        except RequestRefused:
            if is_batch:
                raise
            continue
        if is_batch or "custom_id" in fields:
            found |= ids_in_json(line)
            for key, value in cast("Pairs", _pairs_of(line)) if b"url" in line or rb"\u00" in line else ():
                if key == "url":
                    check_path(value, field=key)
    return found


def _may_be_batch(text: bytes) -> bool:
    return b"custom_id" in text or rb"\u00" in text


def check_path(value: object, *, field: str) -> None:
    """Raises RequestRefused for where the requests of a batch go, if that could be about an object."""
    place = place_of(value, "openai_responses") if isinstance(value, str) else None
    if not isinstance(value, str) or _PLAIN_PATH.fullmatch(value) is None or (place is not None and place.id):
        raise RequestRefused(f"`{field}` of a batch is a path without an id, such as `/v1/responses`", field=field)


_PLAIN_PATH = re.compile(r"(?:/v\d+(?:beta)?)?(?:/[a-z_-]+)+", re.ASCII)


def ids_in_form(fields: Iterable[tuple[str, bytes]]) -> set[StoredId]:
    """Of the fields of a form by their names. Servers read `tools[0][file_ids][]` and `tools.0.file_ids` as objects within
    objects. Raises RequestRefused for a name of what nobody owns."""
    named: list[tuple[list[str], str]] = []
    for name, value in fields:
        words = [word for word in re.split(r"[\[\].]+", name) if word and not word.isdecimal()]
        text = value[: 4 * LONGEST_ID + 1].decode("utf-8", "replace")  # nobody has a longer one
        if words[-1:] == ["type"] and text in _BY_ID:
            raise RequestRefused(f"`{name}` is not served here: {NOBODYS}", field=name)
        named += [(words, text)] if words else []
    return set(_walk(_nested(named), free=_FREE))


def _nested(named: Iterable[tuple[list[str], str]]) -> Pairs:
    """What the first words name, and behind each of them what the rest names."""
    inner: dict[str, list[tuple[list[str], str]]] = {}
    for (first, *rest), text in named:
        inner.setdefault(first, []).append((rest, text))
    pairs: list[tuple[str, object]] = []
    for first, several in inner.items():
        pairs += [(first, text) for rest, text in several if not rest]
        if deeper := [one for one in several if one[0]]:
            pairs.append((first, _nested(deeper)))
    return tuple(pairs)


def stored_id(kind: str, text: str) -> StoredId:
    """`text` is an id, or one of Google's paths or addresses that end with it; nothing else is taken apart."""
    found = _GOOGLES_NAME.fullmatch(text)
    return StoredId(kind, text if found is None else found[1])


def _pairs_of(body: bytes) -> object:
    check_size(body)
    try:
        return json.loads(body, object_pairs_hook=tuple, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the body cannot be read: {error}") from None


def _walk(value: object, *, free: frozenset[str]) -> Iterator[StoredId]:
    """An object in `value` is `Pairs`. Depth is bounded by `check_size`."""
    if is_json_array(value):
        for item in value:
            yield from _walk(item, free=free)
    elif isinstance(value, tuple):
        pairs = cast("Pairs", value)
        kinds = [one for key, one in pairs if key == "type"]
        _check_items(kinds, pairs)
        tells = bool(kinds) and all(isinstance(kind, str) and kind.endswith("_output") for kind in kinds)
        calls = bool(kinds) and all(kind in ("tool_use", "server_tool_use", "mcp_tool_use") for kind in kinds)
        for key, inner in pairs:
            name = "file_id" if key == "id" and "file_id" in kinds else _folded(key)
            if name.endswith(("_file_id", "_file_ids")):
                name = "file_ids"
            if name in free or (calls and name == "input" and isinstance(inner, tuple)):
                continue
            is_file = isinstance(inner, str) and _OF_FILE.search(inner) is not None
            is_everybodys = name == "skill_id" and kinds == ["anthropic"]
            if (name == "file_name" and is_file) or (name in _NOBODYS and inner and not is_everybodys):
                raise RequestRefused(f"`{key}` is not served here: {NOBODYS}", field=key)
            if name in NAMED and not (tells and name == "file_id"):
                yield from _ids(NAMED[name], name, inner)
            elif name == "uri" and isinstance(inner, str) and _OF_FILES.search(inner) and is_own_file(inner):
                yield stored_id("files", inner)
            yield from _walk(inner, free=free | {"response"} if name == "function_response" else free)


def _check_items(kinds: list[object], pairs: Pairs) -> None:
    """Raises RequestRefused for what only its id says."""
    said = {key for key, inner in pairs if inner}
    for kind, needed in _BY_ID.items():
        if kind in kinds and "id" in said and needed not in said:
            raise RequestRefused(f"an item `{kind}` with its id alone is not served here: {NOBODYS}", field="input")
    for key, inner in pairs:
        named = isinstance(inner, tuple) and any(one == "id" for one, _ in cast("Pairs", inner))
        if key in ("audio", "prompt") and named:
            raise RequestRefused(f"`{key}.id` is not served here: {NOBODYS}", field=key)


def _ids(kind: str, name: str, value: object) -> Iterator[StoredId]:
    if isinstance(value, str):
        if value and (name != "file_uri" or is_own_file(value)):
            yield stored_id(kind, value)
    elif is_json_array(value):
        for item in value:
            yield from _ids(kind, name, item)
    elif isinstance(value, tuple):
        for key, inner in cast("Pairs", value):
            if key == "id" and isinstance(inner, str):
                yield stored_id(kind, inner)


# --- in an answer


def ids_made(place: StoredPlace, answer: bytes, *, is_new: bool) -> set[StoredId]:
    """What an answer about an object, or about a new one, says to be its owner's. An answer that is no JSON says nothing."""
    found: set[StoredId] = set()
    # A stream that is passed on has come whole.
    lines = [line[5:] for line in answer.splitlines() if line.startswith(b"data:")]
    for text in lines or [answer]:
        try:
            fields = read_fields(text)
            if is_new and place.collection.inside in fields:
                fields = read_fields(fields[place.collection.inside])
            elif lines:
                continue
            found |= _ids_of(place.collection, fields, is_new=is_new)
            kind, own = place.collection.beneath.get(place.beneath), string_of(fields, "id")
            if kind and own:
                found.add(StoredId(kind, own))
        except UNREADABLE:
            continue
    return found


def _ids_of(collection: Collection, fields: Fields, *, is_new: bool) -> set[StoredId]:
    found: set[StoredId] = set()
    own = string_of(fields, collection.id_field)
    if is_new and own:
        found.add(stored_id(collection.kind, own))
    for path, kind in collection.makes.items():
        *folders, last = path.split(".")
        inner: Fields = fields
        for folder in folders:
            raw = inner.get(folder)
            inner = read_fields(raw) if raw is not None and is_object(raw) else {}
        if made := string_of(inner, last):
            found.add(stored_id(kind, made))
    return found


_MAKERS = ("openai_responses", "anthropic_messages")
_MAKES = re.compile(rb'"container"\s*:|"type"\s*:\s*"(?:code|bash|text_editor)_')


def may_make(family: FamilyName, body: bytes) -> bool:
    """Whether a tool of the request may make containers or files, without the answer being stored."""
    return family in _MAKERS and _MAKES.search(body) is not None


def ids_in_event(family: FamilyName, text: bytes) -> set[StoredId]:
    """What one event of an answer, or a whole one, says to be stored for the client: the response itself, containers, and files
    that a tool has made. The words of a model stand in strings, which are not read."""
    try:
        fields = read_fields(text)
    except UNREADABLE:
        return set()
    found: set[StoredId] = set()
    whole = fields.get("response")
    if family == "openai_responses":
        own = string_of(read_fields(whole), "id") if whole is not None and is_object(whole) else None
        own = string_of(fields, "id") if string_of(fields, "object") == "response" else own
        found |= {StoredId("responses", own)} if own else set()
    elif family == "openai_chat" and (own := string_of(fields, "id")):
        found.add(StoredId("completions", own))
    if b"container" in text or b"file_id" in text:
        found |= set(_made(_pairs_of(text), family=family))
    return found


def _made(value: object, *, family: FamilyName) -> Iterator[StoredId]:
    """In places that only the provider writes."""
    if is_json_array(value):
        for item in value:
            yield from _made(item, family=family)
    elif isinstance(value, tuple):
        pairs = cast("Pairs", value)
        fields = dict(pairs)
        kind = fields.get("type")
        container = fields.get("container")
        if kind in ("code_interpreter_call", "container_file_citation") and isinstance(fields.get("container_id"), str):
            yield StoredId("containers", str(fields["container_id"]))
        if family == "anthropic_messages" and isinstance(container, tuple):
            yield from _ids("containers", "container", cast("Pairs", container))
        if isinstance(kind, str) and kind.endswith("_output") and isinstance(fields.get("file_id"), str):
            yield StoredId("files", str(fields["file_id"]))
        for key, inner in pairs:
            if _folded(key) not in _FREE | {"input", "tools", "instructions"}:
                yield from _made(inner, family=family)


# --- lists


class ListPage(NamedTuple):
    """A page of a list as its fields, its objects and their ids; `after` names where the next one begins, "" if there is none."""

    fields: Fields
    items: list[msgspec.Raw]
    ids: list[StoredId]
    after: str


PAGING: Mapping[str, tuple[str, str]] = {
    "gemini": ("pageSize", "pageToken"),
    "anthropic_messages": ("limit", "after_id"),
}
"""By family: the names in the query of how many objects a page has, and where it begins."""
USUAL_PAGING = ("limit", "after")


def read_page(collection: Collection, body: bytes) -> ListPage | None:
    """None for what is no list."""
    try:
        fields = read_fields(body)
        if collection.items not in fields and collection.id_field == "id":
            return None
        items = read_items(fields[collection.items]) if collection.items in fields else []
        ids = [stored_id(collection.kind, string_of(read_fields(item), collection.id_field) or "") for item in items]
    except UNREADABLE:
        return None
    if collection.id_field == "name":
        return ListPage(fields, items, ids, string_of(fields, "nextPageToken") or "")
    has_more = bytes(fields.get("has_more", b"false")) == b"true"
    return ListPage(fields, items, ids, ids[-1].id if has_more and ids else "")


def ids_made_by(collection: Collection, item: msgspec.Raw) -> set[StoredId]:
    """What an object of a list says to be its owner's, beside itself."""
    return _ids_of(collection, read_fields(item), is_new=False)


def write_page(
    collection: Collection, page: ListPage, items: list[msgspec.Raw], ids: list[StoredId], *, more: bool
) -> bytes:
    """The page with these objects alone, and with no other field of the upstream's."""
    fields = {name: page.fields[name] for name in ("object", "nextPageToken") if name in page.fields}
    told: dict[str, object] = {**fields, collection.items: items}
    if collection.id_field == "id":
        ends = (ids[0].id, ids[-1].id) if ids else (None, None)
        told.update(first_id=ends[0], last_id=ends[1], has_more=more)
    return encode(told)
