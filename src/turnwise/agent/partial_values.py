"""An answer's value while it arrives: the JSON so far, read leniently and put into the output type without its checks.

What has not arrived is a field's default, or None. A number or a word stands there once it is whole, a text as far as it has
come. Such values are only shown: a run's result is made of the whole answer, and checked.
"""

import dataclasses
import itertools
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, cast, get_args, get_origin

import typing_extensions

from turnwise.running.watcher_events import AttemptDiscarded, FrameSeen, RequestFinished, RequestStarted, StepStarted
from turnwise.turn.events import Purpose
from turnwise.vocab import TextDelta, calls_of, text_of

if TYPE_CHECKING:
    import pydantic

NOTHING: Final = object()
"""No value yet: nothing has arrived that the type could hold."""

READ_EACH = 2_048  # characters: up to here each piece makes a value
GROWTH = 10  # beyond, the text grows by a tenth between two values: all readings together are eleven times the text
COLLECTIONS: dict[object, Callable[[list[object]], object]] = {
    **{kind: kind for kind in (list, tuple, set, frozenset)},
    Sequence: list,
    Iterable: list,
}
NOT_OF_THE_ANSWER = frozenset[Purpose]({"compact", "title", "child"})


class AnswerSoFar:
    """The text of the answer as the events tell it. A new step and a discarded attempt begin it again; the rest of a cut text is
    appended."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = self._read_at = 0
        self._before: list[str] = []  # where the request began
        self._counts = self._called = False

    def receive(self, event: object) -> bool:
        """Whether there is enough more of it to look again."""
        match event:
            case StepStarted():
                self._begin([])
            case RequestStarted(purpose=purpose, retry_of=retry_of):
                continues = "continue" in (purpose, retry_of)
                self._counts = NOT_OF_THE_ANSWER.isdisjoint((purpose, retry_of)) and not (continues and self._called)
                self._begin(self._pieces if continues else [])
            case FrameSeen(frame=TextDelta(text=text)) if self._counts and text:
                self._pieces.append(text)
                self._length += len(text)
                return self._length >= self._read_at
            case RequestFinished(response=response) if self._counts and response is not None:
                self._called = bool(calls_of(response.message))
                if not self._before and (said := text_of(response.message)) != self.text():
                    self._begin([said])  # its faults are mended, or it came in one piece
                    return bool(said)
            case AttemptDiscarded():
                self._begin(self._before)
            case _:
                pass
        return False

    def text(self) -> str:
        whole = "".join(self._pieces)
        self._pieces = [whole]
        self._read_at = self._length + (1 if self._length < READ_EACH else self._length // GROWTH)
        return whole

    def _begin(self, pieces: list[str]) -> None:
        self._before, self._pieces = list(pieces), list(pieces)
        self._length, self._read_at = sum(map(len, pieces)), 0


async def values_so_far(events: AsyncIterator[object], *, read: Callable[[str], object]) -> AsyncGenerator[Any]:
    """Each value that differs from the one before."""
    answer, last = AnswerSoFar(), NOTHING
    async for event in events:
        if answer.receive(event) and (value := read(answer.text())) is not NOTHING and value != last:
            last = value
            yield value


def value_of(kind: object, text: str, *, key: str | None = None) -> object:
    """The value of this type (a JSON Schema: plain data) that the first part of its JSON makes. `key`: the type's value stands
    under it. Never raises: NOTHING if it makes none."""
    import pydantic_core

    try:
        begun = _without_last_number(text)
        data = pydantic_core.from_json(begun, allow_partial="trailing-strings")
        if isinstance(kind, Mapping):
            return data
        if data != pydantic_core.from_json(begun, allow_partial=True):
            data = _marked(data)
        return _grown(kind, data if key is None else data[key])
    except Exception:  # noqa: BLE001 (no JSON, or code of the user's type that cannot do with less)
        return NOTHING


class HalfText(str):
    """The text in which the JSON breaks off."""


def _marked(data: Any) -> Any:
    """The data with its last value as a HalfText."""
    if isinstance(data, str):
        return HalfText(data)
    at: Any = next(reversed(cast("dict[str, object]", data))) if isinstance(data, dict) else -1
    data[at] = _marked(data[at])
    return cast("Any", data)


def _without_last_number(text: str) -> str:
    """The text without digits at its end, which may be half of a number."""
    before = text.rstrip("0123456789+-.eE")
    return before if before[-1:] in (":", ",", "[", " ", "\n", "\t", "\r") else text


def _grown(kind: Any, data: Any) -> object:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _grown(inner[0], data)
    if (meant := getattr(kind, "__value__", None) or getattr(kind, "__supertype__", None)) is not None:
        return _grown(meant, data)  # `type Name = ...` and `NewType`
    if origin in (Union, types.UnionType):
        return _of_union(inner, data)
    if _is_root_model(kind):
        root = _grown(kind.model_fields["root"].annotation, data)
        return NOTHING if root is NOTHING else kind.model_construct(root)
    if isinstance(data, HalfText):
        return str(data) if kind in (str, Any, object) else NOTHING  # half a date may be another date
    if isinstance(data, dict):
        fields = cast("dict[str, object]", data)
        if origin is dict and len(inner) == 2:
            return {name: value for name, one in fields.items() if (value := _grown(inner[1], one)) is not NOTHING}
        if (known := _fields_of(kind)) is not None:
            return _made(kind, known, fields)
    if isinstance(data, list) and origin in COLLECTIONS and inner:
        items = cast("list[object]", data)
        each = inner if origin is tuple and inner[-1] is not ... else itertools.repeat(inner[0])
        values = [value for one, item in zip(each, items, strict=False) if (value := _grown(one, item)) is not NOTHING]
        return COLLECTIONS[origin](values)
    return _validated(kind, cast("object", data))


def _of_union(kinds: tuple[object, ...], data: object) -> object:
    """Of several that could hold it, the one that has most of its fields: tags come early."""
    values = [value for kind in kinds if (value := _grown(kind, data)) is not NOTHING]
    if not isinstance(data, dict) or not values:
        return values[0] if values else NOTHING
    return max(values, key=lambda value: _held(value, cast("dict[str, object]", data)))


def _held(value: object, data: dict[str, object]) -> int:
    names = _fields_of(type(value))
    if names is None:
        return 0
    return sum(key in data and getattr(value, name, None) is not None for name, (key, _, _) in names.items())


Field = tuple[str, object, Callable[[], object]]
"""Its name in the JSON, its type, and its value where it has not arrived."""


def _none() -> None:
    return None


@lru_cache(maxsize=256)
def _fields_of(kind: Any) -> dict[str, Field] | None:
    """The fields of a class that the JSON has as an object; None for any other type."""
    import pydantic

    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel) and not _is_root_model(kind):
        return {name: _field_of_model(name, field) for name, field in kind.model_fields.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return {field.name: (field.name, hints[field.name], _default_of(field)) for field in dataclasses.fields(kind)}
    if _is_typed_dict(cast("object", kind)):
        hints = typing.get_type_hints(cast("type", kind))  # without `Required` and `NotRequired`
        return {name: (name, hint, _none) for name, hint in hints.items()}
    return None


def _field_of_model(name: str, field: "pydantic.fields.FieldInfo") -> Field:
    alias = field.validation_alias
    key = alias if isinstance(alias, str) else name
    if field.is_required():
        return key, field.annotation, _none
    return key, field.annotation, lambda: field.get_default(call_default_factory=True, validated_data={})


def _default_of(field: "dataclasses.Field[Any]") -> Callable[[], object]:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return _none if field.default is dataclasses.MISSING else lambda: field.default


def _made(kind: Any, known: dict[str, Field], data: dict[str, object]) -> object:
    arrived = {
        name: value
        for name, (key, hint, _) in known.items()
        if key in data and (value := _grown(hint, data[key])) is not NOTHING
    }
    if _is_typed_dict(kind):
        return arrived
    values = {name: arrived[name] if name in arrived else missing() for name, (_, _, missing) in known.items()}
    if not dataclasses.is_dataclass(kind):
        return kind.model_construct(_fields_set=set(arrived), **values)
    made = object.__new__(cast("type[object]", kind))
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _is_typed_dict(kind: object) -> bool:
    return typing_extensions.is_typeddict(cast("type", kind))


def _is_root_model(kind: object) -> bool:
    import pydantic

    return isinstance(kind, type) and issubclass(kind, pydantic.RootModel)


@lru_cache(maxsize=256)
def _adapter(kind: Any) -> "pydantic.TypeAdapter[object]":
    import pydantic

    return pydantic.TypeAdapter(kind)


def _validated(kind: object, data: object) -> object:
    import pydantic
    import pydantic_core

    try:
        return _adapter(kind).validate_json(pydantic_core.to_json(data))
    except pydantic.ValidationError:
        return NOTHING
