"""Items of the Responses API <-> parts.

Opaque data of this family (`Opaque.json`) holds an item's own fields beyond those that a part has words for, and goes
back as it came:
- Text, Refusal: the message item's `id`, `status`, `phase` ...; `role` where it is not the usual one; under
  `content_part` the further fields of the content part (`logprobs`). Neighbours with equal item fields are one item.
- File: `content_part` (`detail`).
- ToolCall, ToolResult: `id`, `status`, `namespace`, `caller` ...
- Reasoning: `id`, `encrypted_content`, `status`; `summary` and `content` where the text alone would not give them back.
"""

from collections.abc import Mapping, Sequence

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
from turnwise.vocab.json_values import without
from turnwise.wire.files import UNKNOWN_TYPE, data_url, decode_base64, read_data_url
from turnwise.wire.json_fields import (
    NULL,
    Fields,
    encode,
    fields_in,
    first_byte,
    is_object,
    object_pieces,
    opaque_of,
    quote,
    quote_whole,
    read_fields,
    read_items,
    read_string,
    text_of_raw,
    write_object,
)
from turnwise.wire.profiles import MAX_PARTS

# The fields of an object of this API, read one at a time, and the opaque data of this family.


NAME = "openai_responses"

_COUNT = msgspec.json.Decoder(int, strict=False)  # gateways write "1" and 1.0


def text_at(fields: Mapping[str, msgspec.Raw], key: str) -> str | None:
    """The string under `key`; None where there is none, or something else."""
    raw = fields.get(key)
    if raw is None or raw == NULL:
        return None
    try:
        return read_string(raw)
    except msgspec.ValidationError:
        return None


def count_at(fields: Mapping[str, msgspec.Raw], key: str) -> int | None:
    raw = fields.get(key)
    try:
        return None if raw is None else _COUNT.decode(raw)
    except msgspec.ValidationError:
        return None


def list_at(fields: Mapping[str, msgspec.Raw], key: str) -> list[msgspec.Raw]:
    raw = fields.get(key)
    if raw is None or first_byte(raw) != b"[":
        return []
    return read_items(raw)


def opaque_from(fields: Mapping[str, msgspec.Raw]) -> Opaque | None:
    """These fields as opaque data of this family, to go back as they came."""
    return opaque_of(fields, family=NAME)


def own_fields(opaque: Opaque | None) -> Fields:
    """The fields in opaque data of this family; none for another family's, or where it is no object."""
    return fields_in(opaque, family=NAME)


CONTENT_PART = "content_part"

# What a `file_url`, a `file_id` or an `image_url` leaves unsaid.
UNKNOWN_IMAGE = "image/*"
UNNAMED_FILE = "file"

_MODELLED_IN_MESSAGE = ("type", "role", "content")
_MODELLED_IN_CALL = ("type", "call_id", "name", "arguments")
_MODELLED_IN_CUSTOM_CALL = ("type", "call_id", "name", "input")
_MODELLED_IN_RESULT = ("type", "call_id", "output")


# ---- items -> parts


def kind_of(item: Mapping[str, msgspec.Raw]) -> str:
    """The item's type; an easy message and a bare reference may leave it out."""
    kind = text_at(item, "type")
    if kind is not None:
        return kind
    return "message" if "role" in item else "item_reference"


def parts_of(item: Fields) -> tuple[Part, ...]:
    """The parts of one output item: several for a message with several content parts, one for all others."""
    match kind_of(item):
        case "message":
            return message_parts(item)
        case "reasoning":
            return (_reasoning(item),)
        case "function_call":
            return (_call(item),)
        case "custom_tool_call":
            return (_custom_call(item),)
        case kind:
            return (ProviderItem(NAME, kind, encode(item).decode()),)


def message_parts(item: Fields, *, usual_role: str | None = None) -> tuple[Part, ...]:
    """`usual_role` set: another role in the item is kept beside the item's own fields."""
    header = without(item, _MODELLED_IN_MESSAGE)
    role = text_at(item, "role")
    if usual_role is not None and role is not None and role != usual_role:
        header["role"] = msgspec.Raw(encode(role))
    content = item.get("content")
    if content is None:
        return ()
    text = text_at(item, "content")
    if text is not None:
        return (Text(text, opaque=opaque_from(header)),)
    return tuple([_content_part(read_fields(raw), header) for raw in list_at(item, "content")[:MAX_PARTS]])


def _content_part(part: Fields, header: Fields) -> Part:
    kind = text_at(part, "type")
    match kind:
        case "output_text" | "input_text" | "text":
            rest = without(part, ("type", "text", "annotations"))
            if rest.get("logprobs") is not None and bytes(rest["logprobs"]) in (b"[]", b"null"):
                del rest["logprobs"]
            citations = tuple([citation_of(raw) for raw in list_at(part, "annotations")])
            return Text(text_at(part, "text") or "", citations=citations, opaque=_part_opaque(header, rest))
        case "refusal":
            rest = without(part, ("type", "refusal"))
            return Refusal(text_at(part, "refusal") or "", opaque=_part_opaque(header, rest))
        case "input_image" | "input_file":
            return _file(part, header)
        case _:
            whole: dict[str, object] = {"type": "message", "role": "assistant", **header, "content": [part]}
            return ProviderItem(NAME, kind or "content_part", encode(whole).decode())


def _part_opaque(header: Fields, rest: Fields) -> Opaque | None:
    if not rest:
        return opaque_from(header)
    key = (b"," if header else b"") + quote(CONTENT_PART) + b":"
    pieces = [write_object(header)[:-1], key, *object_pieces(rest), b"}"]  # `logprobs` may be long: copied once
    return Opaque(NAME, str(b"".join(pieces), "utf-8"))


def citation_of(raw: msgspec.Raw) -> Citation:
    annotation = read_fields(raw) if is_object(raw) else {}
    return Citation(
        family=NAME,
        raw=text_of_raw(raw),
        url=text_at(annotation, "url"),
        title=text_at(annotation, "title") or text_at(annotation, "filename"),
        cited_text=text_at(annotation, "quote"),
    )


def _file(part: Fields, header: Fields) -> File:
    is_image = text_at(part, "type") == "input_image"
    rest = without(part, ("type", "image_url", "file_url", "file_data", "file_id", "filename"))
    if is_image and text_at(rest, "detail") == "auto":
        del rest["detail"]
    opaque = _part_opaque(header, rest)
    media_type = UNKNOWN_IMAGE if is_image else UNKNOWN_TYPE
    name = text_at(part, "filename")
    url = text_at(part, "image_url") or text_at(part, "file_url")
    inline = text_at(part, "file_data") or (url if url is not None and url.startswith("data:") else None)
    if inline is not None:
        # The API documents a data URL; it takes bare base64 too.
        found = read_data_url(inline) if inline.startswith("data:") else ("", decode_base64(inline))
        if found is not None and found[1] is not None:
            return File(media_type=found[0] or media_type, data=found[1], name=name, opaque=opaque)
        return File(media_type=media_type, url=inline, name=name, opaque=opaque)
    if url is not None:
        return File(media_type=media_type, url=url, name=name, opaque=opaque)
    return File(media_type=media_type, file_id=text_at(part, "file_id") or "", name=name, opaque=opaque)


def _reasoning(item: Fields) -> Reasoning:
    """Summaries joined with nothing between, else the content (vLLM, LM Studio and OpenRouter send the raw thoughts)."""
    summary = [text_at(read_fields(raw), "text") or "" for raw in list_at(item, "summary") if is_object(raw)]
    content = [text_at(read_fields(raw), "text") or "" for raw in list_at(item, "content") if is_object(raw)]
    text = "".join(summary) or "".join(content)
    read = ["type"]
    if not content:
        read.append("content")
        if _is_plain_summary(item, summary):
            read.append("summary")
    return Reasoning(text, opaque=opaque_from(without(item, read)))


def _is_plain_summary(item: Fields, summary: list[str]) -> bool:
    """The text alone gives the summary back, whose texts these are. It may be long: it is not read once more."""
    if "summary" not in item:
        return True
    if first_byte(item["summary"]) != b"[":
        return False
    items = read_items(item["summary"])
    if not items or not any(summary):
        return not items
    if len(items) > 1:
        return False
    fields = read_fields(items[0])
    return fields.keys() == {"type", "text"} and text_at(fields, "type") == "summary_text"


def summary_of(text: str) -> list[dict[str, str]]:
    return [{"type": "summary_text", "text": text}] if text else []


def _call(item: Fields) -> ToolCall:
    arguments = text_at(item, "arguments")
    if arguments is None:
        raw = item.get("arguments")
        arguments = text_of_raw(raw) if raw is not None and is_object(raw) else ""
    return ToolCall(
        id=text_at(item, "call_id") or text_at(item, "id") or "",
        name=text_at(item, "name") or "",
        arguments=arguments,
        state=_state(item),
        opaque=opaque_from(without(item, _MODELLED_IN_CALL)),
    )


def _custom_call(item: Fields) -> ToolCall:
    return ToolCall(
        id=text_at(item, "call_id") or text_at(item, "id") or "",
        name=text_at(item, "name") or "",
        arguments=text_at(item, "input") or "",
        state=_state(item),
        free_form=True,
        opaque=opaque_from(without(item, _MODELLED_IN_CUSTOM_CALL)),
    )


def _state(item: Fields) -> ArgumentsState:
    """A call that the response's limit cut says so in its status; for free-form text it is the only witness."""
    return ArgumentsState.TRUNCATED if text_at(item, "status") == "incomplete" else ArgumentsState.COMPLETE


def result_of(item: Fields, *, name: str) -> ToolResult:
    content: list[Text | File] = []
    text = text_at(item, "output")
    if text:
        content.append(Text(text))
    elif text is None:
        for raw in list_at(item, "output"):
            part = _content_part(read_fields(raw), {})
            if isinstance(part, Text | File):
                content.append(part)
            else:  # a kind that came later than this code: the model still gets to read it
                content.append(Text(text_of_raw(raw)))
    return ToolResult(
        call_id=text_at(item, "call_id") or "",
        name=name,
        content=tuple(content),
        free_form=kind_of(item) == "custom_tool_call_output",
        opaque=opaque_from(without(item, _MODELLED_IN_RESULT)),
    )


# ---- parts -> items

_COMPLETE = ArgumentsState.COMPLETE  # an enum's member takes longer to find than a name
_CALL_ID, _RESULT_ID = b'{"type":"function_call","call_id":', b'{"type":"function_call_output","call_id":'


def message_item(parts: Sequence[Text | Refusal | File], *, role: str, is_request: bool = False) -> dict[str, object]:
    """One message item; the first part's opaque data holds the item's own fields."""
    header = header_of(parts[0])
    role = text_at(header, "role") or role
    header.pop("role", None)
    first = parts[0]
    if is_request and role == "assistant" and not own_fields(first.opaque) and not isinstance(first, File):
        # Typed content of an assistant's message belongs to an item with an id and a status; without them plain text is
        # what the API reference has ("EasyInputMessage").
        return {"type": "message", "role": role, "content": first.text}
    return {"type": "message", "role": role, **header, "content": [content_part(part, role=role) for part in parts]}


def header_of(part: Text | Refusal | File) -> Fields:
    """The fields of the item that the part came in."""
    return without(own_fields(part.opaque), (CONTENT_PART,))


def content_part(part: Text | Refusal | File, *, role: str) -> dict[str, object]:
    own = own_fields(part.opaque)
    extra = read_fields(own[CONTENT_PART]) if CONTENT_PART in own else {}
    match part:
        case Text():
            if role == "assistant":
                annotations = [msgspec.Raw(citation.raw) for citation in part.citations if citation.family == NAME]
                return {**extra, "type": "output_text", "text": part.text, "annotations": annotations}
            return {**extra, "type": "input_text", "text": part.text}
        case Refusal():
            return {**extra, "type": "refusal", "refusal": part.text}
        case File():
            return {**_file_fields(part), **extra}


def _file_fields(file: File) -> dict[str, object]:
    """Images as `input_image`, everything else as `input_file` (there the API insists on a name beside inline data)."""
    url = data_url(file)
    if file.media_type.startswith("image/"):
        where = {"image_url": url} if url is not None else {"file_id": file.file_id}
        return {"type": "input_image", "detail": "auto", **where}
    if url is not None and url.startswith("data:"):
        return {"type": "input_file", "filename": file.name or UNNAMED_FILE, "file_data": url}
    return {"type": "input_file", **({"file_url": url} if url is not None else {"file_id": file.file_id})}


def reasoning_item(part: Reasoning) -> dict[str, object]:
    own = own_fields(part.opaque)
    if "summary" in own:
        return {"type": "reasoning", **own}
    return {"type": "reasoning", "summary": [] if "content" in own else summary_of(part.text), **own}


def call_item(call: ToolCall, *, arguments: str) -> dict[str, object]:
    own = {} if call.opaque is None else own_fields(call.opaque)
    if call.free_form:
        return {**own, "type": "custom_tool_call", "call_id": call.id, "name": call.name, "input": arguments}
    return {**own, "type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}


def usual_call(call: ToolCall, name: bytes) -> bytes | None:
    """The item of a whole call with nothing beside it, whose name goes up as this JSON string; None for any other."""
    if call.opaque is not None or call.state is not _COMPLETE or call.free_form:
        return None
    try:
        id, arguments = quote_whole(call.id), quote_whole(call.arguments)
    except UnicodeEncodeError:
        return None
    return b"".join((_CALL_ID, id, b',"name":', name, b',"arguments":', arguments, b"}"))


def usual_result(result: ToolResult) -> bytes | None:
    """The item of a result that is one text with nothing beside it; None for any other."""
    content = result.content
    if result.opaque is not None or result.free_form or len(content) != 1 or type(text := content[0]) is not Text:
        return None
    if text.opaque is not None or not text.text:
        return None
    try:
        return b"".join((_RESULT_ID, quote_whole(result.call_id), b',"output":', quote_whole(text.text), b"}"))
    except UnicodeEncodeError:
        return None


def result_item(result: ToolResult) -> dict[str, object]:
    """The output as a string where one plain text (or nothing) says it all, else as a list of parts."""
    output: object = ""
    match result.content:
        case ():
            pass
        case (Text(text=text, opaque=None),) if text:
            output = text
        case content:
            output = [content_part(part, role="user") for part in content]
    own = {} if result.opaque is None else own_fields(result.opaque)
    kind = "custom_tool_call_output" if result.free_form else "function_call_output"
    return {**own, "type": kind, "call_id": result.call_id, "output": output}
