"""Print the test files that a change can reach, one a line: `python scripts/changed.py [REF]`.

The change is everything that differs from where this branch left REF (default: `main`), and files that Git does not know yet. A
changed file reaches a test file that is it, imports it or reads it, itself or through other modules.
  imports   Those in functions count. So does a module that a text names (`"turnwise.agent.agent"`), and what a package such as
            `turnwise` loads for a name on its first use. `import turnwise` alone may load anything. A test file also imports the
            `conftest.py` of its folder and of the folders above. What a fixture there imports counts for who names the fixture.
  reads     A module reads a file if a text in it has the name of the file, or of a folder that the file is in.
Prints `tests` if everything has to run: all tests stand on a changed file, or nothing says who reads one.
`bash scripts/check --changed [REF]` runs what this prints.
"""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "tests", "scripts", "benchmarks", "examples")
# Where modules are found: `pythonpath` in pyproject.toml, and what programs in these folders have in `sys.path`.
SOURCES = ("src", "tests", "tests/editors/mcp", "scripts", "benchmarks", "examples")
EVERYTHING = "tests"
UNDER_ALL = {"pyproject.toml", "uv.lock", "scripts/check"}
UNDER_NONE = {"LICENSE", ".gitignore"}
TOO_COMMON = {"src", "tests", "turnwise"}  # as a word in a text; with a `/` they say more
LONGEST_PATH = 1000  # of a text that may name files
Import = tuple[str, str | None]  # `from package import name`, or `import package`


@dataclass(frozen=True)
class Module:
    """What one Python file says of others."""

    path: str
    imports: tuple[Import, ...]
    on_use: dict[str, str]  # of a package that loads its names on their first use: name -> module
    of_fixtures: dict[str, tuple[Import, ...]]  # of a `conftest.py`: what only those import who name the fixture
    texts: frozenset[str]
    words: frozenset[str]  # the texts, their words, and the parts of those that are paths
    names: frozenset[str]


def read_module(path: str, source: str) -> Module:
    tree = ast.parse(source)
    on_use = _loaded_on_use(tree)
    fixtures = _fixtures(tree) if PurePosixPath(path).name == "conftest.py" else {}
    apart = [*fixtures.values(), *([node for node in tree.body if _is_for_types(node)] if on_use else [])]
    nodes = [one for node in tree.body if node not in apart for one in ast.walk(node)]
    inside = {name: list(ast.walk(node)) for name, node in fixtures.items()}
    everywhere = [*nodes, *[one for found in inside.values() for one in found]]
    texts = {node.value for node in everywhere if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    short = [text for text in texts if len(text) < LONGEST_PATH]
    return Module(
        path=path,
        imports=tuple(_imports(nodes, path=path)),
        on_use=on_use,
        of_fixtures={name: tuple(_imports(found, path=path)) for name, found in inside.items()},
        texts=frozenset(texts),
        words=frozenset(
            [part for text in short for word in (text, *text.split()) for part in (word, *word.split("/"))]
        ),
        names=frozenset([name for node in everywhere if (name := _name(node)) is not None]),
    )


class House:
    """The Python files of the project by their paths, and which of them reach which."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.modules = {path: read_module(path, source) for path, source in sources.items()}
        self._by_name: dict[str, str] = {}
        for folder in SOURCES:
            for path in self.modules:
                if path.startswith(f"{folder}/"):
                    name = ".".join(PurePosixPath(path).relative_to(folder).with_suffix("").parts)
                    self._by_name.setdefault(name.removesuffix(".__init__"), path)

    @property
    def test_files(self) -> list[str]:
        return [path for path in self.modules if path.startswith("tests/") and PurePosixPath(path).match("test_*.py")]

    @cached_property
    def imports(self) -> dict[str, frozenset[str]]:
        """File -> the files that it may import itself."""
        return {path: frozenset(self._imports_of(module)) - {path} for path, module in self.modules.items()}

    @cached_property
    def _importers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for path, others in self.imports.items():
            for other in others:
                found[other].add(path)
        return found

    def importers_of(self, paths: Iterable[str]) -> set[str]:
        """These files, and all that import them, directly or not."""
        reached, left = set[str](), list(paths)
        while left:
            path = left.pop()
            if path not in reached:
                reached.add(path)
                left += self._importers[path]
        return reached

    def readers_of(self, path: str) -> set[str]:
        """The Python files that name this file or a folder that it is in; of source files, also those that read whole trees."""
        pure = PurePosixPath(path)
        is_source = pure.suffix == ".py"
        wanted = {pure.name, path, *[str(folder) for folder in pure.parents if len(folder.parts) > 1]}
        wanted |= set() if is_source else set(pure.parent.parts) - TOO_COMMON
        return {
            other
            for other, module in self.modules.items()
            if other != path
            and (module.words & wanted or (is_source and _reads_whole_trees(module, pure.parts[0])))
            and (path.startswith("src/") or not other.startswith("src/"))
        }

    def reached_by(self, changed: Iterable[str]) -> list[str]:
        """The test files that a change of these files can reach, or `[EVERYTHING]`."""
        starts = set[str]()
        for path in changed:
            readers = self.readers_of(path)
            is_deleted_source = path.endswith(".py") and path not in self.modules  # who imported it is changed, too
            if path in UNDER_ALL or not (readers or path in self.modules or path in UNDER_NONE or is_deleted_source):
                return [EVERYTHING]
            starts |= readers | ({path} & self.modules.keys())
        reached = self.importers_of(starts)
        return sorted([path for path in self.test_files if path in reached])

    def _imports_of(self, module: Module) -> Iterator[str]:
        for package, name in module.imports:
            yield from self._loaded_by(package, name)
        for text in module.texts if not module.on_use else ():
            if text.startswith("turnwise."):
                yield from self._named_in(text)
        for folder in PurePosixPath(module.path).parents:
            above = self.modules.get(f"{folder}/conftest.py")
            if above is not None and above is not module:
                yield above.path
                for fixture in above.of_fixtures.keys() & (module.names | module.texts):
                    for package, name in above.of_fixtures[fixture]:
                        yield from self._loaded_by(package, name)

    def _loaded_by(self, package: str, name: str | None) -> Iterator[str]:
        """The modules that this import loads, the packages above them among them."""
        parts = package.split(".")
        yield from [
            path for length in range(1, len(parts) + 1) if (path := self._by_name.get(".".join(parts[:length])))
        ]
        found = self.modules.get(self._by_name.get(package, ""))
        if name is not None and (below := self._by_name.get(f"{package}.{name}")):
            yield below
        elif found is not None and found.on_use and name is None:
            yield from self._below(package)
        elif found is not None and (place := found.on_use.get(name or "")):
            yield from self._loaded_by(place, None)

    def _named_in(self, text: str) -> Iterator[str]:
        """The module that a text names, and all below it: the text may go on with another name."""
        parts = text.split(".")
        for length in range(len(parts), 1, -1):
            if (name := ".".join(parts[:length])) in self._by_name:
                yield from self._loaded_by(name, None)
                yield from self._below(name)
                return

    def _below(self, package: str) -> Iterator[str]:
        return (path for name, path in self._by_name.items() if name.startswith(f"{package}."))


def _imports(nodes: Iterable[ast.AST], *, path: str) -> Iterator[Import]:
    package = PurePosixPath(path).parts[1:-1]
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from [(alias.name, None) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from [(base, alias.name) for alias in node.names]


def _loaded_on_use(tree: ast.Module) -> dict[str, str]:
    """What a package with a `__getattr__` tells type checkers of its names."""
    top = [one for node in tree.body for one in (node.body if isinstance(node, ast.If) else [node])]
    if not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in top):
        return {}
    return {
        alias.asname or alias.name: node.module
        for block in tree.body
        if _is_for_types(block)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def _fixtures(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The fixtures that a test gets by their names only."""
    return {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and (marks := " ".join(map(ast.unparse, node.decorator_list))).startswith("pytest.fixture")
        and "autouse" not in marks
        and "name=" not in marks
    }


def _reads_whole_trees(module: Module, top: str) -> bool:
    """Whether it goes through the source files below this folder, as tests of the architecture do."""
    return "__file__" in module.names and (top in module.texts or bool({"rglob", "walk_packages"} & module.names))


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return name
        case _:
            return None


def read_house(root: Path = ROOT) -> House:
    return House(
        {
            path.relative_to(root).as_posix(): path.read_text(encoding="utf-8")
            for folder in FOLDERS
            for path in sorted((root / folder).rglob("*.py"))
        }
    )


def changed_files(ref: str, *, root: Path = ROOT) -> list[str]:
    """What differs from where the branch left `ref`, committed or not."""

    def git(*args: str) -> list[str]:
        ran = subprocess.run(["git", *args], cwd=root, check=True, stdout=subprocess.PIPE, text=True)
        return ran.stdout.splitlines()

    base = git("merge-base", ref, "HEAD")[0]
    return sorted(
        {*git("diff", "--name-only", "--no-renames", base), *git("ls-files", "--others", "--exclude-standard")}
    )


def main() -> int:
    try:
        changed = changed_files(sys.argv[1] if len(sys.argv) > 1 else "main")
    except subprocess.CalledProcessError as error:
        print(f"changed: git ended with {error.returncode}; name a ref that is here", file=sys.stderr)
        return 2
    print("\n".join(read_house().reached_by(changed)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
