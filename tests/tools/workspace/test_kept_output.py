"""Output too long to show is kept in a file: the model that is told to look there can, with nobody there to be asked."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from turnwise.base.private_folders import private_folder, private_folder_of
from turnwise.errors import ToolFault
from turnwise.rules.allowances import allowing_options
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from turnwise.running.tools import Tool
from turnwise.tools.sandbox import find_sandbox
from turnwise.tools.shell_judge import inspector
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.output import is_gone_output
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.shell import BashArguments, Shell
from turnwise.turn.events import PlannedCall
from turnwise.vocab import ToolCall

FLOOD = "seq 100000; echo needle; seq 100000"
EFFECTS = {"read": "read", "list": "read", "search": "read", "write": "write", "edit": "write", "bash": "execute"}


class Place:
    """A folder with its tools, a command of which had more to say than is shown."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shell = Shell(root, sandbox=find_sandbox(wanted="none"))
        self.tools: dict[str, Tool] = {
            tool.name: tool for tool in workspace_tools(WorkspacePaths(root), shell=self.shell)
        }
        self.policy = Policy(workspace=str(root), home=str(root.parent))

    async def flood(self) -> Path:
        told = await self.shell.run(BashArguments(command=FLOOD))
        (name,) = [word.rstrip(":") for word in told.split() if word.startswith("/") and "outputs" in word]
        return Path(name)

    async def facts(self, tool: str, arguments: Mapping[str, object]) -> CallFacts:
        call = ToolCall(id="1", name=tool, arguments="{}")
        plan = PlannedCall(call=call, arguments=_encoded(arguments), timeout_s=10)
        (found,) = await inspector(self.tools.values(), workspace=self.root, home=self.root.parent, environment={})(
            [plan]
        )
        return found

    async def verdict(self, tool: str, *rules: PermissionRule, **arguments: object) -> str:
        policy = Policy(workspace=str(self.root), home=str(self.root.parent), rules=rules)
        return judge_permission(await self.facts(tool, arguments), policy=policy).kind


def _encoded(arguments: Mapping[str, object]) -> str:
    import json

    return json.dumps(arguments)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (tmp_path / "work").mkdir()
    return Place((tmp_path / "work").resolve())


SEARCHES = (
    "grep needle {}",
    "grep -c . < {}",
    "sed -n 1,5p {}",
    "head -3 {}",
    "tail -n 3 {}",
    "cat {} | wc -l",
    "cd {}/.. && grep needle bash-1.txt",
    "grep -r needle {}/..",
    "rg needle {}",
)


@pytest.mark.parametrize("command", SEARCHES)
async def test_every_way_of_searching_it_is_allowed_unattended(command: str, place: Place) -> None:
    """Issue 13, line 13: each of them was denied, though the model is told to search there."""
    file = await place.flood()
    assert await place.verdict("bash", command=command.format(file)) == "allow"


async def test_the_tools_for_files_read_it(place: Place) -> None:
    """With a policy, and in a program that has none."""
    file = await place.flood()
    for tool, arguments in (("read", {}), ("search", {"pattern": "needle"}), ("list", {})):
        path = file.parent if tool == "list" else file
        assert await place.verdict(tool, path=str(path), **arguments) == "allow"
        function = place.tools[tool].function
        assert function is not None
        said = function({"path": str(path), **arguments})
        text = said if isinstance(said, str) else await said  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        assert {"read": "     1\t1\n", "search": ":100001: needle", "list": "bash-1.txt ("}[tool] in str(text)


async def test_it_is_not_written_and_nothing_beside_it_is_opened(place: Place) -> None:
    """Only the folder of outputs, only to be read, only after there is one; a link in it leads where it leads."""
    folder = place.shell.outputs
    assert await place.verdict("read", path=str(folder / "bash-1.txt")) == "deny"
    file = await place.flood()
    write = PermissionRule(verdict="allow", effect="write")
    shell = PermissionRule(verdict="allow", effect="execute")
    assert await place.verdict("write", write, path=str(file), content="x") == "deny"
    assert await place.verdict("edit", write, path=str(file), old="1", new="2") == "deny"
    for command in (
        "echo x > {}",
        "rm {}",
        "cat a >> {}",
        "grep x {}/../../owner",
        "cat {}/../../tmp/x",
        "cat {}/../../outputs-2/x",
    ):
        assert await place.verdict("bash", shell, command=command.format(file)) == "deny"
    function = place.tools["write"].function
    assert function is not None
    with pytest.raises(ToolFault, match="is outside the workspace"):
        function({"path": str(file), "content": "x", "overwrite": True})
    (folder / "link").symlink_to("/etc/hostname")
    assert await place.verdict("read", path=str(folder / "link")) == "deny"


async def test_a_rule_about_it_still_holds(place: Place) -> None:
    """Who forbids it has said so."""
    file = await place.flood()
    deny = PermissionRule(verdict="deny", path=f"{file.parent}/**")
    assert await place.verdict("read", deny, path=str(file)) == "deny"
    assert await place.verdict("bash", deny, command=f"grep x {file}") == "deny"


async def test_what_an_earlier_run_kept_is_gone_and_said(place: Place, tmp_path: Path) -> None:
    """A continued session names it. Nothing is asked, no `--allow` is advised: the command has to run again."""
    file = await place.flood()
    shutil.rmtree(file.parents[1])
    other = Place(place.root)
    assert is_gone_output(str(file))
    assert (
        await other.verdict("read", path=str(file)) == await other.verdict("bash", command=f"grep x {file}") == "allow"
    )
    for tool in ("read", "search", "list"):
        function = other.tools[tool].function
        assert function is not None
        with pytest.raises(ToolFault, match=r"went with the run that kept it: run the command again"):
            said = function({"path": str(file), "pattern": "x"} if tool == "search" else {"path": str(file)})
            await said  # pyright: ignore[reportGeneralTypeIssues]
    assert await other.verdict("read", path=str(file.parents[1] / "tmp" / "x")) == "deny"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "{}/x"}),
        ("bash", {"command": "cat {}/x"}),
        ("bash", {"command": "touch {}/x"}),
        ("bash", {"command": "make > {}/x"}),
        ("write", {"path": "{}/x", "content": "x"}),
    ],
)
async def test_no_advice_names_a_folder_of_this_run(tool: str, arguments: dict[str, str], place: Place) -> None:
    """The next run has another, so `--allow` with its name would allow nothing."""
    with private_folder(kind="run") as folder:
        assert private_folder_of(str(folder / "x")) == folder
        facts = await place.facts(tool, {key: value.format(folder) for key, value in arguments.items()})
        assert allowing_options(facts, policy=place.policy) == ""
    facts = await place.facts("read", {"path": "/etc/hostname"})
    assert allowing_options(facts, policy=place.policy) == "--allow 'read(/etc/hostname)'"


async def test_a_file_too_large_to_be_searched_is_told(place: Place) -> None:
    """'No match' would be a lie."""
    with (place.root / "large").open("wb") as file:
        file.truncate(33 * 1024 * 1024)
    function = place.tools["search"].function
    assert function is not None
    with pytest.raises(ToolFault, match=r"has 34,603,008 bytes, more than 33,554,432: use `bash` with grep"):
        await function({"path": "large", "pattern": "x"})  # pyright: ignore[reportGeneralTypeIssues]
