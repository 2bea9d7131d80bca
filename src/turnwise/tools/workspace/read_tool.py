"""The tool `read`: lines of a text file, numbered; or an image, to be looked at."""

import re
from itertools import pairwise
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import FileText, LineSpan, image_type, kind_of, printable, text_of
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.vocab import File, Text

MAX_LINES = 2000
MAX_LINE_CHARACTERS = 2000  # minified files have lines of a megabyte
MAX_CHARACTERS = 60 * 1024  # below the cap on results, so that the note about the rest is never cut away
MAX_IMAGE_BYTES = 3_750_000  # 5 MB in base64, the least that a large provider takes (Anthropic docs, "Vision")

DESCRIPTION = """Read a text file: each line as its number, a tab, and its text. At most 2000 lines at a time: use `offset` \
and `limit` for the rest. An image (PNG, JPEG, GIF, WebP) is shown as it is."""

_REST = re.compile(r"\[lines (\d+) to (\d+) of (\d+); go on with ")  # every line of the file has its number first


class ReadArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    offset: Annotated[int, Meta(ge=1, description="The first line to read; lines count from 1")] = 1
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES, description="How many lines to read")] = MAX_LINES


def read(workspace: WorkspacePaths, given: ReadArguments, *, whole: bool = False) -> str | list[Text | File]:
    """`whole` refuses a text with bytes that are no UTF-8; otherwise a note counts them, and each is shown as U+FFFD."""
    found = workspace.find(given.path, to_read=True)
    media_type, text = image_type(found.content), text_of(found.content)
    if media_type is not None:
        image = _image(given.path, found.content, media_type=media_type)
        workspace.seen.keep(found.path, found.content)
        return image
    if text is None:
        raise ToolFault(f"`{given.path}` is {kind_of(found.content)} ({len(found.content):,} bytes)")
    if whole and (place := text.first_broken) is not None:
        raise ToolFault(f"`{given.path}` is not UTF-8 (byte {place} of {len(found.content):,})")
    lines = _lines_of(text)
    told, seen = _numbered(text, lines=lines, given=given)
    workspace.seen.keep_lines(found.path, found.content, shown=seen, total=len(lines))
    return told


def tell_text(text: FileText, *, given: ReadArguments) -> str:
    """What `read` tells of a text, wherever it stands."""
    return _numbered(text, lines=_lines_of(text), given=given)[0]


def _lines_of(text: FileText) -> list[str]:
    lines = printable(text.text).replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def _image(path: str, content: bytes, *, media_type: str) -> list[Text | File]:
    size = f"{len(content):,} bytes"
    if len(content) > MAX_IMAGE_BYTES:
        raise ToolFault(
            f"`{path}` is an image ({media_type}) of {size}, more than {MAX_IMAGE_BYTES:,}: make a smaller copy"
        )
    return [
        Text(f"`{path}` ({media_type}, {size})"),
        File(media_type=media_type, data=content, name=path.rpartition("/")[2]),
    ]


def _numbered(text: FileText, *, lines: list[str], given: ReadArguments) -> tuple[str, list[LineSpan]]:
    """What is told, and which lines are whole in it."""
    if not lines:
        return f"`{given.path}` is empty", []
    if given.offset > len(lines):
        return f"`{given.path}` has {len(lines)} lines only", []
    shown: list[str] = []
    cut: list[int] = []
    characters = 0
    for number, line in enumerate(lines[given.offset - 1 : given.offset - 1 + given.limit], start=given.offset):
        is_cut = len(line) > MAX_LINE_CHARACTERS
        if is_cut:
            rest = len(line) - MAX_LINE_CHARACTERS
            line = f"{line[:MAX_LINE_CHARACTERS]} [... {rest:,} more characters in this line]"
        characters += len(line) + 8
        if characters > MAX_CHARACTERS and shown:
            break
        shown.append(f"{number:6}\t{line}")
        if is_cut:
            cut.append(number)
    last = given.offset + len(shown) - 1
    if last < len(lines):
        shown.append(f"[lines {given.offset} to {last} of {len(lines)}; go on with offset={last + 1}]")
    ends = [given.offset - 1, *cut, last + 1]
    whole = [(before + 1, after - 1) for before, after in pairwise(ends) if before + 1 < after]
    return "\n".join(shown + _oddities(text)), whole


def left_out(told: str) -> str:
    """What a reading of a text file does not show of it, in words; empty: nothing. `told` is what `read` has given."""
    lines = told.split("\n")
    parts = [
        f"lines {int(found[1]):,} to {int(found[2]):,} of {int(found[3]):,}"
        for found in map(_REST.match, lines)
        if found
    ]
    cut = sum(1 for line in lines if len(line.partition("\t")[2]) > MAX_LINE_CHARACTERS)
    if cut:
        parts.append(f"{cut} long {'line' if cut == 1 else 'lines'} cut at {MAX_LINE_CHARACTERS:,} characters")
    return "; ".join(parts)


def _oddities(text: FileText) -> list[str]:
    """What the numbered lines do not show, and who edits the file should know."""
    told: list[str] = []
    if text.encoding != "utf-8":
        told.append(f"[the file is {text.encoding.upper()}; `edit` and `write` keep that]")
    if broken := text.broken:
        told.append(f"[bytes that are no UTF-8: {broken:,}, shown as \ufffd; `edit` leaves them as they are]")
    if text.line_ends == "mixed":
        told.append("[some lines end as Windows ends them, some do not]")
    if "\r" in text.text and not text.line_ends:
        told.append("[its lines end with CR alone, so all of it counts as one line]")
    return told
