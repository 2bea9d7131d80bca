"""The documents cannot lie: their examples run, their tables are drawn from the code, their links lead somewhere."""

import ast
import asyncio
import itertools
import re
import runpy
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from terminal.forking import ending_the_fork_server, start
from turnwise.lab import Lab
from turnwise.settings.catalogue import suggested_models
from waits import HANG_S

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "AGENTS.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks" / "README.md",
    ROOT / "examples" / "README.md",
]
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = f"openai:{suggested_models()['openai'][0]}"  # the model of the examples
# The script that stands in for the model of an example, by a word of the example.
SCRIPTS = {
    "ask_user": "client-tool",
    "output_type": "structured-output",
    "search": "never-stops",
    "": "plain-answer",
}


@pytest.fixture(scope="module", autouse=True)
def _fork_server_ends() -> Iterator[None]:
    with ending_the_fork_server():
        yield


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab in a thread of its own, for programs that run in processes of their own."""
    lab = Lab()
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with lab:
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(HANG_S)
    yield lab
    done.set()
    thread.join(HANG_S)


def examples() -> list[tuple[str, str]]:
    return [
        (f"{page.name}-{number}", code) for page in PAGES for number, code in enumerate(CODE.findall(page.read_text()))
    ]


def asking(code: str, *, model: str, base_url: str) -> str:
    """The example with this model in place of the one that examples name."""
    address = f'base_url="{base_url}"'
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    spots: list[tuple[int, str]] = []
    begins = [0, *itertools.accumulate(len(line) for line in code.splitlines(keepends=True))]
    for node in ast.walk(compile(code, "example", "exec", flags)):
        if not isinstance(node, ast.Call):
            continue
        for first in [*node.args[:1], *[one.value for one in node.keywords if one.arg == "model"]]:
            if ast.unparse(first) != repr(NAMED):
                continue
            at = begins[first.lineno - 1] + first.col_offset
            whole = f'__import__("turnwise").Model("{model}", {address})'
            of_call = {"Model": f'"{model}", {address}', "Recording": f'"{model}"'}
            spots.append((at, of_call.get(ast.unparse(node.func), whole)))
    for at, text in sorted(spots, reverse=True):
        assert code.startswith(f'"{NAMED}"', at)
        code = code[:at] + text + code[at + len(f'"{NAMED}"') :]
    if "Recording(" in code:  # the lab stands in for the provider while it is recorded, too
        code = f'__import__("turnwise.testing").testing.Recording.played_at = lambda _: "{base_url}"\n{code}'
    return code


@pytest.mark.costly
@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_every_python_example_runs(code: str, lab: Lab, tmp_path: Path) -> None:
    """As it stands, but for the model: the lab stands in for it."""
    script = next(script for word, script in SCRIPTS.items() if word in code)
    program = asking(code, model=f"openai_responses:{script}", base_url=f"{lab.url}/v1")
    if re.search(r"^(async with|await) ", program, re.MULTILINE):
        program = f"import asyncio\nasync def main():\n{textwrap.indent(program, '    ')}\nasyncio.run(main())\n"
    (tmp_path / "example.py").write_text(f"import warnings\nwarnings.simplefilter('error')\n{program}")
    process = start((), cwd=tmp_path, module="example")
    _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, told


def test_there_are_examples() -> None:
    """The pattern above still finds them."""
    assert len(examples()) >= 9


def test_drawn_tables_are_up_to_date() -> None:
    """Finish reasons, losses, providers and outcomes stand in the documents as they stand in the code."""
    drawn = runpy.run_path(str(ROOT / "scripts" / "draw_tables.py"))["PAGES"]
    stale = [name for name, draw in drawn.items() if (ROOT / "docs" / name).read_text(encoding="utf-8") != draw()]
    assert stale == [], "run python scripts/draw_tables.py"


@pytest.mark.costly
def test_the_picture_of_the_demo_shows_the_demo() -> None:
    """Its lines are those of a demo of today; `python scripts/draw_demo.py` draws it anew."""
    drawn = runpy.run_path(str(ROOT / "scripts" / "draw_demo.py"))
    assert drawn["PICTURE"].read_text(encoding="utf-8") == drawn["picture"](drawn["demo"]())


def test_the_overview_leads_to_every_page() -> None:
    page = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
    missing = [one.name for one in sorted((ROOT / "docs").glob("*.md")) if f"]({one.name}" not in page]
    assert missing == ["overview.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_the_documents_lead_somewhere(page: Path) -> None:
    """Relative links only; anchors aside."""
    targets = re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_readme_names_the_two_commands_that_ci_and_users_run() -> None:
    """The first lane of CI calls the README's own test command."""
    readme, ci = (ROOT / "README.md").read_text(), (ROOT / ".ci" / "lanes.toml").read_text()
    assert "```sh\n. scripts/start\n```" in readme
    assert "\nbash scripts/check\n" in readme and "bash scripts/check" in ci


@pytest.mark.wide
def test_each_python_example_of_the_library_passes_mypy_strict_and_pyright_strict(tmp_path: Path) -> None:
    """Proves: who copies an example into a project with strict types has no error of ours (issue 40: the toolset's)."""
    own = ("library", "histories", "keys", "logging", "crashes", "telemetry", "mcp", "lab", "testing", "tools")
    for page in (*own, "from-pydantic-ai", "from-openai-agents"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for nth, block in enumerate(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)):
            (tmp_path / f"{page.replace('-', '_')}_{nth}.py").write_text(block)
    # matplotlib's own `savefig` is partly untyped.
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict", "reportUnknownMemberType": false}')
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = true\nscripts_are_modules = true\n")
    for program in (["mypy", "--config-file", "mypy.ini", "."], ["pyright", "-p", ".", "--pythonpath", sys.executable]):
        ran = subprocess.run(
            [sys.executable, "-m", *program], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
