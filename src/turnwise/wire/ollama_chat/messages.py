"""Messages of Ollama's own API <-> ours: one way for requests and for whole answers, so that they cannot disagree.

A message is a text, the reasoning beside it, images as base64, and calls whose arguments are objects. Source: Ollama,
`api/types.go`, `Message`.
"""

from collections.abc import Sequence

import msgspec

from turnwise.vocab import ArgumentsState, File, Message, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from turnwise.wire.files import decode_base64, encode_base64, files_in_words, left_out, takes_file
from turnwise.wire.json_fields import compact_text, encode, is_json, is_null, is_object
from turnwise.wire.offers import free_form_arguments
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import WireNames

NAME = "ollama_chat"
JOINT = "\n\n"  # between texts that go as one
NO_ARGUMENTS = msgspec.Raw(b"{}")
IMAGE = "image/*"

Fields = dict[str, object]


class OllamaMessages:
    """The wire's messages for ours: each says itself alone."""

    def __init__(self, profile: Profile, *, names: WireNames) -> None:
        self._profile = profile
        self._names = names

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        found: list[bytes] = []
        for message in messages:
            if message.role == "tool":
                found += [encode(self._result(part)) for part in message.parts if isinstance(part, ToolResult)]
                continue
            parts = files_in_words(message.parts, family=NAME) if message.role == "assistant" else message.parts
            found.append(encode(self._said(message.role, self._names.fitted(parts))))
        return found

    def rest(self) -> list[bytes]:
        return []

    def copy(self) -> "OllamaMessages":
        return self  # nothing that was taken changes it

    def _result(self, result: ToolResult) -> Fields:
        said = self._said("tool", result.content)
        return {**said, "tool_name": self._names.of(result.name), "tool_call_id": result.call_id}

    def _said(self, role: str, parts: Sequence[Part]) -> Fields:
        told: list[Part] = []
        images: list[str] = []
        for part in parts:
            if not isinstance(part, File):
                told.append(part)
            elif part.data is not None and part.media_type.startswith("image/") and takes_file(part, self._profile):
                images.append(encode_base64(part.data))
            else:
                told.append(left_out(part))
        fields = said_fields(role, told)
        return {**fields, "images": images} if images else fields


def said_fields(role: str, parts: Sequence[Part]) -> Fields:
    """The message without its images."""
    joint = "" if role == "assistant" or any(isinstance(part, Text) and part.note for part in parts) else JOINT
    fields: Fields = {"role": role, "content": joint.join([p.text for p in parts if isinstance(p, Text | Refusal)])}
    if thinking := "".join([part.text for part in parts if isinstance(part, Reasoning)]):
        fields["thinking"] = thinking
    if calls := [call_fields(part) for part in parts if isinstance(part, ToolCall)]:
        fields["tool_calls"] = calls
    return fields


def call_fields(call: ToolCall) -> Fields:
    """Arguments that are not complete go as `{}`, others that are no object within one."""
    text = call.arguments.strip() or "{}"
    if call.state is not ArgumentsState.COMPLETE:
        text = "{}"
    elif call.free_form or not is_sendable(call):
        text = free_form_arguments(call.arguments)
    function = {"name": call.name, "arguments": msgspec.Raw(text.encode())}
    return {"id": call.id, "function": function} if call.id else {"function": function}


def is_sendable(call: ToolCall) -> bool:
    """Whether an answer can have it: a server gives no call whose arguments are no object."""
    text = call.arguments.strip()
    return call.free_form or not text or (text.startswith("{") and is_json(text))


class Function(msgspec.Struct):
    name: str
    arguments: msgspec.Raw = NO_ARGUMENTS


class Call(msgspec.Struct):
    function: Function
    id: str | None = None

    @property
    def arguments(self) -> str:
        """The text of an object. Servers that write a text in its place are taken at their word."""
        raw = self.function.arguments
        if is_null(raw):
            return "{}"
        return compact_text(raw) if is_object(raw) else (msgspec.json.decode(raw, type=str, strict=False) or "{}")


class WireMessage(msgspec.Struct):
    role: str = "assistant"
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[Call] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class MessageReader:
    """Messages in order. Calls without an id get one by their number; a result without one answers the oldest open call of its
    name, or the oldest at all."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._calls = 0
        self._open: list[ToolCall] = []

    def add(self, told: WireMessage) -> None:
        """Raises ValueError for what can be no message."""
        parts: list[Part] = [Reasoning(told.thinking)] if told.thinking else []
        parts += [Text(told.content)] if told.content else []
        parts += [_image(text) for text in told.images or ()]
        match told.role:
            case "tool":
                result = self._result(told, parts)
                if self.messages and self.messages[-1].role == "tool":
                    self.messages[-1] = Message("tool", (*self.messages[-1].parts, result))
                else:
                    self.messages.append(Message("tool", (result,)))
            case "system" | "user" | "assistant" as role:
                calls = [self._call(call) for call in told.tool_calls or ()]
                self._open += calls
                self.messages.append(Message(role, (*parts, *calls)))
            case _:
                raise ValueError(f"`role` is `{told.role[:40]}`: system, user, assistant or tool")

    def _call(self, call: Call) -> ToolCall:
        self._calls += 1
        return ToolCall(
            id=call.id or f"call_{self._calls}",
            name=call.function.name,
            arguments=call.arguments,
            state=ArgumentsState.COMPLETE,
        )

    def _result(self, told: WireMessage, parts: Sequence[Part]) -> ToolResult:
        id, name = told.tool_call_id, told.tool_name
        fits = [call for call in self._open if (call.id == id if id else call.name == name)] or self._open[:1]
        if fits and (not id or fits[0].id == id):
            self._open.remove(fits[0])
            id, name = fits[0].id, name or fits[0].name
        content = tuple([part for part in parts if isinstance(part, Text | File)])
        return ToolResult(call_id=id or "", name=name or "", content=content)


def _image(text: str) -> File:
    content = decode_base64(text)
    if content is None:
        raise ValueError("an image is no base64")
    return File(media_type=IMAGE, data=content)
