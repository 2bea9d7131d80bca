"""What of a Gemini response did not arrive is told, and nothing runs that it may belong to (promise assembly:lost-piece).

Source: issue "Nothing runs that did not arrive whole", lines 1 and 4; the streams are recorded, or made of recorded shapes.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import damage
import recordings
from turnwise.assembly.response_reading import read_body
from turnwise.testing.wire_conformance import assemble, check_every_split, decode_stream
from turnwise.vocab import ArgumentsState, FinishReason, Lost, Mended, Response, calls_of, text_of
from turnwise.wire.gemini import FAMILY
from whole_streams import read_stream
from wire.gemini_streams import NAME, PROFILE, array, call, chunk, piece, response_from, sse

COMPLETE, LOST = ArgumentsState.COMPLETE, ArgumentsState.LOST

BEGIN = chunk(call("remove", id="c", willContinue=True))
PIECES = [
    chunk(call(partialArgs=[piece("$.path", stringValue=text, more=text != "x")], willContinue=True))
    for text in ("/srv/", "old/", "x")
]
END = chunk(call(), finish="STOP")


def read(*streams: bytes) -> Response:
    return read_stream([b"".join(streams)], family=FAMILY, profile=PROFILE)


def states(response: Response) -> list[ArgumentsState]:
    return [each.state for each in calls_of(response.message)]


def kinds(response: Response) -> list[str]:
    return [repair.kind for repair in response.repairs if repair.kind != "id_missing"]


# ---- a call


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_does_not_run_when_a_piece_in_its_middle_is_lost() -> None:
    """What is left is whole JSON: `{"path": "/srv/x"}`. The event was broken off by a stray newline."""
    broken = sse(PIECES[1]).replace(b"old/", b"ol\nd/")
    response = read(sse(BEGIN, PIECES[0]), broken, sse(PIECES[2], END))
    assert states(response) == [LOST]
    assert (response.lost, kinds(response)[0]) == (True, "undecodable_chunk")
    assert states(read(sse(BEGIN, *PIECES, END))) == [COMPLETE]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("lost", range(5))
def test_whichever_chunk_of_a_call_is_lost_it_does_not_run(lost: int) -> None:
    """The name, any piece, the end that carries no `willContinue`: events and elements of an array alike."""
    chunks = [BEGIN, *PIECES, END]
    text = json.dumps(chunks[lost]).encode()
    events = sse(*chunks).replace(text, text[:-1])
    elements = b"[" + b",\n".join([json.dumps(each).encode() for each in chunks]).replace(text, text[1:]) + b"]"
    for stream in (events, elements):
        response = read(stream)
        assert response.lost
        assert COMPLETE not in states(response)


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_that_had_ended_may_have_lost_a_late_piece() -> None:
    """Pieces may come late here. A call that begins behind the loss, with an id, is whole; one without an id may be the rest of
    another."""
    calls = [call("a", id="1", args={"x": 1}), call("b", id="2", args={"x": 1})]
    response = read(sse(chunk(calls[0])), b"data: {\r\n\r\n", sse(chunk(calls[1]), chunk(finish="STOP")))
    assert states(response) == [LOST, COMPLETE]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    ("found", "by", "kind"),
    [
        (b"old", b"o\xffd", "invalid_utf8"),
        (b"old", b"o\\ud83dd", "lone_surrogate"),
        (b"old", b"o\x01d", "control_character"),
    ],
)
def test_arguments_with_a_damaged_character_do_not_run(found: bytes, by: bytes, kind: str) -> None:
    """Invalid UTF-8, half of a surrogate pair, a raw control character: in pieces, in whole arguments, in a body."""
    whole = chunk(call("remove", id="c", args={"path": "/srv/old"}), finish="STOP")
    body, _ = read_body(json.dumps(whole).encode().replace(found, by), family=FAMILY, profile=PROFILE)
    pieces = read(sse(BEGIN, *PIECES, END).replace(found, by))
    for response in (body, pieces, read(sse(whole).replace(found, by)), read(array(whole).replace(found, by))):
        assert (states(response), response.lost, kinds(response)) == ([LOST], True, [kind])


@pytest.mark.promise("assembly:lost-piece")
def test_a_newline_inside_a_string_of_an_array_is_no_part_of_it() -> None:
    """The lenient reader takes raw control characters, which Google escapes: this one came from outside."""
    stream = array(chunk(call("remove", id="c", args={"path": "/srv/old"}), finish="STOP")).replace(
        b"/srv/", b"/srv\n/"
    )
    assert (states(read(stream)), kinds(read(stream))) == ([LOST], ["control_character"])


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "pieces",
    [
        [piece("$.a[0]", stringValue="x"), piece("$.a[2]", stringValue="y")],
        [piece("$.path", stringValue="/srv/", more=True), piece("$.mode", stringValue="all")],
        [piece("$.path", stringValue="/srv/", more=True)],
    ],
)
def test_pieces_that_show_a_gap_mark_their_call_alone(pieces: list[dict[str, Any]]) -> None:
    """An index is missing; more of a string was announced, and another value came, or the end: a chunk was swallowed, and it
    was one of this call."""
    other = chunk({"text": "Now."}, call("read", id="r", args={}))
    response = response_from(other, chunk(call("remove", id="c", partialArgs=pieces)), chunk(finish="STOP"))
    assert (states(response), response.lost) == ([COMPLETE, LOST], True)
    assert kinds(response) == ["unreadable_argument"]


def test_values_that_take_turns_are_whole_once_each_has_ended() -> None:
    """More was announced of both, and came."""
    pieces = [
        piece("$.a", stringValue="1", more=True),
        piece("$.b", stringValue="2", more=True),
        piece("$.a", stringValue="1"),
        piece("$.b", stringValue="2"),
    ]
    response = response_from(chunk(call("f", id="c", partialArgs=pieces)), chunk(finish="STOP"))
    [made] = calls_of(response.message)
    assert (json.loads(made.arguments), made.state, response.lost) == ({"a": "11", "b": "22"}, COMPLETE, False)


# ---- text, bodies, the array


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(
    "broken", [b'data: {"candidates":[{"con\r\n\r\n', b'data: {"candidates":[{"content":{"parts":[5]}}]}\n\n']
)
def test_a_text_that_lost_a_piece_says_so(broken: bytes) -> None:
    """A chunk, or one part of a chunk, that cannot be read."""
    response = read(sse(chunk({"text": "a"})), broken, sse(chunk({"text": "c"}, finish="STOP")))
    assert (text_of(response.message), response.lost) == ("ac", True)


@pytest.mark.parametrize(
    "noise", [b": x\r\n\r\n", b"data: still working\r\n\r\n", b"data:\r\n\r\n", b"data: 5\r\n\r\n"]
)
def test_noise_between_chunks_loses_nothing(noise: bytes) -> None:
    """Comments, bare words, no data, whole JSON of another kind."""
    other = b'data: {"type":"ping"}\r\n\r\n'
    response = read(sse(BEGIN), noise, sse(*PIECES[:2]), other, sse(PIECES[2]), noise, sse(END))
    assert (states(response), response.lost) == ([COMPLETE], False)


ELEMENTS = (
    chunk({"text": "a"}),
    chunk({"text": "}], {"}, call("f", id="c", args={"x": "]}"})),
    chunk({"text": "b"}, finish="STOP", usageMetadata={"promptTokenCount": 1}),
)


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("element", range(3))
def test_every_brace_and_quote_that_an_array_loses_is_told(element: int) -> None:
    """Each in turn, so that the element is no JSON: elements end early, swallow the ones behind them, or come to nothing. Where
    the first brace is lost, what is left between the elements is told."""
    texts = [json.dumps(each).encode() for each in ELEMENTS]
    text = texts[element]
    for at, byte in enumerate(text):
        rest = text[:at] + text[at + 1 :]
        if byte in b'{}"' and not damage.is_json(rest):
            stream = b"[" + b"\n,\r\n".join([*texts[:element], rest, *texts[element + 1 :]]) + b"\n]\n"
            response = read(stream)
            assert response.lost or response.fault is not None, rest
            assert COMPLETE not in states(response) or element == 0, rest
    check_every_split(FAMILY, b"[" + texts[0] + b"," + texts[1][1:] + b"," + texts[2][:-1], profile=PROFILE)


@pytest.mark.promise("assembly:lost-piece")
def test_an_array_that_stops_inside_an_element_lost_it() -> None:
    """A torn last element; the same array without its bracket lost nothing."""
    stream = array(*ELEMENTS)
    assert read(stream[: stream.rfind(b'"promptTokenCount"')]).lost
    whole = read(stream[: stream.rfind(b"]")])
    assert (states(whole), whole.lost) == ([COMPLETE], False)


@pytest.mark.promise("assembly:bounded")
def test_what_stands_between_elements_is_bounded() -> None:
    """Like the elements themselves."""
    frames = decode_stream(FAMILY, [b"[" + b"x" * (9 * 1024 * 1024)], profile=PROFILE)
    assert [type(frame).__name__ for frame in frames] == ["Faulted"]


# ---- what follows the end


@pytest.mark.parametrize("write", [sse, array])
def test_a_stream_that_a_proxy_sent_twice_is_one(write: Any) -> None:
    """Twice, three times, and broken off in the second time; late chunks belong to it."""
    chunks = (BEGIN, *PIECES, END, {"usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 1}})
    once = read(write(*chunks))
    assert (states(once), once.usage is None) == ([COMPLETE], False)
    for stream in (write(*chunks) * 2, write(*chunks) * 3, write(*chunks, *chunks[:3]), write(*chunks, *chunks)):
        assert read(stream) == once


def test_a_long_stream_that_came_twice_is_one_and_another_like_it_is_not() -> None:
    """Chunks that differ in one string are told apart by the strings together: at the end of their run it is known."""
    words = [chunk({"text": f"word {number} "}) for number in range(60)]
    end = chunk({"text": "."}, finish="STOP")
    once = read(sse(*words, end))
    for size in (400, 10**6):
        stream = sse(*words, end) * 2
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert read_stream(pieces, family=FAMILY, profile=PROFILE) == once
    assert read(sse(*words, end, *words[:50])) == once
    other = [*words[:40], chunk({"text": "word fourty "}), *words[41:]]
    both = "".join([f"word {number} " for number in range(60)]) + "."
    assert text_of(read(sse(*words, end, *other, end)).message) == both + both.replace("word 40 ", "word fourty ")


def test_a_body_that_came_twice_is_one() -> None:
    """Glued, as a proxy writes it."""
    body = json.dumps(chunk({"text": "hi"}, finish="STOP")).encode()
    response, _ = read_body(body * 2, family=FAMILY, profile=PROFILE)
    assert (text_of(response.message), response.lost) == ("hi", False)


def test_a_late_chunk_counts_even_where_it_looks_like_the_first() -> None:
    """What was held back as a repetition is read as it stands once it is refuted."""
    first, last = chunk({"text": "a"}), chunk({"text": "b"}, finish="STOP")
    assert text_of(read(sse(first, last, first, chunk({"text": "c"}))).message) == "abac"
    assert text_of(read(sse(first, last, first, first, last, first)).message) == "aba"
    late = chunk(call("f", id="c", args={}))
    assert states(read(sse(first, last, late))) == [COMPLETE]


@pytest.mark.parametrize("after", [sse(chunk({"text": "x"})), b"data: {torn\n\n", sse({"error": {"code": 500}})])
def test_nothing_counts_after_done(after: bytes) -> None:
    """Gateways add the end mark of another family, and it means what it says."""
    once = read(sse(chunk({"text": "a"}, finish="STOP")))
    assert read(sse(chunk({"text": "a"}, finish="STOP")), b"data: [DONE]\n\n", after) == once


def test_a_text_without_a_finish_reason_has_no_end_of_its_own() -> None:
    """A call has: it says that nothing more of it comes."""
    assert not read(sse(chunk({"text": "a"}))).is_closed
    assert not read(sse(chunk(call("f", id="c", args={})), chunk({"text": "a"}))).is_closed
    assert read(sse(chunk({"text": "a"}), chunk(call("f", id="c", args={})))).is_closed
    assert read(sse(BEGIN, *PIECES)).is_closed is False
    whole = read(sse(chunk({"text": "a"}, finish="STOP")))
    assert (whole.finish, whole.is_closed, whole.lost) == (FinishReason.STOP, False, False)


# ---- every recorded stream with a call


def arrays_of(chunks: list[bytes]) -> Iterator[list[bytes]]:
    """The elements of the stream as an array, compact and as the API indents it."""
    yield chunks
    yield [json.dumps(json.loads(text), indent=2, ensure_ascii=False).encode() for text in chunks]


def damaged_elements(elements: list[bytes], *, picks: random.Random, count: int) -> Iterator[bytes]:
    """Arrays with one byte of one element lost or added, so that the element is no JSON any more."""
    for _ in range(count):
        number = picks.randrange(len(elements))
        text = elements[number]
        at = picks.choice([at for at, byte in enumerate(text) if byte in b'{}"'])
        for changed in (
            text[:at] + text[at + 1 :],
            text[: at + 1] + b"\n" + text[at + 1 :],
            text[:at] + b"\xff" + text[at:],
        ):
            if not damage.is_json(changed):
                yield b"[" + b"\n,\r\n".join([*elements[:number], changed, *elements[number + 1 :]]) + b"\n]"


@pytest.mark.costly
@pytest.mark.promise("assembly:lost-piece")
def test_no_recorded_stream_with_one_damaged_element_says_more_than_was_recorded(corpus: Path) -> None:
    """As events each one in each way; as an array, compact and indented, at random places (the same ones each time). What is not
    told as lost is what was recorded; noise changes nothing; sent twice it is what it was."""
    tried = 0
    for row in recordings.of_family(corpus, NAME):
        if not row.expected["tool_calls"]:
            continue
        stream = damage.take_apart(row.path.read_bytes())
        want = damage.read(row, stream.events)
        assert damage.read(row, [*stream.events, *stream.events]) == want, row.file
        for noisy in damage.noisy(stream):
            assert damage.read(row, noisy.chunks) == want, (row.file, noisy.kind)
        bodies = list(damage.broken(stream))
        for each in bodies:
            check(row, damage.read(row, each.chunks), want, where=f"{each.kind}, event {each.at}")
        if (texts := [json.dumps(found, ensure_ascii=False).encode() for found in payloads(row)]) and want.calls:
            for elements in arrays_of(texts):
                assert damage.read(row, [b"[" + b",".join(elements) + b"]"]) == want, row.file
                for body in damaged_elements(elements, picks=random.Random(row.file), count=12):
                    check(row, damage.read(row, [body]), want, where=body[:2000].decode("utf-8", "replace"))
                    tried += 1
        tried += len(bodies)
    assert tried > 3_000


def payloads(row: recordings.Row) -> list[dict[str, Any]]:
    body = row.path.read_bytes()
    if body.lstrip().startswith(b"["):
        return json.loads(body)
    return [found for event in damage.take_apart(body).events if (found := damage.payload(event)) is not None]


def check(row: recordings.Row, got: damage.Outcome, want: damage.Outcome, *, where: str) -> None:
    assert damage.faults(got, want=want) == [], (row.file, where)
    assert got.lost or got == want, (row.file, where)


def test_losses_are_told_where_they_show() -> None:
    """A loss that a call's own pieces show comes before the call's end; what cannot have been a piece is no loss."""
    frames = decode_stream(FAMILY, [sse(BEGIN), b"data: ping\n\n", b"data: {\n\n", sse(END)], profile=PROFILE)
    assert [type(frame) for frame in frames if isinstance(frame, Lost | Mended)] == [Mended, Lost]
    assert assemble(frames).lost


@pytest.mark.promise("assembly:lost-piece")
def test_a_call_whose_arguments_stand_under_another_name_does_not_run() -> None:
    odd = chunk(call("remove", id="c", arguments={"path": "/srv/x"}))
    assert states(read(sse(odd, END))) == [LOST]


def test_a_call_beside_a_field_that_is_not_known_is_a_call() -> None:
    beside = chunk({**call("remove", id="c", args={"path": "x"}), "newField": {"a": 1}}, finish="STOP")
    (found,) = calls_of(read(sse(beside)).message)
    assert (found.name, found.arguments, found.state) == ("remove", '{"path":"x"}', COMPLETE)
    inside = chunk(call("remove", id="c", args={"path": "x"}, newField=1), finish="STOP")
    assert states(read(sse(inside))) == [COMPLETE]
