"""turnwise's public `async for`: a whole turn with healing, assembly and all checks; the call is left for the caller."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import attrgetter

from timing import INSTRUCTIONS, PARAMETERS, PROMPT, TOOL, Case, Task, events_of, measure, run

from turnwise import Agent, FrameSeen, Model, RunFinished, ToolSpec
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.vocab import ReasoningDelta, StopReason, TextDelta, ToolCallDelta

DELTAS = {
    "text": (TextDelta, attrgetter("text")),
    "tool arguments": (ToolCallDelta, attrgetter("arguments")),
    "reasoning": (ReasoningDelta, attrgetter("text")),
}
WRITE = ToolSpec(name=TOOL, description="Write a file.", parameters=json.dumps(PARAMETERS))


class Memory:
    """A transport that hands out prepared pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncIterator[HttpReply]:
        yield HttpReply(status=200, headers={"content-type": "text/event-stream"}, chunks=self._chunks())

    async def _chunks(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            yield piece

    async def close(self) -> None:
        pass


async def main(given: Task) -> None:
    root = given["url"]
    base_url = {"openai_chat": f"{root}/v1", "openai_responses": f"{root}/v1", "anthropic_messages": root}.get(
        given["family"], f"{root}/v1beta"
    )
    memory = Memory()
    agents: dict[tuple[str, bool], Agent] = {}

    async def agent_of(case: Case) -> Agent:
        key = (case["model"], case["memory"])
        if key not in agents:
            agents[key] = Agent(
                Model(
                    f"{given['family']}:{case['model']}",
                    base_url=base_url,
                    api_key="nothing",
                    transport=memory if case["memory"] else sockets,
                ),
                tools=[WRITE],
                instructions=INSTRUCTIONS,
            )
        return agents[key]

    async def read(case: Case) -> int:
        agent = await agent_of(case)
        if case["memory"]:
            memory.pieces = pieces.setdefault(case["model"], []) or events_of(given, case=case)
            pieces[case["model"]] = memory.pieces
        wanted, piece_of = DELTAS[case["kind"]]
        seen = 0
        async for event in agent.stream(PROMPT):
            if isinstance(event, FrameSeen):
                if isinstance(event.frame, wanted):
                    seen += len(piece_of(event.frame) or "")
            elif isinstance(event, RunFinished):
                assert event.result.stop_reason in (StopReason.ANSWERED, StopReason.WAITING), event.result.fault
        return seen

    pieces: dict[str, list[bytes]] = {}
    from turnwise.endpoints.aiohttp_transport import AiohttpTransport

    async with AiohttpTransport() as sockets:
        await measure(given, read=read, distribution="turnwise")


run(main)
