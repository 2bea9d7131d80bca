"""System call filters as BPF programs: what neither Landlock nor a namespace keeps a command from.

A socket is refused when it is made, so a later `connect` needs no judging. UNIX sockets are refused with or without network:
a path such as `/run/docker.sock` leads out of every sandbox, and no mount hides one that is made later. Pairs of connected
stream sockets stay, since nothing outside can be reached with them (a pair of datagram sockets can be connected anew).
Source: linux/seccomp.h, linux/bpf_common.h, arch/*/syscall tables; seccomp(2).
"""

import errno
import platform
import socket
import struct

import msgspec

# seccomp(2): the program must look at the architecture first, as numbers differ between them
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CALLS: dict[str, dict[str, int]] = {
    "x86_64": {
        "open": 2,
        "ioctl": 16,
        "socket": 41,
        "socketpair": 53,
        "clone": 56,
        "truncate": 76,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "openat": 257,
        "unshare": 272,
        "setns": 308,
        "io_uring_setup": 425,
        "clone3": 435,
        "openat2": 437,
    },
    "aarch64": {
        "ioctl": 29,
        "truncate": 45,
        "openat": 56,
        "unshare": 97,
        "socket": 198,
        "socketpair": 199,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "clone": 220,
        "setns": 268,
        "io_uring_setup": 425,
        "clone3": 435,
        "openat2": 437,
    },
}

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_X32_BIT = 0x40000000  # the same calls of x86_64 under other numbers

_EVERY_BIT = 0xFFFFFFFF
_TYPE_BITS = 0xF  # of a socket's type; the others are SOCK_CLOEXEC and SOCK_NONBLOCK
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into somebody's terminal
_ACCESS_MODE, _O_TRUNC = 0o3, 0o1000
_IP = (int(socket.AF_INET), int(socket.AF_INET6), 16)  # 16: AF_NETLINK, by which resolvers ask for the addresses here
_UNIX = 1


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One call refused with `error`: always, or by what an argument's masked low 32 bits are.

    Refused where they are one of `values`; with `unless`, where they are none of them; with `any_bit`, where one is set.
    The kernel takes the judged arguments as 32 bits or has no flag above them.
    """

    call: str
    error: int
    argument: int | None = None
    mask: int = _EVERY_BIT
    values: tuple[int, ...] = ()
    unless: bool = False
    any_bit: bool = False


_ALWAYS = (
    Refusal(call="socketpair", error=errno.EACCES, argument=0, values=(_UNIX,), unless=True),
    Refusal(call="socketpair", error=errno.EACCES, argument=1, mask=_TYPE_BITS, values=(1, 5), unless=True),
    Refusal(call="io_uring_setup", error=errno.ENOSYS),  # its rings make and connect sockets unseen by a filter
    # A user namespace of its own would give it every capability there, and the mounts of the sandbox to change.
    Refusal(call="clone", error=errno.EPERM, argument=0, values=(_NEW_NAMESPACES,), any_bit=True),
    Refusal(call="unshare", error=errno.EPERM, argument=0, values=(_NEW_NAMESPACES,), any_bit=True),
    Refusal(call="clone3", error=errno.ENOSYS),  # its flags lie in memory; C libraries fall back to clone
    Refusal(call="setns", error=errno.EPERM),
    # The kernel's keyrings are in no namespace and may hold the user's tickets.
    Refusal(call="add_key", error=errno.EPERM),
    Refusal(call="request_key", error=errno.EPERM),
    Refusal(call="keyctl", error=errno.EPERM),
    Refusal(call="ioctl", error=errno.EPERM, argument=1, values=(_TIOCSTI, _TIOCLINUX)),
)
# Landlock judges truncation from its third version on. Opening with O_TRUNC but not for writing truncates as well.
_TRUNCATING = (_O_TRUNC, _O_TRUNC | _ACCESS_MODE)
_TRUNCATION = (
    Refusal(call="truncate", error=errno.EACCES),
    Refusal(call="open", error=errno.EACCES, argument=1, mask=_ACCESS_MODE | _O_TRUNC, values=_TRUNCATING),
    Refusal(call="openat", error=errno.EACCES, argument=2, mask=_ACCESS_MODE | _O_TRUNC, values=_TRUNCATING),
    Refusal(call="openat2", error=errno.ENOSYS),
)


def can_filter(*, machine: str = platform.machine()) -> bool:
    return machine in _ARCHITECTURES


def command_filter(*, ip_sockets: bool, truncation: bool = True, machine: str = platform.machine()) -> bytes:
    """The program for a command, as the array of `struct sock_filter` that the kernel takes.

    `ip_sockets` lets it make IPv4 and IPv6 sockets; no other kind ever. With `truncation` false, what truncates a file
    without opening it for writing is refused. The machine must be one that `can_filter`.
    """
    sockets = Refusal(call="socket", error=errno.EACCES, argument=0, values=_IP if ip_sockets else (), unless=True)
    return _program((sockets, *_ALWAYS, *(() if truncation else _TRUNCATION)), machine=machine)


def _program(refusals: tuple[Refusal, ...], *, machine: str) -> bytes:
    calls = _CALLS[machine]
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),  # 32-bit programs: their calls have other numbers
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    ]
    for refusal in refusals:
        if refusal.call in calls:  # arm64 has no `open`
            body = _judge(refusal)
            steps += [(_LOAD, 0, 0, 0), (_EQUAL, 0, len(body), calls[refusal.call]), *body]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join([struct.pack("=HBBI", *step) for step in steps])


def _judge(refusal: Refusal) -> list[tuple[int, int, int, int]]:
    """The steps for the call in question. Jumps count the steps to pass over; past the last one is the next refusal."""
    refuse = (_RETURN, 0, 0, _REFUSE | refusal.error)
    if refusal.argument is None:
        return [refuse]
    load = [(_LOAD, 0, 0, 16 + 8 * refusal.argument), (_AND, 0, 0, refusal.mask)]
    if refusal.any_bit:
        (bits,) = refusal.values
        return [*load, (_ANY_BIT, 0, 1, bits), refuse]
    count = len(refusal.values)
    if refusal.unless:
        tests = [(_EQUAL, count - place, 0, value) for place, value in enumerate(refusal.values)]
    else:
        tests = [
            (_EQUAL, count - 1 - place, 0 if place < count - 1 else 1, value)
            for place, value in enumerate(refusal.values)
        ]
    return [*load, *tests, refuse]
