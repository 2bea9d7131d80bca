"""Cuts that nothing but the usage tells, and continuations that add nothing, over real sockets and by the lab's own count."""

import json
from pathlib import Path
from typing import Literal

import pytest

from flat_agents import flat_agent
from lab.cut_cells import MODELS, WAYS, file_tools
from lab.raw_server import Body, serving
from tables import each
from turnwise import RunResult, Settings
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import Script, Writer
from turnwise.lab.writer import file_text
from turnwise.rules.advice import asks_for_pieces
from turnwise.vocab import StopReason, Text, ToolResult, calls_of

SIZE = 60_000  # 15,000 tokens
CAP = 8_000
ASKED = 32_000
FALSE_WORDS: tuple[Literal["tool_calls", "stop"], ...] = ("tool_calls", "stop")


async def write(
    writer: Writer, *, family: str, stream: bool, folder: Path, max_steps: int = 20
) -> tuple[RunResult, tuple[Received, ...]]:
    name = MODELS[family].partition(":")[2]
    async with Lab([Script(name=name, title="writes", writer=writer, prefill=False)]) as lab:
        prefix = "" if family in ("anthropic_messages", "gemini", "gemini on Vertex AI") else "/v1"
        agent = flat_agent(
            MODELS[family],
            base_url=lab.url + prefix,
            api_key="lab",
            tools=file_tools(folder) if writer.writes == "file" else (),
            settings=Settings(max_output_tokens=ASKED),
            stream=stream,
            max_steps=max_steps,
        )
        result = await agent.run("Write it, please.")
        assert [one.refused for one in lab.requests if one.refused] == []
        assert lab.count() == result.requests
        return result, lab.requests


def results_of(result: RunResult) -> list[str]:
    parts = [part for message in result.new_messages for part in message.parts if isinstance(part, ToolResult)]
    return ["".join([one.text for one in part.content if isinstance(one, Text)]) for part in parts]


@pytest.mark.costly
@pytest.mark.promise("cut:never-run", "cut:named", "cut:split")
@each("told", FALSE_WORDS)
@each(("family", "stream"), WAYS)
async def test_a_cut_that_is_hidden_three_ways_is_told_by_its_usage(
    family: str, stream: bool, told: Literal["tool_calls", "stop"], tmp_path: Path
) -> None:
    """Proves: an object, a false finish word and a cap below what was asked for; the model hears of the true limit at once, is
    asked no second time for the same, and the file is the wanted one."""
    writer = Writer(size=SIZE, finish=told, limit=CAP, objects=True)
    result, received = await write(writer, family=family, stream=stream, folder=tmp_path)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    first = results_of(result)[0]
    assert f"its limit of output tokens ({CAP:,} tokens)" in first and asks_for_pieces(first)
    assert "parameters" not in first
    assert (result.complete, result.requests_by_purpose) == (True, {"step": len(received)})
    assert len(received) <= 2 + -(-SIZE // int(CAP * 4 * 0.6))


@pytest.mark.promise("cut:never-run", "cut:split")
@each(("family", "stream"), WAYS)
async def test_a_model_that_insists_under_a_hidden_cap_is_bounded(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: no request goes into more room that the server does not have, and the turn ends as any loop does."""
    writer = Writer(size=SIZE, finish="tool_calls", limit=CAP, objects=True, habits=("insists",))
    result, received = await write(writer, family=family, stream=stream, folder=tmp_path)
    assert not (tmp_path / "big.txt").exists()
    assert (result.complete, result.stop_reason, len(received)) == (False, StopReason.LOOP, 7)
    assert all(f"({CAP:,} tokens)" in text for text in results_of(result)[:6])


@pytest.mark.costly
@pytest.mark.promise("cut:never-run")
@each(("family", "stream"), WAYS)
async def test_reasoning_that_is_counted_hides_no_cut(family: str, stream: bool, tmp_path: Path) -> None:
    """Proves: what reasoning took is not missed; what it did not take is."""
    writer = Writer(size=SIZE, finish="tool_calls", limit=CAP, objects=True, thinks=2_000)
    result, _ = await write(writer, family=family, stream=stream, folder=tmp_path)
    assert (tmp_path / "big.txt").read_bytes() == file_text(SIZE).encode()
    assert f"({CAP:,} tokens)" in results_of(result)[0] and result.complete


@pytest.mark.promise("cut:text-continued")
@each(("family", "stream"), WAYS)
async def test_a_continuation_that_adds_nothing_and_says_that_it_is_done_completes_no_answer(
    family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: two requests, the text as far as it came, and no repair that says otherwise (llama.cpp's Responses endpoint says
    `completed` for what it cut)."""
    writer = Writer(size=SIZE, writes="answer", finish="stop", limit=ASKED // 32, habits=("nothing",))
    name = MODELS[family].partition(":")[2]
    async with Lab([Script(name=name, title="writes", writer=writer, prefill=False)]) as lab:
        prefix = "" if family in ("anthropic_messages", "gemini", "gemini on Vertex AI") else "/v1"
        settings = Settings(max_output_tokens=ASKED // 32)
        agent = flat_agent(MODELS[family], base_url=lab.url + prefix, api_key="lab", settings=settings, stream=stream)
        result = await agent.run("Write it, please.")
        assert (lab.count(), result.requests) == (2, 2)
    assert file_text(SIZE).startswith(result.text) and len(result.text) > 2_000
    assert not result.complete
    assert "continued_text" not in [repair.kind for repair in result.repairs]


@pytest.mark.promise("cut:never-run", "cut:named")
@pytest.mark.parametrize("reasoning", [None, 0, 200, 7_950])
async def test_arguments_that_are_an_object_on_the_wire_are_cut_unless_reasoning_took_the_tokens(
    reasoning: int | None, tmp_path: Path
) -> None:
    """Proves: of a server that parses what its model wrote, as far as it came. Counted reasoning explains the tokens, and then
    the call is told what it misses."""
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "write", "arguments": {"content": "abc"}}}
    details = {} if reasoning is None else {"completion_tokens_details": {"reasoning_tokens": reasoning}}
    events = (
        {"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"id": "c", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": CAP, **details}},
    )
    cut = tuple([f"data: {json.dumps(event)}\n\n".encode() for event in events])
    answer = (b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"No."},"finish_reason":"stop"}]}\n\n',)
    done = (b"data: [DONE]\n\n",)
    async with serving([Body(pieces=cut + done), Body(pieces=answer + done)]) as served:
        agent = flat_agent(
            "openai_chat:m",
            base_url=served.url,
            api_key="lab",
            tools=file_tools(tmp_path),
            settings=Settings(max_output_tokens=ASKED),
        )
        result = await agent.run("Write it, please.")
    (text,) = results_of(result)
    assert ("output tokens (8,000 tokens)" in text) is (reasoning != 7_950)
    assert ("path" in text and "do not fit the parameters" in text) is (reasoning == 7_950)
    assert served.requests == 2 and calls_of(result.new_messages[1])[0].arguments == (
        "{}" if reasoning != 7_950 else '{"content":"abc"}'
    )
