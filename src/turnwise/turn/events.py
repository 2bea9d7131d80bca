"""What a driver (the runner) reports back. The journal holds the events of a turn, in order."""

from typing import Literal

import msgspec

from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule
from turnwise.rules.pricing import PriceRow
from turnwise.turn.approvals import Approval
from turnwise.turn.config import ChildReport, TurnConfig
from turnwise.vocab import Fault, Message, OutputSchema, Response, Settings, ToolCall, ToolChoice, ToolResult


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True, tag="turn_started", omit_defaults=True):
    """The first event of every journal: with it and the later events the turn is rebuilt. `history` are messages of the session
    before this turn that no journal holds (imported ones); the messages of earlier turns come from their own events.
    `keeps_waiting`: a waiting call without an answer keeps waiting. Older journals dropped such calls, so the default is off."""

    config: TurnConfig
    input: tuple[Message, ...]  # the user's message, or results handed in for pending calls
    history: tuple[Message, ...] = ()
    approvals: tuple[Approval, ...] = ()  # for calls that an earlier run left pending
    keeps_waiting: bool = False


class StepPrepared(msgspec.Struct, frozen=True, kw_only=True, tag="step_prepared", omit_defaults=True):
    """What a `prepare_step` function changes for one step. None changes nothing.

    - `tools` are names of the agent's tools; the step gets these alone.
    - `instruction` is a text that is added at the end of the prompt, for this step only.
    - `model`, `settings`, `tool_choice`, `parallel_tool_calls` and `output` replace the run's.
    - turnwise sets `price` and `at_s` itself.
    """

    tools: tuple[str, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    model: str | None = None
    settings: Settings | None = None
    output: OutputSchema | None = None
    instruction: str | None = None  # added as a trailing user-role text for this step only
    price: PriceRow | None = None  # of `model`; turnwise sets it if a limit of cost needs it
    at_s: float = 0.0  # here and in the events below: seconds since the turn began; turnwise sets it


class ResponseReceived(msgspec.Struct, frozen=True, kw_only=True, tag="response_received", omit_defaults=True):
    number: int  # the request's
    response: Response
    at_s: float = 0.0
    jitter: float = 0.0  # a random number of [0, 1) from the runner: it spreads the wait before a retry


class RequestFailed(msgspec.Struct, frozen=True, kw_only=True, tag="request_failed", omit_defaults=True):
    """The request gave no usable response. `partial` is what had arrived: its text is shown, none of its calls runs.

    A request that was never `sent` (no byte of it can have left: there was no connection, or its endpoint is left alone for a
    while) does not count, and the next request has its number. `is_answer`: the endpoint answered with the fault (an error, no
    content, another format) and with nothing else; a status that says so needs no such mark. `lost`: it may have been answered,
    but our process died before that was recorded. It is sent again, without using up an attempt of the retry policy.
    """

    number: int
    fault: Fault
    partial: Response | None = None
    at_s: float = 0.0
    jitter: float = 0.0
    sent: bool = True
    is_answer: bool = False
    lost: bool = False


class ToolEnded(msgspec.Struct, frozen=True, kw_only=True, tag="tool_ended", omit_defaults=True):
    """The result of one of the ordered calls, while others run: nothing can lose it any more. The current command continues."""

    result: ToolResult
    children: tuple[ChildReport, ...] = ()
    at_s: float = 0.0


class ToolsFinished(msgspec.Struct, frozen=True, kw_only=True, tag="tools_finished", omit_defaults=True):
    """One result for each ordered call, in call order, except those that a `ToolEnded` told."""

    results: tuple[ToolResult, ...]
    children: tuple[ChildReport, ...] = ()
    at_s: float = 0.0


class ScriptCalled(msgspec.Struct, frozen=True, kw_only=True, tag="script_called", omit_defaults=True):
    """The program of the call `call_id` continues when these calls of its own have results. Their ids begin with its id."""

    call_id: str
    calls: tuple[ToolCall, ...]
    at_s: float = 0.0


class ScriptFinished(msgspec.Struct, frozen=True, kw_only=True, tag="script_finished", omit_defaults=True):
    """What the program of the call `call_id` printed and returned, or its error and the line of the error."""

    call_id: str
    text: str
    is_error: bool = False
    at_s: float = 0.0


class CallsInspected(msgspec.Struct, frozen=True, kw_only=True, tag="calls_inspected", omit_defaults=True):
    """The facts of the inspected calls."""

    facts: tuple[CallFacts, ...]
    at_s: float = 0.0


class HookOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a hook did about one call; None leaves the call as it is. `denied` says why the call may not run (for
    `before_request`, with an empty `call_id`: why the request may not leave). `arguments` are those to run it with, `result` is
    the one for the model. `by` names the hook."""

    by: str
    call_id: str = ""
    denied: str | None = None
    arguments: str | None = None
    result: ToolResult | None = None


class HooksRan(msgspec.Struct, frozen=True, kw_only=True, tag="hooks_ran", omit_defaults=True):
    """The changes by the hooks of one point, in the order in which they ran."""

    outcomes: tuple[HookOutcome, ...] = ()
    at_s: float = 0.0


class OutputChecked(msgspec.Struct, frozen=True, kw_only=True, tag="output_checked", omit_defaults=True):
    """What the output type's own validators found wrong with an answer, in words for the model. Empty: it is the output."""

    problems: tuple[str, ...] = ()
    at_s: float = 0.0


class Asked(msgspec.Struct, frozen=True, kw_only=True, tag="asked", omit_defaults=True):
    """One approval for each answered ask; the other asks get their default."""

    approvals: tuple[Approval, ...] = ()
    at_s: float = 0.0


class MessageArrived(msgspec.Struct, frozen=True, kw_only=True, tag="message_arrived", omit_defaults=True):
    """A message from the user (or a parent) in mid-turn. The current command continues; the next request carries the message."""

    message: Message
    at_s: float = 0.0


class RulesAdded(msgspec.Struct, frozen=True, kw_only=True, tag="rules_added", omit_defaults=True):
    """The resuming caller of a left turn allows more: from now on, these rules come after the turn's own. They judge the asks
    without an answer. Any other current command continues."""

    rules: tuple[PermissionRule, ...]
    at_s: float = 0.0


class WaitOver(msgspec.Struct, frozen=True, kw_only=True, tag="wait_over", omit_defaults=True):
    """The ordered seconds have passed."""

    at_s: float = 0.0


class Interrupted(msgspec.Struct, frozen=True, kw_only=True, tag="interrupted", omit_defaults=True):
    """Accepted in every waiting state. The turn ends, and open calls get a result that says so.

    `journal`: events cannot be recorded any more, and `why`. This event is not recorded either, so the journal shows a turn that
    was left. `results` holds the results that no `ToolEnded` told, `started` the ids of the calls that had begun (None in
    journals that do not say), `partial` what had arrived of the awaited response. A current request that was not yet `sent` does
    not count.
    """

    kind: Literal["cancel", "deadline", "journal"]
    results: tuple[ToolResult, ...] = ()
    started: tuple[str, ...] | None = None
    partial: Response | None = None
    sent: bool = True
    children: tuple[ChildReport, ...] = ()
    why: str = ""


Event = (
    TurnStarted
    | StepPrepared
    | HooksRan
    | ResponseReceived
    | RequestFailed
    | OutputChecked
    | CallsInspected
    | Asked
    | ToolEnded
    | ToolsFinished
    | ScriptCalled
    | ScriptFinished
    | WaitOver
    | MessageArrived
    | RulesAdded
    | Interrupted
)
