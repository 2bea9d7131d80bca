"""Errors of the Gemini API: each recorded answer has a sensible kind, and what we write is read back."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tables import each
from turnwise.testing.wire_conformance import check_fault_round_trip
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.gemini import FAMILY


def fault_of(status: int, error: dict[str, Any], **headers: str) -> Fault:
    return FAMILY.decode_fault(status, headers, json.dumps({"error": error}).encode())


RECORDED = {
    "gemini__google__404__062.json": FaultKind.NOT_FOUND,
    "gemini__google__404__121.json": FaultKind.NOT_FOUND,
    "gemini__google__404__139.json": FaultKind.NOT_FOUND,
    "gemini__google__429__101.json": FaultKind.RATE_LIMITED,
    "gemini__google__429__138.json": FaultKind.RATE_LIMITED,
    "gemini__vertex__400__106.json": FaultKind.CONTEXT_OVERFLOW,
    "gemini__vertex__400__147.json": FaultKind.BAD_REQUEST,
    "gemini__vertex__400__148.json": FaultKind.BAD_REQUEST,
}


def test_every_recorded_error_has_its_kind(corpus: Path) -> None:
    """With the provider's message, its status word, and the time to wait where it says one."""
    files = {file.name: json.loads(file.read_text()) for file in (corpus / "errors").glob("gemini__*.json")}
    assert files.keys() == RECORDED.keys()
    for name, recorded in files.items():
        answer = recorded["response"]
        error = json.loads(answer["body"])["error"]
        fault = FAMILY.decode_fault(answer["status"], answer["headers"], answer["body"].encode())
        waits = 48.0 if name == "gemini__google__429__101.json" else None
        assert fault == Fault(
            kind=RECORDED[name],
            message=error["message"],
            status=answer["status"],
            code=error["status"],
            retry_after_s=waits,
        )


@each(
    ("status", "error", "kind"),
    [
        (
            400,
            {"status": "INVALID_ARGUMENT", "message": "API key not valid. Please pass a valid API key."},
            FaultKind.AUTH,
        ),
        (
            400,
            {"status": "INVALID_ARGUMENT", "message": "x", "details": [{"reason": "API_KEY_INVALID"}]},
            FaultKind.AUTH,
        ),
        (400, {"status": "FAILED_PRECONDITION", "message": "User location is not supported"}, FaultKind.BAD_REQUEST),
        (403, {"status": "PERMISSION_DENIED", "message": "x"}, FaultKind.AUTH),
        (
            429,
            {
                "status": "RESOURCE_EXHAUSTED",
                "message": "x",
                "details": [{"violations": [{"quotaId": "RequestsPerDay"}]}],
            },
            FaultKind.QUOTA,
        ),
        (429, {"message": "exceeded its monthly spending cap"}, FaultKind.QUOTA),
        (400, {"message": "the schema says limit: 0"}, FaultKind.BAD_REQUEST),
        (503, {"status": "UNAVAILABLE", "message": "The model is overloaded."}, FaultKind.OVERLOADED),
        (500, {"status": "INTERNAL", "message": "x"}, FaultKind.SERVER),
        (504, {"status": "DEADLINE_EXCEEDED", "message": "x"}, FaultKind.SERVER),
        (418, {"message": "x"}, FaultKind.BAD_REQUEST),
        (502, {"message": "x"}, FaultKind.SERVER),
    ],
)
def test_errors_have_kinds(status: int, error: dict[str, Any], kind: FaultKind) -> None:
    """The status word decides, some texts are more exact, the HTTP status is the last resort."""
    assert fault_of(status, error).kind is kind


def test_how_long_to_wait() -> None:
    """The header in milliseconds, in seconds; `RetryInfo`; the sentence; a date needs a clock and says nothing."""
    info = {"message": "x", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3.5s"}]}
    assert fault_of(429, info, **{"retry-after-ms": "250", "retry-after": "9"}).retry_after_s == 0.25
    assert fault_of(429, info, **{"retry-after": "9"}).retry_after_s == 9
    assert fault_of(429, info, **{"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}).retry_after_s == 3.5
    assert fault_of(429, {"message": "Please retry in 48.9s."}).retry_after_s == 48.9
    assert fault_of(429, {"message": "retry in 1.2.3s"}).retry_after_s is None


@pytest.mark.parametrize(
    "body", [b"", b"<html>Bad\x00 Gateway</html>", b"{}", b"[]", b'{"error":"x"}', b"\xff\xfe", b"5"]
)
def test_an_answer_that_is_no_error_of_geminis_is_shown(body: bytes) -> None:
    """Its status tells the kind, its beginning the rest."""
    fault = FAMILY.decode_fault(503, {}, body)
    assert (fault.kind, fault.status) == (FaultKind.OVERLOADED, 503)
    assert fault.message.startswith("HTTP 503: ")


def test_streams_answer_with_an_array_of_one() -> None:
    """Without `alt=sse` an error is an element of the array."""
    body = json.dumps([{"error": {"code": 404, "message": "gone", "status": "NOT_FOUND"}}]).encode()
    assert FAMILY.decode_fault(404, {}, body) == Fault(
        kind=FaultKind.NOT_FOUND, message="gone", status=404, code="NOT_FOUND"
    )


@pytest.mark.parametrize(
    "kind",
    [
        FaultKind.AUTH,
        FaultKind.NOT_FOUND,
        FaultKind.BAD_REQUEST,
        FaultKind.RATE_LIMITED,
        FaultKind.QUOTA,
        FaultKind.OVERLOADED,
        FaultKind.SERVER,
    ],
)
def test_faults_come_back_as_they_were(kind: FaultKind) -> None:
    """Written as the API reports them."""
    check_fault_round_trip(FAMILY, Fault(kind=kind, message="what happened"))


def test_an_overflow_is_known_by_its_text() -> None:
    """The API has no code of its own for it."""
    text = "The input token count (12) exceeds the maximum number of tokens allowed (10)."
    check_fault_round_trip(FAMILY, Fault(kind=FaultKind.CONTEXT_OVERFLOW, message=text))


def test_an_error_says_all_that_the_api_says() -> None:
    """Code, message, status word, and the time to wait."""
    status, body = FAMILY.encode_fault(Fault(kind=FaultKind.RATE_LIMITED, message="slow down", retry_after_s=2.5))
    assert status == 429
    assert msgspec.json.decode(body) == {
        "error": {
            "code": 429,
            "message": "slow down",
            "status": "RESOURCE_EXHAUSTED",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}],
        }
    }
    assert FAMILY.decode_fault(status, {}, body).retry_after_s == 2.5


def test_a_wait_of_a_month_is_a_duration_too() -> None:
    """A budget's: in digits, as `google.protobuf.Duration` is read. Found: `2.6784e+06s`."""
    fault = Fault(kind=FaultKind.RATE_LIMITED, message="come again", retry_after_s=2_678_400.0)
    assert b'"retryDelay":"2678400s"' in FAMILY.encode_fault(fault)[1]
