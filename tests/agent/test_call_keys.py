"""The key of a call, which a payment's service takes: stable where the call is the same, and only there."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flat_agents import flat_agent
from left_journals import copy_of_a_crash
from turnwise import BadTool, Journal, RunContext, Tool, UnknownOption, tool
from turnwise.running.run_context import context_of
from turnwise.testing import ScriptedModel, call


class Shop:
    """A service with idempotency keys, and a process that dies in the middle of the first payment."""

    def __init__(self, folder: Path) -> None:
        self.path, self.left = folder / "turns.db", folder / "left.db"
        self.paid: dict[str, int] = {}
        self.asked: Counter[str] = Counter()

    def agent(self, journal: Journal, said: list[Any], **options: Any) -> Any:
        def was_paid(context: RunContext[Any], cents: int) -> str | None:
            self.asked[context.call_key] += 1
            return f"paid {self.paid[context.call_key]}" if context.call_key in self.paid else None

        @tool(effect="write", reconcile=was_paid)
        def pay(context: RunContext[Any], cents: int) -> str:
            """Pay."""
            self.paid[context.call_key] = cents
            if not self.left.exists():
                copy_of_a_crash(self.path, self.left)
            return f"paid {cents}"

        return flat_agent(
            "openai_chat:m",
            base_url="http://x",
            transport=ScriptedModel(said),
            tools=[pay],
            journal=journal,
            **options,
        )


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("way", ["call", "program"])
async def test_a_call_has_the_same_key_after_a_crash_and_no_other_call_has_it(tmp_path: Path, way: str) -> None:
    """Proves: `reconcile` finds the payment of the dead process by its key, nothing is paid twice, and equal calls of one
    response and of later steps have keys of their own; in a program, too."""
    shop = Shop(tmp_path)
    twice = call("script", program="print(pay(cents=5))\nprint(pay(cents=5))")
    first = [call("pay", cents=5), call("pay", cents=5)] if way == "call" else twice
    with Journal(shop.path) as journal:
        result = await shop.agent(journal, [first, call("pay", cents=5), "Paid."], script=way == "program").run("Pay.")
    keys = dict(shop.paid)
    assert len(keys) == 3 and all(re.fullmatch("[0-9a-f]{40}", key) for key in keys)
    with Journal(shop.left) as journal:
        again = await shop.agent(journal, ["Paid."], script=way == "program").resume(result.session, take_over=True)
    assert again.text == "Paid."
    assert set(shop.asked) <= set(keys) and shop.asked, "the dead process's own keys were asked for"
    assert len(shop.paid) == 3, "every call of the turn that goes on has the key that it had"


async def test_a_call_of_a_sub_agent_has_a_key_and_what_is_no_call_has_none() -> None:
    """Proves: agents share no key, though their calls have the same ids; an instruction's context has an empty one."""
    keys: list[str] = []

    @tool
    def note(context: RunContext[Any]) -> str:
        """Note."""
        keys.append(context.call_key)
        return "noted"

    def instruct(context: RunContext[Any]) -> str:
        keys.append(context.call_key)
        return "Be brief."

    def agent_of(script: list[Any], **options: Any) -> Any:
        return flat_agent("openai_chat:m", base_url="http://x", transport=ScriptedModel(script), **options)

    below = agent_of([call("note", id="a"), "Noted."], tools=[note], description="Notes.")
    script = [[call("note", id="a"), call("task", id="b", agent="below", prompt="Note.")], "Noted."]
    await agent_of(script, tools=[note], agents={"below": below}, instructions=instruct).run("Note.")
    assert keys[0] == "" and len(set(keys)) == 3
    assert context_of(None).call_key == "" and RunContext(None, call_key="k").call_key == "k"


def test_the_old_name_of_reconcile_shows_the_new_line() -> None:
    """Proves: `probe=` is an error that says what to write; another unknown name is one, too."""
    old: Any = tool
    with pytest.raises(BadTool, match=r"`@tool\(probe=...\)` is now written `@tool\(reconcile=...\)`"):
        old(effect="write", probe=print)
    with pytest.raises(UnknownOption, match="`retries` is no option of `@tool`"):
        old(retries=3)
    made: Any = Tool
    with pytest.raises(TypeError, match="Did you mean `reconcile`"):
        made(offer=None, probe=print)


def test_reconcile_takes_the_parameters_of_its_tool() -> None:
    """Issue 44: other parameters were accepted until a crash, and then the outcome was unknown."""

    def pay(context: RunContext[Any], order: int, /, euros: int, note: str = "") -> str:
        """Pay."""
        return f"{order} {euros} {note}"

    def same(context: RunContext[Any], order: int, /, euros: int, note: str = "") -> None: ...
    def anything(*values: object, **named: object) -> None: ...
    def without_note(context: RunContext[Any], order: int, /, euros: int) -> None: ...
    def more(context: RunContext[Any], order: int, /, euros: int, note: str, key: str) -> None: ...
    def no_context(order: int, /, euros: int, note: str = "") -> None: ...
    def needs_note(context: RunContext[Any], order: int, /, euros: int, note: str) -> None: ...

    loose: Any = tool
    for right in (same, anything):
        assert loose(effect="write", reconcile=right)(pay).tool.reconcile is not None
    for wrong, named in (
        (without_note, "note"),
        (more, "key"),
        (no_context, r"\(a `RunContext`, order, euros, note\)"),
        (needs_note, "note"),
    ):
        with pytest.raises(BadTool, match=rf"tool `pay`: `reconcile` must have the parameters of the tool.*{named}"):
            loose(effect="write", reconcile=wrong)(pay)

    class Till:
        def was_paid(self, euros: int) -> None: ...

        @tool(effect="write", reconcile=was_paid)
        def pay(self, euros: int) -> None:
            """Pay."""

    assert Till().pay.tool.reconcile is not None
