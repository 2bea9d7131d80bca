"""JSON Schemas from outside, measured before they are used: how often a schema can have one value checked.

A validator has no bound of its own: `$ref` doubled in `allOf` takes 2^n checks for n levels. So the checks are counted first, as
arithmetic in one pass over the schema: one for each subschema that applies to the value, and for a value inside it those of the
member that costs most. Subschemas that a schema reaches in several ways count each time, however they are reached.
"""

import heapq
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec

from turnwise.vocab.json_values import is_json_array, is_json_object, object_or_empty

if TYPE_CHECKING:
    import jsonschema_rs

MAX_SCHEMA_BYTES = 256 * 1024  # the tools of the largest known servers take 30 KiB each
MAX_SUBSCHEMAS = 5_000  # as many properties as OpenAI takes in strict mode
MAX_REFERENCES = 10_000  # from one subschema to another
MAX_REFERENCES_OF_A_REQUEST = 20_000  # of all its schemas: 128 tools have some 3,000
MAX_LEVELS = 64  # of subschemas that apply to the same value; ordinary schemas have three or four
MAX_CHECKS_OF_A_VALUE = 20_000  # 1 ms; the expression trees of query languages have some hundred
MAX_READS_OF_A_VALUE = 50_000  # its text, by patterns: twenty that look around
MAX_CHECKS = 2_000_000  # of a whole value: 0.1 s, and the validator holds the interpreter's lock meanwhile
MAX_CHECKS_FOR_ERRORS = 5_000  # the validator collects all errors at once; each takes 3 to 6 us
# A pattern that looks around or back may step back this often, and counts as so many reads: it reads its text again each time.
MAX_BACKTRACKS = 2_500
BYTES_A_READ = 16  # of text that a pattern reads in the time of one check
BYTES_A_CHECK = 1024  # of text whose characters are only counted
MULTIPLE_CHECKS = 400  # `multipleOf` with a fraction reckons with numbers of 300 digits: 16 us
ENUM_BYTES_A_CHECK = 64
ENUM_VALUES_A_CHECK = 8
NAMES_A_CHECK = 4  # that are looked for in an object
UNEVALUATED_FACTOR = 3  # `unevaluatedProperties` runs what stands beside it again (measured: nests of 10 to 18)
MIN_VALUE_LEVELS = 8  # of a large schema, whatever counting them takes
MAX_VALUE_LEVELS = 128
MAX_STEPS = 50_000  # of counting by levels: 50 ms
# What patterns come to when their counted repetitions are written out: 0.4 us and 30 bytes each, 0.1 s in all.
MAX_PATTERN_SIZE = 250_000
SET_SIZE = 5  # `[a-z]`
WIDE_SET_SIZE = 50  # `.`, `[^a]`, `[à-ü]`
PROPERTY_SIZE = 1_700  # `\p{L}`
MAX_KEPT = 1024 * 1024  # characters of the schemas that are kept compiled: each takes up to 130 bytes

_LOOKS_AROUND = re.compile(r"\(\?(?:[=!>(&]|<[=!]|P[=>])|\\[1-9gkGK]|[*+?}]\+")
_READS = frozenset({"format", "contentMediaType", "contentEncoding", "uniqueItems"})  # all of a text
_ATOM = re.compile(
    r"(?P<repeat>\{(\d{1,9})(?:,(\d{0,9}))?\})|(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\]|\\.)|(?P<open>\()|(?P<close>\))|.",
    re.DOTALL,
)
_FORMS = frozenset({"anyOf", "oneOf", "propertyNames"})
_ANY_CASE = re.compile(r"\(\?[a-zA-Z]*i")
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
# A subschema without any of these costs one check.
_COSTLY = frozenset(
    {*_WORDS, *_DYNAMIC, *_READS, "$ref", "pattern", "required", "dependentRequired", "enum", "const", "multipleOf"}
)


class _Levels(msgspec.Struct, frozen=True):
    """How often one value is checked by how deeply it is nested, the values around it included; `grows`: one that is nested
    more deeply than was counted may take more. `members` are of the properties of an object."""

    counts: tuple[int, ...]
    grows: bool = False
    members: dict[str, tuple[int, ...]] = {}

    def at(self, levels: int) -> int | None:
        return None if self.grows and levels >= len(self.counts) else _at(self.counts, levels)


def _at(counts: tuple[int, ...], levels: int) -> int:
    return counts[min(levels, len(counts) - 1)]


class CheckCost(msgspec.Struct, frozen=True):
    """What checking a value can take at most. An error can come of each check, not of each time that a text is read."""

    checks: int
    reads: int

    @property
    def is_too_much(self) -> bool:
        return self.checks + self.reads > MAX_CHECKS

    @property
    def has_many_errors(self) -> bool:
        return self.checks > MAX_CHECKS_FOR_ERRORS


class SchemaTooCostly(ValueError):
    """The schema is past a bound; the text says where, which bound, and what to do."""


class Schema:
    """A JSON Schema within the bounds."""

    __slots__ = ("_counted", "_text", "has_forms", "validator")

    def __init__(self, text: str, *, validator: "jsonschema_rs.Validator", has_forms: bool) -> None:
        """`has_forms`: for one error of a value the validator collects those of all forms that it could have."""
        self._text = text
        self._counted: tuple[_Levels, _Levels] | None = None
        self.validator = validator
        self.has_forms = has_forms

    def cost(self, value: object) -> CheckCost | None:
        """Of checking the value; None if it is nested more deeply than was counted."""
        if self._counted is None:
            self._counted = _Measure(_decode(self._text)).by_levels()
        checks, reads = self._counted
        levels, values, texts = _extent(value)
        checks_each, reads_each = checks.at(levels), reads.at(levels)
        if checks_each is None or reads_each is None:
            return None
        read = reads_each * texts
        if read > MAX_BACKTRACKS and reads.members and is_json_object(value):
            read = sum(
                [
                    _at(counts, levels) * _extent(value[name])[2]
                    for name, counts in reads.members.items()
                    if name in value
                ]
            )
        return CheckCost(checks_each * values, read)


class _Measured(msgspec.Struct, frozen=True):
    """`fault` says why the schema cannot be used; `is_costly`: because of a bound. `size` is how many uses of
    subschemas it has."""

    size: int = 0
    pattern_size: int = 0
    has_forms: bool = False
    fault: str = ""
    is_costly: bool = False


_Kept = TypeVar("_Kept")


class _Cache(Generic[_Kept]):
    """What was made of the schemas that were used last, by their texts; of so many characters in all."""

    def __init__(self, *, most: int) -> None:
        self._kept: dict[str, tuple[_Kept, int]] = {}  # threads share it: each step is one of the dict's own
        self._most = most

    def get(self, text: str) -> _Kept | None:
        if (found := self._kept.pop(text, None)) is None:
            return None
        self._kept[text] = found  # the last one again
        return found[0]

    def put(self, text: str, made: _Kept, *, weight: int) -> None:
        self._kept[text] = made, weight
        kept = list(self._kept.items())
        total = sum([weight for _, (_, weight) in kept])
        for oldest, (_, weight) in kept:
            if total <= self._most:
                break
            self._kept.pop(oldest, None)
            total -= weight


_measured: _Cache[_Measured] = _Cache(most=MAX_KEPT)
_compiled: _Cache[Schema] = _Cache(most=MAX_KEPT)


def _measure(schema: str) -> _Measured:
    if (found := _measured.get(schema)) is None:
        try:
            measure = _Measure(_decode(schema))
            measure.judge()
            found = _Measured(measure.size, measure.pattern_size, measure.has_forms)
        except ValueError as error:
            found = _Measured(fault=str(error), is_costly=isinstance(error, SchemaTooCostly))
        _measured.put(schema, found, weight=len(schema) + 500)
    return found


def read_schema(schema: str) -> Schema:
    """The schema that `schema` (JSON text) holds. Raises SchemaTooCostly for one past a bound, ValueError for no usable one."""
    measured = _measure(schema)
    if measured.fault:
        raise (SchemaTooCostly if measured.is_costly else ValueError)(measured.fault)
    if (found := _compiled.get(schema)) is None:
        import jsonschema_rs

        validator = jsonschema_rs.validator_for(
            cast("dict[str, object]", _decode(schema)),
            retriever=_fetch_nothing,
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=MAX_BACKTRACKS),
        )
        found = Schema(schema, validator=validator, has_forms=measured.has_forms)
        _compiled.put(schema, found, weight=len(schema) + measured.pattern_size // 4 + 500)
    return found


def cost_fault(schema: str) -> str | None:
    """Which bound the schema is past, and where; None for one that is within them or is no usable schema at all."""
    measured = _measure(schema)
    return measured.fault if measured.is_costly else None


def size_of(schema: str) -> int:
    """How many uses of subschemas it has: reading it takes up to 10 us for each."""
    return _measure(schema).size


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
    """A subschema: `own` checks and `reads` of a text, the nodes that check the same value, and those that check the values
    inside it. Of `members` at most one checks each inner value, of `further` all may; the pairs are of an object and of an
    array."""

    __slots__ = ("factor", "further", "levels", "members", "own", "place", "reads", "same")

    def __init__(self, place: "_Place") -> None:
        self.place = place
        self.own = 1
        self.reads = 0
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
        self._plain = 0
        self.size = 0
        self.pattern_size = 0
        self.has_forms = False

    def judge(self) -> tuple[list[int], dict[int, int], dict[int, int]]:
        """The nodes in order, and how often each checks and reads one value. Raises SchemaTooCostly past a bound."""
        if isinstance(self._root, dict):
            self._node(self._root, _Place("", None))
        while self._left:
            self._read(self._left.pop())
        order = self._in_order()
        checks = self._on_one_value(order, {key: self._nodes[key].own for key in order}, most=MAX_CHECKS_OF_A_VALUE)
        reads = self._on_one_value(order, {key: self._nodes[key].reads for key in order}, most=MAX_READS_OF_A_VALUE)
        return order, checks, reads

    def by_levels(self) -> tuple[_Levels, _Levels]:
        """Its checks and reads."""
        order, checks, reads = self.judge()
        if not isinstance(self._root, dict):
            return _Levels((1,)), _Levels((0,))
        counted = self._by_levels(order, {key: self._nodes[key].own for key in order}, checks)
        if not any(reads.values()):
            return counted, _Levels((0,))
        return counted, self._by_levels(order, {key: self._nodes[key].reads for key in order}, reads)

    def _members_of_root(self) -> dict[str, int]:
        """The nodes of its properties, if nothing else checks what stands inside it."""
        assert isinstance(self._root, dict)
        node, members = self._nodes[id(self._root)], self._root.get("properties")
        if node.same or node.further[0] or not is_json_object(members):
            return {}
        return (
            {name: id(one) for name, one in members.items() if id(one) in self._nodes}
            if not isinstance(self._root.get("additionalProperties"), dict)
            else {}
        )

    def _by_levels(self, order: list[int], own: Mapping[int, int], before: dict[int, int]) -> _Levels:
        """A level at a time, and only what the one before has changed."""
        root, rank = id(self._root), {key: at for at, key in enumerate(order)}
        outer: dict[int, set[int]] = {}  # by what stands inside
        users: dict[int, set[int]] = {}
        for key, node in self._nodes.items():
            for inner in (*node.members[0], *node.members[1], *node.further[0], *node.further[1]):
                outer.setdefault(inner, set()).add(key)
            for same in node.same:
                users.setdefault(same, set()).add(key)
        kinds = (dict(before), dict(before))
        named = self._members_of_root()
        counted = {key: [before[key]] for key in (root, *named.values())}
        changed, steps, grows = set(before), 0, True
        while (levels := len(counted[root])) < MAX_VALUE_LEVELS:
            waiting = [rank[user] for key in changed for user in outer.get(key, ())]
            heapq.heapify(waiting)
            now: dict[int, int] = {}
            while waiting:
                key = order[heapq.heappop(waiting)]
                if key in now:
                    continue
                node = self._nodes[key]
                for kind, members, further in zip(kinds, node.members, node.further, strict=True):
                    inside = max([before[one] for one in members], default=0) + sum([before[one] for one in further])
                    total = own[key] + node.factor * sum([kind[one] for one in node.same]) + inside
                    kind[key] = min(total, MAX_CHECKS + 1)
                now[key] = max(kinds[0][key], kinds[1][key])
                steps += 2 + len(node.same) + sum(map(len, (*node.members, *node.further)))
                if now[key] != before[key] or kinds[0][key] != kinds[1][key]:
                    for user in users.get(key, ()):
                        heapq.heappush(waiting, rank[user])
            changed = {key for key, count in now.items() if count != before[key]}
            if not changed:
                grows = False
                break
            before.update(now)
            for key, counts in counted.items():
                counts.append(before[key])
            if before[root] > MAX_CHECKS or (steps > MAX_STEPS and levels >= MIN_VALUE_LEVELS):
                break
        done = {key: tuple(counts) for key, counts in counted.items()}
        return _Levels(done[root], grows, {name: done[key] for name, key in named.items()})

    def _node(self, schema: object, place: _Place) -> list[int]:
        if not is_json_object(schema):
            return []
        if id(schema) not in self._nodes:
            if len(self._nodes) + self._plain >= MAX_SUBSCHEMAS:
                raise SchemaTooCostly(f"it has more than {MAX_SUBSCHEMAS:,} subschemas; make it smaller")
            self._nodes[id(schema)] = _Node(place)
            self._left.append(schema)
        self._count(1)
        return [id(schema)]

    def _plain_node(self) -> int:
        """One for all that cost one check and lead nowhere."""
        if (key := id(self)) not in self._nodes:
            self._nodes[key] = _Node(_Place("", None))
        self._plain += 1
        if len(self._nodes) + self._plain > MAX_SUBSCHEMAS:
            raise SchemaTooCostly(f"it has more than {MAX_SUBSCHEMAS:,} subschemas; make it smaller")
        self._count(1)
        return key

    def _count(self, edges: int) -> None:
        self.size += edges
        if self.size > MAX_REFERENCES:
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
                if not is_json_object(inner):
                    continue
                if _COSTLY.isdisjoint(inner):
                    found.append(self._plain_node())
                else:
                    found += self._node(cast("object", inner), _Place(step, outer, bases) if step else outer)
        if "unevaluatedProperties" in fields or "unevaluatedItems" in fields:
            node.factor = UNEVALUATED_FACTOR
        node.own += _own_checks(fields)
        node.reads += len(_READS.intersection(fields))
        for pattern in _patterns(fields):
            node.reads += MAX_BACKTRACKS if _LOOKS_AROUND.search(pattern) else 1
            self.pattern_size += _pattern_size(pattern)
            if self.pattern_size > MAX_PATTERN_SIZE:
                where = node.place.pointer
                raise SchemaTooCostly(f"at `#{where}` its patterns are too long with their repetitions; repeat less")
        self.has_forms = self.has_forms or not _FORMS.isdisjoint(fields)

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

    def _on_one_value(self, order: list[int], own: Mapping[int, int], *, most: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for key in order:
            node = self._nodes[key]
            found[key] = own[key] + node.factor * sum([found[one] for one in node.same])
            if found[key] > most:
                raise SchemaTooCostly(
                    f"at `#{node.place.pointer}` one value can take more than {most:,} checks; use fewer "
                    "`$ref`, `allOf`, `anyOf` and `oneOf` inside one another, and fewer patterns that look around or back"
                )
        return found


def _bases(fields: dict[str, object], place: _Place) -> _Bases:
    """What a reference in the object may start from: the whole schema, and the objects with an id around it."""
    has_id = place.outer is None or isinstance(fields.get("$id"), str) or isinstance(fields.get("id"), str)
    return (*place.bases, (fields, place)) if has_id else place.bases


def _subschemas(value: object, *, is_map: bool) -> Iterator[tuple[str, object]]:
    """Each with the step that leads to it, empty where the value itself is the subschema."""
    if is_json_array(value):
        yield from ((str(at), one) for at, one in enumerate(value))
    elif is_map and is_json_object(value):
        yield from value.items()
    else:
        yield "", value


def _own_checks(fields: dict[str, object]) -> int:
    """What the words of one subschema cost beyond the check itself."""
    found = 0
    for word, value in fields.items():
        match word, value:
            case (("properties" | "required"), (dict() | list())):
                found += len(cast("list[object]", value)) // NAMES_A_CHECK
            case "patternProperties", dict():
                found += len(cast("dict[str, object]", value))
            case "pattern", str():
                found += 1
            case (("dependentRequired" | "dependencies"), dict()):
                listed = cast("dict[str, object]", value).values()
                names = sum([len(one) for one in listed if is_json_array(one)])
                found += (len(listed) + names) // NAMES_A_CHECK
            case (("enum" | "const"), (list() | dict())):
                found += len(cast("list[object]", value)) // ENUM_VALUES_A_CHECK
                found += len(msgspec.json.encode(cast("object", value))) // ENUM_BYTES_A_CHECK
            case "multipleOf", float():
                found += MULTIPLE_CHECKS
            case _:
                pass
    return found


def _patterns(fields: dict[str, object]) -> list[str]:
    found = list(object_or_empty(fields.get("patternProperties")))
    return [*found, pattern] if isinstance(pattern := fields.get("pattern"), str) else found


def _pattern_size(pattern: str) -> int:
    """About how many steps it has once each counted repetition is written out."""
    groups, last = [0], 0
    for atom in _ATOM.finditer(pattern):
        match atom.lastgroup:
            case "open":
                groups.append(0)
                last = 0
                continue
            case "close":
                last = groups.pop() if len(groups) > 1 else 0
            case "repeat":
                last *= max(int(atom[2]), int(atom[3] or 0), 1) - 1
            case "set":
                last = _set_size(atom[0])
            case _:
                last = WIDE_SET_SIZE if atom[0] == "." or not atom[0].isascii() else 1
        groups[-1] += last
    return sum(groups) * (4 if _ANY_CASE.search(pattern) else 1)


def _set_size(text: str) -> int:
    if found := len(re.findall(r"\\[pP]", text)):
        return PROPERTY_SIZE * found
    is_wide = text.startswith("[^") or not text.isascii() or any(wide in text for wide in (r"\W", r"\D", r"\S"))
    return WIDE_SET_SIZE if is_wide else SET_SIZE


def _named_objects(root: object) -> dict[str, list[tuple[dict[str, object], _Place]]]:
    """Every object in the schema by the last part of its id, and by `#` and its anchor."""
    found: dict[str, list[tuple[dict[str, object], _Place]]] = {}
    left: list[tuple[object, _Place]] = [(root, _Place("", None))]
    while left:
        value, place = left.pop()
        if is_json_array(value):
            left += [(one, _Place(str(at), place, place.bases)) for at, one in enumerate(value)]
        elif is_json_object(value):
            fields = value
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
        if is_json_object(node):
            node, bases = node.get(name), _bases(node, place)
        elif is_json_array(node) and name.isdecimal() and name.isascii() and int(name) < len(node):
            node = node[int(name)]
        else:
            return None, place
        place = _Place(name, place, bases)
    return node, place


def _extent(value: object) -> tuple[int, int, int]:
    """How deeply the value is nested, how many values it holds, and how often a part of a text is read."""
    levels = values = texts = 0
    layer: list[object] = [value]
    while layer:
        inner: list[object] = []
        for one in layer:
            values += 1
            if is_json_object(one):
                inner.extend(one.values())
                length = sum(map(len, one))
                texts += len(one) + length // BYTES_A_READ
                values += length // BYTES_A_CHECK
            elif is_json_array(one):
                inner.extend(one)
            elif isinstance(one, str):
                texts += 1 + len(one) // BYTES_A_READ
                values += len(one) // BYTES_A_CHECK
        levels += bool(inner)
        layer = inner
    return levels, values, texts


# How many values a JSON text holds, counted without building one of them.


MAX_VALUES = 65_536
"""JSON values in the arguments of one call. A value costs a model a token or more, and no model's output limit holds so many; one
of two bytes takes Python some sixty."""

# From one comma or opening bracket outside of strings to the next. Possessive: never backtracks.
_NEXT = re.compile(r'[^"\[{,]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"?[^"\[{,]*+)*+[\[{,]', re.DOTALL)


def has_too_many_values(text: str, *, most: int = MAX_VALUES) -> bool:
    """Whether it holds more than `most` values (an empty list or object counts as two). Linear in a text that does not, and no
    memory worth a word; the text need not be whole, nor JSON."""
    if text.count(",") + text.count("[") + text.count("{") < most:
        return False
    count, at = 1, 0
    while count <= most:
        found = _NEXT.match(text, at)
        if found is None:
            return False
        count += 1
        at = found.end()
    return True
