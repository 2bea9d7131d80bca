"""Server-sent events, read by the rules of WHATWG HTML section 9.2.6 wherever the network cuts."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.wire.profiles import Limits
from turnwise.wire.sse import LineTooLong, SseEvent, SseParser, encode_event

STREAM = (
    b"\xef\xbb\xbf: a comment\n\n"
    b"data: first\n\n"
    b"event: named\r\ndata:no space\r\ndata\r\ndata:  two spaces\r\n\r\n"
    b"id: 7\rretry: 10\runknown\rdata: \xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\r\r"
    b"event: without data\n\n"
    b"\n\n\n"
    b"data\n\n"
    b"data: name is gone\n\n"
    b"event: last\ndata: no blank line"
)
EVENTS = [
    SseEvent(b"first"),
    SseEvent(b"no space\n\n two spaces", "named"),
    SseEvent(b'"unknown'),
    SseEvent("é€😀".encode()),
    SseEvent(b""),
    SseEvent(b"name is gone"),
    SseEvent(b"no blank line", "last"),
]


def read(*pieces: bytes, limits: Limits | None = None) -> list[SseEvent]:
    parser = SseParser(limits=limits or Limits())
    return [event for piece in pieces for event in parser.feed(piece)] + parser.finish()


@pytest.mark.promise("assembly:split-anywhere")
def test_every_split_in_two_gives_the_same_events() -> None:
    """BOM, comments, all three line ends, several data lines and a missing last blank line are read alike at any cut."""
    assert read(STREAM) == EVENTS
    for at in range(len(STREAM) + 1):
        assert read(STREAM[:at], STREAM[at:]) == EVENTS, at


@pytest.mark.promise("assembly:split-anywhere")
@pytest.mark.promise("assembly:split-anywhere")
@each("first", [b"\xef\xbb\xbf", b": c", b"", b"\n", b"\r", b"id: 7\r\n", b"event: a"])
@each("line", [b"data: y%d\n\n", b"event: e\ndata: y%d\n\n", b"data: y%d\r\n\r\n"])
def test_a_stream_may_begin_with_anything_at_any_cut(first: bytes, line: bytes) -> None:
    """A BOM, half a comment, a field or a line end that comes in a read of its own belongs to what follows."""
    stream = first + b"".join([line % number for number in range(4)])
    expected = read(*[stream[at : at + 1] for at in range(len(stream))])
    for cut in range(1, len(stream)):
        assert read(stream[:cut], stream[cut:]) == expected, cut
        assert read(stream[:cut], *stream[cut:].splitlines(keepends=True)) == expected, cut


def test_one_byte_at_a_time_and_empty_pieces_give_the_same_events() -> None:
    assert read(*[STREAM[i : i + 1] for i in range(len(STREAM))]) == EVENTS
    assert read(*[piece for i in range(len(STREAM)) for piece in (b"", STREAM[i : i + 1], b"")]) == EVENTS


@pytest.mark.promise("assembly:split-anywhere")
@given(
    st.lists(
        st.sampled_from(
            [
                b"data: a\n\n",
                b"data: \n\n",
                b"data:\n\n",
                b"data: data: b\n\n",
                b"event: e\ndata: a\n\n",
                b"event: e\ndata: b\n\n",
                b"event: f\ndata: c\n\n",
                b"event: e\r\ndata: a\r\n\r\n",
                b"event: e\r\ndata: b\r\n\r\n",
                b"data: a\r\n\r\n",
                b"data: a\r\n\n",
                b"data: a\ndata: b\n\n",
                b"data: a\rdata: b\n\n",
                b"data: a\n\ndata: b\n\n",
                b": c\ndata: a\n\n",
                b": c\ndata: a data: b\n\n",
                b"event: e\n\n",
                b"event: e\n",
                b"data: a\n",
                b"data: a",
                b'data: {"a":"x',
                b'y"}',
                b"data",
                b'ta: {"',
                b': {"',
                b'event: e"data: {',
                b"error: {}\n",
                b"\n",
                b"\r",
                b"\n\n",
            ]
        ),
        max_size=8,
    )
)
def test_events_that_come_one_by_one_are_those_of_the_whole(chunks: list[bytes]) -> None:
    """What the parser learns from one chunk about the next changes nothing."""
    assert read(*chunks) == read(b"".join(chunks))


@pytest.mark.promise("assembly:split-anywhere")
@given(
    st.lists(
        st.sampled_from(
            [b"data: a", b"data:", b": c", b"event: e", b"\r", b"\n", b"\r\n", b"x", b"\xff", b'{"', b'"}', b"data"]
        )
    ),
    st.data(),
)
def test_any_bytes_at_any_split_give_the_same_events(tokens: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(tokens)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[a:b] for a, b in itertools.pairwise(edges)]
    assert read(*pieces) == read(stream)


@pytest.mark.promise("assembly:split-anywhere")
@given(
    st.sampled_from([(b"data: ", b"\n\n"), (b"event: e\ndata: ", b"\n\n"), (b"event: e\r\ndata: ", b"\r\n\r\n")]),
    st.lists(
        st.sampled_from(
            [
                *[b"one", b"two three"] * 4,
                *[b"", b" four", b"a\rb", b"five\ndata: six", b"x\n\n: c\n\ndata: y"],
                *[b'{"a":"x\ny"}', b'{"a":\n1}', b'{"a":"x\n\ny"}', b'\n{"a":1}'],
            ]
        ),
        max_size=20,
    ),
    st.data(),
)
def test_events_of_one_form_are_those_that_are_read_byte_by_byte(
    form: tuple[bytes, bytes], values: list[bytes], data: st.DataObject
) -> None:
    """Whole reads of like events are taken apart at once; line by line gives the same, wherever reads are cut and whatever
    stands between the like ones."""
    head, end = form
    stream = b"".join([head + value + end for value in values])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=3)))
    pieces = [stream[a:b] for a, b in itertools.pairwise([0, *cuts, len(stream)])]
    slowly = read(*[stream[i : i + 1] for i in range(len(stream))])
    assert read(head + b"first" + end, *pieces)[1:] == slowly
    assert read(*pieces) == slowly


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "message_start", "x y"]),
            st.text(st.characters(codec="utf-8", exclude_characters="\r\n")),
        )
    )
)
def test_what_is_encoded_is_read_back(events: list[tuple[str, str]]) -> None:
    stream = b"".join([encode_event(text.encode(), name=name) for name, text in events])
    assert read(stream) == [SseEvent(text.encode(), name) for name, text in events]


@pytest.mark.promise("assembly:bounded")
@each("step", [1, 3, 1000])
@each(
    "long",
    [
        b"data: " + b"x" * 100 + b"\n\n",
        b": " + b"x" * 100 + b"\n",
        b"x" * 101,
        b"data: " + b"x" * 40 + b"\ndata: " + b"x" * 40 + b"\ndata: " + b"x" * 40 + b"\n\n",
        b"data\n" * 102,
    ],
    ids=["data line", "comment", "line without end", "event of several lines", "event of empty lines"],
)
def test_a_line_or_event_past_the_limit_is_a_named_error_at_any_split(long: bytes, step: int) -> None:
    """What came before it is not lost, however the bytes were cut."""
    stream = b"data: before\n\n" + long + b"data: after\n\n"
    parser = SseParser(limits=Limits(line_bytes=100))
    events: list[SseEvent] = []
    with pytest.raises(LineTooLong, match="longer than 100 bytes"):
        for at in range(0, len(stream), step):
            try:
                events += parser.feed(stream[at : at + step])
            except LineTooLong as error:
                events += error.events
                raise
    assert events == [SseEvent(b"before")]


@pytest.mark.promise("assembly:bounded")
def test_a_line_just_at_the_limit_passes() -> None:
    line = b"data: " + b"x" * 94
    assert read(line + b"\n\n", limits=Limits(line_bytes=100)) == [SseEvent(b"x" * 94)]


class CountingBytes(bytes):
    """Bytes that count how many of them were searched for the end of a line."""

    searched_bytes = 0

    def split(self, *args: object) -> list[bytes]:  # type: ignore[override]
        CountingBytes.searched_bytes += len(self)
        return bytes(self).split(*args)  # type: ignore[arg-type]

    def __contains__(self, key: object) -> bool:
        CountingBytes.searched_bytes += len(self) if key == b"\n" else 0
        return key in bytes(self)  # type: ignore[operator]


@pytest.mark.promise("assembly:bounded")
def test_each_byte_is_searched_once_however_long_the_line_grows() -> None:
    """A line in 20,000 pieces costs one look at each byte: the pieces are joined once, when the line ends."""
    CountingBytes.searched_bytes = 0
    parser = SseParser()
    parser.feed(b"data: ")
    for _ in range(20_000):
        assert parser.feed(CountingBytes(b"0123456789")) == []
    assert CountingBytes.searched_bytes == 200_000
    assert parser.feed(b"\n\n") == [SseEvent(b"0123456789" * 20_000)]


@pytest.mark.promise("assembly:bounded", "assembly:split-anywhere")
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_pieces_of_a_line_that_hold_no_line_end_are_kept_like_any_other(end: bytes) -> None:
    """They are kept without being taken apart. That changes neither the events nor the byte at which a line is too long."""
    stream = b"data: {" + end + b"data: }" + end * 2 + b"data: x" + end * 2
    for size in range(1, len(stream)):
        assert read(*[stream[at : at + size] for at in range(0, len(stream), size)]) == read(stream)
    parser = SseParser(limits=Limits(line_bytes=100))
    parser.feed(b"data: ")
    for _ in range(94):
        parser.feed(b"x")
    with pytest.raises(LineTooLong, match="a line"):
        parser.feed(b"x")


@pytest.mark.promise("assembly:bounded")
def test_short_lines_of_one_event_count_with_what_they_cost() -> None:
    """24 MB of `data: x` lines held 290 MB of memory before the 8 MiB of their values were reached."""
    assert read(b"data: x\n" * 90 + b"\n", limits=Limits(line_bytes=4000)) == [SseEvent(b"\n".join([b"x"] * 90))]
    with pytest.raises(LineTooLong, match="an event"):
        read(b"data: x\n" * 110 + b"\n", limits=Limits(line_bytes=4000))


class SlicedBytes(bytes):
    """Bytes that note the longest piece that was cut out of them."""

    longest = 0

    def __getitem__(self, key: object) -> bytes:  # type: ignore[override]
        found = bytes(self)[key]  # type: ignore[index]
        SlicedBytes.longest = max(SlicedBytes.longest, len(found))
        return found


@pytest.mark.promise("assembly:bounded")
def test_a_large_chunk_is_read_in_slices() -> None:
    """The lines of a body of many MB do not all exist at once, and nothing is lost between two slices."""
    SlicedBytes.longest = 0
    lines = [b"event: e\r\ndata: %d\r\n\r\n" % number for number in range(20_000)]
    parser = SseParser()
    found = parser.feed(SlicedBytes(b"".join(lines)))
    assert found == [SseEvent(b"%d" % number, "e") for number in range(20_000)]
    assert SlicedBytes.longest == 64 * 1024
    with pytest.raises(LineTooLong) as raised:
        SseParser(limits=Limits(line_bytes=100)).feed(b"".join(lines) + b"x" * 200)
    assert len(raised.value.events) == 20_000


# --- events that a stray line break tore

HEALTHY = [b'{"n":1}', b'{"n":2}']
CONTENT = "some id: 7 event: e : c data: d, error: {} [1] retry: 3"
WHOLE = {"type": "delta", "index": 0, "text": CONTENT, "more": [1, {"a": None}]}


def is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.promise("assembly:lost-piece")
@each("end", [b"\n\n", b"\r\n\r\n"])
@each("head", [b"data: ", b"data:", b"event: e\ndata: "])
@each("tear", [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"])
def test_an_event_torn_at_any_place_is_read_whole_or_seen_to_be_broken(tear: bytes, head: bytes, end: bytes) -> None:
    """Proves: a stray line break anywhere in an event, its field's name included, leaves the event as it was, or something in
    its place that is no JSON. No decoder can take what is left for an event that brought less."""
    torn = head + json.dumps(WHOLE).encode()
    for at in range(1, len(torn)):
        stream = head + HEALTHY[0] + end + torn[:at] + tear + torn[at:] + end + head + HEALTHY[1] + end
        found = [event.data for event in read(stream)]
        assert found[0] == HEALTHY[0], at
        assert found[-1] == HEALTHY[1], at
        left = [text for text in found[1:-1] if text.strip()]
        assert [text for text in left if is_json(text) and json.loads(text) != WHOLE] == [], at
        assert left, at
        assert found == [event.data for event in read(*[stream[i : i + 1] for i in range(len(stream))])]


@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("before", [b"event: e", b": keep-alive", b"id: 7", b"retry: 3000"])
def test_an_event_glued_to_the_line_before_it_is_not_taken_for_that_line(before: bytes) -> None:
    """Proves: a lost line end makes an event part of a name, a comment or an id; it comes out as an event that is no JSON."""
    assert read(b"data: a\n\n" + before + b'data: {"n":1}\n\ndata: b\n\n') == [
        SseEvent(b"a"),
        SseEvent(before + b'data: {"n":1}'),
        SseEvent(b"b"),
    ]


@pytest.mark.promise("assembly:lost-piece", "assembly:split-anywhere")
@each(
    "rest",
    [
        *[b"event: a\nd", b"event: a\nda", b"event: a\ndata", b"event:", b"event: ", b"event: a\ndata: "],
        *[b"e", b"even", b"nt: a\nda", b"_delta\n", b"ta: a\n", b"data: ", b"data: \n", b"dat\n", b'data: {"n":0}\n'],
    ],
)
@each("following", [b'event: a\ndata: {"n":1}\n\n', b'data: {"n":1}\n\n'])
def test_what_is_left_of_lost_bytes_is_a_piece_that_cannot_be_read(rest: bytes, following: bytes) -> None:
    """Proves: bytes that are lost up to an event's end, and leave the beginning of a line or its end before the next event,
    leave something in the place of what they took, or another name than the event's data has: both are losses to a decoder."""
    stream = b'data: {"n":0}\n\n' + rest + following
    found = read(stream)
    odd = [event for event in found if event.data and not is_json(event.data)]
    assert odd or found[-1].name not in ("", "a"), found
    assert found == read(*[stream[at : at + 1] for at in range(len(stream))])


def test_a_stream_without_blank_lines_is_read_as_before() -> None:
    """Proves: where the first event does not end with a blank line, that none stands between two events is the server's way."""
    named = b'event: a\ndata: {"n":1}\nevent: b\ndata: {"n":2}\n\n'
    assert read(named) == [SseEvent(b'{"n":1}', "a"), SseEvent(b'{"n":2}', "b")]
    assert read(b'data: {"n":1}\ndata: {"n":2}\n\n') == [SseEvent(b'{"n":1}\n{"n":2}')]


def test_two_names_are_two_events() -> None:
    """Proves: where the blank line between two events is lost, each keeps its own name."""
    stream = b'event: a\ndata: {"n\nevent: b\ndata: {"n":1}\n\ndata: c\nevent: d\n\n'
    assert read(stream) == [SseEvent(b'{"n', "a"), SseEvent(b'{"n":1}', "b"), SseEvent(b"c", "d")]


@pytest.mark.promise("assembly:split-anywhere")
def test_comments_unknown_fields_and_bare_words_are_no_events() -> None:
    """Proves: what the format lets a client ignore is ignored, a comment of JSON too."""
    noise = b'foo: bar\nping\n: still working\n: {"status": "working"}\n\nx-note: 7\n\n'
    assert read(b"data: a\n" + noise + b"data: b\n\n") == [SseEvent(b"a"), SseEvent(b"b")]


def test_a_page_in_place_of_a_stream_has_no_events() -> None:
    """Proves: the lines of an error page, or of a body over many lines, are not taken for torn events."""
    page = b'<html>\n<a href="x">y</a>\n{"error":\n"busy"}\n' * 20
    assert read(page) == []


def test_an_error_as_a_field_of_its_own_is_an_event() -> None:
    """Recorded at llama.cpp behind GPUStack: `error: {...}` in place of `data: {...}`."""
    assert read(b'data: a\n\nerror: {"code": 500}\n\n') == [SseEvent(b"a"), SseEvent(b'{"code": 500}', "error")]


@each(
    ("rest", "expected"),
    [
        (b"", False),
        (b"\n", False),
        (b" ", False),
        (b": kee", True),
        (b"dat", True),
        (b"data:", True),
        (b'data: {"a":', True),
        (b'data: {"a":1}', False),
        (b'data: {"a":1}\n', False),
        (b'data: {"a":1}\r', False),
        (b'data: {"a":\ndata: 1}', False),
        (b'data: {"a":\n', True),
        (b"data: [DONE]", False),
        (b"data: [DO", True),
        (b"event: x", True),
        (b"event: x\n", True),
        (b'event: x\ndata: {"a":1}', False),
    ],
)
def test_an_unfinished_line_or_event_shows_that_more_was_coming(rest: bytes, expected: bool) -> None:
    """Before the end and after it, and in pieces of one byte. Data that is whole JSON was all of the last event."""
    stream = b'data: {"b":2}\n\n' + rest
    for pieces in ([stream], [stream[at : at + 1] for at in range(len(stream))]):
        parser = SseParser()
        for piece in pieces:
            parser.feed(piece)
        before = parser.breaks_off()
        parser.finish()
        assert (before, parser.breaks_off()) == (expected, expected)
