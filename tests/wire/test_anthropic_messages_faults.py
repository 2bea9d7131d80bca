"""Failures of the Messages API: what happened, in our kinds and the provider's words."""

import json
from pathlib import Path

import pytest

from tables import each
from turnwise.testing.wire_conformance import check_fault_round_trip
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.anthropic_messages import FAMILY


def error(type: str, message: str, **details: str) -> bytes:
    more = {"details": details} if details else {}
    return json.dumps(
        {"type": "error", "error": {"type": type, "message": message, **more}, "request_id": "req_1"}
    ).encode()


@each(
    ("status", "body", "kind", "message"),
    [
        (400, error("invalid_request_error", "x"), FaultKind.BAD_REQUEST, "x"),
        (
            400,
            error("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            FaultKind.CONTEXT_OVERFLOW,
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        (
            400,
            error(
                "invalid_request_error", "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"
            ),
            FaultKind.CONTEXT_OVERFLOW,
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        ),
        (
            400,
            error("invalid_request_error", "Your credit balance is too low to access the Anthropic API."),
            FaultKind.QUOTA,
            "Your credit balance is too low to access the Anthropic API.",
        ),
        (401, error("authentication_error", "invalid x-api-key"), FaultKind.AUTH, "invalid x-api-key"),
        (402, error("billing_error", "x"), FaultKind.QUOTA, "x"),
        (403, error("permission_error", "x"), FaultKind.AUTH, "x"),
        (404, error("not_found_error", "model: m"), FaultKind.NOT_FOUND, "model: m"),
        (413, error("request_too_large", "x"), FaultKind.BAD_REQUEST, "x"),
        (429, error("rate_limit_error", "x"), FaultKind.RATE_LIMITED, "x"),
        # anthropic-python 2.14: money is spent, so no wait of minutes helps; a ramp limit is one that a wait does help with
        (429, error("rate_limit_error", "x", error_code="contract_spend_limit_reached"), FaultKind.QUOTA, "x"),
        (429, error("rate_limit_error", "x", error_code="enforced_spend_limit_reached"), FaultKind.QUOTA, "x"),
        (429, error("rate_limit_error", "x", error_code="ramp_limit_exceeded"), FaultKind.RATE_LIMITED, "x"),
        (500, error("api_error", "x"), FaultKind.SERVER, "x"),
        (504, error("timeout_error", "x"), FaultKind.SERVER, "x"),
        (529, error("overloaded_error", "Overloaded"), FaultKind.OVERLOADED, "Overloaded"),
        (403, b'{"message":"no access to the model"}', FaultKind.AUTH, "no access to the model"),  # Bedrock
        (
            429,
            b'[{"error":{"code":429,"message":"Quota exceeded","status":"RESOURCE_EXHAUSTED"}}]',  # Vertex
            FaultKind.RATE_LIMITED,
            "Quota exceeded",
        ),
        (502, b"<html><title>502</title><body><h1>Bad Gateway</h1></body></html>", FaultKind.SERVER, "502 Bad Gateway"),
        (418, b'{"error":"short and stout"}', FaultKind.BAD_REQUEST, "short and stout"),
        (503, b"", FaultKind.OVERLOADED, "the server answered HTTP 503 without a word"),
    ],
)
def test_answers_are_sorted_by_what_has_to_be_done(status: int, body: bytes, kind: FaultKind, message: str) -> None:
    """Type first, but for messages that say more than their type; else the status."""
    fault = FAMILY.decode_fault(status, {}, body)
    assert (fault.kind, fault.message, fault.status) == (kind, message, status)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_waits_are_read_from_the_headers(headers: dict[str, str], expected: float | None) -> None:
    """Seconds and milliseconds; a date needs a clock, which this room does not have."""
    assert FAMILY.decode_fault(429, headers, b"").retry_after_s == expected


def test_a_key_quoted_back_is_hidden() -> None:
    """Some gateways repeat the key in their 401."""
    fault = FAMILY.decode_fault(401, {}, error("authentication_error", "bad key sk-ant-api03-abcdefgh_1234"))
    assert fault.message == "bad key [redacted]"


@each("kind", [kind for kind in FaultKind if kind not in {"context_overflow"}])
def test_faults_are_reported_as_the_api_does(kind: FaultKind) -> None:
    """Kinds that the API has come back as they went; those of the way to it become its own server error."""
    own = {"unreachable", "timeout", "disconnected", "protocol", "too_large"}
    if kind in own:
        status, body = FAMILY.encode_fault(Fault(kind=kind, message="m"))
        assert FAMILY.decode_fault(status, {}, body).kind is FaultKind.SERVER
    else:
        check_fault_round_trip(FAMILY, Fault(kind=kind, message="m"))


def test_an_overflow_is_known_by_its_words() -> None:
    """The API has no type of its own for it."""
    check_fault_round_trip(
        FAMILY, Fault(kind=FaultKind.CONTEXT_OVERFLOW, message="prompt is too long: 2 tokens > 1 maximum")
    )


def test_recorded_errors_keep_their_message(corpus: Path) -> None:
    """Every recorded 4xx of the family: a kind by its status, the provider's words, type and request id."""
    kinds = {400: FaultKind.BAD_REQUEST, 401: FaultKind.AUTH, 404: FaultKind.NOT_FOUND}
    read = 0
    for file in sorted((corpus / "errors").glob("anthropic__*.json")):
        response = json.loads(file.read_text())["response"]
        recorded = json.loads(response["body"])
        assert FAMILY.decode_fault(response["status"], response["headers"], response["body"].encode()) == Fault(
            kind=kinds[response["status"]],
            message=recorded["error"]["message"],
            status=response["status"],
            code=recorded["error"]["type"],
            request_id=recorded.get("request_id"),
        )
        read += 1
    assert read == 13
