"""What the turn orders. A driver (the runner) does one command, reports the outcome as an event, and asks again."""

from typing import Literal

import msgspec

from turnwise.rules.limits import Limit
from turnwise.rules.read_only_commands import JudgedPrograms
from turnwise.rules.reservations import Place
from turnwise.turn.approvals import OneAsk
from turnwise.turn.config import Deadlines, HookPoint, ScriptLimits, TurnResult
from turnwise.vocab import Message, Request, ToolCall, ToolResult, ToolSpec, Usage

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
    bounds on the tree. `shown` is the digest of what a person allowed: it is checked again before the call runs."""

    call: ToolCall
    arguments: str
    timeout_s: float
    exclusive: bool = False
    paths: tuple[str, ...] = ()
    programs: JudgedPrograms | None = None
    unasked: bool = False
    grant: Limit | None = None
    place: Place | None = None
    shown: str = ""


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
