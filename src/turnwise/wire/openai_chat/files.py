"""Images, audio and documents as content parts of Chat Completions <-> `File`."""

from collections.abc import Mapping

import msgspec

from turnwise.vocab import File, Opaque
from turnwise.wire.files import UNKNOWN_TYPE, data_url, decode_base64, encode_base64, read_data_url
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.fields import NAME, is_object

AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # OpenAI API reference: "wav" and "mp3"
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def encode_file(file: File, *, document_part: str) -> dict[str, object]:
    """The content part for a file. `document_part`: how documents go ("file" at OpenAI, "document_url" at Mistral)."""
    kind = file.media_type.partition("/")[0]
    part: dict[str, object]
    if kind == "image" and file.file_id is None:
        part = {"type": "image_url", "image_url": {"url": data_url(file) or ""}}
    elif file.media_type in AUDIO_FORMATS and file.data is not None:
        audio = {"data": encode_base64(file.data), "format": AUDIO_FORMATS[file.media_type]}
        part = {"type": "input_audio", "input_audio": audio}
    elif kind == "video" and file.file_id is None:
        part = {"type": "video_url", "video_url": {"url": data_url(file) or ""}}  # vLLM, OpenRouter
    elif document_part == "document_url" and file.file_id is None:
        part = {"type": "document_url", "document_url": data_url(file) or ""}
        if file.name is not None:
            part["document_name"] = file.name
    elif file.file_id is not None:
        part = {"type": "file", "file": {"file_id": file.file_id}}
    else:
        # OpenAI wants a name with the bytes; it takes no address, OpenRouter takes one here.
        named = {"filename": file.name} if file.name is not None else {"filename": "file"} if file.data else {}
        part = {"type": "file", "file": {**named, "file_data": data_url(file) or ""}}
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
            data, media_type = fields.pop("data", None), AUDIO_TYPES.get(str(fields.pop("format", None)))
            content = decode_base64(data) if isinstance(data, str) else None
            file = None if content is None or media_type is None else File(media_type=media_type, data=content)
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
    except UNREADABLE:
        return None


def _from_url(url: object, *, media_type: str, name: str | None) -> File | None:
    if not isinstance(url, str):
        return None
    found = read_data_url(url)
    if found is None:
        return File(media_type=media_type, url=url, name=name)
    return File(media_type=found[0] or media_type, data=found[1], name=name)
