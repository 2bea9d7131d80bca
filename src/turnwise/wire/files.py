"""Files inside of JSON: base64, data URLs, and what stands in place of one that an endpoint does not take."""

import base64
import binascii
import re

from turnwise.vocab import File, Part, ProviderItem, Reasoning, Text
from turnwise.wire.profiles import Profile

UNKNOWN_TYPE = "application/octet-stream"
"""The media type of a file of which nothing says what it is."""

# How files begin, for the media type of bytes whose kind alone is known: Google's APIs want a whole type.
_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
    (b"%PDF", "application/pdf"),
    (b"ID3", "audio/mpeg"),
)

# The media type with its parameters (RFC 2397); only base64 is read, since no API takes the percent-encoded form.
_DATA_URL = re.compile(r"data:([^,]*);base64,")


def takes_file(file: File, profile: Profile) -> bool:
    """Whether the endpoint takes files of this kind."""
    return profile.files == "all" or (profile.files == "images" and file.media_type.startswith("image/"))


def left_out(file: File) -> Text:
    """A line of text in place of a file, so that the model knows of it: nothing goes silently."""
    name = f" `{file.name}`" if file.name else ""
    return Text(f"[file{name} of type {file.media_type} left out: this endpoint does not take it]")


def files_in_words(parts: tuple[Part, ...], *, family: str) -> tuple[Part, ...]:
    """An assistant's parts, for an API of this family that takes no files from it: they are told in words where it said nothing
    else that the API takes, as a history without any message is refused."""
    if File not in map(type, parts):  # as nearly always
        return parts
    others = tuple([part for part in parts if not isinstance(part, File)])
    if not all(isinstance(part, Reasoning) or _is_foreign(part, family=family) for part in others):
        return others
    return (*others, *[left_out(part) for part in parts if isinstance(part, File)])


def _is_foreign(part: Part, *, family: str) -> bool:
    """An item of another family, which this one's encoder leaves out."""
    return isinstance(part, ProviderItem) and part.family != family


def encode_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def decode_base64(text: str) -> bytes | None:
    """None where it is no base64 (a recording that was shortened): it goes on as it came, the provider is the judge."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


def guessed_type(data: bytes) -> str:
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), UNKNOWN_TYPE)


def data_url(file: File) -> str | None:
    """The file's bytes as a data URL, else its address; None where it has neither."""
    if file.data is not None:
        return f"data:{file.media_type};base64,{encode_base64(file.data)}"
    return file.url


def read_data_url(url: str) -> tuple[str, bytes] | None:
    """Media type ("" where the URL names none) and bytes of a base64 data URL; None for any other address."""
    found = _DATA_URL.match(url)
    content = None if found is None else decode_base64(url[found.end() :])
    return None if found is None or content is None else (found[1], content)
