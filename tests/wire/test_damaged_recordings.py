"""Recorded streams with a call, one event damaged: no call runs that was never said, and no loss goes untold.

An even sample of what `scripts/damage.py` does exhaustively, and more kinds of damage: any byte lost, any line break put in.
"""

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import damage
from recordings import Row, of_family

FAMILIES = ["openai_chat", "anthropic_messages"]
SAMPLE = 8  # of each recorded stream; all of them take some 15 s of CPU time
LONGEST = 200_000  # bytes of a stream; the longest ones would take most of the time

BREAKS = (b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n")


def with_calls(corpus: Path, family: str) -> Iterator[tuple[Row, damage.Stream, random.Random]]:
    for row in of_family(corpus, family):
        if row.expected["tool_calls"] and row.path.stat().st_size <= LONGEST:
            yield row, damage.take_apart(row.path.read_bytes()), random.Random(row.file)


def as_sent(stream: damage.Stream) -> damage.Stream:
    return stream


def without_names(stream: damage.Stream) -> damage.Stream:
    return damage.Stream(tuple([re.sub(rb"event: ?\w+\r?\n", b"", event) for event in stream.events]), is_array=False)


def all_blocks_zero(stream: damage.Stream) -> damage.Stream:
    """As gateways send it that number every block 0."""
    return damage.Stream(
        tuple([re.sub(rb'"index": ?\d+', b'"index":0', event) for event in stream.events]), is_array=False
    )


SHAPES = [
    ("openai_chat", as_sent),
    ("anthropic_messages", as_sent),
    ("anthropic_messages", without_names),
    ("anthropic_messages", all_blocks_zero),
]


@pytest.mark.costly
@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(("family", "shape"), SHAPES)
def test_no_call_runs_that_an_unreadable_event_changed(
    corpus: Path, family: str, shape: Callable[[damage.Stream], damage.Stream]
) -> None:
    """Proves: with a line break in an event, a quote or brace lost or a byte that is no UTF-8, each call that counts as complete
    is one of the recorded ones, and a response that misses something says so."""
    wrong: list[str] = []
    tried = 0
    for row, recorded, rng in with_calls(corpus, family):
        stream = shape(recorded)
        want = damage.read(row, stream.events)
        broken = list(damage.broken(stream))
        for change in rng.sample(broken, min(SAMPLE, len(broken))):
            tried += 1
            found = damage.faults(damage.read(row, change.chunks), want=want)
            wrong += [f"{row.file}: {change.kind}, event {change.at}: {fault}" for fault in found]
    assert wrong == []
    assert tried > 500, "there are 219 recorded streams of Chat with a call, and 88 of Anthropic"


@pytest.mark.costly
@pytest.mark.promise("assembly:lost-piece")
@pytest.mark.parametrize(("family", "shape"), SHAPES)
def test_no_call_runs_that_a_stray_line_break_changed(
    corpus: Path, family: str, shape: Callable[[damage.Stream], damage.Stream]
) -> None:
    """Proves: the same with a line break or an empty line at any byte of an event, the names of its fields included."""
    wrong: list[str] = []
    for row, recorded, rng in with_calls(corpus, family):
        stream = shape(recorded)
        events = stream.events
        want = damage.read(row, events)
        for _ in range(SAMPLE):
            at = rng.randrange(len(events))
            event = events[at]
            place = rng.randrange(1, max(2, len(event)))
            torn = event[:place] + rng.choice(BREAKS) + event[place:]
            found = damage.faults(damage.read(row, (*events[:at], torn, *events[at + 1 :])), want=want)
            wrong += [f"{row.file}: event {at}, {torn!r:.200}: {fault}" for fault in found]
    assert wrong == []


@pytest.mark.promise("assembly:lost-piece", "assembly:split-anywhere")
@pytest.mark.parametrize("family", FAMILIES)
def test_noise_between_the_events_of_a_recording_changes_nothing(corpus: Path, family: str) -> None:
    """Proves: comments, pings, unknown events, bare words and empty data leave calls, text and the end as they are."""
    wrong: list[str] = []
    for number, (row, stream, _) in enumerate(with_calls(corpus, family)):
        want = damage.read(row, stream.events)
        assert not want.lost, row.file
        kinds = list(damage.noisy(stream))
        noisy = kinds[number % len(kinds)]
        if damage.read(row, noisy.chunks) != want:
            wrong.append(f"{row.file}: {noisy.kind}")
    assert wrong == []
