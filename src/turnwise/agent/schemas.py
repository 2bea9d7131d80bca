"""Python types -> JSON Schema, for tools' parameters and for structured output. pydantic and griffe are imported on use."""

import datetime
import inspect
import logging
import re
import typing
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast, get_args, get_origin

import msgspec

from turnwise.agent.deps import name_of
from turnwise.base.clock import Clock, Overdue
from turnwise.base.exact_json import NotExact, exact_json, place_without_word
from turnwise.errors import BadTool, CallerError
from turnwise.rules.schema import fault_of_schema
from turnwise.running.hooks import said_by
from turnwise.running.run_context import RunAtHand, context_of, holds_context, is_context, wants_context
from turnwise.running.runner_config import OutputChecker
from turnwise.running.tool_output import class_name, traceback_of
from turnwise.vocab import OutputSchema

if TYPE_CHECKING:
    from pydantic import BaseModel

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

_log = logging.getLogger("turnwise")

MAX_PROBLEMS = 20  # of one answer: more are not read
PROBLEM_CHARACTERS = 400
VALUE_KEY = "value"  # providers want an object at the root; other types are wrapped in an object with this key


class Signature(msgspec.Struct, frozen=True):
    """What a plain function's signature says. `model` validates and converts the arguments. `positional` are the names that the
    function takes by position only. `context` is the type hint of a first parameter that takes the run's context; None if there
    is no such parameter."""

    description: str
    parameters: str  # JSON Schema as JSON text
    model: type["BaseModel"]
    positional: tuple[str, ...]
    context: object = None


def read_signature(function: Callable[..., object], *, name: str, is_method: bool = False) -> Signature:
    """The signature of a tool's function; without the object if it is a method. Raises BadTool if JSON cannot carry the type of a
    parameter; the text says which."""
    import pydantic

    plain, bound = written_function(function)
    try:
        hints = typing.get_type_hints(plain, include_extras=True)
    except (NameError, TypeError) as error:
        raise BadTool(f"tool `{name}`: its type hints cannot be read: {error}") from error
    summary, described = read_docstring(inspect.getdoc(plain) or "")
    fields: dict[str, Any] = {}
    positional: list[str] = []
    extra: Literal["forbid", "allow"] = "forbid"
    given = list(_parameters_of(function, name=name))[1 if is_method else 0 :]
    given = [parameter for parameter in given if parameter.name not in bound]
    context, parameters = _context_apart(given, hints, name=name)
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            raise BadTool(f"tool `{name}`: `*{parameter.name}` cannot be described to a model; take a list instead")
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
            continue
        if parameter.name not in hints:
            raise BadTool(f"tool `{name}`: the parameter `{parameter.name}` needs a type hint")
        if parameter.kind is parameter.POSITIONAL_ONLY:
            positional.append(parameter.name)
        default = ... if parameter.default is parameter.empty else parameter.default
        field = pydantic.Field(default, description=described.get(parameter.name))
        fields[parameter.name] = (_listed(hints[parameter.name]), field)
    config = pydantic.ConfigDict(
        extra=extra, arbitrary_types_allowed=False, protected_namespaces=(), ser_json_inf_nan="constants"
    )
    try:
        model: type[BaseModel] = pydantic.create_model(name, __config__=config, **fields)
        schema = _without_titles(model.model_json_schema())
    except (pydantic.errors.PydanticUserError, NameError) as error:
        raise BadTool(f"tool `{name}`: {_undescribed_parameter(fields, error=error)}") from error
    schema.setdefault("properties", {})
    try:
        return Signature(summary, exact_json(schema), model, tuple(positional), context)
    except NotExact as error:
        raise BadTool(f"tool `{name}`: its schema holds what JSON cannot carry: {error}") from error


def written_function(function: Callable[..., object]) -> tuple[Callable[..., object], frozenset[str]]:
    """The function that somebody wrote, with type hints and a docstring, and the names that `functools.partial` has bound."""
    bound: set[str] = set()
    while isinstance(function, partial):
        bound |= function.keywords.keys()
        function = function.func
    if not inspect.isroutine(function) and not isinstance(function, type) and not hasattr(function, "__wrapped__"):
        return type(function).__call__, frozenset(bound)  # an object that can be called
    return function, frozenset(bound)


def _parameters_of(function: Callable[..., object], *, name: str) -> Sequence[inspect.Parameter]:
    try:
        return tuple(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise BadTool(f"tool `{name}`: it has no signature ({error}): wrap it in a function with type hints") from None


def _listed(hint: Any) -> Any:
    """An `Iterable[X]` as `list[X]`: pydantic would look at its items only when the function reads them."""
    if get_origin(hint) is Annotated:
        inner, *more = get_args(hint)
        return Annotated[_listed(inner), *more]
    return list[get_args(hint)] if get_origin(hint) is Iterable else hint


def _undescribed_parameter(fields: Mapping[str, tuple[object, object]], *, error: Exception) -> str:
    """Which parameter has a type that has no JSON Schema, and what to do."""
    import pydantic

    for name, (hint, _) in fields.items():
        try:
            pydantic.TypeAdapter(cast("type[object]", hint)).json_schema()
        except (pydantic.errors.PydanticUserError, NameError) as own:
            return f"the parameter `{name}` {undescribed(hint, own)}"
    return str(error).splitlines()[0]


def undescribed(kind: object, error: Exception) -> str:
    """Why this type has no JSON Schema, and what to do."""
    said = str(error).partition("\n")[0].partition(". Set `arbitrary_types_allowed")[0]
    of = f"is a `{getattr(kind, '__name__', kind)}`"
    if getattr(error, "code", "") == "typed-dict-version":
        return f"{of}, a type with a `typing.TypedDict`: before Python 3.12 take `typing_extensions.TypedDict` instead"
    base = next((one for one in _BASES if isinstance(kind, type) and issubclass(kind, one)), None)
    if base is not None:
        return f"{of}, of which JSON knows only the base class: take `{base.__name__}`, and convert it in your code"
    if get_origin(kind) in (Iterator, AsyncIterator, AsyncIterable, AsyncGenerator):
        return f"{of}, and a model sends whole values: take a `list`"
    if isinstance(error, NameError):
        return f"{of}: {said}"
    return f"{of}, which no JSON Schema describes: take a type that pydantic knows, such as a dataclass or a model ({said})"


_BASES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)


def _context_apart(
    parameters: list[inspect.Parameter], hints: Mapping[str, object], *, name: str
) -> tuple[object, list[inspect.Parameter]]:
    """The hint of a first parameter that takes the context, and the parameters that the model sees. Raises BadTool if another
    parameter takes the context."""
    context: object = None
    if parameters and is_context(hint := hints.get(parameters[0].name)) and parameters[0].kind in _BY_POSITION:
        context, parameters = hint, parameters[1:]
    for parameter in parameters:
        if holds_context(hints.get(parameter.name)):
            raise BadTool(
                f"tool `{name}`: `{parameter.name}` takes a `RunContext`, and only the first parameter may: make it "
                f"`def {name}({parameter.name}: RunContext[...], ...)`"
            )
    return context, parameters


def read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """A docstring in Google, NumPy or Sphinx style -> the text before its sections, and each parameter's text."""
    style = docstring_style(text)
    if style is None:
        return text.strip(), {}
    import logging

    import griffe

    logging.getLogger("griffe").setLevel(logging.CRITICAL)  # it warns of missing types, which are in the signature
    summary: list[str] = []
    described: dict[str, str] = {}
    for section in griffe.Docstring(text, lineno=1).parse(style):
        if section.kind is griffe.DocstringSectionKind.text:
            summary.append(str(section.value))
        elif section.kind is griffe.DocstringSectionKind.parameters:
            for parameter in section.value:
                described[parameter.name] = " ".join(parameter.description.split())
    return "\n\n".join(summary).strip(), described


def docstring_style(text: str) -> Literal["google", "numpy", "sphinx"] | None:
    """The style, by marks that only one style has. None if the text has no sections, so that griffe need not be loaded."""
    if re.search(r"^\s*:(param|returns?|raises|type)\b", text, re.MULTILINE):
        return "sphinx"
    if re.search(r"^\s*(Parameters|Returns|Raises|Notes|Examples)\n\s*-{3,}", text, re.MULTILINE):
        return "numpy"
    if re.search(r"^\s*(Args|Arguments|Params|Parameters|Returns|Raises|Yields|Examples?):\s*$", text, re.MULTILINE):
        return "google"
    return None


OutputCheck = Callable[..., object]
"""Takes the answer as a value of the output type, or the `RunContext` and the answer; async or not. If it raises
(`ValueError("...")`), the model reads the message and answers again. Its return value does not matter."""


ValueSoFar = Callable[[str], object]
"""The value that a text so far makes; `partial_values.NOTHING` if it makes none."""


class OutputType(msgspec.Struct, frozen=True):
    """A wanted answer type: the schema for the provider, and how its JSON becomes a value. `checks`: the type may refuse an
    answer that fits its schema (validators, formats, checks between fields), or the user's `further` checks may. `so_far` reads
    the first part of the JSON leniently, into a value that lacks the rest."""

    schema: OutputSchema
    parse: Callable[[str], object]
    so_far: ValueSoFar
    checks: bool = True
    further: "tuple[OutputCheck, ...]" = ()

    def problems(self, text: str) -> tuple[str, ...]:
        """Why this JSON is not a value of the type, in words for the model; empty if it is."""
        try:
            self.parse(text)
        except Exception as error:  # noqa: BLE001 (a validator of the user's may raise anything)
            return problems_of(error)
        return ()


def _value_so_far(kind: object, text: str, *, key: str | None = None) -> object:
    from turnwise.agent.partial_values import value_of  # only programs that watch values need it

    return value_of(kind, text, key=key)


def read_output_type(wanted: object) -> OutputType:
    """A pydantic model, any type that pydantic can describe, or a JSON Schema (a mapping) -> OutputType.

    Raises CallerError for anything else.
    """
    if isinstance(wanted, Mapping):
        return _from_schema(cast("Mapping[str, object]", wanted))
    import pydantic

    if inspect.isroutine(wanted):
        raise CallerError(f"`output_type` is a function, `{name_of(wanted)}`: give the type of the answer")
    if isinstance(wanted, list | tuple):
        names = [name_of(one) for one in cast("Sequence[object]", wanted)]
        raise CallerError(
            f"`output_type` is one type. Give several as a union: `output_type={' | '.join(names) or '...'}`"
        )
    wanted = _listed(wanted)
    try:
        adapter = pydantic.TypeAdapter[object](cast("type[object]", wanted))
        schema = _without_titles(adapter.json_schema())
    except (pydantic.errors.PydanticUserError, TypeError, NameError) as error:
        raise CallerError(f"`output_type` {undescribed(wanted, error)}") from error
    name = getattr(wanted, "__name__", "answer")
    if "$ref" in schema:  # a recursive model: providers want the object itself at the root
        definitions = cast("dict[str, dict[str, object]]", schema["$defs"])
        schema = {**definitions[str(schema["$ref"]).rpartition("/")[2]], "$defs": definitions}
    if schema.get("type") == "object":
        return OutputType(_output_schema(schema, name=name), adapter.validate_json, partial(_value_so_far, wanted))
    definitions = schema.pop("$defs", None)
    wrapped: dict[str, object] = {
        "type": "object",
        "properties": {VALUE_KEY: schema},
        "required": [VALUE_KEY],
        "additionalProperties": False,
    }
    if definitions:
        wrapped["$defs"] = definitions
    return OutputType(
        _output_schema(wrapped, name=name),
        lambda text: adapter.validate_python(msgspec.json.decode(text)[VALUE_KEY]),
        partial(_value_so_far, wanted, key=VALUE_KEY),
    )


def _from_schema(schema: Mapping[str, object]) -> OutputType:
    try:
        fault = fault_of_schema(exact_json(schema))
    except NotExact as error:
        fault = str(error)
    if fault:
        raise CallerError(f"the output schema is no usable JSON Schema: {fault}")
    name = schema.get("title")
    return OutputType(
        _output_schema(dict(schema), name=name if isinstance(name, str) else "answer"),
        msgspec.json.decode,
        partial(_value_so_far, schema),
        checks=False,
    )


def problems_of(error: BaseException) -> tuple[str, ...]:
    """The errors of a refused value: for each a path and a sentence. They never contain the value, which the model has.

    Only a ValueError or an AssertionError of a validator or a check is meant for the model, as in pydantic. Of any other
    exception the model reads the class, and the log has the rest.
    """
    import pydantic

    if isinstance(error, ValueError | AssertionError) and not isinstance(error, pydantic.ValidationError):
        return (_shown(str(error) or type(error).__name__),)
    if not isinstance(error, pydantic.ValidationError):
        _log.warning("a check of the answer failed: %s", traceback_of(error))
        return (f"the check of the answer failed ({class_name(error)})",)
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [_shown(f"`{'.'.join(['$', *map(str, one['loc'])])}`: {one['msg']}") for one in found[:MAX_PROBLEMS]]
    return (*told, f"and {len(found) - MAX_PROBLEMS} more") if len(found) > MAX_PROBLEMS else tuple(told)


def _shown(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= PROBLEM_CHARACTERS else text[:PROBLEM_CHARACTERS] + " ..."


def _output_schema(schema: dict[str, object], *, name: str) -> OutputSchema:
    safe = "".join(c if c.isascii() and (c.isalnum() or c in "_-") else "_" for c in name)[:64] or "answer"
    try:
        return OutputSchema(schema=exact_json(schema), name=safe, strict=is_strict_ready(schema))
    except NotExact as error:
        raise CallerError(f"`output_type`: its schema holds what JSON cannot carry: {error}") from error


# What a provider's strict mode knows. A schema with anything else is sent without strict mode. Source: OpenAI, "Structured
# outputs", supported schemas; `oneOf` refused: livekit/agents#5302, openai-agents-python#1884.
STRICT_KEYS = frozenset(
    """type properties required additionalProperties items enum const description anyOf $ref $defs pattern format
    multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minItems maxItems""".split()
)


def is_strict_ready(schema: Mapping[str, object]) -> bool:
    """Whether a provider's strict mode accepts it: an object at the root, every object closed, every property required, nothing
    but STRICT_KEYS."""
    return schema.get("type") == "object" and _is_closed(schema)


def _is_closed(node: object) -> bool:
    if not isinstance(node, Mapping):
        return False
    rules = cast("Mapping[str, object]", node)
    if not rules or not rules.keys() <= STRICT_KEYS:
        return False
    properties = cast("Mapping[str, object]", rules.get("properties", {}))
    if rules.get("type") == "object" or properties:
        required = cast("list[str]", rules.get("required", []))
        if rules.get("additionalProperties") is not False or set(properties) != set(required):
            return False
    inner = [*properties.values(), *cast("Mapping[str, object]", rules.get("$defs", {})).values()]
    inner += cast("list[object]", rules.get("anyOf", []))
    if rules.get("type") == "array":
        inner.append(rules.get("items"))
    return all(_is_closed(one) for one in inner)


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """pydantic's automatic `title`s cost tokens and say nothing. A property called `title` stays. A default that JSON cannot
    write (`nan`) is left out: the function still uses it for a missing argument."""
    return {
        key: _tidied(value, names=key in ("properties", "$defs", "patternProperties"))
        for key, value in schema.items()
        if key != "title" and not (key == "default" and place_without_word(value))
    }


def _tidied(value: object, *, names: bool) -> object:
    match value:
        case dict():
            node = cast("dict[str, object]", value)
            if names:
                return {key: _tidied(inner, names=False) for key, inner in node.items()}
            return _without_titles(node)
        case list():
            return [_tidied(item, names=False) for item in cast("list[object]", value)]
        case _:
            return value


# The type that an answer must have, with the user's own checks of it.


THREAD = "turnwise-output-check"


def read_output(wanted: object, *, checks: Sequence[OutputCheck]) -> OutputType | None:
    """An agent's output type. Raises CallerError for a type that cannot be described, and for checks without a type."""
    output = None if wanted is None else read_output_type(wanted)
    return _with_checks(output, checks)


def output_over(output: OutputType | None, options: Mapping[str, Any]) -> OutputType | None:
    """The output of a resumed run: its own option, or else its agent's `output`. The agent's checks belong to the agent's
    type."""
    if "output_type" in options:
        return _with_checks(read_output_type(options["output_type"]), options.get("output_checks", ()))
    return _with_checks(output, options["output_checks"]) if "output_checks" in options else output


def _with_checks(output: OutputType | None, checks: Sequence[OutputCheck]) -> OutputType | None:
    if output is None:
        if checks:
            raise CallerError(
                "`output_checks` look at the value of an `output_type`, and there is none: give one. If the answer is a text, "
                'give `output_type=Annotated[str, "the answer"]`'
            )
        return None
    return msgspec.structs.replace(output, further=tuple(checks), checks=output.checks or bool(checks))


def checker_of(output: OutputType | None, *, run: RunAtHand, clock: Clock, timeout_s: float) -> OutputChecker | None:
    """Checks an answer: first by the type, then by the user's checks, one after the other, up to the first that refuses it. A
    check that takes longer than `timeout_s` refuses it."""
    if output is None or not output.further:
        return None if output is None else output.problems

    async def check(text: str) -> Sequence[str]:
        if problems := output.problems(text):
            return problems
        for one in output.further:
            given = (context_of(run), output.parse(text)) if wants_context(one, beside=1) else (output.parse(text),)
            name = name_of(one)
            try:
                said = await said_by(
                    one, *given, clock=clock, timeout_s=timeout_s, name=f"output check {name}", thread=THREAD
                )
            except Overdue:
                return (f"the check `{name}` did not answer within {timeout_s:g} s",)
            if isinstance(said.error, ValueError | AssertionError) and not str(said.error):
                return (f"the check `{name}` refuses it",)
            if said.error is not None:
                return problems_of(said.error)
        return ()

    return check


# The allowed names of tools: every provider accepts them.


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def check_tool_name(name: str) -> None:
    """Raise BadTool for a name that a provider would refuse."""
    if not NAME.fullmatch(name):
        raise BadTool(
            f"`{name}` is no name for a tool: letters, digits, `_` and `-`, at most 64, no digit first; "
            "give one with @tool(name=...)"
        )
