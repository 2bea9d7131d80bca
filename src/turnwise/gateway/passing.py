"""Paths that a route passes on as they are: which ones, with which bodies, and what of the answer the client gets."""

import hmac
import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, get_args
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec

from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import HttpRequest
from turnwise.gateway.doors import ClientCall, DoorRefusal, HeaderFields, refuse_content, values_of
from turnwise.relay.client_request import RequestRefused, asked_path, read_body, refuse_stored
from turnwise.relay.stored_ids import (
    UPLOADS,
    StoredId,
    StoredPlace,
    check_path,
    ids_in_form,
    ids_in_json,
    ids_in_lines,
    place_of,
)
from turnwise.wire.family import HttpCall
from turnwise.wire.json_fields import encode, string_of
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import STORED, AskedPath, relay_facts

if TYPE_CHECKING:
    from turnwise.gateway.client_bounds import ClientKey
    from turnwise.gateway.client_limits import LimitedClient

    AnyClient = ClientKey | LimitedClient

# --- the paths

FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)
METHODS = ("GET", "POST", "PATCH", "DELETE")
ANY = "*"
_ONE = r"(?!\.+(?:[:/]|$))[A-Za-z0-9_~.=-]+"  # part of a path, percent-encoding excluded: no other spelling of a path
_RULE = re.compile(r"(?:(?P<method>[A-Z]+) )?(?P<path>(?:/(?:\*|[A-Za-z0-9_.-]+)(?::[A-Za-z0-9_.-]+)?)+)", re.ASCII)


class PassRule(NamedTuple):
    """One entry of `pass`: methods and a path, in which `*` stands for one part."""

    methods: tuple[str, ...]
    path: str
    pattern: re.Pattern[str]


@cache
def rule_of(text: str) -> PassRule | None:
    """None for what is no path. Without a method, it is POST; of what a provider stores, every method."""
    found = _RULE.fullmatch(text)
    if found is None or found["method"] not in (None, *METHODS):
        return None
    path = found["path"]
    if any(part in (".", "..") for part in path.split("/")):
        return None
    methods = (found["method"],) if found["method"] else ("POST",)
    if not found["method"] and (ANY in path or any(place_of(path, family) for family in FAMILIES)):
        methods = METHODS
    pattern = re.escape(path).replace(re.escape(ANY), _ONE)
    return PassRule(methods, path, re.compile(pattern, re.ASCII))


def passes(rules: Collection[str], method: str, path: str) -> bool:
    """Whether one of the entries has this path for this method."""
    found = [rule for text in rules if (rule := rule_of(text)) is not None]
    return any(method in rule.methods and rule.pattern.fullmatch(path) for rule in found)


def why_not_understood(rule: PassRule, family: FamilyName) -> str:
    """Why a route whose objects belong to teams cannot have the entry; "" if it can. `family` is the upstream's."""
    place = place_of(rule.path, family)
    if place is None or place.id not in ("", ANY):
        return 'the gateway does not know whose objects this path has: give it a route with `stored = "shared"`'
    return ""


def serves_already(rule: PassRule) -> bool:
    """Whether the gateway has the path itself, so that no entry may have it."""
    asked = [asked_path(method, rule.path) for method in rule.methods if ANY not in rule.path]
    return any(found is not None and not may_pass(found) for found in asked)


def may_pass(asked: AskedPath) -> bool:
    """Whether an entry may have a path that the gateway has itself: it goes on as it is then."""
    return asked.kind == "embed" or (asked.kind == "generate" and relay_facts(asked.family).passes_if_listed)


# --- requests

_QUERY = frozenset(
    """limit after before order purpose after_id before_id include include[] pageSize pageToken page_size page_token filter status
    starting_after upload_id upload_protocol uploadType""".split()
)
_QUERY_IDS = ("after", "before", "after_id", "before_id")
_UPLOAD = "x-goog-upload-"
_UPLOAD_TOLD = frozenset({f"{_UPLOAD}{word}" for word in ("url", "status", "chunk-granularity", "size-received")})
_FORM = re.compile(
    r"""multipart/form-data; *boundary=(?:"(?P<quoted>[^"]{1,70})"|(?P<plain>[A-Za-z0-9'()+_,./:=?-]{1,70}))""",
    re.ASCII | re.IGNORECASE,
)
_PART = re.compile(
    rb"content-disposition: *form-data; *name=\"(?P<name>[^\"\\\r\n]{1,200})\"(?P<file>; *filename=\"[^\"\\\r\n]*\")?"
    rb"(?:; *filename\*=[^\"\r\n;]*)?\Z",
    re.IGNORECASE,
)
MOST_PARTS = 1000


def is_upload(path: str) -> bool:
    """Of Google's uploads: JSON announces one, and then it comes as it is."""
    return path.startswith("/upload/")


def refuse_passed(method: str, path: str, headers: HeaderFields, *, has_body: bool) -> DoorRefusal | None:
    """As `refuse_content`, for a path of `pass`: forms, and uploads of any type."""
    if not has_body or (is_upload(path) and method == "POST"):
        return None
    if _is_form(headers):
        headers = [pair for pair in headers if pair[0] != "content-type"] + [("content-type", "application/json")]
    return refuse_content(headers)


def _is_form(headers: HeaderFields) -> bool:
    types = values_of(headers, "content-type")
    return len(types) == 1 and _FORM.fullmatch(types[0].strip()) is not None


def is_free_form(headers: HeaderFields) -> bool:
    """Whether the body says by its type, or by how Google's uploads come, that it is no JSON."""
    return _is_form(headers) or any("upload" in value for value in values_of(headers, "x-goog-upload-command"))


def passed_headers(path: str, headers: HeaderFields) -> tuple[tuple[str, str], ...]:
    """What goes up beside the listed ones: how to read a body that is no JSON."""
    return tuple(
        [
            (name, value)
            for name, value in headers
            if (name == "content-type" and not value.startswith("application/json"))
            or (is_upload(path) and name.startswith(_UPLOAD))
        ]
    )


def passed_query(query: HeaderFields) -> tuple[tuple[str, str], ...]:
    return tuple([(name, value) for name, value in query if name in _QUERY])


class FormPart(NamedTuple):
    name: str
    head: bytes
    value: bytes
    is_file: bool


def read_form(body: bytes, content_type: str) -> tuple[bytes, list[FormPart]]:
    """The boundary and the parts. Raises RequestRefused for a form that another reader could read in another way."""
    found = _FORM.fullmatch(content_type.strip())
    assert found is not None, "the doors have looked"
    boundary = b"--" + (found["quoted"] or found["plain"]).encode()
    pieces = (b"\r\n" + body).split(b"\r\n" + boundary)
    is_whole = pieces[0] == b"" and pieces[-1].strip(b"\r\n") == b"--" and body.count(boundary) == len(pieces) - 1
    if not is_whole or len(pieces) > MOST_PARTS:
        raise RequestRefused("the form cannot be read: its boundary, or its end")
    return boundary, [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> FormPart:
    head, _, value = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    named = [line for line in lines if line.lower().startswith(b"content-disposition")]
    found = _PART.match(named[0]) if len(named) == 1 else None
    if not piece.startswith(b"\r\n") or found is None or any(line[:1] in (b" ", b"\t") for line in lines):
        raise RequestRefused("the form cannot be read: a part without a plain `content-disposition`")
    if any(b"\n" in line or b"\r" in line for line in lines):
        raise RequestRefused("the form cannot be read: a line of a part's head that ends in another way")
    if any(line.lower().startswith(b"content-transfer-encoding") for line in lines):
        raise RequestRefused("a part of the form has a `content-transfer-encoding`")
    name = found["name"].decode("utf-8", "replace")
    return FormPart(name, head, value, found["file"] is not None)


_MODEL = re.compile(r"(/v1(?:beta)?/models/)([^/:]+)(:.+)")
NO_JSON = b"null"


class PassedBody(NamedTuple):
    """A body as far as it is read: the `fields` of JSON, or the `parts` of a form; neither for an upload as it comes. `model`: if
    the request names one. `told` is what a service that judges requests gets."""

    model: str = ""
    fields: Mapping[str, msgspec.Raw] = {}
    boundary: bytes = b""
    parts: tuple[FormPart, ...] = ()
    told: bytes = NO_JSON

    def renamed(self, call: ClientCall, *, model: str) -> tuple[str, bytes]:
        """The path and the body with this model in place of the request's own."""
        if not self.model or self.model == model:
            return call.path, call.body
        if (found := _MODEL.fullmatch(call.path)) is not None:
            return f"{found[1]}{quote(model, safe='')}{found[3]}", call.body
        if not self.parts:
            return call.path, encode({**self.fields, "model": model})
        told = [part._replace(value=model.encode()) if part.name == "model" else part for part in self.parts]
        pieces = [self.boundary + b"\r\n" + part.head + b"\r\n\r\n" + part.value + b"\r\n" for part in told]
        return call.path, b"".join(pieces) + self.boundary + b"--\r\n"

    def ids(self, call: ClientCall, place: StoredPlace | None) -> list[StoredId]:
        """The ids of what is stored at a provider, those of the path first. Raises RequestRefused for what nobody owns."""
        found: list[StoredId] = []
        if place is not None and place.id:
            found.append(StoredId(place.collection.kind, place.id))
        for name, value in call.query:
            if name in _QUERY_IDS and place is not None and not place.beneath:
                found.append(StoredId(place.collection.kind, value))
            elif name == "upload_id":
                found.append(StoredId(UPLOADS, value))
        if self.fields:
            found += sorted(ids_in_json(call.body))
            announces = place is not None and place.collection.kind == "uploads"
            if announces and "batch" in (string_of(self.fields, "purpose") or "").lower():
                raise RequestRefused("the file of a batch is sent to `/v1/files` as a whole", field="purpose")
        found += sorted(_ids_of_fields(self.parts))
        if place is not None and place.collection.kind == "batches":
            ends = [string_of(self.fields, "endpoint")] if "endpoint" in self.fields else []
            for end in ends + [part.value.decode("utf-8", "replace") for part in self.parts if part.name == "endpoint"]:
                check_path(end, field="endpoint")
        is_batch = any(part.name == "purpose" and b"batch" in part.value.lower() for part in self.parts)
        for part in self.parts:
            if part.is_file and (is_batch or (place is not None and place.collection.kind == "files")):
                found += sorted(ids_in_lines(part.value, is_batch=is_batch))
        return found

    def refuse_stored(self, family: FamilyName) -> None:
        """Raises RequestRefused for a name of anything that is stored at a provider."""
        refuse_stored(family, dict(self.fields))
        for part in self.parts:
            if _ids_of_fields([part]):
                raise RequestRefused(f"`{part.name}` is not served here: {STORED}", field=part.name)


def _ids_of_fields(parts: Collection[FormPart]) -> set[StoredId]:
    """Those in the fields of a form. A value may be JSON."""
    found = ids_in_form([(part.name, part.value) for part in parts])
    for part in parts:
        if not part.is_file and part.value.lstrip()[:1] in (b"{", b"["):
            found |= ids_in_json(part.value)
    return found


def read_passed(call: ClientCall) -> PassedBody:
    """Raises RequestRefused."""
    in_path = _MODEL.fullmatch(call.path)
    model = in_path[2] if in_path else ""
    content = next((value for name, value in call.headers if name == "content-type"), "")
    is_piece = is_upload(call.path) and any(name == "upload_id" for name, _ in call.query)
    if is_piece or (not call.body and call.method != "POST"):
        return PassedBody(model)
    if not _is_form(call.headers):
        fields = read_body(call.body) if call.body else {}
        named = "" if relay_facts(call.family).model_in_path else string_of(fields, "model")
        return PassedBody(model or named or "", fields, told=call.body or NO_JSON)
    boundary, parts = read_form(call.body, content)
    models = [part.value.decode("utf-8", "replace") for part in parts if part.name == "model"]
    if len(models) > 1:
        raise RequestRefused("the form names two models", field="model")
    told = {part.name: part.value.decode("utf-8", "replace") for part in parts if not part.is_file}
    return PassedBody(models[0] if models else "", {}, boundary, tuple(parts), encode(told))


def costs_nothing(call: "ClientCall | PassedCall", family: FamilyName) -> bool:
    """Whether no provider bills the request by itself: what reads or deletes, uploads, and what cancels. `family` is the
    upstream's."""
    place = place_of(call.path.partition("?")[0], family)
    if call.method in ("GET", "DELETE") or place is None:
        return call.method in ("GET", "DELETE")
    return place.collection.is_free or place.beneath == "cancel"


# --- what is sent, and what comes back


class PassedReply(msgspec.Struct):
    """What of the answer's head the client gets."""

    status: int = 200
    content_type: str = "application/json"
    upload: dict[str, str] = {}


class PassedCall(HttpCall, frozen=True, kw_only=True):
    """A request that is passed on as it is. `reply` is filled when the head of its answer has come."""

    reply: PassedReply

    def addressed(self, request: HttpRequest, endpoint: Endpoint) -> HttpRequest:
        """Google's uploads have their version behind their own first part."""
        if not is_upload(self.path):
            return request
        parts = urlsplit(endpoint.base_url)
        base = f"{parts.scheme}://{parts.netloc}{re.sub(r'/v1(?:beta)?/?$', '', parts.path)}"
        return msgspec.structs.replace(request, url=base.rstrip("/") + self.path)

    def saw(self, status: int, headers: Mapping[str, str]) -> None:
        self.reply.status = status
        self.reply.content_type = headers.get("content-type", "application/json")
        self.reply.upload = {name: value for name, value in headers.items() if name in _UPLOAD_TOLD}


def passed_call(call: ClientCall, *, path: str, body: bytes, query: HeaderFields) -> PassedCall:
    """What goes up for the client's call."""
    told = urlencode(query, quote_via=quote)
    path = f"{path}?{told}" if told else path
    return PassedCall(path=path, body=body, headers=call.headers, method=call.method, reply=PassedReply())


# Google's client sends no key with the pieces of an upload: what its address holds is enough. So the gateway puts a ticket there
# that opens this upload alone, for an hour, and only while the client's key holds. Any gateway can check it.
TICKET, TICKET_S = "ticket", 3600.0


def _signed(text: str, digest: str) -> str:
    return hmac.digest(digest.encode(), text.encode(), "sha256").hex()


def ticket_of(client: str, *, digest: str, upload: str, now: float) -> str:
    """`digest` is that of the client's key, which no client knows of another."""
    text = f"{client}.{now + TICKET_S:.0f}"
    return f"{text}.{_signed(f'{text}.{upload}', digest)}"


def ticket_holder(query: HeaderFields, clients: "Mapping[str, AnyClient]", *, now: float) -> "AnyClient | None":
    """The client whose ticket the address of a piece has, of `clients` by the digests of their keys."""
    tickets = [value for name, value in query if name == TICKET]
    uploads = [value for name, value in query if name == "upload_id"]
    if len(tickets) != 1 or len(uploads) != 1:
        return None
    text, _, mac = tickets[0].rpartition(".")
    name, _, ends = text.rpartition(".")
    if not (ends.isascii() and ends.isdigit() and now < int(ends)):
        return None
    for digest, client in clients.items():
        if client.name == name and hmac.compare_digest(mac.encode(), _signed(f"{text}.{uploads[0]}", digest).encode()):
            return client
    return None


def reply_headers(reply: PassedReply, *, size: int, call: ClientCall, now: float) -> list[tuple[str, str]]:
    """The head of the answer for the client. An upload goes on at this gateway."""
    found = [("content-type", reply.content_type), ("content-length", str(size)), ("x-content-type-options", "nosniff")]
    for name, value in reply.upload.items():
        if name == "x-goog-upload-url":
            parts = urlsplit(value)
            if not is_upload(parts.path):
                continue
            value = f"{call.place}{parts.path}?{parts.query}"
            upload = next((one.id for one in upload_ids(reply)), "")
            if call.upload_secret and upload:
                ticket = ticket_of(call.client, digest=call.upload_secret, upload=upload, now=now)
                value += f"&{urlencode({TICKET: ticket})}"
        found.append((name, value))
    return found


def upload_ids(reply: PassedReply) -> set[StoredId]:
    """The upload that the answer has begun."""
    query = parse_qsl(urlsplit(reply.upload.get("x-goog-upload-url", "")).query)
    return {StoredId(UPLOADS, value) for name, value in query if name == "upload_id"}
