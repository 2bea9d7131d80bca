"""Orders to the worker that walks folders and searches files, with a deadline and a bounded answer."""

import importlib.util
import os
from pathlib import Path
from typing import TypeVar

import msgspec

from turnwise.base.processes import run_group
from turnwise.base.programs import HELPER
from turnwise.errors import ToolFault
from turnwise.running.grants import seconds_of
from turnwise.tools.workspace.paths import SKIPPED_FOLDERS, WorkspacePaths
from turnwise.turn.endings import TURNS_TIME

WORKER = Path(__file__).with_name("search_worker.py")
_HELD = Path("/proc/self/fd")
_CAN_HOLD = _HELD.is_dir()

Answer = TypeVar("Answer", bound=msgspec.Struct)


async def ask_worker(
    workspace: WorkspacePaths, start: Path, *, order: dict[str, object], takes: type[Answer], timeout_s: float
) -> Answer:
    """What the worker finds in the resolved folder `start`. Raises ToolFault where it takes longer, or the folder is gone."""
    answer = bytearray()
    timeout_s, is_turns = seconds_of(timeout_s)
    order = order | {
        "skipped": sorted(SKIPPED_FOLDERS),
        "library": _library(),
        "alarm_s": timeout_s + 1,  # after our own end of it, for where we are no more
    }
    try:
        with workspace.disk.folder(start, base=workspace.base_of(start)) as folder:
            # the folder that was judged and is held open, whatever its name leads to by now
            place = _HELD / str(folder) if _CAN_HOLD else start
            code = await run_group(
                [*HELPER, "-W", "ignore", str(WORKER)],  # its answer is all that it says
                cwd=place,
                env={},
                timeout_s=timeout_s,
                on_output=answer.extend,
                given=msgspec.json.encode(order | _ignore_rules(workspace, start)),
            )
    except TimeoutError:
        why = TURNS_TIME if is_turns else "narrow the path or simplify the pattern"
        raise ToolFault(f"it took longer than {round(timeout_s, 2):g} s: {why}") from None
    except OSError as error:
        raise ToolFault(f"`{workspace.show(start)}` cannot be looked into: {error.strerror}") from None
    if code:
        raise ToolFault(f"it failed: {answer.decode('utf-8', 'replace').strip().rpartition(chr(10))[2]}")
    return msgspec.json.decode(answer, type=takes)


class Ignored(msgspec.Struct, frozen=True):
    """The worker's answer: whether a `.gitignore` names the file, or a folder that it lies in."""

    ignored: bool


async def is_ignored_file(workspace: WorkspacePaths, path: Path, *, timeout_s: float) -> bool:
    """Whether a `.gitignore` names the file at the real `path`. Without any there, no process is started. Raises ToolFault where
    it takes longer."""
    if not _has_rules(path.parent, workspace=workspace):
        return False
    order: dict[str, object] = {
        "task": "ignored",
        "single": bytes(path.name, "utf-8", "surrogateescape").decode("latin-1"),
    }
    return (await ask_worker(workspace, path.parent, order=order, takes=Ignored, timeout_s=timeout_s)).ignored


def _has_rules(start: Path, *, workspace: WorkspacePaths) -> bool:
    folders = (start, *_folders_above(start, workspace=workspace)[1])
    return any(os.path.lexists(folder / ".gitignore") for folder in folders)


def _ignore_rules(workspace: WorkspacePaths, start: Path) -> dict[str, object]:
    in_git, above = _folders_above(start, workspace=workspace)
    return {"in_git": in_git, "above": [bytes(folder).decode("latin-1") for folder in above]}


def _folders_above(start: Path, *, workspace: WorkspacePaths) -> tuple[bool, list[Path]]:
    """Whether there is a repository, and which folders above have a say: up to its root, or else up to the workspace's."""
    repository = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    top = repository or (workspace.root if workspace.is_inside(start) else start)
    above = [folder for folder in start.parents if folder == top or top in folder.parents]
    return repository is not None, above[::-1]


def _library() -> str:
    """Where `pathspec` is; the worker is started without any such place."""
    found = importlib.util.find_spec("pathspec")
    return "" if found is None or found.origin is None else str(Path(found.origin).parents[1])
