"""Errors of the Responses API: recorded answers become the right kind of fault, and faults are written as the API writes them."""

import json
from pathlib import Path

import pytest

from tables import each
from turnwise.assembly.response_reading import read_body
from turnwise.rules.retries import is_worth_a_retry
from turnwise.testing.wire_conformance import check_fault_round_trip
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.openai_responses import FAMILY
from turnwise.wire.profiles import builtin_profiles

ON_THE_WAY = (FaultKind.UNREACHABLE, FaultKind.DISCONNECTED, FaultKind.PROTOCOL, FaultKind.TOO_LARGE)
KINDS = {
    "openai_responses__openai__400__048.json": (FaultKind.NOT_FOUND, "model_not_found"),
    "openai_responses__openai__400__051.json": (FaultKind.NOT_FOUND, "model_not_found"),
    "openai_responses__openai__400__052.json": (FaultKind.BAD_REQUEST, "previous_response_not_found"),
    "openai_responses__openai__400__053.json": (FaultKind.NOT_FOUND, "model_not_found"),
    "openai_responses__openai__400__078.json": (FaultKind.BAD_REQUEST, "invalid_value"),
    "openai_responses__openai__400__103.json": (FaultKind.CONTEXT_OVERFLOW, "context_length_exceeded"),
    "openai_responses__openai__400__136.json": (FaultKind.NOT_FOUND, "model_not_found"),
    "openai_responses__openai__401__049.json": (FaultKind.AUTH, "invalid_api_key"),
    "openai_responses__openai__401__093.json": (FaultKind.AUTH, "invalid_api_key"),
    "openai_responses__openai__401__107.json": (FaultKind.AUTH, "invalid_api_key"),
    "openai_responses__openai__401__109.json": (FaultKind.AUTH, "invalid_api_key"),
    "openai_responses__xai__400__057.json": (FaultKind.AUTH, "invalid-argument"),
}


def test_every_recorded_error_has_its_kind_and_code(corpus: Path) -> None:
    """xAI answers a wrong key with 400 and puts the text where others put an object."""
    found: dict[str, tuple[FaultKind, str | None]] = {}
    for path in sorted(corpus.glob("errors/openai_responses__*")):
        answer = json.loads(path.read_text(encoding="utf-8"))["response"]
        fault = FAMILY.decode_fault(answer["status"], answer["headers"], answer["body"].encode())
        found[path.name] = (fault.kind, fault.code)
        said = json.loads(answer["body"])["error"]
        assert fault.message[:25] == (said if isinstance(said, str) else said["message"])[:25]
        assert fault.status == answer["status"]
    assert found == KINDS


@each(
    ("status", "headers", "body", "fault"),
    [
        (
            429,
            {"retry-after-ms": "1500", "retry-after": "2", "x-request-id": "req_1"},
            b'{"error":{"message":"Slow down","type":"requests","code":"rate_limit_exceeded"}}',
            Fault(
                kind=FaultKind.RATE_LIMITED,
                message="Slow down",
                status=429,
                code="rate_limit_exceeded",
                retry_after_s=1.5,
                request_id="req_1",
            ),
        ),
        (
            429,
            {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"},
            b'{"error":{"message":"Rate limit. Please try again in 2m3.5s.","type":"tokens","code":null}}',
            Fault(
                kind=FaultKind.RATE_LIMITED,
                message="Rate limit. Please try again in 2m3.5s.",
                status=429,
                code="tokens",
                retry_after_s=123.5,
            ),
        ),
        (
            429,
            {},
            b'{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}',
            Fault(
                kind=FaultKind.QUOTA, message="You exceeded your current quota", status=429, code="insufficient_quota"
            ),
        ),
        (
            502,
            {},
            b"<html><body>Bad Gateway</body></html>",
            Fault(kind=FaultKind.SERVER, message="HTTP 502: <html><body>Bad Gateway</body></html>", status=502),
        ),
        (503, {}, b"", Fault(kind=FaultKind.OVERLOADED, message="HTTP 503 with an empty body", status=503)),
        (
            400,
            {},
            b'{"detail":"Unsupported parameter: temperature"}',
            Fault(kind=FaultKind.BAD_REQUEST, message="Unsupported parameter: temperature", status=400),
        ),
        (
            401,
            {},
            b'{"error":{"message":"Incorrect API key provided: hunter2. You can find yours.","code":"invalid_api_key"}}',
            Fault(
                kind=FaultKind.AUTH,
                message="Incorrect API key provided: [redacted]. You can find yours.",
                status=401,
                code="invalid_api_key",
            ),
        ),
        (
            500,
            {},
            b'{"error":{"message":"' + b"\xff" + b'","type":"server_error"}}',
            Fault(kind=FaultKind.SERVER, message="�", status=500, code="server_error"),
        ),
    ],
)
def test_an_answer_becomes_a_fault(status: int, headers: dict[str, str], body: bytes, fault: Fault) -> None:
    """Codes before words before statuses; waits in any notation but a date; no key is repeated."""
    assert FAMILY.decode_fault(status, headers, body) == fault


@each("kind", [kind for kind in FaultKind if kind not in ON_THE_WAY])
def test_a_fault_is_written_as_the_api_reports_it(kind: FaultKind) -> None:
    """The four that happen on the way to a provider have no status of their own: they are server errors to a client."""
    check_fault_round_trip(FAMILY, Fault(kind=kind, message="What happened."))


@pytest.mark.parametrize("kind", ON_THE_WAY)
def test_a_fault_on_the_way_is_a_bad_gateway(kind: FaultKind) -> None:
    """As a gateway says it."""
    status, body = FAMILY.encode_fault(Fault(kind=kind, message="What happened."))
    assert (status, json.loads(body)["error"]["type"]) == (502, "server_error")


LASTING_CODES = """bio_policy misalignment_policy_violation data_residency_mismatch image_content_policy_violation invalid_image
    invalid_image_format invalid_base64_image invalid_image_url image_too_large image_too_small image_parse_error
    invalid_image_mode image_file_too_large unsupported_image_media_type empty_image_file image_file_not_found
    invalid_prompt""".split()


@each("code", LASTING_CODES)
def test_a_failed_response_is_not_asked_for_again_if_its_code_lasts(code: str) -> None:
    """`ResponseError.code` of openai-python 3.57: a policy or the request's own image, so the same request would fail, and be
    billed, again. The response has no HTTP status that could tell."""
    body = json.dumps({"id": "r", "status": "failed", "output": [], "error": {"code": code, "message": "no"}}).encode()
    response, _ = read_body(body, family=FAMILY, profile=builtin_profiles()["openai"])
    assert response.fault is not None
    assert response.fault == Fault(kind=FaultKind.BAD_REQUEST, message="no", code=code)
    assert not is_worth_a_retry(response.fault)


@pytest.mark.parametrize("code", ["server_error", "vector_store_timeout", "failed_to_download_image"])
def test_a_failed_response_is_asked_for_again_if_its_code_passes(code: str) -> None:
    body = json.dumps({"id": "r", "status": "failed", "output": [], "error": {"code": code, "message": "no"}}).encode()
    response, _ = read_body(body, family=FAMILY, profile=builtin_profiles()["openai"])
    assert response.fault is not None and is_worth_a_retry(response.fault)
