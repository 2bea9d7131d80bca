"""Landlock, the kernel's own access rules: its rights, and how a set of rules is made and taken on.

Also a script, which bubblewrap runs with the arguments SCRIPT VERSION COUNT PATH... COMMAND...: it lets itself write below the
COUNT paths only, closes the descriptor SCRIPT that it was read from, and becomes the command. Mounts alone do not see to that: a
named pipe can be written on a read-only mount, and what is mounted outside later comes in writable.

It imports nothing of turnwise, and little of Python: each command waits for its start.
Rules can only allow, and what they allow holds for all that lies below.
Source: landlock(7), linux/landlock.h.
"""

import ctypes
import os
import struct
import sys

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_SIGPIPE, _SIGXFSZ = 13, 25  # the same on x86_64 and arm64; to import `signal` takes longer
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in (13, 14, 15))
# How many rights over files each version knows: the first 13, REFER from 2, TRUNCATE from 3, IOCTL_DEV from 5.
_KNOWN_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_NEWEST_RIGHTS = 16
# Before REFER, a process under Landlock rules cannot move a file from one folder to another.
REFER_ABI, TRUNCATION_ABI, TCP_ABI, SCOPES_ABI = 2, 3, 4, 6

READ = EXECUTE | READ_FILE | READ_DIR
CHANGE = (
    WRITE_FILE | TRUNCATE | _REFER | _REMOVE_DIR | _REMOVE_FILE
    | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
)  # fmt: skip
_EVERY_CHANGE = CHANGE | _MAKE_CHAR | _MAKE_BLOCK
_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_CANNOT_RUN = 126  # what shells say of a command that cannot be executed


def _kernel() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """The version of Landlock's rules (ABI) that this kernel has; 0 where it has none or they are switched off."""
    if sys.platform != "linux":
        return 0
    return max(0, _kernel().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)))


def known_rights(version: int) -> int:
    return (1 << _KNOWN_RIGHTS.get(version, _NEWEST_RIGHTS)) - 1


def create_ruleset(*handled: int) -> int:
    """A descriptor of rules that refuse what they handle (of files, of TCP, of what lies outside). Raises OSError."""
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = _kernel().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise _error("landlock_create_ruleset")
    return ruleset


def allow(ruleset: int, path: str, *, rights: int) -> None:
    """What cannot be opened (absent, of another user) is no loss: the command could not open it either. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return
    try:
        if not os.path.isdir(path):  # noqa: PTH112 (a script that starts faster without pathlib)
            rights &= _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        if rights and _kernel().syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, ctypes.c_uint32(0)) != 0:
            raise _error(f"landlock_add_rule for {path}")
    finally:
        os.close(descriptor)


def _error(call: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{call}: {os.strerror(number)}")


def _main(script: str, version: str, count: str, *words: str) -> None:
    paths, command = words[: int(count)], words[int(count) :]
    try:
        handled = _EVERY_CHANGE & known_rights(int(version))
        ruleset = create_ruleset(handled)
        for path in paths:
            allow(ruleset, path, rights=CHANGE & handled)
        if _kernel().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or _kernel().syscall(_RESTRICT_SELF, ruleset, 0):
            raise _error("landlock_restrict_self")
        os.close(ruleset)
        os.close(int(script))
        for number in (_SIGPIPE, _SIGXFSZ):  # Python ignores them, and what is ignored stays so
            _kernel().signal(number, None)  # SIG_DFL
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"turnwise: the command could not be started: {error}\n".encode())
    os._exit(_CANNOT_RUN)


if __name__ == "__main__":
    _main(*sys.argv[1:])
