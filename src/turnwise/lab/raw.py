"""JSON as it came, for the judge and the reader: neither knows the decoders of `wire/`, so neither can share their mistakes."""

import msgspec

Raw = None | bool | int | float | str | list["Raw"] | dict[str, "Raw"]


def parse(body: bytes | str) -> Raw:
    """Raises msgspec.DecodeError (a ValueError) for what is no JSON."""
    return msgspec.json.decode(body)


def dump(value: object) -> bytes:
    return msgspec.json.encode(value)


def table(value: Raw) -> dict[str, Raw]:
    """The object, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def rows(value: Raw) -> list[Raw]:
    """The array, or an empty one for anything else."""
    return value if isinstance(value, list) else []


def text(value: Raw) -> str:
    return value if isinstance(value, str) else ""


def kind(value: Raw) -> str:
    """The value's type as OpenAI's and Google's error texts name it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "decimal"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def dig(value: Raw, *keys: str) -> Raw:
    """The value under nested keys; None where one is missing."""
    for key in keys:
        value = table(value).get(key)
    return value


def either(value: Raw, *keys: str) -> Raw:
    """The first of `keys` that is there (Google takes camelCase and snake_case)."""
    found = table(value)
    for key in keys:
        if key in found:
            return found[key]
    return None
