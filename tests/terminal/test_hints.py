"""What several words were meant for: the line with the prompt in quotes, as a shell takes it."""

import shlex

from hypothesis import given
from hypothesis import strategies as st

from turnwise.terminal.group import MOST, prompt_line
from turnwise.terminal.run import chat_command as chat
from turnwise.terminal.run import run_command as run

WORDS = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), min_size=1, max_size=12).filter(
    lambda word: not word.startswith("-")
)


@given(model=WORDS, words=st.lists(WORDS, min_size=1, max_size=5), at=st.integers(0, 5))
def test_the_line_that_is_hinted_at_is_the_prompt_that_was_meant(model: str, words: list[str], at: int) -> None:
    """Property: a shell's reading of it (Python's `shlex`) and the options of `chat` find the model and the prompt again,
    wherever the option stood between the words."""
    at = min(at, len(words))
    line = prompt_line(run, [*words[:at], "-m", model, *words[at:]])
    assert len(line) <= MOST
    program, *args = shlex.split(line)
    params = chat.make_context("chat", args, help_option_names=["-h", "--help"]).params
    assert (program, params["model"], params["words"]) == ("turnwise", model, (" ".join(words),))
