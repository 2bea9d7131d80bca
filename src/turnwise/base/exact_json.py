"""JSON that says what a caller's value says. msgspec writes `null` for `nan` and the infinities, as JSON has no word for them."""

import math
from typing import cast

import msgspec


class NotExact(ValueError):
    """JSON cannot carry the value; the message names the place."""


def exact_json(value: object) -> str:
    """The value as JSON. Raises NotExact for values that JSON cannot carry: NaN, infinity, and whatever msgspec refuses."""
    try:
        written = msgspec.json.encode(value)
        if b"null" in written and (place := place_without_word(msgspec.to_builtins(value))):
            raise NotExact(f"{place}, and JSON has no word for that")
    except NotExact:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise NotExact(str(error)) from error
    return written.decode()


def place_without_word(plain: object) -> str:
    """The first place at which a plain value holds NaN or infinity: "`x[1].y` is nan"; empty if there is no such place."""
    todo: list[tuple[str, object]] = [("", plain)]
    while todo:
        path, value = todo.pop()
        match value:
            case float() if not math.isfinite(value):
                return f"`{path}` is {value}" if path else f"it is {value}"
            case dict():
                fields = cast("dict[object, object]", value)
                todo += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(fields.items())]
            case list() | tuple():
                items = cast("list[object]", value)
                todo += [(f"{path}[{at}]", items[at]) for at in range(len(items) - 1, -1, -1)]
            case _:
                pass
    return ""
