"""What tools are called in a program, beside what Python and the program's own beginning call theirs.

Mutants that no test noticed. Python's own lists of its names are the judge.
"""

import builtins
import keyword

import pytest

from turnwise.turn.programs import PRELUDE, function_names

PYTHONS_OWN = sorted({*keyword.kwlist, *[name for name in dir(builtins) if not name.startswith("_")]})


def test_a_tool_gives_way_to_a_name_that_a_program_has_already() -> None:
    """Proves: keywords, functions and exceptions of Python, and the modules that every program finds imported."""
    names = [*PYTHONS_OWN, "asyncio", "json", "math", "re"]
    assert function_names(names) == {name: f"{name}_" for name in names}


def test_every_program_finds_these_modules_imported() -> None:
    """Proves: models leave their imports out."""
    assert PRELUDE == ("asyncio", "json", "math", "re")


@pytest.mark.parametrize(
    ("tools", "functions"),
    [
        (("a_b", "a-b"), ("a_b", "a_b_")),
        (("a-b", "a_b"), ("a_b_", "a_b")),
        (("a-b", "a_b", "a.b", "a b"), ("a_b_", "a_b", "a_b__", "a_b___")),
        (("a-b", "a.b"), ("a_b", "a_b_")),
        (("list", "list_"), ("list__", "list_")),
    ],
)
def test_each_tool_has_a_function_of_its_own(tools: tuple[str, ...], functions: tuple[str, ...]) -> None:
    """Proves: a tool whose name Python can say has it, wherever it stands in the list; no two share one."""
    assert tuple(function_names(tools).values()) == functions
