"""The tool `write`: a whole file, or something at its end."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import FileText, kind_of, text_of, with_line_ends
from turnwise.tools.workspace.paths import FoundFile, WorkspacePaths
from turnwise.tools.workspace.plans import (
    ChangePlan,
    carry_out,
    making,
    refuse_special,
    refuse_write_protected,
    replacing,
)

DESCRIPTION = """Write a file; missing folders are made. A file that exists must have been read before, every line of it, \
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
