"""What a person sees of the work: diffs with line numbers, the end of a command's output, and texts that are shown folded."""

import re
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec

from turnwise.coding_agent.text import clean, visible, visible_line
from turnwise.rules.advice import for_people
from turnwise.running.watcher_events import FilesChanged
from turnwise.vocab import Text, ToolResult

SHOWN_LINES = 20  # of a diff
TAIL_LINES = 5  # of the output of a command that has ended
MAX_FOLDED = 40  # texts that can be opened
MAX_FOLDED_CHARACTERS = 256 * 1024  # of each
EXITS = {1: "failed", 2: "failed", 124: "out of time", 126: "cannot be run", 127: "no such command", 130: "interrupted"}

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_REPLACED = re.compile(r"\(([\d,]+) lines are replaced by ([\d,]+), from line (\d+) on\)")
_EXIT = re.compile(r"\[exit code (\d+)(?: \((SIG\w+)\))?(?:; (.*))?\]")
_OTHER_END = re.compile(r"\[((?:timed out|ended with all) .*)\]")


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """A text that is on the screen in part: a title, and all of its lines, clean."""

    title: str
    lines: tuple[str, ...]


class Folds:
    """The texts of a session that can be opened: the last ones, each up to a bound."""

    def __init__(self) -> None:
        self._kept: deque[Fold] = deque(maxlen=MAX_FOLDED)

    @property
    def newest_first(self) -> list[Fold]:
        return [*reversed(self._kept)]

    def keep(self, title: str, lines: Sequence[str]) -> None:
        kept: list[str] = []
        left = MAX_FOLDED_CHARACTERS
        for line in lines:
            if len(line) > left:
                kept += [line[:left], "[the rest is not kept]"]
                break
            kept.append(line)
            left -= len(line) + 1
        self._kept.append(Fold(title=title, lines=tuple(kept)))


def diff_title(seen: FilesChanged) -> str:
    """`main.py +3 -1`."""
    names = dict.fromkeys(_file_names(seen.diff))
    shown = ", ".join([visible_line(name) for name in [*names][:3]]) + (", …" if len(names) > 3 else "")
    return f"{shown} +{seen.added} -{seen.removed}"


def diff_lines(diff: str) -> list[str]:
    """The lines of a unified diff with their numbers, clean: `+   12 text`. The sign comes first."""
    return [visible(line).expandtabs(4).replace("\n", "") for line in _numbered(diff)]


def _file_names(diff: str) -> Iterator[str]:
    for line in _numbered(diff):
        if line.startswith("@ "):
            yield line[2:]


def _numbered(diff: str) -> Iterator[str]:
    """`@ NAME` begins a file."""
    old = new = old_left = new_left = 0
    before = ""
    is_first = True
    for line in diff.split("\n"):
        sign, text = line[:1], line[1:]
        if old_left > 0 or new_left > 0:
            number = old if sign == "-" else new
            yield f"{sign}{number:>5} {text}"
            old, old_left = (old + 1, old_left - 1) if sign != "+" else (old, old_left)
            new, new_left = (new + 1, new_left - 1) if sign != "-" else (new, new_left)
        elif found := _HUNK.fullmatch(line):
            old, new = int(found[1]), int(found[3])
            old_left, new_left = int(found[2] or 1), int(found[4] or 1)
            if not is_first:
                yield " ⋮"
            is_first = False
        elif found := _REPLACED.fullmatch(line):
            old_left, new_left = [int(found[at].replace(",", "")) for at in (1, 2)]
            old = new = int(found[3])
        elif line.startswith("--- "):
            before = line[4:]
        elif line.startswith("+++ "):
            after, is_first = line[4:], True
            yield f"@ {before if after == '/dev/null' else after}"
        else:
            yield line


class EndedCommand(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, in words (empty: well), and its output, clean."""

    end: str
    output: tuple[str, ...]


def ended_command(result: ToolResult) -> EndedCommand:
    """The end comes from turnwise's own lines below the output, and of these the last counts."""
    text = for_people("".join([part.text for part in result.content if isinstance(part, Text) and not part.note]))
    lines = clean(text).rstrip("\n").split("\n")
    end, at = "failed", len(lines)
    if not result.is_error:
        return EndedCommand(end="", output=tuple(lines))
    for number in range(len(lines) - 1, -1, -1):
        if not (lines[number].startswith("[") and lines[number].endswith("]")):
            break
        at = number
        if found := _EXIT.fullmatch(lines[number]):
            end = exit_said(int(found[1]), signal=found[2] or "", why=found[3] or "")
            break
        if found := _OTHER_END.fullmatch(lines[number]):
            end = found[1]
            break
    return EndedCommand(end=end, output=tuple(lines[:at]))


def exit_said(code: int, *, signal: str = "", why: str = "") -> str:
    """`exit 1: failed`, `ended by SIGKILL`."""
    words = f"ended by {signal}" if signal else f"exit {code}: {EXITS.get(code, 'failed')}"
    return f"{words}; {why}" if why else words


def thought_said(text: str, *, seconds: float) -> str:
    """`thought for 12 s · 340 words`."""
    words = len(text.split())
    return f"thought for {max(1, round(seconds))} s · {words:,} {'word' if words == 1 else 'words'}"
