"""What a line of `strace` says that a process did, where that is more than reading the folder it is in.

What is not known here counts as more: a call that is not listed, an argument that is not, a file outside that no library opens.
What counts is the attempt; that it fails does not make it harmless. Paths are those of the opened descriptors (`strace -y`), so
links and `/dev/fd/3` hide nothing.
"""

import codecs
import os
import pwd
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from turnwise.rules.permission_paths import guard_of_text, is_inside
from turnwise.rules.read_only_commands import READERS

# They touch no file that was not opened before, and no other process: they tell, wait, or are about the process itself.
UNSEEN = tuple(
    """read pread64 readv preadv preadv2 write pwrite64 writev pwritev pwritev2 close close_range lseek dup dup2 dup3 pipe
    pipe2 fcntl poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait eventfd2 sendfile splice
    tee copy_file_range fadvise64 readahead flock stat lstat fstat newfstatat statx statfs fstatfs access faccessat faccessat2
    readlink readlinkat getdents getdents64 getcwd chdir fchdir umask getxattr lgetxattr fgetxattr listxattr llistxattr
    flistxattr brk munmap mremap madvise mincore mprotect pkey_alloc rt_sigaction rt_sigprocmask rt_sigreturn rt_sigsuspend
    rt_sigpending rt_sigtimedwait sigaltstack pause futex set_robust_list get_robust_list rseq set_tid_address arch_prctl
    getrandom fork vfork wait4 waitid exit exit_group getpid getppid gettid getpgid getpgrp setpgid getsid setsid getuid geteuid
    getgid getegid getresuid getresgid getgroups capget getrlimit getrusage getpriority ioprio_get sched_getaffinity
    sched_getparam sched_getscheduler sched_yield sysinfo uname times time gettimeofday clock_gettime clock_getres nanosleep
    clock_nanosleep alarm getitimer setitimer timer_create timer_settime timer_gettime timer_delete membarrier restart_syscall
    getsockname getpeername getsockopt recvfrom recvmsg""".split()
)
_CARRIERS = frozenset("bash sh dash env nice ionice timeout stdbuf xargs nohup time find git date".split())
_VERSIONS = frozenset(
    "python3 python node npm npx deno ruby perl java javac gcc g++ clang make cmake uv pip docker".split()
)
_ASKS_VERSION = re.compile(r'\["[^"]*", (?:"/usr/[^"]*", )?"(?:--version|-V)"\]')
_WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND|O_TMPFILE")
_LINE = re.compile(r"(\d+) +(?:<\.\.\. (\w+) resumed>|(\w+)\()(.*)", re.DOTALL)
_UNFINISHED = " <unfinished ...>"
_RESULT = re.compile(r"(.*)\) += +(?:-1 (E\w+)|(-?\w+|\?)(?:<(.*?)>(?: \(deleted\))?)?)(?: .*)?", re.DOTALL)
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"(?:, )?(.*)', re.DOTALL)
# Where writing leaves nothing behind.
_DEVICES = frozenset("/dev/null /dev/full /dev/tty".split())
_DESCRIPTORS = re.compile(r"/dev/(?:stdin|stdout|stderr|fd/\d+)|/proc/(?:self|thread-self|\d+)/fd/\d+")
_NO_FILE = re.compile(r"(?:pipe|socket):\[\d+\]|anon_inode:.*")
# Here-documents of bash; input that cannot be read backwards. Made for the purpose: new, and for nobody else.
_SCRATCH = re.compile(r"/tmp/(?:sh-thd|tac|sort)[\w.-]*")
_ONLY_NEW = re.compile(r"O_EXCL.*, 0600\b", re.DOTALL)
# What the loader and libraries open by themselves.
_LIBRARIES = re.compile(
    r"""/(?:usr/)?lib(?:32|64|exec)?/.* | /usr/share/(?:locale|zoneinfo|i18n|misc|file|git-core|nodejs|node_modules|perl|perl5)/.*
    | /usr/local/(?:lib|share)/.* | /usr/bin/[\w.+-]+ | /etc/ld\.so\.(?:cache|preload) | /etc/(?:localtime|locale\.alias)
    | /etc/(?:gitconfig|magic|magic\.mime|magic\.mgc|gai\.conf|inputrc|perl/.*|node.*|npmrc|ssl/openssl\.cnf) | /proc/filesystems
    | /proc/(?:self|\d+)/(?:fd|maps|mountinfo|mounts|stat|status|statm|cgroup|auxv) | /proc/(?:meminfo|cpuinfo|stat|version)
    | /proc/sys/(?:vm|kernel)/\w+ | /sys/devices/system/cpu(?:/.*)? | /sys/fs/cgroup(?:/.*)? | /sys/fs/selinux.*
    | /dev/u?random | /dev/tty | /dev/null | /dev/zero""",
    re.VERBOSE | re.DOTALL,
)
# Names of users and groups, which some look up; for a program that shows files they are files like any other.
_USERS = re.compile(
    r"/etc/(?:passwd|group|nsswitch\.conf|host\.conf|resolv\.conf|hosts)|/(?:etc|run|run/systemd|run/host)/userdb(?:/.*)?"
)
_LOOK_UP = frozenset("bash sh rg dash ls find stat id whoami git npm node timeout date tar file df du".split())
# Their own settings, which they read wherever they run. What is not known to run yet (a thread, a child) may be one of them.
_OF_GIT = re.compile(
    r"/home/(?:\.gitconfig|\.config/git/(?:config|attributes|ignore))|/work/(?:.*/)?\.git/.*|/etc/gitattributes",
    re.DOTALL,
)
_SETTINGS = {
    "": _OF_GIT,
    "git": _OF_GIT,
    "rg": _OF_GIT,
    "jq": re.compile(r"/home/\.jq"),
    "node": re.compile(r"/(?:home|work)/\.npmrc|/usr/etc/npmrc|/etc/ssl/.*"),
}
# `bash -l` begins with them. They are the user's own.
_LOGS_IN = re.compile(r'\["(?:/usr)?(?:/bin/)?bash", (?:"-[a-z-]+", )*"(?:--login|-[a-z]*l[a-z]*)", ')
_START_FILES = re.compile(r"/etc/profile(?:\.d(?:/[\w.-]+)?)?|/home/\.(?:bash_profile|bash_login|profile)")
_OPENS = frozenset("open openat openat2 creat".split())
_OWN = {  # with these beginnings of their arguments they are about the process itself, or only tell
    "prlimit64": ("0, ",),
    "setpriority": ("PRIO_PROCESS, 0, ",),
    "ioprio_set": ("IOPRIO_WHO_PROCESS, 0, ",),
    "ioctl": tuple(
        "TCGETS TCGETS2 TIOCGWINSZ TIOCGPGRP TIOCGPTN FIONREAD FIOCLEX FIONBIO FICLONE BTRFS_IOC_CLONE FS_IOC_FIEMAP".split()
    ),
    "prctl": (
        "PR_SET_NAME",
        "PR_SET_DUMPABLE, SUID_DUMP_DISABLE",
        "PR_GET_",
        "PR_CAPBSET_READ",
        "PR_SET_VMA",
        "PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET",
    ),
    "socket": ("AF_UNIX, ", "AF_NETLINK, "),
    "socketpair": ("AF_UNIX, ",),
    "setsockopt": ("",),
    "bind": ("{sa_family=AF_NETLINK, ",),
    "connect": ('{sa_family=AF_UNIX, sun_path="/var/run/nscd/socket"}',),  # the C library asks there first
    "sendto": ("[{nlmsg_len=20, nlmsg_type=RTM_GET",),
}
_DESCRIPTOR_FIRST = re.compile(r"\d+<[^>]*>, ")


class Call(msgspec.Struct, frozen=True):
    """One system call. `result` is a number or the name of an error, `opened` the path of the descriptor that it gave; empty
    where it gave none."""

    pid: int
    name: str
    arguments: str
    result: str
    opened: str = ""


def read_calls(lines: Iterable[str]) -> Iterator[Call]:
    """The calls of a trace, in the order in which they ended; parts that strace shows apart are joined."""
    begun: dict[str, str] = {}
    for line in lines:
        found = _LINE.fullmatch(line.rstrip("\n"))
        if found is None:
            continue  # `+++ exited with 0 +++`
        pid, resumed, name, rest = found.groups()
        if rest.endswith(_UNFINISHED):
            begun[pid] = rest.removesuffix(_UNFINISHED)
            continue
        if resumed:
            rest = begun.pop(pid, "") + rest
        ended = _RESULT.fullmatch(rest)
        if ended is None:
            yield Call(int(pid), resumed or name, rest, "?")
        else:
            yield Call(int(pid), resumed or name, ended[1], ended[2] or ended[3], ended[4] or "")
    for pid, rest in begun.items():
        yield Call(int(pid), "unfinished", rest, "?")


def _reached(path: str, *, follows: bool) -> str:
    """Where the path leads. Not `follows`: its last part is opened only if it is no link (`grep -r` passes over links)."""
    if follows:
        return os.path.realpath(path)
    folder, name = os.path.split(path)
    return f"{os.path.realpath(folder)}/{name}"


class Watcher:
    """Of one trace: what each call is more than reading `work`, all of `top` beside which is outside of it."""

    def __init__(self, *, top: Path, work: Path) -> None:
        self.top, self.work = str(top), str(work)
        self._programs: dict[int, str] = {}
        self._scratch: set[str] = set()
        self._logins: set[int] = set()

    def judged(self, call: Call) -> str:
        """Empty where it is nothing more."""
        shown = f"{call.name} {call.arguments[:120]}"
        match call.name:
            case name if name in _OPENS:
                return self._opened(call)
            case "execve" | "execveat":
                return self._executed(call)
            case "mmap":
                mapped = re.search(r"\bPROT_EXEC\b.*\d<([^>]*)>", call.arguments)
                return f"runs code of {mapped[1]}" if mapped and is_inside(mapped[1], folder=self.top) else ""
            case "clone" | "clone3":
                if call.result.isdigit() and call.pid in self._programs:
                    self._programs.setdefault(int(call.result), self._programs[call.pid])
                return shown if "CLONE_NEW" in call.arguments else ""
            case "unlink" | "unlinkat" if (path := self._path(call)) in self._scratch:
                self._scratch.discard(path)
                return ""
            case "tgkill" if re.match(rf"\d+, {call.pid}, ", call.arguments):
                return ""  # to itself: `sort` ends so where nobody reads what it writes
            case "kill" if self._program(call) == "timeout":
                return ""
            case name if name in UNSEEN or name == "unfinished":
                return ""
            case _:
                if (call.name, call.result) == ("ioctl", "EBADF"):
                    return ""  # of a descriptor that is closed (`ls >&-`)
                given = _DESCRIPTOR_FIRST.sub("", call.arguments, count=1)
                return "" if given.startswith(_OWN.get(call.name, ("\0",))) else shown

    def _program(self, call: Call) -> str:
        return os.path.basename(self._programs.get(call.pid, ""))  # noqa: PTH119

    def _path(self, call: Call) -> str:
        """As the call spells it, absolute; empty where it has none."""
        found = _PATH.match(call.arguments)
        if found is None:
            return ""
        raw = codecs.escape_decode(found[2].encode("latin-1", "replace"))[0]
        return os.path.normpath(os.path.join(found[1] or self.work, os.fsdecode(bytes(raw)))).replace("//", "/")  # noqa: PTH118

    def _seen_from_top(self, path: str) -> str:
        """`/home/...` for what lies in the home folder, also in the one that programs look up where HOME is not set."""
        home = pwd.getpwuid(os.getuid()).pw_dir
        return f"/home{path.removeprefix(home)}" if path.startswith(f"{home}/") else path.removeprefix(self.top)

    def _executed(self, call: Call) -> str:
        path = self._path(call)
        if call.result == "0":
            self._programs[call.pid] = path
            self._logins.discard(call.pid)
            if _LOGS_IN.search(call.arguments):
                self._logins.add(call.pid)
        name = os.path.basename(path)  # noqa: PTH119
        known = name in READERS or name in _CARRIERS or path.startswith("/usr/lib/git-core/")
        if name in _VERSIONS:
            known = _ASKS_VERSION.search(call.arguments) is not None
        return "" if known and path.startswith(("/usr/", "/bin/", "/lib/")) else f"runs {path or call.arguments[:120]}"

    def _opened(self, call: Call) -> str:
        given, found = self._path(call), _PATH.match(call.arguments)
        how = found[3] if found is not None else call.arguments
        if not call.opened and (not given or _DESCRIPTORS.fullmatch(given)):
            how = "for writing" if _WRITES.search(how) else "for reading"
            return (
                "" if given and call.result in ("ENOENT", "ENXIO") else f"opens {given or call.arguments[:120]} {how}"
            )
        if call.result == "ENOTDIR" and "O_DIRECTORY" in how:
            return ""  # a glob goes through all names; of what is no folder nothing is opened so
        path = call.opened or _reached(given, follows=not (call.result == "ELOOP" and "O_NOFOLLOW" in how))
        if _NO_FILE.fullmatch(path) or re.search(r"\bO_PATH\b", how):
            return ""  # by a path alone nothing is read; to read it, it is opened again
        if call.name == "creat" or _WRITES.search(how):
            if _SCRATCH.fullmatch(path) and _ONLY_NEW.search(how):
                self._scratch.add(path)
                return ""
            return "" if path in _DEVICES else f"opens {path} for writing"
        return "" if path in self._scratch else self._shown(path, call=call, is_folder="O_DIRECTORY" in how)

    def _shown(self, path: str, *, call: Call, is_folder: bool) -> str:
        program = self._program(call)
        if call.pid in self._logins and _START_FILES.fullmatch(self._seen_from_top(path)):
            return ""
        settings = _SETTINGS.get(program)
        if settings is not None and settings.fullmatch(self._seen_from_top(path)):
            return ""
        if is_inside(path, folder=self.work):
            secret = guard_of_text(path, access="read") == "secret" and not is_folder
            secret = secret and call.result != "ENOENT"  # that there is none may be known
            return f"reads the secret {path}" if secret else ""
        if is_inside(path, folder=self.top):
            return f"reads {path} outside"
        if call.result == "ENOENT" and not os.path.lexists(f"/{path.split('/')[1]}"):
            return ""  # text that begins with `/`
        if _LIBRARIES.fullmatch(path) or (_USERS.fullmatch(path) and (not program or program in _LOOK_UP)):
            return ""
        return f"reads {path} outside"
