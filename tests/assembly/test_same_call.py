"""One call that a response says twice is one call; two different calls under one id are two.

From issue 12, line 3: gateways send an item again, and the tool ran twice.
"""

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.assembly.json_text import KINDS
from turnwise.assembly.response import Assembler
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    Lost,
    PartDone,
    Repair,
    Response,
    ToolCall,
    ToolCallDelta,
    calls_of,
)

CALLS = Finished(FinishReason.TOOL_CALLS, "tool_calls")
LENGTH = Finished(FinishReason.LENGTH, "length")
A, B = '{"path":"a"}', '{"path":"b"}'

Way = Callable[[int, str, str, str | None], list[Frame]]
"""How a wire says one call: its number, name, arguments and id."""


def in_pieces(number: int, name: str, arguments: str, id: str | None) -> list[Frame]:
    """Anthropic."""
    block = str(number)
    head = ToolCallDelta(block=block, id=id, name=name)
    return [head, *[ToolCallDelta(block=block, arguments=one) for one in arguments], BlockEnded(block)]


def with_final(number: int, name: str, arguments: str, id: str | None) -> list[Frame]:
    """Responses."""
    final = PartDone(str(number), ToolCall(id=id or "", name=name, arguments=arguments))
    return [*in_pieces(number, name, arguments, id)[:-1], final, BlockEnded(str(number))]


def final_alone(number: int, name: str, arguments: str, id: str | None) -> list[Frame]:
    return [PartDone(str(number), ToolCall(id=id or "", name=name, arguments=arguments)), BlockEnded(str(number))]


def handed_out(number: int, name: str, arguments: str, id: str | None) -> list[Frame]:
    """Gemini, and Anthropic's bodies."""
    head = ToolCallDelta(block=str(number), id=id, name=name, arguments=arguments, whole=True)
    return [head, BlockEnded(str(number))]


def placed(number: int, name: str, arguments: str, id: str | None) -> list[Frame]:
    """Chat Completions."""
    head = ToolCallDelta(index=number, id=id, name=name, arguments="")
    return [head, *[ToolCallDelta(index=number, arguments=one) for one in arguments]]


WAYS = [in_pieces, with_final, final_alone, handed_out, placed]


def assemble(*frames: Frame, taken_ids: frozenset[str] = frozenset()) -> Response:
    assembler = Assembler(tool_names=frozenset(["read", "list"]), taken_ids=taken_ids)
    for frame in frames:
        assembler.receive(frame)
    return assembler.finish()


def told(response: Response) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in calls_of(response.message)]


def seen(*frames: Frame) -> dict[str, tuple[str | None, str | None]]:
    """The calls that those who watch are shown, by block: id and name."""
    assembler = Assembler(tool_names=frozenset(["read", "list"]))
    found: dict[str, tuple[str | None, str | None]] = {}
    for frame in frames:
        for healed in assembler.receive(frame):
            if isinstance(healed, ToolCallDelta) and healed.name:
                found[healed.block or ""] = (healed.id, healed.name)
            elif isinstance(healed, PartDone) and isinstance(healed.part, ToolCall):
                found[healed.block] = (healed.part.id, healed.part.name)
    return found


@pytest.mark.promise("assembly:same-call-once")
@each("way", WAYS)
@each("times", [2, 3])
def test_call_that_is_said_again_is_one_call_and_told(way: Way, times: int) -> None:
    """In every way that a family has to say a call; also where the session had used its id."""
    frames = [frame for number in range(times) for frame in way(number, "read", A, "x")]
    response = assemble(*frames, CALLS)
    assert told(response) == [("x", "read", A)]
    repairs = [repair for repair in response.repairs if repair.kind != "final_item_wins"]
    assert [(one.kind, one.what) for one in repairs] == [("same_call_twice", KINDS["same_call_twice"])] * (times - 1)
    assert list(seen(*frames, CALLS).values()) == [("x", "read")]
    assert told(assemble(*frames, CALLS, taken_ids=frozenset("x"))) == [("call_0", "read", A)]


@pytest.mark.promise("assembly:same-call-once")
@pytest.mark.parametrize("way", WAYS)
def test_same_arguments_in_other_spaces_and_order_are_the_same_call(way: Way) -> None:
    """A server that says a call again may write it anew. `1` and `1.0` are two values."""
    frames = [*way(0, "read", '{"path":"a","n":1}', "x"), *way(1, "read", '{ "n" : 1, "path": "\\u0061" }', "x")]
    assert told(assemble(*frames, CALLS)) == [("x", "read", '{"path":"a","n":1}')]
    frames = [*way(0, "read", '{"n":1}', "x"), *way(1, "read", '{"n":1.0}', "x")]
    assert len(told(assemble(*frames, CALLS))) == 2


@pytest.mark.promise("assembly:id-twice", "assembly:same-call-once")
@each("way", WAYS)
@each("other", [("read", B), ("list", A)])
def test_other_name_or_arguments_under_one_id_are_another_call(way: Way, other: tuple[str, str]) -> None:
    """Both run, with ids of their own, and both are shown."""
    frames = [*way(0, "read", A, "x"), *way(1, *other, "x")]
    response = assemble(*frames, CALLS)
    assert told(response) == [("x", "read", A), ("call_1", *other)]
    assert [repair.kind for repair in response.repairs] == ["id_twice"]
    assert sorted(seen(*frames, CALLS).values()) == sorted([("x", "read"), ("call_1", other[0])])


@pytest.mark.promise("assembly:id-twice", "assembly:same-call-once")
@pytest.mark.parametrize("way", WAYS)
def test_equal_calls_all_stay_where_the_id_is_a_constant_of_the_server(way: Way) -> None:
    """A different call bears it too, so equal ones may be two."""
    frames = [*way(0, "read", A, "x"), *way(1, "read", A, "x"), *way(2, "list", B, "x")]
    response = assemble(*frames, CALLS)
    assert [(name, arguments) for _, name, arguments in told(response)] == [("read", A), ("read", A), ("list", B)]
    assert "same_call_twice" not in [repair.kind for repair in response.repairs]
    assert len(seen(*frames, CALLS)) == 3


@pytest.mark.promise("assembly:same-call-once", "assembly:id-missing")
@pytest.mark.parametrize("way", WAYS)
def test_equal_calls_without_an_id_of_their_own_are_two(way: Way) -> None:
    """Gemini sends none: the same command twice is the model's wish."""
    frames = [*way(0, "read", A, None), *way(1, "read", A, None)]
    assert len(told(assemble(*frames, CALLS))) == 2


@pytest.mark.promise("assembly:same-call-once", "cut:never-run")
@pytest.mark.parametrize("way", [in_pieces, placed])
def test_call_that_was_cut_while_it_was_said_again_is_not_continued(way: Way) -> None:
    """It would run twice. Two cut calls are one as well, and the longer is kept."""
    again = [*way(0, "read", A, "x"), *way(1, "read", A[:7], "x"), LENGTH]
    assert told(assemble(*again)) == [("x", "read", A)]
    first = [*way(0, "read", A[:7], "x"), *way(1, "read", A, "x"), LENGTH]
    (call,) = calls_of(assemble(*first).message)
    assert (call.arguments, call.state) == (A, ArgumentsState.COMPLETE)
    both = [*way(0, "read", A[:7], "x"), *way(1, "read", A[:9], "x"), LENGTH]
    (call,) = calls_of(assemble(*both).message)
    assert (call.arguments, call.state) == (A[:9], ArgumentsState.TRUNCATED)
    other = [*way(0, "read", A, "x"), *way(1, "read", '{"path":"b', "x"), LENGTH]
    assert len(told(assemble(*other))) == 2


@pytest.mark.promise("assembly:same-call-once", "assembly:lost-piece")
def test_call_that_lost_a_piece_neither_hides_nor_proves_a_repetition() -> None:
    """It stays with its own result; the equal ones beside it are one call."""
    lost = Lost(Repair("event_left_out", "stream", "it is no JSON"))
    head = ToolCallDelta(block="0", id="x", name="read")
    damaged: list[Frame] = [head, lost, ToolCallDelta(block="0", arguments=B), BlockEnded("0")]
    response = assemble(*damaged, *in_pieces(1, "read", A, "x"), *in_pieces(2, "read", A, "x"), CALLS)
    assert [(call.arguments, call.state) for call in calls_of(response.message)] == [
        (B, ArgumentsState.LOST),
        (A, ArgumentsState.COMPLETE),
    ]


def test_free_form_calls_are_compared_as_text() -> None:
    """Nothing in them is JSON."""
    for second, count in (("{ }", 2), ("{}", 1)):
        frames: list[Frame] = []
        for number, text in enumerate(("{}", second)):
            block = str(number)
            frames.append(ToolCallDelta(block=block, id="x", name="read", arguments=text, free_form=True))
            frames.append(BlockEnded(block))
        assert len(told(assemble(*frames, CALLS))) == count


ARGUMENTS = st.dictionaries(st.sampled_from(["a", "b"]), st.integers(0, 2) | st.text(max_size=2), max_size=2)
SAID = st.tuples(st.sampled_from(["read", "list"]), ARGUMENTS, st.sampled_from(["x", "y", None]))


@pytest.mark.promise("assembly:same-call-once", "assembly:id-twice")
@given(said=st.lists(SAID, max_size=6), way=st.sampled_from(WAYS))
def test_any_calls_run_once_each_unless_their_id_is_shared_by_different_ones(
    said: list[tuple[str, dict[str, object], str | None]], way: Way
) -> None:
    """Counted by hand: by id, name and value."""
    frames: list[Frame] = []
    for number, (name, value, id) in enumerate(said):
        frames += way(number, name, json.dumps(value), id)
    expected: list[tuple[str, dict[str, object]]] = []
    for number, (name, value, id) in enumerate(said):
        alike = [(one, what) for one, what, other in said if other == id]
        is_again = id is not None and all(one == (name, value) for one in alike)
        if not is_again or (name, value, id) not in said[:number]:
            expected.append((name, value))
    response = assemble(*frames, CALLS)
    calls = calls_of(response.message)
    assert [(call.name, json.loads(call.arguments)) for call in calls] == expected
    assert len({call.id for call in calls}) == len(calls)
    assert sorted(seen(*frames, CALLS).values(), key=str) == sorted([(one.id, one.name) for one in calls], key=str)
