"""What is asked of a provider, and what came back, in wire-neutral words."""

from typing import Literal

import msgspec

from turnwise.vocab.frames import Fault, FinishReason, Repair, Usage
from turnwise.vocab.parts import Message, Opaque, Text


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


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling and output limits. None leaves the provider's default.

    - `max_output_tokens` counts everything that is generated, reasoning included.
    - `stop` are texts that end the response.
    - `reasoning_effort` is a word; `reasoning_tokens` is a budget, if the API family accepts one.
    """

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
