"""Which paths are guarded, which lie outside, and which patterns match a path. Text only: paths come in resolved.

What is secret and what runs later by itself stands in `guarded_names`.
"""

import re
from typing import Literal

from turnwise.rules.guarded_names import is_secret, runs_later
from turnwise.rules.linear_globs import path_glob
from turnwise.rules.permission_facts import Access, PathFact

Guard = Literal["secret", "protected", "outside", "unknown"]


def guard_of(fact: PathFact, *, access: Access, home: str = "") -> Guard | None:
    """Why the path needs more than a general permission; None where it does not. `home` is what `~` stands for."""
    if fact.kept and access == "read":
        return None
    if not fact.resolved:
        return guard_of_text(fact.given, access=access, home=home) or "unknown"
    for path in (fact.resolved, fact.lexical):
        guard = guard_of_text(path, access=access, home=home)
        if guard == "secret" and fact.absent:
            guard = "protected" if access == "write" and runs_later(path, home=home) else None
        if guard is not None:
            return guard
    return None if fact.inside else "outside"


def guard_of_text(path: str, *, access: Access, home: str = "") -> Guard | None:
    """The same for the text of a path or pattern alone, which cannot tell what is outside."""
    if is_secret(path, home=home):
        return "secret"
    return "protected" if access == "write" and runs_later(path, home=home) else None


_FIXED = re.compile(r"(?<!\\)(?:\\\\)*[*?]")  # the first wildcard


def is_inside(path: str, *, folder: str) -> bool:
    """Whether a resolved absolute path is the resolved folder, or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def path_matches(pattern: str, *, path: str, workspace: str, home: str, any_case: bool = False) -> bool:
    """Whether a resolved absolute `path` fits. Patterns are relative to the workspace, absolute, or begin with `~/`.

    `*` and `?` stay within one name, `**` spans folders, `x/**` is x as well; a backslash takes the next character as it is.
    A pattern without a slash is a name anywhere below the workspace, `./x` one right in it. `any_case`: as a file system may
    compare names.
    """
    absolute = _absolute(pattern, workspace=workspace, home=home)
    if any_case:
        absolute, path = absolute.casefold(), path.casefold()
    return bool(path) and path_glob(absolute).fits(path)


def may_contain(pattern: str, *, folder: str, workspace: str, home: str) -> bool:
    """Whether what the pattern matches could lie below `folder`: a command upon the folder would touch it too."""
    absolute = _absolute(pattern, workspace=workspace, home=home)
    fixed = re.sub(r"\\(.)", r"\1", _FIXED.split(absolute, maxsplit=1)[0])
    return bool(folder) and fixed.startswith(folder.rstrip("/") + "/")


def _absolute(pattern: str, *, workspace: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return escape_pattern(home) + pattern[1:]
    if pattern.startswith("/"):
        return pattern
    below = pattern.removeprefix("./")
    if below == ".":
        return escape_pattern(workspace)
    root = escape_pattern(workspace.rstrip("/"))
    return f"{root}/{below}" if "/" in pattern else f"{root}/**/{below}"


def escape_pattern(text: str) -> str:
    """The pattern that matches exactly `text`."""
    return re.sub(r"([\\*?])", r"\\\1", text)
