"""What whoever watches a turn is told, while it runs: small frozen events on a side branch. Nothing depends on them."""

from collections.abc import Callable

import msgspec

from turnwise.turn.commands import Purpose
from turnwise.turn.config import TurnResult
from turnwise.vocab import Fault, Frame, Response, ToolCall, ToolResult


class StepStarted(msgspec.Struct, frozen=True, tag="step_started"):
    step: int  # 1 for the first


class RequestStarted(msgspec.Struct, frozen=True, tag="request_started"):
    number: int  # the turn's requests count from 1
    step: int
    purpose: Purpose
    model: str
    retry_of: Purpose | None = None  # a further attempt at a request of that purpose


class FrameSeen(msgspec.Struct, frozen=True, tag="frame_seen", gc=False):
    """One healed piece of the response to request `number`."""

    number: int
    frame: Frame


class RequestFinished(msgspec.Struct, frozen=True, tag="request_finished"):
    """`response` is the whole one; `fault` says why there is none, or what the provider reported inside it."""

    number: int
    response: Response | None
    fault: Fault | None
    seconds: float


class AttemptDiscarded(msgspec.Struct, frozen=True, tag="attempt_discarded"):
    """Request `number` failed and is given up: what was shown of it counts for nothing. Another attempt follows in
    `retry_in_s` seconds; `fault` is None where the stream ended without a word."""

    number: int
    fault: Fault | None
    retry_in_s: float


class ToolStarted(msgspec.Struct, frozen=True, tag="tool_started"):
    call: ToolCall


class ToolFinished(msgspec.Struct, frozen=True, tag="tool_finished"):
    result: ToolResult
    seconds: float


class CallAnswered(msgspec.Struct, frozen=True, tag="call_answered"):
    """A result that the turn gave itself: the call was denied, cut, unknown, wrongly written or not allowed in this step and
    did not run, or its run was cut short (then a `ToolStarted` came before)."""

    call: ToolCall
    result: ToolResult


class ChildSeen(msgspec.Struct, frozen=True, tag="child_seen"):
    """What a sub-agent shows; `call_id` is that of its parent's call, `path` the names that lead to it, outermost first."""

    call_id: str
    path: tuple[str, ...]
    seen: "Seen"


class TurnFinished(msgspec.Struct, frozen=True, tag="turn_finished"):
    result: TurnResult


Seen = (
    StepStarted
    | RequestStarted
    | FrameSeen
    | RequestFinished
    | AttemptDiscarded
    | ToolStarted
    | ToolFinished
    | CallAnswered
    | ChildSeen
    | TurnFinished
)

Watch = Callable[[Seen], object]
"""Called in the event loop, in order, while the turn waits for it: it must be quick (put it into a queue). If it raises, it is
not called again in this turn, and the turn goes on."""
