"""What every family asks of a request and its profile alike: which tools go along, with which schemas, and which instructions.

The copy of a schema that goes up may say less than the tool's own, never something else; what it cannot say stands in the
description. The tool's own schema judges every call. A property has the forms that the choices of a union give it; where another
choice leaves it open, the copy leaves it open, too.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar, cast
from urllib.parse import unquote

import msgspec

from turnwise.vocab import Request, Text, ToolSpec
from turnwise.vocab.json_values import array_or_empty, is_json_array, is_json_object, object_or_empty, without
from turnwise.vocab.wording import in_ticks
from turnwise.wire.json_fields import UNREADABLE, quote, text_of_raw, write_object
from turnwise.wire.profiles import Profile, SchemaDialect

_NO_PARAMETERS = ToolSpec(name="").parameters


def offered_tools(request: Request, profile: Profile, *, family: str) -> tuple[ToolSpec, ...]:
    """The tools to send: none where they are forbidden and the endpoint has no other way to say it, and no server-side tool
    of another family, which is nobody's function here."""
    if request.tool_choice == "none" and profile.tool_choice_none == "drop_tools":
        return ()
    return tuple(
        [tool for tool in request.tools if (own := tool.opaque) is None or own.family == family or _is_function(tool)]
    )


def _is_function(tool: ToolSpec) -> bool:
    return bool(tool.description) or tool.parameters != _NO_PARAMETERS or tool.free_form


def instructions(request: Request, profile: Profile) -> tuple[Text, ...]:
    """The leading instructions, and the schema of the answer in words where the endpoint takes it in no other way."""
    if request.output is None or profile.output == "json_schema":
        return request.system
    told = f"Answer with JSON only, an object that fits this JSON Schema:\n{request.output.schema}"
    return (*request.system, Text(told))


# --- schemas

# Words that no provider takes at the root of a tool's schema: the whole request is refused with 400.
# Sources: langchain-ai/langchain#39271 (Anthropic: the first three), langchain-ai/langchainjs#9804 (OpenAI: all).
_CHOICES = ("anyOf", "oneOf", "allOf")
_REFUSED = (*_CHOICES, "not", "enum")
_ANNOTATIONS = frozenset({"description", "title", "default", "examples", "deprecated"})
ALSO = "\n\nThe arguments must also fit this JSON Schema: "
KEPT_TOOLS = 2048  # whose copies are kept; a client has a few dozen
LONG_TOOL = 16 * 1024  # characters
MOST_KEPT_CHARACTERS = 2 * 1024 * 1024  # of the tools whose copies one function keeps; most tools have a thousand
MOST_INLINED = 3  # definitions within each other that stand in place of references
MOST_STEPS = 16  # of references that lead on to others
MOST_SAID = 4000  # characters of a schema in a description
_LENGTHS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"})
_REPEATED = frozenset({"minLength", "minItems"})
MOST_REPEATED = 2000  # llama.cpp: a grammar has no more repetitions

SchemaFields = dict[str, object]


Root = Literal["object", "untold", "never"]


class FittedTool(msgspec.Struct, frozen=True):
    """The tool as it goes up. `lost` says what its schema has and the copy has not; empty where they say the same. `root`: what
    its schema says of the arguments, which are an object; `never`: something else, so no call could fit."""

    spec: ToolSpec
    lost: str = ""
    is_changed: bool = False
    root: Root = "object"


_Form = ParamSpec("_Form")
_Copy = TypeVar("_Copy")


def kept_by_tool(write: Callable[Concatenate[ToolSpec, _Form], _Copy]) -> Callable[Concatenate[ToolSpec, _Form], _Copy]:
    """The function with its answers kept. A client may send others with each request, so all are forgotten when the
    kept tools have MOST_KEPT_CHARACTERS; a long tool counts as so many. What is known is found without a look at its size."""
    held = 0

    @lru_cache(maxsize=KEPT_TOOLS)
    @wraps(write)
    def keep(tool: ToolSpec, *form: _Form.args, **named: _Form.kwargs) -> _Copy:
        nonlocal held
        size = len(tool.parameters) + len(tool.description) + len(tool.name)
        size += 0 if tool.opaque is None else len(tool.opaque.json)
        if held + size > MOST_KEPT_CHARACTERS:
            keep.cache_clear()
            held = 0
        held += size if size <= LONG_TOOL else MOST_KEPT_CHARACTERS
        return write(tool, *form, **named)

    return cast("Callable[Concatenate[ToolSpec, _Form], _Copy]", keep)


@kept_by_tool
def fitted_tool(
    tool: ToolSpec, dialect: SchemaDialect = "standard", *, folds: bool = True, fills: bool = True
) -> FittedTool:
    """The tool with a schema that the endpoint takes. The very same where nothing has to change. `folds`: a union at the root
    goes; `fills`: wherever something is required there are `properties`."""
    if tool.free_form:
        return FittedTool(tool)
    try:
        schema: object = msgspec.json.decode(tool.parameters)
    except UNREADABLE:
        return FittedTool(tool)
    if schema is True:
        spec = msgspec.structs.replace(tool, parameters=_NO_PARAMETERS)
        return FittedTool(spec, is_changed=True, root="untold")
    if not is_json_object(schema):
        return FittedTool(tool, root="never")
    before = schema
    found: list[str] = []
    if dialect == "standard" or (dialect == "object" and before.get("type") == "object"):
        dialect, rooted = "standard", before
    else:
        rooted = _without_reference(before, found)
    after, refused = rooted, refused_at_root(rooted) if folds else []
    if refused:
        after = folded_root(rooted) or _without_union(rooted)
    if dialect != "standard":
        whole = _whole(after)
        after = cast(SchemaFields, _with_properties(whole)) if fills and dialect != "object" else whole
    match dialect:
        case "moonshot":
            after = _for_moonshot(after, found)
        case "xai":
            after = cast(SchemaFields, _without_words(after, _LENGTHS, found))
        case "llamacpp":
            after = cast(SchemaFields, _without_words(after, _REPEATED, found, above=MOST_REPEATED))
        case _:
            pass
    losses = [f"{in_ticks(refused)} at the root of its schema"] if refused else []
    losses += [f"{', '.join(dict.fromkeys(found))} in its schema"] if found else []
    lost = ", no ".join(losses)
    said: object = before if found else {word: rooted[word] for word in refused}
    root = _root_of(before)
    if root == "untold" and _root_of(_without_reference(before, [])) == "never":
        root = "never"
    if after == before:
        return FittedTool(tool, root=root)
    changes: dict[str, object] = {"parameters": msgspec.json.encode(after).decode()}
    if lost:
        words = msgspec.json.encode(said).decode()
        also = f"{ALSO}{words}" if len(words) <= MOST_SAID else ""
        changes |= {"description": f"{tool.description}{also}", "strict": False}
    return FittedTool(msgspec.structs.replace(tool, **changes), lost, is_changed=True, root=root)


def _root_of(schema: SchemaFields) -> Root:
    kind = schema.get("type", "")
    return "object" if kind == "object" else "untold" if kind == "" or "object" in array_or_empty(kind) else "never"


# --- a union at the root


def refused_at_root(schema: Mapping[str, object]) -> list[str]:
    """The words at the root that providers refuse there."""
    return [word for word in _REFUSED if word in schema]


def _without_union(schema: SchemaFields) -> SchemaFields:
    """An object of which only its own properties are said: a choice is more than an object with properties."""
    unsaid = {*_REFUSED, "properties", "required", "additionalProperties", "unevaluatedProperties", "$ref", "type"}
    about = without(schema, unsaid)
    own = object_or_empty(schema.get("properties"))
    needed = {"required": schema["required"]} if own and "required" in schema else {}
    return {**about, "type": "object", "properties": own, **needed}


def folded_root(schema: SchemaFields) -> SchemaFields | None:
    """An object with the properties of all choices at the root. It takes more than before. None where a choice is more than an
    object with properties."""
    refused = refused_at_root(schema)
    is_object = schema.get("type") == "object"
    defs = object_or_empty(schema.get("$defs"))
    forms: dict[str, list[object]] = {}
    about: dict[str, SchemaFields] = {}
    needs = _names(schema.get("required"))
    for word in [word for word in refused if word in _CHOICES]:
        sides = [_target(object_or_empty(one), defs=defs) for one in array_or_empty(schema[word])]
        if not sides or not all(_is_plain(side, is_object=is_object) for side in sides):
            return None
        is_object = True
        tables = [object_or_empty(side.get("properties")) for side in sides]
        for name in dict.fromkeys([name for table in tables for name in table]):
            given = [table[name] for table in tables if name in table]
            others = [side for side, table in zip(sides, tables, strict=True) if name not in table]
            is_open = word != "allOf" and not all(_is_closed(side) for side in others)
            forms.setdefault(name, []).extend([] if is_open else given)
            about.setdefault(
                name, {word: value for word, value in object_or_empty(given[0]).items() if word in _ANNOTATIONS}
            )
        needed = [dict.fromkeys(_names(side.get("required"))) for side in sides]
        common = set(needed[0]).intersection(*needed)
        needs += [name for side in needed for name in side if word == "allOf" or name in common]
    if not is_object:
        return None
    merged = {
        name: about[name] if not found else found[0] if found.count(found[0]) == len(found) else {"anyOf": found}
        for name, found in forms.items()
    }
    properties = {**merged, **object_or_empty(schema.get("properties"))}
    required = {"required": list(dict.fromkeys(needs))} if needs else {}
    # What a choice has seen is not unevaluated; the copy has no choices.
    kept = {name: value for name, value in schema.items() if name not in (*refused, "unevaluatedProperties")}
    return {**kept, "type": "object", "properties": properties, **required}


def _is_closed(side: SchemaFields) -> bool:
    """Whether it takes no property that it does not declare."""
    return side.get("additionalProperties") is False and "patternProperties" not in side


def _is_plain(side: SchemaFields, *, is_object: bool) -> bool:
    if not side or any(word in side for word in ("$ref", *_REFUSED)):
        return False
    return side["type"] == "object" if "type" in side else is_object


# --- a whole root, and references


def _whole(schema: SchemaFields) -> SchemaFields:
    """The same with a root that says what every tool's schema says: an object, and its properties."""
    kind = schema.get("type")
    if "type" not in schema or (isinstance(kind, list) and "object" in kind):
        schema = {"type": "object", **without(schema, ("type",))}
    return schema if isinstance(schema.get("properties"), dict) else {**schema, "properties": {}}


def _without_reference(schema: SchemaFields, lost: list[str]) -> SchemaFields:
    """The same with what the root's `$ref` stands for in its place; as it is where that is not in the schema."""
    reference = schema.get("$ref")
    target = _resolved(reference, root=schema, lost=lost) if isinstance(reference, str) else None
    if target is None:
        return schema
    return _joined(target, without(schema, ("$ref",)), lost)


# Keywords that mean something together: those of one schema never go with those of another.
_TOGETHER = (
    frozenset({"if", "then", "else"}),
    frozenset({"prefixItems", "items", "additionalItems", "contains", "minContains", "maxContains"}),
)
_TABLES = frozenset({"properties", "patternProperties", "dependentSchemas", "dependentRequired"})
_DEFINITIONS = frozenset({"$defs", "definitions"})
_UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
_BESIDE = "words beside a reference"


def _joined(target: SchemaFields, beside: SchemaFields, lost: list[str]) -> SchemaFields:
    """One schema that takes all that fits both, the target of a reference and what stands beside it. Where they say different
    things of the same, what stands beside holds, and `lost` gets a word."""
    is_exact = _is_seen_alike(target, beside)
    for group in _TOGETHER:
        if not group.isdisjoint(target) and not group.isdisjoint(beside):
            is_exact = is_exact and all(target.get(word) == beside.get(word) for word in group)
            target = without(target, group)
    joined: SchemaFields = {**target, **beside}
    for word in target.keys() & beside.keys() - _ANNOTATIONS:
        first, second = target[word], beside[word]
        if word in _TABLES or word in _DEFINITIONS:
            here, there = object_or_empty(first), object_or_empty(second)
            joined[word] = {**here, **there}
            is_exact = is_exact and (
                word in _DEFINITIONS or all(here[one] == there[one] for one in here if one in there)
            )
        elif word == "required":
            joined[word] = list(dict.fromkeys([*_names(first), *_names(second)]))
        elif word == "allOf":
            joined[word] = [*array_or_empty(first), *array_or_empty(second)]
        elif first != second:
            joined[word] = first if word == "additionalProperties" and first is False else second
            is_exact = False
    if is_exact:
        return joined
    lost.append(_BESIDE)
    return without(joined, _UNEVALUATED)


def _is_seen_alike(target: SchemaFields, beside: SchemaFields) -> bool:
    """Whether what either says of undeclared properties and items is about the same ones when both are one schema."""
    if not _UNEVALUATED.isdisjoint(target) and not beside.keys() <= _ANNOTATIONS | _DEFINITIONS:
        return False
    for one, other in ((target, beside), (beside, target)):
        for word in ("properties", "patternProperties") if "additionalProperties" in one else ():
            if not object_or_empty(other.get(word)).keys() <= object_or_empty(one.get(word)).keys():
                return False
    return True


_ONE = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
_MANY = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


def _below(schema: SchemaFields, change: Callable[[object], object]) -> SchemaFields:
    """The schema with each of the schemas in it changed; data in it (`enum`, `const`, `default`) stays as it is."""
    changed: SchemaFields = {}
    for name, value in schema.items():
        if name in _ONE and is_json_object(value):
            value = change(value)
        elif name in _MANY and is_json_array(value):
            value = [change(one) for one in value]
        elif name in _NAMED and is_json_object(value):
            value = {key: change(one) for key, one in value.items()}
        changed[name] = value
    return changed


def _with_properties(schema: object) -> object:
    """The same where what is required of an object never comes without `properties`."""
    if not is_json_object(schema):
        return schema
    if "required" in schema and "properties" not in schema:
        schema = cast(SchemaFields, {**schema, "properties": {}})
    return _below(schema, _with_properties)


def _without_words(schema: object, words: frozenset[str], lost: list[str], *, above: int | None = None) -> object:
    """The same without these words, or without those whose number is `above` so much; `lost` gets what it had."""
    if not is_json_object(schema):
        return schema
    kept: SchemaFields = {}
    for name, value in schema.items():
        if name not in words or (above is not None and not (isinstance(value, int | float) and value > above)):
            kept[name] = value
        else:
            lost.append("lengths" if above is None else f"`{name}` above {above}")
    return _below(kept, lambda one: _without_words(one, words, lost, above=above))


# --- Moonshot


def _for_moonshot(schema: SchemaFields, lost: list[str]) -> SchemaFields:
    older, defs = object_or_empty(schema.get("definitions")), object_or_empty(schema.get("$defs"))
    if older and not older.keys() & defs.keys():
        rest = without(schema, ("definitions",))
        schema = {**cast(SchemaFields, _renamed_references(rest)), "$defs": {**defs, **older}}
        schema["$defs"] = {name: _renamed_references(one) for name, one in object_or_empty(schema["$defs"]).items()}
    return cast(SchemaFields, _plain_references(schema, root=schema, lost=lost))


def _renamed_references(schema: object) -> object:
    if not is_json_object(schema):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/definitions/"):
        schema = cast(SchemaFields, {**schema, "$ref": reference.replace("#/definitions/", "#/$defs/", 1)})
    return _below(schema, _renamed_references)


def _plain_references(schema: object, *, root: SchemaFields, lost: list[str], within: tuple[str, ...] = ()) -> object:
    """The same where a `$ref` leads into `$defs` and stands alone where its target has such a keyword, too, unions have no type
    beside them, `enum` has one, schemas are objects, and all that is required is declared."""
    if not is_json_object(schema):
        return schema
    fields = schema
    reference = fields.get("$ref")
    if isinstance(reference, str):
        target = _resolved(reference, root=root, lost=lost)
        beside = without(fields, ("$ref",))
        is_own = reference == "#" or reference.startswith("#/$defs/")
        if not is_own and target is None:
            lost.append("references to other documents or to anchors")
            fields = beside
        elif target is not None and (
            not is_own or beside.keys() & target.keys() or not beside.keys().isdisjoint(("type", "enum"))
        ):
            if reference in within or len(within) >= MOST_INLINED:  # it would go on for ever
                lost += [] if is_own else ["references to places outside of `$defs`"]
                return {"$ref": reference} if is_own else {}
            within = (*within, reference)
            fields = _joined(target, beside, lost)
    fields = _typed_choices(_object_schemas(fields, lost), lost)
    named = object_or_empty(fields.get("properties"))
    if undeclared := [name for name in _names(fields.get("required")) if name not in named]:
        fields = cast(SchemaFields, {**fields, "properties": {**named, **{name: {} for name in undeclared}}})
    return _below(fields, lambda one: _plain_references(one, root=root, lost=lost, within=within))


def _object_schemas(fields: SchemaFields, lost: list[str]) -> SchemaFields:
    """The same where the schemas of properties and items are objects: `true` says nothing."""
    named = object_or_empty(fields.get("properties"))
    if not all(isinstance(one, dict) for one in named.values()):
        lost += ["`false` as a property's schema"] if False in named.values() else []
        objects: SchemaFields = {
            name: SchemaFields() if one is True else one for name, one in named.items() if one is not False
        }
        fields = {**fields, "properties": objects}
    if not isinstance(items := fields.get("items", {}), dict):
        lost += (
            ["`items` by position"] if isinstance(items, list) else ["`items` without a schema"] if not items else []
        )
        unsaid = ("items", "additionalItems")
        fields = without(fields, unsaid)
    return fields


def _typed_choices(fields: SchemaFields, lost: list[str]) -> SchemaFields:
    """The same where `enum` has a type, and `anyOf` has none beside it."""
    if is_json_array(values := fields.get("enum")):
        if "anyOf" in fields:
            lost.append("`anyOf` beside `enum`")
        kinds = list(dict.fromkeys([_kind(one) for one in values]))
        typed: SchemaFields = {"type": kinds[0] if len(kinds) == 1 else kinds}
        typed |= without(fields, ("anyOf",))
        return typed if kinds else fields
    sides, kind = fields.get("anyOf"), fields.get("type")
    if not is_json_array(sides) or kind is None:
        return fields
    untyped: SchemaFields = without(fields, ("type",))
    untyped["anyOf"] = [_typed(one, kind) for one in sides]
    return untyped


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _resolved(reference: str, *, root: SchemaFields, lost: list[str]) -> SchemaFields | None:
    """What it stands for, with what stands beside further references on the way; None where the schema has no such place."""
    found: SchemaFields = {}
    for _ in range(MOST_STEPS):
        if reference != "#" and not reference.startswith("#/"):  # another document, or an anchor
            return None
        at: object = root
        for step in reference[1:].split("/")[1:]:
            at = object_or_empty(at).get(_key(step))
        if not is_json_object(at):
            return None
        fields = at
        found = _joined(fields, found, lost)
        if not isinstance(onward := fields.get("$ref"), str):
            break
        found.pop("$ref")
        reference = onward
    return found


def _key(step: str) -> str:
    """The key that a step of a reference means (RFC 6901, section 6)."""
    return unquote(step).replace("~1", "/").replace("~0", "~")


def _typed(side: object, kind: object) -> object:
    """One side of a union with the type that stood beside the union."""
    if not is_json_object(side) or "type" in side or "$ref" in side:
        return cast(object, side)
    typed: SchemaFields = {"type": kind}
    typed.update(side)
    return typed


def _target(schema: SchemaFields, *, defs: Mapping[str, object]) -> SchemaFields:
    """What its `$ref` stands for, if that is one of the root's definitions; else the schema itself."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/$defs/"):
        return schema
    found = defs.get(_key(reference.removeprefix("#/$defs/")))
    return found if is_json_object(found) and found else schema


def _names(given: object) -> list[str]:
    return [one for one in array_or_empty(given) if isinstance(one, str)]


# Tools of free-form text where an API, or an endpoint, has JSON tools only: one object with one string.


FREE_FORM_PARAMETER = "input"

FREE_FORM_SCHEMA = '{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}'


def free_form_arguments(text: str) -> str:
    """The text of a free-form call as the arguments of its stand-in."""
    return text_of_raw(write_object({FREE_FORM_PARAMETER: quote(text)}))
