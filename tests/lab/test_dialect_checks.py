"""Each kind of check in `dialects.toml` against a naive reading of the same sentence, on drawn bodies."""

import json
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.lab.raw import parse
from turnwise.lab.strict.dialects import (
    ContentCheck,
    FieldsCheck,
    OrderCheck,
    PairingCheck,
    RolesCheck,
    RuleCheck,
    SchemaFeature,
    SchemasCheck,
    SizeCheck,
    ValuesCheck,
    find_refused,
    subschemas,
)

ROLES = ("system", "user", "assistant", "tool")
drawn = settings(max_examples=examples(200), deadline=None, derandomize=True)
roles = st.sampled_from(ROLES)
CONTENTS: list[Any] = [
    None,
    "",
    "x",
    [],
    [{"type": "text", "text": ""}],
    [{"type": "text", "text": "x"}],
    [{"type": "file"}],
]


def refused(check: RuleCheck, **body: Any) -> bool:
    raw = parse(json.dumps(body))
    assert isinstance(raw, dict)
    return find_refused(check, raw) is not None


def of(named: list[str], **more: Any) -> list[dict[str, Any]]:
    return [{"role": role, **more} for role in named]


@drawn
@given(st.lists(roles, min_size=1, max_size=6), st.sampled_from(("start", *ROLES)), st.sampled_from((*ROLES, "end")))
def test_order_refuses_a_pair_of_neighbours(named: list[str], first: str, second: str) -> None:
    """Proves: a body is refused if and only if the pair stands side by side, `start` and `end` being at the ends."""
    line = " ".join(["start", *named, "end"])
    assert refused(OrderCheck(refused=((first, second),)), messages=of(named)) == (f"{first} {second}" in line)


@drawn
@given(st.lists(roles, min_size=1, max_size=6), roles)
def test_any_stands_for_every_role_but_for_no_end(named: list[str], role: str) -> None:
    """Proves: `any` before a role is every place but the first; behind it every place but the last. A true field excuses."""
    assert refused(OrderCheck(refused=(("any", role),)), messages=of(named)) == (role in named[1:])
    assert refused(OrderCheck(refused=((role, "any"),)), messages=of(named)) == (role in named[:-1])
    excused = OrderCheck(refused=((role, "end"),), unless="prefix")
    assert refused(excused, messages=of(named)) == (named[-1] == role)
    assert not refused(excused, messages=of(named, prefix=True))
    twice = OrderCheck(refused=((role, role),), at_end=True)
    assert refused(twice, messages=of(named)) == (named[-2:] == [role, role])


@drawn
@given(st.lists(roles, max_size=4), roles)
def test_roles_are_forbidden_or_needed(named: list[str], role: str) -> None:
    """Proves: a forbidden role refuses where it is there, a needed one where it is not."""
    assert refused(RolesCheck(refused=(role,)), messages=of(named)) == (role in named)
    assert refused(RolesCheck(needed=role), messages=of(named)) == (role not in named)


@drawn
@given(roles, roles, st.sampled_from(CONTENTS), st.booleans(), st.sampled_from([None, True, False]))
def test_content_has_a_form(role: str, judged: str, content: Any, has_calls: bool, calls: bool | None) -> None:
    """Proves: a list is a list even if it is empty, a list of nothing counts as null, and empty is a text that says nothing."""
    messages = of([role], content=content, tool_calls=[{}] if has_calls else [])
    counts = role == judged and calls in (None, has_calls)
    texts = isinstance(content, list) and content != [] and content[0] == {"type": "text", "text": ""}
    for form, there in (
        ("list", isinstance(content, list)),
        ("null", content in (None, [])),
        ("missing", False),
        ("empty", content == "" or texts),
    ):
        check = ContentCheck(roles=(judged,), refused=(form,), calls=calls)  # type: ignore[arg-type]  # a word of the three
        assert refused(check, messages=messages) == (counts and there), form
    left_out = ContentCheck(roles=(judged,), refused=("missing",), calls=calls)
    bare = [{key: value for key, value in messages[0].items() if key != "content"}]
    assert refused(left_out, messages=bare) == counts


FIELD = st.sampled_from(["a", "b", "c"])


@drawn
@given(
    st.dictionaries(FIELD, st.sampled_from([None, "", "x", {"d": 1}]), max_size=3),
    st.lists(FIELD, min_size=1, max_size=3),
)
def test_fields_are_known_forbidden_needed_or_alone(body: dict[str, Any], named: list[str]) -> None:
    """Proves: at the body and at a message alike, a field with null is not there, and dots lead into objects."""
    there = {name for name, value in body.items() if value is not None}
    fields = tuple(named)
    ways: list[tuple[dict[str, Any], bool]] = [
        ({"allowed": fields}, bool(there - set(named))),
        ({"refused": fields}, bool(there & set(named))),
        ({"needed": fields}, bool(set(named) - there)),
        ({"needed": fields, "filled": True}, any(body.get(name) in (None, "") for name in named)),
        ({"together": fields}, set(named) <= there),
        ({"refused": tuple(f"{name}.d" for name in named)}, any(body.get(name) == {"d": 1} for name in named)),
    ]
    for given_, expected in ways:
        assert refused(FieldsCheck(**given_), **body) == expected, given_
    assert refused(FieldsCheck(at="message", roles=("user",), refused=fields), messages=of(["user"], **body)) == bool(
        there & set(named)
    )
    assert not refused(FieldsCheck(at="message", roles=("tool",), refused=fields), messages=of(["user"], **body))


@drawn
@given(st.lists(st.tuples(roles, st.lists(st.booleans(), max_size=3)), max_size=5), st.booleans(), st.booleans())
def test_calls_are_found_since_the_user_and_first(
    told: list[tuple[str, list[bool]]], since_user: bool, first: bool
) -> None:
    """Proves: `since_user` leaves out what the last user message ended, `first` all calls of a message but one."""
    messages = [{"role": role, "tool_calls": [{"s": "x"} if one else {} for one in signed]} for role, signed in told]
    last = max((place for place, (role, _) in enumerate(told) if role == "user"), default=-1)
    judged = [signed for place, (_, signed) in enumerate(told) if not since_user or place > last]
    missing = any(not one for signed in judged for one in (signed[:1] if first else signed))
    check = FieldsCheck(at="call", needed=("s",), since_user=since_user, first=first)
    assert refused(check, messages=messages) == missing


@drawn
@given(st.sampled_from([None, "auto", "none", "{}", "[1", 3, ["a"], {"type": "function"}]))
def test_values_are_words(value: Any) -> None:
    """Proves: an object counts as the word `object`, a number as it is written, and null as nothing."""
    word = (
        "object"
        if isinstance(value, dict)
        else value
        if isinstance(value, str)
        else json.dumps(value, separators=(",", ":"))
    )
    there = value is not None
    assert refused(ValuesCheck(field="f", allowed=("auto", "object")), f=value) == (
        there and word not in ("auto", "object")
    )
    assert refused(ValuesCheck(field="f", refused=("none", "3")), f=value) == (word in ("none", "3"))
    pattern = ValuesCheck(field="f", pattern="^[a-z]+$")
    assert refused(pattern, f=value) == (isinstance(value, str) and not re.search("^[a-z]+$", value))
    assert refused(ValuesCheck(field="f", json=True), f=value) == (there and value != "{}")
    parts = [{"type": "image_url", "image_url": {"url": value}}]
    at_part = ValuesCheck(at="part", field="image_url.url", pattern="^[a-z]+$")
    assert refused(at_part, messages=of(["user"], content=parts)) == refused(pattern, f=value)


SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "string"]),
            "enum": st.just(["x"]),
            "minLength": st.integers(1, 4),
        },
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object"),
            "properties": st.dictionaries(st.sampled_from("ab"), inner | st.booleans(), max_size=2),
            "items": inner | st.lists(inner, max_size=2),
            "anyOf": st.lists(inner, max_size=2),
            "required": st.lists(st.sampled_from("abc"), max_size=2),
            "$ref": st.sampled_from(["#", "#/$defs/T", "#/definitions/T", "https://x.y/z"]),
            "description": st.just("x"),
        },
    ),
    max_leaves=6,
)


def dicts(value: Any) -> list[dict[str, Any]]:
    """Every object in a schema that stands where a schema may stand."""
    if not isinstance(value, dict):
        return []
    inner = [*value.get("properties", {}).values(), *value.get("anyOf", []), value.get("items")]
    inner += list(value.get("$defs", {}).values())
    return [value, *[one for part in inner for one in dicts(part)]]


@drawn
@given(SCHEMAS)
def test_schema_features_are_found_wherever_they_are(schema: dict[str, Any]) -> None:
    """Proves: each feature refuses a tool, or structured output, if and only if some schema in it has the feature; at the root
    only the root counts."""
    root = {**schema, "$defs": {"T": {"type": "object", "description": "y"}}}
    naive: dict[SchemaFeature, tuple[tuple[str, ...], Any]] = {
        "not-of-type": (("object",), lambda one: one.get("type") != "object"),
        "keyword": (("enum", "anyOf"), lambda one: "enum" in one or "anyOf" in one),
        "lacking": (("type", "properties"), lambda one: not {"type", "properties"} <= set(one)),
        "above": (("2", "minLength", "minItems"), lambda one: one.get("minLength", 0) > 2),
        "without": (("enum", "type"), lambda one: "enum" in one and "type" not in one),
        "beside": (("anyOf", "type"), lambda one: "anyOf" in one and "type" in one),
        "foreign-reference": (("#/$defs/",), lambda one: one.get("$ref") in ("#/definitions/T", "https://x.y/z")),
        "clash-with-reference": (
            (),
            lambda one: one.get("$ref") == "#/$defs/T" and ("type" in one or "description" in one),
        ),
        "no-object": (
            (),
            lambda one: (
                any(isinstance(part, bool) for part in one.get("properties", {}).values())
                or isinstance(one.get("items"), list)
            ),
        ),
        "undeclared": ((), lambda one: not set(one.get("required", [])) <= set(one.get("properties", {}))),
    }
    tools = [{"function": {"name": "t", "parameters": root}}]
    output = {"type": "json_schema", "json_schema": {"name": "n", "schema": root}}
    for feature, (keywords, has) in naive.items():
        anywhere = SchemasCheck(feature=feature, keywords=keywords)
        bools = feature in ("not-of-type", "lacking") and any(
            not isinstance(one, dict) for _, one in subschemas(parse(json.dumps(root)))
        )
        expected = bools or any(has(one) for one in dicts(root))
        assert refused(anywhere, tools=tools) == expected, feature
        assert (
            refused(SchemasCheck(of="output", feature=feature, keywords=keywords), response_format=output) == expected
        )
        assert refused(SchemasCheck(at="root", feature=feature, keywords=keywords), tools=tools) == has(root), feature


@drawn
@given(st.integers(0, 40), st.lists(st.sampled_from("abc"), max_size=3), st.lists(st.sampled_from("abc"), max_size=3))
def test_size_and_pairing(length: int, calls: list[str], results: list[str]) -> None:
    """Proves: bytes of JSON are counted, and calls want exactly their own results behind them."""
    assert refused(SizeCheck(field="tools", most_bytes=20), tools=["x" * length]) == (length + 4 > 20)
    messages = [
        {"role": "assistant", "tool_calls": [{"id": id} for id in calls]},
        *[{"role": "tool", "tool_call_id": id} for id in results],
    ]
    is_paired = len(set(calls)) == len(calls) and sorted(calls) == sorted(results)
    assert refused(PairingCheck(), messages=messages) != is_paired
