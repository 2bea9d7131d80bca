"""An approval is for what was shown: in one run, in a later one, with a history or out of a journal (issue 13, 15)."""

from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI
from httpx2 import ASGITransport, AsyncClient
from msgspec.structs import replace

from flat_agents import flat_agent
from turnwise import Agent, Approval, Asking, CallerError, Journal, Policy, RunContext, StopReason, tool
from turnwise.agent.results import RunResult
from turnwise.base.clock import SystemClock
from turnwise.running.tools import Tool
from turnwise.testing import ScriptedModel, call
from turnwise.tools.shell_judge import inspector
from turnwise.tools.workspace import WorkspacePaths, workspace_tools
from turnwise.turn.config import OneAsk
from turnwise.vocab import Message, ToolCall

ATTENDED = Policy(attended=True)
published: list[str] = []


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    published.append(page)
    return f"{page} is published"


async def later(asking: Asking) -> Sequence[Approval]:
    return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]


def an_agent(script: Sequence[Any], **options: Any) -> Agent:
    model = ScriptedModel(script)
    return flat_agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        **{"tools": [publish], "policy": ATTENDED, "approver": later, **options},
    )


@pytest.fixture(autouse=True)
def _nothing_published() -> None:
    published.clear()


def edited(history: Sequence[Message], *, arguments: str) -> list[Message]:
    return [
        replace(
            message,
            parts=tuple(
                [replace(part, arguments=arguments) if isinstance(part, ToolCall) else part for part in message.parts]
            ),
        )
        for message in history
    ]


def paused(agent: Agent) -> RunResult:
    first = agent.run_sync("Publish the news.")
    assert first.stop_reason is StopReason.WAITING
    return first


@pytest.mark.promise("wait:ask", "safe:seen")
def test_an_approval_without_a_digest_is_for_the_ask_that_the_paused_result_listed() -> None:
    """Hand-written `Approval(call_id=..., verdict="allow")` works: the history says what was shown, also out of JSON. An edited
    one waits again, whether `subject` is given or not."""
    agent = an_agent([call("publish", page="news"), "It is out."])
    first = paused(agent)
    (ask,) = first.asks
    stored = msgspec.json.decode(msgspec.json.encode(first.history), type=list[Message])
    for more in ({}, {"subject": ask.subject}):
        plain = Approval(call_id=ask.call.id, verdict="allow", **more)
        again = agent.run_sync(approvals=[plain], history=edited(stored, arguments='{"page":"secrets"}'))
        assert again.stop_reason is StopReason.WAITING and published == []
        assert again.asks[0].arguments == '{"page":"secrets"}'
    second = agent.run_sync(approvals=[Approval(call_id=ask.call.id, verdict="allow")], history=stored)
    assert second.text == "It is out." and published == ["news"]


@pytest.mark.promise("safe:seen")
def test_an_approval_with_a_digest_is_for_that_ask_whatever_the_history_says() -> None:
    """A history that lost its marks needs the digest; without one nothing was shown, and it is asked about again."""
    agent = an_agent([call("publish", page="news"), "It is out."])
    first = paused(agent)
    (ask,) = first.asks
    bare = [
        replace(
            message,
            parts=tuple([replace(part, asked="") if isinstance(part, ToolCall) else part for part in message.parts]),
        )
        for message in first.history
    ]
    unmarked = agent.run_sync(approvals=[Approval(call_id=ask.call.id, verdict="allow")], history=bare)
    assert unmarked.stop_reason is StopReason.WAITING and published == []
    yes = Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest)
    assert agent.run_sync(approvals=[yes], history=bare).text == "It is out."
    assert published == ["news"]


@pytest.mark.promise("wait:ask", "keep:replay", "safe:seen")
def test_a_digest_survives_the_journal_and_another_process(tmp_path: Path) -> None:
    """Another agent opens the journal and approves by the call's id alone; while a hook answers differently nothing runs, and
    the newest listing counts."""
    path = tmp_path / "journal.db"
    with Journal(path, clock=SystemClock()) as journal:
        first = paused(an_agent([call("publish", page="news")], journal=journal))
    (ask,) = first.asks
    with Journal(path, clock=SystemClock()) as journal:
        yes = [Approval(call_id=ask.call.id, verdict="allow")]
        hook = _rewriting("secrets")
        other = an_agent(["It is out."], journal=journal, hooks=[hook])
        again = other.run_sync(approvals=yes, session=first.session)
        assert again.stop_reason is StopReason.WAITING and published == []
        assert again.asks[0].arguments == '{"page":"secrets"}' and again.asks[0].digest != ask.digest
        second = other.run_sync(approvals=yes, session=first.session)
        assert second.text == "It is out." and published == ["secrets"]


def _rewriting(page: str) -> Any:
    from turnwise import ChangeArguments, Hook

    return Hook(point="before_tool", function=lambda _: ChangeArguments({"page": page}), name="rewriter")


@pytest.mark.promise("wait:ask", "wait:child")
def test_a_plain_approver_answers_for_sub_agents_too() -> None:
    """It runs in a thread, at the root and for what a child asks; one that raises is told as such to both."""
    seen: list[tuple[str, ...]] = []

    def plain(asking: Asking) -> Sequence[Approval]:
        seen.append(asking.path)
        if len(seen) == 3:
            raise KeyError("the database is gone")
        return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]

    child = an_agent([call("publish", page="chapter"), "Done."], approver=None)
    root = an_agent(
        [
            call("publish", page="news"),
            call("task", agent="writer", prompt="publish it"),
            call("publish", page="more"),
            "All done.",
        ],
        approver=plain,
        agents={"writer": child},
    )
    result = root.run_sync("Publish.")
    assert published == ["news", "chapter"] and seen == [(), ("writer",), ()]
    said = str(result.new_messages)
    assert "the program that asks the user failed (it raised KeyError" in said and "in time" not in said


class Files:
    """An agent with the workspace's own tools, and what an approver does before it says yes."""

    def __init__(self, folder: Path, script: Sequence[Any], meanwhile: Any = None, *, allows: bool = True) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.asks: list[OneAsk] = []
        tools: list[Tool] = [
            replace(one, offer=replace(one.offer, inspected=True)) for one in workspace_tools(WorkspacePaths(folder))
        ]

        def approver(asking: Asking) -> Sequence[Approval] | Awaitable[Sequence[Approval]]:
            self.asked += [ask.subject for ask in asking.asks]
            self.asks += asking.asks
            if meanwhile is not None:
                meanwhile()
            return [Approval(call_id=ask.call.id, verdict="allow" if allows else "deny") for ask in asking.asks]

        self.agent = an_agent(
            script,
            tools=tools,
            policy=Policy(attended=True, workspace=str(folder), home=str(folder.parent)),
            inspect=inspector(tools, workspace=folder),
            approver=approver,
        )


EDIT = call("edit", path="notes.txt", old="draft", new="done")


@pytest.mark.promise("safe:seen")
@pytest.mark.parametrize("happens", ["changed", "removed", "made a link"])
def test_a_file_that_changes_while_the_person_reads_is_not_changed_by_the_call(tmp_path: Path, happens: str) -> None:
    """What would change was shown; by the time of the answer something else would, so the model has to look again."""
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    notes = folder / "notes.txt"
    notes.write_text("status: draft\n")
    (folder / "other.txt").write_text("status: draft\n")

    def meanwhile() -> None:
        if happens == "changed":
            notes.write_text("status: draft\nsigned: nobody\n")
        else:
            notes.unlink()
        if happens == "made a link":
            notes.symlink_to(folder / "other.txt")

    files = Files(folder, [EDIT, "I looked."], meanwhile)
    said = str(files.agent.run_sync("Set it.").new_messages)
    assert files.asked == ["notes.txt"]
    assert "would no longer do what the user was shown and allowed" in said
    assert (folder / "other.txt").read_text() == "status: draft\n"
    assert not notes.exists() or "done" not in notes.read_text()


def test_two_edits_of_one_file_that_were_shown_together_both_run(tmp_path: Path) -> None:
    """The first one's change is no reason against the second: what was shown is looked at before either runs."""
    (tmp_path / "notes.txt").write_text("status: draft\nowner: nobody\n")
    second = call("edit", path="notes.txt", old="nobody", new="Ada")
    files = Files(tmp_path.resolve(), [[EDIT, second], "Done."])
    assert files.agent.run_sync("Set both.").complete
    assert (tmp_path / "notes.txt").read_text() == "status: done\nowner: Ada\n"


@pytest.mark.promise("safe:seen")
def test_what_is_looked_at_again_takes_no_person_twice(tmp_path: Path) -> None:
    """An approved change of what is as it was runs at once."""
    (tmp_path / "notes.txt").write_text("status: draft\n")
    files = Files(tmp_path.resolve(), [EDIT, "Done."])
    result = files.agent.run_sync("Set it.")
    assert result.complete and files.asked == ["notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "status: done\n"


@pytest.mark.promise("safe:seen")
def test_the_ask_of_a_compound_command_names_all_that_is_asked_about(tmp_path: Path) -> None:
    """Nothing hides behind the first part of it; what only reads is not named (issue 13, 9)."""
    command = "ls && touch made.txt; grep x notes.txt > out.txt || (rm -rf build)"
    files = Files(tmp_path.resolve(), [call("bash", command=command), "Done."], allows=False)
    files.agent.run_sync("Go.")
    (ask,) = files.asks
    for named in ("`touch made.txt`", "`out.txt`", "`rm -rf build`"):
        assert named in ask.why
    assert "`ls`" not in ask.why and "notes.txt" not in ask.why


async def test_a_web_server_takes_a_list_of_approvals_as_a_body() -> None:
    """Issue 44: `list[Approval]` was no type for FastAPI. A wrong one is the client's error, with its place; the schema is
    whole."""
    app = FastAPI()
    taken: list[Approval] = []

    @app.put("/answers")
    async def answer(answers: list[Approval]) -> list[Approval]:
        taken.extend(answers)
        return answers

    async with AsyncClient(transport=ASGITransport(app), base_url="http://chats") as browser:
        given = [{"call_id": "a", "verdict": "allow", "digest": "d"}, {"call_id": "b", "verdict": "later"}]
        said = await browser.put("/answers", json=given)
        assert said.json() == given
        assert taken == [Approval(call_id="a", verdict="allow", digest="d"), Approval(call_id="b", verdict="later")]
        wrong = await browser.put("/answers", json=[{"call_id": "a", "verdict": "yes"}])
        assert wrong.status_code == 422 and wrong.json()["detail"][0]["loc"] == ["body", 0]
        schema = (await browser.get("/openapi.json")).json()
    body = schema["paths"]["/answers"]["put"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["items"]["properties"]) == set(Approval.__struct_fields__)
    assert body["items"]["required"] == ["call_id", "verdict"]


def test_a_policy_leaves_asks_for_later_as_an_approver_does(tmp_path: Path) -> None:
    """Issue 44: a function of three lines was needed for it. The result is the same; an approver that is given is asked; a tool's
    own question and a sub-agent's ask are told at once, since they cannot wait."""
    leaves, said = Policy(unattended="later"), list[str]()
    script = [[call("publish", page="news"), call("publish", page="draft")], "Out."]
    ends = [an_agent(script).run_sync("Publish."), an_agent(script, policy=leaves, approver=None).run_sync("Publish.")]
    by_hand, by_policy = [(one.stop_reason, one.pending, one.asks, one.history, one.requests) for one in ends]
    assert by_policy == by_hand and by_policy[0] is StopReason.WAITING
    with Journal(tmp_path / "turns.db") as journal:
        agent = an_agent([*script], policy=leaves, approver=None, journal=journal)
        session = agent.run_sync("Publish.").session
        answers = [Approval(call_id=one.call.id, verdict="allow") for one in agent.open_asks(session)]
        assert agent.run_sync(approvals=answers, session=session).text == "Out." and published == ["news", "draft"]

    async def allows(asking: Asking) -> Sequence[Approval]:
        return [Approval(call_id=ask.call.id, verdict="allow") for ask in asking.asks]

    assert an_agent(script, policy=replace(leaves, attended=True), approver=allows).run_sync("Publish.").text == "Out."
    with pytest.raises(CallerError, match="left for later at once"):
        an_agent(script, policy=leaves, approver=allows)

    @tool
    async def wonder(context: RunContext[Any]) -> str:
        """Ask."""
        said.append((await context.ask("May I?")).verdict)
        return said[-1]

    below = an_agent([call("publish", page="x"), "Done."], policy=leaves, approver=None).as_tool("below", "Publishes.")
    whole = an_agent(
        [call("wonder"), call("below", prompt="Go."), "Done."], policy=leaves, approver=None, tools=[wonder, below]
    )
    assert whole.run_sync("Go.").text == "Done." and said == ["deny"] and published == ["news", "draft"] * 2
