"""An agent at a live server, with everything that went over the wire kept, and what holds of each turn there."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from flat_agents import flat_agent
from live.serving import BASES, Exchange, LiveServer, Totals, Wiretap, wiretap
from live.talks import GREEDY
from turnwise import Agent, RunResult, tool
from turnwise.agent.tools import FunctionTool
from turnwise.vocab import Message, Text, ToolCall, ToolResult, calls_of

each_endpoint = pytest.mark.parametrize("family", BASES)


@dataclass
class Bench:
    """`ran` has the arguments of each tool that ran."""

    family: str
    server: LiveServer
    tap: Wiretap
    before: Totals
    ran: list[str] = field(default_factory=list[str])

    def agent(self, **options: Any) -> Agent:
        """Its prompts are short: `room="budget"` offers no tool of its own."""
        usual = {"settings": GREEDY, "room": "budget", "base_url": self.server.base(self.family)}
        return flat_agent(f"{self.family}:live", transport=self.tap, **{**usual, **options})

    def weather(self) -> FunctionTool:
        @tool
        def weather(city: str) -> str:
            """Tell the weather of a city."""
            self.ran.append(city)
            return "snow"

        return weather

    def save(self) -> FunctionTool:
        @tool(effect="write")
        def save(text: str) -> str:
            """Save a text."""
            self.ran.append(text)
            return "saved"

        return save

    @property
    def exchanges(self) -> list[Exchange]:
        return self.tap.exchanges

    def check(self, result: RunResult, *, statuses: Sequence[int] | None = None) -> None:
        """Every request was taken, and what turnwise counts is what the server counts: requests, tokens read, found in the
        cache, and written."""
        assert [one.status for one in self.exchanges] == list(statuses or [200] * len(self.exchanges))
        assert result.requests == len(self.exchanges) == sum(result.requests_by_purpose.values())
        counted = self.server.totals().since(self.before)
        usage = result.usage
        assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (
            counted.read + counted.cached,
            counted.cached,
            counted.written,
        )
        assert result.fault is None and result.text
        _check_pairs(result.new_messages)


@asynccontextmanager
async def bench(family: str, *, server: LiveServer, is_loaded: bool = True) -> AsyncGenerator[Bench]:
    async with wiretap() as tap:
        before = server.totals() if is_loaded else Totals(0, 0, 0)
        yield Bench(family=family, server=server, tap=tap, before=before)


def _check_pairs(messages: Sequence[Message]) -> None:
    """Each call has its one result, in the message that follows."""
    for number, message in enumerate(messages):
        if calls := calls_of(message):
            assert [part.call_id for part in results_of(messages[number + 1])] == [call.id for call in calls]


def results_of(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


def calls_made(result: RunResult) -> list[ToolCall]:
    return [call for message in result.new_messages for call in calls_of(message)]


def told(result: RunResult) -> list[str]:
    """The results that the model got, as text."""
    return [
        "".join([part.text for part in one.content if isinstance(part, Text)])
        for message in result.new_messages
        for one in results_of(message)
    ]


def written(one: Exchange) -> str:
    """The answer's text in a response, read from its bytes without any of turnwise's decoders."""
    pieces: list[str] = []
    for event in one.events():
        match event:
            case {"type": "response.output_text.delta", "delta": str(text)}:
                pieces.append(text)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                pieces.append(text)
            case {"choices": [{"delta": {"content": str(text)}}]} | {"choices": [{"message": {"content": str(text)}}]}:
                pieces.append(text)
            case {"object": "response", "output": list(items)}:
                pieces += [part["text"] for item in items for part in item.get("content", []) if "text" in part]
            case {"type": "message", "content": list(blocks)}:
                pieces += [block["text"] for block in blocks if block["type"] == "text"]
            case _:
                pass
    return "".join(pieces)


def arguments_in(one: Exchange) -> str:
    """The pieces of arguments in a streamed response, one after the other."""
    pieces: list[str] = []
    for event in one.events():
        match event:
            case {"type": "response.function_call_arguments.delta", "delta": str(text)}:
                pieces.append(text)
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": str(text)}}:
                pieces.append(text)
            case {"choices": [{"delta": {"tool_calls": list(deltas)}}]}:
                pieces += [delta["function"].get("arguments", "") for delta in deltas]
            case _:
                pass
    return "".join(pieces)


def is_whole(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
