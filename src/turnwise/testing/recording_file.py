"""The file of a recording: HTTP requests and their answers, as JSON.

Its form is that of the recorded conversations that turnwise's own tests read (docs/corpus.md), so `turnwise lab --conversation`
plays it, too. What only a stream's exact course needs stands beside it: `pieces` and `fault`.
"""

import base64
import binascii
import os
import stat
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError, NotARecording
from turnwise.vocab import Fault

FORMAT, VERSION = "turnwise recording", 1
MOST_BYTES = 64 * 1024 * 1024  # what one recording may have; the largest recorded conversation has 0.2 MB
SHARED = 0o644  # a recording goes into a repository with the tests
HOW = 'record it with `Recording(path, mode="record")`'


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`path` has the query. A body that is no JSON stands in `body_base64`."""

    method: str
    path: str
    body: msgspec.Raw = msgspec.Raw(b"null")
    body_base64: str = ""


class RecordedResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`status` is 0 where no answer came. A body that is no UTF-8 stands in `body_base64`.

    `pieces` are the bytes of each piece in which the body came, as numbers with a space between; without them it came in one.
    `ending` says what came after them: the end, a broken connection (its `fault`), or nothing until the client left.
    `is_delimited` as in `turnwise.endpoints.transport.HttpReply`.
    """

    status: int = 0
    headers: dict[str, str] = {}
    body: str = ""
    body_base64: str = ""
    pieces: str = ""
    ending: str = "end"
    fault: Fault | None = None
    is_delimited: bool = True

    def content(self) -> bytes:
        """The body. Raises ValueError for base64 that is none."""
        return base64.b64decode(self.body_base64, validate=True) if self.body_base64 else self.body.encode()

    def chunks(self) -> list[bytes]:
        """The pieces, as they came. Raises ValueError where their lengths are not those of the body."""
        content = self.content()
        lengths = list(map(int, self.pieces.split())) if self.pieces else [len(content)] if content else []
        if sum(lengths) != len(content) or min(lengths, default=1) < 1:
            raise ValueError(f"its `pieces` have {sum(lengths)} bytes together, and its body has {len(content)}")
        chunks, at = list[bytes](), 0
        for length in lengths:
            chunks.append(content[at : at + length])
            at += length
        return chunks


class RecordedExchange(msgspec.Struct, frozen=True):
    request: RecordedRequest
    response: RecordedResponse


class RecordingFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`family` and `streamed` are those of all requests; `family` is empty where they differ or are not known."""

    format: str = ""
    version: int = 0
    family: str = ""
    streamed: bool = False
    exchanges: tuple[RecordedExchange, ...]


def file_at(path: str | os.PathLike[str]) -> Path:
    """The path, with `.json` behind a name that has no ending."""
    found = Path(path)
    return found if found.suffix else found.with_name(f"{found.name}.json")


def read_recording(path: Path) -> tuple[RecordedExchange, ...]:
    """What was recorded, in order. Raises NotARecording for a file that is missing, damaged or none of these, and says where."""
    try:
        file = msgspec.json.decode(_content_of(path), type=RecordingFile)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise NotARecording(f"`{path}` is no recording: {error}; {HOW}") from None
    if file.version > VERSION:
        raise NotARecording(
            f"`{path}` is from a newer turnwise (version {file.version} of the format, this one knows {VERSION}): upgrade"
        )
    for number, exchange in enumerate(file.exchanges):
        try:
            exchange.response.chunks()
            base64.b64decode(exchange.request.body_base64, validate=True)
        except (ValueError, binascii.Error) as error:
            raise NotARecording(f"`{path}` is damaged: {error} - at `$.exchanges[{number}]`; {HOW}") from None
    return file.exchanges


def _content_of(path: Path) -> bytes:
    match read_of_user(path, max_bytes=MOST_BYTES):
        case None:
            raise NotARecording(
                f'`{path}` does not exist: record it with `Recording(path, mode="once")` in a `with` statement'
            )
        case LeftOut(is_too_long=True):
            raise NotARecording(f"`{path}` has more than {MOST_BYTES:,} bytes: that is no recording")
        case LeftOut(why=why):
            raise NotARecording(f"`{path}` {why}: give a file that `Recording` wrote")
        case bytes() as content:
            return content


def write_recording(path: Path, file: RecordingFile) -> None:
    """Write the file whole or not at all. Raises CallerError where it is too large or cannot be written."""
    content = msgspec.json.format(msgspec.json.encode(file), indent=1) + b"\n"
    if len(content) > MOST_BYTES:
        raise CallerError(f"`{path}` would have more than {MOST_BYTES:,} bytes: record fewer requests in one file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else SHARED
    except OSError as error:
        raise CallerError(f"`{path}` cannot be written: {error.strerror or error}") from None
    with in_place_of(path, mode=mode) as descriptor, os.fdopen(descriptor, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
