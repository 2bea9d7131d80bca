"""`@tool`: plain typed functions become tools; the schema comes from the type hints and the docstring."""

import functools
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NoReturn,
    ParamSpec,
    Protocol,
    TypeGuard,
    TypeVar,
    cast,
    get_args,
    overload,
)

import msgspec

from turnwise.agent.children import AgentTool, Subagents
from turnwise.agent.schemas import Signature, check_tool_name, read_signature, written_function
from turnwise.errors import BadTool, CallerError, ToolFault, UnknownOption
from turnwise.running.run_context import context_at_hand, deps_class_of
from turnwise.running.tools import Arguments, Tool
from turnwise.turn.config import Effect, ToolOffer
from turnwise.vocab import ToolSpec

if TYPE_CHECKING:
    from pydantic import ValidationError

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
EFFECTS: tuple[Effect, ...] = get_args(Effect)

# For models without scripted steps; `docs/billing.md` has the measurements. The text is the same in each request of a turn, so
# that the provider's prompt cache holds.
BATCH_HINT = (
    "Tool calls that do not depend on each other's results belong together: ask for all of them in one response. Each response "
    "is a request of its own, and its calls run side by side."
)


class FunctionTool(Generic[P, R]):
    """A function that a model may call. Your program can still call it as before.

    In a class it is a method: `shop.find` is a tool of the object `shop`. `Shop.find` has no object, so an agent raises
    BadTool for it.
    """

    def __init__(
        self,
        function: Callable[P, R],
        made: Tool,
        *,
        of_object: "Callable[[object], FunctionTool[..., R]] | None" = None,
    ) -> None:
        self._made = made
        self._function = function
        self._of_object = of_object  # for a method that has no object yet
        functools.update_wrapper(self, function)

    @property
    def tool(self) -> Tool:
        """The tool as an agent runs it. Raises BadTool for a method without an object."""
        if self._of_object is not None:
            name = self._function.__qualname__
            method = name.rpartition(".")[2]
            raise BadTool(f"`{name}` is a method, and a tool needs its object: give `tools=[the_object.{method}]`")
        return self._made

    @overload
    def __get__(self, instance: None, owner: type, /) -> "FunctionTool[P, R]": ...
    @overload
    def __get__(
        self: "FunctionTool[Concatenate[Any, Q], R]", instance: object, owner: type | None = None, /
    ) -> "FunctionTool[Q, R]": ...
    def __get__(self, instance: object, owner: type | None = None, /) -> "FunctionTool[..., R]":
        if instance is None or self._of_object is None:
            return self
        return self._of_object(instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self._made.name}>"


OneTool = Tool | ToolSpec | FunctionTool[..., Any] | Callable[..., Any]
"""One tool. A bare `ToolSpec` is a client-side tool: its calls end the run as `waiting`."""


class Toolset(Protocol):
    """Tools that belong together: for example the tools of a folder, an object or a server.

    An agent asks the toolset for its tools at the beginning of each turn, so the tools may change between turns. If the
    toolset is an async context manager, turnwise opens it before it asks. The toolset stays open as long as the agent
    (`async with agent`), otherwise for one run. Agents and runs that share a toolset in one event loop open it once. The run
    raises CallerError if the toolset fails, or if it does not open and give its tools within `Deadlines(toolset_s=...)`
    seconds each.
    """

    async def tools(self) -> Sequence[OneTool]:
        """The tools that the next turn gets. If this raises, the run raises CallerError."""
        ...


ToolLike = OneTool | Subagents | AgentTool | Toolset
"""What `Agent(tools=[...])` takes."""


class ToolMaker(Protocol):
    """The result of `@tool(...)` before it gets the function. Without a `reconcile` the function's parameters are not known
    yet."""

    def __call__(self, function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "none",
    exclusive: bool = False,
    idempotent: bool = False,
    repeatable: bool = False,
    timeout_s: float | None = None,
    reconcile: None = None,
) -> ToolMaker: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "none",
    exclusive: bool = False,
    idempotent: bool = False,
    repeatable: bool = False,
    timeout_s: float | None = None,
    reconcile: Callable[P, object],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    effect: Effect = "none",
    exclusive: bool = False,
    idempotent: bool = False,
    repeatable: bool = False,
    timeout_s: float | None = None,
    reconcile: Callable[..., object] | None = None,
    **others: object,
) -> FunctionTool[P, R] | ToolMaker | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a typed function (sync or async) a tool. Use it as `@tool`, or `@tool(effect="write")`.

    - `name`, `description`: default to the function's name and docstring.
    - `effect`: what a call does to the world: `none`, `read`, `write` or `execute`.
    - `exclusive`: the call never runs beside another call.
    - `idempotent`: running the call twice does no harm.
    - `repeatable`: the tool is meant to be called again and again with the same answer (a status). The loop guard
      ignores it.
    - `timeout_s`: seconds that one call may take.
    - `reconcile`: a function that says after a crash whether a call happened, and what came of it. It takes the same
      arguments and changes nothing; `context.call_key` is the one that the call had. It returns the call's result, or
      None if the call did not happen; then the call runs. If it raises, the model is told that the outcome is unknown.

    If the first parameter is a `RunContext[Deps]`, it gets the run's context, and the model does not see it. The
    returned value is the result: text, or a value that JSON can carry; of a generator, the list of its items. If it raises a
    `ToolFault`, the model reads the fault's text. Of any other exception the model reads only the class; the logger
    `turnwise.tools` has it with its traceback.

    On a method, each object has a tool of its own: `Agent(tools=[shop.find])`.

    Raises BadTool if the function cannot be described to a model, and for an effect that does not exist.
    """
    if "probe" in others:
        raise BadTool("`@tool(probe=...)` is now written `@tool(reconcile=...)`; the function stays as it is")
    if others:
        raise UnknownOption(f"`{next(iter(others))}` is no option of `@tool`")
    if effect not in EFFECTS:
        raise BadTool(f"`effect` is `{effect}`; it must be one of: {', '.join(EFFECTS)}")

    def make(plain: Callable[Q, S]) -> FunctionTool[Q, S]:
        if isinstance(plain, classmethod | staticmethod):
            kind = type(cast("object", plain)).__name__
            raise BadTool(f"`@tool` stands above `@{kind}`: put `@tool` below it, next to the function")
        written, _ = written_function(plain)
        if isinstance(written, FunctionTool):
            raise BadTool(
                f"`functools.partial` stands around the tool `{written.tool.name}`, whose options it would hide: put it inside, "
                "`tool(...)(functools.partial(function, ...))`"
            )
        tool_name = name or getattr(plain, "__name__", written.__name__).removesuffix("__call__")
        if not tool_name:
            raise BadTool(f"a `{type(plain).__name__}` has no name for a tool: give one, `tool(name=...)(the_object)`")
        check_tool_name(tool_name)
        signature = read_signature(plain, name=tool_name, is_method=_is_method(plain))
        if reconcile is not None:
            _check_reconcile(reconcile, signature, name=tool_name, is_method=_is_method(plain))
        spec = ToolSpec(
            name=tool_name, description=description or signature.description, parameters=signature.parameters
        )
        offer = ToolOffer(
            spec=spec,
            effect=effect,
            exclusive=exclusive,
            idempotent=idempotent,
            repeatable=repeatable,
            timeout_s=timeout_s,
        )
        asked = None if reconcile is None else _adapted(reconcile, signature)
        made = Tool(
            offer=offer,
            function=_adapted(plain, signature),
            reconcile=asked,
            takes_context=signature.context is not None,
            deps=None if signature.context is None else deps_class_of(signature.context),
        )

        def of_object(instance: object) -> FunctionTool[..., S]:
            bound = _bound(plain, instance)
            asked = None if reconcile is None else _adapted(_bound(reconcile, instance), signature)
            return FunctionTool(
                bound, msgspec.structs.replace(made, function=_adapted(bound, signature), reconcile=asked)
            )

        return FunctionTool(plain, made, of_object=of_object if _is_method(plain) else None)

    return make if function is None else make(function)


def _check_reconcile(reconcile: Callable[..., object], signature: Signature, *, name: str, is_method: bool) -> None:
    """Raise BadTool if it cannot take the arguments of its tool: all of them, or only the required ones."""
    first = [None] * (is_method + (signature.context is not None))
    fields = signature.model.model_fields
    for given in (fields, [field for field in fields if fields[field].is_required() or field in signature.positional]):
        named = dict.fromkeys([field for field in given if field not in signature.positional])
        try:
            inspect.signature(reconcile).bind(*first, *signature.positional, **named)
        except TypeError as error:
            wanted = ", ".join([*(["a `RunContext`"] if signature.context is not None else []), *fields])
            raise BadTool(
                f"tool `{name}`: `reconcile` must have the parameters of the tool ({wanted}): {error}"
            ) from None
        except ValueError:  # a function in C that does not show its parameters
            return


def _is_method(function: Callable[..., object]) -> bool:
    """Whether it is defined in the body of a class, and its first parameter is the object: no hint says what that is."""
    if type(function) is not FunctionType:
        return False
    place, dot, _ = function.__qualname__.rpartition(".")
    first = next(iter(inspect.signature(function).parameters.values()), None)
    in_class = bool(dot) and not place.endswith("<locals>")
    return in_class and first is not None and (first.name == "self" or first.annotation is first.empty)


def _bound(function: Callable[..., R], instance: object) -> Callable[..., R]:
    return function.__get__(instance) if isinstance(function, FunctionType) else functools.partial(function, instance)


def is_toolset(given: object) -> TypeGuard[Toolset]:
    """Whether this gives tools, and is not a tool itself."""
    return not isinstance(given, type | Tool | FunctionTool) and callable(getattr(given, "tools", None))


def read_tools(tools: Sequence[ToolLike]) -> tuple[Tool, ...]:
    """The user's tools as Tool values; toolsets are left out. Raises BadTool, and CallerError if two have the same name."""
    found: dict[str, Tool] = {}
    for given in tools:
        if is_toolset(given):
            continue
        made = read_tool(given)
        if made.name in found:
            raise CallerError(f"two tools are called `{made.name}`: rename one with @tool(name=...)")
        found[made.name] = made
    return tuple(found.values())


def read_tool(given: ToolLike) -> Tool:
    match given:
        case Tool():
            return given
        case ToolSpec():
            return Tool(offer=ToolOffer(spec=given, client_side=True))
        case FunctionTool():
            return given.tool
        case Subagents() | AgentTool():
            return given.tool()
        case _ if isinstance(given, type) and callable(getattr(given, "tools", None)):
            kind: str = given.__name__
            raise BadTool(f"`{kind}` is a class of toolsets: give one of them, `{kind}(...)`")
        case _ if callable(given):
            function: object = getattr(given, "__func__", None)
            if isinstance(function, FunctionTool):  # a classmethod's, from Python 3.13 on
                return cast("FunctionTool[..., Any]", function.__get__(getattr(given, "__self__", None))).tool
            return tool(given).tool
        case _:
            kind = type(given).__name__
            raise BadTool(
                f"`tools` holds a {kind}, which is no tool: give a typed function, a @tool, a ToolSpec, or a toolset"
            )


def _adapted(function: Callable[..., object], signature: Signature) -> Callable[[Arguments], object]:
    """The function as a tool runs it: its arguments are validated and converted to the declared types."""

    from pydantic import ValidationError  # the model is a pydantic model, so pydantic is imported by now

    fields = tuple(signature.model.model_fields)

    takes_context = signature.context is not None

    def prepare(arguments: Arguments) -> tuple[list[object], dict[str, object]]:
        try:
            values = signature.model.model_validate(arguments)
        except ValidationError as error:
            raise ToolFault(_all_errors(error)) from error
        given = values.model_fields_set
        named: dict[str, object] = {
            field: getattr(values, field) for field in fields if field in given or field in signature.positional
        }
        named.update(values.model_extra or {})
        positional = [named.pop(field) for field in signature.positional]
        return [context_at_hand(), *positional] if takes_context else positional, named

    if inspect.iscoroutinefunction(function):

        async def run_async(arguments: Arguments) -> object:
            positional, named = prepare(arguments)
            value = _all_of(await cast("Callable[..., Any]", function)(*positional, **named))
            return await cast("Any", value) if inspect.iscoroutine(value) else value

        return run_async

    def run(arguments: Arguments) -> object:
        positional, named = prepare(arguments)
        return _all_of(function(*positional, **named))

    return run


MAX_ITEMS = 100_000  # of an iterator: an endless one would fill the memory


def _all_of(value: object) -> object:
    """What a generator or another iterator gives, as a list: its code is the tool's, so it runs where the tool runs. Raises
    ToolFault if there is no end."""
    if isinstance(value, AsyncIterator):
        return _all_of_async(cast("AsyncIterator[object]", value))
    if not isinstance(value, Iterator):
        return value
    items = list(itertools.islice(cast("Iterator[object]", value), MAX_ITEMS + 1))
    return items if len(items) <= MAX_ITEMS else _endless()


async def _all_of_async(value: AsyncIterator[object]) -> list[object]:
    items: list[object] = []
    async for item in value:
        items.append(item)
        if len(items) > MAX_ITEMS:
            _endless()
    return items


def _endless() -> NoReturn:
    raise ToolFault(f"the tool gives more than {MAX_ITEMS:,} items: it must stop earlier")


def _all_errors(error: "ValidationError") -> str:
    """Every problem with its path, without the values."""
    lines = [
        f"- {'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False, include_context=False)
    ]
    return "the arguments do not fit:\n" + "\n".join(lines)
