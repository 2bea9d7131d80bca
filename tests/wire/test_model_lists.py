"""The list of an endpoint's models is read in every family's form, and a stranger's list does no harm."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.wire.model_lists import MOST_MODELS, MOST_NAME, OfferedModel, list_call, read_model_list
from turnwise.wire.profiles import builtin_profiles

PROFILES = builtin_profiles()


@each(
    ("body", "model"),
    [
        (b'{"object":"list","data":[{"id":"gpt-5","object":"model"}]}', OfferedModel(name="gpt-5")),
        (b'{"data":[{"id":"q","max_model_len":32768}]}', OfferedModel(name="q", window=32768)),
        (
            b'{"data":[{"id":"l","context_window":131072,"max_completion_tokens":32768}]}',
            OfferedModel(name="l", window=131072, output=32768),
        ),
        (b'[{"id":"bare","context_length":4096}]', OfferedModel(name="bare", window=4096)),
        (
            b' {"models":[{"name":"models/gemini-2.5-pro","inputTokenLimit":1048576,"outputTokenLimit":65536}]}',
            OfferedModel(name="gemini-2.5-pro", input=1048576, output=65536),
        ),
        (
            b'{"data":[{"type":"model","id":"claude-x","max_input_tokens":200000,"max_tokens":64000}],"has_more":false}',
            OfferedModel(name="claude-x", input=200000, output=64000),
        ),
        (b'{"data":[{"id":"o","shutdown_date":"2026-12-11"}]}', OfferedModel(name="o", ends="2026-12-11")),
        (b'{"data":[{"id":"c","retires_at":"2026-11-30T00:00:00Z"}]}', OfferedModel(name="c", ends="2026-11-30")),
        (b'{"data":[{"id":"r","expiration_date":"2026-12-31"}]}', OfferedModel(name="r", ends="2026-12-31")),
    ],
    ids=[
        "OpenAI",
        "vLLM",
        "Groq",
        "Together",
        "Gemini",
        "Anthropic",
        "OpenAI ends",
        "Anthropic ends",
        "OpenRouter ends",
    ],
)
def test_a_list_is_read_in_each_form(body: bytes, model: OfferedModel) -> None:
    """As the APIs' references show it; OpenRouter's `context_length` is Together's."""
    assert read_model_list(body) == (model,)


def test_what_is_no_model_is_passed_over() -> None:
    """Entries without a name, with one of the wrong type or length, and the same one again; figures that are none."""
    entries = [
        {"id": 5},
        "text",
        None,
        {"id": ""},
        {"id": "x" * (MOST_NAME + 1)},
        {"id": "good", "context_length": "many", "max_model_len": -1, "max_tokens": 10**30},
        {"id": "good"},
        {"id": "other", "context_length": True, "shutdown_date": "soon\x1b[31m", "retires_at": 5},
    ]
    found = read_model_list(msgspec.json.encode({"data": entries}))
    assert found == (OfferedModel(name="good"), OfferedModel(name="other"))


def test_a_list_without_end_is_cut() -> None:
    entries = [{"id": f"m{number}"} for number in range(MOST_MODELS + 5)]
    assert len(read_model_list(msgspec.json.encode(entries))) == MOST_MODELS


@each("body", [b"", b"<html>", b"{}", b'{"data":{}}', b'{"data":null}', b"[" * 100_000, b"\xff\xfe", b'"models"'])
def test_what_is_no_list_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="no list of models"):
        read_model_list(body)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: b'{"data":[' + text.encode() + b"]}"))
def test_nothing_else_is_raised(body: bytes) -> None:
    """Property: whatever comes, it is a list or a ValueError."""
    try:
        read_model_list(body)
    except ValueError as error:
        assert str(error) == "no list of models"


def test_each_family_is_asked_at_its_path() -> None:
    """Source: the APIs' references. Bedrock and Vertex AI have the model in the path and no list there."""
    asked = {name: call.path for name in PROFILES if (call := list_call(PROFILES[name])) is not None}
    assert asked["openai"] == asked["ollama"] == "/models"
    assert (asked["anthropic"], asked["google"]) == ("/v1/models?limit=1000", "/models?pageSize=1000")
    assert list_call(PROFILES["bedrock-anthropic"]) is None and list_call(PROFILES["vertex-anthropic"]) is None
    call = list_call(PROFILES["anthropic"])
    assert call is not None and dict(call.headers) == {"anthropic-version": "2023-06-01"}
