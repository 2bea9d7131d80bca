"""One part of ours <-> one part of Gemini's, in requests and responses alike.

Keys of `Opaque` data of this family: on Text, Reasoning, File and ToolCall the fields that stand beside the part's own one
(`thoughtSignature`, `partMetadata`, `mediaResolution`, `videoMetadata` ...); on ToolResult the fields of its
`functionResponse` (`scheduling`, `willContinue` ...); on ToolSpec see `request.py`.
"""

import functools
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never
from urllib.parse import unquote, urlsplit

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
from turnwise.wire import json_fields
from turnwise.wire.files import decode_base64, encode_base64, guessed_type
from turnwise.wire.json_fields import (
    NULL,
    UNREADABLE,
    Fields,
    bytes_of,
    compact,
    compact_text,
    fields_in,
    is_json,
    opaque_of,
    quote,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.offers import FREE_FORM_PARAMETER, free_form_arguments
from turnwise.wire.tool_names import WireNames

# What is Gemini's own about reading JSON objects, and the opaque data of this family.
#
# Google's JSON mapping of protocol buffers takes a field by its camelCase or its snake_case name, so both are read
# (source: protobuf.dev, "ProtoJSON format"). Only the names of the API's own fields are changed, never the keys of
# arguments, results and schemas.


NAME = "gemini"

read_strings: Callable[[bytes | str | msgspec.Raw], list[str]] = msgspec.json.Decoder(list[str]).decode
read_int: Callable[[bytes | str | msgspec.Raw], int] = msgspec.json.Decoder(int, strict=False).decode
"""64-bit integers may come as strings (ProtoJSON)."""
read_float: Callable[[bytes | str | msgspec.Raw], float] = msgspec.json.Decoder(float, strict=False).decode
_FALSE = msgspec.Raw(b"false")
_SNAKE = re.compile(r"_([a-z0-9])")


@functools.lru_cache(maxsize=512)
def camel(key: str) -> str:
    """`inline_data` -> `inlineData`; a name that is camelCase already stays."""
    return _SNAKE.sub(lambda found: found[1].upper(), key)


def read_fields(text: bytes | str | msgspec.Raw) -> Fields:
    """The object's fields by their camelCase names, values as JSON text; those that are null count as not there.
    Raises one of UNREADABLE if it is no object."""
    return {camel(key): value for key, value in json_fields.read_fields(text).items() if value != NULL}


def is_object_text(text: str) -> bool:
    return text[:1] == "{" and text[-1:] == "}" and is_json(text)


def opaque_from(fields: Mapping[str, bytes | msgspec.Raw], *, known: frozenset[str]) -> Opaque | None:
    """The fields that have no word of ours, to go back as they came."""
    return opaque_of({key: compact(value) for key, value in fields.items() if key not in known}, family=NAME)


def own_fields(opaque: Opaque | None) -> dict[str, bytes]:
    """The keys of opaque data of this family; none for another family's, or where it is no object."""
    return bytes_of(fields_in(opaque, family=NAME))


def is_false(raw: msgspec.Raw) -> bool:
    return raw == _FALSE


# Gemini 3 and later answer 400 to a step of the current turn whose first call has no thought signature. Google's documentation
# names this stand-in for calls that come from another model (Gemini API, "Thought signatures", FAQ; quoted in
# elastic/kibana pull request 243463). Past turns need none, but get it too, so that a step's bytes stay as they were.
NO_SIGNATURE = "skip_thought_signature_validator"
SIGNATURE = "thoughtSignature"
_STAND_IN = b',"%b":%b}' % (SIGNATURE.encode(), quote(NO_SIGNATURE))

# Fields of a part that say something about it, beside the one field that says what it is (API reference, `Part`).
ABOUT_PART = frozenset(
    """thought thoughtSignature partMetadata mediaResolution videoMetadata mediaProcessing speechMetadata documentMetadata
    spreadsheetMetadata audioMetadata""".split()
)

FILES = ("inlineData", "fileData")  # a part has one of them; what stands beside it tells of it (`audioTranscription`)

# What a result's object is read as where it has this one key with a string: first what we write. `output` and `error` are
# the API's own words (API reference, `FunctionResponse.response`), `result` is what many clients write.
OUTPUT_KEY, ERROR_KEY = "output", "error"
_OUTPUT = b'{"' + OUTPUT_KEY.encode() + b'":'
_RESULT = b'{"result":'
_COMPLETE = ArgumentsState.COMPLETE  # an enum's member takes longer to find than a name
TEXT_KEYS = {"output": False, "result": False, "error": True}


def encode_part(part: Part, *, sends_ids: bool, names: WireNames | None = None) -> bytes | None:
    """The part as JSON text; None where Gemini has no place for it, or it is empty. `names`: of tools in a request; in a response
    they stay as they are."""
    # Long histories are made of these two: their type tells them sooner than a pattern.
    if type(part) is ToolCall:
        call = encode_call(part, quote(part.name) if names is None else names[part.name], sends_ids=sends_ids)
        if part.opaque is None:
            return b'{"functionCall":' + call + b"}"
        return _with_about({"functionCall": call}, part.opaque)
    if type(part) is ToolResult:
        name = quote(part.name) if names is None else names[part.name]
        usual = usual_result(part, name, sends_ids=sends_ids)
        return (
            b'{"functionResponse":' + encode_result(part, name, sends_ids=sends_ids) + b"}" if usual is None else usual
        )
    match part:
        case Text(text=text, opaque=opaque):
            if opaque is None:
                return b'{"text":%b}' % quote(text) if text else None
            return _with_about({"text": quote(text)}, opaque) if text or _is_own(opaque) else None
        case Reasoning(text=text, opaque=opaque):
            fields = {"text": quote(text), "thought": b"true"}
            return _with_about(fields, opaque) if text or _is_own(opaque) else None
        case Refusal(text=text):
            return write_object({"text": quote(text)}) if text else None
        case File():
            return _with_about(_encode_file(part), part.opaque)
        case ProviderItem(family=family, json=json):
            return json.encode() if family == NAME else None
        case _:
            assert_never(part)


def signed_call(call: ToolCall, *, sends_ids: bool, names: WireNames) -> bytes:
    """The part of a call that brings no signature, with the stand-in for it."""
    encoded = encode_call(call, names[call.name], sends_ids=sends_ids)
    if call.opaque is None:
        return b'{"functionCall":' + encoded + _STAND_IN
    return write_object({"functionCall": encoded, **own_fields(call.opaque), SIGNATURE: quote(NO_SIGNATURE)})


def _is_own(opaque: Opaque | None) -> bool:
    return opaque is not None and opaque.family == NAME


def _with_about(fields: dict[str, bytes], opaque: Opaque | None) -> bytes:
    return write_object(fields | own_fields(opaque))


def encode_call(call: ToolCall, name: bytes, *, sends_ids: bool) -> bytes:
    """The call's `functionCall`. Arguments that are not whole would make the body invalid, so they become `{}`;
    `rules/history.py` normally replaces such calls before they come here."""
    begin = b'{"id":' + quote(call.id) + b',"name":' if sends_ids else b'{"name":'
    return b"".join((begin, name, b',"args":', encode_arguments(call), b"}"))


def encode_arguments(call: ToolCall) -> bytes:
    text = call.arguments
    if call.free_form:
        return free_form_arguments(text).encode()
    if call.state is not _COMPLETE or not is_json(text):
        return b"{}"
    # `args` is a protobuf Struct: an object.
    return text.encode() if text.lstrip()[:1] == "{" else write_object({FREE_FORM_PARAMETER: text.encode()})


def _encode_file(file: File) -> dict[str, bytes]:
    if file.data is not None:
        media_type = file.media_type if "*" not in file.media_type else guessed_type(file.data)
        return {"inlineData": write_object({"mimeType": quote(media_type), "data": quote(encode_base64(file.data))})}
    fields = {"fileUri": quote(file.file_id or file.url or "")}
    if "*" not in file.media_type:
        fields["mimeType"] = quote(file.media_type)
    return {"fileData": write_object(fields)}


def usual_result(result: ToolResult, name: bytes, *, sends_ids: bool) -> bytes | None:
    """The part of a result of one text with nothing beside it, which long histories are made of; None for any other."""
    content = result.content
    if result.opaque is not None or result.is_error or len(content) != 1 or type(said := content[0]) is not Text:
        return None
    response = _encode_content(result) if said.text[:1] == "{" else _OUTPUT + quote(said.text) + b"}"
    begin = _RESULT_ID + quote(result.call_id) + b',"name":' if sends_ids else _RESULT_NAME
    return b"".join((begin, name, b',"response":', response, b"}}"))


_RESULT_ID, _RESULT_NAME = b'{"functionResponse":{"id":', b'{"functionResponse":{"name":'


def encode_result(result: ToolResult, name: bytes, *, sends_ids: bool) -> bytes:
    """The result's `functionResponse`."""
    fields: dict[str, bytes] = {"id": quote(result.call_id)} if sends_ids else {}
    fields |= {"name": name, "response": _encode_content(result)}
    if files := [part for part in result.content if type(part) is File]:
        fields["parts"] = write_array([_with_about(_encode_file(file), file.opaque) for file in files])
    return write_object(fields | own_fields(result.opaque))


def _encode_content(result: ToolResult) -> bytes:
    """A text that is a JSON object goes as that object; any other text under the API's word for it."""
    texts = [part.text for part in result.content if type(part) is Text]
    text = "\n".join(texts)
    if not texts:
        return write_object({ERROR_KEY: b'""'}) if result.is_error else b"{}"
    if result.is_error:
        return write_object({ERROR_KEY: quote(text)})
    if text[:1] == "{" and is_object_text(text) and read_result(text.encode()) == (text, False):
        # the API reads a `$ref` in the object as the place of one of the result's files, and refuses one that names none
        return _RESULT + quote(text) + b"}" if "$ref" in text else text.encode()
    return _OUTPUT + quote(text) + b"}"


def read_result(response: bytes) -> tuple[str, bool]:
    """A result's object as the text of a tool, and whether it is an error: the inverse of what we write."""
    try:
        fields = read_fields(response)
    except UNREADABLE:
        return response.decode("utf-8", "replace"), False
    if not fields:
        return ("" if response == b"{}" else response.decode("utf-8", "replace")), False
    if len(fields) == 1:
        key = next(iter(fields))
        text = string_of(fields, key)
        if key in TEXT_KEYS and text is not None:
            return text, TEXT_KEYS[key]
    return response.decode("utf-8", "replace"), False


def signature(text: str) -> Opaque:
    return Opaque(NAME, '{"thoughtSignature":' + str(quote(text), "utf-8") + "}")


def read_item(raw: bytes | msgspec.Raw, fields: Fields) -> Part:
    """A part that is neither text nor call nor result: a file where it is one, else kept as it is."""
    kinds = [key for key in fields if key not in ABOUT_PART] or ["part"]
    kind = next((key for key in FILES if key in kinds), kinds[0])
    if kind in FILES:
        try:
            file = _read_file(read_fields(fields[kind]), about=opaque_from(fields, known=frozenset({kind})))
        except UNREADABLE:
            file = None
        if file is not None:
            return file
    return ProviderItem(NAME, kind, compact_text(raw))


def _read_file(source: Fields, *, about: Opaque | None) -> File | None:
    media_type = string_of(source, "mimeType") or "*/*"
    name = string_of(source, "displayName")
    if (uri := string_of(source, "fileUri")) is not None:
        is_own = is_own_file(uri)
        return File(
            media_type=media_type, url=None if is_own else uri, file_id=uri if is_own else None, name=name, opaque=about
        )
    encoded = (string_of(source, "data") or "").translate(_URL_SAFE)
    content = decode_base64(encoded + "=" * (-len(encoded) % 4))
    return None if content is None else File(media_type=media_type, data=content, name=name, opaque=about)


# ProtoJSON takes both alphabets, with and without padding; Google's own Python SDK writes the second one.
_URL_SAFE = str.maketrans("-_", "+/", "\r\n=")


# What these serve depends on whose key asks; `storage.googleapis.com` gives to everybody.
_OWN_HOSTS = (".googleapis.com", "storage.cloud.google.com")
_PUBLIC_HOST = "storage.googleapis.com"


def is_own_file(uri: str) -> bool:
    """The URI is no address that anybody can read, but the id of a file: one of Gemini's Files API (an address of its own, or
    `files/NAME`), or one in Google's storage (`gs://`)."""
    try:
        parts = urlsplit(uri)
        host = unicodedata.normalize("NFKC", unquote(parts.hostname or "")).replace("\u3002", ".")
    except ValueError:
        return True
    host = re.sub(r"[^\w.:-]", "", host).rstrip(".").lower()  # as a lenient reader takes it
    is_plain = parts.scheme in ("http", "https") and host and "\\" not in parts.netloc
    is_googles = host.endswith(_OWN_HOSTS) and not host.endswith(_PUBLIC_HOST)
    return parts.scheme != "data" and (not is_plain or is_googles)


# What Gemini says about the sources of a text <-> `Citation`s.
#
# Three objects of a candidate name sources: `groundingMetadata` (search, files, maps), `citationMetadata` (quoted texts) and
# `urlContextMetadata` (pages that were read). A citation's `raw` is the source's own object; of grounding it holds the
# `groundingSupports` of that source too, less the indices, so that encoding can put the whole together again.


_indices = msgspec.json.Decoder(list[int])
# The kinds of `GroundingChunk`, each with uri and title (API reference, `GroundingChunk`).
_SOURCES = ("web", "retrievedContext", "maps", "image")
_SUPPORTS = "groundingSupports"
# What `GroundingMetadata` holds of a search beside its sources (API reference).
SEARCHES = ("webSearchQueries", "imageSearchQueries", "searchEntryPoint", "googleMapsWidgetContextToken")


def decode_citations(grounding: msgspec.Raw, cited: msgspec.Raw, pages: msgspec.Raw) -> list[Citation]:
    """All sources that one candidate names. What cannot be read names none."""
    found: list[Citation] = []
    for raw, read in ((grounding, _read_grounding), (cited, _read_cited), (pages, _read_pages)):
        text = bytes(raw)
        if len(text) > len(b"{ }") and text != b"null":
            try:
                found += read(read_fields(text))
            except UNREADABLE:
                continue
    return found


def has_searched(grounding: msgspec.Raw) -> bool:
    """Whether it tells of a search or a look at the map, with sources or without: a search that finds nothing is billed, too."""
    try:
        fields = read_fields(grounding)
        return any(_says_something(fields[key]) for key in SEARCHES if key in fields)
    except UNREADABLE:
        return False


def _says_something(value: msgspec.Raw) -> bool:
    return compact(value) not in (b"null", b"[]", b"{}", b'""', b"false")


def _items(fields: Fields, key: str) -> list[msgspec.Raw]:
    return read_items(fields[key]) if key in fields else []


def _read_grounding(fields: Fields) -> list[Citation]:
    sources = [read_fields(item) for item in _items(fields, "groundingChunks")]
    supports: list[list[bytes]] = [[] for _ in sources]
    for item in _items(fields, _SUPPORTS):
        support = read_fields(item)
        indices = _indices.decode(support.pop("groundingChunkIndices", b"[]"))
        text = compact(write_object(support))
        for index in indices:
            if 0 <= index < len(sources):
                supports[index].append(text)
    return [_grounding_citation(source, backed) for source, backed in zip(sources, supports, strict=True)]


def _grounding_citation(source: Fields, supports: list[bytes]) -> Citation:
    kind = next((kind for kind in _SOURCES if kind in source), None)
    named = {} if kind is None else read_fields(source[kind])
    whole: dict[str, bytes | msgspec.Raw] = dict(source)
    if supports:
        whole[_SUPPORTS] = write_array(supports)
    return Citation(
        family=NAME,
        raw=compact_text(write_object(whole)),
        url=string_of(named, "uri"),
        title=string_of(named, "title"),
        cited_text=string_of(named, "text"),
    )


def _read_cited(fields: Fields) -> list[Citation]:
    # `citationSources` at the Gemini API, `citations` at Vertex AI.
    items = _items(fields, "citationSources") or _items(fields, "citations")
    return [
        Citation(family=NAME, raw=compact_text(item), url=string_of(source, "uri"), title=string_of(source, "title"))
        for item in items
        for source in (read_fields(item),)
    ]


def _read_pages(fields: Fields) -> list[Citation]:
    return [
        Citation(family=NAME, raw=compact_text(item), url=string_of(read_fields(item), "retrievedUrl"))
        for item in _items(fields, "urlMetadata")
    ]


def encode_citations(citations: Iterable[Citation]) -> dict[str, bytes]:
    """The candidate's fields that name these sources. Other families' citations become grounding of kind `web`."""
    sources: list[bytes] = []
    supports: dict[bytes, list[int]] = {}  # a support's text -> the sources that back it
    cited: list[bytes] = []
    pages: list[bytes] = []
    for citation in citations:
        source = _own_source(citation)
        if "retrievedUrl" in source:
            pages.append(write_object(source))
        elif any(kind in source for kind in _SOURCES):
            for support in read_items(source.pop(_SUPPORTS, b"[]")):
                supports.setdefault(bytes(support), []).append(len(sources))
            sources.append(write_object(source))
        else:
            cited.append(write_object(source))
    fields: dict[str, bytes] = {}
    if sources:
        grounding = {"groundingChunks": write_array(sources)}
        if supports:
            grounding[_SUPPORTS] = write_array([_with_indices(text, backed) for text, backed in supports.items()])
        fields["groundingMetadata"] = write_object(grounding)
    if cited:
        fields["citationMetadata"] = write_object({"citationSources": write_array(cited)})
    if pages:
        fields["urlContextMetadata"] = write_object({"urlMetadata": write_array(pages)})
    return fields


def _own_source(citation: Citation) -> dict[str, bytes | msgspec.Raw]:
    if citation.family == NAME:
        try:
            return dict(read_fields(citation.raw))
        except UNREADABLE:
            pass
    named = {"uri": citation.url, "title": citation.title}
    return {"web": write_object({key: quote(value) for key, value in named.items() if value is not None})}


def _with_indices(support: bytes, backed: list[int]) -> bytes:
    return write_object({**read_fields(support), "groundingChunkIndices": msgspec.json.encode(backed)})
