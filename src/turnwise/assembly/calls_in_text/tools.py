"""The tools on offer, as the readers need them: their names, and what types their parameters have."""

from collections.abc import Iterable

import msgspec

from turnwise.vocab import ToolSpec


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


class OfferedTools:
    """The tools of one request. Schemas are read when a call needs them."""

    __slots__ = ("_properties", "_specs")

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._properties: dict[str, dict[str, object]] = {}

    @property
    def names(self) -> Iterable[str]:
        return self._specs.keys()

    def has(self, name: str) -> bool:
        return name in self._specs

    def may_begin(self, start: str) -> bool:
        """Whether a name on offer begins like this."""
        return any(name.startswith(start) for name in self._specs)

    def types_of(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that the tool's schema allows for the parameter; none where it does not say."""
        if name not in self._properties:
            self._properties[name] = self._read_properties(name)
        return _types(self._properties[name].get(parameter), depth=0)

    def _read_properties(self, name: str) -> dict[str, object]:
        spec = self._specs[name]
        if spec.free_form:
            return {"input": {"type": "string"}}
        try:
            raw = msgspec.json.decode(spec.parameters, type=_Schema).properties
            return {key: msgspec.json.decode(value) for key, value in raw.items()}
        except msgspec.MsgspecError:
            return {}


def _types(schema: object, *, depth: int) -> frozenset[str]:
    """The types that a schema names, those of its alternatives included; none where any may be meant."""
    if not isinstance(schema, dict) or depth > 4:
        return frozenset()
    given: object = schema.get("type")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(given, str):
        return frozenset([given])
    if isinstance(given, list):
        return frozenset([one for one in given if isinstance(one, str)])  # pyright: ignore[reportUnknownVariableType]
    values: object = schema.get("enum")  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if isinstance(values, list) and values and all(isinstance(one, str) for one in values):  # pyright: ignore[reportUnknownVariableType]
        return frozenset(["string"])
    found: set[str] = set()
    for word in ("anyOf", "oneOf"):
        options: object = schema.get(word)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(options, list):
            continue
        for option in options:  # pyright: ignore[reportUnknownVariableType]
            types = _types(option, depth=depth + 1)  # pyright: ignore[reportUnknownArgumentType]
            if not types:
                return frozenset()
            found |= types
    return frozenset(found)
