"""Every field of the documented requests, as the types of the vendors' own Python packages name them, each set once.

A variant is a body with one field set, and the same body without it: what was added has to make itself felt.
"""

import base64
import collections.abc
import copy
import datetime
import enum
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, NotRequired, Required, Union, get_args, get_origin

import pydantic
import typing_extensions

Pair = tuple[Any, Any]

FIELDS_OF_LITERALS = -1  # the last word of several: the first is often what is done anyway


class Variant(NamedTuple):
    path: str
    value: Any
    without: Any


def is_typed_dict(kind: Any) -> bool:
    return typing_extensions.is_typeddict(kind)


def is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)


def bare(kind: Any) -> Any:
    """The type without what stands around it."""
    while get_origin(kind) in (Required, NotRequired, typing.Annotated):
        kind = get_args(kind)[0]
    while isinstance(kind, typing_extensions.TypeAliasType):
        kind = kind.__value__
    return kind


def arms(kind: Any) -> list[Any]:
    """The types of a union, without null; any other type alone."""
    kind = bare(kind)
    if get_origin(kind) in (Union, types.UnionType):
        return [arm for one in get_args(kind) for arm in arms(one) if arm is not type(None)]
    return [kind]


def fields_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Name on the wire -> type, and whether it has to be there."""
    if is_model(kind):
        return {
            field.alias or name: (field.annotation, field.is_required()) for name, field in kind.model_fields.items()
        }
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    return {name: (hint, is_required(hint, name in kind.__required_keys__)) for name, hint in hints.items()}


def is_required(hint: Any, otherwise: bool) -> bool:
    """The packages write their types as text, in which Python does not look for `Required`."""
    origin = get_origin(hint)
    return otherwise if origin not in (Required, NotRequired) else origin is Required


def item_of(kind: Any) -> Any:
    """The type of a list's items; None for what is no list."""
    origin = get_origin(kind)
    if origin in (list, tuple, collections.abc.Iterable, collections.abc.Sequence):
        return get_args(kind)[0]
    return None


def smallest(kind: Any, seen: tuple[Any, ...] = ()) -> Any:
    """A value of the type with nothing in it that could be left out."""
    kind = arms(kind)[0]
    if kind in seen:
        return {}
    if (item := item_of(kind)) is not None:
        return [smallest(item, seen)]
    if is_typed_dict(kind) or is_model(kind):
        fields = fields_of(kind)
        return copy.deepcopy(LEAST.get(kind.__name__)) or {
            name: value_at(name, hint, (*seen, kind)) for name, (hint, required) in fields.items() if required
        }
    return plain_value(kind)


def value_at(name: str, kind: Any, seen: tuple[Any, ...] = ()) -> Any:
    """The same for a field of this name: data is base64, and an address is one."""
    value = smallest(kind, seen)
    return VALUES.get(name, value) if value == "x" else value


# google-genai marks nothing as required: what its API insists on.
LEAST: dict[str, dict[str, Any]] = {
    "FunctionCall": {"name": "f"},
    "FunctionResponse": {"name": "f", "response": {"output": "1"}},
    "FunctionDeclaration": {"name": "f"},
    "Blob": {"mimeType": "image/png", "data": "eA=="},
    "FileData": {"fileUri": "https://example.com/x.pdf"},
}
ABOUT_PART = {"thought", "thoughtSignature", "partMetadata", "mediaResolution", "videoMetadata", "mediaProcessing"}

VALUES = {
    "data": "eA==",
    "file_data": "data:application/pdf;base64,eA==",
    "url": "https://example.com/x.png",
    "image_url": "https://example.com/x.png",
    "file_url": "https://example.com/x.pdf",
    "fileUri": "https://example.com/x.pdf",
    "mimeType": "image/png",
    "arguments": "{}",
}
NOTHING = ({}, [], [{}])


def plain_value(kind: Any) -> Any:
    origin = get_origin(kind)
    if origin is Literal:
        return get_args(kind)[FIELDS_OF_LITERALS]
    if origin in (dict, collections.abc.Mapping) or kind in (dict, object, Any):
        return {"type": "object"}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[FIELDS_OF_LITERALS].value
    if kind in (bytes,):
        return base64.b64encode(b"x").decode()
    if isinstance(kind, type) and issubclass(kind, datetime.datetime | datetime.timedelta):
        return "2026-01-01T00:00:00Z"
    return {str: "x", int: 7, float: 0.7, bool: True}.get(kind, "x")


def variants(kind: Any, path: str = "", seen: frozenset[Any] = frozenset()) -> Iterator[Variant]:
    """Each field of the type, and of what it is made of, set once. A type is gone into once on each way down."""
    for arm in arms(kind):
        if (item := item_of(arm)) is not None:
            for found in variants(item, f"{path}[]", seen):
                yield Variant(found.path, [found.value], [found.without])
        elif (is_typed_dict(arm) or is_model(arm)) and arm not in seen:
            yield from _of_object(arm, path, seen | {arm})


def _of_object(kind: Any, path: str, seen: frozenset[Any]) -> Iterator[Variant]:
    least = smallest(kind)
    if kind.__name__ == "Part":  # a part is one thing, and what is said about it
        for name in ABOUT_PART:
            value = smallest(fields_of(kind)[name][0])
            yield Variant(f"{path}.{name}", {"text": "x", name: value or {"x": 1}}, {"text": "x"})
    named = f"{path}:{least['type']}" if isinstance(least.get("type"), str) else path
    for name, (hint, required) in fields_of(kind).items():
        where = f"{named}.{name}" if named else name
        without = {key: value for key, value in least.items() if key != name}
        for arm in arms(hint):
            if not required and (value := value_at(name, arm)) not in NOTHING:
                yield Variant(where, {**least, name: value}, least)
        for found in variants(hint, where, seen):
            yield Variant(found.path, {**without, name: found.value}, {**without, name: found.without})
