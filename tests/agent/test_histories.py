"""Histories from the vendors' messages and back: what a family can carry comes back as it was, and the rest is told by name."""

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import ollama
import pytest
from anthropic.types import MessageParam
from cohere.types import ChatMessageV2
from google.genai import types as gemini_types
from google.genai.interactions import Step
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter

from recordings import FAMILIES as OF_CORPUS
from stand_ins import are_stand_ins
from tables import each
from thoroughness import examples
from turnwise import (
    Agent,
    CallerError,
    ExportedHistory,
    File,
    ImportedHistory,
    Message,
    Repair,
    Text,
    ToolCall,
    ToolResult,
    messages_from,
    messages_to,
)
from turnwise.lab.strict import check
from turnwise.testing import ScriptedModel
from turnwise.vocab import Citation, Opaque, ProviderItem, Reasoning, Refusal
from turnwise.wire.profiles import FamilyName

FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)
LISTS = {"openai_chat": "messages", "openai_responses": "input", "anthropic_messages": "messages", "gemini": "contents"}
LISTS |= {"ollama_chat": "messages", "cohere_chat": "messages"}
LISTS["gemini_interactions"] = "input"
BESIDE = {"openai_responses": "instructions", "anthropic_messages": "system", "gemini": "systemInstruction"}
BESIDE["gemini_interactions"] = "system_instruction"
VENDORS: dict[str, TypeAdapter[Any]] = {
    "openai_chat": TypeAdapter(list[ChatCompletionMessageParam]),
    "openai_responses": TypeAdapter(ResponseInputParam),
    "anthropic_messages": TypeAdapter(list[MessageParam]),
    "cohere_chat": TypeAdapter(list[ChatMessageV2]),
    "gemini_interactions": TypeAdapter(list[Step]),
}

CALL = ToolCall(id="call_1", name="add", arguments='{"a":1}')
WHOLE = (
    Message("user", (Text("How much is 1 and 2?"),)),
    Message("assistant", (Text("I add."), CALL)),
    Message("tool", (ToolResult(call_id="call_1", name="add", content=(Text("3"),)),)),
    Message("assistant", (Text("It is 3."),)),
)


def judged(exported: ExportedHistory) -> None:
    """By the lab's strict judge of the family, and by the vendor's own types."""
    body: dict[str, Any] = {LISTS[exported.family]: exported.messages}
    if exported.instructions is not None:
        body[BESIDE[exported.family]] = exported.instructions
    if exported.family != "gemini":
        body["model"] = "m"
    if exported.family == "anthropic_messages":
        body |= {"max_tokens": 99, "tools": [{"name": "f", "input_schema": {"type": "object"}}]}
    check(exported.family, body=body)
    if exported.family == "gemini":
        for content in exported.messages:
            gemini_types.Content.model_validate(content)
        return
    if exported.family == "ollama_chat":
        for message in exported.messages:
            images = [ollama.Image(value=one) for one in message.get("images", ())]
            ollama.Message.model_validate({**message, "images": images}).model_dump()
        return
    # Pydantic looks into an `Iterable` only when it is read.
    adapter = VENDORS[exported.family]
    adapter.dump_json(adapter.validate_python(exported.messages), warnings=False)


# Any history

texts = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=12)
arguments = st.dictionaries(texts, st.integers(-9, 9) | texts | st.none(), max_size=2).map(
    lambda found: msgspec.json.encode(found).decode()  # without the white space that two of the families do not keep
)
images = st.builds(File, media_type=st.just("image/png"), data=st.binary(min_size=1, max_size=8))


def beside(id: str) -> st.SearchStrategy[Any]:
    """What not every family takes. Items and their ids do not stand twice in one history."""
    item = f'{{"type":"web_search_call","id":"ws_{id}","status":"completed","action":{{"type":"search","query":"x"}}}}'
    opaque = st.sampled_from(
        [
            Opaque("openai_chat", '{"reasoning_details":[{"type":"reasoning.encrypted","data":"c2ln"}]}'),
            Opaque("openai_responses", f'{{"id":"rs_{id}","encrypted_content":"c2ln"}}'),
            Opaque("anthropic_messages", '{"signature":"c2ln"}'),
            Opaque("gemini", '{"thoughtSignature":"c2ln"}'),
        ]
    )
    return st.one_of(
        st.builds(Reasoning, texts, st.none() | opaque),
        st.builds(Refusal, texts),
        st.builds(Text, texts, st.just((Citation(family="gemini", raw='{"uri":"https://example.com"}'),))),
        st.just(ProviderItem("openai_responses", "web_search_call", item)),
    )


@st.composite
def histories(draw: Any, *, plain: bool = False) -> tuple[Message, ...]:
    """Whole turns: a question, perhaps calls with their results, an answer. `plain`: of what every family has."""
    messages: list[Message] = []
    said = st.builds(Text, texts)
    for turn in range(draw(st.integers(1, 3))):
        asked = [draw(said), *draw(st.lists(images, max_size=1))]
        messages.append(Message("user", tuple(asked)))
        calls = [
            ToolCall(id=f"call_{turn}_{number}", name="f", arguments=draw(arguments))
            for number in range(draw(st.integers(0, 2)))
        ]
        if calls:
            first = [] if plain else [draw(beside(f"{turn}_{number}")) for number in range(draw(st.integers(0, 2)))]
            messages.append(Message("assistant", (*first, draw(said), *calls)))
            results = [
                ToolResult(
                    call_id=call.id,
                    name="f",
                    content=(draw(said),),
                    is_error=False if plain else draw(st.booleans()),
                )
                for call in calls
            ]
            messages.append(Message("tool", tuple(results)))
        messages.append(Message("assistant", (draw(said),)))
    return tuple(messages)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=examples(40))
@given(messages=histories(plain=True), instructions=st.lists(texts, max_size=1))
def test_what_every_family_carries_comes_back_as_it_was(
    family: FamilyName, messages: tuple[Message, ...], instructions: list[str]
) -> None:
    """Texts, images, calls and results: there and back they are equal, and no loss is told."""
    if family == "ollama_chat":  # which has no field for the kind of an image
        messages = of_any_kind(messages)
    exported = messages_to(messages, family=family, instructions=instructions)
    judged(exported)
    assert exported.losses == ()
    again = messages_from(exported.messages, family=family, instructions=exported.instructions)
    assert again == ImportedHistory(family=family, messages=messages, instructions=tuple(instructions))


def of_any_kind(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same with images of which nothing says what they are."""
    return tuple(
        [
            Message(
                one.role,
                tuple(
                    [
                        msgspec.structs.replace(part, media_type="image/*") if isinstance(part, File) else part
                        for part in one.parts
                    ]
                ),
            )
            for one in messages
        ]
    )


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=examples(60))
@given(messages=histories())
def test_a_history_that_comes_back_otherwise_has_its_losses_told(
    family: FamilyName, messages: tuple[Message, ...]
) -> None:
    """Reasoning, refusals, citations, items and errors: what is written is sound, loses nothing more the second time, and where
    no loss is told every part is still there."""
    messages = of_any_kind(messages) if family == "ollama_chat" else messages
    exported = messages_to(messages, family=family)
    judged(exported)
    again = messages_from(exported.messages, family=family).messages
    second = messages_to(again, family=family)
    assert (second.messages, second.losses) == (exported.messages, ())
    if not exported.losses:
        assert says(again) == says(messages)


def says(messages: tuple[Message, ...]) -> list[str]:
    """All that is said, with texts joined, as neighbours of them may be, and without white space."""
    found: list[str] = []
    for message in messages:
        text = "".join([part.text for part in message.parts if isinstance(part, Text)])
        found += [f"{message.role}: {text}"] if text.strip() else []
        found += [f"{message.role}: {part}" for part in message.parts if not isinstance(part, Text)]
    return sorted(found)


# The recorded ones


def recorded(corpus: Path) -> Iterator[tuple[str, FamilyName, list[Any], Any]]:
    """The message histories of all recorded requests: file, family, messages, and the instructions beside them."""
    bodies: list[tuple[str, str, dict[str, Any]]] = []
    for path in sorted((corpus / "conversations").glob("*.json")):
        exchanges = json.loads(path.read_text(encoding="utf-8"))
        bodies += [(path.name, exchanges["family"], one["request"]["body"]) for one in exchanges["exchanges"]]
    for manifest in (corpus / "manifest.jsonl", corpus / "reported" / "manifest.jsonl"):
        rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines()]
        bodies += [(row["file"], row["family"], row["request"]) for row in rows if isinstance(row.get("request"), dict)]
    for file, name, body in bodies:
        family = OF_CORPUS.get(name)
        if family is not None and isinstance(body.get(LISTS[family]), list):
            instructions = body.get(BESIDE.get(family, ""), body.get("system_instruction"))
            yield file, family, body[LISTS[family]], instructions  # pyright: ignore[reportReturnType]


def leaves_of(value: Any, *, within: str = "") -> Iterator[str]:
    """Every text that a message says, and every value in a text that is itself JSON."""
    match value:
        case dict():
            for key, inner in value.items():
                if key not in ("type", "role"):
                    yield from leaves_of(inner, within=key)
        case list():
            for inner in value:
                yield from leaves_of(inner, within=within)
        case str() if value.strip():
            yield value
        case _:
            pass


@pytest.mark.costly
def test_every_recorded_history_is_read_whole_and_comes_back(corpus: Path) -> None:
    """1,322 histories of real requests: each text is in what is read, or its loss is told; written for its own API again it is
    the same, or what differs is told; and every other API gets messages that can be read again."""
    seen = 0
    for file, family, messages, instructions in recorded(corpus):
        history = messages_from(messages, family=family, instructions=instructions)
        held = json.dumps(msgspec.to_builtins(history))
        for leaf in leaves_of(messages):
            assert is_held(leaf, held) or history.losses, (file, leaf[:200])
        own = messages_to(history.messages, family=family, instructions=history.instructions)
        again = messages_from(own.messages, family=family, instructions=own.instructions)
        assert own.losses or says(again.messages) == says(history.messages), file
        for other in FAMILIES:
            exported = messages_to(history.messages, family=other, instructions=history.instructions)
            read = messages_from(exported.messages, family=other, instructions=exported.instructions)
            assert bool(read.messages) == bool(history.messages), (file, other)
        seen += 1
    assert seen == (1_281 if are_stand_ins(corpus) else 1_322)


def is_held(leaf: str, held: str) -> bool:
    """As it is, as JSON within JSON, or as bytes (a text as a document; base64 in its usual letters)."""
    once = json.dumps(leaf)[1:-1]
    data = leaf.partition(";base64,")[2] or leaf.replace("-", "+").replace("_", "/")
    return any(one in held for one in (once, json.dumps(once)[1:-1], data, b64encode(leaf.encode()).decode()))


# What a user gives


def test_a_history_of_chat_completions_goes_on_in_a_run() -> None:
    """The system message is for the agent, the others are what the run begins with. Nothing needs a family's name."""
    history = messages_from(
        [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "How much is 1 and 2?"},
            {
                "role": "assistant",
                "content": "I add.",
                "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "3"},
            {"role": "assistant", "content": "It is 3."},
        ]
    )
    assert history == ImportedHistory(family="openai_chat", messages=WHOLE, instructions=("Be short.",))
    model = ScriptedModel(["It was 3."])
    agent = Agent(
        model,
        instructions=history.instructions,
    )
    result = agent.run_sync("How much was it?", history=history.messages)
    assert (result.text, result.repairs) == ("It was 3.", ())
    assert model.asked[0].messages == (*WHOLE, Message("user", (Text("How much was it?"),)))


def test_objects_of_the_sdks_are_read_as_their_dicts_are() -> None:
    """A program appends what the SDK gave it: whole messages, blocks, contents with bytes."""
    from anthropic.types import TextBlock, ToolUseBlock
    from openai.types.chat import ChatCompletionMessage
    from openai.types.responses import ResponseFunctionToolCall

    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a":1}'}}
    message = ChatCompletionMessage.model_validate({"role": "assistant", "content": "I add.", "tool_calls": [call]})
    block = ToolUseBlock(type="tool_use", id="call_1", name="add", input={"a": 1})
    item = ResponseFunctionToolCall(type="function_call", call_id="call_1", name="add", arguments='{"a":1}')
    content = gemini_types.Content.model_validate(
        {
            "role": "model",
            "parts": [{"text": "I add."}, {"functionCall": {"id": "call_1", "name": "add", "args": {"a": 1}}}],
        }
    )
    asked = {"role": "user", "content": "How much is 1 and 2?"}
    said = {"role": "assistant", "content": "I add."}
    given = (
        [asked, message],
        [asked, {"role": "assistant", "content": [TextBlock(type="text", text="I add."), block]}],
        [asked, said, item],
        [{"role": "user", "parts": [{"text": "How much is 1 and 2?"}]}, content],
    )
    read = [messages_from(messages) for messages in given]
    assert [one.family for one in read] == ["openai_chat", "anthropic_messages", "openai_responses", "gemini"]
    assert [one.messages for one in read] == [WHOLE[:2]] * 4
    picture = gemini_types.Part.from_bytes(data=b"\xff\xfe\xfb", mime_type="image/png")
    (shown,) = messages_from([gemini_types.Content(role="user", parts=[picture])]).messages
    assert shown == Message("user", (File(media_type="image/png", data=b"\xff\xfe\xfb"),))


def test_instructions_beside_the_messages_are_read_in_each_family() -> None:
    """As the SDKs take them: a text, blocks, a content."""
    given: tuple[tuple[FamilyName, object], ...] = (
        ("openai_chat", "Be short."),
        ("openai_responses", "Be short."),
        ("anthropic_messages", "Be short."),
        ("anthropic_messages", [{"type": "text", "text": "Be short."}]),
        ("gemini", "Be short."),
        ("gemini", {"parts": [{"text": "Be short."}]}),
    )
    for family, instructions in given:
        history = messages_from([], family=family, instructions=instructions)
        assert history == ImportedHistory(family=family, messages=(), instructions=("Be short.",))


def test_what_reading_does_not_keep_is_told_with_its_place() -> None:
    """A mark on instructions, which go on as texts, and fields of a message that no part can hold."""
    marked = {"type": "text", "text": "Be short.", "cache_control": {"type": "ephemeral"}}
    history = messages_from(
        [{"role": "user", "content": "Hello.", "id": "msg_1"}], family="anthropic_messages", instructions=[marked]
    )
    assert history.losses == (
        Repair("not_carried", "`instructions`", "`cache_control`, which only `anthropic_messages` reads, is left out"),
        Repair("not_carried", "`messages[0]`", "`id` is left out"),
    )
    spoken = messages_from([{"role": "user", "content": "Hello."}, {"role": "assistant", "audio": {"id": "audio_1"}}])
    assert spoken.losses == (Repair("not_carried", "`messages[1]`", "`audio` is left out"),)


def test_losses_of_writing_name_the_first_message_and_how_many() -> None:
    """Anthropic's signed reasoning, on its way to OpenAI."""
    signed = Reasoning("Let me add.", Opaque("anthropic_messages", '{"signature":"c2ln"}'))
    messages = (
        WHOLE[0],
        Message("assistant", (signed, *WHOLE[1].parts)),
        WHOLE[2],
        Message("assistant", (signed, Text("3"))),
    )
    assert messages_to(messages, family="anthropic_messages").losses == ()
    assert messages_to(messages, family="openai_responses").losses == (
        Repair("not_carried", "`messages[1]`", "reasoning is left out (2 times)"),
        Repair(
            "not_carried", "`messages[1]`", "`signature`, which only `anthropic_messages` reads, is left out (2 times)"
        ),
    )


def test_a_call_without_a_result_gets_one_and_that_is_told() -> None:
    """No vendor takes a call that nothing answers."""
    exported = messages_to(WHOLE[:2], family="anthropic_messages")
    judged(exported)
    (result,) = exported.messages[-1]["content"]
    assert result["type"] == "tool_result" and "no result" in result["content"]
    assert [loss.kind for loss in exported.losses] == ["orphan_call"]


@each(
    ("messages", "says"),
    [
        ("Hello.", "`messages` must be a list of messages, not str"),
        ({"messages": []}, "`messages` is one object: give the list of messages in it, and `instructions=` beside it"),
        (WHOLE, "`messages[0]` is a `Message` already: give the list as `history=`"),
        ([{"role": "user", "content": float("nan")}], "`messages` holds what JSON cannot carry: `[0].content` is nan"),
        ([{"role": "user", "content": object()}], "`messages` holds what JSON cannot carry: a object"),
        ([3], "`messages[0]` cannot be read as Chat Completions"),
        (
            [{"role": "user", "content": "a"}, {"role": "human", "content": "b"}],
            "`messages[1]` cannot be read as Chat Completions: `messages[1].role` is 'human': system, developer, user, assistant "
            "or tool. If it is another API's, say which with `family=`",
        ),
        (
            [{"role": "user", "parts": [{"text": "a"}]}, {"role": "tool", "tool_call_id": "c", "content": "b"}],
            "the messages mix APIs: `messages[0]` like `gemini` and `messages[1]` like `openai_chat`. Say which it is",
        ),
        (
            [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}],
            "`messages[0]` has `cache_control`, and nothing tells which API the messages are for: say it with `family=`",
        ),
    ],
)
def test_messages_that_cannot_be_read_say_where_and_what_to_do(messages: Any, says: str) -> None:
    """One error, of the caller's kind, with the message at fault."""
    with pytest.raises(CallerError) as caught:
        messages_from(messages)
    assert says in str(caught.value)


def test_a_family_that_does_not_exist_or_does_not_fit_is_an_error() -> None:
    """Neither is anything read by it, nor written."""
    for call in (messages_from, messages_to):
        with pytest.raises(CallerError, match=r"`family` must be openai_chat, openai_responses, .* not 'openai'"):
            call([], family="openai")  # pyright: ignore[reportArgumentType]
    with pytest.raises(CallerError, match=r"`messages\[0\]` cannot be read as the Gemini API: .* in place of `parts`"):
        messages_from([{"role": "user", "content": "a"}], family="gemini")
    used: Any = [{"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "add", "input": {}}]}]
    for family in ("openai_chat", "openai_responses"):
        with pytest.raises(
            CallerError, match=r"`messages\[0\]` cannot be read as .*`tool_use`, which is `anthropic_messages`"
        ):
            messages_from(used, family=family)


def test_dicts_in_place_of_a_history_name_the_function_that_reads_them() -> None:
    """In `history=`, as a prompt, and in `messages_to`. No request is made."""
    model = ScriptedModel([])
    agent = Agent(model)
    dicts: Any = [{"role": "user", "content": "Hello."}]
    for attempt in (
        lambda: agent.run_sync("Go on.", history=dicts),
        lambda: agent.run_sync(dicts),
        lambda: messages_to(dicts, family="gemini"),
    ):
        with pytest.raises(CallerError, match="messages_from"):
            attempt()
    assert not model.asked
