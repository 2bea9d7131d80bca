"""The bytes of request n+1 begin with those of request n, over whole turns, at endpoints that differ in what matters here.

The bodies are those that the driver handed to its transport. Which of them begin otherwise is judged by the bytes alone, and
has to be what the turn says of itself (issue 3, done-when 7).
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from families import of_family
from flat_agents import flat_agent
from thoroughness import spread
from turn.wire_prefix import Wire, changes_between, check_prefixes, read_wire
from turnwise.agent.tools import read_tools
from turnwise.rules.prompt_room import ModelLimits
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans, StepPreparer
from turnwise.running.tools import Tool
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL, Line
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.events import StepPrepared, TurnStarted
from turnwise.vocab import (
    ArgumentsState,
    File,
    FinishReason,
    Message,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Request,
    Response,
    StopReason,
    Text,
    ToolCall,
)
from turnwise.wire.profiles import MARK_WAYS, Profile, builtin_profiles

ROWS = builtin_profiles()
# What differs from the family's own row, and may differ in the bytes.
ENDPOINTS: dict[str, Profile] = {
    **{name: ROWS[name] for name in ("openai_chat", "openai_responses", "anthropic_messages", "gemini")},
    "ids, and files as documents": ROWS["mistral"],
    "reasoning goes back in details": ROWS["openrouter"],
    "reasoning goes back as text, output in words": ROWS["deepseek"],
    "developer messages": ROWS["openai-chat"],
    "eager tool input": ROWS["anthropic"],
    "model in the path": ROWS["vertex-anthropic"],
    "no call ids": ROWS["vertex-gemini"],
    "no choice none": msgspec.structs.replace(ROWS["openai_chat"], tool_choice_none="drop_tools"),
    "prefill": msgspec.structs.replace(ROWS["openai_chat"], accepts_prefill=True),
    "no form of output": msgspec.structs.replace(ROWS["openai_responses"], output="none"),
}
# Where the provider's cache is asked for: its marks are no part of the prefix.
MARKED: dict[str, Profile] = {
    "marks and a field at the top": ROWS["anthropic"],
    "marks on blocks": ROWS["vertex-anthropic"],
    "marks on parts": msgspec.structs.replace(ROWS["openrouter"], cache_models=()),
    "marks on messages": msgspec.structs.replace(ROWS["litellm"], cache_models=()),
    "a key": ROWS["openai-chat"],
    "a key in Responses": ROWS["openai"],
}
ENDPOINTS |= MARKED
TRIED = spread(ENDPOINTS, one_of=3, name="endpoints")
each_endpoint = pytest.mark.parametrize("row", [ENDPOINTS[name] for name in TRIED], ids=TRIED)
STEPS = 50
ASK = Message("user", (Text("Look into it."),))
SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'
BREAKPOINT = Opaque("anthropic_messages", '{"cache_control":{"type":"ephemeral"}}')


def read(path: str) -> str:
    """Read a file."""
    return f"{path}\n" + "A line of it.\n" * 20


def fetch(kind: int) -> object:
    """Results of every kind, by number."""
    if kind % 6 == 5:
        raise ValueError("no such thing")
    answers: list[object] = [
        "",
        {"n": kind, "deep": {"ä": [1.5, None]}},
        ["one", "two"],
        "line\n\n\ttab \u2028 \\ end ",
    ]
    answers.append([Text("A picture."), File(media_type="image/png", data=b"\x89PNG" + bytes([kind]))])
    return answers[kind % 6]


def tools_of_turn() -> Sequence[Tool]:
    return read_tools([read, fetch])


def config_of(row: Profile, **more: Any) -> TurnConfig:
    config = TurnConfig(
        session_id="s",
        turn_id="t",
        model="m",
        system=(Text("Be kind."), Text("Be brief.", opaque=BREAKPOINT)),
        tools=tuple([tool.offer for tool in tools_of_turn()]),
        **of_family(row.family),
        profile=row.name,
        accepts_prefill=row.accepts_prefill,
        default_max_tokens=row.sent_max_tokens,
        tool_choice_none=row.tool_choice_none,
        max_steps=STEPS,
        cache="auto" if row in MARKED.values() else "off",
        marks_cache=asks_with_marks(row),
    )
    return msgspec.structs.replace(config, **more)


def asks_with_marks(row: Profile) -> bool:
    """What is kept of its messages rests on tool choice, too (Anthropic docs, "What invalidates the cache")."""
    return row in MARKED.values() and row.cache in MARK_WAYS


def wires_of(model: ScriptedModel) -> list[Wire]:
    family = model.endpoint.profile.family
    return [read_wire(family, path=http.url.removeprefix(BASE_URL), body=http.body) for http in model.requests]


async def turn(
    lines: Sequence[Line], *, row: Profile, prepare: StepPreparer | None = None, **more: Any
) -> tuple[list[Wire], TurnResult]:
    """One turn, every request of it judged."""
    model = ScriptedModel(lines, family=row)
    runner = Runner(RunnerMeans(endpoint=model.endpoint, transport=model, tools=tools_of_turn(), prepare_step=prepare))
    config = config_of(row, prepares_steps=prepare is not None, **more)
    result = await runner.run(TurnStarted(config=config, input=(ASK,)))
    wires = wires_of(model)
    check_prefixes(wires, named=result.prefix_changes)
    return wires, result


def working(number: int) -> list[Part]:
    """Reasoning, a text, and calls that differ from step to step; now and then one that cannot run."""
    calls = [call("read", path=f"part-{number}"), call("fetch", kind=number), call("fetch", kind=number + 1000)]
    if number % 7 == 3:
        calls.append(call("gone", x=number))
    if number % 7 == 5:
        calls.append(call("read", wrong=number))
    return [Reasoning(f"Step {number}: hm."), Text(f"Looking at {number}."), *calls[: 1 + number % 4]]


@pytest.mark.costly
@pytest.mark.promise("step:prefix-stable", "end:forced-answer")
@pytest.mark.parametrize("stream", [True, False])
@each_endpoint
async def test_fifty_steps_never_break_the_prefix_the_last_one_included(row: Profile, stream: bool) -> None:
    """Parallel calls, reasoning, results of every kind; only an endpoint without tool choice none loses its tools at last."""
    wires, result = await turn([*[working(number) for number in range(1, STEPS)], "Done."], row=row, stream=stream)
    assert (result.steps, len(wires), result.text) == (STEPS, STEPS, "Done.")
    drops = row.tool_choice_none == "drop_tools"
    broken = "tools" if drops else "tool choice"
    assert result.prefix_changes == ((f"request {STEPS}: {broken}",) if drops or asks_with_marks(row) else ())


@pytest.mark.promise("step:prefix-stable", "cut:budget")
@each_endpoint
async def test_a_compaction_breaks_the_prefix_once_and_says_so(row: Profile) -> None:
    """The request for the summary begins as the one before it; the one after it is the one exception."""
    steps = iter(range(1, STEPS))

    def next_line(request: Request) -> Response:
        forced = not request.tools or request.tool_choice == "none"
        said: list[Part] = [Text("Read so far: parts.")] if forced else [call("read", path=f"part-{next(steps)}")]
        finish = FinishReason.STOP if forced else FinishReason.TOOL_CALLS
        named = [
            msgspec.structs.replace(p, id=f"c{p.arguments[-5:-2]}") if isinstance(p, ToolCall) else p for p in said
        ]
        return Response(message=Message("assistant", tuple(named)), finish=finish)

    limits = ModelLimits(context_window_tokens=6_000, max_output_tokens=1_000)
    lines: list[Line] = [next_line] * (2 * STEPS)
    wires, result = await turn(lines, row=row, room="compact", model_limits=limits)
    asked = [number for number, wire in enumerate(wires, start=1) if b"Write a summary" in wire.body]
    assert (result.stop_reason, result.steps) == (StopReason.STEP_LIMIT, STEPS)
    assert asked
    named = [f"request {number + 1}: compaction" for number in asked]
    if asks_with_marks(row):
        choices = [change for change in result.prefix_changes if change.endswith("tool choice")]
        assert [change for change in result.prefix_changes if change not in choices] == named
    elif row.tool_choice_none == "send":
        assert list(result.prefix_changes) == named
    else:  # the summary's request forbids tools, too, and the next one has them again
        assert set(named) <= set(result.prefix_changes)
        assert len(result.prefix_changes) == len(asked) * 3 + 1


def cut(*parts: Part, finish: FinishReason = FinishReason.LENGTH) -> Response:
    return Response(message=Message("assistant", parts), finish=finish)


BEGUN = '{"path":"The quick brown fox jumps over the lazy dog, again and again, until nobody'
CUT_CALL = cut(ToolCall(id="cut", name="read", arguments=BEGUN, state=ArgumentsState.TRUNCATED))
STORY = "The quick brown fox jumps over the lazy dog, again and again, until nobody counts"
CUT_TEXT = cut(Text(STORY))
EMPTY = Response(message=Message("assistant", ()), finish=FinishReason.STOP)
EATEN = cut(Reasoning("hm " * 50))


def recovered(request: Request) -> Response:
    """The rest of whatever stands at the end; else an answer in the wanted form."""
    *before, last = request.messages
    texts = "".join([part.text for part in before[-1].parts if isinstance(part, Text)]) if before else ""
    if last.role == "assistant" or texts.startswith(("{", "The quick")):
        return Response(message=Message("assistant", (Text(' counts any more"}'),)), finish=FinishReason.STOP)
    return Response(message=Message("assistant", (Text('{"n":1}'),)), finish=FinishReason.STOP)


@pytest.mark.promise("step:prefix-stable", "cut:continued")
@pytest.mark.parametrize("recover", ["continue", "split"])
@each_endpoint
async def test_recovery_requests_break_nothing_unnamed(row: Profile, recover: str) -> None:
    """Cut calls and texts gone on with or split, reasoning that ate all, an empty answer, one that has to be corrected."""
    starts: list[list[Line]] = [[CUT_CALL], [CUT_TEXT], [EATEN], [EMPTY], ["no JSON"], [working(1), CUT_CALL, EMPTY]]
    limits = ModelLimits(context_window_tokens=100_000, max_output_tokens=4_000)
    named: set[str] = set()
    for output in (None, OutputSchema(schema=SCHEMA)):
        for start in starts:
            lines: list[Line] = [*start, *([recovered] * 12)]
            more = {"recover": recover, "output": output, "room": "budget", "model_limits": limits}
            wires, result = await turn(lines, row=row, **more)
            assert result.text.strip()
            assert len(wires) >= len(start)
            named.update([change.split(": ")[1] for change in result.prefix_changes])
    assert "last message" in named
    assert named <= {"last message", "output", "tools", *(["tool choice", "thinking"] if asks_with_marks(row) else [])}


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_pause_breaks_the_prefix_only_where_nothing_goes_on_with_it(stream: bool) -> None:
    """Anthropic's paused content goes back as it came; settled after it was sent, its server-side work is lost and named."""
    search = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}'
    item = ProviderItem("anthropic_messages", "server_tool_use", search)
    row = ENDPOINTS["anthropic_messages"]
    paused = cut(Text("First, "), item, finish=FinishReason.PAUSE)
    ends_blank = cut(Text("First, \n"), finish=FinishReason.PAUSE)
    for before in (paused, ends_blank):
        _, result = await turn([working(1), before, "second."], row=row, stream=stream)
        assert (result.text.split(), result.prefix_changes) == (["First,", "second."], ())
    unsaid = cut(item, finish=FinishReason.PAUSE)
    _, result = await turn([working(1), unsaid, EMPTY, "So."], row=row, stream=stream)
    assert result.prefix_changes == ("request 4: paused content",)


@pytest.mark.promise("step:prefix-stable")
@each_endpoint
async def test_what_a_prepared_step_changes_is_named_and_nothing_else(row: Profile) -> None:
    """Other tools, model, output and a word at the end, each for one step; choice and settings break nothing."""
    tools, model, output, word, rest = (
        StepPrepared(tools=("read",)),
        StepPrepared(model="m2"),
        StepPrepared(output=OutputSchema(schema=SCHEMA)),
        StepPrepared(instruction="Look closely."),
        StepPrepared(tool_choice="required", parallel_tool_calls=False),
    )
    chosen = {2: tools, 4: model, 6: output, 8: word, 10: rest}
    lines: list[Line] = [*[working(number) for number in range(1, 12)], "Done."]
    _, result = await turn(lines, row=row, prepare=lambda view: chosen.get(view.step))
    assert result.prefix_changes == (
        *("request 2: tools", "request 3: tools", "request 4: model", "request 5: model"),
        *("request 6: output", "request 7: output", "request 9: last message"),
        *(("request 10: tool choice", "request 11: tool choice") if asks_with_marks(row) else ()),
    )


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
async def test_the_next_turn_begins_with_the_bytes_of_the_last_request(family: str) -> None:
    """And so does one that resumes with its user's next words after twenty steps."""
    lines: list[Line] = [*[working(number) for number in range(1, 21)], "Done.", working(22), "And done."]
    model = ScriptedModel(lines, family=family)
    agent = flat_agent(
        f"{family}:m", tools=[read, fetch], max_steps=30, base_url=BASE_URL, transport=model, api_key="k"
    )
    first = await agent.run("Look into it.")
    count = len(model.requests)
    second = await agent.run("Once more.", history=first.history)
    wires = wires_of(model)
    assert (count, len(wires), second.text) == (21, 23, "And done.")
    check_prefixes(wires[:count], named=first.prefix_changes)
    assert changes_between(wires[count - 1], after=wires[count]) == frozenset()
    assert (first.prefix_changes, second.prefix_changes) == ((), ())


async def test_a_users_cache_breakpoints_stay_where_they_are() -> None:
    """Proves: blocks marked by the user, and Anthropic's mark for the whole request, change no byte before the messages."""
    row = ENDPOINTS["anthropic_messages"]
    extra = '{"cache_control":{"type":"ephemeral"}}'
    wires, result = await turn([working(1), working(2), "Done."], row=row, extra=extra)
    assert result.prefix_changes == ()
    assert all(b'"messages":' in wire.sent.rpartition(b',"cache_control":{"type":"ephemeral"}')[0] for wire in wires)
    assert all(wire.sent.count(b'"text":"Be brief.","cache_control":{"type":"ephemeral"}') == 1 for wire in wires)
    assert all(wire.sent.count(b"cache_control") == 2 for wire in wires)


def _first_difference(judge: Callable[[], object]) -> bool:
    try:
        judge()
    except AssertionError:
        return True
    return False


async def test_the_judge_sees_a_byte_and_a_name_too_many() -> None:
    """Proves: the judge of this file can fail: on a changed byte of history that nobody names, and on a name without one."""
    wires, _ = await turn([working(1), working(2), "Done."], row=ENDPOINTS["gemini"])
    body = wires[1].body.replace(b"Look into it.", b"Look into It.")
    changed = read_wire("gemini", path=wires[1].path, body=body)
    assert _first_difference(lambda: check_prefixes([wires[0], changed], named=()))
    assert _first_difference(lambda: check_prefixes(wires[:2], named=("request 2: tools",)))
    assert _first_difference(lambda: check_prefixes(wires[:2], named=("request 2: last message",)))
    assert not _first_difference(lambda: check_prefixes([wires[0], changed], named=("request 2: compaction",)))
