"""`usageMetadata` <-> `Usage`.

Gemini counts thoughts apart from the candidates' tokens and the results of server-side tools apart from the prompt; the
cached part is inside the prompt (source: API reference, `UsageMetadata`).
"""

import msgspec

from turnwise.vocab import Usage
from turnwise.wire.gemini.fields import compact
from turnwise.wire.json_fields import UNREADABLE, text_of_raw


class UsageMetadata(msgspec.Struct, rename="camel", gc=False):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None
    cached_content_token_count: int | None = None


_decoder = msgspec.json.Decoder(UsageMetadata, strict=False)


def decode_usage(raw: bytes | msgspec.Raw) -> Usage | None:
    """None where the object counts nothing (Vertex sends `{"trafficType":...}` alone in all chunks but the last)."""
    try:
        counted = _decoder.decode(raw)
        provider = text_of_raw(compact(raw))
    except UNREADABLE:
        return None
    thoughts = counted.thoughts_token_count or 0
    if counted.prompt_token_count is None and counted.candidates_token_count is None and not thoughts:
        return None
    return Usage(
        input_tokens=(counted.prompt_token_count or 0) + (counted.tool_use_prompt_token_count or 0),
        output_tokens=(counted.candidates_token_count or 0) + thoughts,
        reasoning_tokens=thoughts,
        cache_read_tokens=counted.cached_content_token_count or 0,
        provider=provider,
    )


def encode_usage(usage: Usage) -> bytes:
    """Gemini's own object where the usage came from one, else one made of our counts."""
    if usage.provider:
        own = decode_usage(usage.provider.encode())
        if own == usage:
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
