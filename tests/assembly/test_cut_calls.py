"""Calls that were cut, and calls whose arguments may be another's: never complete. What releasing and finishing may change."""

import gc
import itertools
import json
import sys
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.assembly.call_states import MAX_RELEASES
from turnwise.assembly.response import Assembler
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    PartDone,
    Response,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    calls_of,
)

STOP = Finished(FinishReason.STOP, "stop")
CALLS = Finished(FinishReason.TOOL_CALLS, "tool_calls")
LENGTH = Finished(FinishReason.LENGTH, "length")
CUT_INSIDE = "the response ended by its limit while this call was being written; keys may be missing"
CUT_BEFORE = "cut before its arguments began"
UNSURE = "which call these arguments belong to cannot be told: the calls began without an index"


def assembled(*frames: Frame) -> Response:
    assembler = Assembler()
    for frame in frames:
        assembler.receive(frame)
    return assembler.finish()


def shown(*frames: Frame) -> list[Frame]:
    assembler = Assembler()
    return [healed for frame in frames for healed in assembler.receive(frame)]


def calls(*frames: Frame) -> list[tuple[str, str, str]]:
    return [(call.id, call.arguments, call.state.value) for call in calls_of(assembled(*frames).message)]


def kinds(*frames: Frame) -> list[str]:
    return [repair.kind for repair in assembled(*frames).repairs]


def piece(arguments: str | None, *, id: str | None = None, index: int | None = 0, whole: bool = False) -> ToolCallDelta:
    return ToolCallDelta(index=index, id=id, name="f" if id else None, arguments=arguments, whole=whole)


# -- what a whole that repeats its beginning looks like when it is none --------------------------------------------------


@pytest.mark.promise("cut:never-run", "assembly:cumulative")
@each("reason", [None, *FinishReason])
@each("later", [[], [piece('{"b":2}', id="c1", index=1)]])
def test_a_nested_object_cut_after_a_repetition_is_never_complete(
    reason: FinishReason | None, later: list[Frame]
) -> None:
    """`{"a":` and `{"a":1}` may be one nested object without its end: so it is read, however the response ended."""
    frames = [piece('{"a":', id="c0"), piece('{"a":1}'), *later]
    frames += [] if reason is None else [Finished(reason, reason.value)]
    assert calls(*frames)[0] == ("c0", '{"a":{"a":1}', "truncated")


@pytest.mark.promise("cut:never-run", "assembly:late-args")
def test_showing_the_calls_at_a_finish_reason_decides_nothing() -> None:
    """`stop`, then the rest of the arguments, or `length`: the text is whole in the one case and cut in the other."""
    begun = [piece('{"a":', id="c0"), piece('{"a":1}'), STOP]
    assert calls(*begun, piece("}"), CALLS) == [("c0", '{"a":{"a":1}}', "complete")]
    assert calls(*begun, LENGTH) == [("c0", '{"a":{"a":1}', "truncated")]
    assert calls(*begun, piece('{"a":1}'), CALLS) == [("c0", '{"a":1}', "complete")]


@pytest.mark.promise("assembly:cumulative")
def test_watchers_are_put_right_where_a_repetition_was_told_only_after_it_was_shown() -> None:
    frames = shown(piece('{"a":', id="c0"), piece('{"a":1}'), STOP, piece('{"a":1}'), CALLS)
    assert frames == [
        ToolCallDelta(block="call:0", index=0, id="c0", name="f", arguments='{"a":'),
        ToolCallDelta(block="call:0", arguments='{"a":1}'),
        STOP,
        PartDone("call:0", ToolCall(id="c0", name="f", arguments='{"a":1}')),
        CALLS,
    ]


@pytest.mark.promise("assembly:cumulative")
def test_once_seen_to_repeat_a_call_is_read_so_to_its_end() -> None:
    """The last piece alone could be nested; the one before could not, so the whole never was."""
    pieces = [piece('{"q', id="c0"), piece('{"query":'), piece('{"query":"abc"}')]
    assert calls(*pieces, LENGTH) == [("c0", '{"query":"abc"}', "complete")]
    assert kinds(*pieces, LENGTH) == ["cumulative"]


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("final", ["", "{}"])
def test_an_empty_final_form_does_not_make_cut_pieces_whole(final: str) -> None:
    frames: list[Frame] = [
        ToolCallDelta(block="0", id="c0", name="f", arguments='{"a":'),
        PartDone("0", ToolCall(id="c0", name="f", arguments=final)),
        STOP,
    ]
    assert calls(*frames) == [("c0", '{"a":', "truncated")]


def test_repairs_that_a_later_piece_undid_are_not_recorded() -> None:
    """At the first finish reason the arguments were an encoded string, and the second call was nothing."""
    frames = [piece('"{}"', id="c0"), ToolCallDelta(index=1, id="c1"), STOP]
    assert kinds(*frames) == ["empty_call", "double_encoded"]
    assert kinds(*frames, piece("x"), ToolCallDelta(index=1, name="g"), CALLS) == ["finish_differs"]


# -- silence -----------------------------------------------------------------------------------------------------------

SILENT = [None, "", " ", "null", " null\n", '""', '"null"', '"\\n"']


@pytest.mark.promise("assembly:object-args", "cut:never-run")
@each("arguments", SILENT)
@each("reason", [None, *FinishReason])
@each("later", [[], [TextDelta("x")], [piece('{"b":2}', id="c1", index=1)]])
def test_silent_arguments_are_none_only_where_the_response_ended_by_itself(
    arguments: str | None, reason: FinishReason | None, later: list[Frame]
) -> None:
    """What came later does not show that the call was over: Chat's calls may interleave."""
    end = [] if reason is None else [Finished(reason, reason.value)]
    by_itself = reason in (FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE)
    found = calls(piece(arguments, id="c0"), *later, *end)
    assert found[0] == (("c0", "{}", "complete") if by_itself else ("c0", "", "truncated"))


@pytest.mark.promise("assembly:object-args")
@each("arguments", SILENT)
@each("ends", [[LENGTH], []])
def test_a_silent_call_whose_end_was_marked_is_whole_unless_it_is_the_last(
    arguments: str | None, ends: list[Frame]
) -> None:
    one: list[Frame] = [ToolCallDelta(block="0", id="c0", name="f", arguments=arguments), BlockEnded("0")]
    two: list[Frame] = [ToolCallDelta(block="1", id="c1", name="f", arguments=arguments), BlockEnded("1")]
    assert calls(*one, *two, *ends) == [("c0", "{}", "complete"), ("c1", "", "truncated")]
    assert calls(*one, TextDelta("x", "2"), *ends) == [("c0", "", "truncated")]


@pytest.mark.promise("assembly:object-args")
def test_an_empty_object_in_place_of_a_string_may_be_a_placeholder_at_the_limit() -> None:
    """`{}`, then the real object, is a known shape (assembly:empty-then-real); the text `{}` is what the model wrote."""
    other = piece('{"b":2}', id="c1", index=1)
    assert calls(piece("{}", id="c0", whole=True), other, LENGTH)[0] == ("c0", "", "truncated")
    assert calls(piece("{}", id="c0", whole=True), other, CALLS)[0] == ("c0", "{}", "complete")
    assert calls(piece("{}", id="c0"), other, LENGTH)[0] == ("c0", "{}", "complete")
    marked: list[Frame] = [ToolCallDelta(block="0", id="c0", name="f", arguments="{}", whole=True), BlockEnded("0")]
    assert calls(*marked, Finished(FinishReason.CONTENT_FILTER)) == [("c0", "{}", "complete")]


@pytest.mark.promise("cut:never-run")
def test_free_form_calls_are_cut_by_the_limit_unless_their_end_was_marked() -> None:
    def free(block: str | None, n: int) -> ToolCallDelta:
        return ToolCallDelta(block=block, index=n, id=f"c{n}", name="patch", arguments="*** Be", free_form=True)

    assert calls(free(None, 0), free(None, 1), LENGTH) == [(f"c{n}", "*** Be", "truncated") for n in (0, 1)]
    marked = calls(free("0", 0), BlockEnded("0"), free("1", 1), BlockEnded("1"), LENGTH)
    assert marked == [("c0", "*** Be", "complete"), ("c1", "*** Be", "truncated")]


# -- objects -----------------------------------------------------------------------------------------------------------


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("later", [[], [TextDelta("x")], [TextDelta("x", "9"), BlockEnded("9")]])
def test_the_last_call_as_an_object_is_cut_by_the_limit_whatever_text_follows(later: list[Frame]) -> None:
    one, two = piece('{"a":1}', id="c0", whole=True), piece('{"a":1}', id="c1", index=1, whole=True)
    whole = [("c0", '{"a":1}', "complete"), ("c1", '{"a":1}', "complete")]
    assert calls(one, two, *later, LENGTH) == [whole[0], ("c1", '{"a":1}', "truncated")]
    assert calls(one, two, *later, CALLS) == whole


@pytest.mark.promise("cut:never-run")
def test_the_call_written_last_counts_as_cut_beside_the_one_begun_last() -> None:
    begun: list[Frame] = [ToolCallDelta(index=0, id="c0", name="f"), piece('{"a":1}', id="c1", index=1, whole=True)]
    assert [call.reason for call in calls_of(assembled(*begun, piece('{"a":1}', whole=True), LENGTH).message)] == [
        CUT_INSIDE,
        CUT_INSIDE,
    ]


@pytest.mark.promise("cut:never-run")
def test_an_object_that_replaced_the_beginning_of_a_text_counts_as_handed_out() -> None:
    frames = [piece('{"a":', id="c0"), piece('{"a":1}', whole=True)]
    assert calls(*frames, LENGTH) == [("c0", '{"a":1}', "truncated")]
    assert calls(*frames, CALLS) == [("c0", '{"a":1}', "complete")]


@pytest.mark.promise("assembly:cumulative")
@pytest.mark.parametrize(
    "objects",
    [
        ['{"a":"x"}', '{"a":"xy"}'],
        ['{"a":1}', '{"a":1,"b":2}'],
        ['{"a":{"b":[]}}', '{"a":{"b":["x"]}}', '{"a":{"b":["xy",{}]}}', '{"a":{"b":["xy",{"c":null}]}}'],
        ['{"b":1}', '{"a":[],"b":1}'],
        ["{}", '{"a":""}', '{"a":"x"}'],
    ],
)
def test_objects_that_grow_on_one_call_are_its_arguments_so_far(objects: list[str]) -> None:
    frames = [piece(text, id="c0", whole=True) for text in objects]
    assert calls(*frames, CALLS) == [("c0", objects[-1], "complete")]
    assert "cumulative" in kinds(*frames, CALLS)
    assert "several_objects" not in kinds(*frames, CALLS)
    other = piece("{}", id="c1", index=1)
    assert calls(*frames, other, LENGTH)[0] == ("c0", objects[-1], "truncated")  # nothing says that it stopped growing


@pytest.mark.promise("assembly:empty-then-real")
@each(
    "objects",
    [
        ['{"a":"x"}', '{"a":"y"}'],
        ['{"a":"xy"}', '{"a":"x"}'],
        ['{"a":1}', '{"b":1}'],
        ['{"a":1}', '{"a":12}'],
        ['{"a":1}', '{"a":true}'],
        ['{"a":[1,2]}', '{"a":[1]}'],
        ['{"a":null}', '{"a":{}}'],
        ['{"a":[]}', '{"a":{}}'],
        ['{"a":{"b":1}}', '{"a":"b"}'],
        ['{"a":"1"}', '{"a":1}'],
    ],
)
def test_objects_on_one_call_that_do_not_extend_each_other_are_several(objects: list[str]) -> None:
    frames = [piece(text, id="c0", whole=True) for text in objects]
    assert calls(*frames, CALLS) == [("c0", "".join(objects), "invalid")]
    assert calls_of(assembled(*frames, CALLS).message)[0].alternatives == tuple(objects)


# -- whose arguments -----------------------------------------------------------------------------------------------------


def headers(count: int, *, index: bool = False) -> list[Frame]:
    return [ToolCallDelta(index=n if index else None, id=f"c{n}", name=f"f{n}") for n in range(count)]


@pytest.mark.promise("assembly:interleaved", "assembly:no-index")
def test_an_index_counts_the_calls_that_began_without_one() -> None:
    parts = [piece('{"a":'), piece('{"b":', index=1), piece("1}"), piece("2}", index=1)]
    whole = [("c0", '{"a":1}', "complete"), ("c1", '{"b":2}', "complete")]
    assert calls(*headers(2), *parts, CALLS) == whole
    named = [msgspec.structs.replace(part, name=f"f{part.index}") for part in parts]
    assert calls(*headers(2), *named, CALLS) == whole
    assert calls(headers(2)[0], parts[0], headers(2)[1], *parts[1:], CALLS) == whole


@pytest.mark.promise("assembly:interleaved", "cut:never-run")
@pytest.mark.parametrize("indexes", [(1, 2), (1,), (2, 1), (5,), (-1,), (2, 3)])
def test_indexes_that_do_not_count_from_nought_make_no_call_complete(indexes: tuple[int, ...]) -> None:
    pieces = [piece(f'{{"a":{n}}}', index=n) for n in indexes]
    found = calls_of(assembled(*headers(2), *pieces, CALLS).message)
    assert {(call.state, call.reason) for call in found} == {(ArgumentsState.INVALID, UNSURE)}


@pytest.mark.promise("assembly:interleaved", "assembly:no-index")
def test_a_named_call_on_a_new_index_is_its_own_beside_calls_without_one() -> None:
    other = ToolCallDelta(index=0, id="c9", name="other", arguments='{"z":1}')
    assert calls(*headers(2), other, CALLS) == [
        ("c0", "{}", "complete"),
        ("c1", "{}", "complete"),
        ("c9", '{"z":1}', "complete"),
    ]


@pytest.mark.promise("assembly:shared-index")
def test_bare_pieces_go_to_the_call_begun_last_on_their_index_though_it_got_it_late() -> None:
    """`c1` began without an index. Where `c0` began before it, `c1` is the newest on index 0; where after, `c0` stays."""
    one = ToolCallDelta(index=0, id="c0", name="f", arguments='{"a":')
    two = ToolCallDelta(id="c1", name="g", arguments='{"b":')
    late = ToolCallDelta(index=0, id="c1", arguments="[")
    assert calls(one, two, late, piece("]}"), ToolCallDelta(id="c0", arguments="1}"), CALLS) == [
        ("c0", '{"a":1}', "complete"),
        ("c1", '{"b":[]}', "complete"),
    ]
    assert calls(two, one, late, piece("1}"), ToolCallDelta(id="c1", arguments="]}"), CALLS) == [
        ("c1", '{"b":[]}', "complete"),
        ("c0", '{"a":1}', "complete"),
    ]


@pytest.mark.promise("assembly:id-churn")
@pytest.mark.parametrize("first", ["", '{"a":'])
def test_a_new_id_and_a_new_index_in_every_nameless_piece_are_one_call(first: str) -> None:
    rest = ['{"a":', "1", "}"][bool(first) :]
    frames: list[Frame] = [piece(first, id="c0")]
    frames += [ToolCallDelta(index=n, id=f"other_{n}", arguments=text) for n, text in enumerate(rest, 1)]
    assert calls(*frames, CALLS) == [("c0", '{"a":1}', "complete")]
    assert kinds(*frames, CALLS) == ["id_churn"]


@pytest.mark.promise("assembly:interleaved", "cut:never-run")
@pytest.mark.parametrize("id", [None, "lost"])
def test_a_stray_piece_that_two_calls_may_wait_for_goes_to_neither(id: str | None) -> None:
    frames: list[Frame] = [piece('{"a":', id="c0"), piece('{"b":', id="c1", index=1)]
    found = calls(*frames, ToolCallDelta(index=2, id=id, arguments="1}"), CALLS)
    assert [(arguments, state) for _, arguments, state in found] == [
        ('{"a":', "truncated"),
        ('{"b":', "truncated"),
        ("1}", "invalid"),
    ]


@pytest.mark.promise("assembly:cumulative")
@pytest.mark.parametrize("whole", [False, True])
def test_the_same_call_twice_under_one_id_and_index_is_the_whole_once_more(whole: bool) -> None:
    """Two entries of one chunk look just so; `assembly:cumulative` promises not to double them."""
    assert calls(*[piece('{"a":1}', id="c0", whole=whole)] * 2, CALLS) == [("c0", '{"a":1}', "complete")]


# -- what watchers are shown ---------------------------------------------------------------------------------------------


def test_a_part_that_ended_is_shown_as_its_text_says_and_put_right_when_the_reason_is_known() -> None:
    """At a part's end nothing is known of the limit; at the finish reason a call that was shown otherwise gets its state."""
    call = ToolCall(id="c0", name="f", arguments='{"a":1}')
    cut = msgspec.structs.replace(call, state=ArgumentsState.TRUNCATED, reason=CUT_INSIDE)
    grown: list[Frame] = [
        ToolCallDelta(block="0", id="c0", name="f", arguments='{"a":0}', whole=True),
        ToolCallDelta(block="0", arguments='{"a":0,"b":1}', whole=True),
    ]
    ended = msgspec.structs.replace(call, arguments='{"a":0,"b":1}')
    assert shown(*grown, BlockEnded("0"), LENGTH)[1:] == [PartDone("0", ended), BlockEnded("0"), LENGTH]
    assert shown(*grown, LENGTH)[1:] == [PartDone("0", msgspec.structs.replace(cut, arguments='{"a":0,"b":1}')), LENGTH]
    assert shown(*grown, CALLS)[1:] == [PartDone("0", ended), CALLS]


@pytest.mark.parametrize("first", [reason for reason in FinishReason if reason is not FinishReason.TOOL_CALLS])
def test_a_reason_of_the_same_gravity_that_comes_later_counts(first: FinishReason) -> None:
    """The later word of the provider is the one that is kept."""
    response = assembled(TextDelta("a"), Finished(first, "one"), Finished(first, "two"))
    assert (response.finish, response.provider_finish) == (first, "two")


def steps(frames: list[Frame]) -> int:
    """How many functions are called to take the frames: what they cost, without a clock."""
    assembler = Assembler()
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # what collectors call back is not ours
    sys.setprofile(profile)
    try:
        for frame in frames:
            assembler.receive(frame)
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.promise("assembly:bounded")
def test_finish_reasons_without_end_look_only_at_calls_that_were_written_to_since() -> None:
    """Reasons that alternate cost the same however many calls came before them."""
    ends: list[Frame] = [STOP, CALLS] * 50

    def cost(count: int) -> int:
        many: list[Frame] = [piece('{"a":1}', id=f"c{n}", index=n) for n in range(count)]
        return steps([*many, STOP, CALLS, *ends]) - steps([*many, STOP, CALLS])

    assert cost(400) < 1.1 * cost(4)


@pytest.mark.promise("assembly:bounded")
def test_one_call_whose_end_is_said_after_every_piece_is_not_read_anew_each_time() -> None:
    """Reading it anew costs its whole length; so after MAX_RELEASES it is left to the end."""

    def frames(count: int) -> list[Frame]:
        begun: list[Frame] = [ToolCallDelta(block="0", id="c0", name="f", arguments='{"a":"')]
        return begun + [ToolCallDelta(block="0", arguments="x"), BlockEnded("0")] * count

    released = steps(frames(MAX_RELEASES + 1)) - steps(frames(MAX_RELEASES))
    assert released < steps(frames(MAX_RELEASES)) - steps(frames(MAX_RELEASES - 1))
    found = calls(*frames(100), ToolCallDelta(block="0", arguments='"}'), BlockEnded("0"), CALLS)
    assert found == [("c0", '{"a":"' + "x" * 100 + '"}', "complete")]


# -- any calls, cut anywhere -----------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "{", '{"a":', '"', "\\", "{}", "é", ""])
VALUES = st.recursive(
    WORDS | st.integers(-9, 99) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=6,
)


class Written(msgspec.Struct, frozen=True):
    """One call as the model would have written it: all its pieces."""

    pieces: tuple[str, ...]

    @property
    def value(self) -> object:
        return json.loads("".join(self.pieces))


@st.composite
def written_calls(draw: st.DrawFn) -> Written:
    text = json.dumps(
        draw(st.dictionaries(WORDS, VALUES, max_size=3)), separators=draw(st.sampled_from([(",", ":"), None]))
    )
    structural = [at for at, char in enumerate(text) if char in "{["]  # where a piece begins like a whole begins
    edges = draw(st.lists(st.integers(0, len(text)) | st.sampled_from(structural), max_size=6))
    pieces = tuple(text[start:end] for start, end in itertools.pairwise(sorted({0, len(text), *edges})))
    return Written(pieces)


def interleaved(data: st.DataObject, wholes: list[Written]) -> Iterator[tuple[int, str]]:
    rest = {n: list(whole.pieces) for n, whole in enumerate(wholes)}
    while rest:
        n = data.draw(st.sampled_from(sorted(rest)))
        yield n, rest[n].pop(0)
        if not rest[n]:
            del rest[n]


def one_after_the_other(wholes: list[Written]) -> Iterator[tuple[int, str]]:
    return ((n, text) for n, whole in enumerate(wholes) for text in whole.pieces)


SHAPES = ["index", "headers_without_index", "id", "shared_index", "block", "newest", "churn"]


def stream_of(shape: str, wholes: list[Written], data: st.DataObject) -> list[ToolCallDelta]:
    """The deltas of the calls in one of the shapes that providers are known for; ids are `c0`, `c1` ..., once at least."""
    sequential = shape in ("newest", "churn")
    order = list(one_after_the_other(wholes) if sequential else interleaved(data, wholes))
    begun: set[int] = set()
    deltas: list[ToolCallDelta] = []
    if not sequential:
        begun = set(range(len(wholes)))
        deltas = [header_of(shape, n) for n in sorted(begun)]
    for at, (n, text) in enumerate(order):
        if n not in begun:
            begun.add(n)
            deltas.append(header_of(shape, n))
        deltas.append(piece_of(shape, n, text, at=at))
    return deltas


def header_of(shape: str, n: int) -> ToolCallDelta:
    index = {"index": n, "shared_index": 0, "newest": 0, "churn": n}.get(shape)
    return ToolCallDelta(block=str(n) if shape == "block" else None, index=index, id=f"c{n}", name=f"tool_{n}")


def piece_of(shape: str, n: int, text: str, *, at: int) -> ToolCallDelta:
    match shape:
        case "index" | "headers_without_index":
            return ToolCallDelta(index=n, arguments=text)
        case "id":
            return ToolCallDelta(id=f"c{n}", arguments=text)
        case "shared_index":
            return ToolCallDelta(index=0, id=f"c{n}", arguments=text)
        case "block":
            return ToolCallDelta(block=str(n), arguments=text)
        case "newest":
            return ToolCallDelta(index=0, arguments=text)
        case _:
            return ToolCallDelta(index=n, id=f"churned_{at}", arguments=text)


ENDS = [None, FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.TOOL_CALLS, FinishReason.STOP]


@pytest.mark.promise("cut:never-run", "assembly:interleaved")
@given(
    wholes=st.lists(written_calls(), min_size=1, max_size=3),
    shape=st.sampled_from(SHAPES),
    text_after=st.booleans(),
    data=st.data(),
)
def test_no_call_is_ever_complete_with_arguments_that_the_model_did_not_finish(
    wholes: list[Written], shape: str, text_after: bool, data: st.DataObject
) -> None:
    """Any calls in any shape, cut after every piece, with every end: what is complete says what the model meant.

    One reading cannot be told from the truth: a response that claims to have ended by itself before a call's arguments
    began is a call without arguments (assembly:object-args).
    """
    deltas = stream_of(shape, wholes, data)
    for kept, reason in itertools.product(range(len(deltas) + 1), ENDS):
        frames: list[Frame] = [*deltas[:kept], *[TextDelta("so")] * text_after]
        frames += [] if reason is None else [Finished(reason, reason.value)]
        for call in calls_of(assembled(*frames).message):
            if call.state is ArgumentsState.COMPLETE:
                may_be_silent = reason in (FinishReason.TOOL_CALLS, FinishReason.STOP) and call.arguments == "{}"
                meant = wholes[int(call.id.removeprefix("c"))].value
                assert may_be_silent or json.loads(call.arguments) == meant, (kept, reason, call)
    whole = assembled(*deltas, CALLS)
    assert [(call.state.value, json.loads(call.arguments)) for call in calls_of(whole.message)] == [
        ("complete", call.value) for call in wholes
    ]


@pytest.mark.promise("cut:never-run")
def test_a_call_in_which_no_cut_would_show_is_labelled() -> None:
    """Proves: an object, nothing, `{}` and free-form text as the call written last; raw text that closes is no such."""
    first = piece('{"a":1}', id="c0", whole=True)
    for last, labelled in (
        (piece('{"a":1}', id="c1", whole=True), ("c1",)),
        (piece("", id="c1"), ("c1",)),
        (piece("null", id="c1"), ("c1",)),
        (piece("{}", id="c1"), ("c1",)),
        (ToolCallDelta(index=1, id="c1", name="f", arguments="*** Be", free_form=True), ("c1",)),
        (piece('{"a":1}', id="c1"), ()),
        (piece('{"a":', id="c1"), ()),
    ):
        assert assembled(first, msgspec.structs.replace(last, index=1), CALLS).may_hide_cut == labelled
    assert assembled(first, LENGTH).may_hide_cut == ()  # it is cut
