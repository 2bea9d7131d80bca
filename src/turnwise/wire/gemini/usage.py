"""`usageMetadata` <-> `Usage`.

Gemini counts thoughts apart from the candidates' tokens and the results of server-side tools apart from the prompt; the
cached part is inside the prompt (source: API reference, `UsageMetadata`).
"""

import msgspec

from turnwise.vocab import Untold, Usage, with_untold
from turnwise.wire.counts import (
    MAX_BYTES,
    MergedUsage,
    TokenCount,
    marked,
    read_counts,
    read_told,
    says_same,
    total_of,
    with_terms,
)
from turnwise.wire.json_fields import UNREADABLE, compact_text


class UsageMetadata(msgspec.Struct, rename="camel", gc=False):
    prompt_token_count: TokenCount = None
    candidates_token_count: TokenCount = None
    thoughts_token_count: TokenCount = None
    tool_use_prompt_token_count: TokenCount = None
    cached_content_token_count: TokenCount = None

    def says_something(self) -> bool:
        counted = self.prompt_token_count is not None or self.candidates_token_count is not None
        return counted or bool(self.thoughts_token_count)

    def takes_away_from(self, before: "UsageMetadata") -> bool:
        """Whether a count of `before` is zero here, or left out (ProtoJSON leaves zeros out)."""
        return bool(
            (not self.prompt_token_count and before.prompt_token_count)
            or (not self.candidates_token_count and before.candidates_token_count)
            or (not self.thoughts_token_count and before.thoughts_token_count)
            or (not self.tool_use_prompt_token_count and before.tool_use_prompt_token_count)
            or (not self.cached_content_token_count and before.cached_content_token_count)
        )


# What nobody told where no count stands under a key. ProtoJSON leaves zeros out, so a key that is not there is a zero.
MISFITS: dict[str, tuple[Untold, ...]] = {
    "candidatesTokenCount": ("output_tokens",),
    "thoughtsTokenCount": ("output_tokens", "reasoning_tokens"),
    "toolUsePromptTokenCount": ("input_tokens",),
    "cachedContentTokenCount": ("cache_read_tokens",),
}
_decoder = msgspec.json.Decoder(UsageMetadata, strict=False)


class UsageReader:
    """The usage of one response. Gemini repeats it in each chunk, so the last object counts, with what it takes away from the
    ones before."""

    __slots__ = ("_counts", "_has_searched", "_last", "_reported")

    def __init__(self) -> None:
        self._last = msgspec.Raw()
        self._counts: UsageMetadata | None = None
        self._reported = True
        self._has_searched = False

    def note_searches(self) -> None:
        """The response tells of searches, which no usage of Gemini counts."""
        if not self._has_searched:
            self._has_searched = True
            self._reported = self._counts is None

    def add(self, raw: msgspec.Raw) -> bool:
        """Take the object of one more chunk; returns whether it counts anything (Vertex sends `{"trafficType":...}` alone in
        all chunks but the last)."""
        if raw == self._last:
            return True
        counts, before = read_counts(raw, _decoder), self._counts
        if counts is None or not counts.says_something() or len(bytes(raw)) > MAX_BYTES:
            return False
        if before is not None and counts.takes_away_from(before):
            merged = MergedUsage()
            if not (merged.add(self._last) and merged.add(raw)):
                return False
            raw = msgspec.Raw(merged.text)
            counts = read_counts(raw, _decoder)
        self._last, self._counts, self._reported = raw, counts, False
        return True

    def report(self) -> Usage | None:
        """The usage so far; None where nothing was added since it was reported last."""
        if self._reported or self._counts is None:
            return None
        self._reported = True
        usage = _usage_of(self._counts, self._last)
        return with_untold(usage, ("searches",)) if usage is not None and self._has_searched else usage


def decode_usage(raw: bytes) -> Usage | None:
    """None where the object counts nothing."""
    counts = read_counts(raw, _decoder)
    return None if counts is None or not counts.says_something() else _usage_of(counts, raw)


def _usage_of(counts: UsageMetadata, raw: bytes | msgspec.Raw) -> Usage | None:
    try:
        provider = compact_text(raw)
    except UNREADABLE:
        return None
    thoughts = counts.thoughts_token_count or 0
    usage = Usage(
        input_tokens=total_of(counts.prompt_token_count, counts.tool_use_prompt_token_count),
        output_tokens=total_of(counts.candidates_token_count, thoughts),
        reasoning_tokens=thoughts,
        cache_read_tokens=counts.cached_content_token_count or 0,
        provider=provider,
    )
    usage = with_terms(usage, raw, family="gemini")
    misfits = read_told(raw, _decoder)[1]
    return marked(usage, is_output_told=True, misfits=misfits, counts=MISFITS)


def encode_usage(usage: Usage) -> bytes:
    """Gemini's own object where the usage came from one, else one made of our counts."""
    if usage.provider:
        own = decode_usage(usage.provider.encode())
        if says_same(own, usage):
            return usage.provider.encode()
    counts = {
        "promptTokenCount": usage.input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }
    optional = {"thoughtsTokenCount", "cachedContentTokenCount"}
    return msgspec.json.encode({key: count for key, count in counts.items() if count or key not in optional})
