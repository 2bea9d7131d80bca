"""May this call run? Only with a known tool and strictly complete arguments that fit its schema (promise cut:never-run).

Each way to miss has its own words, which say to the model what to do next (promise cut:named).
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Literal, cast

import msgspec

from turnwise.rules.advice import (
    SEND_APART,
    SEND_AS_CALL,
    SEND_AS_JSON,
    SEND_BARE,
    SEND_FEWER_VALUES,
    SEND_WHOLE,
    SEND_WITH_ARGUMENTS,
    in_pieces,
)
from turnwise.rules.schema import decode_strictly, fault_position, schema_errors, shorten
from turnwise.vocab import (
    BESIDE_OWN_CALLS,
    TOO_LONG,
    TWO_READINGS,
    WRITTEN_WRONGLY,
    ArgumentsState,
    FinishReason,
    Repair,
    ToolCall,
    ToolSpec,
)
from turnwise.vocab.hidden_characters import visible_line
from turnwise.vocab.json_values import is_json_object
from turnwise.vocab.parts import in_common
from turnwise.vocab.schema_bounds import MAX_VALUES, has_too_many_values
from turnwise.vocab.wording import in_ticks

# Which tool did the model mean by a name that is on nobody's list? Never a guess between two.
#
# Models write `functions.read`, `default_api.read`, `"read"`, `Read`, `raed`. Where exactly one tool on offer is nearest and it
# changes nothing, the call is corrected and the repair recorded; a tool that changes something is only suggested.


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
    begin = in_common(one, other)
    end = in_common(one[begin:][::-1], other[begin:][::-1])
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


class Sound(msgspec.Struct, frozen=True):
    """The call may run with these arguments: JSON text of an object, or text where the tool is free-form."""

    arguments: str


class Unsound(msgspec.Struct, frozen=True):
    """The call does not run; `text` is its result."""

    kind: Literal["lost", "unknown_tool", "truncated", "malformed", "schema_mismatch"]
    text: str


class _Properties(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


# No name in it: the name may be what was lost.
LOST_CALL = (
    "Not run: this call did not arrive whole (a fault of the connection, not yours). "
    "Make the call again if it is still needed."
)
# Why the arguments stop in the middle, by how the response ended.
CUT_BECAUSE = {
    FinishReason.LENGTH: "the response reached its limit of output tokens",
    FinishReason.CUT: "the connection ended before the response was whole, which was not your mistake",
    FinishReason.ERROR: "the provider broke off the response, which was not your mistake",
}
# What the model wrote before the cut fitted; half of it leaves room for the rest of a response. Less than this says nothing
# of how much fits: reasoning, or other calls, may have taken the room.
PIECE_SHARE = 2
TELLING_CHARACTERS = 1000
# Of a response that ended without any output: where so much of one call had arrived, it was its size as likely as the connection.
LONG_CHARACTERS = 4000
# Of an output limit in tokens: half of what it holds at the four characters that a token of prose or code has.
PIECE_CHARACTERS_A_TOKEN = 2
NO_ARGUMENTS = ("", "{}")
# Characters shown on each side of the place where arguments stop being JSON.
AROUND = 40
# Characters of a schema mismatch in all: what the model can mend in one go, whatever its arguments hold.
MAX_MISMATCH = 2_000
# More names than this cost more tokens than they help.
MAX_NAMES = 30


def judge_call(
    call: ToolCall, *, tools: Mapping[str, ToolSpec], finish: FinishReason, limit_tokens: int | None
) -> Sound | Unsound:
    """Decide one call. `tools` are those on offer in this step; `limit_tokens` is the output limit that was asked for."""
    spec = tools.get(call.name)
    if call.state is ArgumentsState.LOST:
        return Unsound("lost", LOST_CALL)
    if call.reason is not None and call.reason.startswith(TOO_LONG):
        how = "write a long text to a file in parts"
        told = f"Not run: the arguments of this call of `{shorten(call.name)}` are {call.reason}. Nothing was changed."
        return Unsound("malformed", f"{told} {in_pieces('whose arguments are much shorter', how=how)}")
    if call.state is ArgumentsState.TRUNCATED and (spec is not None or _is_cut_name(call, names=tools)):
        return Unsound("truncated", _split_notice(call, spec=spec, finish=finish, limit_tokens=limit_tokens))
    if spec is None:
        return Unsound("unknown_tool", _unknown_tool(call.name, names=tools))
    match call.state:
        case ArgumentsState.INVALID if _is_from_text(call):
            return Unsound("lost", f"Not run: this call of `{call.name}` was {call.reason}. {SEND_AS_CALL}")
        case ArgumentsState.INVALID:
            return Unsound("malformed", _malformed(call))
        case _:
            return _judge_complete(call, spec=spec)


def split_glued(call: ToolCall, *, spec: ToolSpec | None) -> tuple[ToolCall, ...]:
    """Several calls if the whole objects found in one call all fit the tool's schema, else the call as it is.

    Ids of the later ones are the first's with a number; the caller makes them unique in the session.
    """
    if spec is None or spec.free_form or len(call.alternatives) < 2:
        return (call,)
    pieces = [
        ToolCall(
            id=call.id if number == 1 else f"{call.id}_{number}",
            name=call.name,
            arguments=arguments,
            opaque=call.opaque if number == 1 else None,
        )
        for number, arguments in enumerate(call.alternatives, start=1)
    ]
    fit = all(isinstance(_judge_complete(piece, spec=spec), Sound) for piece in pieces)
    return tuple(pieces) if fit else (call,)


def _judge_complete(call: ToolCall, *, spec: ToolSpec) -> Sound | Unsound:
    if spec.free_form and call.free_form:
        return Sound(call.arguments)
    if has_too_many_values(call.arguments):
        return Unsound("malformed", _malformed(call))
    try:
        value = decode_strictly(call.arguments)
    except ValueError as error:
        return Unsound("malformed", _malformed(msgspec.structs.replace(call, reason=str(error))))
    if not is_json_object(value):
        got = shorten(call.arguments)
        return Unsound("schema_mismatch", _mismatch(call.name, errors=[f"`$`: expected an object, got {got}"]))
    if spec.free_form:
        # Families without free-form tools show them as a JSON tool with one string parameter `input`.
        text = value.get("input")
        if isinstance(text, str):
            return Sound(text)
        return Unsound("schema_mismatch", _mismatch(call.name, errors=["`$.input`: expected string"]))
    errors = schema_errors(spec.parameters, value=cast("object", value))
    return Unsound("schema_mismatch", _mismatch(call.name, errors=errors)) if errors else Sound(call.arguments)


def _unknown_tool(name: str, *, names: Collection[str]) -> str:
    # What may be run under another name was corrected before (`turn/settled_response.py`); nothing runs here.
    judged = judge_name(name, effects=dict.fromkeys(names, "write"))
    close = judged.names if isinstance(judged, Suggested) else ()
    meant = f" Did you mean {in_ticks(close, between=' or ')}?" if close else ""
    if not names:
        return f"Not run: there is no tool `{shorten(visible_line(name))}`, and none is on offer in this step. Answer in text."
    listed = in_ticks(list(names)[:MAX_NAMES])
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return (
        f"Not run: no tool `{shorten(visible_line(name))}` is on offer in this step.{meant} On offer: {listed}{more}."
    )


def _is_from_text(call: ToolCall) -> bool:
    """Whether it stood in the text and was no call as it stood there."""
    return call.reason is not None and call.reason.startswith((WRITTEN_WRONGLY, BESIDE_OWN_CALLS))


def _is_cut_name(call: ToolCall, *, names: Collection[str]) -> bool:
    """Whether the limit fell inside the tool's name, or before it (in a call that stood in the text)."""
    return not call.name or (not call.arguments.strip() and any(name.startswith(call.name) for name in names))


def _split_notice(call: ToolCall, *, spec: ToolSpec | None, finish: FinishReason, limit_tokens: int | None) -> str:
    if call.reason == TWO_READINGS:
        return f"Not run: {TWO_READINGS}. Nothing was changed. {SEND_WHOLE}"
    because = CUT_BECAUSE.get(finish, "the response ended in the middle of it")
    limit = f" ({limit_tokens:,} tokens)" if finish is FinishReason.LENGTH and limit_tokens is not None else ""
    notice = f"Not run: {_what_was_cut(call, spec=spec)}, because {because}{limit}."
    if finish is FinishReason.ERROR or (finish is FinishReason.CUT and not _is_long(call, limit_tokens=limit_tokens)):
        return f"{notice} Nothing was changed. {SEND_WHOLE}"
    again = "would" if finish is FinishReason.LENGTH else "might"
    piece = _piece_characters(call, limit_tokens=limit_tokens)
    size = (
        "whose arguments are much shorter; how long a response may get is not known here"
        if piece is None
        else f"whose arguments stay under about {piece:,} characters each"
    )
    how = "the first part now and the rest added by later calls"
    if spec is not None and _can_append(spec):
        how = "the first part now, then each further part with `append` set to true"
    return (
        f"{notice} Nothing was changed. The same call {again} be cut again. "
        f"{in_pieces(size, how=how)}{_may_be_bare(call, spec=spec)}"
    )


def _may_be_bare(call: ToolCall, *, spec: ToolSpec | None) -> str:
    """What to say of a call that can do without arguments: whether it was to have any cannot be told."""
    if spec is None or spec.free_form or call.arguments.strip() not in NO_ARGUMENTS:
        return ""
    fits = not schema_errors(spec.parameters, value={})
    return f" {SEND_BARE}" if fits else ""


def _what_was_cut(call: ToolCall, *, spec: ToolSpec | None) -> str:
    length = len(call.arguments)
    if not call.name:
        return "a call was cut off before the name of its tool"
    if spec is None:
        return f"this call was cut off inside the name of its tool (`{shorten(call.name)}`)"
    if call.arguments.strip() in NO_ARGUMENTS:
        return f"this call of `{call.name}` was cut off before its arguments began"
    # An object that was handed out has the parameters that happened to be whole.
    as_object = call.reason is None and call.arguments.rstrip().endswith("}") and not call.free_form
    unsaid = f"what follows {shorten(call.arguments)} is missing" if as_object else f"cut after {length:,} characters"
    where = call.reason or unsaid
    size = f"; {length:,} characters of the arguments had arrived" if call.reason else ""
    return f"the arguments of this call of `{call.name}` were cut off ({where}{size})"


def _piece_characters(call: ToolCall, *, limit_tokens: int | None) -> int | None:
    """How long a piece may be: by the limit, and by what came before the cut; None where neither tells."""
    length = len(call.arguments)
    found = [limit_tokens * PIECE_CHARACTERS_A_TOKEN] if limit_tokens is not None else []
    if length >= TELLING_CHARACTERS:
        found.append(length // PIECE_SHARE)
    return min(found) if found else None


def _is_long(call: ToolCall, *, limit_tokens: int | None) -> bool:
    """Whether the call alone had filled half of the output limit (of 2,000 tokens where none was asked for)."""
    half = LONG_CHARACTERS if limit_tokens is None else limit_tokens * PIECE_CHARACTERS_A_TOKEN
    return len(call.arguments) >= half


def _can_append(spec: ToolSpec) -> bool:
    try:
        schema = msgspec.json.decode(spec.parameters, type=_Properties)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return "append" in schema.properties


def _malformed(call: ToolCall) -> str:
    if has_too_many_values(call.arguments):
        return (
            f"Not run: the arguments of this call of `{call.name}` hold more than {MAX_VALUES:,} JSON values (lists, objects "
            f"and what stands in them). {SEND_FEWER_VALUES}"
        )
    if call.alternatives:
        return (
            f"Not run: this call of `{call.name}` held {len(call.alternatives)} JSON objects one after the other, and not all "
            f"of them fit the tool. {SEND_APART}"
        )
    if not call.arguments.strip():
        return f"Not run: this call of `{call.name}` came without arguments. {SEND_WITH_ARGUMENTS}"
    why = f" ({shorten(call.reason, limit=300)})" if call.reason else ""
    return (
        f"Not run: the arguments of this call of `{call.name}` are not valid JSON{why}. {_where_malformed(call.arguments)} "
        + SEND_AS_JSON
    )


def _where_malformed(arguments: str) -> str:
    """The place where they stop being JSON and what stands around it; their beginning where there is no such place."""
    position = fault_position(arguments)
    if len(arguments) <= 2 * AROUND or position is None:
        return f"They began: {shorten(arguments, limit=2 * AROUND)}."
    start, end = max(position - AROUND, 0), position + AROUND
    before, after = "..." if start else "", "..." if end < len(arguments) else ""
    return f"Around character {position:,} they say: {before}{arguments[start:end]}{after}."


def _mismatch(name: str, *, errors: Collection[str]) -> str:
    lines: list[str] = []
    room = MAX_MISMATCH
    for error in errors:
        room -= len(error)
        if room < 0 and lines:
            lines.append(f"- ... and {len(errors) - len(lines)} more")
            break
        lines.append(f"- {error}")
    told = "\n".join(lines)
    return f"Not run: the arguments do not fit the parameters of `{name}`. Correct all of these and call again:\n{told}"
