"""Where the marks for a provider's cache stand in a body (promise bill:cached): facts of the APIs, each with its source in
`wire/profiles.toml` and `wire/cache_marks.py`."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.types.message_create_params import MessageCreateParamsNonStreaming, MessageCreateParamsStreaming
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params
from pydantic import TypeAdapter

from tables import each
from thoroughness import examples
from turnwise.lab import strict
from turnwise.lab.strict.verdicts import marks_of_chat, marks_of_messages
from turnwise.vocab import Caching, File, Message, Opaque, Reasoning, Request, Text, ToolCall, ToolResult, ToolSpec
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import family
from turnwise.wire.profiles import Profile, builtin_profiles

ROWS = builtin_profiles()
TOOLS = (ToolSpec(name="read", description="Read."), ToolSpec(name="write", description="Write."))
ANTHROPIC = ("anthropic", "bedrock-anthropic", "vertex-anthropic", "anthropic_messages")
GATEWAYS = ("openrouter", "litellm")
MARK, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
MODELS = {"openrouter": "anthropic/claude-sonnet-4.5", "litellm": "bedrock/claude-sonnet-4-5"}


def step(number: int, *, calls: int = 1) -> tuple[Message, Message]:
    ids = [f"call_{number}_{place}" for place in range(calls)]
    return (
        Message("assistant", tuple([ToolCall(id=id, name="read", arguments="{}") for id in ids])),
        Message("tool", tuple([ToolResult(call_id=id, name="read", content=(Text(f"result {id}"),)) for id in ids])),
    )


def request_of(
    name: str, *, steps: int = 3, calls: int = 1, own: tuple[Message, ...] = (), hour: bool = False, **more: Any
) -> Request:
    history = (Message("user", (Text("go"),)), *[one for number in range(steps) for one in step(number, calls=calls)])
    return Request(
        model=MODELS.get(name, "claude-sonnet-4-5"),
        system=(Text("Be kind."), Text("Be brief.")),
        tools=TOOLS,
        messages=(*history, *own),
        cache=Caching(hour=hour, key="session-1", passing=len(own)),
        **more,
    )


def body_of(request: Request, name: str, *, history: EncodedHistory | None = None) -> dict[str, Any]:
    profile = ROWS[name]
    return json.loads(family(profile.family).encode_request(request, profile, history=history).body)


def marks_in(body: dict[str, Any], name: str) -> list[tuple[str, object]]:
    marks = marks_of_messages(body) if name in ANTHROPIC else marks_of_chat(body)
    return [(one.where.removesuffix(".cache_control"), one.mark) for one in marks]


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("name", ["bedrock-anthropic", "vertex-anthropic", "anthropic_messages"])
def test_marks_stand_at_the_ends_of_tools_system_and_the_last_two_requests(name: str) -> None:
    """Anthropic docs, "Prompt caching": at most four; where the field at the top is not known."""
    body = body_of(request_of(name), name)
    assert marks_in(body, name) == [
        ("tools.1.custom", MARK),
        ("system.1.text", MARK),
        ("messages.4.content.0.tool_result", MARK),
        ("messages.6.content.0.tool_result", MARK),
    ]
    assert "cache_control" not in body


@pytest.mark.promise("bill:cached")
def test_anthropics_own_api_is_told_of_the_end_by_a_field_at_the_top() -> None:
    """Anthropic docs, "Automatic caching": it takes one of the four places."""
    body = body_of(request_of("anthropic"), "anthropic")
    where = [one for one, _ in marks_in(body, "anthropic")]
    assert where == ["tools.1.custom", "system.1.text", "messages.4.content.0.tool_result", "cache_control"]
    assert body["cache_control"] == MARK


@pytest.mark.promise("bill:cached")
def test_a_gateway_to_anthropics_models_gets_marks_on_content_parts() -> None:
    """OpenRouter docs, "Prompt Caching"; LiteLLM takes a tool message's own mark for that of its result."""
    at_openrouter = body_of(request_of("openrouter"), "openrouter")
    assert marks_in(at_openrouter, "openrouter") == [
        ("messages.0.content.1.text", MARK),
        ("messages.5.content.0.text", MARK),
        ("messages.7.content.0.text", MARK),
    ]
    at_litellm = body_of(request_of("litellm"), "litellm")
    assert [where for where, _ in marks_in(at_litellm, "litellm")] == [
        "messages.0.content.1.text",
        "messages.5.custom",
        "messages.7.custom",
    ]
    assert at_litellm["messages"][7]["content"] == "result call_2_0"


@pytest.mark.parametrize("name", [*ANTHROPIC, *GATEWAYS])
def test_the_older_mark_is_where_the_request_before_had_its_newest(name: str) -> None:
    """So a step with more blocks than the API looks back over (20) finds it, in requests from one history and from none."""
    history = EncodedHistory()
    ends: list[object] = []
    for steps in range(1, 6):
        request = request_of(name, steps=steps, calls=30)
        body = body_of(request, name, history=history)
        assert body == body_of(request, name)
        messages = marked_messages(body)
        if "cache_control" in body:
            messages.append(len(body["messages"]) - 1)
        assert messages[-1] == len(body["messages"]) - 1
        if ends:
            assert messages[-2] == ends[-1]
        ends.append(messages[-1])


def marked_messages(body: dict[str, Any]) -> list[int]:
    return [
        place
        for place, message in enumerate(body["messages"])
        if message["role"] != "system" and "cache_control" in json.dumps(message)
    ]


@pytest.mark.parametrize("name", [*ANTHROPIC, *GATEWAYS])
def test_what_is_for_one_request_only_stands_behind_the_newest_mark(name: str) -> None:
    """A word at the end of a request is in no later one: what is kept up to it would never be read."""
    plain = body_of(request_of(name), name)
    body = body_of(request_of(name, own=(Message("user", (Text("Answer now."),)),)), name)
    assert "cache_control" not in body
    ends = marked_messages(body)
    assert ends[-1] == (len(plain["messages"]) - 1)
    assert "cache_control" not in json.dumps(body["messages"][-1]["content"][-1])


@pytest.mark.parametrize("name", [*ANTHROPIC, *GATEWAYS])
def test_an_hour_is_asked_for_in_every_mark(name: str) -> None:
    marks = marks_in(body_of(request_of(name, hour=True), name), name)
    assert len(marks) in (3, 4)
    assert all(mark == HOUR for _, mark in marks)


@each("name", ROWS)
def test_nothing_is_asked_for_where_caching_is_off(name: str) -> None:
    request = replace(request_of(name), cache=None)
    body = json.dumps(body_of(request, name))
    assert "cache_control" not in body
    assert "prompt_cache" not in body


@each("name", [name for name, row in ROWS.items() if row.cache == "unasked"])
def test_nothing_is_asked_for_where_prompts_are_kept_unasked(name: str) -> None:
    assert body_of(request_of(name), name) == body_of(replace(request_of(name), cache=None), name)


def test_other_models_of_a_gateway_are_not_asked() -> None:
    """OpenRouter docs: most providers keep prompts by themselves; strict servers behind a gateway take strings only."""
    for name in GATEWAYS:
        request = replace(request_of(name), model="openai/gpt-5")
        assert body_of(request, name) == body_of(replace(request, cache=None), name)


BEDROCK = "us.anthropic.claude-{}-v1:0"


@pytest.mark.promise("bill:cached")
@each(
    ("model", "auto", "hour"),
    [
        *[(name, False, False) for name in ("3-haiku-20240307", "3-opus-20240229", "3-5-sonnet-20240620")],
        *[(name, True, False) for name in ("3-5-haiku-20241022", "3-7-sonnet-20250219", "sonnet-4-20250514")],
        *[(name, True, False) for name in ("opus-4-20250514", "opus-4-1-20250805")],
        *[(name, True, True) for name in ("sonnet-4-5-20250929", "haiku-4-5-20251001", "opus-4-5-20251101", "opus-5")],
    ],
)
def test_bedrock_is_asked_for_what_each_model_takes(model: str, auto: bool, hour: bool) -> None:
    """AWS docs, "Prompt caching for faster model inference": Claude 3 and 3.5 Sonnet are refused with any mark, models before 4.5
    with a `ttl`; behind LiteLLM, too."""
    for name, model_name in (("bedrock-anthropic", BEDROCK), ("litellm", f"bedrock/{BEDROCK}")):
        for asks_hour in (False, True):
            request = replace(request_of(name, hour=asks_hour), model=model_name.format(model))
            marks = [mark for _, mark in marks_in(body_of(request, name), name)]
            assert bool(marks) is auto
            assert all(mark == (HOUR if hour and asks_hour else MARK) for mark in marks)


@pytest.mark.promise("bill:cached")
def test_openai_and_those_who_took_it_over_get_a_key() -> None:
    """OpenAI API reference, `prompt_cache_key`; `prompt_cache_retention` only for the models that the guide lists."""
    for name in ("openai", "openai-chat", "azure", "azure-responses", "mistral", "xai-responses"):
        request = replace(request_of(name), model="gpt-5")
        body = body_of(request, name)
        assert (body["prompt_cache_key"], body.get("prompt_cache_retention")) == ("session-1", None)
        assert list(body).index("prompt_cache_key") > list(body).index("input" if "input" in body else "messages")
    for model, kept in (
        *(("gpt-5", "24h"), ("gpt-5-2025-08-07", "24h"), ("gpt-5.1-codex-mini", "24h"), ("gpt-5-codex", "24h")),
        *(("gpt-4o", None), ("gpt-5-nano", None), ("gpt-5.6", None), ("gpt-5.6-sol", None)),
    ):
        for name in ("openai", "openai-chat"):
            body = body_of(replace(request_of(name, hour=True), model=model), name)
            assert body.get("prompt_cache_retention") == kept, (name, model)


def test_the_users_own_key_stands() -> None:
    for name, family_name in (("openai", "openai_responses"), ("openai-chat", "openai_chat")):
        extra = Opaque(family_name, '{"prompt_cache_key":"mine"}')
        assert body_of(replace(request_of(name), extra=extra), name)["prompt_cache_key"] == "mine"


# --- with marks that the user set

OWN = st.sampled_from((None, None, None, None, MARK, HOUR))


def opaque_of(mark: object, family_name: str) -> Opaque | None:
    return None if mark is None else Opaque(family_name, json.dumps({"cache_control": mark}))


@st.composite
def requests_with_own_marks(draw: st.DrawFn, name: str) -> Request:
    family_name = ROWS[name].family
    drawn: list[object] = []

    def own(*, top: bool = False) -> Opaque | None:
        """What the API takes: an hour before five minutes, and no more than four."""
        mark = draw(OWN)
        if mark is None or len(drawn) == 4 or (mark == HOUR and MARK in drawn):
            return None
        if top and (name not in ANTHROPIC or (drawn and drawn[-1] != mark)):  # another TTL than the last block's
            return None
        drawn.append(mark)
        return opaque_of(mark, family_name)

    tools = tuple([replace(tool, opaque=own() if name in ANTHROPIC else None) for tool in TOOLS])
    system = tuple([Text(text, opaque=own()) for text in ("Be kind.", "Be brief.")])
    messages = [Message("user", tuple([Text(text, opaque=own()) for text in ("go", "on")]))]
    for number in range(draw(st.integers(0, 4))):
        called, answered = step(number, calls=draw(st.integers(1, 3)))
        results = [replace(part, opaque=own()) for part in answered.parts if isinstance(part, ToolResult)]
        messages += [called, Message("tool", tuple(results))]
    passing = draw(st.integers(0, 1))
    messages += [Message("user", (Text("and?", opaque=own()),))] * passing
    return Request(
        model=MODELS.get(name, "claude-sonnet-4-5"),
        system=system,
        tools=tools,
        messages=tuple(messages),
        settings=request_of(name).settings,
        extra=own(top=True),
        cache=Caching(hour=draw(st.booleans()), passing=passing),
    )


SDK: dict[str, TypeAdapter[Any]] = {
    "anthropic_messages": TypeAdapter(MessageCreateParamsStreaming | MessageCreateParamsNonStreaming),
    "openai_chat": TypeAdapter(
        chat_params.CompletionCreateParamsStreaming | chat_params.CompletionCreateParamsNonStreaming
    ),
}


def walk(value: object) -> None:
    """Pydantic checks an Iterable only while it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            walk(inner)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for inner in value:
            walk(inner)


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("name", [*ANTHROPIC, *GATEWAYS])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_the_judges_take_our_marks_beside_the_users_own(name: str, data: st.DataObject) -> None:
    """Done-when 2: the lab's strict judges and the official SDKs accept the bodies; never more than four marks, and nothing that
    is kept for an hour stands behind what is kept for five minutes."""
    request = data.draw(requests_with_own_marks(name))
    body = body_of(request, name)
    marks = marks_in(body, name)
    unmarked = marks_in(body_of(replace(request, cache=None), name), name)
    assert len(marks) <= 4
    assert [one for one in marks if one in unmarked] == unmarked, "the user's own marks stay"
    if "anthropic" in name:
        body = {"model": "claude-sonnet-4-5", **body}
    strict.check(ROWS[name].family, body=body)
    walk(SDK[ROWS[name].family].validate_python(body))


def test_behind_a_system_text_that_the_user_keeps_for_five_minutes_nothing_is_kept_for_an_hour() -> None:
    """Anthropic refuses an hour behind five minutes, and both gateways hand it on."""
    for name in GATEWAYS:
        own = opaque_of(MARK, ROWS[name].family)
        request = replace(
            request_of(name, steps=0, hour=True), system=(Text("Be kind.", opaque=own), Text("Be brief."))
        )
        found = marks_in(body_of(request, name), name)
        assert [mark for _, mark in found if mark != MARK] == [] and len(found) > 1
        strict.check(ROWS[name].family, body=body_of(request, name))


SAID = st.sampled_from(("go", "", " ", "\n", "x "))
IMAGE = File(media_type="image/png", data=b"\x89PNG\r\n")


@st.composite
def odd_requests(draw: st.DrawFn, name: str) -> Request:
    """Images, blank texts, thinking, failed and empty results, no tools, no system text, questions between the steps."""
    parts = st.one_of(SAID.map(Text), st.just(IMAGE))
    thought = Opaque(ROWS[name].family, '{"signature":"c2ln"}') if name in ANTHROPIC else None
    messages = [Message("user", tuple(draw(st.lists(parts, min_size=1, max_size=3))))]
    for number in range(draw(st.integers(0, 4))):
        called, answered = step(number, calls=draw(st.integers(1, 3)))
        lead = (Reasoning("hm", opaque=thought),) if draw(st.booleans()) else ()
        words = (Text(draw(SAID)),) if draw(st.booleans()) else ()
        results = [
            replace(part, content=tuple(draw(st.lists(parts, max_size=2))), is_error=draw(st.booleans()))
            for part in answered.parts
            if isinstance(part, ToolResult)
        ]
        messages += [Message("assistant", (*lead, *words, *called.parts)), Message("tool", tuple(results))]
        if draw(st.integers(0, 4)) == 0:
            asked = Message("user", tuple(draw(st.lists(parts, min_size=1, max_size=2))))
            messages += [Message("assistant", (Text("Well."),)), asked]
    passing = draw(st.integers(0, 1))
    messages += [Message("user", (Text("and?"),))] * passing
    return Request(
        model=MODELS.get(name, "claude-sonnet-4-5"),
        system=tuple([Text(text) for text in draw(st.lists(SAID, max_size=2))]),
        tools=draw(st.sampled_from(((), TOOLS[:1], TOOLS))),
        messages=tuple(messages),
        cache=Caching(hour=draw(st.booleans()), passing=passing),
    )


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("name", [*ANTHROPIC, *GATEWAYS])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_what_a_provider_takes_it_takes_with_marks(name: str, data: st.DataObject) -> None:
    """Anthropic refuses a mark on an empty text and on thinking, and gateways hand both on. The judges say whether the request
    without marks is one that a provider takes; with them nothing else is changed."""
    request = data.draw(odd_requests(name))
    before = body_of(replace(request, cache=None), name)
    body = body_of(request, name)
    model = {"model": "claude-sonnet-4-5"} if name in ANTHROPIC else {}
    try:
        strict.check(ROWS[name].family, body={**model, **before})
    except strict.Rejected:
        return
    strict.check(ROWS[name].family, body={**model, **body})
    walk(SDK[ROWS[name].family].validate_python({**model, **body}))
    assert len(marks_in(body, name)) <= 4
    blank = [block for block in blocks_in(body) if block.get("type") == "text" and not block["text"].strip()]
    assert all("cache_control" not in block for block in blank)


def blocks_in(value: object) -> list[dict[str, Any]]:
    """All objects in a body."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    found = [block for one in inner for block in blocks_in(one)]
    return [value, *found] if isinstance(value, dict) else found


def test_a_blank_text_at_the_end_hands_its_mark_to_the_block_before_it() -> None:
    """Behind an image, say: all that is worth keeping is kept, at both gateways; and so for a blank system text."""
    for name in GATEWAYS:
        request = replace(
            request_of(name, steps=0),
            system=(Text("Be kind."), Text(" ")),
            messages=(Message("user", (Text("look"), IMAGE, Text(""))),),
        )
        where = [one for one, _ in marks_in(body_of(request, name), name)]
        assert where == ["messages.0.content.0.text", "messages.1.content.1.image_url"]


@pytest.mark.parametrize("name", ["openai", "openai-chat"])
def test_the_openai_package_takes_the_key(name: str) -> None:
    body = body_of(replace(request_of(name, hour=True), model="gpt-5"), name)
    adapters: dict[str, TypeAdapter[Any]] = {
        "openai-chat": SDK["openai_chat"],
        "openai": TypeAdapter(
            responses_params.ResponseCreateParamsStreaming | responses_params.ResponseCreateParamsNonStreaming
        ),
    }
    walk(adapters[name].validate_python(body))


@pytest.mark.parametrize(
    ("marks", "refused"),
    [
        ([MARK] * 5, "A maximum of 4 blocks with cache_control may be provided. Found 5."),
        ([MARK, HOUR], "must not come after"),
        ([{"type": "forever"}], "Input should be 'ephemeral'"),
    ],
)
def test_the_strict_judges_refuse_marks_that_the_api_refuses(marks: list[Any], refused: str) -> None:
    texts: list[Any] = [{"type": "text", "text": "x", "cache_control": mark} for mark in marks]
    messages: list[Any] = [{"role": "user", "content": texts}]
    for name in ("anthropic_messages", "openai_chat"):
        with pytest.raises(strict.Rejected, match=refused):
            strict.check(name, body={"model": "m", "max_tokens": 5, "messages": messages})


@pytest.mark.parametrize("name", ["anthropic_messages", "openai_chat"])
@pytest.mark.parametrize(("top", "last", "taken"), [(MARK, HOUR, False), (HOUR, MARK, False), (HOUR, HOUR, True)])
def test_the_strict_judges_refuse_a_field_at_the_top_that_says_another_time(
    name: str, top: Any, last: Any, taken: bool
) -> None:
    """Anthropic docs, "Automatic caching", edge cases: 400 where the last block has a mark with another TTL. A blank text behind
    it is no block that may be marked."""
    content: list[Any] = [{"type": "text", "text": "x", "cache_control": last}, {"type": "text", "text": ""}]
    for blocks in (content[:1], content):
        messages: list[Any] = [{"role": "user", "content": blocks}]
        body: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": messages, "cache_control": top}
        if taken and len(blocks) == 1:
            strict.check(name, body=body)
        elif not taken:
            with pytest.raises(strict.Rejected):
                strict.check(name, body=body)


@pytest.mark.promise("bill:cached")
@each("own", [MARK, HOUR])
@each("hour", [False, True])
@each("name", ["anthropic", "openrouter"])
def test_the_last_block_gets_no_second_mark(name: str, hour: bool, own: dict[str, str]) -> None:
    """The user's own mark on it keeps the field at the top away, and the user's own field our mark on the block."""
    family_name = ROWS[name].family
    last = Message("user", (Text("and?", opaque=opaque_of(own, family_name)),))
    history = request_of(name).messages
    marked = replace(request_of(name, hour=hour), messages=(*history, last), cache=Caching(hour=hour))
    assert "cache_control" not in body_of(marked, name)
    strict.check(family_name, body=body_of(marked, name))
    topped = replace(request_of(name, hour=hour), extra=opaque_of(own, family_name))
    body = body_of(topped, name)
    assert (body["cache_control"], "cache_control" in json.dumps(body["messages"][-1])) == (own, False)
    strict.check(family_name, body=body)


def test_every_row_that_is_asked_says_how_its_family_is_asked() -> None:
    """And where its provider says so: docs/providers.md shows it."""
    ways: dict[str, set[str]] = {
        "anthropic_messages": {"unasked", "top", "blocks"},
        "openai_chat": {"unasked", "parts", "messages", "key"},
        "openai_responses": {"unasked", "key"},
        **{name: {"unasked"} for name in ("gemini", "gemini_interactions", "ollama_chat", "cohere_chat")},
    }
    wrong = [row.name for row in ROWS.values() if not fits(row, ways[row.family])]
    assert wrong == []


def fits(row: Profile, ways: set[str]) -> bool:
    has_source = bool(row.cache_source) == (row.cache != "unasked")
    return row.cache in ways and has_source and (not row.cache_day_models or row.cache == "key")
