"""A table in one test loses nothing: each case runs by itself, and what does not hold is named."""

import os
from pathlib import Path

import pytest

from tables import each

FOUND: list[object] = []


def failure_of(test: object) -> str:
    with pytest.raises(pytest.fail.Exception) as failed:
        test()  # type: ignore[operator]
    return str(failed.value)


def test_every_case_that_fails_is_named_with_its_error() -> None:
    """Proves: a failure hides none behind it, two tables are multiplied, and `ids` name the cases."""
    ran: list[tuple[int, str]] = []

    @each(("number", "is_even"), [(1, False), (2, True), (3, True), (4, False)])
    @each("word", ["x", "y"], ids=str.upper)
    def table(number: int, is_even: bool, word: str) -> None:
        ran.append((number, word))
        assert (number % 2 == 0) == is_even

    found = failure_of(table)
    assert sorted(ran) == [(number, word) for number in (1, 2, 3, 4) for word in "xy"]
    names = ("3: X-3-True", "4: X-4-False", "7: Y-3-True", "8: Y-4-False")
    assert found.startswith(f"4 of 8 cases do not hold: {', '.join(names)}\n")
    errors = [error.splitlines() for error in found.split("\n\n")[1:]]
    assert [error[0] for error in errors] == [f"[{name}]" for name in names]
    assert {error[-1] for error in errors} == {
        "E   assert ((3 % 2) == 0) == True",
        "E   assert ((4 % 2) == 0) == False",
    }


def test_cases_that_are_skipped_are_named_and_hide_no_failure() -> None:
    """Proves: a test with a skipped case does not pass in silence."""

    @each("case", ["holds", "skipped"])
    def skips(case: str) -> None:
        if case == "skipped":
            pytest.skip("no ripgrep")

    with pytest.raises(pytest.skip.Exception) as skipped:
        skips()
    assert str(skipped.value) == "1 of 2 cases, the others hold: [2: skipped] no ripgrep"

    @each("case", ["skipped", "fails"])
    def fails(case: str) -> None:
        (pytest.skip if case == "skipped" else pytest.fail)("so it is")

    assert failure_of(fails).startswith("1 of 2 cases do not hold: 2: fails\n")


def test_a_table_without_cases_or_for_another_test_is_refused() -> None:
    """Proves: an empty list proves nothing, and a name that the test does not take is a mistake."""

    @each("case", [])
    def empty(case: str) -> None:
        raise AssertionError(case)

    with pytest.raises(AssertionError, match="the table has no case"):
        empty()
    with pytest.raises(AssertionError, match="does not take"):
        each("other", [1])(empty)
    with pytest.raises(ValueError, match="zip"):
        each(("one", "two"), [(1, 2, 3)])


@each("word", ["a", "b"])
async def test_a_case_has_a_folder_patches_and_a_loop_of_its_own(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: what one case leaves behind is not there in the next."""
    assert ([*os.scandir(tmp_path)], FOUND) == ([], [])
    (tmp_path / word).write_text(word)
    monkeypatch.setitem(globals(), "FOUND", [word])
    assert [word] == FOUND


def test_marks_and_fixtures_stay_with_the_test(request: pytest.FixtureRequest) -> None:
    """Proves: a mark above or below the table is the test's, and the test asks for its other fixtures."""

    @pytest.mark.wide
    @each("case", [1])
    @pytest.mark.usefixtures("corpus")
    def table(case: int, corpus: Path) -> None: ...

    assert [mark.name for mark in table.pytestmark] == ["usefixtures", "wide"]  # type: ignore[attr-defined]
    assert table.__wrapped__.__doc__ == table.__doc__  # type: ignore[attr-defined]
    item = request.node.parent
    found = request.session._fixturemanager.getfixtureinfo(item, table, cls=None)
    assert found.argnames == ("corpus",)
