"""Frames: one wire-neutral piece of a response in flight. A decoder emits them, the assembler makes a `Response` of them,
an encoder writes them as a stream.

Pieces that belong to one part share a `block`. Families whose wire names its blocks (Anthropic's `index`, Responses'
`output_index`) use that name, so nothing has to be guessed. Chat Completions has none: text, reasoning and refusal use
the block of their kind, and a `ToolCallDelta` with `block=None` is for the assembler to place (by index, id, name).
A non-streamed body is decoded into the same frames (mostly `PartDone`), so a body and a stream cannot disagree.
"""

import msgspec

from turnwise.vocab.parts import Citation, Opaque, Part
from turnwise.vocab.reasons import Fault, FinishReason, Repair
from turnwise.vocab.usage import Usage


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
