"""Sees whether the provider's cache gave what it had kept of a prompt, and why not."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from turnwise.rules.budget import message_bytes
from turnwise.rules.cache_losses import kept_tokens
from turnwise.turn.commands import SendRequest
from turnwise.vocab import Request, Usage, messages_in_common
from turnwise.wire.family import HttpCall

# The least size that any provider keeps: less is lost by its rounding (OpenAI: 128 tokens) or is not worth a word.
LEAST_LOST_TOKENS = 1024
LEAST_LOST_SHARE = 0.1


class CacheMissed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request `number` of a turn should have read `expected_tokens` from the provider's cache, and read `read_tokens`.

    `changed_at` is the first byte of its body, cache marks left out, at which it is another one than the request before it; None
    where it began with all of that one. Then `since_hit_s` tells for how long nothing of it had been read: the provider keeps a
    prompt for a time only. `path` names the sub-agents that lead to its turn.
    """

    turn: str
    number: int
    model: str
    expected_tokens: int
    read_tokens: int
    changed_at: int | None = None
    since_hit_s: float | None = None
    path: tuple[str, ...] = ()


class CacheSums(msgspec.Struct, frozen=True, kw_only=True):
    """What prompt caches did for several requests, in tokens and US dollars.

    - `saved_usd` is negative if writing cost more than reading saved. None: no price is known.
    - `unread_tokens` were written, and no request has read them yet. `unread_usd` is what writing them cost beyond
      plain input: a loss, unless a later request reads them.
    """

    read_tokens: int = 0
    written_tokens: int = 0
    unread_tokens: int = 0
    saved_usd: Decimal | None = None
    unread_usd: Decimal | None = None


class CacheWatch:
    """Of one turn's requests, in the order in which they were encoded with one history."""

    def __init__(self, *, turn: str, path: tuple[str, ...]) -> None:
        self._turn = turn
        self._path = path
        self._before: Request | None = None
        self._kept_tokens = 0  # of the last prompt that was answered
        self._kept_at_s: float | None = None  # when that was read or written
        self._has_hit = False  # this endpoint keeps prompts, asked or not
        self.read_anew = (
            0  # tokens that were kept before the last request, and not read by it, as its prompt begins otherwise
        )

    def saw(self, order: SendRequest, call: HttpCall, *, usage: Usage | None, left_s: float) -> CacheMissed | None:
        """Take in what was counted of a request that left at this time; what is missing, if anything is."""
        request, before = order.request, self._before
        is_aside = bool(call.marks) and request.cache is not None and request.cache.shared_only
        if not is_aside:  # else what was kept of the messages stays as it was
            self._before = request
        if usage is None or not (self._kept_tokens or usage.cache_read_tokens or usage.cache_write_tokens):
            return None
        if "cache_read_tokens" in usage.untold:
            return None
        usage = usage.last_sampling
        if call.changed_at is not None:
            self.read_anew = max(0, min(self._kept_tokens, usage.input_tokens) - usage.cache_read_tokens)
        same_model = before is not None and before.model == request.model
        expected = 0
        if before is not None and same_model:
            expected = min(self._kept_tokens, _still_there(call, before=before, now=request, tokens=usage.input_tokens))
        since_s = None if self._kept_at_s is None else left_s - self._kept_at_s
        if not is_aside:
            self._take(call, usage=usage, left_s=left_s)
        lost = expected - usage.cache_read_tokens
        if before is None or lost < max(LEAST_LOST_TOKENS, expected * LEAST_LOST_SHARE):
            return None
        changed_at = _changed_at(call, before=before, now=request)
        return CacheMissed(
            turn=self._turn,
            number=order.number,
            model=request.model,
            expected_tokens=expected,
            read_tokens=usage.cache_read_tokens,
            changed_at=changed_at,
            since_hit_s=round(since_s, 3) if since_s is not None and changed_at is None else None,
            path=self._path,
        )

    def _take(self, call: HttpCall, *, usage: Usage, left_s: float) -> None:
        self._has_hit = self._has_hit or usage.cache_read_tokens > 0
        self._kept_tokens = kept_tokens(usage, is_asked=bool(call.marks), has_hit=self._has_hit)
        if self._kept_tokens:
            self._kept_at_s = left_s


def _still_there(call: HttpCall, *, before: Request, now: Request, tokens: int) -> int:
    """How much of a prompt of so many tokens the request before it may have left: where a part of the history gave way (to a
    summary, say), what stands behind that is new, and is counted by its share of the body."""
    own = 0 if before.cache is None else before.cache.passing
    common = messages_in_common(before.messages, now.messages)
    if common >= len(before.messages) - max(own, 1):
        return tokens
    new = sum([message_bytes(message) for message in now.messages[common:]])
    whole = max(1, len(call.body) - sum([end - start for start, end in call.marks]))
    return tokens * max(0, whole - new) // whole


def _changed_at(call: HttpCall, *, before: Request, now: Request) -> int | None:
    """Of what is kept where marks ask for it, messages rest on fields behind them, too (Anthropic docs, "Prompt caching", "What
    invalidates the cache")."""
    if call.changed_at is not None or not call.marks:
        return call.changed_at
    names: list[str] = []
    if (before.tool_choice, before.parallel_tool_calls) != (now.tool_choice, now.parallel_tool_calls):
        names += CHOICE
    if _thinks(before) != _thinks(now):
        names += THINKING
    return _place_of(names, call=call) if names else None


CHOICE = ("tool_choice", "parallel_tool_calls")
THINKING = ("thinking", "output_config", "reasoning", "reasoning_effort")


def _thinks(request: Request) -> object:
    return request.settings.reasoning_effort, request.settings.reasoning_tokens


def _place_of(names: Sequence[str], *, call: HttpCall) -> int:
    """Where the first of these fields stands behind the messages, marks left out; where none does, it is gone from there, and
    that is where the messages end."""
    fields = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
    keys = list(fields)
    behind = keys[keys.index("messages") + 1 :]
    first = next((key for key in behind if key in names), next(iter(behind), None))
    at = len(call.body) - 1
    for key in reversed(behind):
        at -= len(b'"%b":' % key.encode()) + len(bytes(fields[key]))
        if key == first:
            break
        at -= 1  # the comma
    return at - sum([end - start for start, end in call.marks if end <= at])
