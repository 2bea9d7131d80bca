"""The Responses API, read strictly. Source: OpenAI's API reference, "Streaming events"."""

import msgspec

from turnwise.lab.readers.reader_result import StreamReading, ToldError
from turnwise.lab.readers.strict_events import StrictEvent, arguments_object, events_of, rule, shaped

_TERMINAL = {"response.completed": "completed", "response.incomplete": "incomplete", "response.failed": "failed"}
_PIECES = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.function_call_arguments.delta": "arguments",
}
_WHOLE = {
    "response.output_text.done": "text",
    "response.refusal.done": "text",
    "response.function_call_arguments.done": "arguments",
}


class StrictContent(msgspec.Struct, frozen=True):
    type: str
    text: str | None = None
    refusal: str | None = None


class StrictItem(msgspec.Struct, frozen=True):
    type: str
    id: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    content: list[StrictContent] | None = None

    @property
    def said(self) -> str:
        """The text of a message or the arguments of a call."""
        return self.arguments or "".join([part.text or part.refusal or "" for part in self.content or ()])


class StrictReason(msgspec.Struct, frozen=True):
    reason: str


class StrictWhole(msgspec.Struct, frozen=True):
    id: str
    status: str
    output: list[StrictItem]
    error: ToldError | None = None
    incomplete_details: StrictReason | None = None


class StrictResponseEvent(msgspec.Struct, frozen=True):
    type: str
    sequence_number: int
    output_index: int | None = None
    item_id: str | None = None
    item: StrictItem | None = None
    delta: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    response: StrictWhole | None = None
    message: str = ""


def read_responses(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    answer = _ResponsesAnswer()
    for event in events_of(body):
        answer.add(event)
    return answer.reading()


class _OpenItem(msgspec.Struct):
    item: StrictItem
    said: str = ""
    told: str | None = None  # as the event said that ends the text or the arguments
    is_done: bool = False


class _ResponsesAnswer:
    """What has come of one response."""

    def __init__(self) -> None:
        self._items: list[_OpenItem] = []
        self._last = -1
        self._end: StrictWhole | None = None
        self._error = ""

    def add(self, event: StrictEvent) -> None:
        one = shaped(event.data, as_type=StrictResponseEvent)
        # OpenAI reports an error as an event and as the state of the response.
        is_failure = one.type == "response.failed"
        rule(self._end is None and (is_failure or not self._error), "something follows the end")
        rule(event.name in ("", one.type), f"an event of type `{one.type}` is named `{event.name}`")
        rule(one.sequence_number > self._last, "the sequence numbers do not rise")
        rule(self._last >= 0 or one.type in ("response.created", "error"), f"the first event is `{one.type}`")
        self._last = one.sequence_number
        match one.type:
            case "response.output_item.added":
                self._begin(one)
            case "response.output_item.done":
                self._finish(one)
            case "error":
                self._error = one.message or "an error without words"
            case "response.completed" | "response.incomplete" | "response.failed":
                self._close(one)
            case _ if one.type in _PIECES:
                self._open(one, kind=_PIECES[one.type]).said += one.delta or ""
            case _ if one.type in _WHOLE:
                found = self._open(one, kind=_WHOLE[one.type])
                found.told = one.arguments if one.arguments is not None else one.text or one.refusal or ""
                rule(found.said.endswith(found.told), "the pieces and the whole that ends them differ")
            case _:
                pass

    def _begin(self, one: StrictResponseEvent) -> None:
        item = one.item
        assert_item = item is not None and one.output_index == len(self._items)
        rule(assert_item, "an item has another `output_index` than the next")
        assert item is not None
        rule(bool(item.id), "an item begins without an id")
        rule(
            item.type != "function_call" or bool(item.call_id and item.name), "a call begins without `call_id` or name"
        )
        rule(item.id not in {open_item.item.id for open_item in self._items}, "two items have one id")
        self._items.append(_OpenItem(item))

    def _open(self, one: StrictResponseEvent, *, kind: str) -> _OpenItem:
        found = self._at(one)
        rule(one.item_id == found.item.id, f"`{one.type}` names another item than its `output_index`")
        is_call = found.item.type == "function_call"
        rule(is_call == (kind == "arguments"), f"`{one.type}` came for an item of type `{found.item.type}`")
        return found

    def _at(self, one: StrictResponseEvent) -> _OpenItem:
        place = -1 if one.output_index is None else one.output_index
        rule(0 <= place < len(self._items), f"`{one.type}` came for an item that has not begun")
        rule(not self._items[place].is_done, f"`{one.type}` came for an item that has ended")
        return self._items[place]

    def _finish(self, one: StrictResponseEvent) -> None:
        found, item = self._at(one), one.item
        rule(item is not None and item.id == found.item.id, "an item ends with another id than it began with")
        assert item is not None
        rule(
            item.type != "function_call" or (item.call_id, item.name) == (found.item.call_id, found.item.name),
            "a call ends with another id or name than it began with",
        )
        if item.type in ("function_call", "message"):
            rule(item.said == found.said, f"an item of type `{item.type}` ends with something else than its pieces")
        found.item, found.is_done = item, True

    def _close(self, one: StrictResponseEvent) -> None:
        whole = one.response
        rule(whole is not None, f"`{one.type}` holds no response")
        assert whole is not None
        rule(whole.status == _TERMINAL[one.type], f"`{one.type}` has the status `{whole.status}`")
        self._end = whole
        if whole.status == "failed":
            self._error = whole.error.message if whole.error is not None else "it failed"
            return
        rule(all(found.is_done for found in self._items), "the response ends with an item that has not ended")
        told = [(item.type, item.id, item.call_id, item.name, item.said) for item in whole.output]
        known = [(found.item, found.item.said) for found in self._items]
        same = told == [(item.type, item.id, item.call_id, item.name, said) for item, said in known]
        rule(same, "the response at the end holds other items than the stream")
        calls = [item for item in whole.output if item.type == "function_call"]
        rule(len({call.call_id for call in calls}) == len(calls), "two calls have one id")
        if whole.status == "completed":
            for call in calls:
                arguments_object(call.arguments)

    def reading(self) -> StreamReading:
        rule(self._end is not None or bool(self._error), "the stream ends without `response.completed`")
        items = [found.item for found in self._items]
        calls = [(item.call_id, item.name, item.arguments) for item in items if item.type == "function_call"]
        texts = [found.said for found in self._items if found.item.type == "message"]
        return StreamReading("".join(texts), calls, "" if self._error else self._word(calls), self._error)

    def _word(self, calls: list[tuple[str, str, str]]) -> str:
        if self._end is not None and self._end.status == "incomplete":
            why = self._end.incomplete_details
            return "refused" if why is not None and why.reason == "content_filter" else "length"
        refuses = any(part.refusal for found in self._items for part in found.item.content or ())
        return "calls" if calls else "refused" if refuses else "stop"
