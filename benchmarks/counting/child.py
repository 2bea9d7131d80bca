"""The process that is counted: runs hot paths at each of their sizes, with a mark before and after each.

`python benchmarks/counting/child.py prepare|marks|calls NAME...`. Under valgrind (`marks`) a mark is a call of `getppid`, at
which callgrind writes down what it has counted since the one before: nothing else here calls it. With `calls` it counts
itself, and prints JSON.

TURNWISE_COUNTS_SLOWER=NAME adds work to that path for every unit, NAME=growing more of it the larger the size is: the proof
that the guard can fail.
"""

import gc
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from counting.hot_paths import HOT_PATHS, HotPath, Work

EXTRA = 200  # additions for a unit, of the path that is made slower
ENDING_S = 1.0  # for a thread that has done its work: what it holds is not kept
GROWING = 30  # and for each unit so far, of one that is made to bend


def measured(path: HotPath, count: Callable[[Work], object]) -> list[object]:
    slow_name, _, how = os.environ.get("TURNWISE_COUNTS_SLOWER", "").partition("=")
    slower = path.name == slow_name
    path.prepare(path.sizes[0])()  # what is done once only is done now
    found = []
    for size in path.sizes:
        work = path.prepare(size)
        if slower:
            work = with_more(work, additions=GROWING * size**2 // path.sizes[0] if how == "growing" else EXTRA * size)
        gc.collect()
        gc.disable()  # when it runs depends on what else there is in the process; what is kept is counted as blocks
        found.append(count(work))
        gc.enable()
    return found


def with_more(work: Work, *, additions: int) -> Work:
    def run() -> object:
        sum([len(str(number)) for number in range(additions)])
        return work()

    return run


def marked(work: Work) -> None:
    os.getppid()
    work()
    os.getppid()


def counted(work: Work) -> tuple[int, int]:
    """Calls of functions, Python's and C's, in every thread; blocks of memory that the outcome keeps."""
    calls = 0
    lock = threading.Lock()

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            with lock:
                calls += 1

    before = sys.getallocatedblocks()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        kept = work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(ENDING_S)
    gc.collect()
    blocks = sys.getallocatedblocks() - before
    del kept
    return calls, blocks


def main() -> None:
    way, *names = sys.argv[1:]
    paths = [path for path in HOT_PATHS if path.name in names]
    if way == "prepare":  # what is kept for the other ways
        for path in paths:
            for size in path.sizes:
                path.prepare(size)
        return
    found = {path.name: measured(path, marked if way == "marks" else counted) for path in paths}
    if way == "calls":
        print(json.dumps(found))


if __name__ == "__main__":
    main()
