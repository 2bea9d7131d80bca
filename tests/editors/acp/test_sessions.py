"""A whole session of an editor: text, calls with diffs, permissions, cancel, load, list and fork."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.helpers import image_block, resource_link_block, text_block
from acp.schema import ForkSessionResponse, PermissionOption, ToolCallUpdate

from editors.acp.editor import Editor, deny, editing, given_at, new, say, written
from sandboxes import sandbox_called
from terminal.running import running_lab, script
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedStep
from turnwise.running.approvals import BEHIND_S
from turnwise.settings.options import RunSettings
from turnwise.testing import FakeClock
from waits import HANG_S

EDITED = "edit notes.txt"


async def always(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
    return next(option.option_id for option in options if option.kind == "allow_always")


async def test_a_turn_streams_text_and_shows_its_calls_with_their_diff(lab: Lab, folder: Path) -> None:
    """Issue 22: text, a call that reads, a call that edits after it was allowed, with its diff; the usage in the answer."""
    async with editing(given_at(lab, "read-edit-answer")) as (client, editor):
        session = await new(client, folder)
        answer = await say(client, session, "Set it.")
    assert (answer.stop_reason, editor.text()) == (
        "end_turn",
        "I will look at notes.txt first.\n\nDone: notes.txt now says 'status: done'.",
    )
    assert (folder / "notes.txt").read_text() == "status: done\n"
    assert (
        answer.usage is not None
        and answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens > 0
    )
    read, edit = editor.call("read notes.txt"), editor.call(EDITED)
    assert (read["kind"], read["states"]) == ("read", ["in_progress", "completed"])
    assert "status: draft" in read["content"][0].content.text
    assert (edit["kind"], edit["states"]) == ("edit", ["pending", "in_progress", "completed"])
    path = str(folder / "notes.txt")
    assert [(one.type, one.path, one.old_text, one.new_text) for one in edit["content"]] == [
        ("diff", path, "status: draft\n", "status: done\n")
    ]
    assert [one.path for one in edit["locations"]] == [path]
    (asked, options) = editor.asked[0]
    assert asked.tool_call_id == edit["tool_call_id"] and asked.content is not None
    assert asked.content[0].type == "diff" and "asked because" in asked.content[1].content.text
    assert [option.kind for option in options] == ["allow_once", "allow_always", "allow_always", "reject_once"]


async def test_thinking_is_streamed_apart_from_the_text(lab: Lab, folder: Path) -> None:
    """As `agent_thought_chunk`, which editors fold away."""
    async with editing(given_at(lab, "reasoning-and-calls")) as (client, editor):
        await say(client, await new(client, folder), "Look.")
    assert editor.text("agent_thought_chunk") and editor.text("agent_thought_chunk") not in editor.text()


async def test_a_denied_call_does_not_run_and_the_model_is_told(lab: Lab, folder: Path) -> None:
    """The turn goes on: the model answers without it."""
    editor = Editor()
    editor.decide = deny
    async with editing(given_at(lab, "read-edit-answer"), editor=editor) as (client, editor):
        answer = await say(client, await new(client, folder), "Set it.")
    assert answer.stop_reason == "end_turn" and (folder / "notes.txt").read_text() == "status: draft\n"
    edit = editor.call(EDITED)
    assert edit["states"] == ["pending", "failed"] and "Denied" in edit["content"][0].content.text


@pytest.mark.promise("wait:ask")
async def test_an_ask_that_nobody_answers_is_denied_and_told(lab: Lab, folder: Path) -> None:
    """By the deadline of `--ask-timeout`, on a clock of the test's own; an answer that comes later changes nothing."""
    clock, editor, late = FakeClock(), Editor(), asyncio.Event()

    async def nobody(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        await late.wait()
        return options[0].option_id

    editor.decide = nobody
    async with editing(given_at(lab, "read-edit-answer", ask_timeout=45.0), editor=editor, clock=clock) as (
        client,
        editor,
    ):
        turn = asyncio.create_task(say(client, await new(client, folder), "Set it."))
        await asyncio.wait_for(editor.opened.wait(), HANG_S)
        await clock.until_waiting(45.0 + BEHIND_S)
        await clock.advance(44.0)
        assert not turn.done() and "not answered" not in editor.text()
        await clock.advance(2.0)
        answer = await asyncio.wait_for(turn, HANG_S)
        late.set()
    assert answer.stop_reason == "end_turn" and (folder / "notes.txt").read_text() == "status: draft\n"
    assert "[turnwise] not answered within 45 s: edit: denied" in editor.text()
    assert editor.call(EDITED)["states"] == ["pending", "failed"]


async def test_always_is_not_asked_again_in_the_session(lab: Lab, folder: Path) -> None:
    """It holds for what the choice names, in later turns and after the session was loaded."""
    editor = Editor()
    editor.decide = always
    async with editing(given_at(lab, "read-edit-answer"), editor=editor) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "Set it.")
        name = next(option.name for option in editor.asked[0][1] if option.kind == "allow_always")
        assert name == "Always allow in this session: edit(notes.txt)"
        (folder / "notes.txt").write_text("status: draft\n")
        await say(client, session, "Again.")
        await client.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
        (folder / "notes.txt").write_text("status: draft\n")
        await say(client, session, "And again.")
    assert len(editor.asked) == 1 and (folder / "notes.txt").read_text() == "status: done\n"


async def test_cancel_ends_the_turn_with_what_there_is(lab: Lab, folder: Path) -> None:
    """While a command runs: the prompt is answered with `cancelled`, the call is shown as failed, and the session goes on."""
    async with editing(given_at(lab, "slow-bash")) as (client, editor):
        session = await new(client, folder)
        turn = asyncio.create_task(say(client, session, "Wait."))
        await written(folder / "begun.txt")
        await client.cancel(session_id=session)
        answer = await asyncio.wait_for(turn, HANG_S)
        assert answer.stop_reason == "cancelled"
        assert editor.call("bash")["states"][-1] == "failed"
        assert (await client.list_sessions(cwd=str(folder))).sessions[0].session_id == session


async def test_a_prompt_right_behind_a_cancel_is_served_after_it(lab: Lab, folder: Path) -> None:
    """Issue 40: an editor sends both at once, and does not wait for the end of the turn in between. So is another mode; what is
    cancelled before it begins asks nothing of the model."""
    async with editing(given_at(lab, "slow-bash")) as (client, _):
        session = await new(client, folder)
        first = asyncio.create_task(say(client, session, "Wait."))
        await written(folder / "begun.txt")

        def asked(text: str) -> Any:
            return client.prompt(session_id=session, prompt=[text_block(text)])

        sent: list[Any] = [client.cancel(session_id=session), asked("The second."), client.cancel(session_id=session)]
        sent += [client.set_session_mode(session_id=session, mode_id="read-only")]
        sent += [asked("The third."), asked("Too early.")]
        ends = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), HANG_S)
        assert (await first).stop_reason == "cancelled"
        assert [getattr(end, "stop_reason", None) for end in ends] == [None, "cancelled", None, None, "end_turn", None]
        assert "wait for its end, or cancel it" in str(ends[-1])
        told = lab.requests[-1].body.decode()
        assert "The third." in told and "Wait." in told and "The second." not in told


async def test_cancel_ends_a_turn_that_asks(lab: Lab, folder: Path) -> None:
    """The editor answers its open dialog with `cancelled`, as the protocol wants, or not at all."""
    editor = Editor()

    async def never(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        await asyncio.Event().wait()
        return None

    editor.decide = never
    async with editing(given_at(lab, "read-edit-answer"), editor=editor) as (client, editor):
        session = await new(client, folder)
        turn = asyncio.create_task(say(client, session, "Set it."))
        await asyncio.wait_for(editor.opened.wait(), HANG_S)
        await client.cancel(session_id=session)
        assert (await asyncio.wait_for(turn, HANG_S)).stop_reason == "cancelled"
    assert (folder / "notes.txt").read_text() == "status: draft\n"


async def test_a_loaded_session_is_told_again_and_goes_on(lab: Lab, folder: Path) -> None:
    """By another process's editor: what was said, the calls with their results, and then the next turn, which knows it all."""
    given = given_at(lab, "read-edit-answer")
    async with editing(given) as (client, _):
        session = await new(client, folder)
        await say(client, session, "Set it.")
    async with editing(given) as (client, editor):
        listed = await client.list_sessions(cwd=str(folder))
        assert [(one.session_id, one.cwd, one.title) for one in listed.sessions] == [(session, str(folder), "Set it.")]
        loaded = await client.load_session(cwd=str(folder), session_id=session, mcp_servers=[])
        assert loaded.modes is not None and loaded.modes.current_mode_id == "ask"
        assert editor.text("user_message_chunk") == "Set it."
        assert "Done: notes.txt now says 'status: done'." in editor.text()
        assert editor.call("read notes.txt")["states"] == ["pending", "completed"]
        assert editor.call(EDITED)["states"] == ["pending", "completed"]
        await say(client, session, "Again.")
    assert '"Set it."' in lab.requests[-1].body.decode()


async def test_a_fork_goes_on_beside_its_session(lab: Lab, folder: Path) -> None:
    """It knows what was said, has an id of its own, and the other session stays as it is."""
    async with editing(given_at(lab, "plain-answer")) as (client, _):
        session = await new(client, folder)
        await say(client, session, "The first.")
        forked = await client.fork_session(cwd=str(folder), session_id=session, mcp_servers=[])
        await say(client, forked.session_id, "Only in the fork.")
        assert forked.session_id != session and "The first." in lab.requests[-1].body.decode()
        assert forked.modes is not None and forked.modes.current_mode_id == "ask"
        await say(client, session, "Only in the first.")
        assert "Only in the fork." not in lab.requests[-1].body.decode()
        resumed = await client.resume_session(cwd=str(folder), session_id=session, mcp_servers=[])
        assert resumed.modes is not None
        await client.close_session(session_id=session)
        with pytest.raises(RequestError, match="is not open"):
            await say(client, session, "More.")


@pytest.mark.parametrize("how", ["load", "resume", "fork"])
@pytest.mark.parametrize("where", ["open", "closed", "another process"])
async def test_a_session_without_a_prompt_is_taken_up_as_an_empty_one(
    lab: Lab, folder: Path, how: str, where: str
) -> None:
    """Issue 40: an editor that was restarted, or had its tab closed, before the first prompt."""

    async def taken_up(client: ClientSideConnection, session: str) -> None:
        method = {"load": client.load_session, "resume": client.resume_session, "fork": client.fork_session}[how]
        answer = await method(cwd=str(folder), session_id=session, mcp_servers=[])
        now = answer.session_id if isinstance(answer, ForkSessionResponse) else session
        assert (now == session) == (how != "fork")
        assert (await say(client, now, "The first.")).stop_reason == "end_turn"
        assert [one.session_id for one in (await client.list_sessions(cwd=str(folder))).sessions] == [now]

    given = given_at(lab, "plain-answer")
    async with editing(given) as (client, editor):
        session = await new(client, folder)
        if where == "closed":
            await client.close_session(session_id=session)
        if where != "another process":
            await taken_up(client, session)
            assert ("no prompt of this session is known" in editor.text()) == (where == "closed" and how != "fork")
            return
    async with editing(given) as (client, _):
        await taken_up(client, session)


async def test_sessions_are_listed_page_by_page(lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: whoever follows the cursors sees each session once, the latest first, and comes to an end."""
    monkeypatch.setattr("turnwise.editors.acp.service.PAGE", 2)
    async with editing(given_at(lab, "plain-answer")) as (client, _):
        session = await new(client, folder)
        await say(client, session, "The first.")
        made = [session]
        for _ in range(4):
            made.append((await client.fork_session(cwd=str(folder), session_id=session, mcp_servers=[])).session_id)
        pages: list[list[str]] = []
        cursor: str | None = None
        while not pages or cursor is not None:
            assert len(pages) < len(made), "it comes to an end"
            page = await client.list_sessions(cwd=str(folder), cursor=cursor)
            pages.append([one.session_id for one in page.sessions])
            cursor = page.next_cursor
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted([id for page in pages for id in page]) == sorted(made)


async def test_modes_tighten_and_loosen_what_is_asked(lab: Lab, folder: Path) -> None:
    """Plan, once called read-only: nothing is asked and nothing written, whatever is allowed; edits: written without an ask; a
    command is still asked about. Sandbox mode is not offered in a folder that is no repository."""
    async with editing(given_at(lab, "read-edit-answer", allow=("write",))) as (client, editor):
        session = await new(client, folder)
        await client.set_session_mode(session_id=session, mode_id="read-only")
        await say(client, session, "Set it.")
        assert (folder / "notes.txt").read_text() == "status: draft\n" and not editor.asked
        told = editor.call(EDITED)["content"][0].content.text
        assert "this session is in plan mode, in which nothing is changed" in told
    async with editing(given_at(lab, "read-edit-answer")) as (client, editor):
        session = await new(client, folder)
        chosen = await client.set_config_option(session_id=session, config_id="mode", value="edits")
        assert chosen is not None and chosen.config_options[0].current_value == "edits"
        await say(client, session, "Set it.")
        assert (folder / "notes.txt").read_text() == "status: done\n" and not editor.asked
        with pytest.raises(RequestError, match="sandbox mode is not offered here"):
            await client.set_session_mode(session_id=session, mode_id="sandbox")
        with pytest.raises(RequestError, match="no mode `all`"):
            await client.set_session_mode(session_id=session, mode_id="all")
    editor = Editor()
    editor.decide = deny
    async with editing(given_at(lab, "slow-bash"), editor=editor) as (client, editor):
        session = await new(client, folder)
        await client.set_session_mode(session_id=session, mode_id="edits")
        await say(client, session, "Run it.")
    assert len(editor.asked) == 1 and not (folder / "begun.txt").exists()


LEAVES = script(
    "leaves",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "sh build.sh" } }]

[[steps]]
calls = [{ name = "bash", arguments = { command = "echo unasked > made.txt" } }]

[[steps]]
calls = [{ name = "bash", arguments = { command = "echo allowed > made.txt" } }]

[[steps]]
text = "Done."
""",
)


async def test_a_lost_sandbox_is_shown_as_the_mode_that_holds(folder: Path) -> None:
    """Issue 46: more guarded files than can be kept, in mid-turn: the command does not run, the editor is sent the mode and the
    options, and is asked about the next command."""
    sandbox_called("bubblewrap")
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q"], cwd=folder, check=True)
    (folder / "build.sh").write_text("for i in $(seq 301); do echo x > $i.pem; done")
    with running_lab([LEAVES]) as lab:
        async with editing(given_at(lab, "leaves")) as (client, editor):
            session = await new(client, folder)
            await client.set_session_mode(session_id=session, mode_id="sandbox")
            await say(client, session, "Go.")
        assert "the command was not run unasked" in lab.requests[2].body.decode()
    modes = [one.current_mode_id for one in editor.updates if one.session_update == "current_mode_update"]
    options = [one.config_options for one in editor.updates if one.session_update == "config_option_update"]
    assert (modes, options[-1][0].current_value) == (["ask"], "ask")
    assert "sandbox mode has ended, and you are asked again" in editor.text()
    assert len(editor.asked) == 1 and (folder / "made.txt").read_text() == "allowed\n"


async def test_plan_mode_holds_at_once_in_a_turn_that_runs(lab: Lab, folder: Path) -> None:
    """Issue 46, as at a terminal: a tighter mode does not wait for the turn's end; a wider one is refused until then."""
    async with editing(given_at(lab, "slow-bash", allow=("execute",))) as (client, editor):
        session = await new(client, folder)
        turn = asyncio.create_task(say(client, session, "Wait."))
        await written(folder / "begun.txt")
        with pytest.raises(RequestError, match="a turn of this session is running"):
            await client.set_session_mode(session_id=session, mode_id="edits")
        await client.set_session_mode(session_id=session, mode_id="plan")
        options = [one.config_options for one in editor.updates if one.session_update == "config_option_update"]
        assert options[-1][0].current_value == "plan"
        await client.cancel(session_id=session)
        await asyncio.wait_for(turn, HANG_S)
        await say(client, session, "Again.")
        assert "The session is in plan mode" in lab.requests[-1].body.decode()


async def test_another_model_goes_on_with_the_session(lab: Lab, folder: Path) -> None:
    """As an option of the session; a provider without a key is an error, and the model stays."""
    async with editing(given_at(lab, "plain-answer")) as (client, _):
        session = await new(client, folder)
        await say(client, session, "The first.")
        model = "openai_chat:parallel-calls"
        chosen = await client.set_config_option(session_id=session, config_id="model", value=model)
        assert chosen is not None and chosen.config_options[1].current_value == model
        with pytest.raises(RequestError, match="wants a key"):
            await client.set_config_option(session_id=session, config_id="model", value="anthropic:claude-sonnet-4-5")
        await say(client, session, "Both.")
        assert lab.requests[-1].model == "parallel-calls" and "The first." in lab.requests[-1].body.decode()


async def test_links_and_images_go_with_the_prompt(lab: Lab, folder: Path) -> None:
    """A link is read as `@file` is, after the rules have judged it: a secret file is not put in."""
    (folder / ".env").write_text("TOKEN=hush-1234\n")
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    blocks = [
        text_block("Look at"),
        resource_link_block("todo.txt", (folder / "todo.txt").as_uri()),
        resource_link_block(".env", (folder / ".env").as_uri()),
        *[image_block(pixel, f"image/{kind}") for kind in ("png", "jpeg", "gif", "webp")],
    ]
    async with editing(given_at(lab, "plain-answer")) as (client, editor):
        session = await new(client, folder)
        await asyncio.wait_for(client.prompt(session_id=session, prompt=blocks), HANG_S)
    body = lab.requests[-1].body.decode()
    assert "nothing" in body and "hush-1234" not in body and pixel in body
    assert "put in: todo.txt" in editor.text() and "not put in: .env" in editor.text()


async def test_slash_commands_ask_no_model(lab: Lab, folder: Path) -> None:
    """`/undo` asks before it takes back; what begins like a path is words for the model."""
    async with editing(given_at(lab, "read-edit-answer")) as (client, editor):
        session = await new(client, folder)
        await say(client, session, "/undo")
        assert "[turnwise] nothing to take back: this session has had no turn yet" in editor.text().splitlines()
        await say(client, session, "Set it.")
        sent = len(lab.requests)
        for command in ("/usage", "/permissions", "/undo"):
            await say(client, session, command)
        assert len(lab.requests) == sent and "1 turn, 3 requests" in editor.text()
        assert "outside are asked about." in editor.text() and "The last rule" not in editor.text()  # there is none
        assert (folder / "notes.txt").read_text() == "status: draft\n"
        assert editor.asked[-1][0].title == "Take back the last turn's changes"
        await say(client, session, "/etc/hosts is a path")
        assert len(lab.requests) > sent
    names = [one.available_commands for one in editor.updates if one.session_update == "available_commands_update"]
    assert [command.name for command in names[0]] == ["usage", "undo", "model", "permissions"]


async def test_a_failed_provider_is_an_error_of_the_prompt(lab: Lab, folder: Path) -> None:
    """It says what to do, without the key; the session goes on."""
    async with editing(given_at(lab, "fault-401")) as (client, _):
        session = await new(client, folder)
        with pytest.raises(RequestError, match="check the key"):
            await say(client, session, "Hello.")
        await client.set_config_option(session_id=session, config_id="model", value="openai_chat:plain-answer")
        assert (await say(client, session, "Hello.")).stop_reason == "end_turn"


async def test_a_limit_has_its_word_and_a_refusal_its_own(lab: Lab, folder: Path) -> None:
    """The protocol's `max_turn_requests`, and a line that says which limit it was."""

    async def takes_no_more(_: ToolCallUpdate, options: list[PermissionOption]) -> str | None:
        return options[-1].option_id

    async with editing(given_at(lab, "never-stops", settings=RunSettings(max_steps=2))) as (client, editor):
        editor.decide = takes_no_more
        answer = await say(client, await new(client, folder), "Go.")
    assert len(editor.asked) == 1 and "Take up to 2 more?" in str(editor.asked[0])
    assert answer.stop_reason == "max_turn_requests" and "[turnwise] answered from incomplete data" in editor.text()
    async with editing(given_at(lab, "refusal")) as (client, _):
        assert (await say(client, await new(client, folder), "Go.")).stop_reason == "refusal"


async def test_the_editors_mcp_servers_are_not_started_and_that_is_told(lab: Lab, folder: Path) -> None:
    """Once, with the first prompt."""
    from acp.schema import McpServerStdio

    server = McpServerStdio(name="x", command=str(folder / "x"), args=[], env=[])
    async with editing(given_at(lab, "plain-answer")) as (client, editor):
        session = (await client.new_session(cwd=str(folder), mcp_servers=[server])).session_id
        await say(client, session, "Hello.")
        await say(client, session, "Hello.")
    assert editor.text().count("MCP servers are not started") == 1


async def test_whole_responses_are_shown_too(lab: Lab, folder: Path) -> None:
    """`--no-stream`: the answer stands there once, as on the command line."""
    async with editing(given_at(lab, "read-edit-answer", no_stream=True)) as (client, editor):
        await say(client, await new(client, folder), "Set it.")
    assert editor.text() == "Done: notes.txt now says 'status: done'."


async def test_a_stream_that_breaks_off_is_told_as_discarded(lab: Lab, folder: Path) -> None:
    """What an editor was shown cannot be taken back: a line says that it does not count."""
    async with editing(given_at(lab, "fault-once-reset")) as (client, editor):
        answer = await say(client, await new(client, folder), "Go.")
    assert answer.stop_reason == "end_turn" and "[turnwise]" in editor.text() and "trying again" in editor.text()


async def test_what_a_person_should_know_of_a_turn_is_told(folder: Path) -> None:
    """Proves: a setting that the model does not take has a line, once in the session, and so has an AGENTS.md that changed."""
    script = Script(name="claude-opus-4-7", title="answers", steps=(ScriptedStep(text="Done."),))
    with running_lab([script]) as lab:
        more: dict[str, object] = {
            "model": "anthropic_messages:claude-opus-4-7",
            "base_url": lab.url,
            "settings": RunSettings(temperature=0.2),
        }
        async with editing(given_at(lab, script.name, **more)) as (client, editor):
            session = await new(client, folder)
            await say(client, session, "Hi.")
            (folder / "AGENTS.md").write_text("Be thorough.\n")
            await say(client, session, "Again.")
    assert editor.text().count("does not get a setting as you set it: `temperature`") == 1
    assert editor.text().count("AGENTS.md has changed (+1 -0 lines)") == 1
    assert b"Be thorough." in lab.requests[-1].body


async def test_usage_and_cost_are_told(lab: Lab, folder: Path) -> None:
    """How full the window is after the last request, and what the session has cost in all its turns."""
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "turnwise"
    place.mkdir(parents=True)
    (place / "turnwise.toml").write_text('[prices]\n"plain-answer" = { input = 1000, output = 1000 }\n')
    settings = RunSettings(context_window=50_000)
    async with editing(given_at(lab, "plain-answer", settings=settings)) as (client, editor):
        session = await new(client, folder)
        answers = [await say(client, session, "Hello."), await say(client, session, "Hello.")]
    told = [one for one in editor.updates if one.session_update == "usage_update"]
    tokens = [answer.usage.total_tokens for answer in answers if answer.usage is not None]
    assert [(one.used, one.size) for one in told] == [(tokens[0], 50_000), (tokens[1], 50_000)]
    costs = [one.cost.amount for one in told if one.cost is not None]
    assert costs == pytest.approx([tokens[0] / 1000, sum(tokens) / 1000]) and told[0].cost.currency == "USD"
    assert answers[0].field_meta is not None and float(answers[0].field_meta["turnwise"]["cost_usd"]) == costs[0]
