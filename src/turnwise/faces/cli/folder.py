"""What a folder says of itself: AGENTS.md and turnwise.toml."""

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec

from turnwise.errors import CallerError

MAX_AGENTS_BYTES = 64 * 1024  # instructions travel with every request
MOST_STEPS = 10_000  # of --max-steps and `max_steps`: more is a slip of the keyboard
FILE = "turnwise.toml"


class FolderSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`turnwise.toml`, or `[tool.turnwise]` of `pyproject.toml`."""

    model: str | None = None
    max_steps: Annotated[int, msgspec.Meta(ge=1, le=MOST_STEPS)] | None = None
    max_requests: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_time: Annotated[float, msgspec.Meta(gt=0)] | None = None  # seconds


def read_agents_md(folder: Path) -> str | None:
    """The text of AGENTS.md, if there is one. Raises CallerError where it is too long or not UTF-8."""
    path = folder / "AGENTS.md"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CallerError(f"`{path}`: {error.strerror}; leave it out with --no-agents-md") from error
    if len(text) > MAX_AGENTS_BYTES:
        raise CallerError(
            f"`{path}` has {len(text)} bytes; {MAX_AGENTS_BYTES} at most, or leave it out with --no-agents-md"
        )
    try:
        return text.decode().strip() or None
    except UnicodeDecodeError as error:
        raise CallerError(f"`{path}` is not UTF-8 (byte {error.start}); leave it out with --no-agents-md") from error


def read_folder_settings(folder: Path) -> FolderSettings:
    """Raises CallerError naming the file and the field."""
    for path, keys in ((folder / FILE, ()), (folder / "pyproject.toml", ("tool", "turnwise"))):
        try:
            table: object = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            if keys:  # somebody else's file: its faults are not ours to report
                continue
            raise CallerError(f"`{path}`: {error}") from error
        for key in keys:
            table = table.get(key) if isinstance(table, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
        if table is not None:
            try:
                return msgspec.convert(table, FolderSettings)
            except msgspec.ValidationError as error:
                raise CallerError(f"`{path}`: {error}") from error
    return FolderSettings()
