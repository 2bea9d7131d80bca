"""The hash of a request's body, made of the bytes that are new in it."""

import hashlib

from turnwise.wire.family import HttpCall


class BodyHash:
    """Hashes the bodies of one turn, in the order in which they were encoded with one history."""

    def __init__(self) -> None:
        self._read = hashlib.sha256()
        self._read_bytes = 0  # so many at the beginning are those of the body before, and of the next one

    def sha256_of(self, call: HttpCall) -> str:
        body = memoryview(call.body)
        if call.same_bytes < self._read_bytes:
            self._read, self._read_bytes = hashlib.sha256(), 0
        self._read.update(body[self._read_bytes : call.same_bytes])
        self._read_bytes = call.same_bytes
        whole = self._read.copy()
        whole.update(body[call.same_bytes :])
        return whole.hexdigest()
