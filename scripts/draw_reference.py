"""Draw docs/reference.md: every public name with its signature and its docstring, in the order in which a newcomer needs them.

Usage: python scripts/draw_reference.py     (tests/test_reference.py checks that the page is up to date)

Signatures come from the source, not from the running program: there the types stand under the names that a user writes.
"""

import ast
import enum
import importlib
import inspect
import io
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args, is_typeddict

import msgspec

import turnwise
import turnwise.testing
from turnwise.rules.limits import Leaf

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
LIBRARY, TESTING = "turnwise", "turnwise.testing"
WIDTH = 100  # a signature that is wider has one line for each parameter

GROUPS: dict[str, str] = {
    "Running an agent": "Agent Model Run RunStream StepOptions Settings File Text StepView StepChanges __version__",
    "Tools and context": (
        "tool FunctionTool RunContext DepsFactory SessionKey Workspace MethodsOf McpServer prefixed filtered approved "
        "Toolset Tool ToolSpec NamedTool"
    ),
    "Limits": "MaxSteps MaxRequests MaxTokens MaxCost MaxWallTime MaxToolCalls Budget ModelLimits ScriptLimits",
    "Results": "RunResult StopReason FinishReason Usage Message ToolCall ToolResult Repair",
    "Recovery and errors": (
        "RecoveryOptions RetryPolicy Deadlines Fault FaultKind TurnwiseError CallerError UnknownModel UnknownOption MissingKey "
        "BadTool BudgetSpent ProviderFault ToolFault ModelFault OutputMismatch RunStopped LimitReached RunRefused "
        "RunCancelled RunFailed SessionBusy SessionLeft KeyReused NothingToResume TurnwiseBug RunInterrupted run_so_far"
    ),
    "Permissions and asks": (
        "SafetyOptions Policy PermissionRule Asking OneAsk Approval Hook ToolAboutToRun ToolRan RequestAboutToLeave TurnEnded "
        "Deny ChangeArguments ChangeResult"
    ),
    "Sub-agents": "Subagents AgentTool",
    "Journal, bill and traces": "ObservationOptions Journal Prices read_prices Telemetry",
    "Watching": (
        "StepStarted RequestStarted FrameSeen TextDelta ReasoningDelta RequestFinished AttemptDiscarded ToolStarted ToolProgress "
        "ToolFinished CallAnswered AskOpened AskClosed FilesChanged ToolsetNoted RunNoted ChildSeen RunFinished"
    ),
    "Turns that workers run": "submit_turn turn_status queue_totals open_asks answer_asks cancel_turns retry_turns watch_session",
    "Histories": "messages_from messages_to messages_from_json ImportedHistory ExportedHistory",
}
"""Every name of `turnwise.__all__`, once."""

TESTING_NAMES = (
    "ScriptedModel call Recording forbid_requests FakeClock ScriptedTransport Reply Stall byte_by_byte every_split "
    "random_splits"
)
"""Every name of `turnwise.testing.__all__`, once."""

_OF_LIMITS = frozenset("used is_over output_left said enough share fault".split())
INSIDE: dict[str, frozenset[str]] = {
    "Budget": frozenset("most_of_a_run reserving is_held_above take_over check_journal".split()),
    "AgentTool": frozenset("delegates tool over".split()),
    "Subagents": frozenset("delegates tool over".split()),
    "Journal": frozenset(
        "over under open_to_read open_rescued keep begin_turn resume_turn tries_in_vain is_cancelled leave entries "
        "written_since events direct repairs retention children parent_of is_whole budgets keeps_the_same_as address "
        "known_session check_free find_key result_of".split()
    ),
    "Prices": frozenset("names bills_requests warm".split()),
    "Recording": frozenset("is_recording needs_key played_at played_model send".split()),
    "ScriptedModel": frozenset("needs_key played_at played_model send".split()),
    "ScriptedTransport": frozenset({"send"}),
    **dict.fromkeys([leaf.__name__ for leaf in get_args(Leaf)], _OF_LIMITS),
}
"""Members that turnwise itself calls and a program does not need: they are not on the page."""

MADE_BY_TURNWISE = frozenset({"Run", "RunStream", "FunctionTool", "Bill"})
"""Classes whose values a program gets from a function: how they are made is not on the page."""

SHOWN_WHOLE = (
    "RunOptions ResumeOptions Bill Cost CacheSums ChildReport AskOrigin ToolOffer OutputSchema PriceRow Request Response "
    "SessionRow"
).split()
"""Types that are no public names, but that a program fills in or reads."""

HEAD = """# Reference
<!-- drawn by scripts/draw_reference.py; change the docstrings, not this file -->
Every public name of `turnwise` and `turnwise.testing`. The [tutorial](library.md) shows how they work together.

- Names that end in `_s` are seconds, `_usd` US dollars, `_tokens` tokens and `_bytes` bytes.
- A *value* is a frozen struct. Values with equal fields are equal.
- A *dict of options* is a plain dict that type checkers know. Leave out what you do not need.
- Types that are no public names stand [at the end](#types-in-signatures).
"""


# Where a name is defined ------------------------------------------------------


@dataclass(frozen=True)
class Definition:
    """A name where it is defined: the module, and the statement that defines it."""

    module: str
    name: str
    node: ast.stmt


@lru_cache
def source_of(module: str) -> str:
    path = importlib.import_module(module).__file__
    assert path is not None
    return Path(path).read_text(encoding="utf-8")


@lru_cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(source_of(module))


@lru_cache
def comments_of(module: str) -> Mapping[int, str]:
    """Line -> the comment at its end."""
    tokens = tokenize.generate_tokens(io.StringIO(source_of(module)).readline)
    return {one.start[0]: one.string for one in tokens if one.type == tokenize.COMMENT}


@lru_cache
def defined(module: str, name: str) -> Definition | None:
    """Where `name`, as it is used in `module`, is defined; None outside of turnwise."""
    if not module.startswith("turnwise"):
        return None
    last: ast.stmt | None = None
    for node in ast.walk(tree_of(module)):
        match node:
            case ast.ImportFrom(module=source, names=names) if source is not None:
                for one in names:
                    if (one.asname or one.name) == name:
                        return defined(source, one.name)
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node in tree_of(module).body:
                last = node if node.name == name else last
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name and node in tree_of(module).body:
                last = node
            case _:
                pass
    return None if last is None else Definition(module, name, last)


@lru_cache
def public_names() -> Mapping[tuple[str, str], str]:
    """(module, name there) -> the public name."""
    names: dict[tuple[str, str], str] = {}
    for room in (turnwise, turnwise.testing):
        for name in room.__all__:
            if (found := public(room.__name__, name)) is not None:
                names[found.module, found.name] = name
    return names


def public(room: str, name: str) -> Definition | None:
    value = getattr(importlib.import_module(room), name)
    module = getattr(value, "__module__", None)
    return None if module is None else defined(module, value.__name__)


# Signatures -------------------------------------------------------------------


class AsWritten(ast.NodeTransformer):
    """Types and defaults as a user writes them: no quotes around types, public names, the numbers behind constants."""

    def __init__(self, module: str, *, quoted_types: bool) -> None:
        self._module, self._quoted_types = module, quoted_types

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if self._quoted_types and isinstance(node.value, str):
            return self.visit(ast.parse(node.value, mode="eval").body)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        is_literal = isinstance(node.value, ast.Name) and node.value.id == "Literal"
        return node if is_literal else self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = defined(self._module, node.id)
        if found is None:
            return node
        value = getattr(importlib.import_module(found.module), found.name, None)
        if isinstance(value, int | float | str) and not self._quoted_types:
            return ast.Constant(value)
        return ast.Name(public_names().get((found.module, found.name), node.id))


def type_text(node: ast.expr, module: str) -> str:
    return ast.unparse(AsWritten(module, quoted_types=True).visit(_copy(node)))


def default_text(node: ast.expr, module: str) -> str:
    factory = next((one.value for one in getattr(node, "keywords", ()) if one.arg == "default_factory"), None)
    if factory is not None:
        return f"{ast.unparse(factory)}()"
    return ast.unparse(AsWritten(module, quoted_types=False).visit(_copy(node)))


def _copy(node: ast.expr) -> ast.expr:
    return ast.parse(ast.unparse(node), mode="eval").body


Function = ast.FunctionDef | ast.AsyncFunctionDef


def parameters_of(node: Function, module: str, *, is_bound: bool) -> Iterator[str]:
    """Each parameter with type and default, and the marks `/` and `*`."""

    def said(one: ast.arg, default: ast.expr | None) -> str:
        text = one.arg if one.annotation is None else f"{one.arg}: {type_text(one.annotation, module)}"
        if default is None:
            return text
        return f"{text}{' = ' if one.annotation else '='}{default_text(default, module)}"

    found = node.args
    plain = [*found.posonlyargs, *found.args]
    defaults = [None] * (len(plain) - len(found.defaults)) + list(found.defaults)
    for place, (one, default) in enumerate(zip(plain, defaults, strict=True)):
        if not (is_bound and place == 0):
            yield said(one, default)
        if found.posonlyargs and place == len(found.posonlyargs) - 1 and not (is_bound and place == 0):
            yield "/"
    if found.vararg is not None:
        yield f"*{said(found.vararg, None)}"
    elif found.kwonlyargs:
        yield "*"
    for one, default in zip(found.kwonlyargs, found.kw_defaults, strict=True):
        yield said(one, default)
    if found.kwarg is not None and found.kwarg.annotation is not None and found.kwarg.arg != "unknown":
        yield f"**{said(found.kwarg, None)}"


def laid_out(begin: str, parameters: Iterable[str], end: str) -> str:
    parts = list(parameters)
    line = f"{begin}({', '.join(parts)}){end}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{begin}(", *[f"    {part}," for part in parts], f"){end}"])


def signatures(nodes: list[Function], module: str, *, called: str, is_bound: bool) -> str:
    """Each overload if there are any, otherwise the function."""
    return "\n".join(
        laid_out(
            f"{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}{called}",
            parameters_of(node, module, is_bound=is_bound),
            "" if node.returns is None else f" -> {type_text(node.returns, module)}",
        )
        for node in overloads_or_all(nodes)
    )


def overloads_or_all(nodes: list[Function]) -> list[Function]:
    overloads = [node for node in nodes if any(ast.unparse(one) == "overload" for one in node.decorator_list)]
    return overloads or nodes


def functions(body: list[ast.stmt], name: str) -> list[Function]:
    return [node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name]


# Classes ----------------------------------------------------------------------


def classes(kind: type) -> Iterator[tuple[str, ast.ClassDef]]:
    """The class and those of turnwise that it is made of, the most basic one first."""
    for one in reversed(kind.__mro__):
        found = defined(one.__module__, one.__name__) if one.__module__.startswith("turnwise") else None
        if found is not None and isinstance(found.node, ast.ClassDef):
            yield found.module, found.node


def fields_of(node: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    """What a value of the class is given: nothing private, and nothing that belongs to the class."""
    for one in node.body:
        is_own = isinstance(one, ast.AnnAssign) and not ast.unparse(one.annotation).startswith("ClassVar")
        if is_own and ast.unparse(one.target)[0] != "_":
            yield one


def fields(kind: type) -> Iterator[tuple[str, str, str, str]]:
    """Each field's name, type, default (empty: none) and comment."""
    for module, node in classes(kind):
        for one in fields_of(node):
            default = "" if one.value is None else default_text(one.value, module)
            comment = comments_of(module).get(one.lineno, "")
            yield ast.unparse(one.target), type_text(one.annotation, module), default, comment


def struct_text(kind: type, *, called: str) -> str:
    """The struct as its fields, as it is called."""
    keyword_only = {
        one.name for one in inspect.signature(kind).parameters.values() if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    lines: list[str] = []
    for name, type_, default, comment in fields(kind):
        if name in keyword_only and "    *," not in lines:
            lines.append("    *,")
        value = f" = {default}" if default else ""
        lines.append(f"    {name}: {type_}{value},{f'  {comment}' if comment else ''}")
    return "\n".join([f"{called}(", *lines, ")"]) if lines else f"{called}()"


def options_text(kind: type, *, called: str) -> str:
    return "\n".join([f"{called} = {{", *[f'    "{name}": {type_},' for name, type_, _, _ in fields(kind)], "}"])


def members_text(kind: type[enum.Enum], *, called: str) -> str:
    [(module, node)] = classes(kind)
    lines = [
        f"    {one.targets[0].id} = {ast.unparse(one.value)}{f'  {comment}' if comment else ''}"
        for one in node.body
        if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)
        for comment in [comments_of(module).get(one.lineno, "")]
    ]
    return "\n".join([f"{called}:", *lines])


def class_text(kind: type, *, called: str) -> tuple[str, str]:
    """What it is, in a word, and its signature."""
    if is_typeddict(kind):
        return "dict of options", options_text(kind, called=called)
    if issubclass(kind, enum.Enum):
        return "enum of texts", members_text(kind, called=called)
    if issubclass(kind, msgspec.Struct):
        return "value", struct_text(kind, called=called)
    if issubclass(kind, BaseException):
        return "error", f"class {called}({kind.__mro__[1].__name__})"
    for module, node in reversed(list(classes(kind))):
        if called not in MADE_BY_TURNWISE and (inits := functions(node.body, "__init__")):
            return "class", laid_out(called, parameters_of(inits[-1], module, is_bound=True), "")
    return "class", f"class {called}"


def own_members(kind: type) -> dict[str, object]:
    """Public methods and properties that the class itself, or one of turnwise that it is made of, has, in the source's order."""
    return {
        name: value
        for one in reversed(kind.__mro__)
        if one.__module__.startswith("turnwise")
        for name, value in one.__dict__.items()
        if name[0] != "_"
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
        and not is_typeddict(kind)
    }


def member_text(kind: type, name: str, value: object, *, called: str) -> str:
    module, nodes = [(module, found) for module, node in classes(kind) if (found := functions(node.body, name))][-1]
    if isinstance(value, property):
        returns = nodes[0].returns
        return f"{called}.{name}{'' if returns is None else f': {type_text(returns, module)}'}"
    return signatures(nodes, module, called=f"{called}.{name}", is_bound=not isinstance(value, staticmethod))


# The page ---------------------------------------------------------------------


def docstring(value: object) -> str:
    """Its own: nothing of what a class inherits."""
    match value:
        case property():
            text = value.fget.__doc__
        case classmethod() | staticmethod():
            text = value.__func__.__doc__
        case type():
            text = value.__dict__.get("__doc__")
        case _:
            text = value.__doc__
    return inspect.cleandoc(text or "")


def entry(name: str, value: object, *, room: str) -> Iterator[str]:
    """One public name."""
    yield from ["", f"### `{name}`", ""]
    if not callable(value):
        yield from [f"*text* · `import {room}`", "", "The version of turnwise that is installed, for example `0.1.0`."]
        return
    found = public(room, name)
    assert found is not None, name
    if isinstance(value, type):
        kind, text = class_text(value, called=name)
    else:
        nodes = functions(tree_of(found.module).body, found.name)
        kind, text = "function", signatures(nodes, found.module, called=name, is_bound=False)
    yield from [f"*{kind}* · `from {room} import {name}`", "", *fenced(text), "", docstring(value)]
    if isinstance(value, type):
        yield from members(value, called=name)


def members(kind: type, *, called: str) -> Iterator[str]:
    for name, value in own_members(kind).items():
        if name not in INSIDE.get(called, ()):
            yield from ["", f"#### `{called}.{name}`", ""]
            yield from [*fenced(member_text(kind, name, value, called=called)), "", docstring(value)]


def fenced(text: str) -> list[str]:
    """`py`, not `python`: these are no examples to run."""
    return ["```py", *text.replace("'", '"').splitlines(), "```"]


def anchors(names: Iterable[str]) -> dict[str, str]:
    """Name -> the link to its heading: `tool` and `Tool` have the same words, so the later one is numbered."""
    seen: dict[str, int] = {}
    found: dict[str, str] = {}
    for name in names:
        word = name.lower()
        found[name] = f"#{word}" if word not in seen else f"#{word}-{seen[word]}"
        seen[word] = seen.get(word, 0) + 1
    return found


def names_in(node: ast.AST, module: str) -> Iterator[Definition]:
    """The types of turnwise that an annotation names, quoted ones too."""
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and (found := defined(module, one.id)) is not None:
            yield found
        quoted = one.value if isinstance(one, ast.Constant) and isinstance(one.value, str) else ""
        if quoted.isidentifier() and (found := defined(module, quoted)) is not None:
            yield found


def annotations(value: object, *, called: str) -> Iterator[tuple[ast.AST, str]]:
    """All annotations on the page that belong to a public name, with their modules."""
    if not isinstance(value, type):
        found = defined(value.__module__, value.__name__)  # pyright: ignore
        assert found is not None
        yield from [(one, found.module) for one in _of_functions(functions(tree_of(found.module).body, found.name))]
        return
    shown = own_members(value).keys() - INSIDE.get(called, frozenset())
    for module, node in classes(value):
        for one in fields_of(node):
            yield one.annotation, module
        is_called = not issubclass(value, BaseException) and called not in MADE_BY_TURNWISE
        wanted = [*shown, "__init__"] if is_called else list(shown)
        yield from [(one, module) for name in sorted(wanted) for one in _of_functions(functions(node.body, name))]


def _of_functions(nodes: list[Function]) -> Iterator[ast.AST]:
    for node in overloads_or_all(nodes):
        for one in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.kwarg]:
            if one is not None and one.annotation is not None:
                yield one.annotation
        if node.returns is not None:
            yield node.returns


def other_types(values: Mapping[str, object]) -> dict[str, Definition]:
    """The types that are no public names and stand in signatures, or in what such a name is short for."""
    found: dict[str, Definition] = {}
    waiting = [one for name, value in values.items() for one in annotations(value, called=name)]
    while waiting:
        node, module = waiting.pop(0)
        for one in names_in(node, module):
            if (one.module, one.name) in public_names() or one.name in found or is_type_variable(one):
                continue
            found[one.name] = one
            if isinstance(one.node, ast.Assign):
                waiting.append((one.node.value, one.module))
            elif one.name in SHOWN_WHOLE:
                value = getattr(importlib.import_module(one.module), one.name)
                waiting += annotations(value, called=one.name)
    return dict(sorted(found.items()))


def is_type_variable(one: Definition) -> bool:
    return isinstance(one.node, ast.Assign) and ast.unparse(one.node.value).startswith(("TypeVar(", "ParamSpec("))


def types_in_signatures(values: Mapping[str, object]) -> Iterator[str]:
    found = other_types(values)
    yield from [
        "",
        "## Types in signatures",
        "",
        "Names that stand in a signature above and that `turnwise` does not export.",
    ]
    for name in SHOWN_WHOLE:
        value = getattr(importlib.import_module(found[name].module), name)
        kind, text = class_text(value, called=name)
        yield from ["", f"### `{name}`", "", f"*{kind}* · `from {found[name].module} import {name}`", ""]
        yield from [*fenced(text), "", docstring(value), *members(value, called=name)]
    yield from ["", "### Further types", "", "| name | what it is | module |", "|---|---|---|"]
    for name, one in found.items():
        if name not in SHOWN_WHOLE:
            yield f"| `{name}` | {in_short(one)} | `{one.module}` |"


def in_short(one: Definition) -> str:
    if isinstance(one.node, ast.Assign):
        return f"`{type_text(one.node.value, one.module)}`".replace("|", "\\|").replace("'", '"')
    text = inspect.cleandoc(ast.get_docstring(one.node) or "")  # pyright: ignore
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def everything() -> dict[str, object]:
    names = {name: getattr(turnwise, name) for names in GROUPS.values() for name in names.split()}
    tests = {name: getattr(turnwise.testing, name) for name in TESTING_NAMES.split()}
    return {name: value for name, value in {**names, **tests}.items() if callable(value)}


def reference() -> str:
    groups = {**GROUPS, "Testing": TESTING_NAMES}
    links = anchors(name for names in groups.values() for name in names.split())
    lines = [HEAD]
    for title, names in groups.items():
        lines.append(f"- **{title}**: {', '.join([f'[`{name}`]({links[name]})' for name in names.split()])}")
    for title, names in groups.items():
        room = TESTING if names == TESTING_NAMES else LIBRARY
        lines += ["", f"## {title}"]
        for name in names.split():
            lines += entry(name, getattr(importlib.import_module(room), name), room=room)
    return "\n".join([*lines, *types_in_signatures(everything())]) + "\n"


PAGES = {"reference.md": reference}


def main() -> None:
    PAGE.write_text(reference(), encoding="utf-8")
    print("docs/reference.md")


if __name__ == "__main__":
    main()
