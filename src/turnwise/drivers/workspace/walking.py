"""Orders to the worker that walks folders and searches files, with a deadline and a bounded answer."""

import importlib.util
from pathlib import Path
from typing import TypeVar

import msgspec

from turnwise.drivers.grants import TURNS_TIME, seconds_of
from turnwise.drivers.programs import HELPER
from turnwise.drivers.workspace.paths import SKIPPED_FOLDERS, Workspace
from turnwise.drivers.workspace.processes import run_group
from turnwise.errors import ToolFault

WORKER = Path(__file__).with_name("search_worker.py")
_HELD = Path("/proc/self/fd")
_CAN_HOLD = _HELD.is_dir()

Answer = TypeVar("Answer", bound=msgspec.Struct)


async def ask_worker(
    workspace: Workspace, start: Path, *, order: dict[str, object], takes: type[Answer], timeout_s: float
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


def _ignore_rules(workspace: Workspace, start: Path) -> dict[str, object]:
    """Which folders above have a say: up to the repository's root, or else up to the workspace's."""
    repository = next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), None)
    top = repository or (workspace.root if workspace.is_inside(start) else start)
    above = [folder for folder in start.parents if folder == top or top in folder.parents]
    return {"in_git": repository is not None, "above": [str(folder) for folder in reversed(above)]}


def _library() -> str:
    """Where `pathspec` is; the worker is started without any such place."""
    found = importlib.util.find_spec("pathspec")
    return "" if found is None or found.origin is None else str(Path(found.origin).parents[1])
