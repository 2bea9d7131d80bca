"""One name, one thing: no public type stands in two modules (docs/glossary.md).

A type is a class or an alias of one, at the top of a module, without an underscore. The four families name alike what is alike in
them, so their own folders are left out.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import turnwise
from turnwise.wire.family import MODULES

SOURCE = Path(turnwise.__file__).parent
FAMILIES = tuple([SOURCE / "wire" / name for name in MODULES])


def types_of(source: str) -> Iterator[str]:
    """The public types that a module defines."""
    for node in ast.parse(source).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_type(value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                pass
            case _:
                continue
        if not name.startswith("_"):
            yield name


def _is_type(value: ast.expr) -> bool:
    """Whether this makes an alias: `Literal[...]`, `A | B`, `dict[str, A]` or another name of a class."""
    match value:
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name[:1].isupper() or name in ("dict", "list", "tuple", "set", "frozenset", "type")
        case ast.BinOp(op=ast.BitOr(), left=left, right=right):
            return _is_part_of_union(left) and _is_part_of_union(right)
        case ast.Name(id=name):
            return name[:1].isupper() and (len(name) == 1 or not name.isupper())
        case _:
            return False


def _is_part_of_union(value: ast.expr) -> bool:
    is_none = isinstance(value, ast.Constant) and value.value is None
    return is_none or _is_type(value) or (isinstance(value, ast.Name) and value.id in ("str", "int", "float", "bool"))


def doubles(sources: dict[str, str]) -> dict[str, list[str]]:
    """Types that stand in more than one module, with the modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, source in sources.items():
        for name in set(types_of(source)):
            found[name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def sources() -> dict[str, str]:
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if not any(map(path.is_relative_to, FAMILIES))]
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_a_public_type_stands_in_one_module() -> None:
    """`Verdict` once stood in five modules and `Kind` in six: a reader of one could not know which of them was meant."""
    assert doubles(sources()) == {}


def test_a_double_is_seen_however_it_is_written() -> None:
    """A class, a union, a literal, another name; constants and functions are no types."""
    source = (
        'class A: ...\nB = A | None\nC = Literal["x"]\nD = A\n_E = A | None\nF = 1024 * 1024\nG_H = "x"\ndef I(): ...\n'
    )
    assert sorted(types_of(source)) == ["A", "B", "C", "D"]
    assert doubles({"one": source, "other": "class C: ..."}) == {"C": ["one", "other"]}
