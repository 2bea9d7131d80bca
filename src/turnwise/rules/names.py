"""Which tool did the model mean by a name that is on nobody's list? Never a guess between two.

Models write `functions.read`, `default_api.read`, `"read"`, `Read`, `raed`. Where exactly one tool on offer is nearest and it
changes nothing, the call is corrected and the repair recorded; a tool that changes something is only suggested.
"""

import hashlib
import re
from collections.abc import Collection, Mapping

import msgspec

from turnwise.vocab import Repair

# What a tool of an MCP server is called here: `server__tool`, a name that every provider takes, the same in every turn.


SEPARATOR = "__"
MCP_WORD = "mcp"  # begins a rule about tools of servers: `mcp(git.*)`
MAX_MCP_NAME = 64  # what every provider takes
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
    if plain == tool and len(whole) <= MAX_MCP_NAME:
        return whole
    mark = hashlib.sha256(tool.encode("utf-8", "backslashreplace")).hexdigest()[: _MARK - 1]
    return f"{whole[: MAX_MCP_NAME - _MARK]}_{mark}"


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


# What may run under a corrected name.
CHANGES_NOTHING = frozenset({"none", "read"})
MAX_DISTANCE = 2
# Distances cost the product of the lengths; no API takes a longer name.
MAX_NAME = 128
MAX_SUGGESTED = 3

# gpt-oss' harmony tokens end up behind names (`read<|channel|>commentary`); others append the brackets of a call.
_TAIL = re.compile(r"(?:<\|.*|\(\s*\))\Z", re.DOTALL)
_AROUND = " \t\r\n\"'`*"
_PUNCTUATION = re.compile(r"[\W_]+")
_NAMESPACE = re.compile(r"[.:/]+|__")
# Before `__` these are what models put before any name; another word there is the MCP server whose tool is meant.
_BEFORE_ANY = frozenset(
    {"api", "default", "default_api", "function", "functions", "mcp", "multi_tool_use", "tool", "tools"}
)
_OF_MCP = re.compile(r"mcp(?:[.:/]+|__)([A-Za-z0-9_-]+?)(?:[.:/]+|__)", re.IGNORECASE)


class KnownName(msgspec.Struct, frozen=True):
    """The name is on offer as it stands."""

    name: str


class Corrected(msgspec.Struct, frozen=True):
    """One tool is meant, and running it changes nothing."""

    name: str
    repair: Repair


class Suggested(msgspec.Struct, frozen=True):
    """These may be meant, the likeliest first; the model has to say. Empty where none is alike."""

    names: tuple[str, ...]


def judge_name(name: str, *, effects: Mapping[str, str], call_id: str = "") -> KnownName | Corrected | Suggested:
    """`effects` holds the tools on offer in this step and what each does to the world."""
    if name in effects:
        return KnownName(name)
    meant = _meant(name[:MAX_NAME], names=effects)
    if len(meant) == 1 and effects[meant[0]] in CHANGES_NOTHING:
        return Corrected(meant[0], Repair("tool_name", f"call {call_id}", f"`{name[:MAX_NAME]}` is `{meant[0]}`"))
    return Suggested(meant[:MAX_SUGGESTED] or _alike(name[:MAX_NAME], names=effects))


def bare(name: str) -> str:
    """Without what models put around a name: spaces, quotes, brackets, special tokens."""
    before = None
    while name != before:
        before, name = name, _TAIL.sub("", name.strip(_AROUND))
    return name


def distance(one: str, *, other: str, limit: int = MAX_DISTANCE) -> int:
    """Characters to insert, delete, replace or swap with their neighbour; `limit + 1` for more than `limit`."""
    if abs(len(one) - len(other)) > limit:
        return limit + 1
    # What both begin and end with changes nothing, and names on one server have much of it.
    begin = _shared(one, other=other)
    end = _shared(one[begin:][::-1], other=other[begin:][::-1])
    one, other = one[begin : len(one) - end], other[begin : len(other) - end]
    two_back: list[int] = []
    row_before = list(range(len(other) + 1))
    for place, character in enumerate(one, start=1):
        row = [place]
        for column, wanted in enumerate(other, start=1):
            cost = min(row_before[column] + 1, row[-1] + 1, row_before[column - 1] + (character != wanted))
            swapped = place > 1 and column > 1 and character == other[column - 2] and one[place - 2] == wanted
            row.append(min(cost, two_back[column - 2] + 1) if swapped else cost)
        if min(row) > limit:
            return limit + 1
        two_back, row_before = row_before, row
    return min(row_before[-1], limit + 1)


def _shared(one: str, *, other: str) -> int:
    """How many characters both begin with."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _meant(name: str, *, names: Collection[str]) -> tuple[str, ...]:
    """The tools that the name comes nearest to, by the strictest reading that finds any."""
    name = bare(name)
    if server := _server(name):
        names = [other for other in names if _fold(server_of(other)) == server]
    readings = [name, *_without_namespaces(name)]
    for reading in readings:
        for fold in (str, str.casefold, _fold):
            wanted = fold(reading)
            if wanted and (found := tuple([other for other in names if fold(other) == wanted])):
                return found
    for reading in readings:
        if found := _nearest(reading, names=names):
            return found
    return ()


def _server(name: str) -> str:
    """The MCP server that the name spells out, folded. If that server has gone, a tool of a like name does something else."""
    if found := _OF_MCP.match(name):
        return _fold(found[1])
    before, _, rest = name.partition("__")
    server = re.split(r"[.:/]+", before)[-1]
    if server.casefold() in _BEFORE_ANY:
        return _server(rest)
    return _fold(server) if rest and is_server_name(server) else ""


def _without_namespaces(name: str) -> list[str]:
    """`functions.read` -> `read`; `mcp__files__read` -> `files__read`, `read`."""
    return [name[found.end() :] for found in _NAMESPACE.finditer(name) if name[found.end() :]]


def _nearest(name: str, *, names: Collection[str]) -> tuple[str, ...]:
    """All names at the smallest distance. Of a short name two changes leave nothing: `rm` is not `ls`."""
    folded = name.casefold()
    found: dict[int, list[str]] = {}
    for other in names:
        away = distance(folded, other=other.casefold())
        if away <= MAX_DISTANCE and away * 2 < min(len(name), len(other)):
            found.setdefault(away, []).append(other)
    return tuple(found[min(found)]) if found else ()


def _alike(name: str, *, names: Collection[str]) -> tuple[str, ...]:
    """Names that hold the name, or are held by it, or share a word of it."""
    wanted = _fold(bare(name))
    if len(wanted) < 2:
        return ()
    held = [other for other in names if (folded := _fold(other)) and (folded in wanted or wanted in folded)]
    words = set(_words(name))
    shared = [other for other in names if words & set(_words(other))]
    return tuple(dict.fromkeys([*held, *shared]))[:MAX_SUGGESTED]


def _words(name: str) -> list[str]:
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", name)
    return [word.casefold() for word in re.split(r"[^A-Za-z0-9]+", split) if len(word) > 2]


def _fold(name: str) -> str:
    return _PUNCTUATION.sub("", name.casefold())
