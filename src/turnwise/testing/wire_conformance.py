"""One suite for every wire family: what each of them promises whatever its format looks like.

Each `check_` takes the family (and what else it needs), and raises AssertionError where the promise does not hold. Run
them from your test framework; the families of this package run them in `tests/wire/`.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from turnwise.assembly.response import Assembler
from turnwise.testing.frames import byte_by_byte, every_split, frames_of
from turnwise.vocab import Fault, Faulted, FaultKind, Finished, Frame, Message, Request, Response
from turnwise.wire.family import BadRequest, Family
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile

__all__ = [
    "assemble",
    "check_endless_line",
    "check_every_split",
    "check_fault_round_trip",
    "check_foreign_answer_is_a_protocol_fault",
    "check_foreign_bytes_never_raise",
    "check_long_response",
    "check_prefix_stable",
    "check_request_round_trip",
    "check_response_round_trip",
    "decode_stream",
    "encode_stream",
    "frames_of",
]

PIECE_CHARACTERS = 5
"""How much text stands in one delta: several deltas for most values, some of them inside a JSON escape."""


def decode_stream(
    family: Family, pieces: Iterable[bytes], *, profile: Profile, limits: Limits = DEFAULT_LIMITS
) -> list[Frame]:
    """Every frame that the family's decoder makes of a stream that arrives in these pieces."""
    decoder = family.stream_decoder(profile, limits)
    frames: list[Frame] = []
    for piece in pieces:
        frames += decoder.feed(piece)
    return frames + decoder.finish()


def assemble(frames: Iterable[Frame], *, tool_names: frozenset[str] = frozenset()) -> Response:
    """The response that these frames make."""
    assembler = Assembler(tool_names=tool_names)
    for frame in frames:
        assembler.receive(frame)
    return assembler.finish()


# Responses


def as_said(response: Response) -> Response:
    """The response without what only tells how it came: bodies and streams of one family differ in that. Which counts are
    untold is one of these things: a family that always writes numbers makes them zeros. So are the terms of service: a family
    that always names a tier names the usual one."""
    usage = response.usage and msgspec.structs.replace(response.usage, untold=(), terms=())
    return msgspec.structs.replace(response, may_hide_cut=(), usage=usage)


def check_every_split(family: Family, stream: bytes, *, profile: Profile) -> None:
    """The same frames, whole, in every two pieces and byte by byte (promise assembly:split-anywhere)."""
    whole = decode_stream(family, [stream], profile=profile)
    for pieces in every_split(stream):
        assert decode_stream(family, pieces, profile=profile) == whole, f"cut at byte {len(pieces[0])}"
    assert decode_stream(family, byte_by_byte(stream), profile=profile) == whole


def check_response_round_trip(
    family: Family,
    response: Response,
    *,
    profile: Profile,
    request: Request,
    expected: Response,
) -> None:
    """Encoded as a body and as a stream, and decoded again, it is `expected`: the response less the family's losses."""
    body = family.encode_body(response, request)
    assert as_said(assemble(family.decode_body(body, profile, DEFAULT_LIMITS))) == expected, body.decode()
    stream = encode_stream(family, frames_of(response, piece=PIECE_CHARACTERS), request=request)
    assert as_said(assemble(decode_stream(family, [stream], profile=profile))) == expected, stream.decode()


def encode_stream(family: Family, frames: Iterable[Frame], *, request: Request) -> bytes:
    """The bytes of a whole stream made of these frames."""
    encoder = family.stream_encoder(request)
    return b"".join([encoder.encode(frame) for frame in frames] + [encoder.finish()])


def check_foreign_bytes_never_raise(family: Family, blob: bytes, *, profile: Profile) -> None:
    """Whatever arrives, as a stream, a body, an error or a request: a value or BadRequest, never another exception."""
    for pieces in ([blob], byte_by_byte(blob)):
        frames = decode_stream(family, pieces, profile=profile)
        assert frames, "a stream without any event is a fault of its own"
    assert family.decode_body(blob, profile, DEFAULT_LIMITS)
    for status in (200, 400, 429, 500):
        assert family.decode_fault(status, {}, blob).message
    try:
        family.decode_request(blob, "")
    except BadRequest as error:
        assert str(error)


def check_foreign_answer_is_a_protocol_fault(family: Family, blob: bytes, *, profile: Profile, shown: str = "") -> None:
    """HTML or random bytes in place of a response: one fault that shows how it begins, and no answer. Nothing at all is a
    connection that broke."""
    for frames in (
        decode_stream(family, [blob], profile=profile),
        decode_stream(family, byte_by_byte(blob), profile=profile),
        family.decode_body(blob, profile, DEFAULT_LIMITS),
    ):
        faults = [frame.fault for frame in frames if isinstance(frame, Faulted)]
        is_empty = not blob.strip() or shown == "the response was empty"
        kind = FaultKind.DISCONNECTED if is_empty else FaultKind.PROTOCOL
        assert [fault.kind for fault in faults] == [kind], frames
        assert shown in faults[0].message, faults[0].message
        assert not any(isinstance(frame, Finished) for frame in frames)


def check_endless_line(family: Family, begin: bytes, *, profile: Profile) -> None:
    """A line that never ends is refused at the limit, and what follows it is not read (promise assembly:bounded)."""
    limits = Limits(line_bytes=1000, call_bytes=1000, response_bytes=100_000)
    decoder = family.stream_decoder(profile, limits)
    frames = decoder.feed(begin)
    for _ in range(20):
        frames += decoder.feed(b"x" * 100)
    frames += decoder.feed(b"\n\n")
    frames += decoder.finish()
    assert [frame.fault.kind for frame in frames if isinstance(frame, Faulted)] == [FaultKind.TOO_LARGE], frames


def check_long_response(family: Family, event: bytes, *, profile: Profile) -> None:
    """A response without end is refused at its limit, however small its lines (promise assembly:bounded)."""
    limits = Limits(line_bytes=10_000, call_bytes=1000, response_bytes=100_000, stream_bytes=100_000)
    frames = decode_stream(family, [event] * (200_000 // len(event) + 1), profile=profile, limits=limits)
    assert [frame.fault.kind for frame in frames if isinstance(frame, Faulted)] == [FaultKind.TOO_LARGE]
    body = family.decode_body(b" " * 100_001, profile, limits)
    assert [frame.fault.kind for frame in body if isinstance(frame, Faulted)] == [FaultKind.TOO_LARGE]


# Requests


def check_request_round_trip(family: Family, request: Request, *, profile: Profile, expected: Request) -> None:
    """Encoded and decoded it is `expected`: the request less the family's losses. What was lost stays lost: the second
    time nothing changes any more."""
    call = family.encode_request(request, profile)
    decoded = family.decode_request(call.body, call.path)
    assert decoded == expected, call.body.decode()
    again = family.encode_request(decoded, profile)
    assert family.decode_request(again.body, again.path) == decoded, again.body.decode()


def check_prefix_stable(
    family: Family, request: Request, more: Sequence[Message], *, profile: Profile, later: Callable[[Request], Request]
) -> None:
    """With more messages and other settings (`later`), the body begins with the bytes of the first one up to the end of its
    last message (promise step:prefix-stable)."""
    first = family.encode_request(request, profile).body
    longer = msgspec.structs.replace(request, messages=(*request.messages, *more))
    second = family.encode_request(later(longer), profile).body
    end = _common_prefix(first, second)
    # What the first body holds after its last message begins with the end of the array.
    assert first[end : end + 1] == b"]", (first[max(0, end - 60) : end + 60], second[max(0, end - 60) : end + 60])
    assert second[end : end + 1] == b",", second[max(0, end - 60) : end + 60]


def _common_prefix(a: bytes, b: bytes) -> int:
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# Faults


def check_fault_round_trip(family: Family, fault: Fault) -> None:
    """A fault, written as this family's API reports it, is read back as the same kind with the same message."""
    status, body = family.encode_fault(fault)
    decoded = family.decode_fault(status, {}, body)
    assert (decoded.kind, decoded.message) == (fault.kind, fault.message), (status, body)
    assert 400 <= status <= 599
