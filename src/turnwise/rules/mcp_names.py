"""What a tool of an MCP server is called here: `server__tool`, a name that every provider takes, the same in every turn."""

import hashlib
import re

SEPARATOR = "__"
MAX_NAME = 64  # what every provider takes
MAX_SERVER = 32  # half of it, so that something of each tool's own name is left
_SERVER = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_MARK = 7  # `_` and six hexadecimal digits: 16 million names


def is_server_name(name: str) -> bool:
    """Whether a server may have this name: letters and digits, with single `-` or `_` between them, a letter first."""
    return len(name) <= MAX_SERVER and _SERVER.fullmatch(name) is not None


def mcp_tool_name(server: str, tool: str) -> str:
    """`server__tool`, with at most 64 characters.

    A name that has to be changed for that (a foreign character, too long) ends in a mark made of the whole name, so two names
    that differ stay different. The name depends on nothing else: it is the same in every turn and in every process.
    """
    plain = _FOREIGN.sub("_", tool)
    whole = f"{server}{SEPARATOR}{plain}"
    if plain == tool and len(whole) <= MAX_NAME:
        return whole
    mark = hashlib.sha256(tool.encode("utf-8", "backslashreplace")).hexdigest()[: _MARK - 1]
    return f"{whole[: MAX_NAME - _MARK]}_{mark}"


def server_of(name: str) -> str:
    """The server that the name of a tool, or a pattern of such names, spells out before `__`; empty where it spells out none."""
    server, found, _ = name.replace("\\_", "_").partition(SEPARATOR)
    return server if found and is_server_name(server) else ""
