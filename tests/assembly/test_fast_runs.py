"""The assembler's fast ways say what its plain way says, of every sequence of frames (promise assembly:split-anywhere).

With `fast=None` the assembler takes every frame alone; its fast ways only save work. Streams of the families
are compared in tests/wire/test_fast_ways.py; here are frames that no family gives, and responses at their limits.
"""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assembly.test_properties import FRAMES
from thoroughness import examples
from turnwise.assembly.response import Assembler, FastRuns
from turnwise.assembly.tool_calls import BlockKind, CallAtHand, CallTable, OpenBlock, ResponseSize, WrittenCalls
from turnwise.vocab import (
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    Lost,
    Opaque,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)

OFFERED = frozenset(["read", "read_file", "go"])
PLAIN = ["a", "bc ", "1,", '"x":', " \n", "é", "漢字", "\U0001f600"]
SUSPECT = ["", "{", "{}", "{ }", '{"a":1}', ' {"b"', "}", '{"a":', "[", "null", "\ud83d", "\ude00", "x{", "[1]"]
PIECES = st.sampled_from([*PLAIN, *PLAIN, *SUSPECT])
OPAQUE = Opaque("gemini", '{"s":1}')
BEGINNINGS: list[Frame] = [
    ToolCallDelta(block="0", id="a", name="read", arguments=""),
    ToolCallDelta(block="0", id="a", name="read", arguments='{"a":'),
    ToolCallDelta(block="1", id="b", name="read", arguments="", free_form=True),
    ToolCallDelta(index=0, id="a", name="read", arguments='{"a":'),
    ToolCallDelta(index=1, id="b", name="go", arguments='["'),
    ToolCallDelta(id="c", name="read_file", arguments="{}"),
    ToolCallDelta(index=2, name="free", arguments="", free_form=True),
    TextDelta("It "),
    TextDelta("is", "0"),
    ReasoningDelta("so"),
]
ODD: list[Frame] = [
    Started("r", "m"),
    PartDone("text", Text("all of it")),
    PartDone("0", ToolCall(id="a", name="read", arguments='{"a":1}')),
    BlockEnded("0"),
    Lost(Repair("event_left_out", "stream", "a piece")),
    Finished(FinishReason.TOOL_CALLS, "tool_calls"),
    RefusalDelta("no"),
    ToolCallDelta(block="0", arguments='{"a":1}', whole=True),
    ToolCallDelta(index=0, id="other", arguments="1"),
    ToolCallDelta(index=7, arguments="1"),
]


@st.composite
def runs(draw: st.DrawFn) -> list[Frame]:
    """More of one part, in pieces; among them may be one that says more than that, or is of another part."""
    texts = draw(st.lists(PIECES, min_size=1, max_size=14))
    kind = draw(
        st.sampled_from(["text", "text", "reasoning", "refusal", "named", "named", "indexed", "indexed", "bare"])
    )
    block = draw(st.sampled_from(["text", "0", "0", "1"]))
    index, id = draw(st.sampled_from([0, 0, 1, 2, 7])), draw(st.sampled_from([None, None, None, "a", "b"]))
    free_form = block == "1"
    made: dict[str, list[Frame]] = {
        "text": [TextDelta(text, block) for text in texts],
        "reasoning": [ReasoningDelta(text) for text in texts],
        "refusal": [RefusalDelta(text) for text in texts],
        "named": [ToolCallDelta(block=block, arguments=text, free_form=free_form) for text in texts],
        "indexed": [ToolCallDelta(index=index, id=id, arguments=text) for text in texts],
        "bare": [ToolCallDelta(arguments=text) for text in texts],
    }
    found = made[kind]
    at = draw(st.integers(0, len(found) - 1))
    match draw(st.integers(0, 3)), found[at]:
        case 0, _:
            stray = draw(st.sampled_from([TextDelta("of another", "2"), ReasoningDelta("or", "0"), *BEGINNINGS]))
            found = [*found[:at], stray, *found[at:]]
        case 1, ToolCallDelta() as piece:
            said = draw(
                st.sampled_from(
                    [{"name": "go"}, {"id": "z"}, {"whole": True}, {"index": 1}, {"block": "1"}, {"opaque": OPAQUE}]
                )
            )
            found = [*found[:at], msgspec.structs.replace(piece, **said), *found[at + 1 :]]
        case _:
            pass
    return found


SEQUENCES = st.lists(
    runs()
    | runs()
    | st.sampled_from(BEGINNINGS).map(lambda frame: [frame])
    | st.sampled_from(ODD).map(lambda frame: [frame])
    | FRAMES.map(lambda frame: [frame]),
    max_size=10,
)


def taken(
    reads: list[list[Frame]], *, fast: type[FastRuns] | None, call_bytes: int, response_bytes: int
) -> tuple[list[Frame], Response]:
    """What watchers see, and the whole."""
    assembler = Assembler(tool_names=OFFERED, call_bytes=call_bytes, response_bytes=response_bytes, fast=fast)
    shown: list[Frame] = []
    for frames in reads:
        words = [frame for frame in frames if isinstance(frame, TextDelta)]
        if words and len(words) == len(frames) and len({frame.block for frame in words}) == 1:
            shown += assembler.receive_words(words, text="".join([frame.text for frame in words]))
        else:
            shown += assembler.receive_all(frames)
    return shown, assembler.finish()


def cut(frames: list[Frame], sizes: list[int]) -> list[list[Frame]]:
    reads: list[list[Frame]] = []
    for size in sizes:
        reads.append(frames[:size])
        frames = frames[size:]
    return [*reads, frames]


READ = ToolCallDelta(block="0", id="a", name="read", arguments='{"a":"')
PLACED = ToolCallDelta(index=0, id="a", name="read", arguments='{"a":"')
CASES: dict[str, list[list[Frame]]] = {
    "half a character before a run": [
        [READ, ToolCallDelta(block="0", arguments="\ud83d")],
        [ToolCallDelta(block="0", arguments=text) for text in ("a", "b", "c")],
    ],
    "another id in a run": [
        [PLACED],
        [ToolCallDelta(index=0, id=id, arguments=text) for id, text in ((None, "b"), ("z", "c"), (None, "d"))],
    ],
    "a name in a run": [
        [PLACED],
        [ToolCallDelta(index=0, name=name, arguments=text) for name, text in ((None, "b"), ("go", "{"), (None, "}"))],
    ],
    "a run on another index": [
        [PLACED, ToolCallDelta(index=1, id="b", name="go", arguments="{}")],
        [ToolCallDelta(index=0, arguments=text) for text in ("b", '"', "}")],
    ],
    "a call that is written to after it was shown": [
        [ToolCallDelta(block="1", id="b", name="go", arguments="", free_form=True)],
        [READ, ToolCallDelta(block="0", arguments='"}'), Finished(FinishReason.STOP, "stop")],
        [ToolCallDelta(block="1", arguments=text, free_form=True) for text in ("b", '"', "}")],
        [Finished(FinishReason.STOP, "stop")],
    ],
    "words behind a call that was too long": [
        [TextDelta("a"), READ, ToolCallDelta(block="0", arguments="x" * 41)],
        [TextDelta("b"), TextDelta("c")],
    ],
    "pieces that repeat all so far, and words that fit only if these are not kept": [
        [ToolCallDelta(block="0", id="a", name="read", arguments='{"a":1}')],
        [ToolCallDelta(block="0", arguments='{"a":1}') for _ in range(4)],
        [TextDelta("x" * 50)],
    ],
}


def check(reads: list[list[Frame]], *, call_bytes: int = 1_000_000, response_bytes: int = 1_000_000) -> None:
    plain = taken(reads, fast=None, call_bytes=call_bytes, response_bytes=response_bytes)
    singly = [[frame] for frames in reads for frame in frames]
    assert taken(reads, fast=FastRuns, call_bytes=call_bytes, response_bytes=response_bytes) == plain
    assert taken(singly, fast=FastRuns, call_bytes=call_bytes, response_bytes=response_bytes) == plain


@pytest.mark.promise("assembly:split-anywhere", "assembly:bounded")
@settings(max_examples=examples(600))
@given(
    sequences=SEQUENCES,
    sizes=st.lists(st.integers(0, 40), max_size=6),
    call_bytes=st.sampled_from([1_000_000, 1_000_000, 30, 7]),
    response_bytes=st.sampled_from([1_000_000, 1_000_000, 60, 25]),
)
def test_frames_together_say_what_each_says_alone(
    sequences: list[list[Frame]], sizes: list[int], call_bytes: int, response_bytes: int
) -> None:
    """Proves: what watchers see and the whole response are equal, for frames in whatever reads and at every limit."""
    frames = [frame for sequence in sequences for frame in sequence]
    check(cut(frames, sizes) if sizes else sequences, call_bytes=call_bytes, response_bytes=response_bytes)


@pytest.mark.promise("assembly:split-anywhere", "assembly:bounded")
@pytest.mark.parametrize("reads", CASES.values(), ids=CASES.keys())
def test_runs_that_look_usual_say_what_each_frame_says_alone(reads: list[list[Frame]]) -> None:
    """Proves: each thing that keeps frames from being taken together is looked at."""
    check(reads, call_bytes=40, response_bytes=70)


def test_the_fast_ways_take_runs_of_what_has_begun() -> None:
    """Proves: the test above compares two ways, and not the plain one with itself."""
    table = CallTable(tool_names=OFFERED, taken_ids=frozenset(), id_prefix="call", kinds={})
    text, called = OpenBlock(key="text", kind=BlockKind.TEXT), OpenBlock(key="0", kind=BlockKind.CALL)
    called.call = table.begin(block="0")
    called.call.announced = True
    at_hand = CallAtHand()
    fast = FastRuns(
        {"text": text, "0": called},
        at_hand=at_hand,
        written=WrittenCalls(),
        size=ResponseSize(limit_bytes=1000),
        call_bytes=1000,
    )
    words: list[Frame] = [TextDelta("a"), TextDelta("b")]
    named: list[Frame] = [ToolCallDelta(block="0", arguments=piece) for piece in ('{"a":', "1", "2", '{"b":')]
    placed: list[Frame] = [ToolCallDelta(index=3, arguments=piece) for piece in ("3", "}}")]
    assert fast.take(placed) is None, "no call is at hand"
    at_hand.take(called, called.call, index=3)
    assert (fast.take(words), fast.take(named)) == (words, named)
    assert fast.take(placed) == [ToolCallDelta(block="0", arguments=piece) for piece in ("3", "}}")]
    assert (text.pieces, called.call.text.joined()) == (["ab"], '{"a":12{"b":3}}')
