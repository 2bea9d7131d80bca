"""What a prompt in the wrong place was meant for: the line with `turnwise run`, as a shell takes it."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from turnwise.terminal.group import MOST, run_line
from turnwise.terminal.run import chat_command as chat
from turnwise.terminal.run import run_command as run

WORDS = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), min_size=1, max_size=12).filter(
    lambda word: not word.startswith("-")
)


@given(model=WORDS, words=st.lists(WORDS, min_size=1, max_size=5), at=st.integers(0, 5))
def test_the_line_that_is_hinted_at_is_the_run_that_was_meant(model: str, words: list[str], at: int) -> None:
    """Property: a shell's reading of it (Python's `shlex`) and `run`'s own options find the model and the prompt again, wherever
    the option stood between the words."""
    at = min(at, len(words))
    line = run_line(chat, [*words[:at], "-m", model, *words[at:]])
    assert len(line) <= MOST
    program, name, *args = shlex.split(line)
    params = run.make_context("run", args, help_option_names=["-h", "--help"]).params
    assert (program, name, params["model"], params["words"]) == ("turnwise", "run", model, (" ".join(words),))
