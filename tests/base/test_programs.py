"""Which program a name leads to, who could change that, and that the program which was judged is the one that runs."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxes import EVERY, sandbox_called
from turnwise.base.programs import OWN_PYTHON, ProgramSearch
from turnwise.errors import ToolFault
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from turnwise.running.run_context import judged_programs
from turnwise.tools.sandbox import find_sandbox
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.shell import BashArguments, Shell
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import PlannedCall
from turnwise.turn.verdicts import judge_calls
from turnwise.vocab import ToolCall
from waits import HANG_S

SYSTEM = "/usr/bin:/bin"
BASH = shutil.which("bash", path=SYSTEM) or "bash"


@pytest.fixture
def place() -> Generator[Path]:
    """A folder that no sandbox has a private one in place of."""
    cache = Path.home() / ".cache"
    cache.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="turnwise-test-", dir=cache) as folder:
        yield Path(folder).resolve()


@pytest.fixture
def work(place: Path) -> Path:
    """A workspace with an activated virtual environment in it."""
    work = place / "desk"
    (work / ".venv" / "bin").mkdir(parents=True)
    (place / "bin").mkdir()
    return work


def program(path: Path, *, says: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)
    return path


def facts_of(command: str, *, work: Path, path: str, programs: ProgramSearch | None = None) -> CallFacts:
    return inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=work,
        home=work.parent,
        environment={"PATH": path},
        programs=programs,
    )


def verdict(facts: CallFacts, *, work: Path, allow: str = "") -> tuple[str, str]:
    rules = [PermissionRule(verdict="allow", tool="*", effect="write", source="command line")]
    if allow:
        rules.append(PermissionRule(verdict="allow", tool="bash", command=tuple(allow.split()), source="command line"))
    policy = Policy(rules=tuple(rules), workspace=str(work), home=str(work.parent), attended=True)
    found = judge_permission(facts, policy=policy)
    return found.kind, found.why


@pytest.mark.promise("safe:inside")
def test_a_program_in_the_workspace_is_asked_about(work: Path) -> None:
    """`--allow write` must not be leave to run: `.venv/bin/ruff` is written, and `ruff --version` asks (issue 13, line 4)."""
    path = f"{work}/.venv/bin:{work.parent}/bin:{SYSTEM}"
    program(work.parent / "bin" / "ruff", says="outside")
    assert verdict(facts_of("ruff --version", work=work, path=path), work=work) == ("allow", "")
    program(work / ".venv" / "bin" / "ruff", says="inside")
    assert verdict(facts_of("ruff --version", work=work, path=path), work=work)[0] == "ask"
    assert verdict(facts_of("ls; ruff --version | cat", work=work, path=path), work=work)[0] == "ask"
    assert verdict(facts_of("pytest -q", work=work, path=path), work=work, allow="pytest *")[0] == "allow"


CARRIERS = ["{}", "timeout 5 {}", "xargs {}", "env {}", "nice -n 5 {}", "find . -exec {} ;", "bash -c '{}'", "ls | {}"]


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("name", ["cat", "grep x", "git status", "node --version"])
def test_whatever_runs_it_a_program_in_the_workspace_is_asked_about(carrier: str, name: str, work: Path) -> None:
    """Behind every command that runs others, too."""
    program(work / ".venv" / "bin" / name.split()[0], says="inside")
    path = f"{work}/.venv/bin:{SYSTEM}"
    command = carrier.format(name.replace(" ;", "")).replace(" ;", " \\;")
    assert verdict(facts_of(command, work=work, path=path), work=work)[0] == "ask"


@pytest.mark.parametrize("carrier", ["timeout", "env", "nice", "nohup", "stdbuf", "bash", "sh"])
def test_a_carrier_in_the_workspace_is_asked_about(carrier: str, work: Path) -> None:
    """What runs others is a program as well."""
    arguments = {"timeout": "5 ls", "bash": "-c ls", "sh": "-c ls"}.get(carrier, "ls")
    path = f"{work}/.venv/bin:{SYSTEM}"
    assert verdict(facts_of(f"{carrier} {arguments}", work=work, path=path), work=work)[0] == "allow"
    program(work / ".venv" / "bin" / carrier, says="inside")
    assert verdict(facts_of(f"{carrier} {arguments}", work=work, path=path), work=work)[0] == "ask"


LAYOUTS: Mapping[str, Callable[[Path], str]] = {
    "absolute": lambda work: f"{work}/bin",
    "relative": lambda _: "bin",
    "dotted": lambda _: "./bin",
    "upwards": lambda work: f"../{work.name}/bin",
    "round": lambda work: f"/usr/../{str(work)[1:]}/bin",
    "by a link": lambda work: f"{work.parent}/linked",
    "home": lambda work: f"~/{work.name}/bin",
    "doubled": lambda work: f"/{work}//bin/",
}


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_way_to_write_a_folder_of_path_is_followed(
    layout: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative, with `..`, behind a link, by `~` (which bash follows in PATH)."""
    monkeypatch.setenv("HOME", str(work.parent))
    program(work / "bin" / "ls", says="inside")
    (work.parent / "linked").symlink_to(work / "bin")
    path = f"{LAYOUTS[layout](work)}:{SYSTEM}"
    assert verdict(facts_of("ls", work=work, path=path), work=work)[0] == "ask"


@pytest.mark.parametrize("path", [f":{SYSTEM}", f".:{SYSTEM}", f"/nowhere::{SYSTEM}"])
def test_an_empty_folder_of_path_is_where_the_command_runs(path: str, work: Path) -> None:
    """In the workspace, and below it after `cd`."""
    assert verdict(facts_of("ls", work=work, path=path), work=work)[0] == "allow"
    program(work / "sub" / "ls", says="inside")
    assert verdict(facts_of("ls", work=work, path=path), work=work)[0] == "allow"
    assert verdict(facts_of("cd sub && ls", work=work, path=path), work=work)[0] == "ask"


def test_a_link_is_followed_at_every_step(work: Path) -> None:
    """From outside into the workspace, and from there to a program of the system: the link in the middle can be replaced."""
    there = work.parent / "bin"
    (work / "middle").symlink_to("/usr/bin/cat")
    (there / "cat").symlink_to(work / "middle")
    (there / "head").symlink_to("/usr/bin/head")
    path = f"{there}:{SYSTEM}"
    assert verdict(facts_of("cat x", work=work, path=path), work=work)[0] == "ask"
    assert verdict(facts_of("head x", work=work, path=path), work=work)[0] == "allow"


def test_a_script_is_as_sure_as_its_interpreter(work: Path) -> None:
    """`npm` is outside and begins with `#!/usr/bin/env node`; a `node` in the workspace would read it."""
    npm = program(work.parent / "bin" / "npm", says="npm")
    path = f"{work}/.venv/bin:{work.parent}/bin:{SYSTEM}"
    npm.write_text("#!/usr/bin/env bash\n")
    assert verdict(facts_of("npm --version", work=work, path=path), work=work)[0] == "allow"
    program(work / ".venv" / "bin" / "bash", says="inside")
    assert verdict(facts_of("npm --version", work=work, path=path), work=work)[0] == "ask"
    npm.write_text(f"#!{work}/.venv/bin/bash\n")
    assert verdict(facts_of("npm --version", work=work, path=f"{work.parent}/bin:{SYSTEM}"), work=work)[0] == "ask"


def test_a_program_that_is_linked_into_a_project_is_asked_about(work: Path) -> None:
    """uv links one file of its cache into `~/.local` and into the project: written there, it is changed in both."""
    there = program(work.parent / "bin" / "ruff", says="outside")
    (work / ".venv" / "bin" / "other").hardlink_to(there)
    path = f"{work.parent}/bin:{SYSTEM}"
    assert verdict(facts_of("ruff --version", work=work, path=path), work=work)[0] == "ask"


@pytest.mark.parametrize("folder", [".asdf/shims", ".local/share/mise/shims"])
def test_a_shim_that_a_file_of_the_folder_leads_is_asked_about(folder: str, work: Path) -> None:
    """`.tool-versions` in the workspace may say `python path:./x`."""
    program(work.parent / folder / "python", says="shim")
    path = f"{work.parent}/{folder}:{SYSTEM}"
    assert verdict(facts_of("python --version", work=work, path=path), work=work)[0] == "ask"
    (work.parent / "bin" / "node").symlink_to(program(work.parent / "mise", says="shim"))
    path = f"{work.parent}/bin:{SYSTEM}"
    assert verdict(facts_of("node --version", work=work, path=path), work=work)[0] == "ask"


def test_a_name_that_comes_to_lead_into_the_workspace_is_no_longer_allowed_by_its_name(work: Path) -> None:
    """`--allow 'bash(git push *)'` was said of the git that was there; one that the model wrote since is asked about."""
    path = f"{work}/.venv/bin:{SYSTEM}"
    program(work / ".venv" / "bin" / "pytest", says="inside")
    programs = ProgramSearch(path, workspace=str(work))
    git, tests = "git push origin", "pytest -q"
    assert verdict(facts_of(git, work=work, path=path, programs=programs), work=work, allow="git push *")[0] == "allow"
    program(work / ".venv" / "bin" / "git", says="inside")
    kind, why = verdict(facts_of(git, work=work, path=path, programs=programs), work=work, allow="git push *")
    assert kind == "ask" and "it was another program before" in why
    found = facts_of(tests, work=work, path=path, programs=programs)
    assert verdict(found, work=work, allow="pytest *")[0] == "allow"


@given(
    folders=st.lists(st.sampled_from(["a", "b", "in", "in2", "", ".", "in2/../a", "missing"]), max_size=5),
    there=st.sets(st.sampled_from(["a", "b", "in", "in2", "root"])),
    bare=st.sets(st.sampled_from(["a", "in"])),
)
def test_it_finds_what_bash_finds(
    folders: list[str], there: set[str], bare: set[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For any PATH, with files that cannot be executed in it: `type -P` of a real bash is the judge."""
    root = tmp_path_factory.mktemp("paths")
    work = root / "desk"
    places = {"a": root / "a", "b": root / "b", "in": work / "in", "in2": work / "in2", "root": work}
    for name, folder in places.items():
        folder.mkdir(parents=True, exist_ok=True)
        if name in there:
            (folder / "tool").write_text("x")
            (folder / "tool").chmod(0o644 if name in bare else 0o755)
    path = ":".join(str(places.get(name, root / name)) if name not in ("", ".") else name for name in folders)
    asked = subprocess.run(
        [BASH, "-c", "type -P tool"], cwd=work, env={"PATH": path}, capture_output=True, text=True, check=False
    )
    found = ProgramSearch(path, workspace=str(work)).find("tool", places=(str(work),))
    expected = os.path.realpath(work / asked.stdout.strip()) if asked.returncode == 0 else ""
    # Bash names one that it cannot execute, if there is no other.
    executable = expected and os.access(expected, os.X_OK)
    assert (os.path.realpath(found.path) if found.path else "") == (expected if executable else "")
    if found.path:
        assert found.apart == (not Path(expected).is_relative_to(work))


def planned(command: str, *, facts: CallFacts, work: Path) -> PlannedCall:
    """The call as the turn hands it on after a verdict of `allow`."""
    tool = next(tool for tool in workspace_tools(work) if tool.name == "bash")
    call = ToolCall(id="1", name="bash", arguments="{}")
    policy = Policy(
        rules=(PermissionRule(verdict="allow", tool="bash", source="command line"),),
        workspace=str(work),
        home=str(work.parent),
    )
    offers: dict[str, ToolOffer] = {"bash": tool.offer}
    plan = PlannedCall(call=call, arguments=f'{{"command": "{command}"}}', timeout_s=HANG_S)
    (kept,) = judge_calls([plan], facts={"1": facts}, policy=policy, offers=offers, hint="").planned
    return kept


async def run_judged(shell: Shell, command: str, *, plan: PlannedCall) -> str:
    with judged_programs(plan.programs, unasked=plan.unasked):
        try:
            return await asyncio.wait_for(shell.run(BashArguments(command=command, timeout_s=int(HANG_S))), HANG_S)
        except ToolFault as fault:
            return str(fault)


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("carrier", ["{}", "timeout 5 {}", "bash -c {}", "true && {}", "make", "{}; mine"])
async def test_the_program_that_was_judged_is_the_one_that_runs(
    name: str, carrier: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that comes between the verdict and the start changes nothing: of a command that is known, of one that a rule
    allows, and below either. A program in the workspace still runs."""
    bin_ = work / ".venv" / "bin"
    monkeypatch.setenv("PATH", f"{bin_}:{work.parent}/bin:{SYSTEM}")
    program(bin_ / "mine", says="mine")
    program(work.parent / "bin" / "make", says="outside")
    shell = Shell(work, sandbox=sandbox_called(name))
    command = carrier.format("make")
    facts = facts_of(command, work=work, path=os.environ["PATH"], programs=shell.programs)
    plan = planned(command, facts=facts, work=work)
    for planted in ("make", "timeout", "bash", "true", "sh"):
        program(bin_ / planted, says="planted")
    said = await run_judged(shell, command, plan=plan)
    assert said.split() == (["outside", "mine"] if "mine" in carrier else ["outside"])


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("name", EVERY)
async def test_a_known_command_runs_without_the_folders_of_the_workspace(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`egrep` is a script that looks for `grep` by its name: what only reads finds no program of the workspace at all."""
    monkeypatch.setenv("PATH", f"{work}/.venv/bin:{work.parent}/bin:{SYSTEM}")
    egrep = program(work.parent / "bin" / "egrep", says="x")
    egrep.write_text('#!/bin/sh\nexec grep -E "$@"\n')
    (work / "notes").write_text("needle\n")
    shell = Shell(work, sandbox=sandbox_called(name))
    facts = facts_of("egrep needle notes", work=work, path=os.environ["PATH"], programs=shell.programs)
    plan = planned("egrep", facts=facts, work=work)
    assert plan.programs is not None and plan.programs.only_apart
    program(work / ".venv" / "bin" / "grep", says="planted")
    assert await run_judged(shell, "egrep needle notes", plan=plan) == "needle\n"


@pytest.mark.parametrize("name", EVERY)
async def test_programs_of_turnwise_itself_are_not_those_of_the_workspace(
    name: str, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its bash, ripgrep for `search`, and the Python of its helpers: all of them run outside of the sandbox, or begin it."""
    sandbox = sandbox_called(name)
    monkeypatch.setenv("PATH", f"{work}/.venv/bin:{SYSTEM}")
    for planted in ("bash", "sh", "rg", "true", "python3", "bwrap"):
        program(work / ".venv" / "bin" / planted, says="planted; touch planted-ran")
    (work / "notes").write_text("needle\n")
    shell = Shell(work, sandbox=sandbox)
    assert await shell.run(BashArguments(command="echo $((1 + 1))")) == "2\n"
    search = next(tool for tool in workspace_tools(work, shell=shell) if tool.name == "search")
    assert search.function is not None
    assert "notes:1: needle" in str(await search.function({"pattern": "needle"}))  # type: ignore[misc]
    assert find_sandbox(workspace=work).program in ("", shutil.which("bwrap", path=SYSTEM))
    assert not (work / "planted-ran").exists()


def test_helpers_run_by_the_interpreter_below_a_virtual_environment() -> None:
    """Its link may lie in the workspace, where it can be replaced."""
    assert os.path.realpath(OWN_PYTHON) == OWN_PYTHON


def test_nothing_is_handed_on_where_path_leaves_no_doubt(work: Path) -> None:
    """The usual PATH: facts and calls are as they were."""
    facts = facts_of("ls | wc -l", work=work, path=SYSTEM)
    assert facts.shell is not None and not facts.shell.mixed_path
    assert all(command.programs == () for command in facts.shell.commands)
    assert planned("ls", facts=facts, work=work).programs is None
