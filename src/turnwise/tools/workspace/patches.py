"""Patch texts -> what they say about each file. Two formats: the one that begins with `*** Begin Patch`, and unified diffs.

The first is that of openai/codex (codex-rs/apply-patch/src/parser.rs has its grammar), which opencode and others took over:
sections `*** Add File: `, `*** Delete File: `, `*** Update File: ` (with `*** Move to: `), hunks after `@@` or `@@ anchor`, and
`*** End of File`. A patch that does not end as its format says was cut off, and is refused.
"""

import re
from typing import Literal

import msgspec

from turnwise.errors import ToolFault

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
    """Every path that the patch names, as it names it; () where it is none."""
    try:
        sections = parse_patch(text)
    except ToolFault:
        return ()
    return tuple([path for section in sections for path in (section.path, section.move_to) if path])


class _Sections:
    """The reader of the first format."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._next = 0

    def all(self) -> tuple[FilePatch, ...]:
        found: list[FilePatch] = []
        while self._next < len(self._lines):
            if self._lines[self._next].strip():
                found.append(self._section())
            else:
                self._next += 1
        return tuple(found)

    def _section(self) -> FilePatch:
        header = self._lines[self._next].strip()
        for start, kind in _HEADERS.items():
            if header.startswith(start) and (path := header.removeprefix(start).strip()):
                self._next += 1
                match kind:
                    case "add":
                        return FilePatch(kind=kind, path=path, hunks=(self._added(path),))
                    case "delete":
                        return FilePatch(kind=kind, path=path)
                    case "update":
                        return self._update(path)
        raise self._fault(
            f"`{header[:100]}` is no section; they begin with {', '.join(f'`{word}`' for word in _HEADERS)}"
        )

    def _added(self, path: str) -> Hunk:
        texts: list[tuple[Sign, str]] = []
        while self._next < len(self._lines) and self._lines[self._next].startswith("+"):
            texts.append(("+", self._lines[self._next][1:]))
            self._next += 1
        if self._next < len(self._lines) and not self._is_header() and self._lines[self._next].strip():
            raise self._fault(f"each line of the new file `{path}` must begin with `+`")
        return Hunk(lines=tuple(texts))

    def _update(self, path: str) -> FilePatch:
        move_to = ""
        if self._next < len(self._lines) and self._lines[self._next].startswith(_MOVE):
            move_to = self._lines[self._next].removeprefix(_MOVE).strip()
            self._next += 1
        hunks: list[Hunk] = []
        while self._next < len(self._lines) and not self._is_header():
            if hunks and not self._lines[self._next].strip():
                self._next += 1  # blank lines between hunks
                continue
            hunks.append(self._hunk(path, first=not hunks))
        if not hunks and not move_to:
            raise self._fault(f"the update of `{path}` says nothing to change")
        return FilePatch(kind="update", path=path, move_to=move_to, hunks=tuple(hunks))

    def _hunk(self, path: str, *, first: bool) -> Hunk:
        anchors: list[str] = []
        begun = self._next
        while self._next < len(self._lines) and (line := self._lines[self._next]).startswith("@@"):
            if anchor := line.removeprefix("@@").strip():
                anchors.append(anchor)
            self._next += 1
        if self._next == begun and not first:
            raise self._fault("expected `@@`, a line that begins with ` `, `-` or `+`, or the next section")
        texts: list[tuple[Sign, str]] = []
        at_end = False
        while self._next < len(self._lines) and not at_end:
            line = self._lines[self._next]
            if line.startswith("@@") or self._is_header():
                break
            self._next += 1
            match line[:1]:
                case " " | "-" | "+" as sign:
                    texts.append((sign, line[1:]))
                case "":
                    texts.append((" ", ""))  # models leave out the blank of an empty line
                case _ if line.strip() == _AT_END:
                    at_end = True
                case _:
                    self._next -= 1
                    raise self._fault(f"a line of `{path}` must begin with ` `, `-` or `+`, not as {line[:60]!r} does")
        while texts and texts[-1] == (" ", "") and (self._next >= len(self._lines) or self._is_header()):
            texts.pop()  # a blank line before the next section
        if not texts:
            raise self._fault(f"a hunk of `{path}` has no lines")
        return Hunk(lines=tuple(texts), anchors=tuple(anchors), at_end=at_end)

    def _is_header(self) -> bool:
        return self._lines[self._next].startswith(tuple(_HEADERS))

    def _fault(self, what: str) -> ToolFault:
        return ToolFault(f"line {self._next + 2} of the patch: {what}. Nothing was changed")


class _UnifiedDiff:
    """The reader of unified diffs, with or without git's extra lines."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._next = 0

    def all(self) -> tuple[FilePatch, ...]:
        found: list[FilePatch] = []
        renamed = ""
        while self._next < len(self._lines):
            line = self._lines[self._next]
            if line.startswith("--- ") and self._following().startswith("+++ "):
                found.append(self._file())
                renamed = ""
            elif line.startswith("rename from "):
                renamed = line.removeprefix("rename from ")
                self._next += 1
            elif line.startswith("rename to ") and renamed:
                self._next += 1
                if not self._has_file():
                    target = line.removeprefix("rename to ")
                    found.append(FilePatch(kind="update", path=renamed, move_to=target))
            elif not line.strip() or _GIT.match(line):
                self._next += 1
            else:
                raise self._fault(f"{line[:80]!r} belongs to no unified diff")
        return tuple(found)

    def _following(self) -> str:
        return self._lines[self._next + 1] if self._next + 1 < len(self._lines) else ""

    def _has_file(self) -> bool:
        """Whether the rename's own `---` follows, before the next file's lines."""
        while self._next < len(self._lines) and self._lines[self._next].startswith("index "):
            self._next += 1
        return self._next < len(self._lines) and self._lines[self._next].startswith("--- ")

    def _file(self) -> FilePatch:
        old, new = self._lines[self._next][4:].split("\t")[0], self._following()[4:].split("\t")[0]
        if old.startswith('"') or new.startswith('"'):
            raise self._fault("a quoted path cannot be read here: use the other format, which quotes nothing")
        if old.startswith("a/") and (new.startswith("b/") or new == "/dev/null"):
            old = old[2:]
        if new.startswith("b/"):
            new = new[2:]
        self._next += 2
        hunks: list[Hunk] = []
        while self._next < len(self._lines) and (match := _RANGE.match(self._lines[self._next])):
            self._next += 1
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
            if self._next >= len(self._lines):
                raise self._fault(f"the patch was cut off: {old} old and {new} new lines are missing")
            text = self._lines[self._next]
            self._next += 1
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
        return self._next < len(self._lines) and self._lines[self._next].startswith(start)

    def _fault(self, what: str) -> ToolFault:
        return ToolFault(f"line {self._next + 1} of the patch: {what}. Nothing was changed")
