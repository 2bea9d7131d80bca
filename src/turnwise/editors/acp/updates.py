"""What an editor is told of a session, in order: put at once, sent by a task, pieces of text joined while it waits."""

import asyncio
from typing import TYPE_CHECKING, Literal, NamedTuple

from acp.helpers import update_agent_message_text, update_agent_thought_text
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    SessionInfoUpdate,
    ToolCallProgress,
    ToolCallStart,
    UsageUpdate,
    UserMessageChunk,
)

if TYPE_CHECKING:
    from acp.agent.connection import AgentSideConnection

WholeUpdate = (
    UserMessageChunk
    | ToolCallStart
    | ToolCallProgress
    | AgentPlanUpdate
    | AvailableCommandsUpdate
    | CurrentModeUpdate
    | ConfigOptionUpdate
    | SessionInfoUpdate
    | UsageUpdate
)
PieceKind = Literal["text", "thought"]


class SaidPiece(NamedTuple):
    """Some more of what the model says, or thinks."""

    kind: PieceKind
    text: str


class Updates:
    """The updates of one session. `flush` returns once all that was put has been written, or the editor is gone."""

    def __init__(self, client: "AgentSideConnection", *, session: str) -> None:
        self._client = client
        self._session = session
        self._waiting: list[SaidPiece | WholeUpdate] = []
        self._task: asyncio.Task[None] | None = None

    def put(self, update: SaidPiece | WholeUpdate) -> None:
        """In the event loop's thread."""
        last = self._waiting[-1] if self._waiting else None
        if isinstance(update, SaidPiece) and isinstance(last, SaidPiece) and last.kind == update.kind:
            self._waiting[-1] = SaidPiece(update.kind, last.text + update.text)
        else:
            self._waiting.append(update)
        if self._task is None:
            self._task = asyncio.create_task(self._send_all())

    async def flush(self) -> None:
        while self._task is not None:
            await asyncio.wait((self._task,))

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                update = self._waiting.pop(0)
                await self._client.session_update(session_id=self._session, update=_of(update))
        except ConnectionError:
            self._waiting.clear()
        finally:
            self._task = None


def _of(update: SaidPiece | WholeUpdate) -> WholeUpdate | AgentMessageChunk | AgentThoughtChunk:
    if not isinstance(update, SaidPiece):
        return update
    return update_agent_message_text(update.text) if update.kind == "text" else update_agent_thought_text(update.text)
