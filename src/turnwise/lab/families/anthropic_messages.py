"""Anthropic's Messages, as the lab plays them and as their clients read them."""

from typing import Literal

import msgspec

from turnwise.lab.caches import MARK, CacheBlock, CachedPrompt, block_of, blocks_of, mark_last, marked_bytes, ttl_of
from turnwise.lab.families.family import (
    CallSeen,
    Conversation,
    LabFamily,
    Offered,
    ResultSeen,
    SentMessage,
    StreamReading,
    StrictEvent,
    ToldError,
    arguments_object,
    canonical,
    counted,
    events_of,
    files_of,
    join,
    naive_events,
    plain,
    rule,
    shaped,
    texts_of,
)
from turnwise.lab.raw import Raw, dig, dump, rows, table, text
from turnwise.lab.strict.anthropic_messages import JUDGE, tools_defined
from turnwise.lab.strict.thinking import sign
from turnwise.vocab import NO_USAGE, Opaque, Reasoning, Response


def read_anthropic(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = [SentMessage(role="system", texts=texts_of(body["system"]))] if body.get("system") else []
    for message in rows(body.get("messages")):
        content = table(message).get("content")
        if table(message).get("role") == "assistant":
            said.append(SentMessage(role="assistant", texts=texts_of(content), calls=anthropic_calls(content)))
            continue
        if table(message).get("role") == "system":  # stands behind what the user says
            place = len(said) - (said[-1].role == "user") if said else 0
            said.insert(place, SentMessage(role="system", texts=texts_of(content)))
            continue
        blocks = [table(block) for block in rows(content)]
        results = [
            ResultSeen(id=text(block.get("tool_use_id")), name="", content=plain(block.get("content")))
            for block in blocks
            if block.get("type") == "tool_result"
        ]
        if results:
            said.append(SentMessage(role="results", results=tuple(results)))
        files = files_of(content) - len(results)
        if texts_of(content) or files:
            said.append(SentMessage(role="user", texts=texts_of(content), files=files))
    more = [tool for _, tool in tools_defined(rows(body.get("messages")))]
    tools = [*map(table, rows(body.get("tools"))), *more]
    own = [tool for tool in tools if text(tool.get("type")) in ("", "custom")]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("input_schema")) for tool in own]),
        forbids=dig(body.get("tool_choice"), "type") == "none",
        output_schema=dig(body.get("output_config"), "format", "schema") or dig(body.get("output_format"), "schema"),
        eager=frozenset({text(tool.get("name")) for tool in own if tool.get("eager_input_streaming") is True}),
    )


def anthropic_calls(content: Raw) -> tuple[CallSeen, ...]:
    blocks = [table(block) for block in rows(content)]
    return tuple(
        [
            CallSeen(id=text(block.get("id")), name=text(block.get("name")), arguments=canonical(block.get("input")))
            for block in blocks
            if block.get("type") == "tool_use"
        ]
    )


def prompt_of_messages(body: Raw) -> CachedPrompt:
    fields = table(body)
    shared = [block_of(b"tool", tool) for tool in rows(fields.get("tools"))]
    shared += [block_of(b"system", block) for block in blocks_of(fields.get("system"))]
    messages: list[CacheBlock] = []
    for message in rows(fields.get("messages")):
        role = text(table(message).get("role")).encode()
        messages += [block_of(role, block) for block in blocks_of(table(message).get("content"))]
    top = fields.get(MARK)
    if top is not None:
        mark_last(messages, ttl=ttl_of(top))
    settings = dump([fields.get("tool_choice"), fields.get("thinking")])
    return CachedPrompt(shared, settings, messages, marked_bytes(body))


class NaiveBlock(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    name: str = ""


class NaiveBlockDelta(msgspec.Struct, frozen=True):
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class NaiveMessageEvent(msgspec.Struct, frozen=True):
    type: str
    index: int = -1
    content_block: NaiveBlock = NaiveBlock(type="")
    delta: NaiveBlockDelta = NaiveBlockDelta()
    error: ToldError | None = None


def read_naively(body: bytes) -> StreamReading:
    text, finish, error, is_over = "", "", "", False
    calls: dict[int, list[str]] = {}
    for event in naive_events(body, as_type=NaiveMessageEvent):
        match event.type:
            case "content_block_start" if event.content_block.type == "tool_use":
                calls[event.index] = [event.content_block.id, event.content_block.name, ""]
            case "content_block_delta":
                text += event.delta.text
                if event.delta.partial_json:
                    calls[event.index][2] += event.delta.partial_json
            case "message_delta":
                finish = event.delta.stop_reason or finish
            case "message_stop":
                is_over = True
            case "error":
                error = event.error.message if event.error is not None else "it failed"
            case _:
                pass
    whole = [(call[0], call[1], call[2] or "{}") for call in calls.values()]
    return StreamReading(text, whole, _FINISH.get(finish, finish or "nothing") if is_over else "", error)


_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "calls",
    "refusal": "refused",
    "pause_turn": "pause_turn",
}
_BLOCK_OF = {
    "text_delta": "text",
    "citations_delta": "text",
    "input_json_delta": "tool_use",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
}


class StrictMessage(msgspec.Struct, frozen=True):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[object]
    usage: dict[str, object]


class StrictBlock(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    name: str = ""
    text: str = ""
    input: dict[str, object] | None = None


class StrictBlockDelta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class StrictMessageEvent(msgspec.Struct, frozen=True):
    type: str
    index: int | None = None
    message: StrictMessage | None = None
    content_block: StrictBlock | None = None
    delta: StrictBlockDelta = StrictBlockDelta()
    error: ToldError | None = None


def read_strictly(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    answer = _MessagesAnswer()
    for event in events_of(body):
        answer.add(event)
    return answer.reading()


class _MessagesAnswer:
    """What has come of one message."""

    def __init__(self) -> None:
        self._blocks: list[tuple[StrictBlock, list[str]]] = []
        self._is_open = False
        self._has_begun = False
        self._is_over = False
        self._stop = ""
        self._error = ""

    def add(self, event: StrictEvent) -> None:
        rule(not self._is_over and not self._error, "something follows the end")
        one = shaped(event.data, as_type=StrictMessageEvent)
        rule(event.name == one.type, f"an event of type `{one.type}` is named `{event.name}`")
        match one.type:
            case "ping":
                return
            case "error":
                self._error = one.error.message if one.error is not None else "an error without words"
            case "message_start":
                rule(not self._has_begun, "the message begins twice")
                rule(one.message is not None and not one.message.content, "the message does not begin empty")
                self._has_begun = True
            case _:
                rule(self._has_begun, f"`{one.type}` comes before the message begins")
                self._add_within(one)

    def _add_within(self, one: StrictMessageEvent) -> None:
        match one.type:
            case "content_block_start":
                self._begin(one)
            case "content_block_delta":
                self._check_place(one)
                block, pieces = self._blocks[-1]
                wanted = _BLOCK_OF.get(one.delta.type, block.type)
                rule(block.type == wanted, f"a `{one.delta.type}` came for a block of type `{block.type}`")
                pieces.append(one.delta.partial_json or one.delta.text)
            case "content_block_stop":
                self._check_place(one)
                self._is_open = False
            case "message_delta":
                rule(not self._is_open, "the message ends with a block that has not ended")
                rule(not (self._stop and one.delta.stop_reason), "the message ends twice")
                self._stop = one.delta.stop_reason or self._stop
            case "message_stop":
                self._close()
            case _:
                pass

    def _begin(self, one: StrictMessageEvent) -> None:
        block = one.content_block
        rule(not self._is_open, "a block begins before the one before it has ended")
        rule(not self._stop, "a block begins after the stop reason")
        rule(one.index == len(self._blocks), f"a block has index {one.index}, and {len(self._blocks)} is the next")
        rule(block is not None, "a block begins without a type")
        assert block is not None
        if block.type == "tool_use":
            rule(bool(block.id), "a call begins without an id")
            rule(bool(block.name), "a call begins without a name")
            rule(block.input == {}, "a call does not begin with an empty input")
        self._blocks.append((block, [block.text]))
        self._is_open = True

    def _check_place(self, one: StrictMessageEvent) -> None:
        is_there = self._is_open and one.index == len(self._blocks) - 1
        rule(is_there, f"`{one.type}` came for a block that is not open")

    def _close(self) -> None:
        rule(bool(self._stop), "the message has no stop reason")
        rule(self._stop in _FINISH, f"there is no stop reason `{self._stop}`")
        calls = [call for call in self._blocks if call[0].type == "tool_use"]
        is_true = (self._stop == "tool_use") == bool(calls) or self._stop == "max_tokens"
        rule(is_true, f"the stop reason is `{self._stop}`, and the message has {counted(len(calls), 'call')}")
        for _, pieces in calls:
            arguments_object("".join(pieces) or "{}")
        rule(len({block.id for block, _ in calls}) == len(calls), "two calls have one id")
        self._is_over = True

    def reading(self) -> StreamReading:
        rule(self._is_over or bool(self._error), "the stream ends without `message_stop`")
        calls = [
            (block.id, block.name, "".join(pieces) or "{}")
            for block, pieces in self._blocks
            if block.type == "tool_use"
        ]
        text = "".join(["".join(pieces) for block, pieces in self._blocks if block.type == "text"])
        return StreamReading(text, calls, _FINISH[self._stop] if self._is_over else "", self._error)


def thought(said: str, made: int, sealed: bool) -> Reasoning:
    del made, sealed
    return Reasoning(said, Opaque(JUDGE.name, dump({"signature": sign(said)}).decode()))


def unsaid_end(response: Response) -> tuple[str, ...]:
    usage = {"output_tokens": (response.usage or NO_USAGE).output_tokens}
    delta = {"type": "message_delta", "delta": {"stop_reason": None, "stop_sequence": None}, "usage": usage}
    return dump(delta).decode(), dump({"type": "message_stop"}).decode()


FAMILY = LabFamily(
    judge=JUDGE,
    title="Anthropic",
    recorded_as="anthropic",
    # Vertex speaks this format with the model in the path.
    routes=(("/messages", False), ("/models/MODEL:rawPredict", False), ("/models/MODEL:streamRawPredict", True)),
    strict_paths="/v1/(?:messages|models)",
    is_own_list=lambda headers, path: "anthropic-version" in headers,
    read=read_anthropic,
    prompt=prompt_of_messages,
    thought=thought,
    # The API holds a parameter back until it is whole: what came before it has been sent, the object is never closed.
    # Source: docs.anthropic.com, "Fine-grained tool streaming".
    cut_calls="held",
    refuses_by_word=True,
    usage_first=True,  # in `message_start`
    names_events=True,
    unsaid_end=unsaid_end,
    ping='{"type":"ping"}',  # docs, "Streaming: ping events"
    read_naively=read_naively,
    read_strictly=read_strictly,
)
