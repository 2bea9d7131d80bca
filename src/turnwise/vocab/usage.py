"""Tokens of requests, counted by one definition whatever the provider's own bookkeeping is."""

from typing import Literal

import msgspec

Untold = Literal[
    "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "searches"
]


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one request, or of several summed.

    - `input_tokens` is the whole prompt; `cache_read_tokens` and `cache_write_tokens` are parts of it.
    - `output_tokens` is everything that was generated; `reasoning_tokens` is a part of it.
    - `provider` is the provider's own usage object as JSON text. It is empty on sums.
    - `untold` names the counts that the provider did not report. Such a count is unknown, not zero: the true number is at
      least the number that stands here. `searches` means that the provider searched and did not count its searches. It is
      empty on sums.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    provider: str = ""
    untold: tuple[Untold, ...] = ()

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
        )


NO_USAGE = Usage()


def with_untold(usage: Usage, untold: tuple[Untold, ...]) -> Usage:
    """The usage with these counts untold, too."""
    more = tuple([name for name in untold if name not in usage.untold])
    return msgspec.structs.replace(usage, untold=(*usage.untold, *more)) if more else usage
