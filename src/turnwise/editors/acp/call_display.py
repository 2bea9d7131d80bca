"""How an editor shows a call: its title, its kind, the files that it is about, and what it changes as a diff."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from acp.helpers import text_block, tool_content, tool_diff_content
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    TerminalToolCallContent,
    ToolCallLocation,
    ToolKind,
)

from turnwise.coding_agent.asked_calls import NotWhole, arguments_in
from turnwise.coding_agent.text import clean, visible
from turnwise.errors import ToolFault
from turnwise.rules.advice import for_people
from turnwise.running.grants import judged_paths
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import CHANGING, changes_of_call, paths_of_call
from turnwise.tools.workspace.staged_changes import FileChange
from turnwise.vocab import Text, ToolCall, ToolResult
from turnwise.vocab.file_names import shown_name

Content = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent

KINDS: Mapping[str, ToolKind] = {
    "read": "read",
    "list": "search",
    "search": "search",
    "bash": "execute",
    "script": "execute",
    "task": "think",
    "ask_user": "think",
    **dict.fromkeys(CHANGING, "edit"),
}
MAX_SHOWN = 64 * 1024  # characters of a result, or of a text that is asked about: a person reads no more
MAX_DIFF = 512 * 1024  # of both sides of a file; a larger one is told by its size
MAX_DIFFS = 20  # files of one call
MAX_LOCATIONS = 50


def arguments_of(call: ToolCall) -> Mapping[str, object]:
    """Empty for those that are no JSON object."""
    return arguments_in(call.arguments)


def kind_of(call: ToolCall) -> ToolKind:
    return KINDS.get(call.name, "other")


def locations_of(call: ToolCall, *, workspace: WorkspacePaths) -> list[ToolCallLocation]:
    """The files that it names, where they lead."""
    found: list[ToolCallLocation] = []
    for name in paths_of_call(call.name, arguments_of(call))[:MAX_LOCATIONS]:
        try:
            found.append(ToolCallLocation(path=shown_name(str(workspace.real_path(name)))))
        except ToolFault:
            continue
    return found


def diffs_of(
    call: ToolCall, *, workspace: WorkspacePaths, judged: Iterable[str] | None = None, whole: bool = False
) -> list[Content]:
    """What it would change now; a sentence where it would fail, or is too large to show. `judged` are resolved paths beyond the
    folder that it may be looked at for. Raises NotWhole where it is too large, if the `whole` is wanted."""
    if call.name not in CHANGING:
        return []
    try:
        with judged_paths(judged):
            changes = changes_of_call(workspace, call.name, arguments_of(call))
    except (ToolFault, msgspec.ValidationError) as fault:
        return [told(f"(the call would fail: {fault})"), *([told(call.arguments, whole=True)] if whole else [])]
    if whole and len(changes) > MAX_DIFFS:
        raise NotWhole(f"it changes {len(changes):,} files, and {MAX_DIFFS} can be shown")
    more = [told(f"({len(changes) - MAX_DIFFS} more files)")] if len(changes) > MAX_DIFFS else []
    return [*[_diff_of(change, whole=whole) for change in changes[:MAX_DIFFS]], *more]


def _diff_of(change: FileChange, *, whole: bool) -> Content:
    before, after = change.before or b"", change.after or b""
    if len(before) + len(after) > MAX_DIFF:
        if whole:
            raise NotWhole(f"both sides of `{change.shown}` have more than {MAX_DIFF:,} bytes")
        return told(f"{change.shown}: {len(before):,} bytes become {len(after):,}")
    try:
        old = None if change.before is None else change.before.decode()
        new = after.decode()
    except UnicodeDecodeError:
        return told(f"{change.shown}: no UTF-8; {len(before):,} bytes become {len(after):,}")
    return tool_diff_content(shown_name(str(change.path)), new, old)


def told(text: str, *, whole: bool = False) -> Content:
    """A text of which nothing is hidden, cut where nobody reads on. Raises NotWhole there, if the `whole` is wanted."""
    shown = visible(text)
    if len(shown) > MAX_SHOWN:
        if whole:
            raise NotWhole(f"it has {len(shown):,} characters, and {MAX_SHOWN:,} can be shown")
        shown = f"{shown[:MAX_SHOWN]}\n[{len(shown) - MAX_SHOWN:,} MORE CHARACTERS ARE NOT SHOWN]"
    return tool_content(text_block(shown))


def result_said(result: ToolResult) -> Sequence[Content]:
    """What the model reads of it, without what only the model is told."""
    text = for_people("".join([part.text for part in result.content if isinstance(part, Text)]))
    return [told(clean(text))] if text.strip() else []
