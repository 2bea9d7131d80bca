"""`turnwise doctor` says of each thing that a run needs how it is and what to do; its exit code says whether a run can begin."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from terminal.running import Cli, Ran, at, running_lab
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.settings.catalogue import ModelEnd
from turnwise.settings.user_settings import remember_model
from turnwise.terminal.checks import Check, show_checks
from turnwise.wire.model_lists import OfferedModel

KEY = "sk-test-1234567890abcdef"


def checks(ran: Ran) -> dict[str, dict[str, Any]]:
    told = json.loads(ran.out)
    assert told["ok"] is (ran.code == 0)
    return {check["name"]: check for check in told["checks"]}


def test_all_is_well_where_a_run_can_begin(cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything of the issue is looked at, keys by their names; nothing is written or billed."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    ran = cli("doctor", "--json", *at(lab, "plain-answer"))
    found = checks(ran)
    assert list(found) == [
        "Python", "settings", "keys", "model", "endpoint", "sandbox", "ripgrep", "git", "MCP", "state", "disk",
    ]  # fmt: skip
    assert ran.code == 0 and "stops" not in {check["status"] for check in found.values()}
    assert "OPENAI_API_KEY is set: OpenAI" in found["keys"]["found"] and KEY not in ran.out + ran.err
    assert "answers in " in found["endpoint"]["found"] and "offers the model" in found["endpoint"]["found"]
    assert lab.count() == 0 and not Path(os.environ["TURNWISE_STATE_DIR"]).exists()


def test_without_a_model_it_says_which_to_choose(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    ran = cli("doctor")
    assert ran.code == 1 and "✗ model     none is chosen\n            → for example -m groq:" in ran.out
    assert ran.out.splitlines()[-1] == "1 thing to mend before a run can begin" and ran.err == ""


def test_a_missing_key_stops_a_run(cli: Cli) -> None:
    model = checks(cli("doctor", "-m", "openai:gpt-5", "--json"))["model"]
    assert model["status"] == "stops" and "OPENAI_API_KEY" in model["found"]


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "MY_KEY"])
def test_a_refused_key_stops_a_run_and_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The advice names the variable that the key came from."""
    monkeypatch.setenv(variable, KEY)
    named = ["--api-key-env", variable] if variable == "MY_KEY" else []
    with running_lab(key="another") as lab:
        ran = cli("doctor", "-m", "openai:gpt-5", "--base-url", f"{lab.url}/v1", "--json", *named)
    endpoint = checks(ran)["endpoint"]
    assert endpoint["status"] == "stops" and "HTTP 401" in endpoint["found"] and KEY not in ran.out
    assert endpoint["advice"] == f"put a key that holds into {variable}"


def test_an_endpoint_that_is_not_there_stops_a_run(cli: Cli) -> None:
    endpoint = checks(cli("doctor", "-m", "ollama:x", "--base-url", "http://127.0.0.1:1/v1", "--json"))["endpoint"]
    assert endpoint["status"] == "stops"
    assert endpoint["advice"] == "is the server running? Start it, or correct its address, which is from --base-url"


@pytest.mark.parametrize("where", ["option", "variable", "file"])
def test_a_server_of_this_machine_that_refuses_is_not_sought_in_the_network(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """`check the network and HTTPS_PROXY` was the advice (from a newcomer's trial). It says whose word the address is."""
    url, source = "http://localhost:1/v1", "--base-url"
    if where == "variable":
        source = "TURNWISE_BASE_URL"
        monkeypatch.setenv(source, url)
    if where == "file":
        source = str(remember_model("openai_chat:m", base_url=url, env=os.environ))
    options = ["--base-url", url] if where == "option" else []
    endpoint = checks(cli("doctor", "-m", "openai_chat:m", *options, "--json"))["endpoint"]
    assert endpoint["advice"] == f"is the server running? Start it, or correct its address, which is from {source}"


def test_without_any_key_an_endpoint_that_needs_none_is_well(cli: Cli, lab: Lab) -> None:
    found = checks(cli("doctor", *at(lab, "plain-answer"), "--json"))["keys"]
    assert found["status"] == "ok" and found["found"].endswith("and the model's endpoint needs none")


def test_an_unlisted_model_and_a_missing_version_are_notes(cli: Cli) -> None:
    """Gateways answer to names that they do not list. The path that is missing is named."""
    with running_lab(strict_paths=True) as lab:
        unlisted = checks(cli("doctor", *at(lab, "no-such-model"), "--json"))["endpoint"]
        pathless = checks(cli("doctor", "-m", "openai_chat:x", "--base-url", lab.url, "--json"))["endpoint"]
        path = f"try `{lab.url}/v1`"
        end = cli("doctor", *at(lab, "no-such-model")).out.splitlines()[-1]
    assert end.startswith("a run can begin; ") and end.endswith(" to look at above, marked `!`")
    assert unlisted["status"] == "note" and "without `no-such-model`" in unlisted["found"]
    assert pathless["status"] == "note" and path in pathless["found"] and "correct the base URL" in pathless["advice"]


def test_the_query_of_an_address_is_not_shown(cli: Cli, lab: Lab) -> None:
    """It may hold a key; `turnwise models` leaves it out, too."""
    where = ["--base-url", f"{lab.url}/v1?key=secret"]
    ran, listed = cli("doctor", "-m", "openai_chat:plain-answer", *where), cli("models", "openai_chat", *where)
    assert f"{lab.url}/v1 answers in " in ran.out and listed.code == 0
    gone = cli("doctor", "-m", "openai_chat:x", "--base-url", "http://127.0.0.1:1/v1?key=secret")
    assert gone.code == 1
    assert "secret" not in ran.out + ran.err + listed.out + listed.err + gone.out + gone.err


def test_offline_nothing_is_asked(cli: Cli) -> None:
    ran = cli("doctor", "-m", "ollama:x", "--base-url", "http://127.0.0.1:1/v1", "--offline", "--json")
    assert ran.code == 0 and checks(ran)["endpoint"]["found"].endswith("not asked: --offline")


def test_a_broken_file_of_settings_stops_a_run(cli: Cli, folder: Path) -> None:
    (folder / "turnwise.toml").write_text("modle = 'x:y'\n")
    found = checks(cli("doctor", "--offline", "--json"))["settings"]
    assert found["status"] == "stops" and "did you mean `model`?" in found["found"]


def test_a_model_is_known_though_another_table_is_wrong(cli: Cli, folder: Path, lab: Lab) -> None:
    """A wrong price of the project made it `none is chosen`, though one was remembered (from a newcomer's trial)."""
    remember_model("openai_chat:plain-answer", base_url=f"{lab.url}/v1", env=os.environ)
    (folder / "turnwise.toml").write_text("[prices]\n'openai_chat:*' = {inptu = 1, output = 10}\n")
    found = checks(cli("doctor", "--json"))
    assert found["settings"]["status"] == "stops" and "`inptu` (did you mean `input`?)" in found["settings"]["found"]
    assert found["model"]["found"] == "openai_chat:plain-answer" and found["endpoint"]["status"] == "ok"


def test_a_model_that_cannot_be_read_is_said_to_be_unknown(cli: Cli, folder: Path) -> None:
    remember_model("openai_chat:m", base_url="http://127.0.0.1:1/v1", env=os.environ)
    (folder / "turnwise.toml").write_text("modle = 'x:y'\n")
    model = checks(cli("doctor", "--offline", "--json"))["model"]
    assert model["found"] == "not known, as the settings cannot be read" and "that file" in model["advice"]


def test_missing_programs_are_notes_that_name_them(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that lies in the folder is not one to run."""
    for name in ("rg", "git", "bwrap"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    found = checks(cli("doctor", "--offline", "--json"))
    assert found["ripgrep"]["status"] == found["git"]["status"] == "note"
    assert found["ripgrep"]["advice"].startswith("install ripgrep: ")


def test_a_state_folder_that_cannot_be_is_said(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(tmp_path / "file" / "state"))
    state = checks(cli("doctor", "--offline", "--json"))["state"]
    assert state["status"] == "stops" and "TURNWISE_STATE_DIR" in state["advice"]


def test_a_damaged_journal_stops_a_run(cli: Cli, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "journal.db").write_bytes(b"no database at all" * 100)
    assert checks(cli("doctor", "--offline", "--json"))["state"]["status"] == "stops"


def test_what_was_found_does_not_drive_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A server's words and a folder's name come through; JSON escapes them."""
    hostile = [Check(name="endpoint", status="note", found="a\x1b[2J\nb\u202e", advice="c\x9b")]
    assert show_checks(hostile, as_json=False) == 0 and show_checks(hostile, as_json=True) == 0
    said = capsys.readouterr().out
    assert not {"\x1b", "\u202e", "\x9b"} & set(said) and len(said.splitlines()) == 4


DAYS = [(1_795_824_000.0, "ends"), (1_796_947_200.0, "ended")]  # 2026-11-28, 2026-12-11


@pytest.mark.parametrize(("now_s", "word"), DAYS)
def test_a_model_that_ends_is_noted_with_its_day_and_what_to_use(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, now_s: float, word: str
) -> None:
    """By `doctor` and `models` from our table, and by a server's list where that says it."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(SystemClock, "now", lambda _: now_s)
    model = checks(cli("doctor", "-m", "openai:gpt-5", "--offline", "--json"))["model"]
    assert (model["status"], model["found"]) == ("note", f"openai:gpt-5 {word} on 2026-12-11; use gpt-6.1-sol")
    assert model["advice"] == "choose another with -m; `turnwise models openai` lists them"
    assert checks(cli("doctor", "-m", "openai:gpt-6.1-sol", "--offline", "--json"))["model"]["status"] == "ok"

    listed = cli("models", "openai:gpt-5", "--offline").out.splitlines()
    assert f"openai:gpt-5 {word} on 2026-12-11; use gpt-6.1-sol" in listed
    rows = json.loads(cli("models", "openai:gpt-5", "--offline", "--json").out)["models"]
    assert {"on": "2026-12-11", "use": "gpt-6.1-sol"} in [row["end"] for row in rows] and rows[-1]["end"] is None

    async def offered(_: object) -> tuple[OfferedModel, ...]:
        return (OfferedModel(name="mine", ends="2026-12-11"),)

    monkeypatch.setattr("turnwise.terminal.checks.offered_by", offered)
    monkeypatch.setattr("turnwise.terminal.model_listing.offered_by", offered)
    at_home = ("--base-url", "http://127.0.0.1:1/v1")
    endpoint = checks(cli("doctor", "-m", "openai:mine", *at_home, "--json"))["endpoint"]
    assert endpoint["status"] == "note" and f"by its list the model {word} on 2026-12-11" in endpoint["found"]
    assert f"{word} on 2026-12-11" in cli("models", "openai:mine", *at_home).out


@pytest.mark.parametrize(("now_s", "word"), DAYS)
def test_a_run_and_a_check_begin_with_the_day_on_which_their_model_ends(
    cli: Cli, lab: Lab, monkeypatch: pytest.MonkeyPatch, now_s: float, word: str
) -> None:
    """One line, once a run; the lab stands at another address than the makers', so it says nothing there by itself."""
    assert "2026-12-11" not in cli("run", "Hi.", *at(lab, "plain-answer")).err
    end = ModelEnd(on="2026-12-11", use="better")
    monkeypatch.setattr("turnwise.coding_agent.choice.find_end", lambda _, **__: end)
    monkeypatch.setattr(SystemClock, "now", lambda _: now_s)
    said = f"openai_chat:plain-answer {word} on 2026-12-11; use better"
    assert cli("run", "Hi.", *at(lab, "plain-answer")).err.count(said) == 1
    checked = cli("check", "openai_chat:plain-answer", *at(lab, "plain-answer")[2:], "--only", "body", "--yes")
    assert checked.err.count(said) == 1


SHOP = """
from turnwise import Agent, Subagents, tool

@tool(effect="write")
def pay(cents: int) -> str:
    "Pay."
    return "paid"

@tool(effect="write", idempotent=True)
def store(text: str) -> str:
    "Store."
    return "stored"

@tool(effect="execute", reconcile=lambda text: None)
def send(text: str) -> str:
    "Send."
    return "sent"

clerk = Agent("ollama:x", tools=[pay])
seller = Agent("ollama:x", tools=[store, send, Subagents({"clerk": clerk})])
careful = Agent("ollama:x", tools=[store, send])
"""


@pytest.mark.promise("keep:crash")
def test_tools_that_nobody_can_judge_after_a_crash_are_listed(cli: Cli, tmp_path: Path) -> None:
    """Proves: of an agent and its sub-agents, those that act and have neither `idempotent` nor `reconcile`."""
    Path("shop_of_doctor.py").write_text(SHOP)  # the folder of the test
    ran = cli(
        *("doctor", "--offline", "--json", "--agent", "seller=shop_of_doctor:seller"),
        *("--agent", "careful=shop_of_doctor:careful"),
    )
    told = checks(ran)
    assert (told["agent seller"]["status"], told["agent careful"]["status"]) == ("note", "ok")
    assert (
        told["agent seller"]["found"].endswith("have run: pay")
        and "`@tool(reconcile=...)`" in told["agent seller"]["advice"]
    )
    wrong = cli("doctor", "--agent", "shop")
    assert wrong.code == 2 and "`--agent` is `NAME=PACKAGE.MODULE:AGENT`" in wrong.err
