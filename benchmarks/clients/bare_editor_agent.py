"""The shortest agent of an editor on the protocol's own library: it answers every prompt with one word, and asks nobody."""

import asyncio
from typing import Any, cast

from acp import Agent, Client, run_agent
from acp.helpers import update_agent_message_text
from acp.schema import InitializeResponse, NewSessionResponse, PromptResponse


class BareAgent:
    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        return NewSessionResponse(session_id="bare")

    async def prompt(self, prompt: list[Any], session_id: str, **_: Any) -> PromptResponse:
        await self._client.session_update(session_id=session_id, update=update_agent_message_text("Hello"))
        return PromptResponse(stop_reason="end_turn")


asyncio.run(run_agent(cast("Agent", BareAgent())))
