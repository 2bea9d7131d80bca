"""Servers by their own rules: what each refuses beyond its family's API, read from `dialects.toml`."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Literal, assert_never

import msgspec

from turnwise.lab.raw import Raw, dump, parse, rows, table, text
from turnwise.lab.strict.openai_chat import check_pairing
from turnwise.lab.strict.verdicts import Rejected

# What servers refuse in a JSON Schema, feature by feature: `dialects.toml` names them.


SchemaFeature = Literal[
    "not-of-type",
    "keyword",
    "lacking",
    "above",
    "without",
    "beside",
    "foreign-reference",
    "clash-with-reference",
    "no-object",
    "undeclared",
]
MAPS = ("properties", "$defs", "definitions", "patternProperties")  # keyword -> schemas by name
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "not")
MOST_STEPS = 64  # of references that lead on to others


def subschemas(schema: Raw, *, path: str = "") -> Iterator[tuple[str, Raw]]:
    """The schema and all in it, each with its path as Moonshot's validator words it: `root`, `properties.a.items`."""
    waiting: list[tuple[str, Raw]] = [(path, schema)]
    while waiting:
        where, at = waiting.pop()
        yield where or "root", at
        fields = table(at)
        inner = [(f"{key}.{name}", one) for key in MAPS for name, one in table(fields.get(key)).items()]
        inner += [(key, one) for key in LISTS for one in rows(fields.get(key))]
        inner += [(key, fields[key]) for key in SINGLE if key in fields]
        waiting += [(f"{where}.{step}" if where else step, one) for step, one in reversed(inner)]


def not_of_type(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """Its `type` is not among `keywords`."""
    del root
    found = table(schema).get("type")
    return None if text(found) in keywords else text(found) or dump(found).decode()


def keyword(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It has one of `keywords`."""
    del root
    return next((key for key in keywords if key in table(schema)), None)


def lacking(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It lacks one of `keywords`."""
    del root
    return next((key for key in keywords if key not in table(schema)), None)


def above(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """A number under one of `keywords` is above the first of them."""
    del root
    fields = table(schema)
    numbers = {key: fields.get(key) for key in keywords[1:]}
    return next((key for key, one in numbers.items() if isinstance(one, int) and one > int(keywords[0])), None)


def without(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It has the first of `keywords` and lacks another of them."""
    del root
    fields = table(schema)
    return next((key for key in keywords[1:] if key not in fields), None) if keywords[0] in fields else None


def beside(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """It has all of `keywords`."""
    del root
    return keywords[-1] if all(key in table(schema) for key in keywords) else None


def foreign_reference(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """Its `$ref` begins with none of `keywords`, and is not the root itself."""
    del root
    target = table(schema).get("$ref")
    return target if isinstance(target, str) and target != "#" and not target.startswith(keywords) else None


def clash_with_reference(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """Beside its `$ref` stands a keyword that the target has, too."""
    del keywords
    fields = table(schema)
    target = table(schema)
    for _ in range(MOST_STEPS):
        step = target.get("$ref")
        if not isinstance(step, str) or not step.startswith("#/"):
            break
        found: Raw = root
        for key in step.removeprefix("#/").split("/"):
            found = table(found).get(key)
        target = table(found)
        clash = next((key for key in fields if key != "$ref" and key in target), None)
        if clash is not None:
            return clash
    return None


def no_object(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """A property's schema, or `items`, is no object: `true`, or a list of positions."""
    del root, keywords
    fields = table(schema)
    found = next((name for name, one in table(fields.get("properties")).items() if not isinstance(one, dict)), None)
    return found if found is not None else "items" if not isinstance(fields.get("items", {}), dict) else None


def undeclared(schema: Raw, root: Raw, keywords: tuple[str, ...]) -> str | None:
    """`required` names what `properties` does not have."""
    del root, keywords
    fields = table(schema)
    known = table(fields.get("properties"))
    return next((name for name in rows(fields.get("required")) if isinstance(name, str) and name not in known), None)


SCHEMA_FEATURES: dict[SchemaFeature, Callable[[Raw, Raw, tuple[str, ...]], str | None]] = {
    "not-of-type": not_of_type,
    "keyword": keyword,
    "lacking": lacking,
    "without": without,
    "beside": beside,
    "above": above,
    "foreign-reference": foreign_reference,
    "clash-with-reference": clash_with_reference,
    "no-object": no_object,
    "undeclared": undeclared,
}


# The kinds of check that `dialects.toml` is written in: each finds the first place of a Chat Completions body that it refuses.
#
# A check gives the details of that place (`index`, `name`, `path`, ...), which the rule's message names in braces, or None.
# Every kind takes any JSON: what is not of the expected shape is left to the family's own judge.


Details = dict[str, str]
BodyPlace = Literal["body", "message", "call", "part", "tool"]


class OrderCheck(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="order", forbid_unknown_fields=True):
    """Which message may not follow which. `start` and `end` stand for the ends of the list, `any` for every role.

    `at_end`: only the last two messages. `unless`: a field of the first message that, when true, excuses it.
    """

    refused: tuple[tuple[str, str], ...]
    at_end: bool = False
    unless: str = ""


class RolesCheck(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="roles", forbid_unknown_fields=True):
    """`refused`: roles that no message may have; `needed`: one that some message has to have."""

    refused: tuple[str, ...] = ()
    needed: str = ""


class ContentCheck(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="content", forbid_unknown_fields=True
):
    """What a message's `content` may not be: a `list`, `null` (or a list of nothing), `missing`, or `empty` (texts
    that say nothing).

    `calls` limits it to messages with or without tool calls.
    """

    roles: tuple[str, ...]
    refused: tuple[Literal["list", "null", "missing", "empty"], ...]
    calls: bool | None = None


class FieldsCheck(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="fields", forbid_unknown_fields=True
):
    """Which fields a place may have (`allowed`), may not have, has to have, or may not have together. Dots lead into objects.

    A field with null is not there. With `filled` an empty text does not count as there.
    `since_user`: only messages after the last one of the user; `first`: only the first call of a message.
    """

    at: BodyPlace = "body"
    roles: tuple[str, ...] = ()
    calls: bool | None = None
    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    together: tuple[str, ...] = ()
    filled: bool = False
    since_user: bool = False
    first: bool = False


class ValuesCheck(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="values", forbid_unknown_fields=True
):
    """What a field may hold where it is there: one of `allowed` words, none of `refused`, a text that `pattern` finds, or a
    text of JSON. An object counts as the word `object`."""

    at: BodyPlace = "body"
    roles: tuple[str, ...] = ()
    field: str
    allowed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    pattern: str = ""
    json: bool = False


class SchemasCheck(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="schemas", forbid_unknown_fields=True
):
    """A feature that the schemas of tools, or of structured output, may not have, at their root or anywhere in them."""

    of: Literal["tools", "output"] = "tools"
    at: Literal["root", "anywhere"] = "anywhere"
    feature: SchemaFeature
    keywords: tuple[str, ...] = ()


class SizeCheck(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="size", forbid_unknown_fields=True):
    """More bytes of JSON than a field of the body may have."""

    field: str
    most_bytes: int


class PairingCheck(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="pairing", forbid_unknown_fields=True
):
    """Calls without their results right behind them, or results without their call."""


RuleCheck = OrderCheck | RolesCheck | ContentCheck | FieldsCheck | ValuesCheck | SchemasCheck | SizeCheck | PairingCheck


def find_refused(check: RuleCheck, body: dict[str, Raw]) -> Details | None:
    """The details of the first place that `check` refuses; None if it refuses none."""
    return next(_refused(check, body), None)


def _refused(check: RuleCheck, body: dict[str, Raw]) -> Iterator[Details]:
    match check:
        case OrderCheck():
            return _order(check, body)
        case RolesCheck():
            return _roles(check, body)
        case ContentCheck():
            return _content(check, body)
        case FieldsCheck():
            return _fields(check, body)
        case ValuesCheck():
            return _values(check, body)
        case SchemasCheck():
            return _schemas(check, body)
        case SizeCheck():
            return _size(check, body)
        case PairingCheck():
            return _pairing(body)
        case _:
            assert_never(check)


def at_path(value: Raw, path: str) -> Raw:
    """What stands under `a.b.c`; None where an object on the way is missing."""
    for key in path.split("."):
        value = table(value).get(key)
    return value


def _messages(body: dict[str, Raw]) -> list[dict[str, Raw]]:
    return [table(message) for message in rows(body.get("messages"))]


def _calls(message: dict[str, Raw]) -> list[Raw]:
    return rows(message.get("tool_calls"))


def _order(check: OrderCheck, body: dict[str, Raw]) -> Iterator[Details]:
    messages = _messages(body)
    roles = ["start", *(text(message.get("role")) for message in messages), "end"]
    for index, (before, role) in enumerate(pairwise(roles)):
        excused = index > 0 and bool(check.unless) and messages[index - 1].get(check.unless) is True
        excused = excused or (check.at_end and index != len(messages) - 1)
        wrong = {(before, role), (before, "any") if role != "end" else (), ("any", role) if index else ()}
        if messages and not excused and not wrong.isdisjoint(check.refused):
            yield {"index": str(index), "before": before, "role": role}


def _roles(check: RolesCheck, body: dict[str, Raw]) -> Iterator[Details]:
    roles = [text(message.get("role")) for message in _messages(body)]
    for index, role in enumerate(roles):
        if role in check.refused:
            yield {"index": str(index), "role": role}
    if check.needed and check.needed not in roles:
        yield {"role": check.needed}


def _content(check: ContentCheck, body: dict[str, Raw]) -> Iterator[Details]:
    for index, message in enumerate(_messages(body)):
        if message.get("role") not in check.roles or check.calls not in (None, bool(_calls(message))):
            continue
        if _form(message) in check.refused or ("list" in check.refused and isinstance(message.get("content"), list)):
            yield {"index": str(index), "role": text(message.get("role"))}


def _form(message: dict[str, Raw]) -> str:
    content = message.get("content")
    match content:
        case _ if "content" not in message:
            return "missing"
        case None | []:
            return "null"
        case "":
            return "empty"
        case list():
            texts = all(table(part).get("type") == "text" and not text(table(part).get("text")) for part in content)
            return "empty" if texts else "list"
        case _:
            return ""


def _fields(check: FieldsCheck, body: dict[str, Raw]) -> Iterator[Details]:
    for place, details in _places(check.at, body, roles=check.roles, since_user=check.since_user, first=check.first):
        if check.calls not in (None, bool(_calls(place))):
            continue
        there = [key for key, value in place.items() if value is not None]
        wrong = [key for key in there if check.allowed and key not in check.allowed]
        wrong += [path for path in check.refused if at_path(place, path) is not None]
        wrong += [path for path in check.needed if not _is_there(at_path(place, path), filled=check.filled)]
        if check.together and all(at_path(place, path) is not None for path in check.together):
            wrong.append(check.together[-1])
        for field in wrong:
            yield {**details, "field": field}


def _is_there(value: Raw, *, filled: bool) -> bool:
    return value is not None and not (filled and value == "")


def _places(
    at: BodyPlace, body: dict[str, Raw], *, roles: tuple[str, ...], since_user: bool = False, first: bool = False
) -> Iterator[tuple[dict[str, Raw], Details]]:
    if at == "body":
        yield body, {}
    elif at == "tool":
        for index, tool in enumerate(rows(body.get("tools"))):
            yield table(tool), {"index": str(index), "name": text(at_path(tool, "function.name"))}
    else:
        messages = _messages(body)
        start = max((index for index, one in enumerate(messages) if one.get("role") == "user"), default=-1) + 1
        for index, message in enumerate(messages):
            if (roles and message.get("role") not in roles) or (since_user and index < start):
                continue
            yield from _in_message(at, message, index=index, first=first)


def _in_message(
    at: Literal["message", "call", "part"], message: dict[str, Raw], *, index: int, first: bool
) -> Iterator[tuple[dict[str, Raw], Details]]:
    details = {"index": str(index), "role": text(message.get("role"))}
    match at:
        case "message":
            yield message, details
        case "call":
            for call in _calls(message)[: 1 if first else None]:
                name, id = text(at_path(call, "function.name")), text(at_path(call, "id"))
                yield table(call), {**details, "name": name, "id": id}
        case "part":
            for place, part in enumerate(rows(message.get("content"))):
                yield table(part), {**details, "part": str(place), "type": text(table(part).get("type"))}


def _values(check: ValuesCheck, body: dict[str, Raw]) -> Iterator[Details]:
    for place, details in _places(check.at, body, roles=check.roles):
        value = at_path(place, check.field)
        if value is None:
            continue
        word = "object" if isinstance(value, dict) else value if isinstance(value, str) else dump(value).decode()
        wrong = bool(check.allowed) and word not in check.allowed
        wrong = wrong or word in check.refused
        wrong = wrong or (bool(check.pattern) and isinstance(value, str) and not re.search(check.pattern, value))
        if wrong or (check.json and not _is_json(text(value))):
            yield {**details, "value": word, "field": check.field}


def _is_json(value: str) -> bool:
    try:
        parse(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True


def _schemas(check: SchemasCheck, body: dict[str, Raw]) -> Iterator[Details]:
    for root, details in _schema_roots(check.of, body):
        places = [("root", root)] if check.at == "root" else subschemas(root)
        for path, schema in places:
            found = SCHEMA_FEATURES[check.feature](schema, root, check.keywords)
            if found is not None:
                yield {**details, "path": path, "keyword": found}


def _schema_roots(of: Literal["tools", "output"], body: dict[str, Raw]) -> Iterator[tuple[Raw, Details]]:
    if of == "output":
        described = table(at_path(body, "response_format.json_schema"))
        if "schema" in described:
            yield described["schema"], {"name": text(described.get("name"))}
        return
    for index, tool in enumerate(rows(body.get("tools"))):
        function = table(table(tool).get("function"))
        if function.get("parameters") is not None:
            yield function["parameters"], {"index": str(index), "name": text(function.get("name"))}


def _size(check: SizeCheck, body: dict[str, Raw]) -> Iterator[Details]:
    if check.field in body:
        size = len(dump(body[check.field]))
        if size > check.most_bytes:
            yield {"size": str(size), "limit": str(check.most_bytes)}


def _pairing(body: dict[str, Raw]) -> Iterator[Details]:
    try:
        check_pairing(rows(body.get("messages")))
    except Rejected as rejected:
        ids = re.findall(r"'([^']*)'", rejected.message) or [""]
        yield {"id": ids[0], "problem": rejected.message}


Sureness = Literal["source", "documentation", "measured", "once"]
"""How a rule is known: the server's own source code, its documentation, reports that measured the refusal live (several, or one
that compared a refused with a taken body), or one report without such a comparison."""

NAME = re.compile(r"\{(\w+)\}")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a server refuses, with its answer's status and words. `{name}` in `message` is a detail of the place."""

    id: str
    refuses: str  # for the page: what the body has that it may not have
    check: RuleCheck
    status: int = 400
    message: str
    type: str | None = None
    code: str | None = None
    error: str = ""  # the answer's body, where it is not the server's usual one
    source: tuple[str, ...]
    date: str  # of the newest source
    sure: Sureness
    models: str = ""  # holds for models in whose names this pattern is found; empty: for all
    not_models: str = ""  # and for none of these
    unless: dict[str, tuple[str | bool, ...]] = {}  # a field of the body -> values with which the rule does not hold

    def holds_for(self, body: dict[str, Raw]) -> bool:
        model = text(body.get("model"))
        if self.models and not re.search(self.models, model):
            return False
        if self.not_models and re.search(self.not_models, model):
            return False
        return not any(at_path(body, path) in values for path, values in self.unless.items())


class ServerDialect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: how it writes an error, which types of content part it takes beside OpenAI's, and its rules in order.

    `signs_calls` is about the lab's answers: without it no client could obey the rule that asks for signatures.
    """

    name: str
    error: str  # JSON with "{message}", "{type}", "{code}", "{status}" and "{status_text}" as whole values
    type: str = "invalid_request_error"  # where a rule names none
    code: str | None = None
    parts: tuple[str, ...] = ()
    signs_calls: bool = False  # the lab's first call of a response carries a thought signature, as Gemini 3's does
    rules: tuple[Rule, ...]

    def check(self, body: Raw) -> None:
        """Raises Rejected, with the answer that the server would give, for the first rule that `body` breaks."""
        if not isinstance(body, dict):
            return
        for rule in self.rules:
            details = find_refused(rule.check, body) if rule.holds_for(body) else None
            if details is not None:
                raise self.refusal(rule, details=details)

    def refusal(self, rule: Rule, *, details: Details) -> Rejected:
        """The answer to a body that breaks `rule` at the place of which `details` tell."""
        message = NAME.sub(lambda found: details.get(found[1], found[0]), rule.message)
        refused = Rejected(message, status=rule.status, type=rule.type, code=rule.code)
        return self.worded(refused, error=rule.error, details=details)

    def worded(self, rejected: Rejected, *, error: str = "", details: Mapping[str, str] = {}) -> Rejected:
        """A refusal, by its own rules or by the family's, in the form in which this server writes errors."""
        words: dict[str, Raw] = {
            "{message}": rejected.message,
            "{type}": rejected.type or self.type,
            "{code}": rejected.code or self.code,
            "{status}": rejected.status,
            "{status_text}": str(rejected.status),
        }
        body = _filled(parse(error or self.error), words, details)
        return Rejected(rejected.message, status=rejected.status, type=rejected.type, code=rejected.code, body=body)


def _filled(template: Raw, words: Mapping[str, Raw], details: Mapping[str, str]) -> Raw:
    match template:
        case dict():
            return {key: _filled(value, words, details) for key, value in template.items()}
        case list():
            return [_filled(value, words, details) for value in template]
        case str():
            return words.get(template, details.get(template[1:-1], template))
        case _:
            return template


@functools.cache
def builtin_dialects() -> Mapping[str, ServerDialect]:
    """The servers of `dialects.toml` by the name of their row in `profiles.toml`."""
    from importlib import resources

    return parse_dialects(resources.files("turnwise.lab.strict").joinpath("dialects.toml").read_text(encoding="utf-8"))


def parse_dialects(written: str) -> dict[str, ServerDialect]:
    """`[name]` tables of TOML; `same_as` names the row whose rules it has. Raises msgspec.ValidationError, TOMLDecodeError."""
    import tomllib

    found = tomllib.loads(written)
    whole = {name: found[row["same_as"]] if "same_as" in row else row for name, row in found.items()}
    return {name: msgspec.convert({"name": name, **row}, ServerDialect) for name, row in whole.items()}
