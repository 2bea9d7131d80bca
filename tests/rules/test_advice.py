"""A person never reads what a result tells the model to do, and the model reads all of it (issue 15, line 9)."""

import re
from pathlib import Path

import turnwise
from tables import each
from turnwise.rules import advice
from turnwise.rules.advice import allowed_by, for_people, in_pieces

SOURCE = Path(turnwise.__file__).parent
ADVICE = {name: text for name, text in vars(advice).items() if name.isupper() and not name.startswith("_")}


@each("name", sorted(ADVICE))
def test_people_read_the_fact_alone(name: str) -> None:
    assert for_people(f"Not run: it was cut off. {ADVICE[name]}") == "Not run: it was cut off."
    assert for_people(f"Not run. {ADVICE[name]} And more.") == "Not run. And more."


def test_how_to_work_in_pieces_is_for_the_model() -> None:
    said = in_pieces("whose arguments stay under about 1,000 characters each", how="the first part now,\nthen the rest")
    assert for_people(f"Nothing was changed. {said}") == "Nothing was changed."


def test_how_a_call_is_allowed_is_for_people_too() -> None:
    assert for_people(f"Denied. {allowed_by('run again with `--allow write`')}") == (
        "Denied. To allow it: run again with `--allow write`."
    )


def test_what_a_tool_says_stays_as_it_is() -> None:
    said = "3 files\nDo not call it a day; go on.\n"
    assert for_people(said) == said


def test_advice_stands_once() -> None:
    """A second copy would reach people. Strings that are split over lines are joined before they are looked at."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.name == "advice.py":
            continue
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8"))
        assert [name for name, words in ADVICE.items() if words in text] == [], path
