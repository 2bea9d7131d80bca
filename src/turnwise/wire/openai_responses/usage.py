"""Usage of the Responses API <-> `Usage`."""

import msgspec

from turnwise.vocab import Usage
from turnwise.wire.json_fields import Fields
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
    if usage.provider and b'"input_tokens"' in usage.provider.encode():
        return msgspec.Raw(usage.provider.encode())
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
