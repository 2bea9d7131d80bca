"""Chat Completions responses of which a piece did not arrive: no call that it may belong to counts as complete."""

import json

import pytest

from tables import each
from turnwise.testing.wire_conformance import assemble, decode_stream
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    Faulted,
    FaultKind,
    FinishReason,
    Lost,
    Mended,
    Reasoning,
    Response,
    Text,
    ToolCall,
    Usage,
    calls_of,
    text_of,
)
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import DEFAULT_LIMITS
from wire.openai_chat_streams import END, PROFILE, body, call, delta, respond, stream_of

NAMED = {"index": 0, "id": "call_1", "function": {"name": "remove", "arguments": '{"path":"/srv/'}}
MORE = {"index": 0, "function": {"arguments": "old/"}}
LAST = {"index": 0, "function": {"arguments": 'x"}'}}
ENDED = delta({}, "tool_calls")
DONE = b"data: [DONE]\n\n"
REMOVE_OLD = ToolCall(id="call_1", name="remove", arguments='{"path":"/srv/old/x"}')


def line(chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n"


def read(*pieces: bytes) -> Response:
    return assemble(decode_stream(FAMILY, [b"".join(pieces)], profile=PROFILE))


def states(response: Response) -> list[ArgumentsState]:
    return [one.state for one in calls_of(response.message)]


def torn(event: bytes, *, tear: bytes = b"\n") -> bytes:
    at = event.index(b"old") + 1
    return event[:at] + tear + event[at:]


BROKEN = {
    "line break": torn(line(call(**MORE))),
    "blank line": torn(line(call(**MORE)), tear=b"\n\n"),
    "carriage return": torn(line(call(**MORE)), tear=b"\r"),
    "break in the field's name": line(call(**MORE)).replace(b"data", b"da\nta"),
    "break before the colon": line(call(**MORE)).replace(b"data", b"data\n"),
    "byte of the field's name lost": line(call(**MORE))[1:],
    "line end before it lost": b": still working" + line(call(**MORE)),
    "quote lost": line(call(**MORE)).replace(b'"old', b"old"),
    "brace lost": line(call(**MORE)).replace(b'"delta": {', b'"delta": '),
    "cut off": line(call(**MORE))[:-9] + b"\n\n",
    "no UTF-8 in the arguments": line(call(**MORE)).replace(b"old", b"o\xffld"),
    "no UTF-8 in a key": line(call(**MORE)).replace(b"arguments", b"argu\xffments"),
    "a chunk of another kind": line({"choices": "old/"}),
    "a delta of another kind": line(delta(None)).replace(b"null", b'"old/"', 1),
    "calls of another kind": line(delta({"tool_calls": "old/"})),
    "a function of another kind": line(call(index=0, function="old/")),
}


@pytest.mark.promise("assembly:lost-piece")
@each("broken", BROKEN.values(), ids=BROKEN)
def test_a_call_that_lost_a_piece_is_never_complete(broken: bytes) -> None:
    """Proves: what is left of `/srv/old/x` would be whole JSON with the path `/srv/x`; it does not count as complete."""
    response = read(line(call(**NAMED)), broken, line(call(**LAST)), line(ENDED), b"data: [DONE]\n\n")
    assert states(response) == [ArgumentsState.LOST]
    assert response.lost


@pytest.mark.parametrize("at", range(4))
def test_the_rest_of_a_torn_chunk_may_look_like_another_field(at: int) -> None:
    """Proves: a break right before words that look like a field, a comment or more data takes nothing away in silence."""
    text = "a data: b id: c event: d : e"
    event = line(call(index=0, function={"arguments": text}))
    word = (b"data: b", b"id: c", b"event: d", b": e")[at]
    broken = event.replace(word, b"\n" + word)
    response = read(line(call(**NAMED)), broken, line(call(**LAST)), line(ENDED), b"data: [DONE]\n\n")
    assert states(response) == [ArgumentsState.LOST]


def test_a_break_between_two_tokens_of_json_loses_nothing() -> None:
    """Proves: an event torn where JSON may have white space is put together again."""
    event = line(call(**MORE)).replace(b', "choices"', b',\n"choices"')
    response = read(line(call(**NAMED)), event, line(call(**LAST)), line(ENDED), b"data: [DONE]\n\n")
    assert calls_of(response.message) == (REMOVE_OLD,)
    assert not response.lost


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_is_open_until_the_response_ends() -> None:
    """Proves: a piece may come late in this family, so a loss behind a call's end reaches the call. A call that a name begins
    after the loss stays complete."""
    later = [
        line(call(index=1, id="call_2", function={"name": "list", "arguments": ""})),
        line(call(index=1, function={"arguments": '{"all":true}'})),
    ]
    first = {"index": 0, "id": "call_1", "function": {"name": "remove", "arguments": '{"path":"/srv"}'}}
    broken = b'data: {"choices":[{"delta":{"tool_ca\n\n'
    response = read(line(call(**first)), broken, *later, line(ENDED), b"data: [DONE]\n\n")
    assert states(response) == [ArgumentsState.LOST, ArgumentsState.COMPLETE]
    assert response.lost


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_whose_only_chunk_has_invalid_utf8_is_not_complete() -> None:
    """Proves: the loss is told behind what could be read, so it reaches the call that the same event began."""
    whole = {"index": 0, "id": "call_1", "function": {"name": "remove", "arguments": '{"path":"/srv/xy"}'}}
    response = read(line(call(**whole)).replace(b"xy", b"x\xffy"), line(ENDED), b"data: [DONE]\n\n")
    assert states(response) == [ArgumentsState.LOST]
    response = assemble(
        FAMILY.decode_body(
            body(tool_calls=[{k: v for k, v in whole.items() if k != "index"}]).replace(b"xy", b"x\xffy"),
            PROFILE,
            DEFAULT_LIMITS,
        )
    )
    assert states(response) == [ArgumentsState.LOST]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("index", [{}, {"index": 0}], ids=["no index", "one index"])
def test_arguments_of_a_lost_call_are_not_given_to_the_next(index: dict[str, int]) -> None:
    """Proves: where the beginning of a call is lost and its pieces have no index of their own, the name and the id that come
    next are another call's; its arguments would be the first one's."""
    pieces = [
        b'data: {"choices":[{"delta":{"tool_ca\n\n',
        line(call(**index, function={"arguments": '{"all":true}'})),
        line(call(**index, id="call_2", function={"name": "remove", "arguments": ""})),
        line(ENDED),
    ]
    assert states(read(*pieces, b"data: [DONE]\n\n")) == [ArgumentsState.LOST]


def test_an_event_that_the_connection_cut_off_leaves_nothing_complete() -> None:
    """Proves: the rest of an event at the end of the stream may have been a piece, also behind a finish reason."""
    whole = {"index": 0, "id": "call_1", "function": {"name": "remove", "arguments": '{"path":"/srv"}'}}
    response = read(line(call(**whole)), line(ENDED), line(call(**MORE))[:-20])
    assert states(response) == [ArgumentsState.LOST]
    assert read(line(delta({"content": "a"})), line(END), line(delta({"content": "b"}))[:-20]).lost


NOISE = {
    "comment": b": still working\n\n",
    "comment of JSON": b': {"status":"working"}\n\n',
    "comment as data": b"data: : still working\n\n",
    "bare words": b"data: still working\n\n",
    "bare words that are no UTF-8": b"data: still w\xffrking\n\n",
    "a bare line": b"ping\n\n",
    "an unknown field": b"x-note: 7\n\n",
    "empty data": b"data:\n\n",
    "ping": b'event: ping\ndata: {"type":"ping"}\n\n',
    "unknown event": b'event: x.note\ndata: {"type":"x.note","text":"nothing of yours"}\n\n',
    "a JSON text": b'data: "working"\n\n',
    "an empty array": b"data: []\n\n",
}


@pytest.mark.promise("assembly:split-anywhere")
@each("noise", NOISE.values(), ids=NOISE)
def test_noise_between_the_pieces_of_a_call_loses_nothing(noise: bytes) -> None:
    """Proves: what cannot have been a piece changes no call and costs no second request, however often it comes."""
    pieces = [line(call(**NAMED)), line(call(**MORE)), line(call(**LAST)), line(ENDED), b"data: [DONE]\n\n"]
    response = read(*[piece for event in pieces for piece in (noise * 101, event)])
    assert (calls_of(response.message), response.lost, response.fault) == ((REMOVE_OLD,), False, None)


# --- the whole, said again


def whole_message(**message: object) -> dict[str, object]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "tool_calls"}
    return {"id": "c1", "object": "chat.completion", "model": "m1", "choices": [choice]}


SAID_AGAIN = {"id": "call_1", "type": "function", "function": {"name": "remove", "arguments": '{"path":"/srv/old/x"}'}}


@pytest.mark.promise("assembly:lost-piece")
def test_a_whole_message_in_the_stream_makes_good_what_was_lost() -> None:
    """Proves: a body that some servers send as the last chunk says everything again: its calls are complete, the text is not
    doubled, and the usage that came before stays."""
    usage = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    pieces = [line(delta({"content": "Now"})), line(call(**NAMED)), BROKEN["cut off"], line(usage)]
    again = line(whole_message(content="Now", tool_calls=[SAID_AGAIN]))
    response = read(*pieces, again, b"data: [DONE]\n\n")
    assert response.message.parts == (Text("Now"), REMOVE_OLD)
    assert not response.lost
    assert response.finish is FinishReason.TOOL_CALLS
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (3, 2)
    finished_before = read(
        *pieces, line(ENDED), again.replace(b'"finish_reason": "tool_calls"', b'"finish_reason": null')
    )
    assert (calls_of(finished_before.message), finished_before.lost) == ((REMOVE_OLD,), False)
    assert finished_before.finish is FinishReason.TOOL_CALLS


@pytest.mark.promise("assembly:lost-piece")
def test_a_message_that_says_less_than_what_came_makes_nothing_good() -> None:
    """Proves: an empty message, a message without the calls that had begun, and a broken one leave the calls as they are."""
    pieces = [line(call(**NAMED)), BROKEN["cut off"], line(call(**LAST))]
    for said in (
        whole_message(content=None),
        whole_message(content="Removed."),
        whole_message(content=None, tool_calls=[]),
    ):
        response = read(*pieces, line(said), b"data: [DONE]\n\n")
        assert (states(response), response.lost) == ([ArgumentsState.LOST], True), said
    broken = line(whole_message(content=None, tool_calls=[SAID_AGAIN])).replace(b"old", b"o\xffld")
    response = read(*pieces, broken, b"data: [DONE]\n\n")
    assert ArgumentsState.COMPLETE not in states(response)
    assert response.lost


def test_a_first_chunk_that_is_lost_leaves_the_message_that_follows_whole() -> None:
    """Proves: a message behind a loss says everything, also if nothing had come before."""
    response = read(b'data: {"id":"c1","choi\n\n', line(whole_message(tool_calls=[SAID_AGAIN])), b"data: [DONE]\n\n")
    assert (calls_of(response.message), response.lost) == ((REMOVE_OLD,), False)


# --- what follows the end


@pytest.mark.promise("assembly:no-done")
@pytest.mark.parametrize("pieces", [1, 0], ids=["in one read", "event by event"])
def test_what_follows_the_end_mark_is_no_part_of_the_response(pieces: int) -> None:
    """Proves: a stream that a proxy sent twice gives its text, its calls and its usage once, though all chunks are alike."""
    usage = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    texts = [delta({"content": f"t{number} "}) for number in range(40)]
    once = stream_of(*texts, call(**NAMED), call(**MORE), call(**LAST), ENDED, usage)
    again = once.replace(b'"prompt_tokens": 3', b'"prompt_tokens": 4')
    response = read(once)
    assert len(calls_of(response.message)) == 1
    reads = [once + again] if pieces else [event + b"\n\n" for event in (once + again).split(b"\n\n")[:-1]]
    assert assemble(decode_stream(FAMILY, reads, profile=PROFILE)) == response
    broken = read(
        once, b'data: {"id":"c1","choi\n\n', line(delta({"content": {"odd": 1}})), line(delta({"content": "b"}))
    )
    assert broken == response


def test_usage_after_the_end_mark_counts_if_none_came_before() -> None:
    """Proves: a gateway that writes the usage last of all is not billed as unknown."""
    usage = {"id": "c1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    response = read(stream_of(delta({"content": "a"}), END), line(usage))
    assert isinstance(response.usage, Usage)
    assert (text_of(response.message), response.usage.input_tokens) == ("a", 3)


def test_an_error_after_the_end_mark_counts_if_no_finish_reason_came() -> None:
    """Proves: the error explains a response that did not say why it ended; a response that ended well stays as it is."""
    error = {"error": {"message": "overloaded", "type": "server_error"}}
    assert read(stream_of(delta({"content": "a"}), END), line(error)).fault is None
    fault = read(stream_of(delta({"content": "a"})), line(error)).fault
    assert fault is not None
    assert fault.message == "overloaded"


def test_pieces_between_the_finish_reason_and_the_end_mark_still_count() -> None:
    """Proves: assembly:late-args; only the end mark ends the response."""
    response = respond(call(**NAMED), ENDED, call(**MORE), call(**LAST))
    assert calls_of(response.message) == (REMOVE_OLD,)


def test_an_end_mark_torn_by_a_line_break_is_an_end_mark() -> None:
    """Proves: nothing is lost with it."""
    response = read(stream_of(delta({"content": "a"}), END, done=False), b"data: [DO\nNE]\n\n")
    assert (text_of(response.message), response.lost) == ("a", False)


# --- content of other kinds

TEXT_PART = {"type": "text", "text": "a"}
TEXTS = {
    "one part": TEXT_PART,
    "a list of parts": [TEXT_PART],
    "a list of texts": ["a"],
    "a part whose text is an object": [{"type": "text", "text": {"value": "a", "annotations": []}}],
    "an object of a text": {"text": "a"},
    "an object of content": {"type": "text", "text": {"content": "a"}},
}


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS)
def test_text_is_read_in_whatever_shape_it_comes(content: object) -> None:
    """Proves: one part, or a list of plain texts, where a text or a list of parts should stand, in a stream and in a body."""
    response = respond(delta({"content": content}), delta({"content": content}), END)
    assert (response.message.parts, response.lost, response.repairs) == ((Text("aa"),), False, ())
    told = assemble(FAMILY.decode_body(body(content=content), PROFILE, DEFAULT_LIMITS))
    assert (told.message.parts, told.lost, told.repairs) == ((Text("a"),), False, ())


REASONINGS = {
    "reasoning_text": {"reasoning_text": "Hm."},
    "reasoning_text beside another": {"reasoning_text": "Hm.", "reasoning_content": "Hm."},
    "an object": {"reasoning_content": {"text": "Hm."}},
    "an object of content": {"reasoning": {"type": "reasoning", "content": "Hm."}},
    "a thinking part": {"content": {"type": "thinking", "thinking": "Hm."}},
    "a thinking part of an object": {"content": [{"type": "thinking", "thinking": {"type": "text", "text": "Hm."}}]},
}


@pytest.mark.parametrize("fields", REASONINGS.values(), ids=REASONINGS)
def test_reasoning_is_read_in_whatever_field_it_comes(fields: dict[str, object]) -> None:
    """Proves: `reasoning_text` (Copilot), and objects in place of texts, are reasoning, in a stream and in a body."""
    response = respond(delta(fields), delta({"content": "a"}), END)
    assert (response.message.parts, response.lost) == ((Reasoning("Hm."), Text("a")), False)
    told = assemble(FAMILY.decode_body(body(**fields), PROFILE, DEFAULT_LIMITS))
    assert (told.message.parts, told.lost) == ((Reasoning("Hm."),), False)


@pytest.mark.promise("assembly:lost-piece")
@each(
    "fields",
    [
        {"content": {"odd": "b"}},
        {"content": True},
        {"content": ["b", 1.5]},
        {"content": [{"type": "text", "text": [1]}]},
        {"refusal": {"no": 1}},
        {"tool_calls": [7]},
        {"tool_calls": [{"index": "first", "function": {"arguments": "b"}}]},
        {"tool_calls": [{"index": 0, "function": {"name": ["b"], "arguments": "b"}}]},
        {"function_call": "b"},
    ],
)
def test_a_piece_in_a_shape_that_cannot_be_read_is_lost(fields: dict[str, object]) -> None:
    """Proves: what may have been a text or a piece of a call is not passed over as an odd field."""
    response = respond(delta({"content": "a"}), delta(fields), END)
    assert response.lost
    assert [repair.kind for repair in response.repairs if repair.kind == "content_skipped"] == ["content_skipped"]


@pytest.mark.parametrize(
    "fields", [{"content": None}, {"content": False}, {"content": {}}, {"tool_calls": {}}, {"tool_calls": ""}]
)
def test_an_empty_value_of_another_kind_says_nothing(fields: dict[str, object]) -> None:
    assert not respond(delta({"content": "a"}), delta(fields), END).lost


def test_the_beginning_of_a_glued_event_is_read_and_the_rest_is_lost() -> None:
    """Proves: a whole chunk before a broken one in the same event counts, and the loss is told."""
    glued = line(delta({"content": "b"})).rstrip() + b'{"id":"c1","choi\n\n'
    frames = decode_stream(FAMILY, [line(delta({"content": "a"})) + glued + line(END)], profile=PROFILE)
    response = assemble(frames)
    assert (text_of(response.message), response.lost) == ("ab", True)
    assert [frame.reaches_ended for frame in frames if isinstance(frame, Lost)] == [True]


def test_an_error_in_a_field_of_its_own_is_the_fault() -> None:
    """Recorded at llama.cpp behind GPUStack: `error: {...}` in place of `data: {"error": ...}`."""
    frames = decode_stream(
        FAMILY,
        [line(delta({"content": "a"})) + b'error: {"code":500,"message":"failed to decode"}\n\n'],
        profile=PROFILE,
    )
    assert frames[-1] == Faulted(Fault(kind=FaultKind.SERVER, message="failed to decode", status=500, code="500"))
    assert not any(isinstance(frame, Lost | Mended) for frame in frames)


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [None]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [None]}}]},
        *[
            {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": odd}}]}}]}
            for odd in (True, 5)
        ],
    ],
    ids=["no choice", "no call", "a truth value", "a number"],
)
def test_a_chunk_whose_piece_is_none_is_a_loss(chunk: object) -> None:
    """The place of a piece is there and the piece is not."""
    response = read(line(call(**NAMED)), line(chunk), line(call(**LAST)), line(ENDED), DONE)
    assert (states(response), response.lost) == ([ArgumentsState.LOST], True)


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("half", ["\ud83d", "\ude00"])
def test_half_of_a_character_loses_the_call_unless_the_other_half_comes(half: str) -> None:
    def with_pieces(*pieces: str) -> Response:
        calls = [call(index=0, function={"arguments": piece}) for piece in pieces]
        lines = [b"data: " + json.dumps(one).encode() + b"\n\n" for one in calls]
        return read(line(call(**NAMED)), *lines, line(call(**LAST)), line(ENDED), DONE)

    torn = with_pieces(half)
    assert (states(torn), torn.lost) == ([ArgumentsState.LOST], True)
    joined = with_pieces("\ud83d", "\ude00")
    assert (states(joined), joined.lost) == ([ArgumentsState.COMPLETE], False)
    assert calls_of(joined.message)[0].arguments == '{"path":"/srv/\U0001f600x"}'
    as_object = line_of_object({"path": "a" + half})
    assert states(read(as_object, line(ENDED), DONE)) == [ArgumentsState.LOST]


def line_of_object(arguments: object) -> bytes:
    """The arguments as an object, which some servers send, with halves of characters escaped."""
    chunk = call(index=0, id="call_1", function={"name": "remove", "arguments": arguments})
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@pytest.mark.promise("assembly:lost-piece")
def test_a_text_with_half_of_a_character_is_no_whole_answer() -> None:
    said = b"data: " + json.dumps(delta({"content": "costs \ud83d 5"})).encode() + b"\n\n"
    response = read(said, line(delta({}, "stop")), DONE)
    assert (text_of(response.message), response.lost) == ("costs \ufffd 5", True)
    response = read(
        b"data: " + json.dumps(delta({"content": "ends \ud83d"})).encode() + b"\n\n", line(delta({}, "stop")), DONE
    )
    assert response.lost


@pytest.mark.promise("assembly:lost-piece")
@each("tear", ["\n", "\r", "\x00", "\t"])
@each("at", ["argu|ments", "tool_|calls", "I w|ill", "/s|rv"])
def test_a_body_with_a_line_break_in_a_string_is_torn(tear: str, at: str) -> None:
    """In a key it hides what stands there; pretty printed JSON has line breaks between its tokens alone."""
    named = {"id": "a", "function": {"name": "remove", "arguments": '{"path":"/srv/x"}'}}
    text = body(content="I will.", tool_calls=[named]).decode()
    torn = text.replace(at.replace("|", ""), at.replace("|", tear), 1)
    assert torn != text
    response = assemble(FAMILY.decode_body(torn.encode(), PROFILE, DEFAULT_LIMITS))
    assert response.lost and ArgumentsState.COMPLETE not in states(response)
    pretty = json.dumps(json.loads(text), indent=1).encode()
    assert not assemble(FAMILY.decode_body(pretty, PROFILE, DEFAULT_LIMITS)).lost
