"""What may be typed where a model is asked for: a model, an address, both, or a line that was pasted."""

from pathlib import Path

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from terminal.running import running_lab
from turnwise.coding_agent.choice import Choice
from turnwise.coding_agent.options import given_over
from turnwise.errors import CallerError
from turnwise.settings.settings import RunSettings
from turnwise.settings.user_settings import remember_model
from turnwise.terminal.first_start import (
    MOST_LISTED,
    ServerModels,
    at_listed,
    check,
    check_address,
    keeping_line,
    list_at,
    listed_lines,
    provider_at,
    read_typed,
    unlisted,
)
from turnwise.terminal.run import chat_command as chat

URL = "http://127.0.0.1:18321/v1"
KEY = "sk-test-1234567890abcdef"
PARAMS = chat.make_context("turnwise", [], help_option_names=["-h", "--help"]).params
NOTHING = given_over({"settings": RunSettings()}, PARAMS)  # pyright: ignore[reportArgumentType]
LISTED = ServerModels(base_url=URL, provider="openai_chat", names=("m", "mistral:7b"))


def typed(text: str) -> tuple[str | None, str | None]:
    given = read_typed(text, given=NOTHING)
    return given["model"], given["base_url"]


@pytest.mark.parametrize(
    "text",
    [
        f"openai_chat:m --base-url {URL}",
        f"m --base-url {URL}",
        f"{URL} -m m",
        f"--base-url={URL} -m openai_chat:m",
        f"turnwise -m openai_chat:m --base-url {URL}",
        f"$ .venv/bin/turnwise chat -m 'openai_chat:m' --base-url \"{URL}\"",
    ],
)
def test_model_and_address_are_taken_in_every_way_that_people_write_them(text: str) -> None:
    """The last but one is the line that the screen itself suggests."""
    assert typed(text) == ("openai_chat:m", URL)


def test_a_url_alone_is_an_address_and_a_name_alone_a_model() -> None:
    assert typed(URL) == (None, URL) == typed(f"turnwise --base-url {URL}")
    assert typed("ollama:qwen3:8b") == ("ollama:qwen3:8b", None) == typed("turnwise -m ollama:qwen3:8b")


def test_other_options_of_a_pasted_line_hold_too() -> None:
    given = read_typed(f"turnwise -m openai_chat:m --base-url {URL} --api-key-env X --max-steps 3", given=NOTHING)
    assert (given["api_key_env"], given["settings"].max_steps, given["model"]) == ("X", 3, "openai_chat:m")
    assert NOTHING["settings"] == RunSettings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("turnwise doctor", "`turnwise doctor` is for the shell: leave with q"),
        (f"export OPENAI_API_KEY={KEY}", "leave with q, set it, and start turnwise again"),
        (f"OPENAI_API_KEY={KEY} turnwise", "leave with q, set it, and start turnwise again"),
        ("turnwise", "it names no model: type PROVIDER:NAME, or the URL of a server"),
        ("'openai:gpt-5", "a quote in it is not closed"),
        ("openai:gpt-5 --bogus", "--bogus"),
    ],
)
def test_what_is_no_choice_is_said_with_what_to_do_and_without_a_key(text: str, said: str) -> None:
    with pytest.raises(CallerError) as raised:
        typed(text)
    assert said in str(raised.value) and KEY not in str(raised.value)


@drawn(text=st.text(max_size=40))
def test_whatever_is_typed_is_a_choice_or_an_error_of_ours(text: str) -> None:
    """Property: nothing else leaves the prompt."""
    try:
        model, base_url = typed(text)
    except CallerError:
        return
    assert model or base_url


def test_a_missing_key_and_a_missing_address_say_what_to_do_at_this_prompt() -> None:
    """Not that an option is to be given: there is no command line here."""
    with pytest.raises(CallerError) as raised:
        check(read_typed("openai:gpt-5", given=NOTHING), env={})
    assert str(raised.value).startswith(
        "`openai` wants a key: paste it here, or leave with q, set `OPENAI_API_KEY`, and start again; or name its variable: "
    )
    with pytest.raises(CallerError, match="type the address, too: `openai_chat:NAME --base-url URL`"):
        check(read_typed("openai_chat:m", given=NOTHING), env={})
    check(read_typed(f"openai_chat:m --base-url {URL}", given=NOTHING), env={})


def test_a_name_is_one_of_the_servers_that_was_asked() -> None:
    """What it lists goes before a provider of that name; another provider's model does not go to that server."""

    def taken(text: str) -> tuple[str | None, str | None]:
        given = at_listed(read_typed(text, given=NOTHING), listed=LISTED)
        return given["model"], given["base_url"]

    assert taken("m") == ("openai_chat:m", URL)
    assert taken("unlisted") == ("openai_chat:unlisted", URL)
    assert taken("mistral:7b") == ("openai_chat:mistral:7b", URL)
    assert taken("mistral:mistral-large-latest") == ("mistral:mistral-large-latest", None)
    assert taken("m --base-url http://h/v1") == ("openai_chat:m", "http://h/v1")


def test_a_providers_own_address_is_that_provider_and_no_other_gets_a_key() -> None:
    """The usual family reads no variable: what is typed as a URL is asked without any key of the environment."""
    assert provider_at("https://api.openai.com/v1/").name == "openai"
    assert provider_at("http://localhost:11434/v1").name == "ollama"
    assert provider_at(URL).name == "openai_chat" and provider_at(URL).api_key_env == ()


def test_a_server_is_asked_for_its_models_also_where_v1_is_missing() -> None:
    with running_lab(strict_paths=True) as lab:
        for url in (f"{lab.url}/v1", lab.url, f"{lab.url}/"):
            listed = list_at(url, api_key_env=None, env={"OPENAI_API_KEY": KEY})
            assert listed.base_url == f"{lab.url}/v1" and "plain-answer" in listed.names and listed.why == ""


def test_a_server_without_a_list_is_told_and_a_name_is_asked_for() -> None:
    listed = list_at("http://127.0.0.1:1/v1", api_key_env=None, env={})
    assert listed.names == () and "Connection refused" in listed.why
    assert listed_lines(listed)[1].startswith("type the name of a model there")
    with running_lab(key=KEY) as lab:
        listed = list_at(f"{lab.url}/v1", api_key_env=None, env={})
        assert listed.wants_key and "`URL --api-key-env NAME`" in listed.why_said
        assert list_at(f"{lab.url}/v1", api_key_env="MINE", env={"MINE": KEY}).names
    with pytest.raises(CallerError, match="is no base URL"):
        list_at("http://", api_key_env=None, env={})


def test_a_long_list_is_cut_and_can_be_typed() -> None:
    listed = ServerModels(base_url=URL, provider="openai_chat", names=tuple([f"m{n}" for n in range(MOST_LISTED + 3)]))
    lines = listed_lines(listed)
    assert lines[0] == f"{URL}: {MOST_LISTED + 3} models" and lines[-1] == "  and 3 more: type a name, Tab completes it"
    assert lines[MOST_LISTED] == f"  {MOST_LISTED}  m{MOST_LISTED - 1}"


def test_how_to_keep_a_model_is_said_only_where_none_is_kept(tmp_path: Path) -> None:
    """And the lines are those that turnwise itself writes."""
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    choice = Choice(model="openai_chat:m", base_url=URL)
    said = keeping_line(choice, settings=RunSettings(), env=env)
    for line in remember_model("openai_chat:m", base_url=URL, env=env).read_text().splitlines():
        assert f"`{line}`" in said
    assert said.endswith(str(tmp_path / "turnwise" / "turnwise.toml"))
    assert keeping_line(choice, settings=RunSettings(model="a:b"), env=env) == ""
    assert keeping_line(choice, settings=RunSettings(), env={**env, "TURNWISE_MODEL": "a:b"}) == ""
    assert keeping_line(Choice(model="a:b", base_url=f"{URL}?key=x"), settings=RunSettings(), env=env) == ""


def test_a_name_that_the_list_does_not_have_is_doubted_once() -> None:
    """A typo was remembered, and each later start failed (from a newcomer's trial). Another provider's model is none of it."""
    listed = ServerModels(base_url=URL, provider="openai_chat", names=("read-edit-answer", "m"))

    def said(text: str) -> str:
        return unlisted(at_listed(read_typed(text, given=NOTHING), listed=listed), listed=listed)

    assert said("read-edit-anser").startswith("`read-edit-anser` is not in its list: did you mean `read-edit-answer`?")
    assert said("openai_chat:xyz") == "`xyz` is not in its list"
    assert said("m") == said("openai_chat:m") == said("ollama:qwen3:8b") == said("n --base-url http://h/v1") == ""


@pytest.mark.parametrize("text", ["127.0.0.1:18733", "localhost:18733/v1", "gpu.local:8000", "[::1]:8000"])
def test_an_address_without_http_is_told_how_to_be_typed(text: str) -> None:
    """Forty names of providers were the answer (from a newcomer's trial)."""
    with pytest.raises(CallerError, match=r"type `http://"):
        read_typed(text, given=NOTHING)


def test_an_address_beside_a_model_is_tried_before_it_is_remembered() -> None:
    """Without `/v1` it was remembered as it stood, and each later start failed (from a newcomer's trial)."""

    def tried(text: str) -> tuple[str | None, str]:
        there, doubt = check_address(read_typed(text, given=NOTHING), env={})
        return there["base_url"], doubt

    with running_lab(strict_paths=True) as lab:
        assert tried(f"plain-answer --base-url {lab.url}") == (f"{lab.url}/v1", "")
        assert tried(f"plain-answer --base-url {lab.url}/v1/") == (f"{lab.url}/v1", "")
        assert tried(f"anthropic_messages:plain-answer --base-url {lab.url}") == (lab.url, "")
        there, doubt = tried(f"plain-anser --base-url {lab.url}")
        assert there == f"{lab.url}/v1" and doubt == "`plain-anser` is not in its list: did you mean `plain-answer`?"
        there, doubt = tried(f"plain-answer --base-url {lab.url}/v2")
        assert there == f"{lab.url}/v2" and doubt.startswith(f"{lab.url}/v2: HTTP 404")
    there, doubt = tried("m --base-url http://127.0.0.1:1")
    assert there == "http://127.0.0.1:1" and "Connection refused" in doubt
    with pytest.raises(CallerError, match="wants a key"):
        tried("openai:gpt-5 --base-url http://127.0.0.1:1")
