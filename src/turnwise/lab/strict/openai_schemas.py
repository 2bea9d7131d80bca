"""What api.openai.com checks in the names and schemas of tools and of structured output, in Chat Completions and Responses."""

import re
from collections.abc import Iterator

from turnwise.lab.raw import Raw, dump, rows, table, text
from turnwise.lab.strict.verdicts import Rejected

NAME = re.compile(r"[a-zA-Z0-9_-]+")
NAME_CHARACTERS = 64


def check_name(name: Raw, *, where: str) -> None:
    """A tool's or an output's name. Reported: swagger-mcp#13, llama_index#16093, mcp-use#90."""
    if not isinstance(name, str):
        raise Rejected(f"Missing required parameter: '{where}'.", param=where, code="missing_required_parameter")
    check_length(name, where=where, limit=NAME_CHARACTERS)
    if not NAME.fullmatch(name):
        raise Rejected(
            f"Invalid '{where}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'.",
            param=where,
            code="invalid_value",
        )


def check_length(value: str, *, where: str, limit: int) -> None:
    """Reported: opencode#12653 (40 in Chat), fastllm#45 (64 in Responses, with the code)."""
    if len(value) > limit:
        raise Rejected(
            f"Invalid '{where}': string too long. Expected a string with maximum length {limit}, "
            f"but got a string with length {len(value)} instead.",
            param=where,
            code="string_above_max_length",
        )


def check_parameters(parameters: Raw, *, name: str, strict: bool, where: str) -> None:
    """A function's parameters. Reported: composio#1829, trae-agent#173."""
    problem = ""
    if parameters is not None:
        if not isinstance(parameters, dict):
            problem = f"{dump(parameters).decode()} is not of type 'object'."
        elif parameters.get("type") != "object":
            found = text(parameters.get("type")) or "None"
            problem = f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
    if strict and not problem:
        problem = next(not_strict(parameters), "")
    if problem:
        raise Rejected(
            f"Invalid schema for function '{name}': {problem}", param=where, code="invalid_function_parameters"
        )


def check_output(described: dict[str, Raw], *, where: str, param: str) -> None:
    """`json_schema` of a Chat request's `response_format`, or a Responses request's `text.format`."""
    check_name(described.get("name"), where=f"{where}.name")
    schema = described.get("schema")
    if not isinstance(schema, dict):
        raise Rejected(
            f"Missing required parameter: '{where}.schema'.", param=f"{where}.schema", code="missing_required_parameter"
        )
    problem = next(not_strict(schema), "") if described.get("strict") is True else ""
    if problem:
        raise Rejected(f"Invalid schema for response_format '{text(described.get('name'))}': {problem}", param=param)


def not_strict(schema: Raw, *, context: tuple[str, ...] = ()) -> Iterator[str]:
    """What strict mode refuses, each as the API words it. Source: OpenAI docs, "Structured outputs", supported schemas."""
    fields = table(schema)
    shown = f"In context={context!r}, "
    if fields.get("type") == "object":
        if fields.get("additionalProperties") is not False:
            yield f"{shown}'additionalProperties' is required to be supplied and to be false."
        required = [name for name in rows(fields.get("required")) if isinstance(name, str)]
        missing = [name for name in table(fields.get("properties")) if name not in required]
        if missing:
            yield (
                f"{shown}'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{missing[0]}'."
            )
    for key in ("properties", "$defs"):
        for name, inner in table(fields.get(key)).items():
            yield from not_strict(inner, context=(*context, key, name))
    yield from not_strict(fields["items"], context=(*context, "items")) if "items" in fields else ()
    for place, inner in enumerate(rows(fields.get("anyOf"))):
        yield from not_strict(inner, context=(*context, "anyOf", str(place)))
