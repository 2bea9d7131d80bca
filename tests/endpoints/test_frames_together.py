"""However many frames one read brings, and whichever short way they take through the reader of calls in text, the response and
what is shown of it are the same."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text_calls import TOOLS, WRITERS
from thoroughness import examples
from turnwise.assembly.response import Assembler
from turnwise.assembly.response_reading import ResponseReader
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import (
    BlockEnded,
    CallForming,
    Finished,
    FinishReason,
    Frame,
    Lost,
    PartDone,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

CALLS = [("read", {"path": "notes.txt"})]
TEXTS = (
    *[writer(CALLS) for writer in WRITERS.values()],
    "Words without a mark, and more of them. ",
    "A list [1, 2], `code`, a < b and <b>bold</b>.\n",
    "```\nA fence.\n```\n",
    "<think>Hm.</think>\n",
    "é 😀 \ud83d\ude00",
    "",
)
# What comes beside texts.
OTHERS: tuple[Frame, ...] = (
    ReasoningDelta("Hm. "),
    ReasoningDelta("<tool_call>", "other"),
    RefusalDelta("No."),
    ToolCallDelta(index=0, id="call_1", name="read", arguments='{"path":'),
    ToolCallDelta(index=0, arguments='"notes.txt"}'),
    ToolCallDelta(index=0),
    PartDone("text", Text("Words without a mark, and more of them. ")),
    PartDone("text", Text(WRITERS["hermes"](CALLS))),
    PartDone("reasoning", Reasoning("Hm. ")),
    BlockEnded("text"),
    UsageReported(Usage(input_tokens=1, output_tokens=1)),
    Lost(Repair("lost", "response", "a piece")),
    Started(id="1", model="m"),
    Finished(FinishReason.STOP, "stop"),
)


@st.composite
def cut_texts(draw: st.DrawFn) -> list[Frame]:
    """A text in pieces, nearly always of one block."""
    text, size = draw(st.sampled_from(TEXTS)), draw(st.integers(1, 12))
    block = draw(st.sampled_from(["text", "text", "text", "text/2"]))
    return [TextDelta(text[at : at + size], block) for at in range(0, max(len(text), 1), size)]


responses = st.lists(cut_texts() | st.sampled_from(OTHERS).map(lambda frame: [frame]), min_size=1, max_size=8).map(
    lambda found: [*[frame for frames in found for frame in frames], Finished(FinishReason.STOP, "stop")]
)


class Given:
    """A decoder whose bytes say how many of the given frames come with them."""

    def __init__(self, frames: Sequence[Frame]) -> None:
        self._frames = [*frames]

    def feed(self, chunk: bytes) -> list[Frame]:
        came, self._frames = self._frames[: len(chunk)], self._frames[len(chunk) :]
        return came

    def finish(self) -> list[Frame]:
        return []

    def expects_more(self) -> bool:
        return False


def one_by_one(frames: Sequence[Frame]) -> tuple[Response, list[Frame]]:
    finder, assembler = CallFinder(tools=TOOLS), Assembler(tool_names=frozenset([tool.name for tool in TOOLS]))
    shown = [seen for frame in frames for seen in assembler.receive_all(finder.take([frame]))]
    shown += assembler.receive_all(finder.finish())
    return assembler.finish(), shown


def by_reads(frames: Sequence[Frame], *, sizes: Sequence[int]) -> tuple[Response, list[Frame]]:
    chat = msgspec.structs.replace(family("openai_chat"), stream_decoder=lambda _profile, _limits: Given(frames))
    reader = ResponseReader(
        chat,
        profile=builtin_profiles()["openai_chat"],
        tool_names=frozenset([tool.name for tool in TOOLS]),
        in_text=CallFinder(tools=TOOLS),
    )
    shown: list[Frame] = []
    for size in (*sizes, len(frames)):
        shown += reader.feed(b"." * size)
    shown += reader.flush()
    return reader.finish(), shown


def joined(frames: Sequence[Frame]) -> list[Frame]:
    """What is shown, in the largest pieces: how a text is cut means nothing, and no more does how often a call's size is told."""
    found: list[Frame] = []
    for frame in frames:
        if isinstance(frame, CallForming):
            continue
        last = found[-1] if found else None
        if isinstance(frame, TextDelta) and isinstance(last, TextDelta) and last.block == frame.block:
            found[-1] = TextDelta(last.text + frame.text, frame.block)
        elif not isinstance(frame, TextDelta) or frame.text:
            found.append(frame)
    return found


@settings(max_examples=examples(400))
@given(frames=responses, sizes=st.lists(st.integers(1, 40), max_size=40))
def test_frames_that_come_together_are_read_as_one_after_another(frames: list[Frame], sizes: list[int]) -> None:
    """Proves: the short ways of words and of a response's own calls take nothing from what is found (issue 16, "Cost stays
    linear"), also where texts, reasoning, calls and losses come between."""
    response, shown = by_reads(frames, sizes=sizes)
    expected, expected_shown = one_by_one(frames)
    assert msgspec.structs.replace(response, is_closed=expected.is_closed) == expected
    assert joined(shown) == joined(expected_shown)


# Frames that a short way must not take.
APART: dict[str, list[Frame]] = {
    "another text that begins with reasoning": [TextDelta("Words. "), TextDelta("◁think▷Hm.◁/think▷More.", "text/2")],
    "a response that begins anew behind its own call": [
        Started(id="1"),
        ToolCallDelta(index=0, id="call_1", name="read", arguments="{}"),
        Started(id="2"),
        TextDelta(WRITERS["hermes"](CALLS)),
    ],
    "a mark in brackets": [TextDelta("Words. "), TextDelta("[TOOL_CALLS]read"), TextDelta('{"path": "notes.txt"}')],
    "a mark in angles": [TextDelta("Words. "), TextDelta("More.\n"), TextDelta(WRITERS["hermes"](CALLS))],
    "a call of its own behind words": [
        TextDelta("Words. "),
        ToolCallDelta(index=0, id="1", name="read"),
        TextDelta("<"),
    ],
}


@pytest.mark.parametrize("what", APART)
def test_what_no_short_way_may_take_is_read_whole(what: str) -> None:
    """Proves: each of these is found where it comes alone, and where all comes at once."""
    frames: list[Frame] = [*APART[what], Finished(FinishReason.STOP, "stop")]
    expected, expected_shown = one_by_one(frames)
    kinds = [type(part) for part in expected.message.parts if not isinstance(part, Text)]
    assert kinds == [Reasoning if what.startswith("another text") else ToolCall]
    for sizes in ([1] * len(frames), []):
        response, shown = by_reads(frames, sizes=sizes)
        assert (response, joined(shown)) == (expected, joined(expected_shown))


def test_words_that_come_alone_are_read_as_those_that_come_together() -> None:
    """Proves: also beyond as many pieces as wait to be looked at together, where a fence then says that a call is shown only."""
    block = WRITERS["hermes"](CALLS)
    for text, count in ((f"{'Some words. ' * 400}```\n{block}\n```\n", 0), (f"{'Some words. ' * 400}\n{block}", 1)):
        frames: list[Frame] = [TextDelta(text[at : at + 3]) for at in range(0, len(text), 3)]
        frames.append(Finished(FinishReason.STOP, "stop"))
        for sizes in ([1] * len(frames), [7] * len(frames), []):
            response, shown = by_reads(frames, sizes=sizes)
            assert (response, joined(shown)) == (one_by_one(frames)[0], joined(one_by_one(frames)[1]))
            assert len([part for part in response.message.parts if not isinstance(part, Text)]) == count
