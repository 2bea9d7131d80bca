"""The one table of guarded names holds on the ways that lead around a plain call: hooks, programs, links, instructions."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flat_agents import flat_agent
from guarded import LATER, OPEN, SECRETS
from turnwise import Approval, Asking, ChangeArguments, Hook, PermissionRule, Policy
from turnwise.agent.agent_setup import SCRIPT
from turnwise.base.unasked_files import LeftOut
from turnwise.coding_agent.repository import read_agents_md
from turnwise.running.hooks import ToolAboutToRun
from turnwise.testing import ScriptedModel, call
from turnwise.tools.shell_judge import inspector
from turnwise.tools.workspace import WorkspacePaths, workspace_tools
from turnwise.tools.workspace.previews import whole_preview
from turnwise.turn.config import OneAsk
from turnwise.vocab import Text, ToolResult

NEEDLE = "xyzzy"
ALLOWED = tuple(PermissionRule(verdict="allow", effect=effect) for effect in ("read", "write", "execute"))
# What each tool is called with, by the path that it is to reach.
SHOWS: dict[str, dict[str, str]] = {
    "read": {"path": "{}"},
    "list": {"path": "{}"},
    "search": {"pattern": "x", "path": "{}"},
    "bash": {"command": "cat '{}'"},
}
WRITES: dict[str, dict[str, str]] = {
    "write": {"path": "{}", "content": "new\n"},
    "edit": {"path": "{}", "old": NEEDLE, "new": "new"},
    "apply_patch": {"patch": "*** Begin Patch\n*** Delete File: {}\n*** End Patch"},
    "bash": {"command": "echo new > '{}'"},
}


def arguments(template: dict[str, str], *, path: str) -> dict[str, str]:
    return {key: value.replace("{}", path) for key, value in template.items()}


def texts(result: ToolResult) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


class Desk:
    """An agent with the workspace's own tools, where all is allowed in general; asks are noted down and denied."""

    def __init__(self, folder: Path, lines: Sequence[Any], **options: Any) -> None:
        self.folder = folder.resolve()
        self.asks: list[OneAsk] = []
        self.workspace = WorkspacePaths(self.folder)
        tools = [
            msgspec.structs.replace(one, offer=msgspec.structs.replace(one.offer, inspected=True))
            for one in workspace_tools(self.workspace)
        ]
        model = ScriptedModel([*lines, "Done."])
        self.agent = flat_agent(
            "openai_chat:scripted",
            base_url=model.endpoint.base_url,
            transport=model,
            tools=tools,
            policy=Policy(rules=ALLOWED, attended=True, workspace=str(self.folder), home=str(self.folder.parent)),
            inspect=inspector(tools, workspace=self.folder, home=self.folder.parent),
            approver=self._approver,
            **options,
        )

    def run(self) -> list[ToolResult]:
        result = self.agent.run_sync("go")
        return [part for message in result.messages for part in message.parts if isinstance(part, ToolResult)]

    async def _approver(self, asking: Asking) -> Sequence[Approval]:
        self.asks += asking.asks
        return [Approval(call_id=ask.call.id, verdict="deny") for ask in asking.asks]


def lay_out(folder: Path, names: Sequence[str]) -> list[str]:
    """The files of these names that can all be there at once, in both cases."""
    laid = [name for name in names if not name.startswith(".git/") and _is_laid(folder / name)]
    assert len(laid) >= len(names) - 5
    return [name for name in laid if _is_laid(folder / name.upper())]


def _is_laid(path: Path) -> bool:
    if any(parent.is_file() for parent in path.parents) or path.is_dir():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{NEEDLE}\n")
    return True


def every_way(names: Sequence[str]) -> list[str]:
    return [*names, *[name.upper() for name in names]]


CASES = [
    *[pytest.param(tool, template, SECRETS, id=f"{tool} shows a secret") for tool, template in SHOWS.items()],
    *[pytest.param(tool, template, SECRETS, id=f"{tool} writes a secret") for tool, template in WRITES.items()],
    *[pytest.param(tool, template, LATER, id=f"{tool} writes what runs later") for tool, template in WRITES.items()],
]


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(("tool", "template", "names"), CASES)
def test_a_hook_leads_no_call_past_the_table(
    tool: str, template: dict[str, str], names: tuple[str, ...], tmp_path: Path
) -> None:
    """Issue 13, "Done when" 3: a hook changes arguments, and the call is judged as it is then. What is shown for the question is
    the changed call: its arguments, and what it would do to the changed path."""
    laid = lay_out(tmp_path, names)
    ways = every_way(laid)

    def leads_on(looks: ToolAboutToRun) -> ChangeArguments:
        (at,) = re.findall(r"a(\d{3})\.x", looks.arguments)
        return ChangeArguments(arguments(template, path=ways[int(at)]))

    for start in range(0, len(ways), 100):
        some = range(start, min(start + 100, len(ways)))
        calls = [call(tool, id=f"c{at}", **arguments(template, path=f"a{at:03}.x")) for at in some]
        desk = Desk(tmp_path, [calls], hooks=[Hook(point="before_tool", function=leads_on, name="leads on")])
        results = desk.run()
        assert [ways[at] for at, result in zip(some, results, strict=True) if not result.is_error] == []
        shown = {ask.call.id: arguments(template, path=ways[int(ask.call.id[1:])]) for ask in desk.asks}
        assert {ask.call.id: msgspec.json.decode(ask.arguments) for ask in desk.asks} == shown
        assert len(shown) == len(some)
        for ask in desk.asks:
            preview = whole_preview(desk.workspace, tool, msgspec.json.decode(ask.arguments))
            assert not preview or any(ways[int(ask.call.id[1:])] in line for line in preview[:2])


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(("tool", "template", "names"), CASES)
def test_a_program_leads_no_call_past_the_table(
    tool: str, template: dict[str, str], names: tuple[str, ...], tmp_path: Path
) -> None:
    """Issue 13, "Done when" 3: what a program calls is judged as what the model calls, each call of it."""
    ways = every_way(lay_out(tmp_path, names))
    function = f"{tool}_" if tool == "list" else tool
    for start in range(0, len(ways), 100):
        some = ways[start : start + 100]
        calls = [arguments(template, path=way) for way in some]
        program = f"""
went = []
for given in {calls!r}:
    try:
        {function}(**given)
    except Exception as error:
        continue
    went.append(given)
print("went:", went)
"""
        desk = Desk(tmp_path, [call(SCRIPT, program=program)], script=True)
        (result,) = desk.run()
        assert "went: []" in texts(result)
        assert [msgspec.json.decode(ask.arguments) for ask in desk.asks] == calls


@pytest.mark.promise("safe:named", "safe:inside")
@pytest.mark.parametrize("name", SECRETS)
def test_instructions_are_no_way_to_a_secret(name: str, tmp_path: Path) -> None:
    """Issue 13, "Done when" 3: `AGENTS.md` as a link to it, in any case, and through another link."""
    for at, spelled in enumerate((name, name.upper())):
        folder = tmp_path / str(at)
        (folder / spelled).parent.mkdir(parents=True)
        (folder / spelled).write_text(NEEDLE)
        (folder / "AGENTS.md").symlink_to(spelled)
        assert isinstance(read_agents_md(folder), LeftOut)
        (folder / "between").symlink_to(spelled)
        (folder / "AGENTS.md").unlink()
        (folder / "AGENTS.md").symlink_to("between")
        assert isinstance(read_agents_md(folder), LeftOut)


@pytest.mark.parametrize("name", OPEN)
def test_instructions_may_be_a_link_to_an_ordinary_file(name: str, tmp_path: Path) -> None:
    """What is there to be read."""
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text(NEEDLE)
    (tmp_path / "AGENTS.md").symlink_to(name)
    assert read_agents_md(tmp_path) == NEEDLE
