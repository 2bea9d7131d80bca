"""Who is asked before a tool of an `McpServer` runs: whoever the agent knows to ask, also without a policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from strangers import agent_of, results_of, texts_of
from turnwise import (
    Agent,
    Approval,
    Asking,
    CallerError,
    McpServer,
    Model,
    PermissionRule,
    Policy,
    Subagents,
    Workspace,
    approved,
    filtered,
    prefixed,
    tool,
)
from turnwise.testing import ScriptedModel, call


class Shop:
    """A server of this process that counts what was done."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.program = MCPServer("shop")

        @self.program.tool()
        def sell(name: str) -> str:
            """Sell it."""
            self.done.append(name)
            return f"sold {name}"

        @self.program.tool(annotations=ToolAnnotations(read_only_hint=True))
        def look() -> str:
            """Look around."""
            self.done.append("look")
            return "pears"

    def server(self, **options: Any) -> McpServer:
        return McpServer("s", server=self.program, **options)


class Person:
    """Whoever is asked: what about, and the answer."""

    def __init__(self, verdict: Any = "allow") -> None:
        self.verdict = verdict
        self.asked: list[tuple[tuple[str, ...], str]] = []

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        self.asked += [(asking.path, one.call.name) for one in asking.asks]
        return [Approval(call_id=one.call.id, verdict=self.verdict) for one in asking.asks]


SELL = call("s__sell", name="pear")
LOOK = call("s__look")


def rules(*verdicts: tuple[Any, str], **more: Any) -> dict[str, Policy]:
    return {"policy": Policy(rules=tuple([PermissionRule(verdict=kind, tool=name) for kind, name in verdicts]), **more)}


async def test_an_agent_that_knows_nobody_to_ask_runs_a_servers_tools_unless_it_is_told(tmp_path: Path) -> None:
    """Proves: with neither policy nor approver nor a folder a server's tools run like the agent's functions; with a folder, whose
    own commands are denied then, they are denied too."""
    shop = Shop()
    agent, _ = agent_of([[SELL], "Done."], [shop.server()])
    assert ("sold pear" in texts_of(await agent.run("Go."))[0], shop.done) == (True, ["pear"])
    agent, _ = agent_of([[SELL], "Done."], [shop.server(), Workspace(tmp_path)])
    assert ("Denied: `s__sell`" in texts_of(await agent.run("Go."))[0], shop.done) == (True, ["pear"])


async def test_a_server_that_is_to_be_asked_about_denies_at_once_where_nobody_is_there() -> None:
    """Proves: what nobody allowed does not run, and the model is told how it can be allowed. The agent's own tools run as
    before, and so does what the user calls a reader. A server's own word for that counts only where the user says so."""
    shop, done = Shop(), list[str]()

    @tool(effect="write")
    def note() -> str:
        """Note it."""
        done.append("note")
        return "noted"

    agent, _ = agent_of([[SELL, LOOK, call("note")], "Done."], [shop.server(asks=True), note])
    result = await agent.run("Go.")
    denied, unseen, noted = texts_of(result)
    assert "Denied: `s__sell` was not run. `s__sell` has the effect `execute`; nobody is there to be asked." in denied
    assert "by a rule of the agent's `policy`, or let the agent's `approver` answer" in denied
    assert ("Denied" in unseen, noted, done, shop.done) == (True, "noted", ["note"], [])
    for options in ({"effects": {"look": "read"}}, {"trusts_hints": True}):
        agent, _ = agent_of([[SELL, LOOK], "Done."], [shop.server(asks=True, **options)])
        denied, seen = texts_of(await agent.run("Go."))
        assert ("Denied" in denied, seen, shop.done) == (True, "pears", ["look"])
        shop.done.clear()


@pytest.mark.parametrize(("verdict", "done"), [("allow", ["pear"]), ("deny", []), ("later", [])])
async def test_an_approver_is_asked_without_a_policy(verdict: Any, done: list[str]) -> None:
    """Proves: its word holds. A call that it leaves for later waits, and runs once it is allowed."""
    shop, person = Shop(), Person(verdict)
    agent, _ = agent_of([[SELL], "Done."], [shop.server()], safety={"approver": person})
    result = await agent.run("Go.")
    assert (person.asked, shop.done) == ([((), "s__sell")], done)
    if verdict == "later":
        assert result.stop_reason == "waiting"
        answers = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in result.asks]
        await agent.run(approvals=answers, history=result.history)
        assert shop.done == ["pear"]


@pytest.mark.parametrize("asks", [True, False])
async def test_a_policys_rules_go_before_what_a_server_is_given(asks: bool) -> None:
    """Proves: `asks=False` runs tools at once, with a policy and without; a rule of the policy denies, asks about or allows them
    all the same, and so does one of a file."""
    shop, person = Shop(), Person("deny")
    for options, ran in (
        ({}, not asks),
        (rules(), not asks),
        (rules(("deny", "s__sell")), False),
        (rules(("ask", "s__*")), False),
        (rules(("allow", "s__*")), True),
        ({**rules(attended=True), "safety": {"approver": person}}, not asks),
        ({**rules(("ask", "s__sell"), attended=True), "safety": {"approver": person}}, False),
    ):
        agent, _ = agent_of([[SELL], "Done."], [shop.server(asks=asks)], **options)
        await agent.run("Go.")
        assert (options, shop.done) == (options, ["pear"] if ran else [])
        shop.done.clear()
    assert len(person.asked) == 1 + asks


async def test_a_rule_of_a_file_goes_before_the_word_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: a folder's rules go before `asks=False`, and before the agent's lack of a policy, whichever tool stands first."""

    @tool(effect="write")
    def note() -> str:
        """Note it."""
        raise AssertionError("a file denies it")

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "turnwise.toml").write_text(
        '[permissions]\nrules = [{ deny = "mcp(s.sell)" }, { deny = "note" }]\n', encoding="utf-8"
    )
    for turned in (False, True):
        shop = Shop()
        tools = [Workspace(folder, reads_rules=True), shop.server(asks=False)]
        agent, _ = agent_of([[SELL, LOOK, call("note")], "Done."], [note, *(tools[::-1] if turned else tools)])
        denied, seen, unnoted = texts_of(await agent.run("Go."))
        assert ("Denied" in denied, seen, "Denied" in unnoted, shop.done) == (True, "pears", True, ["look"])


async def test_a_wrapped_server_asks_under_its_new_name() -> None:
    """Proves: `prefixed` and `filtered` lose neither the ask nor the leave to run at once, and `approved` asks over that leave.
    Where nobody can be asked, `approved` is an error."""
    shop, person = Shop(), Person()
    sell = call("x_s__sell", name="pear")
    asked = {"approver": person}
    for wrapped, names in (
        (prefixed(filtered(shop.server(), "s__sell"), "x_"), ["x_s__sell"]),
        (filtered(prefixed(shop.server(asks=False), "x_"), "x_s__sell"), []),
        (prefixed(approved(shop.server(asks=False), "s__sell"), "x_"), ["x_s__sell"]),
    ):
        agent, _ = agent_of([[sell], "Done."], [wrapped], safety=asked)
        await agent.run("Go.")
        assert ([name for _, name in person.asked], shop.done) == (names, ["pear"])
        person.asked.clear()
        shop.done.clear()
    agent, _ = agent_of([[sell], "Done."], [prefixed(shop.server(asks=True), "x_")])
    assert "Denied: `x_s__sell`" in texts_of(await agent.run("Go."))[0]
    agent, model = agent_of(["Never."], [approved(shop.server())])
    with pytest.raises(CallerError, match="nobody can be asked"):
        await agent.run("Go.")
    assert (shop.done, model.asked) == ([], [])


@pytest.mark.promise("wait:child")
async def test_a_sub_agents_server_asks_the_approver_of_its_root() -> None:
    """Proves: neither of the two agents has a policy. The root's approver is asked, by a path that names the child; without an
    approver the child's call is denied if it is to be asked about."""
    for person in (Person(), None):
        shop = Shop()
        script = [[call("task", prompt="Sell.")], [SELL], "Sold?", "Done."]
        model = ScriptedModel(script)
        at: Any = {"transport": model}
        seller = Agent(Model("openai_chat:m", **at), tools=[shop.server(asks=None if person else True)])
        root = Agent(
            Model("openai_chat:m", **at),
            tools=[Subagents({"seller": seller})],
            safety={"approver": person} if person else {},
        )
        assert (await root.run("Go.")).text == "Done."
        assert shop.done == (["pear"] if person else [])
        assert person is None or person.asked == [(("seller",), "s__sell")]


async def test_a_server_of_one_run_asks_too() -> None:
    """Proves: what a run brings in the agent's place is judged alike, and gives no other run leave."""
    shop = Shop()
    agent, _ = agent_of([[SELL], "Done.", [SELL], "Done."], [])
    (told,) = results_of(await agent.run("Go.", tools=[shop.server(asks=True)]))
    assert (told.is_error, shop.done) == (True, [])
    (told,) = results_of(await agent.run("Go.", tools=[shop.server(asks=False)]))
    assert (told.is_error, shop.done) == (False, ["pear"])
