"""One whole `Response` as the frames that a stream of it would give: what the encoders and the scripted models start from."""

import random
from collections.abc import Iterator

from turnwise.vocab import (
    BlockData,
    BlockEnded,
    CitationAdded,
    Faulted,
    Finished,
    Frame,
    Part,
    PartDone,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    UsageReported,
)

PIECE = 24  # characters; about what providers send at a time


def frames_of(response: Response, *, piece: int = PIECE) -> list[Frame]:
    """Cut `response` into frames, its texts and arguments into pieces of at most `piece` characters.

    Each part has the block named by its position; its pieces come in order and end with BlockEnded. An assembler makes
    an equal response of them. Raises ValueError for a `piece` below 1.
    """
    if piece < 1:
        raise ValueError(f"`piece` is {piece}; a piece has at least 1 character")
    frames: list[Frame] = [Started(id=response.id, model=response.model)]
    calls = 0
    for position, part in enumerate(response.message.parts):
        frames += _frames_of_part(part, block=str(position), index=calls, piece=piece)
        calls += isinstance(part, ToolCall)
    if response.usage is not None:
        frames.append(UsageReported(response.usage))
    if response.fault is not None:
        frames.append(Faulted(response.fault))
    else:
        frames.append(Finished(response.finish, response.provider_finish, explanation=response.explanation))
    return frames


def _frames_of_part(part: Part, *, block: str, index: int, piece: int) -> Iterator[Frame]:
    match part:
        case Text():
            yield from [TextDelta(text, block) for text in pieces(part.text, size=piece)]
            yield from [CitationAdded(block, citation) for citation in part.citations]
        case Reasoning():
            yield from [ReasoningDelta(text, block) for text in pieces(part.text, size=piece)]
        case Refusal():
            yield from [RefusalDelta(text, block) for text in pieces(part.text, size=piece)]
        case ToolCall():
            yield ToolCallDelta(
                block=block, index=index, id=part.id, name=part.name, arguments="", free_form=part.free_form
            )
            for text in pieces(part.arguments, size=piece):
                yield ToolCallDelta(block=block, index=index, arguments=text, free_form=part.free_form)
        case _:
            yield PartDone(block, part)
            return
    if part.opaque is not None:
        yield BlockData(block, part.opaque)
    yield BlockEnded(block)


def pieces(text: str, *, size: int) -> list[str]:
    """`text` cut into pieces of `size` characters, none of them empty."""
    return [text[start : start + size] for start in range(0, len(text), size)]


# Ways in which a network may cut a stream. Whatever is fed piece by piece must not care which of them happened.


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
