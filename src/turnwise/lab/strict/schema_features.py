"""What servers refuse in a JSON Schema, feature by feature: `dialects.toml` names them."""

from collections.abc import Callable, Iterator
from typing import Literal

from turnwise.lab.raw import Raw, dump, rows, table, text

SchemaFeature = Literal[
    "not-of-type",
    "keyword",
    "lacking",
    "above",
    "without",
    "beside",
    "foreign-reference",
    "clash-with-reference",
    "no-object",
    "undeclared",
]
MAPS = ("properties", "$defs", "definitions", "patternProperties")  # keyword -> schemas by name
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "not")
MOST_STEPS = 64  # of references that lead on to others


def subschemas(schema: Raw, *, path: str = "") -> Iterator[tuple[str, Raw]]:
    """The schema and all in it, each with its path as Moonshot's validator words it: `root`, `properties.a.items`."""
    waiting: list[tuple[str, Raw]] = [(path, schema)]
    while waiting:
        where, at = waiting.pop()
        yield where or "root", at
        fields = table(at)
        inner = [(f"{key}.{name}", one) for key in MAPS for name, one in table(fields.get(key)).items()]
        inner += [(key, one) for key in LISTS for one in rows(fields.get(key))]
        inner += [(key, fields[key]) for key in SINGLE if key in fields]
        waiting += [(f"{where}.{step}" if where else step, one) for step, one in reversed(inner)]


def not_of_type(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """Its `type` is none of `keywords`."""
    del root
    found = table(schema).get("type")
    return None if text(found) in keywords else text(found) or dump(found).decode()


def keyword(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It has one of `keywords`."""
    del root
    return next((key for key in keywords if key in table(schema)), None)


def lacking(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It lacks one of `keywords`."""
    del root
    return next((key for key in keywords if key not in table(schema)), None)


def above(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """A number under one of `keywords` is above the first of them."""
    del root
    fields = table(schema)
    numbers = {key: fields.get(key) for key in keywords[1:]}
    return next((key for key, one in numbers.items() if isinstance(one, int) and one > int(keywords[0])), None)


def without(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It has the first of `keywords` and lacks another of them."""
    del root
    fields = table(schema)
    return next((key for key in keywords[1:] if key not in fields), None) if keywords[0] in fields else None


def beside(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It has all of `keywords`."""
    del root
    return keywords[-1] if all(key in table(schema) for key in keywords) else None


def foreign_reference(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """Its `$ref` begins with none of `keywords`, and is not the root itself."""
    del root
    target = table(schema).get("$ref")
    return target if isinstance(target, str) and target != "#" and not target.startswith(keywords) else None


def clash_with_reference(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """Beside its `$ref` stands a keyword that the target has, too."""
    del keywords
    fields = table(schema)
    target = table(schema)
    for _ in range(MOST_STEPS):
        step = target.get("$ref")
        if not isinstance(step, str) or not step.startswith("#/"):
            break
        found: Raw = root
        for key in step.removeprefix("#/").split("/"):
            found = table(found).get(key)
        target = table(found)
        clash = next((key for key in fields if key != "$ref" and key in target), None)
        if clash is not None:
            return clash
    return None


def no_object(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """A property's schema, or `items`, is no object: `true`, or a list of positions."""
    del root, keywords
    fields = table(schema)
    found = next((name for name, one in table(fields.get("properties")).items() if not isinstance(one, dict)), None)
    return found if found is not None else "items" if not isinstance(fields.get("items", {}), dict) else None


def undeclared(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """`required` names what `properties` does not have."""
    del root, keywords
    fields = table(schema)
    known = table(fields.get("properties"))
    return next((name for name in rows(fields.get("required")) if isinstance(name, str) and name not in known), None)


SCHEMA_FEATURES: dict[SchemaFeature, Callable[[Raw, Raw, tuple[str, ...]], str | None]] = {
    "not-of-type": not_of_type,
    "keyword": keyword,
    "lacking": lacking,
    "without": without,
    "beside": beside,
    "above": above,
    "foreign-reference": foreign_reference,
    "clash-with-reference": clash_with_reference,
    "no-object": no_object,
    "undeclared": undeclared,
}
