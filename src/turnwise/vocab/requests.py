"""What is asked of a provider, and what came back, in wire-neutral words."""

from typing import Literal

import msgspec

from turnwise.vocab.parts import Message, Opaque, Text
from turnwise.vocab.reasons import Fault, FinishReason, Repair
from turnwise.vocab.usage import Usage


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool as the model sees it. `parameters` is a JSON Schema (an object) as JSON text, so that equal tools give equal
    bytes in every request (promise step:prefix-stable). `free_form` tools take text instead of JSON."""

    name: str
    description: str = ""
    parameters: str = '{"type":"object","properties":{}}'
    strict: bool = False
    free_form: bool = False
    opaque: Opaque | None = None  # a family's own server-side tool, or fields of it


class NamedTool(msgspec.Struct, frozen=True, tag="named"):
    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool


class OutputSchema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer must be JSON that fits `schema` (JSON Schema as JSON text)."""

    schema: str
    name: str = "answer"
    strict: bool = True


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling and limits. None leaves the provider's default. `max_output_tokens` counts everything generated, reasoning
    included."""

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
    """The provider is asked to keep the prompt. `key` is the caller's own name for the requests that begin alike, in at most 64
    characters; empty: it is made of how the request begins. The last `passing` messages are for this request only, so nothing
    behind what stands before them is worth keeping. `shared_only`: nothing reads what is kept of this request's messages, so only
    tools and system text are worth it."""

    hour: bool = False
    key: str = ""
    passing: int = 0
    shared_only: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request to a model. `system` are the leading instructions, one text each; `extra` holds body fields of one
    family that have no word here (JSON object as text), merged over the encoded body. No `cache`: nothing is asked for."""

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


class Response(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One whole response. `message` is the assistant's, its calls in the order in which they began. `fault` is set where
    the stream itself reported an error; what had arrived before is kept. `may_hide_cut` are the ids of those `complete`
    calls that would count as cut, had the response ended by its output limit: written last, and handed out as an object,
    as free-form text, or without arguments, so that a cut would not show in them.

    `lost`: a piece did not arrive, and the provider did not say it again; the calls that it may belong to have the state
    `lost`, and the text is no complete answer. `is_closed`: it ended without a finish reason, but it has content, and every
    call and text in it has its own end on the wire.
    """

    message: Message
    finish: FinishReason
    provider_finish: str | None = None
    explanation: str | None = None  # the provider's own sentence about the finish (why it refused)
    usage: Usage | None = None  # None: the provider did not say
    id: str | None = None
    model: str | None = None
    repairs: tuple[Repair, ...] = ()
    fault: Fault | None = None
    may_hide_cut: tuple[str, ...] = ()
    lost: bool = False
    is_closed: bool = False
