"""The tool `apply_patch`: reads a patch, finds the place of each hunk, and changes several files, all or none."""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import FileText, composed_otherwise, kind_of, near_misses, text_of
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
from turnwise.vocab.wording import in_ticks

# Patch texts -> what they say about each file. Two formats: the one that begins with `*** Begin Patch`, and unified diffs.
#
# The first is that of openai/codex (codex-rs/apply-patch/src/parser.rs has its grammar), which opencode and others took over:
# sections `*** Add File: `, `*** Delete File: `, `*** Update File: ` (with `*** Move to: `), hunks after `@@` or `@@ anchor`, and
# `*** End of File`. A patch that does not end as its format says was cut off, and is refused.


BEGIN = "*** Begin Patch"
END = "*** End Patch"
_HEADERS: dict[str, Literal["add", "delete", "update"]] = {
    "*** Add File: ": "add",
    "*** Delete File: ": "delete",
    "*** Update File: ": "update",
}
_MOVE = "*** Move to: "
_AT_END = "*** End of File"
_RANGE = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
# Of a unified diff: what its other lines say as well.
_GIT = re.compile(r"(diff --git |index |new file mode|deleted file mode|old mode|new mode|similarity index|copy )")
_NO_LINE_END = "\\ No newline"

Sign = Literal[" ", "-", "+"]


class Hunk(msgspec.Struct, frozen=True, kw_only=True):
    """A run of lines: kept, taken out, put in. `anchors` are lines that stand above it, in their order; `line` is the line
    of the old file where it should stand, 0 where nobody said. `ends_with_newline` is what the file does after it."""

    lines: tuple[tuple[Sign, str], ...]
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    line: int = 0
    ends_with_newline: bool | None = None

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]


class FilePatch(msgspec.Struct, frozen=True, kw_only=True):
    """One section: the whole file of `add` is in its only hunk."""

    kind: Literal["add", "delete", "update"]
    path: str
    move_to: str = ""
    hunks: tuple[Hunk, ...] = ()


def parse_patch(text: str) -> tuple[FilePatch, ...]:
    """Every section in its order. Raises ToolFault, with the line, for what is no patch, or not a whole one."""
    lines = [line.removesuffix("\r") for line in text.strip("\n").split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    if lines and lines[0].strip() == BEGIN:
        if lines[-1].strip() != END:
            raise ToolFault(f"the patch was cut off: it does not end with `{END}`. Nothing was changed; send it whole")
        sections = _Sections(lines[1:-1]).all()
    elif any(line.startswith("--- ") for line in lines) or any(line.startswith("rename from ") for line in lines):
        sections = _UnifiedDiff(lines).all()
    else:
        raise ToolFault(f"no patch: its first line must be `{BEGIN}` (or it is a unified diff with `---` and `+++`)")
    if not sections:
        raise ToolFault("the patch is empty")
    return sections


def patched_paths(text: str) -> tuple[str, ...]:
    """Every path that the patch names, as it names it; () if it is not a patch."""
    try:
        sections = parse_patch(text)
    except ToolFault:
        return ()
    return tuple([path for section in sections for path in (section.path, section.move_to) if path])


class _Sections:
    """The reader of the first format."""

    def __init__(self, lines: list[str]) -> None:
        self._left = deque(lines)
        self._total = len(lines)

    def all(self) -> tuple[FilePatch, ...]:
        found: list[FilePatch] = []
        while self._left:
            if self._left[0].strip():
                found.append(self._section())
            else:
                self._left.popleft()
        return tuple(found)

    def _section(self) -> FilePatch:
        header = self._left[0].strip()
        for start, kind in _HEADERS.items():
            if header.startswith(start) and (path := header.removeprefix(start).strip()):
                self._left.popleft()
                match kind:
                    case "add":
                        return FilePatch(kind=kind, path=path, hunks=(self._added(path),))
                    case "delete":
                        return FilePatch(kind=kind, path=path)
                    case "update":
                        return self._update(path)
        raise self._fault(f"`{header[:100]}` is no section; they begin with {in_ticks(_HEADERS)}")

    def _added(self, path: str) -> Hunk:
        texts: list[tuple[Sign, str]] = []
        while self._left and self._left[0].startswith("+"):
            texts.append(("+", self._left.popleft()[1:]))
        if self._left and not self._is_header() and self._left[0].strip():
            raise self._fault(f"each line of the new file `{path}` must begin with `+`")
        return Hunk(lines=tuple(texts))

    def _update(self, path: str) -> FilePatch:
        move_to = ""
        if self._left and self._left[0].startswith(_MOVE):
            move_to = self._left.popleft().removeprefix(_MOVE).strip()
        hunks: list[Hunk] = []
        while self._left and not self._is_header():
            if hunks and not self._left[0].strip():
                self._left.popleft()  # blank lines between hunks
                continue
            hunks.append(self._hunk(path, first=not hunks))
        if not hunks and not move_to:
            raise self._fault(f"the update of `{path}` says nothing to change")
        return FilePatch(kind="update", path=path, move_to=move_to, hunks=tuple(hunks))

    def _hunk(self, path: str, *, first: bool) -> Hunk:
        anchors: list[str] = []
        begun = len(self._left)
        while self._left and self._left[0].startswith("@@"):
            if anchor := self._left.popleft().removeprefix("@@").strip():
                anchors.append(anchor)
        if len(self._left) == begun and not first:
            raise self._fault("expected `@@`, a line that begins with ` `, `-` or `+`, or the next section")
        texts: list[tuple[Sign, str]] = []
        at_end = False
        while self._left and not at_end:
            if self._left[0].startswith("@@") or self._is_header():
                break
            line = self._left.popleft()
            match line[:1]:
                case " " | "-" | "+" as sign:
                    texts.append((sign, line[1:]))
                case "":
                    texts.append((" ", ""))  # models leave out the blank of an empty line
                case _ if line.strip() == _AT_END:
                    at_end = True
                case _:
                    self._left.appendleft(line)
                    raise self._fault(f"a line of `{path}` must begin with ` `, `-` or `+`, not as {line[:60]!r} does")
        while texts and texts[-1] == (" ", "") and (not self._left or self._is_header()):
            texts.pop()  # a blank line before the next section
        if not texts:
            raise self._fault(f"a hunk of `{path}` has no lines")
        return Hunk(lines=tuple(texts), anchors=tuple(anchors), at_end=at_end)

    def _is_header(self) -> bool:
        return self._left[0].startswith(tuple(_HEADERS))

    def _fault(self, what: str) -> ToolFault:
        return ToolFault(f"line {self._total - len(self._left) + 2} of the patch: {what}. Nothing was changed")


class _UnifiedDiff:
    """The reader of unified diffs, with or without git's extra lines."""

    def __init__(self, lines: list[str]) -> None:
        self._left = deque(lines)
        self._total = len(lines)

    def all(self) -> tuple[FilePatch, ...]:
        found: list[FilePatch] = []
        renamed = ""
        while self._left:
            line = self._left[0]
            if line.startswith("--- ") and self._following().startswith("+++ "):
                found.append(self._file())
                renamed = ""
            elif line.startswith("rename from "):
                renamed = line.removeprefix("rename from ")
                self._left.popleft()
            elif line.startswith("rename to ") and renamed:
                self._left.popleft()
                if not self._has_file():
                    target = line.removeprefix("rename to ")
                    found.append(FilePatch(kind="update", path=renamed, move_to=target))
            elif not line.strip() or _GIT.match(line):
                self._left.popleft()
            else:
                raise self._fault(f"{line[:80]!r} belongs to no unified diff")
        return tuple(found)

    def _following(self) -> str:
        return self._left[1] if len(self._left) > 1 else ""

    def _has_file(self) -> bool:
        """Whether the rename's own `---` follows, before the next file's lines."""
        while self._at("index "):
            self._left.popleft()
        return self._at("--- ")

    def _file(self) -> FilePatch:
        old, new = (line[4:].split("\t")[0] for line in (self._left[0], self._following()))
        if old.startswith('"') or new.startswith('"'):
            raise self._fault("a quoted path cannot be read here: use the other format, which quotes nothing")
        if old.startswith("a/") and (new.startswith("b/") or new == "/dev/null"):
            old = old[2:]
        if new.startswith("b/"):
            new = new[2:]
        self._left.popleft()
        self._left.popleft()
        hunks: list[Hunk] = []
        while self._left and (match := _RANGE.match(self._left[0])):
            self._left.popleft()
            counts = [1 if match[place] is None else int(match[place]) for place in (2, 4)]
            hunks.append(self._hunk(int(match[1]), old=counts[0], new=counts[1]))
        if not hunks:
            raise self._fault("expected `@@ -line,count +line,count @@`")
        if old == "/dev/null":
            return FilePatch(kind="add", path=new, hunks=tuple(hunks[:1]))
        if new == "/dev/null":
            return FilePatch(kind="delete", path=old)
        return FilePatch(kind="update", path=old, move_to="" if old == new else new, hunks=tuple(hunks))

    def _hunk(self, line: int, *, old: int, new: int) -> Hunk:
        texts: list[tuple[Sign, str]] = []
        ends: bool | None = None
        while old or new or self._at(_NO_LINE_END):
            if not self._left:
                raise self._fault(f"the patch was cut off: {old} old and {new} new lines are missing")
            text = self._left.popleft()
            match text[:1]:
                case " " | "":
                    old, new = old - 1, new - 1
                    texts.append((" ", text[1:]))
                case "-":
                    old -= 1
                    texts.append(("-", text[1:]))
                case "+":
                    new -= 1
                    texts.append(("+", text[1:]))
                case "\\" if texts:
                    ends = texts[-1][0] == "-"  # it is the old side that has none, else the new side
                case _:
                    raise self._fault(f"{text[:80]!r} stands where a line of the hunk is missing")
            if old < 0 or new < 0:
                raise self._fault("the hunk has more lines than its `@@` says")
        return Hunk(lines=tuple(texts), line=line, ends_with_newline=ends)

    def _at(self, start: str) -> bool:
        return bool(self._left) and self._left[0].startswith(start)

    def _fault(self, what: str) -> ToolFault:
        return ToolFault(f"line {self._total - len(self._left) + 1} of the patch: {what}. Nothing was changed")


# Hunks of a patch applied to a text: where each stands, and what the lines are afterwards.


LINES_TOLD = 10
MAX_COMPARED = 20_000_000  # lines, a few seconds: thousands of hunks that fit everywhere
# What models write for another: typographic dashes, quotes and spaces (codex-rs/apply-patch/src/seek_sequence.rs has such too).
_PLAIN = str.maketrans("‐‑‒–—―−‘’‚‛“”„‟\u00a0\u2002\u2003\u2009\u202f\u3000", "-------''''\"\"\"\"      ")

LineReading = Callable[[str], str]


class Patched(msgspec.Struct, frozen=True):
    """The text afterwards, and which hunks (counted from 1) matched only apart from blanks at line ends or typography."""

    text: str
    inexact: tuple[int, ...]


def apply_hunks(text: str, hunks: tuple[Hunk, ...], *, name: str) -> Patched:
    """Each in its order. Raises ToolFault where one stands nowhere, or in several places, with what stands there."""
    lines = text.split("\n")  # each without its end but for the `\r` of a Windows file
    ends_with_newline = not lines[-1]
    if ends_with_newline:
        lines.pop()
    bare = _Lines([line.removesuffix("\r") for line in lines] if "\r" in text else lines, hunks=hunks)
    if not ends_with_newline and len(lines) > 1 and lines[-2].endswith("\r"):
        lines[-1] += "\r"  # as it must end where a line comes behind it
    result: list[str] = []
    inexact: list[int] = []
    cursor = 0
    for number, hunk in enumerate(hunks, start=1):
        where = f"hunk {number} of {len(hunks)} for `{name}`" if len(hunks) > 1 else f"the hunk for `{name}`"
        start, exact = _place(bare, hunk, cursor=cursor, where=where)
        if not exact:
            inexact.append(number)
        result += lines[cursor:start]
        cursor = start
        replaced: list[str] = []
        for sign, line in hunk.lines:
            if sign == "+":
                result.append(line + _end_for_new(lines, at=cursor, replaced=replaced))
                continue
            if sign == " ":
                result.append(lines[cursor])  # as it stands there, not as the patch has it
                replaced = []
            else:
                replaced.append(lines[cursor])
            cursor += 1
        if hunk.ends_with_newline is not None:
            ends_with_newline = hunk.ends_with_newline
    result += lines[cursor:]
    if result and ends_with_newline:
        result.append("")
    elif result:
        result[-1] = result[-1].removesuffix("\r")
    return Patched("\n".join(result), tuple(inexact))


def _end_for_new(lines: Sequence[str], *, at: int, replaced: list[str]) -> str:
    """A new line ends as the line whose place it takes, or as that before which it stands; behind the last, as that does."""
    beside = next(iter(replaced or lines[at : at + 1] or lines[-1:]), "")
    if len(replaced) > 1:
        replaced.pop(0)
    return "\r" if beside.endswith("\r") else ""


class _Lines:
    """The lines of a file, and where each that a hunk names stands: found once for all hunks, as a patch may have thousands."""

    def __init__(self, bare: list[str], *, hunks: tuple[Hunk, ...]) -> None:
        self.bare = bare
        self._sought = [line for hunk in hunks for line in (*hunk.old, *hunk.anchors)]
        self._read: dict[LineReading, list[str]] = {_same: bare}
        self._places: dict[LineReading, dict[str, list[int]]] = {}
        self._compared = 0

    def places(self, line: str, *, plain: LineReading) -> list[int]:
        """Where a line that reads like this one, of a hunk, stands, from the top."""
        if plain not in self._places:
            found: dict[str, list[int]] = {plain(one): [] for one in self._sought}
            lines = self._read_by(plain)
            for place in [place for place, one in enumerate(lines) if one in found]:
                found[lines[place]].append(place)
            self._places[plain] = found
        return self._places[plain][line]

    def matches(self, old: Sequence[str], *, plain: LineReading, start: int, where: str) -> list[int]:
        """Where all of the lines stand, by that line of them that is rarest. Raises ToolFault where looking takes too long."""
        lines, sought = self._read_by(plain), [plain(line) for line in old]
        known = [self.places(line, plain=plain) for line in sought]
        rarest = min(range(len(sought)), key=lambda at: len(known[at]))
        found: list[int] = []
        for place in known[rarest][bisect_left(known[rarest], start + rarest) :]:
            if lines[place - rarest : place - rarest + len(sought)] == sought:
                found.append(place - rarest)
            self.spend(len(sought), where=where)
        return found

    def _read_by(self, plain: LineReading) -> list[str]:
        if plain not in self._read:
            self._read[plain] = [plain(line) for line in self.bare]
        return self._read[plain]

    def spend(self, lines: int, *, where: str) -> None:
        self._compared += lines
        if self._compared > MAX_COMPARED:
            raise ToolFault(
                f"{where}: its lines stand in too many places to look at all of them: give fewer hunks at once, with lines "
                "that are not everywhere, or write the file anew. Nothing was changed"
            )


def _place(lines: _Lines, hunk: Hunk, *, cursor: int, where: str) -> tuple[int, bool]:
    """The line (from 0) where it begins, and whether it stands there exactly."""
    bare = lines.bare
    for anchor in hunk.anchors:
        cursor = _anchor(lines, anchor, cursor=cursor, where=where)
    old = hunk.old
    if not old:
        if hunk.line:
            return min(hunk.line, len(bare)), True
        return (cursor + 1 if hunk.anchors else len(bare)), True
    for exact, plain in ((True, _same), (False, str.rstrip), (False, _typed)):
        found = lines.matches(old, plain=plain, start=cursor, where=where)
        if hunk.at_end:
            found = [start for start in found if start + len(old) == len(bare)]
        if len(found) > 1 and hunk.line - 1 in found:
            found = [hunk.line - 1]
        if len(found) == 1 or (found and hunk.anchors):
            return found[0], exact
        if found:
            told = ", ".join(str(start + 1) for start in found[:LINES_TOLD])
            raise ToolFault(
                f"{where} stands in {len(found)} places (lines {told}): add lines around it, or an `@@` line that names "
                f"the function above it. Nothing was changed"
            )
    if earlier := lines.matches(old, plain=_same, start=0, where=where):
        at_end = " and not at the end" if hunk.at_end else ", before the hunk above it (hunks go from top to bottom)"
        raise ToolFault(f"{where} stands in line {earlier[0] + 1}{at_end}. Nothing was changed")
    raise ToolFault(f"{where} does not fit. {near_misses(chr(10).join(bare), chr(10).join(old))}\nNothing was changed")


def _anchor(lines: _Lines, anchor: str, *, cursor: int, where: str) -> int:
    for plain in (_same, str.strip):
        places = lines.places(plain(anchor), plain=plain)
        if (at := bisect_left(places, cursor)) < len(places):
            return places[at]
    for number in range(cursor, len(lines.bare)):
        lines.spend(1, where=where)
        if anchor in lines.bare[number]:  # models shorten it: `@@ class A` for `class A(B):`
            return number
    said = composed_otherwise("\n".join(lines.bare), anchor)
    raise ToolFault(
        f"{where}: its `@@ {anchor}` is no line below line {cursor}. {f'{said} ' if said else ''}Nothing was changed"
    )


def _same(line: str) -> str:
    return line


def _typed(line: str) -> str:
    return line.translate(_PLAIN).rstrip()


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
