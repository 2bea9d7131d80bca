"""The version of the API stands once in an address, whoever wrote the base URL."""

import pytest

from turnwise.vocab import Message, Request, Text
from turnwise.wire.addresses import path_below
from turnwise.wire.profiles import FamilyName, builtin_profiles
from turnwise.wire.registry import family

REQUEST = Request(model="m", messages=(Message("user", (Text("hi"),)),), stream=False)
GOOGLE = "https://generativelanguage.googleapis.com"
VERTEX = "https://x-aiplatform.googleapis.com/v1/projects/p/locations/x/publishers/google"


@pytest.mark.parametrize(
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
    assert path_below(base, call.path, family=name) == path
