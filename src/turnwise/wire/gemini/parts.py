"""One part of ours <-> one part of Gemini's, in requests and responses alike.

Keys of `Opaque` data of this family: on Text, Reasoning, File and ToolCall the fields that stand beside the part's own one
(`thoughtSignature`, `partMetadata`, `mediaResolution`, `videoMetadata` ...); on ToolResult the fields of its
`functionResponse` (`scheduling`, `willContinue` ...); on ToolSpec see `request.py`.
"""

from typing import assert_never
from urllib.parse import urlsplit

import msgspec

from turnwise.vocab import (
    ArgumentsState,
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
from turnwise.wire.files import UNKNOWN_TYPE, decode_base64, encode_base64
from turnwise.wire.free_form import FREE_FORM_PARAMETER, free_form_arguments
from turnwise.wire.gemini.fields import NAME, is_json_object, opaque_from, own_fields, read_fields
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    compact_text,
    is_json,
    quote,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.tool_names import WireNames

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

# How files begin, for the media type of bytes whose kind alone is known: Gemini wants a whole type.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"%PDF", "application/pdf"),
    (b"ID3", "audio/mpeg"),
)


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
        media_type = file.media_type if "*" not in file.media_type else _guess(file.data)
        return {"inlineData": write_object({"mimeType": quote(media_type), "data": quote(encode_base64(file.data))})}
    fields = {"fileUri": quote(file.file_id or file.url or "")}
    if "*" not in file.media_type:
        fields["mimeType"] = quote(file.media_type)
    return {"fileData": write_object(fields)}


def _guess(data: bytes) -> str:
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), UNKNOWN_TYPE)


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
    if text[:1] == "{" and is_json_object(text) and read_result(text.encode()) == (text, False):
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
_OWN_HOSTS = ("generativelanguage.googleapis.com", "aiplatform.googleapis.com", "storage.cloud.google.com")


def is_own_file(uri: str) -> bool:
    """The URI is no address that anybody can read, but the id of a file: one of Gemini's Files API (an address of its own, or
    `files/NAME`), or one in Google's storage (`gs://`)."""
    try:
        parts = urlsplit(uri)
        host = (parts.hostname or "").rstrip(".")
    except ValueError:
        return True
    return parts.scheme != "data" and (parts.scheme not in ("http", "https") or not host or host.endswith(_OWN_HOSTS))
