"""Messages that are told plain by a short look are those that the journal reads again."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_agents import flat_agent
from thoroughness import examples
from turnwise.agent.agent_options import AT_ONCE, are_plain
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.testing import ScriptedTransport
from turnwise.vocab import (
    ArgumentsState,
    Citation,
    File,
    Message,
    Opaque,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)

SOUND = Message("user", (Text("Go on."),))
right = st.one_of(st.just("word"), st.just(""), st.just(None), st.just(()), st.just(b"bytes"), st.just(True))
wrong = st.sampled_from(
    (
        5,
        2**70,
        1.5,
        float("nan"),
        "half \ud83d",
        b"\xff",
        ["a"],
        {"a": 1},
        {1: "a"},
        object(),
        Path("x"),
        Text,
        ArgumentsState.LOST,
        {"role": "user", "parts": []},
    )
)
values = st.one_of(right, right, wrong)
opaques = st.one_of(st.none(), st.builds(Opaque, family=values, json=values), values)
KINDS = (Text, Reasoning, Refusal, File, ToolCall, ToolResult, ProviderItem, Citation)


def made_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[msgspec.Struct]:
    """Values of this kind that are right, but for one field at most."""
    needed = {field.name: "word" for field in msgspec.structs.fields(kind) if field.required}
    value = st.one_of(values, values.map(lambda text: (Text(text),)), opaques)  # pyright: ignore[reportArgumentType]
    drawn = st.dictionaries(st.sampled_from(kind.__struct_fields__), value, max_size=1)
    return drawn.map(lambda fields: kind(**(needed | fields)))


parts = st.sampled_from(KINDS).flatmap(made_of)
odd_messages = st.builds(
    Message,
    st.sampled_from((*["user", "assistant", "tool", "system"] * 4, "word", 5)),
    st.one_of(*[st.lists(parts, max_size=2)] * 5, st.lists(values, max_size=1)).map(tuple),
)


@pytest.mark.costly
@settings(max_examples=examples(1500), deadline=None)
@given(messages=st.lists(st.one_of(st.just(SOUND), odd_messages, values), max_size=3).map(tuple))
def test_what_is_told_plain_reads_again_as_json(messages: tuple[Message, ...]) -> None:
    """The journal is JSON: what its own round trip refuses is never told plain, whatever the fields hold."""
    if are_plain(messages):
        msgspec.json.decode(msgspec.json.encode(messages), type=tuple[Message, ...])


def test_every_kind_of_part_is_told_plain() -> None:
    """Or the short look would gain nothing."""
    own = Opaque("gemini", "{}")
    whole = Message(
        "assistant",
        (
            Text("a", citations=(Citation(family="f", raw="{}"),), opaque=own, note="n"),
            Reasoning("r", opaque=own),
            Refusal("no"),
            File(media_type="image/png", data=b"\xff\x00"),
            ToolCall(id="c", name="n", state=ArgumentsState.INVALID, alternatives=("{}", "{}"), reason="two"),
            ToolResult(call_id="c", name="n", content=(Text("größer"), File(media_type="a/b", url="https://x"))),
            ProviderItem("gemini", "k", "{}"),
        ),
    )
    assert are_plain((SOUND, whole) * AT_ONCE)
    assert are_plain(())


@pytest.mark.parametrize("place", [0, AT_ONCE - 1, AT_ONCE, 3 * AT_ONCE])
async def test_a_wrong_field_of_a_long_history_is_named_with_its_place(place: int) -> None:
    """Proves: looking at some messages at once loses none of them, and the error counts from the first."""
    history = [SOUND] * place + [Message("user", (Text(5),))] + [SOUND] * 3  # pyright: ignore[reportArgumentType]
    with Journal(None, clock=SystemClock()) as journal:
        for options in ({}, {"journal": journal}):
            agent = flat_agent(
                "openai_chat:m",
                base_url="http://nowhere.invalid",
                api_key="none",
                transport=ScriptedTransport([]),
                **options,  # pyright: ignore[reportArgumentType]
            )
            with pytest.raises(CallerError, match=rf"the run's options: .* `\$\.history\[{place}\]\.parts\[0\]\.text`"):
                await agent.run("Hi.", history=history)
        assert journal.sessions() == []
