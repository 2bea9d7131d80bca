"""Steps of the Interactions API <-> parts: one place for requests, bodies and streams, so that they cannot disagree.

Opaque data of this family holds a step's or a content's own fields beyond those that a part has words for, and goes back as it
came: on Reasoning the `signature`, and the `summary` where it is not one text; on Text, File, ToolCall and ToolResult what stands
beside the API's fields that have words (`resolution`, a call's `signature`). Older answers have bare contents in place of steps
(`outputs`); they are read as the steps that they are now.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    Citation,
    File,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from turnwise.wire.files import UNKNOWN_TYPE, decode_base64, encode_base64, guessed_type
from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.json_fields import (
    NULL,
    Fields,
    compact_text,
    fields_in,
    first_byte,
    is_json,
    is_object,
    opaque_of,
    quote,
    read_fields,
    read_items,
    string_of,
    text_of_raw,
    write_array,
    write_object,
)
from turnwise.wire.offers import FREE_FORM_PARAMETER, free_form_arguments
from turnwise.wire.profiles import MAX_CITATIONS, MAX_PARTS
from turnwise.wire.tool_names import WireNames

NAME = "gemini_interactions"

FILES = ("image", "audio", "video", "document")
TOLD = ("model_output", "user_input")
"""Steps that hold contents."""
_NOT_SAID = frozenset({b"null", b'""'})  # of a signature


def items_at(fields: Fields, key: str) -> list[msgspec.Raw]:
    """The items under `key`; none where there is no array. Raises one of UNREADABLE for one that is broken."""
    raw = fields.get(key)
    return read_items(raw) if raw is not None and first_byte(raw) == b"[" else []


def opaque_from(fields: Fields, known: Sequence[str]) -> Opaque | None:
    return opaque_of({key: raw for key, raw in fields.items() if key not in known and raw != NULL}, family=NAME)


def own_fields(opaque: Opaque | None) -> Fields:
    return fields_in(opaque, family=NAME)


# --- steps -> parts


def parts_of(step: Fields) -> tuple[Part, ...]:
    """The parts of a step that the model has made, or of an older answer's content. Raises one of UNREADABLE."""
    match string_of(step, "type"):
        case "thought":
            return (thought_of(step),)
        case "function_call":
            return (call_of(step),)
        case "model_output" | "user_input":
            return tuple([content_of(read_fields(raw)) for raw in items_at(step, "content")[:MAX_PARTS]])
        case _:
            return (content_of(step),)


def thought_of(step: Fields) -> Reasoning:
    texts = [read_fields(raw) for raw in items_at(step, "summary")]
    said = "".join([string_of(one, "text") or "" for one in texts])
    is_plain = len(texts) <= 1 and all(string_of(one, "type") == "text" and len(one) == 2 for one in texts)
    known = ["type"] + (["summary"] if is_plain else []) + (["signature"] if not says_signature(step) else [])
    return Reasoning(said, opaque_from(step, known))


def says_signature(fields: Fields) -> bool:
    """Streams have empty ones before the one that counts, and beside calls (recorded)."""
    return "signature" in fields and bytes(fields["signature"]) not in _NOT_SAID


def call_of(step: Fields) -> ToolCall:
    return ToolCall(
        id=string_of(step, "id") or "",
        name=string_of(step, "name") or "",
        arguments=arguments_of(step) or "{}",
        opaque=call_data(step),
    )


def arguments_of(step: Fields) -> str:
    """The arguments as JSON text, empty where there are none. They are an object; servers that copy other APIs write its text."""
    raw = step.get("arguments", NULL)
    return "" if raw == NULL else string_of(step, "arguments") or text_of_raw(raw)


def call_data(step: Fields) -> Opaque | None:
    known = ["type", "id", "name", "arguments"] + (["signature"] if not says_signature(step) else [])
    return opaque_from(step, known)


def content_of(fields: Fields) -> Part:
    """Text, a file, or an item that stays as it came."""
    kind = string_of(fields, "type") or "content"
    if kind == "text":
        return text_of(fields)
    if kind in FILES and (file := file_of(fields, kind)) is not None:
        return file
    raw = write_object(fields)
    if kind in FILES:  # no base64: the provider is the judge
        raw = write_object({"type": b'"model_output"', "content": write_array([raw])})
    return ProviderItem(NAME, kind, compact_text(raw))


def text_of(fields: Fields) -> Text:
    citations = tuple([citation_of(raw) for raw in items_at(fields, "annotations")[:MAX_CITATIONS]])
    return Text(string_of(fields, "text") or "", citations, opaque_from(fields, ("type", "text", "annotations")))


def citation_of(raw: msgspec.Raw) -> Citation:
    fields = read_fields(raw) if is_object(raw) else {}
    url = string_of(fields, "url") or string_of(fields, "document_uri")
    title = string_of(fields, "title") or string_of(fields, "name") or string_of(fields, "file_name")
    return Citation(family=NAME, raw=compact_text(raw), url=url, title=title)


def file_of(fields: Fields, kind: str) -> File | None:
    media_type = string_of(fields, "mime_type") or (UNKNOWN_TYPE if kind == "document" else f"{kind}/*")
    own = opaque_from(fields, ("type", "data", "uri", "mime_type"))
    if uri := string_of(fields, "uri"):
        is_own = is_own_file(uri)
        return File(media_type=media_type, url=None if is_own else uri, file_id=uri if is_own else None, opaque=own)
    content = decode_base64(string_of(fields, "data") or "")
    return None if content is None else File(media_type=media_type, data=content, opaque=own)


def result_of(step: Fields, *, name: str) -> ToolResult:
    """`name`: of the call, where the result does not say it."""
    raw = step.get("result", NULL)
    said = string_of(step, "result")
    content: list[Text | File] = [Text(said)] if said else []
    if said is None and first_byte(raw) == b"[":
        for one in read_items(raw)[:MAX_PARTS]:
            part = content_of(read_fields(one)) if is_object(one) else None
            content.append(part if isinstance(part, Text | File) else Text(text_of_raw(one)))
    elif said is None and raw != NULL:
        content.append(Text(text_of_raw(raw)))
    return ToolResult(
        call_id=string_of(step, "call_id") or "",
        name=string_of(step, "name") or name,
        content=tuple(content),
        is_error=bytes(step.get("is_error", b"")) == b"true",
        opaque=opaque_from(step, ("type", "call_id", "name", "result", "is_error")),
    )


# --- parts -> steps


def steps_of(
    parts: Sequence[Part], *, role: str, names: WireNames | None = None, keeps_unsigned: bool = False
) -> Iterator[bytes]:
    """Texts and files that follow each other are one step; each other part is its own. `names`: of tools in a request; in a
    response they stay as they are. A thought without a signature is refused in a request (js-genai#1735); `keeps_unsigned`."""
    for is_content, run in groupby([part for part in parts if _stays(part, keeps_unsigned)], key=_is_content):
        if is_content:
            contents = [written for part in run if (written := content_step(part)) is not None]
            if contents:
                yield b'{"type":"%b","content":%b}' % (role.encode(), write_array(contents))
            continue
        for part in run:
            match part:
                case ToolCall():
                    yield call_step(part, quote(part.name) if names is None else names[part.name])
                case ToolResult():
                    yield result_step(part, quote(part.name) if names is None else names[part.name])
                case Reasoning():
                    yield thought_step(part, own_fields(part.opaque))
                case ProviderItem(json=json):
                    yield json.encode()
                case _:
                    pass


def _stays(part: Part, keeps_unsigned: bool) -> bool:
    """What does not stay parts no contents that stood around it."""
    match part:
        case Reasoning(text=text):
            own = own_fields(part.opaque)
            return "signature" in own or (keeps_unsigned and bool(text or own))
        case ProviderItem(family=family):
            return family == NAME
        case _:
            return True


def _is_content(part: Part) -> bool:
    return isinstance(part, Text | File | Refusal)


def content_step(part: Part) -> bytes | None:
    """The content; None where it would be empty."""
    match part:
        case Text(text=text, citations=(), opaque=None) | Refusal(text=text):
            return b'{"type":"text","text":%b}' % quote(text) if text else None
        case Text(text=text):
            own = own_fields(part.opaque)
            cited = [one.raw.encode() for one in part.citations if one.family == NAME]
            more = {"annotations": write_array(cited)} if cited else {}
            return write_object({"type": b'"text"', "text": quote(text), **more, **own}) if text or own else None
        case File():
            return write_object({**_file_fields(part), **own_fields(part.opaque)})
        case _:
            return None


def _file_fields(file: File) -> dict[str, bytes]:
    major, _, minor = file.media_type.partition("/")
    fields = {"type": quote(major if major in FILES else "document")}
    if file.data is not None:
        media_type = guessed_type(file.data) if "*" in minor else file.media_type
        return {**fields, "mime_type": quote(media_type), "data": quote(encode_base64(file.data))}
    fields["uri"] = quote(file.file_id or file.url or "")
    return fields if "*" in minor else {**fields, "mime_type": quote(file.media_type)}


def call_step(call: ToolCall, name: bytes) -> bytes:
    """Arguments that are not whole would make the body invalid, so they become `{}`."""
    arguments = call.arguments
    if call.free_form:
        arguments = free_form_arguments(arguments)
    elif call.state is not ArgumentsState.COMPLETE or not is_json(arguments):
        arguments = "{}"
    elif arguments.lstrip()[:1] != "{":
        arguments = f'{{"{FREE_FORM_PARAMETER}":{arguments}}}'
    step = b'{"type":"function_call","id":%b,"name":%b,"arguments":%b' % (quote(call.id), name, arguments.encode())
    own = own_fields(call.opaque) if call.opaque is not None else {}
    return step + (b"," + write_object(own)[1:] if own else b"}")


def result_step(result: ToolResult, name: bytes) -> bytes:
    """One plain text as a string, anything else as contents."""
    match result.content:
        case ():
            said = b'""'
        case (Text(text=text, opaque=None),):
            said = quote(text)
        case content:
            said = write_array([written for part in content if (written := content_step(part)) is not None])
    step = b'{"type":"function_result","call_id":%b,"name":%b,"result":%b' % (quote(result.call_id), name, said)
    step += b',"is_error":true' if result.is_error else b""
    own = own_fields(result.opaque) if result.opaque is not None else {}
    return step + (b"," + write_object(own)[1:] if own else b"}")


def thought_step(part: Reasoning, own: Fields) -> bytes:
    """The signature stands as it came, and so does a summary of several contents."""
    fields: dict[str, bytes | msgspec.Raw] = {"type": b'"thought"', **own}
    if part.text and "summary" not in own:
        fields["summary"] = write_array([b'{"type":"text","text":%b}' % quote(part.text)])
    return write_object(fields)
