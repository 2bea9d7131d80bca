"""A value that closes its own call, and an output limit behind that (issue 16, section A)."""

import pytest

from tables import each
from text_calls import TAGGED, WRITERS, read_text
from turnwise.vocab import FinishReason

PATH = {"path": "g.md"}
REST = "\nand then the server says more of it"


def self_closing(syntax: str) -> str:
    """The call with a value that holds all that closes it."""
    whole = WRITERS[syntax]([("write_file", PATH | {"content": "A call ends so:@END@" + REST})])
    closing = whole[whole.index(REST) + len(REST) :]
    return whole.replace("@END@", closing)


@pytest.mark.parametrize("syntax", sorted(TAGGED))
def test_a_call_with_words_behind_it_that_the_limit_cut_does_not_run(syntax: str) -> None:
    """Proves: a file is never written with a part of its content, wherever in the words the limit falls. From the fifth tester
    of issue 16. Nothing tells such words from an answer behind the call, so that both are told."""
    whole = self_closing(syntax)
    start = whole.index(REST)
    assert read_text(whole).calls == []
    for at in range(start + 2, start + len(REST)):
        found = read_text(whole[:at], reason=FinishReason.LENGTH)
        assert (found.calls, found.states) == ([], ["invalid"]), whole[:at]
        assert read_text(list(whole[:at]), reason=FinishReason.LENGTH).outcome == found.outcome


@each("syntax", sorted(WRITERS))
def test_a_whole_call_runs_where_nothing_can_be_the_rest_of_its_value(syntax: str) -> None:
    """Proves: words behind a call are no doubt where the response ended by itself, or where values are escaped."""
    call = ("write_file", PATH)
    text = WRITERS[syntax]([call])
    if syntax != "llama":  # its calls end with the message
        assert read_text(f"{text}\nand then the", reason=FinishReason.STOP).calls == [call]
        cut = read_text(f"{text}\nand then the", reason=FinishReason.LENGTH)
        assert cut.calls == ([] if syntax in TAGGED else [call])
