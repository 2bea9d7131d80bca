"""What a reader does not see is spelled out, from one table that is Unicode's own (issue 13, 9)."""

import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.vocab.hidden_characters import (
    CONTROL,
    EMOJI_BASES,
    IGNORABLE,
    shown,
    shown_answer,
    visible,
    visible_line,
)
from waits import HANG_S

SOURCE = Path(__file__).parents[2] / "src" / "turnwise"
SHOWING = ("agent", "coding_agent", "editors", "gateway", "terminal", "workers", "tools/workspace")
OF_THE_ISSUE = (
    "\u3164\u115f\u1160\uffa0\u2800\u061c\u200b\ufe00\ufe0e\ufe0f\U000e0041\U000e0001\U000e0100\u202e\u2066\u200d\xad"
)
TEXTS = st.text(alphabet=st.sampled_from("ab1#❤☺é\xa0\r\n\t <>U+") | st.sampled_from(OF_THE_ISSUE) | st.characters())


def points(ranges: str) -> set[int]:
    found: set[int] = set()
    for one in ranges.split():
        first, _, last = one.partition("-")
        found |= set(range(int(first, 16), int(last or first, 16) + 1))
    return found


@pytest.mark.promise("safe:seen")
@each("char", OF_THE_ISSUE)
def test_an_invisible_character_is_shown_by_its_number(char: str) -> None:
    """Proves: in asks, names, results and (behind a letter) in answers."""
    expected = f"a<U+{ord(char):04X}>b"
    assert [show(f"a{char}b") for show in (visible, visible_line, shown, shown_answer)] == [expected] * 4


def test_a_variation_selector_stays_in_answers_behind_a_character_that_unicode_lists_and_nowhere_else() -> None:
    """Proves: not in asks and names, not behind a letter, not twice."""
    assert shown_answer("❤\ufe0f 1\ufe0f\u20e3 ☺\ufe0e") == "❤\ufe0f 1\ufe0f\u20e3 ☺\ufe0e"
    assert shown_answer("❤\ufe0f\ufe0f x\ufe0f \ufe0f") == "❤\ufe0f<U+FE0F> x<U+FE0F> <U+FE0F>"
    assert shown("❤\ufe0f") == visible("❤\ufe0f") == "❤<U+FE0F>"


def test_spaces_that_are_not_the_plain_one_are_shown_where_a_person_judges() -> None:
    """Proves: in an ask also a carriage return at a line's end; in an answer French spaces stay, a line end of Windows is one."""
    assert visible("a\xa0b\u2003c\r\nd") == "a<U+00A0>b<U+2003>c<U+000D>\nd"
    assert shown_answer("oui\xa0!\r\nnon\rsi") == "oui\xa0!\nnon<U+000D>si"
    assert visible_line("a\n? bash\tb") == "a<U+000A>? bash<U+0009>b"


@pytest.mark.promise("safe:seen")
@settings(max_examples=examples(600), deadline=None, derandomize=True)
@given(text=TEXTS)
@example(text="\x1b[2J\u009b")
def test_nothing_that_is_shown_hides_or_drives_a_terminal(text: str) -> None:
    """Proves: for any text, what is shown holds none of the table's characters, and in asks only what prints."""
    hidden = points(IGNORABLE) | points(CONTROL)
    for show in (visible, shown):
        assert not hidden & {ord(char) for char in show(text)}
        assert show(show(text)) == show(text)
    assert all(char in "\n\t" or char.isprintable() for char in visible(text))
    answer = shown_answer(text)
    assert {ord(char) for char in answer} & hidden <= {0xFE0E, 0xFE0F}
    assert not re.search(r"(?<![\x23\x2a0-9\xa9\xae\u203c-\u3299\U0001f004-\U0001f6f3])[\ufe0e\ufe0f]", answer)


@pytest.mark.promise("safe:seen")
@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(text=TEXTS, at=st.integers(0, 20))
@example(text="❤\ufe0f", at=1)
def test_an_answer_in_pieces_is_shown_as_the_whole(text: str, at: int) -> None:
    """Proves: at every split but one inside a line end of Windows, which the screen holds back."""
    first, second = text[:at], text[at:]
    if first.endswith("\r"):
        return
    assert shown_answer(first) + shown_answer(second, before=first[-1:]) == shown_answer(text)


def test_the_table_is_unicodes_own() -> None:
    """Proves: Python knows every format character of it as one, and every character of the table as none that prints alone."""
    ignorable, bases = points(IGNORABLE), points(EMOJI_BASES)
    formats = {code for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Cf"}
    # signs that stand around digits or text, with a glyph of their own, and Egyptian and annotation controls
    visible_formats = {code for code in formats - ignorable if unicodedata.name(chr(code), "")}
    assert all(
        re.search(r"SIGN|MARK|END OF AYAH|ABOVE|HIEROGLYPH|ANNOTATION", unicodedata.name(chr(code)))
        for code in visible_formats
    )
    assert {code for code in ignorable if unicodedata.bidirectional(chr(code)) in {"RLO", "LRO", "RLI", "LRI"}}
    assert len(bases) == 354 and bases.isdisjoint(ignorable)


@pytest.mark.skipif(shutil.which("perl") is None, reason="no perl here, which knows the property")
def test_perl_knows_the_same_ignorable_characters() -> None:
    """Proves: `Default_Ignorable_Code_Point` of Perl's own Unicode tables; the property is stable over versions."""
    program = r'for my $c (0..0x10FFFF) { next if $c >= 0xD800 && $c <= 0xDFFF; print "$c\n" if chr($c) =~ /\p{DI}/ }'
    said = subprocess.run(["perl", "-e", program], capture_output=True, text=True, timeout=HANG_S, check=True).stdout
    assert {int(line) for line in said.split()} == points(IGNORABLE)


@pytest.mark.promise("safe:seen")
def test_there_is_no_second_table() -> None:
    """Proves: no other module that shows text to people has ranges of hidden characters of its own."""
    own = SOURCE / "vocab" / "hidden_characters.py"
    shows = [path for room in SHOWING for path in sorted((SOURCE / room).rglob("*.py"))]
    assert len(shows) > 100
    ranges = re.compile(r"\\u(?:200[b-f]|202[a-e]|206[0-9]|fe0[ef])", re.IGNORECASE)
    assert [path.name for path in shows if path != own and ranges.search(path.read_text())] == []
