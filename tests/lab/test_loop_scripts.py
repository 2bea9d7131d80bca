"""Scripts of models that go in circles, and of those that only seem to: the lab says them, the loop guard judges them."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lab.asking import PATHS, ask, body_of
from lab.cut_cells import RAW, WAYS, ask_writer, calls_made
from tables import each
from turnwise.lab import Script, builtin_scripts
from turnwise.lab.script import Writer
from turnwise.lab.writer import as_lines, file_text
from turnwise.rules.loops import BROKEN_STEPS, REMEMBERED_STEPS, RUNS, Loop, LoopGuard
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import ArgumentsState, StopReason, Text, ToolCall, ToolResult

SCRIPTS = builtin_scripts()
CHECKS = 30


class Heard(NamedTuple):
    ran: int
    requests: int
    text: str
    ends: Loop | None


def converse(script: Script) -> Heard:
    """A chat turn as the guard has it, forced to its answer where the guard says so."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Please."}]
    guard, ran, ends = LoopGuard(), 0, None
    contents: dict[str, str] = {}
    for requests in range(1, 60):
        body = {**body_of("openai_chat", model=script.name, stream=False), "messages": messages}
        body["tools"].append({"type": "function", "function": {"name": "status", "parameters": {"type": "object"}}})
        outgoing, _ = ask(
            PATHS["openai_chat"], {**body, **({"tool_choice": "none"} if ends else {})}, scripts={script.name: script}
        )
        message = json.loads(b"".join(outgoing.pieces))["choices"][0]["message"]
        if not message.get("tool_calls"):
            return Heard(ran, requests, message["content"], ends)
        calls = [read_call(one) for one in message["tool_calls"]]
        verdict = guard.before(calls)
        results: list[ToolResult] = []
        for call in calls:
            if call.state is ArgumentsState.COMPLETE and call.id not in verdict.remembered:
                ran += 1
            contents[call.id] = contents.get(verdict.remembered.get(call.id, ""), "") or run_tool(call, ran=ran)
            results.append(ToolResult(call_id=call.id, name=call.name, content=(Text(contents[call.id]),)))
        guard, _ = guard.after(verdict, results=results)
        ends = verdict.ends
        for one in message["tool_calls"]:
            one["function"]["arguments"] = "{}"
        messages += [
            message,
            *[{"role": "tool", "tool_call_id": call.id, "content": contents[call.id]} for call in calls],
        ]
    raise AssertionError("it never ended")


def read_call(raw: dict[str, Any]) -> ToolCall:
    function = raw["function"]
    try:
        json.loads(function["arguments"])
        state = ArgumentsState.COMPLETE
    except json.JSONDecodeError:
        state = ArgumentsState.TRUNCATED
    return ToolCall(id=raw["id"], name=function["name"], arguments=function["arguments"], state=state)


def run_tool(call: ToolCall, *, ran: int) -> str:
    if call.state is not ArgumentsState.COMPLETE:
        return f"Not run: cut after {len(call.arguments)} characters."
    if call.name == "status":
        return f"{ran} of {CHECKS}; look again for check {ran + 1}" if ran < CHECKS else "all done"
    return f"{call.name} did {call.arguments[:40]}"


@pytest.mark.promise("loop:repeat", "loop:cycle")
@pytest.mark.parametrize(("name", "period"), [("loop-same-call", 1), ("loop-two-calls", 2), ("loop-three-calls", 3)])
def test_a_circle_costs_four_rounds_and_three_requests(name: str, period: int) -> None:
    """Proves: a model that would go on for ever is told, answered from memory twice, and answers then."""
    heard = converse(SCRIPTS[name])
    assert (heard.ran, heard.requests) == (RUNS * period, RUNS * period + REMEMBERED_STEPS + 1)
    assert heard.ends is not None and heard.ends.period == period
    assert heard.text.strip()


@pytest.mark.promise("loop:polling")
def test_thirty_checks_of_a_status_end_by_themselves() -> None:
    """Proves: the script goes on just as long as the status does, and the guard lets it."""
    heard = converse(SCRIPTS["poll-status"])
    assert heard == Heard(ran=CHECKS, requests=CHECKS + 1, text="The build is over: all done", ends=None)


@pytest.mark.promise("loop:cut-variants")
def test_a_write_that_is_cut_each_time_elsewhere_ends_with_an_answer() -> None:
    """Proves: six cut attempts, none run, then the answer in request 7."""
    heard = converse(SCRIPTS["loop-cut-calls"])
    assert (heard.ran, heard.requests) == (0, BROKEN_STEPS + 1)
    assert heard.ends is not None and heard.ends.kind == "broken"
    assert heard.text.startswith("big.txt is not written")


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize(("name", "ran"), [("retry-after-split", 2), ("retry-same-after-split", 1)])
def test_a_retry_after_cut_attempts_runs(name: str, ran: int) -> None:
    """Proves: smaller pieces, and the very same call once it is whole, are no loop."""
    heard = converse(SCRIPTS[name])
    assert (heard.ran, heard.requests, heard.ends) == (ran, SCRIPTS[name].requests, None)


@pytest.mark.costly
@pytest.mark.promise("cut:continued", "cut:split")
@each(("family", "stream"), WAYS)
@each("limit", [2000, 8000])
async def test_the_patch_writer_writes_its_file_with_the_tool_of_the_workspace(
    limit: int, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: `writer-patch` speaks the format of `apply_patch`, as one call where a prefix can be had, else in pieces."""
    writer = SCRIPTS["writer-patch"].writer
    assert writer is not None
    tools = workspace_tools(tmp_path)
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit, tools=tools)
    assert (tmp_path / "big.txt").read_bytes().decode() == as_lines(file_text(writer.size))
    assert (result.complete, result.stop_reason) == (True, StopReason.ANSWERED)
    if (family, stream) in RAW:
        assert (calls_made(result), result.steps) == (["apply_patch"], 2)


def files_in(folder: Path) -> list[str]:
    return sorted([path.name for path in folder.iterdir()])


@pytest.mark.promise("cut:continued", "loop:cut-variants")
@pytest.mark.parametrize("family", ["openai_chat", "openai_responses"])
async def test_a_large_call_of_another_format_ends_after_bounded_requests(family: str, tmp_path: Path) -> None:
    """Proves: a model that insists on `edits` is gone on with once, told what does not fit, and asked for its answer."""
    writer = Writer(writes="patch", habits=("insists",))
    tools = workspace_tools(tmp_path)
    result, received = await ask_writer(
        writer, family=family, stream=True, folder=tmp_path, limit=2000, tools=tools, max_steps=40
    )
    once = result.requests_by_purpose["continue"]
    assert (result.stop_reason, files_in(tmp_path)) == (StopReason.LOOP, [])
    assert 1 <= once <= 6
    # The call that was continued and does not fit is the first of the six.
    assert len(received) == once + BROKEN_STEPS + 1
