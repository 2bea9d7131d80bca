"""The rows of `profiles.toml`: every one well formed, told where from, and with what a run needs."""

import re
from importlib import resources

import msgspec
import pytest

from tables import each
from turnwise.vocab import Message, Request, Settings, Text
from turnwise.wire import family as registry
from turnwise.wire.profiles import Profile, builtin_profiles, parse_profiles

TOML = resources.files("turnwise.wire").joinpath("profiles.toml").read_text(encoding="utf-8")
PLAIN = set(registry.MODULES)
ROWS = sorted(builtin_profiles().values(), key=lambda profile: profile.name)

# What issue 2 asks for by name.
ASKED = """openai azure openrouter chutes groq mistral deepseek xai together fireworks cerebras perplexity ollama vllm llamacpp
lmstudio huggingface moonshot zai alibaba anthropic bedrock-anthropic vertex-anthropic gemini vertex-gemini""".split()


def test_every_endpoint_that_was_asked_for_has_a_row() -> None:
    assert [name for name in ASKED if name not in builtin_profiles()] == []
    assert builtin_profiles().keys() >= PLAIN


def test_openai_is_the_responses_api_and_chat_completions_has_a_name_of_its_own() -> None:
    """OpenAI recommends Responses; the choice is told at the top of profiles.toml."""
    known = builtin_profiles()
    assert (known["openai"].family, known["openai-chat"].family) == ("openai_responses", "openai_chat")


@each("profile", ROWS, ids=lambda profile: profile.name)
def test_a_row_has_what_a_run_needs(profile: Profile) -> None:
    """An address (but for the plain rows), a variable for the key, a title, and a body that is a JSON object."""
    assert re.fullmatch(r"[a-z][a-z0-9_-]*", profile.name), "what a user types before the colon"
    assert profile.title
    assert profile.family in registry.MODULES
    if profile.base_url is not None:
        assert re.match(r"https://|http://localhost[:/]", profile.base_url), "a key never travels in the clear"
        assert not profile.base_url.endswith("/")
    else:
        assert profile.name in PLAIN
    assert profile.api_key_env or not profile.key_required
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]*", name) for name in profile.api_key_env)
    assert profile.path is None or profile.path.startswith("/")
    assert profile.stream_path is None or profile.stream_path.startswith("/")
    assert not profile.body or isinstance(msgspec.json.decode(profile.body), dict)
    assert profile.model_in_body or "{model}" in (profile.path or "")


@each("profile", [row for row in ROWS if row.family == "openai_chat"], ids=lambda row: row.name)
def test_a_chat_row_encodes_what_its_words_say(profile: Profile) -> None:
    """`reasoning_request` and the other words are ones that the encoder knows: effort reaches the body where there is one."""
    request = Request(
        model="m",
        messages=(Message("user", (Text("hi"),)),),
        system=(Text("be kind"),),
        settings=Settings(max_output_tokens=7, seed=1, reasoning_effort="high"),
    )
    body = msgspec.json.decode(registry.family("openai_chat").encode_request(request, profile).body)
    assert body[profile.max_tokens_field] == 7
    assert body[profile.seed_field] == 1
    assert body["messages"][0] == {"role": profile.system_role, "content": "be kind"}
    asked = set(body) & {"reasoning_effort", "reasoning", "thinking", "enable_thinking", "chat_template_kwargs"}
    assert bool(asked) == (profile.reasoning_request is not None)


def test_every_row_says_where_it_is_from() -> None:
    """A comment with its source stands right above each table."""
    lines = TOML.splitlines()
    untold: list[str] = []
    for i, line in enumerate(lines):
        if line.startswith("["):
            above = i
            while above and lines[above - 1].startswith("#"):
                above -= 1
            if "# Source:" not in "\n".join(lines[above:i]):
                untold.append(line)
    assert untold == []


def test_an_unknown_field_is_refused_by_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="colour"):
        parse_profiles('[mine]\nfamily = "openai_chat"\ncolour = "red"\n')


def test_an_unknown_family_is_refused_by_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="cobol"):
        parse_profiles('[mine]\nfamily = "cobol"\n')
