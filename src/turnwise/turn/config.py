"""What a turn is given when it starts, and what it gives back when it ends: plain data, kept in the journal."""

from decimal import Decimal
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.rules.budget import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.history import NOTHING_STALE, StaleThinking
from turnwise.rules.limits import Limit, Spent
from turnwise.rules.permissions import Policy
from turnwise.rules.pricing import PriceRow
from turnwise.rules.recovery import Recover
from turnwise.rules.retries import NO_RETRY, RetryPolicy
from turnwise.turn.approvals import OneAsk
from turnwise.vocab import (
    NO_TRAITS,
    NO_USAGE,
    Cache,
    FamilyTraits,
    Fault,
    Message,
    OutputSchema,
    Repair,
    ServerLesson,
    Settings,
    StopReason,
    Text,
    ToolCall,
    ToolChoice,
    ToolSpec,
    Usage,
)

Effect = Literal["none", "read", "write", "execute"]
RoomPolicy = Literal["compact", "budget", "off"]
CallsInText = Literal["auto", "on", "off"]
HookPoint = Literal["before_tool", "after_tool", "before_request"]

# 8 cut research questions short (gitmost); 20 was the remedy there.
ALLOW_EFFECT = "add `{effect}` to the allowed effects"
MAX_STEPS = 20


class ToolOffer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How turnwise treats a tool.

    `client_side` tools have no implementation: their calls end the run as `waiting`.
    """

    spec: ToolSpec
    client_side: bool = False
    exclusive: bool = False  # never runs beside another call
    idempotent: bool = False  # running it twice does no harm
    repeatable: bool = False  # meant to be called again and again with the same answer
    effect: Effect = "none"
    timeout_s: float | None = None
    inspected: bool = False  # `safety["inspect"]` finds the paths and commands of its calls
    asks_user: bool = False  # its calls are questions to the person; the answer is the result
    child: bool = False  # its calls run agents of their own, on a share of the turn's limits
    child_usd: dict[
        str, Decimal
    ] = {}  # what a request of each agent costs at the least, by the name in its argument `agent`
    samples: int = 0  # so often may a call of it have the run's own model answer, on a share of the turn's limits
    script: bool = False  # its calls are programs that call the other tools; the argument `program` is the text


class Deadlines(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long turnwise waits, in seconds.

    - `connect_s`: for a connection.
    - `first_event_s`: for the first event of a response. None: the endpoint's own value (docs/providers.md).
    - `idle_s`: between two events of a stream; keep-alives do not count.
    - `left_open_s`: for the end mark of a response that is otherwise whole.
    - `total_s`: for one response, from its first event (without a stream: from the sending).
    - `tool_s`: for one tool call, if the tool has no `timeout_s`.
    - `child_s`: for a sub-agent's whole turn.
    - `child_idle_s`: for a sub-agent that shows no event. None: 300, or as long as one of its requests may take.
    - `ask_s`: for a person's answer. Afterwards the default applies.
    - `hook_s`: for one hook, if the hook has no `timeout_s`.
    """

    connect_s: float = 10.0
    first_event_s: float | None = None
    idle_s: float = 90.0
    left_open_s: float = 5.0  # a response of which only the end mark may be missing; idle_s ends it, too
    total_s: float = 900.0
    tool_s: float = 120.0
    child_s: float = 900.0  # a sub-agent's whole turn
    # a sub-agent that shows nothing, while it neither waits for an answer nor runs a tool. None: 300, or as long as one of its
    # requests may take (`idle_s_of` in running/children.py)
    child_idle_s: float | None = None
    ask_s: float = 300.0  # a person may be away from the desk; then the default stands
    hook_s: float = 10.0  # one hook that names no time of its own
    toolset_s: float = 30.0  # opening toolsets, and asking them for their tools: a server may have to start


class ScriptLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much one program of the model may use.

    - `cpu_s`: seconds of computing. `wall_s`: seconds in all, without the wait for a person's answer. `sleep_s`:
      seconds of sleep.
    - `memory_bytes`: memory in bytes.
    - `calls`: tool calls.
    - `call_bytes`: bytes of one call's arguments, and of the text of its result. `exchanged_bytes`: bytes of all of
      them together.
    - `output_characters`, `program_characters`: length of the output and of the program.
    """

    cpu_s: float = 10.0
    wall_s: float = 900.0
    sleep_s: float = 120.0
    memory_bytes: int = 128 * 1024 * 1024
    calls: int = 200  # each is journalled, and may be asked about
    call_bytes: int = 4 * 1024 * 1024  # a large source file has a tenth
    exchanged_bytes: int = 32 * 1024 * 1024  # all of it is in memory for a moment, and in the journal
    output_characters: int = 64 * 1024  # as a tool's result; head and tail are kept
    program_characters: int = 64 * 1024


class Fallback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another model of the same endpoint, asked for the rest of the turn once the one before it has failed."""

    model: str
    limits: ModelLimits = UNKNOWN_LIMITS


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
    # whether the provider is asked to keep the prompt in its cache. Journals of before it could be asked know nothing of it, so
    # it is off where it is not said.
    cache: Cache = "off"
    cache_key: str = (
        ""  # of requests that begin alike, over turns and sub-agents; empty: a digest of tools and system text
    )
    output: OutputSchema | None = None
    max_output_corrections: int = 2
    checks_output: bool = False  # the type behind `output` may refuse what fits it: ask for OutputChecked
    settings: Settings = Settings()
    extra: str = ""  # further body fields, JSON object as text
    stream: bool = True
    max_steps: int = MAX_STEPS
    limits: Limit | None = None  # beside `max_steps`
    # of the whole tree: its sub-agents, theirs included, and the requests that they make together. Not bounded where it is not
    # said: journals of before know nothing of it.
    max_subagents: int | None = None
    max_subagent_requests: int | None = None
    prices: dict[str, PriceRow] = {}  # by model, those that a limit of cost needs; empty without one
    allowed: tuple[Effect, ...] = ("none", "read", "write", "execute")
    # how a person allows what was denied, in the words of the face at hand; `{tool}`, `{effect}` and `{options}` are filled in,
    # these being the command line's that would allow it. A part in brackets with `{options}` is left out where none would
    allow_hint: str = ALLOW_EFFECT
    # what is done about a response that the output limit cut. `continue`: the model continues from the cut; `split`: a cut call
    # is not, the model is told to write smaller pieces; `off`: no request of its own is made for it. Journals of before it
    # could be chosen know nothing of it, so it is off where it is not said.
    recover: Recover = "off"
    # whether the rules are asked about a cut call before more of it is bought. Journals of before know nothing of it
    judges_cut: bool = False
    # whether a call that the model wrote into its text counts. `auto`: at an endpoint that may leave it there, if its syntax is
    # marked; `on`: at any, and also where the whole answer is a fence or an object; `off`: never. Journals of before do not say
    # that an endpoint leaves any, so it is off in them.
    calls_in_text: CallsInText = "auto"
    leaves_calls_in_text: bool = False  # whether the endpoint may
    model_limits: ModelLimits = UNKNOWN_LIMITS
    stale_thinking: StaleThinking = NOTHING_STALE  # what the session has learned of thinking that its model refuses
    lessons: dict[str, tuple[ServerLesson, ...]] = {}  # what refusals have taught, by `lessons_key`
    # what is done so that the prompt and its answer fit the model. `budget`: each request asks for as much output as there is
    # room for; `compact`: and what is old gives way before there is too little. Off where it is not said, as `recover`.
    room: RoomPolicy = "off"
    # how often a request that failed is sent again. Once only where it is not said, as `recover`.
    retry: RetryPolicy = NO_RETRY
    fallbacks: tuple[Fallback, ...] = ()  # in order
    # permission rules, in order; None: `allowed` alone decides
    policy: Policy | None = None
    hooks: tuple[HookPoint, ...] = ()  # where the user gave some
    prepares_steps: bool = False  # the user gave a `prepare_step`: ask for StepPrepared before each step
    deadlines: Deadlines = Deadlines()
    script_limits: ScriptLimits = ScriptLimits()
    # facts of the endpoint's profile that rules need
    family: str = "openai_chat"
    profile: str = "openai_chat"
    # what the family takes and says; in journals of before it is looked up by name (`decode_record`)
    traits: FamilyTraits = NO_TRAITS
    accepts_prefill: bool = False
    default_max_tokens: int | None = None  # goes out where the settings name none
    tool_choice_none: Literal["send", "drop_tools"] = "send"
    # its instructions go as the first item of the input; in journals of before, and what goes on from them, they do not
    system_in_input: bool = False
    appends_tools: bool = False  # a session's new tools go behind its messages; not in journals of before
    shows_thinking: bool = False  # its requests ask for readable thinking; a session that began without goes on so
    marks_cache: bool = False  # Anthropic's cache: what is kept of the messages rests on tool choice and thinking, too
    # where the user sent the turn, for whoever goes on with the session; never the key itself, and no query (it may hold one)
    base_url: str = ""  # empty: the profile's own; it ends with "?" where a query was left out
    api_key_env: str = ""  # the variable's name

    def with_limits(self, limits: ModelLimits) -> "TurnConfig":
        """The same where nothing is new."""
        same = limits is self.model_limits or limits == self.model_limits
        return self if same else replace(self, model_limits=limits)

    def without_stale(self, stale: StaleThinking) -> "TurnConfig":
        return replace(self, stale_thinking=stale)

    def with_thinking_shown(self, shown: bool) -> "TurnConfig":
        return self if shown == self.shows_thinking else replace(self, shows_thinking=shown)

    def with_system(self, system: tuple[Text, ...]) -> "TurnConfig":
        return self if self.system == system else replace(self, system=system)

    def lessons_key(self, model: str) -> str:
        """The server and model that refused something."""
        return f"{self.profile} {self.base_url} {model}"

    def with_lessons(self, lessons: dict[str, tuple[ServerLesson, ...]]) -> "TurnConfig":
        return replace(self, lessons={**lessons, **self.lessons})

    def taught(self, model: str, *, lesson: ServerLesson) -> "TurnConfig":
        key = self.lessons_key(model)
        return replace(self, lessons={**self.lessons, key: (*self.lessons.get(key, ()), lesson)})

    def with_system_in_input(self, leads: bool) -> "TurnConfig":
        return replace(self, system_in_input=leads)

    def priced(self, model: str, *, row: PriceRow) -> "TurnConfig":
        return replace(self, prices={**self.prices, model: row})

    def under(self, policy: Policy) -> "TurnConfig":
        """With what a person's answers have added to the rules."""
        return replace(self, policy=policy)

    def with_tools(self, tools: tuple[ToolOffer, ...]) -> "TurnConfig":
        return self if self.tools == tools else replace(self, tools=tools)

    def fallen_back(self) -> "TurnConfig":
        """With the first of the fallbacks in the model's place."""
        fallback, *rest = self.fallbacks
        return replace(self, model=fallback.model, model_limits=fallback.limits, fallbacks=tuple(rest))


class ChildReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a sub-agent spent, with the sub-agents below it, and how it ended.

    - `requests`, `usage` (tokens) and `subagents` count all of them.
    - `charged_usd` is what counts towards limits of cost, in US dollars. For a request of unknown price, this is turnwise's
      estimate. None: not known.
    - `also_spent` is what the other limits count.
    - `unknown` are calls whose outcome is unknown, because a process died while they ran.
    """

    call_id: str
    session_id: str
    stop_reason: StopReason | None  # None: it did not come to an end
    requests: int = 0
    usage: Usage = NO_USAGE
    charged_usd: Decimal | None = None
    subagents: int = 0
    also_spent: Spent = Spent()
    unknown: tuple[str, ...] = ()


class TurnResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the turn ended. `text` is never empty unless `stop_reason` is `waiting` (or a refusal's text stands in it).
    `origin` says who wrote the text: the model, or we ourselves from the results at hand. `charged_usd` is what its own
    requests count towards limits of cost; None where there are none. `also_spent` is what else a limit counts, of sub-agents
    too."""

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
    pending: tuple[ToolCall, ...] = ()  # calls that wait: for results of client-side tools, or for an approval (`asks`)
    asks: tuple[OneAsk, ...] = ()  # those that were left for later
    unread: tuple[Message, ...] = ()  # words in mid-turn that came too late to be taken up
    children: tuple[ChildReport, ...] = ()
    charged_usd: Decimal | None = None
    also_spent: Spent = Spent()
    recovery_usage: Usage = NO_USAGE  # the part of `usage` that went into requests of purpose `continue` and `retry`
    fault: Fault | None = None
    origin: Literal["model", "local"] = "model"
    why_incomplete: str = ""  # in words; empty for a complete answer
    # "request 3: tools": it does not begin as the one before (PREFIX_EXCEPTIONS); ": 4,120 tokens read anew" behind it is what
    # that cost, where the provider told
    prefix_changes: tuple[str, ...] = ()
    requests_by_purpose: dict[str, int] = {}  # of `requests`: {"step": 12, "compact": 2}
    # what the next turn goes on from, where room was made in this one: with summaries and shortened results. None where it
    # was not: then it is all that was said
    history: tuple[Message, ...] | None = None
