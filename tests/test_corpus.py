"""Every recorded stream of our families decodes to what its provider's own SDK or terminal event says.

Source: the corpus's README, "How to compare"; the exceptions by name stand in docs/corpus.md and in `recordings.EXCEPTIONS`.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from recordings import EXCEPTIONS, FAMILIES, decode, differences, rows
from stand_ins import are_stand_ins, make_stand_ins
from turnwise.testing.frames import byte_by_byte, random_splits
from turnwise.vocab import Response

pytestmark = pytest.mark.wide

BYTE_BY_BYTE_LIMIT = 40_000  # larger recordings are only sampled byte by byte
SPLITS = 20
WINDOW = 8_000  # of a larger recording, each of the splits cuts another part this long


@pytest.fixture(scope="module")
def decoded(corpus: Path) -> dict[str, Response]:
    return {row.file: decode(row) for row in rows(corpus)}


@pytest.mark.promise("assembly:stream-equals-body", "assembly:kinds")
def test_every_recorded_stream_decodes_to_what_is_expected(
    corpus: Path, decoded: dict[str, Response], record_property: Callable[[str, object], None]
) -> None:
    """Text, reasoning, calls, finish word, five usage counts, of all 1,370 streams: 100 % but for the named exceptions."""
    wrong = {row.file: found for row in rows(corpus) if (found := differences(row, decoded[row.file]))}
    assert not wrong, "\n".join(f"{file}: {found}" for file, found in list(wrong.items())[:20])
    counted = Counter(row.family for row in rows(corpus))
    what = "streams that stand in for recorded ones" if are_stand_ins(corpus) else "recorded streams"
    record_property("compared", f"{counted.total()} {what}: {dict(counted)}")
    assert are_stand_ins(corpus) or counted.keys() == set(FAMILIES.values())
    assert counted.total() >= 1_370, "the corpus holds 598 + 295 + 284 + 185 streams, and those reported"


@pytest.mark.promise("assembly:stream-equals-body")
def test_streams_that_stand_in_decode_to_what_the_lab_was_told_to_send(tmp_path: Path) -> None:
    """As many of each family as were recorded; tried where there are recordings, too, so that a clone's tests hold."""
    stand_ins = rows(make_stand_ins(tmp_path))
    assert {row.file: found for row in stand_ins if (found := differences(row, decode(row)))} == {}
    assert Counter(row.family for row in stand_ins) == {
        "openai_chat": 608,
        "openai_responses": 295,
        "anthropic_messages": 284,
        "gemini": 185,
    }


@pytest.mark.promise("assembly:split-anywhere")
@pytest.mark.parametrize("family", sorted(set(FAMILIES.values())))
def test_every_recorded_stream_is_the_same_at_20_random_splits(
    corpus: Path, decoded: dict[str, Response], family: str
) -> None:
    """Whole values are compared, repairs included: where the network cuts must not show. The largest are cut in windows that
    reach from their beginning to their end."""
    for seed, row in enumerate(rows(corpus)):
        if row.family == family:
            body = row.path.read_bytes()
            left_out = max(0, len(body) - WINDOW)
            for place, cut in enumerate(random_splits(body[:WINDOW], seed=seed, count=SPLITS)):
                pieces = moved(cut, to=left_out * place // (SPLITS - 1), body=body)
                assert decode(row, pieces) == decoded[row.file], row.file


def moved(cut: list[bytes], *, to: int, body: bytes) -> list[bytes]:
    """The same lengths of pieces from another place of the body on; what is around them is whole."""
    places = [*accumulate([len(piece) for piece in cut], initial=to)]
    return [body[:to], *[body[start:end] for start, end in pairwise(places)], body[places[-1] :]]


@pytest.mark.promise("assembly:split-anywhere")
@pytest.mark.parametrize("family", sorted(set(FAMILIES.values())))
def test_every_recorded_stream_is_the_same_byte_by_byte(
    corpus: Path, decoded: dict[str, Response], family: str
) -> None:
    """The largest are sampled: their first bytes one at a time, the rest whole."""
    for row in rows(corpus):
        if row.family == family:
            body = row.path.read_bytes()
            head, tail = body[:BYTE_BY_BYTE_LIMIT], body[BYTE_BY_BYTE_LIMIT:]
            assert decode(row, [*byte_by_byte(head), tail]) == decoded[row.file], row.file


def test_the_exceptions_are_those_that_the_docs_name() -> None:
    """docs/corpus.md says of each exception why the expectation is wrong."""
    text = (Path(__file__).resolve().parents[1] / "docs" / "corpus.md").read_text(encoding="utf-8")
    text = text.partition("## Where the expectation is wrong")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `([^`]+\.(?:sse|json))` \|", text, re.MULTILINE))
    assert named == set(EXCEPTIONS)
