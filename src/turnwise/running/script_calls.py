"""Which calls of a program are awaited: those get a future and may run together, all others get their value at once.

Models write `text = read(path="a")` and `await read(path="a")`, and both are meant. In Python a call does not know whether
it is awaited, so it is read off the program's tree. Where the tree cannot be had the interpreter's own word stands.
"""

import ast
from collections.abc import Iterator

# What takes awaitables as arguments.
GATHERERS = frozenset(["gather", "create_task", "ensure_future", "wait_for", "wait", "shield", "as_completed"])
# What puts an argument into a list.
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
    """The program with `\\n` at each line's end, as everything here counts."""
    return program.replace("\r\n", "\n").replace("\r", "\n")


def line_at(program: str, *, byte: int) -> int:
    """The line, from 1, that holds this UTF-8 byte of the program."""
    return program.encode("utf-8", "replace")[:byte].count(b"\n") + 1


def awaited_calls(program: str) -> frozenset[tuple[int, int]] | None:
    """The calls that are awaited or gathered somewhere, as (start, end) in UTF-8 bytes; None where Python cannot say."""
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
    # The text is a model's: the parser may give up on it.
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
    """The names whose values, or the items of whose values, are awaited or gathered; and those of functions that are."""
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
