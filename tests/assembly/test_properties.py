"""Whatever the calls and however they are cut and mixed: the same calls come out. Hypothesis looks for what does not."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.assembly.json_text import Truncated, classify
from turnwise.assembly.response import Assembler
from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Citation,
    CitationAdded,
    Fault,
    Faulted,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Opaque,
    PartDone,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
    calls_of,
)

FINISHED = Finished(FinishReason.TOOL_CALLS, "tool_calls")
NAMES = ["read", "read_file", "list", "go", "gogo", "write"]
OFFERED = frozenset(NAMES)

# Shapes that invite mistakes: braces and quotes in strings, keys that repeat on every level.
WORDS = st.sampled_from(["a", "items", "{", "}", '{"a":', '"', "\\", "{}", "é", "😀", ""]) | st.text(max_size=4)
VALUES = st.recursive(
    WORDS | st.integers(-9, 99) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(WORDS, VALUES, max_size=3)


class Cut(msgspec.Struct, frozen=True):
    """One call and how its arguments are cut into pieces."""

    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@st.composite
def cut_calls(draw: st.DrawFn) -> Cut:
    text = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
    edges = sorted({0, len(text), *draw(st.lists(st.integers(0, len(text)), max_size=5))})
    pieces = tuple(text[start:end] for start, end in itertools.pairwise(edges))
    return Cut(draw(st.sampled_from(NAMES)), pieces)


def assembled(frames: list[Frame], *, tool_names: frozenset[str] = OFFERED) -> Response:
    assembler = Assembler(tool_names=tool_names)
    for frame in frames:
        assembler.receive(frame)
    return assembler.finish()


def as_calls(response: Response) -> list[tuple[str, str, str, str]]:
    return [(call.id, call.name, call.arguments, call.state.value) for call in calls_of(response.message)]


def expected(calls: list[Cut]) -> list[tuple[str, str, str, str]]:
    return [(f"id_{i}", call.name, call.arguments, "complete") for i, call in enumerate(calls)]


def mixed(data: st.DataObject, calls: list[Cut]) -> Iterator[tuple[int, str]]:
    """The pieces of all calls in any order that keeps each call's own."""
    rest = {i: list(call.pieces) for i, call in enumerate(calls)}
    while rest:
        i = data.draw(st.sampled_from(sorted(rest)))
        yield i, rest[i].pop(0)
        if not rest[i]:
            del rest[i]


@pytest.mark.promise("assembly:interleaved", "assembly:id-first-only", "assembly:order")
@given(
    calls=st.lists(cut_calls(), min_size=1, max_size=4),
    data=st.data(),
    id_again=st.booleans(),
    name_again=st.booleans(),
    text_between=st.booleans(),
)
def test_any_mix_by_index_gives_the_calls(
    calls: list[Cut], data: st.DataObject, id_again: bool, name_again: bool, text_between: bool
) -> None:
    frames: list[Frame] = [
        ToolCallDelta(index=i, id=f"id_{i}", name=call.name, arguments="") for i, call in enumerate(calls)
    ]
    for i, piece in mixed(data, calls):
        id, name = f"id_{i}" if id_again else None, calls[i].name if name_again else ""
        frames.append(ToolCallDelta(index=i, id=id, name=name, arguments=piece))
        if text_between:
            frames.append(TextDelta("."))
    assert as_calls(assembled([*frames, FINISHED])) == expected(calls)


@pytest.mark.promise("assembly:shared-index", "assembly:no-index", "assembly:id-every-chunk")
@given(
    calls=st.lists(cut_calls(), min_size=1, max_size=4),
    data=st.data(),
    index=st.sampled_from([None, 0]),
    name_again=st.booleans(),
)
def test_any_mix_by_id_gives_the_calls(
    calls: list[Cut], data: st.DataObject, index: int | None, name_again: bool
) -> None:
    """No index, or the same for all."""
    frames: list[Frame] = [
        ToolCallDelta(index=index, id=f"id_{i}", name=call.name, arguments="") for i, call in enumerate(calls)
    ]
    frames += [
        ToolCallDelta(index=index, id=f"id_{i}", name=calls[i].name if name_again else None, arguments=piece)
        for i, piece in mixed(data, calls)
    ]
    assert as_calls(assembled([*frames, FINISHED])) == expected(calls)


@pytest.mark.promise("assembly:shared-index", "assembly:no-index")
@given(calls=st.lists(cut_calls(), min_size=1, max_size=4), index=st.sampled_from([None, 0]))
def test_calls_one_after_the_other_need_an_id_at_their_beginning_only(calls: list[Cut], index: int | None) -> None:
    frames: list[Frame] = []
    for i, call in enumerate(calls):
        frames.append(ToolCallDelta(index=index, id=f"id_{i}", name=call.name, arguments=""))
        frames += [ToolCallDelta(index=index, arguments=piece) for piece in call.pieces]
    assert as_calls(assembled([*frames, FINISHED])) == expected(calls)


@pytest.mark.promise("assembly:id-churn")
@given(call=cut_calls())
def test_an_id_that_changes_all_the_time_is_one_call(call: Cut) -> None:
    frames: list[Frame] = [ToolCallDelta(index=0, id="id_0", name=call.name, arguments="")]
    frames += [ToolCallDelta(index=0, id=f"other_{n}", arguments=piece) for n, piece in enumerate(call.pieces)]
    response = assembled([*frames, FINISHED])
    assert as_calls(response) == expected([call])
    assert [repair.kind for repair in response.repairs] == ["id_churn"]


@pytest.mark.promise("assembly:interleaved")
@given(calls=st.lists(cut_calls(), min_size=1, max_size=3), data=st.data())
def test_any_mix_by_block_gives_the_calls_unrepaired(calls: list[Cut], data: st.DataObject) -> None:
    """Families whose wire names its blocks: nothing is guessed, nothing is recorded."""
    frames: list[Frame] = [ToolCallDelta(block=str(i), id=f"id_{i}", name=call.name) for i, call in enumerate(calls)]
    frames += [ToolCallDelta(block=str(i), arguments=piece) for i, piece in mixed(data, calls)]
    response = assembled([*frames, FINISHED])
    assert as_calls(response) == expected(calls)
    assert response.repairs == ()


@pytest.mark.promise("assembly:cumulative")
@given(call=cut_calls(), again=st.booleans())
def test_pieces_that_repeat_all_so_far_do_not_double_it(call: Cut, again: bool) -> None:
    texts = ["".join(call.pieces[: n + 1]) for n in range(len(call.pieces))]
    frames: list[Frame] = [
        ToolCallDelta(index=0, id="id_0", name=call.name if n == 0 else None, arguments=text)
        for n, text in enumerate([*texts, texts[-1]] if again else texts)
    ]
    joined = "".join(texts) + (texts[-1] if again else "")
    if len(texts) > 1 and isinstance(classify(joined), Truncated):  # it may as well be a nested object that was cut
        assert as_calls(assembled([*frames, FINISHED])) == [("id_0", call.name, joined, "truncated")]
    else:
        assert as_calls(assembled([*frames, FINISHED])) == expected([call])


@pytest.mark.promise("assembly:cumulative")
@given(call=cut_calls())
def test_the_whole_once_more_at_the_end_does_not_double_it(call: Cut) -> None:
    frames: list[Frame] = [ToolCallDelta(index=0, id="id_0", name=call.name)]
    frames += [ToolCallDelta(index=0, arguments=piece) for piece in (*call.pieces, call.arguments)]
    assert as_calls(assembled([*frames, FINISHED])) == expected([call])


@pytest.mark.promise("cut:never-run")
@given(call=cut_calls(), at=st.integers(0, 500), reason=st.sampled_from([*FinishReason]), sent=st.booleans())
def test_a_call_cut_anywhere_is_never_complete(call: Cut, at: int, reason: FinishReason, sent: bool) -> None:
    """Whatever the finish reason claims; only the text's end cut off shows nothing but a proper prefix."""
    kept = call.arguments[: at % len(call.arguments)]
    frames: list[Frame] = [ToolCallDelta(index=0, id="c", name="write", arguments=kept)]
    response = assembled([*frames, Finished(reason, reason.value)] if sent else frames)
    empty_by_itself = not kept and sent and reason in (FinishReason.STOP, FinishReason.TOOL_CALLS, FinishReason.PAUSE)
    state = ArgumentsState.COMPLETE if empty_by_itself else ArgumentsState.TRUNCATED
    assert [call.state for call in calls_of(response.message)] == [state]


FRAGMENTS = st.sampled_from(
    ["", "{", "}", "{}", '{"a":', "1", '"', "null", '{"a":1}', '{"b":2}', " ", "x", "\ud83d", "\ude00"]
)
IDS = st.sampled_from([None, "", "a", "b"])
BLOCKS = st.sampled_from(["text", "reasoning", "0", "1", "call:0"])
DELTAS = st.builds(
    ToolCallDelta,
    block=st.none() | BLOCKS,
    index=st.sampled_from([None, 0, 1]),
    id=IDS,
    name=st.sampled_from([None, "", "read", "_file", "go"]),
    arguments=st.none() | FRAGMENTS,
    free_form=st.booleans(),
) | st.builds(
    ToolCallDelta,
    index=st.sampled_from([None, 0, 1]),
    id=IDS,
    name=st.sampled_from([None, "read"]),
    arguments=st.sampled_from(["{}", '{"a":1}', '{"b":2}']),
    whole=st.just(True),
)
PARTS = st.sampled_from(
    [
        Text("a"),
        Reasoning("b"),
        ToolCall(id="a", name="read", arguments='{"a":1}'),
        ToolCall(id="", name="go", arguments=""),
    ]
)
FRAMES: st.SearchStrategy[Frame] = st.one_of(
    DELTAS,
    DELTAS,
    st.builds(TextDelta, FRAGMENTS, BLOCKS),
    st.builds(ReasoningDelta, FRAGMENTS, BLOCKS),
    st.builds(RefusalDelta, FRAGMENTS),
    st.builds(PartDone, BLOCKS, PARTS),
    st.builds(BlockEnded, BLOCKS),
    st.builds(BlockData, BLOCKS, st.just(Opaque("gemini", '{"s":1}'))),
    st.builds(CitationAdded, BLOCKS, st.just(Citation(family="gemini", raw="{}"))),
    st.builds(Finished, st.sampled_from([*FinishReason]), st.none(), st.booleans()),
    st.just(Started("r")),
    st.just(UsageReported(Usage(input_tokens=1))),
    st.just(Faulted(Fault(kind=FaultKind.SERVER, message="boom"))),
)


def check_response(response: Response) -> None:
    calls = calls_of(response.message)
    assert len({call.id for call in calls}) == len(calls), "ids are unique"
    assert all(call.id for call in calls)
    for call in calls:
        if call.state is ArgumentsState.COMPLETE and not call.free_form:
            assert isinstance(msgspec.json.decode(call.arguments), dict)
        assert (call.reason is None) == (call.state is ArgumentsState.COMPLETE)
    msgspec.json.encode(response)  # nothing in it that no encoder takes


@pytest.mark.promise("assembly:id-twice", "assembly:id-missing", "cut:never-run")
@given(frames=st.lists(FRAMES, max_size=25))
def test_any_frames_give_a_sound_response_and_the_same_again(frames: list[Frame]) -> None:
    """Nonsense included: nothing raises, ids are unique, what is called complete is a JSON object, replay is equal."""
    response = assembled(frames)
    check_response(response)
    assert assembled(frames) == response


def watched(frames: list[Frame]) -> dict[str, tuple[str, str, str]]:
    """What a naive watcher makes of healed frames: id, name and text by block; a final part replaces them."""
    seen: dict[str, tuple[str, str, str]] = {}
    assembler = Assembler(tool_names=OFFERED)
    for frame in frames:
        for healed in assembler.receive(frame):
            if isinstance(healed, ToolCallDelta):
                assert healed.block is not None
                id, name, text = seen.get(healed.block, ("", "", ""))
                seen[healed.block] = (
                    id + (healed.id or ""),
                    name + (healed.name or ""),
                    text + (healed.arguments or ""),
                )
            elif isinstance(healed, PartDone) and isinstance(healed.part, ToolCall):
                seen[healed.block] = (healed.part.id, healed.part.name, healed.part.arguments)
    return seen


@pytest.mark.promise("assembly:interleaved")
@given(deltas=st.lists(DELTAS.filter(lambda delta: not delta.free_form), max_size=15))
def test_a_naive_watcher_of_healed_frames_sees_the_calls_of_the_response(deltas: list[ToolCallDelta]) -> None:
    """Ids and names come once, text only when it is new, and what was shown otherwise is put right at the end."""
    frames: list[Frame] = [*deltas, FINISHED]
    calls = calls_of(assembled(frames).message)
    seen: list[Any] = sorted(watched(frames).values())
    assert [(id, name, text or "{}") for id, name, text in seen] == sorted(
        (call.id, call.name, call.arguments) for call in calls
    )
