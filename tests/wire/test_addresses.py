"""The version of the API stands once in an address, whoever wrote the base URL."""

from tables import each
from turnwise.vocab import Message, Request, Text
from turnwise.wire.family import family, path_below
from turnwise.wire.profiles import FamilyName, builtin_profiles

REQUEST = Request(model="m", messages=(Message("user", (Text("hi"),)),), stream=False)
GOOGLE = "https://generativelanguage.googleapis.com"
VERTEX = "https://x-aiplatform.googleapis.com/v1/projects/p/locations/x/publishers/google"


@each(
    ("name", "base", "path"),
    [
        ("anthropic_messages", "https://api.anthropic.com", "/v1/messages"),
        ("anthropic_messages", "https://api.anthropic.com/v1", "/messages"),
        ("anthropic_messages", "https://api.anthropic.com/v1/", "/messages"),
        ("anthropic_messages", "https://gateway.example/anthropic", "/v1/messages"),
        ("anthropic_messages", "https://gateway.example/v1/anthropic", "/v1/messages"),
        ("gemini", GOOGLE, "/v1beta/models/m:generateContent"),
        ("gemini", f"{GOOGLE}/", "/v1beta/models/m:generateContent"),
        ("gemini", f"{GOOGLE}/v1beta", "/models/m:generateContent"),
        ("gemini", f"{GOOGLE}/v1", "/models/m:generateContent"),
        ("gemini", f"{GOOGLE}/v1alpha?key=x", "/models/m:generateContent"),
        ("gemini", VERTEX, "/models/m:generateContent"),
        ("openai_chat", "https://api.deepseek.com", "/chat/completions"),
        ("openai_responses", "https://api.openai.com/v1", "/responses"),
    ],
)
def test_the_version_stands_once(name: FamilyName, base: str, path: str) -> None:
    call = family(name).encode_request(REQUEST, builtin_profiles()[name])
    assert path_below(base, call.path, family=family(name)) == path


@each(
    ("name", "base", "path", "below"),
    [
        ("openai_chat", "https://api.openai.com/v1", "/v1/embeddings", "/embeddings"),
        ("openai_responses", "https://api.openai.com/v1/", "/v1/embeddings", "/embeddings"),
        ("openai_chat", "https://host.example/api/paas/v4", "/v1/rerank", "/rerank"),
        ("openai_chat", "https://host.example", "/v1/embeddings", "/v1/embeddings"),
        ("openai_chat", "https://host.example/v1/openai", "/v1/embeddings", "/v1/embeddings"),
        ("gemini", f"{GOOGLE}/v1beta", "/v1beta/models/m:embedContent", "/models/m:embedContent"),
        ("gemini", GOOGLE, "/v1beta/models/m:embedContent", "/v1beta/models/m:embedContent"),
        ("anthropic_messages", "https://host.example/v1", "/v1/other", "/other"),
    ],
)
def test_the_version_of_a_path_that_a_client_wrote_stands_once(
    name: FamilyName, base: str, path: str, below: str
) -> None:
    """Proves: a passed path goes where the base URL's own calls go."""
    assert path_below(base, path, family=family(name)) == below
