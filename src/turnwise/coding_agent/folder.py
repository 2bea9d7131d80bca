"""What a folder brings to a run: its AGENTS.md, and the settings that hold there."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from turnwise.base.unasked_files import LeftOut, read_unasked
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.journal.journal import journal_path
from turnwise.journal.prices import KEY as PRICES
from turnwise.rules.permission_paths import is_inside
from turnwise.settings.endpoint_rows import ENDPOINTS, endpoint_rows
from turnwise.settings.options import RunSettings, kept_by
from turnwise.settings.permission_files import KEY as PERMISSIONS
from turnwise.settings.settings import KEY as SESSIONS
from turnwise.settings.settings import Layer, Merged, SourceSettings, check_layer, merge, user_folder
from turnwise.turn.config import TurnConfig
from turnwise.vocab.file_names import given_name, shown_name

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


# The folder that another program names: judged like `--cwd`, and never turnwise's own.


MAX_PATH = 4096  # Linux takes no longer one


def foreign_folder(given: str, *, name: str, env: Mapping[str, str], below: Path | None = None) -> Path:
    """The resolved folder. `name` is how the other program calls it. With `below`, a resolved folder, the path may be relative to
    that, and has to lead to it or into it. Raises CallerError where it cannot be a run's folder.
    """
    said = f"`{name}` is `{visible_line(given[:200])}`"
    is_absolute = os.path.isabs(given)  # noqa: PTH117 (a stranger's text)
    if "\0" in given or len(given) > MAX_PATH or not (is_absolute or below):
        raise CallerError(f"{said}: give the {'path' if below else 'absolute path'} of a folder")
    try:
        folder = (below / given_name(given) if below else Path(given_name(given))).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise CallerError(f"{said}: there is no such folder, or it cannot be reached") from None
    if below is not None and not is_inside(str(folder), folder=str(below)):
        raise CallerError(f"{said}, which is not below `{shown_name(str(below))}`: name a folder there")
    if not folder.is_dir():
        raise CallerError(f"{said}: it is no folder")
    if folder == Path(folder.anchor):
        raise CallerError(f"`{name}` is the root of the file system: open a folder of your own")
    for own in (journal_path(env).parent, user_folder(env)):
        if is_inside(str(folder), folder=os.path.realpath(own)):
            raise CallerError(f"{said}, where turnwise keeps its own files: open a folder of your own")
    return folder
