"""Bytes cut out of a stream, in four families: no call is read as complete with other arguments, unless what is left is a stream
without a fault. A strict reader of this file's own tells which ones are (docs/lost-events.md, what the wire cannot tell)."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import damage
from recordings import Row, rows
from stand_ins import make_stand_ins

STREAMS = 60  # of each family
CUTS = 30  # of each stream
LONGEST = 3_000  # bytes that a cut takes
EVENT_END = re.compile(rb"\r?\n\r?\n")
LINE_END = re.compile(rb"\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stand_ins(tmp_path_factory.mktemp("streams"))


def cuts(body: bytes, rng: random.Random) -> Iterator[tuple[int, int]]:
    """From anywhere, or from the first bytes of an event, up to anywhere, or to where a line or an event ends."""
    ends = [found.end() for found in EVENT_END.finditer(body)]
    lines = [found.end() for found in LINE_END.finditer(body)]
    for _ in range(CUTS):
        start = rng.choice([rng.randrange(len(body)), rng.choice(lines) + rng.randrange(12)])
        following = [end for end in ends if end > start][:4] or [start + 1]
        stop = rng.choice([start + rng.randrange(1, 60), rng.choice(ends), rng.choice(lines), rng.choice(following)])
        if start < stop <= start + LONGEST:
            yield start, stop


def is_without_a_fault(stream: bytes, *, has_names: bool) -> bool:
    """Whether each line is a field or a comment, and each event JSON whose type is the event's name."""
    for event in re.split(r"\n\n+", stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("utf-8", "replace")):
        lines = [line for line in event.split("\n") if line and not line.startswith(":")]
        names = [line[6:].strip() for line in lines if line.startswith("event:")]
        data = [line[5:].strip() for line in lines if line.startswith("data:")]
        if len(names) + len(data) < len(lines) or len(data) != bool(lines) or len(names) != (has_names and bool(lines)):
            return False
        if data and data != ["[DONE]"]:
            try:
                fields = json.loads(data[0])
            except ValueError:
                return data[0] == ""  # as a server writes it that keeps the connection alive
            if names and names != [fields.get("type")]:
                return False
    return True


def with_calls(corpus: Path, family: str) -> list[Row]:
    found = [row for row in rows(corpus) if row.family == family and row.expected["tool_calls"]]
    return [row for row in found if row.path.suffix == ".sse"][:STREAMS]


@pytest.mark.costly
@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize("family", ["anthropic_messages", "openai_chat", "openai_responses", "gemini"])
def test_no_call_runs_with_arguments_that_lost_bytes_changed(made: Path, family: str) -> None:
    """Proves: of all calls that a cut changed, those that count as complete stand in streams in which no reader can find a
    fault. In the state before, hundreds did not: `event: c` stood before the next event's own line."""
    wrong: list[str] = []
    tried = 0
    for row in with_calls(made, family):
        body = row.path.read_bytes()
        want = damage.read(row, [body])
        for start, stop in cuts(body, random.Random(row.file)):
            tried += 1
            left = body[:start] + body[stop:]
            changed = [call for call in damage.read(row, [left]).calls - want.calls if call[0]]
            if changed and not is_without_a_fault(left, has_names=b"event:" in body):
                wrong.append(f"{row.file}: {left[max(0, start - 60) : start]!r} {left[start : start + 80]!r}")
    assert wrong == []
    assert tried > 1_000
