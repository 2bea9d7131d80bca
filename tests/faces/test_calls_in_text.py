"""Calls that a model writes into its text, from the bytes on: the lab says them as text, in families that parse otherwise."""

from collections.abc import Sequence
from typing import Any, Literal

import pytest

from turnwise import Agent, FrameSeen, PermissionRule, Policy, RunFinished, RunResult, tool
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, Step
from turnwise.testing import ScriptedModel
from turnwise.turn.config import Recover
from turnwise.vocab import (
    CallForming,
    FinishReason,
    Frame,
    Message,
    PartDone,
    Response,
    Text,
    TextDelta,
    ToolCallDelta,
    ToolResult,
    calls_of,
    text_of,
)

HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}\n</tool_call>'
QWEN = "<tool_call>\n<function=read>\n<parameter=path>\nnotes.txt\n</parameter>\n</function>\n</tool_call>"
FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = pytest.mark.parametrize("family", FAMILIES)
each_way = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


class Tools:
    """What was run."""

    def __init__(self, says: str = "status: draft") -> None:
        self.ran: list[str] = []
        self.says = says

    @property
    def tools(self) -> Sequence[Any]:
        @tool(effect="read")
        def read(path: str) -> str:
            """Read a file."""
            self.ran.append(f"read {path}")
            return self.says

        @tool(effect="write")
        def write(path: str, content: str) -> str:
            """Write a file."""
            self.ran.append(f"write {path} {content}")
            return "written"

        return [read, write]


def agent(
    *steps: str | Step,
    tools: Tools,
    family: str = "openai_chat",
    obeys: Literal["none", "never"] = "none",
    **options: Any,
) -> tuple[Agent, Lab]:
    """An agent whose model says these texts, one a step, and the lab that says them."""
    scripted = tuple([Step(text=step) if isinstance(step, str) else step for step in steps])
    lab = Lab([Script(name="scripted", title="calls as text", steps=scripted, nudges=obeys == "none", obeys=obeys)])
    base = {"gemini": "/v1beta", "anthropic_messages": ""}.get(family, "/v1")
    made = Agent(
        f"{family}:scripted", base_url=f"http://lab{base}", transport=lab.transport(), tools=tools.tools, **options
    )
    return made, lab


async def watched(made: Agent, prompt: str = "What does it say?") -> tuple[RunResult, list[Frame]]:
    frames: list[Frame] = []
    result: RunResult | None = None
    async for seen in made.stream(prompt):
        if isinstance(seen, FrameSeen):
            frames.append(seen.frame)
        elif isinstance(seen, RunFinished):
            result = seen.result
    assert result is not None
    return result, frames


def results_of(result: RunResult) -> list[str]:
    return [
        "".join([one.text for one in part.content if isinstance(one, Text)])
        for message in result.history
        for part in message.parts
        if isinstance(part, ToolResult)
    ]


def kinds(result: RunResult) -> list[str]:
    return [one.kind for one in result.repairs]


@each_family
@each_way
async def test_a_call_in_the_text_runs_and_is_a_call_in_the_history(family: str, stream: bool) -> None:
    """Done when 1: it takes the way of every call. Text stays text, markup is gone, the repair names the syntax."""
    tools = Tools()
    made, lab = agent(
        f"I look.\n{HERMES}", "It is a draft.", tools=tools, family=family, stream=stream, calls_in_text="on"
    )
    result = await made.run("What does it say?")
    assert (tools.ran, result.text, result.complete, lab.count()) == (
        ["read notes.txt"],
        "It is a draft.",
        True,
        2,
    )
    said = result.history[1]
    assert text_of(said).strip() == "I look."
    assert [(one.name, one.arguments) for one in calls_of(said)] == [("read", '{"path": "notes.txt"}')]
    told = [one for one in result.repairs if one.kind == "call_in_text"]
    assert [one.what for one in told] == ["read from the text, written as hermes"]


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses"])
async def test_watchers_see_that_a_call_is_being_written_and_never_its_markup(family: str) -> None:
    """Done when 1: nothing is shown that is taken back; the size is told while the block is held."""
    made, _ = agent(f"I look. {QWEN}", "Done.", tools=Tools(), family=family, calls_in_text="on")
    result, frames = await watched(made)
    shown = "".join([frame.text for frame in frames if isinstance(frame, TextDelta)])
    assert shown == "I look. Done." and result.complete
    held = [frame.characters for frame in frames if isinstance(frame, CallForming)]
    assert held and held == sorted(held) and held[-1] <= len(QWEN)
    calls = [frame for frame in frames if isinstance(frame, ToolCallDelta)]
    assert [(frame.name, frame.arguments) for frame in calls] == [("read", '{"path":"notes.txt"}')]
    finals = [frame.part.text for frame in frames if isinstance(frame, PartDone) and isinstance(frame.part, Text)]
    assert all("<" not in text for text in finals)


async def test_a_permission_rule_denies_a_call_in_the_text() -> None:
    """Proves: schema, hooks, rules and asks see it as any other call."""
    tools = Tools()
    policy = Policy(rules=(PermissionRule(verdict="deny", tool="read"),))
    made, _ = agent(HERMES, "Denied.", tools=tools, policy=policy)
    result = await made.run("Go.")
    assert tools.ran == [] and "denied" in results_of(result)[0].lower()


async def test_a_call_in_the_text_that_does_not_fit_its_tool_is_answered_with_what_is_wrong() -> None:
    """Proves: the schema judges it; the model is told all errors."""
    tools = Tools()
    made, _ = agent(HERMES.replace('"path"', '"file"'), "Sorry.", tools=tools)
    result = await made.run("Go.")
    assert tools.ran == [] and "do not fit the parameters of `read`" in results_of(result)[0]


async def test_an_endpoint_whose_vendor_parses_calls_leaves_text_alone_under_auto() -> None:
    """Proves: `auto` is off there, and `off` is off everywhere."""
    cases: list[dict[str, Any]] = [{"family": "openai_responses"}, {"calls_in_text": "off"}]
    for options in cases:
        tools = Tools()
        made, lab = agent(HERMES, tools=tools, **options)
        result = await made.run("Go.")
        assert (tools.ran, result.text, lab.count()) == ([], HERMES, 1)


@pytest.mark.parametrize("said", ["in the prompt", "in a result"])
async def test_a_block_that_was_said_to_the_model_before_never_runs(said: str) -> None:
    """Done when 1: quoted from a user's message, or from a file that a tool has read, it is text."""
    tools = Tools(says=f"# How to\n{HERMES}\n" if said == "in a result" else "status: draft")
    steps = [Step(text=f"The file says:\n{HERMES}")]
    if said == "in a result":
        steps.insert(0, Step(text=HERMES.replace("notes.txt", "how.md")))
    made, _ = agent(*steps, tools=tools)
    result = await made.run(f"What does this do?\n{HERMES}" if said == "in the prompt" else "Go.")
    assert tools.ran == (["read how.md"] if said == "in a result" else [])
    assert result.text == f"The file says:\n{HERMES}" and result.complete


@each_way
async def test_a_call_in_the_text_of_a_response_with_its_own_call_does_not_run(stream: bool) -> None:
    """Proves: a server that parses also leaves text; what stands in the text is text then."""
    tools = Tools()
    step = Step(
        text=HERMES.replace("notes.txt", "other.txt"),
        calls=(ScriptedCall(name="read", arguments={"path": "notes.txt"}),),
    )
    made, _ = agent(step, "Done.", tools=tools, stream=stream)
    result = await made.run("Go.")
    assert tools.ran == ["read notes.txt"] and "<tool_call>" in text_of(result.history[1])


async def test_a_call_in_the_text_that_is_written_wrongly_is_told_and_never_runs() -> None:
    """Proves: only what is strictly complete runs; the model hears that the call did not arrive, and calls again."""
    tools = Tools()
    broken = HERMES.replace('"}}', '"}')
    made, _ = agent(broken, HERMES, "Done.", tools=tools)
    result = await made.run("Go.")
    assert tools.ran == ["read notes.txt"]
    assert results_of(result)[0].startswith("Not run: this call of `read` was written into the text")


async def test_a_call_in_the_forced_answer_is_disobedience() -> None:
    """Proves: no tool runs in the last step; the text without the markup is the answer."""
    tools = Tools()
    made, _ = agent(HERMES, f"A draft. {HERMES.replace('notes', 'more')}", tools=tools, max_steps=2)
    result = await made.run("Go.")
    assert tools.ran == ["read notes.txt"] and result.text.strip() == "A draft."
    assert not result.complete


async def test_no_call_is_read_where_an_output_schema_was_asked_for() -> None:
    """Proves: the answer is JSON by design there."""
    tools = Tools()
    text = '{"name": "read", "arguments": {"path": "notes.txt"}}'
    made, _ = agent(text, tools=tools, calls_in_text="on", output_type={"type": "object"})
    result = await made.run("Go.")
    assert tools.ran == [] and result.output == {"name": "read", "arguments": {"path": "notes.txt"}}


async def test_a_call_in_reasoning_is_told_and_not_made() -> None:
    """Proves: QwenLM/qwen-code#6548: the model ends with a call in its reasoning; it is asked to call outside of it."""
    tools = Tools()
    made, lab = agent(f"<think>\nI call it.\n{HERMES}\n</think>\n", HERMES, "Done.", tools=tools)
    result = await made.run("Go.")
    assert "call_not_made" in kinds(result) and tools.ran[0] == "read notes.txt"
    assert "wrote a tool call into its reasoning" in lab.requests[1].body.decode()


@pytest.mark.parametrize("recover", ["continue", "split"])
async def test_a_call_in_the_text_that_the_limit_cut_goes_the_way_of_any_cut_call(recover: Recover) -> None:
    """Proves: cut:continued and cut:split hold for it: it is joined and run once, or the model is told what was cut."""
    tools = Tools()
    cut = '<tool_call>\n{"name": "write", "arguments": {"path": "a.txt", "content": "one two three four five six seven'
    said = Response(message=Message("assistant", (Text(cut),)), finish=FinishReason.LENGTH)
    goes_on = 'hree four five six seven eight nine"}' if recover == "continue" else "Done."
    model = ScriptedModel([said, goes_on, "Done."])
    made = Agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=tools.tools,
        recover=recover,
    )
    result = await made.run("Go.")
    if recover == "continue":
        assert tools.ran == ["write a.txt one two three four five six seven eight nine"]
        assert "continued_call" in kinds(result)
    else:
        assert tools.ran == [] and "were cut off" in results_of(result)[0]


async def test_a_call_in_the_text_where_tools_are_left_out_is_disobedience_too() -> None:
    """Proves: an endpoint that forbids tools by leaving them out still knows what the model called."""
    tools = Tools()
    made, lab = agent(HERMES, HERMES.replace("notes", "more"), "A draft.", tools=tools, max_steps=2, obeys="never")
    result = await made.run("Go.")
    assert tools.ran == ["read notes.txt"] and result.text == "A draft." and lab.count() == 3
