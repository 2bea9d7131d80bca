"""What a phase, a change or an outcome of a turn leaves out is of the type that its field declares (issue 18: mutants that no
test noticed). `None` in place of an empty tuple is found too late: where somebody trusts the type."""

import importlib
import pkgutil
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

import turnwise.turn


def structs() -> Iterator[type[msgspec.Struct]]:
    for found in pkgutil.iter_modules(turnwise.turn.__path__, "turnwise.turn."):
        for one in vars(importlib.import_module(found.name)).values():
            if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__module__ == found.name:
                yield one


def fits(value: object, kind: Any) -> bool:
    """Whether the value is of the type; what is in a container is not looked at."""
    origin = get_origin(kind)
    if origin is Literal:
        return value in get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in get_args(kind))
    if kind is Any or kind is object:
        return True
    plain = NoneType if kind is None else origin or kind
    return type(value) is plain if plain in (bool, int, float, str, NoneType) else isinstance(value, plain)


def test_every_default_is_of_the_type_that_its_field_declares() -> None:
    """Proves: `False`, an empty tuple and an empty text are what they are declared as, and not something else that is empty."""
    found = list(structs())
    assert len(found) > 100
    wrong: list[str] = []
    for kind in found:
        hints = get_type_hints(kind)
        for field in msgspec.structs.fields(kind):
            if field.required:
                continue
            made = field.default_factory is not msgspec.NODEFAULT
            default = field.default_factory() if made else field.default  # type: ignore[operator]
            if not fits(default, hints[field.name]):
                wrong.append(f"{kind.__module__}.{kind.__name__}.{field.name} = {default!r}")
    assert wrong == []
