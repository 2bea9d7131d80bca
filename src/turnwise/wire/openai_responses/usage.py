"""Usage of the Responses API <-> `Usage`."""

import msgspec

from turnwise.vocab import Untold, Usage
from turnwise.wire.counts import MergedUsage, TokenCount, marked, read_counts, read_told, says_same, with_terms


class InputDetails(msgspec.Struct):
    cached_tokens: TokenCount = None
    cache_write_tokens: TokenCount = None


class OutputDetails(msgspec.Struct):
    reasoning_tokens: TokenCount = None


class Counts(msgspec.Struct):
    input_tokens: TokenCount = None
    input_tokens_details: InputDetails | None = None
    output_tokens: TokenCount = None
    output_tokens_details: OutputDetails | None = None
    total_tokens: object = msgspec.UNSET


_counts = msgspec.json.Decoder(Counts, strict=False)
MISFITS: dict[str, tuple[Untold, ...]] = {
    "input_tokens_details": ("cache_read_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}
_NO_INPUT_DETAILS, _NO_OUTPUT_DETAILS = InputDetails(), OutputDetails()


class UsageReader:
    """Merges the usage objects of one response."""

    __slots__ = ("_merged",)

    def __init__(self) -> None:
        self._merged = MergedUsage()

    def read(self, raw: msgspec.Raw, *, tier: str = "") -> Usage | None:
        """The usage so far, or None if this object says nothing new."""
        return usage_of(self._merged.text, tier=tier) if self._merged.add(raw) else None


def usage_of(text: bytes, *, tier: str = "") -> Usage | None:
    """The API counts as we do: input includes cache reads and writes, output includes reasoning. `tier` is how the request was
    served, which the response says beside its usage."""
    counts, misfits = read_told(text, _counts)
    if counts is None:
        return None
    of_input = counts.input_tokens_details or _NO_INPUT_DETAILS
    of_output = counts.output_tokens_details or _NO_OUTPUT_DETAILS
    usage = Usage(
        input_tokens=counts.input_tokens or 0,
        output_tokens=counts.output_tokens or 0,
        reasoning_tokens=of_output.reasoning_tokens or 0,
        cache_read_tokens=of_input.cached_tokens or 0,
        cache_write_tokens=of_input.cache_write_tokens or 0,
        provider=str(text, "utf-8"),
    )
    usage = with_terms(usage, text, family="openai_responses", tier=tier)
    return marked(usage, is_output_told=counts.output_tokens is not None, misfits=misfits, counts=MISFITS)


def usage_object(usage: Usage) -> object:
    """The provider's own object where it is one of this API, else ours in its words."""
    text = usage.provider.encode()
    counts = read_counts(text, _counts)
    # Anthropic's object has fields of the same names with another meaning.
    if counts is not None and counts.total_tokens is not msgspec.UNSET and says_same(usage_of(text), usage):
        return msgspec.Raw(text)
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
