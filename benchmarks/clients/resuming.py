"""Going on with a turn whose process was killed in the call of its last step: reading it, and one more request."""

import asyncio
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TypedDict

from turnwise import Agent, Journal, MaxSteps, Model, tool
from turnwise.base.clock import SystemClock
from turnwise.testing.scripted_model import ScriptedModel
from turnwise.vocab import ToolCall


class Task(TypedDict):
    folder: str
    steps: list[int]
    characters: int  # of each call's result


def begin(path: Path, *, steps: int, characters: int) -> None:
    """Never returns: the process is killed in the last call."""
    calls = 0

    @tool(effect="read")
    def look(number: int) -> str:
        """Look at one of them."""
        nonlocal calls
        calls += 1
        if calls == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return "x" * characters

    asked = [[ToolCall(id=f"call_{at}", name="look", arguments=f'{{"number":{at}}}')] for at in range(steps)]
    with Journal(path, clock=SystemClock()) as journal:
        agent_of(look, model=ScriptedModel(asked), journal=journal, steps=steps).run_sync("Look at all of them.")


def agent_of(look: object, *, model: ScriptedModel, journal: Journal, steps: int) -> Agent:
    return Agent(
        Model("openai_chat:m", base_url="http://scripted.invalid", api_key="k", transport=model),
        tools=[look],  # type: ignore[list-item]
        limits=MaxSteps(steps + 2),
        journal=journal,
    )


def resumed(path: Path, *, steps: int) -> tuple[float, float]:
    """CPU and wall seconds, from the opened journal to the turn's end."""

    @tool(effect="read")
    def look(number: int) -> str:
        """Look at one of them."""
        return "x"

    with Journal(path, clock=SystemClock()) as journal:
        (row,) = journal.sessions()
        agent = agent_of(look, model=ScriptedModel(["Done."]), journal=journal, steps=steps)
        cpu, wall = time.process_time(), time.monotonic()
        result = asyncio.run(agent.resume(row.id))
        took = time.process_time() - cpu, time.monotonic() - wall
    assert (result.text, result.steps, result.requests) == ("Done.", steps + 1, steps + 1)
    return took


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    if sys.argv[2:]:
        begin(Path(sys.argv[2]), steps=given["steps"][0], characters=given["characters"])
    found: dict[str, object] = {"version": importlib.metadata.version("turnwise")}
    for steps in (1, *given["steps"]):  # the first one loads what each needs
        path = Path(given["folder"], f"resuming-{steps}-{time.monotonic_ns()}.db")
        task = json.dumps({**given, "steps": [steps]})
        ended = subprocess.run([sys.executable, __file__, task, str(path)], check=False)
        assert ended.returncode == -signal.SIGKILL
        cpu_s, wall_s = resumed(path, steps=steps)
        found |= {f"{steps} cpu": cpu_s, f"{steps} wall": wall_s}
    print(json.dumps(found))


main()
