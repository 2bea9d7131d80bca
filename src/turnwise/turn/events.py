"""What a driver reports back. The journal is the events of a turn, in order."""

from typing import Literal

import msgspec

from turnwise.turn.config import TurnConfig
from turnwise.vocab import Fault, Message, OutputSchema, Response, Settings, ToolChoice, ToolResult


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True, tag="turn_started", omit_defaults=True):
    """First in every journal: with it and the later events the turn is rebuilt. `history` are messages of the session
    before this turn that no journal holds (imported ones); those of earlier turns are folded from their own events."""

    config: TurnConfig
    input: tuple[Message, ...]  # the user's message, or results handed in for pending calls
    history: tuple[Message, ...] = ()


class StepPrepared(msgspec.Struct, frozen=True, kw_only=True, tag="step_prepared", omit_defaults=True):
    """What to change for this one step; None changes nothing. `tools` are names out of the turn's tools."""

    tools: tuple[str, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    model: str | None = None
    settings: Settings | None = None
    output: OutputSchema | None = None
    instruction: str | None = None  # added as a trailing user-role text for this step only
    at_s: float = 0.0  # here and below: seconds since the turn began, set by the driver


class ResponseReceived(msgspec.Struct, frozen=True, kw_only=True, tag="response_received", omit_defaults=True):
    number: int  # the request's
    response: Response
    at_s: float = 0.0


class RequestFailed(msgspec.Struct, frozen=True, kw_only=True, tag="request_failed", omit_defaults=True):
    """The request gave no response that could be taken. `partial` is what had arrived: its text is shown, no call of it runs."""

    number: int
    fault: Fault
    partial: Response | None = None
    at_s: float = 0.0


class ToolsFinished(msgspec.Struct, frozen=True, kw_only=True, tag="tools_finished", omit_defaults=True):
    """One result for each ordered call, in call order."""

    results: tuple[ToolResult, ...]
    at_s: float = 0.0


class Interrupted(msgspec.Struct, frozen=True, kw_only=True, tag="interrupted", omit_defaults=True):
    """Accepted in every waiting state. After `cancel` and `deadline` the turn ends; calls at hand get a result that says
    so. `results` holds those that had finished, `started` the ids of the calls that had begun (None in journals that do not
    say), `partial` what had arrived of the response that was waited for."""

    kind: Literal["cancel", "deadline"]
    results: tuple[ToolResult, ...] = ()
    started: tuple[str, ...] | None = None
    partial: Response | None = None


Event = TurnStarted | StepPrepared | ResponseReceived | RequestFailed | ToolsFinished | Interrupted
