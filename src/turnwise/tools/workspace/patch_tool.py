"""The tool `apply_patch`: changes of several files, all or none."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import FileText, kind_of, text_of
from turnwise.tools.workspace.hunks import apply_hunks
from turnwise.tools.workspace.patches import FilePatch, Hunk, parse_patch
from turnwise.tools.workspace.paths import FoundFile, WorkspacePaths
from turnwise.tools.workspace.plans import (
    ChangePlan,
    carry_out,
    making,
    refuse_special,
    refuse_write_protected,
    replacing,
)
from turnwise.tools.workspace.staged_changes import FileChange
from turnwise.vocab.file_names import given_name

MAX_PATCHED_BYTES = 128 * 1024 * 1024  # over all sections, a few seconds: each goes through its whole file

DESCRIPTION = """Change several files at once, all or none:
*** Begin Patch
*** Update File: path/of/a.py
@@ def function_above():
 a line that stays
-a line that goes
+a line that comes
*** Add File: path/of/new.txt
+each line of it
*** Delete File: path/of/old.txt
*** End Patch
`*** Move to: path` after an update's header moves the file. Lines that stay or go must stand in the file as given; add \
enough of them, or an `@@` line from above, to make each place unique. A unified diff is taken as well."""


class PatchArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    patch: Annotated[str, Meta(description="The whole patch; paths are relative to the workspace")]


class _Draft(msgspec.Struct):
    """A file while the sections are gone through: as it is on the disk, and as it will be (None: not there)."""

    found: FoundFile | None
    content: bytes | None
    like: FoundFile | None = None


def apply_patch(workspace: WorkspacePaths, given: PatchArguments) -> str:
    with workspace.writing():
        return carry_out(workspace, plan_patch(workspace, given))


def plan_patch(workspace: WorkspacePaths, given: PatchArguments) -> ChangePlan:
    drafts: dict[Path, _Draft] = {}
    said: list[str] = []
    gone_through = 0
    for section in parse_patch(given.patch):
        match section.kind:
            case "add":
                _make(workspace, drafts, given=section.path, content=_new_file(section.hunks[0]))
                said.append(f"A {section.path}")
            case "delete":
                _existing(workspace, drafts, given=section.path, leaves=True).content = None
                said.append(f"D {section.path}")
            case "update":
                gone_through += len(_existing(workspace, drafts, given=section.path).content or b"")
                if gone_through > MAX_PATCHED_BYTES:
                    raise ToolFault("the patch has too many sections for large files: put all hunks of a file into one")
                said.append(_update(workspace, drafts, section=section))
    changes = [change for path, draft in drafts.items() if (change := _change(workspace, path, draft)) is not None]
    if not changes:
        raise ToolFault("the patch changes nothing")
    # what is deleted goes last: killed in between, a moved file is there twice rather than not at all
    changes.sort(key=lambda change: change.after is None)
    told = frozenset(
        [path for path, draft in drafts.items() if draft.found is None and _is_known(workspace, draft.like)]
    )
    return ChangePlan(changes=tuple(changes), said="applied the patch:\n" + "\n".join(said), told=told)


def _is_known(workspace: WorkspacePaths, source: FoundFile | None) -> bool:
    """Of a new file: all of it stands in the patch, or in a file that the model has read."""
    return source is None or not workspace.seen.doubt(source.path, source.content)


def _update(workspace: WorkspacePaths, drafts: dict[Path, _Draft], *, section: FilePatch) -> str:
    draft = _existing(workspace, drafts, given=section.path, leaves=bool(section.move_to))
    content = draft.content or b""
    note = ""
    if section.hunks:
        text = text_of(content)
        if text is None:
            raise ToolFault(f"`{section.path}` is {kind_of(content)}, no text that can be patched")
        patched = apply_hunks(text.text, section.hunks, name=section.path)
        content = text.with_text(patched.text)
        if patched.inexact:
            hunks = ", ".join(map(str, patched.inexact))
            note = f" (hunk {hunks}: fits apart from blanks at line ends or typographic characters)"
    if not section.move_to:
        note = " (it is as before: its hunks change nothing)" if content == draft.content else note
        draft.content = content
        return f"M {section.path}{note}"
    draft.content = None
    _make(workspace, drafts, given=section.move_to, content=content, like=draft.found)
    return f"M {section.path} -> {section.move_to}{note}"


def _existing(workspace: WorkspacePaths, drafts: dict[Path, _Draft], *, given: str, leaves: bool = False) -> _Draft:
    """The file that a section changes. `leaves`: it goes from its name, so a link must not be what stands there."""
    path = workspace.resolve(given)
    if leaves and (workspace.root / given_name(given)).is_symlink():
        raise ToolFault(f"`{given}` is a link to `{workspace.show(path)}`: name that, or remove the link with `bash`")
    if path not in drafts:
        found = workspace.find(given)
        refuse_write_protected(found, name=given)
        drafts[path] = _Draft(found=found, content=found.content)
    if drafts[path].content is None:
        raise ToolFault(f"`{given}` is not there any more: an earlier section of the patch deletes or moves it")
    return drafts[path]


def _make(
    workspace: WorkspacePaths, drafts: dict[Path, _Draft], *, given: str, content: bytes, like: FoundFile | None = None
) -> None:
    path = workspace.resolve(given)
    refuse_special(path, name=given)
    draft = drafts.get(path)
    if draft is None and workspace.look_at(path, name=given) is None:
        drafts[path] = _Draft(found=None, content=content, like=like)
    elif draft is not None and draft.content is None:
        draft.content, draft.like = content, like
    else:
        raise ToolFault(f"`{given}` exists already: update it, or delete it in an earlier section")


def _change(workspace: WorkspacePaths, path: Path, draft: _Draft) -> FileChange | None:
    if draft.found is not None:
        return None if draft.content == draft.found.content else replacing(workspace, draft.found, after=draft.content)
    return None if draft.content is None else making(workspace, path, after=draft.content, like=draft.like)


def _new_file(hunk: Hunk) -> bytes:
    text = "".join([f"{line}\n" for _, line in hunk.lines])
    if hunk.ends_with_newline is False:
        text = text.removesuffix("\n")
    return FileText(text="").with_text(text)
