"""An answer that nobody can see is none: it is asked for once more, and then written from what there is (end:never-empty)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turn.playing import CONFIG, Played, call, play, says
from turnwise.rules.answer_room import EMPTY_AGAIN
from turnwise.turn.events import Interrupted
from turnwise.vocab import FinishReason, Reasoning, Refusal, Response, StopReason, Text, Usage, text_of
from turnwise.vocab.hidden_characters import BLANK, IGNORABLE, says_something

SEEN = "The answer."


def characters(ranges: str) -> list[str]:
    ends = [one.split("-") for one in ranges.split()]
    return [chr(code) for pair in ends for code in {int(pair[0], 16), int(pair[-1], 16)}]


HIDDEN = sorted({*characters(IGNORABLE), *characters(BLANK), *" \n\t\r\u00a0\u3000\x00\x1b"})
unseen = st.text(st.sampled_from(HIDDEN), max_size=6)
NAMED = ["\u200b", "\u2060", "\ufeff", "\ufeff\n\u200b ", "\u2800", "\U000e0041"]


def purposes(played: Played) -> list[str]:
    return [request.purpose for request in played.requests]


@given(unseen)
def test_what_shows_nothing_says_nothing(text: str) -> None:
    """Proves for any mixture of spaces and characters without a glyph; one letter, sign or emoji makes it an answer."""
    assert not says_something(text)
    for seen in ("a", ".", "é", "語", "👍", "👍\ufe0f", "\ufffd"):
        assert says_something(text + seen) and says_something(seen + text)


def test_a_long_text_is_looked_at_to_its_end() -> None:
    """Proves: what stands behind a page of invisible characters counts."""
    assert says_something("\u200b" * 10_000 + "語")
    assert not says_something("\u200b" * 10_000)


@pytest.mark.promise("end:never-empty")
@pytest.mark.parametrize("text", NAMED)
def test_an_answer_of_invisible_characters_is_asked_for_once_more(text: str) -> None:
    """From a tester: U+200B, U+2060 and U+FEFF alone ended the turn `answered`, complete."""
    played = play([says(text), says(SEEN)])
    assert (played.result.text, played.result.complete, played.result.requests) == (SEEN, True, 2)
    assert text_of(played.requests[1].request.messages[-1]) == EMPTY_AGAIN


@pytest.mark.promise("end:never-empty")
@given(st.lists(unseen, min_size=2, max_size=2), st.sampled_from(["step", "last"]))
def test_no_answer_is_only_invisible(texts: list[str], place: str) -> None:
    """Proves for any two such responses, in the first step and in the last: the answer is ours and can be read."""
    config = replace(CONFIG, max_steps=1) if place == "last" else CONFIG
    played = play([says(text) for text in texts], config=config)
    result = played.result
    assert says_something(result.text)
    assert (result.origin, result.complete) == ("local", False)


@pytest.mark.promise("end:never-empty")
def test_a_call_beside_invisible_text_where_none_is_allowed_is_no_answer() -> None:
    """A disobedient model is asked once more, as for one that said nothing."""
    played = play([says("\u200b", call("a")), says(SEEN)], config=replace(CONFIG, max_steps=1))
    assert (purposes(played)[-1], played.result.text) == ("answer", SEEN)


@pytest.mark.promise("end:never-empty")
def test_reasoning_that_leaves_only_invisible_text_has_eaten_all() -> None:
    """More room is asked for, as where no text came at all."""
    parts = (Reasoning("Let me think."), Text("\u200b"))
    eaten = replace(says(*parts, finish=FinishReason.LENGTH), usage=Usage(output_tokens=100, reasoning_tokens=100))
    for response in (eaten, replace(eaten, message=replace(eaten.message, parts=parts[:1]))):
        played = play([response, says(SEEN)])
        assert (purposes(played), played.result.text) == (["step", "answer"], SEEN)


@pytest.mark.promise("end:never-empty")
def test_a_refusal_that_shows_nothing_is_told_in_our_words() -> None:
    """And an invisible refusal beside an answer refuses nothing."""
    refused = says(Refusal("\u200b"), finish=FinishReason.REFUSAL)
    played = play([refused])
    assert (played.result.text, played.result.stop_reason) == (
        "The model refused to answer and gave no reason.",
        StopReason.REFUSED,
    )
    played = play([says(Refusal("\u200b"), SEEN)])
    assert (played.result.text, played.result.stop_reason) == (SEEN, StopReason.ANSWERED)


@pytest.mark.promise("end:never-empty", "wait:cancel")
def test_what_came_before_a_cancel_is_shown_only_where_it_shows() -> None:
    """The answer of ours does not quote what nobody sees."""
    partial = says("\u2060")
    played = play([Interrupted(kind="cancel", partial=partial)])
    assert "The model had said" not in played.result.text and says_something(played.result.text)


@pytest.mark.promise("end:never-empty", "cut:continued")
def test_a_cut_text_that_shows_nothing_is_not_continued() -> None:
    """There is nothing to go on from."""
    config = replace(CONFIG, recover="continue")
    invisible: Response = says("\u200b" * 50, finish=FinishReason.LENGTH)
    played = play([invisible, says(SEEN)], config=config)
    assert "continue" not in purposes(played)
    assert played.result.text == SEEN
