"""The options of a run, from a command line, an editor or an MCP client."""

from collections.abc import Mapping
from pathlib import Path
from typing import NotRequired, TypedDict, cast

import msgspec

from turnwise.settings.options import RunSettings, rows_from

MODES_AT_START = ("plan", "ask", "edits")  # a restart ends sandbox mode
NAMES_A_MODEL = frozenset({"model", "base_url", "api_key_env"})


class Given(TypedDict):
    """What was given of them; None where it was not. `settings` are those of the table (settings/options.py) that do
    not name the model: they go together with what files and a session say."""

    model: str | None
    base_url: str | None
    api_key_env: str | None
    settings: RunSettings
    cwd: Path | None
    go_on: bool
    session: str | None
    system: str | None
    mode: NotRequired[str | None]
    allow: tuple[str, ...]
    ask_timeout: float | None
    no_sandbox: bool
    network: bool
    mcp: tuple[Path, ...]
    no_agents_md: bool
    no_environment: bool
    no_stream: bool
    plain: bool


NOTHING_GIVEN = Given(
    model=None,
    base_url=None,
    api_key_env=None,
    settings=RunSettings(),
    cwd=None,
    go_on=False,
    session=None,
    system=None,
    allow=(),
    ask_timeout=None,
    no_sandbox=False,
    network=False,
    mcp=(),
    no_agents_md=False,
    no_environment=False,
    no_stream=False,
    plain=False,
)


def given_over(given: Given, typed: Mapping[str, object]) -> Given:
    """The options with those that were typed later, by the names of their parameters."""
    return cast("Given", {**given, **packed(typed, over=given["settings"])})


def packed(values: Mapping[str, object], *, over: RunSettings) -> dict[str, object]:
    """The values by the names of their parameters; those of the table become `settings`."""
    names = {row.name for row in rows_from("command line", "compare")} - NAMES_A_MODEL
    said = {name: value for name, value in values.items() if name in names and value not in (None, ())}
    rest = {name: value for name, value in values.items() if name not in names}
    return {**rest, "settings": msgspec.structs.replace(over, **said)}
