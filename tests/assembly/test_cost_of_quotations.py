"""What it costs to ask whether blocks are quoted: counted in steps and calls of functions, never by a clock."""

import sys
from collections.abc import Sequence

import pytest

from text_calls import TOOLS, WRITERS, read_text
from turnwise.assembly.text_calls.quotations import Quotations
from turnwise.assembly.text_calls.values import OfferedTools
from turnwise.vocab import Message, Text, ToolResult

# The tester's: a call that never ends, over and over, and calls that begin alike.
UNENDED = '<tool_call>\n{"name": "write_file", "arguments": {"path": "a.txt", "content": "'
ALL_WORDS = " ".join(f"x {n}" for n in range(300))  # so that each word of a block stands somewhere


def told(said: str) -> list[Message]:
    return [Message("tool", (ToolResult(call_id="1", name="list", content=(Text(said),)),))]


def calls_of_functions(said: str, blocks: Sequence[str]) -> int:
    """How many functions are called while all of the blocks ask, those of the interpreter among them."""
    count = 0

    def note(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    asked = Quotations(told(said), tools=OfferedTools(TOOLS))
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for block in blocks:
            asked.hold(block)
    finally:
        sys.setprofile(before)
    return count


def alike(count: int) -> list[str]:
    return [f'{UNENDED}x{n}"}}}}\n</tool_call>' for n in range(count)]


@pytest.mark.costly
def test_many_blocks_beside_a_long_text_cost_what_they_and_the_text_are_long() -> None:
    """The tester's 256 blocks beside 380 kB took six minutes: each was compared with all of the text."""
    said = UNENDED * 500 + ALL_WORDS
    few, many = [calls_of_functions(said, alike(count)) for count in (16, 256)]
    assert many <= 2 * few + 256 * 2_000


@pytest.mark.costly
def test_the_steps_of_a_whole_response_are_bounded() -> None:
    """Proves: one budget holds for all of its blocks, and behind it a block that may be quoted is text."""
    said = UNENDED * 2_000 + ALL_WORDS
    asked = Quotations(told(said), tools=OfferedTools(TOOLS))
    are_held = [asked.hold(block) for block in alike(256)]
    assert asked.steps <= 201_000 + len(said) + sum(map(len, alike(256)))
    assert are_held[-1]


@pytest.mark.costly
def test_blocks_behind_the_budget_are_shown_and_do_not_run() -> None:
    """Proves: in doubt a quotation wins."""
    found = read_text("\n".join(alike(100)), earlier=told(UNENDED * 4_000 + ALL_WORDS))
    assert found.text.endswith(alike(100)[-1])
    assert len(found.calls) < 100


@pytest.mark.parametrize("syntax", sorted(WRITERS))
def test_a_call_with_a_word_that_was_never_said_runs_whatever_the_history_costs(syntax: str) -> None:
    """Proves: a history that is made to cost much keeps no other call from running: 256 of them take no step."""
    write = WRITERS[syntax]
    begun = write([("write_file", {"path": "a.txt", "content": "@@"})]).split("@@", maxsplit=1)[0]
    asked = Quotations(told(begun * 2_000), tools=OfferedTools(TOOLS))
    blocks = [write([("write_file", {"path": "a.txt", "content": f"some new{n} text"})]) for n in range(256)]
    assert not any(asked.hold(block) for block in blocks)
    assert asked.steps == 0


def test_names_that_differ_from_block_to_block_cost_no_reading_each() -> None:
    """Proves: a text is read once in each way, whatever the blocks are looked for by."""
    said = "".join(
        [f"<tool_call>name{chr(97 + n % 26)}{chr(97 + n // 26)}\n<arg_key>a</arg_key>\n" for n in range(600)]
    )
    names = [f"name{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(256)]
    blocks = [f"<tool_call>{name}\n<arg_key>path</arg_key>\n<arg_value>x</arg_value>\n</tool_call>" for name in names]
    few, many = calls_of_functions(said, blocks[:16]), calls_of_functions(said, blocks)
    assert many <= 2 * few + 256 * 2_000
