"""The comparison with other libraries: the page is what was seen, and what was seen of turnwise still holds. Needs no peer."""

import subprocess
import sys
from pathlib import Path

import pytest

from waits import HANG_S

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "scripts"


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> object:
    """The module of the script."""
    monkeypatch.syspath_prepend(SCRIPTS)
    import compare_libraries

    return compare_libraries


def test_the_page_is_drawn_from_what_is_kept(drawing) -> None:
    """Nothing on it is written by hand."""
    assert drawing.PAGE.read_text(encoding="utf-8") == drawing.draw_page(drawing.kept_results()), (
        "run python scripts/compare_libraries.py --page"
    )


def test_what_is_kept_is_of_these_programs(drawing) -> None:
    """Ten tasks, three programs each: their lines and first sentences are those that were seen."""
    facts = drawing.kept_results().facts
    assert len(drawing.TASKS) == 10
    for library in drawing.LIBRARIES:
        for task in drawing.TASKS:
            source = drawing.source_of(task, library)
            found = facts[library.name][task.name]
            assert (found.lines, found.way) == (drawing.count_lines(source), drawing.way_of(source)), task.name
            assert found.typo.wrong == task.typos[library.name][1]


@pytest.mark.wide  # 23 programs, and pyright
def test_what_turnwise_did_it_does_still() -> None:
    """All of its programs, with their typos and variants, run and checked by pyright as they were for the page. If you meant a
    change: `python scripts/compare_libraries.py --only turnwise`."""
    argv = [sys.executable, str(SCRIPTS / "compare_libraries.py"), "--check", "--only", "turnwise"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S * 2, check=False)
    assert (done.returncode, done.stdout) == (0, "everything is as kept\n"), done.stdout + done.stderr


def test_without_the_peers_nothing_is_lost(tmp_path: Path) -> None:
    """What is missing is named, and the results stay."""
    before = (ROOT / "examples" / "comparison" / "results.json").read_bytes()
    argv = [sys.executable, str(SCRIPTS / "compare_libraries.py"), "--peers", str(tmp_path / "python")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 2 and "benchmarks/setup" in done.stderr
    assert (ROOT / "examples" / "comparison" / "results.json").read_bytes() == before
