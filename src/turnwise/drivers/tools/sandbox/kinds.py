"""What is asked of a sandbox, and what it makes of it."""

from pathlib import Path
from typing import Literal

import msgspec

SandboxKind = Literal["bubblewrap", "landlock", "none"]


class SandboxOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A command and what it may do. All paths are absolute and have no link in them.

    It may write in `workspace`, in `writable` and in the temporary folder; `hidden` paths it may not even read.
    `shown` it may read although they lie inside something hidden. `given` is the descriptor of its standard input, where a
    keeper has to hand it on.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    workspace: Path
    temporary: Path
    empty: Path
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    shown: tuple[Path, ...] = ()
    network: bool = False
    given: int | None = None


class Wrapped(msgspec.Struct, frozen=True, kw_only=True):
    """What to start instead of the command.

    `descriptors` are to be passed on to it, and closed here once it has started. `supervised`: the started process is not
    the command but one that ends with it, so a polite signal goes to those below it only. `watches`: it ends all that it
    started when its standard input closes, so no other guard is needed.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    descriptors: tuple[int, ...] = ()
    supervised: bool = False
    watches: bool = False
