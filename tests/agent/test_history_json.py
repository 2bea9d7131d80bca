"""Histories as text that lasts: what `history_json` wrote is read as it was, in this version and in each later one."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from agent.test_histories import histories, recorded
from agent.test_resumed_runs import Crash, agent_of
from stand_ins import are_stand_ins
from tables import each
from thoroughness import examples, profile
from turnwise import (
    Agent,
    Approval,
    CallerError,
    File,
    Journal,
    MaxSteps,
    Message,
    Model,
    ModelLimits,
    Policy,
    RunResult,
    StopReason,
    Text,
    ToolCall,
    ToolSpec,
    messages_from,
    messages_from_json,
    tool,
)
from turnwise.agent.history_json import row_of
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import Line
from turnwise.vocab import ArgumentsState, Citation, Opaque, Part, ProviderItem, Reasoning, Refusal, ToolResult
from turnwise.wire.profiles import FamilyName

FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)
KEPT = Path(__file__).parent / "data" / "histories"

# Any message: every kind of part, every field of it, and any character that JSON can carry.

words = st.text(max_size=9) | st.sampled_from(["\0", "\u2028</script>", '"\\', "🍐"])
some = st.none() | words
objects = st.dictionaries(words, words, max_size=2).map(json.dumps)
opaques = st.none() | st.builds(Opaque, words, objects)
citations = st.lists(
    st.builds(Citation, family=words, raw=objects, url=some, title=some, cited_text=some), max_size=2
).map(tuple)
texts = st.builds(Text, words, citations, opaques, words)
files = st.builds(
    File, media_type=words, data=st.none() | st.binary(max_size=9), url=some, file_id=some, name=some, opaque=opaques
)
calls = st.builds(
    ToolCall,
    id=words,
    name=words,
    arguments=words,
    state=st.sampled_from(ArgumentsState),
    free_form=st.booleans(),
    reason=some,
    alternatives=st.lists(words, max_size=2).map(tuple),
    opaque=opaques,
    asked=words,
)
results = st.builds(
    ToolResult,
    call_id=words,
    name=words,
    content=st.lists(texts | files, max_size=2).map(tuple),
    is_error=st.booleans(),
    free_form=st.booleans(),
    opaque=opaques,
)
parts: st.SearchStrategy[Part] = st.one_of(
    texts,
    files,
    calls,
    results,
    st.builds(Reasoning, words, opaques),
    st.builds(Refusal, words, opaques),
    st.builds(ProviderItem, words, words, objects),
)
anything = st.lists(
    st.builds(
        Message, st.sampled_from(["system", "user", "assistant", "tool"]), st.lists(parts, max_size=3).map(tuple)
    ),
    max_size=4,
).map(tuple)


class Chat(BaseModel):
    title: str
    messages: list[Message]


class Row(msgspec.Struct):
    title: str
    messages: tuple[Message, ...]


@settings(max_examples=10_000 if profile() == "all" else examples(400))
@given(messages=anything, cut=st.integers(0, 4))
def test_any_history_comes_back_equal_from_its_text_its_rows_and_its_models(
    messages: tuple[Message, ...], cut: int
) -> None:
    """10,000 drawn histories: as one text, as two rows, as bytes, and in a model of pydantic and a struct of msgspec."""
    text = row_of(messages)
    assert messages_from_json(text) == messages_from_json(text.encode()) == messages
    assert messages_from_json([row_of(messages[:cut]), row_of(messages, before=messages[:cut])]) == messages
    chat = Chat(title="a chat", messages=list(messages))
    assert Chat.model_validate_json(chat.model_dump_json()) == chat
    assert Chat.model_validate(chat.model_dump()) == Chat.model_validate(chat.model_dump(mode="json")) == chat
    row = Row("a chat", messages)
    assert msgspec.json.decode(msgspec.json.encode(row), type=Row) == row


@given(before=anything, after=anything, more=anything)
def test_rows_joined_are_the_history_that_the_last_run_left(
    before: tuple[Message, ...], after: tuple[Message, ...], more: tuple[Message, ...]
) -> None:
    """Whatever a run replaced of what stood before: its row says how much of it stays."""
    rows = [row_of(before), row_of(after, before=before), row_of((*after, *more), before=after)]
    assert messages_from_json(rows) == (*after, *more)
    assert "keeps" not in json.loads(rows[2])  # what only adds is a plain row


@pytest.mark.costly
def test_every_recorded_history_comes_back_equal(corpus: Path) -> None:
    """1,322 histories of real requests."""
    seen = 0
    for file, family, messages, instructions in recorded(corpus):
        history = messages_from(messages, family=family, instructions=instructions).messages
        half = history[: len(history) // 2]
        assert messages_from_json(row_of(history)) == history, file
        assert messages_from_json([row_of(half), row_of(history, before=half)]) == history, file
        seen += 1
    assert seen == (1_281 if are_stand_ins(corpus) else 1_322)


# Runs


def scripted(family: str, lines: Sequence[Line], **more: Any) -> tuple[ScriptedModel, Agent[Any, Any]]:
    model = ScriptedModel(lines, family=family)
    return model, Agent(Model(f"{family}:scripted", transport=model), **more)


def body_of_next(family: str, history: Sequence[Message]) -> bytes:
    model, agent = scripted(family, ["It is 3."], tools=[ToolSpec(name="f", description="Try.", parameters="{}")])
    agent.run_sync("How much is it?", history=history)
    return model.requests[0].body


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=examples(60))
@given(messages=histories())
def test_a_run_sends_the_same_bytes_from_text_and_from_memory(
    family: FamilyName, messages: tuple[Message, ...]
) -> None:
    """Reasoning with its signature, provider items, citations, files, errors: the next request does not tell the difference."""
    assert body_of_next(family, messages_from_json(row_of(messages))) == body_of_next(family, messages)


@tool
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


OTHER_PROCESS = """
import sys, msgspec
from turnwise import Agent, Model, ToolSpec, messages_from_json
from turnwise.testing import ScriptedModel

for family, rows in msgspec.json.decode(sys.stdin.read()).items():
    model = ScriptedModel(["It is 3."], family=family)
    endpoint = {"transport": model}
    agent = Agent(Model(f"{family}:scripted", **endpoint), tools=[ToolSpec(name="f", description="Try.", parameters="{}")])
    agent.run_sync("How much is it?", history=messages_from_json(rows))
    print(model.requests[0].body.decode())
"""


def test_chats_go_on_in_another_process_from_their_rows() -> None:
    """In each family three runs with calls, one with a picture: the rows of `new_history_json` are the history, and a process
    that has read them sends what this one would have sent."""
    prompts: list[Any] = ["Double 4.", ["What is it?", File(media_type="image/png", data=b"\x89PNG\xff")], "Once more."]
    of_family: dict[str, list[str]] = {}
    bodies: list[str] = []
    for family in FAMILIES:
        twice = [call("double", number=8), call("double", number=9)]
        model, agent = scripted(family, [call("double", number=4), "8.", "A pear.", twice, "16, 18."], tools=[double])
        rows = of_family[family] = list[str]()
        history: tuple[Message, ...] = ()
        for prompt in prompts:
            result = agent.run_sync(prompt, history=messages_from_json(rows))
            assert result.earlier == history
            rows.append(result.new_history_json())
            history = result.history
            assert messages_from_json(rows) == messages_from_json(result.history_json()) == history
        assert [json.loads(row).keys() for row in rows] == [{"turnwise", "messages"}] * 3
        assert len(model.requests) == 5
        bodies.append(body_of_next(family, history).decode())
    command = [sys.executable, "-c", OTHER_PROCESS]
    given = json.dumps(of_family)
    said = subprocess.run(command, input=given, capture_output=True, encoding="utf-8", check=True).stdout
    assert said.strip().split("\n") == bodies


@tool(effect="write")
def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is published"


def test_asks_in_a_row_are_answered_later_and_the_next_row_takes_their_place() -> None:
    """The row of a run that waits holds what a person was shown. The answer's row replaces the messages that changed."""
    model, agent = scripted(
        "openai_responses",
        [[call("publish", page="news"), call("publish", page="draft")], "Both are out.", "Bye.", "Bye."],
        tools=[publish],
        policy=Policy(attended=True),
        safety={"approver": lambda asking: [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]},
    )
    first = agent.run_sync("Publish both.")
    rows = [first.new_history_json()]
    assert first.stop_reason is StopReason.WAITING
    answers = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in first.asks]
    read = messages_from_json(rows)
    assert [call.asked for call in calls_in(read)] == [ask.digest for ask in first.asks]
    second = agent.run_sync(approvals=answers, history=read)
    assert second.text == "Both are out."
    rows.append(second.new_history_json())
    third = agent.run_sync("Thanks.", history=messages_from_json(rows))
    rows.append(third.new_history_json())
    assert messages_from_json(rows) == third.history
    agent.run_sync("Thanks.", history=second.history)
    assert model.requests[-1].body == model.requests[-2].body


def calls_in(messages: Sequence[Message]) -> list[ToolCall]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolCall)]


def read(path: str) -> str:
    """Read a part."""
    return f"{path}: " + "the quick brown fox. " * 120


def test_a_run_that_makes_room_says_what_its_row_replaces() -> None:
    """The next run begins with the summary, as it would from memory, and not with all that was summarised."""
    calls = [ScriptedStep(calls=(ScriptedCall(name="read", arguments={"path": f"part-{n}"}),)) for n in range(40)]
    script = Script(
        name="reads", title="reads", steps=(*calls, ScriptedStep(text="Done.")), summarises="Write a summary"
    )
    lab = Lab([script])
    agent = Agent(
        Model(
            "openai_chat:reads",
            base_url="http://lab/v1",
            transport=lab.transport(),
            limits=ModelLimits(context_window_tokens=14_000, max_output_tokens=1_500),
        ),
        tools=[read],
        limits=MaxSteps(60),
    )
    rows = [row_of((Message("user", (Text("Hello."),)), Message("assistant", (Text("Hello!"),))))]
    result: RunResult[Any] = agent.run_sync("Read.", history=messages_from_json(rows))
    assert result.requests_by_purpose["compact"] >= 1
    rows.append(result.new_history_json())
    assert json.loads(rows[1])["keeps"] < 2
    assert messages_from_json(rows) == result.history != result.messages
    assert all(row_of(()) not in row for row in rows)


async def test_a_run_that_was_resumed_begins_with_the_history_that_it_was_given(tmp_path: Path) -> None:
    """Its process died: the journal has the given history, and the resumed run's result and row continue it."""
    crash, clock = Crash(tmp_path), SystemClock()
    given = (Message("user", (Text("Hello."),)), Message("assistant", (Text("Hello!"),)))

    def dies(_: object) -> str:
        crash.now()
        return "Lost."

    with Journal(crash.path, clock=clock) as journal:
        await agent_of(ScriptedModel([dies]), journal, clock=clock).run("Go on.", history=given)
    model = ScriptedModel(["On we go."])
    with crash.journal(clock) as again:
        result = await agent_of(model, again, clock=clock).resume(again.sessions()[0].id)
    assert model.asked[0].messages == (*given, Message("user", (Text("Go on."),)))
    assert result.earlier == given and result.messages == result.history
    assert messages_from_json([row_of(given), result.new_history_json()]) == result.history
    assert result.history[:2] == given and len(result.history) == 4


# What cannot be read

HEAD = '{"turnwise":1,"messages":['
GOOD = HEAD + '{"role":"user","parts":[{"type":"text","text":"Hello."}]}]}'


def with_raw(text: str) -> str:
    """A history with this as the provider's data of a text in a result."""
    said = Text("Hello.", opaque=Opaque("gemini", text))
    return row_of((Message("tool", (ToolResult(call_id="1", name="f", content=(said,)),)),))


@each(
    ("given", "says"),
    [
        ("", "the history is not what `history_json()` wrote: Input data was truncated"),
        (GOOD[:-3], "the history is not what `history_json()` wrote: Input data was truncated"),
        (GOOD + "}", "trailing characters (byte "),
        ("[]", "Expected `object`, got `array`. `messages_from` reads other messages"),
        ('{"messages":[]}', "Object missing required field `turnwise`"),
        ('{"turnwise":0,"messages":[]}', "there is no version 0"),
        (GOOD.replace(":1", ":2", 1), "is of version 2, and this turnwise reads up to 1: install the turnwise that wrote it"),
        (GOOD.replace(":1", ':99,"shape":{}', 1), "is of version 99"),
        (GOOD.replace('"text":"H', '"text":1,"x":"H'), "Expected `str`, got `int` - at `$.messages[0].parts[0].text`"),
        (GOOD.replace('"text":"H', '"mood":1,"text":"H'), "unknown field `mood` - at `$.messages[0].parts[0]`"),
        (GOOD.replace('"text",', '"song",'), "Invalid value 'song' - at `$.messages[0].parts[0].type`"),
        (GOOD.replace("user", "wizard"), "Invalid enum value 'wizard' - at `$.messages[0].role`"),
        (GOOD.replace(":1,", ':1,"keeps":-1,'), "Expected `int` >= 0 - at `$.keeps`"),
        (GOOD.replace(":1,", f':1,"x":{"[" * 100_000}{"]" * 100_000},'), "nested too deep"),
        (GOOD.replace("Hello", "\\ud800"), "the history is not what `history_json()` wrote: JSON is malformed"),
        (GOOD.replace("Hello", "\ud800"), "the history is not what `history_json()` wrote: it is not UTF-8"),
        (GOOD.encode().replace(b"Hello", b"\xff"), "UTF-8"),
        (with_raw("{"), "no JSON object is in `$.messages[0].parts[0].content[0].opaque.json`: Input data was truncated"),
        (with_raw("[]"), "no JSON object is in `$.messages[0].parts[0].content[0].opaque.json`: Expected `object`"),
        (with_raw('{"a":1}},{"role":"user"'), "opaque.json`: JSON is malformed: trailing characters"),
        (row_of((Message("user", (ProviderItem("gemini", "x", '{"a":'),)),)), "is in `$.messages[0].parts[0].json`"),
        ([GOOD, GOOD[:-3]], "row 1 of the history (counted from 0) is not what"),
        ([GOOD, GOOD.replace(":1,", ':1,"keeps":4,')], "row 1 of the history (counted from 0) continues 4 messages, and the"),
        ([GOOD, None], "row 1 of the history (counted from 0) must be a text or bytes, not NoneType"),
        (json.loads(GOOD), "a history is read from its text, not from a dict: keep it in a column of text"),
        (None, "a history is read from its text, not from a NoneType: give `[]` for a chat without rows"),
    ],
)  # fmt: skip
def test_a_text_that_is_no_history_says_where_and_what_to_do(given: Any, says: str) -> None:
    """Damage, a newer version, another form, a field or a part that this version does not have: nothing is left out silently."""
    with pytest.raises(CallerError) as caught:
        messages_from_json(given)
    assert says in str(caught.value)
    assert "\ud800" not in str(caught.value)


def test_the_length_of_all_rows_together_is_bounded() -> None:
    """A stranger's text cannot fill the memory; who needs more raises the bound."""
    assert len(messages_from_json([GOOD, GOOD], max_bytes=2 * len(GOOD))) == 2
    with pytest.raises(
        CallerError, match=r"row 1 of the history .* is too long: more than 300 bytes; raise `max_bytes`"
    ):
        messages_from_json([GOOD, GOOD.replace("Hello", "é" * 150)], max_bytes=300)
    assert messages_from_json([]) == ()


def test_a_history_that_no_text_can_carry_is_refused_when_it_is_written() -> None:
    """Half of a character, from a name of a file that is not UTF-8."""
    with pytest.raises(CallerError, match="the history holds what JSON cannot carry"):
        row_of((Message("user", (Text("\ud800"),)),))


# In models


def test_a_message_in_a_model_has_a_schema_and_errors_with_their_place() -> None:
    """The schema is whole in itself, and what does not fit is told as pydantic tells it."""
    import jsonschema_rs

    schema = Chat.model_json_schema()
    assert "$defs" not in json.dumps(schema)
    assert jsonschema_rs.validator_for(Chat.model_json_schema(mode="serialization")).is_valid(
        json.loads(Chat(title="", messages=list(every_part())).model_dump_json())
    )
    wrong = {"title": "", "messages": [{"role": "user", "parts": [{"type": "text", "text": 1}]}]}
    assert not jsonschema_rs.validator_for(schema).is_valid(wrong)
    with pytest.raises(ValidationError, match=r"messages\.0\n.*Expected `str`, got `int` - at `\$\.parts\[0\]\.text`"):
        Chat.model_validate(wrong)


def test_messages_do_not_load_pydantic() -> None:
    """Who keeps histories as text need not have it in memory."""
    program = (
        "import sys; from turnwise import messages_from_json; from turnwise.agent.history_json import row_of; "
        "print(messages_from_json(row_of(())), 'pydantic' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == "() False\n"


# The files of each version, kept for ever

OPAQUES = {
    "openai_chat": '{"reasoning_details":[{"type":"reasoning.encrypted","data":"c2ln"}]}',
    "openai_responses": '{"id":"rs_1","encrypted_content":"c2ln"}',
    "anthropic_messages": '{"signature":"c2ln"}',
    "gemini": '{"thoughtSignature":"c2ln"}',
    "gemini_interactions": '{"signature":"c2ln"}',
}


def every_part(family: str = "openai_responses") -> tuple[Message, ...]:
    """Each kind of part, each field of each kind, and data of one family."""
    opaque = Opaque(family, OPAQUES[family])
    source = Citation(family=family, raw='{"uri":"x"}', url="https://example.com", title="A page", cited_text="Pears")
    item = ProviderItem(family, "web_search_call", '{"type":"web_search_call","id":"ws_1"}')
    picture = File(media_type="image/png", data=b"\x89PNG\r\n\x1a\n\xff\x00", name="pear.png", opaque=opaque)
    broken = ToolCall(
        id="call_2",
        name="write",
        arguments='{"text":"Once',
        state=ArgumentsState.TRUNCATED,
        reason="cut inside the string at `$.text` after 13 characters",
        opaque=opaque,
    )
    twice = ToolCall(
        id="call_3",
        name="add",
        arguments='{"a":1}{"a":2}',
        state=ArgumentsState.INVALID,
        alternatives=('{"a":1}', '{"a":2}'),
    )
    asked = ToolCall(id="call_5", name="publish", arguments='{"page":"news"}', asked="sha256:0f")
    return (
        Message("system", (Text("The instructions have changed.", note="instructions"),)),
        Message("user", (Text("What is it? é 🍐 \u0000 \u2028", opaque=opaque), picture)),
        Message("user", (File(media_type="application/pdf", url="https://example.com/a.pdf"),)),
        Message("user", (File(media_type="image/*", file_id="file_1"), Text("Look.", note="reminder"))),
        Message(
            "assistant",
            (Reasoning("A pear, I think.", opaque), item, Text("A pear.", (source,)), Refusal("No.", opaque)),
        ),
        Message("assistant", (Reasoning("", opaque), ToolCall(id="call_1", name="look", opaque=opaque), broken, twice)),
        Message(
            "tool",
            (
                ToolResult(call_id="call_1", name="look", content=(Text("seen"), picture), opaque=opaque),
                ToolResult(call_id="call_2", name="write", content=(Text("It was cut.", note="cut"),), is_error=True),
                ToolResult(call_id="call_3", name="add"),
            ),
        ),
        Message("assistant", (ToolCall(id="call_4", name="code", arguments="print(1)", free_form=True),)),
        Message("tool", (ToolResult(call_id="call_4", name="code", content=(Text("1"),), free_form=True),)),
        Message("assistant", (Text("I publish it.", opaque=Opaque(family, "{}")), asked)),
    )


def test_files_of_every_version_are_read_as_they_were_written() -> None:
    """`data/histories/v1` was written by version 1 and stays as it is: a file for each family, and one of rows. A later version
    gets a folder of its own."""
    written = sorted([path.stem for path in (KEPT / "v1").glob("*.json")])
    assert written == ["anthropic_messages", "gemini", "openai_chat", "openai_responses"]
    for family in written:
        text = (KEPT / "v1" / f"{family}.json").read_text(encoding="utf-8")
        assert messages_from_json(text) == every_part(family), family
    rows = (KEPT / "v1" / "rows.jsonl").read_text(encoding="utf-8").strip().split("\n")
    whole = every_part("gemini")
    assert messages_from_json(rows[:1]) == whole[:3]
    assert messages_from_json(rows[:2]) == whole[:5]
    assert messages_from_json(rows) == (*whole[:1], *whole[4:])
    known = {f"{family}.json" for family in written} | {"rows.jsonl"}
    assert {path.relative_to(KEPT / "v1").as_posix() for path in KEPT.rglob("*.json*")} == known


def test_every_kind_of_part_and_every_field_stands_in_the_kept_files() -> None:
    """A new kind or field is not in version 1: it raises the version of texts that hold it, and comes into the next folder."""
    held: dict[str, set[str]] = {}

    def look(value: object) -> None:
        if isinstance(value, msgspec.Struct):
            fields = held.setdefault(type(value).__name__, set())
            for field in msgspec.structs.fields(type(value)):
                found = getattr(value, field.name)
                if field.required or found != field.default:
                    fields.add(field.name)
                look(found)
        elif isinstance(value, tuple):
            for one in value:  # pyright: ignore[reportUnknownVariableType]
                look(one)

    look(every_part())
    kinds = (Message, *get_args(Part), Opaque, Citation)
    assert held == {kind.__name__: set(kind.__struct_fields__) for kind in kinds}
