"""Chat Completions, read strictly. Source: OpenAI's API reference, "The chat completion chunk object"."""

from typing import Literal

import msgspec

from turnwise.lab.readers.reader_result import StreamReading, counted
from turnwise.lab.readers.strict_events import DONE, arguments_object, error_in, events_of, rule, shaped

_FINISH = {"tool_calls": "calls", "stop": "stop", "length": "length", "content_filter": "refused"}


class StrictFunction(msgspec.Struct, frozen=True):
    name: str | None = None
    arguments: str | None = None


class StrictChatCall(msgspec.Struct, frozen=True):
    index: int
    id: str | None = None
    type: Literal["function"] | None = None
    function: StrictFunction = StrictFunction()


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


def read_chat(body: bytes) -> StreamReading:
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
