"""All texts in a value made of structs: seen, or changed. Words of a closed list (`Literal`, enums, tags) are none."""

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar, cast, get_args, get_type_hints

import msgspec

AnyValue = TypeVar("AnyValue")


class TextChange(msgspec.Struct, frozen=True):
    """What becomes of each text, and of bytes."""

    text: Callable[[str], str]
    content: Callable[[bytes], bytes]


def with_texts(value: AnyValue, change: TextChange) -> AnyValue:
    """The value with each of its texts changed; the very same one if nothing changes."""
    return cast(AnyValue, _changed(value, change, is_text=True))


def texts_in(value: object) -> list[str]:
    found: list[str] = []

    def see(text: str) -> str:
        found.append(text)
        return text

    def see_bytes(content: bytes) -> bytes:
        found.append(content.decode("utf-8", "replace"))
        return content

    with_texts(value, TextChange(see, see_bytes))
    return found


def _changed(value: object, change: TextChange, *, is_text: bool) -> object:
    if type(value) is str:
        return change.text(value) if is_text else value
    if type(value) is bytes:
        return change.content(value)
    if isinstance(value, msgspec.Struct):
        return _changed_struct(value, change)
    if isinstance(value, tuple | list | frozenset):
        items = cast("list[object]", [*value])
        new = [_changed(one, change, is_text=is_text) for one in items]
        return cast(object, value) if _same(items, new) else type(cast("list[object]", value))(new)
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        keys = [_changed(one, change, is_text=is_text) for one in pairs]
        values = [_changed(one, change, is_text=is_text) for one in pairs.values()]
        same = _same([*pairs], keys) and _same([*pairs.values()], values)
        return pairs if same else dict(zip(keys, values, strict=True))
    return value


def _changed_struct(value: msgspec.Struct, change: TextChange) -> msgspec.Struct:
    new: dict[str, object] = {}
    for name, holds_text in _text_fields(type(value)).items():
        old: object = getattr(value, name)
        if (changed := _changed(old, change, is_text=holds_text)) is not old:
            new[name] = changed
    return msgspec.structs.replace(value, **new) if new else value


def _same(old: list[object], new: list[object]) -> bool:
    return all(one is other for one, other in zip(old, new, strict=True))


@lru_cache(maxsize=512)
def _text_fields(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Its fields, each with whether a text in it is anybody's words."""
    hints = get_type_hints(kind)
    return {name: _holds_text(hints[name]) for name in kind.__struct_fields__}


def _holds_text(kind: object) -> bool:
    return kind is str or any(_holds_text(one) for one in get_args(kind))
