"""A command in bubblewrap: its own mounts, processes and network.

The folders of the machine are mounted read-only, secret paths are covered, and writable paths are mounted again on top. /proc is
read-only as a whole: root needs no capability to write the settings of the kernel that belong to root, and bwrap covers some of
them only. Where there is Landlock, it refuses what mounts let through (see landlock_rules). Source: bwrap(1).
"""

import os
from pathlib import Path
from typing import Literal

import msgspec

from turnwise.base.programs import compiled_script
from turnwise.tools.sandbox import landlock_rules
from turnwise.tools.sandbox.git import guarded_paths, opened_paths
from turnwise.tools.sandbox.sandbox_types import FILES_SHARE, KERNELS_SHARE, SandboxOrder, Wrapped, in_keeper
from turnwise.tools.sandbox.seccomp import can_filter, command_filter

# Runtime folders hold the sockets of other programs; a few things in them are plain files that commands need.
_RUNTIME = Path("/run")
_OF_RUNTIME = (Path("/run/current-system"),)  # NixOS: the programs themselves
TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # both are the private folder
_RESOLVER = Path("/etc/resolv.conf")
_NAMESPACES = "--unshare-user --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup-try".split()
# A session of its own: `kill 0` inside would else reach the process outside that holds the sandbox.
_MANNERS = "--die-with-parent --new-session --cap-drop ALL".split()
_SHARED_MEMORY = Path("/dev/shm")
# dash calls the number of processes -p, bash -u. The kernel counts those of the sandbox, and none where root started it.
_LIMITED = 'ulimit -u {0} 2>/dev/null || ulimit -p {0} 2>/dev/null; exec "$@"'

How = Literal["read", "write", "cover", "devices", "processes", "fresh"]


class Mount(msgspec.Struct, frozen=True):
    """`read` and `write` bind `source` at `at`; the others make something new there. `fresh` is an empty file system of a fixed
    size."""

    at: Path
    how: How
    source: Path | None = None


def wrap_in_bubblewrap(order: SandboxOrder, *, program: str, landlock: int) -> Wrapped:
    """The command line of bubblewrap for it. Where the machine's system calls can be filtered, they are. `landlock` is the
    version of the rules beside the mounts; 0 for none."""
    options = [*_NAMESPACES, *([] if order.network else ["--unshare-net"]), *_MANNERS]
    mounts = plan_mounts(order)
    for mount in mounts:
        options += _option(mount, order=order)
    for mount in mounts:
        # Last, when what lies inside has been mounted.
        if mount.how in ("cover", "processes") or (mount.how == "devices" and _is_strict(order)):
            options += ["--remount-ro", str(mount.at)]
    options += ["--chdir", str(order.workspace)]
    descriptors: tuple[int, ...] = ()
    if can_filter():
        descriptors = (_filter_file(shared_memory=not _is_strict(order)),)
        options += ["--seccomp", str(descriptors[0])]
    rules: tuple[str, ...] = ()
    if landlock:
        rules, script = _rules_before(mounts, version=landlock)
        descriptors += (script,)
    limited = 'exec "$@"' if order.bounds is None else _LIMITED.format(KERNELS_SHARE * order.bounds.processes)
    argv = (program, *options, "--", *rules, "/bin/sh", "-c", limited, "sh", *order.argv)
    return in_keeper(order, argv=argv, folder="-" if order.fresh else str(order.temporary), handed=descriptors)


def _is_strict(order: SandboxOrder) -> bool:
    """Whether what it writes anywhere has to be counted."""
    return order.bounds is not None and order.bounds.scratch is not None


def _filter_file(*, shared_memory: bool) -> int:
    """A descriptor with the filter. IP sockets reach nothing in a network of its own, where a program's tests may need them."""
    descriptor = os.memfd_create("turnwise-filter", 0)
    os.write(descriptor, command_filter(ip_sockets=True, shared_memory=shared_memory))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _rules_before(mounts: list[Mount], *, version: int) -> tuple[tuple[str, ...], int]:
    """The words before a command that takes on Landlock's rules first, and the descriptor of their script: the place where
    turnwise is installed may be covered. Rules are made inside, where the new folders are."""
    words, script = compiled_script(landlock_rules.__file__)
    writable = [str(mount.at) for mount in mounts if mount.how not in ("read", "cover", "processes")]
    return (*words, str(version), str(len(writable)), *writable), script


def plan_mounts(order: SandboxOrder) -> list[Mount]:
    """Every mount, outer before inner: a later one covers what it lies on. One a path; what may be written wins."""
    planned: dict[Path, Mount] = {}

    def plan(how: How, at: Path, source: Path | None = None) -> None:
        planned[at] = Mount(at=at, how=how, source=source)

    plan("read", Path("/"), Path("/"))
    plan("devices", Path("/dev"))
    plan("processes", Path("/proc"))
    if _is_strict(order):
        plan("fresh" if order.fresh else "write", _SHARED_MEMORY, None if order.fresh else order.temporary)
    for path in TEMPORARY:
        if path.is_dir() and not path.is_symlink():
            plan("fresh" if order.fresh else "write", path, None if order.fresh else order.temporary)
    if _RUNTIME.is_dir():
        plan("cover", _RUNTIME)
    for path in _existing((*_OF_RUNTIME, *((_RESOLVER.resolve(),) if order.network else ()))):
        plan("read", path, path)
    for path in order.hidden:
        if path.is_dir():
            plan("cover", path)
        else:
            plan("read", path, order.empty)
    for path in _existing(order.shown):
        plan("read", path, path)
    for path, writes in opened_paths(order.git):
        plan("write" if writes else "read", path, path)
    for root in (*order.writable, order.workspace):
        plan("read" if order.reads_only else "write", root, root)
        for path, writes in () if order.reads_only else guarded_paths(root):
            plan("write" if writes else "read", path, path)
    for path in order.kept:
        plan("read", path, path)
    return sorted(planned.values(), key=lambda mount: len(mount.at.parts))


def is_covered(order: SandboxOrder, path: Path) -> bool:
    """Whether the command finds something else at the absolute `path` than there is outside, or nothing."""
    mount = [one for one in plan_mounts(order) if path.is_relative_to(one.at)][-1]  # the root is one
    return mount.source != mount.at


def _existing(paths: tuple[Path, ...]) -> list[Path]:
    return [path for path in paths if path.exists()]


def _option(mount: Mount, *, order: SandboxOrder) -> list[str]:
    at = str(mount.at)
    match mount.how:
        case "read":
            return ["--ro-bind", str(mount.source), at]
        case "write":
            return ["--bind", str(mount.source), at]
        case "cover":
            return ["--tmpfs", at]
        case "fresh":
            assert order.bounds is not None and order.bounds.scratch is not None, "only such a command has one"
            return ["--size", str(FILES_SHARE * order.bounds.scratch), "--tmpfs", at]
        case "devices":
            return ["--dev", at]
        case "processes":
            return ["--proc", at]
