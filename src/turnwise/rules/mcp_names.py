"""What a tool of an MCP server is called here: `server__tool`, a name that every provider takes, the same in every turn."""

import hashlib
import re

SEPARATOR = "__"
MCP_WORD = "mcp"  # begins a rule about tools of servers: `mcp(git.*)`
MAX_NAME = 64  # what every provider takes
MAX_SERVER = 32  # half of it, so that something of each tool's own name is left
_SERVER = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_][A-Za-z0-9]+)*")
_RULE = re.compile(r"mcp\((?P<server>[A-Za-z0-9*?_-]+)(?:\.(?P<tool>[^()\s]+))?\)")
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


def mcp_pattern(text: str) -> str | None:
    """What `mcp(server.tool)` in a rule stands for, as a pattern of names: `mcp(git.*)` is `git__*`. None for any other text.

    `mcp(git)` is all of the server, too. Without a glob it is one tool, by the name that it has there.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        return None
    server, tool = found["server"], found["tool"] or "*"
    if "*" in tool or "?" in tool:
        return f"{server}{SEPARATOR}{re.sub(r'[^A-Za-z0-9_*?-]', '_', tool)}"
    return mcp_tool_name(server, tool)


def mcp_rule(pattern: str) -> str:
    """`git__*` as a rule says it: `mcp(git.*)`; a pattern that names no server as it is."""
    server = server_of(pattern)
    return f"mcp({server}.{pattern.removeprefix(server + SEPARATOR)})" if server else pattern


def server_of(name: str) -> str:
    """The server that the name of a tool, or a pattern of such names, spells out before `__`; empty where it spells out none."""
    server, found, _ = name.partition(SEPARATOR)
    return server if found and is_server_name(server) else ""
