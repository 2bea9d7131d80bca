"""A refusal in the client's own family: the status, and the error as that API words it."""

from collections.abc import Collection, Mapping
from typing import Literal, TypeGuard

import msgspec

from turnwise.relay.client_request import asked_path, family_by_headers
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.profiles import FamilyName
from turnwise.wire.registry import family as find_family

JSON = ("content-type", "application/json")

_KINDS: Mapping[int, FaultKind] = {
    401: FaultKind.AUTH,
    403: FaultKind.AUTH,
    404: FaultKind.NOT_FOUND,
    500: FaultKind.SERVER,
    503: FaultKind.OVERLOADED,
}


DoorReason = Literal[
    "host", "origin", "key", "admin_key", "content", "length", "body", "head", "http", "path", "late", "busy", "bug"
]
"""Why the doors refuse a request, for counts: few words, whatever a client sends."""


class DoorRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request goes no further. `message` quotes nothing that may be a secret."""

    reason: DoorReason
    status: int
    message: str
    code: str | None = None
    retry_after_s: int | None = None


def family_of(path: str, *, header_names: Collection[str] = ()) -> FamilyName:
    """Whose errors the client of this path reads: by its headers where the gateway does not know the path, else OpenAI's."""
    if (asked := asked_path("POST", path)) is not None:
        return asked.family
    if path.startswith("/v1beta/"):
        return "gemini"
    if path.startswith("/v1/messages"):
        return "anthropic_messages"
    return family_by_headers(header_names) or "openai_chat"


def encode_refusal(refusal: DoorRefusal, *, family: FamilyName) -> tuple[tuple[tuple[str, str], ...], bytes]:
    """The headers and the body. The status is the refusal's own, in the body as well (Gemini repeats it there)."""
    fault = Fault(
        kind=_KINDS.get(refusal.status, FaultKind.BAD_REQUEST),
        message=refusal.message,
        status=refusal.status,
        code=refusal.code,
        retry_after_s=refusal.retry_after_s,
    )
    _, body = find_family(family).encode_fault(fault)
    if family == "gemini":
        body = _with_status(body, status=refusal.status)
    headers = (JSON, ("content-length", str(len(body))))
    if refusal.retry_after_s is not None:
        headers = (*headers, ("retry-after", str(refusal.retry_after_s)))
    return headers, body


def _with_status(body: bytes, *, status: int) -> bytes:
    written: object = msgspec.json.decode(body)
    assert _is_object(written) and _is_object(written["error"])
    return msgspec.json.encode({**written, "error": {**written["error"], "code": status}})


def _is_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)
