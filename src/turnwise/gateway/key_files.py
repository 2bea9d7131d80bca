"""Keys of upstreams that stand in files, as a cluster mounts its secrets. They are read again with the configuration, so a new
key needs no restart."""

import contextlib
import stat
from collections.abc import Iterable
from pathlib import Path

from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.endpoints.endpoints import Secret
from turnwise.errors import CallerError

MOST_BYTES = 16 * 1024  # the longest keys, tokens of Google's, have some 2,000


def check_key_files(paths: Iterable[str], *, url: str) -> None:
    """Raises CallerError for a path that depends on where the gateway was started."""
    for path in paths:
        if not Path(path).is_absolute():
            raise CallerError(f"`key_file` of `{url}` must be a whole path, such as `/run/secrets/provider-key`")


def read_key_file(path: str) -> Secret:
    """The one line of the file, without blanks around it. The file may be a link. Who may read it is not checked, since mounted
    secrets are often open to everybody in their container, but others may not write it. Raises CallerError."""
    is_open = False
    match read_of_user(Path(path), max_bytes=MOST_BYTES):
        case None:
            raise CallerError(f"`{path}`, a `key_file` of gateway.toml, does not exist")
        case LeftOut(why=why):
            raise CallerError(f"`{path}`, a `key_file` of gateway.toml, {why}")
        case bytes() as content:
            pass
    with contextlib.suppress(OSError):
        is_open = bool(Path(path).stat().st_mode & stat.S_IWOTH)
    if is_open:
        raise CallerError(f"`{path}`, a `key_file` of gateway.toml, may be written by everybody: take that right away")
    key = content.strip()
    if not key or any(byte <= 0x20 or byte >= 0x7F for byte in key):
        raise CallerError(f"`{path}`, a `key_file` of gateway.toml, must have one line with a key, in ASCII")
    return Secret(key.decode())
