"""JSON texts against JSON Schemas: every error at once, in words, values shortened."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

import msgspec

from turnwise.vocab import FinishReason, OutputSchema, Repair
from turnwise.vocab.json_values import is_json_object
from turnwise.vocab.schema_bounds import MAX_BACKTRACKS, Schema, read_schema
from turnwise.vocab.wording import in_ticks

if TYPE_CHECKING:
    import jsonschema_rs

# A model mends what it can overlook; past this many the list only costs tokens.
MAX_ERRORS = 20
# Long enough to recognise a value, short enough that an error never repeats a file.
MAX_SHOWN = 80
# msgspec: "JSON is malformed: trailing comma in object (byte 7)".
_check = msgspec.json.Decoder(msgspec.Raw).decode  # builds nothing
_BYTE = re.compile(r"\(byte (\d+)\)")


def decode_strictly(text: str) -> object:
    """The value that `text` holds. Raises ValueError saying what is wrong with it: no leniency of any kind."""
    try:
        return cast("object", msgspec.json.decode(text))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no character") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def is_whole_json(text: str) -> bool:
    """Whether the text is JSON from its beginning to its end; nothing of it is built."""
    try:
        _check(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True


def fault_position(text: str) -> int | None:
    """The character at which, or right after which, `text` stops being JSON; None where no place can be named."""
    try:
        _check(text)
    except UnicodeEncodeError as error:
        return error.start
    except RecursionError:
        return None
    except msgspec.MsgspecError as error:
        if found := _BYTE.search(str(error)):
            return len(text.encode()[: int(found[1])].decode(errors="ignore"))
    return None


def fault_of_schema(schema: str) -> str | None:
    """Why `schema` cannot be used; None if it can. References to other documents cannot: nothing is fetched."""
    try:
        read_schema(schema)
    except ValueError as error:
        return shorten(str(error).split("\n", 1)[0], limit=400)
    return None


def schema_errors(schema: str, *, value: object) -> tuple[str, ...]:
    """Every way in which `value` misses `schema`, each with path, what was expected and what came; empty if it fits."""
    measured = read_schema(schema)
    cost = measured.cost(value)
    if cost is None or cost.is_too_much:
        return ("`$`: checking it against its schema would take too long; send fewer values, nested less deeply",)
    validator = measured.validator
    # A decoded JSON value is what the validator takes; its stub cannot say so of `object`.
    given = cast("str", value)
    if cost.has_many_errors:
        return _first_error(measured, given=given, schema=schema)
    if cost.reads < MAX_BACKTRACKS and validator.is_valid(given):  # what takes long is done once
        return ()
    errors = list(validator.iter_errors(given))
    shown = [_describe(error, schema=schema) for error in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        shown.append(f"... and {len(errors) - MAX_ERRORS} more")
    return tuple(shown)


def _first_error(measured: Schema, *, given: str, schema: str) -> tuple[str, ...]:
    """For a value that may miss its schema in very many ways: the validator would collect all of them before the first is read.

    One error is all that it builds then, unless the schema has forms to choose from: it collects what each of them misses.
    """
    import jsonschema_rs

    if measured.has_forms:
        if measured.validator.is_valid(given):
            return ()
        return ("`$`: it does not fit its schema; it holds too many values to name the places. Send fewer at once",)
    try:
        measured.validator.validate(given)
    except jsonschema_rs.ValidationError as error:
        return (_describe(error, schema=schema), "... and there may be more")
    return ()


def shorten(text: str, *, limit: int = MAX_SHOWN) -> str:
    """`text` itself, or its beginning and how long it was."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def path_of(steps: Iterable[str | int]) -> str:
    """`$.files[0].name`"""
    return "$" + "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps])


def _describe(error: "jsonschema_rs.ValidationError", *, schema: str) -> str:
    path = shorten(path_of(error.instance_path), limit=200)
    rule = cast("dict[str, object]", error.kind.as_dict())
    got = _show(error.instance)
    match error.kind.name:
        case "required":
            return f"`{path}`: the property `{rule['property']}` is missing, got {got}"
        case "additionalProperties" | "unevaluatedProperties":
            names = _listed(cast("list[str]", rule["unexpected"]))
            known = _properties_at(error.schema_path, schema=schema)
            allowed = f" (allowed: {_listed(known)})" if known else " (none is allowed)" if known is not None else ""
            return f"`{path}`: unexpected: {names}{allowed}"
        case "falseSchema":
            return f"`{path}`: nothing may stand here, got {got}"
        case "type":
            return f"`{path}`: expected {' or '.join(cast('list[str]', rule['types']))}, got {got}"
        case "enum":
            return f"`{path}`: expected one of {_show(rule['options'], limit=200)}, got {got}"
        case "const":
            return f"`{path}`: expected {_show(rule['expected_value'])}, got {got}"
        case "anyOf" | "oneOf":
            return f"`{path}`: {_forms(rule, schema=schema)}, got {got}"
        case "propertyNames":
            inner = cast("jsonschema_rs.ValidationError", rule["error"])
            return f"`{path}`: a property's name {_describe(inner, schema=schema)}"
        case "pattern" if "error" in rule:
            return f"`{path}`: its `pattern` looks around and takes too many steps for this text; send a shorter one, got {got}"
        case name:
            limits = f" ({', '.join([_show(limit) for limit in rule.values()])})" if rule else ""
            return f"`{path}`: breaks `{name}`{limits}, got {got}"


def _listed(names: Iterable[str]) -> str:
    return shorten(in_ticks(names), limit=200)


def _properties_at(steps: Iterable[str | int], *, schema: str) -> list[str] | None:
    """The properties beside the keyword that `steps` lead to; None where other names may be allowed too."""
    node = decode_strictly(schema)
    for step in list(steps)[:-1]:
        match node:
            case dict():
                node = cast("dict[str | int, object]", node).get(step)
            case list() if isinstance(step, int) and step < len(items := cast("list[object]", node)):
                node = items[step]
            case _:
                return None
    if not is_json_object(node) or "patternProperties" in node or "unevaluatedProperties" in node:
        return None
    known = node.get("properties", {})
    return list(known) if is_json_object(known) else None


def _forms(rule: dict[str, object], *, schema: str) -> str:
    """What each form of an anyOf or oneOf missed."""
    forms = cast("list[list[jsonschema_rs.ValidationError]]", rule.get("context") or [])
    missed = "; ".join([_describe(form[0], schema=schema) for form in forms if form])
    return f"fits none of the allowed forms ({shorten(missed, limit=400)})" if missed else "fits more than one form"


def _show(value: object, *, limit: int = MAX_SHOWN) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        text = repr(type(value))
    return shorten(text, limit=limit)


# Structured output: does the answer hold JSON that fits, and what to say if not.


class OutputFits(msgspec.Struct, frozen=True):
    """`json` is the answer's JSON text; `repairs` say if a code fence was taken off."""

    json: str
    repairs: tuple[Repair, ...] = ()


class Misfits(msgspec.Struct, frozen=True):
    """`correction` is the user-role text that asks for a corrected answer."""

    correction: str


# One fence around the whole answer; never one found somewhere inside it, which would be a guess.
_FENCE = re.compile(r"\A\s*```[A-Za-z0-9_-]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)


def judge_output(text: str, *, output: OutputSchema, finish: FinishReason) -> OutputFits | Misfits:
    """Take off one code fence at most, parse strictly, validate."""
    fenced = _FENCE.match(text)
    repairs = (Repair("output_fence", "answer", "took one code fence off the JSON"),) if fenced else ()
    body = (fenced.group(1) if fenced else text).strip()
    try:
        value = decode_strictly(body)
    except ValueError as error:
        return Misfits(_correction([f"it is not valid JSON: {error}"], finish=finish))
    errors = schema_errors(output.schema, value=value)
    return Misfits(_correction(list(errors), finish=finish)) if errors else OutputFits(body, repairs)


def refused_output(problems: Sequence[str]) -> str:
    """The user-role text that asks for another answer than one that fits the schema, but not the type behind it."""
    lines = "\n".join([f"- {problem}" for problem in problems])
    return (
        "Your answer fits the JSON Schema, but it was refused. Answer again with the corrected JSON only, without a code fence "
        f"or any other text:\n{lines}"
    )


def _correction(errors: list[str], *, finish: FinishReason) -> str:
    lines = "\n".join([f"- {error}" for error in errors])
    shorter = " It was cut by the output limit: be shorter." if finish is FinishReason.LENGTH else ""
    return (
        f"Your answer does not fit the JSON Schema that it has to fit.{shorter} Answer again with the corrected JSON only, "
        f"without a code fence or any other text:\n{lines}"
    )
