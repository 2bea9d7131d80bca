"""How a text is cut into pieces changes nothing, whatever is wrong in its calls (issue 16, section A)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from text_calls import WRITERS, read_text
from thoroughness import examples

READ = '{"name":"read","arguments":{}}'
TEXTS = (
    f'[TOOL_CALLS][{READ},{{"name":"nix","arguments":{{"path":"b"}}}}]',
    f'<|python_tag|>{READ}; {{"name":"nix","arguments":{{"path":"b"}}}}',
    '<tool_call>{"name": "list""\na',
    '<｜DSML｜function_calls>\n<｜DSML｜invoke name="read">\n</｜DSML｜invoke>\n<｜DSML｜invoke ><}',
    f'[TOOL_CALLS][{READ}, {{"name": "create_file", "arguments": {{"content": "It writes '
    "<|tool_call_start|>[list(path='x')]<|tool_call_end|>\"}}]",
)


@pytest.mark.parametrize("text", TEXTS)
def test_every_split_of_a_wrong_call_gives_the_same(text: str) -> None:
    """Proves: whether a call runs, and which words are shown, is decided at the same characters. From the fifth tester."""
    found = read_text(text)
    assert found.calls == []
    assert read_text(list(text)).outcome == found.outcome
    for at in range(len(text)):
        assert read_text([text[:at], text[at:]]).outcome == found.outcome, at


@settings(max_examples=examples(150), deadline=None)
@given(
    writer=st.sampled_from(sorted(WRITERS)),
    names=st.lists(st.sampled_from(["read", "list", "nix", "read ,"]), min_size=1, max_size=2),
    content=st.sampled_from(["a", "<tool_call>", "</tool_call>", 'it\'s "so"\n', "[list(path='x')]"]),
    data=st.data(),
)
def test_a_broken_call_gives_the_same_in_all_pieces(
    writer: str, names: list[str], content: str, data: st.DataObject
) -> None:
    """Proves: the same for calls of each syntax from which some characters are missing, or in which some stand too much."""
    text = WRITERS[writer]([(name, {"content": content}) for name in names])
    start, end = sorted(data.draw(st.tuples(st.integers(12, len(text)), st.integers(12, len(text)))))
    much = data.draw(st.sampled_from(["", "}", '"', ",", "<", "x", "\n", " a "]))
    text = f"{text[:start]}{much}{text[min(end, start + 3) :]}\nDone (so far)."
    found = read_text(text)
    at = data.draw(st.integers(0, len(text)))
    assert read_text([text[:at], text[at:]]).outcome == found.outcome
    assert read_text(list(text)).outcome == found.outcome
