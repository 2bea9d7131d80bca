"""Failures of the Messages API <-> `Fault`: HTTP answers, and error events inside a stream.

Source: API docs, "Errors"; anthropic-python 2.12, types/shared/error_type.py; the answers recorded in the corpus.
"""

import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.anthropic_messages.fields import UNREADABLE, Fields, read_fields, read_items, string_of

KIND_BY_TYPE: Mapping[str, FaultKind] = {
    "invalid_request_error": FaultKind.BAD_REQUEST,
    "authentication_error": FaultKind.AUTH,
    "permission_error": FaultKind.AUTH,
    "billing_error": FaultKind.QUOTA,
    "not_found_error": FaultKind.NOT_FOUND,
    "conflict_error": FaultKind.BAD_REQUEST,
    "request_too_large": FaultKind.BAD_REQUEST,
    "rate_limit_error": FaultKind.RATE_LIMITED,
    "timeout_error": FaultKind.SERVER,  # their time ran out (HTTP 504), not a deadline of ours
    "api_error": FaultKind.SERVER,
    "overloaded_error": FaultKind.OVERLOADED,
}

KIND_BY_STATUS: Mapping[int, FaultKind] = {
    401: FaultKind.AUTH,
    402: FaultKind.QUOTA,
    403: FaultKind.AUTH,
    404: FaultKind.NOT_FOUND,
    408: FaultKind.SERVER,
    429: FaultKind.RATE_LIMITED,
    503: FaultKind.OVERLOADED,
    529: FaultKind.OVERLOADED,
}

# What the type alone does not say. Matched in lower case against the message.
KIND_BY_WORDS: tuple[tuple[re.Pattern[str], FaultKind], ...] = (
    # "prompt is too long: 210000 tokens > 200000 maximum"
    (re.compile(r"prompt is too long|input is too long"), FaultKind.CONTEXT_OVERFLOW),
    # "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
    (re.compile(r"exceeds? (the )?(model'?s )?(maximum )?context (limit|window|length)"), FaultKind.CONTEXT_OVERFLOW),
    # "Your credit balance is too low to access the Anthropic API" comes as invalid_request_error with HTTP 400
    (
        re.compile(r"credit balance is too low|spend(ing)? limit|reached your specified api usage limits"),
        FaultKind.QUOTA,
    ),
)

_STATUS_AND_TYPE: Mapping[FaultKind, tuple[int, str]] = {
    FaultKind.UNREACHABLE: (502, "api_error"),
    FaultKind.TIMEOUT: (504, "timeout_error"),
    FaultKind.DISCONNECTED: (502, "api_error"),
    FaultKind.AUTH: (401, "authentication_error"),
    FaultKind.NOT_FOUND: (404, "not_found_error"),
    FaultKind.BAD_REQUEST: (400, "invalid_request_error"),
    FaultKind.CONTEXT_OVERFLOW: (400, "invalid_request_error"),
    FaultKind.RATE_LIMITED: (429, "rate_limit_error"),
    FaultKind.QUOTA: (402, "billing_error"),
    FaultKind.OVERLOADED: (529, "overloaded_error"),
    FaultKind.SERVER: (500, "api_error"),
    FaultKind.PROTOCOL: (502, "api_error"),
    FaultKind.TOO_LARGE: (502, "api_error"),
}

_SECRET = re.compile(r"sk-[A-Za-z0-9_-]{8,}")
_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)
MAX_MESSAGE = 2_000  # a page of HTML is no message


def decode_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """An HTTP answer that is no success. Bedrock's `{"message"}` and Vertex's Google errors are read too."""
    fields = _error_fields(body)
    error = _inner(fields)
    code = string_of(error, "type") or string_of(error, "status")
    message = string_of(error, "message") or string_of(fields, "error") or _plain_text(body)
    return Fault(
        kind=_kind(code, message, status),
        message=_clean(message) or f"the server answered HTTP {status} without a word",
        status=status,
        code=code,
        retry_after_s=_retry_after(headers),
        request_id=string_of(fields, "request_id") or headers.get("request-id"),
    )


def stream_fault(fields: Fields) -> Fault:
    """An `error` event, or an error object in place of a body, in an answer that began as a success."""
    error = _inner(fields)
    code = string_of(error, "type")
    message = string_of(error, "message") or string_of(fields, "error") or "the stream reported an error without a word"
    return Fault(
        kind=_kind(code, message, None), message=_clean(message), code=code, request_id=string_of(fields, "request_id")
    )


def error_body(fault: Fault) -> bytes:
    """The error object as both an HTTP body and an `error` event carry it."""
    type = fault.code if fault.code in KIND_BY_TYPE else _STATUS_AND_TYPE[fault.kind][1]
    body: dict[str, object] = {"type": "error", "error": {"type": type, "message": fault.message}}
    if fault.request_id is not None:
        body["request_id"] = fault.request_id
    return msgspec.json.encode(body)


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    status = fault.status if fault.status is not None and fault.status >= 400 else _STATUS_AND_TYPE[fault.kind][0]
    return status, error_body(fault)


def _kind(code: str | None, message: str, status: int | None) -> FaultKind:
    text = message.lower()
    for pattern, kind in KIND_BY_WORDS:
        if pattern.search(text):
            return kind
    if code is not None and code in KIND_BY_TYPE:
        return KIND_BY_TYPE[code]
    if status is None:
        return FaultKind.SERVER
    if status in KIND_BY_STATUS:
        return KIND_BY_STATUS[status]
    return FaultKind.BAD_REQUEST if 400 <= status < 500 else FaultKind.SERVER


def _error_fields(body: bytes) -> Fields:
    """The body's object; of a list (Google) its first; empty where it is neither."""
    try:
        return read_fields(body)
    except UNREADABLE:
        pass
    try:
        items = read_items(body)
        return read_fields(items[0]) if items else {}
    except UNREADABLE:
        return {}


def _inner(fields: Fields) -> Fields:
    """The `error` object; the body itself where there is none (Bedrock)."""
    raw = fields.get("error")
    if raw is not None:
        try:
            return read_fields(raw)
        except UNREADABLE:
            return {}
    return {key: fields[key] for key in ("message", "status") if key in fields}


def _plain_text(body: bytes) -> str:
    """What a person would read on an HTML or text page."""
    return " ".join(_TAG.sub(" ", body[: 4 * MAX_MESSAGE].decode("utf-8", "replace")).split())


def _clean(message: str) -> str:
    return _SECRET.sub("sk-...", message[:MAX_MESSAGE])


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """`retry-after-ms`, else `retry-after` in seconds; a date is for whoever has a clock."""
    for key, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(key, "")) / unit
        except ValueError:
            continue
        if 0 <= wait_s < float("inf"):
            return wait_s
    return None
