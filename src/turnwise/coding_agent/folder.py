"""What a folder brings to a run: its AGENTS.md, and the settings that hold there."""

from collections.abc import Iterable
from pathlib import Path

from turnwise.base.unasked_files import LeftOut, read_unasked
from turnwise.errors import CallerError
from turnwise.journal.prices import KEY as PRICES
from turnwise.settings.endpoint_rows import ENDPOINTS, endpoint_rows
from turnwise.settings.options import RunSettings, kept_by
from turnwise.settings.permission_files import KEY as PERMISSIONS
from turnwise.settings.retention_files import KEY as SESSIONS
from turnwise.settings.settings import Layer, Merged, SourceSettings, check_layer, merge
from turnwise.turn.config import TurnConfig

AGENTS_HEAD = "Instructions of this folder (AGENTS.md):\n\n"
READ_ELSEWHERE = frozenset(
    {PERMISSIONS, PRICES, SESSIONS, ENDPOINTS, "mcp", "hooks"}
)  # tables with readers of their own
MAX_AGENTS_BYTES = 64 * 1024  # instructions travel with every request


def read_agents_md(folder: Path) -> str | LeftOut | None:
    """The text of AGENTS.md, if there is one, or why it is left out. Raises CallerError where it is too long or not UTF-8."""
    found, way_out = _found(folder)
    if isinstance(found, LeftOut) and way_out:
        raise CallerError(f"`{folder / 'AGENTS.md'}` {found.why}{way_out} leave it out with --no-agents-md")
    return found


def reread_agents_md(folder: Path) -> str | LeftOut | None:
    """The same for a session that has begun: where the file cannot be taken, it goes on with what it knows."""
    return _found(folder)[0]


def reading_said(text: str) -> str:
    """What the person is told of instructions that hold."""
    return f"reading AGENTS.md as instructions ({len(text)} characters; --no-agents-md leaves it out)"


def _found(folder: Path) -> tuple[str | LeftOut | None, str]:
    """And how the sentence goes on that tells a person what to do; empty where nothing has to be done."""
    content = read_unasked(folder / "AGENTS.md", within=folder, max_bytes=MAX_AGENTS_BYTES)
    if content is None or isinstance(content, LeftOut):
        return content, ", or" if content is not None and content.is_too_long else ""
    try:
        return content.decode().strip() or None, ""
    except UnicodeDecodeError as error:
        return LeftOut(f"is not UTF-8 (byte {error.start})"), ";"


def agents_md_in(config: TurnConfig) -> str | None:
    """The text of AGENTS.md that a turn has among its instructions."""
    found = [text.text for text in config.system if text.text.startswith(AGENTS_HEAD)]
    return found[0].removeprefix(AGENTS_HEAD) if found else None


def settings_of_run(
    layers: Iterable[Layer], *, last: TurnConfig | None, given: RunSettings, is_same_model: bool = True
) -> Merged:
    """What holds for a run: the user's file, the project's (`read_layers`), the session's `last` turn, and what was `given` on
    the command line, the later over the earlier. Raises CallerError in one line, with file and key.

    The session's model is not among it: it goes together with an address and a key (`choose`). Some of what a session keeps
    is of that model, and holds if the run is of the same.
    """
    endpoint_rows(layers)  # a mistake in them is told now, not with the first model that has one
    files = [check_layer(layer, also=READ_ELSEWHERE) for layer in layers]
    kept = RunSettings() if last is None else kept_by(last, is_same_model=is_same_model)
    return merge(
        *files,
        SourceSettings(source="session", origin="session", settings=kept),
        SourceSettings(source="command line", origin="command line", settings=given),
    )
