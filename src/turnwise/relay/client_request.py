"""What a client asked: its body read, and refused by name where it wants what the gateway does not do for it."""

import json
import re
from itertools import accumulate

import msgspec
from msgspec.structs import replace

from turnwise.relay.paths import AskedPath
from turnwise.relay.refusals import RequestRefused
from turnwise.relay.stored_things import refuse_references, refuse_stored
from turnwise.rules.schema import shorten
from turnwise.vocab import Request
from turnwise.vocab.schema_bounds import MAX_REFERENCES_OF_A_REQUEST, cost_fault, size_of
from turnwise.wire.family import BadRequest
from turnwise.wire.json_fields import UNREADABLE, Fields, compact_text, is_null, read_fields, write_object
from turnwise.wire.registry import family
from turnwise.wire.relay_facts import FALSE

# Whether a body is worth reading: how deep it is nested, and how many values it holds, before a value of it is built.
MAX_DEPTH = 128
"""Levels of arrays and objects. A schema of twenty levels, which no provider takes, has fifty in a request."""

MAX_VALUES = 262_144
"""JSON values of one request. Python takes about a hundred bytes for each; a history of 5,000 messages has 40,000."""

# Possessive, and the last string may be open: each byte is looked at once, whatever comes.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+'
_STRINGS = re.compile(_STRING, re.DOTALL)
_BETWEEN_BRACKETS = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")++", re.DOTALL)
_STEPS = [{"[": 1, "{": 1, "]": -1, "}": -1}.get(chr(byte), 0) for byte in range(256)]


def check_size(body: bytes) -> None:
    """Raises RequestRefused for a body that is nested too deeply or holds too many values. The body need not be JSON."""
    opened = body.count(b"[") + body.count(b"{")
    if opened + body.count(b",") > MAX_VALUES:
        outside = _STRINGS.sub(b"", body)
        if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MAX_VALUES:
            raise RequestRefused(f"the body holds more than {MAX_VALUES} values")
    if opened > MAX_DEPTH:
        brackets = _BETWEEN_BRACKETS.sub(b"", body)
        if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
            raise RequestRefused(f"the body is nested deeper than {MAX_DEPTH} levels")


NULL = msgspec.Raw(b"null")
HALF_CHARACTER = "a string holds half of a character (an escape from `\\ud800` to `\\udfff` without its other half)"

GEMINI_PATHS = {False: "/models/model:generateContent", True: "/models/model:streamGenerateContent"}
"""What the decoder is given: it takes no name with a slash or a colon, and the model is known already."""


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
        """Whether it asks Chat Completions for several answers at once."""
        return self.asked.family == "openai_chat" and compact_text(self.fields.get("n", NULL)) not in ("null", "1")


def read_client_request(asked: AskedPath, body: bytes, *, one_client: bool = False) -> ClientRequest:
    """The request of a `generate` path. Raises RequestRefused, and nothing else."""
    fields = read_body(body)
    if not one_client:
        refuse_stored(asked.family, fields)
    keeps_nothing = asked.family == "openai_responses" and is_null(fields.get("store"))
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
    path = GEMINI_PATHS[asked.streams] if asked.family == "gemini" else ""
    try:
        request = family(asked.family).decode_request(body, path)
    except BadRequest as error:
        raise RequestRefused(str(error)) from None
    except UNREADABLE as error:
        raise RequestRefused(f"the body cannot be read: {error}") from None
    _refuse_costly_schemas(request)
    return request if asked.model is None else replace(request, model=asked.model)


def _refuse_costly_schemas(request: Request) -> None:
    """Raises RequestRefused for a schema that could hold up the gateway, and with it every other client."""
    size = 0
    for tool in request.tools:
        if tool.free_form:
            continue
        size += size_of(tool.parameters)
        if fault := cost_fault(tool.parameters) or _fault_of_all(size):
            raise RequestRefused(
                f"the parameters of tool `{shorten(tool.name)}` cannot be checked: {fault}", field="tools"
            )
    if request.output is not None:
        size += size_of(request.output.schema)
        if fault := cost_fault(request.output.schema) or _fault_of_all(size):
            raise RequestRefused(f"the schema of the output cannot be checked: {fault}")


def _fault_of_all(size: int) -> str | None:
    if size <= MAX_REFERENCES_OF_A_REQUEST:
        return None
    return f"the schemas of the request have more than {MAX_REFERENCES_OF_A_REQUEST:,} uses of subschemas in all; send fewer"
