"""`scripts/changed.py`: a change of a module selects every test file that imports it, over whatever other modules.

The judges are the imports that Hypothesis drew, and Python itself: what is loaded once a test file was imported.
"""

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waits import HANG_S

ROOT = Path(__file__).resolve().parents[1]
it: Any = type("Module", (), runpy.run_path(str(ROOT / "scripts" / "changed.py")))
# The spellings of an import of the module `turnwise.room.NAME`.
SPELLINGS = (
    "import turnwise.room.{0}",
    "from turnwise.room import {0}",
    "from turnwise.room.{0} import name",
    "def late():\n    from turnwise.room.{0} import name",
    "TABLE = {{'name': 'turnwise.room.{0}'}}",
    "TABLE = {{'name': 'turnwise.room.{0}.Name.inner'}}",
    "if True:\n    import turnwise.room.{0} as other",
)
SIZE = 6


@given(
    edges=st.sets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=12),
    imported=st.integers(0, SIZE - 1),
    changed=st.integers(0, SIZE - 1),
    spelling=st.sampled_from(SPELLINGS),
    from_conftest=st.booleans(),
)
def test_a_change_selects_each_test_file_that_imports_it_in_the_end(
    edges: set[tuple[int, int]], imported: int, changed: int, spelling: str, from_conftest: bool
) -> None:
    """Property: of any imports in any spelling, circles too; a module that is not imported selects nothing."""
    sources = {"src/turnwise/__init__.py": "", "src/turnwise/room/__init__.py": ""}
    for number in range(SIZE):
        imports = [spelling.format(f"m{other}") for one, other in sorted(edges) if one == number]
        sources[f"src/turnwise/room/m{number}.py"] = "\n".join(imports)
    line = spelling.format(f"m{imported}")
    sources["tests/room/conftest.py"] = line if from_conftest else ""
    sources["tests/room/test_it.py"] = "" if from_conftest else line
    sources["tests/test_nothing.py"] = ""
    reached = {imported}
    for _ in range(SIZE):
        reached |= {other for one, other in edges if one in reached}
    wanted = ["tests/room/test_it.py"] if changed in reached else []
    assert it.House(sources).reached_by([f"src/turnwise/room/m{changed}.py"]) == wanted


def loaded_by_python(file: str) -> list[str]:
    """The modules of the project that are there once a test file was imported, with the root's conftest."""
    name = ".".join(Path(file).relative_to("tests").with_suffix("").parts)
    code = (
        f"import importlib, json, sys; import conftest; importlib.import_module({name!r});"
        "print(json.dumps([one.__file__ for one in list(sys.modules.values()) if getattr(one, '__file__', None)]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": "tests:tests/editors/mcp", "SSL_CERT_FILE": "/dev/null"},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    ours = (f"{ROOT}/src", f"{ROOT}/tests")
    return [Path(one).relative_to(ROOT).as_posix() for one in json.loads(ran.stdout) if one.startswith(ours)]


@pytest.mark.costly
def test_in_this_project_nothing_is_missed() -> None:
    """Proves: a module that Python loads for a test file selects it; so does what is read as data. A room that others do not
    import selects less than half. In doubt everything runs: a file that nothing names, or what all tests stand on."""
    house = it.read_house()
    for file in ("tests/agent/test_agent.py", "tests/gateway/test_report.py"):
        loaded = loaded_by_python(file)
        assert len(loaded) > 50 and [path for path in loaded if file not in house.reached_by([path])] == []
    for changed, reader in (
        ("docs/limits.md", "tests/test_docs.py"),
        ("tests/docs_sentences.toml", "tests/test_docs_sentences.py"),
        (".ci/lanes.toml", "tests/test_lanes.py"),
        ("scripts/lanes.py", "tests/test_lanes.py"),
        ("src/turnwise/gateway/README.md", "tests/test_architecture.py"),
        ("src/turnwise/lab/writer.py", "tests/test_architecture.py"),
        ("src/turnwise/wire/profiles.toml", "tests/wire/test_profiles.py"),
    ):
        assert reader in house.reached_by([changed]), changed
    assert len(house.reached_by(["src/turnwise/gateway/app.py"])) < len(house.test_files) / 2
    assert len(house.reached_by(["tests/mutants.toml"])) < 5
    for path in ("pyproject.toml", "scripts/check", f"unheard{1}/of{2}.bin"):
        assert house.reached_by(["docs/limits.md", path]) == ["tests"]
    assert set(house.reached_by(["tests/conftest.py"])) == set(house.test_files)
    deleted = house.reached_by([f"src/turnwise/deleted{1}.py"])
    assert "tests/test_architecture.py" in deleted and len(deleted) < 50


def test_a_name_that_is_loaded_on_use_brings_its_module_alone() -> None:
    """Proves: `from turnwise import Agent` is no import of everything; `import turnwise` is, since nothing tells what it uses."""
    lazy = "if TYPE_CHECKING:\n    from turnwise.a import A\n    from turnwise.b import B\ndef __getattr__(name): ...\n"
    sources = {"src/turnwise/__init__.py": lazy, "src/turnwise/a.py": "", "src/turnwise/b.py": ""}
    sources |= {"tests/test_a.py": "from turnwise import A", "tests/test_all.py": "import turnwise"}
    assert it.House(sources).reached_by(["src/turnwise/a.py"]) == ["tests/test_a.py", "tests/test_all.py"]
    assert it.House(sources).reached_by(["src/turnwise/b.py"]) == ["tests/test_all.py"]


def test_what_a_fixture_imports_reaches_those_that_name_it() -> None:
    """Proves: by its parameter or by a mark; a fixture that runs by itself reaches all."""
    fixture = "@pytest.fixture\ndef lab():\n    import turnwise.lab\n"
    sources = {"src/turnwise/lab.py": "", "tests/test_other.py": "def test(): ..."}
    sources |= {
        "tests/test_it.py": "def test(lab): ...",
        "tests/test_marked.py": "@pytest.mark.usefixtures('lab')\ndef test(): ...",
    }
    found = it.House(sources | {"tests/conftest.py": fixture}).reached_by(["src/turnwise/lab.py"])
    assert found == ["tests/test_it.py", "tests/test_marked.py"]
    by_itself = fixture.replace("fixture\n", "fixture(autouse=True)\n", 1)
    assert len(it.House(sources | {"tests/conftest.py": by_itself}).reached_by(["src/turnwise/lab.py"])) == 3


def test_a_change_is_what_differs_from_where_the_branch_began(tmp_path: Path) -> None:
    """Proves: commits of the branch, what is not committed, new and deleted files; not what came to the other branch since."""

    def git(*args: str) -> None:
        named = ("-c", "user.name=n", "-c", "user.email=n@example.org")
        subprocess.run(["git", *named, *args], cwd=tmp_path, check=True, capture_output=True, timeout=HANG_S)

    def commit(name: str) -> None:
        (tmp_path / name).write_text(name)
        git("add", "-A")
        git("commit", "-qm", name)

    git("init", "-qb", "main")
    for name in ("kept", "edited", "deleted", "same"):
        commit(name)
    git("checkout", "-qb", "branch")
    commit("committed")
    git("checkout", "-q", "main")
    commit("of another")
    git("checkout", "-q", "branch")
    (tmp_path / "edited").write_text("x")
    (tmp_path / "deleted").unlink()
    (tmp_path / "new").write_text("x")
    assert it.changed_files("main", root=tmp_path) == ["committed", "deleted", "edited", "new"]
    assert it.changed_files("HEAD", root=tmp_path) == ["deleted", "edited", "new"]
