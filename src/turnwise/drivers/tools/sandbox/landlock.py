"""A command under Landlock, the kernel's own access rules, beside a filter of system calls.

Rules can only allow, and what they allow holds for all that lies below. So what is secret is left out by naming everything
around it. Source: landlock(7), linux/landlock.h.
"""

import ctypes
import functools
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from turnwise.drivers.tools.programs import HELPER
from turnwise.drivers.tools.sandbox.kinds import SandboxOrder, Wrapped
from turnwise.drivers.tools.sandbox.seccomp import can_filter, command_filter

KEEPER = Path(__file__).with_name("keeper.py")
MORE_PROCESSES = 1024  # beside what runs already; a parallel build of a large project needs some hundreds

_CREATE_RULESET, _ADD_RULE = 444, 445  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = (1 << bit for bit in (7, 8, 9, 10, 12))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in (13, 14, 15))
# How many rights over files each version knows: the first 13, REFER from 2, TRUNCATE from 3, IOCTL_DEV from 5.
_KNOWN_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_RIGHTS = 16
_TCP = 0b11  # bind and connect
_OUTSIDE_SOCKETS_AND_SIGNALS = 0b11  # LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET, LANDLOCK_SCOPE_SIGNAL
TRUNCATION_ABI, TCP_ABI, SCOPES_ABI = 3, 4, 6

_READ = _EXECUTE | _READ_FILE | _READ_DIR
_MAKE = _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
_WRITE = _READ | _WRITE_FILE | _TRUNCATE | _REFER | _REMOVE_DIR | _REMOVE_FILE | _MAKE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
# Not /dev/shm and not the terminals: both belong to other programs as well.
_DEVICES = tuple(Path(f"/dev/{name}") for name in ("null", "zero", "full", "random", "urandom"))
_NOT_SEEN = tuple(Path(text) for text in ("/dev", "/run", "/tmp", "/var/tmp"))
_OF_RUNTIME = (Path("/run/current-system"),)  # NixOS: the programs themselves
_RESOLVER = Path("/etc/resolv.conf")


@functools.cache
def _kernel() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The version of Landlock's rules (ABI) that this kernel has; 0 where it has none or they are switched off."""
    if sys.platform != "linux":
        return 0
    return max(0, _kernel().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))


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
    keeper = keeper_command(order, rules=str(rules), program=program, asked=asked)
    return Wrapped(argv=keeper, env=order.env, descriptors=(rules,), supervised=True, watches=True)


def keeper_command(
    order: SandboxOrder, *, rules: str = "-", program: str = "-", asked: bool = False
) -> tuple[str, ...]:
    """`asked`: the filter `program` lets the keeper judge signals."""
    given = "-" if order.given is None else str(order.given)
    how = (rules, program, "asked" if asked else "-", str(MORE_PROCESSES), given)
    return (*HELPER, str(KEEPER), *how, *order.argv)


def make_ruleset(order: SandboxOrder, *, version: int) -> int:
    """A descriptor of the rules: read what is not hidden, write where it may, and no TCP without network."""
    handled = (1 << _KNOWN_RIGHTS.get(version, _NEWEST_RIGHTS)) - 1
    fields = [handled]
    if version >= TCP_ABI:
        fields.append(0 if order.network else _TCP)
    if version >= SCOPES_ABI:
        fields.append(_OUTSIDE_SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    ruleset = _kernel().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise _error("landlock_create_ruleset")
    try:
        for path, rights in _allowances(order):
            _allow(ruleset, path, rights=rights & handled)
    except OSError:
        os.close(ruleset)
        raise
    return ruleset


def may_read(order: SandboxOrder, path: Path) -> bool:
    """Whether the rules let the command read and run the file at the resolved `path`."""
    return any(rights & _EXECUTE and path.is_relative_to(at) for at, rights in _allowances(order))


def _allowances(order: SandboxOrder) -> Iterator[tuple[Path, int]]:
    yield Path("/"), _READ_DIR  # names are no secret, and `ls ~` is in many a script
    for path in _around(Path("/"), hidden=frozenset({*_NOT_SEEN, *order.hidden})):
        yield path, _READ
    for path in (*_OF_RUNTIME, *((_RESOLVER.resolve(),) if order.network else ()), *order.shown):
        yield path, _READ
    for path in _DEVICES:
        yield path, _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
    for root in (order.temporary, *order.writable, order.workspace):
        # Where something hidden lies inside (the folder is the home folder), no new file can be made beside it.
        for path in _around(root, hidden=frozenset(order.hidden) - {root}):
            yield path, _WRITE


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


def _allow(ruleset: int, path: Path, *, rights: int) -> None:
    """What cannot be opened (absent, of another user) is no loss: the command could not open it either."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        if rights and _kernel().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0)) != 0:
            raise _error(f"landlock_add_rule for {path}")
    finally:
        os.close(descriptor)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")
