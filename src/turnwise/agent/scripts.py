"""The tool `script`: the model writes one small program that calls the other tools, so that one request runs them all."""

from collections.abc import Sequence
from typing import cast

import msgspec

from turnwise.errors import CallerError
from turnwise.running.tools import Tool
from turnwise.turn.commands import ScriptFunction
from turnwise.turn.config import ScriptLimits, ToolOffer
from turnwise.turn.programs import PROGRAM, TAKEN, functions_of, is_callable
from turnwise.vocab import ToolSpec

NAME = "script"
WORDS = {
    "string": "str",
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "array": "list",
    "object": "dict",
    "null": "None",
}
MAX_CHOICES = 6  # of an enum; the schema has them all
PURPOSE = """\
Run a small Python program that calls the other tools as functions: many calls, one answer. Use it where the next calls \
follow from rules that you can write down, or are independent of each other: read several files, change all places, run \
the tests, look at what failed. Each function takes the arguments of its tool, by name, and returns the text of its result:
    text = read(path="a.py")
Together: `a, b = await asyncio.gather(read(path="a.py"), read(path="b.py"))`. A call that fails or is denied raises \
RuntimeError with the words. Only what the program prints or its last expression gives comes back to you, so print what \
you need to go on, not whole files. There are no files, network or processes but through these functions, and of the \
standard library only the likes of json, re, math, datetime, asyncio. If the program fails, you are told the line and what \
had run: what was done stands.
Functions:
"""


DAY_S = 24 * 60 * 60.0
GIGABYTE = 1024**3
# The least and the most of each limit. Less memory does not hold the interpreter; more computing than a day is a mistake.
BOUNDS: dict[str, tuple[float, float]] = {
    "cpu_s": (0.01, DAY_S),
    "wall_s": (0.01, 30 * DAY_S),
    "sleep_s": (0, 30 * DAY_S),
    "memory_bytes": (1024**2, 1024 * GIGABYTE),
    "calls": (0, 1_000_000),
    "call_bytes": (1, GIGABYTE),
    "exchanged_bytes": (1, 1024 * GIGABYTE),
    "output_characters": (0, GIGABYTE),
    "program_characters": (1, 16 * 1024**2),
}


def check_script_limits(limits: ScriptLimits) -> None:
    """Raise CallerError where a limit is none: before anything is paid for."""
    for name, (least, most) in BOUNDS.items():
        value = cast("object", getattr(limits, name))
        kinds = int | float if name.endswith("_s") else int
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            number = "a number" if name.endswith("_s") else "a whole number"
            raise CallerError(f"`script_limits`: `{name}` is {value!r}; give {number} from {least:,g} to {most:,.0f}")


def script_tool(tools: Sequence[Tool]) -> Tool | None:
    """The tool that runs programs over `tools`; None where no tool can be called by one, or one is called `script`
    already. Equal tools give equal bytes."""
    offers = {tool.name: tool.offer for tool in tools if is_callable(tool.offer)}
    if not offers or any(tool.name == NAME for tool in tools):
        return None
    functions = functions_of(offers, names=tuple(offers))
    lines = [_line(function, offer=offers[function.tool]) for function in functions]
    parameters = {
        "type": "object",
        "properties": {PROGRAM: {"type": "string", "description": "the program's text"}},
        "required": [PROGRAM],
        "additionalProperties": False,
    }
    spec = ToolSpec(
        name=NAME, description=PURPOSE + "\n".join(lines), parameters=msgspec.json.encode(parameters).decode()
    )
    return Tool(offer=ToolOffer(spec=spec, script=True, exclusive=True))


def with_script(tools: tuple[Tool, ...], *, scripted: bool) -> tuple[Tool, ...]:
    """The tools, and behind them the one that runs programs over them, where it is wanted and there is anything to call."""
    made = script_tool(tools) if scripted else None
    return tools if made is None else (*tools, made)


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}
    required: list[str] = []


def _line(function: ScriptFunction, *, offer: ToolOffer) -> str:
    line = _signature(function, offer=offer)
    if function.name == function.tool:
        return line
    own = f"; `{function.tool}` is Python's own" if function.tool in TAKEN else ""
    return f"{line}  # the tool `{function.tool}`{own}"


def _signature(function: ScriptFunction, *, offer: ToolOffer) -> str:
    """`read(path: str, limit: int = ...)`: the tool's own description and schema say the rest."""
    if function.free_form:
        return f"{function.name}(input: str)"
    try:
        schema = msgspec.json.decode(offer.spec.parameters, type=_Schema)
    except msgspec.MsgspecError:
        return f"{function.name}(...)"
    needed = [name for name in schema.properties if name in schema.required]
    others = [name for name in schema.properties if name not in schema.required]
    shown = [f"{name}: {_type(schema.properties[name])}" for name in needed]
    shown += [f"{name}: {_type(schema.properties[name])} = ..." for name in others]
    return f"{function.name}({', '.join(shown)})"


class _Kind(msgspec.Struct):
    """What of a JSON Schema a word or two can say."""

    type: str | list[str] = "any"
    enum: list[object] | None = None
    any_of: "list[_Kind] | None" = msgspec.field(default=None, name="anyOf")
    one_of: "list[_Kind] | None" = msgspec.field(default=None, name="oneOf")
    items: "_Kind | None" = None


def _word(kind: _Kind) -> str:
    if kind.enum:
        return " | ".join([msgspec.json.encode(value).decode() for value in kind.enum[:MAX_CHOICES]])
    if choices := kind.any_of or kind.one_of:
        return " | ".join(dict.fromkeys([_word(choice) for choice in choices]))
    if isinstance(kind.type, list):
        return " | ".join([WORDS.get(name, "any") for name in kind.type])
    if kind.type == "array" and kind.items is not None:
        return f"list[{_word(kind.items)}]"
    return WORDS.get(kind.type, "any")


def _type(schema: msgspec.Raw) -> str:
    """A JSON Schema in a word or two; what has none is `any`."""
    try:
        return _word(msgspec.json.decode(schema, type=_Kind))
    except msgspec.MsgspecError:  # `true`, or a schema of another shape
        return "any"
