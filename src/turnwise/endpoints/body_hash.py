"""The hash of a request's body, made of the bytes that are new in it."""

import hashlib
from collections.abc import Iterator, Sequence

from turnwise.wire.family import HttpCall


class BodyHash:
    """Hashes the bodies of one turn, in the order in which they were encoded with one history. The marks for the provider's
    cache are left out: they move on with each request, and what the model reads is the same without them."""

    def __init__(self) -> None:
        self._read = hashlib.sha256()
        self._read_bytes = 0  # so many at the beginning are those of the body before, and of the next one

    def sha256_of(self, call: HttpCall) -> str:
        if call.same_bytes < self._read_bytes:
            self._read, self._read_bytes = hashlib.sha256(), 0
        for piece in _pieces(call, begin=self._read_bytes, end=call.same_bytes):
            self._read.update(piece)
        self._read_bytes = call.same_bytes
        whole = self._read.copy()
        for piece in _pieces(call, begin=call.same_bytes, end=len(call.body)):
            whole.update(piece)
        return whole.hexdigest()


def _pieces(call: HttpCall, *, begin: int, end: int) -> Sequence[memoryview]:
    """The body from one byte to another, both counted without the marks."""
    body = memoryview(call.body)
    return [*_between_marks(call, body=body, begin=begin, end=end)] if call.marks else (body[begin:end],)


def _between_marks(call: HttpCall, *, body: memoryview, begin: int, end: int) -> Iterator[memoryview]:
    at = longer = 0  # `longer`: by the marks before
    for start, behind in (*call.marks, (len(body), len(body))):
        first, last = max(at, begin + longer), min(start, end + longer)
        if first < last:
            yield body[first:last]
        at, longer = behind, longer + behind - start
