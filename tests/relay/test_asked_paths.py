"""Which endpoint of the gateway a client's path asks for."""

from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.relay.client_request import asked_path
from turnwise.wire.relay_facts import AskedPath

FOUND = {
    ("POST", "/v1/chat/completions"): AskedPath(family="openai_chat", kind="generate"),
    ("POST", "/v1/responses"): AskedPath(family="openai_responses", kind="generate"),
    ("POST", "/v1/messages"): AskedPath(family="anthropic_messages", kind="generate"),
    ("POST", "/v1/messages/count_tokens"): AskedPath(family="anthropic_messages", kind="count"),
    ("GET", "/v1/models"): AskedPath(family="openai_chat", kind="models"),
    ("GET", "/v1beta/models"): AskedPath(family="gemini", kind="models"),
    ("GET", "/v1/models/qwen/qwen3:8b"): AskedPath(family="openai_chat", kind="models", model="qwen/qwen3:8b"),
    ("GET", "/v1/models/qwen%2Fqwen3"): AskedPath(family="openai_chat", kind="models", model="qwen/qwen3"),
    ("GET", "/v1beta/models/gemini-2.5-pro"): AskedPath(family="gemini", kind="models", model="gemini-2.5-pro"),
    ("POST", "/v1/responses/input_tokens"): AskedPath(family="openai_responses", kind="count"),
    ("POST", "/v1beta/models/gemini-embedding-001:batchEmbedContents"): AskedPath(
        family="gemini", kind="embed", model="gemini-embedding-001"
    ),
    ("POST", "/v1beta/models/gemini-2.5-pro:generateContent"): AskedPath(
        family="gemini", kind="generate", model="gemini-2.5-pro"
    ),
    ("POST", "/v1/models/gemini-2.5-pro:generateContent"): AskedPath(
        family="gemini", kind="generate", model="gemini-2.5-pro"
    ),
    ("POST", "/v1beta/models/gemini-2.5-pro:streamGenerateContent"): AskedPath(
        family="gemini", kind="generate", model="gemini-2.5-pro", streams=True
    ),
    ("POST", "/v1beta/models/gemini-2.5-pro:countTokens"): AskedPath(
        family="gemini", kind="count", model="gemini-2.5-pro"
    ),
    ("POST", "/v1beta/models/qwen3:8b:generateContent"): AskedPath(family="gemini", kind="generate", model="qwen3:8b"),
    ("POST", "/v1beta/models/qwen%2Fqwen3%3A8b:generateContent"): AskedPath(
        family="gemini", kind="generate", model="qwen/qwen3:8b"
    ),
    ("POST", "/v1beta/models/qwen/qwen3:generateContent"): AskedPath(
        family="gemini", kind="generate", model="qwen/qwen3"
    ),
    ("POST", "/v1beta/models/mod%C3%A8le:generateContent"): AskedPath(family="gemini", kind="generate", model="modèle"),
}

NOT_FOUND = (
    ("GET", "/v1/chat/completions"),
    ("post", "/v1/chat/completions"),
    ("POST", "/chat/completions"),
    ("POST", "/v1/v1/chat/completions"),
    ("POST", "/v1/v1beta/models/m:generateContent"),
    ("POST", "/v1//chat/completions"),
    ("POST", "//v1/chat/completions"),
    ("POST", "/v1/chat/completions/"),
    ("POST", "/v1/chat/completions?key=1"),
    ("POST", "/v1/chat/completions\n"),
    ("POST", "/v1/chat/completions/chatcmpl-1"),
    ("POST", "/v1/chat/../chat/completions"),
    ("POST", "/v1/chat%2Fcompletions"),
    ("GET", "/v1/responses/resp_1"),
    ("POST", "/v1/responses/resp_1/cancel"),
    ("POST", "/v1/files"),
    ("POST", "/v1/models"),
    ("GET", "/v1beta/models/gemini-2.5-pro:generateContent"),
    ("GET", "/v1/models/"),
    ("GET", "/v1/models/../models"),
    ("GET", "/v1/x/models/m"),
    ("POST", "/v1beta/models/:generateContent"),
    ("POST", "/v1beta/models/gemini-2.5-pro:batchGenerateContent"),
    ("POST", "/v1beta/models/..:generateContent"),
    ("POST", "/v1beta/models/%2e%2e/x:generateContent"),
    ("POST", "/v1beta/models/a/../b:generateContent"),
    ("POST", "/v1beta/models/a//b:generateContent"),
    ("POST", "/v1beta/models/a%2F:generateContent"),
    ("POST", "/v1beta/models/a%00b:generateContent"),
    ("POST", "/v1beta/models/a%0d%0ab:generateContent"),
    ("POST", "/v1beta/models/%ff:generateContent"),
    ("POST", "/v1beta/models/a?b:generateContent"),
    ("POST", f"/v1beta/models/{'a' * 257}:generateContent"),
    ("POST", "/v1beta/models/a:generateContent\n"),
)


@each(("method", "path"), FOUND)
def test_the_path_of_an_endpoint_says_family_kind_model_and_stream(method: str, path: str) -> None:
    """Each endpoint of the gateway is found at its API's own path, and what the path says is read."""
    assert asked_path(method, path) == FOUND[method, path]


@each(("method", "path"), NOT_FOUND)
def test_no_other_path_and_no_other_spelling_is_an_endpoint(method: str, path: str) -> None:
    """Stored objects, doubled versions, empty segments, dots, control characters and encoded slashes lead nowhere."""
    assert asked_path(method, path) is None


def test_models_are_listed_as_the_client_of_the_family_reads_them() -> None:
    """OpenAI and Anthropic list their models at one path; the header that Anthropic's clients alone send tells them apart."""
    found = asked_path("GET", "/v1/models", header_names={"anthropic-version", "accept"})
    assert found == AskedPath(family="anthropic_messages", kind="models")
    found = asked_path("GET", "/v1/models/claude", header_names={"anthropic-version"})
    assert found == AskedPath(family="anthropic_messages", kind="models", model="claude")


@given(st.sampled_from(["GET", "POST", "PUT"]), st.text(max_size=80))
def test_any_path_is_answered_without_an_error(method: str, rest: str) -> None:
    """A path can hold anything; what is found names a model that leads to no other path."""
    for path in (rest, "/v1/" + rest, f"/v1beta/models/{rest}:generateContent"):
        found = asked_path(method, path)
        if found is not None and found.model is not None:
            assert found.model.isprintable()
            assert not {"", ".", ".."} & set(found.model.split("/"))
