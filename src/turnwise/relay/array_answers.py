"""Gemini's other way to stream: without `alt=sse` the answer is one JSON array, whose elements are the events of the stream.

Source: Google's reference of `streamGenerateContent`, and the answers of its servers.
"""

from turnwise.relay.event_splitting import split_whole

_DATA = b"data:"


class ArrayAnswer:
    """Give it whole server-sent events, and hand on what comes back. `end` closes the array: without it no client takes the
    answer for whole."""

    __slots__ = ("_has_begun",)

    def __init__(self) -> None:
        self._has_begun = False

    def take(self, events: bytes) -> bytes:
        """A comment becomes a line end, which means nothing in JSON and keeps the connection alive."""
        return b"".join([self._written(event) for event in split_whole(events)])

    def end(self) -> bytes:
        return b"]\n" if self._has_begun else b"[]\n"

    def _written(self, event: bytes) -> bytes:
        lines = [line.removeprefix(_DATA).strip() for line in event.splitlines() if line.startswith(_DATA)]
        if not lines:
            return b"\n" if event else b""
        before = b",\r\n" if self._has_begun else b"["
        self._has_begun = True
        return before + b"\n".join(lines)
