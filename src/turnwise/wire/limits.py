"""How much of what a stranger sends we are ready to hold."""

import re

import msgspec

MiB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Byte limits on untrusted input; past one, a named fault instead of unbounded memory (promise assembly:bounded).

    h11 bounds an incomplete event at 16 KiB because headers are small; here one event may hold a whole response
    (Responses repeats it in `response.completed`), so a few MiB must pass and a 10 MB line without an end must not.
    """

    line_bytes: int = 8 * MiB  # one line, and one event, of a stream
    call_bytes: int = 8 * MiB  # the arguments of one call
    tells_long_calls: bool = True  # a call past that is told as such, and the others are whole; else the response fails
    response_bytes: int = 64 * MiB  # what is kept of one response; one that is no stream, as it came
    # One stream as it came: nothing of it is kept but what its events bring, and they say ten times as much around it. The
    # arguments of one call at its limit, in pieces of 20 bytes, take 150 MB.
    stream_bytes: int = 256 * MiB


DEFAULT_LIMITS = Limits()

SLICE_BYTES = 64 * 1024
"""What is long is looked at and taken apart in slices of this size, so that no more of its pieces exist at once; sockets give no
more anyway."""

MAX_CITATIONS = 5000
"""Of one response; assembly keeps 4,096 and tells if there were more. One may have ten bytes and takes us some hundred."""

MAX_PARTS = 5000
"""Of one body or event that are read; assembly keeps 4,096 and says so if there were more. A call of a hundred bytes takes us a
thousand."""

_WIDE = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")


def is_wide(json: bytes) -> bool:
    """Whether a character in it lies outside of the basic plane. Python takes four bytes for each character of a text with
    one, so such a text may take four times its bytes."""
    return _WIDE.search(json) is not None
