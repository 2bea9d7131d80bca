"""Values that stand as bare text (XML-like syntaxes), typed by the tool's schema, and the JSON object that is made of them.

Vendors' parsers do it so too: vLLM's `qwen3coder_tool_parser.py` and `glm4_moe_tool_parser.py`, SGLang's
`glm4_moe_detector.py`: a string stays as it is, everything else is read as JSON. Of the two the schema has to allow the one that
is taken, if it allows any. What is no such value stays a string, and the schema says then what was wrong with it.
"""

import json
from collections.abc import Iterable
from typing import Protocol, cast

import msgspec

from turnwise.assembly.json_text import check_strictly
from turnwise.vocab import ToolSpec
from turnwise.vocab.json_values import array_or_empty, is_json_array, object_or_empty
from turnwise.vocab.schema_bounds import MAX_CHECKS, CheckCost, cost_fault, read_schema

STRING = frozenset({"string"})
ANY_TYPE = frozenset({"string", "integer", "number", "boolean", "null", "object", "array"})
_LITERALS = {
    "true": ("true", "boolean"),
    "false": ("false", "boolean"),
    "null": ("null", "null"),
    "none": ("null", "null"),
}
_ENCODE = msgspec.json.encode


class ValueCheck(Protocol):
    """Whether a parameter may have this value, which is JSON text."""

    def __call__(self, value: str, /) -> bool: ...


def as_json(value: str, *, types: frozenset[str], fits: ValueCheck) -> str:
    """The JSON text of a bare value. `types` are those that the parameter may have; `fits` is asked where two readings are left.

    If the parameter may be a string or something else, a string comes first, but for what no string would say so: `null`, objects
    and lists. A parameter of any type takes everything that is JSON.
    """
    if types == STRING:
        return quoted(value)
    bare = value.strip()
    other = _without_string(bare, types=types)
    if other is None:
        return quoted(value)
    if "string" not in types:
        return other
    text = quoted(value)
    is_other_first = other == bare and (types == ANY_TYPE or bare == "null" or bare[0] in "{[")
    first, second = (other, text) if is_other_first else (text, other)
    if fits(first):
        return first
    return second if fits(second) else text


def _without_string(bare: str, *, types: frozenset[str]) -> str | None:
    """The value as anything but a string; None where it can be nothing else."""
    literal, kind = _LITERALS.get(bare.lower(), ("", ""))
    if kind in types:
        return literal
    try:
        return bare if is_json(bare) and not ("{" in bare and names_twice(bare)) else None
    except RecursionError:
        return None


def quoted(value: str) -> str:
    return _ENCODE(value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")).decode()


def is_json(text: str) -> bool:
    try:
        check_strictly(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return False
    return True


def names_twice(text: str) -> bool:
    """Whether a key stands twice in an object of this JSON. If two members have one name, it is unclear which is meant.

    Raises RecursionError for what is nested too deeply.
    """
    try:
        _decode_members(text)
    except _Twice:
        return True
    return False


class _Twice(Exception):
    pass


def _once(members: list[tuple[str, object]]) -> None:
    if len({key for key, _ in members}) < len(members):
        raise _Twice


_decode_members = json.JSONDecoder(object_pairs_hook=_once).decode


class Members:
    """The members of a call's arguments as they are read; `text` is the JSON object, `beginning` what it is so far."""

    __slots__ = ("_members",)

    def __init__(self) -> None:
        self._members: dict[str, str] = {}

    def has(self, key: str) -> bool:
        return key in self._members

    def add(self, key: str, value: str) -> None:
        self._members[key] = value

    @property
    def text(self) -> str:
        return f"{self.beginning}}}" if self._members else "{}"

    @property
    def beginning(self) -> str:
        return "{" + ",".join([f"{quoted(key)}:{value}" for key, value in self._members.items()])

    def with_open(self, key: str, value: str) -> str:
        """A beginning that ends inside this string."""
        before = self.beginning
        return f"{before}{',' if self._members else ''}{quoted(key)}:{quoted(value)[:-1]}"


# What a tool's schema says about its parameters, where a syntax writes their values without a type.
#
# Readers ask it two questions: which JSON types a parameter may have (`types`, which may name too many, never too few), and
# whether a value fits (`fits`, which the validator answers that checks every call).


_NUMBERS = frozenset({"integer", "number"})
MAX_ROUNDS = 64  # in which references that lead to references are followed; ordinary schemas need two or three


class ChecksLeft:
    """For all values of a response that calls in its text have: there can be thousands of them."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = MAX_CHECKS

    def take(self, cost: CheckCost) -> bool:
        """Whether there are so many."""
        self._left -= cost.checks + cost.reads
        return self._left >= 0


class Parameters:
    """The parameters of one tool. `schema` is JSON text."""

    __slots__ = ("_has_own_bases", "_left", "_referred", "_root", "_schema", "_types")

    def __init__(self, schema: str, *, left: ChecksLeft | None = None) -> None:
        self._schema = schema
        self._left = left or ChecksLeft()
        self._root = None if cost_fault(schema) else _decode(schema)
        self._has_own_bases = '"$id"' in schema or "draft-04" in schema  # then `#` need not mean the whole schema
        self._types: dict[str, frozenset[str]] = {}
        self._referred: dict[str, frozenset[str]] = {}

    def types(self, name: str) -> frozenset[str]:
        """The JSON types that the parameter may have; all where the schema does not say."""
        if name not in self._types:
            self._types[name] = self._types_of_member(self._root, name, seen=set())
        return self._types[name]

    def fits(self, name: str, *, value: str) -> bool:
        """Whether the schema allows the value, which is JSON text. What the other parameters are does not matter."""
        try:
            schema = read_schema(self._schema)
        except ValueError:  # it cannot be used: then it forbids nothing
            return True
        try:
            given = cast("str", {name: msgspec.json.decode(value)})  # its stub cannot say that it takes any value
            cost = schema.cost(given)
            if cost is None or not self._left.take(cost):
                return False
            if schema.validator.is_valid(given):
                return True
            if cost.has_many_errors:
                return False
            return all(error.instance_path[:1] != [name] for error in schema.validator.iter_errors(given))
        except (ValueError, RecursionError):  # nested too deeply for one of the two
            return False

    def _types_of_member(self, schema: object, name: str, *, seen: set[str]) -> frozenset[str]:
        """Of an object with this schema. `seen` are the references that were followed."""
        rules = object_or_empty(schema)
        members = object_or_empty(rules.get("properties"))
        found = ANY_TYPE
        if name in members:
            found = self._follow(members[name])
        elif not rules.get("patternProperties"):
            found = self._follow(rules.get("additionalProperties"))
        for one in array_or_empty(rules.get("allOf")):
            found &= self._types_of_member(one, name, seen=seen)
        if isinstance(reference := rules.get("$ref"), str) and reference not in seen:
            seen.add(reference)
            found &= self._types_of_member(self._target(reference), name, seen=seen)
        return found

    def _types_of(self, schema: object) -> frozenset[str]:
        """Of a value with this schema, as far as it is known what its references name."""
        rules = object_or_empty(schema)
        found = _named(rules.get("type"))
        if "const" in rules:
            found &= _types_of_value(rules["const"])
        if values := array_or_empty(rules.get("enum")):
            found &= _any_of(map(_types_of_value, values))
        for word in ("anyOf", "oneOf"):
            if options := array_or_empty(rules.get(word)):
                found &= _any_of(map(self._types_of, options))
        for one in array_or_empty(rules.get("allOf")):
            found &= self._types_of(one)
        if isinstance(reference := rules.get("$ref"), str):
            found &= self._types_of_reference(reference)
        return found

    def _types_of_reference(self, reference: str) -> frozenset[str]:
        """Of what it names, as far as that is known: `_follow` asks again as long as more comes to light."""
        return self._referred.setdefault(reference, frozenset())

    def _follow(self, schema: object) -> frozenset[str]:
        """The types of a value with this schema, whose references may lead back to themselves."""
        for _ in range(MAX_ROUNDS):
            found, known = self._types_of(schema), dict(self._referred)
            for reference in reversed(known):
                self._referred[reference] = self._types_of(self._target(reference))
            if known == self._referred:
                return found
        return ANY_TYPE

    def _target(self, reference: str) -> object:
        """What a reference within the schema names; None for every other one, whose types only the validator knows."""
        if self._has_own_bases or not reference.startswith("#") or "%" in reference:
            return None
        _, *steps = reference[1:].split("/")
        if not steps and reference != "#":
            return None
        node: object = self._root
        for step in steps:
            key = step.replace("~1", "/").replace("~0", "~")
            if is_json_array(node):
                node = node[int(key)] if key.isdecimal() and key.isascii() and int(key) < len(node) else None
            else:
                node = object_or_empty(node).get(key)
        return node


def _decode(schema: str) -> object:
    try:
        return msgspec.json.decode(schema)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _named(types: object) -> frozenset[str]:
    names = [types] if isinstance(types, str) else [one for one in array_or_empty(types) if isinstance(one, str)]
    found = ANY_TYPE.intersection(names)
    return (found | _NUMBERS if found & _NUMBERS else found) or ANY_TYPE


def _any_of(types: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*types)


def _types_of_value(value: object) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case str():
            return frozenset({"string"})
        case int() | float():
            return _NUMBERS
        case list():
            return frozenset({"array"})
        case _:
            return frozenset({"object"})


# The tools on offer, as the readers need them: their names, and what their parameters may be.


_FREE_FORM = '{"properties":{"input":{"type":"string"}}}'


class OfferedTools:
    """The tools of one request. Schemas are read when a call needs them."""

    __slots__ = ("_has_any", "_left", "_parameters", "_specs")

    def __init__(self, specs: Iterable[ToolSpec], *, has_any: bool = False) -> None:
        """`has_any`: every name is taken for a tool, so that a reader finds where a call of it ends."""
        self._has_any = has_any
        self._specs = {spec.name: spec for spec in specs}
        self._parameters: dict[str, Parameters] = {}
        self._left = ChecksLeft()

    @property
    def names(self) -> Iterable[str]:
        return self._specs.keys()

    def has(self, name: str) -> bool:
        return self._has_any or name in self._specs

    def may_begin(self, start: str) -> bool:
        """Whether a name on offer begins like this."""
        return self._has_any or any(name.startswith(start) for name in self._specs)

    def parameters_of(self, name: str) -> Parameters:
        """What the tool's schema says about its parameters."""
        if name not in self._parameters:
            spec = self._specs.get(name)
            schema = "{}" if spec is None else _FREE_FORM if spec.free_form else spec.parameters
            self._parameters[name] = Parameters(schema, left=self._left)
        return self._parameters[name]


ANY_TOOLS = OfferedTools((), has_any=True)
"""As if every name were a tool's. Nothing that is read with it runs."""
