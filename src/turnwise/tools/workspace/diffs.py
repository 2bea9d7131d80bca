"""What a change does to a file, as a unified diff: for the person who is asked, and for those who watch afterwards."""

import difflib
from collections.abc import Sequence

from turnwise.running.watcher_events import FilesChanged
from turnwise.running.working_call import telling
from turnwise.tools.workspace.content import kind_of, text_of
from turnwise.tools.workspace.staged_changes import FileChange
from turnwise.vocab.hidden_characters import visible_line
from turnwise.vocab.parts import in_common

COMPARED_LINES = 3000  # what differs between the first and the last changed line; comparing is quadratic in it
CONTEXT_LINES = 3
MAX_LINE_CHARACTERS = 300
TOLD_LINES = 2000  # of a diff that watchers are told


def tell_changes(changes: Sequence[FileChange]) -> None:
    """Tell the watchers of the current call what it has changed; without watchers nothing is compared."""
    if (watched := telling()) is None:
        return
    diffs = [diff_of(change) for change in changes]
    lines = [line for diff in diffs for line in diff]
    more = [f"[... {len(lines) - TOLD_LINES:,} more lines]"] if len(lines) > TOLD_LINES else []
    diff = "\n".join([*[cut_line(line) for line in lines[:TOLD_LINES]], *more])
    signs = [line[:1] for one in diffs for line in one[2:]]
    watched.tell(FilesChanged(watched.call, diff, added=signs.count("+"), removed=signs.count("-")))


def diff_of(change: FileChange) -> list[str]:
    """A unified diff, every line of it; nothing in it is made visible."""
    before, after = _lines(change.before), _lines(change.after)
    head = [
        "--- /dev/null" if change.before is None else f"--- {visible_line(change.shown)}",
        "+++ /dev/null" if change.after is None else f"+++ {visible_line(change.shown)}",
    ]
    # what is the same at both ends costs nothing that way
    same = in_common(before, after)
    tail = in_common(before[same:][::-1], after[same:][::-1])
    start = max(0, same - CONTEXT_LINES)
    spared = max(0, tail - CONTEXT_LINES)
    old, new = before[start : len(before) - spared], after[start : len(after) - spared]
    if min(len(old), len(new)) > COMPARED_LINES:
        note = f"({len(old):,} lines are replaced by {len(new):,}, from line {same + 1} on)"
        return [*head, note, *[f"-{line}" for line in old], *[f"+{line}" for line in new]]
    hunks = list(difflib.unified_diff(old, new, n=CONTEXT_LINES, lineterm=""))[2:]
    return head + [_moved(line, by=start) if line.startswith("@@") else line for line in hunks]


def _moved(header: str, *, by: int) -> str:
    """The hunk's line numbers counted from the beginning of the file."""
    _, old, new, _ = header.split(" ")

    def later(span: str) -> str:
        first, comma, count = span[1:].partition(",")
        return f"{span[0]}{int(first) + by}{comma}{count}"

    return f"@@ {later(old)} {later(new)} @@"


def _lines(content: bytes | None) -> list[str]:
    if content is None:
        return []
    text = text_of(content)
    if text is None:
        try:  # a NUL makes no binary of a script: a shell runs it all the same
            whole = content.decode()
        except UnicodeDecodeError:
            return [f"({kind_of(content)}, {len(content):,} bytes)"]
    else:
        whole = text.text
    lines = whole.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif whole:
        lines[-1] += " (no line end)"
    return lines


def cut_line(line: str) -> str:
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]} [... {len(line) - MAX_LINE_CHARACTERS:,} more characters]"
