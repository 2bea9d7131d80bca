# A Path for each of 100,000 files would double the time.
# ruff: noqa: PTH113, PTH114, PTH118, PTH119, PTH123
"""Looks for a pattern in files, as a process of its own: reads a JSON order from standard input, writes a JSON answer.

A process, because Python's `re` can take hours on a hostile pattern while holding the interpreter's lock, so that no
deadline in our own process would ever be noticed. Standard library only: it is started without site-packages.
"""

import fnmatch
import json
import os
import re
import signal
import sys
from collections.abc import Iterator

SNIFFED_BYTES = 8192


def main() -> None:
    order = json.load(sys.stdin)
    # Nobody ends us if turnwise was killed. The signal's default is to end the process, also in the middle of a match.
    signal.setitimer(signal.ITIMER_REAL, order["alarm_s"])
    pattern = re.compile(order["pattern"], re.IGNORECASE if order["ignore_case"] else 0)
    matches: list[tuple[str, int, str]] = []
    files = 0
    for path in walk(order["start"], skipped=frozenset(order["skipped"])):
        shown = os.path.relpath(path, order["root"]).replace(os.sep, "/")
        if order["glob"] and not (
            fnmatch.fnmatch(shown, order["glob"]) or fnmatch.fnmatch(os.path.basename(path), order["glob"])
        ):
            continue
        files += 1
        for number, line in lines_of(path, max_bytes=order["max_bytes"]):
            if pattern.search(line):
                matches.append((printable(shown), number, printable(line[: order["max_line"]])))
                if len(matches) > order["max_matches"]:
                    break
        if len(matches) > order["max_matches"]:
            break
    json.dump({"matches": matches, "files": files}, sys.stdout)


def walk(start: str, *, skipped: frozenset[str]) -> Iterator[str]:
    """Regular files in the order of their names; links are not followed, so nothing outside is read."""
    if os.path.isfile(start):
        yield start
        return
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(name for name in folders if name not in skipped)
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                yield path


def lines_of(path: str, *, max_bytes: int) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file; nothing of a binary, unreadable or very large one."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > max_bytes:
                return
            content = file.read(max_bytes)
    except OSError:
        return
    if b"\0" in content[:SNIFFED_BYTES]:
        return
    for number, line in enumerate(content.split(b"\n"), start=1):
        yield number, line.rstrip(b"\r").decode("utf-8", "replace")


def printable(text: str) -> str:
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


if __name__ == "__main__":
    main()
