"""Messages of which a piece did not arrive: a call is open until its `content_block_stop`, and then it misses nothing."""

import json
from typing import Any

import pytest

from tables import each
from turnwise.testing.wire_conformance import assemble, decode_stream
from turnwise.vocab import (
    ArgumentsState,
    BlockEnded,
    FinishReason,
    Lost,
    Reasoning,
    Response,
    Text,
    ToolCall,
    ToolCallDelta,
    calls_of,
    text_of,
)
from turnwise.wire.anthropic_messages import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile

PROFILE = Profile(name="anthropic_messages", family="anthropic_messages")
COMPLETE, LOST = ArgumentsState.COMPLETE, ArgumentsState.LOST


def event(type: str, **fields: Any) -> bytes:
    text = json.dumps({"type": type, **fields}, ensure_ascii=False).encode()
    return b"event: " + type.encode() + b"\ndata: " + text + b"\n\n"


def opens(index: int, **block: Any) -> bytes:
    return event("content_block_start", index=index, content_block=block)


def call(index: int, *, id: str, name: str = "remove") -> bytes:
    return opens(index, type="tool_use", id=id, name=name, input={})


def delta(index: int, type: str, **fields: Any) -> bytes:
    return event("content_block_delta", index=index, delta={"type": type, **fields})


def argues(index: int, piece: str) -> bytes:
    return delta(index, "input_json_delta", partial_json=piece)


def says(index: int, text: str) -> bytes:
    return delta(index, "text_delta", text=text)


def closes(index: int) -> bytes:
    return event("content_block_stop", index=index)


START = event("message_start", message={"id": "m1", "model": "m", "content": [], "usage": {"input_tokens": 3}})
END = event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 2})
STOP = event("message_stop")
LIST = [call(0, id="t0", name="list"), argues(0, '{"all":true}'), closes(0)]
REMOVE = [call(1, id="t1"), argues(1, '{"path":"/srv/'), argues(1, "old/"), argues(1, 'x"}'), closes(1)]
REMOVE_OLD = ToolCall(id="t1", name="remove", arguments='{"path":"/srv/old/x"}')
BROKEN = b'event: content_block_delta\ndata: {"type":"content_block_del\n\n'


def read(*pieces: bytes) -> Response:
    return assemble(decode_stream(FAMILY, [b"".join(pieces)], profile=PROFILE))


def states(response: Response) -> list[tuple[str, ArgumentsState]]:
    return [(one.id, one.state) for one in calls_of(response.message)]


OLD = argues(1, "old/")
DAMAGE = {
    "line break": OLD.replace(b"old", b"o\nld"),
    "blank line": OLD.replace(b"old", b"o\n\nld"),
    "break before words like a field": argues(1, "o data: ld/").replace(b"data: ld", b"\ndata: ld"),
    "break in the field's name": OLD.replace(b"data:", b"da\nta:"),
    "break before the colon": OLD.replace(b"data:", b"data\n:"),
    "line end between name and data lost": OLD.replace(b"\ndata", b"data"),
    "quote lost": OLD.replace(b'"old', b"old"),
    "brace lost": OLD.replace(b'"delta": {', b'"delta": '),
    "cut off": OLD[:-9] + b"\n\n",
    "no UTF-8 in the input": OLD.replace(b"old", b"o\xffld"),
    "no UTF-8 in a key": OLD.replace(b"partial_json", b"partial\xff_json"),
    "its type damaged": OLD.replace(b'"content_block_delta"', b'"content_block_dlta"'),
    "a delta of another kind": event("content_block_delta", index=1, delta="old/"),
    "an index of another kind": event("content_block_delta", index=[1], delta={"type": "x"}),
    "data that is no object": b'event: content_block_delta\ndata: "old/"\n\n',
}


@pytest.mark.promise("assembly:lost-piece")
@each("damaged", DAMAGE.values(), ids=DAMAGE)
def test_an_open_call_that_lost_a_piece_is_not_complete_and_an_ended_one_is(damaged: bytes) -> None:
    """Proves: what is left of `/srv/old/x` would be whole JSON with the path `/srv/x`; it does not count as complete. The call
    before it has ended, and runs."""
    response = read(START, *LIST, *REMOVE[:2], damaged, *REMOVE[3:], END, STOP)
    assert states(response) == [("t0", COMPLETE), ("t1", LOST)]
    assert response.lost


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_whose_only_piece_was_lost_does_not_run_without_arguments() -> None:
    assert states(read(START, call(0, id="t0"), BROKEN, closes(0), END, STOP)) == [("t0", LOST)]


@pytest.mark.promise("assembly:lost-piece")
def test_pieces_behind_an_end_are_never_added_to_the_call_that_ended() -> None:
    """Proves: gateways number all blocks 0; if the start between two calls is lost, what follows is a call of its own, without
    a name, and the call that had ended keeps its arguments."""
    first = [call(0, id="t0"), argues(0, '{"a":1}'), closes(0)]
    lost_start = BROKEN.replace(b"delta", b"start")
    response = read(START, *first, lost_start, argues(0, '{"b":2}'), closes(0), END, STOP)
    assert [(one.name, one.arguments, one.state) for one in calls_of(response.message)] == [
        ("remove", '{"a":1}', COMPLETE),
        ("", '{"b":2}', LOST),
    ]
    swallowed = read(START, *first, argues(0, '{"b":2}'), closes(0), END, STOP)
    assert [one.state for one in calls_of(swallowed.message)] == [COMPLETE, LOST]
    assert swallowed.lost
    texts = read(START, *first, says(0, "Done."), closes(0), END, STOP)
    assert (states(texts), text_of(texts.message)) == ([("t0", COMPLETE)], "Done.")


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_that_ended_before_its_first_piece_is_not_complete() -> None:
    """Proves: where a call ended silent and pieces follow on its index, nobody can tell whether they were its own."""
    response = read(START, call(0, id="t0"), closes(0), argues(0, '{"b":2}'), closes(0), END, STOP)
    assert [one.state for one in calls_of(response.message)] == [LOST, LOST]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("name", ["content_block_start", "content_block_stop", "message_delta"])
def test_a_lost_frame_of_the_message_is_told(name: str) -> None:
    """Proves: calls that have ended run, and the response is known to miss something."""
    broken = b"event: " + name.encode() + b'\ndata: {"type":"' + name.encode()[:-3] + b"\n\n"
    response = read(START, *LIST, broken, END, STOP)
    assert (states(response), response.lost) == ([("t0", COMPLETE)], True)


def test_a_start_that_comes_twice_begins_one_call() -> None:
    """Proves: the same id and name again, before a piece came, is a repeated event; else it is a call of its own."""
    response = read(START, call(0, id="t0"), call(0, id="t0"), argues(0, '{"a":1}'), closes(0), END, STOP)
    assert [(one.id, one.arguments) for one in calls_of(response.message)] == [("t0", '{"a":1}')]
    others = read(START, call(0, id="t0"), argues(0, "{}"), call(0, id="t1"), argues(0, "{}"), END, STOP)
    assert states(others) == [("t0", COMPLETE), ("t1", COMPLETE)]


def test_an_event_that_the_connection_cut_off_leaves_its_call_incomplete() -> None:
    response = read(START, *LIST, *REMOVE[:3], REMOVE[3][:-20])
    assert states(response) == [("t0", COMPLETE), ("t1", LOST)]


NOISE = {
    "comment": b": still working\n\n",
    "comment of JSON": b': {"status":"working"}\n\n',
    "bare words": b"data: still working\n\n",
    "a bare line": b"ping\n\n",
    "an unknown field": b"x-note: 7\n\n",
    "empty data": b"data:\n\n",
    "ping": event("ping"),
    "broken ping": b'event: ping\ndata: {"type":"pi\n\n',
    "torn ping": b'event: ping\ndata: {"type":"pi\nng"}\n\n',
    "ping without JSON": b"event: ping\ndata: {}}\n\n",
    "unknown event": event("x.note", text="nothing of yours"),
    "unknown delta": event("content_block_delta", index=1, delta={"type": "x_delta", "x": 1}),
    "end mark of another API": b"data: [DONE]\n\n",
    "a JSON text": b'data: "working"\n\n',
}


@pytest.mark.promise("assembly:split-anywhere")
@each("noise", NOISE.values(), ids=NOISE)
def test_noise_between_the_pieces_of_a_call_loses_nothing(noise: bytes) -> None:
    """Proves: what cannot have been a piece changes no call and costs no second request."""
    pieces = [START, *REMOVE, END, STOP]
    response = read(START, *[piece for one in pieces[1:] for piece in (noise, one)])
    assert (calls_of(response.message), response.lost, response.fault) == ((REMOVE_OLD,), False, None)


def test_the_name_of_a_ping_does_not_hide_what_stands_before_it() -> None:
    """Proves: where the blank line between two events was lost, the last name is not the first one's."""
    glued = BROKEN[:-2] + b'\nevent: ping\ndata: {"type":"ping"}\n\n'
    response = read(START, *REMOVE[:2], glued, *REMOVE[3:], END, STOP)
    assert states(response) == [("t1", LOST)]


def test_a_broken_end_mark_is_an_end_mark() -> None:
    """Proves: `message_stop` brings nothing, so its name alone is enough."""
    response = read(START, *REMOVE, END, b'event: message_stop\ndata: {"type":"mess\n\n', START, *LIST, END, STOP)
    assert (calls_of(response.message), response.lost) == ((REMOVE_OLD,), False)


# --- what follows the end


@pytest.mark.parametrize("pieces", [1, 0], ids=["in one read", "event by event"])
@pytest.mark.parametrize("named", [True, False], ids=["named", "unnamed"])
def test_what_follows_the_message_stop_is_no_part_of_the_response(pieces: int, named: bool) -> None:
    """Proves: a stream that a proxy sent twice gives its text, its calls and its usage once."""
    texts = [opens(0, type="text", text=""), *[says(0, f"t{number} ") for number in range(20)]]
    once = b"".join([START, *texts, closes(0), *REMOVE, END, STOP])
    if not named:
        once = b"\n\n".join([part.partition(b"\n")[2] for part in once.split(b"\n\n")[:-1]]) + b"\n\n"
    again = once.replace(b"m1", b"m2").replace(b'"output_tokens": 2', b'"output_tokens": 9')
    response = read(once)
    assert (response.id, calls_of(response.message)) == ("m1", (REMOVE_OLD,))
    reads = [once + again] if pieces else [part + b"\n\n" for part in (once + again).split(b"\n\n")[:-1]]
    assert assemble(decode_stream(FAMILY, reads, profile=PROFILE)) == response
    assert read(once, BROKEN, argues(1, "y"), b"data: [DONE]\n\n") == response


def test_a_second_message_start_before_the_stop_begins_anew() -> None:
    """Proves: a gateway that fell back to another model; what was lost before counts no more."""
    response = read(START, *LIST[:1], BROKEN, START.replace(b"m1", b"m2"), *REMOVE, END, STOP)
    assert (response.id, calls_of(response.message), response.lost) == ("m2", (REMOVE_OLD,), False)


def test_an_error_after_the_message_stop_counts_if_no_stop_reason_came() -> None:
    error = event("error", error={"type": "overloaded_error", "message": "busy"})
    assert read(START, *LIST, END, STOP, error).fault is None
    fault = read(START, *LIST, STOP, error, error).fault
    assert fault is not None
    assert fault.message == "busy"


# --- content of other kinds


def test_text_and_thinking_are_read_from_objects() -> None:
    """Proves: an object in place of a text is its text, in a start, in a delta and in a body."""
    stream = [
        opens(0, type="thinking", thinking={"text": "H"}),
        event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": {"thinking": "m."}}),
        closes(0),
        opens(1, type="text", text={"type": "text", "text": "a"}),
        event("content_block_delta", index=1, delta={"type": "text_delta", "text": {"text": "b"}}),
        closes(1),
    ]
    response = read(START, *stream, END, STOP)
    assert (response.message.parts, response.lost) == ((Reasoning("Hm."), Text("ab")), False)
    for content in (
        [{"type": "thinking", "thinking": {"text": "Hm."}}, {"type": "text", "text": {"text": "ab"}}],
        {"type": "text", "text": "ab"},
        "ab",
    ):
        body = {"type": "message", "id": "m1", "content": content, "stop_reason": "end_turn"}
        told = assemble(FAMILY.decode_body(json.dumps(body).encode(), PROFILE, DEFAULT_LIMITS))
        assert (text_of(told.message), told.lost) == ("ab", False)


def test_a_delta_without_a_kind_is_read_by_what_it_brings() -> None:
    pieces = [
        event("content_block_delta", index=1, delta={"partial_json": piece}) for piece in ('{"path":"/srv/', 'old/x"}')
    ]
    assert calls_of(read(START, REMOVE[0], *pieces, closes(1), END, STOP).message) == (REMOVE_OLD,)


def test_an_input_that_comes_as_an_object_in_a_delta_is_whole() -> None:
    whole = event(
        "content_block_delta", index=1, delta={"type": "input_json_delta", "partial_json": {"path": "/srv/old/x"}}
    )
    frames = decode_stream(FAMILY, [START + REMOVE[0] + whole + closes(1) + END + STOP], profile=PROFILE)
    assert ToolCallDelta(block="1", arguments='{"path":"/srv/old/x"}', whole=True) in frames
    assert calls_of(assemble(frames).message) == (REMOVE_OLD,)


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "odd",
    [
        opens(2, type="text", text=["b"]),
        opens(2, type="tool_use", id="t2", name=["b"], input={}),
        says(2, "b").replace(b'"b"', b'["b"]'),
        says(2, "b").replace(b'"b"', b"true"),
        event("content_block_start", index=2, content_block="b"),
    ],
)
def test_content_in_a_shape_that_cannot_be_read_is_lost(odd: bytes) -> None:
    response = read(START, *LIST, odd, closes(2), END, STOP)
    assert response.lost
    assert states(response)[0] == ("t0", COMPLETE)


@pytest.mark.promise("assembly:lost-piece")
def test_a_body_with_bytes_that_are_no_utf8_has_no_complete_call() -> None:
    """Proves: the replacement characters may stand in any of its arguments; one broken block takes only itself."""
    calls = [{"type": "tool_use", "id": f"t{number}", "name": "remove", "input": {"path": "xy"}} for number in range(2)]
    body = json.dumps({"type": "message", "id": "m1", "content": calls, "stop_reason": "tool_use"}).encode()
    response = assemble(FAMILY.decode_body(body.replace(b"xy", b"x\xffy", 1), PROFILE, DEFAULT_LIMITS))
    assert (states(response), response.lost) == ([("t0", LOST), ("t1", LOST)], True)
    broken = body.replace(b'{"type": "tool_use", "id": "t0"', b'7, {"type": "tool_use", "id": "t0"')
    response = assemble(FAMILY.decode_body(broken, PROFILE, DEFAULT_LIMITS))
    assert (states(response), response.lost) == ([("t0", COMPLETE), ("t1", COMPLETE)], True)


def test_a_whole_event_glued_to_a_broken_one_is_read() -> None:
    """Proves: the loss is told behind what was read, so that it reaches the block that the event began."""
    glued = REMOVE[0].rstrip() + b'{"type":"content_block_del\n\n'
    frames = decode_stream(FAMILY, [START + glued + b"".join(REMOVE[2:]) + END + STOP], profile=PROFILE)
    kinds = [type(frame) for frame in frames if isinstance(frame, Lost | BlockEnded | ToolCallDelta)]
    assert kinds[:2] == [ToolCallDelta, Lost]
    response = assemble(frames)
    assert (states(response), response.finish) == ([("t1", LOST)], FinishReason.TOOL_CALLS)


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "empty",
    [
        delta(1, "input_json_delta"),
        event("content_block_delta", index=1, delta={}),
        delta(1, "input_json_delta", partial_json=5),
        b"event: content_block_delta\n\n",
        b"event: content_block_delta\n: a comment\n\n",
    ],
    ids=["no piece", "no kind", "a number", "no data", "a comment for data"],
)
def test_a_delta_without_its_piece_is_a_loss(empty: bytes) -> None:
    response = read(START, *REMOVE[:2], empty, *REMOVE[2:], END, STOP)
    assert ([one.state for one in calls_of(response.message)], response.lost) == ([LOST], True)


def test_a_delta_that_says_that_it_brings_nothing_is_no_loss() -> None:
    response = read(START, *REMOVE[:2], delta(1, "input_json_delta", partial_json=None), *REMOVE[2:], END, STOP)
    assert (calls_of(response.message), response.lost) == ((REMOVE_OLD,), False)


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("half", ["\ud83d", "\ude00"])
def test_half_of_a_character_loses_the_call_unless_the_other_half_comes(half: str) -> None:
    def halves(*pieces: str) -> Response:
        told = [
            b"event: content_block_delta\ndata: "
            + json.dumps(
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": piece},
                }
            ).encode()
            + b"\n\n"
            for piece in pieces
        ]
        return read(START, *REMOVE[:2], *told, *REMOVE[2:], END, STOP)

    torn = halves(half)
    assert ([one.state for one in calls_of(torn.message)], torn.lost) == ([LOST], True)
    joined = halves("\ud83d", "\ude00")
    assert ([one.state for one in calls_of(joined.message)], joined.lost) == ([COMPLETE], False)
    assert "\U0001f600" in calls_of(joined.message)[0].arguments


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "torn",
    [
        b"event: content_block_delta\n",
        b"event: content_block_delta\ndata: [DONE]\n\n",
        b'event: content_block_delta\ndata: {"type":"ping"}\n\n',
    ],
    ids=["no data and no blank line", "the end mark of Chat for data", "a ping for data"],
)
def test_a_name_whose_data_is_another_events_is_a_loss(torn: bytes) -> None:
    response = read(START, *REMOVE[:2], torn, *REMOVE[3:], END, STOP)
    assert ([one.state for one in calls_of(response.message)], response.lost) == ([LOST], True)


@pytest.mark.parametrize(
    "noise",
    [
        event("vendor.progress", delta="50%"),
        event("vendor.progress", index="a"),
        b"event: heartbeat\ndata: 12:00\n\n",
        b"event: ping\ndata: 2026-01-01 00:00:00\n\n",
    ],
    ids=["a text for delta", "a text for index", "the time", "the date"],
)
def test_events_of_other_kinds_may_have_fields_of_their_own(noise: bytes) -> None:
    response = read(START, *REMOVE[:2], noise, *REMOVE[2:], END, STOP)
    assert (calls_of(response.message), response.lost) == ((REMOVE_OLD,), False)
