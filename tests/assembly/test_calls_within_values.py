"""What stands in a value of a call is never a call, whatever becomes of the outer one (issue 16, section A)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import WRITERS, read_text
from thoroughness import examples

INNER = ("list", {"path": "x"})
# The outer call: its tool is not on offer, or its head is written wrongly.
HEADS = ("create_file", "read ,")

each_outer = each("outer", sorted(WRITERS))
writers = st.sampled_from(sorted(WRITERS))


def block_of(outer: str, *, inner: str, head: str, count: int = 1) -> str:
    shown = f"{WRITERS[inner]([INNER])}\n" * count
    return WRITERS[outer]([(head, {"content": f"So:\n{shown}\n"})])


@each_outer
@each("inner", sorted(WRITERS), meeting="each")
def test_a_call_in_a_value_of_a_call_that_does_not_run_does_not_run_either(outer: str, inner: str) -> None:
    """Proves: the block is one thing up to its end, for each pair of syntaxes. From the fifth tester of issue 16, who saw
    `list` run from within a file that a tool of another name should have written."""
    for head in HEADS:
        text = block_of(outer, inner=inner, head=head)
        found = read_text(text)
        assert INNER not in found.calls, head
        assert read_text(list(text)).outcome == found.outcome, head


@settings(max_examples=examples(60), deadline=None)
@given(
    outer=writers,
    inner=writers,
    head=st.sampled_from(HEADS),
    count=st.integers(1, 3),
    words=st.sampled_from(["", "Look:\n", "Done. "]),
    data=st.data(),
)
def test_that_holds_for_several_inner_calls_at_every_split(
    outer: str, inner: str, head: str, count: int, words: str, data: st.DataObject
) -> None:
    """Proves: neither words around the block, nor more calls in it, nor the pieces make one of them run."""
    text = f"{words}{block_of(outer, inner=inner, head=head, count=count)}\nThat is all."
    at = data.draw(st.integers(0, len(text)))
    found = read_text(text)
    assert INNER not in found.calls
    assert read_text([text[:at], text[at:]]).outcome == found.outcome
    assert read_text(list(text)).outcome == found.outcome


@each("outer", ["mistral, list", "llama", "lfm", "deepseek v3", "dsml", "kimi", "minimax"])
@each("inner", ["hermes", "lfm", "glm"])
def test_a_later_call_of_a_tool_that_is_not_on_offer_keeps_its_values(outer: str, inner: str) -> None:
    """Proves: a block with a call that cannot run ends where it closes, and not at that call."""
    shown = WRITERS[inner]([INNER])
    text = WRITERS[outer]([("read", {"path": "a"}), ("create_file", {"content": f"So: {shown}\n"})])
    found = read_text(text)
    assert (found.calls, found.states, found.text) == ([], ["invalid"], "")
    assert read_text(list(text)).outcome == found.outcome


def test_a_json_value_that_names_no_tool_is_one_thing() -> None:
    """Proves: a string in JSON is read with it, also if the object turns out to be no call."""
    text = '[TOOL_CALLS][{"nom": "It is <|tool_call_start|>[list(path=\'x\')]<|tool_call_end|>"}]'
    found = read_text(text)
    assert (found.states, found.text) == ([], text)
    assert read_text(list(text)).outcome == found.outcome
