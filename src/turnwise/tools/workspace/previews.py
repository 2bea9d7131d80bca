"""What a call would change, as a diff for the one who is asked, and which paths it names."""

import difflib
from collections.abc import Callable, Mapping, Sequence

import msgspec

from turnwise.errors import ToolFault
from turnwise.tools.workspace.content import kind_of, text_of
from turnwise.tools.workspace.edit_tool import (
    EditArguments,
    MultiEditArguments,
    WriteArguments,
    plan_edit,
    plan_multi_edit,
    plan_write,
)
from turnwise.tools.workspace.offers import read_arguments
from turnwise.tools.workspace.patch_tool import PatchArguments, patched_paths, plan_patch
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.plans import ChangePlan
from turnwise.tools.workspace.staged_changes import FileChange
from turnwise.vocab.hidden_characters import visible, visible_line

WOULD_FAIL = "(the call would fail:"
MAX_LINES = 200
MAX_LINE_CHARACTERS = 300
COMPARED_LINES = 3000  # what differs between the first and the last changed line; comparing is quadratic in it
CONTEXT_LINES = 3

PreviewArguments = Mapping[str, object]


def _write(workspace: WorkspacePaths, arguments: PreviewArguments) -> ChangePlan:
    return plan_write(workspace, read_arguments(arguments, WriteArguments))


def _edit(workspace: WorkspacePaths, arguments: PreviewArguments) -> ChangePlan:
    return plan_edit(workspace, read_arguments(arguments, EditArguments))


def _multi_edit(workspace: WorkspacePaths, arguments: PreviewArguments) -> ChangePlan:
    return plan_multi_edit(workspace, read_arguments(arguments, MultiEditArguments))


def _apply_patch(workspace: WorkspacePaths, arguments: PreviewArguments) -> ChangePlan:
    return plan_patch(workspace, read_arguments(arguments, PatchArguments))


_PLANS: dict[str, Callable[[WorkspacePaths, PreviewArguments], ChangePlan]] = {
    "write": _write,
    "edit": _edit,
    "multi_edit": _multi_edit,
    "apply_patch": _apply_patch,
}
CHANGING = frozenset(_PLANS)  # the tools that change files by themselves


def preview(workspace: WorkspacePaths, tool: str, arguments: PreviewArguments) -> str:
    """A unified diff of what the call would change now, at most 200 lines and safe to print at a terminal; a sentence where
    it would fail; empty for a tool that changes no file by itself. Changes nothing and remembers nothing."""
    return "\n".join(shortly(whole_preview(workspace, tool, arguments)))


def whole_preview(workspace: WorkspacePaths, tool: str, arguments: PreviewArguments) -> list[str]:
    """The same, every line of it, whole: what a person approves, they can see."""
    if tool not in _PLANS:
        return []
    try:
        changes = changes_of_call(workspace, tool, arguments)
    except (ToolFault, msgspec.ValidationError) as fault:
        return visible(f"{WOULD_FAIL} {fault})").split("\n")
    return [visible(line) for change in changes for line in diff_of(change)]


def would_fail(changes: Sequence[str]) -> bool:
    """Whether this preview says that the call would fail now: it shows nothing of what the call holds."""
    return bool(changes) and changes[0].startswith(WOULD_FAIL)


def changes_of_call(workspace: WorkspacePaths, tool: str, arguments: PreviewArguments) -> tuple[FileChange, ...]:
    """What the call would change now; () for a tool that changes no file by itself. Changes nothing and remembers nothing.

    Raises ToolFault and ValidationError where the call would fail.
    """
    plan_of = _PLANS.get(tool)
    return () if plan_of is None else plan_of(workspace, arguments).changes


def shortly(lines: list[str]) -> list[str]:
    """The beginning of a preview, its lines not too long; what is left out is said."""
    shown = [_cut(line) for line in lines[:MAX_LINES]]
    if len(lines) > MAX_LINES:
        shown.append(f"[... {len(lines) - MAX_LINES:,} more lines]")
    return shown


def paths_of_call(tool: str, arguments: PreviewArguments) -> tuple[str, ...]:
    """The paths that a call of one of the file tools names, as it names them."""
    patch, path = arguments.get("patch"), arguments.get("path")
    if tool == "apply_patch":
        return patched_paths(patch) if isinstance(patch, str) else ()
    if tool in {"list", "search"} and path is None:
        return (".",)
    return (path,) if isinstance(path, str) and tool in {"read", "list", "search", *_PLANS} else ()


def diff_of(change: FileChange) -> list[str]:
    """A unified diff, every line of it; nothing in it is made visible."""
    before, after = _lines(change.before), _lines(change.after)
    head = [
        "--- /dev/null" if change.before is None else f"--- {visible_line(change.shown)}",
        "+++ /dev/null" if change.after is None else f"+++ {visible_line(change.shown)}",
    ]
    # what is the same at both ends costs nothing that way
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    tail = 0
    while tail < min(len(before), len(after)) - same and before[-1 - tail] == after[-1 - tail]:
        tail += 1
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


def _cut(line: str) -> str:
    if len(line) <= MAX_LINE_CHARACTERS:
        return line
    return f"{line[:MAX_LINE_CHARACTERS]} [... {len(line) - MAX_LINE_CHARACTERS:,} more characters]"
