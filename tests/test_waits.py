"""No test depends on how fast the machine is: what must come is waited for with `HANG_S`, never with a number of its own."""

import ast
from collections.abc import Iterator
from pathlib import Path

from trees import tree_of

TESTS = Path(__file__).parent
LOOK_S = 0.2
# Of asyncio, threading, subprocess, select, aiohttp: how the bound is called, and the place where it may stand unnamed.
WAITS = {
    "Barrier": ("timeout", None),
    "ClientTimeout": ("total", None),
    "acquire": ("timeout", None),
    "check_output": ("timeout", None),
    "communicate": ("timeout", None),
    "join": ("timeout", 0),
    "run": ("timeout", None),
    "select": ("timeout", 3),
    "timeout": ("delay", 0),
    "wait": ("timeout", 0),
    "wait_for": ("timeout", 1),
}


def numbers(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Waits with a bound that is a number, and another `HANG_S`. A bound of nought does not wait; `select` with less than
    `LOOK_S` is a pause between two looks, within a wait that has a bound of its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "HANG_S":
            yield node.lineno, ast.unparse(node)
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name not in WAITS:
            continue
        keyword, place = WAITS[name]
        bounds = [each.value for each in node.keywords if each.arg == keyword]
        bounds += [node.args[place]] if place is not None and len(node.args) > place else []
        for bound in bounds:
            longest_s = LOOK_S if name == "select" else 0
            if isinstance(bound, ast.Constant) and isinstance(bound.value, int | float) and bound.value > longest_s:
                yield node.lineno, ast.unparse(node)


def test_a_wait_ends_by_what_it_waits_for_or_as_a_hang() -> None:
    """A few seconds are much on a machine that has nothing else to do, and nothing on a busy one."""
    found = {
        str(path.relative_to(TESTS)): waits
        for path in sorted(TESTS.rglob("*.py"))
        if path.name != "waits.py" and (waits := list(numbers(tree_of(path))))
    }
    assert found == {}, "take `HANG_S` of tests/waits.py"


def test_every_kind_of_wait_is_found() -> None:
    """By its keyword and by its place; a bound with a name, or of nought, is none of them."""
    code = """
asyncio.wait_for(x, 5); asyncio.wait_for(x, timeout=5); subprocess.run(x, timeout=60); event.wait(2); thread.join(0.5)
select.select([a], [], [], 1.5); asyncio.timeout(10); aiohttp.ClientTimeout(total=3); process.communicate(timeout=1)
asyncio.wait_for(x, HANG_S); process.wait(0); "".join(parts); runner.run(main, 5); lock.acquire(timeout=-1)
select.select([], [], [], 0.01)
HANG_S = 60.0
"""
    assert sorted(line for line, _ in numbers(ast.parse(code))) == [2] * 5 + [3] * 4 + [6]
