"""The benchmarks run, and what they find is shown as it is: no clock is asserted, and no peer is needed.

What they measure stands in `docs/performance.md`; what may not get slower is counted in `tests/test_counts.py`.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from waits import HANG_S

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PAGE = BENCHMARKS.parent / "docs" / "performance.md"
pytestmark = [pytest.mark.wide, pytest.mark.skipif(sys.platform != "linux", reason="they read /proc")]
# Of what is around a loop: `tests/test_edge_benchmarks.py`.
NAMES = ("decode", "growing_call", "loops", "encoding", "import_time")


def command(*args: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=BENCHMARKS)


@pytest.mark.parametrize("name", NAMES)
def test_each_benchmark_runs_with_turnwise_alone(name: str) -> None:
    """Tiny sizes: every figure is there, is a number above nought, and says what it is; the peers are not started."""
    done = command(f"{name}.py", "--quick", "--only", "turnwise", "--json")
    assert done.returncode == 0, done.stderr
    section = json.loads(done.stdout)
    assert {"cpu", "cores", "kernel", "python", "node"} == set(section["machine"])
    assert (section["quick"], section["ratios"]) == (True, [])
    records = section["records"]
    assert records and {record["system"] for record in records} <= {"turnwise", "turnwise, journal", "floor", "nothing"}
    for record in records:
        assert record["median"] > 0, record
        assert "" not in {record[field] for field in ("group", "case", "measure", "unit")}, record
        assert "failed" not in record


@pytest.mark.parametrize("name", ["decode.py", "all.py"])
@pytest.mark.parametrize("rounds", ["0", "-1", "1.5", "many"])
def test_less_than_one_round_is_an_error(name: str, rounds: str) -> None:
    """It is not taken for none given, which means the benchmark's own number."""
    done = command(name, f"--rounds={rounds}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"argument --rounds: `{rounds}` is no number of rounds: it has to be 1 or more\n")


# Python's peers of one benchmark are not installed, and what is given after it is the command.
NO_PEERS = (
    "import import_time as it; it.PEERS_PYTHON = it.LITELLM_PYTHON = '/nowhere/python'\n"
    "from harness.command import run; raise SystemExit(run(it.BENCHMARK))"
)
NO_PEERS_ALL = (
    "import import_time as it; it.PEERS_PYTHON = it.LITELLM_PYTHON = '/nowhere/python'\n"
    "from all import main; raise SystemExit(main())"
)


def test_a_peer_that_cannot_run_is_a_record_with_its_reason(tmp_path: Path) -> None:
    """The others go on, and the run says so by its page; here nothing of the peers is installed."""
    results = tmp_path / "results.json"
    done = command("-c", NO_PEERS, "--quick", "--results", str(results))
    assert done.returncode == 0, done.stderr
    records = json.loads(results.read_bytes())["import_time"]["records"]
    failed = {record["system"]: record["failed"] for record in records if "failed" in record}
    assert {"openai", "pydantic-ai", "litellm"} <= set(failed) and "turnwise" not in failed
    assert set(failed.values()) == {
        "could not be started: No such file or directory; `benchmarks/setup` installs the peers"
    }


@pytest.mark.parametrize(("program", "names", "code"), [(NO_PEERS, [], 2), (NO_PEERS_ALL, ["import_time"], 1)])
def test_peers_that_are_not_set_up_lose_no_figures(tmp_path: Path, program: str, names: list[str], code: int) -> None:
    """As in a fresh clone: nothing is measured, the results stay byte by byte, and what to do is said."""
    results = tmp_path / "results.json"
    done = command("import_time.py", "--quick", "--only", "turnwise", "--json")
    (case, *_) = [one for one in json.loads(done.stdout)["records"] if one["system"] == "turnwise"]
    peers = [case | {"system": "openai"}, case | {"system": "litellm", "median": None, "failed": "exit 1"}]
    results.write_text(json.dumps({"import_time": section(case, *peers)}))
    before = results.read_bytes()
    done = command("-c", program, *names, "--quick", "--results", str(results))
    assert (done.returncode, done.stdout, results.read_bytes()) == (code, "", before)
    assert (
        "import_time: nothing measured: openai cannot be started here, and their figures in the results would be lost; "
        "`benchmarks/setup` installs the peers, `--only turnwise` leaves them out" in done.stderr
    )
    assert "round 1" not in done.stderr


def test_node_without_its_packages_is_not_set_up() -> None:
    """The program is the system's own; what `benchmarks/setup` brings is the folder beside its programs."""
    program = (
        "from pathlib import Path; import harness.starting as it; from harness.declaring import Part\n"
        "it.NODE_FOLDER = Path('/nowhere')\n"
        "print([it.is_set_up(Part(system='a', argv=(name,), measures=())) for name in ('node', '/nowhere/python', 'env')])"
    )
    assert command("-c", program).stdout == "[False, False, True]\n"


def record(system: str, median: float, **more: object) -> dict[str, object]:
    about = {"group": "small results", "case": "100 steps", "measure": "CPU a step", "unit": "ms", "x": 100.0}
    rounds = [median * 0.9, median, median * 1.1]
    return {**about, "system": system, "version": "1.0", "median": median, "rounds": rounds, **more}


def section(*records: dict[str, object]) -> dict[str, object]:
    machine = {"cpu": "a processor", "cores": 2, "kernel": "6", "python": "3.11.7", "node": "20"}
    ratio = {"name": "openai", "group": "small results", "case": "100 steps", "measure": "CPU a step"}
    ratio |= {"system": "openai", "times": 12.5, "at_least": 20.0, "met": False}
    about = {"machine": machine, "measured_at": "2026-11-22 06:00", "revision": "abc", "quick": False}
    return {**about, "records": records, "ratios": [ratio]}


def test_the_page_is_drawn_from_the_results_alone(tmp_path: Path) -> None:
    """The same results give the same bytes; a missed target, a failed peer and the machine are on it; plots are XML."""
    results = tmp_path / "results.json"
    found = [
        record("turnwise", 2.0, at_most=1.0, met=False),
        record("turnwise", 4.0, case="500 steps", x=500.0),
        record("turnwise, journal", 6.0, case="500 steps", x=500.0, at_most=7.0, met=True),
        record("openai", 25.0),
        record("anthropic (its own API)", 1.5),  # another request than the others': no peer
        record("langchain", 1.0) | {"median": None, "rounds": [], "failed": "exit 1: no | such"},
    ]
    results.write_text(json.dumps({"loops": section(*found)}))
    drawn: list[dict[str, bytes]] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        done = command("all.py", "--page", "--results", str(results), "--to", str(folder))
        assert done.returncode == 0, done.stderr
        files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        drawn.append({str(path.relative_to(folder)): path.read_bytes() for path in files})
    assert drawn[0] == drawn[1]
    page = drawn[0].pop("performance.md").decode()
    for expected in (
        "| 2026-11-22 | abc | a processor | 2 | 6 | 3.11.7 | 20 | loops |",
        "| The tool loop: small results, 100 steps: CPU a step | <= 1 ms | 2.00 | **no** |",
        "| The tool loop: small results, 100 steps: against openai | >= 20 x | 12.5 x (openai) | **no** |",
        "- The tool loop: small results, 100 steps: CPU a step: 2.00, target <= 1 ms\n",
        "| a step of the loop without the journal, 100 steps, ms | **2.00** |  | openai 25.0 (12.5 x) |  |",
        "| a step of the loop without the journal, 500 steps, ms | 4.00 |  |  |  |",  # no target: not bold
        "| a step of the loop with the journal, 500 steps, ms | **6.00** |  |  |  |",
        "| **turnwise** 1.0 | **2.00 ±10%** | 4.00 ±10% |",
        "langchain has no figure: exit 1: no \\| such.",
    ):
        assert expected in page
    assert set(drawn[0]) == set(re.findall(r"\]\((performance/[a-z0-9-]+\.svg)\)", page)) != set()
    for plot in drawn[0].values():
        assert ElementTree.fromstring(plot).tag == "{http://www.w3.org/2000/svg}svg"


def test_a_cell_without_a_figure_says_why(tmp_path: Path) -> None:
    """What a peer does not read is no gap in the measuring."""
    group = {"group": "Gemini, over a socket", "measure": "CPU a chunk", "unit": "us", "x": None}
    cells = [("turnwise", "text"), ("turnwise", "tool arguments"), ("pydantic-ai", "text"), ("google-genai", "text")]
    found = [record(system, 2.0, case=case, **group) for system, case in cells]
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"decode": section(*found)}))
    done = command("all.py", "--page", "--results", str(results), "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / PAGE.name).read_text().splitlines()
    assert {"| pydantic-ai 1.0 | 2.00 ±10% | reads none |", "| google-genai 1.0 | 2.00 ±10% |  |"} <= set(rows)


def figures(page: Path) -> list[str]:
    """What is drawn from the results: rows of tables, missed targets, plots. The notes between them are prose."""
    return [line for line in page.read_text().splitlines() if line.startswith(("|", "- ", "!["))]


def test_the_figures_in_the_docs_are_up_to_date(tmp_path: Path) -> None:
    """As `python benchmarks/all.py --page` writes them: nobody has changed one by hand."""
    done = command("all.py", "--page", "--to", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert figures(tmp_path / PAGE.name) == figures(PAGE), "`python benchmarks/all.py --page` writes the page anew"
    plots = {path.name: path.read_bytes() for path in (tmp_path / PAGE.stem).iterdir()}
    assert plots == {path.name: path.read_bytes() for path in (PAGE.parent / PAGE.stem).iterdir()}
