"""Failures of the Interactions API <-> `Fault`. Its `error` has a word as its code where the rest of the Gemini API has a number.

Source: google-genai 3.6, `_gaos/types/interactions/error.py`; Google's reference, "Error event" (`not_found`)."""

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Fault, FaultKind
from turnwise.wire.gemini import faults as of_google
from turnwise.wire.json_fields import encode

# Words of errors that are not in google.rpc.Code (Google's reference, "Interactions").
_WORDS = {
    "INVALID_REQUEST": FaultKind.BAD_REQUEST,
    "RATE_LIMIT_EXCEEDED": FaultKind.RATE_LIMITED,
    "AUTHENTICATION_ERROR": FaultKind.AUTH,
    "INTERNAL_ERROR": FaultKind.SERVER,
}


def fault_in_stream(error: msgspec.Raw) -> Fault:
    fault = of_google.fault_in_stream(error)
    word = (fault.code or "").upper()
    kind = of_google.STATUS_KINDS.get(word) or _WORDS.get(word)
    return replace(fault, kind=kind) if kind is not None and fault.kind is FaultKind.SERVER else fault


def encode_error(fault: Fault) -> tuple[int, bytes]:
    """(HTTP status, the `error` object)."""
    status, error = of_google.encode_error(fault)
    fields = msgspec.json.decode(error, type=dict[str, msgspec.Raw])
    word = msgspec.json.decode(fields["status"], type=str).lower()
    told: dict[str, object] = {"code": word, "message": fault.message}
    return status, encode(told | ({"details": fields["details"]} if "details" in fields else {}))


def encode_fault(fault: Fault) -> tuple[int, bytes]:
    status, error = encode_error(fault)
    return status, b'{"error":' + error + b"}"
