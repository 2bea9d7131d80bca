"""One name, one thing: no public type stands in two modules (docs/glossary.md).

A type is a class or an alias of one, at the top of a module, without an underscore. The four families name alike what is alike in
them, so their own folders are left out.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import turnwise
from turnwise.wire.registry import MODULES

SOURCE = Path(turnwise.__file__).parent
FAMILIES = tuple([SOURCE / "wire" / name for name in MODULES])
# Names that are still to be told apart. None may come anew, and none of them stays that has only one meaning left.
TO_RENAME = frozenset(
    """Arguments Asked Asking Attributes Bounds CallSeen Carried Change Check Entry Exchange
    Glob Known Left Listed Marked Order Outcome Plan Point Programs Prompt Received Reply Room Row Said Seen Shown
    Source Span Spent State Status Tell Told Wanted Words""".split()
)
# The same, where one of the two is in `assembly/calls_in_text`, or is the vocabulary's own, which keeps its name.
TO_RENAME_BESIDE = frozenset(
    "Block Comparison Event Fits Found Kind Reader Surroundings Verdict Effort Part Refusal".split()
)


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
    """`Verdict` once stood in five modules and `Kind` in six. The rest is listed above; the list ends empty."""
    found = doubles(sources())
    listed = TO_RENAME | TO_RENAME_BESIDE
    assert {name: paths for name, paths in found.items() if name not in listed} == {}
    assert listed <= found.keys(), "these have one meaning by now: take them off the list"


def test_no_double_is_left_in_the_rooms_of_bytes_and_of_whole_things() -> None:
    """Two names in `wire/` or `assembly/` would have to be told apart by whoever follows a byte to its call. In the vocabulary
    none stands twice either, but what others call by its words is still to be renamed there."""
    found = doubles(sources())
    rooms = [path for name in found for path in found[name] if path.startswith(("wire/", "assembly/"))]
    assert [path for path in rooms if not path.startswith("assembly/calls_in_text/")] == []
    assert all(name in TO_RENAME_BESIDE for name in found if any("vocab/" in path for path in found[name]))


def test_a_double_is_seen_however_it_is_written() -> None:
    """A class, a union, a literal, another name; constants and functions are no types."""
    source = (
        'class A: ...\nB = A | None\nC = Literal["x"]\nD = A\n_E = A | None\nF = 1024 * 1024\nG_H = "x"\ndef I(): ...\n'
    )
    assert sorted(types_of(source)) == ["A", "B", "C", "D"]
    assert doubles({"one": source, "other": "class C: ..."}) == {"C": ["one", "other"]}
