"""The floors hold: imports go down only, pure rooms stay pure, files and functions stay small.

Read from the syntax tree, so that function-level and TYPE_CHECKING imports count too.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "turnwise"
FILES = sorted(SOURCE.rglob("*.py"))

MAY_IMPORT = {
    "vocab": {"vocab"},
    "errors": {"vocab"},
    "wire": {"wire", "vocab", "errors"},
    "assembly": {"assembly", "vocab", "errors"},
    "rules": {"rules", "vocab", "errors"},
    "turn": {"turn", "rules", "vocab", "errors"},
    "drivers": {"drivers", "turn", "rules", "assembly", "wire", "vocab", "errors", "_version"},
    "testing": {"testing", "drivers", "turn", "rules", "assembly", "wire", "vocab", "errors", "_version"},
    "lab": {"lab", "testing", "drivers", "turn", "rules", "assembly", "wire", "vocab", "errors", "_version"},
}
PURE = {"vocab", "errors", "wire", "assembly", "rules", "turn"}
# What a pure room may take from outside: values, parsing, collections. No clock, socket, randomness or logging.
PURE_LIBRARIES = set(
    """__future__ base64 binascii bisect codecs collections copy dataclasses decimal difflib email enum fractions functools
    hashlib heapq html importlib itertools json jsonschema_rs keyword math msgspec operator re string struct textwrap
    tomllib types typing unicodedata urllib zlib""".split()
)
ONLY_WIRE = {"importlib", "tomllib", "email", "urllib"}
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 100
# The library's face; the other faces (the command line today) may use it, and nothing else of each other.
LIBRARY = set(
    """agent agent_options children given interrupted models notebook plain policies results run_options saying schemas
    scripts tools""".split()
)


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports_of(tree: ast.AST) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the room they come from"
            if node.module == "turnwise":
                found += [(f"turnwise.{alias.name}", node.lineno) for alias in node.names]
            else:
                found.append((node.module or "", node.lineno))
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    room = room_of(path)
    if room not in MAY_IMPORT:
        return
    for module, line in imports_of(tree_of(path)):
        parts = module.split(".")
        if parts[0] == "turnwise":
            target = parts[1] if len(parts) > 1 else "__init__"
            assert target in MAY_IMPORT[room], f"{path.name}:{line}: `{room}` may not import `turnwise.{target}`"
        elif room in PURE:
            assert parts[0] in PURE_LIBRARIES, f"{path.name}:{line}: the pure room `{room}` may not import `{module}`"
            if room != "wire":
                assert parts[0] not in ONLY_WIRE, f"{path.name}:{line}: `{room}` may not import `{module}`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_pure_rooms_have_no_async_and_no_clock(path: Path) -> None:
    if room_of(path) not in PURE:
        return
    for node in ast.walk(tree_of(path)):
        assert not isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith), (
            f"{path.name}:{getattr(node, 'lineno', 0)}: a pure room waits for nothing"
        )
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__"}, (
                f"{path.name}:{node.lineno}"
            )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_and_functions_keep_their_size(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= MAX_FILE_LINES, f"{path.name} asks for a new room"
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{path.name}:{node.lineno}: `{node.name}` has {lines} lines"


def test_faces_do_not_know_each_other() -> None:
    faces = SOURCE / "faces"
    for path in sorted(faces.rglob("*.py")):
        own = path.relative_to(faces).parts[0].removesuffix(".py")
        for module, line in imports_of(tree_of(path)):
            parts = module.split(".")
            if parts[:2] == ["turnwise", "faces"] and len(parts) > 2:
                allowed = LIBRARY if own in LIBRARY else {own} | LIBRARY
                assert parts[2] in allowed, f"{path.name}:{line}: `{own}` may not import `faces.{parts[2]}`"


def test_no_broad_except_swallows_silently() -> None:
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception":
                assert not (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)), f"{path}:{node.lineno}"
