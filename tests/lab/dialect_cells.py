"""The library's own runs against every server of `dialects.toml`: which requests are refused, by kind of request.

`PYTHONPATH=tests python -m lab.dialect_cells` prints the table.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from turnwise import Agent, File, MaxSteps, Model, tool
from turnwise.lab import Lab
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.rules.retries import RetryPolicy
from turnwise.wire.profiles import builtin_profiles

RULES = ["You are careful.", "This folder's rules: be brief."]
PNG = b"\x89PNG\r\n\x1a\n"
ONCE = RetryPolicy(attempts=1)  # llama.cpp answers 500 to what it will never take


class Cell(NamedTuple):
    """One kind of request to one server: how many requests were sent, and the words of those that were refused."""

    row: str
    kind: str
    requests: int
    refused: tuple[str, ...]


@dataclass
class Verdict:
    """What the model thinks of it."""

    fits: bool
    why: str


@tool
def read(path: str) -> str:
    """Read a file."""
    return "nothing" if path == "todo.txt" else "status: draft"


@tool
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    return f"wrote {len(content)} characters to {path}" + (" more" if append else "")


@tool
def look(path: str) -> list[str | File]:
    """Look at a picture."""
    return ["a picture:", File(media_type="image/png", data=PNG)]


TOOLS = (read, write)


def agent(lab: Lab, row: str, script: str, **more: Any) -> Agent[Any, Any]:
    given: dict[str, Any] = {"tools": TOOLS, "limits": MaxSteps(8), "instructions": RULES[:1], **more}
    return Agent(
        Model(f"{row}:{script}", transport=lab.transport(), api_key="k", base_url="http://lab/v1"),
        recovery={"retry": ONCE},
        **given,
    )  # type: ignore[arg-type]


async def plain(lab: Lab, row: str) -> None:
    await agent(lab, row, "plain-answer").run("Hello.")


async def two_systems(lab: Lab, row: str) -> None:
    await agent(lab, row, "plain-answer", instructions=RULES).run("Hello.")


async def parallel(lab: Lab, row: str) -> None:
    await agent(lab, row, "parallel-calls").run("Read both.")


async def forced(lab: Lab, row: str) -> None:
    await agent(lab, row, "never-stops", limits=MaxSteps(3)).run("Look for it.")


async def asked_again(lab: Lab, row: str) -> None:
    await agent(lab, row, "empty-after-calls").run("Read it.")


async def loop_note(lab: Lab, row: str) -> None:
    await agent(lab, row, "loop-same-call").run("Read it.")


async def words_in_mid_turn(lab: Lab, row: str) -> None:
    """Said while the first tool runs, so that they stand behind its result."""
    words = iter(["The first one is more important."])

    @tool(name="read")
    def hearing(path: str) -> str:
        """Read a file."""
        for text in words:
            run.say(text)
        return path

    async with agent(lab, row, "parallel-calls", tools=(hearing,)).stream("Read both.") as run:
        async for _ in run:
            pass


async def continuation(lab: Lab, row: str) -> None:
    await agent(lab, row, "cut-call").run("Write it.")


async def structured(lab: Lab, row: str) -> None:
    await agent(lab, row, "structured-output", tools=(), output_type=Verdict).run("Judge it.")


async def later_turn(lab: Lab, row: str) -> None:
    """With a picture in a result, reasoning and calls behind it."""
    asked = agent(lab, row, "reasoning-and-calls", tools=(read, look))
    first = await asked.run("Read it.")
    await asked.run("And again.", history=first.history)


KINDS: dict[str, Callable[[Lab, str], Awaitable[None]]] = {
    "plain turn": plain,
    "two system texts": two_systems,
    "parallel calls": parallel,
    "forced answer": forced,
    "question after an empty answer": asked_again,
    "loop note": loop_note,
    "words in mid-turn": words_in_mid_turn,
    "cut call": continuation,
    "structured output": structured,
    "later turn": later_turn,
}


async def cell(row: str, kind: str) -> Cell:
    lab = Lab(profile=row)
    await KINDS[kind](lab, row)
    refused = [one.refused for one in lab.requests if one.refused is not None]
    return Cell(row, kind, requests=lab.count(), refused=tuple(dict.fromkeys(refused)))


async def cells(rows: Sequence[str] = ()) -> list[Cell]:
    return [await cell(row, kind) for row in rows or builtin_dialects() for kind in KINDS]


def printed(found: Sequence[Cell]) -> str:
    bad = [one for one in found if one.refused]
    lines = [f"{len(bad)} of {len(found)} cells refused"]
    lines += [f"{one.row:14} {one.kind:32} {' '.join(words.split())[:110]}" for one in bad for words in one.refused]
    return "\n".join(lines)


if __name__ == "__main__":
    assert set(builtin_dialects()) <= set(builtin_profiles())
    print(printed(asyncio.run(cells())))  # noqa: T201
