"""What one client may take up: sizes, counts and seconds. `[bounds]` of gateway.toml."""

from typing import Annotated

import msgspec

MIB = 1024 * 1024

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Past a bound a request gets an error in its client's family; past one of time or of the head the connection ends, too."""

    body_bytes: _Count = 32 * MIB  # what Anthropic's Messages API takes (its docs, "Request size limits")
    response_bytes: _Count = 64 * MIB  # of an upstream's answer: what is kept of a stream, or the whole body
    head_bytes: _Count = 32 * 1024  # request line and headers, as nginx's large_client_header_buffers
    query_bytes: _Count = 4 * 1024
    depth: _Count = (
        100  # of JSON: schemas of tools are nested, but OpenAI and Google refuse those of more than 10 and 5 levels
    )
    streams: _Count = 1000  # requests at once, from the first byte of the body to the last of the answer
    connections: _Count = 2000
    head_s: _Seconds = 10.0  # from the first byte to the end of the headers
    body_s: _Seconds = 120.0  # to send the body
    idle_s: _Seconds = 75.0  # between two requests; more than clients keep a connection, as nginx
    unread_s: _Seconds = 300.0  # how long a client may leave an answer unread
