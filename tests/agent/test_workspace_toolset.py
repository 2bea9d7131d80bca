"""`Workspace`: a folder's tools for an agent in Python, with the rules, facts and sandbox of the command line."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from left_journals import copy_of_a_crash
from turnwise import (
    Agent,
    Approval,
    Asking,
    CallerError,
    Journal,
    MaxRequests,
    Model,
    PermissionRule,
    Policy,
    RunResult,
    Subagents,
    Workspace,
    prefixed,
    tool,
)
from turnwise.testing import ScriptedModel, call
from turnwise.vocab import ToolResult
from waits import HANG_S


class Approver:
    """Allows everything, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def __call__(self, asking: Asking) -> list[Approval]:
        self.asked += [(one.call.name, one.subject) for one in asking.asks]
        return [Approval(call_id=one.call.id, verdict="allow") for one in asking.asks]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Its name has a space and an umlaut."""
    folder = tmp_path / "mein Ordner für alles"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    return folder


def agent_of(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> Agent:
    model = ScriptedModel(script)
    return Agent(Model("openai_chat:m", transport=model), tools=tools, **options)  # pyright: ignore[reportArgumentType]


def told(result: RunResult[Any]) -> list[str]:
    results = [part for one in result.new_messages for part in one.parts if isinstance(part, ToolResult)]
    return ["".join(getattr(part, "text", "") for part in one.content) for one in results]


@pytest.mark.parametrize("prefix", ["", "repo_"])
async def test_a_folder_s_tools_ask_before_they_write(folder: Path, prefix: str) -> None:
    """Proves: with an attended policy and an approver reading runs at once, writing and commands are asked about by their path
    and command; also under other names."""
    ask = Approver()
    script = [
        [call(f"{prefix}read", path="a.txt")],
        [call(f"{prefix}write", path="b.txt", content="new\n")],
        [call(f"{prefix}bash", command="touch c.txt")],
        "Done.",
    ]
    tools = prefixed(Workspace(folder), prefix) if prefix else Workspace(folder)
    agent = agent_of(script, [tools], policy=Policy(attended=True), safety={"approver": ask})
    result = await agent.run("Write.")
    assert ask.asked == [(f"{prefix}write", "b.txt"), (f"{prefix}bash", "touch c.txt")]
    assert "hello" in told(result)[0]
    assert sorted(path.name for path in folder.iterdir()) == ["a.txt", "b.txt", "c.txt"]  # noqa: ASYNC240 (a test)


async def test_without_a_policy_a_folder_is_read_and_not_written(folder: Path) -> None:
    """Proves: the command line's defaults hold where nobody can be asked; the agent's own tools run as before."""

    @tool(effect="write")
    def publish() -> str:
        """Publish."""
        return "published"

    calls = [
        call("read", path="a.txt"),
        call("read", path="/etc/hostname"),
        call("write", path="b.txt", content="x"),
        call("publish"),
    ]
    result = await agent_of([calls, "Done."], [Workspace(folder), publish]).run("Go.")
    read, outside, written, published = told(result)
    assert "hello" in read and published == "published"
    assert "Denied" in outside and "outside the workspace" in outside
    assert "Denied" in written and not (folder / "b.txt").exists()


async def test_an_agent_s_rules_hold_for_a_folder_s_paths(folder: Path) -> None:
    """Proves: rules on paths and commands have their facts without `inspect=`."""
    rules = (
        PermissionRule(verdict="allow", effect="write", path="out/**"),
        PermissionRule(verdict="deny", tool="read", path="a.txt"),
    )
    calls = [call("write", path="out/b.txt", content="x"), call("read", path="a.txt")]
    result = await agent_of([calls, "Done."], [Workspace(folder)], policy=Policy(rules=rules)).run("Go.")
    assert (folder / "out" / "b.txt").read_text() == "x"
    assert "Denied" in told(result)[1]


async def test_the_rules_of_settings_files_stand_before_the_agent_s(folder: Path) -> None:
    """Proves: only if they are asked for (`reads_rules`), and what a project's file denies is denied."""
    (folder / "turnwise.toml").write_text('[permissions]\nrules = [{ deny = "read", path = "a.txt" }]\n')
    calls = [call("read", path="a.txt")]
    policy = Policy(attended=True)
    with_files = agent_of([calls, "x"], [Workspace(folder, reads_rules=True)], policy=policy)
    without = agent_of([calls, "x"], [Workspace(folder)], policy=policy)
    assert "Denied" in told(await with_files.run("Go."))[0]
    assert "hello" in told(await without.run("Go."))[0]


async def test_what_a_turn_changed_in_a_folder_can_be_taken_back(folder: Path) -> None:
    """Proves: `workspace.changes.undo_last()` takes back the last turn's changes, and no others."""
    workspace, policy = Workspace(folder), Policy(unattended="allow")
    for name in ("b.txt", "c.txt"):
        calls = [call("write", path=name, content="x"), call("write", path=f"2{name}", content="x")]
        await agent_of([calls, "x"], [workspace], policy=policy).run("Go.")
    assert [one.outcome for one in workspace.changes.undo_last()] == ["removed", "removed"]
    assert sorted(path.name for path in folder.iterdir()) == ["2b.txt", "a.txt", "b.txt"]  # noqa: ASYNC240 (a test)


async def test_each_turn_has_a_memory_of_its_own_of_what_was_read(folder: Path) -> None:
    """Proves: a file that another run's model has read is not known to this one, so it is not overwritten unread."""
    workspace, policy = Workspace(folder), Policy(unattended="allow")
    await agent_of([[call("read", path="a.txt")], "x"], [workspace], policy=policy).run("Read.")
    calls = [call("write", path="a.txt", content="new")]
    result = await agent_of([calls, "x"], [workspace], policy=policy).run("Write.")
    assert "wrote" not in told(result)[0]
    assert (folder / "a.txt").read_text() == "hello\n"


async def test_a_sub_agent_works_in_the_same_folder(folder: Path) -> None:
    """Proves: one `Workspace` for parent and child; the child's asks go to the root's approver."""
    ask, workspace, policy = Approver(), Workspace(folder), Policy(attended=True)
    child = agent_of([[call("write", path="b.txt", content="x")], "Written."], [workspace], policy=policy)
    script = [[call("task", prompt="Write.")], [call("read", path="b.txt")], "Done."]
    agent = agent_of(
        script,
        [workspace, Subagents({"writer": child})],
        limits=MaxRequests(9),
        policy=policy,
        safety={"approver": ask},
    )
    result = await agent.run("Go.")
    assert ask.asked == [("write", "b.txt")] and "x" in told(result)[1]


async def test_a_turn_that_is_resumed_has_the_tools_of_its_folder(folder: Path, tmp_path: Path) -> None:
    """Proves: after a crash `resume` opens the toolset, asks for its tools and finds the facts of calls, by the turn's rules."""
    path, policy = tmp_path / "turns.db", Policy(attended=True)
    began = asyncio.Event()

    async def hang(asking: Asking) -> list[Approval]:
        began.set()
        await asyncio.Event().wait()
        return []

    with Journal(path) as journal:
        first = agent_of(
            [[call("write", path="b.txt", content="x")]],
            [Workspace(folder)],
            policy=policy,
            safety={"approver": hang},
            journal=journal,
            observation={"folder": folder},
        )
        running = asyncio.create_task(first.run("Write."))
        await asyncio.wait_for(began.wait(), HANG_S)
        left = tmp_path / "left.db"
        copy_of_a_crash(path, left)
        running.cancel()
        await asyncio.wait({running}, timeout=HANG_S)
    ask = Approver()
    with Journal(left) as journal:
        second = agent_of(
            ["Done."],
            [Workspace(folder)],
            policy=policy,
            safety={"approver": ask},
            journal=journal,
            observation={"folder": folder},
        )
        last = journal.last_session(folder)
        assert last is not None
        result = await second.resume(last.row.id)
    assert (ask.asked, result.text, (folder / "b.txt").read_text()) == ([("write", "b.txt")], "Done.", "x")


async def test_two_folders_of_one_agent_are_apart(folder: Path, tmp_path: Path) -> None:
    """Proves: each toolset's calls are judged in its own folder; the other one's paths are outside."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "q.txt").write_text("second\n")
    calls = [call("b_read", path="q.txt"), call("read", path="a.txt"), call("read", path=str(other / "q.txt"))]
    agent = agent_of([calls, "x"], [Workspace(folder), prefixed(Workspace(other), "b_")])
    second, first, outside = told(await agent.run("Go."))
    assert "second" in second and "hello" in first
    assert "outside the workspace" in outside


async def test_tools_that_were_taken_out_of_a_folder_s_toolset_are_judged_too(folder: Path) -> None:
    """Proves: what a `Workspace` offers is not written unasked if its tools are given one by one."""
    tools = list(await Workspace(folder).tools())
    result = await agent_of([[call("write", path="b.txt", content="x")], "x"], tools).run("Go.")
    assert "Denied" in told(result)[0] and not (folder / "b.txt").exists()


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    """Proves: where the toolset is made, with the path."""
    with pytest.raises(CallerError, match=r"`.*nowhere` does not exist"):
        Workspace(tmp_path / "nowhere")


def test_a_workspace_says_how_commands_run(folder: Path) -> None:
    """Proves: one line for people, which says where there is no sandbox."""
    assert "WITHOUT a sandbox" in Workspace(folder, sandbox=False).said
    assert str(folder) in repr(Workspace(folder))
