"""`Agent(opening=...)`: what stands in front of a turn's user message, and how a request carries it."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from flat_agents import flat_agent
from turnwise import tool
from turnwise.base.clock import SystemClock
from turnwise.journal.journal import Journal
from turnwise.running.tool_output import MAX_NOTE_CHARACTERS, MAX_TEXT_CHARACTERS, result_of
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.vocab import File, Message, Text, ToolCall, notes_of, own_text_of


async def monday(messages: Sequence[Message]) -> list[Text]:
    """Said where the session does not carry it already."""
    if any(note.note == "date" for message in messages for note in notes_of(message)):
        return []
    return [Text("It is Monday.\n\n", note="date")]


@tool
def look() -> list[Text]:
    """Look."""
    return [Text("Seen."), Text("\n\nBeside it.", note="beside")]


def asked(model: ScriptedModel) -> list[list[object]]:
    """The contents of each request's messages."""
    decoded = [msgspec.json.decode(http.body) for http in model.requests]
    return [[message["content"] for message in body["messages"]] for body in decoded]


async def test_it_is_asked_each_turn_and_its_words_come_first() -> None:
    """With the messages that the session carries on. Chat endpoints get one string: many take no list."""
    model = ScriptedModel([[call("look")], "Yes.", "Again."], family="openai_chat")
    agent = flat_agent("openai_chat:m", tools=[look], opening=monday, base_url=BASE_URL, transport=model, api_key="k")
    first = await agent.run("Is it?")
    await agent.run("And now?", history=first.history)
    requests = asked(model)
    assert requests[1] == ["It is Monday.\n\nIs it?", None, "Seen.\n\nBeside it."]
    assert requests[2] == [*requests[1], "Yes.", "And now?"]
    assert own_text_of(first.history[0]) == "Is it?"


async def test_an_agent_says_nothing_by_itself() -> None:
    """The library is as it was: the message is the prompt."""
    model = ScriptedModel(["Yes."], family="openai_chat")
    result = await flat_agent("openai_chat:m", base_url=BASE_URL, transport=model, api_key="k").run("Is it?")
    assert asked(model) == [["Is it?"]]
    assert result.history[0] == Message("user", (Text("Is it?"),))


async def test_a_title_is_the_persons_words(tmp_path: Path) -> None:
    """Not those of a note; a part without one counts."""
    with Journal(tmp_path / "j.db", clock=SystemClock()) as journal:
        model = ScriptedModel(["Yes."], family="openai_chat")
        agent = flat_agent(
            "openai_chat:m", opening=monday, base_url=BASE_URL, transport=model, api_key="k", journal=journal
        )
        await agent.run(["Is it?", File(media_type="image/png", data=b"1")])
        assert [row.title for row in journal.sessions(limit=2)] == ["Is it?"]


@pytest.mark.promise("safe:bounded")
def test_notes_beside_a_result_do_not_cut_it() -> None:
    """They have a limit of their own, which a tool that writes many cannot pass."""
    asks = ToolCall(id="c", name="look")
    text, note = Text("x" * MAX_TEXT_CHARACTERS), Text("y" * (MAX_NOTE_CHARACTERS - 1), note="n")
    assert result_of(asks, [text, note]).content == (text, note)
    assert result_of(asks, [text, note, Text("z", note="n")]).content == (text, note, Text("z", note="n"))
    many = result_of(asks, [text, *[note] * 50]).content
    beside = [part.text for part in many if isinstance(part, Text) and part.note]
    assert many[0] == text and sum(map(len, beside)) < 2 * MAX_NOTE_CHARACTERS
