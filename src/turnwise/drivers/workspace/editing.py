"""The tool `edit`: an exact text in a file replaced by another."""

import difflib
import re
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.drivers.workspace.paths import Workspace
from turnwise.drivers.workspace.writing import replace_file
from turnwise.errors import ToolFault

DESCRIPTION = """Replace text in a file. `old` must stand there exactly once, character by character (without the line \
numbers that `read` shows); with `all` every occurrence is replaced."""

SHOWN_CHARACTERS = 2000
COMPARED_LINES = 5000  # the search for the nearest line is quadratic in a line's length
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)


class EditArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    old: Annotated[str, Meta(description="The exact text to replace, with enough around it to be unique")]
    new: Annotated[str, Meta(description="The text to put in its place; may be empty")]
    all: Annotated[bool, Meta(description="Replace every occurrence")] = False


def edit(workspace: Workspace, given: EditArguments) -> str:
    if not given.old:
        raise ToolFault("`old` is empty: name the text to replace, or use `write` for a whole file")
    if given.old == given.new:
        raise ToolFault("`old` and `new` are equal: nothing to change")
    path, content = workspace.read_bytes(given.path)
    text = content.decode("utf-8", "surrogateescape")  # bytes that are no UTF-8 go back as they came
    old, new = given.old, given.new
    if old not in text and "\r\n" in text:  # `read` shows Windows line ends as plain ones
        old, new = (re.sub(r"\r?\n", "\r\n", part) for part in (old, new))
    places = _places(text, old)
    if not places:
        raise ToolFault(f"`old` is not in `{given.path}`. {_hint(text, given.old)}")
    lines = [text.count("\n", 0, place) + 1 for place in places]
    if len(places) > 1 and not given.all:
        shown = ", ".join([str(line) for line in lines[:20]])
        raise ToolFault(
            f"`old` stands {len(places)} times in `{given.path}` (lines {shown}): add text around it until it is unique, "
            f"or set `all` to replace every one"
        )
    edited = text.replace(old, new)
    replace_file(path, edited.encode("utf-8", "surrogateescape"), name=given.path)
    count = text.count(old)
    return f"edited `{given.path}`: {count} replacement{'s' if count > 1 else ''}, the first in line {lines[0]}"


def _places(text: str, old: str) -> list[int]:
    """Where it begins, overlapping ones too: `aa` in `aaa` is ambiguous."""
    places: list[int] = []
    place = text.find(old)
    while place >= 0:
        places.append(place)
        place = text.find(old, place + 1)
    return places


def _hint(text: str, old: str) -> str:
    """What the model most likely got wrong."""
    plain = text.replace("\r\n", "\n")
    if _NUMBERED.match(old) and _NUMBERED.sub("", old) in plain:
        return "It is there without the line numbers: leave them out of `old`."
    lines, wanted = plain.split("\n"), old.replace("\r\n", "\n").strip("\n").split("\n")
    stripped, sought = [line.strip() for line in lines], [line.strip() for line in wanted]
    for start in range(len(lines) - len(wanted) + 1):
        if stripped[start] == sought[0] and stripped[start : start + len(sought)] == sought:
            exact = "\n".join(lines[start : start + len(wanted)])[:SHOWN_CHARACTERS]
            return f"Lines {start + 1} to {start + len(wanted)} differ from it in white space only. They are exactly:\n{exact}"
    first = next((line for line in sought if line), "")
    near = difflib.get_close_matches(first, stripped[:COMPARED_LINES], n=1) if 0 < len(first) < SHOWN_CHARACTERS else []
    if near:
        number = stripped.index(near[0]) + 1
        return f"The nearest line is {number}:\n{lines[number - 1][:SHOWN_CHARACTERS]}\nRead the file again around it."
    return "Read the file again: it may have changed."
