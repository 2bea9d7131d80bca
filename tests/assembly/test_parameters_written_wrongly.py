"""A parameter that is written wrongly never becomes a part of another one's value (issue 16, section A)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import CLOSE, TAGGED, WRITERS, read_text
from thoroughness import examples
from turnwise.vocab import FinishReason, calls_of

CALL = ("read", {"path": "a.md", "content": "b"})
# How the second parameter's opening tag looks like one, by syntax: what stands there, and what stands in its place.
LOOKS: dict[str, tuple[str, tuple[str, ...]]] = {
    "qwen3-coder": ("<parameter=content>", ("<param=content>", "<Parameter=content>", '<parameter name="content">')),
    "glm": ("<arg_key>content", ("<arg_Key>content", "<key>content", "<arg_key >content")),
    "minimax": (
        '<parameter name="content">',
        ('<parameter type="string" name="content">', '<parameter  name="content">', '<Parameter name="content">'),
    ),
}
_DSML = ('string="true" name="content"', ' name="content" string="true"', 'type="string" name="content"')
for syntax in ("dsml", "dsml v4"):
    LOOKS[syntax] = (
        '<｜DSML｜parameter name="content" string="true">',
        tuple([f"<｜DSML｜parameter {one}>" for one in _DSML]),
    )
WRONG = [(name, wrong) for name, (_, looks) in LOOKS.items() for wrong in looks]


@pytest.mark.costly
@each(("syntax", "wrong"), WRONG)
def test_a_tag_that_only_looks_like_a_parameter_is_told(syntax: str, wrong: str) -> None:
    """Proves: the call does not run with a value that holds the next parameter. From the fifth tester of issue 16."""
    block = WRITERS[syntax]([CALL])
    text = f"{block.replace(LOOKS[syntax][0], wrong)}\nDone."
    assert text != f"{block}\nDone."
    found = read_text(text)
    assert (found.calls, found.states, found.text) == ([], ["invalid"], "\nDone.")
    assert read_text(list(text)).outcome == found.outcome
    for at in range(len(block)):
        for kept in calls_of(read_text(text[:at], reason=FinishReason.LENGTH).response.message):
            assert CLOSE[syntax] not in kept.arguments, text[:at]


@pytest.mark.parametrize("syntax", sorted(TAGGED))
@settings(max_examples=examples(25), deadline=None)
@given(
    before=st.sampled_from(["", "a", "a\n", "a <b>"]), behind=st.sampled_from(["", "c", "\n", "\n<x>"]), data=st.data()
)
def test_a_closing_tag_without_its_opening_one_is_told(
    syntax: str, before: str, behind: str, data: st.DataObject
) -> None:
    """Proves: nothing tells such a value from two tags too many, so that it does not run, however it comes."""
    text = WRITERS[syntax]([("read", {"path": f"{before}{CLOSE[syntax]}{behind}", "content": "b"})])
    found = read_text(text)
    assert (found.calls, found.states, found.text) == ([], ["invalid"], "")
    at = data.draw(st.integers(0, len(text)))
    assert read_text([text[:at], text[at:]]).outcome == found.outcome
    assert read_text(list(text)).outcome == found.outcome
