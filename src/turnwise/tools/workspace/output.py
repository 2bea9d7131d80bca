"""What a command says: its head and tail for the model, and all of it, within limits, in a file."""

import contextlib
import os
from collections import deque
from pathlib import Path

from turnwise.base.private_folders import private_folder_of
from turnwise.rules.permission_paths import is_inside
from turnwise.running.working_call import LOOKED_AT, OutputSink

OUTPUTS = "outputs"  # where `Scratch` keeps them
MAX_FILE_BYTES = 64 * 1024 * 1024  # of one command's output on disk
MAX_FILES = 16  # of one run; the oldest is given up first


def is_gone_output(path: str) -> bool:
    """Whether the resolved path is an output that an earlier run kept: that run's folder is not there any more."""
    folder = private_folder_of(path)
    return folder is not None and is_inside(path, folder=f"{folder}/{OUTPUTS}") and not os.path.lexists(folder)


class Tape:
    """The head and the tail of a byte stream, with a count of what fell out between.

    Where that is something, the stream from its beginning is in the file `spill`, up to `spilled_bytes` of it. `tell` is told
    each piece as it comes.
    """

    def __init__(
        self,
        *,
        kept_bytes: int,
        spill: Path | None = None,
        spilled_bytes: int = MAX_FILE_BYTES,
        tell: OutputSink | None = None,
    ) -> None:
        self._kept = kept_bytes
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0
        self._spill = spill
        self._spill_room = spilled_bytes
        self._spilled = False
        self._listener = tell

    def write(self, chunk: bytes) -> None:
        if self._listener is not None:
            self._listener(chunk)
        if self._spill is not None and self._total + len(chunk) > 2 * self._kept:
            if not self._spilled:  # until here nothing has fallen out
                self._spilled = True
                self._add_to_file(self._whole())
            self._add_to_file(chunk)
        self._total += len(chunk)
        room = self._kept - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if chunk:
            self._tail.append(chunk)
            self._tail_bytes += len(chunk)
            while self._tail_bytes - len(self._tail[0]) >= self._kept:
                self._tail_bytes -= len(self._tail.popleft())

    def _whole(self) -> bytes:
        return bytes(self._head) + b"".join(self._tail)

    def text(self) -> str:
        tail = b"".join(self._tail)[-self._kept :]
        left_out = self._total - len(self._head) - len(tail)
        note = f"\n[... {left_out:,} bytes left out{self._where()} ...]\n".encode() if left_out else b""
        return (bytes(self._head) + note + tail).decode("utf-8", "replace")

    @property
    def ending(self) -> bytes:
        """The last that it said."""
        return self._whole()[-LOOKED_AT:]

    @property
    def broken(self) -> int:
        """How many bytes of it are no UTF-8, as far as `text` shows them. A character that the cut divides does not count."""
        if self._total == len(self._head) + self._tail_bytes:
            return _broken(self._whole())
        head, tail = bytes(self._head), b"".join(self._tail)[-self._kept :]
        start = next((at for at, byte in enumerate(tail[:4]) if byte & 0xC0 != 0x80), 0)
        end = next((at for at in range(1, min(4, len(head) + 1)) if head[-at] & 0xC0 == 0xC0), 0)
        return _broken(head[: len(head) - end]) + _broken(tail[start:])

    def _where(self) -> str:
        if self._spill is None:
            return ""
        extent = "all of it is" if self._spill_room > 0 else "the beginning is"
        return f"; {extent} in {self._spill}: look there with grep or sed -n"

    def _add_to_file(self, chunk: bytes) -> None:
        """A full disk must not end the command: the file is given up then."""
        if self._spill is None or self._spill_room <= 0:
            return
        chunk = chunk[: self._spill_room]
        self._spill_room -= len(chunk)
        try:
            with self._spill.open("ab") as file:
                file.write(chunk)
        except OSError:
            with contextlib.suppress(OSError):
                self._spill.unlink(missing_ok=True)
            self._spill = None


def _broken(content: bytes) -> int:
    try:
        content.decode()
    except UnicodeDecodeError:
        shown = content.decode("utf-8", "surrogateescape")
        return sum(["\udc80" <= character <= "\udcff" for character in shown])
    return 0
