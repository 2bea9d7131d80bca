"""What a driver (the runner) reports back. The journal holds the events of a turn, in order."""

from typing import Literal

import msgspec

from turnwise.rules.limits import Limit
from turnwise.rules.permission_facts import CallFacts, Keeps
from turnwise.rules.permissions import PermissionRule
from turnwise.rules.pricing import PriceRow
from turnwise.rules.read_only_commands import JudgedPrograms
from turnwise.rules.reservations import Place
from turnwise.turn.config import (
    Approval,
    ChildReport,
    Deadlines,
    HookPoint,
    OneAsk,
    ScriptLimits,
    TurnConfig,
    TurnResult,
)
from turnwise.vocab import (
    Fault,
    HintedFields,
    Message,
    OutputSchema,
    Request,
    Response,
    Settings,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    Usage,
)


class TurnStarted(msgspec.Struct, frozen=True, kw_only=True, tag="turn_started", omit_defaults=True):
    """The first event of every journal: with it and the later events the turn is rebuilt. `history` are messages of the session
    before this turn that no journal holds (imported ones); the messages of earlier turns come from their own events.
    `keeps_waiting`: a waiting call without an answer keeps waiting. Older journals dropped such calls, so the default is off."""

    config: TurnConfig
    input: tuple[Message, ...]  # the user's message, or results handed in for pending calls
    history: tuple[Message, ...] = ()
    approvals: tuple[Approval, ...] = ()  # for calls that an earlier run left pending
    keeps_waiting: bool = False


class StepPrepared(
    msgspec.Struct, frozen=True, kw_only=True, tag="step_prepared", omit_defaults=True, metaclass=HintedFields
):
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

    `tool`: a tool has raised, `why` names it, and with `tool_errors="raise"` that ends the turn. `journal`: events cannot be
    recorded any more, and `why`. This event is not recorded either, so the journal shows a turn that was left. `results` holds
    the results that no `ToolEnded` told, `started` the ids of the calls that had begun (None in journals that do not say),
    `partial` what had arrived of the awaited response. A current request that was not yet `sent` does not count.
    """

    kind: Literal["cancel", "deadline", "tool", "journal"]
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


# What the turn orders. A driver (the runner) does one command, reports the outcome as an event, and asks again.


Purpose = Literal["step", "retry", "continue", "compact", "title", "child", "answer"]
# Purposes of requests that are only needed if something was cut.
RECOVERY = frozenset[Purpose]({"continue", "retry"})


class PrepareStep(msgspec.Struct, frozen=True, kw_only=True, tag="prepare_step", omit_defaults=True):
    """What a `prepare_step` function gets before each step.

    - `step` counts from 1; `max_steps` is the limit.
    - `messages` is the conversation so far.
    - `usage` (tokens) and `requests` are what the run has used so far.
    """

    step: int  # 1 for the first
    max_steps: int
    messages: tuple[Message, ...]
    usage: Usage
    requests: int


class SoughtCalls(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Calls in the text of the response count, if they are of these `tools`. `unmarked`: also an answer that is only a fence or
    an object. `leading`: only at the text's beginning, for a request whose answer may quote a call. A block that stands in
    `earlier` messages is a quotation, too: the model has read them, although the request no longer holds them."""

    tools: tuple[ToolSpec, ...]
    unmarked: bool = False
    leading: bool = False
    earlier: tuple[Message, ...] = ()


class SendRequest(msgspec.Struct, frozen=True, kw_only=True, tag="send_request", omit_defaults=True):
    """Exactly one HTTP request. `number` counts this turn's requests from 1. `taken_ids` are call ids that the session has used;
    `id_prefix` begins the ids that turnwise makes for calls without one. The request ends within `most_s` seconds if the answer
    comes after it and needs the rest of the time; None: only its deadlines limit it."""

    number: int
    step: int
    purpose: Purpose
    request: Request
    deadlines: Deadlines
    most_s: float | None = None
    taken_ids: frozenset[str] = frozenset()
    id_prefix: str = "call"
    calls_in_text: SoughtCalls | None = None  # None: text is text
    retry_of: Purpose | None = None  # this is another attempt at a request of that purpose; the last one is abandoned


class PlannedCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that passed every check. `arguments` is strictly complete JSON text (or free-form text). `paths` are the resolved
    paths that it was judged on, and it may touch no others. `programs` are those that a command was judged on. `unasked`: neither
    a person nor a rule for this command allowed it. `grant` is a child's share of the turn's limits, and `place` its part of the
    bounds on the tree. `shown` is the digest of what a person allowed: it is checked again before the call runs. `edited`: the
    arguments are a person's, not the model's. `keeps` is what a command finds read-only, by the mode that it was judged in: the
    whole folder, or what is guarded in it."""

    call: ToolCall
    arguments: str
    timeout_s: float
    exclusive: bool = False
    paths: tuple[str, ...] = ()
    programs: JudgedPrograms | None = None
    unasked: bool = False
    keeps: Keeps = ""
    grant: Limit | None = None
    place: Place | None = None
    shown: str = ""
    edited: bool = False


class InspectCalls(msgspec.Struct, frozen=True, kw_only=True, tag="inspect_calls", omit_defaults=True):
    """Find the facts for a verdict on these calls: resolved paths, parsed shell commands. Changes nothing."""

    step: int
    calls: tuple[PlannedCall, ...]


class RunHooks(msgspec.Struct, frozen=True, kw_only=True, tag="run_hooks", omit_defaults=True):
    """Run the user's hooks of one point, each within `deadlines.hook_s` or its own time. `calls` are about to run (`before_tool`)
    or have run (`after_tool`, with their `results`). `request` is about to be sent (`before_request`)."""

    step: int
    point: HookPoint
    deadlines: Deadlines
    calls: tuple[PlannedCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    request: "SendRequest | None" = None


class CheckOutput(msgspec.Struct, frozen=True, kw_only=True, tag="check_output", omit_defaults=True):
    """Let the output type itself judge an answer whose `json` fits the schema: the type's own validators may refuse it."""

    step: int
    json: str


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag="ask", omit_defaults=True):
    """Ask a person: all asks of a step at once, before any of its calls runs. An ask without an answer within `deadline_s`
    seconds gets its default: an approval is denied, a question is left to the model."""

    step: int
    asks: tuple[OneAsk, ...]
    deadline_s: float


class RunTools(msgspec.Struct, frozen=True, kw_only=True, tag="run_tools", omit_defaults=True):
    """Run all of them at the same time, except exclusive ones; report exactly one result each, in this order.

    A result is cut to a length that a model can read. With `whole_bytes` it stays whole, or becomes an error if it is longer,
    because programs compute with it. All calls end within `most_s` seconds, because the answer comes after them; None: only their
    own deadlines limit them.
    """

    step: int
    calls: tuple[PlannedCall, ...]
    whole_bytes: int | None = None
    most_s: float | None = None


class ScriptFunction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as a program calls it: `name` is the function's. `parameters` are in order; arguments without a name belong to
    them."""

    name: str
    tool: str
    parameters: tuple[str, ...]
    free_form: bool = False


class ScriptResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of one call of a program: what the function returns, or (`is_error`) the text of what it raises."""

    call_id: str
    text: str
    is_error: bool = False


class RunScript(msgspec.Struct, frozen=True, kw_only=True, tag="run_script", omit_defaults=True):
    """Run the program of `call` until it needs tools or ends: from its beginning, or further with the `results` of the calls that
    it waits for. `ran` are the tools that it has run so far. With `stop` it does not continue; its result says what it has and
    why it was stopped. The same happens after `most_s` seconds, because the answer comes after it."""

    step: int
    call: ToolCall
    program: str
    functions: tuple[ScriptFunction, ...]
    limits: ScriptLimits
    results: tuple[ScriptResult, ...] = ()
    ran: tuple[str, ...] = ()
    stop: str = ""
    most_s: float | None = None


class Wait(msgspec.Struct, frozen=True, kw_only=True, tag="wait", omit_defaults=True):
    """Wait so many seconds before request `number`, which failed, is sent again. `why` is for people."""

    number: int
    seconds: float
    why: str


class FinishTurn(msgspec.Struct, frozen=True, kw_only=True, tag="finish_turn"):
    result: TurnResult


Command = (
    PrepareStep | RunHooks | SendRequest | CheckOutput | InspectCalls | Ask | RunTools | RunScript | Wait | FinishTurn
)
