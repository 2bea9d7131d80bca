"""Ways in which a network may cut a stream. Whatever is fed piece by piece must not care which of them happened."""

import random
from collections.abc import Iterator

SPLITS_AT_RANDOM = 20


def byte_by_byte(stream: bytes) -> list[bytes]:
    """The stream in pieces of one byte."""
    return [stream[i : i + 1] for i in range(len(stream))]


def every_split(stream: bytes) -> Iterator[list[bytes]]:
    """Every way to cut the stream once, in order. Both ends are included, so an empty piece is among them."""
    for at in range(len(stream) + 1):
        yield [stream[:at], stream[at:]]


def random_splits(stream: bytes, *, seed: int, count: int = SPLITS_AT_RANDOM) -> Iterator[list[bytes]]:
    """`count` ways to cut the stream at random places. The same seed gives the same ways. Empty pieces are included.

    The first few make pieces of a few bytes, the later ones long pieces.
    """
    chance = random.Random(seed)
    for i in range(count):
        pieces = max(1, len(stream) // (4 << (i % 8)))
        cuts = sorted(chance.choices(range(len(stream) + 1), k=pieces))
        yield [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
