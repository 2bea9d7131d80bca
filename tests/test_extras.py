"""The library alone needs seven packages. Each further part is an extra, and one line names it where it is missing."""

import ast
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from turnwise.base.extras import EXTRAS, require_extras
from turnwise.errors import CallerError
from waits import HANG_S

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "turnwise"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ROOMS = sorted(path.parent.name for path in SOURCE.glob("*/README.md"))
LIBRARY = {"aiohttp", "genai-prices", "griffelib", "jsonschema-rs", "msgspec", "pydantic", "typing-extensions"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names_of(requirements: Iterable[str]) -> set[str]:
    return {normal(Requirement(one).name) for one in requirements}


@cache
def required_by(name: str) -> frozenset[str]:
    """The packages that are installed together with this one, itself included."""
    found: set[str] = set()
    left = [Requirement(name)]
    while left:
        one = left.pop()
        if normal(one.name) in found:
            continue
        found.add(normal(one.name))
        for text in importlib.metadata.requires(one.name) or ():
            inner = Requirement(text)
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)):
                left.append(inner)
    return frozenset(found)


def folder_with(packages: Iterable[str], *, folder: Path) -> Path:
    """A folder that has what these packages install and nothing else of this environment, as a new environment would."""
    folder.mkdir()
    for name in {inner for package in packages for inner in required_by(package)}:
        files = importlib.metadata.files(name) or ()
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (folder / top).symlink_to(Path(str(importlib.metadata.distribution(name).locate_file(top))))
    return folder


def run_with(packages: Path, *args: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """A Python that finds turnwise and these packages only. `-S`: nothing of this environment."""
    return subprocess.run(
        [sys.executable, "-S", *args],
        env={"PYTHONPATH": f"{SOURCE.parent}:{packages}", "HOME": str(folder), "OPENAI_API_KEY": "sk-test-0123456789"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install turnwise` installs."""
    return folder_with(LIBRARY, folder=tmp_path_factory.mktemp("library") / "packages")


def test_the_library_names_seven_packages() -> None:
    """And `all` is every extra but `temporal`, which few need and which is larger than the rest."""
    extras = PROJECT["optional-dependencies"]
    assert names_of(PROJECT["dependencies"]) == LIBRARY
    (everything,) = extras["all"]
    assert Requirement(everything).extras == extras.keys() - {"all", "temporal"}


AGENT = """
from pydantic import BaseModel
from turnwise import Agent, MaxSteps, Model, tool
from turnwise.testing import ScriptedModel, call

class Amount(BaseModel):
    euros: int

@tool
def balance(account: str) -> str:
    '''Tell the balance of an account.

    Args:
        account: The account's number.
    '''
    return "120.50 EUR"

model = ScriptedModel([call("balance", account="7"), "It is 120.50 EUR."])
agent = Agent(model, tools=[balance], limits=MaxSteps(3))
result = agent.run_sync("How much is on account 7?")
print(result.text, result.complete, result.requests)
typed = Agent(ScriptedModel(['{"euros": 120}']), output_type=Amount)
print(typed.run_sync("Go.").output)
"""


@pytest.mark.costly
def test_an_agent_runs_with_the_library_alone(library: Path, tmp_path: Path) -> None:
    """A tool with a schema, arguments that are checked, typed output: no extra is needed."""
    ran = run_with(library, "-c", AGENT, folder=tmp_path)
    assert (ran.stdout, ran.stderr) == ("It is 120.50 EUR. True 2\neuros=120\n", "")


@pytest.mark.costly
def test_the_lab_answers_an_agent_with_the_library_alone(library: Path, tmp_path: Path) -> None:
    """A real request over loopback, with aiohttp on both sides."""
    code = """
import asyncio
from turnwise import Agent, Model
from turnwise.lab import Lab

async def main():
    async with Lab() as lab:
        agent = Agent(Model("openai_chat:plain-answer", base_url=f"{lab.url}/v1", api_key="lab"))
        result = await agent.run("Go.")
        print(result.stop_reason, result.requests)

asyncio.run(main())
"""
    ran = run_with(library, "-c", code, folder=tmp_path)
    assert (ran.stdout, ran.stderr) == ("answered 1\n", "")


PARTS = """
from turnwise import Agent, CallerError, Journal, McpServer, Model, Telemetry, Workspace
from turnwise.coding_agent.options import Given

for part in (
    lambda: Workspace("."),
    lambda: Agent(Model("openai_chat:m", base_url="http://127.0.0.1:9/v1"), safety={"script": True}),
    lambda: Journal("postgresql://x/y"),
    lambda: McpServer("git", command=["mcp-server-git"]),
    lambda: Telemetry(),
):
    try:
        part()
    except CallerError as error:
        print(error)
"""


def test_each_part_says_at_once_what_it_needs(library: Path, tmp_path: Path) -> None:
    """Each is a `CallerError` with the command that installs it, when the part is made: nothing has been sent."""
    ran = run_with(library, "-c", PARTS, folder=tmp_path)
    assert ran.stderr == ""
    assert ran.stdout.splitlines() == [
        "support for work in a folder is not installed: pip install 'turnwise[workspace]'",
        "support for scripted steps is not installed: pip install 'turnwise[scripts]'",
        "support for PostgreSQL is not installed: pip install 'turnwise[postgres]'",
        "support for MCP servers is not installed: pip install 'turnwise[mcp]'",
        "support for OpenTelemetry is not installed: pip install 'turnwise[otel]'",
    ]


@pytest.mark.parametrize("words", [["--version"], ["run", "-m", "openai:m", "Go."], []])
def test_the_command_without_its_packages_is_one_line_and_exit_code_2(
    library: Path, tmp_path: Path, words: list[str]
) -> None:
    ran = run_with(library, "-m", "turnwise", *words, folder=tmp_path)
    said = "turnwise: support for the command line is not installed: pip install 'turnwise[terminal]'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", said)


@pytest.mark.costly
def test_each_command_without_its_extra_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    """With the packages of the terminal alone the demo runs, and what needs more says so before it does anything."""
    packages = folder_with(
        {*LIBRARY, *names_of(PROJECT["optional-dependencies"]["terminal"])}, folder=tmp_path / "packages"
    )
    folder = tmp_path / "work"
    folder.mkdir()
    editors = "support for editors and work in a folder is not installed: pip install 'turnwise[editors,workspace]'"
    serve = "support for MCP servers and work in a folder is not installed: pip install 'turnwise[mcp,workspace]'"
    postgres = "support for PostgreSQL is not installed: pip install 'turnwise[postgres]'"
    lines = {
        (
            "run",
            "-m",
            "openai:m",
            "Go.",
        ): "support for work in a folder is not installed: pip install 'turnwise[workspace]'",
        (
            "gateway",
            "--upstream",
            "openai:m",
        ): "support for the gateway is not installed: pip install 'turnwise[gateway]'",
        ("acp", "-m", "openai:m"): editors,
        ("mcp", "serve", "-m", "openai:m"): serve,
        ("status", "--database", "postgresql://x/y"): postgres,
        ("worker", "--database", "postgresql://x/y", "--agent", "a=b:c"): postgres,
    }
    ran = {words: run_with(packages, "-m", "turnwise", *words, folder=folder) for words in lines}
    assert {words: (one.returncode, one.stdout, one.stderr) for words, one in ran.items()} == {
        words: (2, "", f"turnwise: {line}\n") for words, line in lines.items()
    }
    demo = run_with(packages, "-m", "turnwise", "demo", folder=folder)
    assert demo.returncode == 0 and demo.stderr == ""


def test_without_the_grammar_of_bash_every_command_asks(tmp_path: Path) -> None:
    """`ls`, which reads only, asks as any other command does, and the reason names what to install; a rule that allows it does
    not help."""
    packages = folder_with({*LIBRARY, "pathspec"}, folder=tmp_path / "packages")
    folder = tmp_path / "work"
    folder.mkdir()
    code = """
from turnwise import Agent, Approval, Model, PermissionRule, Policy, Workspace
from turnwise.testing import ScriptedModel, call

def person(asking):
    print(*[ask.why for ask in asking.asks])
    return [Approval(call_id=ask.call.id, verdict="deny") for ask in asking.asks]

for rules in ((), (PermissionRule(verdict="allow", tool="bash", command=("ls", "*")),)):
    asked = {"policy": Policy(rules=rules, attended=True), "safety": {"approver": person}}
    for options in (asked, {"policy": Policy(rules=rules)}):
        model = ScriptedModel([call("bash", command="ls -l"), "Done."])
        agent = Agent(model, tools=[Workspace(".", sandbox=False)], **options)
        agent.run_sync("Go.")
        print("Denied: `bash` was not run" in model.asked[1].messages[-1].parts[0].content[0].text)
"""
    ran = run_with(packages, "-c", code, folder=folder)
    asked = "the command cannot be judged: the grammar of bash is not installed (pip install 'turnwise[workspace]')"
    assert (ran.stdout.splitlines(), ran.stderr) == ([asked, "True", "True"] * 2, "")


def outside_of(room: str) -> dict[str, set[str]]:
    """What a room's README says that it takes from outside: by extra, "" for the library, "if installed" for no extra."""
    line = re.search(
        r"^- From outside: the standard library(?:, )?([^(\n]*)", (SOURCE / room / "README.md").read_text(), re.M
    )
    assert line is not None, f"the README of `{room}` has no line `- From outside: the standard library, ...`"
    found: dict[str, set[str]] = {}
    for part in line[1].strip().split("; "):
        head, colon, names = part.partition(": ")
        found[head.removeprefix("extra ") if colon else ""] = {normal(name) for name in (names or head).split(", ")}
    return found


def imported_from_outside(room: str) -> Iterator[str]:
    """The top of each import in a room that is neither Python's nor ours."""
    for path in sorted((SOURCE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"turnwise"}


@pytest.mark.costly
def test_rooms_take_from_outside_what_their_readmes_say() -> None:
    """Each package that a room imports is in its README or comes with one that is; each that its README names is imported, and
    pyproject.toml installs it with the library or with the extra that the README says."""
    packages = importlib.metadata.packages_distributions()
    extras = {name: names_of(lines) for name, lines in PROJECT["optional-dependencies"].items()}
    wrong: list[str] = []
    for room in ROOMS:
        said = outside_of(room)
        imported = {normal(name): {normal(one) for one in packages[name]} for name in imported_from_outside(room)}
        named = set().union(*said.values())
        covered = {name: required_by(name) for name in named}
        wrong += [
            f"`{room}` imports `{name}`, which its README does not name"
            for name, homes in imported.items()
            if not any(homes & inner for inner in covered.values())
        ]
        wrong += [
            f"the README of `{room}` names `{name}`, which nothing imports"
            for name in named
            - {"httptools", "pydantic-monty"}  # uvicorn imports the one, the other installs what we import
            if not any(name in homes for homes in imported.values())
        ]
        for extra, names in said.items():
            installs = LIBRARY if extra == "" else extras.get(extra, set())
            if extra == "if installed":
                names, installs = names & (LIBRARY | set().union(*extras.values())), set()
            wrong += [f"the README of `{room}` has `{name}` under `{extra}`" for name in names - installs]
    assert wrong == []


def test_each_package_of_an_extra_is_used_where_the_readmes_say() -> None:
    """pyproject.toml asks for nothing that no room takes."""
    said = [(extra, name) for room in ROOMS for extra, names in outside_of(room).items() for name in names]
    used = {(extra, name) for extra, name in said if extra != "if installed"}
    asked = {("", name) for name in names_of(PROJECT["dependencies"])}
    asked |= {
        (extra, name)
        for extra, lines in PROJECT["optional-dependencies"].items()
        for name in names_of(lines) - {"turnwise"}
    }
    assert used == asked


def test_the_table_of_extras_is_that_of_the_project() -> None:
    """What is looked for where a part begins are packages that its extra installs, and the line names an extra that exists."""
    packages = importlib.metadata.packages_distributions()
    for extra, (_, looked_for) in EXTRAS.items():
        installed = names_of(PROJECT["optional-dependencies"][extra])
        for name in looked_for:
            assert {normal(one) for one in packages[name]} & set().union(*map(required_by, installed)), (extra, name)


def test_extras_that_are_missing_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One command installs them all; with all of them there is nothing to say."""
    require_extras(*EXTRAS)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(CallerError) as raised:
        require_extras("gateway", "terminal", "postgres")
    assert str(raised.value) == (
        "support for the gateway and PostgreSQL is not installed: pip install 'turnwise[gateway,postgres]'"
    )


def test_the_pages_list_every_extra() -> None:
    """docs/overview.md has a line for each extra, and no page names one that does not exist."""
    overview = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
    listed = re.findall(
        r"^\| `(\w+)` \|", overview.partition("## What to install")[2].partition("\n## ")[0], re.MULTILINE
    )
    assert set(listed) == PROJECT["optional-dependencies"].keys()
    pages = [
        ROOT / "README.md",
        *(ROOT / "docs").glob("*.md"),
        *[one for one in (ROOT / "examples").rglob("*.*") if "__pycache__" not in one.parts],
        *SOURCE.rglob("*.py"),
    ]
    named = {
        (page.name, extra)
        for page in pages
        for group in re.findall(r"(?:turnwise|'\.)\[([\w,]+)\]", page.read_text(encoding="utf-8"))
        for extra in group.split(",")
    }
    assert {one for one in named if one[1] not in listed} == set()


def test_the_lock_file_has_a_version_of_every_package_and_names_no_host() -> None:
    """requirements-dev.lock fits the bounds of pyproject.toml, its groups included, and scripts/check installs by it."""
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    locked = {normal(one.name): one for one in map(Requirement, text.splitlines())}
    assert not re.search(r"://|^-|@", text, re.MULTILINE) and all(len(one.specifier) == 1 for one in locked.values())
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"].values()
    for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values(), *groups):
        for wanted in map(Requirement, lines):
            if normal(wanted.name) != "turnwise":
                (pinned,) = locked[normal(wanted.name)].specifier
                assert pinned.operator == "==" and wanted.specifier.contains(pinned.version), wanted
    assert "--constraint requirements-dev.lock" in (ROOT / "scripts" / "check").read_text(encoding="utf-8")
