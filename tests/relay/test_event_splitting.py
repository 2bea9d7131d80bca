"""The bytes of a stream are cut into those of its events, wherever the network cuts them."""

from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.relay.event_reader import EventSplitter, completed
from turnwise.testing.frames import every_split
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits

EVENTS = [b"data: 1\n\n", b": a comment\r\n\r\n", b"event: x\ndata: {}\n\r\n", b"data: 2\r\r", b"data: 3\r\n\n"]


def test_events_are_the_same_at_every_split() -> None:
    """Each event keeps its own blank line, in whichever of the forms that server-sent events allow."""
    whole = b"".join(EVENTS)
    for pieces in every_split(whole):
        splitter = EventSplitter(DEFAULT_LIMITS)
        found = [event for piece in pieces for event in splitter.feed(piece)]
        assert [event.strip() for event in found if event.strip()] == [event.strip() for event in EVENTS], pieces
        assert b"".join(found) + splitter.rest() == whole


@given(st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"data: x", b"\xff", b""]), max_size=40))
def test_no_byte_is_lost_or_added(pieces: list[bytes]) -> None:
    """What comes out is what went in, in order."""
    splitter = EventSplitter(DEFAULT_LIMITS)
    out = b"".join([event for piece in pieces for event in splitter.feed(piece)]) + splitter.rest()
    assert out == b"".join(pieces)


def test_an_event_without_an_end_is_handed_out_past_the_limit() -> None:
    """The decoder refuses it then; nothing of it is kept."""
    splitter = EventSplitter(Limits(line_bytes=100))
    assert splitter.feed(b"data: " + b"x" * 50) == []
    assert splitter.feed(b"x" * 60) == [b"data: " + b"x" * 110]
    assert splitter.rest() == b""


@each("end", [b"", b"\n", b"\r", b"\r\n", b"\r\n\r", b"\n: one\n"])
@each("data", [b'{"a":[1]}', b"[]", b"[DONE]", b'{"a":\ndata: 1}'])
def test_an_event_that_lacks_nothing_but_its_blank_line_gets_it(data: bytes, end: bytes) -> None:
    whole = completed(b"id: 1\ndata: " + data + end)
    assert whole is not None
    assert EventSplitter(DEFAULT_LIMITS).feed(whole) == [whole]
    assert whole.startswith(b"id: 1\ndata: " + data)


@each(
    "rest",
    [
        b"",
        b"\n",
        b": one",
        b"event: a\n",
        b"data: ",
        b"data: 1",
        b'data: "a"',
        b"data: [DONE",
        b'data: {"a":1}\ndata',
        b'data: {"a":1}\nid: 1',
        b'{"a":1}',
        b'data: {"a":1}{',
        b'data: {"a":1}\nwrong\n',
    ],
)
def test_a_fragment_is_no_event(rest: bytes) -> None:
    """A number may have had more digits, a line more characters."""
    assert completed(rest) is None
