"""The mark that `turnwise mcp serve` leaves in the environment of all that its runs start, so that none of it serves again.

It stops a server that is among its own MCP servers, or that a command of the model starts, from calling itself without end. A
program that takes the mark away is not stopped.
"""

from collections.abc import Mapping, MutableMapping

from turnwise.errors import CallerError

DEPTH = "TURNWISE_MCP_DEPTH"


def enter(env: MutableMapping[str, str]) -> None:
    """What is started with this environment is below a server. Raises CallerError where we are that already."""
    if env.get(DEPTH, "0") not in ("", "0"):
        raise CallerError(
            f"`{DEPTH}` is set: a run of `turnwise mcp serve` has started this server, and a server does not call itself. Take "
            "it out of the MCP servers that the run starts"
        )
    env[DEPTH] = "1"


def passed_on(env: Mapping[str, str]) -> dict[str, str]:
    """The mark alone, for an environment that is made anew; empty where there is none."""
    return {DEPTH: env[DEPTH]} if env.get(DEPTH) else {}
