"""What a turn starts with, and what it returns when it ends: plain data, kept in the journal."""

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from turnwise.rules.history import NOTHING_STALE, StaleThinking
from turnwise.rules.limits import Limit, Spent
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, RememberedScope
from turnwise.rules.pricing import PriceRow
from turnwise.rules.prompt_room import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.recovery import Recover
from turnwise.rules.retries import NO_RETRY, RetryPolicy
from turnwise.vocab import (
    NO_TRAITS,
    NO_USAGE,
    Cache,
    FamilyTraits,
    Fault,
    HintedFields,
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
    pydantic_core_schema,
    pydantic_json_schema,
)

# What a person is asked before calls run, and the answers: plain data of commands, events and results.


class OneAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision that a person has to make.

    - `kind`: `approval` of a call, a `question`, or `steps`: whether the turn may take more steps than its limit
      (`Policy.more_steps`). `by` says whether the `model` asks the question or a running `tool`.
    - `call` is the call in question; `arguments` are its complete JSON text (or free-form text).
    - `subject`: for an approval, the path, command or tool that needs it; for a question, its text.
    - `why` gives the reason in a sentence. `options` are answers to offer.
    - `can_wait`: if False, an ask that is left for later is denied.
    - `digest` identifies everything that the person was shown.
    """

    call: ToolCall
    arguments: str
    subject: str
    kind: Literal["approval", "question", "steps"] = "approval"
    why: str = ""
    options: tuple[str, ...] = ()
    can_wait: bool = True
    digest: str = ""
    by: Literal["model", "tool"] = "model"


class AskOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an ask comes from: the turn, its step, the folder in which the calls would run, and the session.

    A turn keeps its id if another process continues it.
    """

    turn_id: str = ""
    step: int = 0
    folder: str = ""
    session_id: str = ""


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
    """The answer to one ask.

    - `call_id` is the id of the ask's call.
    - `verdict`: `allow`, `deny`, or `later`. `later` leaves the call pending, and the run ends as `waiting`.
    - `text` is the answer to a question, or what the model is told with a denial.
    - `always`: until the turn ends, do not ask again about the same path, command or tool. (The command line keeps such an
      answer for the session.) `scope` widens it: `prefix` is for commands that begin like this one, `edits` for all changes of
      files in the workspace.
    - `arguments`: the person has changed the call. With these arguments it is judged again, and asked about if need be.
    - `digest` is `OneAsk.digest`: the approval allows only what this ask has shown. Without it, the approval is for the ask
      that the approver got, or for the ask in the result that ended as `waiting`.
    - `subject`, if you set it, must equal the subject of the ask; otherwise the approval does not count.
    - `by` says who answered. `failed`: the approver raised or gave an invalid answer, and `text` says what happened.
    """

    call_id: str
    verdict: Literal["allow", "deny", "later"]
    by: Literal["person", "default", "program", "failed"] = "person"
    text: str = ""
    always: bool = False
    scope: RememberedScope = "call"
    arguments: str | None = None
    subject: str = ""
    digest: str = ""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return pydantic_core_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: object, handler: object) -> dict[str, Any]:
        return pydantic_json_schema(cls)


# The digest of an approval for a call that no paused result listed: it matches nothing.
NOT_LISTED = "not listed"
MARK_LENGTH = 12  # hexadecimal digits; finding a call with the same mark takes 2^48 tries
_WEIGHT = {"allow": 0, "later": 1, "deny": 2}


def digest_of(tool: str, *, arguments: str, facts: CallFacts) -> str:
    """Identifies a call as a person sees it: its tool, its arguments, what it touches and what it would change. Equal in every
    process; the call's id is not part of it."""
    shown = (tool, arguments, msgspec.structs.replace(facts, call_id="", mode="ask"))
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()


def mark_of(asks: Iterable[OneAsk]) -> str:
    """A short name for everything that these asks show. A person who allows them by a command uses it to say what was seen."""
    shown = sorted([(one.digest, one.call.name, one.arguments) for one in asks])
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:MARK_LENGTH]


def settled(approvals: Iterable[Approval]) -> dict[str, Approval]:
    """One answer for each call, by its id. If answers contradict each other, a denial wins, then `later`. Any answer replaces a
    default. Of equal answers the first counts."""
    found: dict[str, Approval] = {}
    for one in approvals:
        other = found.get(one.call_id)
        if other is None or _weight(one) > _weight(other):
            found[one.call_id] = one
    return found


def holds(approval: Approval, *, ask: OneAsk) -> bool:
    """Whether the answer belongs to what the ask shows. A refusal always does. Answers in older journals have no digest."""
    if approval.verdict != "allow":
        return True
    return approval.digest in ("", ask.digest) and approval.subject in ("", ask.subject)


def listed(approvals: Iterable[Approval], *, digests: dict[str, str]) -> tuple[Approval, ...]:
    """The approvals, each bound to what was shown: to its own digest, or to the digest that is listed for its call."""
    return tuple(
        [
            one if one.digest else msgspec.structs.replace(one, digest=digests.get(one.call_id) or NOT_LISTED)
            for one in approvals
        ]
    )


def _weight(approval: Approval) -> tuple[bool, int]:
    return approval.by != "default", _WEIGHT[approval.verdict]


# What the resuming caller of a left turn adds to the records, also for the turn's sub-agents.
class ResumeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """`answers` are for asks that were open. The other asks wait `ask_s` seconds (None: the rest of their time). `rules` come
    after those of the turn."""

    answers: tuple[Approval, ...] = ()
    ask_s: float | None = None
    rules: tuple[PermissionRule, ...] = ()

    def answer_to(self, ask: OneAsk) -> Approval | None:
        """The first answer that belongs to what the ask shows."""
        return next((one for one in self.answers if one.call_id == ask.call.id and holds(one, ask=ask)), None)


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
    ] = {}  # the least that a request of each agent costs, by the name in its argument `agent`
    samples: int = 0  # how often a call of it may ask the run's own model, on a share of the turn's limits
    script: bool = False  # its calls are programs that call the other tools; the argument `program` is the text


class Deadlines(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
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
    left_open_s: float = 5.0  # a response that may lack only its end mark; idle_s ends it, too
    total_s: float = 900.0
    tool_s: float = 120.0
    child_s: float = 900.0  # a sub-agent's whole turn
    # a sub-agent that shows nothing, while it neither waits for an answer nor runs a tool. None: 300, or as long as one of its
    # requests may take (`idle_s_of` in running/children.py)
    child_idle_s: float | None = None
    ask_s: float = 300.0  # a person may be away from the desk; then the default applies
    hook_s: float = 10.0  # one hook without a time of its own
    toolset_s: float = 30.0  # opening toolsets, and asking them for their tools: a server may have to start


ToolErrors = Literal["told", "raise"]


class ScriptLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
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
    calls: int = 200  # each is journalled, and a person may be asked about it
    call_bytes: int = 4 * 1024 * 1024  # ten times a large source file
    exchanged_bytes: int = 32 * 1024 * 1024  # all of it is in memory for a moment, and in the journal
    output_characters: int = 64 * 1024  # as a tool's result; head and tail are kept
    program_characters: int = 64 * 1024


class Fallback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Another model of the same endpoint, which takes over for the rest of the turn after the one before it has failed."""

    model: str
    limits: ModelLimits = UNKNOWN_LIMITS


class TurnConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decides how the turn runs, apart from events. `allowed` are the effects that may run without asking. A call
    of another effect gets a result that says it was denied, and how to allow it."""

    session_id: str
    turn_id: str
    model: str
    system: tuple[Text, ...] = ()
    tools: tuple[ToolOffer, ...] = ()
    tool_choice: ToolChoice = "auto"  # `required` and a named tool hold until a tool has been called
    parallel_tool_calls: bool | None = None
    # whether the provider is asked to keep the prompt in its cache. Older journals do not have this field, so the default is off.
    cache: Cache = "off"
    cache_key: str = (
        ""  # for requests that begin alike, over turns and sub-agents; empty: a digest of tools and system text
    )
    output: OutputSchema | None = None
    max_output_corrections: int = 2
    checks_output: bool = False  # the type behind `output` may refuse an answer that fits it: ask for OutputChecked
    settings: Settings = Settings()
    extra: str = ""  # further body fields, JSON object as text
    stream: bool = True
    max_steps: int = MAX_STEPS
    limits: Limit | None = None  # beside `max_steps`
    # bounds on the whole tree: on all sub-agents, at every depth, and on the requests that they make together. No bound by
    # default: older journals do not have this field.
    max_subagents: int | None = None
    max_subagent_requests: int | None = None
    prices: dict[str, PriceRow] = {}  # by model, the prices that a limit of cost needs; empty without such a limit
    allowed: tuple[Effect, ...] = ("none", "read", "write", "execute")
    # how a person allows what was denied, in the words of the current face. `{tool}`, `{effect}` and `{options}` are filled in;
    # `{options}` are options of the command line that would allow it. A part in brackets with `{options}` is left out if no
    # option would
    allow_hint: str = ALLOW_EFFECT
    # what happens after the output limit cuts a response. `continue`: the model continues from the cut; `split`: a cut call is
    # not continued, and the model is told to write smaller pieces; `off`: no further request is made for it. Older journals do
    # not have this field, so the default is off.
    recover: Recover = "off"
    # whether the rules judge a cut call before turnwise pays for more of it. Older journals do not have this field
    judges_cut: bool = False
    # whether a call that the model wrote into its text counts. `auto`: at an endpoint that may leave calls there, if their syntax
    # is marked; `on`: at any endpoint, also if the whole answer is a fence or an object; `off`: never. Older journals do not say
    # that an endpoint leaves calls there, so it is off in them.
    calls_in_text: CallsInText = "auto"
    leaves_calls_in_text: bool = False  # whether the endpoint may do so
    model_limits: ModelLimits = UNKNOWN_LIMITS
    stale_thinking: StaleThinking = NOTHING_STALE  # what the session has learned about thinking that its model refuses
    lessons: dict[str, tuple[ServerLesson, ...]] = {}  # what refusals have taught, by `lessons_key`
    # how the prompt and its answer are made to fit the model. `budget`: each request asks for as much output as there is room
    # for; `compact`: also, old content gives way before there is too little room. Off by default, like `recover`.
    room: RoomPolicy = "off"
    # how often a failed request is sent again. Once by default, like `recover`.
    retry: RetryPolicy = NO_RETRY
    fallbacks: tuple[Fallback, ...] = ()  # in order
    # permission rules, in order; None: `allowed` alone decides
    policy: Policy | None = None
    hooks: tuple[HookPoint, ...] = ()  # the points at which the user has hooks
    # whether an exception of a tool is told to the model by its class, or ends the turn
    tool_errors: ToolErrors = "told"
    prepares_steps: bool = False  # the user gave a `prepare_step`: ask for StepPrepared before each step
    deadlines: Deadlines = Deadlines()
    script_limits: ScriptLimits = ScriptLimits()
    # facts of the endpoint's profile that rules need
    family: str = "openai_chat"
    profile: str = "openai_chat"
    # what the family takes and says; in journals of before it is looked up by name (`decode_record`)
    traits: FamilyTraits = NO_TRAITS
    accepts_prefill: bool = False
    default_max_tokens: int | None = None  # sent if the settings name none
    tool_choice_none: Literal["send", "drop_tools"] = "send"
    # its instructions are sent as the first item of the input; not so in older journals and in sessions that continue them
    system_in_input: bool = False
    appends_tools: bool = False  # a session's new tools come after its messages; not in older journals
    shows_thinking: bool = (
        False  # its requests ask for readable thinking; a session that began without it stays without it
    )
    marks_cache: bool = False  # Anthropic's cache: whether messages stay in it depends on tool choice and thinking, too
    # where the user sent the turn, so that a later run can continue the session; never the key itself, and no query (it may hold
    # a key)
    base_url: str = ""  # empty: the profile's own; it ends with "?" if a query was left out
    api_key_env: str = ""  # the variable's name

    def with_limits(self, limits: ModelLimits) -> "TurnConfig":
        """The configuration with these limits; the same object if they are not new."""
        same = limits is self.model_limits or limits == self.model_limits
        return self if same else replace(self, model_limits=limits)

    def without_stale(self, stale: StaleThinking) -> "TurnConfig":
        return replace(self, stale_thinking=stale)

    def with_thinking_shown(self, shown: bool) -> "TurnConfig":
        return self if shown == self.shows_thinking else replace(self, shows_thinking=shown)

    def with_system(self, system: tuple[Text, ...]) -> "TurnConfig":
        return self if self.system == system else replace(self, system=system)

    def lessons_key(self, model: str) -> str:
        """The server and model that refused something, as a key."""
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

    def allowing(self, more: int) -> "TurnConfig":
        """With so many more steps."""
        return replace(self, max_steps=self.max_steps + more)

    def under(self, policy: Policy) -> "TurnConfig":
        """The configuration with the policy that a person's answers have extended."""
        return replace(self, policy=policy)

    def with_tools(self, tools: tuple[ToolOffer, ...]) -> "TurnConfig":
        return self if self.tools == tools else replace(self, tools=tools)

    def fallen_back(self) -> "TurnConfig":
        """The configuration with the first fallback as its model."""
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
    """How the turn ended. `text` is never empty unless `stop_reason` is `waiting` (or the text is a refusal). `origin` says who
    wrote the text: the model, or turnwise from the results. `charged_usd` is what its own requests count towards limits of cost;
    None if there are no such limits. `also_spent` is what the other limits count, including sub-agents."""

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
    asks: tuple[OneAsk, ...] = ()  # asks that were left for later
    unread: tuple[Message, ...] = ()  # messages in mid-turn that came too late
    children: tuple[ChildReport, ...] = ()
    charged_usd: Decimal | None = None
    also_spent: Spent = Spent()
    recovery_usage: Usage = NO_USAGE  # the part of `usage` that went into requests of purpose `continue` and `retry`
    fault: Fault | None = None
    origin: Literal["model", "local"] = "model"
    why_incomplete: str = ""  # in words; empty for a complete answer
    # "request 3: tools": it begins differently from the request before (PREFIX_EXCEPTIONS). A further ": 4,120 tokens read anew"
    # says what that cost, if the provider told
    prefix_changes: tuple[str, ...] = ()
    requests_by_purpose: dict[str, int] = {}  # of `requests`: {"step": 12, "compact": 2}
    # what the next turn starts from, if this turn made room: it has summaries and shortened results. None if no room was made:
    # then it is everything that was said
    history: tuple[Message, ...] | None = None
