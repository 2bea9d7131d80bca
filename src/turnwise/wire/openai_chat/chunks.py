"""Chat Completions chunks and bodies as typed values. What does not fit them is read by the tolerant way below.

A chunk and a body differ only in `delta` and `message`, so one type holds both. Only what has a word in our vocabulary is
decoded; the rest (`logprobs`, `system_fingerprint`, padding ...) is passed over. Source: OpenAI API reference, "Chat
Completions", and for the fields of other providers the recorded streams.
"""

import json

import msgspec

from turnwise.vocab.json_values import is_json_array, is_json_object, object_or_empty, objects_in
from turnwise.wire.json_fields import NOTHING, is_null


class FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None
    whole: bool = False  # ours, set by the loose reading: the arguments came as an object


class CustomPiece(msgspec.Struct, gc=False):
    name: str | None = None
    input: str | None = None


class CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None
    custom: CustomPiece | None = None
    extra_content: msgspec.Raw = NOTHING  # Gemini's compatible endpoint: `{"google":{"thought_signature":...}}`


class ContentPart(msgspec.Struct, gc=False):
    """Content as typed parts (Mistral; OpenAI in messages)."""

    type: str = ""
    text: str | None = None
    thinking: "str | list[ContentPart] | None" = None
    refusal: str | None = None


class Delta(msgspec.Struct, gc=False):
    content: str | list[ContentPart] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_text: str | None = None  # Copilot
    reasoning_details: list[msgspec.Raw] | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None
    function_call: FunctionPiece | None = None  # before `tool_calls`; still sent by old deployments
    annotations: list[msgspec.Raw] | None = None
    executed_tools: list[msgspec.Raw] | None = None  # Groq compound: tools that ran on the server
    images: list[msgspec.Raw] | None = None  # OpenRouter: generated images


class Choice(msgspec.Struct, gc=False):
    index: int | None = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    native_finish_reason: str | None = None  # OpenRouter: the upstream's own word


class GroqExtension(msgspec.Struct, gc=False):
    usage: msgspec.Raw = NOTHING


class Chunk(msgspec.Struct, gc=False):
    id: str | None = None
    model: str | None = None
    object: str | None = None
    choices: list[Choice] | None = None
    usage: msgspec.Raw = NOTHING
    service_tier: msgspec.Raw = NOTHING  # how the request was served
    error: msgspec.Raw = NOTHING
    x_groq: GroqExtension | None = None
    citations: list[msgspec.Raw] | None = None  # Perplexity: URLs, repeated in every chunk
    search_results: list[msgspec.Raw] | None = None  # Perplexity: the same sources with titles


decode_chunk = msgspec.json.Decoder(Chunk).decode
"""Raises msgspec.MsgspecError, UnicodeDecodeError or RecursionError."""


def is_there(raw: msgspec.Raw) -> bool:
    """True where the field was sent and is not null."""
    return not is_null(raw)


# A chunk whose fields are of other kinds than the typed decoder takes: what can be read of it, and what cannot.


TEXT_KEYS = ("text", "content", "value")
MOST_WRAPS = 4  # objects around one text; a text in a part in the content is two


class LooseChunk(msgspec.Struct, frozen=True):
    """`skipped` are the fields that may have been a piece of an answer or of a call, and that could not be read."""

    chunk: Chunk
    skipped: tuple[str, ...]


def read_loosely(value: dict[str, object]) -> LooseChunk:
    """Take every field of the right kind, and text that stands one level deeper."""
    reader = _Reader()
    return LooseChunk(reader.chunk(value), tuple(dict.fromkeys(reader.skipped)))


class _Reader:
    """The fields of one chunk. `skipped` grows while it reads."""

    __slots__ = ("skipped",)

    def __init__(self) -> None:
        self.skipped: list[str] = []

    def chunk(self, value: dict[str, object]) -> Chunk:
        groq = object_or_empty(value.get("x_groq"))
        choices = value.get("choices")
        return Chunk(
            id=_text(value.get("id")),
            model=_text(value.get("model")),
            object=_text(value.get("object")),
            choices=[self._choice(choice) for choice in self._objects("choices", choices)]
            if choices is not None
            else None,
            usage=_raw(value.get("usage")),
            service_tier=_raw(value.get("service_tier")),
            error=_raw(value.get("error")),
            x_groq=GroqExtension(usage=_raw(groq.get("usage"))) if groq else None,
            citations=_raws(value.get("citations")),
            search_results=_raws(value.get("search_results")),
        )

    def _choice(self, value: dict[str, object]) -> Choice:
        delta, message = self._object("delta", value.get("delta")), self._object("message", value.get("message"))
        return Choice(
            index=_integer(value.get("index")),
            delta=None if delta is None else self._delta(delta, is_piece=True),
            message=None if message is None else self._delta(message, is_piece=False),
            finish_reason=_text(value.get("finish_reason")),
            native_finish_reason=_text(value.get("native_finish_reason")),
        )

    def _delta(self, value: dict[str, object], *, is_piece: bool) -> Delta:
        call = self._object("function_call", value.get("function_call"))
        return Delta(
            content=self._content(value.get("content")),
            reasoning_content=_said(value.get("reasoning_content")),
            reasoning=_said(value.get("reasoning")),
            reasoning_text=_said(value.get("reasoning_text")),
            reasoning_details=_raws(value.get("reasoning_details")),
            refusal=self._words("refusal", value.get("refusal")),
            tool_calls=[
                self._call(call, is_piece=is_piece) for call in self._objects("tool_calls", value.get("tool_calls"))
            ],
            function_call=None if call is None else self._function(call, is_piece=is_piece),
            annotations=_raws(value.get("annotations")),
            executed_tools=_raws(value.get("executed_tools")),
            images=_raws(value.get("images")),
        )

    def _content(self, value: object) -> str | list[ContentPart] | None:
        """Some servers send one part where a text or a list of parts should stand."""
        if is_json_object(value):
            part = self._part(value)
            if part.text is None and not part.thinking and part.refusal is None:
                self._skip("content", value)
            return [part]
        if not is_json_array(value):
            return self._words("content", value)
        return [
            self._part(part) if is_json_object(part) else ContentPart(type="text", text=self._words("content", part))
            for part in value
        ]

    def _part(self, value: dict[str, object]) -> ContentPart:
        thinking = value.get("thinking")
        return ContentPart(
            type=_text(value.get("type")) or "",
            text=self._words("text", value.get("text")),
            thinking=[self._part(part) for part in objects_in(thinking)]
            if is_json_array(thinking)
            else _said(thinking),
            refusal=self._words("refusal", value.get("refusal")),
        )

    def _call(self, value: dict[str, object], *, is_piece: bool) -> CallPiece:
        function = self._object("function", value.get("function"))
        custom = self._object("custom", value.get("custom"))
        index = _integer(value.get("index"))
        if index is None:
            self._skip("index", value.get("index"))
        return CallPiece(
            index=index,
            id=self._name("id", value.get("id")),
            function=None if function is None else self._function(function, is_piece=is_piece),
            custom=CustomPiece(
                name=self._name("name", custom.get("name")),
                input=self._written("input", custom.get("input"), is_piece=is_piece),
            )
            if custom
            else None,
            extra_content=_raw(value.get("extra_content")),
        )

    def _function(self, value: dict[str, object], *, is_piece: bool) -> FunctionPiece:
        arguments = value.get("arguments")
        is_whole = isinstance(arguments, dict | list)
        name = self._name("name", value.get("name"))
        return FunctionPiece(
            name=name, arguments=self._written("arguments", arguments, is_piece=is_piece), whole=is_whole
        )

    def _written(self, field: str, value: object, *, is_piece: bool) -> str | None:
        """Text, or the JSON text of what came whole: a number is no arguments, but it is not none either. It is no piece."""
        if value is None or isinstance(value, str):
            return value
        if is_piece and not isinstance(value, dict | list):
            self.skipped.append(field)
            return None
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    def _words(self, field: str, value: object) -> str | None:
        said = _said(value)
        if said is None:
            self._skip(field, value)
        return said

    def _name(self, field: str, value: object) -> str | None:
        name = _text(value)
        if name is None:
            self._skip(field, value)
        return name

    def _object(self, field: str, value: object) -> dict[str, object] | None:
        if is_json_object(value):
            return value
        self._skip(field, value)
        return None

    def _objects(self, field: str, value: object) -> list[dict[str, object]]:
        """The objects in a list. What else stands there was one; a value alone may be empty."""
        if not is_json_array(value):
            return [value] if self._object(field, value) is not None and is_json_object(value) else []
        if not all(map(is_json_object, value)):
            self.skipped.append(field)
        return objects_in(value)

    def _skip(self, field: str, value: object) -> None:
        """Note a field that cannot be read. What is empty or false says nothing, whatever its kind."""
        if value:
            self.skipped.append(field)


def _text(value: object) -> str | None:
    """A name or an id. A lone surrogate in it could never be written again: it is written out, as `\\ud800`."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _said(value: object) -> str | None:
    """A piece of text, also from inside of objects. A lone surrogate in it may be half of a character, so the assembler joins
    it with the next piece's."""
    for _ in range(MOST_WRAPS):
        if not is_json_object(value):
            break
        value = next((value[key] for key in TEXT_KEYS if key in value), None)
    return value if isinstance(value, str) else _text(value)


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 10 else None


def _raw(value: object) -> msgspec.Raw:
    return NOTHING if value is None else msgspec.Raw(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _raws(value: object) -> list[msgspec.Raw] | None:
    return [_raw(item) for item in value] if is_json_array(value) else None
