"""A stream of Gemini's that a proxy sent twice is taken once, if it repeats the response byte for byte."""

import pytest

from tables import each
from turnwise.testing.wire_conformance import assemble
from turnwise.vocab import Frame, text_of
from turnwise.wire.gemini.stream import FastChunks, GeminiStreamDecoder
from turnwise.wire.profiles import DEFAULT_LIMITS
from wire.test_repeated_chunks import gemini_chunk

LITERALS = [b'"once "', b'"caf\\u00e9 "', b'"ab"', b'"c "', b'"\\n"', b'"a/b "', '"ü "'.encode()] * 4
"""Texts as JSON writes them; as many as it takes until chunks are read by what they have in common."""

FINISH = b'{"candidates":[{"finishReason":"STOP"}]}'

both_ways = pytest.mark.parametrize("fast", [FastChunks, None], ids=["fast", "plain"])
in_reads = pytest.mark.parametrize("together", [True, False], ids=["one-read", "a-read-each"])


def text_from(first: list[bytes], again: list[bytes], *, fast: type[FastChunks] | None, together: bool) -> str:
    """The text of a response that was sent with `first`, and behind its end with `again`."""
    said = [
        [*[gemini_chunk(b'{"text":' + text + b"}", number=None) for text in texts], FINISH] for texts in (first, again)
    ]
    events = [b"data: " + chunk + b"\r\n\r\n" for chunks in said for chunk in chunks]
    decoder = GeminiStreamDecoder(DEFAULT_LIMITS, fast=fast)
    frames: list[Frame] = []
    for read in [b"".join(events)] if together else events:
        frames += decoder.feed(read)
    return text_of(assemble([*frames, *decoder.finish()]).message)


@both_ways
@in_reads
def test_a_stream_that_came_twice_byte_for_byte_is_taken_once(fast: type[FastChunks] | None, together: bool) -> None:
    """Source: proxies that send a stream again behind its end."""
    once = text_from(LITERALS, [], fast=fast, together=together)
    assert once.startswith("once café abc \na/b ü once ")
    assert text_from(LITERALS, LITERALS, fast=fast, together=together) == once


@both_ways
@in_reads
@each(
    ("old", "new"),
    [
        ([b'"ab"', b'"c "'], [b'"a"', b'"bc "']),
        ([b'"caf\\u00e9 "'], [b'"caf\\u00E9 "']),
        ([b'"caf\\u00e9 "'], ['"café "'.encode()]),
        ([b'"\\n"'], [b'"\\u000a"']),
        ([b'"a/b "'], [b'"a\\/b "']),
    ],
    ids=["cut elsewhere", "case of an escape", "no escape", "a longer escape", "an escape for nothing"],
)
def test_the_same_text_written_otherwise_is_more_of_the_response(
    old: list[bytes], new: list[bytes], fast: type[FastChunks] | None, together: bool
) -> None:
    """A proxy repeats bytes; a model that says the same again does not. The fast way compared texts, and lost such words."""
    at = next(at for at in range(14, len(LITERALS)) if LITERALS[at : at + len(old)] == old)
    again = [*LITERALS[:at], *new, *LITERALS[at + len(old) :]]
    once = text_from(LITERALS, [], fast=fast, together=together)
    assert text_from(LITERALS, again, fast=fast, together=together) == once * 2
