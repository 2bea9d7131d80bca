"""Each field of each family's documented request, to each other family: it goes along, it is refused, or it is told by name."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming as AnthropicBody
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatBody
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as ResponsesBody

from relay.asking_relay import MODELS, PAIRS, PROFILES, body_of, path_of, plain, told_of
from relay.documented import Variant, variants
from tables import each
from thoroughness import spread
from turnwise.lab.strict import Rejected, check
from turnwise.relay.client_request import RequestRefused, read_client_request
from turnwise.relay.terms import RouteTerms, UpstreamRequest
from turnwise.relay.translation import translate
from turnwise.wire.profiles import EMPTY_TEXT

# The fields of the body, which the Python package keeps in one object with those of `generationConfig`.
GEMINI_TYPES: dict[str, Any] = {
    "contents": list[google.Content],
    "systemInstruction": google.Content,
    "tools": list[google.Tool],
    "toolConfig": google.ToolConfig,
    "safetySettings": list[google.SafetySetting],
    "cachedContent": str,
    "labels": dict[str, str],
    "serviceTier": str,
    "store": bool,
    "continuationToken": str,
    "generationConfig": google.GenerationConfig,
}


def gemini_variants() -> Iterator[Variant]:
    for name, kind in GEMINI_TYPES.items():
        if (value := {str: "x", bool: True, dict[str, str]: {"x": "y"}}.get(kind)) is not None:
            yield Variant(name, {name: value}, {})
        for found in variants(kind, name):
            yield Variant(found.path, {name: found.value}, {name: found.without})


def documented(family: str) -> Iterator[Variant]:
    match family:
        case "openai_chat":
            yield from variants(ChatBody)
        case "openai_responses":
            yield from variants(ResponsesBody)
        case "anthropic_messages":
            yield from variants(AnthropicBody)
        case _:
            yield from gemini_variants()


# What makes no difference to the upstream, and why that is right.
SILENT: dict[str, dict[str, str]] = {
    "openai_chat": {
        r"function_call": "`auto` is what is done anyway",
        r"response_format": "`text` is what is done anyway",
        r"parallel_tool_calls": "true is what is done anyway; false is tested below",
        r"stream": "false is what is done anyway",
        r"stream_options\..*": "the gateway writes the client's stream",
    },
    "openai_responses": {
        r"model": "the route names it",
        r"stream": "false is what is done anyway",
        r"stream_options\..*": "the gateway writes the client's stream",
        r"parallel_tool_calls": "true is what is done anyway; false is tested below",
        r"truncation": "`disabled` is what is done anyway",
        r"text\.format": "`text` is what is done anyway",
        r"text\.format:json_schema\.strict": "the other APIs always keep to a schema",
        r"(tools\[\]:namespace|input\[\]:additional_tools).*\.defer_loading": "its tools are offered at once, without a search",
        r"input\[\]\.type": "`message` is what an item without a type is",
        r"input\[\](:\w+)?\.(id|status)": "bookkeeping of an item that the client sends back",
    },
    "anthropic_messages": {
        r"stream": "false is what is done anyway",
        r"tool_choice": "`auto` is what is done anyway",
        r"tools\[\]\.type": "`custom` is what a tool without a type is",
        r"messages\[\]\.content\[\]:tool_use\.caller": "`direct` is what is so anyway",
    },
    "gemini": {
        r"systemInstruction\.role": "the API does not look at it",
        r".*\.functionCall\.(partialArgs.*|willContinue)": "pieces of a stream: a request has whole calls",
        r".*\.functionResponse\.name": "the other APIs pair a result with its call by the id",
        r".*\.parameters\.propertyOrdering": "in which order keys are written: JSON Schema has no word for it",
        r".*\.parameters\.nullable": "without a type beside it says nothing",
    },
}


def apart(variant: Variant) -> tuple[dict[str, Any], dict[str, Any]]:
    """The field of the body's top level in which both differ, with and without."""
    names = [name for name, value in variant.value.items() if value != variant.without.get(name)]
    without = {name: variant.without[name] for name in names if name in variant.without}
    return {name: variant.value[name] for name in names}, without


def outcome(source: str, value: dict[str, Any], target: str) -> UpstreamRequest | None:
    """None where it is refused."""
    body = json.dumps({**plain(source), **value}).encode()
    try:
        asked = read_client_request(path_of(source), body, one_client=True)
        return translate(asked, terms=RouteTerms(model=MODELS[target]), profile=PROFILES[target])
    except RequestRefused:
        return None


def is_felt(variant: Variant, source: str, target: str) -> bool:
    """Whether the field is refused, or makes a difference, or stands in what is told as a whole."""
    value, others = apart(variant)
    sent = outcome(source, value, target)
    if sent is None:
        return True
    without = outcome(source, others, target)
    if without is None or (sent.call.path, sent.call.body, sent.told) != (
        without.call.path,
        without.call.body,
        without.told,
    ):
        return True
    path = variant.path.replace("[]", "").replace(":", ".").split(".")
    return any(is_within(path, name.split(".")) for name in told_of(sent))


def is_within(path: list[str], told: list[str]) -> bool:
    """The words of what was told stand in the path, in their order."""
    rest = iter(path)
    return all(word in rest for word in told)


@pytest.mark.costly
@each(("source", "target"), spread(PAIRS, one_of=3, name="each documented field is "))
def test_each_documented_field_is_carried_refused_or_told(source: str, target: str) -> None:
    """The vendors' own types say which fields there are. A field that is set and makes no difference was dropped in silence."""
    silent = {
        variant.path
        for variant in documented(source)
        if variant.value != variant.without
        and not any(re.fullmatch(pattern, variant.path) for pattern in SILENT[source])
        and not is_felt(variant, source, target)
    }
    assert sorted(silent) == []


@pytest.mark.parametrize("source", SILENT)
def test_each_exception_is_a_documented_field(source: str) -> None:
    """An exception that fits no field any more would hide the next one."""
    paths = {variant.path for variant in documented(source)}
    assert [pattern for pattern in SILENT[source] if not any(re.fullmatch(pattern, path) for path in paths)] == []


@pytest.mark.costly
@each(("source", "target"), spread(PAIRS, one_of=3, name="the walk reaches what is "))
def test_the_walk_reaches_what_is_carried_told_and_refused(source: str, target: str) -> None:
    """A walk whose bodies are all refused would prove nothing."""
    outcomes = [outcome(source, apart(variant)[0], target) for variant in documented(source)]
    carried = [sent for sent in outcomes if sent is not None and not sent.told]
    told = [sent for sent in outcomes if sent is not None and sent.told]
    assert min(len(carried), len(told), outcomes.count(None)) >= 10


HISTORIES = ("messages", "input", "contents")


@each(("source", "target"), spread(PAIRS, one_of=3, name="what its own api takes th"))
def test_what_its_own_api_takes_the_other_api_takes_from_the_gateway(source: str, target: str) -> None:
    """The lab's strict judges, before and after: a request that was right does not become wrong on the way."""
    wrong: dict[str, str] = {}
    judged = 0
    for variant in documented(source):
        fields, _ = apart(variant)
        if any(key in fields for key in HISTORIES) or not is_taken(source, plain(source, **fields)):
            continue
        if (sent := outcome(source, fields, target)) is not None:
            judged += 1
            if not is_taken(target, body_of(sent)):
                wrong[variant.path] = sent.call.body.decode()
    assert wrong.keys() <= WRONG_TYPE
    assert judged >= 15


@pytest.mark.costly
@each(("source", "target"), spread(PAIRS, one_of=3, name="no documented item become"))
def test_no_documented_item_becomes_an_empty_message(source: str, target: str) -> None:
    """Proves: whatever stands in a history, by the vendors' own types, never goes up as an assistant's message that says nothing.
    What another API has no form for is refused, or told and left out with its message."""
    empty: dict[str, Any] = {}
    seen = 0
    for variant in documented(source):
        fields, others = [as_models(one) for one in apart(variant)]
        if not any(key in fields for key in HISTORIES) or (sent := outcome(source, fields, target)) is None:
            continue
        seen += len(assistants(body_of(sent)))
        without = outcome(source, others, target)
        before = [] if without is None else [*filter(says_nothing, assistants(body_of(without)))]
        if len(found := [*filter(says_nothing, assistants(body_of(sent)))]) > len(before):
            empty[variant.path] = found
    assert empty == {}
    assert seen >= 2


def as_models(fields: dict[str, Any]) -> dict[str, Any]:
    """The same where Gemini's contents, whose role is a free text, are the model's."""
    if not isinstance(fields.get("contents"), list):
        return fields
    asked = {"role": "user", "parts": [{"text": "hi"}]}
    return {**fields, "contents": [asked, *[{**one, "role": "model"} for one in fields["contents"]]]}


def assistants(body: dict[str, Any]) -> list[dict[str, Any]]:
    items = [one for key in HISTORIES if isinstance(body.get(key), list) for one in body[key]]
    return [one for one in items if one.get("role") in ("assistant", "model")]


def says_nothing(message: dict[str, Any]) -> bool:
    if message.get("tool_calls") or message.get("refusal"):
        return False
    content = message.get("content", message.get("parts"))
    texts = [content] if isinstance(content, str) else [part.get("text", "a part") for part in content or []]
    return not "".join(texts).replace(EMPTY_TEXT, "").strip()


@pytest.mark.parametrize("content", ["", None, [], EMPTY_TEXT, [{"type": "text", "text": " "}]])
def test_what_says_nothing_is_seen(content: Any) -> None:
    """Proves: the judge of the walk knows an empty message in each form that families have for it."""
    assert says_nothing({"role": "assistant", "content": content}) and says_nothing({"role": "model", "parts": []})
    assert not says_nothing({"role": "assistant", "content": content, "tool_calls": [{}]})


# A tool's parameters of type `null`, which Gemini's judge lets pass.
WRONG_TYPE = {"tools[].functionDeclarations[].parameters.type"}


def is_taken(family: str, body: dict[str, Any]) -> bool:
    try:
        check(family, body=body)
    except Rejected:
        return False
    return True
