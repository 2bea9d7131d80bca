"""An MCP server over HTTP for `test_restarts.py`: it runs in an environment of its own, with `mcp` 1.x or `fastmcp` 2.x.

Usage: python restarting.py LIBRARY PORT FOLDER TOOL...
What its tools do, they write into `effects` in FOLDER: the test counts these lines.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

LIBRARY, PORT, FOLDER, *TOOLS = sys.argv[1:]


def effect(n: int) -> None:
    with (Path(FOLDER) / "effects").open("a", encoding="utf-8") as file:
        file.write(f"{n}\n")


def named(name: str) -> Any:
    async def tool(n: int, hangs: bool = False) -> str:
        effect(n)
        if hangs:
            await asyncio.Event().wait()
        return f"did {n}"

    tool.__name__ = name
    return tool


def main() -> None:
    if LIBRARY == "fastmcp":
        from fastmcp import FastMCP  # pyright: ignore[reportMissingImports]

        server: Any = FastMCP("r")
        for name in TOOLS:
            server.tool(named(name))
        server.run(transport="http", host="127.0.0.1", port=int(PORT), show_banner=False, log_level="ERROR")
    else:
        from mcp.server.fastmcp import FastMCP  # pyright: ignore

        server = FastMCP("r", host="127.0.0.1", port=int(PORT), log_level="ERROR")
        for name in TOOLS:
            server.tool()(named(name))
        server.run(transport="streamable-http")


main()
