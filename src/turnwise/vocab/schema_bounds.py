"""JSON Schemas from outside, measured before they are used: how often a schema can have one value checked.

A validator has no bound of its own: `$ref` doubled in `allOf` takes 2^n checks for n levels. So the checks are counted first, as
arithmetic in one pass over the schema: one for each subschema that applies to the value, and for a value inside it those of the
member that costs most. Subschemas that a schema reaches in several ways count each time, however they are reached.
"""

import functools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import msgspec

if TYPE_CHECKING:  # the validator is loaded by the first value that is checked, not by the import of turnwise
    import jsonschema_rs

MAX_SCHEMA_BYTES = 256 * 1024  # the tools of the largest known servers take 30 KiB each
MAX_SUBSCHEMAS = 5_000  # as many properties as OpenAI takes in strict mode
MAX_REFERENCES = 20_000  # from one subschema to another
MAX_LEVELS = 64  # of subschemas that apply to the same value; ordinary schemas have three or four
MAX_CHECKS_OF_A_VALUE = 50_000  # 2 ms; the expression trees of query languages have some hundred
MAX_CHECKS = 10_000_000  # of a whole value: at most about half a second
MAX_CHECKS_FOR_ERRORS = 10_000  # the validator collects all errors at once; each may take 60 us
# A pattern that looks around or back may step back this often, and counts as so many checks: it reads its text anew each time.
MAX_BACKTRACKS = 2_500
BYTES_A_CHECK = 16  # of text that a pattern reads in the time of one check
ENUM_BYTES_A_CHECK = 128
UNEVALUATED_FACTOR = 3  # `unevaluatedProperties` runs what stands beside it again (measured: nests of 10 to 18)
MAX_VALUE_LEVELS = 128
MAX_STEPS = 200_000  # of one measurement: 0.1 s

_LOOKS_AROUND = re.compile(r"\(\?(?:[=!>(&]|<[=!]|P[=>])|\\[1-9gkGK]|[*+?}]\+")
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
# The drafts' own schemas, which the validator knows: they check each value of a schema in some ten ways.
_DRAFT = re.compile(r"https?://json-schema\.org/(?:draft-0[3467]|draft/20(?:19-09|20-12))/schema#?")
_DRAFT_CHECKS = 100
# Which values a word's subschemas check: the same one, one member of an object or array each, or every member.
_WORDS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(["allOf", "anyOf", "oneOf", "not", "if", "then", "else"], ("same", 0)),
    **dict.fromkeys(["dependentSchemas", "dependencies"], ("same", 0)),
    **dict.fromkeys(["properties", "additionalProperties"], ("members", 0)),
    **dict.fromkeys(["patternProperties", "unevaluatedProperties", "propertyNames"], ("further", 0)),
    **dict.fromkeys(["items", "prefixItems", "additionalItems"], ("members", 1)),
    **dict.fromkeys(["contains", "unevaluatedItems"], ("further", 1)),
}
_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies"})
_DYNAMIC = frozenset({"$dynamicRef", "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor"})


class SchemaTooCostly(ValueError):
    """The schema is past a bound; the text says where, which bound, and what to do."""


class Schema:
    """A JSON Schema within the bounds. `checks[n]` is how often one value can be checked that is nested n levels deep, the
    values around it included."""

    __slots__ = ("_grows", "checks", "validator")

    def __init__(self, validator: "jsonschema_rs.Validator", *, checks: tuple[int, ...], grows: bool) -> None:
        self.validator = validator
        self.checks = checks
        self._grows = grows

    def cost(self, value: object) -> int | None:
        """The most checks that `value` can take; None if it is nested more deeply than was counted."""
        levels, units = _extent(value)
        if levels >= len(self.checks) and self._grows:
            return None
        return self.checks[min(levels, len(self.checks) - 1)] * units


class _Measured(msgspec.Struct, frozen=True):
    """`fault` says why the schema cannot be used; `is_costly`: because of a bound."""

    checks: tuple[int, ...] = ()
    grows: bool = False
    fault: str = ""
    is_costly: bool = False


@functools.lru_cache(maxsize=512)
def _measure(schema: str) -> _Measured:
    try:
        checks, grows = _Measure(_decode(schema)).checks()
    except ValueError as error:
        return _Measured(fault=str(error), is_costly=isinstance(error, SchemaTooCostly))
    return _Measured(checks, grows)


@functools.lru_cache(maxsize=512)
def read_schema(schema: str) -> Schema:
    """The schema that `schema` (JSON text) holds. Raises SchemaTooCostly for one past a bound, ValueError for no usable one."""
    measured = _measure(schema)
    if measured.fault:
        raise (SchemaTooCostly if measured.is_costly else ValueError)(measured.fault)
    import jsonschema_rs

    validator = jsonschema_rs.validator_for(
        cast("dict[str, object]", _decode(schema)),
        retriever=_fetch_nothing,
        pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS),
    )
    return Schema(validator, checks=measured.checks, grows=measured.grows)


def cost_fault(schema: str) -> str | None:
    """Which bound the schema is past, and where; None for one that is within them or is no usable schema at all."""
    measured = _measure(schema)
    return measured.fault if measured.is_costly else None


def _decode(schema: str) -> "dict[str, object] | bool":
    if (size := len(schema.encode("utf-8", "surrogatepass"))) > MAX_SCHEMA_BYTES:
        raise SchemaTooCostly(f"it has {size:,} bytes, more than {MAX_SCHEMA_BYTES:,}; make it shorter")
    try:
        root = cast("object", msgspec.json.decode(schema))
    except RecursionError:
        raise SchemaTooCostly("it is nested too deeply; make it flatter") from None
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no character") from None
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    if not isinstance(root, dict | bool):
        raise ValueError("a JSON Schema is an object")
    return cast("dict[str, object] | bool", root)


def _fetch_nothing(uri: str) -> bool:
    # The validator would fetch over the network by default; a pure room has none, and a schema must not reach out.
    raise ValueError(f"refers to `{uri}`, and references to other documents are not fetched")


class _Node:
    """A subschema: `own` checks, the nodes that check the same value, and those that check the values inside it. Of
    `members` at most one checks each inner value, of `further` all may; the pairs are of an object and of an array."""

    __slots__ = ("factor", "further", "levels", "members", "own", "place", "same")

    def __init__(self, place: "_Place") -> None:
        self.place = place
        self.own = 1
        self.factor = 1
        self.levels = 0
        self.same: list[int] = []
        self.members: tuple[list[int], list[int]] = ([], [])
        self.further: tuple[list[int], list[int]] = ([], [])


class _Place(msgspec.Struct, frozen=True):
    """Where a subschema stands: the step that leads to it, from where, and the objects with an `$id` around it."""

    step: str
    outer: "_Place | None"
    bases: "_Bases" = ()

    @property
    def pointer(self) -> str:
        steps: list[str] = []
        place = self
        while place.outer is not None:
            steps.append(place.step.replace("~", "~0").replace("/", "~1"))
            place = place.outer
        return "".join([f"/{step}" for step in reversed(steps)])


_Bases = tuple[tuple[dict[str, object], _Place], ...]


class _Measure:
    """Of one schema, as it was decoded. An object that is reached in several ways is one node."""

    def __init__(self, root: "dict[str, object] | bool") -> None:
        self._root = root
        self._nodes: dict[int, _Node] = {}
        self._left: list[dict[str, object]] = []
        self._named: dict[str, list[tuple[dict[str, object], _Place]]] | None = None
        self._edges = 0

    def checks(self) -> tuple[tuple[int, ...], bool]:
        """By how deeply a value is nested, and whether a deeper one could take more than the last."""
        if not isinstance(self._root, dict):
            return (1,), False
        self._node(self._root, _Place("", None))
        while self._left:
            self._read(self._left.pop())
        order = self._in_order()
        before = self._on_one_value(order)
        counted = [before[id(self._root)]]
        for _ in range(min(MAX_VALUE_LEVELS, max(16, MAX_STEPS // (self._edges + len(order))))):
            now = self._with_inner(order, before)
            if now == before:
                return tuple(counted), False
            before = now
            counted.append(now[id(self._root)])
            if counted[-1] > MAX_CHECKS:
                break
        return tuple(counted), True

    def _node(self, schema: object, place: _Place) -> list[int]:
        if not isinstance(schema, dict):
            return []
        fields = cast("dict[str, object]", schema)
        if id(fields) not in self._nodes:
            if len(self._nodes) >= MAX_SUBSCHEMAS:
                raise SchemaTooCostly(f"it has more than {MAX_SUBSCHEMAS:,} subschemas; make it smaller")
            self._nodes[id(fields)] = _Node(place)
            self._left.append(fields)
        self._count(1)
        return [id(fields)]

    def _count(self, edges: int) -> None:
        self._edges += edges
        if self._edges > MAX_REFERENCES:
            raise SchemaTooCostly(f"it has more than {MAX_REFERENCES:,} uses of subschemas; make it smaller")

    def _read(self, fields: dict[str, object]) -> None:
        node = self._nodes[id(fields)]
        bases = _bases(fields, node.place)
        for word, value in fields.items():
            if word in _DYNAMIC:
                raise ValueError(f"uses `{word}`, whose cost cannot be counted; use `$ref`")
            if word == "$ref" and isinstance(value, str):
                node.own += _DRAFT_CHECKS if _DRAFT.fullmatch(value) else 0
                node.same += self._targets(value, bases)
            if not isinstance(value, dict | list) or (use := _WORDS.get(word)) is None:
                continue
            kind, of = use
            found = node.same if kind == "same" else node.members[of] if kind == "members" else node.further[of]
            outer = _Place(word, node.place, bases)
            for step, inner in _subschemas(cast("object", value), is_map=word in _MAPS):
                found += self._node(inner, _Place(step, outer, bases) if step else outer)
        if "unevaluatedProperties" in fields or "unevaluatedItems" in fields:
            node.factor = UNEVALUATED_FACTOR
        node.own += _own_checks(fields)

    def _targets(self, reference: str, bases: "_Bases") -> list[int]:
        """Everything that the reference could name: if a validator could read it in two ways, both count."""
        uri, _, fragment = reference.partition("#")
        fragment = _PERCENT.sub(lambda found: bytes([int(found[1], 16)]), fragment.encode()).decode(errors="replace")
        if _DRAFT.fullmatch(reference):
            return []
        if self._named is None:
            self._named = _named_objects(self._root)
        around = self._named.get(_last_part(uri), []) if uri else list(bases)
        self._count(len(around))
        found: list[int] = []
        if not fragment or fragment.startswith("/"):
            for base, place in around:
                found += self._node(*_at_pointer(base, place, fragment))
        else:
            for target, place in self._named.get(f"#{fragment}", []):
                found += self._node(target, place)
        if not found and not (uri == "" and self._is_bool(fragment, around)):
            shown = reference if len(reference) <= 80 else f"{reference[:80]}..."
            raise ValueError(f"refers to `{shown}`, which is not in the schema; other documents are not fetched")
        return found

    @staticmethod
    def _is_bool(fragment: str, around: list[tuple[dict[str, object], _Place]]) -> bool:
        return any(isinstance(_at_pointer(base, place, fragment)[0], bool) for base, place in around)

    def _in_order(self) -> list[int]:
        """Each node after those that check the same value. Raises SchemaTooCostly for a circle of them, or too many levels."""
        users: dict[int, list[int]] = {}
        waits = {key: len(node.same) for key, node in self._nodes.items()}
        for key, node in self._nodes.items():
            for one in node.same:
                users.setdefault(one, []).append(key)
        order = [key for key, count in waits.items() if not count]
        for key in order:
            level = self._nodes[key].levels + 1
            if level > MAX_LEVELS:
                where = self._nodes[key].place.pointer
                raise SchemaTooCostly(
                    f"at `#{where}` more than {MAX_LEVELS} levels of subschemas check one value; use fewer"
                )
            for user in users.get(key, ()):
                self._nodes[user].levels = max(self._nodes[user].levels, level)
                waits[user] -= 1
                if not waits[user]:
                    order.append(user)
        if len(order) < len(self._nodes):
            where = next(self._nodes[key].place.pointer for key, count in waits.items() if count)
            raise SchemaTooCostly(
                f"at `#{where}` it refers to itself for the same value without end; remove the circle"
            )
        return order

    def _on_one_value(self, order: list[int]) -> dict[int, int]:
        own: dict[int, int] = {}
        for key in order:
            node = self._nodes[key]
            own[key] = node.own + node.factor * sum([own[one] for one in node.same])
            if own[key] > MAX_CHECKS_OF_A_VALUE:
                raise SchemaTooCostly(
                    f"at `#{node.place.pointer}` one value can take more than {MAX_CHECKS_OF_A_VALUE:,} checks; use fewer "
                    "`$ref`, `allOf`, `anyOf` and `oneOf` inside one another, and fewer patterns that look around or back"
                )
        return own

    def _with_inner(self, order: list[int], before: dict[int, int]) -> dict[int, int]:
        """With values one level deeper. A value is an object or an array, so the two are counted apart."""
        kinds: tuple[dict[int, int], dict[int, int]] = ({}, {})
        for key in order:
            node = self._nodes[key]
            for now, members, further in zip(kinds, node.members, node.further, strict=True):
                inner = max([before[one] for one in members], default=0) + sum([before[one] for one in further])
                total = node.own + node.factor * sum([now[one] for one in node.same]) + inner
                now[key] = min(total, MAX_CHECKS + 1)
        objects, arrays = kinds
        return {key: max(count, arrays[key]) for key, count in objects.items()}


def _bases(fields: dict[str, object], place: _Place) -> _Bases:
    """What a reference in the object may start from: the whole schema, and the objects with an id around it."""
    has_id = place.outer is None or isinstance(fields.get("$id"), str) or isinstance(fields.get("id"), str)
    return (*place.bases, (fields, place)) if has_id else place.bases


def _subschemas(value: object, *, is_map: bool) -> Iterator[tuple[str, object]]:
    """Each with the step that leads to it, empty where the value itself is the subschema."""
    if isinstance(value, list):
        yield from ((str(at), one) for at, one in enumerate(cast("list[object]", value)))
    elif is_map and isinstance(value, dict):
        yield from cast("dict[str, object]", value).items()
    else:
        yield "", value


def _own_checks(fields: dict[str, object]) -> int:
    """What the words of one subschema cost beyond the check itself."""
    found = 0
    patterns = (
        list(cast("dict[str, object]", fields["patternProperties"])) if _is_map(fields, "patternProperties") else []
    )
    if isinstance(pattern := fields.get("pattern"), str):
        patterns.append(pattern)
    for one in patterns:
        found += MAX_BACKTRACKS if _LOOKS_AROUND.search(one) else 1
    if isinstance(required := fields.get("required"), list):
        found += len(cast("list[object]", required)) // 8
    for word in ("enum", "const"):
        if isinstance(values := fields.get(word), list | dict):
            found += len(msgspec.json.encode(values)) // ENUM_BYTES_A_CHECK
    return found


def _is_map(fields: dict[str, object], word: str) -> bool:
    return isinstance(fields.get(word), dict)


def _named_objects(root: object) -> dict[str, list[tuple[dict[str, object], _Place]]]:
    """Every object in the schema by the last part of its id, and by `#` and its anchor."""
    found: dict[str, list[tuple[dict[str, object], _Place]]] = {}
    left: list[tuple[object, _Place]] = [(root, _Place("", None))]
    while left:
        value, place = left.pop()
        if isinstance(value, list):
            left += [(one, _Place(str(at), place, place.bases)) for at, one in enumerate(cast("list[object]", value))]
        elif isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            for word in ("$id", "id", "$anchor"):
                if isinstance(name := fields.get(word), str):
                    uri, _, fragment = (name if word != "$anchor" else f"#{name}").partition("#")
                    found.setdefault(_last_part(uri) if uri else f"#{fragment}", []).append((fields, place))
            bases = _bases(fields, place)
            left += [(one, _Place(name, place, bases)) for name, one in fields.items()]
    return found


def _last_part(uri: str) -> str:
    return uri.rpartition("/")[2].rpartition(":")[2]


def _at_pointer(base: dict[str, object], place: _Place, pointer: str) -> tuple[object, _Place]:
    node: object = base
    for step in pointer.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        bases = place.bases
        if isinstance(node, dict):
            fields = cast("dict[str, object]", node)
            node, bases = fields.get(name), _bases(fields, place)
        elif (
            isinstance(node, list)
            and name.isdecimal()
            and name.isascii()
            and int(name) < len(cast("list[object]", node))
        ):
            node = cast("list[object]", node)[int(name)]
        else:
            return None, place
        place = _Place(name, place, bases)
    return node, place


def _extent(value: object) -> tuple[int, int]:
    """How deeply the value is nested, and how many values it holds; a long text counts as several."""
    levels = units = 0
    layer: list[object] = [value]
    while layer:
        inner: list[object] = []
        for one in layer:
            units += 1
            if isinstance(one, dict):
                fields = cast("dict[str, object]", one)
                inner.extend(fields.values())
                units += sum(map(len, fields)) // BYTES_A_CHECK
            elif isinstance(one, list):
                inner.extend(cast("list[object]", one))
            elif isinstance(one, str):
                units += len(one) // BYTES_A_CHECK
        levels += bool(inner)
        layer = inner
    return levels, units
