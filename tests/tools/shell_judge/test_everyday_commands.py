"""Everyday commands are judged as they were before the judge was made stricter: one that asks about everything has failed."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from everyday import COLUMNS, SHELL_ALLOWED, make_project, verdict_on
from tables import each

TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_name("everyday_commands.toml").read_text(encoding="utf-8"))
CHANGED: dict[str, dict[str, str]] = {change["command"]: change for change in TABLE.get("changed", [])}
EVERYDAY = {command: column for column in COLUMNS for command in TABLE[column]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("everyday").resolve())


@pytest.mark.costly
@each("command", EVERYDAY)
def test_an_everyday_command_is_judged_as_before(command: str, project: Path) -> None:
    """By default and where the shell is allowed in general; issue 13, "Done when" 2."""
    column = CHANGED[command]["now"] if command in CHANGED else EVERYDAY[command]
    found = (verdict_on(command, project=project), verdict_on(command, project=project, rules=SHELL_ALLOWED))
    assert found == COLUMNS[column]


def test_the_list_has_300_commands_and_few_verdicts_changed() -> None:
    """Each change names the line of the issue that demands it, and the command that it is about."""
    assert len(EVERYDAY) >= 300
    assert len(EVERYDAY) == sum(len(TABLE[column]) for column in COLUMNS)
    assert set(CHANGED) <= set(EVERYDAY)
    assert all(change["why"] and change["now"] != EVERYDAY[command] for command, change in CHANGED.items())
    assert len(CHANGED) <= 15
