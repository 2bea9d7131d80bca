"""Errors of Chat Completions endpoints: which kind each is, and how they are written."""

import json
import re
from pathlib import Path

import pytest

from tables import each
from turnwise.testing.wire_conformance import check_fault_round_trip
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.openai_chat import FAMILY

# file (without family and ending) -> what the recorded answer is
RECORDED = {
    "azure__404__142": FaultKind.NOT_FOUND,
    "azure__429__097": FaultKind.RATE_LIMITED,
    "deepseek__400__020": FaultKind.BAD_REQUEST,
    "deepseek__400__026": FaultKind.BAD_REQUEST,
    "deepseek__400__100": FaultKind.CONTEXT_OVERFLOW,
    "deepseek__401__025": FaultKind.AUTH,
    "deepseek__401__089": FaultKind.AUTH,
    "doubleword__400__029": FaultKind.BAD_REQUEST,
    "doubleword__404__030": FaultKind.NOT_FOUND,
    "groq__404__067": FaultKind.NOT_FOUND,
    "llamacpp__400__036": FaultKind.CONTEXT_OVERFLOW,
    "llamacpp__400__043": FaultKind.BAD_REQUEST,
    "llamacpp__500__039": FaultKind.SERVER,
    "llamacpp__500__042": FaultKind.SERVER,
    "llamacpp__500__044": FaultKind.SERVER,
    "mistral__400__045": FaultKind.BAD_REQUEST,
    "mistral__401__047": FaultKind.AUTH,
    "ollama-cloud__401__092": FaultKind.AUTH,
    "openai__400__050": FaultKind.BAD_REQUEST,
    "openai__400__071": FaultKind.BAD_REQUEST,
    "openai__400__080": FaultKind.BAD_REQUEST,
    "openai__400__110": FaultKind.BAD_REQUEST,
    "openai__400__125": FaultKind.BAD_REQUEST,
    "openai__400__154": FaultKind.BAD_REQUEST,
    "openai__401__127": FaultKind.AUTH,
    "openai__401__128": FaultKind.AUTH,
    "openai__401__134": FaultKind.AUTH,
    "openai__401__135": FaultKind.AUTH,
    "openai__404__064": FaultKind.NOT_FOUND,
    "openai__404__141": FaultKind.NOT_FOUND,
    "openrouter__400__055": FaultKind.BAD_REQUEST,
    "openrouter__400__104": FaultKind.CONTEXT_OVERFLOW,
    "openrouter__429__152": FaultKind.RATE_LIMITED,
    "perplexity__401__095": FaultKind.AUTH,
}


def test_every_recorded_error_has_its_kind_and_the_providers_own_words(corpus: Path) -> None:
    found: dict[str, FaultKind] = {}
    for path in sorted((corpus / "errors").glob("openai_chat__*.json")):
        answer = json.loads(path.read_text())["response"]
        fault = FAMILY.decode_fault(answer["status"], answer["headers"], answer["body"].encode())
        found[path.stem.removeprefix("openai_chat__")] = fault.kind
        body = json.loads(answer["body"])
        error = body.get("error", body)
        words = error.get("message") or error.get("detail")
        assert fault.message == re.sub(r"(?<=key provided: )sk-[a-z-]*(?=\.)", "[redacted]", words), path.name
        assert fault.status == answer["status"]
        assert fault.code == next((str(code) for key in ("code", "type") if (code := error.get(key))), None), path.name
    assert found == RECORDED


@each(
    ("status", "body", "kind"),
    [
        (429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}, FaultKind.QUOTA),
        (402, {"error": {"message": "Insufficient Balance"}}, FaultKind.QUOTA),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, FaultKind.CONTEXT_OVERFLOW),
        (413, {"error": {"message": "Payload too large"}}, FaultKind.BAD_REQUEST),
        (422, {"detail": [{"loc": ["body"], "msg": "extra"}]}, FaultKind.BAD_REQUEST),
        (403, {"error": {"message": "no", "type": "invalid_request_error"}}, FaultKind.AUTH),
        (500, {"error": {"message": "oops", "type": "invalid_request_error"}}, FaultKind.BAD_REQUEST),
        (500, {"error": "boom"}, FaultKind.SERVER),
        (502, {"error": {"message": "upstream", "code": 502}}, FaultKind.SERVER),
        (503, {"error": {"message": "The model is overloaded"}}, FaultKind.OVERLOADED),
        (529, {}, FaultKind.OVERLOADED),
        (504, {}, FaultKind.TIMEOUT),
        (408, {}, FaultKind.TIMEOUT),
        (
            400,
            [{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT"}}],
            FaultKind.BAD_REQUEST,
        ),
    ],
)
def test_status_code_and_message_together_tell_the_kind(status: int, body: object, kind: FaultKind) -> None:
    assert FAMILY.decode_fault(status, {}, json.dumps(body).encode()).kind == kind


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b"<html><body>502 Bad Gateway</body></html>",
            "HTTP 502: the answer began with '<html><body>502 Bad Gateway</body></html>'",
        ),
        (b"", "HTTP 502 with an empty answer"),
        (b"\xff\xfe\x00", "HTTP 502: the answer began with '\ufffd\ufffd'"),
        (b"7", "HTTP 502: the answer began with '7'"),
        (b'"plain"', "plain"),
    ],
)
def test_an_error_that_is_no_error_object_shows_how_it_begins(body: bytes, message: str) -> None:
    assert FAMILY.decode_fault(502, {}, body) == Fault(kind=FaultKind.SERVER, message=message, status=502)


@each(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "9", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "1e3"}, 1000.0),
        ({"retry-after": "2.50E+1"}, 25.0),
        ({"retry-after": ".5"}, 0.5),
        ({"retry-after": "1e9"}, 31_622_400.0),
        ({"retry-after": "9" * 23}, 31_622_400.0),
        ({"retry-after": "9" * 400}, 31_622_400.0),
        ({"retry-after-ms": "1e999999"}, 31_622_400.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "0x10"}, None),
        ({"retry-after": "1_0"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_seconds_and_milliseconds(headers: dict[str, str], seconds: float | None) -> None:
    """The date form needs a clock, which this room has not. A huge one is obeyed as far as it means anything, however it is
    written: ignored, the request would be sent again at once."""
    assert FAMILY.decode_fault(429, headers, b"{}").retry_after_s == seconds


def test_the_request_id_is_kept_for_the_providers_support() -> None:
    assert FAMILY.decode_fault(500, {"x-request-id": "req_1"}, b"{}").request_id == "req_1"


def test_a_long_message_is_cut() -> None:
    body = json.dumps({"error": {"message": "x" * 100_000}}).encode()
    assert len(FAMILY.decode_fault(500, {}, body).message) == 2000


UNTOLD = {
    # Our own faults, which no API reports: written as the gateway's 5xx that they are.
    FaultKind.UNREACHABLE,
    FaultKind.DISCONNECTED,
    FaultKind.PROTOCOL,
    FaultKind.TOO_LARGE,
}


@each("kind", [kind for kind in FaultKind if kind not in UNTOLD])
def test_a_fault_comes_back_from_the_error_that_we_write(kind: FaultKind) -> None:
    check_fault_round_trip(FAMILY, Fault(kind=kind, message="it failed"))


@pytest.mark.parametrize("kind", sorted(UNTOLD))
def test_a_fault_on_the_way_is_written_as_a_bad_gateway(kind: FaultKind) -> None:
    status, body = FAMILY.encode_fault(Fault(kind=kind, message="it failed"))
    assert (status, json.loads(body)["error"]["message"]) == (502, "it failed")
