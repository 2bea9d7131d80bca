"""System call filters as BPF programs: what neither Landlock nor a namespace keeps a command from.

A socket is refused when it is made, so a later `connect` needs no judging. UNIX sockets are refused with or without network: a
path such as `/run/docker.sock` leads out of every sandbox, and no mount hides one that is made later. Pairs of connected stream
sockets stay, since nothing outside can be reached with them (a pair of datagram sockets can be connected again). Source:
linux/seccomp.h, linux/bpf_common.h, arch/*/syscall tables; seccomp(2).
"""

import errno
import platform
import socket
import struct

import msgspec

# The numbers of the system calls that a filter judges.
#
# The numbers of x86_64 come first, those of arm64 second; None where a machine does not have the call.
# Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux 6.17.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "open": (2, None),
    "ioctl": (16, 29),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "kill": (62, 129),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "fcntl": (72, 25),
    "truncate": (76, 45),
    "syslog": (103, 116),
    "rt_sigqueueinfo": (129, 138),
    "setpriority": (141, 140),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "tkill": (200, 130),
    "sched_setaffinity": (203, 122),
    "semtimedop": (220, 192),
    "tgkill": (234, 131),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "openat": (257, 56),
    "unshare": (272, 97),
    "move_pages": (279, 239),
    "rt_tgsigqueueinfo": (297, 240),
    "perf_event_open": (298, 241),
    "prlimit64": (302, 261),
    "setns": (308, 268),
    "sched_setattr": (314, 274),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "pidfd_open": (434, 434),
    "clone3": (435, 435),
    "openat2": (437, 437),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
}

NUMBERS: dict[str, dict[str, int]] = {
    machine: {name: number for name, numbers in _NUMBERS.items() if (number := numbers[place]) is not None}
    for place, machine in enumerate(("x86_64", "aarch64"))
}


# seccomp(2): the program must look at the architecture first, as numbers differ between them
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _REFUSE, _ASK, _KILL = 0x7FFF0000, 0x00050000, 0x7FC00000, 0x80000000  # _ASK: SECCOMP_RET_USER_NOTIF
_X32_BIT = 0x40000000  # the same calls of x86_64 under other numbers

_EVERY_BIT = 0xFFFFFFFF
_TYPE_BITS = 0xF  # of a socket's type; the others are SOCK_CLOEXEC and SOCK_NONBLOCK
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into somebody's terminal
_ACCESS_MODE, _O_TRUNC = 0o3, 0o1000
_IP = (int(socket.AF_INET), int(socket.AF_INET6), 16)  # 16: AF_NETLINK, by which resolvers ask for the addresses here
_UNIX = 1
_F_SETOWN, _F_SETOWN_EX, _F_SETLEASE = 8, 15, 1024
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902
_PRIO_USER, _IOPRIO_WHO_USER = 2, 3  # all processes of the user
# They change a file or folder that was opened for reading only: flags (`chattr`), project, version, verity, encryption; and
# subvolumes of btrfs, which are made and removed below any folder. Source: linux/fs.h, linux/fsverity.h, linux/btrfs.h.
_CHANGING_BY_IOCTL = (
    0x40086602, 0x40087602, 0x401C5820, 0x40806685, 0x800C6613,
    0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418, 0x5000943F, 0x4008941A, 0xC0C89425,
)  # fmt: skip


class RefusedSystemCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call refused with `error`: always, or by what an argument's masked low 32 bits are.

    Refused where they are one of `values`; with `unless`, if they are not among them; with `any_bit`, where one is set. The
    kernel takes the judged arguments as 32 bits or has no flag above them. With `asks` the keeper decides.
    """

    call: str
    error: int = 0
    argument: int | None = None
    mask: int = _EVERY_BIT
    values: tuple[int, ...] = ()
    unless: bool = False
    any_bit: bool = False
    asks: bool = False


def _refuse(error: int, calls: str) -> tuple[RefusedSystemCall, ...]:
    return tuple(RefusedSystemCall(call=call, error=error) for call in calls.split())


def _own_only(argument: int, calls: str) -> tuple[RefusedSystemCall, ...]:
    """The argument names a process; 0 is the one that calls."""
    return tuple(
        RefusedSystemCall(call=call, error=errno.EPERM, argument=argument, values=(0,), unless=True)
        for call in calls.split()
    )


_ALWAYS = (
    RefusedSystemCall(call="socketpair", error=errno.EACCES, argument=0, values=(_UNIX,), unless=True),
    RefusedSystemCall(call="socketpair", error=errno.EACCES, argument=1, mask=_TYPE_BITS, values=(1, 5), unless=True),
    # A user namespace of its own would give it every capability there, and the mounts of the sandbox to change.
    RefusedSystemCall(call="clone", error=errno.EPERM, argument=0, values=(_NEW_NAMESPACES,), any_bit=True),
    RefusedSystemCall(call="unshare", error=errno.EPERM, argument=0, values=(_NEW_NAMESPACES,), any_bit=True),
    *_refuse(errno.EPERM, "setns"),
    # io_uring: its rings make and connect sockets unseen by a filter. clone3: its flags lie in memory; C libraries fall back
    # to clone.
    *_refuse(errno.ENOSYS, "io_uring_setup clone3"),
    # The kernel's keyrings are in no namespace and may hold the user's tickets; neither is its log.
    *_refuse(errno.EPERM, "add_key request_key keyctl syslog"),
    # Programs in the kernel, counters of the whole machine, faults of memory handled by hand: nothing that a build needs.
    *_refuse(errno.EPERM, "bpf perf_event_open userfaultfd"),
    RefusedSystemCall(call="ioctl", error=errno.EPERM, argument=1, values=(_TIOCSTI, _TIOCLINUX)),
    # A lease on a file holds up everybody who opens it for writing (fcntl(2), /proc/sys/fs/lease-break-time).
    RefusedSystemCall(call="fcntl", error=errno.EPERM, argument=1, values=(_F_SETLEASE,)),
)
# What namespaces keep apart in bubblewrap and Landlock does not know: what acts on something outside that is no file, or on a
# file in a way that is no writing.
_NOT_APART = (
    # Limits of another process: with a limit of 0 seconds of CPU time the kernel kills it.
    *_own_only(
        0, "prlimit64 sched_setaffinity sched_setscheduler sched_setparam sched_setattr move_pages migrate_pages"
    ),
    *_own_only(1, "setpriority ioprio_set"),
    RefusedSystemCall(call="setpriority", error=errno.EPERM, argument=0, values=(_PRIO_USER,)),
    RefusedSystemCall(call="ioprio_set", error=errno.EPERM, argument=0, values=(_IOPRIO_WHO_USER,)),
    *_refuse(errno.ENOSYS, "shmget shmat shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl"),
    *_refuse(errno.ENOSYS, "mq_open mq_unlink"),
    # Programs that copy attributes go on without where the file system has none.
    *_refuse(
        errno.EOPNOTSUPP, "setxattr lsetxattr fsetxattr setxattrat removexattr lremovexattr fremovexattr removexattrat"
    ),
    *_refuse(errno.EOPNOTSUPP, "file_setattr"),
    RefusedSystemCall(call="ioctl", error=errno.EOPNOTSUPP, argument=1, values=_CHANGING_BY_IOCTL),
)
# Where the sandbox does not judge signals, the keeper does: each of these names a process.
_SIGNALS = (
    *[
        RefusedSystemCall(call=call, asks=True)
        for call in ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
    ],
    *_refuse(errno.ENOSYS, "pidfd_send_signal"),
    # Who gets the signal that a file or socket is ready.
    RefusedSystemCall(call="fcntl", error=errno.EPERM, argument=1, values=(_F_SETOWN, _F_SETOWN_EX)),
    RefusedSystemCall(call="ioctl", error=errno.EPERM, argument=1, values=(_FIOSETOWN, _SIOCSPGRP)),
)
# Landlock judges truncation from its third version on. Opening with O_TRUNC but not for writing truncates as well.
_TRUNCATING = (_O_TRUNC, _O_TRUNC | _ACCESS_MODE)
_TRUNCATION = (
    RefusedSystemCall(call="truncate", error=errno.EACCES),
    RefusedSystemCall(call="open", error=errno.EACCES, argument=1, mask=_ACCESS_MODE | _O_TRUNC, values=_TRUNCATING),
    RefusedSystemCall(call="openat", error=errno.EACCES, argument=2, mask=_ACCESS_MODE | _O_TRUNC, values=_TRUNCATING),
    RefusedSystemCall(call="openat2", error=errno.ENOSYS),
)


def can_filter(*, machine: str = platform.machine()) -> bool:
    return machine in _ARCHITECTURES


def command_filter(
    *,
    ip_sockets: bool,
    truncation: bool = True,
    apart: bool = True,
    signals: bool = True,
    shared_memory: bool = True,
    machine: str = platform.machine(),
) -> bytes:
    """The program for a command, as the array of `struct sock_filter` that the kernel takes.

    `ip_sockets` lets it make IPv4 and IPv6 sockets; no other kind ever. With `truncation` false, what truncates a file
    without opening it for writing is refused. `apart`: processes, IPC and files outside are kept away by namespaces. With
    `signals` false, the process that holds the filter's listener is asked about signals. With `shared_memory` false, that of
    System V is refused: nobody's memory shows what is in it. The machine must be one that `can_filter`.
    """
    refusals = (
        RefusedSystemCall(call="socket", error=errno.EACCES, argument=0, values=_IP if ip_sockets else (), unless=True),
        *_ALWAYS,
        *(() if truncation else _TRUNCATION),
        *(() if apart else _NOT_APART),
        *(() if signals else _SIGNALS),
        *(() if shared_memory else _refuse(errno.ENOSYS, "shmget")),
    )
    return _program(refusals, machine=machine)


def _program(refusals: tuple[RefusedSystemCall, ...], *, machine: str) -> bytes:
    calls = NUMBERS[machine]
    load_number = (_LOAD, 0, 0, 0)
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),  # 32-bit programs: their calls have other numbers
        load_number,
        (_AT_LEAST, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
    ]
    for refusal in refusals:
        if refusal.call in calls:  # arm64 has no `open`
            body = _judge(refusal)
            if refusal.argument is not None:
                body.append(load_number)  # the judged argument stands in its place
            steps += [(_EQUAL, 0, len(body), calls[refusal.call]), *body]
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join([struct.pack("=HBBI", *step) for step in steps])


def _judge(refusal: RefusedSystemCall) -> list[tuple[int, int, int, int]]:
    """The steps for the call in question. Jumps count the steps to pass over; past the last one it is not refused."""
    refuse = (_RETURN, 0, 0, _ASK if refusal.asks else _REFUSE | refusal.error)
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
