"""Errors of the Responses API: an HTTP answer, an `error` event, or `response.failed`, all to one `Fault`, and back."""

import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire import faults
from turnwise.wire.faults import SPENT_QUOTA, fit_to_show, kind_by_message, retry_after_s, timed, with_counts
from turnwise.wire.json_fields import (
    MAX_MENDED_BYTES,
    Fields,
    encode,
    is_object,
    object_at,
    printable,
    read_fields,
    read_objects,
)
from turnwise.wire.openai_responses.parts import text_at

# The provider's own code or type -> kind. Source: OpenAI docs, "Error codes"; `ResponseError.code` of the API reference;
# recorded answers. The status decides where no code is known.
CODES: Mapping[str, FaultKind] = {
    "invalid_api_key": FaultKind.AUTH,
    "authentication_error": FaultKind.AUTH,
    "permission_denied": FaultKind.AUTH,
    "unsupported_country_region_territory": FaultKind.AUTH,
    "model_not_found": FaultKind.NOT_FOUND,
    "DeploymentNotFound": FaultKind.NOT_FOUND,
    **dict.fromkeys(faults.OVERFLOW_CODES, FaultKind.CONTEXT_OVERFLOW),
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
    # What the request holds is at fault, or a policy stopped the answer: the same request fails again, and is billed again.
    **dict.fromkeys(
        """bio_policy misalignment_policy_violation data_residency_mismatch image_content_policy_violation invalid_image
        invalid_image_format invalid_base64_image invalid_image_url image_too_large image_too_small image_parse_error
        invalid_image_mode image_file_too_large unsupported_image_media_type empty_image_file image_file_not_found""".split(),
        FaultKind.BAD_REQUEST,
    ),
    "failed_to_download_image": FaultKind.SERVER,
    "invalid_request_error": FaultKind.BAD_REQUEST,
}

# What the message says that no other family's does: xAI answers a wrong key with a 400.
WRONG_KEY = re.compile(r"incorrect api key|invalid api key|api key not valid", re.IGNORECASE)

STATUSES: Mapping[int, FaultKind] = {
    **faults.STATUSES,
    408: FaultKind.TIMEOUT,
    413: FaultKind.CONTEXT_OVERFLOW,
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


def decode_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    request_id = headers.get("x-request-id")
    found = _error_fields(body)
    if found is None:
        said = printable(body)
        message = f"HTTP {status}: {said}" if said else f"HTTP {status} with an empty body"
        fault = Fault(
            kind=kind_of_fault(status=status, codes=(), message=message),
            message=message,
            status=status,
            retry_after_s=retry_after_s(headers, message=message),
            request_id=request_id,
        )
        return timed(fault, headers)
    fault = fault_of(found, status=status)
    fault = msgspec.structs.replace(
        fault, retry_after_s=retry_after_s(headers, message=fault.message), request_id=request_id
    )
    return timed(fault, headers)


def _error_fields(body: bytes) -> Fields | None:
    """The object that describes the error, whatever it is wrapped in; None where the body is no JSON object."""
    found = read_objects(body[:MAX_MENDED_BYTES]) if b"{" in body[:64] else []
    if not found:
        return None
    fields = read_fields(found[0])
    inner = fields.get("error")
    if inner is not None and is_object(inner):
        return read_fields(inner)
    return fields


def fault_of(error: Fields, *, status: int | None = None) -> Fault:
    """An error object: `message` and `code` or `type`; xAI puts the text in `error`, FastAPI servers in `detail`."""
    message = text_at(error, "message") or text_at(error, "error") or text_at(error, "detail")
    if message is None and is_object(error.get("detail", msgspec.Raw(b""))):
        message = text_at(object_at(error, "detail"), "message")
    codes = tuple([code for key in ("code", "type") if (code := text_at(error, key)) and code != "error"])
    message = fit_to_show(with_counts(message, error=error)) if message else None
    message = message or (f"the provider reported `{codes[0]}` without a message" if codes else encode(error).decode())
    return Fault(
        kind=kind_of_fault(status=status, codes=codes, message=message),
        message=message,
        status=status,
        code=codes[0] if codes else None,
        retry_after_s=retry_after_s({}, message=message),
    )


def kind_of_fault(*, status: int | None, codes: tuple[str, ...], message: str) -> FaultKind:
    """A precise code decides, then the message's words, then the status, then a vague code."""
    for code in codes:
        if code in CODES and code not in VAGUE_CODES:
            return CODES[code]
    kind = kind_by_message(message)
    if kind is not None:
        return kind
    for pattern, kind in ((WRONG_KEY, FaultKind.AUTH), SPENT_QUOTA):
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
