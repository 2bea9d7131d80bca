"""Usage of the Responses API <-> `Usage`."""

import msgspec

from turnwise.vocab import Usage
from turnwise.wire.json_fields import UNREADABLE, Fields, read_fields
from turnwise.wire.openai_responses.fields import count_at, object_at


def usage_of(fields: Fields, *, raw: msgspec.Raw) -> Usage:
    """The API counts as we do: input includes cache reads and writes, output includes reasoning."""
    read = object_at(fields, "input_tokens_details")
    return Usage(
        input_tokens=count_at(fields, "input_tokens") or 0,
        output_tokens=count_at(fields, "output_tokens") or 0,
        reasoning_tokens=count_at(object_at(fields, "output_tokens_details"), "reasoning_tokens") or 0,
        cache_read_tokens=count_at(read, "cached_tokens") or 0,
        cache_write_tokens=count_at(read, "cache_write_tokens") or 0,
        provider=bytes(raw).decode(),
    )


def usage_object(usage: Usage) -> object:
    """The provider's own object where it is one of this API, else ours in its words."""
    raw = msgspec.Raw(usage.provider.encode())
    try:
        own = read_fields(raw)
    except UNREADABLE:
        own = {}
    # Anthropic's object has fields of the same names with another meaning.
    if "total_tokens" in own and usage_of(own, raw=raw) == usage:
        return raw
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
