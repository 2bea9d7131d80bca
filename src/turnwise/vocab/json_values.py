"""Decoded JSON that a stranger wrote, told apart by its types."""

from collections.abc import Iterable, Mapping
from typing import TypeGuard, TypeVar

V = TypeVar("V")


def without(fields: Mapping[str, V], keys: Iterable[str]) -> dict[str, V]:
    """The fields but those of these keys."""
    left_out = frozenset(keys)
    return {key: value for key, value in fields.items() if key not in left_out}


def without_nones(fields: Mapping[str, V | None]) -> dict[str, V]:
    """The fields that have a value."""
    return {key: value for key, value in fields.items() if value is not None}


def is_json_object(value: object) -> TypeGuard[dict[str, object]]:
    return isinstance(value, dict)


def is_json_array(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def object_or_empty(value: object) -> dict[str, object]:
    """The object, or an empty one for anything else."""
    return value if is_json_object(value) else {}


def array_or_empty(value: object) -> list[object]:
    """The array, or an empty one for anything else."""
    return value if is_json_array(value) else []


def objects_in(value: object) -> list[dict[str, object]]:
    """The objects of an array; an object alone stands for an array of it."""
    return [value] if is_json_object(value) else [one for one in array_or_empty(value) if is_json_object(one)]
