"""Content blocks <-> parts: one place for requests, bodies and streams, so that they cannot disagree.

Keys of this family's opaque data: `signature` (thinking) or `data` (redacted_thinking) on Reasoning, `cache_control`,
`citations`, `context`, `transformations`, `caller`, `toolset_name` and whatever else a block may carry on the other parts.
A ToolResult whose content has blocks that are no Text or File keeps the whole `content` there.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    Citation,
    File,
    Message,
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
from turnwise.wire.family import BadRequest
from turnwise.wire.files import UNKNOWN_TYPE, decode_base64, encode_base64, left_out, takes_file
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    bytes_of,
    fields_in,
    is_null,
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
from turnwise.wire.offers import free_form_arguments
from turnwise.wire.profiles import Profile

# The opaque data of this family, and its name.


NAME = "anthropic_messages"


def opaque_from(fields: Mapping[str, msgspec.Raw], known: frozenset[str]) -> Opaque | None:
    """The fields that have no word of ours, to go back as they came."""
    return opaque_of(without(fields, known), family=NAME)


def own_fields(opaque: Opaque | None) -> Fields:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    return fields_in(opaque, family=NAME)


def merged(fields: dict[str, bytes], opaque: Opaque | None) -> dict[str, bytes]:
    """`fields` with opaque data of this family put over them."""
    for key, raw in own_fields(opaque).items():
        fields[key] = bytes(raw)
    return fields


# The API answers 400 to an id outside of this; other providers' ids have dots and colons ("functions.read:0").
_NOT_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_TEXT_LIKE = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
_COMPLETE = ArgumentsState.COMPLETE  # an enum's member takes longer to find than a name
_CITATION_TITLES = ("title", "document_title")


def tool_use_id(call_id: str) -> str:
    """The call's id as the API takes it: pure, so that a call and its result get the same one, and no other call does."""
    if call_id.isascii() and call_id.isidentifier():  # as most ids are: sooner told than by a pattern
        return call_id
    if _NOT_IN_ID.search(call_id) is None:
        return call_id or "_"
    fit = _NOT_IN_ID.sub("_", call_id)
    return f"{fit}_{hashlib.blake2b(call_id.encode(errors='surrogatepass')).hexdigest()[:8]}"


# --- reading


def read_block(fields: Fields, where: str) -> Part:
    """One whole block of a message. Raises BadRequest naming `where`; kinds without a word of ours are ProviderItems."""
    kind = string_of(fields, "type")
    match kind:
        case "text":
            return read_text(fields, where)
        case "thinking" | "redacted_thinking":
            return read_reasoning(fields)
        case "tool_use":
            return read_tool_use(fields, where)
        case "image" | "document":
            return read_file(fields, where) or _item(kind, fields)
        case None:
            raise BadRequest(f"{where}.type: Field required")
        case _:
            return _item(kind, fields)


def read_text(fields: Fields, where: str) -> Text:
    text = string_of(fields, "text")
    if text is None:
        raise BadRequest(f"{where}.text: Field required")
    return Text(
        text, citations=read_citations(fields), opaque=opaque_from(fields, frozenset({"type", "text", "citations"}))
    )


def read_citations(fields: Fields) -> tuple[Citation, ...]:
    raw = fields.get("citations")
    return () if raw is None or is_null(raw) else tuple([read_citation(item) for item in read_items(raw)])


def read_citation(raw: msgspec.Raw) -> Citation:
    fields = read_fields(raw)
    titles = [title for key in _CITATION_TITLES if (title := string_of(fields, key))]
    return Citation(
        family=NAME,
        raw=text_of_raw(raw),
        url=string_of(fields, "url"),
        title=titles[0] if titles else None,
        cited_text=string_of(fields, "cited_text"),
    )


def read_reasoning(fields: Fields) -> Reasoning:
    """An empty signature, as some compatible servers send, says nothing and is left out."""
    known = {"type", "thinking"} if string_of(fields, "signature") else {"type", "thinking", "signature"}
    return Reasoning(string_of(fields, "thinking") or "", opaque=opaque_from(fields, frozenset(known)))


_TOOL_USE_KEYS = frozenset({"type", "id", "name", "input"})
_WITHOUT_CALLER = _TOOL_USE_KEYS | {"caller"}


def tool_use_keys(fields: Fields) -> frozenset[str]:
    """The keys of a call that have a word of ours, or say what is so without them: the model itself is the caller."""
    caller = fields.get("caller")
    is_direct = caller is not None and is_object(caller) and string_of(read_fields(caller), "type") == "direct"
    return _WITHOUT_CALLER if is_direct else _TOOL_USE_KEYS


def read_tool_use(fields: Fields, where: str) -> ToolCall:
    id, name = string_of(fields, "id"), string_of(fields, "name")
    if id is None or name is None:
        raise BadRequest(f"{where}.{'id' if id is None else 'name'}: Field required")
    arguments = arguments_of(fields) or "{}"
    if not arguments.startswith("{"):
        raise BadRequest(f"{where}.input: Input should be a valid dictionary")
    return ToolCall(id=id, name=name, arguments=arguments, opaque=opaque_from(fields, tool_use_keys(fields)))


_NO_ARGUMENTS = re.compile(r"\s*+(?:\{ *\}|null)?\s*+")


def arguments_of(fields: Fields) -> str | None:
    """The `input` as JSON text; None where it is missing or empty. A string is taken for the JSON text itself."""
    raw = fields.get("input")
    if raw is None or is_null(raw):
        return None
    text = string_of(fields, "input")
    if text is None:
        text = text_of_raw(raw)
    return None if _NO_ARGUMENTS.fullmatch(text) else text


def read_file(fields: Fields, where: str) -> File | None:
    """None for a source that is no file of its own (a document made of content blocks), or none that we can read."""
    is_image = string_of(fields, "type") == "image"
    raw = fields.get("source")
    if raw is None:
        raise BadRequest(f"{where}.source: Field required")
    source = read_fields(raw)
    name = None if is_image else string_of(fields, "title")
    known = {"type", "source"} if name is None else {"type", "source", "title"}
    opaque = opaque_from(fields, frozenset(known))
    media_type = string_of(source, "media_type")
    match string_of(source, "type"):
        case "base64":
            content = decode_base64(string_of(source, "data") or "")
            if content is None:
                return None
            return File(media_type=media_type or UNKNOWN_TYPE, data=content, name=name, opaque=opaque)
        case "text":
            content = (string_of(source, "data") or "").encode()
            return File(media_type=media_type or "text/plain", data=content, name=name, opaque=opaque)
        case "url":
            kind = "image/*" if is_image else "application/pdf"
            return File(media_type=kind, url=string_of(source, "url") or "", name=name, opaque=opaque)
        case "file":
            kind = "image/*" if is_image else "application/*"
            return File(media_type=kind, file_id=string_of(source, "file_id") or "", name=name, opaque=opaque)
        case _:
            return None


def read_tool_result(fields: Fields, where: str, *, name: str) -> ToolResult:
    call_id = string_of(fields, "tool_use_id")
    if call_id is None:
        raise BadRequest(f"{where}.tool_use_id: Field required")
    known = {"type", "tool_use_id", "content", "is_error"}
    content: list[Text | File] = []
    raw = fields.get("content")
    if raw is not None and not is_null(raw):
        text = string_of(fields, "content")
        if text is not None:
            content = [Text(text)] if text else []
        else:
            for i, item in enumerate(read_items(raw)):
                part = read_block(read_fields(item), f"{where}.content.{i}")
                if isinstance(part, Text | File):
                    content.append(part)
                else:
                    known.discard("content")
    is_error = "is_error" in fields and bytes(fields["is_error"]) == b"true"
    return ToolResult(
        call_id=call_id,
        name=name,
        content=tuple(content),
        is_error=is_error,
        opaque=opaque_from(fields, frozenset(known)),
    )


def _item(kind: str, fields: Fields) -> ProviderItem:
    return ProviderItem(NAME, kind, str(write_object(bytes_of(fields)), "utf-8"))


# --- writing


def write_blocks(message: Message, profile: Profile) -> list[bytes]:
    """The message's parts as content blocks. Depends on nothing but the message, so that its bytes can be kept.

    The API refuses empty texts, and texts of white space ("text content blocks must contain non-whitespace text"); of an
    assistant it takes the latter back beside a call (recorded: simonw/llm-anthropic, test_tools).
    """
    blocks: list[bytes] = []
    for part in message.parts:
        if type(part) is Text and not part.text.strip() and (message.role != "assistant" or _is_blank(message)):
            continue
        if (block := write_block(part, profile)) is not None:
            blocks.append(block)
    return blocks


def _is_blank(message: Message) -> bool:
    return all(isinstance(part, Text) and not part.text.strip() for part in message.parts)


def write_block(part: Part, profile: Profile) -> bytes | None:
    """One block of a request; None for what the API refuses or what belongs to another family."""
    # Long histories are made of these two: their type tells them sooner than a pattern.
    if type(part) is ToolCall:
        return write_tool_use(part, quote(part.name))
    if type(part) is ToolResult:
        return write_tool_result(part, profile)
    match part:
        case Text():
            return write_text(part)
        case Reasoning():
            return write_reasoning(part)
        case Refusal(text=text):
            return write_text(Text(text))
        case File():
            return write_file(part, profile)
        case ProviderItem():
            return part.json.encode() if part.family == NAME else None


def write_text(part: Text) -> bytes | None:
    """None for an empty text: the API's 400 is "text content blocks must be non-empty"."""
    if not part.text:
        return None
    if part.opaque is None and not part.citations:
        return b'{"type":"text","text":' + quote(part.text) + b"}"
    fields = {"type": b'"text"', "text": quote(part.text)}
    citations = [citation.raw.encode() for citation in part.citations if citation.family == NAME]
    if citations:
        fields["citations"] = write_array(citations)
    return write_object(merged(fields, part.opaque))


def write_reasoning(part: Reasoning, *, signed_only: bool = True) -> bytes | None:
    """None for reasoning without a signature of this API, which refuses it (`signature: Field required`)."""
    own = own_fields(part.opaque)
    if "data" in own:
        return write_object(merged({"type": b'"redacted_thinking"'}, part.opaque))
    if signed_only and "signature" not in own:
        return None
    fields = {"type": b'"thinking"', "thinking": quote(part.text), "signature": b'""'}
    return write_object(merged(fields, part.opaque))


def write_tool_use(part: ToolCall, name: bytes) -> bytes:
    id, input = quote(tool_use_id(part.id)), input_object(part)
    if part.opaque is None:  # as nearly always; a join takes half as long as a format
        return b"".join((b'{"type":"tool_use","id":', id, b',"name":', name, b',"input":', input, b"}"))
    fields = {"type": b'"tool_use"', "id": id, "name": name, "input": input}
    return write_object(merged(fields, part.opaque))


def input_object(call: ToolCall) -> bytes:
    """The arguments as the object that the API insists on; `{}` for a call that is not complete (the history rules tell
    the model about it in the result), free-form text as the one parameter `input` of the stand-in tool."""
    if call.state is not _COMPLETE:
        return b"{}"
    if call.free_form:
        return free_form_arguments(call.arguments).encode()
    try:
        read_fields(call.arguments)
    except UNREADABLE:
        return b"{}"
    return call.arguments.encode()


def write_tool_result(part: ToolResult, profile: Profile) -> bytes:
    id = quote(tool_use_id(part.call_id))
    text = _one_text(part.content)
    if text and not part.is_error and part.opaque is None:
        return b"".join((b'{"type":"tool_result","tool_use_id":', id, b',"content":', quote(text), b"}"))
    fields = {"type": b'"tool_result"', "tool_use_id": id}
    if text:
        fields["content"] = quote(text)
    elif blocks := write_blocks(Message("tool", part.content), profile):
        fields["content"] = write_array(blocks)
    # "content cannot be empty if `is_error` is true", "all content must be type `text` if `is_error` is true"
    # (jlevy/markform#153, vellum-assistant#18387)
    words = [isinstance(inner, Text) and bool(inner.text.strip()) for inner in part.content]
    if part.is_error and words and all(words):
        fields["is_error"] = b"true"
    return write_object(merged(fields, part.opaque))


def _one_text(content: Sequence[Text | File]) -> str:
    """What the content says, if it is one text without anything beside it; else an empty text."""
    if len(content) != 1 or type(text := content[0]) is not Text or text.citations or text.opaque is not None:
        return ""
    return text.text if text.text.strip() else ""


def write_file(part: File, profile: Profile) -> bytes | None:
    """An image or document block; a line of text in place of what this API does not take, so that nothing goes silently."""
    kind = part.media_type.partition("/")[0]
    if kind in ("audio", "video") or not takes_file(part, profile):
        return write_text(left_out(part))
    fields = {"type": b'"image"' if kind == "image" else b'"document"', "source": _source(part)}
    if part.name is not None and kind != "image":
        fields["title"] = quote(part.name)
    return write_object(merged(fields, part.opaque))


def _source(part: File) -> bytes:
    if part.data is not None:
        if part.media_type.startswith("text/") or part.media_type in _TEXT_LIKE:
            text = part.data.decode("utf-8", "replace")
            # `text/plain` is the only media type that a text source takes.
            return write_object({"type": b'"text"', "media_type": b'"text/plain"', "data": quote(text)})
        encoded = quote(encode_base64(part.data))
        return write_object({"type": b'"base64"', "media_type": quote(part.media_type), "data": encoded})
    if part.url is not None:
        return write_object({"type": b'"url"', "url": quote(part.url)})
    return write_object({"type": b'"file"', "file_id": quote(part.file_id or "")})
