"""Pieces that did not arrive: no call that may have lost one runs, and no text is taken for whole. Hypothesis looks for others.

From issue 12, line 1: three pieces of arguments, the middle one unreadable, were whole JSON, and the tool ran.
"""

import itertools
import json
from collections.abc import Sequence
from typing import Literal

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tables import each
from turnwise.assembly.response import Assembler
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Lost,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Repair,
    Response,
    Restated,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    calls_of,
)

SKIPPED = Repair("chunk_skipped", "event 3", "it is no JSON")
TIGHT = Lost(SKIPPED)  # pieces come before their block's end only
LOOSE = Lost(SKIPPED, reaches_ended=True)  # pieces may come late: Chat Completions and Gemini
CALLS = Finished(FinishReason.TOOL_CALLS, "tool_calls")
STOP = Finished(FinishReason.STOP, "stop")
LENGTH = Finished(FinishReason.LENGTH, "length")
LOST, COMPLETE = ArgumentsState.LOST, ArgumentsState.COMPLETE
NAMES = ["read", "read_file", "file", "go", "gogo", "write"]
OFFERED = frozenset(NAMES)


def assemble(*frames: Frame) -> Response:
    assembler = Assembler(tool_names=OFFERED)
    for frame in frames:
        assembler.receive(frame)
    return assembler.finish()


def states(*frames: Frame) -> list[tuple[str, ArgumentsState]]:
    return [(call.arguments, call.state) for call in calls_of(assemble(*frames).message)]


def begin(block: str | None = "1", *, index: int | None = None, id: str | None = "a") -> Frame:
    return ToolCallDelta(block=block, index=index, id=id, name="read")


def more(arguments: str, block: str | None = "1", *, index: int | None = None) -> Frame:
    return ToolCallDelta(block=block, index=index, arguments=arguments)


def whole(arguments: str, *, block: str = "1", id: str = "a") -> Frame:
    return PartDone(block, ToolCall(id=id, name="read", arguments=arguments))


@pytest.mark.promise("assembly:lost-piece", "cut:never-run")
@pytest.mark.parametrize("lost", [TIGHT, LOOSE])
def test_whole_json_around_a_lost_piece_is_a_lost_call(lost: Frame) -> None:
    """The issue's own example, placed and named."""
    for block in (None, "1"):
        frames = [begin(block, index=0), more('{"path":"/srv/', block, index=0), lost, more('x"}', block, index=0)]
        response = assemble(*frames, CALLS)
        (call,) = calls_of(response.message)
        assert (call.arguments, call.state) == ('{"path":"/srv/x"}', LOST)
        assert response.lost and response.repairs == (SKIPPED,) and call.reason and not call.alternatives


@pytest.mark.promise("assembly:lost-piece")
def test_call_that_had_ended_is_whole_unless_pieces_may_come_late() -> None:
    """Anthropic and Responses: until its end. Chat Completions and Gemini: until the response ends."""
    frames = [begin(), more('{"path":"a"}'), BlockEnded("1")]
    assert states(*frames, TIGHT, CALLS) == [('{"path":"a"}', COMPLETE)]
    assert states(*frames, LOOSE, CALLS) == [('{"path":"a"}', LOST)]
    assert assemble(*frames, TIGHT, CALLS).lost  # what was lost cannot be named


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("lost", [TIGHT, LOOSE])
def test_whole_that_the_provider_says_again_heals_its_call_alone(lost: Frame) -> None:
    """Its pieces count for nothing then; the calls beside it stay as they are."""
    frames = [begin("1"), more('{"path":"/srv/', "1"), begin("2", id="b"), more('{"path":"b"}', "2"), lost]
    healed = [*frames, more('x"}', "1"), whole('{"path":"/srv/old/x"}'), BlockEnded("1"), BlockEnded("2")]
    assert states(*healed, CALLS) == [('{"path":"/srv/old/x"}', COMPLETE), ('{"path":"b"}', LOST)]
    both = [*healed, whole('{"path":"b"}', block="2", id="b")]
    assert [state for _, state in states(*both, CALLS)] == [COMPLETE, COMPLETE]
    assert not assemble(*both, Restated(), CALLS).lost


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("final", ["", "{}", "{ }", "null"])
def test_whole_that_is_poorer_than_its_pieces_heals_nothing(final: str) -> None:
    """Servers end an item with empty arguments that came in pieces: those pieces still lack one."""
    frames = [begin(), more('{"path":"/srv/'), TIGHT, more('x"}'), whole(final), BlockEnded("1")]
    assert [state for _, state in states(*frames, CALLS)] == [LOST]
    assert assemble(*frames, Restated(), CALLS).lost


@pytest.mark.promise("assembly:lost-piece")
def test_empty_whole_heals_a_call_only_if_it_says_so_and_nothing_had_come() -> None:
    """`{}` is what a call without arguments is; an empty text says nothing."""
    assert states(begin(), TIGHT, whole("{}"), BlockEnded("1"), CALLS) == [("{}", COMPLETE)]
    assert states(begin(), TIGHT, whole(""), BlockEnded("1"), CALLS) == [("", LOST)]


@pytest.mark.promise("assembly:lost-piece")
def test_call_whose_only_arguments_were_lost_does_not_run_without() -> None:
    """In Anthropic such a call ran with `{}`."""
    assert states(begin(), TIGHT, BlockEnded("1"), CALLS) == [("", LOST)]
    assert states(begin(None, index=0), LOOSE, CALLS) == [("", LOST)]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("lost", [TIGHT, LOOSE])
def test_call_that_lost_its_beginning_has_no_name_and_does_not_run(lost: Frame) -> None:
    """Even where the block that was open then was said again, and everything was restated."""
    frames: list[Frame] = [TextDelta("I lo", "0"), lost, PartDone("0", Text("I look.")), BlockEnded("0")]
    frames += [more('{"path":"a"}'), BlockEnded("1"), Restated(), CALLS]
    response = assemble(*frames)
    assert [call.state for call in calls_of(response.message)] == [LOST] and response.lost


@pytest.mark.promise("assembly:lost-piece")
def test_restating_closes_the_gap_and_no_block_that_was_not_said_again() -> None:
    """A loss while nothing was open may be a whole item: only a list of all items tells."""
    text: list[Frame] = [TextDelta("Hello", "0"), BlockEnded("0"), TIGHT]
    assert assemble(*text, STOP).lost
    assert not assemble(*text, Restated(), STOP).lost
    cut: list[Frame] = [TextDelta("Hel", "0"), TIGHT]
    assert assemble(*cut, Restated(), STOP).lost
    assert assemble(*cut, PartDone("0", Text("")), Restated(), STOP).lost
    assert not assemble(*cut, PartDone("0", Text("Hello")), Restated(), STOP).lost
    assert not assemble(*cut, PartDone("0", Text("Hello")), STOP).lost
    assert not assemble(ReasoningDelta("", "0"), TIGHT, PartDone("0", Reasoning("")), *text[:2], STOP).lost


@pytest.mark.promise("assembly:lost-piece")
def test_second_beginning_clears_all_losses() -> None:
    """A gateway fell back to another model: what was lost was not of this response."""
    frames: list[Frame] = [Started("r"), begin(None, index=0), LOOSE, Started("s"), begin(None, index=0)]
    response = assemble(*frames, more('{"path":"a"}', None, index=0), CALLS)
    assert [call.state for call in calls_of(response.message)] == [COMPLETE] and not response.lost


@pytest.mark.promise("assembly:lost-piece")
@each("end", [CALLS, LENGTH, None])
@each("arguments", ['{"path":"/srv/', "", '{"path":"a"}', '{"path":"a"}{"path":"b"}'])
def test_lost_call_is_never_cut_ambiguous_or_suspected_whatever_ends_it(end: Frame | None, arguments: str) -> None:
    """A damaged text is no prefix to continue, and no list of calls to choose from."""
    for block, lost in ((None, LOOSE), ("1", TIGHT), ("1", LOOSE)):
        frames = [begin(block, index=0), lost, more(arguments, block, index=0), *([end] if end else [])]
        response = assemble(*frames)
        (call,) = calls_of(response.message)
        assert (call.state, call.alternatives) == (LOST, ()) and response.may_hide_cut == ()
        assert not response.is_closed and "finish_hides_cut" not in [repair.kind for repair in response.repairs]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("arguments", ["", "{}", "null"])
def test_silent_call_that_began_after_a_loose_loss_is_lost(arguments: str) -> None:
    """The loss may have taken its beginning, and what is left says nothing."""
    assert [state for _, state in states(LOOSE, begin(None), more(arguments, None), CALLS)] == [LOST]


@pytest.mark.promise("assembly:lost-piece")
def test_call_that_began_after_a_loss_runs_if_its_beginning_is_proven() -> None:
    """In Chat Completions by its name, once a piece without one has come: else each piece may have had the name. An object
    that was handed out whole has its beginning."""
    assert states(LOOSE, ToolCallDelta(index=0, id="a", name="read", arguments='{"b":1}'), CALLS) == [('{"b":1}', LOST)]
    chat = [LOOSE, begin(None), more('{"path":', None), more('"a"}', None)]
    assert states(*chat, CALLS) == [('{"path":"a"}', COMPLETE)]
    assert states(*chat, LENGTH) == states(*chat) == [('{"path":"a"}', LOST)]
    patch = ToolCallDelta(id="a", name="patch", arguments="*** Begin", free_form=True)
    assert states(LOOSE, patch, CALLS) == [("*** Begin", LOST)]
    handed_out = ToolCallDelta(block="1", name="read", arguments='{"path":"a"}', whole=True)
    assert states(LOOSE, handed_out, BlockEnded("1"), STOP) == [('{"path":"a"}', COMPLETE)]
    # Gemini's partial arguments are written by their paths, so a beginning that was lost does not show.
    assert states(LOOSE, begin(), more('{"path":"a"'), more("}"), BlockEnded("1"), STOP) == [('{"path":"a"}', LOST)]
    assert states(TIGHT, begin(), more('{"path":"a"'), more("}"), BlockEnded("1"), CALLS) == [
        ('{"path":"a"}', COMPLETE)
    ]


@pytest.mark.promise("assembly:lost-piece")
def test_fault_and_finish_without_calls_do_not_hide_a_loss() -> None:
    """The response says that it lost something, whatever else it says."""
    fault = Faulted(Fault(kind=FaultKind.SERVER, message="boom"))
    response = assemble(TextDelta("a"), LOOSE, CALLS)
    assert response.lost and response.finish is FinishReason.STOP
    assert assemble(TextDelta("a"), LOOSE, fault).lost


# -- whatever the calls and whichever piece is lost ------------------------------------------------------------------

WORDS = st.sampled_from(["a", "path", "{", "}", '{"a":', '"', "\\", "{}", "é", ""]) | st.text(max_size=4)
VALUES = st.recursive(
    WORDS | st.integers(-9, 99) | st.none(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)


class Cut(msgspec.Struct, frozen=True):
    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@st.composite
def cut_calls(draw: st.DrawFn) -> Cut:
    """Pieces may be as small as a character: so every middle of the arguments is some run of pieces."""
    text = json.dumps(draw(ARGUMENTS))
    edges = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=6))})
    pieces = tuple(text[start:end] for start, end in itertools.pairwise(edges))
    return Cut(draw(st.sampled_from(NAMES)), pieces)


class Wire(msgspec.Struct, frozen=True):
    """How a server of Chat Completions says which call a piece belongs to."""

    index: Literal["own", "zero", "none"]
    ids: Literal["all", "first", "none"]
    name_again: bool
    empty_start: bool
    cumulative: bool
    split_name: bool

    @property
    def may_interleave(self) -> bool:
        return self.index == "own" or self.ids == "all"


WIRES = st.builds(
    Wire,
    index=st.sampled_from(["own", "zero", "none"]),
    ids=st.sampled_from(["all", "first", "none"]),
    name_again=st.booleans(),
    empty_start=st.booleans(),
    cumulative=st.booleans(),
    split_name=st.booleans(),
).filter(lambda wire: (wire.index != "zero" or wire.ids != "none") and not (wire.split_name and wire.name_again))


def pieces_of(number: int, call: Cut, *, wire: Wire) -> list[ToolCallDelta]:
    index = {"own": number, "zero": 0, "none": None}[wire.index]
    texts = list(itertools.accumulate(call.pieces)) if wire.cumulative else list(call.pieces)
    texts = ["", *texts] if wire.empty_start else texts
    names = [call.name] * (len(texts) if wire.name_again else 1)
    if wire.split_name:
        names, texts = [call.name[:2], call.name[2:]], ["", "", *texts]
    return [
        ToolCallDelta(
            index=index,
            id=f"id_{number}" if wire.ids == "all" or (wire.ids == "first" and n == 0) else None,
            name=name or None,
            arguments=text,
        )
        for n, (name, text) in enumerate(itertools.zip_longest(names, texts, fillvalue=""))
    ]


def mixed(data: st.DataObject, sequences: Sequence[list[ToolCallDelta]]) -> list[ToolCallDelta]:
    rest = [list(one) for one in sequences]
    found: list[ToolCallDelta] = []
    while any(rest):
        at = data.draw(st.sampled_from([n for n, one in enumerate(rest) if one]))
        found.append(rest[at].pop(0))
    return found


def check(response: Response, *, known: set[tuple[str, str]]) -> None:
    """What runs was said; what may be continued is the beginning of what was said; nothing is left to be chosen."""
    for call in calls_of(response.message):
        if call.state is COMPLETE and call.name in OFFERED:  # no other name can run
            assert (call.name, call.arguments) in known
        if call.state is ArgumentsState.TRUNCATED and call.name in OFFERED:
            assert any(name == call.name and text.startswith(call.arguments) for name, text in known)
        assert not call.alternatives


ENDS = st.sampled_from([CALLS, STOP, LENGTH, None])


@pytest.mark.promise("assembly:lost-piece", "cut:never-run")
@given(calls=st.lists(cut_calls(), min_size=1, max_size=4), wire=WIRES, data=st.data(), end=ENDS)
def test_no_placed_call_runs_with_other_arguments_whichever_delta_is_lost(
    calls: list[Cut], wire: Wire, data: st.DataObject, end: Finished | None
) -> None:
    """Chat Completions: one delta is lost; the stream may also be cut behind it, with or without a word about that."""
    sequences = [pieces_of(number, call, wire=wire) for number, call in enumerate(calls)]
    deltas = (
        mixed(data, sequences) if wire.may_interleave and data.draw(st.booleans()) else [*itertools.chain(*sequences)]
    )
    healthy = calls_of(assemble(*deltas, CALLS).message)
    assume([(call.name, call.arguments) for call in healthy] == [(call.name, call.arguments) for call in calls])
    at = data.draw(st.integers(0, len(deltas) - 1))
    cut = data.draw(st.integers(at + 1, len(deltas)) | st.just(len(deltas)))
    frames: list[Frame] = [*deltas[:at], LOOSE, *deltas[at + 1 : cut]]
    response = assemble(Started("r"), *frames, *([end] if end else []))
    assert response.lost
    check(response, known={(call.name, call.arguments) for call in calls})


@pytest.mark.promise("assembly:lost-piece", "cut:never-run")
@given(
    calls=st.lists(cut_calls(), min_size=1, max_size=4),
    data=st.data(),
    end=ENDS,
    again=st.booleans(),
    restated=st.booleans(),
)
def test_no_named_call_runs_with_other_arguments_whichever_delta_is_lost(
    calls: list[Cut], data: st.DataObject, end: Finished | None, again: bool, restated: bool
) -> None:
    """Anthropic and Responses: each call has a block and an end, in Responses with the whole behind its pieces."""
    sequences: list[list[Frame]] = []
    for number, call in enumerate(calls):
        block = str(number)
        sequence: list[Frame] = [ToolCallDelta(block=block, id=f"id_{number}", name=call.name)]
        sequence += [ToolCallDelta(block=block, arguments=piece) for piece in call.pieces]
        if again:
            sequence.append(PartDone(block, ToolCall(id=f"id_{number}", name=call.name, arguments=call.arguments)))
        sequences.append([*sequence, BlockEnded(block)])
    rest = [list(one) for one in sequences]
    frames: list[Frame] = []
    while any(rest):
        at = data.draw(st.sampled_from([n for n, one in enumerate(rest) if one]))
        frames.append(rest[at].pop(0))
    lost = data.draw(st.sampled_from([n for n, frame in enumerate(frames) if isinstance(frame, ToolCallDelta)]))
    cut = data.draw(st.integers(lost + 1, len(frames)) | st.just(len(frames)))
    tail: list[Frame] = [*([Restated()] if restated else []), *([end] if end else [])]
    response = assemble(Started("r"), *frames[:lost], TIGHT, *frames[lost + 1 : cut], *tail)
    # Where the finish hides a cut, a call whose arguments had not begun is taken for one without: that is no loss.
    unhurt = calls_of(assemble(Started("r"), *frames[:cut], *tail).message)
    known = {(call.name, call.arguments) for call in (*calls, *unhurt)}
    check(response, known=known)
    if again and cut == len(frames) and end in (CALLS, STOP):
        for call in calls_of(response.message):
            assert call.state is COMPLETE or call.arguments in ("", "{", "}", "{}")


def placed(
    name: str | None = None, arguments: str | None = None, *, index: int | None = 0, id: str | None = None
) -> Frame:
    return ToolCallDelta(index=index, id=id, name=name, arguments=arguments)


@pytest.mark.promise("assembly:lost-piece", "cut:never-run")
@pytest.mark.parametrize(
    "frames",
    [
        # Each piece has the name: what follows a nested object looks like another call.
        [placed("read", '{"b":1}', id="x"), placed("read", "}")],
        # ... and the rest may have been cut off.
        [placed("read", '{"b":1}')],
        # A call without a name gets the next one's.
        [placed(None, '{"a":1}', index=None), placed("read_file", "", index=None), placed(None, "{}", index=None)],
        # A piece of the call that the loss hid strays into another: by its index, by its id.
        [placed("read", '{"a":', index=2, id="c"), placed(None, "1", index=1), placed(None, "2}", index=2)],
        [placed("read", '{"a":', id="c"), placed(None, "1", id="b"), placed(None, "2}", id="c")],
        # The first half of a name was lost.
        [placed("file", ""), placed(None, '{"a":'), placed(None, "1}")],
    ],
)
def test_what_is_left_of_a_call_is_not_taken_for_a_whole_one(frames: list[Frame]) -> None:
    """Shapes that the search above found, on the wires of Chat Completions."""
    calls = calls_of(assemble(LOOSE, *frames, CALLS).message)
    assert calls and not [call for call in calls if call.state is COMPLETE]
