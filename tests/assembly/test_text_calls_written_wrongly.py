"""A call that is written wrongly gets a result, and one that its syntax's own parser reads runs (issue 16, section A)."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import read_text
from thoroughness import examples
from turnwise.vocab import calls_of

CALL = '{"name": "read", "arguments": {"path": "notes.txt"}}'
TAGS = '\n<parameter name="path">notes.txt</parameter>\n'
WRONG = {
    "a fence": f"<tool_call>\n```json\n{CALL}\n```\n</tool_call>",
    "a list": '<tool_call>\n[read(path="notes.txt")]\n</tool_call>',
    "no name": '<tool_call>\n{"read": {"path": "notes.txt"},}\n</tool_call>',
    "an object in place of a list": f"[TOOL_CALLS]{CALL}",
    "a name as attribute": f'<tool_call>\n<function name="read">{TAGS}</function>\n</tool_call>',
    "a name in quotation marks": '<tool_call>\n<function="read">\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>',
    "the same alone": '<function="read">\n<parameter=path>\na\n</parameter>\n</function>',
    "blanks around the sign": "<tool_call>\n<function = read>\n</function>\n</tool_call>",
    "arguments in the tag": '<function=read,{"path": "notes.txt"}></function>',
    "no list": '<|tool_call_start|>read(path="notes.txt")<|tool_call_end|>',
    "a bare name": '<minimax:tool_call>\nread(path="notes.txt")\n</minimax:tool_call>',
    "a Python dict with a break in a string": "<tool_call>\n{'name': 'read', 'arguments': {'path': 'a\nb'}}\n</tool_call>",
    "a Python dict that is none": "<tool_call>\n{'name': 'read', 'arguments': {'path': it's}}\n</tool_call>",
}
# They name no tool on offer, or are words about a syntax.
WORDS = (
    '<tool_call>\n{"name": "nope", "arguments": {"mode": "read"}}\n</tool_call>',
    "<tool_call>\n{'name': 'nope', 'arguments': {'mode': 'read'}}\n</tool_call>",
    "<tool_call>\n<function=nope>\n<parameter=mode>\nread\n</parameter>\n</function>\n</tool_call>",
    '<function=nope,{"mode": "read"}></function>',
    "A call stands between <tool_call> and </tool_call>, for example of read.",
    "Write `<tool_call>{` and the name (read), then `}</tool_call>`.",
    "The mark <tool_call>{ has no end here; read on.",
    "<function=reader>x</function>",
    "<function=read and then",
    "It writes <function=...> and closes with </function>, for example read.",
    "<function=...>.\n\n<function>read</function>",
    "<minimax:tool_call> names read, then comes </minimax:tool_call>.",
    "Between <|tool_call_start|> and <|tool_call_end|> stands read.",
    "Kimi writes <|tool_calls_section_begin|> before read and <|tool_calls_section_end|> behind it.",
)


@pytest.mark.costly
@each("kind", WRONG)
@each("words", ["", "ok\n"])
def test_a_whole_pair_of_marks_that_names_a_tool_is_told(kind: str, words: str) -> None:
    """Proves: nobody waits for a call that stays text in silence; no markup is left, and no words are lost."""
    text = f"{words}{WRONG[kind]}\nDone."
    found = read_text(text)
    assert [(call.name, call.state.value) for call in calls_of(found.response.message)] == [("read", "invalid")]
    assert found.text == f"{words}\nDone."
    for at in range(1, len(text)):
        assert read_text([text[:at], text[at:]]).outcome == found.outcome, at
    assert read_text(list(text)).outcome == found.outcome


@each("text", WORDS)
def test_other_tools_and_words_about_a_syntax_stay_text(text: str) -> None:
    """Proves: the model is not told about what it did not mean."""
    found = read_text(text)
    assert (found.states, found.text, found.shown_text) == ([], text, text)
    assert read_text(list(text)).outcome == found.outcome


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab '\"\\é\n{}[],:", max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab'", max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.costly
@settings(max_examples=examples(200), deadline=None)
@given(options=st.dictionaries(st.sampled_from(["path", "content", "options"]), values, max_size=3))
def test_a_python_dict_between_the_marks_of_hermes_runs(options: dict[str, object]) -> None:
    """Proves: the call has the value that Python gives the dict. Source: Hermes-Function-Calling `utils.py`, which reads it with
    `ast.literal_eval`; `repr` writes it."""
    text = f"<tool_call>\n{ {'name': 'read', 'arguments': options}!r}\n</tool_call>\nok"
    found = read_text(text)
    assert (found.calls, found.text) == ([("read", json.loads(json.dumps(options)))], "\nok")
    assert read_text(list(text)).outcome == found.outcome


def test_a_trailing_comma_between_the_marks_of_hermes_runs() -> None:
    """Proves: JSON with a comma too much is a dict of Python, which Hermes' own parser reads."""
    for text in (
        '<tool_call>\n{"name": "read", "arguments": {"path": "a",},}\n</tool_call>',
        '<tool_call>\n{"arguments": {"path": "a",}, "name": "read"}\n</tool_call>',
    ):
        assert read_text(text).calls == read_text(list(text)).calls == [("read", {"path": "a"})]


@pytest.mark.parametrize("text", ["\\d", "\\/"])
def test_what_json_and_python_read_differently_does_not_run(text: str) -> None:
    """Proves: `\\\\/` is one character in JSON and two in Python, so that a dict with it runs only if it is JSON."""
    wrong = f'<tool_call>\n{{"name": "read", "arguments": {{"path": "{text}",}}}}\n</tool_call>'
    assert read_text(wrong).calls == ([("read", {"path": "\\d"})] if text == "\\d" else [])
