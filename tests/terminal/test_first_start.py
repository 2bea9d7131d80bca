"""Nobody has named a model: what was found is shown, what to do is said, and at a terminal one is chosen and remembered
(issue 15, line 2)."""

import os
from pathlib import Path

import pytest

from terminal.person import CTRL_C, CTRL_D, ENTER, at_terminal
from terminal.running import Cli, running_lab, script
from turnwise.coding_agent.model_names import MOST_OF_A_SERVER, FoundEndpoints, keys_in, server_line
from turnwise.endpoints.local_servers import LocalServer, ServerAnswer, usual_servers
from turnwise.journal.prices import Prices
from turnwise.lab import Lab
from turnwise.settings.catalogue import find_limits, suggested_models
from turnwise.terminal.first_start import ServerModels, greeting, listed_lines, no_model_line
from turnwise.wire.model_lists import OfferedModel
from turnwise.wire.profiles import builtin_profiles

NOW = 1_795_305_600.0  # 2026-11-22
KEY = "sk-test-1234567890abcdef"
HOSTILE_NAME = "q\x1b]0;pwned\x07\u202e"


def port_of(lab: Lab) -> int:
    return int(lab.url.rpartition(":")[2])


def server(name: str) -> LocalServer:
    return next(one for one in usual_servers() if one.profile.name == name)


def lists(name: str, *models: str) -> ServerAnswer:
    return ServerAnswer(
        server=server(name), state="lists", models=tuple([OfferedModel(name=model) for model in models])
    )


def found(*servers: ServerAnswer, env: dict[str, str] | None = None) -> FoundEndpoints:
    return FoundEndpoints(keys=keys_in(env or {}), servers=servers, looked_for=usual_servers())


def test_a_run_without_a_model_says_in_one_line_what_was_found(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key by its name and a server by its port; the exit code is that of wrong use, and nothing is asked or remembered."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("TURNWISE_LOCAL_PORTS", f"ollama={port_of(lab)},vllm=1")
    for way in ((), ("--json",)):
        ran = cli("run", "Hi.", *way)
        assert (ran.code, len(ran.out.splitlines()), len(ran.err.splitlines())) == (2, len(way), 1)
        assert f"no model: found ANTHROPIC_API_KEY, Ollama on port {port_of(lab)}; give -m anthropic:" in ran.err
        assert " or -m ollama:" in ran.err and KEY not in ran.err
    assert lab.count() == 0
    assert not (Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise").exists()


def test_with_nothing_found_the_line_says_what_to_set() -> None:
    line = no_model_line(found())
    assert line.startswith(
        "no model: give --model PROVIDER:NAME (for example openai:gpt-6.1-sol), or set TURNWISE_MODEL; "
    )
    assert "no provider's key is set, and there is no server on the ports of " in line and "`turnwise demo`" in line
    assert "Ollama (11434)" in line and "LM Studio (1234)" in line


def test_an_address_without_a_model_is_not_mixed_with_what_was_found(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key of a provider does not go to another address by a suggestion."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ran = cli("run", "Hi.", "--base-url", f"{lab.url}/v1?key=secret")
    assert ran.code == 2 and "openai:gpt-6.1-sol" not in ran.err
    assert "`turnwise models openai_chat --base-url URL` lists them" in ran.err and "secret" not in ran.err


def test_each_key_is_named_once_by_its_provider_and_never_shown() -> None:
    """Of the profiles that read a variable the plain one; of two variables of a provider one; blank ones are not set."""
    env = {
        "OPENAI_API_KEY": KEY,
        "GEMINI_API_KEY": KEY,
        "GOOGLE_API_KEY": KEY,
        "AZURE_API_KEY": KEY,
        "GROQ_API_KEY": " ",
        "LITELLM_API_KEY": KEY,
    }
    found_keys = {(key.variable, key.profile.name) for key in keys_in(env)}
    assert found_keys == {("OPENAI_API_KEY", "openai"), ("GEMINI_API_KEY", "google"), ("AZURE_API_KEY", "azure")}
    said = "\n".join(greeting(found(env=env)))
    assert KEY not in said and "AZURE_API_KEY is set: " in said and "it needs --base-url" in said


def test_what_is_suggested_is_known() -> None:
    """Each suggested model has limits and a price, and its provider takes a key at an address of its own."""
    for name, (model, *_) in suggested_models().items():
        profile = builtin_profiles()[name]
        assert profile.key_required and profile.base_url is not None and "{" not in profile.base_url
        assert find_limits(model, profile=name) is not None, model
        assert Prices().find(model, profile=name, at_s=NOW) is not None, model


def test_models_of_a_server_are_offered_but_not_all() -> None:
    """Embeddings answer nobody; a long list is cut; a name that hides something is shown spelled out and not offered."""
    names = [f"m{number}" for number in range(MOST_OF_A_SERVER + 2)]
    there = found(lists("ollama", "nomic-embed-text", HOSTILE_NAME, *names), lists("vllm"))
    assert there.options == tuple([f"ollama:{name}" for name in names[:MOST_OF_A_SERVER]])
    said = "\n".join(greeting(there))
    assert "\x1b" not in said and "\u202e" not in said and "<U+202E>" in said
    assert "vLLM on port 8000: it has no model yet" in said and "llama.cpp (8080)" in said


def test_the_numbers_of_a_long_list_stand_below_one_another() -> None:
    names = tuple([f"m{number}" for number in range(12)])
    lines = listed_lines(ServerModels(base_url="http://127.0.0.1:8000/v1", provider="openai_chat", names=names))
    assert lines[1] == "   1  m0" and lines[12] == "  12  m11"


def test_silent_and_locked_servers_are_told() -> None:
    assert server_line(ServerAnswer(server=server("vllm"), state="wants_key")) == (
        "vLLM on port 8000: it wants a key, VLLM_API_KEY"
    )
    assert "does not answer" in server_line(ServerAnswer(server=server("llamacpp"), state="silent"))


def test_with_nothing_found_the_screen_says_what_to_set_and_offers_the_demo() -> None:
    said = "\n".join(greeting(found()))
    assert "no provider's key in the environment" in said and "export ANTHROPIC_API_KEY=" in said
    assert "turnwise -m openai_chat:NAME --base-url URL" in said and "\n  d  `turnwise demo`" in said


def test_a_person_chooses_once_and_is_not_asked_again(folder: Path, tmp_path: Path) -> None:
    """At a terminal: what is wrong is said and asked again, the number is taken, the session begins, and the next one begins at
    once with the same model. The file keeps what stood in it."""
    file = tmp_path / "config" / "turnwise" / "turnwise.toml"
    file.parent.mkdir(parents=True)
    file.write_text("# mine\nmax_steps = 9\n")
    with running_lab([script("aardvark", '[[steps]]\ntext = "Good day."')]) as lab:
        env = {"TURNWISE_LOCAL_PORTS": f"ollama={port_of(lab)}", "GROQ_API_KEY": KEY}
        with at_terminal(cwd=folder, env=env) as person:
            person.sees("GROQ_API_KEY is set: Groq (`groq`)")
            person.sees("\n  1  groq:")
            person.sees("model [1]:")
            person.types("99" + ENTER)
            person.sees("there is no `99`")
            person.types("claude:sonnet" + ENTER)
            person.sees("did you mean `anthropic:`?")
            person.types("ollama:aardvark" + ENTER)
            person.sees("turnwise/turnwise.toml; change it there")
            person.sees("ollama:aardvark in ")
            person.sees("\n>")
            person.types("Hello." + ENTER)
            person.sees("Good day.")
            person.sees("\n>")
            person.types(CTRL_D)
            person.leaves_by(0)
            assert KEY not in person.said and "^[" not in person.said
        assert file.read_text() == 'model = "ollama:aardvark"\n# mine\nmax_steps = 9\n'
        with at_terminal("run", "Hello.", cwd=folder, env=env) as person:
            person.sees("Good day.")
            assert "model [1]" not in person.leaves_by(0)
        assert KEY not in person.said and "^[" not in person.said


def test_an_own_endpoint_is_chosen_and_remembered_with_its_address(folder: Path, tmp_path: Path) -> None:
    """A URL is asked for its models, a number of its list is taken; the next start goes there, too, and says nothing of it."""
    with running_lab([script("aardvark", '[[steps]]\ntext = "Good day."')]) as lab:
        kept = lab.provider.scripts["aardvark"]
        lab.provider.scripts.clear()
        lab.provider.scripts["aardvark"] = kept
        url = f"{lab.url}/v1"
        with at_terminal(cwd=folder) as person:
            person.sees("model:")
            person.types(url + ENTER)
            person.sees(f"{url}: 1 model\n  1  aardvark\n")
            person.sees("model [1]:")
            person.types(ENTER)
            person.sees("openai_chat:aardvark in ")
            person.sees("\n>")
            person.types(CTRL_D)
            person.leaves_by(0)
        file = tmp_path / "config" / "turnwise" / "turnwise.toml"
        assert file.read_text() == f'model = "openai_chat:aardvark"\nbase_url = "{url}"\n'
        with at_terminal("run", "Hello.", cwd=folder) as person:
            person.sees("Good day.")
            person.leaves_by(0)


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("q" + ENTER, 2, "no model was chosen"),
        ("exit" + ENTER, 2, "no model was chosen"),
        (CTRL_D, 2, "no model was chosen"),
        (CTRL_C, 130, ""),
    ],
)
def test_a_person_may_leave_without_choosing(folder: Path, tmp_path: Path, typed: str, code: int, said: str) -> None:
    """`turnwise run` asks at a terminal, too; Enter alone and `?` say what can be typed; nothing is remembered."""
    with at_terminal("run", "Hello.", cwd=folder) as person:
        person.sees("model:")
        person.types(ENTER)
        person.sees("q leaves")
        person.sees("model:")
        person.types("?" + ENTER)
        person.sees("so do exit, quit and Ctrl-D")
        person.sees("model:")
        person.types(typed)
        assert said in person.leaves_by(code)
    assert not (tmp_path / "config").exists()
