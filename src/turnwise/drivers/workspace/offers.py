"""A typed function over a struct of arguments -> a tool; the struct is the one source of the schema."""

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import msgspec

from turnwise.drivers.tools import Arguments, Tool
from turnwise.errors import ToolFault
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import ToolSpec

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
) -> Tool:
    """A plain `function` runs in a thread, an `async def` one in the event loop."""

    def convert(arguments: Arguments) -> Given:
        try:
            return msgspec.convert(arguments, takes, strict=False)
        except msgspec.ValidationError as error:
            raise ToolFault(f"the arguments do not fit: {error}") from None

    async def run_async(arguments: Arguments) -> object:
        return await cast("Awaitable[object]", function(convert(arguments)))

    def run(arguments: Arguments) -> object:
        return function(convert(arguments))

    spec = ToolSpec(name=name, description=description, parameters=_schema(takes))
    offer = ToolOffer(spec=spec, exclusive=exclusive, idempotent=idempotent, effect=effect, timeout_s=timeout_s)
    return Tool(offer=offer, function=run_async if inspect.iscoroutinefunction(function) else run)


def _schema(takes: type[msgspec.Struct]) -> str:
    """The struct's JSON Schema without indirection: providers differ in what they make of `$ref`."""
    (definition,) = msgspec.json.schema(takes)["$defs"].values()
    del definition["title"]
    return msgspec.json.encode(definition).decode()
