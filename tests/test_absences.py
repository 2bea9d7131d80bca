"""No test fails by luck: a text that must be absent is one that no random id, port, time or temporary name can hold."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
# Ids are hexadecimal, ports and times are digits, and names of temporary folders are drawn from letters, digits and `_`.
DRAWN = re.compile(r"[0-9a-fA-F]{1,8}|[0-9A-Za-z_-]{1,3}")
LISTS = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def absences(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The texts that assertions want nowhere in another text, short enough to stand there by chance."""
    for assertion in [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]:
        for node in ast.walk(assertion):
            match node:
                case ast.Compare(
                    left=ast.Constant(value=str() | bytes() as value), ops=[ast.NotIn()], comparators=[where]
                ):
                    text = value if isinstance(value, str) else value.decode("latin-1")
                    if DRAWN.fullmatch(text) and not isinstance(where, LISTS):
                        yield node.lineno, text


def test_a_text_that_chance_can_write_is_found() -> None:
    """Proves: each kind of text is seen, and a longer one, one in a list and one with a space are not."""
    tried = """
assert code == 2 and "43" not in error
assert b"0af1" not in body, body
assert "bug" not in done.stderr
assert not ("sk-" not in told)
assert "one" not in [tool.name for tool in tools]
assert "a bug" not in done.stderr and "another-users-secret" not in error and "43" in error
"""
    assert [text for _, text in absences(ast.parse(tried))] == ["43", "0af1", "bug", "sk-"]


def test_no_test_wants_a_text_absent_that_chance_can_write() -> None:
    """One in eleven runs had `43` in a random id, where an error must not show the label `43`. Say what must not be there in
    full (`another-users-secret`), or compare the whole text."""
    found = [
        f"{path.relative_to(TESTS)}:{line}: {text!r}"
        for path in sorted(TESTS.rglob("*.py"))
        for line, text in absences(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
