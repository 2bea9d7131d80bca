"""The table of options: each row says the same as the places that it stands for."""

import types
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from tables import each
from turnwise.agent.agent_options import GROUP_OF, GROUPS, OF_MODEL, Model
from turnwise.agent.run_setup import groups_of
from turnwise.settings.options import RunSettings, kept_by, rows, rows_from
from turnwise.turn.config import TurnConfig

CONFIG = TurnConfig(session_id="s", turn_id="t", model="m")
BY_OTHER_WORDS = {"model", "max_steps"}  # `Agent(MODEL)`, `limits=MaxSteps(...)`


def kinds(hint: object) -> set[object]:
    """The types that a hint allows, without None and bounds."""
    if get_origin(hint) is Annotated:
        return kinds(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return {kind for one in get_args(hint) for kind in kinds(one)} - {types.NoneType}
    return {hint}


@pytest.mark.parametrize("name", [row.name for row in rows_from("agent") if row.name not in BY_OTHER_WORDS])
def test_what_the_table_gives_to_python_has_the_type_that_python_says(name: str) -> None:
    """Proves: the settings of a file reach the agent under the same name, and pyright's word for it is true."""
    (row,) = [row for row in rows() if row.name == name]
    if name in OF_MODEL:
        assert kinds(get_type_hints(Model)[OF_MODEL[name]]) == {row.kind}
    else:
        assert kinds(get_type_hints(GROUPS[GROUP_OF[name]])[name]) == {row.kind}


def test_what_settings_say_reaches_the_group_that_has_it() -> None:
    """Proves: an option of a file or the command line is not lost on the way to the agent, and what is not said is not given."""
    said = RunSettings(recover="off", cache="1h", max_subagents=3, calls_in_text="on", max_steps=3, max_cost=None)
    assert groups_of(said) == {
        "recovery": {"recover": "off", "calls_in_text": "on"},
        "safety": {"max_subagents": 3},
    }
    assert {row.name for row in rows_from("run")} - BY_OTHER_WORDS <= {*GROUP_OF, *OF_MODEL}


VALUES: dict[Any, Any] = {int: 7, str: "x", float: 0.5, bool: True, tuple[str, ...]: ("other",)}


@each("row", rows(), ids=lambda row: row.name)
def test_a_row_says_what_every_page_and_help_needs(row: Any) -> None:
    option = row.option
    assert option.page and option.sources and (option.help or not row.is_from("command line", "compare"))
    assert bool(option.why_never) == (option.project == "never")
    assert not row.is_from("compare") or row.is_from("command line")
    ways = (option.python, option.limit, option.setting, row.is_from("agent"))
    assert any(ways) or row.name in ("environment", "terminal", "notify"), "Python can say what the command line can"


def test_a_session_keeps_what_its_last_turn_had_and_of_its_model_only_with_that() -> None:
    """Proves: the limits and the settings too, though no row says so by itself."""
    kept = {row.name for row in rows() if row.option.kept or row.option.limit or row.option.setting}
    assert {"max_steps", "max_cost", "max_output_tokens", "recover", "retries", "fallback"} <= kept
    for row in rows():
        before = msgspec.structs.replace(
            RunSettings(), **{row.name: getattr(kept_by(CONFIG, is_same_model=True), row.name)}
        )
        assert row.name in kept or before == RunSettings(), row.name
