"""Both directions: no promise without a test, no test with an unknown id, none missing from the list."""

import ast
from functools import cache
from pathlib import Path

from requirements import PROMISES
from trees import tree_of

TESTS = Path(__file__).resolve().parent


@cache
def promised() -> dict[str, list[str]]:
    """Promise id -> the tests that name it, read from the syntax trees."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.promise":
                    for argument in mark.args:
                        assert isinstance(argument, ast.Constant), f"{path.name}:{node.name}: name promises literally"
                        found.setdefault(str(argument.value), []).append(f"{path.name}::{node.name}")
    return found


def test_every_promise_that_holds_has_a_test() -> None:
    proven = promised()
    assert [id for id, promise in PROMISES.items() if promise.not_yet is None and id not in proven] == []


def test_no_test_names_an_unknown_promise() -> None:
    assert [id for id in promised() if id not in PROMISES] == []


def test_a_promise_that_does_not_hold_yet_names_the_issue_that_brings_it() -> None:
    assert all(promise.not_yet for promise in PROMISES.values() if promise.not_yet is not None)
    assert len(PROMISES) == 84, "promises are added and removed on purpose"
