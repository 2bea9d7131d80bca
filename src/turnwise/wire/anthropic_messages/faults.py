"""Failures of the Messages API <-> `Fault`: HTTP answers, and error events inside a stream.

Source: API docs, "Errors"; anthropic-python 2.12, types/shared/error_type.py; the answers recorded in the corpus.
"""

import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire import faults
from turnwise.wire.faults import (
    MESSAGE_CHARACTERS,
    fit_to_show,
    is_overflow_code,
    kind_by_message,
    retry_after_s,
    timed,
    with_counts,
)
from turnwise.wire.json_fields import UNREADABLE, Fields, is_object, read_fields, read_items, string_of

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

# `error.details.error_code` says more than the type beside it: no wait of minutes helps where money is spent. Source:
# anthropic-python 2.14, types/shared/contract_spend_limit_reached_error.py and enforced_spend_limit_reached_error.py, both of
# them a `rate_limit_error`.
KIND_BY_DETAIL: Mapping[str, FaultKind] = {
    "contract_spend_limit_reached": FaultKind.QUOTA,
    "enforced_spend_limit_reached": FaultKind.QUOTA,
}

KIND_BY_STATUS: Mapping[int, FaultKind] = {**faults.STATUSES, 408: FaultKind.SERVER}

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

_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL | re.IGNORECASE)


def decode_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """An HTTP answer that is no success. Bedrock's `{"message"}` and Vertex's Google errors are read too."""
    fields = _error_fields(body)
    error = _inner(fields)
    code = string_of(error, "type") or string_of(error, "status")
    message = with_counts(string_of(error, "message") or string_of(fields, "error") or _plain_text(body), error=error)
    fault = Fault(
        kind=_kind(code, message, status, detail=_detail(error)),
        message=fit_to_show(message) or f"the server answered HTTP {status} without a word",
        status=status,
        code=code,
        retry_after_s=retry_after_s(headers, message=message),
        request_id=string_of(fields, "request_id") or headers.get("request-id"),
    )
    return timed(fault, headers)


def stream_fault(fields: Fields) -> Fault:
    """An `error` event, or an error object in place of a body, in an answer that began as a success."""
    error = _inner(fields)
    code = string_of(error, "type")
    said = string_of(error, "message") or string_of(fields, "error") or "the stream reported an error without a word"
    message = with_counts(said, error=error)
    return Fault(
        kind=_kind(code, message, None, detail=_detail(error)),
        message=fit_to_show(message),
        code=code,
        retry_after_s=retry_after_s({}, message=message),
        request_id=string_of(fields, "request_id"),
    )


def error_body(fault: Fault) -> bytes:
    """The error object as both an HTTP body and an `error` event carry it."""
    type = fault.code if _is_type_of(fault) else _STATUS_AND_TYPE[fault.kind][1]
    if type == "authentication_error" and fault.status == 403:
        type = "permission_error"
    body: dict[str, object] = {"type": "error", "error": {"type": type, "message": fault.message}}
    if fault.request_id is not None:
        body["request_id"] = fault.request_id
    return msgspec.json.encode(body)


def _is_type_of(fault: Fault) -> bool:
    """Whether the fault's own word is one of this API, and true: `invalid_request_error` comes from servers of other APIs beside
    any status. This API itself says it of a bill that is due, too."""
    if fault.code != "invalid_request_error":
        return fault.code in KIND_BY_TYPE
    return fault.kind in (FaultKind.BAD_REQUEST, FaultKind.CONTEXT_OVERFLOW, FaultKind.QUOTA)


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    status = fault.status if fault.status is not None and fault.status >= 400 else _STATUS_AND_TYPE[fault.kind][0]
    return status, error_body(fault)


def _kind(code: str | None, message: str, status: int | None, *, detail: str | None) -> FaultKind:
    if detail is not None and detail in KIND_BY_DETAIL:
        return KIND_BY_DETAIL[detail]
    kind = FaultKind.CONTEXT_OVERFLOW if is_overflow_code(code) else kind_by_message(message)
    if kind is not None:
        return kind
    if code is not None and code in KIND_BY_TYPE:
        return KIND_BY_TYPE[code]
    if status is None:
        return FaultKind.SERVER
    if status in KIND_BY_STATUS:
        return KIND_BY_STATUS[status]
    return FaultKind.BAD_REQUEST if 400 <= status < 500 else FaultKind.SERVER


def _detail(error: Fields) -> str | None:
    details = error.get("details")
    try:
        return string_of(read_fields(details), "error_code") if details is not None and is_object(details) else None
    except UNREADABLE:
        return None


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
    return " ".join(_TAG.sub(" ", body[: 4 * MESSAGE_CHARACTERS].decode("utf-8", "replace")).split())
