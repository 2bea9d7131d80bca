"""No test fails by luck: a text that must be absent, or is counted, is one that no random id, port, time or temporary name can
hold."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from trees import tree_of

TESTS = Path(__file__).parent
# Ids are hexadecimal, ports and times are digits, and names of temporary folders are drawn from letters, digits and `_`.
DRAWN = re.compile(r"[0-9a-fA-F]{1,8}|[0-9A-Za-z_-]{1,3}")
LISTS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# `grep` that counts, leaves out or only says whether: with `-w` or `-x` a word within a name is none.
GREP = re.compile(r"(!\s*)?\bgrep((?:\s+-[A-Za-z]+)*)\s+(?:-e\s+)?('[^']*'|\"[^\"]*\"|[^\s|;&)]+)")


def text_of(node: ast.AST) -> str | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value.decode("latin-1") if isinstance(value, bytes) else value if isinstance(value, str) else None


def drawn_of(pattern: str) -> list[str]:
    """The alternatives of a pattern that chance can write."""
    return [one for one in pattern.split("|") if DRAWN.fullmatch(one)] if "(" not in pattern else []


def loops_of(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """What each name of a loop, or of a test's table, goes through, where that is written out."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(scope):
        match node:
            case ast.For(target=ast.Name(id=name), iter=ast.Tuple(elts=each) | ast.List(elts=each)):
                found.setdefault(name, []).extend(each)
            case ast.comprehension(target=ast.Name(id=name), iter=ast.Tuple(elts=each) | ast.List(elts=each)):
                found.setdefault(name, []).extend(each)
            case ast.Call(
                func=ast.Attribute(attr="parametrize") | ast.Name(id="each"),
                args=[ast.Constant(value=str() as name), ast.Tuple(elts=each) | ast.List(elts=each)],
            ):
                found.setdefault(name, []).extend(each)
            case _:
                pass
    return found


def wanted(assertion: ast.Assert) -> set[ast.expr]:
    """The parts of an assertion that chance can only make true: joined by `and`, `or`, `any` and `all`."""
    found, nodes = set[ast.expr](), [assertion.test]
    while nodes:
        match nodes.pop():
            case ast.BoolOp(values=values):
                nodes += values
            case ast.Call(func=ast.Name(id="any" | "all"), args=[ast.GeneratorExp(elt=each)]):
                nodes.append(each)
            case node:
                found.add(node)
    return found


def sought_by(node: ast.AST, *, loops: dict[str, list[ast.expr]], is_wanted: bool) -> list[str]:
    """The texts that this part of an assertion wants nowhere in another text, or so many times."""
    match node:
        case ast.Compare(ops=[ast.NotIn() | ast.In() as how], left=left, comparators=[where]):
            if isinstance(where, LISTS) or (isinstance(how, ast.In) and is_wanted):
                return []
            sought = loops.get(left.id, []) if isinstance(left, ast.Name) else [left]
            return [text for one in sought if (text := text_of(one)) is not None]
        case ast.Call(func=ast.Attribute(attr="count" | "find"), args=[each], keywords=[]):
            return [text_of(each) or ""]
        case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr="findall" | "search"), args=[pattern, *_]):
            return [] if is_wanted else drawn_of(text_of(pattern) or "")
        case _:
            return []


def absences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts of assertions that are short enough to stand there by chance."""
    for scope in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]:
        loops = loops_of(scope)
        for assertion in [node for node in ast.walk(scope) if isinstance(node, ast.Assert)]:
            parts = wanted(assertion)
            for node in ast.walk(assertion):
                for text in sought_by(node, loops=loops, is_wanted=node in parts):
                    if DRAWN.fullmatch(text):
                        yield getattr(node, "lineno", 0), text


def greps(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The same in the commands that tests give to a shell."""
    for node in [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]:
        for negated, flags, pattern in GREP.findall(text_of(node) or ""):
            if (negated or set(flags) & set("cvqL")) and not set(flags) & set("wx"):
                yield from [(node.lineno, one) for one in drawn_of(pattern.strip("'\""))]


def test_a_text_that_chance_can_write_is_found() -> None:
    """Proves: each kind of text and of asking is seen; a longer text, one in a list, one with a space, one that must be there and
    a whole word are not."""
    tried = """
def test(body, error, done, told):
    assert code == 2 and "43" not in error
    assert b"0af1" not in body, body
    assert "bug" not in done.stderr
    assert not ("sk-" not in told)
    assert "one" not in [tool.name for tool in tools]
    assert "a bug" not in done.stderr and "another-users-secret" not in error and "43" in error
    assert ("44" in told, "45" in told) == (True, False)
    assert not any("46" in line for line in told) and any("x" in line for line in told)
    assert [line for line in told if "47" in line] == []
    assert told.count("48") == 1 and told.find("49") == -1 and table.find("m", at=3) is None
    assert not re.search("50|maintenance", told) and re.search("x", told)
    for word in ("51", "another-users-secret"):
        assert word not in told
"""
    assert [text for _, text in absences(ast.parse(tried))] == [
        "43", "0af1", "bug", "sk-", "44", "45", "46", "47", "48", "49", "50", "51",
    ]  # fmt: skip
    commands = """
run("git commit 2>&1 | grep -cE 'gc|maintenance'; ! grep ab file; grep -vx cd; grep -cw ef; grep -n gh; grep -q 'long enough'")
"""
    assert [text for _, text in greps(ast.parse(commands))] == ["gc", "ab"]


@pytest.mark.costly
def test_no_test_wants_a_text_absent_that_chance_can_write() -> None:
    """One in eleven runs had `43` in a random id, where an error must not show the label `43`; one in two hundred names of a
    temporary folder holds `gc`, where a trace must not. Say what must not be there in full (`another-users-secret`), look for a
    whole word, or compare the whole text."""
    found = [
        f"{path.relative_to(TESTS)}:{line}: {text!r}"
        for path in sorted(TESTS.rglob("*.py"))
        if path != Path(__file__)
        for tree in [tree_of(path)]
        for line, text in (*absences(tree), *greps(tree))
    ]
    assert found == []
