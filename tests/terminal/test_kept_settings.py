"""What a session keeps of how its requests are made: temperature, top_p, seed, effort, and what to do about a cut response."""

import json
from pathlib import Path
from typing import Any

import pytest

from terminal.running import Cli, at
from turnwise.coding_agent.permissions import is_same_model, request_settings
from turnwise.lab import Lab
from turnwise.settings.options import RunSettings, kept_by, rows, settings_over
from turnwise.turn.config import Fallback, TurnConfig
from turnwise.vocab import Settings

SAID = ("--temperature", "0.25", "--top-p", "0.5", "--seed", "7", "--effort", "low")
ALL = Settings(temperature=0.25, top_p=0.5, seed=7, reasoning_effort="low", stop=("END",), reasoning_tokens=2_048)


def sent(lab: Lab) -> dict[str, Any]:
    return json.loads(lab.requests[-1].body)


def test_a_session_keeps_temperature_top_p_seed_and_effort(cli: Cli, lab: Lab) -> None:
    """Issue 16: they were dropped in silence. The command line stands over the session, field by field."""
    here = at(lab, "plain-answer")
    assert cli("run", "Go.", *SAID, *here).code == 0
    first = sent(lab)
    assert (first["temperature"], first["top_p"], first["seed"]) == (0.25, 0.5, 7)
    for options in ((), here):
        assert cli("run", "On.", "--continue", *options).code == 0
        assert {name: sent(lab)[name] for name in ("temperature", "top_p", "seed")} == {
            "temperature": 0.25,
            "top_p": 0.5,
            "seed": 7,
        }
    assert cli("run", "On.", "--continue", "--temperature", "1").code == 0
    assert (sent(lab)["temperature"], sent(lab)["seed"]) == (1.0, 7)
    assert cli("run", "On.", "--continue").code == 0
    assert sent(lab)["temperature"] == 1.0


def test_a_session_keeps_the_effort(cli: Cli, lab: Lab) -> None:
    """Proves: in the words of an API that has one."""
    assert cli("run", "Go.", "--effort", "low", *at(lab, "plain-answer", family="openai_responses")).code == 0
    assert sent(lab)["reasoning"]["effort"] == "low"
    assert cli("run", "On.", "--continue").code == 0
    assert sent(lab)["reasoning"]["effort"] == "low"


def test_another_model_gets_none_of_them(cli: Cli, lab: Lab) -> None:
    """What was chosen for one model may be refused by another; a limit of the turn stays."""
    assert cli("run", "Go.", *SAID, "--max-output-tokens", "900", *at(lab, "plain-answer")).code == 0
    assert cli("run", "On.", "--continue", *at(lab, "never-stops"), "--max-steps", "1").code == 3
    assert not {"temperature", "top_p", "seed"} & sent(lab).keys()
    assert 900 in sent(lab).values()


def test_what_no_option_names_is_kept_too() -> None:
    """Proves: a session that Python began goes on with its stop words and its budget for reasoning."""
    last = TurnConfig(session_id="s", turn_id="t", model="m", profile="openai_chat", settings=ALL)
    kept = kept_by(last, is_same_model=True)
    assert (
        request_settings(kept, last=last, model=None) == ALL == request_settings(kept, last=last, model="openai_chat:m")
    )
    none = kept_by(last, is_same_model=False)
    assert request_settings(none, last=last, model="openai_chat:other") == Settings()


@pytest.mark.parametrize("row", [row for row in rows() if row.option.setting], ids=lambda row: row.name)
def test_every_setting_of_the_table_is_a_field_of_settings_and_found_again(row: Any) -> None:
    """Proves: a row that names no field, or another one's, fails here."""
    value = "low" if row.name == "effort" else 1
    said = RunSettings(**{row.name: value})
    assert settings_over(Settings(), said) == Settings(**{row.option.setting: value})
    last = TurnConfig(session_id="s", turn_id="t", model="m", settings=settings_over(Settings(), said))
    assert getattr(kept_by(last, is_same_model=True), row.name) == value


@pytest.mark.parametrize(
    "option",
    [("--temperature", "-1"), ("--temperature", "inf"), ("--temperature", "nan"), ("--top-p", "1.5"), ("--seed", "x")],
)
def test_a_setting_that_cannot_be_is_a_usage_error(cli: Cli, lab: Lab, option: tuple[str, str]) -> None:
    """Nothing is sent."""
    assert (cli("run", "Go.", *option, *at(lab, "plain-answer")).code, lab.count()) == (2, 0)


def test_the_files_say_what_is_done_about_a_cut_response(cli: Cli, lab: Lab, folder: Path) -> None:
    """`recover` takes the way of its sisters: the file, the session over it, the command line over both."""

    here = at(lab, "cut-text")

    def goes_on(*options: str) -> bool:
        return "continue" in cli("run", "Go.", "--json", *options, *here).events()[-1]["requests_by_purpose"]

    assert goes_on()
    (folder / "turnwise.toml").write_text('recover = "off"\n')
    assert not goes_on()
    assert goes_on("--recover", "continue")
    assert goes_on("--continue")


def test_another_model_of_the_endpoint_is_kept_with_the_sessions_own_model() -> None:
    """As the page says: unless another `--model` is given; the same one by name is no other."""
    last = TurnConfig(
        session_id="s", turn_id="t", model="m", profile="openai_chat", fallbacks=(Fallback(model="spare"),)
    )
    same = [is_same_model(name, last=last) for name in (None, "openai_chat:m", "openai_chat:n", "vllm:m")]
    assert same == [True, True, False, False]
    assert kept_by(last, is_same_model=True).fallback == ("spare",)
    assert kept_by(last, is_same_model=False).fallback is None
