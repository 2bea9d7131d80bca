"""`turnwise compare`: what each model took, side by side, against the lab."""

import csv
import io
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from terminal.running import WAIT_S, Cli, at, begin, end
from terminal.test_processes import wait_until
from turnwise.lab import Lab
from turnwise.terminal.compare import read_plans

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
PRICES = "[prices]\n'plain-answer' = { input = 3, output = 15 }\n'never-stops' = { request = 0.01 }\n"


def against(lab: Lab, *scripts: str, family: str = "openai_chat") -> list[str]:
    (_, model, base, url) = at(lab, "", family=family)
    return [*[word for script in scripts for word in ("-m", f"{model}{script}")], base, url]


def runs_of(out: str) -> list[dict[str, Any]]:
    return json.loads(out)["runs"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["streamed", "whole"])
@pytest.mark.promise("bill:wire")
def test_each_model_is_told_with_what_the_lab_received(
    cli: Cli, lab: Lab, folder: Path, family: str, stream: list[str]
) -> None:
    """Requests and tokens by the lab's own count, the known cost exactly, times, outcome and answer; the worst exit code."""
    (folder / "turnwise.toml").write_text(PRICES)
    models = against(lab, "plain-answer", "never-stops", family=family)
    ran = cli("compare", "Look.", "--json", "--max-requests", "3", *stream, *models)
    plain, never = runs_of(ran.out)
    assert ran.code == 3
    assert (plain["requests"], plain["stop_reason"], plain["complete"]) == (1, "answered", True)
    assert (never["requests"], never["stop_reason"], never["complete"]) == (3, "budget", False)
    received = [one.usage for one in lab.requests if one.usage is not None]
    assert [plain["input_tokens"], never["input_tokens"]] == [
        received[0].input_tokens,
        sum(one.input_tokens for one in received[1:]),
    ]
    assert lab.count() == len(received) == 4
    usd = f"{(plain['input_tokens'] * 3 + plain['output_tokens'] * 15) / 1_000_000:f}"
    assert float(plain["cost"]["usd"]) == float(usd)
    assert never["cost"] == {"usd": "0.03", "requests": 3, "unknown": 0}
    for run in (plain, never):
        assert 0 <= run["first_token_s"] <= run["seconds"] < WAIT_S
        assert run["text"].strip()
    assert "1/2" in ran.err and "2/2" in ran.err


def test_the_table_and_the_lines_show_unknown_prices_as_such(cli: Cli, lab: Lab) -> None:
    """`unknown` in the table, an empty cell in CSV; plans price the same requests without making more."""
    models = against(lab, "plain-answer", "never-stops")
    plans = ["--plan", "request=0.01", "--plan", "step=0.05", "--plan", "tokens=1000000/0", "--plan", "free"]
    shown = cli("compare", "Look.", "--max-steps", "2", *plans, *models)
    assert lab.count() == 3
    head, *lines = shown.out.splitlines()
    assert head.split()[:2] == ["model", "requests"] and "request=0.01" in head
    assert [line.count("unknown") for line in lines] == [1, 1]
    assert "$0.0200" in lines[1] and "$0.10" in lines[1] and "step_limit, incomplete" in lines[1]
    rows = list(csv.DictReader(io.StringIO(cli("compare", "Look.", "--max-steps", "2", "--csv", *plans, *models).out)))
    assert [(row["usd"], row["requests_of_unknown_price"], row["request=0.01"]) for row in rows] == [
        ("", "1", "0.01"),
        ("", "2", "0.02"),
    ]
    assert [row["tokens=1000000/0"] for row in rows] == [row["input_tokens"] for row in rows]
    assert {row["free"] for row in rows} == {"0"}


@pytest.mark.promise("bill:plans")
def test_a_search_that_only_the_response_tells_of_has_no_known_price(cli: Cli, lab: Lab) -> None:
    """Proves: by tokens unknown, as the ledger of such a run has it; by request and by step it is in the price. The ledger's
    entry does not tell of the search where no price by tokens is known, so the plan said a price that was too low."""
    plans = ["--plan", "tokens=3/15", "--plan", "request=0.01", "--plan", "step=0.05"]
    models = against(lab, "searches", "plain-answer", family="openai_responses")
    searched, plain = runs_of(cli("compare", "Look.", "--json", *plans, *models).out)
    assert (searched["requests"], searched["text"]) == (1, "Found.")
    assert searched["plans"] == {"tokens=3/15": None, "request=0.01": "0.01", "step=0.05": "0.05"}
    assert plain["plans"]["tokens=3/15"] is not None


def test_models_may_read_the_folder_and_change_nothing(cli: Cli, lab: Lab, folder: Path) -> None:
    """Neither tools that write nor commands nor sub-agents are on offer, also where the user's rules would allow them."""
    (folder / "turnwise.toml").write_text("[permissions]\nrules = [{ allow = 'bash' }]\n")
    before = sorted(path.name for path in folder.iterdir())
    assert cli("compare", "Look.", *against(lab, "plain-answer")).code == 0
    assert cli("compare", "Look.", "--no-tools", *against(lab, "plain-answer")).code == 0
    offered = [sorted(tool.name for tool in one.request.tools) for one in lab.requests if one.request is not None]
    assert [sorted(set(names) - {"read_result"}) for names in offered] == [["list", "read", "search"], []]
    assert sorted(path.name for path in folder.iterdir()) == before


def test_one_that_fails_leaves_the_others_their_line(cli: Cli, lab: Lab) -> None:
    """A provider's failure is an outcome; a limit of cost on an unknown price one of that model alone."""
    ran = cli("compare", "Look.", "--json", "--retries", "0", *against(lab, "fault-401", "plain-answer"))
    failed, plain = runs_of(ran.out)
    assert (failed["stop_reason"], plain["stop_reason"], ran.code) == ("provider_failed", "answered", 6)
    ran = cli("compare", "Look.", "--json", "--max-cost", "0.10", *against(lab, "plain-answer"))
    (refused,) = runs_of(ran.out)
    assert (refused["stop_reason"], refused["requests"], ran.code) == (None, 0, 2)
    assert "[prices]" in refused["error"] and "failed: a limit of cost" in ran.err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "no model"),
        (("-m", "openai_chat:a", "--plan", "cheap"), "is no plan"),
        (("-m", "openai_chat:a", "--plan", "request=much"), "is no number"),
        (("-m", "openai_chat:a", "--json", "--csv"), "either --json or --csv"),
        (("-m", "nobody:a"), "nobody"),
    ],
)
def test_a_mistake_is_one_line_and_sends_nothing(cli: Cli, lab: Lab, args: tuple[str, ...], said: str) -> None:
    """Before the first model runs."""
    base = ["--base-url", f"{lab.url}/v1"] if "openai_chat:a" in args else []
    ran = cli("compare", "Look.", *args, *base)
    assert (ran.code, lab.count(), len(ran.complaints())) == (2, 0, 1)
    assert said in ran.complaints()[0]


def test_a_plan_is_a_row_of_prices() -> None:
    """By the text that was given."""
    assert [(text, row.plan) for text, row in read_plans(["free", "step=1", "request=0.5", "tokens=1/2"]).items()] == [
        ("free", "free"),
        ("step=1", "step"),
        ("request=0.5", "request"),
        ("tokens=1/2", "tokens"),
    ]


def test_ctrl_c_keeps_what_there_is(lab: Lab, folder: Path) -> None:
    """The one at hand ends with what it has, none is begun after it, and the lines until then are shown."""
    process = begin(
        *("compare", "Look.", "--json", *against(lab, "plain-answer", "fault-silence", "never-stops")), cwd=folder
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("1/3 ")
    wait_until(lambda: lab.count() == 2)
    process.send_signal(signal.SIGINT)
    ran = end(process)
    assert ran.code == 130
    assert [run["stop_reason"] for run in runs_of(ran.out)] == ["answered", "cancelled"]
    assert "not run: openai_chat:never-stops" in ran.err
    assert lab.count() == 2
