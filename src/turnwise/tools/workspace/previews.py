"""What a call would change, as a diff for the one who is asked, and which paths it names."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from turnwise.errors import ToolFault
from turnwise.running.tools import Arguments, Reconcile, Tool
from turnwise.tools.workspace.diffs import cut_line, diff_of
from turnwise.tools.workspace.edit_tool import (
    EditArguments,
    MultiEditArguments,
    WriteArguments,
    plan_edit,
    plan_multi_edit,
    plan_write,
)
from turnwise.tools.workspace.patch_tool import PatchArguments, patched_paths, plan_patch
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.plans import ChangePlan
from turnwise.tools.workspace.staged_changes import FileChange
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import ToolSpec
from turnwise.vocab.file_names import given_name, shown_name
from turnwise.vocab.hidden_characters import visible
from turnwise.vocab.parts import inlined

# A typed function over a struct of arguments -> a tool; the struct is the one source of the schema.


Given = TypeVar("Given", bound=msgspec.Struct)


def make_tool(
    name: str,
    *,
    description: str,
    takes: type[Given],
    function: Callable[[Given], object],
    effect: Effect,
    exclusive: bool = False,
    idempotent: bool = False,
    timeout_s: float | None = None,
    grace_s: float = 0.0,
    keeps: Callable[[], Path | None] | None = None,
    reconcile: Reconcile | None = None,
) -> Tool:
    """A plain `function` runs in a thread, an `async def` one in the event loop."""

    def convert(arguments: Arguments) -> Given:
        try:
            return read_arguments(arguments, takes)
        except msgspec.ValidationError as error:
            raise ToolFault(f"the arguments do not fit: {error}") from None

    async def run_async(arguments: Arguments) -> object:
        return await cast("Awaitable[object]", function(convert(arguments)))

    def run(arguments: Arguments) -> object:
        return function(convert(arguments))

    spec = ToolSpec(name=name, description=description, parameters=_schema(takes))
    # all of them work on paths or run commands: where permission rules hold, these are looked at first
    offer = ToolOffer(
        spec=spec, exclusive=exclusive, idempotent=idempotent, effect=effect, timeout_s=timeout_s, inspected=True
    )
    called = run_async if inspect.iscoroutinefunction(function) else run
    return Tool(offer=offer, function=called, grace_s=grace_s, keeps=keeps, reconcile=reconcile)


def read_arguments(arguments: Mapping[str, object], takes: type[Given]) -> Given:
    """The path as results show it: a name in a message makes no line of its own. Raises ValidationError."""
    given = msgspec.convert(arguments, takes, strict=False)
    path: object = getattr(given, "path", None)
    return msgspec.structs.replace(given, path=shown_name(given_name(path))) if isinstance(path, str) else given


@functools.cache  # a run and its sub-agents have the same tools
def _schema(takes: type[msgspec.Struct]) -> str:
    """The struct's JSON Schema without indirection: providers differ in what they make of `$ref`."""
    definitions = msgspec.json.schema(takes)["$defs"]
    # a text under "title" is the struct's own name, which says nothing; a schema there is a property of that name
    own = inlined(
        definitions[takes.__name__],
        definitions=definitions,
        drops=lambda key, value: key == "title" and isinstance(value, str),
    )
    return msgspec.json.encode(own).decode()


WOULD_FAIL = "(the call would fail:"
MAX_LINES = 200

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
_TAKES: dict[str, type[msgspec.Struct]] = {
    "write": WriteArguments,
    "edit": EditArguments,
    "multi_edit": MultiEditArguments,
    "apply_patch": PatchArguments,
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


def why_it_would_fail(tool: Tool, arguments: PreviewArguments, *, root: Path) -> str:
    """Why this call of one of our own file tools would fail as things are, in the tool's words; empty where it would not, or
    where that is not known. Changes nothing."""
    takes = _TAKES.get(tool.name)
    if takes is None or tool.offer.spec.parameters != _schema(takes):
        return ""
    try:
        # what the model has seen of a file is known where the call runs
        given = {**arguments, "overwrite": True} if tool.name == "write" else arguments
        changes_of_call(WorkspacePaths(root), tool.name, given)
    except (ToolFault, msgspec.ValidationError) as fault:
        return str(fault)
    return ""


def shortly(lines: list[str]) -> list[str]:
    """The beginning of a preview, its lines not too long; what is left out is said."""
    shown = [cut_line(line) for line in lines[:MAX_LINES]]
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
