"""The matrix of cut writes: a lab's writer, an agent with real tools, the file on disk. `benchmarks/cut_writes.py` draws it."""

import json
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from flat_agents import flat_agent
from turnwise import RunResult, Settings
from turnwise.agent.tools import ToolLike
from turnwise.lab.provider import Provider, Received
from turnwise.lab.script import Script, Writer
from turnwise.lab.server import MemoryTransport
from turnwise.lab.writer import file_text
from turnwise.rules.recovery import Recover
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import MAX_STEPS
from turnwise.vocab import calls_of

MODELS = {
    "openai_chat": "openai_chat:writer",
    "openai_responses": "openai_responses:writer",
    "anthropic_messages": "anthropic:writer",  # the profile that asks for raw argument pieces
    "gemini": "gemini:writer",
    "gemini on Vertex AI": "vertex-gemini:gemini-3-writer",  # the one that asks for Gemini's, where the model gives them
}
WAYS = [(family, stream) for family in MODELS for stream in (True, False)]
WAYS.remove(("gemini on Vertex AI", False))  # its body is that of `gemini`
# Bodies of Anthropic, and Gemini's unless its stream was asked for pieces, hand out objects: no prefix can be had.
RAW = [way for way in WAYS if way[0] != "gemini" and way != ("anthropic_messages", False)]
OBJECTS = [way for way in WAYS if way not in RAW]
# Their streams may leave the finish reason out and tell the usage all the same (`missing`), or end (`none`).
TELL_USAGE_LAST = [("openai_chat", True), ("anthropic_messages", True)]
SIZES = (40_000, 200_000)
# Characters at a time: the matrix is about sizes and words, other tests about pieces.
PIECES = {
    40_000: 96,
    200_000: 960,
}
LIMITS = (2000, 4000, 8000)
Told = Literal["true", "tool_calls", "stop", "none", "missing"]
TOLD: tuple[Told, ...] = get_args(Told)
STEPS_IN_PIECES = 60  # 200 KB in pieces of 5.6 KB, which is what fits 2,000 tokens
RECOVERS: tuple[Recover, ...] = ("continue", "split")


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One write that is cut: `told` is the finish reason that the provider claims, `limit` in tokens, `size` in bytes."""

    family: str
    stream: bool
    limit: int
    size: int
    told: Told
    recover: Recover

    def __str__(self) -> str:
        way = "streamed" if self.stream else "body"
        return f"{self.family}-{way}-{self.limit}-{self.size}-{self.told}-{self.recover}"

    @property
    def has_prefix(self) -> bool:
        return (self.family, self.stream) in RAW

    @property
    def allowed(self) -> float:
        """Output tokens against those of the whole arguments."""
        if not (self.has_prefix and self.recover == "continue"):
            return 2.0
        return 1.10 if self.limit == 2000 else 1.05


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell came to. `wrong` says what is not as it should be."""

    cell: Cell
    result: RunResult
    input_tokens: int
    output_tokens: int
    share: float  # of the output tokens against those of the whole arguments
    wrong: tuple[str, ...]


def cells(
    *,
    ways: Iterable[tuple[str, bool]] = WAYS,
    sizes: Iterable[int] = SIZES,
    limits: Iterable[int] = LIMITS,
    told: Iterable[Told] = TOLD,
    recovers: Iterable[Recover] = RECOVERS,
) -> list[Cell]:
    every = [
        Cell(family=family, stream=stream, limit=limit, size=size, told=one, recover=recover)
        for recover, size, (family, stream), limit, one in product(recovers, sizes, ways, limits, told)
    ]
    return [cell for cell in every if cell.told != "missing" or (cell.family, cell.stream) in TELL_USAGE_LAST]


def file_tools(folder: Path) -> list[ToolLike]:
    """The workspace's tools that the writer calls; the others would only change the figures whenever they change."""
    return [tool for tool in workspace_tools(folder) if tool.name in ("read", "write")]


async def ask_writer(
    writer: Writer,
    *,
    family: str,
    stream: bool,
    folder: Path,
    limit: int | None,
    recover: Recover = "continue",
    max_steps: int = STEPS_IN_PIECES,
    tools: Sequence[ToolLike] | None = None,
    settings: Settings = Settings(),  # noqa: B008 (frozen)
) -> tuple[RunResult, tuple[Received, ...]]:
    """One turn over no network, with the workspace's tools, and what the lab received. Nothing may have been refused."""
    name = MODELS[family].partition(":")[2]
    script = Script(name=name, title="writes", writer=writer, prefill=False)
    received: list[Received] = []
    agent = flat_agent(
        MODELS[family],
        base_url="http://lab/v1",
        api_key="lab",
        transport=MemoryTransport(Provider(scripts={name: script}), requests=received),
        tools=file_tools(folder) if tools is None else tools,
        settings=replace(settings, max_output_tokens=limit),
        stream=stream,
        recover=recover,
        max_steps=max_steps,
    )
    result = await agent.run("Write it, please.")
    assert [one.refused for one in received if one.refused] == []
    assert len(received) == result.requests
    return result, tuple(received)


def calls_made(result: RunResult) -> list[str]:
    """The names of the calls in the turn's history."""
    return [call.name for message in result.new_messages for call in calls_of(message)]


async def measure(cell: Cell, *, folder: Path) -> Measured:
    """Let the writer write. Going on takes two steps, whatever the size; pieces take one each."""
    once = cell.has_prefix and cell.recover == "continue"
    writer = Writer(size=cell.size, finish=cell.told, piece=PIECES[cell.size])
    result, received = await ask_writer(
        writer,
        family=cell.family,
        stream=cell.stream,
        folder=folder,
        limit=cell.limit,
        recover=cell.recover,
        max_steps=MAX_STEPS if once else STEPS_IN_PIECES,
    )
    text = file_text(cell.size)
    written = (folder / writer.path).read_bytes() if (folder / writer.path).exists() else b""
    whole = json.dumps({"path": writer.path, "content": text}, ensure_ascii=False, separators=(",", ":"))
    whole_tokens = len(whole.encode()) / 4
    # A stream that ends without a word ends without its usage too, where that comes at the end.
    tells_usage = cell.told != "none" or (cell.family, cell.stream) not in TELL_USAGE_LAST
    ran = calls_made(result)
    generated = sum([one.usage.output_tokens for one in received if one.usage is not None])
    checks = {
        f"the file differs, {len(written):,} bytes": written == text.encode(),
        f"not complete: {result.stop_reason} {result.text[:200]!r}": result.complete,
        f"the calls are {ran}": not once or ran == ["write"],
        f"{generated / whole_tokens:.3f} x the tokens": generated / whole_tokens <= cell.allowed,
        "the sums differ": tells_usage is (result.usage.output_tokens == generated),
    }
    return Measured(
        cell=cell,
        result=result,
        input_tokens=sum([one.usage.input_tokens for one in received if one.usage is not None]),
        output_tokens=generated,
        share=generated / whole_tokens,
        wrong=tuple([said for said, right in checks.items() if not right]),
    )
