"""The prompt caches of providers, as each documents its own: what of a prompt is read, and what is kept for the next one.

Anthropic (docs, "Prompt caching"), and gateways to its models: prompts are read in the order tools, system, messages, block by
block. A prefix is kept where a mark asks for it, from a least size on, for five minutes or an hour since it was read last. From
each mark the API looks for a kept prefix in that block and those before it, 20 in all. Marks are no part of what is compared;
what is kept of messages rests on tool choice and thinking, too.

OpenAI ("Prompt caching"): unasked, from 1,024 tokens on and in steps of 128, the exact beginning of the prompt; cleared after
5 to 10 minutes without use, or kept for a day where the request asks for it. A `prompt_cache_key` leads to a cache of its own.
GPT-5.6 and later (the same, "Prompt caching for GPT-5.6 and later models", and the openai package's `PromptCacheOptions`): a
prefix is kept, for 30 minutes since its last use, where it ends at a breakpoint, and is read at breakpoints only. One is the end
of the latest message of the user or a tool, unless the request's `mode` is `explicit`; others are the request's own. Each request
writes at its four latest, and looks at the 80 latest, those of earlier requests included. What is written is counted and billed.
Gemini ("Context caching", implicit): unasked, the exact beginning from a least size on; for how long is not said.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec

from turnwise.lab.raw import Raw, dump, rows, table, text
from turnwise.vocab.json_values import without

BYTES_A_TOKEN = 4  # of prompt and output alike: made up, but the same every time, so that tests can sum it
LOOK_BACK_BLOCKS = 20
SHORT_S, HALF_HOUR_S, HOUR_S, DAY_S = 300.0, 1800.0, 3600.0, 86_400.0
MOST_WRITES, MOST_BREAKPOINTS = 4, 80
MARK = "cache_control"
THINKING = ("thinking", "redacted_thinking")


class CacheUse(NamedTuple):
    """Of one prompt, in tokens: what was read, and written; `hour` is the part of that that is kept for an hour. `marked` are the
    bytes of the marks, which the model never sees. `is_timed`: usage tells for how long it is kept."""

    read: int = 0
    written: int = 0
    hour: int = 0
    marked: int = 0
    is_timed: bool = False


class CacheBlock(NamedTuple):
    """The smallest piece that a prompt is compared by. `mark`: it is kept up to here."""

    said: bytes
    mark: Literal["", "5m", "1h"] = ""
    takes_mark: bool = True
    ends_message: bool = False  # of the user or of a tool


class CachedPrompt(NamedTuple):
    """`shared` are the tools and the system text, `settings` what the messages rest on besides."""

    shared: list[CacheBlock]
    settings: bytes
    messages: list[CacheBlock]
    marked: int


class PromptBreakpoints(NamedTuple):
    """A prompt that is kept and read at breakpoints. `is_implicit`: the end of the latest message is one. `cache` names its
    own."""

    blocks: list[CacheBlock]
    is_implicit: bool
    cache: str = ""


class PromptPieces(NamedTuple):
    """A prompt that is kept piece by piece, unasked, for `for_s`. `cache` names its own."""

    pieces: list[bytes]
    cache: str = ""
    for_s: float = SHORT_S


AnyPrompt = CachedPrompt | PromptBreakpoints | PromptPieces


class Kept(msgspec.Struct):
    until_s: float
    for_s: float


class PromptCaches:
    """All that is kept, by a clock of its own: `now_s` stands still unless somebody moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._kept: dict[bytes, Kept] = {}
        self._coming: dict[int, list[tuple[bytes, float]]] = {}  # by request: what is there once its response begins
        self._taken: list[tuple[bytes, float]] = []  # by the current request

    def forget(self) -> None:
        self._kept.clear()
        self._coming.clear()

    def begin(self, number: int) -> None:
        """The response to that request begins: what it writes can be read from now on (Anthropic docs, "Prompt caching": an entry
        "only becomes available after the first response begins")."""
        for digest, for_s in self._coming.pop(number, ()):
            self._kept[digest] = Kept(self.now_s + for_s, for_s)

    def drop(self, number: int) -> None:
        """That request failed: nothing of it is kept."""
        self._coming.pop(number, None)

    def ask(self, number: int, prompt: AnyPrompt, *, model: str, least_tokens: int) -> CacheUse:
        """What comes from the cache for this prompt. What it writes is there once its response begins."""
        self._taken = []
        match prompt:
            case CachedPrompt():
                use = self._take_marked(prompt, model=model, least=least_tokens)
            case PromptBreakpoints():
                use = self._take_breakpoints(prompt, model=model, least=least_tokens)
            case PromptPieces():
                use = self._take_pieces(prompt, model=model, least=least_tokens)
        self._coming[number] = self._taken
        return use

    def take(self, prompt: AnyPrompt, *, model: str, least_tokens: int) -> CacheUse:
        """What comes from the cache for this prompt, whose response begins at once: it is kept, as the family keeps it."""
        use = self.ask(0, prompt, model=model, least_tokens=least_tokens)
        self.begin(0)
        return use

    def _take_marked(self, prompt: CachedPrompt, *, model: str, least: int) -> CacheUse:
        blocks, states = [*prompt.shared, *prompt.messages], cached_prefixes(prompt, model=model)
        marks = [(at, block.mark) for at, block in enumerate(blocks) if block.mark and states[at][1] >= least]
        hits = [
            at
            for mark, _ in marks
            for at in range(mark, max(-1, mark - LOOK_BACK_BLOCKS), -1)
            if self._has(states[at][0])
        ]
        read = states[max(hits)][1] if hits else 0
        for at, mark in marks:
            self._keep(states[at][0], for_s=HOUR_S if mark == "1h" else SHORT_S)
        for at in hits:
            self._refresh(states[at][0])
        written = max([states[at][1] - read for at, _ in marks], default=0)
        hour = max([states[at][1] - read for at, mark in marks if mark == "1h"], default=0)
        return CacheUse(read, max(0, written), max(0, hour), prompt.marked, is_timed=written > 0)

    def _take_pieces(self, prompt: PromptPieces, *, model: str, least: int) -> CacheUse:
        states = list(_states([CacheBlock(piece) for piece in prompt.pieces], begins=model + prompt.cache))
        read = 0
        for digest, tokens in states:
            if not self._has(digest):
                break
            read = tokens
        for digest, _ in states:
            self._keep(digest, for_s=prompt.for_s)
        return CacheUse(read if read >= least else 0)

    def _take_breakpoints(self, prompt: PromptBreakpoints, *, model: str, least: int) -> CacheUse:
        states = list(_states(prompt.blocks, begins=model + prompt.cache))
        own = [at for at, block in enumerate(prompt.blocks) if block.mark]
        ends = [at for at, block in enumerate(prompt.blocks) if block.ends_message] if prompt.is_implicit else []
        looked_at = sorted({*own, *ends})[-MOST_BREAKPOINTS:]
        written = [*own[len(ends[-1:]) - MOST_WRITES :], *ends[-1:]]
        hits = [at for at in looked_at if states[at][1] >= least and self._has(states[at][0])]
        read = states[max(hits)][1] if hits else 0
        kept = [at for at in written if states[at][1] >= least]
        for at in kept:
            self._keep(states[at][0], for_s=HALF_HOUR_S)
        for at in hits:
            self._refresh(states[at][0])
        return CacheUse(read, max([0, *[states[at][1] - read for at in kept]]))

    def _has(self, digest: bytes) -> bool:
        kept = self._kept.get(digest)
        return kept is not None and self.now_s < kept.until_s

    def _keep(self, digest: bytes, *, for_s: float) -> None:
        self._taken.append((digest, for_s))

    def _refresh(self, digest: bytes) -> None:
        kept = self._kept[digest]
        kept.until_s = max(kept.until_s, self.now_s + kept.for_s)


def _states(
    blocks: Iterable[CacheBlock], *, begins: str, settings: tuple[int, bytes] = (-1, b"")
) -> Iterator[tuple[bytes, int]]:
    """Up to each block, what stands for the prompt so far, and its tokens. `settings` come in at a place, without a token."""
    digest, size = begins.encode(errors="surrogatepass"), 0
    for place, block in enumerate(blocks):
        if place == settings[0]:
            digest = hashlib.blake2b(digest + settings[1], digest_size=16).digest()
        digest = hashlib.blake2b(digest + block.said, digest_size=16).digest()
        size += len(block.said)
        yield digest, -(-size // BYTES_A_TOKEN)


def cached_prefixes(prompt: CachedPrompt, *, model: str) -> list[tuple[bytes, int]]:
    """What stands for each beginning of the prompt that could be kept, and its tokens."""
    blocks = [*prompt.shared, *prompt.messages]
    return list(_states(blocks, begins=model, settings=(len(prompt.shared), prompt.settings)))


# --- for the prompts of families: what a block is, and what marks it


def blocks_of(content: Raw) -> list[Raw]:
    """A text alone is one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else rows(content)


def block_of(kind: bytes, block: Raw) -> CacheBlock:
    fields = table(block)
    type = text(fields.get("type"))
    takes = type not in THINKING and not (type == "text" and not fields.get("text"))
    mark = fields.get(MARK)
    return CacheBlock(kind + dump(_unmarked(block)), "" if mark is None else ttl_of(mark), takes)


def _unmarked(value: Raw) -> Raw:
    """Without marks, those on its content included."""
    if not isinstance(value, dict):
        return value
    plain = without(value, (MARK,))
    content = plain.get("content")
    return {**plain, "content": [_unmarked(one) for one in content]} if isinstance(content, list) else plain


def ttl_of(mark: Raw) -> Literal["5m", "1h"]:
    return "1h" if table(mark).get("ttl") == "1h" else "5m"


def mark_last(blocks: list[CacheBlock], *, ttl: Literal["5m", "1h"]) -> None:
    """The last one that takes a mark."""
    at = next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at].takes_mark), None)
    if at is not None and not blocks[at].mark:
        blocks[at] = blocks[at]._replace(mark=ttl)


def marked_bytes(value: Raw) -> int:
    """The bytes of all marks, with their names."""
    match value:
        case dict():
            own = value.get(MARK)
            mark = 0 if own is None else len(dump(own)) + len(f',"{MARK}":')
            inner = [value.get(name) for name in ("content", "messages", "system", "tools")]
            return mark + sum([marked_bytes(one) for one in inner])
        case list():
            return sum([marked_bytes(one) for one in value])
        case _:
            return 0
