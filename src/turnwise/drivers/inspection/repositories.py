"""Whether a git repository's own settings make `git status` run a program.

They come with a folder that was unpacked or copied: git trusts `.git/config`, so reading it is part of judging git.
"""

import re
from pathlib import Path

MAX_CONFIG_BYTES = 256 * 1024
_RUNS = re.compile(
    r"(?:^|\]|\ufeff)\s*(?:fsmonitor|pager|external|textconv|command|hookspath|sshcommand|editor|askpass|helper|process|clean|smudge|program"
    r"|worktree|path|driver|cmd|showsignature|worktreeconfig|promisor|partialclone|uploadpack|vcs)\s*(?:=|$|[;#])"
    r"|\[\s*(?:include|alias|pager|filter|protocol)",
    re.IGNORECASE | re.MULTILINE,
)


def doubt(place: str) -> str:
    """Why a git command in the folder `place` may do more than it says; empty where nothing speaks for it."""
    folder = Path(place)
    if all((folder / name).exists() for name in ("HEAD", "objects", "refs")):
        return "the folder looks like a bare repository, whose settings git would take"
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return _folder_doubt(git)
        if git.is_file():
            return "" if _is_worktree(git) else "the repository's settings lie elsewhere"
    return "there is no repository, and git would compare folders"


def _folder_doubt(git: Path) -> str:
    # `git status` writes the index, and this is run whenever it is written (githooks, "post-index-change")
    if (git / "hooks" / "post-index-change").exists():
        return "the repository has a hook that it would run"
    return _config_doubt(git / "config")


def _config_doubt(path: Path) -> str:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError:
        return f"`{path.name}` of the repository cannot be read"
    if len(text) > MAX_CONFIG_BYTES:
        return f"`{path.name}` of the repository is too large to be judged"
    found = _RUNS.search(text.decode("utf-8", "replace"))
    return f"the repository's settings (`{found[0].strip(' =[')}`) may run a program" if found else ""


def _is_worktree(git: Path) -> bool:
    """A worktree's file leads into `.git/worktrees` of its main repository; its settings are judged there."""
    try:
        target = git.read_text(encoding="utf-8")[:4096].removeprefix("gitdir:").strip()
    except (OSError, UnicodeDecodeError):
        return False
    resolved = (git.parent / target).resolve()
    return resolved.parent.name == "worktrees" and not _folder_doubt(resolved.parent.parent)
