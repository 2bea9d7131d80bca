"""Values of a program, as they come out of the interpreter: an error names what JSON cannot carry, and every value can be shown.

They come from foreign code: nested 100,000 deep, containing themselves, or a list of two of a list of two ... sixty times over,
which is small in the interpreter but endless when it is written out. So each value is walked without recursion and within bounds
before any other code touches it.
"""

import ast
import datetime
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Protocol, cast, runtime_checkable

import msgspec

MAX_DEPTH = 100
MAX_VALUES = 100_000  # 0.1 s to walk
MAX_SHOWN_BYTES = 4 * 1024 * 1024
SHOWN_DEPTH = 20  # of a value that JSON cannot carry
INT_BITS = 64
# The interpreter gives a value that it cannot pass on as the text that Python prints for it. If such a text went into a file,
# that would be damage; no program means it.
_PRINTED = re.compile(
    r"<(?:coroutine [\w ().]+|gather\(\d+\)|function '[^']*' at 0x[0-9a-f]+|module '[^']*'|class '[^']*'"
    r"|[\w.]+ object(?:; [^\n]*)?)>"
)
MAX_PRINTED = 500
_WAITED_FOR = ("<coroutine", "<gather")
REST_LEFT_OUT = "\n[... the rest of this value is left out]"


@runtime_checkable
class _Instance(Protocol):
    """An instance of a class that the program defines."""

    @property
    def name(self) -> str: ...
    @property
    def attributes(self) -> Mapping[str, object]: ...


def json_problem(value: object, *, limit_bytes: int) -> str:
    """Why JSON cannot carry this value as it is, in words; empty if it can. Sets become lists, dates ISO text, integer keys
    text."""
    size = count = 0
    todo: list[tuple[object, int]] = [(value, 0)]
    while todo:
        one, depth = todo.pop()
        count += 1
        if count > MAX_VALUES:
            return f"more than {MAX_VALUES:,} values"
        if depth > MAX_DEPTH:
            return f"nested more than {MAX_DEPTH} deep, or holding itself"
        match one:
            case str():
                size += len(one)
                if problem := _text_problem(one):
                    return problem
            case dict():
                items = cast("dict[object, object]", one)
                if problem := _key_problem(items):
                    return problem
                size += sum(len(str(key)) for key in items)
                todo += [(item, depth + 1) for item in items.values()]
            case list() | tuple() | set() | frozenset():
                items = cast("Iterable[object]", one)
                todo += [(item, depth + 1) for item in islice(items, MAX_VALUES + 1)]
            case _ if problem := _leaf_problem(one):
                return problem
            case _:
                size += 1
        if size > limit_bytes:
            return f"more than {limit_bytes:,} bytes"
    return ""


def _text_problem(text: str) -> str:
    if not text.startswith("<") or len(text) > MAX_PRINTED or _PRINTED.fullmatch(text) is None:
        return ""
    if text.startswith(_WAITED_FOR):
        return f"`{text}`, a call whose result is not there yet: `await` it first"
    return f"`{text}`, which is an object of the program and no value"


def _leaf_problem(value: object) -> str:
    match value:
        case None | bool() | datetime.date() | datetime.time():
            return ""
        case int():
            return "" if value.bit_length() <= INT_BITS else f"a whole number of {value.bit_length()} bits"
        case float():
            return "" if math.isfinite(value) else f"{value}, which is no number of JSON"
        case bytes():
            return "bytes: decode them to text, or encode them in base64 yourself"
        case _:
            return f"a value of type `{_kind(value)}`"


def _key_problem(items: dict[object, object]) -> str:
    """What is wrong with the keys. JSON has only texts as keys; if two keys became the same text, one value would be lost."""
    others = [key for key in islice(items, MAX_VALUES) if not isinstance(key, str)]
    for key in others:
        if isinstance(key, bool) or not isinstance(key, int) or key.bit_length() > INT_BITS:
            return f"a key of type `{_kind(key)}`: keys are texts"
        if str(key) in items:
            return f"the key {key} twice, as a number and as text"
    return ""


def _kind(value: object) -> str:
    return value.name if isinstance(value, _Instance) else type(value).__name__


def shown(value: object, *, limit: int) -> str:
    """The value for a reader: text as it is, JSON if possible, else as Python writes it. Parts that are too deep become `...`; a
    value that is not JSON and longer than `limit` characters is cut there."""
    if isinstance(value, str):
        return value
    if not json_problem(value, limit_bytes=MAX_SHOWN_BYTES):
        try:
            return msgspec.json.encode(value).decode()
        except (TypeError, ValueError, OverflowError):  # half a surrogate pair
            pass
    pieces: list[str] = []
    length = 0
    for piece in _drawn(value):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            return "".join(pieces)[:limit] + REST_LEFT_OUT
    return "".join(pieces)


def _drawn(value: object) -> Iterator[str]:
    """Piece by piece, so that parts that nobody reads cost no time."""
    items: list[Iterator[tuple[str, object]]] = [iter([("", value)])]
    ends = [""]
    comma = ""
    while items:
        item = next(items[-1], None)
        if item is None:
            items.pop()
            comma = ", "
            yield ends.pop()
            continue
        label, one = item
        opened = _opened(one)
        if opened is None or len(items) > SHOWN_DEPTH:
            yield f"{comma}{label}{_leaf(one) if opened is None else f'{opened[0]}...{opened[2]}'}"
            comma = ", "
            continue
        begin, inner, end = opened
        yield f"{comma}{label}{begin}"
        comma = ""
        items.append(iter(inner))
        ends.append(end)


def _opened(value: object) -> tuple[str, Iterable[tuple[str, object]], str] | None:
    """The beginning of a container, its items with their labels, and its end; None if the value is no container."""
    match value:
        case dict():
            pairs = cast("dict[object, object]", value).items()
            return "{", ((f"{_leaf(key)}: ", item) for key, item in pairs), "}"
        case list():
            return "[", _unlabelled(cast("list[object]", value)), "]"
        case tuple():
            items = cast("tuple[object, ...]", value)
            return "(", _unlabelled(items), ",)" if len(items) == 1 else ")"
        case set() | frozenset():
            items = cast("frozenset[object]", value)
            return ("{", _unlabelled(items), "}") if items else ("set(", (), ")")
        case _Instance():
            return f"{value.name}(", ((f"{name}=", item) for name, item in value.attributes.items()), ")"
        case _:
            return None


def _unlabelled(items: Iterable[object]) -> Iterator[tuple[str, object]]:
    return (("", item) for item in items)


def _leaf(value: object) -> str:
    if _opened(value) is not None:  # a key
        return f"<{type(value).__name__}>"
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 (an int of more digits than Python writes; nothing of a stranger's may end the run)
        return f"<{_kind(value)}, too long to write>"


# Which calls of a program are awaited: those get a future and may run together; all others get their value at once.
#
# Models write `text = read(path="a")` and `await read(path="a")`, and both are meant. In Python a call does not know whether it
# is awaited, so the program's syntax tree tells. If there is no tree, the interpreter decides.


# Functions that take awaitables as arguments.
GATHERERS = frozenset(["gather", "create_task", "ensure_future", "wait_for", "wait", "shield", "as_completed"])
# Methods that put an argument into a list.
KEEPERS = frozenset(["append", "add", "extend", "insert"])

_Containers = (
    ast.Starred,
    ast.List,
    ast.Tuple,
    ast.Set,
    ast.Dict,
    ast.IfExp,
    ast.NamedExpr,
    ast.ListComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.DictComp,
    ast.keyword,
)


def normal_lines(program: str) -> str:
    """The program with `\\n` at each line's end, which all positions here rely on."""
    return program.replace("\r\n", "\n").replace("\r", "\n")


def line_at(program: str, *, byte: int) -> int:
    """The line, from 1, that holds this UTF-8 byte of the program."""
    return program.encode("utf-8", "replace")[:byte].count(b"\n") + 1


def awaited_calls(program: str) -> frozenset[tuple[int, int]] | None:
    """The calls that are awaited or gathered somewhere, as (start, end) in UTF-8 bytes; None if Python cannot parse the
    program."""
    try:
        tree = ast.parse(program)
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        awaited = _awaited_names(tree)
        starts = [0]
        for line in program.encode().split(b"\n"):
            starts.append(starts[-1] + len(line) + 1)
        return frozenset(
            [
                _span(node, starts)
                for node in parents
                if isinstance(node, ast.Call) and _is_awaited(node, parents=parents, awaited=awaited)
            ]
        )
    # The text comes from a model, so the parser may fail.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _span(node: ast.Call, starts: list[int]) -> tuple[int, int]:
    end_line, end = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end


def _is_awaited(call: ast.Call, *, parents: dict[ast.AST, ast.AST], awaited: set[str]) -> bool:
    node: ast.AST = call
    while True:
        parent = parents[node]
        match parent:
            case ast.Await():
                return True
            case ast.Call() if node is not parent.func and _called(parent) in GATHERERS:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr)) if attr in KEEPERS:
                return name in awaited
            case ast.comprehension():
                return False
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
                return any(name in awaited for target in targets for name in _roots(target))
            case ast.Return():
                function = _function_of(parent, parents)
                return isinstance(function, ast.FunctionDef) and function.name in awaited
            case _ if isinstance(parent, _Containers):
                node = parent
            case _:
                return False


def _function_of(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> ast.AST | None:
    found: ast.AST | None = node
    while found is not None and not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        found = parents.get(found)
    return found


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case _:
            return ""


def _awaited_names(tree: ast.AST) -> set[str]:
    """The names whose values (or their items) are awaited or gathered, and the names of functions that are."""
    names: set[str] = set()
    loops: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Await(value=value):
                names.update(_roots(value))
            case ast.Call() if _called(node) in GATHERERS:
                names.update([name for argument in node.args for name in _roots(argument)])
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                loops.append((node.target, node.iter))
            case _:
                pass
    for _ in loops:  # `for task in tasks: await task` awaits the items of `tasks`; loops may be nested
        before = len(names)
        for target, iterated in loops:
            if names.intersection(_roots(target)):
                names.update(_roots(iterated))
        if len(names) == before:
            break
    return names


def _roots(node: ast.AST) -> Iterator[str]:
    """The names that such an expression takes its values from."""
    match node:
        case ast.Name(id=name):
            yield name
        case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.Starred(value=value):
            yield from _roots(value)
        case ast.Call(func=ast.Name(id=name)):
            yield name
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr not in GATHERERS:
            yield from _roots(value)
        case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
            for item in items:
                yield from _roots(item)
        case ast.ListComp(elt=item) | ast.SetComp(elt=item) | ast.GeneratorExp(elt=item):
            yield from _roots(item)
        case ast.IfExp(body=one, orelse=other):
            yield from _roots(one)
            yield from _roots(other)
        case _:
            return
