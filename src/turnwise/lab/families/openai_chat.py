"""Chat Completions, as the lab plays it and as its clients read it."""

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from turnwise.lab.caches import (
    BYTES_A_TOKEN,
    DAY_S,
    MARK,
    SHORT_S,
    AnyPrompt,
    CacheBlock,
    CachedPrompt,
    PromptBreakpoints,
    PromptPieces,
    block_of,
    blocks_of,
    mark_last,
    marked_bytes,
    ttl_of,
)
from turnwise.lab.families.family import (
    DONE,
    CallSeen,
    Conversation,
    LabFamily,
    Offered,
    ResultSeen,
    SentMessage,
    StreamReading,
    ToldError,
    arguments_object,
    canonical,
    counted,
    error_in,
    events_of,
    files_of,
    join,
    naive_events,
    plain,
    rule,
    shaped,
    texts_of,
)
from turnwise.lab.raw import Raw, dig, dump, either, rows, table, text
from turnwise.lab.strict.openai_chat import JUDGE
from turnwise.lab.strict.thinking import sign
from turnwise.vocab import NO_USAGE, Opaque, Response
from turnwise.vocab.json_values import without

CREATED = 1760000000  # a fixed moment: the lab has no clock

# --- requests


def read_chat(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = []
    for message in rows(body.get("messages")):
        fields = table(message)
        content = fields.get("content")
        match text(fields.get("role")):
            case "system" | "developer":
                said.append(SentMessage(role="system", texts=texts_of(content)))
            case "assistant":
                calls = tuple([chat_call(table(call)) for call in rows(fields.get("tool_calls"))])
                said.append(SentMessage(role="assistant", texts=texts_of(content), calls=calls))
            case "tool":
                result = ResultSeen(id=text(fields.get("tool_call_id")), name="", content=plain(content))
                said.append(SentMessage(role="results", results=(result,)))
            case _:
                said.append(SentMessage(role="user", texts=texts_of(content), files=files_of(content)))
    tools = [table(either(tool, "function", "custom")) for tool in rows(body.get("tools"))]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("parameters")) for tool in tools]),
        forbids=body.get("tool_choice") == "none",
        output_schema=dig(body.get("response_format"), "json_schema", "schema"),
    )


def chat_call(call: dict[str, Raw]) -> CallSeen:
    if call.get("type") == "custom":
        inner = table(call.get("custom"))
        return CallSeen(id=text(call.get("id")), name=text(inner.get("name")), arguments=text(inner.get("input")))
    inner = table(call.get("function"))
    return CallSeen(id=text(call.get("id")), name=text(inner.get("name")), arguments=canonical(inner.get("arguments")))


# --- prompts


CHUNK_TOKENS = 128
GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?")
WITH_BREAKPOINTS = (5, 6)  # and later
BREAKPOINT = "prompt_cache_breakpoint"
ANSWERS = ("function_call_output", "custom_tool_call_output")
ANTHROPIC = ("anthropic", "claude")  # in a model's name, behind a gateway


def prompt_of_chat(body: Raw) -> AnyPrompt:
    named = text(table(body).get("model")).lower()
    return marked_chat(body) if any(word in named for word in ANTHROPIC) else prompt_of_openai(body)


def prompt_of_openai(body: Raw) -> AnyPrompt:
    """With breakpoints, or in chunks."""
    fields = table(body)
    cache = f"/{text(fields.get('prompt_cache_key'))}"
    if has_breakpoints(text(fields.get("model")).lower()):
        is_implicit = table(fields.get("prompt_cache_options")).get("mode") != "explicit"
        return PromptBreakpoints(blocks_of_openai(body), is_implicit, cache)
    said = b"".join(pieces_of_openai(body))
    size = CHUNK_TOKENS * BYTES_A_TOKEN
    chunks = [said[at : at + size] for at in range(0, len(said) - size + 1, size)]
    return PromptPieces(chunks, cache, DAY_S if fields.get("prompt_cache_retention") == "24h" else SHORT_S)


def marked_chat(body: Raw) -> CachedPrompt:
    """As a gateway hands it on: system messages lead, results are the user's. The field at the top marks the last block
    (OpenRouter docs, "Prompt Caching", and its SDKs' `AnthropicCacheControlDirective`)."""
    fields = table(body)
    shared = [block_of(b"tool", tool) for tool in rows(fields.get("tools"))]
    messages: list[CacheBlock] = []
    for message in rows(fields.get("messages")):
        told = table(message)
        role = text(told.get("role"))
        kind = b"system" if role in ("system", "developer") else b"assistant" if role == "assistant" else b"user"
        head = {name: value for name, value in told.items() if name not in ("role", "content", "tool_calls", MARK)}
        found = [block_of(kind + dump(head), block) for block in blocks_of(told.get("content"))]
        found += [block_of(kind, call) for call in rows(told.get("tool_calls"))]
        if told.get(MARK) is not None:
            mark_last(found, ttl=ttl_of(told.get(MARK)))
        (shared if kind == b"system" else messages).extend(found)
    top = fields.get(MARK)
    if top is not None:
        mark_last(messages or shared, ttl=ttl_of(top))
    settings = dump(
        [fields.get(name) for name in ("tool_choice", "parallel_tool_calls", "reasoning", "reasoning_effort")]
    )
    return CachedPrompt(shared, settings, messages, marked_bytes(body))


def pieces_of_openai(body: Raw) -> list[bytes]:
    """The schema of the answer is put before the system message, the tools stand with it."""
    first, asked = parts_of_openai(body)
    said = [asked] if isinstance(asked, str) else rows(asked)
    return [dump(one) for one in (*first, *said)]


def parts_of_openai(body: Raw) -> tuple[list[Raw], Raw]:
    """What stands before the conversation, and the conversation."""
    fields = table(body)
    first = [fields.get(name) for name in ("response_format", "text", "tools", "instructions")]
    return first, fields.get("input") if "input" in fields else fields.get("messages")


def has_breakpoints(model: str) -> bool:
    """A model of the family of GPT-5.6, or of a later one."""
    found = GPT.search(model)
    return found is not None and (int(found.group(1)), int(found.group(2) or 0)) >= WITH_BREAKPOINTS


def blocks_of_openai(body: Raw) -> list[CacheBlock]:
    """As `pieces_of_openai`, with the breakpoints, which are no part of what is compared."""
    first, asked = parts_of_openai(body)
    blocks = [CacheBlock(dump(one)) for one in first]
    messages: list[Raw] = [{"role": "user", "content": asked}] if isinstance(asked, str) else rows(asked)
    for told in map(table, messages):
        name = next((name for name in ("content", "output") if isinstance(told.get(name), list)), "")
        parts = rows(told.get(name)) if name else []
        head = without(told, (name,))
        blocks.append(CacheBlock(dump(head)))
        for part in parts:
            plain = without(table(part), (BREAKPOINT,))
            blocks.append(CacheBlock(dump(plain), "5m" if table(part).get(BREAKPOINT) is not None else ""))
        if told.get("role") in ("user", "tool") or told.get("type") in ANSWERS:
            blocks[-1] = blocks[-1]._replace(ends_message=True)
    return blocks


# --- streams


CHUNK_LINE = re.compile(r"(?P<delta>\{.*\})?\s*(?:finish (?P<finish>\S+))?")


def chunk_data(line: str, response: Response) -> bytes:
    """The data of the chunk that a script's line stands for (`faults.stream_of`). Raises ValueError for an invalid line."""
    if line == "done":
        return DONE
    if line.startswith("chunk "):
        return line.removeprefix("chunk ").encode()
    about = {"id": response.id, "object": "chat.completion.chunk", "created": CREATED, "model": response.model}
    if line == "usage":
        return dump({**about, "choices": [], "usage": counted_tokens(response)})
    found = CHUNK_LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"no line of a Chat Completions stream: {line}")
    delta = msgspec.Raw((found["delta"] or "{}").encode())
    return dump({**about, "choices": [{"index": 0, "delta": delta, "finish_reason": found["finish"]}]})


def counted_tokens(response: Response) -> Mapping[str, object]:
    usage = response.usage or NO_USAGE
    told = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }
    if not (usage.cache_read_tokens or usage.cache_write_tokens):
        return told
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {**told, "prompt_tokens_details": details}


# --- clients


class FunctionPiece(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class NaiveCall(msgspec.Struct, frozen=True):
    index: int
    function: FunctionPiece
    id: str | None = None


class NaiveDelta(msgspec.Struct, frozen=True):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[NaiveCall] | None = None


class NaiveChoice(msgspec.Struct, frozen=True):
    delta: NaiveDelta = NaiveDelta()
    finish_reason: str | None = None


class NaiveChunk(msgspec.Struct, frozen=True):
    choices: list[NaiveChoice] = []
    error: ToldError | None = None


def read_naively(body: bytes) -> StreamReading:
    text, refusal, finish, error = "", "", "", ""
    calls: dict[int, list[str]] = {}
    for chunk in naive_events(body, as_type=NaiveChunk):
        error = error or (chunk.error.message if chunk.error is not None else "")
        for choice in chunk.choices:
            text += choice.delta.content or ""
            refusal += choice.delta.refusal or ""
            finish = choice.finish_reason or finish
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, ["", "", ""])
                call[0] += piece.id or ""
                call[1] += piece.function.name or ""
                call[2] += piece.function.arguments or ""
    return StreamReading(
        text + refusal, [(call[0], call[1], call[2]) for call in calls.values()], _FINISH.get(finish, finish), error
    )


_FINISH = {"tool_calls": "calls", "stop": "stop", "length": "length", "content_filter": "refused"}


class StrictChatCall(msgspec.Struct, frozen=True):
    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: FunctionPiece = FunctionPiece()


class StrictDelta(msgspec.Struct, frozen=True):
    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[StrictChatCall] | None = None


class StrictChoice(msgspec.Struct, frozen=True):
    index: int
    delta: StrictDelta
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"] | None = None


class StrictUsage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class StrictChunk(msgspec.Struct, frozen=True):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[StrictChoice]
    usage: StrictUsage | None = None


def read_strictly(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    events = events_of(body)
    answer = _ChatAnswer()
    for place, event in enumerate(events):
        if event.data == DONE:
            rule(place == len(events) - 1, "something follows `[DONE]`")
            break
        if error := error_in(event.data):
            rule(not answer.finish, "an error follows the finish reason")
            rule(all(later.data == DONE for later in events[place + 1 :]), "something follows the error")
            return answer.reading(error)
        answer.add(shaped(event.data, as_type=StrictChunk))
    rule(bool(events) and events[-1].data == DONE, "the stream ends without `[DONE]`")
    answer.close()
    return answer.reading()


class _ChatAnswer:
    """What has come of one answer."""

    def __init__(self) -> None:
        self.finish = ""
        self._id = ""
        self._text = ""
        self._refusal = ""
        self._calls: list[tuple[str, str, list[str]]] = []

    def add(self, chunk: StrictChunk) -> None:
        self._id = self._id or chunk.id
        rule(chunk.id == self._id, "the chunks of one answer have several ids")
        for choice in chunk.choices:
            rule(choice.index == 0, f"there is a choice {choice.index}, though one was asked for")
            delta = choice.delta
            is_empty = not (delta.content or delta.refusal or delta.tool_calls)
            # OpenRouter says the reason twice, which misleads no client.
            is_again = choice.finish_reason in (None, self.finish)
            rule(not self.finish or (is_empty and is_again), "something follows the finish reason")
            self._text += delta.content or ""
            self._refusal += delta.refusal or ""
            for piece in delta.tool_calls or ():
                self._add_piece(piece)
            self.finish = choice.finish_reason or self.finish

    def _add_piece(self, piece: StrictChatCall) -> None:
        name, arguments = piece.function.name or "", piece.function.arguments or ""
        if piece.index == len(self._calls):
            rule(bool(piece.id), "a call begins without an id")
            rule(bool(name), "a call begins without a name")
            self._calls.append((piece.id or "", name, [arguments]))
            return
        rule(0 <= piece.index < len(self._calls), f"a call has index {piece.index}, and {len(self._calls)} is the next")
        rule(not piece.id, "a later piece of a call has an id")
        rule(not name, "a later piece of a call has a name")
        self._calls[piece.index][2].append(arguments)

    def close(self) -> None:
        rule(bool(self.finish), "the stream has no finish reason")
        rule((self.finish == "tool_calls") == bool(self._calls) or self.finish == "length", self._false_end())
        for _, _, pieces in self._calls:
            arguments_object("".join(pieces))
        rule(len({call[0] for call in self._calls}) == len(self._calls), "two calls have one id")

    def _false_end(self) -> str:
        return f"the finish reason is `{self.finish}`, and the answer has {counted(len(self._calls), 'call')}"

    def reading(self, error: str = "") -> StreamReading:
        calls = [(one, name, "".join(pieces)) for one, name, pieces in self._calls]
        return StreamReading(self._text + self._refusal, calls, _FINISH.get(self.finish, self.finish), error)


def sign_call(id: str) -> Opaque:
    """As Gemini's Chat Completions hand a thought's signature out."""
    return Opaque(JUDGE.name, dump({"extra_content": {"google": {"thought_signature": sign(id)}}}).decode())


FAMILY = LabFamily(
    judge=JUDGE,
    title="Chat Completions",
    # Azure names the model in the path: /openai/deployments/{model}/chat/completions
    routes=(("/deployments/MODEL/chat/completions", False), ("/chat/completions", False)),
    strict_paths=r"/v1/(?:chat/completions|models)|/openai/deployments/[^/]+/chat/completions",  # Azure's has no version
    base_path="/v1",
    read=read_chat,
    prompt=prompt_of_chat,
    dialect_signature=sign_call,
    cut_calls="text",
    line_data=chunk_data,
    unsaid_end=lambda response: ("usage", "done"),
    read_naively=read_naively,
    read_strictly=read_strictly,
    has_indexes=True,
)
