"""Tokens of requests, counted by one definition whatever the provider's own bookkeeping is."""

import msgspec


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one request, or of several summed.

    `input_tokens` is the whole prompt, cache reads and writes included; `output_tokens` is everything generated,
    reasoning included. The other three are parts of those two, told apart. `provider` is the provider's own usage object
    as JSON text (empty on sums).
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    provider: str = ""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


NO_USAGE = Usage()
