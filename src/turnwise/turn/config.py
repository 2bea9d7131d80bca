"""What a turn is given when it starts, and what it gives back when it ends: plain data, kept in the journal."""

from typing import Literal

import msgspec

from turnwise.rules.budget import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.limits import Limit
from turnwise.vocab import (
    NO_USAGE,
    Fault,
    Message,
    OutputSchema,
    Repair,
    Settings,
    StopReason,
    Text,
    ToolCall,
    ToolChoice,
    ToolSpec,
    Usage,
)

Effect = Literal["none", "read", "write", "execute"]
Recover = Literal["continue", "split", "off"]
Room = Literal["compact", "budget", "off"]

# 8 cut research questions short (gitmost); 20 was the remedy there.
MAX_STEPS = 20


class ToolOffer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as the turn knows it. `client_side` tools have no implementation here: their calls end the run as `waiting`."""

    spec: ToolSpec
    client_side: bool = False
    exclusive: bool = False  # never runs beside another call
    idempotent: bool = False  # running it twice does no harm
    repeatable: bool = False  # meant to be asked again and again, even while the answer stays the same
    effect: Effect = "none"
    timeout_s: float | None = None


class Deadlines(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Seconds. `idle_s` is between events of a stream, keep-alives not counted; `total_s` is for one whole request."""

    connect_s: float = 10.0
    first_event_s: float = 120.0  # reasoning models think before the first byte
    idle_s: float = 90.0
    total_s: float = 900.0
    tool_s: float = 120.0


class TurnConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decides how the turn goes, apart from what happens. `allowed` are the effects that may run without
    asking; a call of another effect gets a result that says it was denied, and how to allow it."""

    session_id: str
    turn_id: str
    model: str
    system: tuple[Text, ...] = ()
    tools: tuple[ToolOffer, ...] = ()
    tool_choice: ToolChoice = "auto"  # `required` and a named tool hold until a tool has been called
    parallel_tool_calls: bool | None = None
    output: OutputSchema | None = None
    max_output_corrections: int = 2
    settings: Settings = Settings()
    extra: str = ""  # further body fields, JSON object as text
    stream: bool = True
    max_steps: int = MAX_STEPS
    limits: Limit | None = None  # beside `max_steps`
    allowed: tuple[Effect, ...] = ("none", "read", "write", "execute")
    # how a person allows what was denied, in the words of the face at hand; `{tool}` and `{effect}` are filled in
    allow_hint: str = "add `{effect}` to the allowed effects"
    # what is done about a response that the output limit cut. `continue`: gone on with where it was cut; `split`: a cut call
    # is not, the model is told to write smaller pieces; `off`: no request of its own is made for it. Journals of before it
    # could be chosen know nothing of it, so it is off where it is not said.
    recover: Recover = "off"
    model_limits: ModelLimits = UNKNOWN_LIMITS
    # what is done so that the prompt and its answer fit the model. `budget`: each request asks for as much output as there is
    # room for; `compact`: and what is old gives way before there is too little. Off where it is not said, as `recover`.
    room: Room = "off"
    prepares_steps: bool = False  # the user gave a `prepare_step`: ask for StepPrepared before each step
    deadlines: Deadlines = Deadlines()
    # facts of the endpoint's profile that rules need
    family: str = "openai_chat"
    profile: str = "openai_chat"
    accepts_prefill: bool = False
    default_max_tokens: int | None = None  # goes out where the settings name none
    tool_choice_none: Literal["send", "drop_tools"] = "send"
    # where the user sent the turn, for whoever goes on with the session; never the key itself, and no query (it may hold one)
    base_url: str = ""  # empty: the profile's own; it ends with "?" where a query was left out
    api_key_env: str = ""  # the variable's name


class TurnResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the turn ended. `text` is never empty unless `stop_reason` is `waiting` (or a refusal's text stands in it).
    `origin` says who wrote the text: the model, or we ourselves from the results at hand."""

    text: str
    stop_reason: StopReason
    complete: bool
    steps: int
    requests: int
    usage: Usage
    messages: tuple[Message, ...]  # what this turn added to the session, the user's message first
    output: str | None = None  # JSON text that fits the output schema
    reasoning: str = ""
    repairs: tuple[Repair, ...] = ()
    pending: tuple[ToolCall, ...] = ()  # calls of client-side tools that wait for results
    recovery_usage: Usage = NO_USAGE  # the part of `usage` that went into requests of purpose `continue` and `retry`
    fault: Fault | None = None
    origin: Literal["model", "local"] = "model"
    prefix_changes: tuple[str, ...] = ()  # "request 3: tools": it does not begin as the one before (PREFIX_EXCEPTIONS)
