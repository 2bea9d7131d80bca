"""Answers at a terminal: rendered as they come, in whole words, and nothing of them is lost or shown twice (issue 15, 6)."""

import io
import random
import re
from collections import Counter
from contextlib import redirect_stdout

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator import Tty
from tables import each
from thoroughness import examples
from turnwise.coding_agent.progress_line import WaitBounds
from turnwise.coding_agent.text import clean_answer
from turnwise.running.watcher_events import AttemptDiscarded, FrameSeen, RequestStarted, TurnFinished
from turnwise.terminal.live_answer import LiveAnswer
from turnwise.terminal.screen import Screen
from turnwise.testing import FakeClock
from turnwise.turn.config import TurnResult
from turnwise.vocab import Fault, FaultKind, StopReason, TextDelta, Usage

LINES = """
# Head
## Two
para **bold** text
`code` and [link](http://a.b/c)
- item
  - nested
1. one
2. two
   more of it
> quote
>> deep
```python
```
~~~
def f(x): return x
    indented
\tx
a | b
--- | ---
| a | b |
|---|---|
| 1 | two words |
---
***
===
+ plus
\\* no
<b>html</b>
![alt](x.png "title")
日本語 の 文
❤ and é
[r]: http://x.y
word
""".strip("\n").split("\n")
ENDS = st.sampled_from(["\n", "\n\n", "", " "])
SOUP = st.text(alphabet="ab *_`[]()<>!#-+|~\\=123. ", max_size=30)
PIECES = st.lists(st.tuples(st.one_of(st.sampled_from(LINES), SOUP), ENDS).map("".join), max_size=30)


def shown(*pieces: str, columns: int = 80, lines: int = 24) -> str:
    tty = Tty(columns=columns, lines=lines)
    answer = LiveAnswer(tty, size=tty.size)
    for piece in pieces:
        answer.write(piece)
    answer.close()
    return tty.text


def letters(text: str) -> Counter[str]:
    return Counter([char for char in text if char.isalpha()])


@pytest.mark.costly
@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(pieces=PIECES, cut=st.integers(1, 9))
def test_an_answer_looks_the_same_however_it_comes(pieces: list[str], cut: int) -> None:
    """Proves: piece by piece, character by character or at once, the same stands there: nothing is drawn twice or left over."""
    text = "".join(pieces)
    whole = shown(text, lines=200)
    assert shown(*[text[at : at + cut] for at in range(0, len(text), cut)], lines=200) == whole
    assert shown(*pieces, lines=200) == whole
    assert letters(whole) == letters(text)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(pieces=PIECES, columns=st.integers(1, 60), lines=st.integers(1, 12), moves=st.randoms(use_true_random=False))
def test_no_letter_is_lost_at_any_size(pieces: list[str], columns: int, lines: int, moves: random.Random) -> None:
    """Proves: in a window of any size, which is resized, with notes in between: every letter is there, once."""
    tty = Tty(columns=columns, lines=lines)
    answer = LiveAnswer(tty, size=tty.size)
    for piece in pieces:
        answer.write(piece)
        if moves.random() < 0.1:
            answer.pause()
            tty.write("=== ===\n")
        if moves.random() < 0.1:
            tty.emulator.columns = moves.randint(tty.emulator.columns, 90)
    answer.close()
    assert letters(tty.text) == letters("".join(pieces))


TABLE = """
# Fruit

Some **apples** and [pears](http://a.b/c "ripe"):

| fruit | how many | note |
|:--|--:|---|
| apple | 12 | `red` |
| pear | 3 | soft & sweet |

3. three
4. four
   ```python
   x = 1
   ```

> said

done
"""


def test_blocks_are_rendered() -> None:
    """Proves: a heading, a table in columns, items with their own numbers, code without its indentation, a quote; a link shows
    where it leads."""
    assert (
        shown(TABLE)
        == """
Fruit

Some apples and pears (http://a.b/c "ripe"):

fruit │ how many │ note
──────┼──────────┼─────────────
apple │       12 │ red
pear  │        3 │ soft & sweet

3. three
4. four
   ```python
   x = 1
   ```

▌ said

done
"""
    )


def test_words_stay_whole_at_any_width() -> None:
    """Proves: in a paragraph, an item and a table's cells no word is divided that a row has room for."""
    words = [f"word{number}" for number in range(60)]
    text = f"{' '.join(words)}\n\n- {' '.join(words)}\n\n| a | b |\n|---|---|\n| {' '.join(words)} | **x** |\n"
    for columns in range(20, 100):
        seen = shown(*[text[at : at + 7] for at in range(0, len(text), 7)], columns=columns, lines=200)
        assert [word for word in seen.replace("│", " ").split() if word.startswith("word")] == words * 3


def test_a_tall_block_is_rendered_in_parts_or_left_as_it_is() -> None:
    """Proves: code and tables taller than the window are rendered, with one width of columns; nothing is left over or lost."""
    code = "```python\n" + "".join([f"def f{number}(): return {number}\n" for number in range(50)]) + "```\n"
    assert shown(*code, lines=10) == code
    table = "| number | name |\n|---|---|\n" + "".join([f"| {number} | a{number} |\n" for number in range(10, 50)])
    rows = [line.split(" │ ") for line in shown(*table, lines=10).split("\n")[2:-1]]
    assert [(one.strip(), other.strip()) for one, other in rows] == [(f"{n}", f"a{n}") for n in range(10, 50)]
    item = "- " + "".join([f"line **{number}**\n  " for number in range(50)])
    assert [int(word) for word in shown(*item, lines=10).replace("*", " ").split() if word.isdigit()] == [*range(50)]


HOSTILE = {
    "controls": "a\x1b]0;pwned\x07b\x1b[2J\u202eevil\u200b &#27;[2J &#x202e; `\x9b31m`\n\n" * 50,
    "quotes": ">" * 20_000,
    "quotes in lines": (">" * 40 + " x\n") * 500,
    "brackets": "[" * 20_000,
    "emphasis": "*a _b " * 5_000,
    "links": "[x](javascript:alert(1)) [y](data:text/html;base64,PHN) " * 500,
    "items": "- " * 10_000,
    "nested items": "".join([" " * (2 * depth) + f"- {depth}\n" for depth in range(200)]),
    "one line": "word " * 20_000,
    "one word": "x" * 100_000,
    "columns": "|a" * 5_000 + "\n" + "|-" * 5_000 + "\n" + "|b" * 5_000,
    "rows": "|a|b|\n|-|-|\n" + "|x|y|\n" * 1_000,
    "fence": "```python\n" + "x = '\n" * 2_000,
    "fence of one line": "```json\n" + "[" * 100_000,
    "backticks": "`" * 20_000 + "\n" + "``a`" * 5_000,
    "headings": "# a\n" * 1_000,
    "underlines": ("a\n" + "=" * 300 + "\n") * 300,
    "entities": "&amp;" * 10_000,
    "blank lines": "\n" * 20_000,
    "blanks": " " * 100_000 + "x",
    "references": "[a]: http://x.y\n" * 2_000,
}


@pytest.mark.costly
@pytest.mark.promise("safe:seen")
@each("name", HOSTILE)
def test_hostile_text_does_not_drive_the_terminal(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: only colours, moves within the block at hand and line ends are sent; each character comes at most three times
    (plainly, rendered, and in the row that the line that waits gives back); no link is hidden."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = HOSTILE[name]
    tty = Tty()
    with redirect_stdout(tty):
        screen = Screen(notes=io.StringIO(), size=tty.size)
        screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
        for at in range(0, len(text), 97):
            screen(FrameSeen(number=1, frame=TextDelta(text=text[at : at + 97])))
        screen(TurnFinished(ended(text)))
    sent = re.sub(r"\x1b\[(?:[0-9;]*m|1A|2K)|\r\x1b|[\n\r]", "", tty.raw)
    assert all(char.isprintable() for char in sent), sorted({char for char in sent if not char.isprintable()})
    assert len(sent) <= 3 * len(clean_answer(text)) + 1000
    assert "\x1b]" not in tty.raw


def ended(text: str) -> TurnResult:
    return TurnResult(
        text=text, stop_reason=StopReason.ANSWERED, complete=True, steps=1, requests=1, usage=Usage(), messages=()
    )


@pytest.mark.parametrize(("plain", "variable"), [(True, ""), (False, "NO_COLOR")])
def test_plain_answers_are_as_they_were_written(plain: bool, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: with `--plain` or NO_COLOR a terminal gets the text as it is; so does whatever is no terminal."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    if variable:
        monkeypatch.setenv(variable, "1")
    for out in (Tty(), io.StringIO()):
        with redirect_stdout(out):
            screen = Screen(notes=io.StringIO(), plain=plain, follows=True)
            screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
            for at in range(0, len(TABLE), 5):
                screen(FrameSeen(number=1, frame=TextDelta(text=TABLE[at : at + 5])))
            screen(TurnFinished(ended(TABLE)))
        assert out.getvalue() == TABLE


def test_a_cut_answer_that_goes_on_is_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: the block that was cut is rendered once its rest has come; one that turned out otherwise follows whole."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    for text, seen in (("The **quick fox** ran.", "The quick fox ran.\n"), ("A **dog**.", "The quick f\nA dog.\n")):
        tty = Tty()
        with redirect_stdout(tty):
            screen = Screen(notes=io.StringIO(), size=tty.size)
            screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
            screen(FrameSeen(number=1, frame=TextDelta(text="The **quick f")))
            screen(RequestStarted(number=2, step=1, purpose="continue", model="m"))
            screen(FrameSeen(number=2, frame=TextDelta(text="quick fox** ran.")))
            screen(TurnFinished(ended(text)))
        assert tty.text.replace("**", "") == seen


def test_a_discarded_attempt_is_above_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: what came of it stays above the note, whatever its last block was; the next one is rendered below."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    tty = Tty()
    with redirect_stdout(tty):
        screen = Screen(notes=tty, size=tty.size, clock=FakeClock())
        screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
        screen(FrameSeen(number=1, frame=TextDelta(text="- one **two**\n- thr")))
        screen(AttemptDiscarded(1, Fault(kind=FaultKind.OVERLOADED, message="busy"), 0.5))
        screen(RequestStarted(2, 1, "retry", "m", "step"))
        screen(FrameSeen(2, TextDelta("Kept **word**.")))
        screen(TurnFinished(ended("Kept **word**.")))
    assert tty.text == (
        "• one two\n• thr\n✗ overloaded, busy: discarded what had come, trying again in 0.5 s\nKept word.\n"
    )


async def test_a_stream_that_stalls_says_so_below_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: the line that waits comes below the words, counts, and is gone when the next word goes on in its row."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    tty, clock = Tty(), FakeClock()
    with redirect_stdout(tty):
        screen = Screen(notes=tty, size=tty.size, clock=clock)
        screen.begin(WaitBounds(max_steps=20, idle_s=90))
        screen(RequestStarted(number=1, step=3, purpose="step", model="m"))
        await clock.advance(1.2)
        assert tty.text[1:] == " step 3 of 20: waiting for m, 1 s · Ctrl-C stops"
        screen(FrameSeen(number=1, frame=TextDelta(text="Some **words** and ")))
        await clock.advance(1)
        assert tty.text == "Some **words** and"
        await clock.advance(11.1)
        above, below = tty.text.split("\n")
        assert (above, below[1:]) == (
            "Some **words** and",
            " step 3 of 20: nothing for 12 s, giving up at 90 s · Ctrl-C stops",
        )
        screen(FrameSeen(number=1, frame=TextDelta(text="more.")))
        screen(TurnFinished(ended("Some **words** and more.")))
    assert tty.text == "Some words and more.\n" and clock.delays == []


async def test_a_window_that_changed_while_it_waited_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: the row above the line that waits is not gone back to then; the text goes on below, plainly."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    tty, clock = Tty(), FakeClock()
    with redirect_stdout(tty):
        screen = Screen(notes=tty, size=tty.size, clock=clock)
        screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
        screen(FrameSeen(number=1, frame=TextDelta(text="Some **words** an")))
        await clock.advance(9)
        tty.emulator.columns = 100
        screen(FrameSeen(number=1, frame=TextDelta(text="d more.\n\n**Next**\n")))
        screen(TurnFinished(ended("Some **words** and more.\n\n**Next**\n")))
    assert tty.text == "Some **words**\nand more.\n\nNext\n"


@pytest.mark.parametrize("text", ["see item_100780963 there", "- see item_100780963 there\n- two", "item_100780963"])
def test_who_types_while_an_answer_comes_divides_no_word(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: the word at hand comes whole below what was typed, and nothing of the answer is lost."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    cut = text.index("100")
    tty = Tty()
    with redirect_stdout(tty):
        screen = Screen(notes=tty, size=tty.size, clock=FakeClock())
        screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
        screen(FrameSeen(number=1, frame=TextDelta(text=text[:cut])))
        screen.hold()
        tty.write("» are you there?\n")
        screen(FrameSeen(number=1, frame=TextDelta(text=text[cut:])))
        screen.release()
        screen(TurnFinished(ended(text)))
        screen.close()
    above, _, below = tty.text.partition("» are you there?\n")
    assert "item_" not in above and "item_100780963" in below
    assert letters(above + below) == letters(text)
