"""What an editor has itself: unsaved texts, terminals, and plans and questions that it shows."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from acp.exceptions import RequestError
from acp.schema import (
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileSystemCapabilities,
    PermissionOption,
    ToolCallUpdate,
)

from editors.acp.editor import Editor, editing, given_at, new, say
from terminal.running import running_lab, script
from turnwise.base.clock import SystemClock
from turnwise.editors.acp.editor_updates import MAX_SHOWN
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab, Script
from turnwise.lab.script import ScriptedCall, ScriptedStep
from turnwise.running.approvals import BEHIND_S
from turnwise.testing import FakeClock
from waits import HANG_S

PLANS = script(
    "plans",
    """
[[steps]]
calls = [{ name = "plan", arguments = { entries = [{ content = "Look", status = "completed" }, { content = "Change it" }] } }]

[[steps]]
text = "Planned."
""",
)
ASKS = script(
    "asks",
    """
[[steps]]
calls = [{ name = "ask_user", arguments = { question = "Which one?", options = ["The red one", "The blue one"] } }]

[[steps]]
text = "It said: {result}"
""",
)
ASKS_FREELY = script(
    "asks-freely",
    """
[[steps]]
calls = [{ name = "ask_user", arguments = { question = "What is its name?" } }]

[[steps]]
text = "It said: {result}"
""",
)
OUTSIDE = script(
    "outside",
    """
[[steps]]
calls = [{ name = "read", arguments = { path = "../secret.txt" } }]

[[steps]]
text = "It said: {result}"
""",
)
ECHO = script(
    "echo",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo hello > made.txt", timeout_s = 60 } }]

[[steps]]
text = "It said: {result}"
""",
)
DELEGATES = script(
    "delegates",
    """
[[steps]]
asked = "do it"
calls = [{ name = "bash", arguments = { command = "echo child > made.txt" } }]

[[steps]]
asked = "do it"
text = "Done."

[[steps]]
calls = [{ name = "task", arguments = { prompt = "do it" } }]

[[steps]]
text = "It said: {result}"
""",
)
TWICE = script(
    "twice",
    """
[[steps]]
calls = [
    { name = "bash", arguments = { command = "echo one > made.txt" } },
    { name = "bash", arguments = { command = "echo two > two.txt" } },
]

[[steps]]
text = "Done."
""",
)
EDITS = script(
    "edits",
    """
[[steps]]
calls = [
    { name = "edit", arguments = { path = "notes.txt", old = "status", new = "state" } },
    { name = "edit", arguments = { path = "notes.txt", old = "draft", new = "done" } },
]

[[steps]]
text = "Done."
""",
)
HUGE_QUESTION = Script(
    name="huge-question",
    title="huge-question",
    steps=(
        ScriptedStep(calls=(ScriptedCall(name="ask_user", arguments={"question": "x" * (MAX_SHOWN + 1)}),)),
        ScriptedStep(text="It said: {result}"),
    ),
)
HUGE = Script(
    name="huge",
    title="huge",
    steps=(
        ScriptedStep(calls=(ScriptedCall(name="bash", arguments={"command": f"touch {'x' * MAX_SHOWN}"}),)),
        ScriptedStep(text="It said: {result}"),
    ),
)
LARGE = Script(
    name="large",
    title="large",
    steps=(
        ScriptedStep(
            calls=(
                ScriptedCall(
                    name="write",
                    arguments={"path": "notes.txt", "content": "line\n" * (MAX_SHOWN // 5), "overwrite": True},
                ),
            )
        ),
        ScriptedStep(text="Done."),
    ),
)
FS = FileSystemCapabilities(read_text_file=True, write_text_file=True)


@pytest.fixture(scope="module")
def own_lab() -> Iterator[Lab]:
    with running_lab(
        [PLANS, ASKS, ASKS_FREELY, OUTSIDE, ECHO, DELEGATES, TWICE, EDITS, HUGE, HUGE_QUESTION, LARGE]
    ) as lab:
        yield lab


@pytest.fixture
def lab(own_lab: Lab) -> Lab:
    own_lab.reset()
    return own_lab


def wants_terminal(text: str = 'terminal = "editor"\n') -> None:
    """In the user's own file."""
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise"
    place.mkdir(parents=True)
    (place / "turnwise.toml").write_text(text)


async def test_a_plan_is_shown_and_told_again(lab: Lab, folder: Path) -> None:
    """With the states of its steps; the tool changes nothing, so it is not asked about."""
    async with editing(given_at(lab, "plans")) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "Plan.")
        await client.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
    plans = [one.entries for one in editor.updates if one.session_update == "plan"]
    assert [[(step.content, step.status) for step in plan] for plan in plans] == [
        [("Look", "completed"), ("Change it", "pending")]
    ] * 2
    assert not editor.asked


async def test_a_question_with_answers_is_a_choice(lab: Lab, folder: Path) -> None:
    """The model gets the answer's own words; one without answers to choose from is a form, where the editor has forms."""

    async def second(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        return options[1].option_id

    editor = Editor()
    editor.decide = second
    async with editing(given_at(lab, "asks"), editor=editor) as (client, editor):
        await say(client, await new(client, folder), "Ask me.")
    assert [option.name for option in editor.asked[0][1]] == ["The red one", "The blue one", "No answer"]
    assert "The blue one" in editor.text()
    async with editing(given_at(lab, "asks-freely")) as (client, editor):
        await say(client, await new(client, folder), "Ask me.")
    assert not editor.asked and "Decide yourself" in lab.requests[-1].body.decode()
    forms = ElicitationCapabilities(form=ElicitationFormCapabilities())
    async with editing(given_at(lab, "asks-freely"), elicitation=forms) as (client, editor):
        await say(client, await new(client, folder), "Ask me.")
    assert editor.forms == ["What is its name?"] and "It said: Ada" in editor.text()


async def test_the_model_reads_unsaved_text_and_cannot_change_its_file(lab: Lab, folder: Path) -> None:
    """The editor is asked for that file alone; what it has saved, the disk has."""
    path = folder / "notes.txt"
    editor = Editor()
    editor.buffers = {str(path): "status: draft\nand a line that is not saved\n"}
    async with editing(given_at(lab, "read-edit-answer"), editor=editor, fs=FS) as (client, editor):
        await say(client, await new(client, folder), "Set it.")
    assert path.read_text() == "status: draft\n" and set(editor.read) == {str(path)}
    body = lab.requests[-1].body.decode()
    assert "and a line that is not saved" in body and "has unsaved changes in the editor" in body
    editor = Editor()
    editor.buffers = {str(path): "status: draft\r\n"}  # other line ends alone are no unsaved text
    async with editing(given_at(lab, "read-edit-answer"), editor=editor, fs=FS) as (client, editor):
        await say(client, await new(client, folder), "Set it.")
    assert path.read_text() == "status: done\n"


async def test_an_editor_is_not_asked_for_a_file_that_the_rules_keep(lab: Lab, folder: Path) -> None:
    """A path outside is asked about first; denied, the editor never hears of it, whatever text it has there."""

    async def no(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        return options[-1].option_id

    outside = folder.parent / "secret.txt"
    outside.write_text("on the disk\n")
    editor = Editor()
    editor.decide, editor.buffers = no, {str(outside): "in the editor\n"}
    async with editing(given_at(lab, "outside"), editor=editor, fs=FS) as (client, editor):
        await say(client, await new(client, folder), "Read it.")
    assert len(editor.asked) == 1 and not editor.read and "in the editor" not in lab.requests[-1].body.decode()


async def test_an_editor_that_does_not_say_its_text_is_not_waited_for(lab: Lab, folder: Path) -> None:
    """Three seconds of the clock; then the disk has the file."""

    class Slow(Editor):
        async def read_text_file(self, session_id: str, path: str, **_: object):
            self.opened.set()
            await asyncio.Event().wait()

    clock, editor = FakeClock(), Slow()
    async with editing(given_at(lab, "read-edit-answer"), editor=editor, clock=clock, fs=FS) as (client, _):
        turn = asyncio.create_task(say(client, await new(client, folder), "Set it."))
        for _ in range(2):  # the read, and the edit
            await asyncio.wait_for(editor.opened.wait(), HANG_S)
            editor.opened.clear()
            await clock.until_waiting(3.0)
            await clock.advance(3.0)
            if turn.done():
                break
            editor.opened.clear()
        await asyncio.wait_for(turn, HANG_S)
    assert (folder / "notes.txt").read_text() == "status: done\n"


async def test_commands_run_in_the_editors_terminal_where_the_user_wants_it(lab: Lab, folder: Path) -> None:
    """The ask says `without sandbox`; the editor runs it, and turnwise does not."""
    wants_terminal()
    async with editing(given_at(lab, "echo"), terminal=True) as (client, editor):
        await say(client, await new(client, folder), "Run it.")
    asked, _ = editor.asked[0]
    assert asked.title == "bash echo hello > made.txt (without sandbox)"
    assert any("without sandbox" in one.content.text for one in asked.content or [] if one.type == "content")
    assert editor.ran == ["echo hello > made.txt"] and editor.ended == ["released"]
    assert "in the terminal" in editor.text() and not (folder / "made.txt").exists()
    contents = [one.content for one in editor.updates if one.session_update == "tool_call_update" and one.content]
    assert any(content[0].type == "terminal" and content[0].terminal_id == "term-1" for content in contents)


async def test_always_counts_for_the_other_calls_of_the_response(lab: Lab, folder: Path) -> None:
    """Proves: the second of two edits of one file is not asked about, once the first was allowed always; `/permissions` tells
    each rule, where it comes from, and what decides."""

    async def always(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        return next(option.option_id for option in options if option.kind == "allow_always")

    editor = Editor()
    editor.decide = always
    async with editing(given_at(lab, "edits", allow=("bash(git push *)",)), editor=editor) as (client, editor):
        session = await new(client, folder)
        assert (await say(client, session, "Go.")).stop_reason == "end_turn"
        await say(client, session, "/permissions")
    assert len(editor.asked) == 1 and (folder / "notes.txt").read_text() == "state: done\n"
    rules = "allow bash(git push *) [--allow bash(git push *)]\nallow edit(notes.txt) that can write [session]\n"
    assert f"{rules}The last rule that fits a call decides." in editor.text()


@pytest.mark.promise("safe:seen")
async def test_what_a_hook_made_of_a_call_is_what_is_asked_about(lab: Lab, folder: Path) -> None:
    """Proves: title, files and diff of an ask are those of the call as it will run, not as the model wrote it."""
    (folder / "todo.txt").write_text("nothing\n")
    answer = folder.parent / "answer.json"
    changed = {"path": "todo.txt", "old": "nothing", "new": "something"}
    answer.write_bytes(msgspec.json.encode({"arguments": changed}))
    wants_terminal(f'[[hooks]]\npoint = "before_tool"\ncommand = ["cat", "{answer}"]\ntools = "edit"\n')
    async with editing(given_at(lab, "read-edit-answer")) as (client, editor):
        await say(client, await new(client, folder), "Set it.")
    asked, _ = editor.asked[0]
    path = str(folder / "todo.txt")
    assert asked.content is not None and asked.title == "edit todo.txt"
    assert [one.path for one in asked.locations or []] == [path]
    assert [(one.path, one.old_text, one.new_text) for one in asked.content if one.type == "diff"] == [
        (path, "nothing\n", "something\n")
    ]
    assert (folder / "todo.txt").read_text() == "something\n"


async def test_a_command_in_the_terminal_ends_with_its_time(lab: Lab, folder: Path) -> None:
    """The editor is told to end it, on a clock of the test's own; the model is told, too."""
    wants_terminal()
    clock, editor = FakeClock(), Editor()
    async with editing(given_at(lab, "echo", allow=("bash",)), editor=editor, clock=clock, terminal=True) as (
        client,
        _,
    ):
        editor.exits = asyncio.get_running_loop().create_future()
        turn = asyncio.create_task(say(client, await new(client, folder), "Run it."))
        await clock.until_waiting(60.0)
        await clock.advance(60.0)
        await asyncio.wait_for(turn, HANG_S)
    assert editor.ended == ["killed", "released"] and "timed out after 60 s" in editor.text()


async def test_a_project_cannot_take_commands_out_of_the_sandbox(lab: Lab, folder: Path) -> None:
    """The setting in a project's file is an error; without it the editor's terminal is not used, though it has one."""
    async with editing(given_at(lab, "echo"), terminal=True) as (client, editor):
        await say(client, await new(client, folder), "Run it.")
        assert editor.ran == [] and (folder / "made.txt").exists()
        assert editor.asked[0][0].title == "bash echo hello > made.txt"
        (folder / "turnwise.toml").write_text('terminal = "editor"\n')
        with pytest.raises(RequestError, match="a project's file cannot take commands out of the sandbox"):
            await new(client, folder)


async def test_a_terminal_that_the_editor_lacks_is_said(lab: Lab, folder: Path) -> None:
    """At the session's start, with what to do."""
    wants_terminal()
    async with editing(given_at(lab, "echo")) as (client, _):
        with pytest.raises(RequestError, match="this editor offers no terminal"):
            await new(client, folder)


async def test_a_sub_agents_calls_are_shown_and_asked_about_with_its_name(lab: Lab, folder: Path) -> None:
    """The ask says who asks; its session is none that an editor may load."""
    async with editing(given_at(lab, "delegates")) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "Hand it on.")
        assert [asked.title for asked, _ in editor.asked] == ["general › bash echo child > made.txt"]
        assert (folder / "made.txt").read_text() == "child\n"
        shown = editor.call("general › bash")
        assert shown["states"] == ["in_progress", "completed"] and editor.call("task")["states"][-1] == "completed"
        with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
            ((_, child),) = journal.children(journal.find_session(session).turns[0].id)
        assert [one.session_id for one in (await client.list_sessions()).sessions] == [session]
        with pytest.raises(RequestError, match="there is no session"):
            await client.load_session(cwd=str(folder), session_id=child.row.id, mcp_servers=[])


@pytest.mark.promise("wait:ask")
async def test_each_ask_has_its_own_time_from_when_the_editor_got_it(lab: Lab, folder: Path) -> None:
    """Proves (issue 39, 3): the second one had what the first one had left of the time of both."""
    clock, editor, answers = FakeClock(), Editor(), [asyncio.Event(), asyncio.Event()]

    async def slowly(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        await answers[len(editor.asked) - 1].wait()
        return options[0].option_id

    editor.decide = slowly
    given = given_at(lab, "twice", ask_timeout=45.0)
    async with editing(given, editor=editor, clock=clock) as (client, editor):
        turn = asyncio.create_task(say(client, await new(client, folder), "Go."))
        for number in range(2):
            await asyncio.wait_for(editor.opened.wait(), HANG_S)
            editor.opened.clear()
            await asyncio.wait_for(clock.until_waiting(45.0 + BEHIND_S), HANG_S)
            await clock.advance(40.0)
            answers[number].set()
        assert (await asyncio.wait_for(turn, HANG_S)).stop_reason == "end_turn"
    assert len(editor.asked) == 2 and "not answered" not in editor.text()
    assert (folder / "made.txt").exists() and (folder / "two.txt").exists()


@pytest.mark.promise("safe:seen")
async def test_what_is_too_large_to_show_is_denied_and_not_taken_back(lab: Lab, folder: Path) -> None:
    """Proves (issue 39, 3): the person is not asked about a part of a command or of a diff; the model and the person read why."""
    async with editing(given_at(lab, "huge")) as (client, editor):
        await say(client, await new(client, folder), "Go.")
    assert not editor.asked and "make smaller calls" in lab.requests[-1].body.decode()
    assert "not asked about, and denied: bash: it has 65,542 characters, and 65,536 can be shown" in editor.text()
    async with editing(given_at(lab, "huge-question")) as (client, editor):
        await say(client, await new(client, folder), "Go.")
    assert not editor.asked and "Decide yourself" in lab.requests[-1].body.decode()
    assert "not asked about, and denied: ask_user: it has 65,537 characters, and 65,536 can be shown" in editor.text()
    async with editing(given_at(lab, "large")) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "Go.")
        await say(client, session, "/undo")
    assert len(editor.asked) == 1 and (folder / "notes.txt").read_text().startswith("line")
    assert "the editor cannot show all of what would happen: it has " in editor.text()
    assert f"`turnwise undo {session[-8:]}` shows it page by page" in editor.text()
