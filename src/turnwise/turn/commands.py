"""What the turn orders. A driver does one, reports it as an event, and asks again."""

from typing import Literal

import msgspec

from turnwise.turn.config import Deadlines, TurnResult
from turnwise.vocab import Message, Request, ToolCall, Usage

Purpose = Literal["step", "retry", "continue", "compact", "title", "child", "answer"]


class PrepareStep(msgspec.Struct, frozen=True, kw_only=True, tag="prepare_step", omit_defaults=True):
    """Ask the user's `prepare_step` what to change for this step; the answer is `StepPrepared`. What it may look at:"""

    step: int  # 1 for the first
    max_steps: int
    messages: tuple[Message, ...]
    usage: Usage
    requests: int


class SendRequest(msgspec.Struct, frozen=True, kw_only=True, tag="send_request", omit_defaults=True):
    """Exactly one HTTP request. `number` counts this turn's requests from 1; `taken_ids` are call ids that the session has
    used, `id_prefix` begins the ids that we generate for calls without one."""

    number: int
    step: int
    purpose: Purpose
    request: Request
    deadlines: Deadlines
    taken_ids: frozenset[str] = frozenset()
    id_prefix: str = "call"


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that passed every check. `arguments` is strictly complete JSON text (or free-form text)."""

    call: ToolCall
    arguments: str
    timeout_s: float
    exclusive: bool = False


class RunTools(msgspec.Struct, frozen=True, kw_only=True, tag="run_tools", omit_defaults=True):
    """Run all of them, concurrently but for exclusive ones; report exactly one result each, in this order."""

    step: int
    calls: tuple[PlannedCall, ...]


class FinishTurn(msgspec.Struct, frozen=True, kw_only=True, tag="finish_turn"):
    result: TurnResult


Command = PrepareStep | SendRequest | RunTools | FinishTurn
