"""The rooms hold: imports go down only, pure rooms stay pure, functions stay small.

Read from the syntax tree, so that function-level and TYPE_CHECKING imports count too. Which rooms a room may import stands in its
README.md.
"""

import ast
import re
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from trees import tree_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "turnwise"
FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/README.md"))

PURE = {"vocab", "errors", "wire", "assembly", "rules", "turn", "relay"}
# What a pure room may take from outside: values, parsing, collections. No clock, socket, randomness or logging.
PURE_LIBRARIES = set(
    """__future__ base64 binascii bisect codecs collections copy dataclasses decimal difflib email enum fractions functools
    hashlib heapq html importlib itertools json jsonschema_rs keyword math msgspec operator pkgutil re string struct textwrap
    tomllib types typing unicodedata urllib zlib""".split()
)
TOUCHES_THE_OUTSIDE = {"open", "print", "input", "exec", "eval", "__import__"}
ONLY_WIRE = {"importlib", "pkgutil", "tomllib", "email", "urllib"}
# The size of each room: nodes of its syntax trees, without docstrings, imports and annotations. A room that needs more raises its
# number, in the commit that says why.
NODES = {
    "agent": 28_700,
    "assembly": 40_000,
    "base": 7_950,
    "coding_agent": 21_050,
    "editors": 12_150,
    "endpoints": 12_500,
    "gateway": 34_900,
    "journal": 26_950,
    "lab": 45_950,
    "relay": 22_100,
    "replay": 8_700,
    "rules": 37_750,
    "running": 21_150,
    "settings": 7_550,
    "telemetry": 4_100,
    "terminal": 50_400,
    "testing": 6_550,
    "tools": 54_350,
    "turn": 29_350,
    "vocab": 6_150,
    "wire": 91_800,
    "workers": 9_900,
}
# Run or loaded by their path in a bare Python of their own: nothing that is installed can be imported there.
PROGRAMS = {
    "base/keeper.py",
    "rules/guarded_names.py",
    "tools/sandbox/landlock_rules.py",
    "tools/workspace/search_worker.py",
}
MAX_FUNCTION_LINES = 100
# Products know each other only where a command starts one.
STARTED_BY = {
    "gateway": {
        "terminal/gateway.py",
        "terminal/gateway_check.py",
        "terminal/gateway_keys.py",
        "terminal/look.py",
    },
    "editors": {"terminal/mcp.py"},
}


def room_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def place_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def module_of(path: Path) -> str:
    return f"turnwise/{place_of(path).removesuffix('.py').removesuffix('/__init__')}".replace("/", ".")


@cache
def imports_of(path: Path) -> tuple[tuple[str, int], ...]:
    """The full name of each thing that a module imports, with its line."""
    found: list[tuple[str, int]] = []
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the room they come from"
            found += [(f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return tuple(found)


def rooms_imported(path: Path) -> dict[str, int]:
    """Each room of ours that a module imports from, with the first line that does."""
    found: dict[str, int] = {}
    for name, line in imports_of(path):
        parts = name.split(".")
        if parts[0] == "turnwise":
            found.setdefault(parts[1] if len(parts) > 1 else "__init__", line)
    return found


def readme_of(room: str) -> str:
    return (SOURCE / room / "README.md").read_text(encoding="utf-8")


def allowed_by_readme(room: str) -> set[str]:
    """The rooms that a room's README lists behind `Imports:`."""
    line = re.search(r"^- Imports: (.+)$", readme_of(room), re.MULTILINE)
    assert line is not None, f"the README of `{room}` has no line `- Imports: ...`"
    return set() if line[1] == "no other room" else set(line[1].split(", "))


def test_each_room_says_what_it_is() -> None:
    """Each folder of the package has a README of ten lines at most, and each module beside the folders is known."""
    assert sorted({path.parent.name for path in SOURCE.glob("*/*.py")}) == ROOMS
    long = {room: readme_of(room).count("\n") for room in ROOMS if readme_of(room).count("\n") > 10}
    assert long == {}
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py", "_version.py", "errors.py"}


def test_imports_are_those_of_the_readmes() -> None:
    """A room imports the rooms that its README lists: no other one, and each of them."""
    used: dict[str, dict[str, str]] = {room: {} for room in ROOMS}
    for path in FILES:
        if room_of(path) in used:
            for target, line in rooms_imported(path).items():
                used[room_of(path)].setdefault(target, f"{place_of(path)}:{line}")
    found: list[str] = []
    for room, targets in used.items():
        allowed = allowed_by_readme(room)
        found += [
            f"{where}: `{room}` may not import `{one}`" for one, where in targets.items() if one not in allowed | {room}
        ]
        found += [
            f"the README of `{room}` lists `{one}`, which nothing imports" for one in sorted(allowed - targets.keys())
        ]
    assert found == []
    errors = rooms_imported(SOURCE / "errors.py")
    assert set(errors) == {"vocab"}, "a provider's fault is carried as data, and `errors` knows nothing else"


def test_rooms_import_in_one_direction() -> None:
    """The rooms have an order in which each imports only rooms before it: there is no circle."""
    left = {room: allowed_by_readme(room) - {"errors", "_version"} for room in ROOMS}
    while left:
        free = {room for room, targets in left.items() if not targets & left.keys()}
        assert free, f"a circle of rooms within {sorted(left)}"
        left = {room: targets for room, targets in left.items() if room not in free}


def test_no_modules_import_each_other() -> None:
    """No chain of imports leads back to the module where it begins, not even imports in functions or for type checking."""
    modules = {module_of(path) for path in FILES}
    graph: dict[str, set[str]] = {}
    for path in FILES:
        named = {name if name in modules else name.rpartition(".")[0] for name, _ in imports_of(path)}
        graph[module_of(path)] = (named & modules) - {module_of(path)}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_programs_import_nothing_that_is_installed() -> None:
    """What runs as a process of its own (the keeper, Landlock's rules, the search) imports the standard library, and pathspec
    where its folder is given."""
    known = {*sys.stdlib_module_names, "pathspec"}
    found = [
        (place, name) for place in PROGRAMS for name, _ in imports_of(SOURCE / place) if name.split(".")[0] not in known
    ]
    assert found == []


def test_the_lab_knows_its_families_by_itself() -> None:
    """What judges a request, what reads it and what reads a stream share no mistake with what is judged: neither `strict` nor
    `families` imports the room `wire`, nor does anything that they import."""
    by_name = {
        f"turnwise.{place_of(path).removesuffix('.py').removesuffix('/__init__').replace('/', '.')}": path
        for path in FILES
    }
    waiting = [path for path in FILES if place_of(path).startswith(("lab/strict/", "lab/families/"))]
    assert len(waiting) > 10
    for path in waiting:
        assert "wire" not in rooms_imported(path), place_of(path)
        reached = [by_name.get(name) or by_name.get(name.rpartition(".")[0]) for name, _ in imports_of(path)]
        waiting += [one for one in reached if one is not None and room_of(one) == "lab" and one not in waiting]


def test_pure_rooms_take_values_and_parsing_alone_from_outside() -> None:
    found: list[str] = []
    for path in FILES:
        room = room_of(path)
        outside = [(name.split(".")[0], line) for name, line in imports_of(path) if room in PURE]
        for name, line in outside:
            may = name in PURE_LIBRARIES and (room == "wire" or name not in ONLY_WIRE)
            if name != "turnwise" and not may:
                found.append(f"{place_of(path)}:{line}: the pure room `{room}` may not import `{name}`")
    assert found == []


def test_pure_rooms_have_no_async_and_no_files() -> None:
    found: list[str] = []
    for path in [one for one in FILES if room_of(one) in PURE]:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                found.append(f"{place_of(path)}:{getattr(node, 'lineno', 0)}: a pure room waits for nothing")
            if isinstance(node, ast.Call) and ast.unparse(node.func) in TOUCHES_THE_OUTSIDE:
                found.append(f"{place_of(path)}:{node.lineno}: `{ast.unparse(node.func)}`")
    assert found == []


def nodes_of(tree: ast.Module) -> int:
    """The statements, expressions, arguments and cases that do something."""
    silent: set[int] = set()
    for node in ast.walk(tree):
        told = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if told or isinstance(node, ast.Import | ast.ImportFrom):
            silent |= {id(one) for one in ast.walk(node)}
        for note in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            silent |= set() if note is None else {id(one) for one in ast.walk(note)}
    counts = ast.stmt | ast.expr | ast.comprehension | ast.arg | ast.match_case
    return sum(isinstance(node, counts) and id(node) not in silent for node in ast.walk(tree))


def test_rooms_keep_their_size() -> None:
    """A room is no larger than its number says, and no more than a twentieth smaller: then the number goes down."""
    sizes = dict.fromkeys(ROOMS, 0)
    for path in FILES:
        if room_of(path) in sizes:
            sizes[room_of(path)] += nodes_of(tree_of(path))
    assert sizes.keys() == NODES.keys()
    wrong = {room: (size, NODES[room]) for room, size in sizes.items() if not NODES[room] * 0.95 <= size <= NODES[room]}
    assert wrong == {}, "(size, number)"


def test_functions_keep_their_size() -> None:
    found: list[str] = []
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    found.append(f"{place_of(path)}:{node.lineno}: `{node.name}` has {lines} lines")
    assert found == []


def test_products_meet_only_in_the_command_that_starts_one() -> None:
    """The terminal starts the gateway, editors and MCP clients' server, and uses nothing else of them."""
    found = [
        f"{place_of(path)} imports `{product}`"
        for path in FILES
        for product, starters in STARTED_BY.items()
        if product in rooms_imported(path) and room_of(path) != product and place_of(path) not in starters
    ]
    assert found == []


def test_a_coding_agent_needs_no_terminal() -> None:
    """What editors and MCP clients get, and what both are built on, draws nothing and reads no keys."""
    found = [
        f"{place_of(path)}:{line}: `{name}`"
        for path in FILES
        if room_of(path) in {"coding_agent", "editors"}
        for name, line in imports_of(path)
        if name.partition(".")[0] in {"click", "rich", "prompt_toolkit"}
    ]
    assert found == []


def test_no_broad_except_swallows_silently() -> None:
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Name) and node.type.id == "Exception":
                assert not (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)), f"{path}:{node.lineno}"


def test_one_place_makes_a_runner() -> None:
    """What a runner works with is listed once (`RunnerMeans`): the agent fills it in, and the other faces run agents."""
    made = [
        f"{path.relative_to(SOURCE)}:{node.func.id}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Runner", "RunnerMeans"}
    ]
    assert made == ["agent/agent.py:Runner", "agent/agent.py:RunnerMeans"]


def classes_of(path: Path) -> list[ast.ClassDef]:
    return [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)]


def has_state(node: ast.ClassDef) -> bool:
    """Whether its objects hold something: annotated fields, slots that are not empty, or what its methods set on `self`."""
    fields = [
        one for one in node.body if isinstance(one, ast.AnnAssign) and "ClassVar" not in ast.unparse(one.annotation)
    ]
    slots = [one for one in node.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "__slots__"]
    sets = [one for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)]
    return bool(fields) or any(ast.unparse(one.value) != "()" for one in slots) or bool(sets)


def name_of(base: ast.expr) -> str:
    while isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)


def test_no_class_with_state_inherits_from_another() -> None:
    """In the pure rooms values are put together, not on top of one another: reading a call of `self` tells who answers it."""
    pure = [path for path in FILES if room_of(path) in PURE - {"errors"}]
    stateful = {node.name for path in pure for node in classes_of(path) if has_state(node)}
    found = [
        f"{path.name}:{node.lineno}: `{node.name}` inherits from `{name_of(base)}`"
        for path in pure
        for node in classes_of(path)
        for base in node.bases
        if name_of(base) in stateful
    ]
    assert found == []


# The values of a turn that change over time, and what changes a list, a dictionary or a set in place.
TURN = SOURCE / "turn"
CHANGING = set(
    """append add extend insert remove discard pop popitem clear update setdefault sort reverse intersection_update
    difference_update symmetric_difference_update __setitem__ __delitem__ __setattr__ __delattr__""".split()
)
BY_NAME = set("setattr delattr vars force_setattr setitem delitem insort".split())
PHASES = "Step Opening Composing Attempt Recovery Calls Program Answer".split()
OUTLIVE_PHASES = "Turn Known History Spending Record Room Guarding Pacing Purse Tally Words TurnConfig".split()


def root_of(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_own(node: ast.Attribute) -> bool:
    """`self.field`: of the object that the method is of."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def changed_attributes(tree: ast.Module) -> list[ast.Attribute]:
    """What is assigned, deleted, or changed in place, also under a name that it was given before."""
    found: list[ast.Attribute] = []
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        found += changed_by_alias(function)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            found.append(node)
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            found += [node.value] if isinstance(node.value, ast.Attribute) else []
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            found += [node.func.value] if isinstance(node.func.value, ast.Attribute) else []
    return found


def changed_by_alias(function: ast.FunctionDef) -> list[ast.Attribute]:
    """`messages = known.history.messages`, and then `messages.append(...)`, `messages += ...` or `messages[0] = ...`."""
    meant: dict[str, ast.Attribute] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            meant |= {one.id: node.value for one in node.targets if isinstance(one, ast.Name)}
        elif isinstance(node, ast.NamedExpr) and isinstance(node.value, ast.Attribute):
            meant[node.target.id] = node.value
    changed: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            changed.add(ast.unparse(node.func.value))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            changed.add(ast.unparse(node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.BitXor):
            changed.add(ast.unparse(node.target))
    return [meant[name] for name in sorted(changed & meant.keys())]


@pytest.mark.parametrize("path", sorted(TURN.rglob("*.py")), ids=lambda path: path.name)
def test_nothing_in_a_turn_is_changed_from_outside_of_its_class(path: Path) -> None:
    """A field has one writer, the class that it is of: by assignment, by a changing method, and never by name."""
    tree = tree_of(path)
    outside = [f"{node.lineno}: `{ast.unparse(node)}`" for node in changed_attributes(tree) if not is_own(node)]
    assert outside == [], "changed from outside of its class"
    named = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id in BY_NAME]
    named += [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in BY_NAME]
    named += [node.lineno for node in ast.walk(tree) if isinstance(node, ast.alias) and node.name in BY_NAME]
    assert named == [], "set by name"


def fields_of_turn() -> dict[str, tuple[Path, set[str]]]:
    """The module and the fields of each value that a turn lives by."""
    return {
        node.name: (
            path,
            {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)},
        )
        for path in sorted(TURN.rglob("*.py"))
        for node in classes_of(path)
        if node.name in {*PHASES, *OUTLIVE_PHASES}
    }


def test_a_phase_is_replaced_only_by_itself() -> None:
    """`replace(self, ...)` in the class, or of a copy that its own method has made; what outlives phases has methods for it."""
    owned = fields_of_turn()
    assert owned.keys() == {*PHASES, *OUTLIVE_PHASES}
    found: list[str] = []
    for path in sorted(TURN.rglob("*.py")):
        own = [fields for module, fields in owned.values() if module == path]
        for node in ast.walk(tree_of(path)):
            if not (
                isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in replacing_names(tree_of(path))
            ):
                continue
            is_named = all(keyword.arg for keyword in node.keywords) or ast.unparse(node.args[0]) == "self"
            assert is_named, f"{path.name}:{node.lineno}: name the fields, or only `self` knows whose they are"
            given = {keyword.arg for keyword in node.keywords}
            fits = [name for name, (_, fields) in owned.items() if given and given <= fields]
            known_as = names_of_values(tree_of(path))
            if fits and not any(given <= fields for fields in own) and is_of_turn(node.args[0], known_as=known_as):
                found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)} ({', '.join(fits)})")
    assert found == []


@cache
def replacing_names(tree: ast.Module) -> set[str]:
    """How a module calls `replace` of any library: under its own name, an alias, or a name that it was given to."""
    found = {"replace"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names if alias.name == "replace"}
            found |= {f"{alias.asname or alias.name}.replace" for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [alias.asname or alias.name for alias in node.names]
            found |= {end for name in names for end in (f"{name}.replace", f"{name}.structs.replace")}
        elif isinstance(node, ast.Assign) and ast.unparse(node.value).rpartition(".")[2] == "replace":
            found |= {ast.unparse(target) for target in node.targets}
    return found


@cache
def names_of_values(tree: ast.Module) -> set[str]:
    """The names by which a module may know one of these values: their own, what is annotated so, and what is another name of
    one of them."""
    values = {*PHASES, *OUTLIVE_PHASES}
    found = {one.lower() for one in values} | {"now", "then", "phase", "config"}
    for node in ast.walk(tree):
        note = getattr(node, "annotation", None)
        if not isinstance(node, ast.arg | ast.AnnAssign) or note is None:
            continue
        if values & {word.id for word in ast.walk(note) if isinstance(word, ast.Name)}:
            found.add(node.arg if isinstance(node, ast.arg) else ast.unparse(node.target))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.NamedExpr) and isinstance(node.value, ast.Attribute | ast.Name):
            end = node.value.attr if isinstance(node.value, ast.Attribute) else node.value.id
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if end in found:
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def is_of_turn(node: ast.expr, *, known_as: set[str]) -> bool:
    """Whether what is replaced may be one of these values, by its name: `known.room`, `pacing`, `guarding`."""
    name = node.attr if isinstance(node, ast.Attribute) else root_of(node)
    return name in known_as


def test_only_the_turn_has_changes_carried_out() -> None:
    """A phase orders changes; `Known.apply` is called by the machine alone."""
    callers = [
        path.name
        for path in sorted(TURN.rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "apply"
    ]
    assert set(callers) == {"machine.py"}


def test_the_turn_is_read_in_sittings() -> None:
    """No module of the turn has more than 600 lines, and its loop is one screen."""
    sizes = {path.name: path.read_text().count("\n") for path in sorted(TURN.rglob("*.py"))}
    assert {name: size for name, size in sizes.items() if size > 600} == {}
    machine = next(node for node in classes_of(TURN / "machine.py") if node.name == "Turn")
    receive = next(node for node in machine.body if isinstance(node, ast.FunctionDef) and node.name == "receive")
    assert (receive.end_lineno or 0) - receive.lineno + 1 <= 40
