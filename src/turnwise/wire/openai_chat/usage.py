"""Token counts: the many shapes of Chat Completions usage -> our five, and back."""

from typing import Annotated

import msgspec

from turnwise.vocab import Usage
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.fields import is_object
from turnwise.wire.profiles import Profile

Count = Annotated[int, msgspec.Meta(ge=0)] | None


class PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: Count = None
    cache_write_tokens: Count = None


class OutputDetails(msgspec.Struct, gc=False):
    reasoning_tokens: Count = None


class Counts(msgspec.Struct, gc=False):
    """Where each count may stand. Sources: OpenAI, OpenRouter (`cache_write_tokens`), DeepSeek (`prompt_cache_hit_tokens`),
    Databricks and Venice (`cache_read_input_tokens`), Together and Moonshot (`cached_tokens`), Copilot
    (`reasoning_tokens`): recorded streams."""

    prompt_tokens: Count = None
    completion_tokens: Count = None
    total_tokens: Count = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: OutputDetails | None = None
    reasoning_tokens: Count = None
    prompt_cache_hit_tokens: Count = None
    cache_read_input_tokens: Count = None
    cached_tokens: Count = None
    cache_creation_input_tokens: Count = None


_decode_counts = msgspec.json.Decoder(Counts).decode
_NO_PROMPT_DETAILS, _NO_OUTPUT_DETAILS = PromptDetails(), OutputDetails()

MAX_DIGITS = 16  # longer ones are no counts of tokens

_decode_object = msgspec.json.Decoder(dict[str, object]).decode


class UsageReader:
    """Merges the usage objects of one response: a later count replaces an earlier one, null and a missing one do not."""

    __slots__ = ("_excludes_reasoning", "_last", "_merged")

    def __init__(self, profile: Profile) -> None:
        self._excludes_reasoning = profile.output_excludes_reasoning
        self._last = b""
        self._merged: dict[str, object] = {}

    def read(self, raw: msgspec.Raw) -> Usage | None:
        """The usage so far, or None if this object says nothing new."""
        text = bytes(raw)
        if text == self._last:
            return None
        self._last = text
        try:
            usage = _decode_object(text)
        except UNREADABLE:
            return None
        if not self._merged:
            self._merged = usage  # as it came, nulls included
            try:
                return _usage_of(_decode_counts(text), usage, excludes_reasoning=self._excludes_reasoning)
            except UNREADABLE:
                pass  # counts that are written in another way
        else:
            self._merged = {**self._merged, **{key: value for key, value in usage.items() if value is not None}}
        return counted(self._merged, excludes_reasoning=self._excludes_reasoning)


def counted(usage: dict[str, object], *, excludes_reasoning: bool = False) -> Usage:
    """Our five counts, whatever way they are written in."""
    prompt, output = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    counts = Counts(
        prompt_tokens=_whole_number(usage.get("prompt_tokens")),
        completion_tokens=_whole_number(usage.get("completion_tokens")),
        total_tokens=_whole_number(usage.get("total_tokens")),
        reasoning_tokens=_whole_number(usage.get("reasoning_tokens")),
        prompt_cache_hit_tokens=_whole_number(usage.get("prompt_cache_hit_tokens")),
        cache_read_input_tokens=_whole_number(usage.get("cache_read_input_tokens")),
        cached_tokens=_whole_number(usage.get("cached_tokens")),
        cache_creation_input_tokens=_whole_number(usage.get("cache_creation_input_tokens")),
    )
    if is_object(prompt):
        cached, written = prompt.get("cached_tokens"), prompt.get("cache_write_tokens")
        counts.prompt_tokens_details = PromptDetails(_whole_number(cached), _whole_number(written))
    if is_object(output):
        counts.completion_tokens_details = OutputDetails(_whole_number(output.get("reasoning_tokens")))
    return _usage_of(counts, usage, excludes_reasoning=excludes_reasoning)


def _usage_of(counts: Counts, usage: dict[str, object], *, excludes_reasoning: bool) -> Usage:
    """The output includes reasoning: where the endpoint leaves it out, it is added. Of several places of one count the first
    with more than zero counts, because several shapes come together.

    xAI's `total_tokens` is the sum of three, which no endpoint does that counts reasoning in, so the sum is believed
    before the profile.
    """
    prompt, output, total = counts.prompt_tokens or 0, counts.completion_tokens or 0, counts.total_tokens or 0
    of_prompt = counts.prompt_tokens_details or _NO_PROMPT_DETAILS
    of_output = counts.completion_tokens_details or _NO_OUTPUT_DETAILS
    reasoning = of_output.reasoning_tokens or counts.reasoning_tokens or 0
    cache_read = (
        of_prompt.cached_tokens
        or counts.prompt_cache_hit_tokens
        or counts.cache_read_input_tokens
        or counts.cached_tokens
        or 0
    )
    if total == prompt + output + reasoning or (excludes_reasoning and total != prompt + output):
        output += reasoning
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        reasoning_tokens=reasoning,
        cache_read_tokens=cache_read,
        cache_write_tokens=of_prompt.cache_write_tokens or counts.cache_creation_input_tokens or 0,
        provider=msgspec.json.encode(usage).decode(),
    )


def encode_usage(usage: Usage) -> msgspec.Raw:
    """The provider's own object where it says the same in this family's words, else one in OpenAI's."""
    if usage.provider:
        try:
            own = _decode_object(usage.provider)
        except UNREADABLE:
            own = {}
        # xAI's object says the same to us, but not to clients that take its output for the whole.
        if counted(own) == usage and own.get("completion_tokens") == usage.output_tokens:
            return msgspec.Raw(usage.provider.encode())
    prompt_details: dict[str, int] = {"cached_tokens": usage.cache_read_tokens}
    if usage.cache_write_tokens:
        prompt_details["cache_write_tokens"] = usage.cache_write_tokens
    return msgspec.Raw(
        msgspec.json.encode(
            {
                "prompt_tokens": usage.input_tokens,
                "completion_tokens": usage.output_tokens,
                "total_tokens": usage.input_tokens + usage.output_tokens,
                "prompt_tokens_details": prompt_details,
                "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            }
        )
    )


def _whole_number(value: object) -> int:
    """Gateways in languages with one number type write 1.0, some write "1"; what is no count is none."""
    match value:
        case bool():
            return 0
        case float() if value.is_integer():
            value = int(value)
        case str() if value.isascii() and value.isdecimal() and len(value) < MAX_DIGITS:
            value = int(value)
        case _:
            pass
    return value if isinstance(value, int) and value >= 0 else 0
