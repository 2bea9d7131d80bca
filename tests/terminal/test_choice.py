"""Which model a run takes, and where: an address that is remembered beside a model goes with that model alone."""

import pytest

from turnwise.coding_agent.choice import Choice, choose
from turnwise.errors import UnknownModel
from turnwise.settings.settings import RunSettings

KEY = "sk-test-1234567890abcdef"
THERE = "http://127.0.0.1:18321/v1"
REMEMBERED = RunSettings(model="openai_chat:m", base_url=THERE)


def chosen(given: str | None = None, *, base_url: str | None = None, **env: str) -> Choice:
    keys = {"OPENAI_API_KEY": KEY, "VLLM_API_KEY": KEY}
    return choose(given, base_url=base_url, api_key_env=None, last=None, env={**keys, **env}, settings=REMEMBERED)


def test_the_remembered_address_is_used_with_the_remembered_model() -> None:
    """However the model is named; the command line and the environment say another address over it."""
    assert chosen() == Choice(model="openai_chat:m", base_url=THERE)
    assert chosen("openai_chat:m") == chosen(TURNWISE_MODEL="openai_chat:m") == chosen()
    assert chosen(base_url="http://h/v1").base_url == "http://h/v1"
    assert chosen(TURNWISE_BASE_URL="http://h/v1").base_url == "http://h/v1"


def test_another_model_of_the_same_family_is_asked_for_at_the_remembered_address() -> None:
    """The family has no address and no key of its own, so nothing else can be meant (from a newcomer's trial)."""
    assert chosen("openai_chat:other") == Choice(model="openai_chat:other", base_url=THERE)
    assert chosen("openai_chat:other", base_url="http://h/v1").base_url == "http://h/v1"


@pytest.mark.parametrize("other", ["openai:gpt-5", "vllm:m", "openai:m"])
def test_no_other_model_and_no_other_key_goes_to_the_remembered_address(other: str) -> None:
    assert chosen(other) == Choice(model=other) == chosen(TURNWISE_MODEL=other)


@pytest.mark.parametrize(
    ("given", "base_url", "said"),
    [
        (
            "read-edit-answer",
            None,
            "`read-edit-answer` names no provider: did you mean `openai_chat:read-edit-answer` at the endpoint of your usual "
            "model `openai_chat:m`?",
        ),
        (
            "gpt-5",
            None,
            "`gpt-5` names no provider: did you mean `openai:gpt-5`, or `openai_chat:gpt-5` at the endpoint of your usual "
            "model `openai_chat:m`?",
        ),
        ("m2", "http://h/v1?key=x", "`m2` names no provider: did you mean `openai_chat:m2` at the given address?"),
    ],
)
def test_a_name_alone_is_suggested_with_the_usual_provider(given: str, base_url: str | None, said: str) -> None:
    """Only `openai:gpt-5` and `ollama:qwen3:8b` were named, which were not meant (from a newcomer's trial)."""
    with pytest.raises(UnknownModel) as raised:
        chosen(given, base_url=base_url)
    assert str(raised.value) == said


def test_a_name_alone_has_no_suggestion_where_nothing_is_usual() -> None:
    with pytest.raises(UnknownModel, match="write PROVIDER:NAME"):
        choose("m", base_url=None, api_key_env=None, last=None, env={}, settings=RunSettings())
    with pytest.raises(UnknownModel, match="write PROVIDER:NAME"):
        choose(None, base_url=None, api_key_env=None, last=None, env={"TURNWISE_MODEL": "m"}, settings=RunSettings())
