"""Images, audio and documents as content parts of Chat Completions <-> `File`."""

import base64
import binascii
import re
from collections.abc import Mapping

import msgspec

from turnwise.vocab import File, Opaque
from turnwise.wire.openai_chat.fields import NAME, is_object

DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,=]+=[^;,]*)*)(;base64)?,", re.ASCII)

AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # OpenAI API reference: "wav" and "mp3"
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}

UNKNOWN_TYPE = "application/octet-stream"


def encode_file(file: File, *, document_part: str) -> dict[str, object]:
    """The content part for a file. `document_part`: how documents go ("file" at OpenAI, "document_url" at Mistral)."""
    kind = file.media_type.partition("/")[0]
    part: dict[str, object]
    if kind == "image" and file.file_id is None:
        part = {"type": "image_url", "image_url": {"url": _url(file)}}
    elif file.media_type in AUDIO_FORMATS and file.data is not None:
        audio = {"data": base64.b64encode(file.data).decode(), "format": AUDIO_FORMATS[file.media_type]}
        part = {"type": "input_audio", "input_audio": audio}
    elif kind == "video" and file.file_id is None:
        part = {"type": "video_url", "video_url": {"url": _url(file)}}  # vLLM, OpenRouter
    elif document_part == "document_url" and file.file_id is None:
        part = {"type": "document_url", "document_url": _url(file)}
        if file.name is not None:
            part["document_name"] = file.name
    elif file.file_id is not None:
        part = {"type": "file", "file": {"file_id": file.file_id}}
    else:
        # OpenAI wants a name with the bytes; it takes no address, OpenRouter takes one here.
        named = {"filename": file.name} if file.name is not None else {"filename": "file"} if file.data else {}
        part = {"type": "file", "file": {**named, "file_data": _url(file)}}
    return part


def decode_file(part: Mapping[str, object]) -> File | None:
    """The file of a content part, or None if the part is no file that we know. What else it holds becomes opaque."""
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    fields = dict(inner) if is_object(inner) else {}
    file: File | None = None
    match kind:
        case "image_url" | "video_url":
            media_type = "image/*" if kind == "image_url" else "video/*"
            url = fields.pop("url", None) if fields else inner  # Mistral takes the address itself
            file = _from_url(url, media_type=media_type, name=None)
        case "document_url":
            name = part.get("document_name")
            file = _from_url(inner, media_type=UNKNOWN_TYPE, name=name if isinstance(name, str) else None)
        case "input_audio":
            file = _from_base64(
                fields.pop("data", None), media_type=AUDIO_TYPES.get(str(fields.pop("format", None)), "")
            )
        case "file":
            name, data = fields.pop("filename", None), fields.pop("file_data", None)
            file_id = fields.pop("file_id", None)
            if isinstance(file_id, str):
                file = File(media_type=UNKNOWN_TYPE, file_id=file_id)
            else:
                file = _from_url(data, media_type=UNKNOWN_TYPE, name=name if isinstance(name, str) else None)
        case _:
            return None
    if file is None:
        return None
    rest = {
        key: value for key, value in part.items() if key not in ("type", kind, "document_name") and value is not None
    }
    if fields:
        rest[str(kind)] = fields
    if not rest:
        return file
    return msgspec.structs.replace(file, opaque=Opaque(NAME, msgspec.json.encode(rest).decode()))


def image_of(raw: msgspec.Raw) -> File | None:
    """A generated image, which comes as an `image_url` part."""
    try:
        return decode_file(msgspec.json.decode(raw, type=dict[str, object]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _url(file: File) -> str:
    if file.data is not None:
        return f"data:{file.media_type};base64,{base64.b64encode(file.data).decode()}"
    return file.url or ""


def _from_url(url: object, *, media_type: str, name: str | None) -> File | None:
    if not isinstance(url, str):
        return None
    found = DATA_URL.match(url)
    if found is None or not found.group(3):
        return File(media_type=media_type, url=url, name=name)
    file = _from_base64(url[found.end() :], media_type=found.group(1) + found.group(2) or media_type)
    # What is no base64 (a recording that was shortened) goes back as the address that it came as.
    return File(media_type=media_type, url=url, name=name) if file is None else msgspec.structs.replace(file, name=name)


def _from_base64(text: object, *, media_type: str) -> File | None:
    if not isinstance(text, str) or not media_type:
        return None
    try:
        return File(media_type=media_type, data=base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return None
