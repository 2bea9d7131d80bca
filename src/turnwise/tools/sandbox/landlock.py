"""A command under Landlock, the kernel's own access rules, beside a filter of system calls.

What rules allow holds for all that lies below. So what is secret is left out by naming everything around it.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from turnwise.tools.sandbox.git import shared_paths
from turnwise.tools.sandbox.landlock_rules import (
    CHANGE,
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_DIR,
    READ_FILE,
    SCOPES_ABI,
    TCP_ABI,
    TRUNCATE,
    TRUNCATION_ABI,
    WRITE_FILE,
    allow,
    create_ruleset,
    known_rights,
)
from turnwise.tools.sandbox.sandbox_types import SandboxOrder, Wrapped, in_keeper
from turnwise.tools.sandbox.seccomp import can_filter, command_filter

_TCP = 0b11  # bind and connect
_OUTSIDE_SOCKETS_AND_SIGNALS = 0b11  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, LANDLOCK_SCOPE_SIGNAL

# Not /dev/shm and not the terminals: both belong to other programs as well.
_DEVICES = tuple(Path(f"/dev/{name}") for name in ("null", "zero", "full", "random", "urandom"))
_NOT_SEEN = tuple(Path(text) for text in ("/dev", "/run", "/tmp", "/var/tmp"))
_OF_RUNTIME = (Path("/run/current-system"),)  # NixOS: the programs themselves
_RESOLVER = Path("/etc/resolv.conf")


def wrap_in_landlock(order: SandboxOrder, *, version: int) -> Wrapped:
    """The keeper with a ruleset for it. Raises OSError where the kernel does not take the rules."""
    program = "-"
    if can_filter():
        program = command_filter(
            ip_sockets=order.network,
            truncation=version >= TRUNCATION_ABI,
            apart=False,
            signals=version >= SCOPES_ABI,
        ).hex()
    rules = make_ruleset(order, version=version)
    asked = program != "-" and version < SCOPES_ABI
    return in_keeper(order, rules=rules, program=program, asked=asked, folder=str(order.temporary))


def make_ruleset(order: SandboxOrder, *, version: int) -> int:
    """A descriptor of the rules: read what is not hidden, write where it may, and no TCP without network."""
    handled = known_rights(version)
    fields = [handled]
    if version >= TCP_ABI:
        fields.append(0 if order.network else _TCP)
    if version >= SCOPES_ABI:
        fields.append(_OUTSIDE_SOCKETS_AND_SIGNALS)
    ruleset = create_ruleset(*fields)
    try:
        for path, rights in allowances(order):
            allow(ruleset, str(path), rights=rights & handled)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def may_read(order: SandboxOrder, path: Path) -> bool:
    """Whether the rules let the command read and run the file at the resolved `path`."""
    return any(rights & EXECUTE and path.is_relative_to(at) for at, rights in allowances(order))


def allowances(order: SandboxOrder) -> Iterator[tuple[Path, int]]:
    """What the command may do below which paths; nothing else is allowed."""
    yield Path("/"), READ_DIR  # names are no secret, and `ls ~` is in many a script
    for path in _around(Path("/"), hidden=frozenset({*_NOT_SEEN, *order.hidden})):
        yield path, READ
    for path in (*_OF_RUNTIME, *((_RESOLVER.resolve(),) if order.network else ()), *order.shown):
        yield path, READ
    for path in _DEVICES:
        yield path, READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    for folder in order.git:
        for path in shared_paths(folder.at) if folder.shared else [folder.at]:
            yield path, READ | CHANGE
    for root in (order.temporary, *order.writable, order.workspace):
        changes = 0 if order.reads_only and root != order.temporary else CHANGE
        # Where something hidden lies inside (the folder is the home folder), no new file can be made beside it.
        for path in _around(root, hidden=frozenset(order.hidden) - {root}):
            yield path, READ | changes


def _around(root: Path, *, hidden: frozenset[Path]) -> Iterator[Path]:
    """The outermost paths in `root`, itself if possible, that hold nothing hidden."""
    around = {parent for path in hidden for parent in path.parents}
    if root not in around:
        yield root
        return
    folders = [root]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink() or path in hidden:
                continue  # where a link leads is allowed by itself or not at all
            if path in around:
                folders.append(path)
            else:
                yield path
