"""Server-sent events, read by the rules of WHATWG HTML section 9.2.6 wherever the network cuts."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.wire.limits import Limits
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
@pytest.mark.parametrize("first", [b"\xef\xbb\xbf", b": c", b"", b"\n", b"\r", b"id: 7\r\n", b"event: a"])
@pytest.mark.parametrize("line", [b"data: y%d\n\n", b"event: e\ndata: y%d\n\n", b"data: y%d\r\n\r\n"])
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
    st.lists(st.sampled_from([b"data: a", b"data:", b": c", b"event: e", b"\r", b"\n", b"\r\n", b"x", b"\xff"])),
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
            [*[b"one", b"two three"] * 4, b"", b" four", b"a\rb", b"five\ndata: six", b"x\n\n: c\n\ndata: y"]
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
@pytest.mark.parametrize("step", [1, 3, 1000])
@pytest.mark.parametrize(
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
    """Bytes that count how many of them were split into lines."""

    split_bytes = 0

    def split(self, *args: object) -> list[bytes]:  # type: ignore[override]
        CountingBytes.split_bytes += len(self)
        return bytes(self).split(*args)  # type: ignore[arg-type]


@pytest.mark.promise("assembly:bounded")
def test_each_byte_is_searched_once_however_long_the_line_grows() -> None:
    """A line in 20,000 pieces costs one look at each byte: the pieces are joined once, when the line ends."""
    CountingBytes.split_bytes = 0
    parser = SseParser()
    parser.feed(b"data: ")
    for _ in range(20_000):
        assert parser.feed(CountingBytes(b"0123456789")) == []
    assert CountingBytes.split_bytes == 200_000
    assert parser.feed(b"\n\n") == [SseEvent(b"0123456789" * 20_000)]


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
