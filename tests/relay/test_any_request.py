"""Whatever a client sends, it is served or refused: never an error of ours."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.asking_relay import FAMILIES, MODELS, PROFILES, ask, path_of
from relay.test_crossing import full
from thoroughness import examples
from turnwise.lab.strict import check
from turnwise.relay.client_request import RequestRefused, read_client_request, refusal_answer
from turnwise.relay.terms import RouteTerms
from turnwise.relay.token_counting import read_count_request, translate_count
from turnwise.relay.translation import translate
from turnwise.wire.relay_facts import AskedPath

TERMS = RouteTerms(model="up", max_output_tokens=2000, one_call_at_a_time=True)

WORDS = sorted(
    {
        word
        for family in FAMILIES
        for word in json.dumps(full(family)).replace("\\", "").split('"')
        if word.replace("_", "").isalnum()
    }
    | {"thinking", "signature", "reasoning", "summary", "store", "cache_control", "stream_options", "file_id", "n"}
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()  # NaN, too
    | st.text(max_size=5)
    | st.sampled_from([*WORDS, "\ud800", "data:image/png;base64,eA=="])
)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=12,
)
deep: Any = 1
for _ in range(100):
    deep = {"properties": [deep]} if isinstance(deep, list) else [deep]


def serve(family: str, body: bytes, *, one_client: bool) -> None:
    """The whole way of a request to every family. Lets no refusal out."""
    try:
        asked = read_client_request(path_of(family), body, one_client=one_client)
    except RequestRefused as refused:
        status, answer = refusal_answer(refused, client=family)  # type: ignore[arg-type]
        assert 400 <= status < 500 and json.loads(answer)
        return
    for target in FAMILIES:
        try:
            sent = translate(asked, terms=TERMS, profile=PROFILES[target])
        except RequestRefused:
            continue
        assert json.loads(sent.call.body)


@pytest.mark.parametrize("family", FAMILIES)
@given(body=st.binary(max_size=60) | st.text(max_size=60).map(str.encode), one_client=st.booleans())
def test_any_bytes_are_served_or_refused(family: str, body: bytes, one_client: bool) -> None:
    """Bytes that are no JSON are a client's mistake."""
    serve(family, body, one_client=one_client)
    serve(
        family, b'{"model":"m","max_tokens":1,"messages":' + body + b',"input":1,"contents":[]}', one_client=one_client
    )


@pytest.mark.parametrize("family", FAMILIES)
@given(value=anything, one_client=st.booleans())
def test_any_json_is_served_or_refused(family: str, value: Any, one_client: bool) -> None:
    """Known words in the wrong places, and values of the wrong types."""
    serve(family, json.dumps(value).encode(), one_client=one_client)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to everything in it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *[way for key, below in inner for way in places(below, (*at, key))]]


def swapped(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value there."""
    if not way:
        return new
    key, *rest = way
    copied = dict(value) if isinstance(value, dict) else list(value)
    copied[key] = swapped(value[key], tuple(rest), new)
    return copied


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data(), one_client=st.booleans())
def test_a_request_with_any_value_swapped_is_served_or_refused(family: str, data: Any, one_client: bool) -> None:
    """A whole conversation in which one value is another."""
    body = full(family)
    for _ in range(data.draw(st.integers(1, 3))):
        body = swapped(body, data.draw(st.sampled_from(places(body))), data.draw(anything | st.just(deep)))
    serve(family, json.dumps(body).encode(), one_client=one_client)


@pytest.mark.parametrize("family", ["anthropic_messages", "gemini"])
@given(data=st.data())
def test_a_count_with_any_value_swapped_is_served_or_refused(family: Any, data: Any) -> None:
    """Requests to count come from strangers, too."""
    body = full(family)
    body = swapped(body, data.draw(st.sampled_from(places(body))), data.draw(anything | st.just(deep)))
    path = AskedPath(family=family, kind="count", model="m" if family == "gemini" else None)
    for text in (body, {"generateContentRequest": body}):
        try:
            count = read_count_request(path, json.dumps(text).encode())
        except RequestRefused:
            continue
        for target in FAMILIES:
            try:
                found = translate_count(count, terms=TERMS, profile=PROFILES[target])
            except RequestRefused:
                continue
            assert found.estimated_tokens > 0


texts = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20)
arguments = st.dictionaries(st.text(min_size=1, max_size=5), st.integers() | st.text(max_size=5), max_size=2)


@st.composite
def conversations(draw: Any) -> list[dict[str, Any]]:
    """Chat Completions messages of whole turns: a question, calls with their results, an answer."""
    messages: list[dict[str, Any]] = []
    for turn in range(draw(st.integers(1, 3))):
        messages.append({"role": "user", "content": draw(texts)})
        if count := draw(st.integers(0, 2)):
            ids = [f"call_{turn}_{number}" for number in range(count)]
            calls = [
                {"id": id, "type": "function", "function": {"name": "f", "arguments": json.dumps(draw(arguments))}}
                for id in ids
            ]
            messages.append({"role": "assistant", "content": draw(st.none() | texts), "tool_calls": calls})
            messages += [{"role": "tool", "tool_call_id": id, "content": draw(texts)} for id in ids]
        messages.append({"role": "assistant", "content": draw(texts)})
    return [*messages, {"role": "user", "content": draw(texts)}]


@pytest.mark.parametrize("target", FAMILIES)
@settings(max_examples=examples(40))
@given(messages=conversations())
def test_any_whole_conversation_is_taken_and_comes_back_as_it_was(target: str, messages: list[dict[str, Any]]) -> None:
    """Chat Completions to each family, where the strict judge takes it, and back: the same messages."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
    body = {"model": "m", "messages": messages, "tools": tools}
    there = translate(ask("openai_chat", body), terms=RouteTerms(model=MODELS[target]), profile=PROFILES[target])
    check(target, body=json.loads(there.call.body))
    assert there.told == ()
    back = translate(ask(target, there.call.body), terms=RouteTerms(model="m"), profile=PROFILES["openai_chat"])
    assert joined(json.loads(back.call.body)["messages"]) == joined(messages)


def joined(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours of the assistant as one message: some families know no border between them. Arguments as what they say."""
    found: list[dict[str, Any]] = []
    for message in messages:
        said = {key: value for key, value in message.items() if value is not None}
        calls = [(call["id"], json.loads(call["function"]["arguments"])) for call in said.pop("tool_calls", [])]
        if isinstance(said.get("content"), list):
            said["content"] = "".join([part["text"] for part in said["content"]])
        said = {**said, **({"calls": calls} if calls else {})}
        if found and found[-1]["role"] == said["role"] == "assistant":
            last = found[-1]
            last["content"] = last.get("content", "") + said.get("content", "")
            last["calls"] = [*last.get("calls", []), *calls]
        else:
            found.append(said)
    return found
