"""The recorded streams of the Interactions API, whole, in pieces, and damaged (promise assembly:lost-piece)."""

import os
import random
from pathlib import Path

import pytest

import damage
from recordings import Row, decode, differences, interactions

CORPUS = Path(os.environ.get("TURNWISE_CORPUS") or Path(__file__).resolve().parents[3] / "shared" / "corpus")


def recorded() -> list[Row]:
    return [*interactions(CORPUS)] if (CORPUS / "manifest.jsonl").exists() else []


ROWS = recorded()
each_row = pytest.mark.parametrize("row", ROWS, ids=[row.path.stem[-40:] for row in ROWS])


@pytest.mark.promise("assembly:kinds")
@each_row
def test_a_recorded_stream_says_what_its_events_say_however_it_is_cut(row: Row) -> None:
    body = row.path.read_bytes()
    whole = decode(row)
    assert differences(row, whole) == [] and not whole.repairs and whole.usage is not None and not whole.usage.unread
    places = random.Random(row.file).sample(range(len(body)), 150)
    assert all(decode(row, [body[:at], body[at:]]) == whole for at in places)
    assert decode(row, [body[at : at + 1] for at in range(len(body))]) == whole


@pytest.mark.promise("assembly:lost-piece")
@each_row
def test_no_damage_makes_a_call_or_an_answer_that_was_never_said(row: Row) -> None:
    stream = damage.take_apart(row.path.read_bytes())
    want = damage.read(row, stream.events)
    for tried in damage.broken(stream):
        assert not damage.faults(damage.read(row, tried.chunks), want=want), tried.kind
    for tried in damage.noisy(stream):
        assert damage.read(row, tried.chunks) == want, tried.kind
