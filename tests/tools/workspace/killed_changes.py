"""A program for test_file_changes.py: carries out a change again and again, killed one step later each time.

Arguments: a folder to work in and the change as JSON (`files`, `tool`, `arguments`). Prints a JSON line for each step: what the
files were when it was killed, what recovering said, and what they were then; the last line's change was not killed.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.changes import FileChanges, recover_changes
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.staged_changes import Disk


def snapshot(root: Path) -> dict[str, str]:
    """Every file and folder below it; a folder's content is "/"."""
    return {
        str(path.relative_to(root)): "/" if path.is_dir() else path.read_bytes().decode("latin-1")
        for path in sorted(root.rglob("*"))
    }


def killed_at(step: int) -> Callable[[str], None]:
    steps = 0

    def before(_: str) -> None:
        nonlocal steps
        steps += 1
        if steps == step:
            os.kill(os.getpid(), signal.SIGKILL)

    return before


def use(root: Path, *, store: Path, disk: Disk, tool: str, arguments: Mapping[str, object]) -> None:
    tools = workspace_tools(WorkspacePaths(root, changes=FileChanges(store), disk=disk))
    function = next(each.function for each in tools if each.name == tool)
    assert function is not None
    function(dict(arguments))


def main(folder: Path, change: Mapping[str, object]) -> None:
    files = cast("dict[str, str]", change["files"])
    arguments = cast("dict[str, object]", change["arguments"])
    for step in range(1, 1000):
        root, store = folder / "root", folder / "store"
        for path in (root, store):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content.encode("latin-1"))
        child = os.fork()
        if not child:
            use(root, store=store, disk=Disk(killed_at(step)), tool=str(change["tool"]), arguments=arguments)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = snapshot(root)
        told = recover_changes(store)
        report = {"killed": killed, "told": told, "recovered": snapshot(root), "status": status}
        sys.stdout.write(json.dumps(report) + "\n")
        if status == 0:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
