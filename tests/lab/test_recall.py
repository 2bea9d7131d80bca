"""A scripted model that knows only what stands in the request: recall, summaries and a window of its own."""

import json
from pathlib import Path

import pytest

from lab.asking import ask, path_of
from turnwise.assembly.response_reading import read_body
from turnwise.lab import load_scripts
from turnwise.lab.families.family import Conversation, SentMessage
from turnwise.lab.provider import listing
from turnwise.lab.replies import summary_of
from turnwise.lab.script import ScriptError, parse_script
from turnwise.vocab import FinishReason, Message, Request, Settings, Text, text_of
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
SCRIPTS = load_scripts(Path(__file__).parent / "room")


def answer(family: str, *texts: str, output_tokens: int = 1000) -> tuple[str, bool, str | None]:
    """What the lab says to a user who said this: the text, whether it is a summary, why it was refused."""
    speaks = find_family(family)
    messages: list[Message] = []
    for text in texts:
        messages += [Message("user", (Text(text),)), Message("assistant", (Text("Yes."),))]
    settings = Settings(max_output_tokens=output_tokens)
    request = Request(model="remembers", messages=tuple(messages[:-1]), stream=False, settings=settings)
    body = speaks.encode_request(request, builtin_profiles()[family]).body
    outgoing, received = ask(path_of(family, model="remembers", stream=False), body, scripts=SCRIPTS)
    if received.refused is not None:
        return "", received.is_summary, received.refused
    response = read_body(b"".join(outgoing.pieces), family=speaks, profile=builtin_profiles()[family])[0]
    assert response.finish is FinishReason.STOP
    return text_of(response.message), received.is_summary, None


@pytest.mark.parametrize("family", FAMILIES)
def test_it_knows_what_it_was_told_and_nothing_else(family: str) -> None:
    """The newest word counts; what does not stand in the request it does not know."""
    told = answer(family, "My cat is called Tom.", "No, my cat is called Maunz.", "What are they called?")
    assert told == ("The cat is Maunz, the dog (I do not know).", False, None)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_summary_is_an_extract_of_what_it_was_given(family: str) -> None:
    """Also within a small limit, and of a summary that stands in the request."""
    text, is_summary, _ = answer(
        family, "My cat is called Maunz. " + "Well. " * 200, "Write a summary.", output_tokens=300
    )
    assert is_summary
    assert text.startswith("The user said: My cat is called Maunz. Well.")
    assert len(text) < 300 * 4
    again, _, _ = answer(family, f"[Summary]\n{text}", "My dog is called Rex.", "Write a summary.")
    assert again.splitlines() == [*text.splitlines(), "The user said: My dog is called Rex."]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_past_its_window_is_refused(family: str) -> None:
    """In the words of the family, which `test_room` reads."""
    _, _, refused = answer(family, "word " * 30_000, output_tokens=100)
    assert refused is not None
    assert "32000" in refused or "context window" in refused


def test_of_too_much_the_users_words_come_first_and_then_the_newest() -> None:
    """The extract fits into its limit, in the order in which things were said."""
    said = [SentMessage(role="user", texts=("First.",))]
    said += [SentMessage(role="assistant", texts=(f"Answer {number}.",)) for number in range(50)]
    said += [SentMessage(role="user", texts=("Last.", "Write a summary."))]
    lines = summary_of(Conversation(said=tuple(said)), limit_bytes=120).splitlines()
    assert lines == [
        "The user said: First.",
        "I said: Answer 47.",
        "I said: Answer 48.",
        "I said: Answer 49.",
        "The user said: Last.",
    ]
    assert len(json.dumps(lines)) < 160


def test_a_script_of_questions_only_is_refused() -> None:
    """What to say in every other turn has to be there."""
    with pytest.raises(ScriptError, match="steps for questions only"):
        parse_script('title = "t"\n[[steps]]\nasked = "x"\ntext = "y"\n', name="s")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_listing_tells_the_turn_that_a_request_is_for(family: str) -> None:
    """What a judge needs that bills by step: the user's turn, counted in the conversation that came, beside its step."""
    speaks = find_family(family)
    for turns in (1, 2, 3):
        messages = [
            Message("user", (Text("Go."),)),
            *[Message("assistant", (Text("Yes."),)), Message("user", (Text("And?"),))] * (turns - 1),
        ]
        request = Request(
            model="remembers", messages=tuple(messages), stream=False, settings=Settings(max_output_tokens=900)
        )
        body = speaks.encode_request(request, builtin_profiles()[family]).body
        _, received = ask(path_of(family, model="remembers", stream=False), body, scripts=SCRIPTS)
        (told,) = json.loads(listing([received]))["requests"]
        assert (told["turn"], told["step"], told["fault"]) == (turns, 1, None)
