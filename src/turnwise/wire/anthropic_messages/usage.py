"""Usage of the Messages API <-> `Usage`. Its input leaves the cached tokens out; ours includes them."""

import msgspec

from turnwise.vocab import Usage
from turnwise.wire.json_fields import UNREADABLE, Fields, read_fields, write_object


class _Details(msgspec.Struct):
    thinking_tokens: int | None = None


class _Counts(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _Details | None = None


_counts = msgspec.json.Decoder(_Counts, strict=False)


class UsageTally:
    """One response's usage, merged from `message_start` and every `message_delta`: later figures are cumulative and
    replace earlier ones; what a later event leaves out or nulls stays."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: Fields = {}

    def add(self, raw: msgspec.Raw) -> Usage | None:
        """The usage so far; None if `raw` says nothing readable."""
        try:
            fields = read_fields(raw)
            for key, value in fields.items():
                if bytes(value) != b"null" or key not in self._fields:
                    self._fields[key] = value.copy()
            text = write_object({key: bytes(value) for key, value in self._fields.items()})
            counts = _counts.decode(text)
        except UNREADABLE:
            return None
        if not fields:
            return None
        read, write = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
        details = counts.output_tokens_details
        return Usage(
            input_tokens=(counts.input_tokens or 0) + read + write,
            output_tokens=counts.output_tokens or 0,
            reasoning_tokens=(details.thinking_tokens or 0) if details is not None else 0,
            cache_read_tokens=read,
            cache_write_tokens=write,
            provider=str(text, "utf-8"),
        )


def write_usage(usage: Usage) -> bytes:
    """The API's own object from our counts: its input leaves the cached tokens out."""
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    counts: dict[str, int | dict[str, int]] = {
        "input_tokens": plain,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return msgspec.json.encode(counts)
