"""The tools `edit` and `multi_edit`: exact texts in a file replaced by others."""

import re
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import FileText, LineEnds, kind_of, near_misses, text_of, with_line_ends
from turnwise.tools.workspace.paths import FoundFile, WorkspacePaths
from turnwise.tools.workspace.plans import (
    ChangePlan,
    carry_out,
    find_text,
    making,
    refuse_special,
    refuse_write_protected,
    replacing,
)

DESCRIPTION = """Replace text in a file. `old` must stand there exactly once, character by character (without the line \
numbers that `read` shows); with `replace_all` every occurrence is replaced."""

MULTI_DESCRIPTION = """Replace several texts in one file, one after the other, all or none: each as `edit` does it, in the \
text that those before it left."""

MAX_EDITS = 100
LINES_TOLD = 20

Old = Annotated[str, Meta(description="The exact text to replace, with enough around it to be unique")]
New = Annotated[str, Meta(description="The text to put in its place; may be empty")]
ReplaceAll = Annotated[bool, Meta(description="Replace every occurrence")]
Edits = Meta(min_length=1, max_length=MAX_EDITS, description="In the order in which they are made")


class EditArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    old: Old
    new: New
    replace_all: ReplaceAll = False


class OneEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    old: Old
    new: New
    replace_all: ReplaceAll = False


class MultiEditArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    edits: Annotated[list[OneEdit], Edits]


def edit(workspace: WorkspacePaths, given: EditArguments) -> str:
    with workspace.writing():
        return carry_out(workspace, plan_edit(workspace, given))


def multi_edit(workspace: WorkspacePaths, given: MultiEditArguments) -> str:
    with workspace.writing():
        return carry_out(workspace, plan_multi_edit(workspace, given))


def plan_edit(workspace: WorkspacePaths, given: EditArguments) -> ChangePlan:
    found, text = find_text(workspace, given.path)
    one = OneEdit(old=given.old, new=given.new, replace_all=given.replace_all)
    edited, lines = replaced(text.text, one, name=given.path)
    count = len(lines)
    said = f"edited `{given.path}`: {count} replacement{'s' if count > 1 else ''}, the first in line {lines[0]}"
    return ChangePlan(changes=(replacing(workspace, found, after=text.with_text(edited)),), said=said)


def plan_multi_edit(workspace: WorkspacePaths, given: MultiEditArguments) -> ChangePlan:
    found, text = find_text(workspace, given.path)
    edited, places = text.text, list[str]()
    for number, one in enumerate(given.edits, start=1):
        try:
            edited, lines = replaced(edited, one, name=given.path)
        except ToolFault as fault:
            raise ToolFault(f"edit {number} of {len(given.edits)}: {fault}\nNone of the edits was made.") from None
        places.append(str(lines[0]) + (f" and {len(lines) - 1} more" if len(lines) > 1 else ""))
    if edited == text.text:
        raise ToolFault(f"`{given.path}` would be as before: the edits undo each other. None of them was made.")
    said = f"edited `{given.path}`: {len(given.edits)} edits, in lines {', '.join(places)}"
    return ChangePlan(changes=(replacing(workspace, found, after=text.with_text(edited)),), said=said)


def replaced(text: str, given: OneEdit, *, name: str) -> tuple[str, list[int]]:
    """The text with the replacement made, and the line of each place. Raises ToolFault where it cannot be made."""
    if not given.old:
        raise ToolFault("`old` is empty: name the text to replace, or use `write` for a whole file")
    if given.old == given.new:
        raise ToolFault("`old` and `new` are equal: nothing to change")
    spans = places_of(text, given.old)
    if not spans:
        raise ToolFault(f"`old` is not in `{name}`. {near_misses(text, given.old)}")
    if len(spans) > 1 and not given.replace_all:
        lines = [str(text.count("\n", 0, start) + 1) for start, _ in spans[:LINES_TOLD]]
        shown = ", ".join(lines) + (", ..." if len(spans) > LINES_TOLD else "")
        raise ToolFault(
            f"`old` stands {len(spans)} times in `{name}` (lines {shown}): "
            f"add text around it until it is unique, or set `replace_all` to replace every one"
        )
    edited, places = _with_new(text, spans, given=given)
    if edited == text:
        raise ToolFault(f"`{name}` would be as before: the line ends there are those of `new` already")
    return edited, places


def places_of(text: str, old: str) -> list[tuple[int, int]]:
    """Where it stands, overlapping ones too: `aa` in `aaa` is ambiguous. `read` shows Windows line ends as plain ones, so a line
    end in `old` is any line end; Windows ones are those alone where it stands so. No place begins or ends between CR and LF."""
    if "\n" not in old and not old.endswith("\r"):
        return _matches(text, re.escape(old))
    lines = [re.escape(line) for line in old.replace("\r\n", "\n").split("\n")]
    behind = r"(?!\n)" if old.endswith("\r") else ""
    exact = re.escape(old) if "\r\n" in old and not re.search(r"(?<!\r)\n", old) else ""
    return (exact and _matches(text, exact + behind)) or _matches(text, r"(?:\r\n|(?<!\r)\n)".join(lines) + behind)


def _matches(text: str, expression: str) -> list[tuple[int, int]]:
    pattern, spans = re.compile(expression), list[tuple[int, int]]()
    match = pattern.search(text)
    while match is not None:
        spans.append(match.span())
        match = pattern.search(text, match.start() + 1)
    return spans


def _with_new(text: str, spans: list[tuple[int, int]], *, given: OneEdit) -> tuple[str, list[int]]:
    changes_ends_alone = with_line_ends(given.old, ends="\r\n") == with_line_ends(given.new, ends="\r\n")
    pieces: list[str] = []
    lines: list[int] = []
    after, line = 0, 1
    for start, end in spans:
        if start < after:
            continue  # it overlaps the one before
        line += text.count("\n", after, start)
        lines.append(line)
        line += text.count("\n", start, end)
        ends = "" if changes_ends_alone else _ends_at(text, start)
        pieces += [text[after:start], with_line_ends(given.new, ends=ends)]
        after = end
    return "".join([*pieces, text[after:]]), lines


def _ends_at(text: str, start: int) -> LineEnds:
    """How the line there ends; the last line, as the one before it."""
    at = text.find("\n", start)
    at = text.rfind("\n", 0, start) if at < 0 else at
    return "" if at < 0 else "\r\n" if text[max(at - 1, 0)] == "\r" else "\n"


# The tool `write`: a whole file, or something at its end.


WRITE_DESCRIPTION = """Write a file; missing folders are made. A file that exists must have been read before, every line of it, \
and not have changed since, or `overwrite` must be set. Line ends and byte order mark of a replaced file are kept. With \
`append` the content is added at the end: use that to write a long file in several calls."""


class WriteArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: Annotated[str, Meta(description="The file, relative to the workspace")]
    content: Annotated[str, Meta(description="The text to write")]
    append: Annotated[bool, Meta(description="Add to the end instead of replacing")] = False
    overwrite: Annotated[bool, Meta(description="Replace the file though it was not read, or changed since")] = False


def write(workspace: WorkspacePaths, given: WriteArguments) -> str:
    with workspace.writing():
        return carry_out(workspace, plan_write(workspace, given))


def plan_write(workspace: WorkspacePaths, given: WriteArguments) -> ChangePlan:
    path = workspace.resolve(given.path)
    refuse_special(path, name=given.path)
    found = workspace.look_at(path, name=given.path)
    lines = given.content.count("\n") + (not given.content.endswith("\n"))
    if found is None:
        content = FileText(text="").with_text(given.content)
        said = f"wrote `{given.path}` ({len(content):,} bytes, {lines} lines)"
        return ChangePlan(changes=(making(workspace, path, after=content),), said=said, told=frozenset({path}))
    refuse_write_protected(found, name=given.path)
    text = text_of(found.content)
    if given.append:
        if text is None:
            raise ToolFault(f"`{given.path}` is {kind_of(found.content)}: nothing can be added to it")
        added = _added(text, given.content)
        content = found.content + added
        told = frozenset[Path]()
        said = f"added {len(added):,} bytes, {lines} lines to `{given.path}`, which has {len(content):,} bytes now"
    else:
        _refuse_unseen(workspace, found, given=given)
        told = frozenset({path})
        content = _replaced(text or FileText(text=""), given.content)
        if content == found.content:
            return ChangePlan(changes=(), said=f"`{given.path}` has this content already: nothing was changed")
        said = f"replaced `{given.path}` ({len(content):,} bytes, {lines} lines{_kept(text, given.content)})"
    return ChangePlan(changes=(replacing(workspace, found, after=content),), said=said, told=told)


def _refuse_unseen(workspace: WorkspacePaths, found: FoundFile, *, given: WriteArguments) -> None:
    why = workspace.seen.doubt(found.path, found.content) if found.content and not given.overwrite else ""
    if why:
        raise ToolFault(
            f"`{given.path}` {why}: `read` it first, or change a part of it with `edit`. "
            f"Set `overwrite` only if what it holds now may be lost"
        )


def _replaced(before: FileText, text: str) -> bytes:
    """In the encoding, with the byte order mark and the line ends of what was there; with its own line ends where nothing else
    is new."""
    text = text.removeprefix("\ufeff") if before.mark else text
    keeps = before.line_ends == "\r\n" and not _changes_ends_alone(before, text)
    return before.with_text(with_line_ends(text, ends="\r\n") if keeps else text)


def _changes_ends_alone(before: FileText, text: str) -> bool:
    return with_line_ends(text, ends="\n") == with_line_ends(before.text, ends="\n")


def _added(before: FileText, text: str) -> bytes:
    return msgspec.structs.replace(before, mark=b"").with_text(with_line_ends(text, ends=before.line_ends))


def _kept(before: FileText | None, text: str) -> str:
    kept: list[str] = []
    plain = before is not None and "\n" in text.replace("\r\n", "") and not _changes_ends_alone(before, text)
    if before is not None and before.line_ends == "\r\n" and plain:
        kept.append("Windows line ends")
    if before is not None and before.mark:
        kept.append(f"{before.encoding.upper()} with byte order mark")
    return f"; kept its {' and '.join(kept)}" if kept else ""
