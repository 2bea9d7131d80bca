"""A folder: its AGENTS.md, the settings that hold there, and what git says of it (the branch, how many files are changed, the
last commits), asked so that nothing of the folder can run.

A repository's own settings name programs (`core.fsmonitor`, `core.hooksPath`, filters, pagers, `gpg.program`), and git trusts the
`.git` that it finds. So git never sees them: it is given an empty repository of our own, in which only the commit, the index and
the objects are those of the folder. Source: git-config(1), gitrepository-layout(5), git(1) "Environment Variables".
"""

import asyncio
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from turnwise.base.processes import run_group
from turnwise.base.unasked_files import LeftOut, read_unasked
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.journal.prices import KEY as PRICES
from turnwise.rules.permission_paths import is_inside
from turnwise.settings.endpoint_rows import ENDPOINTS, endpoint_rows
from turnwise.settings.options import RunSettings, kept_by
from turnwise.settings.permission_files import KEY as PERMISSIONS
from turnwise.settings.settings import KEY as SESSIONS
from turnwise.settings.settings import Layer, Merged, SourceSettings, check_layer, merge, state_folder, user_folder
from turnwise.turn.config import TurnConfig
from turnwise.vocab.file_names import given_name, shown_name

GIT_S = 1.0  # for each of two commands; a tree that takes longer is not worth the wait
COMMITS = 3
MAX_OUTPUT_BYTES = 256 * 1024  # some thousands of changed files
MAX_HEAD_BYTES = 4096
MAX_REFS_BYTES = 8 * 1024 * 1024
MAX_COPIED_BYTES = 64 * 1024
MAX_CONFIG_BYTES = 256 * 1024

_HEAD = re.compile(r"(?:ref: (refs/[^\s\x00]+)|([0-9a-f]{40}|[0-9a-f]{64}))\n?")
_ID = re.compile(r"([0-9a-f]{40}|[0-9a-f]{64})\n?")
# What a file system is like. Wrong, every file of some would count as changed; and they cannot name a program.
_OF_FILE_SYSTEM = re.compile(
    r"^[ \t]*(filemode|ignorecase|precomposeunicode|symlinks)[ \t]*=[ \t]*(true|false)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_STATUS = re.compile(rb"[ MTADRCU?!]{2} .", re.DOTALL)


class GitState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a git repository. Fields are None if git is missing, takes too long, or cannot be asked safely. If no branch
    is checked out, `branch` is empty and `commit` tells what is. `changed` counts tracked files, `untracked` others (a whole new
    folder is one), both in the folder; `subjects` are those of the last commits, newest first. `is_slow`: git took too long."""

    branch: str = ""
    commit: str = ""
    changed: int | None = None
    untracked: int | None = None
    subjects: tuple[str, ...] | None = None
    is_slow: bool = False


async def git_state(folder: Path, *, git: str, timeout_s: float = GIT_S) -> GitState | None:
    """The state of the repository that the real `folder` belongs to; None where there is none, or one that leads elsewhere.
    `git` is the program, empty where there is none."""
    root = _root_of(folder)
    if root is None or (place := _place_of(root / ".git")) is None:
        return None
    own, common = place
    head = _HEAD.fullmatch(_text(own / "HEAD", within=own, max_bytes=MAX_HEAD_BYTES))
    if head is None:
        return None
    commit = head[2] or _commit_of(head[1], places=(own, common))
    state = GitState(branch=(head[1] or "").removeprefix("refs/heads/"), commit=commit)
    if not git or not _holds_own_objects(common / "objects"):
        return state
    with tempfile.TemporaryDirectory(prefix="turnwise-git-") as ours:
        _furnish(Path(ours), commit=commit, common=common)
        env = _environment(ours, root=root, own=own, common=common)
        asked = [_changes(git, folder=folder, env=env, timeout_s=timeout_s)] if _may_be_opened(own / "index") else []
        if commit:
            asked.append(_log(git, folder=folder, env=env, timeout_s=timeout_s))
        answers = await asyncio.gather(*asked)
    for answer in answers:
        state = msgspec.structs.replace(state, **answer)
    return state


def _root_of(folder: Path) -> Path | None:
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def _place_of(git: Path) -> tuple[Path, Path] | None:
    """The repository's own folder and the one that it shares (its objects and branches); None where `.git` is neither a folder
    nor the file of a worktree that the repository itself knows: a folder from elsewhere could name any repository."""
    if _is_folder(git):
        return None if os.path.lexists(git / "commondir") else (git, git)
    lead = _text(git, within=git.parent, max_bytes=MAX_HEAD_BYTES)
    if git.is_symlink() or not lead.startswith("gitdir:"):
        return None
    own = Path(os.path.normpath(git.parent / lead.removeprefix("gitdir:").strip()))
    common = own.parent.parent
    back = _text(own / "gitdir", within=own, max_bytes=MAX_HEAD_BYTES).strip()
    is_known = own.parent.name == "worktrees" and bool(back) and os.path.realpath(back) == os.path.realpath(git)
    return (own, common) if is_known and _is_folder(own) and _is_folder(common) else None


def _commit_of(ref: str, *, places: Sequence[Path]) -> str:
    """The id that a branch stands at; empty where it has none yet, or none that is found in plain files."""
    if ".." in ref.split("/"):
        return ""
    for place in places:
        if found := _ID.fullmatch(_text(place / ref, within=place, max_bytes=MAX_HEAD_BYTES)):
            return found[1]
    packed = _text(places[-1] / "packed-refs", within=places[-1], max_bytes=MAX_REFS_BYTES)
    found = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", packed, re.MULTILINE)
    return found[1] if found else ""


def _holds_own_objects(objects: Path) -> bool:
    """Whether nothing leads from there to another repository, whose commits would be told."""
    if not _is_folder(objects) or any(
        os.path.lexists(objects / "info" / name) for name in ("alternates", "http-alternates")
    ):
        return False
    try:
        with os.scandir(objects) as found:
            return not any(entry.is_symlink() for entry in found)
    except OSError:
        return False


def _furnish(ours: Path, *, commit: str, common: Path) -> None:
    """A repository with no settings but ours."""
    for name in ("refs", "info"):
        (ours / name).mkdir()
    (ours / "HEAD").write_text(f"{commit}\n" if commit else "ref: refs/heads/none\n")
    settings = ["[core]", "bare = false", "repositoryformatversion = 1"]
    given = _text(common / "config", within=common, max_bytes=MAX_CONFIG_BYTES)
    settings += [f"{name.lower()} = {value.lower()}" for name, value in _OF_FILE_SYSTEM.findall(given)]
    if len(commit) == 64:
        settings += ["[extensions]", "objectformat = sha256"]
    (ours / "config").write_text("\n".join(settings) + "\n")
    for name in ("info/exclude", "shallow"):  # what is ignored; and where a history of some commits only ends
        content = read_unasked(common / name, within=common, max_bytes=MAX_COPIED_BYTES)
        if isinstance(content, bytes):
            (ours / name).write_bytes(content)


def _environment(ours: str, *, root: Path, own: Path, common: Path) -> dict[str, str]:
    """Nothing of the outer one but where the user's own list of ignored files lies."""
    home = os.path.expanduser("~")  # noqa: PTH111 (`~` stays if the home folder is unknown)
    ignored = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git", "ignore")  # noqa: PTH118
    return {
        "PATH": os.defpath,
        "HOME": ours,
        "LC_ALL": "C",
        "GIT_DIR": ours,
        "GIT_WORK_TREE": str(root),
        "GIT_INDEX_FILE": str(own / "index"),
        "GIT_OBJECT_DIRECTORY": str(common / "objects"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.excludesFile",
        "GIT_CONFIG_VALUE_0": ignored,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
    }


async def _changes(git: str, *, folder: Path, env: Mapping[str, str], timeout_s: float) -> dict[str, object]:
    asks = [
        "status",
        "--porcelain=v1",
        "-z",
        "--no-renames",
        "--ignore-submodules=all",
        "--untracked-files=normal",
        "--",
        ".",
    ]
    output, is_slow = await _asked(git, asks, folder=folder, env=env, timeout_s=timeout_s)
    if output is None:
        return {"is_slow": True} if is_slow else {}
    entries = [entry for entry in output.split(b"\0") if entry]
    if not all(map(_STATUS.match, entries)):
        return {}
    untracked = sum(entry.startswith(b"??") for entry in entries)
    return {"changed": len(entries) - untracked, "untracked": untracked}


async def _log(git: str, *, folder: Path, env: Mapping[str, str], timeout_s: float) -> dict[str, object]:
    asks = ["log", f"--max-count={COMMITS}", "--format=%s", "-z", "--no-show-signature"]
    output, is_slow = await _asked(git, asks, folder=folder, env=env, timeout_s=timeout_s)
    if output is None:
        return {"is_slow": True} if is_slow else {}
    subjects = output.decode("utf-8", "replace").removesuffix("\0").split("\0") if output else []
    return {"subjects": tuple(subjects)}


async def _asked(
    git: str, asks: Sequence[str], *, folder: Path, env: Mapping[str, str], timeout_s: float
) -> tuple[bytes | None, bool]:
    """What git says, whole; None where it failed, said too much, or (true then) took too long."""
    output = bytearray()

    def keep(piece: bytes) -> None:
        if len(output) <= MAX_OUTPUT_BYTES:
            output.extend(piece)

    # what it complains of is not its answer, and both would come by one pipe
    command = ["/bin/sh", "-c", 'exec "$@" 2>/dev/null', "sh", git, "--no-pager", *asks]
    try:
        code = await run_group(command, cwd=folder, env=env, timeout_s=timeout_s, on_output=keep)
    except TimeoutError:
        return None, True
    except OSError:
        return None, False
    return (bytes(output) if code == 0 and len(output) <= MAX_OUTPUT_BYTES else None), False


def _text(path: Path, *, within: Path, max_bytes: int) -> str:
    """Of a regular file in the folder `within`; empty where it cannot be read."""
    content = read_unasked(path, within=within, max_bytes=max_bytes)
    return content.decode("utf-8", "replace") if isinstance(content, bytes) else ""


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _may_be_opened(path: Path) -> bool:
    """A regular file, or nothing at all."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True
    except OSError:
        return False


# What a folder brings to a run: its AGENTS.md, and the settings that hold there.


AGENTS_HEAD = "Instructions of this folder (AGENTS.md):\n\n"
READ_ELSEWHERE = frozenset(
    {PERMISSIONS, PRICES, SESSIONS, ENDPOINTS, "mcp", "hooks"}
)  # tables with readers of their own
MAX_AGENTS_BYTES = 64 * 1024  # instructions travel with every request


def read_agents_md(folder: Path) -> str | LeftOut | None:
    """The text of AGENTS.md, if there is one, or why it is left out. Raises CallerError where it is too long or not UTF-8."""
    found, way_out = _found(folder)
    if isinstance(found, LeftOut) and way_out:
        raise CallerError(f"`{folder / 'AGENTS.md'}` {found.why}{way_out} leave it out with --no-agents-md")
    return found


def reread_agents_md(folder: Path) -> str | LeftOut | None:
    """The same for a session that has begun: if the file cannot be used, the session keeps the text that it has."""
    return _found(folder)[0]


def reading_said(text: str) -> str:
    """What the person is told of instructions that hold."""
    return f"reading AGENTS.md as instructions ({len(text)} characters; --no-agents-md leaves it out)"


def _found(folder: Path) -> tuple[str | LeftOut | None, str]:
    """And how the sentence goes on that tells a person what to do; empty where nothing has to be done."""
    content = read_unasked(folder / "AGENTS.md", within=folder, max_bytes=MAX_AGENTS_BYTES)
    if content is None or isinstance(content, LeftOut):
        return content, ", or" if content is not None and content.is_too_long else ""
    try:
        return content.decode().strip() or None, ""
    except UnicodeDecodeError as error:
        return LeftOut(f"is not UTF-8 (byte {error.start})"), ";"


def agents_md_in(config: TurnConfig) -> str | None:
    """The text of AGENTS.md that a turn has among its instructions."""
    found = [text.text for text in config.system if text.text.startswith(AGENTS_HEAD)]
    return found[0].removeprefix(AGENTS_HEAD) if found else None


def settings_of_run(
    layers: Iterable[Layer], *, last: TurnConfig | None, given: RunSettings, is_same_model: bool = True
) -> Merged:
    """What holds for a run: the user's file, the project's (`read_layers`), the session's `last` turn, and what was `given` on
    the command line, the later over the earlier. Raises CallerError in one line, with file and key.

    The session's model is not among it: it goes together with an address and a key (`choose`). Some of what a session keeps
    is of that model, and holds if the run is of the same.
    """
    endpoint_rows(layers)  # a mistake in them is told now, not with the first model that has one
    files = [check_layer(layer, also=READ_ELSEWHERE) for layer in layers]
    kept = RunSettings() if last is None else kept_by(last, is_same_model=is_same_model)
    return merge(
        *files,
        SourceSettings(source="session", origin="session", settings=kept),
        SourceSettings(source="command line", origin="command line", settings=given),
    )


# The folder that another program names: judged like `--cwd`, and never turnwise's own.


MAX_PATH = 4096  # Linux takes no longer one


def foreign_folder(given: str, *, name: str, env: Mapping[str, str], below: Path | None = None) -> Path:
    """The resolved folder. `name` is how the other program calls it. With `below`, a resolved folder, the path may be relative to
    that, and has to lead to it or into it. Raises CallerError where it cannot be a run's folder.
    """
    said = f"`{name}` is `{visible_line(given[:200])}`"
    is_absolute = os.path.isabs(given)  # noqa: PTH117 (a stranger's text)
    if "\0" in given or len(given) > MAX_PATH or not (is_absolute or below):
        raise CallerError(f"{said}: give the {'path' if below else 'absolute path'} of a folder")
    try:
        folder = (below / given_name(given) if below else Path(given_name(given))).resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise CallerError(f"{said}: there is no such folder, or it cannot be reached") from None
    if below is not None and not is_inside(str(folder), folder=str(below)):
        raise CallerError(f"{said}, which is not below `{shown_name(str(below))}`: name a folder there")
    if not folder.is_dir():
        raise CallerError(f"{said}: it is no folder")
    if folder == Path(folder.anchor):
        raise CallerError(f"`{name}` is the root of the file system: open a folder of your own")
    for own in (state_folder(env), user_folder(env)):
        if is_inside(str(folder), folder=os.path.realpath(own)):
            raise CallerError(f"{said}, where turnwise keeps its own files: open a folder of your own")
    return folder
