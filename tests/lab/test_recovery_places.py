"""Where the cut falls: inside escapes, surrogate pairs, numbers, keys, names and between calls; each is gone on with."""

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import pytest

from lab.cut_cells import RAW, ask_writer, calls_made
from lab.writing import START, Asking
from turnwise.lab.families.family import Conversation, Offered, SentMessage
from turnwise.lab.script import Writer
from turnwise.lab.writer import file_text, intention
from turnwise.vocab import calls_of

TOKENS = re.compile(
    r"""(?P<key>"[a-z]+"(?=:))
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<number>-?\d+)""",
    re.VERBOSE,
)
ESCAPES = re.compile(r"(?P<pair>\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|(?P<escape>\\u....|\\.)")
KINDS = ("key", "number", "escape", "pair", "half of a pair", "string", "between", "between calls", "name")
Writes = Literal["file", "two-files", "patch"]


@cache
def kinds_of(text: str) -> tuple[str, ...]:
    """What of the JSON `text` a cut before each of its characters falls into."""
    kinds = ["between"] * (len(text) + 1)
    for found in TOKENS.finditer(text):
        for at in range(found.start() + 1, found.end()):
            kinds[at] = found.lastgroup or ""
        if found.lastgroup != "string":
            continue
        for inner in ESCAPES.finditer(text, found.start(), found.end()):
            for at in range(inner.start() + 1, inner.end()):
                half = inner.lastgroup == "pair" and at == inner.start() + 6
                kinds[at] = "half of a pair" if half else inner.lastgroup or ""
    return tuple(kinds)


def places(writer: Writer) -> Iterator[tuple[int, str]]:
    """Each limit in tokens under which this writer is cut with something to go on from, and where the cut falls."""
    said = Conversation(
        said=(SentMessage(role="user", texts=("Write.",)),), tools=(Offered(name="write", schema=None),)
    )
    calls, _ = intention(writer, conversation=said, limit_tokens=None)
    ends: list[int] = []
    for call in calls:
        ends.append((ends[-1] if ends else 0) + len(call.name + call.json))
    for limit in range(14, -(-ends[-1] // 4)):
        at, start = 4 * limit, 0
        for call, end in zip(calls, ends, strict=True):
            inside = at - start - len(call.name)
            if at == end:
                yield limit, "between calls"
            elif start < at < end:
                yield limit, "name" if inside <= 0 else kinds_of(call.json)[inside]
            start = end


def writers(writes: Writes, *, size: int) -> list[Writer]:
    """Eight that differ by a character of their path, so that a limit in tokens of 4 bytes falls at every byte."""
    return [
        Writer(writes=writes, size=size, escapes=True, seed=3, path=f"{'b' * length}.txt") for length in range(1, 9)
    ]


SIZES: dict[Writes, int] = {"file": 400, "two-files": 300, "patch": 1800}


@pytest.mark.costly
@pytest.mark.promise("cut:continued", "cut:never-run")
@pytest.mark.parametrize("writes", SIZES)
def test_a_cut_at_every_byte_is_joined_to_what_was_meant(writes: Writes) -> None:
    """Proves: wherever a limit falls in the first response, no call is taken for whole that is not, and what is gone on with
    is what the model meant to write."""
    for writer in writers(writes, size=SIZES[writes]):
        said = Conversation(
            said=(SentMessage(role="user", texts=("Write.",)),), tools=(Offered(name="write", schema=None),)
        )
        wanted = [call.json for call in intention(writer, conversation=said, limit_tokens=None)[0]]
        for limit, kind in places(writer):
            if writes == "patch" and kind == "string" and limit % 5:
                continue  # there are thousands of them
            asking = Asking(writer, family="openai_chat", streamed=False, limit=limit)
            response = asking.ask(START)
            cut = asking.cut_of(response)
            arrived = [call.arguments for call in calls_of(response.message)]
            if kind == "between calls":
                assert cut is None and arrived == wanted[: len(arrived)]
                continue
            assert cut is not None
            (one,) = cut.calls
            assert arrived[:-1] == wanted[: len(arrived) - 1]
            if one.prefix is None or len(one.prefix) < 60:
                continue  # too little to go on from: the split notice
            asking.limit = None
            text = asking.continued(one.prefix, kind="json", tool=one.call.name)
            assert text == wanted[len(arrived) - 1], (limit, kind)


def test_every_kind_of_place_is_hit() -> None:
    """Proves: the test above cuts inside escapes, pairs of surrogates and between their halves, numbers, keys, names,
    between values and between calls; each at least twice."""
    chosen = [writer for writes, size in SIZES.items() for writer in writers(writes, size=size)]
    hit = Counter([kind for writer in chosen for _, kind in places(writer)])
    assert {kind for kind, times in hit.items() if times >= 2} == set(KINDS), hit


def one_of(wanted: str) -> tuple[Writer, int, str]:
    """The first writer and limit whose cut is of that kind, where a response may be longer than the file's runs."""
    for writes in reversed(SIZES):
        for writer in writers(writes, size=3000):
            for limit, kind in places(writer):
                if kind == wanted and limit >= 200:
                    return writer, limit, kind
    raise LookupError(wanted)


@pytest.mark.promise("cut:continued", "cut:split", "cut:never-run")
@pytest.mark.parametrize(("family", "stream"), RAW)
@pytest.mark.parametrize(("writer", "limit", "kind"), [one_of(kind) for kind in KINDS])
async def test_a_cut_of_each_kind_ends_in_the_wanted_files(
    writer: Writer, limit: int, kind: str, family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: wherever the arguments come as text, over real tools and several continuations."""
    applied: list[str] = []

    def apply_patch(edits: Annotated[list[dict[str, str | int]], "The hunks, in order."]) -> str:
        """Apply hunks."""
        applied.extend([str(edit["new"]) for edit in edits])
        return f"{len(edits)} applied"

    tools = (apply_patch,) if writer.writes == "patch" else None
    result, _ = await ask_writer(writer, family=family, stream=stream, folder=tmp_path, limit=limit, tools=tools)
    wanted = {writer.path: file_text(writer.size, seed=writer.seed)}
    if writer.writes == "two-files":
        wanted[f"second-{writer.path}"] = file_text(writer.size, seed=writer.seed + 1)
    found = {path: (tmp_path / path).read_bytes().decode() for path in wanted if (tmp_path / path).exists()}
    assert ({writer.path: "".join(applied)} if writer.writes == "patch" else found) == wanted, kind
    assert result.complete
    if kind not in ("between calls", "name"):
        assert len(calls_made(result)) == len(wanted)
