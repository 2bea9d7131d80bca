"""Parts: the pieces a message is made of. Frozen, equal by content; they know nothing of storage or of any provider.

Each kind of part is final, so `type(part) is Text` tells as much as `isinstance`: over a long history it costs a third.
A field that they do not have is an error where they are read: it is a newer turnwise's, and to leave it out would change what was
said.
"""

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, cast, final

import msgspec


class Opaque(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Provider data that turnwise does not read. It goes back unchanged, to the same API family only.

    `json` is JSON text (an object) whose keys are the family's own wire fields, for example `{"signature":"..."}`
    (Anthropic thinking) or `{"thoughtSignature":"..."}` (Gemini). It is text so that the value is hashable and equal by
    content. Each family documents its keys in its `request.py`.
    """

    family: str
    json: str


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A source that the provider names for a text.

    `raw` is the provider's own object as JSON text. It goes back to families that accept it.
    """

    family: str
    raw: str
    url: str | None = None
    title: str | None = None
    cited_text: str | None = None


@final
class Text(msgspec.Struct, frozen=True, tag="text", omit_defaults=True, forbid_unknown_fields=True):
    """A piece of text in a message.

    `note` is set on texts that turnwise adds beside a person's words or a tool's result, and says what they are. It is
    for readers of the history; no provider gets it.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    opaque: Opaque | None = None
    note: str = ""


@final
class Reasoning(msgspec.Struct, frozen=True, tag="reasoning", omit_defaults=True, forbid_unknown_fields=True):
    """The model's reasoning. `text` is empty if the provider sends only encrypted content; `opaque` holds that."""

    text: str
    opaque: Opaque | None = None


@final
class Refusal(msgspec.Struct, frozen=True, tag="refusal", omit_defaults=True, forbid_unknown_fields=True):
    """The model's words for why it does not answer."""

    text: str
    opaque: Opaque | None = None


@final
class File(msgspec.Struct, frozen=True, tag="file", kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An image, audio, video or document.

    Set exactly one of `data` (the bytes), `url` and `file_id` (an id at the provider).
    """

    media_type: str  # "image/png", "application/pdf", "image/*" where only the kind is known
    data: bytes | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    opaque: Opaque | None = None


class ArgumentsState(StrEnum):
    """Whether the arguments of a call arrived whole. Only a `complete` call may run."""

    COMPLETE = "complete"  # strictly valid JSON (or free-form text known to be whole)
    TRUNCATED = "truncated"  # a proper prefix of valid JSON, or cut by the response's limit
    INVALID = "invalid"  # no continuation could make it valid JSON
    LOST = "lost"  # a piece of it may not have arrived, so even whole JSON proves nothing


@final
class ToolCall(
    msgspec.Struct, frozen=True, tag="tool_call", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """A tool call, as the model wrote it.

    - `arguments` is the raw text: JSON, or plain text if `free_form`. It goes back to the provider byte for byte. `{}`
      if the model sent none.
    - `state` says whether the arguments are whole. Only a `COMPLETE` call may run. For any other state, `reason` says why
      the call is not complete.
    - `alternatives` are the JSON texts if one call held several (`{"a":1}{"a":2}`). Then `state` is INVALID, and the
      tool's schema decides whether they are several calls.
    - `asked` is the digest of what a person was shown, if the call waits for an approval.
    """

    id: str
    name: str
    arguments: str = "{}"
    state: ArgumentsState = ArgumentsState.COMPLETE
    free_form: bool = False
    reason: str | None = (
        None  # why not complete, for people and the model: "cut inside the string at `$.path` after 120 characters"
    )
    alternatives: tuple[str, ...] = ()
    opaque: Opaque | None = None
    asked: str = ""


@final
class ToolResult(
    msgspec.Struct, frozen=True, tag="tool_result", kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The one result of the call `call_id`.

    `name` is the tool's name (Gemini matches results by it). `free_form` is set if the call was free-form.
    """

    call_id: str
    name: str
    content: tuple[Text | File, ...] = ()
    is_error: bool = False
    free_form: bool = False  # answers a free-form (custom) call
    opaque: Opaque | None = None


@final
class ProviderItem(msgspec.Struct, frozen=True, tag="provider_item", forbid_unknown_fields=True):
    """An item of one API family that has no part of its own here (server-side tool use and its results, compaction
    blocks, computer actions ...). Kept in order and sent back verbatim to that family; other families leave it out.

    `kind` is the item's own type word; `json` the whole item as JSON text.
    """

    family: str
    kind: str
    json: str


Part = Text | Reasoning | Refusal | File | ToolCall | ToolResult | ProviderItem

Role = Literal["system", "user", "assistant", "tool"]
"""`tool` messages hold tool results only. `system` inside `Request.messages` is an instruction in mid-conversation."""


class HintedFields(msgspec.StructMeta):
    """The class of a struct that programs make: a call with a field that it does not have raises TypeError with the right one.
    `_elsewhere` has other libraries' names of its fields, and earlier ones."""

    _elsewhere: Mapping[str, str] = {}

    if not TYPE_CHECKING:  # type checkers take the struct's own fields

        def __call__(cls, *values: object, **fields: object) -> object:  # noqa: N805 (a class of classes)
            for name in fields:
                if name in cls.__struct_fields__:
                    continue
                near = difflib.get_close_matches(name, cls.__struct_fields__, n=1)
                meant = cls._elsewhere.get(name) or next(iter(near), "")
                hint = f"Did you mean `{meant}`?" if meant else f"Its fields are: {', '.join(cls.__struct_fields__)}"
                raise TypeError(f"`{name}` is no field of `{cls.__name__}`. {hint}")
            return super().__call__(*values, **fields)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A message of the conversation.

    `role` is `system`, `user`, `assistant` or `tool`. A `tool` message holds tool results only.
    """

    role: Role
    parts: tuple[Part, ...]

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> Any:
        return pydantic_core_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: object, handler: object) -> dict[str, Any]:
        return pydantic_json_schema(cls)


# What makes a struct a type for fields of pydantic's models. Both are dicts, so that pydantic need not be there.


def pydantic_core_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The value itself, or its JSON form. A model's JSON has it as `msgspec.json.encode` writes it: bytes as base64."""

    def read(value: object) -> msgspec.Struct:
        return value if isinstance(value, kind) else msgspec.convert(value, kind)

    return {
        "type": "function-plain",
        "function": {"type": "no-info", "function": read},
        "serialization": {"type": "function-plain", "function": msgspec.to_builtins, "when_used": "json"},
    }


def pydantic_json_schema(kind: type[msgspec.Struct]) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    definitions = cast("dict[str, object]", schema["$defs"])
    return cast("dict[str, Any]", _inlined(definitions[kind.__name__], definitions=definitions))


def _inlined(schema: object, *, definitions: dict[str, object]) -> object:
    """The schema with each definition at its place: a model that holds it has definitions of its own."""
    if isinstance(schema, list):
        return [_inlined(one, definitions=definitions) for one in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    fields = cast("dict[str, object]", schema)
    if isinstance(name := fields.get("$ref"), str):
        return _inlined(definitions[name.rpartition("/")[2]], definitions=definitions)
    return {key: _inlined(one, definitions=definitions) for key, one in fields.items() if key != "discriminator"}


def text_of(message: Message) -> str:
    """The message's text parts joined with nothing between."""
    return "".join([part.text for part in message.parts if type(part) is Text])


def own_text_of(message: Message) -> str:
    """The same without the program's notes: what the person wrote, or the tool said."""
    return "".join([part.text for part in message.parts if isinstance(part, Text) and not part.note])


def notes_of(message: Message) -> tuple[Text, ...]:
    """The program's notes in it, those beside the results of tools too."""
    found: list[Text] = []
    for part in message.parts:
        inner = part.content if isinstance(part, ToolResult) else (part,)
        found += [one for one in inner if isinstance(one, Text) and one.note]
    return tuple(found)


_NEW_TOOL = "new tool "  # begins the note; the tool's name follows


def new_tool(name: str) -> Text:
    """Tells the model of a tool that the session did not have before. An API that takes tools behind messages has its definition
    there in place of these words."""
    return Text(f"The tool `{name}` is new. You can call it from now on.\n", note=f"{_NEW_TOOL}{name}")


def new_tools_in(*messages: Message) -> tuple[str, ...]:
    """The names of the tools that these messages tell of, in order."""
    return tuple(
        [
            part.note.removeprefix(_NEW_TOOL)
            for message in messages
            if message.role == "system"
            for part in message.parts
            if type(part) is Text and part.note.startswith(_NEW_TOOL)
        ]
    )


def tells_instructions(message: Message) -> bool:
    """Whether it tells the model that the session's instructions have changed."""
    first = message.parts[0] if message.role == "system" and message.parts else None
    return type(first) is Text and first.note == "instructions"


def reasoning_of(message: Message) -> str:
    return "".join([part.text for part in message.parts if type(part) is Reasoning])


def refusal_of(message: Message) -> str:
    return "".join([part.text for part in message.parts if type(part) is Refusal])


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    return tuple([part for part in message.parts if type(part) is ToolCall])


def messages_in_common(old: Sequence[Message], new: Sequence[Message]) -> int:
    """How many messages both begin with: all of one, as a rule, else found by halves. Comparing two tuples passes over the
    very same objects, which nearly all are, so fast that a long turn does not notice."""
    same, most = 0, min(len(old), len(new))
    if old[:most] == new[:most]:
        return most
    while same < most:
        middle = (same + most + 1) // 2
        if old[same:middle] == new[same:middle]:
            same = middle
        else:
            most = middle - 1
    return same
