"""A recording holds no piece of a secret that a stream splits, wherever it splits it (turnwise.testing.Recording)."""

import asyncio
import json
from collections.abc import Sequence
from itertools import pairwise, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.endpoints.transport import HttpRequest
from turnwise.replay.secret_finder import StandIns
from turnwise.testing import Recording, Reply, ScriptedTransport
from turnwise.testing.wire_conformance import assemble, decode_stream, encode_stream
from turnwise.vocab import (
    BlockEnded,
    Finished,
    FinishReason,
    Frame,
    Reasoning,
    ReasoningDelta,
    Request,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from turnwise.wire.family import MODULES
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles

OWN = (
    "sk-proj-Abcdefghij0123456789KLMNOPqrst",
    "azQ7wLm2Np9xVb4T",
    'pa"Zq8\\Lk2/Mn4+Rt6Wy1',
)
SHAPED = ("sk-ant-api03-Qm7Zt2Lp9Xw4Rb6Kc8", "AKIA7QZ2LM9XW4RB6KC8", "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")
RUN = 6  # characters in a row that would tell something of a secret
BEFORE, BEHIND = "Use ", " and nothing else."
KINDS = ("text", "reasoning", "arguments")


class Said(msgspec.Struct, frozen=True):
    """A text with the secret in it, as one block of a response brings it, and where it is cut."""

    kind: str
    cuts: tuple[int, ...]

    def whole(self, secret: str) -> str:
        text = f"{BEFORE}{secret}{BEHIND}"
        return json.dumps({"path": text}) if self.kind == "arguments" else text

    def frames(self, secret: str, *, block: int) -> list[Frame]:
        text = self.whole(secret)
        places = sorted({0, *[cut % len(text) for cut in self.cuts], len(text)})
        pieces = [text[start:end] for start, end in pairwise(places)]
        match self.kind:
            case "text":
                return [TextDelta(piece, str(block)) for piece in pieces]
            case "reasoning":
                return [ReasoningDelta(piece, str(block)) for piece in pieces]
            case _:
                begin = ToolCallDelta(block=str(block), index=block, id=f"call_{block}", name="read", arguments="")
                return [begin, *[msgspec.structs.replace(begin, id=None, name=None, arguments=one) for one in pieces]]


said = st.builds(Said, kind=st.sampled_from(KINDS), cuts=st.lists(st.integers(1, 200), max_size=5).map(tuple))


def stream_of(blocks: Sequence[Said], secret: str, *, family: str, side_by_side: bool) -> bytes:
    """A stream of them, one block behind the other. Calls may come side by side, piece by piece."""
    each = [one.frames(secret, block=block) for block, one in enumerate(blocks)]
    ends: list[Frame] = [BlockEnded(str(block)) for block in range(len(blocks))]
    if side_by_side and family != "gemini" and {one.kind for one in blocks} == {"arguments"}:
        between: list[Frame] = [frame for turn in zip_longest(*each) for frame in turn if frame is not None] + ends
    else:
        between = [frame for frames, end in zip(each, ends, strict=True) for frame in (*frames, end)]
    frames = [Started(id="r1", model="m"), *between, Finished(FinishReason.STOP, None)]
    return encode_stream(find_family(family), frames, request=Request(model="m", messages=(), stream=True))


def respelled(stream: bytes) -> bytes:
    """The same stream with each character of its texts as `\\u0041`."""
    lines = stream.decode().split("\n")
    return "\n".join([_respelled_line(line) for line in lines]).encode()


def _respelled_line(line: str) -> str:
    head, mark, content = line.partition("data: ")
    return line if not mark or not content.startswith("{") else head + mark + _respelled(json.loads(content))


def _respelled(value: object) -> str:
    match value:
        case dict():
            return "{" + ",".join([f"{json.dumps(name)}:{_respelled(one)}" for name, one in value.items()]) + "}"
        case list():
            return "[" + ",".join([_respelled(one) for one in value]) + "]"
        case str():
            return '"' + "".join([f"\\u{ord(one):04x}" for one in value]) + '"'
        case _:
            return json.dumps(value)


async def replayed(pieces: Sequence[bytes], *, key: str) -> list[bytes]:
    """What a recording of this stream gives when it is replayed."""
    asked = HttpRequest(url="https://api.example.com/v1/x", headers=(("authorization", f"Bearer {key}"),), body=b"{}")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        with Recording(path, "record", upstream=ScriptedTransport([Reply(pieces=tuple(pieces))])) as recording:
            await read(recording, asked)
        return await read(Recording(path), asked)


async def read(transport: Recording, asked: HttpRequest) -> list[bytes]:
    async with transport.send(asked) as reply:
        return [chunk async for chunk in reply.chunks]


def cut(content: bytes, *, size: int) -> list[bytes]:
    return [content[start : start + size] for start in range(0, len(content), size)]


def texts_of(response: Response) -> list[str]:
    return [
        json.loads(part.arguments)["path"] if isinstance(part, ToolCall) else part.text
        for part in response.message.parts
        if isinstance(part, Text | Reasoning | ToolCall)
    ]


def response_of(family: str, pieces: Sequence[bytes]) -> Response:
    return assemble(decode_stream(find_family(family), list(pieces), profile=builtin_profiles()[family]))


@pytest.mark.parametrize("family", MODULES)
@settings(max_examples=examples(25))
@given(
    secret=st.sampled_from((*OWN, *SHAPED)),
    blocks=st.lists(said, min_size=1, max_size=2),
    side_by_side=st.booleans(),
    escaped=st.booleans(),
    size=st.integers(1, 400),
)
def test_no_piece_of_a_split_secret_stays(
    family: str, secret: str, blocks: list[Said], side_by_side: bool, escaped: bool, size: int
) -> None:
    """Proves: keys of the agent and texts with a key's shape, cut anywhere in texts, reasoning and arguments, in any spelling
    and in any pieces on the wire, are whole stand-ins in the replay. All around them is as it was, to the length."""
    stream = stream_of(blocks, secret, family=family, side_by_side=side_by_side)
    pieces = cut(respelled(stream) if escaped else stream, size=size)
    again = asyncio.run(replayed(pieces, key=secret if secret in OWN else "another-key-of-mine-1234"))
    assert [len(piece) for piece in again] == [len(piece) for piece in pieces]
    before, after = texts_of(response_of(family, pieces)), texts_of(response_of(family, again))
    assert before and after == [text.replace(secret, stand_in(secret)) for text in before]
    assert not runs_of(secret) & runs_of(b"".join(again).decode())


def stand_in(secret: str) -> str:
    return StandIns(None).of(secret)


def runs_of(text: str) -> set[str]:
    return {text[at : at + RUN] for at in range(len(text) - RUN + 1)}
