"""The Responses API, as the lab plays it and as its clients read it."""

import msgspec

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
    events_of,
    files_of,
    join,
    naive_events,
    plain,
    rule,
    shaped,
    texts_of,
)
from turnwise.lab.families.openai_chat import prompt_of_openai
from turnwise.lab.raw import Raw, dig, dump, rows, table, text
from turnwise.lab.strict.openai_responses import JUDGE
from turnwise.lab.strict.thinking import sign
from turnwise.lab.strict.verdicts import Rejected
from turnwise.vocab import Opaque, Reasoning


def read_responses(body: dict[str, Raw]) -> Conversation:
    given = body.get("input")
    said: list[SentMessage] = []
    if isinstance(body.get("instructions"), str):
        said.append(SentMessage(role="system", texts=(text(body.get("instructions")),)))
    if isinstance(given, str):
        said.append(SentMessage(role="user", texts=(given,)))
    for item in rows(given):
        one = responses_item(table(item))
        if one is not None:
            said.append(one)
    more = [item.get("tools") for item in map(table, rows(given)) if item.get("type") == "additional_tools"]
    tools = [table(tool) for offered in (body.get("tools"), *more) for tool in rows(offered)]
    return Conversation(
        said=join(said),
        tools=tuple([Offered(name=text(tool.get("name")), schema=tool.get("parameters")) for tool in tools]),
        forbids=body.get("tool_choice") == "none",
        output_schema=dig(body.get("text"), "format", "schema"),
        sealed="reasoning.encrypted_content" in rows(body.get("include")),
    )


def responses_item(item: dict[str, Raw]) -> SentMessage | None:
    content, id = item.get("content"), text(item.get("call_id"))
    match text(item.get("type")) or "message":
        case "message":
            match text(item.get("role")):
                case "system" | "developer":
                    return SentMessage(role="system", texts=texts_of(content))
                case "assistant":
                    return SentMessage(role="assistant", texts=texts_of(content))
                case _:
                    return SentMessage(role="user", texts=texts_of(content), files=files_of(content))
        case "function_call":
            call = CallSeen(id=id, name=text(item.get("name")), arguments=canonical(item.get("arguments")))
            return SentMessage(role="assistant", calls=(call,))
        case "custom_tool_call":
            call = CallSeen(id=id, name=text(item.get("name")), arguments=text(item.get("input")))
            return SentMessage(role="assistant", calls=(call,))
        case "function_call_output" | "custom_tool_call_output":
            return SentMessage(role="results", results=(ResultSeen(id=id, name="", content=plain(item.get("output"))),))
        case _:
            return None


class NaiveItem(msgspec.Struct, frozen=True):
    type: str
    id: str = ""
    call_id: str = ""
    name: str = ""


class NaiveReason(msgspec.Struct, frozen=True):
    reason: str | None = None


class NaiveResponse(msgspec.Struct, frozen=True):
    error: ToldError | None = None
    incomplete_details: NaiveReason | None = None


class NaiveResponseEvent(msgspec.Struct, frozen=True):
    type: str
    item: NaiveItem = NaiveItem(type="")
    item_id: str = ""
    delta: str = ""
    arguments: str = ""
    message: str = ""
    response: NaiveResponse = NaiveResponse()


def read_naively(body: bytes) -> StreamReading:
    text, refusal, finish, error = "", "", "", ""
    calls: dict[str, list[str]] = {}
    for event in naive_events(body, as_type=NaiveResponseEvent):
        match event.type:
            case "response.output_item.added" if event.item.type == "function_call":
                calls[event.item.id] = [event.item.call_id, event.item.name, ""]
            case "response.function_call_arguments.delta":
                calls[event.item_id][2] += event.delta
            case "response.function_call_arguments.done":
                calls[event.item_id][2] = event.arguments
            case "response.output_text.delta":
                text += event.delta
            case "response.refusal.delta":
                refusal += event.delta
            case "response.completed":
                finish = "calls" if calls else "refused" if refusal else "stop"
            case "response.incomplete":
                details = event.response.incomplete_details
                finish = "refused" if details is not None and details.reason == "content_filter" else "length"
            case "response.failed":
                error = event.response.error.message if event.response.error is not None else "it failed"
            case "error":
                error = event.message
            case _:
                pass
    listed = [(call[0], call[1], call[2]) for call in calls.values()]
    return StreamReading(text + refusal, listed, finish, error)


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


def read_strictly(body: bytes) -> StreamReading:
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


def thought(said: str, made: int, sealed: bool) -> Reasoning:
    seal = {"encrypted_content": sign(said)} if sealed else {}
    return Reasoning(said, Opaque(JUDGE.name, dump({"id": f"rs_lab_{made}", **seal}).decode()))


def error_event(rejected: Rejected) -> Raw:
    code = rejected.code or "server_error"
    return {"type": "error", "code": code, "message": rejected.message, "param": None, "sequence_number": 99}


FAMILY = LabFamily(
    judge=JUDGE,
    title="Responses",
    routes=(("/responses", False),),
    strict_paths="/v1/responses",
    base_path="/v1",
    has_socket=True,
    read=read_responses,
    prompt=prompt_of_openai,
    thought=thought,
    cut_calls="text",
    names_events=True,
    error_event=error_event,
    read_naively=read_naively,
    read_strictly=read_strictly,
)
