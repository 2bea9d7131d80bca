"""Which sandbox there is on this machine: bubblewrap if it works, else Landlock, else none; and what each one keeps apart."""

import functools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import assert_never

import msgspec

from turnwise.base.programs import ProgramSearch
from turnwise.errors import CallerError
from turnwise.rules.guarded_names import SECRET_IN_HOME, SECRET_OF_SYSTEM, SECRET_PLACES, is_secret
from turnwise.tools.sandbox.bubblewrap import TEMPORARY, is_covered, wrap_in_bubblewrap
from turnwise.tools.sandbox.environment import Scratch, command_environment, with_git_settings
from turnwise.tools.sandbox.git import GitFolder
from turnwise.tools.sandbox.landlock import may_read, wrap_in_landlock
from turnwise.tools.sandbox.landlock_rules import REFER_ABI, SCOPES_ABI, landlock_version
from turnwise.tools.sandbox.sandbox_types import (
    CommandBounds,
    SandboxKind,
    SandboxOrder,
    Wrapped,
    allowed_bounds,
    can_bound,
    in_keeper,
    unasked_bounds,
)
from turnwise.tools.sandbox.seccomp import can_filter

UNBOUNDED = "nothing bounds the MEMORY, PROCESSES AND FILES of a command here"
_PROBE_S = 10.0  # it takes 0.02 s; a machine under load is no reason to go without


class Sandbox(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are run here. What it keeps apart is said as facts, and by `said` as one line for people.

    `files`: it writes in its folders only. `secrets`: keys and tokens in the home folder cannot be read. `network`: it can be
    kept from the network. `processes`: it cannot signal or look into others. `metadata`: nor change the mode, owner or
    times of files outside. `pipes`: nor write into named pipes outside, nor into what is mounted there while it runs.
    `sockets`: nor reach UNIX sockets of other programs. `leaves_none`: all that it started ends with it, also what left its
    session. `bounded`: what it takes up of memory, processes and files has bounds. `landlock` is the version of Landlock's rules
    that hold for it, in bubblewrap too; 0 for none.
    """

    kind: SandboxKind
    files: bool
    secrets: bool
    network: bool
    processes: bool
    metadata: bool
    pipes: bool
    sockets: bool
    leaves_none: bool
    bounded: bool
    program: str = ""
    sizes: bool = False  # bubblewrap can make file systems of a fixed size (0.7 or later)
    landlock: int = 0
    why: str = ""  # why there is no sandbox, although nobody asked for none

    def wrap(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        scratch: Scratch,
        writable: Iterable[Path] = (),
        network: bool = False,
        outer_env: Mapping[str, str] | None = None,
        also_env: frozenset[str] = frozenset(),
        hidden_env: frozenset[str] = frozenset(),
        own: Iterable[Path] = (),
        shown: Iterable[Path] = (),
        git: Iterable[GitFolder] = (),
        given: int | None = None,
        bounds: CommandBounds | None = None,
        fresh: bool = False,
        reports: bool = False,
        reads_only: bool = False,
        kept: Iterable[Path] = (),
    ) -> Wrapped:
        """What to start for `argv` (its first word an absolute path).

        It may write in `workspace`, in `writable` and in `scratch.temporary`. `outer_env` is the environment to choose from
        (else our own), `also_env` names let through beside the usual ones, `hidden_env` names kept back. `own` are further
        files that it must not read, like a journal. `shown` are files that it may read wherever they lie. `git` are folders of
        git that it may write in, except for what git executes. `given` is the descriptor of its standard input: if the sandbox
        `watches`, the caller passes it on, and otherwise starts the command with it as input. `bounds` are the command's
        resources, if not those of an allowed command. `fresh`: it needs no files of earlier commands, so its temporary folders
        may be empty and of a fixed size. `reports`: the caller reads which bound was reached. `reads_only`: it may write in its
        temporary folders alone. `kept` are paths that it cannot change, if the sandbox `confines`. The caller closes the
        descriptors once the command has started, and the report once it has read it.
        """
        bounds = (bounds or allowed_bounds()) if self.bounded else None
        outer = os.environ if outer_env is None else outer_env
        strict = fresh and bounds is not None and bounds.scratch is not None
        temporary = next(iter(self.private_folders), scratch.temporary)
        shares = self.kind == "none" and not strict  # the user's temporary folder, where nobody can count what is new
        hidden = secret_paths(home=_home(outer), own=(*_own_folders(outer), *own))
        env = command_environment(outer, temporary=None if shares else temporary, also=also_env, hidden=hidden_env)
        order = SandboxOrder(
            argv=tuple(argv),
            env=with_git_settings(env, confined=self.files),
            workspace=workspace.resolve(),
            temporary=scratch.temporary,
            empty=scratch.empty,
            writable=tuple([path.resolve() for path in writable]),
            reads_only=reads_only,
            kept=tuple(kept),
            hidden=hidden,
            git=()
            if reads_only
            else tuple([one for one in git if not any(one.at.is_relative_to(secret) for secret in hidden)]),
            shown=(scratch.outputs, *shown),
            network=network,
            given=given,
            bounds=bounds,
            report=os.memfd_create("turnwise-report") if reports and bounds is not None else None,
            fresh=strict and self.sizes,
        )
        match self.kind:
            case "bubblewrap":
                return wrap_in_bubblewrap(order, program=self.program, landlock=self.landlock)
            case "landlock":
                return wrap_in_landlock(order, version=self.landlock)
            case "none" if self.leaves_none:
                return in_keeper(order, folder="-" if shares else str(order.temporary))
            case "none":
                return Wrapped(argv=order.argv, env=order.env)
            case _:
                assert_never(self.kind)

    @property
    def confines(self) -> bool:
        """Whether commands could run in it unasked: it keeps apart files, secrets, network, processes and other programs, and
        single files can be made read-only, which takes mounts."""
        walls = (self.files, self.secrets, self.network, self.processes, self.metadata, self.sockets, self.leaves_none)
        return self.kind == "bubblewrap" and all(walls)

    def still_works(self) -> bool:
        """Whether it works now, by a command that is run in it: it may have been switched off since it was found."""
        return _works(self)

    def hides(self, path: Path, *, workspace: Path, scratch: Scratch) -> bool:
        """Whether a command in `workspace` cannot read or run the file at the absolute `path`, because the sandbox shows
        something else there, or nothing."""
        order = SandboxOrder(
            argv=(),
            env={},
            workspace=workspace.resolve(),
            temporary=scratch.temporary,
            empty=scratch.empty,
            hidden=secret_paths(home=_home(os.environ), own=_own_folders(os.environ)),
        )
        where = (path.parent.resolve() / path.name, path.resolve())  # a link and what it leads to
        match self.kind:
            case "bubblewrap":
                return any(is_covered(order, one) for one in where)
            case "landlock":
                return not may_read(order, where[1])
            case "none":
                return False
            case _:
                assert_never(self.kind)

    @property
    def private_folders(self) -> tuple[Path, ...]:
        """Folders in whose place a command has the temporary folder that it may write in."""
        if self.kind != "bubblewrap":
            return ()
        return tuple(path for path in TEMPORARY if path.is_dir() and not path.is_symlink())

    def said(self, *, workspace: Path, network: bool = False, git: Path | None = None) -> str:
        """One line for people, to be shown before the first command. `git` is a repository's folder elsewhere that is opened."""
        if self.kind == "none":
            said = "commands run WITHOUT a sandbox: they can change every file of yours and use the network"
            said += "" if self.bounded else f"; {UNBOUNDED}"
            return f"{said} ({self.why})" if self.why else said
        name = "bubblewrap" if self.kind == "bubblewrap" else f"Landlock (version {self.landlock})"
        if network:
            reach = "with network"
        elif self.network:
            reach = "without network"
        else:
            reach = "but the NETWORK IS OPEN (system calls cannot be filtered on this machine)"
        gaps = [] if self.metadata else ["modes and times of files outside can be changed"]
        gaps += [] if self.processes else ["processes outside can be signalled"]
        gaps += [] if self.pipes else ["named pipes outside and what is mounted later can be written"]
        gaps += [] if self.sockets or not self.network else ["sockets of other programs can be reached"]
        gaps += [] if self.bounded else [UNBOUNDED]
        note = f" ({'; '.join(gaps)})" if gaps else ""
        where = f"{workspace}" if git is None else f"{workspace} and in git's {git}"
        return f"commands run in {name}: they can write in {where} only, {reach}{note}"


def find_sandbox(*, wanted: SandboxKind | None = None, workspace: Path | None = None) -> Sandbox:
    """The best one that works here, found once; or the `wanted` kind. Raises CallerError where that one does not work.

    A bubblewrap in the `workspace` (the current folder by default) is passed over: a command could have put it there.
    """
    folder = os.path.realpath(workspace or Path.cwd())
    bubblewrap = ProgramSearch(os.environ.get("PATH"), workspace=folder).first_apart("bwrap")
    if wanted is None:
        return _best(bubblewrap)
    found = _found(wanted, bubblewrap=bubblewrap)
    if found is None:
        raise CallerError(
            f"the sandbox `{wanted}` does not work on this machine; leave it open to take the best there is"
        )
    return found


@functools.cache
def _best(bubblewrap: str) -> Sandbox:
    none = msgspec.structs.replace(_none(), why="neither bubblewrap nor Landlock works here")
    return _bubblewrap(bubblewrap) or _landlock() or none


def _found(kind: SandboxKind, *, bubblewrap: str) -> Sandbox | None:
    match kind:
        case "bubblewrap":
            return _bubblewrap(bubblewrap)
        case "landlock":
            return _landlock()
        case "none":
            return _none()
        case _:
            assert_never(kind)


def _bubblewrap(program: str) -> Sandbox | None:
    if not program:
        return None
    sandbox = Sandbox(
        kind="bubblewrap",
        files=True,
        secrets=True,
        network=True,
        processes=True,
        metadata=True,
        pipes=True,
        sockets=can_filter(),
        leaves_none=True,
        bounded=can_bound(),
        program=program,
        landlock=landlock_version(),
        sizes=True,
    )
    kinds = [sandbox] if sandbox.landlock >= REFER_ABI else []
    kinds.append(msgspec.structs.replace(sandbox, pipes=False, landlock=0))
    return next(
        (one for kind in kinds for one in (kind, msgspec.structs.replace(kind, sizes=False)) if _works(one)), None
    )


def _landlock() -> Sandbox | None:
    version = landlock_version()
    if version == 0:
        return None
    sandbox = Sandbox(
        kind="landlock",
        files=True,
        secrets=True,
        network=can_filter(),
        processes=version >= SCOPES_ABI or can_filter(),
        metadata=False,
        pipes=True,
        sockets=can_filter(),
        leaves_none=True,
        bounded=can_bound(),
        landlock=version,
    )
    return sandbox if _works(sandbox) else None


def _none() -> Sandbox:
    return Sandbox(
        kind="none",
        files=False,
        secrets=False,
        network=False,
        processes=False,
        metadata=False,
        pipes=False,
        sockets=False,
        leaves_none=sys.platform == "linux",
        bounded=can_bound(),
    )


def _works(sandbox: Sandbox) -> bool:
    """Tried with all that a command gets: a namespace, a mount or a filter may each be forbidden (in containers, by policy)."""
    scratch = Scratch()
    try:
        scratch.root  # noqa: B018 (it is made on first use)
    except OSError as error:  # it says nothing of the sandbox: to go without one would be wrong
        raise CallerError(
            f"no temporary folder can be made ({error.strerror or error}): make room, or set TMPDIR to another folder"
        ) from None
    descriptors: tuple[int, ...] = ()
    try:
        wrapped = sandbox.wrap(
            ["/bin/sh", "-c", ":"],
            workspace=scratch.temporary,
            scratch=scratch,
            bounds=unasked_bounds(),
            fresh=True,
        )
        descriptors = wrapped.descriptors
        with subprocess.Popen(
            wrapped.argv,
            env=wrapped.env,
            stdin=subprocess.PIPE,  # the keeper ends when it closes
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=descriptors,
        ) as process:
            try:
                return process.wait(_PROBE_S) == 0
            except subprocess.TimeoutExpired:
                process.kill()
                return False
    except OSError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _home(env: Mapping[str, str]) -> Path | None:
    home = env.get("HOME", "")
    return Path(home) if home.startswith("/") else None


def _own_folders(env: Mapping[str, str]) -> Iterable[Path]:
    """Where turnwise's journal, stored keys and configuration lie (XDG Base Directory Specification, TURNWISE_STATE_DIR)."""
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        if env.get(name, "").startswith("/"):
            yield Path(env[name]) / "turnwise"
    state = env.get("TURNWISE_STATE_DIR")
    if state:
        yield from (
            Path(state).expanduser() / name for name in ("journal.db", "journal.db-wal", "journal.db-shm", "keys")
        )


def secret_paths(*, home: Path | None, own: Iterable[Path] = ()) -> tuple[Path, ...]:
    """The existing paths that a command has no business with, with links resolved and none inside another: what the table of
    secret names calls so, and `own`, turnwise's folders and files."""
    named = [*map(Path, SECRET_OF_SYSTEM), *own]
    if home is not None:
        named += _secrets_in(home)
    found = sorted({path for path in map(_real, named) if path is not None})
    kept: list[Path] = []
    for path in found:  # sorted: an outer one comes before those in it
        if not kept or not path.is_relative_to(kept[-1]):
            kept.append(path)
    return tuple(kept)


def _secrets_in(home: Path) -> Iterator[Path]:
    """What the table names below it, whether it is there or not, and what right in it has a secret name."""
    yield from (home / name for name in (*SECRET_PLACES, *SECRET_IN_HOME))
    try:
        names = os.listdir(home)  # noqa: PTH208 (names are all that is needed)
    except OSError:
        return
    yield from (home / name for name in names if is_secret(name))


def _real(path: Path) -> Path | None:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError):  # absent, unreadable, or a loop of links (RuntimeError before Python 3.13)
        return None
