"""Toolsets: when they are opened, asked and closed, and what an agent makes of what they offer."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import pytest

from turnwise import (
    Agent,
    Approval,
    Asking,
    BadTool,
    CallerError,
    Deadlines,
    MethodsOf,
    Model,
    PermissionRule,
    Policy,
    RunResult,
    Subagents,
    Toolset,
    ToolSpec,
    approved,
    filtered,
    prefixed,
    tool,
)
from turnwise.agent.agent import inside
from turnwise.agent.agent_setup import ALL_EFFECTS
from turnwise.agent.tools import OneTool
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.vocab import ToolResult
from waits import HANG_S


class Door:
    """A toolset that writes down what is done with it. It has to be left in the task that has entered it."""

    def __init__(self, *functions: Callable[..., Any]) -> None:
        self.functions = list(functions)
        self.seen: list[str] = []
        self._task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> "Door":
        assert self._task is None, "it is open already"
        self._task = asyncio.current_task()
        self.seen.append("open")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert asyncio.current_task() is self._task, "left in another task"
        self._task = None
        self.seen.append("close")

    async def tools(self) -> Sequence[OneTool]:
        assert self._task is not None, "asked while it is closed"
        self.seen.append("tools")
        return self.functions


def knock() -> str:
    """Knock at the door."""
    return "who is there?"


def ring() -> str:
    """Ring the bell."""
    return "ding"


def agent_of(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(script)
    return Agent(Model("openai_chat:m", transport=model), tools=tools, **options), model  # pyright: ignore[reportArgumentType]


def offered(model: ScriptedModel, request: int) -> list[str]:
    return [one.name for one in model.asked[request].tools if one.name != "read_result"]


def told(result: RunResult[Any]) -> list[str]:
    results = [part for one in result.new_messages for part in one.parts if isinstance(part, ToolResult)]
    return ["".join(getattr(part, "text", "") for part in one.content) for one in results]


async def test_a_run_of_an_agent_that_is_not_entered_opens_and_closes_its_toolsets() -> None:
    """Proves: open, asked once for the turn however many steps it has, and closed, also in the next run."""
    door = Door(knock)
    agent, _ = agent_of([[call("knock")], [call("knock")], "Nobody.", "Still nobody."], [door])
    result = await agent.run("Knock twice.")
    assert told(result) == ["who is there?", "who is there?"]
    await agent.run("And now?")
    assert door.seen == ["open", "tools", "close"] * 2


async def test_an_entered_agent_keeps_its_toolsets_open() -> None:
    """Proves: opened with the agent, asked in each turn, closed with it, also behind a wrapper."""
    door = Door(knock)
    agent, _ = agent_of(["One.", "Two."], [prefixed(door, "front_")])
    async with agent:
        assert door.seen == ["open"]
        await agent.run("Once.")
        await agent.run("Twice.")
    assert door.seen == ["open", "tools", "tools", "close"]


async def test_what_a_toolset_offers_changes_between_turns_and_not_within_one() -> None:
    """Proves: the tools of a turn stay those of its first request (the cached prefix); the next turn has new ones."""
    door = Door(knock)

    def install() -> str:
        """Add a bell."""
        door.functions.append(ring)
        return "installed"

    agent, model = agent_of([[call("install")], "Done.", [call("ring")], "Ding."], [install, door])
    await agent.run("Add a bell.")
    result = await agent.run("Ring.")
    names = [offered(model, number) for number in range(4)]
    assert names == [["install", "knock"]] * 2 + [["install", "knock", "ring"]] * 2
    assert told(result) == ["ding"]


async def test_runs_and_agents_that_share_a_toolset_open_it_once() -> None:
    """Proves: two agents in one event loop, one inside the other's block; the last of them closes it."""
    door = Door(knock)
    one, _ = agent_of(["One."], [door])
    other, _ = agent_of(["Two.", "Three."], [door])
    async with one:
        await asyncio.gather(other.run("a"), other.run("b"))
        await one.run("c")
        assert "close" not in door.seen
    assert door.seen == ["open", "tools", "tools", "tools", "close"]


async def test_what_a_worker_makes_of_an_entered_agent_shares_its_toolsets() -> None:
    """Proves: the copy that runs a claimed turn (`Agent.keeping`, workers/worker.py) opens nothing anew."""
    door = Door(knock)
    agent, model = agent_of(["Done.", "Done."], [door])
    async with agent:
        for _ in range(2):
            await inside(agent).keeping(None, config=inside(agent).config, effects=ALL_EFFECTS).run("Go.")
    assert (offered(model, 1), door.seen) == (["knock"], ["open", "tools", "tools", "close"])


async def test_a_toolset_that_does_not_open_in_time_is_an_error_that_names_it() -> None:
    """Proves: `Deadlines.toolset_s` bounds the opening; nothing is sent, and what has opened meanwhile is closed."""

    class Stuck(Door):
        async def __aenter__(self) -> "Stuck":
            await asyncio.Event().wait()
            return self

    clock, door = FakeClock(), Door(knock)
    agent, model = agent_of(
        ["Never."],
        [door, Stuck(ring)],
        recovery={"deadlines": Deadlines(toolset_s=7)},
        observation={"clock": clock},
    )
    running = asyncio.create_task(agent.run("Open."))
    await clock.advance(8)
    with pytest.raises(CallerError, match=r"`Stuck` did not open within 7 s .*toolset_s"):
        await asyncio.wait_for(running, HANG_S)
    assert (door.seen, model.asked) == (["open", "close"], [])


async def test_a_toolset_that_is_slow_with_its_tools_is_an_error() -> None:
    """Proves: the same bound for the question."""

    class Slow(Door):
        async def tools(self) -> Sequence[OneTool]:
            await asyncio.Event().wait()
            return []

    clock = FakeClock()
    agent, _ = agent_of(["Never."], [Slow()], observation={"clock": clock})
    running = asyncio.create_task(agent.run("Tools?"))
    await clock.advance(31)
    with pytest.raises(CallerError, match="`Slow` did not give its tools within 30 s"):
        await asyncio.wait_for(running, HANG_S)


async def test_a_toolset_that_does_not_close_in_time_is_left_with_a_line(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: the run ends with its answer, and the log says which toolset was left."""
    stays = asyncio.Event()

    class Sticky(Door):
        async def __aexit__(self, *_: object) -> None:
            while not stays.is_set():
                try:
                    await stays.wait()
                except asyncio.CancelledError:
                    continue

    clock = FakeClock()
    agent, _ = agent_of(["Done."], [Sticky(knock)], observation={"clock": clock})
    with caplog.at_level(logging.WARNING, "turnwise"):
        running = asyncio.create_task(agent.run("Go."))
        for _ in range(20):
            await clock.advance(1)
        result = await asyncio.wait_for(running, HANG_S)
    assert result.text == "Done."
    assert caplog.messages == ["these toolsets did not close within 5 s and were left: Sticky"]
    stays.set()


@pytest.mark.parametrize("where", ["open", "tools"])
async def test_a_toolset_that_fails_is_named_without_its_words(where: str) -> None:
    """Proves: a CallerError with the cause behind it; the words of another's exception may hold a secret."""

    class Broken(Door):
        async def __aenter__(self) -> "Broken":
            if where == "open":
                raise ConnectionError("password=hunter2")
            await super().__aenter__()
            return self

        async def tools(self) -> Sequence[OneTool]:
            raise ConnectionError("password=hunter2")

    agent, _ = agent_of(["Never."], [Broken()])
    with pytest.raises(CallerError, match=r"`Broken` could not .*`ConnectionError`") as raised:
        await agent.run("Go.")
    assert "hunter2" not in str(raised.value) and isinstance(raised.value.__cause__, ConnectionError)


async def test_an_agent_whose_toolset_fails_is_not_entered() -> None:
    """Proves: `async with agent` raises, and the other toolsets are closed."""

    class Broken(Door):
        async def __aenter__(self) -> "Broken":
            raise ConnectionError

    door = Door(knock)
    agent, _ = agent_of(["Never."], [door, Broken()])
    with pytest.raises(CallerError, match="`Broken` could not be opened"):
        async with agent:
            raise AssertionError("entered")
    assert door.seen == ["open", "close"]


async def test_a_cancelled_run_closes_its_toolsets() -> None:
    """Proves: also one that is cancelled while a toolset opens."""

    class Opening(Door):
        begun = asyncio.Event()

        async def __aenter__(self) -> "Opening":
            self.begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.seen.append("given up")
            return self

    opening, door = Opening(), Door(knock)
    agent, _ = agent_of(["Never."], [door, opening])
    running = asyncio.create_task(agent.run("Go."))
    await asyncio.wait_for(opening.begun.wait(), HANG_S)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert (opening.seen, door.seen) == (["given up"], ["open", "close"])


@pytest.mark.parametrize(
    ("tools", "named"),
    [
        ([knock, Door(knock)], r"one of `tools` of the agent, one of toolset 1 \(`Door`\)"),
        ([Door(knock), MethodsOf(Door(), names=["tools"]), Door(knock)], r"toolset 1 \(`Door`\), one of toolset 3"),
    ],
)
async def test_a_name_twice_names_both_places(tools: list[Any], named: str) -> None:
    """Proves: over tools and toolsets; and the error says what to do."""
    agent, _ = agent_of(["Never."], tools)
    with pytest.raises(CallerError, match=f"two tools are called `knock`: .*{named}.*prefixed"):
        await agent.run("Go.")


async def test_sub_agents_open_their_toolsets() -> None:
    """Proves: a child's turn has the tools of its own toolset; the one that it shares with its parent is opened once."""
    door, bell = Door(knock), Door(ring)
    child, _ = agent_of([[call("ring")], "It rings."], [prefixed(door, "front_"), bell])
    agent, model = agent_of([[call("task", prompt="Ring.")], "It rang."], [door, Subagents({"helper": child})])
    result = await agent.run("Have it ring.")
    assert told(result)[0].startswith("It rings.")
    assert offered(model, 0) == ["task", "knock"]
    assert (door.seen, bell.seen) == (["open", "tools", "tools", "close"], ["open", "tools", "close"])


async def test_a_run_may_bring_toolsets_of_its_own() -> None:
    """Proves: `run(tools=...)` replaces the agent's, and opens what it brings."""
    own, brought = Door(knock), Door(ring)
    agent, model = agent_of(["Done."], [own])
    await agent.run("Go.", tools=[brought])
    assert (offered(model, 0), own.seen, brought.seen) == (["ring"], [], ["open", "tools", "close"])


async def test_rules_and_hooks_know_the_tools_of_toolsets() -> None:
    """Proves: a rule about a tool of a toolset is none about nothing, and a typing error in one is still found."""
    agent, _ = agent_of(["Done."], [Door(knock)], policy=Policy(rules=(PermissionRule(verdict="deny", tool="knock"),)))
    assert (await agent.run("Go.")).text == "Done."
    agent, _ = agent_of(["Done."], [Door(knock)], policy=Policy(rules=(PermissionRule(verdict="deny", tool="knok"),)))
    with pytest.raises(CallerError, match="knok"):
        await agent.run("Go.")


async def test_an_interrupt_while_toolsets_open_ends_the_run() -> None:
    """Proves: it is kept for the turn, which then makes no request."""
    agent, model = agent_of(["Never."], [])

    class Interrupting(Door):
        async def __aenter__(self) -> "Interrupting":
            run.interrupt()
            await super().__aenter__()
            return self

    run = agent.start("Go.", tools=[Interrupting(knock)])
    result = await run
    assert (result.stop_reason, model.asked) == ("cancelled", [])


class Shop:
    """What `MethodsOf` is tried with."""

    def __init__(self) -> None:
        self.sold: list[str] = []

    @property
    def secret(self) -> str:
        raise AssertionError("no property is read")

    def find(self, word: str) -> list[str]:
        """Find goods.

        Args:
            word: A part of the name.
        """
        return [name for name in ("pear", "apple") if word in name]

    async def sell(self, name: str, count: int = 1) -> str:
        """Sell some."""
        self.sold += [name] * count
        return f"{count} sold"

    @staticmethod
    def hours() -> str:
        """When it is open."""
        return "9-17"

    def close(self, when):  # type: ignore[no-untyped-def]
        """Not for a model."""

    def _audit(self, name: str) -> None: ...


async def test_the_public_methods_of_an_object_are_tools() -> None:
    """Proves: those with type hints, in the order of the class, with the object's state; no property is read."""
    shop = Shop()
    agent, model = agent_of([[call("find", word="ea"), call("sell", name="pear", count=2)], "Sold."], [MethodsOf(shop)])
    result = await agent.run("Sell two pears.")
    assert offered(model, 0) == ["find", "sell", "hours"]
    assert told(result) == ['["pear"]', "2 sold"]
    assert shop.sold == ["pear", "pear"]


async def test_names_and_a_filter_choose_among_methods() -> None:
    """Proves: `names` in their order, `keep` by name, one `effect` for all; a wrong name says the near one."""
    agent, model = agent_of(
        [[call("sell", name="pear")], "No."], [MethodsOf(Shop(), names=["sell", "find"], effect="write")]
    )
    await agent.run("Go.", safety={"allowed": ["none"]})
    assert offered(model, 0) == ["sell", "find"]
    assert "Denied" in str(model.asked[1].messages)
    made = await MethodsOf(Shop(), keep=lambda name: name != "sell").tools()
    assert [getattr(one, "name", "") for one in made] == ["find", "hours"]
    with pytest.raises(BadTool, match=r"`sel` is no public method of `Shop`. Did you mean `sell`\?"):
        MethodsOf(Shop(), names=["sel"])
    with pytest.raises(BadTool, match="`when` needs a type hint"):
        MethodsOf(Shop(), names=["close"])
    with pytest.raises(CallerError, match=r'must be a list.*\["sell"\]'):
        MethodsOf(Shop(), names="sell")
    with pytest.raises(CallerError, match=r"`MethodsOf\(object\)` has no tool"):
        MethodsOf(object())


async def test_wrappers_compose() -> None:
    """Proves: prefix, filter (names, globs, a function) over toolsets and plain lists; calls reach the function inside."""
    tools = prefixed(filtered(MethodsOf(Shop()), "find", "h*"), "shop_")
    plain = filtered([knock, ring], keep=lambda spec: "bell" in spec.description)
    agent, model = agent_of([[call("shop_find", word="app")], "Apples."], [tools, plain])
    result = await agent.run("Apples?")
    assert offered(model, 0) == ["shop_find", "shop_hours", "ring"]
    assert told(result) == ['["apple"]']


async def test_calls_of_an_approved_toolset_are_asked_about() -> None:
    """Proves: through the policy's approver, over a rule that allows them; those not named run unasked."""
    asked: list[str] = []

    def ask(asking: Asking) -> list[Approval]:
        asked.extend(one.call.name for one in asking.asks)
        return [Approval(call_id=one.call.id, verdict="deny", text="not today") for one in asking.asks]

    shop = Shop()
    agent, _ = agent_of(
        [[call("s_find", word="pear"), call("s_sell", name="pear")], "No."],
        [prefixed(approved(MethodsOf(shop), "sell"), "s_")],
        policy=Policy(attended=True, rules=(PermissionRule(verdict="allow", tool="*"),)),
        safety={"approver": ask},
    )
    result = await agent.run("Sell one.")
    assert (asked, shop.sold) == (["s_sell"], [])
    assert told(result)[0] == '["pear"]' and "not today" in told(result)[1]


async def test_an_approved_toolset_needs_a_policy() -> None:
    """Proves: nobody could be asked, so the run is refused before anything is sent, and the error says what to give."""
    agent, model = agent_of(["Never."], [approved([knock])])
    with pytest.raises(CallerError, match=r"`knock` are `approved.*Policy\(attended=True\)"):
        await agent.run("Go.")
    assert model.asked == []


@pytest.mark.parametrize("wrap", [approved, filtered])
async def test_a_name_that_a_toolset_does_not_offer_is_an_error(wrap: Callable[..., Toolset]) -> None:
    """Proves: a typing error does not leave a call unapproved, or a tool out; the near name is said."""
    agent, _ = agent_of(["Never."], [wrap([knock, ring], "rng")], policy=Policy(attended=True))
    with pytest.raises(CallerError, match=r"names `rng`, which is not among its tools. Did you mean `ring`\?"):
        await agent.run("Go.")


async def test_what_is_no_tool_is_refused_by_name() -> None:
    """Proves: agents and toolsets inside of a toolset, a prefix that makes no name, a filter of nothing."""

    class Odd:
        async def tools(self) -> Sequence[Any]:
            return [Subagents({"a": agent_of(["x"], [])[0]})]

    agent, _ = agent_of(["Never."], [Odd()])
    with pytest.raises(BadTool, match="not a `Subagents`: give that in `Agent"):
        await agent.run("Go.")
    with pytest.raises(BadTool, match="is no name for a tool"):
        prefixed([knock], "1 ")
    with pytest.raises(CallerError, match="`filtered` needs names"):
        filtered([knock])
    with pytest.raises(BadTool, match=r"`Door` is a class of toolsets: give one of them, `Door\(\.\.\.\)`"):
        agent_of(["Never."], [Door])
    with pytest.raises(CallerError, match="must be a list"):
        agent_of(["Never."], Door(knock))  # pyright: ignore[reportArgumentType]


async def test_tools_that_run_elsewhere_may_come_from_a_toolset() -> None:
    """Proves: a `ToolSpec` in a toolset is a client-side tool; its call ends the run as waiting, and a value goes on."""
    spec = ToolSpec(name="scan", description="Scan a page.", parameters='{"type": "object"}')
    agent, _ = agent_of([[call("scan")], "Scanned."], [filtered([spec, tool(knock)], "scan")])
    first = await agent.run("Scan.")
    assert first.stop_reason == "waiting"
    again = await agent.run(history=first.history, results={first.pending[0].id: "a page"})
    assert again.text == "Scanned."
