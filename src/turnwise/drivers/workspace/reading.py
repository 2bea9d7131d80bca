"""The tool `read`: lines of a text file, numbered."""

from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.drivers.workspace.paths import Workspace

MAX_LINES = 2000
MAX_LINE_CHARACTERS = 2000  # minified files have lines of a megabyte
MAX_CHARACTERS = 60 * 1024  # below the cap on results, so that the note about the rest is never cut away

DESCRIPTION = """Read a text file. Each line is shown as its number, a tab, and its text. At most 2000 lines at a time: \
use `offset` and `limit` for the rest."""


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    offset: Annotated[int, Meta(ge=1, description="The first line to read; lines count from 1")] = 1
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES, description="How many lines to read")] = MAX_LINES


def read(workspace: Workspace, given: ReadArguments) -> str:
    _, content = workspace.read_bytes(given.path)
    text = content.decode("utf-8-sig", "replace")
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return f"`{given.path}` is empty"
    if given.offset > len(lines):
        return f"`{given.path}` has {len(lines)} lines only"
    shown: list[str] = []
    characters = 0
    for number, line in enumerate(lines[given.offset - 1 : given.offset - 1 + given.limit], start=given.offset):
        if len(line) > MAX_LINE_CHARACTERS:
            line = (
                f"{line[:MAX_LINE_CHARACTERS]} [... {len(line) - MAX_LINE_CHARACTERS:,} more characters in this line]"
            )
        characters += len(line) + 8
        if characters > MAX_CHARACTERS and shown:
            break
        shown.append(f"{number:6}\t{line}")
    last = given.offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[lines {given.offset} to {last} of {len(lines)}; go on with offset={last + 1}]")
    return "\n".join(shown)
