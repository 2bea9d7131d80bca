"""A whole body -> frames. A body is one chunk, read by the same reader as the chunks of a stream."""

from turnwise.vocab import Fault, Faulted, FaultKind, Frame
from turnwise.wire.gemini.faults import printable
from turnwise.wire.gemini.stream import ChunkReader
from turnwise.wire.limits import Limits
from turnwise.wire.profiles import Profile


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    """The frames of a body of `generateContent`."""
    if len(body) > limits.response_bytes:
        message = f"the response is longer than our limit of {limits.response_bytes} bytes"
        return [Faulted(Fault(kind=FaultKind.TOO_LARGE, message=message))]
    reader = ChunkReader()
    frames = reader.read(body.removeprefix(b"\xef\xbb\xbf"))
    if reader.chunks:
        return frames + reader.finish()
    shown = printable(body)
    message = (
        f"expected a response of Gemini's, but what came begins with: {shown}" if shown else "the response was empty"
    )
    return [Faulted(Fault(kind=FaultKind.PROTOCOL, message=message))]
