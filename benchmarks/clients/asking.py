"""What every measured request does: a history made anew outside the clock, one request with all of it, a short answer read.
Standard library only."""

import asyncio
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypedDict

TOOL = "look"
DESCRIPTION = "Look something up."
PARAMETERS = {
    "type": "object",
    "properties": {"key": {"type": "string", "description": "What to look up."}},
    "required": ["key"],
    "additionalProperties": False,
}
PROMPT = "Go on."
FIRST = "Look everything up."
INSTRUCTIONS = "You are a careful archivist."
ANSWER = "Done."
SUMMARY = "All of it is looked up."
RESULT = "here it is, as it was found: " + "x" * 170


class Case(TypedDict):
    key: str
    model: str
    steps: int  # each a call and its result, so two messages
    repeat: int


class Task(TypedDict):
    url: str
    family: str
    cases: list[Case]


def steps_of(case: Case) -> list[tuple[str, str]]:
    """The calls' ids and arguments (JSON text); every result is RESULT."""
    return [(f"call_{number}", json.dumps({"key": f"item {number}"})) for number in range(case["steps"])]


Prepare = Callable[[Case], Callable[[], Awaitable[str]]]
"""Make a case's history; what is returned sends it and gives the answer's text."""


async def measure(given: Task, *, prepare: Prepare, distribution: str) -> None:
    found: dict[str, object] = {"version": importlib.metadata.version(distribution)}
    warm = given["cases"][0] | {"steps": 2}
    for _ in range(5):
        await prepare(warm)()  # type: ignore[arg-type]
    for case in given["cases"]:
        spent: list[float] = []
        for _ in range(case["repeat"]):
            ask = prepare(case)
            before = time.process_time()
            answer = await ask()
            spent.append(time.process_time() - before)
            if answer != ANSWER:
                raise SystemExit(f"{case['key']}: answered {answer!r:.200}")
        found[case["key"]] = statistics.median(spent)
    print(json.dumps(found), flush=True)


def run(main: Callable[[Task], Awaitable[None]]) -> None:
    asyncio.run(main(json.loads(sys.argv[1])))  # type: ignore[arg-type]
