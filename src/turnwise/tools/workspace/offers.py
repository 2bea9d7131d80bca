"""A typed function over a struct of arguments -> a tool; the struct is the one source of the schema."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from turnwise.errors import ToolFault
from turnwise.running.tools import Arguments, CallProbe, Tool
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import ToolSpec
from turnwise.vocab.file_names import given_name, shown_name

Given = TypeVar("Given", bound=msgspec.Struct)


def make_tool(
    name: str,
    *,
    description: str,
    takes: type[Given],
    function: Callable[[Given], object],
    effect: Effect,
    exclusive: bool = False,
    idempotent: bool = False,
    timeout_s: float | None = None,
    grace_s: float = 0.0,
    keeps: Callable[[], Path | None] | None = None,
    probe: CallProbe | None = None,
) -> Tool:
    """A plain `function` runs in a thread, an `async def` one in the event loop."""

    def convert(arguments: Arguments) -> Given:
        try:
            return read_arguments(arguments, takes)
        except msgspec.ValidationError as error:
            raise ToolFault(f"the arguments do not fit: {error}") from None

    async def run_async(arguments: Arguments) -> object:
        return await cast("Awaitable[object]", function(convert(arguments)))

    def run(arguments: Arguments) -> object:
        return function(convert(arguments))

    spec = ToolSpec(name=name, description=description, parameters=_schema(takes))
    # all of them work on paths or run commands: where permission rules hold, these are looked at first
    offer = ToolOffer(
        spec=spec, exclusive=exclusive, idempotent=idempotent, effect=effect, timeout_s=timeout_s, inspected=True
    )
    called = run_async if inspect.iscoroutinefunction(function) else run
    return Tool(offer=offer, function=called, grace_s=grace_s, keeps=keeps, probe=probe)


def read_arguments(arguments: Mapping[str, object], takes: type[Given]) -> Given:
    """The path as results show it: a name in a message makes no line of its own. Raises ValidationError."""
    given = msgspec.convert(arguments, takes, strict=False)
    path: object = getattr(given, "path", None)
    return msgspec.structs.replace(given, path=shown_name(given_name(path))) if isinstance(path, str) else given


@functools.cache  # a run and its sub-agents have the same tools
def _schema(takes: type[msgspec.Struct]) -> str:
    """The struct's JSON Schema without indirection: providers differ in what they make of `$ref`."""
    definitions = msgspec.json.schema(takes)["$defs"]
    return msgspec.json.encode(_inlined(definitions[takes.__name__], definitions=definitions)).decode()


def _inlined(node: object, *, definitions: Mapping[str, object]) -> object:
    """With every reference replaced by what it refers to; our structs do not hold themselves."""
    match node:
        case {"$ref": str(reference)}:
            return _inlined(definitions[reference.rpartition("/")[2]], definitions=definitions)
        case dict():
            fields = cast("dict[str, object]", node)
            # a text under "title" is the struct's own name, which says nothing; a schema there is a property of that name
            return {
                name: _inlined(value, definitions=definitions)
                for name, value in fields.items()
                if not (name == "title" and isinstance(value, str))
            }
        case list():
            return [_inlined(value, definitions=definitions) for value in cast("list[object]", node)]
        case _:
            return node
