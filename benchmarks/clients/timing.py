"""What every measured process does: take its task from the command line, warm up, measure CPU time, print JSON.

Standard library only: this runs in the environments of the peers, too. CPU time is that of the whole process, its threads
included.
"""

import asyncio
import importlib.metadata
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypedDict

TOOL = "write"
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["path", "content"],
    "additionalProperties": False,
}
PROMPT = "Go on."
INSTRUCTIONS = "You are a careful writer."


class Case(TypedDict):
    """One stream to read: the provider finds it by the `model`."""

    key: str
    model: str
    kind: str  # text, tool arguments, reasoning
    memory: bool  # from `folder` in place of the socket, an event a read
    characters: int  # of content that the stream holds
    repeat: int


class Task(TypedDict):
    url: str
    family: str
    way: str  # raw or stream, where a peer has both
    warm: dict[str, str]  # a short stream for each kind
    folder: str
    cases: list[Case]


Read = Callable[[Case], Awaitable[int]]
"""Read one stream to its end; the number of characters of content that were seen in it."""


def task() -> Task:
    return json.loads(sys.argv[1])


async def measure(given: Task, *, read: Read, distribution: str) -> None:
    """Print the CPU seconds of each case."""
    found: dict[str, object] = {"version": importlib.metadata.version(distribution) if distribution else ""}
    warmed: set[tuple[str, bool]] = set()
    for case in given["cases"]:
        if (case["kind"], case["memory"]) not in warmed:
            warmed.add((case["kind"], case["memory"]))
            for _ in range(2):
                await read(case | {"model": given["warm"][case["kind"]]})  # type: ignore[operator]
        spent: list[float] = []
        for _ in range(case["repeat"]):
            before = time.process_time()
            seen = await read(case)
            spent.append(time.process_time() - before)
            if not _is_whole(seen, case=case):
                raise SystemExit(f"{case['key']}: saw {seen} characters of {case['characters']}")
        found[case["key"]] = statistics.median(spent)
    print(json.dumps(found), flush=True)


def _is_whole(seen: int, *, case: Case) -> bool:
    """Some show no reasoning of a family; what they do with its events is measured all the same. Gemini's arguments are
    values, and some make JSON text of them, with its escapes."""
    if case["kind"] == "reasoning" and seen <= 5:
        return True
    return case["characters"] * 0.99 <= seen <= case["characters"] * (1.1 if case["kind"] == "tool arguments" else 1.01)


def run(main: Callable[[Task], Awaitable[None]]) -> None:
    asyncio.run(main(task()))  # type: ignore[arg-type]


def events_of(given: Task, *, case: Case) -> list[bytes]:
    """The stream's events, as reads of a socket would bring them when each comes alone."""
    stream = Path(given["folder"], case["model"] + ".sse").read_bytes()
    end = b"\r\n\r\n" if b"\r\n\r\n" in stream else b"\n\n"
    return [event + end for event in stream.split(end) if event]
