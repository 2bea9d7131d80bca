"""Errors of the Responses API: an HTTP answer, an `error` event, or `response.failed`, all to one `Fault`, and back."""

import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.openai_responses.fields import Fields, encode, fields_of, is_object, object_at, text_at
from turnwise.wire.openai_responses.healing import heal, preview

# The provider's own code or type -> kind. Source: OpenAI docs, "Error codes"; `ResponseError.code` of the API reference;
# recorded answers. The status decides where no code is known.
CODES: Mapping[str, FaultKind] = {
    "invalid_api_key": FaultKind.AUTH,
    "authentication_error": FaultKind.AUTH,
    "permission_denied": FaultKind.AUTH,
    "unsupported_country_region_territory": FaultKind.AUTH,
    "model_not_found": FaultKind.NOT_FOUND,
    "DeploymentNotFound": FaultKind.NOT_FOUND,
    "context_length_exceeded": FaultKind.CONTEXT_OVERFLOW,
    "string_above_max_length": FaultKind.CONTEXT_OVERFLOW,
    "rate_limit_exceeded": FaultKind.RATE_LIMITED,
    "rate_limit_error": FaultKind.RATE_LIMITED,
    "too_many_requests": FaultKind.RATE_LIMITED,
    "insufficient_quota": FaultKind.QUOTA,
    "usage_limit_reached": FaultKind.QUOTA,  # Codex backend: the plan's allowance is used up
    "usage_not_included": FaultKind.QUOTA,
    "billing_hard_limit_reached": FaultKind.QUOTA,
    "billing_not_active": FaultKind.QUOTA,
    "server_is_overloaded": FaultKind.OVERLOADED,
    "slow_down": FaultKind.OVERLOADED,
    "overloaded_error": FaultKind.OVERLOADED,
    "server_error": FaultKind.SERVER,
    "internal_error": FaultKind.SERVER,
    "vector_store_timeout": FaultKind.SERVER,
    "invalid_prompt": FaultKind.BAD_REQUEST,
    "invalid_request_error": FaultKind.BAD_REQUEST,
}

# Words in a message that say more than its code and status. Source: recorded answers (xAI: a wrong key is a 400).
PATTERNS: tuple[tuple[re.Pattern[str], FaultKind], ...] = (
    (
        re.compile(r"exceed\w* the context window|maximum context length|context length", re.I),
        FaultKind.CONTEXT_OVERFLOW,
    ),
    (re.compile(r"maximum prompt length|prompt is too long|too many tokens in", re.I), FaultKind.CONTEXT_OVERFLOW),
    (re.compile(r"incorrect api key|invalid api key|api key not valid", re.I), FaultKind.AUTH),
    (
        re.compile(r"exceeded your current quota|insufficient (credits|balance|quota)|run out of credits", re.I),
        FaultKind.QUOTA,
    ),
)

STATUSES: Mapping[int, FaultKind] = {
    401: FaultKind.AUTH,
    402: FaultKind.QUOTA,
    403: FaultKind.AUTH,
    404: FaultKind.NOT_FOUND,
    408: FaultKind.TIMEOUT,
    413: FaultKind.CONTEXT_OVERFLOW,
    429: FaultKind.RATE_LIMITED,
    503: FaultKind.OVERLOADED,
    529: FaultKind.OVERLOADED,
}

# Too general to overrule a status or a message.
VAGUE_CODES = frozenset(("invalid_request_error", "server_error", "internal_error"))

# Kind -> (status, type, code) as the API reports it.
REPORTED: Mapping[FaultKind, tuple[int, str, str | None]] = {
    FaultKind.AUTH: (401, "invalid_request_error", "invalid_api_key"),
    FaultKind.NOT_FOUND: (404, "invalid_request_error", "model_not_found"),
    FaultKind.BAD_REQUEST: (400, "invalid_request_error", None),
    FaultKind.CONTEXT_OVERFLOW: (400, "invalid_request_error", "context_length_exceeded"),
    FaultKind.RATE_LIMITED: (429, "requests", "rate_limit_exceeded"),
    FaultKind.QUOTA: (429, "insufficient_quota", "insufficient_quota"),
    FaultKind.OVERLOADED: (503, "server_error", "server_is_overloaded"),
    FaultKind.TIMEOUT: (408, "server_error", None),
    FaultKind.SERVER: (500, "server_error", "server_error"),
    FaultKind.UNREACHABLE: (502, "server_error", None),
    FaultKind.DISCONNECTED: (502, "server_error", None),
    FaultKind.PROTOCOL: (502, "server_error", None),
    FaultKind.TOO_LARGE: (502, "server_error", None),
}

# A key of ours that the answer repeats; the API masks the middle of long ones by itself, with asterisks.
_KEY = re.compile(r"(key provided: )([^\s*]+?)(?=[.,]?(?:\s|$))|\bsk-[A-Za-z0-9_-]{16,}", re.I)

# "Please try again in 1.2s", "in 250ms", "in 2m30s": what OpenAI writes into a 429's message.
_TRY_AGAIN = re.compile(r"try again in (?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s))?", re.I)


def decode_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    request_id = headers.get("x-request-id")
    found = _error_fields(body)
    if found is None:
        said = preview(body)
        message = f"HTTP {status}: {said}" if said else f"HTTP {status} with an empty body"
        return Fault(
            kind=kind_of_fault(status=status, codes=(), message=message),
            message=message,
            status=status,
            retry_after_s=_retry_after(headers, message),
            request_id=request_id,
        )
    fault = fault_of(found, status=status)
    return msgspec.structs.replace(fault, retry_after_s=_retry_after(headers, fault.message), request_id=request_id)


def _error_fields(body: bytes) -> Fields | None:
    """The object that describes the error, whatever it is wrapped in; None where the body is no JSON object."""
    healed = heal(body[: 1024 * 1024]).objects if b"{" in body[:64] else ()
    if not healed:
        return None
    fields = fields_of(healed[0])
    inner = fields.get("error")
    if inner is not None and is_object(inner):
        return fields_of(inner)
    return fields


def fault_of(error: Fields, *, status: int | None = None) -> Fault:
    """An error object: `message` and `code` or `type`; xAI puts the text in `error`, FastAPI servers in `detail`."""
    message = text_at(error, "message") or text_at(error, "error") or text_at(error, "detail")
    if message is None and is_object(error.get("detail", msgspec.Raw(b""))):
        message = text_at(object_at(error, "detail"), "message")
    codes = tuple([code for key in ("code", "type") if (code := text_at(error, key)) and code != "error"])
    message = _KEY.sub(r"\1[redacted]", message) if message else None
    message = message or (f"the provider reported `{codes[0]}` without a message" if codes else encode(error).decode())
    return Fault(
        kind=kind_of_fault(status=status, codes=codes, message=message),
        message=message,
        status=status,
        code=codes[0] if codes else None,
        retry_after_s=_retry_after({}, message),
    )


def kind_of_fault(*, status: int | None, codes: tuple[str, ...], message: str) -> FaultKind:
    """A precise code decides, then the message's words, then the status, then a vague code."""
    for code in codes:
        if code in CODES and code not in VAGUE_CODES:
            return CODES[code]
    for pattern, kind in PATTERNS:
        if pattern.search(message):
            return kind
    if status is not None and status >= 400:
        if status in STATUSES:
            return STATUSES[status]
        return FaultKind.SERVER if status >= 500 else FaultKind.BAD_REQUEST
    for code in codes:
        if code in CODES:
            return CODES[code]
    return FaultKind.PROTOCOL if status is not None else FaultKind.SERVER


def _retry_after(headers: Mapping[str, str], message: str) -> float | None:
    """Milliseconds, then seconds, then the message's own words; a date needs a clock and is left to the driver."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", value):
            return float(value) * unit
    match = _TRY_AGAIN.search(message)
    if match is None or not any(match.groups()):
        return None
    hours, minutes, amount, unit = match.groups()
    seconds = float(amount or 0) * (0.001 if unit == "ms" else 1.0)
    return float(hours or 0) * 3600 + float(minutes or 0) * 60 + seconds


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    status, kind, code = REPORTED[fault.kind]
    if fault.status is not None and fault.status >= 400:
        status = fault.status
    return status, encode({"error": error_object(fault, kind=kind, code=code)})


def error_object(fault: Fault, *, kind: str, code: str | None) -> dict[str, str | None]:
    return {"message": fault.message, "type": kind, "param": None, "code": fault.code or code}


def stream_error(fault: Fault) -> dict[str, str | None]:
    """`error` of an `error` event."""
    _, kind, code = REPORTED[fault.kind]
    return error_object(fault, kind=kind, code=code)


def response_error(fault: Fault) -> dict[str, str]:
    """`response.error` of `response.failed`; its code is never null."""
    return {"code": fault.code or REPORTED[fault.kind][2] or "server_error", "message": fault.message}
