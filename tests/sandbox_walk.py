"""What can be opened for writing from where this program runs: every mount, process, device, pipe, socket and descriptor.

It stands alone (standard library only), so that it runs as a command in a sandbox: `python -I -S sandbox_walk.py '{...}'`, and
prints one JSON object. It changes nothing: files and devices are opened `O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW` and
closed at once. It never creates, truncates, appends, writes, connects or follows a symbolic link. Where opening by itself acts
(`ACTING`, `ACTING_SYSTEMS`), it asks the mode and the mount instead.

A folder is asked by its mode and its mount. With `asks_folders` also by renaming one of its entries onto itself: rename(2)
does nothing then, but Landlock, which knows no modes, refuses it first (`do_renameat2` in fs/namei.c asks before `vfs_rename`
sees that both are the same file).

A named pipe is asked by its mode, too, as its reader would see an end. With `pipe`, the path of one that nobody needs, that
one is opened first; if that is refused, the others are opened as well.

With `looks_only` it opens nothing and counts: for a walk outside of a sandbox, with which the one inside is compared.
"""

import contextlib
import errno
import fcntl
import fnmatch
import json
import os
import re
import socket
import stat
import sys
import time
from collections import Counter, deque
from typing import Any

HOW = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
ENTRIES = 30_000  # of one mount, outer folders first: no disk is walked to its end
SECONDS = 240.0  # a hung file system; it is told
SHOWN = 60  # findings of one kind; the others are counted
THREADS = 2  # of one process: each has the same files

# Devices whose opening acts, by their names below /dev (or any other folder).
ACTING = {
    "starts a timer that restarts the machine": ("watchdog*",),
    "rewinds a tape": ("st[0-9]*", "nst[0-9]*", "tape*", "qft*", "osst*", "nosst*", "ht[0-9]*", "nht[0-9]*"),
    "is a terminal or a line: it rings, raises signals or becomes somebody's": (
        "tty*", "console", "pts*", "ptmx", "vcs*", "lp*", "parport*", "cua*", "rfcomm*", "modem*", "gsmtty*", "hvc*", "hvsi*",
        "xvc*", "sclp_line*", "[0-9]*",
    ),
    "prepares the machine for hibernation": ("snapshot",),
    "wakes hardware or takes it for itself": (
        "card*", "renderD*", "controlD*", "fb*", "video*", "vbi*", "radio*", "media*", "pcm*", "midi*", "dsp*", "mixer*",
        "audio*", "seq*", "timer", "hwC*", "control*", "nvidia*", "kfd", "accel*", "vhci", "hidraw*", "event*", "mouse*",
        "mice", "js*", "usbmon*", "ipmi*", "mei*", "cec*", "dvb*", "frontend*", "demux*", "ppp", "i2c-*", "spidev*",
        "gpiochip*", "uio*", "vfio*", "rtc*", "hpet", "mcelog", "ttyprintk", "sg*", "bsg*", "nvme*", "ng*", "tpm*",
        "vga_arbiter", "watch_queue", "mtd*", "ubi*", "vport*", "isst*", "cpu_dma_latency", "rfkill", "rnbd*", "iio*",
        "cdc-wdm*", "wwan*", "megaraid*", "mpt*ctl", "aac*", "switchtec*", "dma_heap*", "udmabuf", "sev*", "sgx*", "tdx*",
    ),
}  # fmt: skip
# A block device that was open for writing is looked through again by udev when it is closed.
BLOCK = "is a block device: udev looks through it again"
# File systems of which some files act when they are opened or closed (`free_buffer` of tracefs), or that ask a network.
ACTING_SYSTEMS = {
    "mounts something when it is entered": ("autofs",),
    "acts when a file is opened or closed": ("tracefs", "debugfs"),
    "may wait for a network or a program for ever": (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "fuse", "fuse.[!lo]*", "fuseblk", "gfs2",
        "ocfs2", "lustre",
    ),
}  # fmt: skip
_ESCAPE = re.compile(r"\\([0-7]{3})")


class Mount:
    """A line of /proc/self/mountinfo."""

    def __init__(self, line: str) -> None:
        own, _, system = line.partition(" - ")
        fields = own.split()
        self.root = fields[3]
        self.at = _ESCAPE.sub(lambda found: chr(int(found[1], 8)), fields[4])
        self.options = fields[5].split(",")
        self.system = system.split()[0]


class Walk:
    """One walk; `report` is all that it found."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.listed = [os.path.normpath(path) for path in given.get("listed", ())]
        self.looks_only = given.get("looks_only", False)
        self.asks_folders = given.get("asks_folders", False)
        self.pipe = given.get("pipe", "")
        self.asks_pipes = bool(self.pipe)
        self.entries = given.get("entries", ENTRIES)
        self.deadline = time.monotonic() + given.get("seconds", SECONDS)
        self.own_session = os.getsid(0)
        self.seen: Counter[str] = Counter()
        self.below: Counter[str] = Counter()
        self.opened: dict[str, list[str]] = {}
        self.skipped: dict[str, list[str]] = {}
        self.cut: list[str] = []
        self.descriptors: list[tuple[int, str, str, str]] = []
        self.makes_sockets = False

    def report(self) -> dict[str, object]:
        return {
            "user": os.geteuid(),
            "seen": dict(self.seen),
            "below": dict(self.below),
            "opened": {kind: {"count": len(paths), "paths": paths[:SHOWN]} for kind, paths in self.opened.items()},
            "skipped": {why: {"count": len(paths), "paths": paths[:SHOWN]} for why, paths in self.skipped.items()},
            "descriptors": self.descriptors,
            "cut": self.cut,
            "late": time.monotonic() > self.deadline,
        }

    def run(self) -> None:
        self.look_at_descriptors()
        if self.pipe:
            self.open("pipe", self.pipe)
            self.asks_pipes = "pipe" not in self.opened
        self.look_at_sockets()
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            mounts = {mount.at: mount for mount in map(Mount, file)}  # the last one at a place lies on top
        for mount in sorted(mounts.values(), key=lambda one: one.at):
            self.seen["mounts"] += 1
            if not self.is_listed(mount.at):
                self.walk(mount, mounts=mounts)

    def look_at_descriptors(self) -> None:
        """Those that this program was started with: number, access mode, kind and where it leads."""
        for name in sorted(os.listdir("/proc/self/fd"), key=int):
            with contextlib.suppress(OSError):  # the one that read the folder is closed
                mode = os.fstat(int(name)).st_mode
                access = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE
                self.seen["descriptors"] += 1
                leads = os.readlink("/proc/self/fd/" + name)
                self.descriptors.append((int(name), ("read", "write", "both", "none")[access], kind_of(mode), leads))

    def look_at_sockets(self) -> None:
        """Sockets without a path. They and those with one are reached by whoever can make a UNIX socket; nothing is connected."""
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            with contextlib.suppress(OSError):
                socket.socket(socket.AF_UNIX, kind).close()
                self.makes_sockets = True
        with contextlib.suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="surrogateescape") as file:
            for line in file.readlines()[1:]:
                path = line.rstrip("\n").split(None, 7)[7:]
                if path and path[0].startswith("@"):
                    self.seen["abstract sockets"] += 1
                    if self.makes_sockets and not self.looks_only:
                        self.can("abstract socket", path[0])

    def walk(self, mount: Mount, *, mounts: dict[str, Mount]) -> None:
        """All of one mount, outer folders before inner ones, and of no mount in it."""
        if why := reason_of(ACTING_SYSTEMS, mount.system):
            self.skip(why, mount.at)
            if "rw" in mount.options and not self.looks_only and not self.asks_folders:
                self.can("mount that is not walked", mount.at)
            return
        folders, count = deque([mount.at]), 0
        self.look_at_root(mount.at)
        while folders:
            if time.monotonic() > self.deadline:
                return
            folder = folders.popleft()
            try:
                entries = list(os.scandir(folder))
            except OSError:
                self.seen["folders that cannot be read"] += 1
                continue
            if self.asks_folders and entries and not self.looks_only:
                self.ask_by_name(folder, entries)
            for entry in entries:
                if entry.path in mounts or self.is_listed(entry.path):
                    continue
                count += 1
                if count > self.entries:
                    self.cut.append(mount.at)
                    return
                self.below["/".join(entry.path.split("/")[:3]) if mount.system in ("proc", "sysfs") else mount.at] += 1
                is_at_top = mount.system == "proc" and mount.root == "/" and folder == mount.at
                if is_at_top and entry.name.isdigit():
                    self.look_at_process(entry.path)
                elif self.look_at(entry):
                    folders.append(entry.path)

    def look_at_root(self, path: str) -> None:
        """The root of a mount may be a file."""
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return
        self.judge(path, mode)

    def look_at(self, entry: os.DirEntry[str]) -> bool:
        """Whether it is a folder to go into."""
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            self.seen["gone or shut"] += 1
            return False
        self.judge(entry.path, mode)
        return stat.S_ISDIR(mode)

    def judge(self, path: str, mode: int) -> None:
        """Count it, and open or ask it."""
        kind = kind_of(mode)
        self.seen[kind] += 1
        if self.looks_only or kind == "link":
            return
        if kind == "folder":
            if not self.asks_folders and may_write(path):
                self.can(kind, path)
        elif kind == "socket":
            if self.makes_sockets and may_write(path):
                self.can(kind, path)
        elif kind == "pipe" and not self.asks_pipes:  # its reader would see the end of it
            self.ask("its reader sees its end", kind, path)
        elif kind == "block device":
            self.ask(BLOCK, kind, path)
        elif kind == "device" and (why := reason_of(ACTING, os.path.basename(path))):
            self.ask(why, kind, path)
        else:
            self.open(kind, path)

    def open(self, kind: str, path: str) -> None:
        try:
            descriptor = os.open(path, HOW)
        except OSError as error:
            if error.errno == errno.ETXTBSY:  # it runs just now; that is seen before mounts and rules are
                self.ask("it is a program that runs", kind, path)
            elif error.errno in (errno.ENXIO, errno.EBUSY, errno.ENODEV):
                self.can(kind, path)  # the driver or the pipe said so: nothing had refused it before
            return
        os.close(descriptor)
        self.can(kind, path)

    def ask(self, why: str, kind: str, path: str) -> None:
        """What must not be opened: by its mode and its mount. Landlock knows neither, so there it is only named."""
        self.skip(why, path)
        if not self.asks_folders and may_write(path) and not (kind.endswith("device") and has_no_devices(path)):
            self.can(kind, path)

    def ask_by_name(self, folder: str, entries: list[os.DirEntry[str]]) -> None:
        """Whether the names in the folder can be changed: an entry is renamed to what it is called."""
        if not may_write(folder):
            return
        with contextlib.suppress(OSError):
            os.rename(entries[0].path, entries[0].path)
            self.can("folder", folder)

    def look_at_process(self, path: str) -> None:
        """Its files; and of another one whether its root, folder, memory and descriptors can be had."""
        self.seen["processes"] += 1
        is_own = False
        with contextlib.suppress(OSError):
            is_own = os.getsid(int(os.path.basename(path))) == self.own_session
        for name in ("root", "cwd", "exe", "fd", "task", "map_files", "ns"):
            self.look_at_links(path + "/" + name, is_own=is_own)
        threads: list[str] = []
        with contextlib.suppress(OSError):
            threads = sorted(os.listdir(path + "/task"), key=int)[:THREADS]
        for folder in (path, *[path + "/task/" + thread for thread in threads]):
            folders = [folder]
            while folders:
                with contextlib.suppress(OSError):
                    for entry in os.scandir(folders.pop()):
                        if entry.name not in ("task", "fd", "map_files", "ns") and self.look_at(entry):
                            folders.append(entry.path)

    def look_at_links(self, path: str, *, is_own: bool) -> None:
        """The links of /proc lead to what they name, whatever stands between. Pipes and sockets of one's own are no finding."""
        links = [path]
        if stat.S_ISDIR(mode_of(path, follow=False)):
            with contextlib.suppress(OSError):
                links = [path + "/" + name for name in os.listdir(path)]
        for link in links:
            self.seen["links of processes"] += 1
            mode = mode_of(link, follow=True)
            if self.looks_only or not mode or not stat.S_ISLNK(mode_of(link, follow=False)):
                continue
            if not is_own:
                self.can("link into another process", link)
            elif stat.S_ISREG(mode):
                with contextlib.suppress(OSError):
                    leads = os.readlink(link)
                    descriptor = os.open(link, HOW & ~os.O_NOFOLLOW)
                    os.close(descriptor)
                    if not self.is_listed(leads):
                        self.can("file", link + " -> " + leads)

    def is_listed(self, path: str) -> bool:
        return any(path == one or path.startswith(one + "/") for one in self.listed)

    def can(self, kind: str, path: str) -> None:
        self.opened.setdefault(kind, []).append(path)

    def skip(self, why: str, path: str) -> None:
        self.skipped.setdefault(why, []).append(path)


def kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFREG: "file",
        stat.S_IFDIR: "folder",
        stat.S_IFLNK: "link",
        stat.S_IFCHR: "device",
        stat.S_IFBLK: "block device",
        stat.S_IFIFO: "pipe",
        stat.S_IFSOCK: "socket",
    }
    return kinds.get(stat.S_IFMT(mode), "other")


def mode_of(path: str, *, follow: bool) -> int:
    """0 where it cannot be told."""
    try:
        return os.stat(path, follow_symlinks=follow).st_mode
    except OSError:
        return 0


def may_write(path: str) -> bool:
    """By its mode and its mount, as the user that the kernel judges by."""
    return os.access(path, os.W_OK, effective_ids=True)


def has_no_devices(path: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(os.statvfs(path).f_flag & os.ST_NODEV)
    return False


def reason_of(table: dict[str, tuple[str, ...]], name: str) -> str:
    return next((why for why, names in table.items() if any(fnmatch.fnmatch(name, one) for one in names)), "")


if __name__ == "__main__":
    walk = Walk(json.loads(sys.argv[1]) if len(sys.argv) > 1 else {"looks_only": True})
    walk.run()
    json.dump(walk.report(), sys.stdout, indent=None)
