"""What every measured loop does: run each case to its end, take the CPU time at every step, print it by tenths. Standard
library only."""

import asyncio
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypedDict
from uuid import uuid4

TOOL = "look"
DESCRIPTION = "Look something up."
PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string", "description": "What to look up."}},
    "required": ["key"],
    "additionalProperties": False,
}
PROMPT = "Look everything up."
INSTRUCTIONS = "You are a careful archivist."
ANSWER = "All of it is looked up."


class Case(TypedDict):
    key: str
    model: str  # the provider's list of replies
    steps: int
    calls: int  # in each step
    result_bytes: int
    repeat: int
    journal: str  # a file's path, where there is to be one


class Task(TypedDict):
    url: str
    warm: str  # a short loop
    cases: list[Case]


class Archive:
    """The tool's other side: answers, and notes the CPU time of each call."""

    def __init__(self, case: Case) -> None:
        self._filling = "x" * max(case["result_bytes"] - 20, 0)
        self.times: list[float] = []

    async def look(self, key: str) -> str:
        self.times.append(time.process_time())
        return f"{key} is here{self._filling}"


Loop = Callable[[Case, str, Archive], Awaitable[str]]
"""Run one case's loop against the base URL; the answer's text."""


async def measure(given: Task, *, loop: Loop, distribution: str) -> None:
    """Print, for each case: CPU seconds of the whole loop, of a step in its last tenth, and how that stands to the first."""
    found: dict[str, object] = {"version": importlib.metadata.version(distribution) if distribution else ""}
    first = given["cases"][0]
    for _ in range(2):
        await run_once(first | {"model": given["warm"], "steps": 3, "calls": 1}, url=given["url"], loop=loop)  # type: ignore[operator]
    for case in given["cases"]:
        rounds = [await run_once(case, url=given["url"], loop=loop) for _ in range(case["repeat"])]
        for name, values in zip(("", " last", " flat"), zip(*rounds, strict=True), strict=True):
            found[case["key"] + name] = statistics.median(values)
    print(json.dumps(found), flush=True)


async def run_once(case: Case, *, url: str, loop: Loop) -> tuple[float, float, float]:
    archive = Archive(case)
    before = time.process_time()
    answer = await loop(case, f"{url}/run/{uuid4()}", archive)
    spent = time.process_time() - before
    if answer != ANSWER:
        raise SystemExit(f"{case['key']}: answered {answer!r:.200}")
    if len(archive.times) != case["steps"] * case["calls"]:
        raise SystemExit(f"{case['key']}: {len(archive.times)} calls ran of {case['steps'] * case['calls']}")
    starts = archive.times[:: case["calls"]]
    tenth = max(1, (len(starts) - 1) // 10)
    first, last = starts[tenth] - starts[0], starts[-1] - starts[-1 - tenth]
    return spent, last / tenth, last / first


def run(main: Callable[[Task], Awaitable[None]]) -> None:
    asyncio.run(main(json.loads(sys.argv[1])))  # type: ignore[arg-type]
