"""What a client asked: its body read, and refused by name where it wants what the gateway does not do for it."""

import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import cast

import msgspec
from msgspec.structs import replace

from turnwise.rules.schema import shorten
from turnwise.vocab import Fault, FaultKind, File, ProviderItem, Request, ToolResult
from turnwise.vocab.json_values import is_json_array
from turnwise.vocab.schema_bounds import MAX_REFERENCES_OF_A_REQUEST, cost_fault, size_of
from turnwise.wire.family import MODULES, USUAL, BadRequest, family
from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.gemini.request import model_path
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    compact_text,
    encode,
    first_byte,
    is_null,
    is_object,
    read_fields,
    read_items,
    write_object,
)
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import FALSE, STORED, AskedPath, Pairs, RelayFacts, model_name, relay_facts


def asked_path(method: str, path: str, *, header_names: Collection[str] = ()) -> AskedPath | None:
    """What the request asks for; None where the gateway has no such endpoint.

    `path` has no query. The model's name may be percent-encoded; the rest of the path has to stand there as it is, so that no
    other spelling of a path gets past a check. `header_names` are in lower case: three families list their models at one path.
    """
    if (method, path) == ("GET", "/v1/models"):
        return AskedPath(family=family_by_headers(header_names) or USUAL, kind="models")
    if (fixed := _fixed_paths().get((method, path))) is not None or method not in ("GET", "POST"):
        return fixed
    found = next((found for name in MODULES if (found := relay_facts(name).reads_path(path)) is not None), None)
    if method == "POST" or found is not None:
        return found if method == "POST" else None
    return _one_model(path, header_names=header_names)


def _one_model(path: str, *, header_names: Collection[str]) -> AskedPath | None:
    """A model, behind the path of the list that has it."""
    folder, _, encoded = path.partition("/models/")
    listed = asked_path("GET", f"{folder}/models", header_names=header_names) if encoded else None
    model = model_name(encoded) if listed is not None else None
    return None if listed is None or model is None else replace(listed, model=model)


@functools.cache
def _fixed_paths() -> Mapping[tuple[str, str], AskedPath]:
    return {
        place: AskedPath(family=relay_facts(name).name, kind=kind)
        for name in MODULES
        if relay_facts(name).has_door
        for place, kind in relay_facts(name).paths.items()
    }


def family_by_headers(names: Collection[str]) -> FamilyName | None:
    """Whose client sends headers of these names, in lower case, at a path that several families have."""
    every = map(relay_facts, MODULES)
    return next((facts.name for facts in every if not facts.client_headers.isdisjoint(names)), None)


class RequestRefused(ValueError):
    """The request stays here. `field` is the client's own name of the field at fault, empty where it is the whole body."""

    def __init__(self, message: str, *, field: str = "", status: int = 400) -> None:
        super().__init__(message)
        self.field = field
        self.fault = Fault(kind=FaultKind.BAD_REQUEST, message=message, status=status)


def refusal_answer(refused: RequestRefused, *, client: FamilyName) -> tuple[int, bytes]:
    """HTTP status and body, as the client's API answers such a request."""
    status, body = family(client).encode_fault(refused.fault)
    status = refused.fault.status or status
    if not relay_facts(client).names_fields or not refused.field:
        return status, body
    error = {**read_fields(read_fields(body)["error"]), "param": msgspec.Raw(encode(refused.field))}
    return status, write_object({"error": write_object(error)})


# --- what is stored at the provider: with the gateway's key each client could use what is another's


def _as_written(name: str) -> str:
    """A pattern for the key in a body: `fileUri` may be `file_uri`, and `audio.id` begins with `audio`."""
    return re.sub("[A-Z]", lambda capital: f"_?[{capital[0]}{capital[0].lower()}]", name.partition(".")[0])


@functools.cache
def _written(family: FamilyName) -> re.Pattern[bytes]:
    """A value without a match has none of the keys: most are not walked through. A key may be written with escapes."""
    return re.compile("|".join([r"\\u00", *map(_as_written, relay_facts(family).stored.names)]).encode())


def refuse_stored(family: FamilyName, fields: Fields) -> None:
    """Raises RequestRefused for what only a route of one client may ask: a field of the body, or a name inside one."""
    facts = relay_facts(family)
    for given, raw in fields.items():
        found = facts.stored.fields.get(facts.spelling(given))
        if found is not None and found.says(raw):
            raise RequestRefused(f"`{given}` is not served here: {found.why}", field=given)
        if (name := _stored_name(raw, of=given, family=family)) is not None:
            raise RequestRefused(f"`{name}` in `{given}` is not served here: {STORED}", field=given)


def googles_addresses(request: Request) -> Iterator[str]:
    """Those of files that Google opens with the gateway's key for everybody: its own API for Chat Completions, too."""
    for message in request.messages:
        for part in message.parts:
            for inner in part.content if isinstance(part, ToolResult) else (part,):
                if isinstance(inner, File) and (url := inner.url) and url.startswith("http") and is_own_file(url):
                    yield url


def refuse_references(request: Request) -> None:
    """Raises RequestRefused for items of which only the id was sent, and for addresses of files at Google."""
    if next(googles_addresses(request), None) is not None:
        raise RequestRefused(f"the address of a file at Google is not served here: {STORED}")
    for message in request.messages:
        for part in message.parts:
            if type(part) is ProviderItem and part.kind == "item_reference":
                raise RequestRefused(f"`item_reference` in `input` is not served here: {STORED}", field="input")


def _stored_name(raw: msgspec.Raw, *, of: str, family: FamilyName) -> str | None:
    """The first key within a field's value that names something stored; None where there is none."""
    facts = relay_facts(family)
    if facts.spelling(of) in facts.stored.free or bytes(memoryview(raw)[:1]) not in (b"{", b"["):
        return None
    text = bytes(memoryview(raw))
    if _written(family).search(text) is None:
        return None
    try:
        value: object = json.loads(text, object_pairs_hook=tuple, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"`{of}` cannot be read: {error}", field=of) from None
    return next(_names_within(value, facts=facts), None)


def _names_within(value: object, *, facts: RelayFacts) -> Iterator[str]:
    """An object in `value` is `Pairs`. Depth is bounded by `check_size`."""
    if is_json_array(value):
        for item in value:
            yield from _names_within(item, facts=facts)
    elif isinstance(value, tuple):
        pairs = cast("Pairs", value)
        yield from facts.stored.references(pairs)
        for given, inner in pairs:
            if facts.spelling(given) not in facts.stored.free:
                yield from _names_within(inner, facts=facts)


# --- whether a body is worth reading, before a value of it is built

MAX_DEPTH = 128
"""Levels of arrays and objects. A schema of twenty levels, which no provider takes, has fifty in a request."""

MAX_VALUES = 262_144
"""JSON values of one request. Python takes about a hundred bytes for each; a history of 5,000 messages has 40,000."""

# Possessive, and the last string may be open: each byte is looked at once, whatever comes.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+', re.DOTALL)


def check_size(body: bytes) -> None:
    """Raises RequestRefused for a body that is nested too deeply or holds too many values. The body need not be JSON."""
    opened = body.count(b"[") + body.count(b"{")
    if opened + body.count(b",") > MAX_VALUES:
        outside = _STRINGS.sub(b"", body)
        if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MAX_VALUES:
            raise RequestRefused(f"the body holds more than {MAX_VALUES} values")
    if is_deeper(body, most=MAX_DEPTH):
        raise RequestRefused(f"the body is nested deeper than {MAX_DEPTH} levels")


_BRACKETS = b'{}[]"'
_OTHERS = bytes([each for each in range(256) if each not in _BRACKETS])
_ALIKE = bytes.maketrans(b"[]", b"{}")


def is_deeper(body: bytes, *, most: int) -> bool:
    """Whether arrays and objects are nested more than `most` levels deep. Of bytes that are no JSON it may say either, but never
    False if a decoder would go deeper.

    A decoder that calls itself for each level would run out of stack. Everything here runs in C: what is no bracket goes, then
    the innermost pairs go, a level at a time.
    """
    if body.count(b"{") + body.count(b"[") <= most:
        return False
    # Pairs of backslashes first: what is then before a quotation mark escapes it.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    left = b"".join(plain.split(b'"')[::2]).translate(_ALIKE)
    too_deep = b"{" * (most + 1)
    levels = 0
    while levels < most and left and too_deep not in left:
        shorter = left.replace(b"{}", b"")
        if len(shorter) == len(left):  # no pair is left: a decoder fails at what closes none, or at the end
            break
        left, levels = shorter, levels + 1
    return levels + left.count(b"{") > most


NULL = msgspec.Raw(b"null")
HALF_CHARACTER = "a string holds half of a character (an escape from `\\ud800` to `\\udfff` without its other half)"

GEMINI_PATHS = {False: "/models/model:generateContent", True: "/models/model:streamGenerateContent"}
"""What decoders are given; those of other families do not look at it. Gemini's takes no name with a slash or a colon, and the
model is known already."""


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the gateway serves. `body` is as it came, `fields` are its own with their values as text, and `request` is
    the same in the shared vocabulary. `keeps_nothing`: the body left open whether the provider stores the response, so `fields`
    and `request` say `store: false`. `one_client`: what is stored at the provider belongs to this client."""

    asked: AskedPath
    body: bytes
    fields: Fields
    request: Request
    keeps_nothing: bool = False
    one_client: bool = False

    @property
    def streams(self) -> bool:
        return self.request.stream

    @property
    def has_choices(self) -> bool:
        """Whether it asks for several answers at once."""
        return compact_text(self.fields.get(relay_facts(self.asked.family).choices_field, NULL)) not in ("null", "1")


def read_client_request(asked: AskedPath, body: bytes, *, one_client: bool = False) -> ClientRequest:
    """The request of a `generate` path. Raises RequestRefused, and nothing else."""
    fields = read_body(body)
    if not one_client:
        refuse_stored(asked.family, fields)
    keeps_nothing = relay_facts(asked.family).stores_unasked and is_null(fields.get("store"))
    if keeps_nothing:
        fields["store"] = FALSE
    request = decode(asked, write_object(fields) if keeps_nothing else body)
    if not one_client:
        refuse_references(request)
    return ClientRequest(
        asked=asked,
        body=body,
        fields=fields,
        request=request,
        keeps_nothing=keeps_nothing,
        one_client=one_client,
    )


def read_body(body: bytes) -> Fields:
    """The fields of a body that is worth reading. Raises RequestRefused."""
    check_size(body)
    try:
        body.decode()
        return read_fields(body)
    except UNREADABLE as error:
        why = HALF_CHARACTER if _holds_half_characters(body) else error
        raise RequestRefused(f"the body is no JSON object: {why}") from None


def _holds_half_characters(body: bytes) -> bool:
    """JavaScript's `JSON.stringify` writes them where a text was cut inside an emoji; Python's reader takes them."""
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def decode(asked: AskedPath, body: bytes) -> Request:
    """The body in the shared vocabulary. Raises RequestRefused."""
    try:
        request = family(asked.family).decode_request(body, GEMINI_PATHS[asked.streams])
    except BadRequest as error:
        raise RequestRefused(str(error)) from None
    except UNREADABLE as error:
        raise RequestRefused(f"the body cannot be read: {error}") from None
    _refuse_costly_schemas(request)
    return request if asked.model is None else replace(request, model=asked.model)


def _refuse_costly_schemas(request: Request) -> None:
    """Raises RequestRefused for a schema that could hold up the gateway, and with it every other client."""
    schemas = [
        (f"the parameters of tool `{shorten(tool.name)}`", tool.parameters, "tools")
        for tool in request.tools
        if not tool.free_form
    ]
    if request.output is not None:
        schemas.append(("the schema of the output", request.output.schema, ""))
    size = 0
    for what, schema, field in schemas:
        size += size_of(schema)
        fault = cost_fault(schema)
        if not fault and size > MAX_REFERENCES_OF_A_REQUEST:
            fault = (
                f"the schemas of the request have more than {MAX_REFERENCES_OF_A_REQUEST:,} uses of subschemas in all; "
                "send fewer"
            )
        if fault:
            raise RequestRefused(f"{what} cannot be checked: {fault}", field=field)


# Gemini's requests for embeddings, under the upstream's own name of the model.


def embed_path(path: str, *, model: str) -> str:
    """The client's path with the upstream's model in it."""
    return model_path(f"/models/{{model}}:{path.rpartition(':')[2]}", model=model)


def renamed_embeds(fields: Fields, *, model: str) -> bytes:
    """The body with this model, which each request of a batch names again. Source: Gemini API reference, "Embeddings"."""
    name = f"models/{model}"
    found: dict[str, object] = {**fields, "model": name} if "model" in fields else {**fields}
    if "requests" in fields and first_byte(fields["requests"]) == b"[":
        every = read_items(fields["requests"])
        found["requests"] = [{**read_fields(raw), "model": name} if is_object(raw) else raw for raw in every]
    return encode(found)
