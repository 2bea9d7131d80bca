"""Which servers of a folder the user trusts, and what those said of their tools then. Beside the journal, for its owner alone."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from turnwise.base.unasked_files import read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.journal.journal import journal_path

MAX_BYTES = 64 * 1024 * 1024  # all tools of a server are less than 1 MB, twice


class ChangedTool(msgspec.Struct, frozen=True):
    """What a server says of a tool now: the digest, and in words all that it is of. Files of versions before have no words."""

    digest: str
    said: str = ""


class _Kept(msgspec.Struct, kw_only=True):
    trusted: list[str] = []  # digests of servers that a project names
    told: dict[str, dict[str, str]] = {}  # by the digest of a server: tool -> digest of what was said of it
    said: dict[str, dict[str, str]] = {}  # the same, in words; files of versions before have none
    changed: dict[str, dict[str, ChangedTool]] = {}


class ServerTrust:
    """What is kept, in one file. Raises CallerError where it cannot be read or written.

    The file is read anew before each change: another process may have written to it in the meantime.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._kept = self._read()

    @classmethod
    def of_user(cls, env: Mapping[str, str]) -> "ServerTrust":
        return cls(journal_path(env).parent / "mcp_trust.json")

    def is_trusted(self, digest: str) -> bool:
        """Whether the user has said that this very entry may be started."""
        return digest in self._kept.trusted

    def trust(self, digest: str) -> None:
        self._kept = self._read()
        self._kept.trusted = [*[one for one in self._kept.trusted if one != digest], digest]
        self._write()

    def told_of(self, digest: str) -> Mapping[str, str] | None:
        """What the server said of its tools when it was trusted; None: it has not been started yet."""
        return self._kept.told.get(digest)

    def said_of(self, digest: str) -> Mapping[str, str]:
        """The same in words, as far as they are kept."""
        return self._kept.said.get(digest, {})

    def remember(self, digest: str, tools: Mapping[str, ChangedTool]) -> None:
        """Beside what is known of others of its tools."""
        self._kept = self._read()
        self._kept.told.setdefault(digest, {}).update({name: one.digest for name, one in tools.items()})
        self._kept.said.setdefault(digest, {}).update({name: one.said for name, one in tools.items()})
        self._kept.changed.pop(digest, None)
        self._write()

    def note_changed(self, digest: str, changed: Mapping[str, ChangedTool]) -> None:
        """To be asked about at the next start."""
        self._kept = self._read()
        if self._kept.changed.get(digest) != changed:
            self._kept.changed[digest] = dict(changed)
            self._write()

    def changed_of(self, digest: str) -> Mapping[str, ChangedTool]:
        return self._kept.changed.get(digest, {})

    def accept_changes(self, digest: str) -> None:
        """What it says now is what was trusted."""
        self.remember(digest, self.changed_of(digest))

    def _read(self) -> _Kept:
        content = read_of_user(self._path, max_bytes=MAX_BYTES)
        if content is None:
            return _Kept()
        try:
            return msgspec.json.decode(content if isinstance(content, bytes) else b"", type=_Kept)
        except msgspec.DecodeError:
            raise CallerError(
                f"`{self._path}` cannot be read: delete it, and turnwise asks about MCP servers again"
            ) from None

    def _write(self) -> None:
        try:
            os.makedirs(self._path.parent, mode=0o700, exist_ok=True)  # noqa: PTH103
        except OSError as error:
            raise CallerError(f"`{self._path}` cannot be written: {error.strerror or error}") from None
        with in_place_of(self._path) as descriptor:
            os.write(descriptor, msgspec.json.encode(self._kept))
