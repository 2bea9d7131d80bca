"""Every further request for an answer is made from the body as it was sent: of each purpose, under each edit, in all families."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.calling import answered, call_of, upstream_at
from gateway.relayed import FAMILIES
from tables import each
from turnwise.gateway.config import GatewayRoute
from turnwise.gateway.doors import ClientCall
from turnwise.lab.provider import Received
from turnwise.lab.script import Script, Writer
from turnwise.wire.family import MODULES
from turnwise.wire.json_fields import read_fields
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import relay_facts

LIMITED = Script(name="limited", title="cuts at 150 tokens by itself", writer=Writer(writes="answer", limit=150))
CUT_FILE = Script(name="cut-file", title="cuts at 150 tokens by itself", writer=Writer(writes="file", limit=150))
PURPOSES = {"retry": "fault-once-503", "again": "fault-once-reset", "text": "limited", "call": "cut-file"}
ROUTES: Mapping[str, dict[str, Any]] = {
    "none": {},
    "capped": {"max_output_tokens": 4_000},
    "one call": {"one_call_at_a_time": True},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
MARK = {"type": "ephemeral"}
ASKED: Mapping[str, Mapping[str, dict[str, Any]]] = {
    "openai_chat": {
        "plain": {},
        "settings": {"metadata": {"a": "b"}, "seed": 7, "top_p": 0.5, "stop": ["\n\n\n"], "user": "u", "n": 1},
        "reasoning": {"reasoning_effort": "high", "prompt_cache_key": "k"},
        "schema": {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": SCHEMA, "strict": True},
            }
        },
        "usage unwanted": {"stream_options": {"include_usage": False}},
        "a server's own": {"chat_template_kwargs": {"enable_thinking": False}, "repetition_penalty": 1.1},
        "parallel": {"parallel_tool_calls": True, "tool_choice": "auto"},
    },
    "openai_responses": {
        "plain": {},
        "settings": {"metadata": {"a": "b"}, "top_p": 0.5, "safety_identifier": "u", "truncation": "auto"},
        "reasoning": {"reasoning": {"effort": "high", "summary": "auto"}, "text": {"verbosity": "low"}},
        "schema": {"text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True}}},
        "listed": {"input": [{"role": "user", "content": "Write it."}], "instructions": "Be brief."},
        "parallel": {"parallel_tool_calls": True, "tool_choice": "auto"},
    },
    "anthropic_messages": {
        "plain": {},
        "settings": {"metadata": {"user_id": "u"}, "top_k": 5, "stop_sequences": ["\n\n\n"], "service_tier": "auto"},
        "thinking": {"max_tokens": 6_000, "thinking": {"type": "enabled", "budget_tokens": 2_000}},
        "marks": {
            "system": [{"type": "text", "text": "Be brief.", "cache_control": MARK}],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Write.", "cache_control": MARK}]}],
        },
        "effort": {"output_config": {"effort": "high"}},
        "parallel": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    },
    "gemini": {
        "plain": {},
        "settings": {"safetySettings": [], "generationConfig": {"topK": 5, "seed": 7, "stopSequences": ["\n\n\n"]}},
        "spelled": {"generation_config": {"max_output_tokens": 3_000, "thinking_config": {"thinking_budget": 2_000}}},
        "schema": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": SCHEMA}},
        "parallel": {"toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
    },
}
CHANGED = {name: relay_facts(name).changed for name in MODULES}
HISTORY = {name: next(iter(places)) for name, places in CHANGED.items()}


def leaves(value: object, *, at: str, within: tuple[str, ...]) -> dict[str, object]:
    """The fields by their places: those that the table looks into, and every other one whole."""
    if isinstance(value, dict) and any(place.startswith(f"{at}.") for place in within):
        return {
            name: found
            for key, one in value.items()
            for name, found in leaves(one, at=f"{at}.{camel(key)}", within=within).items()
        }
    return {at: value}


def camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join([word.capitalize() for word in rest])


def fields_of(body: bytes, *, family: FamilyName) -> dict[str, object]:
    within = tuple(CHANGED[family])
    found: dict[str, object] = {}
    for key, raw in read_fields(body).items():
        name = camel(key) if family == "gemini" else key
        found |= leaves(json.loads(bytes(raw)), at=name, within=within)
    return found


def unmarked(item: object) -> object:
    """Marks for the provider's cache stand at the end of what is sent, wherever that is."""
    if isinstance(item, dict):
        return {key: unmarked(value) for key, value in item.items() if key != "cache_control"}
    return [unmarked(one) for one in item] if isinstance(item, list) else item


def unexplained(first: Received, later: Received, *, family: FamilyName, same: bool) -> list[str]:
    """The fields of the first body that the later one has not, and those that it alone has; no place of the table."""
    before, after = fields_of(first.body, family=family), fields_of(later.body, family=family)
    history = HISTORY[family]
    old, new = before.pop(history), after.pop(history)
    places = [key for key in {**before, **after} if key not in CHANGED[family]]
    found = [key for key in places if before.get(key, "(none)") != after.get(key, "(none)")]
    assert isinstance(new, list | str)
    if isinstance(old, list):
        kept = list(new)[: len(old)]
        if kept != old if same else unmarked(kept) != unmarked(old):
            found.append(history)
    return found


def without(call: ClientCall, name: str) -> ClientCall:
    fields = {key: value for key, value in json.loads(call.body).items() if key != name}
    return msgspec.structs.replace(call, body=msgspec.json.encode(fields))


@pytest.mark.costly
@pytest.mark.promise("bill:wire")
@each("upstream", FAMILIES)
@each("client", FAMILIES, meeting="each")
def test_each_field_that_was_sent_is_in_every_further_body(client: FamilyName, upstream: FamilyName) -> None:
    """Over every purpose, every edit of a route, and what clients ask for; streamed and whole."""
    wrong: dict[str, list[str]] = {}
    further = 0
    for number, (purpose, model) in enumerate(PURPOSES.items()):
        for place, asked in enumerate(ASKED[client]):
            for edit, terms in ROUTES.items():
                stream = (number + place + len(edit)) % 4 != 0  # both of each, not all of both
                fields = ASKED[client][asked]
                tool = "write" if purpose == "call" or asked == "parallel" else ""
                call = call_of(client, model, stream=stream, tool=tool, **fields)
                if "stream_options" not in fields:  # the gateway asks for the usage by itself
                    call = without(call, "stream_options")
                route = GatewayRoute(upstream=upstream_at(upstream), **terms)
                found = answered(call, route, scripts=[LIMITED, CUT_FILE])
                if not found.requests and client != upstream:
                    continue  # the other family has no word for it
                where = f"{purpose}, {asked}, {edit}, {'stream' if stream else 'whole'}"
                assert found.requests, (where, found.body)
                first, *later = found.requests
                further += len(later)
                assert all(one.path == first.path for one in later), where
                for one in later:
                    if missing := unexplained(first, one, family=upstream, same=client == upstream):
                        wrong[where] = missing
                    assert one.status != 400, (where, one.refused)
    assert wrong == {}
    assert further > 30


@pytest.mark.promise("bill:wire")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_fallback_of_the_same_family_gets_the_same_body(family: FamilyName) -> None:
    """But for the model, which is another."""
    for asked in ASKED[family]:
        tool = "write" if asked == "parallel" else ""
        call = call_of(family, "any", stream=True, tool=tool, **ASKED[family][asked])
        route = GatewayRoute(
            upstream=upstream_at(family, model="fault-500"),
            fallbacks=(upstream_at(family, model="plain-answer"),),
            retry=0,
        )
        first, second = answered(call, route).requests
        one, other = (json.loads(sent.body) for sent in (first, second))
        assert {**one, "model": ""} == {**other, "model": ""}, asked


def test_every_exception_has_a_reason() -> None:
    for places in CHANGED.values():
        assert all(len(why) > 20 for why in places.values())
