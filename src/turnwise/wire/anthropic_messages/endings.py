"""How a response of the Messages API ends: its words for that, and its usage <-> `Usage`. Its input leaves the cached tokens
out; ours includes them."""

from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from turnwise.vocab import BilledPart, Finished, FinishReason, Mended, Untold, Usage, with_untold
from turnwise.wire.endings import (
    APART,
    COUNT,
    LABEL,
    MAX_COUNT,
    OPENROUTER,
    PART,
    SUM,
    TERM,
    MergedUsage,
    TokenCount,
    finish_frames,
    finish_of_word,
    marked,
    read_counts,
    read_told,
    says_nothing,
    total_of,
    usage_table,
    with_missing,
    with_terms,
)

ITERATIONS = frozenset({"message", "compaction", "advisor_message", "fallback_message"})
"""The kinds of iterations that are known."""

USAGE = usage_table(
    {
        "input_tokens": COUNT,
        "output_tokens": COUNT,
        "cache_creation_input_tokens": COUNT,
        "cache_read_input_tokens": COUNT,
        "cache_creation.ephemeral_5m_input_tokens": COUNT,
        "cache_creation.ephemeral_1h_input_tokens": COUNT,
        "output_tokens_details.thinking_tokens": COUNT,
        "iterations.type": LABEL._replace(words=ITERATIONS),
        "iterations.model": LABEL,
        "iterations.input_tokens": PART,
        "iterations.output_tokens": PART,
        "iterations.cache_creation_input_tokens": PART,
        "iterations.cache_read_input_tokens": PART,
        "iterations.cache_creation.ephemeral_5m_input_tokens": PART,
        "iterations.cache_creation.ephemeral_1h_input_tokens": PART,
        "total_tokens": SUM,  # of gateways
        "service_tier": TERM,
        "speed": TERM,
        "inference_geo": TERM,
        "fallback_credit.status.type": TERM,
        "fallback_credit.status.reason": LABEL,
        "server_tool_use": APART,
        **OPENROUTER,
    }
)


class _Details(msgspec.Struct):
    thinking_tokens: TokenCount = None


class _Writes(msgspec.Struct):
    ephemeral_1h_input_tokens: TokenCount = None


class _Iteration(msgspec.Struct):
    type: str = ""
    model: str | None = None
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    cache_creation_input_tokens: TokenCount = None
    cache_read_input_tokens: TokenCount = None
    cache_creation: _Writes | None = None

    def part(self) -> BilledPart:
        read, write = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        hour = 0 if self.cache_creation is None else self.cache_creation.ephemeral_1h_input_tokens or 0
        return BilledPart(
            kind=self.type,
            model=self.model or "",
            input_tokens=total_of(self.input_tokens, read, write),
            output_tokens=self.output_tokens or 0,
            cache_read_tokens=read,
            cache_write_tokens=write,
            hour_write_tokens=min(hour, write),
        )


class _Counts(msgspec.Struct):
    input_tokens: TokenCount = None
    output_tokens: TokenCount = None
    cache_creation_input_tokens: TokenCount = None
    cache_read_input_tokens: TokenCount = None
    output_tokens_details: _Details | None = None
    iterations: list[_Iteration] | None = None


MISFITS: dict[str, tuple[Untold, ...]] = {
    "cache_creation_input_tokens": ("input_tokens", "cache_write_tokens"),
    "cache_read_input_tokens": ("input_tokens", "cache_read_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
    "iterations": ("input_tokens", "output_tokens"),  # their sum is the bill, and it cannot be read
}


class _Kept(msgspec.Struct):
    """What our counts have no word for: how long the cache is kept, what ran at the provider, and where it was served."""

    cache_creation: dict[str, int] | None = None
    server_tool_use: dict[str, int] | None = None
    service_tier: str | None = None
    inference_geo: str | None = None


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
        usage = with_terms(_usage_of(counts, self._merged.text), self._merged.text, table=USAGE)
        is_told = counts.output_tokens is not None and not self._is_estimate
        usage = marked(usage, is_output_told=is_told, misfits=misfits, counts=MISFITS)
        for iteration in counts.iterations or () if usage.parts else ():
            if iteration.input_tokens is None or iteration.output_tokens is None:
                usage = with_untold(usage, ("input_tokens", "output_tokens"))
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


def _usage_of(counts: _Counts, text: bytes) -> Usage:
    """The top level counts some of the iterations only (no summary, no advisor, of a fallback the last one): where there are
    iterations, their sum is what was used. Sources: anthropic 2.14, `BetaUsage.iterations`; recorded streams."""
    read, write = counts.cache_read_input_tokens or 0, counts.cache_creation_input_tokens or 0
    details = counts.output_tokens_details
    usage = Usage(
        input_tokens=total_of(counts.input_tokens, read, write),
        output_tokens=counts.output_tokens or 0,
        reasoning_tokens=(details.thinking_tokens or 0) if details is not None else 0,
        cache_read_tokens=read,
        cache_write_tokens=write,
        provider=str(text, "utf-8"),
    )
    parts = tuple([one.part() for one in counts.iterations or ()])
    whole = sum([part.counts for part in parts], Usage())
    is_all = len(parts) == 1 and not parts[0].model and parts[0].counts == _counts_alone(usage)
    if not whole.input_tokens or is_all:
        return usage
    return replace(
        usage,
        input_tokens=min(whole.input_tokens, MAX_COUNT),
        output_tokens=min(whole.output_tokens, MAX_COUNT),
        cache_read_tokens=min(whole.cache_read_tokens, MAX_COUNT),
        cache_write_tokens=min(whole.cache_write_tokens, MAX_COUNT),
        parts=parts,
    )


def _counts_alone(usage: Usage) -> Usage:
    return replace(usage, reasoning_tokens=0, provider="")


def _says_output(raw: msgspec.Raw) -> bool:
    """Whether a `message_delta` counts the output: a 0 of a gateway that counts nothing does not."""
    now = read_counts(raw, _counts)
    return now is not None and now.output_tokens is not None and (now.output_tokens > 0 or now.input_tokens != 0)


def write_usage(usage: Usage) -> bytes:
    """The API's own object from our counts, with each field that it has: its input leaves the cached tokens out. One with
    iterations keeps its fields: its top level says what fills the window, and the iterations what was billed."""
    plain = max(0, usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens)
    kept = (read_counts(usage.provider.encode(), _kept) if usage.provider else None) or _Kept()
    counts: dict[str, object] = {
        "input_tokens": plain,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": _filled(_WRITES, kept.cache_creation),
        "server_tool_use": _filled(_SERVER_TOOLS, kept.server_tool_use),
        "service_tier": kept.service_tier,
        "inference_geo": kept.inference_geo,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "output_tokens": usage.output_tokens,
    }
    if usage.parts and read_counts(text := usage.provider.encode(), _counts) is not None:
        return bytes(with_missing(msgspec.Raw(text), counts))
    return msgspec.json.encode(counts)


_WRITES = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
_SERVER_TOOLS = {"web_search_requests": 0, "web_fetch_requests": 0}


def _filled(zeros: dict[str, int], said: dict[str, int] | None) -> dict[str, int] | None:
    return None if said is None else {**zeros, **said}


# --- words
#
# Source: API reference, `stop_reason` of Message and BetaMessage (anthropic-python 2.12, types/stop_reason.py and
# types/beta/beta_stop_reason.py); "Handling stop reasons".


FINISH_REASONS = MappingProxyType(
    {
        "end_turn": FinishReason.STOP,
        "stop_sequence": FinishReason.STOP,
        "tool_use": FinishReason.TOOL_CALLS,
        "max_tokens": FinishReason.LENGTH,
        "model_context_window_exceeded": FinishReason.LENGTH,
        "refusal": FinishReason.REFUSAL,
        "pause_turn": FinishReason.PAUSE,
        "compaction": FinishReason.PAUSE,  # paused after compacting: send the content back and it goes on
    }
)

_WORDS = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.REFUSAL: "refusal",
    FinishReason.CONTENT_FILTER: "refusal",
    FinishReason.PAUSE: "pause_turn",
}


def read_finish(word: str | None, *, explanation: str | None = None) -> list[Mended | Finished]:
    """An unknown word is kept and told."""
    if word is None or says_nothing(word):
        return []
    reason = finish_of_word(word, own=FINISH_REASONS)
    return finish_frames(Finished(reason, provider_reason=word, explanation=explanation), own=FINISH_REASONS)


def stop_word(reason: FinishReason, provider_reason: str | None, *, limit_reached: bool = False) -> str | None:
    """The API's word; None for `error` and `cut`, for which it has none."""
    if limit_reached:
        return "max_tokens"
    if provider_reason is not None and FINISH_REASONS.get(provider_reason) == reason:
        return provider_reason
    return _WORDS.get(reason)
