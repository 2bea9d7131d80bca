"""Servers of the tests' own: a program that misbehaves as it is told (`stranger.py`), and what a test asks of it."""

import asyncio
import json
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from turnwise import Agent, McpServer, Model, RunResult
from turnwise.base.programs import OWN_PYTHON
from turnwise.testing import ScriptedModel
from turnwise.vocab import File, Text, ToolResult
from waits import HANG_S

PROGRAM = Path(__file__).with_name("stranger.py")


def tool_named(name: str, **more: Any) -> dict[str, Any]:
    """A tool as a server lists it."""
    return {"name": name, "description": f"To {name}.", "inputSchema": {"type": "object"}, **more}


def stranger(
    folder: Path, *habits: str, tools: Sequence[dict[str, Any]] = (), name: str = "s", **options: Any
) -> McpServer:
    """A server in `folder` that offers these tools. Without a sandbox, and unasked, unless told otherwise."""
    folder.mkdir(exist_ok=True)
    shutil.copy(PROGRAM, folder / "stranger.py")
    (folder / "tools.json").write_text(json.dumps(list(tools)), encoding="utf-8")
    command = [OWN_PYTHON, "-I", "-S", "stranger.py", *habits]
    return McpServer(name, command=command, folder=folder, **{"sandbox": False, "asks": False, **options})


def seen(folder: Path) -> list[str]:
    """What the server wrote down."""
    path = folder / "seen"
    return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []


async def until_seen(folder: Path, what: str, *, times: int = 1) -> None:
    """Wait until the server has written down so many lines that begin so; a hang ends after `HANG_S`."""
    end_s = time.monotonic() + HANG_S
    while sum(line.startswith(what) for line in seen(folder)) < times:
        assert time.monotonic() < end_s, seen(folder)
        await asyncio.sleep(0.005)


def agent_of(script: Sequence[Any], tools: Sequence[Any], **options: Any) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(script)
    return Agent(Model("openai_chat:m", transport=model), tools=tools, **options), model  # pyright: ignore[reportArgumentType]


def results_of(result: RunResult[Any]) -> list[ToolResult]:
    return [part for one in result.new_messages for part in one.parts if isinstance(part, ToolResult)]


def texts_of(result: RunResult[Any]) -> list[str]:
    """What the model was told of each call, without the line that says whose words they are."""
    return [
        "".join([part.text for part in one.content if isinstance(part, Text) and not part.note])
        for one in results_of(result)
    ]


def files_of(result: RunResult[Any]) -> list[File]:
    return [part for one in results_of(result) for part in one.content if isinstance(part, File)]


def offered(model: ScriptedModel, request: int) -> list[str]:
    return [one.name for one in model.asked[request].tools if one.name != "read_result"]
