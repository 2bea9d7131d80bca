"""Usage of the Messages API <-> `Usage`. Its input leaves the cached tokens out; ours includes them."""

import msgspec

from turnwise.vocab import Untold, Usage, with_untold
from turnwise.wire.counts import MergedUsage, TokenCount, marked, read_counts, read_told, total_of


class _Details(msgspec.Struct):
    thinking_tokens: TokenCount = None


class _Counts(msgspec.Struct):
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    cache_creation_input_tokens: TokenCount = None
    cache_read_input_tokens: TokenCount = None
    output_tokens_details: _Details | None = None


MISFITS: dict[str, tuple[Untold, ...]] = {
    "cache_creation_input_tokens": ("input_tokens", "cache_write_tokens"),
    "cache_read_input_tokens": ("input_tokens", "cache_read_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}


class _Kept(msgspec.Struct):
    cache_creation: dict[str, int] | None = None


_counts = msgspec.json.Decoder(_Counts, strict=False)
_kept = msgspec.json.Decoder(_Kept, strict=False)


class UsageTally:
    """One response's usage, merged from `message_start` and every `message_delta`: later figures are cumulative and
    replace earlier ones; what a later event leaves out, nulls or counts as 0 stays.

    Two zeros are real. The output in `message_start` is an estimate, so a `message_delta` may lower it to 0, as a refusal does;
    an event that says 0 for the input too is of a gateway that counts nothing. And an event with another input counts another
    prompt, so its zeros of the cache are that prompt's (recorded: compaction by the API). Beside the same input they are
    unknown to a gateway.
    """

    __slots__ = ("_before", "_has_estimate", "_is_estimate", "_merged")

    def __init__(self) -> None:
        self._merged = MergedUsage()
        self._before: _Counts | None = None
        self._has_estimate = False
        self._is_estimate = False  # the output that stands is that of `message_start`

    def add(self, raw: msgspec.Raw, *, begins: bool = False) -> Usage | None:
        """The usage so far; None if `raw` says nothing readable, or nothing new. `begins`: it is that of `message_start`."""
        settles = self._is_estimate and not begins and _says_output(raw)
        self._make_room(raw)
        if not self._merged.add(raw) and not settles:
            return None
        counts, misfits = read_told(self._merged.text, _counts)
        if counts is None:
            return None
        self._is_estimate = begins or (self._is_estimate and not settles)
        self._has_estimate = self._before is None
        self._before = counts
        read, write = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
        details = counts.output_tokens_details
        usage = Usage(
            input_tokens=total_of(counts.input_tokens, read, write),
            output_tokens=counts.output_tokens or 0,
            reasoning_tokens=(details.thinking_tokens or 0) if details is not None else 0,
            cache_read_tokens=read,
            cache_write_tokens=write,
            provider=str(self._merged.text, "utf-8"),
        )
        is_told = counts.output_tokens is not None and not self._is_estimate
        usage = marked(usage, is_output_told=is_told, misfits=misfits, counts=MISFITS)
        return with_untold(usage, ("input_tokens",)) if counts.input_tokens is None else usage

    def _make_room(self, raw: msgspec.Raw) -> None:
        """Forget what real zeros in `raw` replace."""
        before = self._before
        now = read_counts(raw, _counts) if before is not None else None
        if before is None or now is None:
            return
        if self._has_estimate and now.output_tokens == 0 and now.input_tokens != 0:
            self._merged.drop(["output_tokens"])
        if now.input_tokens and before.input_tokens and now.input_tokens != before.input_tokens:
            if now.cache_read_input_tokens == 0:
                self._merged.drop(["cache_read_input_tokens"])
            if now.cache_creation_input_tokens == 0:
                self._merged.drop(["cache_creation_input_tokens", "cache_creation"])


def _says_output(raw: msgspec.Raw) -> bool:
    """Whether a `message_delta` counts the output: a 0 of a gateway that counts nothing does not."""
    now = read_counts(raw, _counts)
    return now is not None and now.output_tokens is not None and (now.output_tokens > 0 or now.input_tokens != 0)


def write_usage(usage: Usage) -> bytes:
    """The API's own object from our counts: its input leaves the cached tokens out."""
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    counts: dict[str, object] = {
        "input_tokens": plain,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "output_tokens": usage.output_tokens,
    }
    if usage.provider and (kept := read_counts(usage.provider.encode(), _kept)) and kept.cache_creation is not None:
        counts["cache_creation"] = kept.cache_creation  # how long it is kept
    if usage.reasoning_tokens:
        counts["output_tokens_details"] = {"thinking_tokens": usage.reasoning_tokens}
    return msgspec.json.encode(counts)
