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
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from turnwise.lab.raw import Raw, dump, rows, table, text

BYTES_A_TOKEN = 4  # of prompt and output alike: made up, but the same every time, so that tests can sum it
LOOK_BACK_BLOCKS = 20
CHUNK_TOKENS = 128
SHORT_S, HALF_HOUR_S, HOUR_S, DAY_S = 300.0, 1800.0, 3600.0, 86_400.0
MOST_WRITES, MOST_BREAKPOINTS = 4, 80
GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
WITH_BREAKPOINTS = (5, 6)  # and later
BREAKPOINT = "prompt_cache_breakpoint"
ANSWERS = ("function_call_output", "custom_tool_call_output")
MARK = "cache_control"
LEAST_TOKENS = {"anthropic_messages": 1024, "openai_chat": 1024, "openai_responses": 1024, "gemini": 2048}
ANTHROPIC = ("anthropic", "claude")  # in a model's name, behind a gateway
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


class Kept(msgspec.Struct):
    until_s: float
    for_s: float


class PromptCaches:
    """All that is kept, by a clock of its own: `now_s` stands still unless somebody moves it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._kept: dict[bytes, Kept] = {}
        self._coming: dict[int, list[tuple[bytes, float]]] = {}  # by request: what is there once its response begins
        self._taken: list[tuple[bytes, float]] = []  # by the request at hand

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

    def ask(self, number: int, family: str, *, body: Raw, model: str, least_tokens: int | None) -> CacheUse:
        """What comes from the cache for this prompt. What it writes is there once its response begins."""
        use, self._coming[number] = self._asked(family, body=body, model=model, least_tokens=least_tokens), self._taken
        return use

    def take(self, family: str, *, body: Raw, model: str, least_tokens: int | None) -> CacheUse:
        """What comes from the cache for this prompt, whose response begins at once: it is kept, as the family keeps it."""
        use = self.ask(0, family, body=body, model=model, least_tokens=least_tokens)
        self.begin(0)
        return use

    def _asked(self, family: str, *, body: Raw, model: str, least_tokens: int | None) -> CacheUse:
        self._taken = []
        least = LEAST_TOKENS[family] if least_tokens is None else least_tokens
        named = text(table(body).get("model")).lower()
        if family == "anthropic_messages":
            return self._take_marked(prompt_of_messages(body), model=model, least=least)
        if family == "openai_chat" and any(word in named for word in ANTHROPIC):
            return self._take_marked(prompt_of_chat(body), model=model, least=least)
        if family == "gemini":
            return self._take_pieces(pieces_of_gemini(body), model=model, least=least)
        if has_breakpoints(named):
            return self._take_breakpoints(body, model=model, least=least)
        return self._take_chunks(body, model=model, least=least)

    def _take_marked(self, prompt: CachedPrompt, *, model: str, least: int) -> CacheUse:
        blocks, states = [*prompt.shared, *prompt.messages], _prefixes(prompt, model=model)
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

    def _take_pieces(self, pieces: Sequence[bytes], *, model: str, least: int, for_s: float = SHORT_S) -> CacheUse:
        states = list(_states([CacheBlock(piece) for piece in pieces], begins=model))
        read = 0
        for digest, tokens in states:
            if not self._has(digest):
                break
            read = tokens
        for digest, _ in states:
            self._keep(digest, for_s=for_s)
        return CacheUse(read if read >= least else 0)

    def _take_chunks(self, body: Raw, *, model: str, least: int) -> CacheUse:
        said = b"".join(pieces_of_openai(body))
        size = CHUNK_TOKENS * BYTES_A_TOKEN
        chunks = [said[at : at + size] for at in range(0, len(said) - size + 1, size)]
        fields = table(body)
        cache = f"{model}/{text(fields.get('prompt_cache_key'))}"
        for_s = DAY_S if fields.get("prompt_cache_retention") == "24h" else SHORT_S
        return self._take_pieces(chunks, model=cache, least=least, for_s=for_s)

    def _take_breakpoints(self, body: Raw, *, model: str, least: int) -> CacheUse:
        fields = table(body)
        blocks = blocks_of_openai(body)
        states = list(_states(blocks, begins=f"{model}/{text(fields.get('prompt_cache_key'))}"))
        is_implicit = table(fields.get("prompt_cache_options")).get("mode") != "explicit"
        own = [at for at, block in enumerate(blocks) if block.mark]
        ends = [at for at, block in enumerate(blocks) if block.ends_message] if is_implicit else []
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


def cached_prefixes(body: Raw, *, model: str) -> list[tuple[bytes, int]]:
    """What stands for each beginning of a Messages request that could be kept, and its tokens."""
    return _prefixes(prompt_of_messages(body), model=model)


def _prefixes(prompt: CachedPrompt, *, model: str) -> list[tuple[bytes, int]]:
    blocks = [*prompt.shared, *prompt.messages]
    return list(_states(blocks, begins=model, settings=(len(prompt.shared), prompt.settings)))


# --- prompts


def prompt_of_messages(body: Raw) -> CachedPrompt:
    fields = table(body)
    shared = [_block(b"tool", tool) for tool in rows(fields.get("tools"))]
    shared += [_block(b"system", block) for block in _blocks(fields.get("system"))]
    messages: list[CacheBlock] = []
    for message in rows(fields.get("messages")):
        role = text(table(message).get("role")).encode()
        messages += [_block(role, block) for block in _blocks(table(message).get("content"))]
    top = fields.get(MARK)
    if top is not None:
        _mark_last(messages, ttl=_ttl(top))
    settings = dump([fields.get("tool_choice"), fields.get("thinking")])
    return CachedPrompt(shared, settings, messages, _marked_bytes(body))


def prompt_of_chat(body: Raw) -> CachedPrompt:
    """As a gateway hands it on: system messages lead, results are the user's. The field at the top marks the last block
    (OpenRouter docs, "Prompt Caching", and its SDKs' `AnthropicCacheControlDirective`)."""
    fields = table(body)
    shared = [_block(b"tool", tool) for tool in rows(fields.get("tools"))]
    messages: list[CacheBlock] = []
    for message in rows(fields.get("messages")):
        told = table(message)
        role = text(told.get("role"))
        kind = b"system" if role in ("system", "developer") else b"assistant" if role == "assistant" else b"user"
        head = {name: value for name, value in told.items() if name not in ("role", "content", "tool_calls", MARK)}
        found = [_block(kind + dump(head), block) for block in _blocks(told.get("content"))]
        found += [_block(kind, call) for call in rows(told.get("tool_calls"))]
        if told.get(MARK) is not None:
            _mark_last(found, ttl=_ttl(told.get(MARK)))
        (shared if kind == b"system" else messages).extend(found)
    top = fields.get(MARK)
    if top is not None:
        _mark_last(messages or shared, ttl=_ttl(top))
    settings = dump(
        [fields.get(name) for name in ("tool_choice", "parallel_tool_calls", "reasoning", "reasoning_effort")]
    )
    return CachedPrompt(shared, settings, messages, _marked_bytes(body))


def _blocks(content: Raw) -> list[Raw]:
    """A text alone is one block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else rows(content)


def _block(kind: bytes, block: Raw) -> CacheBlock:
    fields = table(block)
    type = text(fields.get("type"))
    takes = type not in THINKING and not (type == "text" and not fields.get("text"))
    mark = fields.get(MARK)
    return CacheBlock(kind + dump(_unmarked(block)), "" if mark is None else _ttl(mark), takes)


def _unmarked(value: Raw) -> Raw:
    """Without marks, those on its content included."""
    if not isinstance(value, dict):
        return value
    plain = {name: inner for name, inner in value.items() if name != MARK}
    content = plain.get("content")
    return {**plain, "content": [_unmarked(one) for one in content]} if isinstance(content, list) else plain


def _ttl(mark: Raw) -> Literal["5m", "1h"]:
    return "1h" if table(mark).get("ttl") == "1h" else "5m"


def _mark_last(blocks: list[CacheBlock], *, ttl: Literal["5m", "1h"]) -> None:
    """The last one that takes a mark."""
    at = next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at].takes_mark), None)
    if at is not None and not blocks[at].mark:
        blocks[at] = blocks[at]._replace(mark=ttl)


def _marked_bytes(value: Raw) -> int:
    """The bytes of all marks, with their names."""
    match value:
        case dict():
            own = value.get(MARK)
            mark = 0 if own is None else len(dump(own)) + len(f',"{MARK}":')
            inner = [value.get(name) for name in ("content", "messages", "system", "tools")]
            return mark + sum([_marked_bytes(one) for one in inner])
        case list():
            return sum([_marked_bytes(one) for one in value])
        case _:
            return 0


def pieces_of_openai(body: Raw) -> list[bytes]:
    """The schema of the answer is put before the system message, the tools stand with it."""
    fields = table(body)
    first = [fields.get(name) for name in ("response_format", "text", "tools", "instructions")]
    asked = fields.get("input") if "input" in fields else fields.get("messages")
    said = [asked] if isinstance(asked, str) else rows(asked)
    return [dump(one) for one in (*first, *said)]


def has_breakpoints(model: str) -> bool:
    """A model of the family of GPT-5.6, or of a later one."""
    found = GPT.search(model)
    return found is not None and (int(found.group(1)), int(found.group(2) or 0)) >= WITH_BREAKPOINTS


def blocks_of_openai(body: Raw) -> list[CacheBlock]:
    """As `pieces_of_openai`, with the breakpoints, which are no part of what is compared."""
    fields = table(body)
    first = [fields.get(name) for name in ("response_format", "text", "tools", "instructions")]
    blocks = [CacheBlock(dump(one)) for one in first]
    asked = fields.get("input") if "input" in fields else fields.get("messages")
    messages: list[Raw] = [{"role": "user", "content": asked}] if isinstance(asked, str) else rows(asked)
    for told in map(table, messages):
        name = next((name for name in ("content", "output") if isinstance(told.get(name), list)), "")
        parts = rows(told.get(name)) if name else []
        head = {key: value for key, value in told.items() if key != name}
        blocks.append(CacheBlock(dump(head)))
        for part in parts:
            plain = {key: value for key, value in table(part).items() if key != BREAKPOINT}
            blocks.append(CacheBlock(dump(plain), "5m" if table(part).get(BREAKPOINT) is not None else ""))
        if told.get("role") in ("user", "tool") or told.get("type") in ANSWERS:
            blocks[-1] = blocks[-1]._replace(ends_message=True)
    return blocks


def pieces_of_gemini(body: Raw) -> list[bytes]:
    fields = table(body)
    first = [fields.get(name) for name in ("tools", "systemInstruction")]
    found = [dump(one) for one in first]
    for content in rows(fields.get("contents")):
        role = text(table(content).get("role")).encode()
        found += [role + dump(part) for part in rows(table(content).get("parts"))]
    return found
