"""`turnwise models`: what files, tables and the server know of a provider's models (issue 15, line 2)."""

import json
from pathlib import Path
from typing import Any

import pytest

from terminal.running import Cli, Ran, running_lab
from turnwise.terminal.model_listing import KnownModel, Server, show, write_json
from turnwise.wire.profiles import builtin_profiles

KEY = "sk-test-1234567890abcdef"


def told(ran: Ran) -> dict[str, Any]:
    return json.loads(ran.out)


def rows(ran: Ran) -> dict[str, Any]:
    return {row["model"]: row for row in told(ran)["models"]}


def test_known_models_have_their_limits_prices_and_where_both_are_from(cli: Cli) -> None:
    """Without a key nobody is asked, and that is said beside the list."""
    ran = cli("models", "anthropic:claude-sonnet-4", "--json")
    row = rows(ran)["anthropic:claude-sonnet-4-5"]
    assert (ran.code, row["offered"]) == (0, None)
    assert row["limits"]["context_window_tokens"] == 200_000 and row["limits"]["source"].startswith("turnwise, 20")
    assert row["price"]["tokens"][0]["input"] == "3" and row["price"]["source"].startswith("genai-prices ")
    assert told(ran)["server"]["asked"] is False and "ANTHROPIC_API_KEY" in told(ran)["server"]["why"]
    shown = cli("models", "anthropic:claude-sonnet-4")
    assert "not asked what it offers: `anthropic` wants a key: set `ANTHROPIC_API_KEY`" in shown.err
    (line,) = [line for line in shown.out.splitlines() if line.startswith("anthropic:claude-sonnet-4-5  ")]
    assert line.split()[1:3] == ["200,000", "64,000"] and line.split()[3].startswith("3")


def test_the_users_own_figures_stand_over_the_tables(cli: Cli, folder: Path) -> None:
    """And a model that only their file knows is listed."""
    (folder / "turnwise.toml").write_text('[model_limits."ollama:own"]\nwindow = 4_096\n')
    ran = cli("models", "ollama", "--offline", "--json")
    assert rows(ran)["ollama:own"]["limits"] == {
        "context_window_tokens": 4096,
        "max_input_tokens": None,
        "max_output_tokens": None,
        "max_reasoning_tokens": None,
        "source": "turnwise.toml",
    }


@pytest.mark.parametrize(("family", "base"), [("openai", "/v1"), ("anthropic", ""), ("google", "/v1beta")])
def test_a_server_is_asked_with_the_key(cli: Cli, monkeypatch: pytest.MonkeyPatch, family: str, base: str) -> None:
    """What it offers comes first; what is known besides is marked."""
    monkeypatch.setenv("MY_KEY", KEY)
    with running_lab(key=KEY, strict_paths=True) as lab:
        ran = cli("models", family, "--base-url", lab.url + base, "--api-key-env", "MY_KEY", "--json")
    listed = list(rows(ran).values())
    assert ran.code == 0 and told(ran)["server"]["asked"] and KEY not in ran.out + ran.err
    assert listed[0]["offered"] is True and rows(ran)[f"{family}:plain-answer"]["offered"] is True
    assert listed[-1]["offered"] is False and (listed[-1]["price"] or listed[-1]["limits"])


def test_a_refused_key_is_one_line_and_exit_code_1_beside_what_is_known(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with running_lab(key="another") as lab:
        ran = cli("models", "openai", "--base-url", f"{lab.url}/v1")
    assert ran.code == 1 and KEY not in ran.out + ran.err and "openai:gpt-5 " in ran.out
    (line,) = ran.complaints()
    assert line.startswith("turnwise: `openai` was asked for its models: HTTP 401: ")


def test_a_server_that_is_not_there_is_said(cli: Cli) -> None:
    ran = cli("models", "openai_chat", "--base-url", "http://127.0.0.1:1/v1")
    assert ran.code == 1 and "no connection to `127.0.0.1:1`" in ran.err and "no model is known" in ran.out


def test_a_strangers_names_do_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Spelled out in the table, escaped in JSON."""
    known = [KnownModel(name="a\x1b[2J\u202e\x9b", offered=True, limits=None, limits_from="", price=None)]
    server = Server(url="http://h/\x1b[31m", models=(), why="b\x9b")
    show(builtin_profiles()["ollama"], server=server, known=known, begun="")
    write_json(builtin_profiles()["ollama"], server=server, known=known)
    said = capsys.readouterr().out
    assert "ollama:a<U+001B>[2J<U+202E><U+009B>" in said and not {"\x1b", "\u202e", "\x9b"} & set(said)


def test_without_a_provider_all_are_listed_with_their_keys_names(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    ran = cli("models")
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line}
    assert (ran.code, ran.err) == (0, "") and KEY not in ran.out
    assert "GROQ_API_KEY is set" in lines["groq"] and "set OPENAI_API_KEY" in lines["openai"]
    assert "none needed" in lines["ollama"]
    providers = {row["provider"]: row for row in told(cli("models", "--json"))["providers"]}
    named = ["GROQ_API_KEY"]
    assert providers["groq"]["key"] == {"variables": named, "required": True, "set": named, "stored": False}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["claude"], "did you mean `anthropic:`?"),
        (["--base-url", "http://127.0.0.1:1/v1"], "say whose models: turnwise models openai_chat --base-url URL"),
        (["openai", "--api-key-env", "NO_SUCH"], "the variable `NO_SUCH` is not set"),
        (["openai", "--base-url", "here"], "must begin with http:// or https://"),
    ],
)
def test_wrong_use_is_one_line(cli: Cli, args: list[str], said: str) -> None:
    ran = cli("models", *args)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1) and said in ran.err
