"""Token counts: the many shapes of Chat Completions usage -> our five, and back."""

import msgspec

from turnwise.vocab import Usage
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.fields import is_object
from turnwise.wire.profiles import Profile

# Where each count may stand, first found first; a zero does not count as found, because several shapes come together.
# Sources: OpenAI, OpenRouter (`cache_write_tokens`), DeepSeek (`prompt_cache_hit_tokens`), Databricks and Venice
# (`cache_read_input_tokens`), Together and Moonshot (`cached_tokens`), Copilot (`reasoning_tokens`): recorded streams.
REASONING = (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",))
CACHE_READ = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
    ("cached_tokens",),
)
CACHE_WRITE = (("prompt_tokens_details", "cache_write_tokens"), ("cache_creation_input_tokens",))

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
        else:
            self._merged = {**self._merged, **{key: value for key, value in usage.items() if value is not None}}
        return counted(self._merged, excludes_reasoning=self._excludes_reasoning)


def counted(usage: dict[str, object], *, excludes_reasoning: bool = False) -> Usage:
    """Our five counts. The output includes reasoning: where the endpoint leaves it out, it is added.

    xAI's `total_tokens` is the sum of three, which no endpoint does that counts reasoning in, so the sum is believed
    before the profile.
    """
    prompt, output = _count(usage, ("prompt_tokens",)), _count(usage, ("completion_tokens",))
    total, reasoning = _count(usage, ("total_tokens",)), _first(usage, REASONING)
    if total == prompt + output + reasoning or (excludes_reasoning and total != prompt + output):
        output += reasoning
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        reasoning_tokens=reasoning,
        cache_read_tokens=_first(usage, CACHE_READ),
        cache_write_tokens=_first(usage, CACHE_WRITE),
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


def _first(usage: dict[str, object], paths: tuple[tuple[str, ...], ...]) -> int:
    for path in paths:
        if found := _count(usage, path):
            return found
    return 0


def _count(usage: dict[str, object], path: tuple[str, ...]) -> int:
    value: object = usage.get(path[0])
    for key in path[1:]:
        if not is_object(value):
            return 0
        value = value.get(key)
    if type(value) is int:  # nearly always, or none at all
        return max(value, 0)
    return 0 if value is None else _whole_number(value)


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
