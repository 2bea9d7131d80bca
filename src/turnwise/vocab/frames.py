"""Frames: one wire-neutral piece of a response in flight. A decoder emits them, the assembler makes a `Response` of them,
an encoder writes them as a stream.

Pieces that belong to one part share a `block`. Families whose wire names its blocks (Anthropic's `index`, Responses'
`output_index`) use that name, so nothing has to be guessed. Chat Completions has none: text, reasoning and refusal use
the block of their kind, and a `ToolCallDelta` with `block=None` is for the assembler to place (by index, id, name).
A non-streamed body is decoded into the same frames (mostly `PartDone`), so a body and a stream cannot disagree.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Literal

import msgspec

from turnwise.vocab.parts import Citation, HintedFields, Message, Opaque, Part, Text

# Why a response ended, why a turn ended, and what went wrong: closed sets of words.


class FinishReason(StrEnum):
    """Why a response ended. Every provider's own word maps to one of these (docs/finish-reasons.md)."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"  # the provider wants its content back to go on
    ERROR = "error"
    CUT = "cut"  # the stream ended without saying why


class StopReason(StrEnum):
    """Why a run ended. `answered` is the ordinary end; the table in docs/outcomes.md explains the others."""

    ANSWERED = "answered"
    STEP_LIMIT = "step_limit"
    BUDGET = "budget"
    TIME_LIMIT = "time_limit"
    LOOP = "loop"
    WAITING = "waiting"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    PROVIDER_FAILED = "provider_failed"
    JOURNAL_FAILED = "journal_failed"
    GIVEN_UP = "given_up"  # its process died again and again
    TOOL_FAILED = "tool_failed"  # a tool raised, and `tool_errors="raise"` ends the run with its exception


class FaultKind(StrEnum):
    """What kind of failure it was. The retry rules decide by it."""

    UNREACHABLE = "unreachable"  # no connection: name, route, TLS, refused
    TIMEOUT = "timeout"  # one of turnwise's deadlines passed: connect, first event or idle
    DISCONNECTED = "disconnected"  # the connection broke before the response was whole
    AUTH = "auth"  # 401, 403: key missing, wrong or without rights
    NOT_FOUND = "not_found"  # 404: model or path unknown there
    BAD_REQUEST = "bad_request"  # 400, 422 and other 4xx: the request is at fault
    CONTEXT_OVERFLOW = "context_overflow"  # the prompt does not fit the model's window
    RATE_LIMITED = "rate_limited"  # 429
    QUOTA = "quota"  # paid quota used up; waiting does not help
    OVERLOADED = "overloaded"  # 503, 529
    SERVER = "server"  # other 5xx, an error object without a better word
    PROTOCOL = "protocol"  # what arrived is not this family's format
    TOO_LARGE = "too_large"  # larger than turnwise's byte limits


BindingFault = Literal["", "stale", "not_taken"]
"""What a refusal says about thinking that is bound to what stood before it. `stale`: something before it has changed.
`not_taken`: the server does not know the request field that has stale thinking left out."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed request, as data.

    `message` is the provider's own text if there is one, without secrets. `retry_after_s` is the wait in seconds that
    the provider asks for.
    """

    kind: FaultKind
    message: str
    status: int | None = None  # HTTP status, None where none arrived
    code: str | None = None  # the provider's own error code or type
    retry_after_s: float | None = None  # seconds to wait, as the provider asks
    retry_at_s: float | None = (
        None  # the same as a date, seconds since 1970: who has a clock makes `retry_after_s` of it
    )
    should_retry: bool | None = None  # what the provider says about a retry; it counts more than the kind
    request_id: str | None = None
    binding: BindingFault = ""  # a refusal of thinking that is bound to what stood before it
    valid_thinking: int | None = (
        None  # `stale`: so many thinking blocks of the request stand before the first stale one
    )


# The kinds of repair that the turn machine looks at; all others are for people.
ADAPTED = "adapted"  # a setting did not go to its model as it was set
CALL_NOT_MADE = "call_not_made"  # a call stood in the reasoning or in a refusal
CALL_NOT_READ = "call_not_read"  # the model made a call that its server could not read
NO_FINISH_REASON = "no_finish_reason"  # the API's own end mark came, but no finish reason

# Why a call that stood in the text is not run, as `ToolCall.reason` begins: it never arrived as a call.
WRITTEN_WRONGLY = "written into the text, and not as a call is written"
BESIDE_OWN_CALLS = "written into the text of a response that has calls of its own"


# Why a call counts as cut whose last piece began with all before it (`ToolCall.reason`). Nothing can be added to it.
TWO_READINGS = (
    "the last piece is a whole object that begins with all before it: it may be all of the arguments or a part"
)

# What stands for arguments past their limit while a response is decoded, and how `ToolCall.reason` begins then. No model writes
# U+FDD0, which is no character.
LONG_ARGUMENTS = '{"\ufdd0":"longer than a call may be"}'
TOO_LONG = "longer than a call may be"


class Repair(msgspec.Struct, frozen=True):
    """turnwise mended something in what it received.

    `kind` is a word from a closed list, `where` names the call or chunk, and `what` says what was done.
    """

    kind: str
    where: str
    what: str


# Tokens of requests, counted by one definition whatever the provider's own bookkeeping is.


Untold = Literal[
    "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "searches"
]


class BilledPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sampling of a request that did several, as its provider counted it. Counts as those of `Usage`.

    `kind` is the provider's own word (`message`, `compaction`, `advisor_message`, `fallback_message`). `model` did it; it is
    empty where that is the model that was asked. `hour_write_tokens` are the part of `cache_write_tokens` that is kept for an
    hour.
    """

    kind: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    hour_write_tokens: int = 0

    @property
    def counts(self) -> "Usage":
        """The part alone, as a request of its own would have it."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cache_read_tokens=self.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens,
        )


SEEN_BY_THE_MODEL = frozenset({"message", "fallback_message"})
"""The kinds of parts whose prompt is the conversation. Source: anthropic 2.14, `BetaUsage.iterations`."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one request, or of several summed.

    - `input_tokens` is the whole prompt; `cache_read_tokens` and `cache_write_tokens` are parts of it.
    - `output_tokens` is everything that was generated; `reasoning_tokens` is a part of it.
    - `provider` is the provider's own usage object as JSON text. It is empty on sums.
    - `untold` names the counts that the provider did not report. Such a count is unknown, not zero: the true number is at
      least the number that stands here. `searches` means that the provider searched and did not count its searches. It is
      empty on sums.
    - `parts` are the samplings of a request that did several (a summary, an advisor, a fallback); the counts above are their
      sums, and each part is billed by its own model. Empty for one sampling, and on sums.
    - `terms` say how the provider served it, in its own words: `service_tier=priority`, `speed=fast`. Empty on sums.
    - `unread` are fields of `provider` that turnwise does not know, and that hold a number or a word: each may be money. Empty
      on sums.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    provider: str = ""
    untold: tuple[Untold, ...] = ()
    parts: tuple[BilledPart, ...] = ()
    terms: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def last_sampling(self) -> "Usage":
        """The counts of the prompt that the model saw last and of its response to it: what fills the window."""
        if not self.parts:
            return self
        for part in reversed(self.parts):
            if part.kind in SEEN_BY_THE_MODEL:
                return part.counts
        return NO_USAGE

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


NO_USAGE = Usage()


def with_untold(usage: Usage, untold: tuple[Untold, ...]) -> Usage:
    """The usage with these counts untold, too."""
    more = tuple([name for name in untold if name not in usage.untold])
    return msgspec.structs.replace(usage, untold=(*usage.untold, *more)) if more else usage


class Started(msgspec.Struct, frozen=True, tag="started", omit_defaults=True):
    """A response begins. A second one discards what came before (a gateway fell back to another model)."""

    id: str | None = None
    model: str | None = None


class TextDelta(msgspec.Struct, frozen=True, tag="text_delta", omit_defaults=True, gc=False):
    """A piece of the answer's text, as it arrives. `block` tells texts of one response apart."""

    text: str
    block: str = "text"


class ReasoningDelta(msgspec.Struct, frozen=True, tag="reasoning_delta", omit_defaults=True, gc=False):
    """A piece of the model's reasoning, as it arrives."""

    text: str
    block: str = "reasoning"


class RefusalDelta(msgspec.Struct, frozen=True, tag="refusal_delta", omit_defaults=True, gc=False):
    text: str
    block: str = "refusal"


class ToolCallDelta(msgspec.Struct, frozen=True, tag="tool_call_delta", kw_only=True, omit_defaults=True, gc=False):
    """One fragment of a call, as it stood on the wire. None and "" are kept apart: the assembler judges them.

    `arguments` is the fragment's text; an object sent in place of a string arrives as its JSON text with
    `whole=True` (likewise families that hand out whole calls). `None` arguments mean that the fragment said nothing.
    """

    block: str | None = None  # None: the assembler finds the call
    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str | None = None
    whole: bool = False
    free_form: bool = False
    opaque: Opaque | None = None  # provider data of the call (Gemini's compatible endpoint: its thought signature)


class BlockData(msgspec.Struct, frozen=True, tag="block_data"):
    """Opaque provider data for the part in `block`; its keys are merged over what is there."""

    block: str
    opaque: Opaque


class CitationAdded(msgspec.Struct, frozen=True, tag="citation_added"):
    block: str
    citation: Citation


class PartDone(msgspec.Struct, frozen=True, tag="part_done"):
    """The provider's own final form of `block`: it replaces what the deltas made of it, or is the part itself where no
    deltas came (bodies, server-side items). A ToolCall in it has its final state set by the assembler."""

    block: str
    part: Part


class BlockEnded(msgspec.Struct, frozen=True, tag="block_ended"):
    """No more pieces will come for `block`."""

    block: str


class UsageReported(msgspec.Struct, frozen=True, tag="usage_reported"):
    """The usage so far: a later one replaces an earlier one. Decoders that get it in pieces merge before they emit."""

    usage: Usage


class Finished(msgspec.Struct, frozen=True, tag="finished", omit_defaults=True):
    """The provider said why the response ended. `provider_reason` is its own word (Responses: the status, with `:reason`
    where there is one). `limit_reached` is a second witness that the output limit cut it (OpenRouter's
    `native_finish_reason`) whatever the first word claims. `explanation` is the provider's own sentence about it
    (Anthropic's `stop_details.explanation`, Gemini's `finishMessage`): not the model's words, so it is no part.
    `stop_sequence` is the one with which the gateway ended the response."""

    reason: FinishReason
    provider_reason: str | None = None
    limit_reached: bool = False
    explanation: str | None = None
    stop_sequence: str | None = None


class Faulted(msgspec.Struct, frozen=True, tag="faulted"):
    """An error object inside the stream."""

    fault: Fault


class Mended(msgspec.Struct, frozen=True, tag="mended"):
    """The decoder had to heal something to read on (an undecodable chunk, a JSON glued to the next)."""

    repair: Repair


class Lost(msgspec.Struct, frozen=True, tag="lost", omit_defaults=True):
    """An event could not be read, or is missing, and may have been a piece of the response.

    Every block that has begun and has not ended may miss something, until a `PartDone` says the block again.
    `reaches_ended`: so may the blocks that have ended, because this wire may send pieces after a block's end
    (Chat Completions and Gemini). Promise assembly:lost-piece.
    """

    repair: Repair
    reaches_ended: bool = False


class Restated(msgspec.Struct, frozen=True, tag="restated"):
    """The provider has now said the whole response again, or listed all of its items: every block that came with a
    `PartDone` is whole, and no other block was lost."""


class CallForming(msgspec.Struct, frozen=True, tag="call_forming", gc=False):
    """The model is writing what may be a call into its text: so many `characters` are held back by now. Either the call's frames
    follow, or the text."""

    block: str
    characters: int


Frame = (
    Started
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallDelta
    | BlockData
    | CitationAdded
    | PartDone
    | BlockEnded
    | UsageReported
    | Finished
    | Faulted
    | Mended
    | Lost
    | Restated
    | CallForming
)


# What is asked of a provider, and what came back, in wire-neutral words.


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as the model sees it.

    Alone in `Agent(tools=[...])` it is a client-side tool: its calls end the run as `waiting`, and your program gives
    the results. `parameters` is a JSON Schema (an object) as JSON text, so that equal tools give equal bytes in every
    request. `strict` asks the provider to enforce the schema. A `free_form` tool takes text in place of JSON. `opaque`
    is for a provider's own server-side tool.
    """

    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{}}'
    strict: bool = False
    free_form: bool = False
    opaque: Opaque | None = None  # a family's own server-side tool, or fields of it


class NamedTool(msgspec.Struct, frozen=True, tag="named"):
    """As `tool_choice`: the model must call the tool of this name."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer must be JSON that fits `schema`, a JSON Schema as JSON text."""

    schema: str
    name: str = "answer"
    strict: bool = True


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
    """Sampling and output limits. None leaves the provider's default.

    - `max_output_tokens` counts everything that is generated, reasoning included.
    - `stop` are texts that end the response.
    - `reasoning_effort` is a word; `reasoning_tokens` is a budget, if the API family accepts one.
    """

    _elsewhere: ClassVar[Mapping[str, str]] = {
        "max_tokens": "max_output_tokens",
        "max_completion_tokens": "max_output_tokens",
        "stop_sequences": "stop",
        "thinking": "reasoning_effort",
        "reasoning": "reasoning_effort",
        "openai_reasoning_effort": "reasoning_effort",
    }

    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    seed: int | None = None
    reasoning_effort: Effort | None = None
    reasoning_tokens: int | None = None  # a budget, where the family takes one


Cache = Literal["auto", "1h", "off"]
"""Whether the provider is asked to keep the prompt in its cache: for as long as it usually does, for an hour (or longer, where
it knows no hour), or not at all. Where it keeps prompts unasked, it does so in any case."""


class Caching(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The provider is asked to keep the prompt in its cache. `key` is the caller's name for requests that begin alike, in at
    most 64 characters; if it is empty, turnwise makes one from the beginning of the request. The last `passing` messages are
    for this request only, so the cache should end before them. `shared_only`: no later request reads this request's
    messages, so only tools and system text should be kept."""

    hour: bool = False
    key: str = ""
    passing: int = 0
    shared_only: bool = False


ServerLesson = Literal[
    "system_first",
    "system_role",
    "between",
    "alternate",
    "reasoning_empty",
    "reasoning_blank",
    "content_there",
    "choice_auto",
    "choice_unforced",
    "max_completion_tokens",
    "no_stop",
    "nothing_behind",
]
"""What a refusal has taught about one server and model, beyond what its row of `profiles.toml` says."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request to a model.

    `system` are the leading instructions, one text each. `extra` are body fields of one API family (a JSON object as text);
    they are merged over the encoded body. Without `cache` the request does not ask for caching. `drops_stale_thinking`: the
    provider should leave out thinking that no longer fits what stands before it, and not refuse it (Claude 5.x).
    `system_in_input`: the instructions go as the first item of the input where the model keeps no others in its cache (GPT-6.2),
    and messages that tell of changed ones as instructions where the model takes them behind the user's words (Claude).
    `appended_tools`: names of those `tools` that messages tell of as new. They go in the place of these messages, not in front,
    where the model takes them there (GPT-6.2, Claude).
    `shows_thinking`: thinking comes back as readable text where the model puts what it says between calls into it (Claude 5.5).
    `lessons`: what this server has refused before; the request is written so that it takes it (Chat
    Completions, Claude).
    """

    model: str
    messages: tuple[Message, ...]
    system: tuple[Text, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool | None = None
    output: OutputSchema | None = None
    settings: Settings = Settings()
    stream: bool = True
    extra: Opaque | None = None
    cache: Caching | None = None
    drops_stale_thinking: bool = False
    system_in_input: bool = False
    appended_tools: tuple[str, ...] = ()
    shows_thinking: bool = False
    lessons: tuple[ServerLesson, ...] = ()


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One whole response of a model.

    - `message` is the assistant's, with its calls in the order in which they began.
    - `fault` is set if the stream itself reported an error. What had arrived before is kept.
    - `lost`: a piece of the response did not arrive. Calls to which the piece may belong have the state `lost`, and the text
      is not complete.
    - `is_closed`: the response ended without a finish reason, and is whole all the same: everything in it has its own end on
      the wire, or its endpoint ends every answer so.
    - `may_hide_cut` are ids of calls at the end of the response that are `complete`, but count as cut if the output limit
      ended the response. In an object, in free-form text and in a call without arguments a cut cannot be seen.
    """

    message: Message
    finish: FinishReason
    provider_finish: str | None = None
    explanation: str | None = None  # the provider's own sentence about the finish (why it refused)
    stop_sequence: str | None = None  # with which the gateway ended it
    usage: Usage | None = None  # None: the provider did not say
    id: str | None = None
    model: str | None = None
    repairs: tuple[Repair, ...] = ()
    fault: Fault | None = None
    may_hide_cut: tuple[str, ...] = ()
    lost: bool = False
    is_closed: bool = False


class FamilyTraits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The facts of one family. Each family's folder makes its own (`Family.traits`); a turn's configuration carries it, so that a
    turn is rebuilt by the facts that it began with. What is left out here: the API refuses nothing of the kind.
    """

    # what it takes of a history
    begins_with_user: bool = False  # refuses a history in which the assistant has the first word
    joins_neighbours: bool = False  # two messages of the assistant in a row go as one
    refuses_blank_text: bool = False
    refuses_trailing_reasoning: bool = False  # at the end of an assistant's message
    refuses_system_files: bool = False  # takes texts alone in a system message
    refused_in_ids: str = (
        ""  # pattern of a character that a call's id may not have; ids go back as they came without one
    )
    id_characters: int | None = None  # most of a call's id
    carried_in_ids: str = ""  # an id with this word carries what its server wants back: it stays whole
    wants_called_tools: bool = False  # refuses a history with calls in a request without tools
    plain_tools_behind: bool = (
        False  # takes no new tools behind messages that are the provider's own, or the first ones
    )

    # what it makes of a request
    pause_goes_back_last: bool = False  # a paused response is sent back as the last message
    caches_within_messages: bool = False  # a message that only became longer breaks no cached beginning
    adds_reasoning_budget: bool = False  # a budget for reasoning goes on top of the endpoint's own limit of output
    has_dialects: bool = False  # its servers differ in what they take of a conversation, and their refusals tell how
    may_refuse_behind: bool = False  # a refusal may be about tools or instructions among the messages

    # what it answers
    hands_out_objects: Literal["never", "bodies", "always"] = (
        "never"  # arguments as objects, so that a cut does not show
    )

    def gives_objects(self, *, streamed: bool) -> bool:
        """Whether arguments come as objects in this mode."""
        return self.hands_out_objects == "always" or (self.hands_out_objects == "bodies" and not streamed)


NO_TRAITS = FamilyTraits()
"""Of a family of which nothing is known: journals of before the turn's configuration carried traits have it."""
