"""What a server offers, as far as it can be offered to a model: bounded, with names of ours, and what was left out."""

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec
from mcp_types import Prompt, Tool

from turnwise.drivers.mcp.bounds import (
    MAX_ARGUMENTS,
    MAX_DEPTH,
    MAX_DESCRIPTION,
    MAX_LISTING,
    MAX_SCHEMA,
    MAX_TOOL_NAME,
    MAX_TOOLS,
)
from turnwise.drivers.mcp.entries import ServerEntry
from turnwise.drivers.mcp.reading import is_deeper
from turnwise.drivers.tools.tool_output import cut_middle
from turnwise.rules.mcp_names import mcp_tool_name
from turnwise.rules.schema import fault_of_schema
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import ToolSpec

MAX_SHOWN_NAME = 80


class OfferedTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a server. `own_name` is its name there; `digest` is of all that a model is told of it."""

    own_name: str
    offer: ToolOffer
    digest: str

    @property
    def said(self) -> str:
        """The same for a person."""
        spec = self.offer.spec
        schema = msgspec.json.format(spec.parameters, indent=2)
        repeated = "may be repeated" if self.offer.idempotent else "is not repeated"
        return f"{spec.description}\neffect: {self.offer.effect}; {repeated}\n{schema}\n"


class OfferedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt of a server. `arguments` are the names of its arguments, `required` those that it needs."""

    own_name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offers now. `left_out` says of each tool that is not offered why."""

    tools: tuple[OfferedTool, ...] = ()
    prompts: tuple[OfferedPrompt, ...] = ()
    has_resources: bool = False
    left_out: tuple[str, ...] = ()


def read_tools(tools: Sequence[Tool], *, entry: ServerEntry) -> tuple[tuple[OfferedTool, ...], tuple[str, ...]]:
    """The tools that can be offered, and why each of the others is not."""
    found: dict[str, OfferedTool] = {}
    left_out: list[str] = []
    size = refused = 0
    for one in tools:
        if len(found) >= MAX_TOOLS:
            why = f"a server may have {MAX_TOOLS} tools"
        elif size > MAX_LISTING:
            why = f"the tools of a server may have {MAX_LISTING:,} characters in all"
        elif refused >= MAX_TOOLS:  # reading each may take 0.1 s
            why = f"{MAX_TOOLS} tools of the server cannot be used, and the rest is not read"
        elif isinstance(made := _read(one, entry=entry), str):
            refused += 1
            why = made
        elif made.offer.spec.name in found:
            refused += 1
            why = "it is there twice"
        else:
            size += len(made.offer.spec.description) + len(made.offer.spec.parameters)
            if size <= MAX_LISTING:
                found[made.offer.spec.name] = made
                continue
            why = f"the tools of a server may have {MAX_LISTING:,} characters in all"
        left_out.append(f"`{_short(one.name)}`: {why}")
    return tuple(found.values()), tuple(left_out)


def read_prompts(prompts: Sequence[Prompt]) -> tuple[OfferedPrompt, ...]:
    """The first `MAX_TOOLS` of those that a person can type: by their names, and by how many arguments they have."""
    usable = [one for one in prompts if _can_be_typed(one)]
    return tuple(
        [
            OfferedPrompt(
                own_name=one.name,
                description=cut_middle(one.description or one.title or "", limit=MAX_DESCRIPTION),
                arguments=tuple([argument.name for argument in one.arguments or ()]),
                required=tuple([argument.name for argument in one.arguments or () if argument.required]),
            )
            for one in usable[:MAX_TOOLS]
        ]
    )


def _can_be_typed(prompt: Prompt) -> bool:
    arguments = prompt.arguments or ()
    names = [prompt.name, *[argument.name for argument in arguments]]
    return len(arguments) <= MAX_ARGUMENTS and all(
        0 < len(name) <= MAX_TOOL_NAME and name.isprintable() and " " not in name for name in names
    )


def effect_of(name: str, *, entry: ServerEntry, read_only: bool) -> Effect:
    """What the user says of the tool; else what the server says, where the user takes its word; else `execute`."""
    for pattern, effect in entry.effects.items():
        if fnmatchcase(name, pattern):
            return effect
    return "read" if entry.trusts_hints and read_only else "execute"


def _read(one: Tool, *, entry: ServerEntry) -> OfferedTool | str:
    if not one.name:
        return "it has no name"
    if len(one.name) > MAX_TOOL_NAME:
        return f"its name has {len(one.name):,} characters, more than {MAX_TOOL_NAME}"
    try:
        parameters = msgspec.json.encode(one.input_schema).decode()
    except (ValueError, TypeError, RecursionError):
        return "its schema is no JSON"
    if len(parameters) > MAX_SCHEMA:
        return f"its schema has {len(parameters):,} characters, more than {MAX_SCHEMA:,}"
    if one.input_schema.get("type", "object") != "object":
        return "its schema is not that of an object"
    if is_deeper(one.input_schema, than=MAX_DEPTH):
        return f"its schema is nested more than {MAX_DEPTH} levels deep"
    if fault := fault_of_schema(parameters):
        return f"its schema cannot be used: {fault}"
    hints = one.annotations
    spec = ToolSpec(
        name=mcp_tool_name(entry.name, one.name),
        description=cut_middle(_whole_text(one.description or ""), limit=MAX_DESCRIPTION),
        parameters=parameters,
    )
    offer = ToolOffer(
        spec=spec,
        effect=effect_of(one.name, entry=entry, read_only=hints is not None and hints.read_only_hint is True),
        idempotent=hints is not None and hints.idempotent_hint is True,
        timeout_s=entry.call_s,
        samples=entry.sampling,
    )
    return OfferedTool(own_name=one.name, offer=offer, digest=_digest(spec, offer=offer))


def _short(name: str) -> str:
    return name if len(name) <= MAX_SHOWN_NAME else f"{name[:MAX_SHOWN_NAME]}…"


def _digest(spec: ToolSpec, *, offer: ToolOffer) -> str:
    told = [spec.name, spec.description, spec.parameters, offer.idempotent, offer.effect]
    return hashlib.sha256(msgspec.json.encode(told)).hexdigest()[:16]


def _whole_text(text: str) -> str:
    """A lone surrogate is no character: JSON cannot carry it."""
    return text.encode("utf-8", "backslashreplace").decode()
