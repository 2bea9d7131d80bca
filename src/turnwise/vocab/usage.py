"""Tokens of requests, counted by one definition whatever the provider's own bookkeeping is."""

from typing import Literal

import msgspec

Untold = Literal[
    "input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens", "searches"
]


class BilledPart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sampling of a request that did several, as its provider counted it. Counts as those of `Usage`.

    `kind` is the provider's own word (`message`, `compaction`, `advisor_message`, `fallback_message`). `model` did it; it is
    empty where that is the model that was asked. `hour_write_tokens` are the part of `cache_write_tokens` that is kept for an
    hour.
    """

    kind: str = ""
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    hour_write_tokens: int = 0

    @property
    def counts(self) -> "Usage":
        """The part alone, as a request of its own would have it."""
        return Usage(
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            cache_read_tokens=self.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens,
        )


SEEN_BY_THE_MODEL = frozenset({"message", "fallback_message"})
"""The kinds of parts whose prompt is the conversation. Source: anthropic 2.14, `BetaUsage.iterations`."""


class Usage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tokens of one request, or of several summed.

    - `input_tokens` is the whole prompt; `cache_read_tokens` and `cache_write_tokens` are parts of it.
    - `output_tokens` is everything that was generated; `reasoning_tokens` is a part of it.
    - `provider` is the provider's own usage object as JSON text. It is empty on sums.
    - `untold` names the counts that the provider did not report. Such a count is unknown, not zero: the true number is at
      least the number that stands here. `searches` means that the provider searched and did not count its searches. It is
      empty on sums.
    - `parts` are the samplings of a request that did several (a summary, an advisor, a fallback); the counts above are their
      sums, and each part is billed by its own model. Empty for one sampling, and on sums.
    - `terms` say how the provider served it, in its own words: `service_tier=priority`, `speed=fast`. Empty on sums.
    - `unread` are fields of `provider` that turnwise does not know, and that hold a number or a word: each may be money. Empty
      on sums.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    provider: str = ""
    untold: tuple[Untold, ...] = ()
    parts: tuple[BilledPart, ...] = ()
    terms: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def last_sampling(self) -> "Usage":
        """The counts of the prompt that the model saw last and of its response to it: what fills the window."""
        if not self.parts:
            return self
        for part in reversed(self.parts):
            if part.kind in SEEN_BY_THE_MODEL:
                return part.counts
        return NO_USAGE

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
