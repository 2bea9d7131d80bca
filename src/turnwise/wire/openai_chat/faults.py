"""Errors of Chat Completions endpoints <-> `Fault`. The kinds are decided by status, code and message: tables, not branches."""

import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.vocab.json_values import is_json_array, is_json_object
from turnwise.wire import faults
from turnwise.wire.faults import SPENT_QUOTA, fit_to_show, kind_by_message, retry_after_s, timed, with_counts
from turnwise.wire.json_fields import UNREADABLE, printable

# The provider's own code or type -> kind. Sources: OpenAI "Error codes", Azure OpenAI, DeepSeek, Mistral, xAI and OpenRouter
# API references; recorded errors.
CODES: Mapping[str, FaultKind] = {
    **dict.fromkeys(faults.OVERFLOW_CODES, FaultKind.CONTEXT_OVERFLOW),
    "insufficient_quota": FaultKind.QUOTA,
    "insufficient_balance": FaultKind.QUOTA,
    "billing_hard_limit_reached": FaultKind.QUOTA,
    "billing_not_active": FaultKind.QUOTA,
    "rate_limit_exceeded": FaultKind.RATE_LIMITED,
    "rate_limit_error": FaultKind.RATE_LIMITED,
    "ratelimitreached": FaultKind.RATE_LIMITED,
    "too_many_requests": FaultKind.RATE_LIMITED,
    "invalid_api_key": FaultKind.AUTH,
    "authentication_error": FaultKind.AUTH,
    "permission_denied": FaultKind.AUTH,
    "permission_error": FaultKind.AUTH,
    "model_not_found": FaultKind.NOT_FOUND,
    "deploymentnotfound": FaultKind.NOT_FOUND,
    "not_found_error": FaultKind.NOT_FOUND,
    "overloaded_error": FaultKind.OVERLOADED,
    "server_overloaded": FaultKind.OVERLOADED,
    "service_unavailable": FaultKind.OVERLOADED,
    "server_error": FaultKind.SERVER,
    "api_error": FaultKind.SERVER,
    "internal_server_error": FaultKind.SERVER,
    "invalid_request_error": FaultKind.BAD_REQUEST,
    "tool_use_failed": FaultKind.BAD_REQUEST,  # Groq: the model's call did not parse (`finish_words.CALL_FAILED`)
}

STATUSES: Mapping[int, FaultKind] = {
    **faults.STATUSES,
    408: FaultKind.TIMEOUT,
    413: FaultKind.BAD_REQUEST,
    504: FaultKind.TIMEOUT,
}

# kind -> (status, type, code) as OpenAI reports it; `encode_fault` writes them.
REPORTED: Mapping[FaultKind, tuple[int, str, str | None]] = {
    FaultKind.UNREACHABLE: (502, "server_error", None),
    FaultKind.TIMEOUT: (504, "server_error", None),
    FaultKind.DISCONNECTED: (502, "server_error", None),
    FaultKind.AUTH: (401, "invalid_request_error", "invalid_api_key"),
    FaultKind.NOT_FOUND: (404, "invalid_request_error", "model_not_found"),
    FaultKind.BAD_REQUEST: (400, "invalid_request_error", None),
    FaultKind.CONTEXT_OVERFLOW: (400, "invalid_request_error", "context_length_exceeded"),
    FaultKind.RATE_LIMITED: (429, "requests", "rate_limit_exceeded"),
    FaultKind.QUOTA: (429, "insufficient_quota", "insufficient_quota"),
    FaultKind.OVERLOADED: (503, "server_error", None),
    FaultKind.SERVER: (500, "server_error", None),
    FaultKind.PROTOCOL: (502, "server_error", None),
    FaultKind.TOO_LARGE: (502, "server_error", None),
}


# llama.cpp: a chat template that refuses the messages ends the request with 500. The same request fails again.
TEMPLATE = re.compile(r"^\W*While executing \w+ .*Jinja Exception: ", re.DOTALL)


def decode_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """A failed HTTP answer -> what went wrong, with the provider's own message and code."""
    error = _error_object(body)
    message = _message(error)
    if not message:
        shown = printable(body)
        message = f"HTTP {status}: the answer began with {shown!r}" if shown else f"HTTP {status} with an empty answer"
    fault = Fault(
        kind=_kind(status, message, error),
        message=fit_to_show(message),
        status=status,
        code=_code(error),
        retry_after_s=retry_after_s(headers, message=message),
        request_id=headers.get("x-request-id") or headers.get("apim-request-id"),
    )
    fault = timed(fault, headers)
    if status == 500 and TEMPLATE.search(message):
        return msgspec.structs.replace(fault, kind=FaultKind.BAD_REQUEST, should_retry=False)
    return fault


def decode_error_event(raw: bytes) -> Fault:
    """An error object inside a 200 stream or body -> the fault. Its `code` or `status_code` may be an HTTP status."""
    error = _error_object(raw)
    status = next(
        (code for key in ("status_code", "code", "status") if (code := _status(error.get(key))) is not None), None
    )
    message = _message(error) or f"the stream reported an error: {printable(raw)}"
    return Fault(
        kind=_kind(status, message, error),
        message=fit_to_show(message),
        status=status,
        code=_code(error),
        retry_after_s=retry_after_s({}, message=message),
    )


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    """The HTTP status and body with which OpenAI reports such a failure."""
    status, _, _ = REPORTED[fault.kind]
    return status, msgspec.json.encode({"error": error_object(fault)})


def error_object(fault: Fault) -> dict[str, object]:
    _, kind, code = REPORTED[fault.kind]
    return {"message": fault.message, "type": kind, "param": None, "code": fault.code or code}


def _error_object(body: bytes) -> dict[str, object]:
    """The fields of the error, wherever it stands: `{"error": {...}}`, `{"error": "text"}`, or the body itself."""
    try:
        value: object = msgspec.json.decode(body)
    except UNREADABLE:
        return {}
    if is_json_array(value) and value:  # Gemini's compatible endpoint wraps its error in an array
        value = value[0]
    if isinstance(value, str):
        return {"message": value}
    if not is_json_object(value):
        return {}
    inner = value.get("error")
    if is_json_object(inner):
        return inner
    if isinstance(inner, str):
        return {**value, "message": value.get("message") or inner}
    return value


def _message(error: Mapping[str, object]) -> str:
    for key in ("message", "detail", "msg", "error_description"):
        value = error.get(key)
        if isinstance(value, str) and value:
            return with_counts(value, error=error)
        if isinstance(value, dict | list) and value:  # FastAPI's validation errors (vLLM, Mistral 422)
            return msgspec.json.encode(value).decode()
    return ""


def _code(error: Mapping[str, object]) -> str | None:
    for key in ("code", "type", "status"):
        value = error.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return None


def _status(value: object) -> int | None:
    number = int(value) if isinstance(value, str) and re.fullmatch(r"\d{3}", value) else value
    return number if isinstance(number, int) and not isinstance(number, bool) and 400 <= number <= 599 else None


def _kind(status: int | None, message: str, error: Mapping[str, object]) -> FaultKind:
    kind = kind_by_message(message)
    if kind is not None:
        return kind
    spent, kind = SPENT_QUOTA
    if spent.search(message):
        return kind
    words = [value.casefold() for key in ("code", "type") if isinstance(value := error.get(key), str)]
    named = [CODES[word] for word in words if word in CODES]
    # `insufficient_quota` comes with 429 and `context_length_exceeded` with 400: the code says more than the status.
    for kind in named:
        if kind in (FaultKind.CONTEXT_OVERFLOW, FaultKind.QUOTA):
            return kind
    if status is not None and status in STATUSES:
        return STATUSES[status]
    if named and (status is None or status == 200 or named[0] is not FaultKind.SERVER):
        return named[0]
    if status is not None and 400 <= status < 500:
        return FaultKind.BAD_REQUEST
    return FaultKind.SERVER
