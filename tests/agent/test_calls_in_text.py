"""Calls that a model writes into its text, from the bytes on: the lab says them as text, in families that parse otherwise."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import Agent, FrameSeen, ModelLimits, PermissionRule, Policy, RetryPolicy, RunFinished, RunResult, tool
from turnwise.agent.models import open_endpoint, read_model
from turnwise.errors import CallerError
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.rules.recovery import Recover
from turnwise.testing import ScriptedModel
from turnwise.testing.scripted_model import Line, Said
from turnwise.turn.config import Deadlines
from turnwise.vocab import (
    CallForming,
    Fault,
    FaultKind,
    FinishReason,
    Frame,
    Message,
    PartDone,
    Request,
    Response,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    calls_of,
    text_of,
)
from waits import HANG_S

HERMES = '<tool_call>\n{"name": "read", "arguments": {"path": "notes.txt"}}\n</tool_call>'
QWEN = "<tool_call>\n<function=read>\n<parameter=path>\nnotes.txt\n</parameter>\n</function>\n</tool_call>"
FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = each("family", FAMILIES)
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
    *steps: str | ScriptedStep,
    tools: Tools,
    family: str = "openai_chat",
    obeys: Literal["none", "never"] = "none",
    **options: Any,
) -> tuple[Agent, Lab]:
    """An agent whose model says these texts, one a step, and the lab that says them."""
    scripted = tuple([ScriptedStep(text=step) if isinstance(step, str) else step for step in steps])
    lab = Lab([Script(name="scripted", title="calls as text", steps=scripted, nudges=obeys == "none", obeys=obeys)])
    base = {"gemini": "/v1beta", "anthropic_messages": ""}.get(family, "/v1")
    made = flat_agent(
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
    steps = [ScriptedStep(text=f"The file says:\n{HERMES}")]
    if said == "in a result":
        steps.insert(0, ScriptedStep(text=HERMES.replace("notes.txt", "how.md")))
    made, _ = agent(*steps, tools=tools)
    result = await made.run(f"What does this do?\n{HERMES}" if said == "in the prompt" else "Go.")
    assert tools.ran == (["read how.md"] if said == "in a result" else [])
    assert result.text == f"The file says:\n{HERMES}" and result.complete


@each_way
async def test_a_call_in_the_text_of_a_response_with_its_own_call_does_not_run(stream: bool) -> None:
    """Proves: a server that parses also leaves text; what stands in the text is text then."""
    tools = Tools()
    step = ScriptedStep(
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
    made = flat_agent(
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


def scripted(*lines: Line, tools: Sequence[Any], **options: Any) -> tuple[Agent, ScriptedModel]:
    """An agent whose model says these responses."""
    model = ScriptedModel(lines)
    made = flat_agent(
        "openai_chat:scripted",
        base_url=model.endpoint.base_url,
        transport=model,
        tools=tools,
        retry=RetryPolicy(base_s=0.001),
        **options,
    )
    return made, model


def cut(text: str) -> Response:
    return Response(message=Message("assistant", (Text(text),)), finish=FinishReason.LENGTH)


def uncounted(text: str) -> Response:
    """Without a usage, so that the size of the prompt is estimated."""
    return Response(message=Message("assistant", (Text(text),)), finish=FinishReason.STOP)


BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)


STORY = "".join([f"This is sentence {number} of the long story. " for number in range(30)])


@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_call_in_a_continuation_is_disobedience(fails_first: bool) -> None:
    """Proves: never in a continuation, at a further attempt at it neither. The text stays as far as it had come."""
    tools = Tools()
    between = (BUSY,) if fails_first else ()
    made, model = scripted(cut(STORY), *between, HERMES, tools=tools.tools)
    result = await run_with(made, "Go.")
    assert (tools.ran, result.complete, result.text.strip()) == ([], False, STORY.strip())
    assert [one.what for one in result.repairs if one.kind == "continuation_refused"] == [
        "the reply called a tool in place of going on"
    ]
    assert len(model.asked) == 2 + fails_first


@pytest.mark.parametrize("fails_first", [False, True])
async def test_a_continuation_may_go_on_with_an_example_of_a_call(fails_first: bool) -> None:
    """Proves: what such a text quotes is its own: the fence that it stands in may have begun before the cut."""
    tools = Tools()
    whole = f"{STORY}It calls so:\n```\nThis is no part of it, only a line:\n{HERMES}\n```\nThat is how it calls."

    def go_on(request: Request) -> Said:
        (said,) = [text_of(one) for one in request.messages if one.role == "assistant"]
        return whole[len(said) :]

    between = (BUSY,) if fails_first else ()
    made, _ = scripted(cut(whole[: whole.index(" a line")]), *between, go_on, tools=tools.tools)
    result = await run_with(made, "Go.")
    assert (tools.ran, result.complete, result.text) == ([], True, whole)


@pytest.mark.parametrize("fails_first", [False, True])
@pytest.mark.parametrize("quotes", [False, True])
async def test_a_call_in_a_summary_is_disobedience_and_a_quoted_one_is_part_of_it(
    fails_first: bool, quotes: bool
) -> None:
    """Proves: never in a summary, at a further attempt at it neither; a summary that tells of a call keeps its words."""
    tools = Tools(says="A line of no importance.\n" * 300)
    failed: list[bool] = []

    def say(request: Request) -> Said:
        if request.tool_choice != "none":
            done = len(tools.ran)
            thought = "".join([f"I think {number} things about it. " for number in range(60)])
            return uncounted(f"{thought}\n{HERMES.replace('notes', f'notes-{done}')}" if done < 12 else "Done.")
        if "Write a summary" not in last_words(request):
            return uncounted("That is as far as I came.")
        if fails_first and not failed:
            failed.append(True)
            return BUSY
        return uncounted(f"It has read much. It said:\n{HERMES}\nThen it went on." if quotes else HERMES)

    small = ModelLimits(context_window_tokens=8_000, max_output_tokens=1_000)
    made, model = scripted(*[say] * 40, tools=tools.tools, model_limits=small, deadlines=Deadlines(), max_steps=30)
    result = await run_with(made, "Go.")
    assert "read notes.txt" not in tools.ran and result.requests_by_purpose["compact"] >= 1
    told = ["".join([text_of(one) for one in request.messages]) for request in model.asked]
    assert any(HERMES in one for one in told) is quotes
    assert result.text == ("Done." if quotes else "That is as far as I came.")


def last_words(request: Request) -> str:
    return text_of(request.messages[-1])


async def run_with(made: Agent, prompt: str) -> RunResult:
    return await asyncio.wait_for(made.run(prompt), HANG_S)


async def test_reasoning_at_the_beginning_of_the_text_is_reasoning_without_tools_and_with_a_schema() -> None:
    """Proves: no tool is on offer, so no call is read; the answer is without what the model thought, and is the output."""
    thought = "<think>\nIt is four.\n</think>\n\n"
    made, _ = scripted(f"{thought}Four.", tools=[])
    assert (await run_with(made, "2 + 2?")).text == "Four."
    made, _ = scripted(f'{thought}{{"sum": 4}}', tools=[], output_type={"type": "object"})
    assert (await run_with(made, "2 + 2?")).output == {"sum": 4}
    made, _ = scripted(f"{thought}Four.", tools=[], calls_in_text="off")
    assert (await run_with(made, "2 + 2?")).text == f"{thought}Four."


@each(
    ("profile", "base_url", "reads"),
    [
        ("openai-chat", None, False),
        ("openai-chat", "https://eu.api.openai.com/v1", False),
        ("openai-chat", "http://127.0.0.1:8000/v1", True),
        ("mistral", "https://codestral.mistral.ai/v1", False),
        ("azure", "https://mine.openai.azure.com/openai/v1", False),
        ("deepseek", "https://llm.example.org/v1", True),
        ("openai", "http://127.0.0.1:8000/v1", False),
        ("openai_chat", "http://127.0.0.1:8000/v1", True),
        ("openai_chat", "http://localhost:11434/v1", True),
        ("openai_chat", "https://api.openai.com/v1", False),
        ("openai_chat", "https://API.openai.com/v1/", False),
        ("openai_chat", "https://eu.api.openai.com/v1", False),
        ("openai_chat", "https://mine.openai.azure.com/openai/v1", False),
        ("openai_chat", "https://vm.westeurope.cloudapp.azure.com/v1", True),
        ("openai_chat", "https://generativelanguage.googleapis.com/v1beta/openai", False),
        ("openai_chat", "https://api.openai.com.example.org/v1", True),
        ("openai_chat", "https://notapi.openai.com.example.org/v1", True),
        ("openai-chat", "https://api.together.xyz/v1", False),
        ("ollama", None, True),
        ("ollama-cloud", None, False),
        ("anthropic", "http://127.0.0.1:8000", False),
    ],
)
def test_auto_reads_calls_at_self_hosted_and_unknown_chat_endpoints(
    profile: str, base_url: str | None, reads: bool
) -> None:
    """Proves: a vendor's profile says how its own API behaves, under whichever name the address is asked for, and nothing of
    another server at another address."""
    endpoint = open_endpoint(read_model(f"{profile}:m"), base_url=base_url, api_key="none")
    assert endpoint.leaves_calls_in_text is reads


def test_a_wrong_value_of_the_option_is_an_error_at_once() -> None:
    """Proves: the one sentence names the values."""
    with pytest.raises(CallerError, match=r"`calls_in_text`.*auto.*on.*off"):
        flat_agent("ollama:m", calls_in_text="yes")  # pyright: ignore[reportArgumentType]


@each_way
async def test_a_block_that_was_summarised_away_is_still_quoted(stream: bool) -> None:
    """Proves: the model has read it, and may say it again, when the request does not hold it any more."""
    tools = Tools()
    summary = "Summary: a file with an example was read. " + "It was long. " * 20
    made, _ = scripted(
        summary,
        f"It says: {HERMES}",
        tools=tools.tools,
        stream=stream,
        model_limits=ModelLimits(context_window_tokens=6000, max_output_tokens=1000),
    )
    file = ToolResult(call_id="1", name="read", content=(Text(f"Write so:\n{HERMES}"),))
    history = [
        Message("user", (Text("Read it."),)),
        Message("assistant", (ToolCall(id="1", name="read", arguments="{}"),)),
    ]
    history += [Message("tool", (file,)), Message("assistant", (Text("I see."),))]
    for number in range(14):
        history.append(Message("user", (Text(f"{number} " + "lorem ipsum " * 60),)))
        history.append(Message("assistant", (Text("sit amet " * 60),)))
    result = await asyncio.wait_for(made.run("What did the file say?", history=history), HANG_S)
    assert "compact" in result.requests_by_purpose
    assert not any(file in message.parts for message in result.history)
    assert (result.text, tools.ran) == (f"It says: {HERMES}", [])
