"""Errors of the API <-> `Fault`. They are `google.rpc.Status` objects: `{"error":{"code","message","status","details"}}`.

Source: Google Cloud API design guide, "Errors"; Gemini API, "Troubleshooting"; the recorded answers.
"""

import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.faults import (
    STATUSES,
    fit_to_show,
    is_overflow_code,
    kind_by_message,
    retry_after_s,
    timed,
    with_counts,
)
from turnwise.wire.json_fields import NOTHING, UNREADABLE, printable, read_fields, string_of

# The word in `error.status` (google.rpc.Code).
STATUS_KINDS: dict[str, FaultKind] = {
    "INVALID_ARGUMENT": FaultKind.BAD_REQUEST,
    "FAILED_PRECONDITION": FaultKind.BAD_REQUEST,
    "OUT_OF_RANGE": FaultKind.BAD_REQUEST,
    "UNAUTHENTICATED": FaultKind.AUTH,
    "PERMISSION_DENIED": FaultKind.AUTH,
    "NOT_FOUND": FaultKind.NOT_FOUND,
    "RESOURCE_EXHAUSTED": FaultKind.RATE_LIMITED,
    "UNAVAILABLE": FaultKind.OVERLOADED,
    "INTERNAL": FaultKind.SERVER,
    "UNKNOWN": FaultKind.SERVER,
    "ABORTED": FaultKind.SERVER,
    "CANCELLED": FaultKind.SERVER,
    "DEADLINE_EXCEEDED": FaultKind.SERVER,
}

# What only the text tells, beside what every family reads. In order; the first that is found decides.
MESSAGE_KINDS: tuple[tuple[re.Pattern[str], FaultKind], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind)
    for pattern, kind in (
        (r"request is too long", FaultKind.CONTEXT_OVERFLOW),
        # A missing or wrong key is a 400 INVALID_ARGUMENT there (google.rpc.ErrorInfo, reason API_KEY_INVALID).
        (r"api[ _]key (not valid|expired|not found|invalid)|API_KEY_INVALID", FaultKind.AUTH),
        # Quotas that waiting a little does not bring back. `QuotaFailure.quotaId` ends in its period.
        (r"PerDay|monthly spending cap|spending limit|prepayment credits|\blimit: 0\b", FaultKind.QUOTA),
    )
)

# Fault kind -> (HTTP status, google.rpc.Code), as the API reports it.
_ENCODED: dict[FaultKind, tuple[int, str]] = {
    FaultKind.AUTH: (401, "UNAUTHENTICATED"),
    FaultKind.NOT_FOUND: (404, "NOT_FOUND"),
    FaultKind.BAD_REQUEST: (400, "INVALID_ARGUMENT"),
    FaultKind.CONTEXT_OVERFLOW: (400, "INVALID_ARGUMENT"),
    FaultKind.RATE_LIMITED: (429, "RESOURCE_EXHAUSTED"),
    FaultKind.QUOTA: (429, "RESOURCE_EXHAUSTED"),
    FaultKind.OVERLOADED: (503, "UNAVAILABLE"),
    FaultKind.UNREACHABLE: (503, "UNAVAILABLE"),
    FaultKind.TIMEOUT: (504, "DEADLINE_EXCEEDED"),
}
_INTERNAL = (500, "INTERNAL")

RETRY_INFO = "type.googleapis.com/google.rpc.RetryInfo"
# A quota's text alone does not say that it is one; a `QuotaFailure` of a daily quota does.
QUOTA_FAILURE = "type.googleapis.com/google.rpc.QuotaFailure"
_RETRY_IN = re.compile(r"retry in ([0-9.]{1,20})s")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)s")


class _Error(msgspec.Struct):
    code: int | str | None = None
    message: str | None = None
    status: str | None = None
    type: str | None = None  # of servers behind a gateway
    n_prompt_tokens: int | None = None  # of llama.cpp
    n_ctx: int | None = None
    details: msgspec.Raw = NOTHING


class _Envelope(msgspec.Struct):
    error: _Error


_error = msgspec.json.Decoder(_Error)
_envelope = msgspec.json.Decoder(_Envelope)
_envelopes = msgspec.json.Decoder(list[_Envelope])
_details = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_string = msgspec.json.Decoder(str)


def decode_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    """An HTTP answer that is no response -> what went wrong. Streams answer with an array of one."""
    try:
        found = _envelopes.decode(body) if body.lstrip()[:1] == b"[" else [_envelope.decode(body)]
    except UNREADABLE:
        return _unreadable_fault(status, headers, body)
    if not found:
        return _unreadable_fault(status, headers, body)
    return _fault_of(found[0].error, status=status, headers=headers)


def fault_in_stream(error: msgspec.Raw) -> Fault:
    """The `error` object of a chunk. What is no such object becomes the message."""
    try:
        decoded = _error.decode(error)
    except UNREADABLE:
        text = bytes(error).decode("utf-8", "replace")
        kind = kind_by_message(text) or FaultKind.SERVER
        return Fault(kind=kind, message=fit_to_show(f"the provider reported an error: {text}"))
    return _fault_of(decoded, status=decoded.code if isinstance(decoded.code, int) else None, headers={})


def _fault_of(error: _Error, *, status: int | None, headers: Mapping[str, str]) -> Fault:
    counts = {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
    message = fit_to_show(with_counts(error.message or "the provider gave no message", error=counts))
    details = bytes(error.details).decode("utf-8", "replace")
    fault = Fault(
        kind=FaultKind.CONTEXT_OVERFLOW
        if is_overflow_code(error.type)
        else _kind_of(status, word=error.status, text=message + details),
        message=message,
        status=status,
        code=error.status or (str(error.code) if error.code is not None else None),
        retry_after_s=_retry_after(headers, message=message, details=error.details),
        request_id=headers.get("x-request-id") or headers.get("x-goog-request-id"),
    )
    return timed(fault, headers)


def _kind_of(status: int | None, *, word: str | None, text: str) -> FaultKind:
    for pattern, kind in MESSAGE_KINDS:
        # Only quota errors speak of quotas.
        if (kind is not FaultKind.QUOTA or word == "RESOURCE_EXHAUSTED" or status == 429) and pattern.search(text):
            return kind
    kind = kind_by_message(text)
    if kind is not None:
        return kind
    if word in STATUS_KINDS:
        return STATUS_KINDS[word]
    if status is not None and status in STATUSES:
        return STATUSES[status]
    return FaultKind.BAD_REQUEST if status is not None and 400 <= status < 500 else FaultKind.SERVER


def _retry_after(headers: Mapping[str, str], *, message: str, details: msgspec.Raw) -> float | None:
    """Seconds to wait. The header may be a date, which needs a clock: then None."""
    said = retry_after_s(headers, message=message)
    if said is not None:
        return said
    found = _DURATION.fullmatch(_retry_delay(details)) or _RETRY_IN.search(message)
    try:
        return float(found[1]) if found else None
    except ValueError:
        return None


def _retry_delay(details: msgspec.Raw) -> str:
    try:
        for detail in _details.decode(details):
            if "retryDelay" in detail:
                return _string.decode(detail["retryDelay"])
    except UNREADABLE:
        pass
    return ""


def _unreadable_fault(status: int, headers: Mapping[str, str], body: bytes) -> Fault:
    said, shown = _plain_words(body), printable(body)
    text = f"the answer is no error of Gemini's: {said or shown}" if shown else "the answer has no text"
    fault = Fault(
        kind=_kind_of(status, word=None, text=said),
        message=fit_to_show(f"HTTP {status}: {text}"),
        status=status,
        retry_after_s=_retry_after(headers, message="", details=NOTHING),
        request_id=headers.get("x-request-id"),
    )
    return timed(fault, headers)


def _plain_words(body: bytes) -> str:
    """The text of `{"error": "text"}` or `{"message": "text"}`, as servers behind a gateway write it; else empty."""
    try:
        fields = read_fields(body)
    except UNREADABLE:
        return ""
    return string_of(fields, "error") or string_of(fields, "message") or ""


def encode_error(fault: Fault) -> tuple[int, bytes]:
    """(HTTP status, the `error` object)."""
    status, word = _ENCODED.get(fault.kind, _INTERNAL)
    if fault.code in STATUS_KINDS and STATUS_KINDS[fault.code] is fault.kind:
        word = fault.code
    error: dict[str, object] = {"code": status, "message": fault.message, "status": word}
    details: list[dict[str, object]] = []
    if fault.kind is FaultKind.QUOTA:
        details.append({"@type": QUOTA_FAILURE, "violations": [{"quotaId": "GenerateRequestsPerDayPerProject"}]})
    if fault.retry_after_s is not None:
        details.append({"@type": RETRY_INFO, "retryDelay": f"{fault.retry_after_s:.9g}s"})
    if details:
        error["details"] = details
    return status, msgspec.json.encode(error)


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    """The whole answer, as the API reports this fault."""
    status, error = encode_error(fault)
    return status, b'{"error":' + error + b"}"
