"""Calls in a text: every marked syntax from generated calls, at every split (issue 16, section A)."""

import html
import json
import sys
from collections.abc import Callable, Iterable
from types import FrameType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import NAMES, TAGGED, TOOLS, WRITERS, Call, glm_47, python_list, read_text
from thoroughness import examples, spread
from turnwise.assembly.text_calls import block_cursor as reading
from turnwise.assembly.text_calls.blocks import FREE_CHARACTERS, READINGS
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.assembly.text_calls.syntaxes import LONGEST_MARKER, MAX_BLOCKS
from turnwise.assembly.text_calls.text_reader import MAX_BLOCK_CHARACTERS
from turnwise.vocab import (
    CallForming,
    File,
    FinishReason,
    Frame,
    Lost,
    Message,
    Reasoning,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
)

each_syntax = pytest.mark.parametrize("syntax", sorted(WRITERS))
LOOKS_LIKE_MARKUP = (
    "</tool_call>",
    "<tool_call>",
    '<tool_call>{"name":"read","arguments":{}}</tool_call>',
    "[TOOL_CALLS]",
    "<function=read>",
    "```",
    "`",
    "<|call|>",
    "<think>",
    "]",
    ")",
    "<|tool_call_end|>",
    "<｜tool▁calls▁end｜>",
    "{",
    "}",
    '"',
    "\\",
    "\n",
    "\n\n",
    "a < b > c",
    "</div>",
    "it's",
    "é🙂",
)
# The marks that close a value of a tagged syntax are its own grammar: a value may hold them where others would not.
pieces_of_values = st.sampled_from(LOOKS_LIKE_MARKUP) | st.text("ab c", max_size=6)
strings = st.lists(pieces_of_values, max_size=3).map("".join)
arguments = st.fixed_dictionaries(
    {},
    optional={
        "path": strings,
        "content": strings.filter(lambda text: text.strip() != "null"),
        "count": st.integers(-(10**9), 10**9),
        "ratio": st.sampled_from([0.5, -2.25, 1e10]),
        "force": st.booleans(),
        "options": st.dictionaries(st.text("xyz", min_size=1, max_size=3), strings, max_size=2),
        "items": st.lists(st.integers(0, 9) | strings, max_size=3),
    },
)
calls = st.lists(st.tuples(st.sampled_from(NAMES), arguments), min_size=1, max_size=3)
# Texts around: no marker, no code, and nothing that a pause between two blocks could be.
words = st.sampled_from(["", "I look.", "Let me see:\n\n", "1 < 2, [a] and <b>\n", "<tool_ call>\n", "So:\n"])


def cuts_of(text: str, seed: int) -> list[list[str]]:
    """Cuts into two at all places, or at each fourth (thoroughness.py), and some into many."""
    cut = [[text[:at], text[at:]] for at in spread(range(seed % 4, len(text) + 1), one_of=4, name=text)]
    step = 1 + seed % 7
    return [*cut, list(text), [text[at : at + step] for at in range(0, len(text), step)]]


def is_told_apart(syntax: str, asked: list[Call]) -> bool:
    """Whether no value holds what closes its own tags, or what the other reading of `<tool_call>` would be."""
    if syntax not in TAGGED:
        return True
    return not any(
        isinstance(value, str) and ("</" in value or "<tool" in value or "<function" in value)
        for _, given in asked
        for value in given.values()
    )


@each_syntax
@settings(max_examples=examples(6), deadline=None)
@given(asked=calls, before=words, after=words, seed=st.integers(0, 100))
def test_generated_calls_are_read_right_at_every_split(
    syntax: str, asked: list[Call], before: str, after: str, seed: int
) -> None:
    """Done when 1: the right calls, the text without markup, nothing shown that was taken back."""
    if syntax in ("llama",):
        after = ""  # its calls are the rest of the message
    block = WRITERS[syntax](asked)
    text = f"{before}{block}{after}"
    whole = read_text(text)
    assert whole.calls == [(name, dict(given)) for name, given in asked]
    assert whole.text == before + after == whole.shown_text
    for pieces in cuts_of(text, seed):
        assert read_text(pieces).outcome == whole.outcome, pieces


@each_syntax
@settings(max_examples=examples(20), deadline=None)
@given(asked=calls, data=st.data())
def test_a_cut_call_never_runs(syntax: str, asked: list[Call], data: st.DataObject) -> None:
    """Done when 1: whatever the limit cuts, what runs was written whole; the call that was cut is told."""
    block = WRITERS[syntax](asked)
    at = data.draw(st.integers(0, len(block) - 1))
    whole = [(name, dict(given)) for name, given in asked]
    found = read_text(block[:at], reason=FinishReason.LENGTH)
    if is_told_apart(syntax, asked):
        assert found.calls == whole[: len(found.calls)]
    for pieces in (list(block[:at]), [block[: at // 2], block[at // 2 : at]]):
        assert read_text(pieces, reason=FinishReason.LENGTH).outcome == found.outcome


@each_syntax
def test_a_call_that_is_cut_within_its_arguments_is_told_as_cut(syntax: str) -> None:
    """Proves: cut:named. The beginning of the arguments is kept, so that the model can go on from there."""
    block = WRITERS[syntax]([("write_file", {"path": "a.txt", "content": "one two three"})])
    found = read_text(block[: block.index("three")], reason=FinishReason.LENGTH)
    assert (found.states, found.calls) == (["truncated"], [])


def numbered(text: str) -> str:
    return "\n".join([f"{n:6}\t{line}" for n, line in enumerate(text.split("\n"), start=1)])


def before_lines(mark: str) -> Callable[[str], str]:
    return lambda text: "\n".join([f"{mark}{line}" for line in text.split("\n")])


SHOWN_AS: tuple[Callable[[str], str], ...] = (
    str,
    numbered,
    lambda text: "\n".join([f"docs/how-to.md:{n}:{line}" for n, line in enumerate(text.split("\n"), start=12)]),
    lambda text: "\n".join([f"{n} | {line}" for n, line in enumerate(text.split("\n"), start=98)]),
    before_lines("+"),
    before_lines("    # "),
    before_lines("> "),
    lambda text: json.dumps({"content": text}),
    lambda text: json.dumps({"content": text}).replace("<", "\\u003c"),
    lambda text: json.dumps({"content": numbered(text)}),
    lambda text: json.dumps([json.dumps({"text": text}, ensure_ascii=False)]),
    html.escape,
)


@each_syntax
def test_a_block_that_was_said_before_is_text(syntax: str) -> None:
    """Done when 1: quoted from the user, from a file, from a result in the forms in which tools show files."""
    block = WRITERS[syntax]([("write_file", {"path": "a.txt", "content": "b\n1: c\n-2\n# d"})])
    results = [show(f"# A\n{block}\nend") for show in SHOWN_AS]
    file = File(media_type="text/markdown", data=f"# A\n{block}".encode())
    written = ToolCall(id="1", name="write_file", arguments=json.dumps({"content": f"Write {block} so."}))
    for said in (
        Message("user", (Text(f"What is {block}?"),)),
        Message("user", (Text("What is it?"), file)),
        Message("assistant", (written,)),
        *[Message("tool", (ToolResult(call_id="1", name="read", content=(Text(one),)),)) for one in results],
        Message("tool", (ToolResult(call_id="1", name="read", content=(file,)),)),
    ):
        found = read_text(f"It says: {block}\nThere.", earlier=[said])
        assert (found.calls, found.states, found.text) == ([], [], f"It says: {block}\nThere.")
        assert read_text(list(f"It says: {block}\nThere."), earlier=[said]).outcome == found.outcome


@each_syntax
def test_a_block_in_code_is_text(syntax: str) -> None:
    """Proves: an example in a fence or in backticks runs nothing, streamed in any way."""
    block = WRITERS[syntax]([("read", {"path": "a.txt"})])
    line = block.replace("\n", " ")
    for text in (
        f"Write it so:\n```xml\n{block}\n```\n",
        f"Write it so:\n\n~~~\n{block}\n~~~\nDone.",
        f"- so:\n  ```\n  {block}\n  ```\n",
        f"> ```\n> {line}\n> ```\n",
        f"Write `` {line} `` so.",
        f"```\n{block}",
        f"Write it so:\n\n{before_lines('    ')(block)}",
        f"Write it so:\n\n{before_lines(chr(9))(block)}\n\nDone.",
    ):
        if "`" in block and "```" not in text.replace(block, ""):
            continue
        found = read_text(text)
        assert (found.states, found.text, found.shown_text) == ([], text, text)
        assert read_text(list(text)).outcome == found.outcome


@each_syntax
def test_a_call_behind_a_fence_runs(syntax: str) -> None:
    """Proves: a fence that has ended hides nothing."""
    block = WRITERS[syntax]([("read", {"path": "a.txt"})])
    found = read_text(f"```py\nprint(1)\n```\nNow:\n{block}")
    assert found.calls == [("read", {"path": "a.txt"})]


@each_syntax
def test_a_tool_that_is_not_on_offer_stays_text(syntax: str) -> None:
    """Proves: only tools on offer; the block is shown as it came."""
    block = WRITERS[syntax]([("format_disk", {"path": "a.txt"})])
    found = read_text(f"Hm. {block}")
    assert (found.states, found.text, found.shown_text) == ([], f"Hm. {block}", f"Hm. {block}")


@each_syntax
def test_a_call_in_reasoning_or_a_refusal_is_told_and_not_made(syntax: str) -> None:
    """Proves: only the answer counts."""
    block = WRITERS[syntax]([("read", {"path": "a.txt"})])
    for frame in (ReasoningDelta(block), RefusalDelta(block)):
        found = read_text("Well.", before=[frame])
        assert found.states == [] and [one.kind for one in found.response.repairs] == ["call_not_made"]


@each_syntax
def test_a_response_with_a_call_of_its_own_has_no_other(syntax: str) -> None:
    """Proves: whether the own call comes before, right behind, or after more words."""
    block = WRITERS[syntax]([("read", {"path": "a.txt"})])
    own = ToolCallDelta(index=0, id="1", name="list", arguments="{}")
    for before, after, text in (([own], [], block), ([], [own], block), ([], [own], f"{block}\n\n")):
        found = read_text(text, before=before, after=after)
        assert (found.calls, found.text) == ([("list", {})], text)
    if syntax == "llama":
        return
    found = read_text(f"{block}\nI wait for it.", after=[own])
    assert (found.calls, found.text) == ([("list", {})], "\nI wait for it.")
    assert found.states == ["invalid", "complete"]


def test_the_whole_answer_may_be_a_python_list_of_calls() -> None:
    """Proves: Llama 3.2 and 4 write no marker; anything beside the list makes it text."""
    block = python_list([("read", {"path": "it's [1](2)"}), ("list", {"items": [1, {"a": None}], "force": True})])
    found = read_text(block)
    assert found.calls == [("read", {"path": "it's [1](2)"}), ("list", {"items": [1, {"a": None}], "force": True})]
    for pieces in cuts_of(block, 3):
        assert read_text(pieces).outcome == found.outcome
    for text in (
        f"{block} is it.",
        f"Call {block}",
        "[read](a.txt) says so",
        "[read(path)]",
        "[read('a')]",
        "[read(path=f())]",
    ):
        assert (read_text(text).states, read_text(text).text) == ([], text)
        assert read_text(list(text)).text == text


@each(
    "text",
    [
        '{"name": "read", "parameters": {"path": "a"}}',
        '{"name": "read", "arguments": {"path": "a"}}\n',
        '```json\n{"name": "read", "arguments": {"path": "a"}}\n```',
        '```tool_code\nread(path="a")\n```',
        '```tool_code\nprint(read(path="a"))\n```\n',
        "```\n[read(path='a')]\n```",
        '~~~tool_call\n{"name": "read", "parameters": {"path": "a"}}\n~~~',
        '[{"name": "read", "arguments": {"path": "a"}}]',
        '```xml\n<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>\n```',
    ],
)
def test_fences_and_bare_json_count_only_with_on_and_only_alone(text: str) -> None:
    """Proves: the one exception to the rule about fences."""
    assert (read_text(text).states, read_text(text).text) == ([], text)
    found = read_text(text, unmarked=True)
    assert (found.calls, found.text) == ([("read", {"path": "a"})], "")
    for pieces in cuts_of(text, 5):
        assert read_text(pieces, unmarked=True).outcome == found.outcome
        assert read_text(pieces).text == text
    for around in (f"So: {text}", f"{text}\nThat is all."):
        assert (read_text(around, unmarked=True).states, read_text(around, unmarked=True).text) == ([], around)


def test_reasoning_at_the_beginning_of_a_text_is_reasoning() -> None:
    """Proves: `<think>` and its kin; a draft of a call in it is not made, the call behind it is."""
    call = WRITERS["hermes"]([("read", {"path": "a"})])
    for opens, closes in (
        ("<think>", "</think>"),
        ("[THINK]", "[/THINK]"),
        ("<seed:think>", "</seed:think>"),
        ("◁think▷", "◁/think▷"),
        ("<|channel|>analysis<|message|>", "<|end|>"),
    ):
        text = f"{opens}\nFirst {call.replace('read', 'list')}\n{closes}\n\n{call}"
        found = read_text(text)
        assert found.calls == [("read", {"path": "a"})]
        assert found.response.message.parts[0] == Reasoning(f"First {call.replace('read', 'list')}")
        for pieces in cuts_of(text, 3):
            assert read_text(pieces).outcome == found.outcome
    final = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Four."
    assert read_text(final).text == "Four." == read_text(list(final)).text
    assert read_text("Use <think> so.").text == "Use <think> so."


def test_no_more_than_the_longest_marker_is_held_back() -> None:
    """Proves: words flow on at once, but for what may begin a marker."""
    text = "Some <b>words</b>, [a link](x), `code`, a < b, <tool_cal, <| and more. " * 5
    found = CallFinder(tools=())
    shown = 0
    for came, char in enumerate(text, start=1):
        shown += sum([len(frame.text) for frame in found.take([TextDelta(char)]) if isinstance(frame, TextDelta)])
        assert came - shown < LONGEST_MARKER


def test_the_size_of_a_call_that_is_being_written_is_told() -> None:
    """Proves: watchers see that a call is coming, how long it is, and nothing of it."""
    block = WRITERS["qwen3-coder"]([("write_file", {"path": "a", "content": "x" * 500})])
    found = read_text(["So: ", *[block[at : at + 50] for at in range(0, len(block), 50)]])
    sizes = [frame.characters for frame in found.shown if isinstance(frame, CallForming)]
    assert sizes[-1] == len(block) and sizes == sorted(set(sizes)) and len(sizes) == -(-len(block) // 50)
    assert found.shown_text == "So: "


def test_a_value_that_closes_its_own_call_never_runs_cut_short() -> None:
    """Proves: where markup in a value cannot be told from the call's own, nothing runs; whole examples are told apart."""
    example = WRITERS["qwen3-coder"]([("read", {"path": "b"})])
    asked = [("write_file", {"path": "a", "content": f"Docs:\n{example}\nEnd."})]
    assert read_text(WRITERS["qwen3-coder"](asked)).calls == asked
    loose = [("write_file", {"path": "a", "content": "x\n</parameter>\n</function>\n</tool_call>\nmore"})]
    found = read_text(WRITERS["qwen3-coder"](loose))
    assert found.calls == [] and "invalid" in found.states
    assert read_text(list(WRITERS["qwen3-coder"](loose))).outcome == found.outcome


def test_glm_without_line_breaks_is_read_too() -> None:
    """Proves: GLM-4.7 and Laguna leave them out, and a tool without parameters is its name alone."""
    assert read_text(glm_47([("read", {"path": "a", "count": 3})])).calls == [("read", {"path": "a", "count": 3})]
    assert read_text("<tool_call>list</tool_call>").calls == [("list", {})]


def test_only_what_begins_a_continuation_or_a_summary_is_a_call() -> None:
    """Proves: what such a text quotes is its own."""
    call = WRITERS["hermes"]([("read", {"path": "a"})])
    assert read_text(call, leading=True).calls == [("read", {"path": "a"})]
    quoted = f"The model called {call} first."
    assert (read_text(quoted, leading=True).states, read_text(quoted, leading=True).text) == ([], quoted)


def test_hundreds_of_calls_in_one_text_are_read_without_deep_recursion() -> None:
    """Proves: a body comes as one text; past the blocks that are looked at the rest is text."""
    block = WRITERS["hermes"]([("read", {"path": "a"})])
    found = read_text("\n".join([block] * 300))
    assert len(found.calls) == MAX_BLOCKS and found.text.count("<tool_call>") == 300 - MAX_BLOCKS


def read_characters(pieces: Iterable[str]) -> int:
    """The characters that readers were given, all readings together."""
    total = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal total
        if event == "call" and frame.f_code is reading.read.__code__:
            total += len(frame.f_locals["text"])

    sys.setprofile(count)
    try:
        read_text(pieces)
    finally:
        sys.setprofile(None)
    return total


@pytest.mark.costly
@each(
    "value",
    ["x", "</tool_call>", "}", "<tool_call>", "</parameter>\n", "` > ]", "<parameter=a>"],
)
@each("syntax", ["hermes", "qwen3-coder", "kimi", "lfm"], meeting="each")
def test_reading_a_long_call_in_small_pieces_costs_as_much_as_it_is_long(syntax: str, value: str) -> None:
    """Proves: linear, whatever stands in it; what would end it may come with every piece."""
    costs: list[float] = []
    for times in (2_000, 6_000):
        block = WRITERS[syntax]([("write_file", {"path": "a", "content": value * times})])
        cost = read_characters([block[at : at + 20] for at in range(0, len(block), 20)])
        costs.append((cost - FREE_CHARACTERS) / len(block))
    assert max(costs) <= READINGS + 4


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=read>\n" + "<parameter=k%d>\nv\n</parameter>\n" * 1_000 % tuple(range(1_000)),
        "<minimax:tool_call><invoke name='read'>" + "<parameter name=k%d>v</parameter>" * 1_000 % tuple(range(1_000)),
        "<tool_call>read\n" + "<arg_key>k%d</arg_key><arg_value>v</arg_value>" * 1_000 % tuple(range(1_000)),
        "[read(" + "k%d=1, " * 1_000 % tuple(range(1_000)),
    ],
    ids=["qwen3-coder", "minimax", "glm", "pythonic"],
)
def test_the_arguments_so_far_are_put_together_once_a_reading(text: str) -> None:
    """Proves: linear in the number of arguments, too: putting them together for each would be 500 times the text."""
    made = 0

    def count(frame: FrameType, event: str, given: object) -> None:
        nonlocal made
        if event == "return" and isinstance(given, str) and frame.f_code.co_qualname == "Members.beginning":
            made += len(given)

    sys.setprofile(count)
    try:
        read_text([text[at : at + 50] for at in range(0, len(text), 50)], reason=FinishReason.LENGTH)
    finally:
        sys.setprofile(None)
    assert made <= (READINGS + 2) * len(text) + FREE_CHARACTERS


def test_few_blanks_wait_for_what_follows_them() -> None:
    """Proves: they are not read again with every piece, without an end; nor does it matter how they come."""
    call = WRITERS["hermes"]([("read", {"path": "a"})])
    for opens, gap in ((call, "\n"), (call, " "), ("<think>Hm.", "\n"), ("", "\n")):
        found = CallFinder(tools=TOOLS)
        found.take([TextDelta(opens)])
        shown = 0
        for came in range(1, 200):
            frames = found.take([TextDelta(gap)])
            shown += sum([len(frame.text) for frame in frames if isinstance(frame, TextDelta | ReasoningDelta)])
            assert came - shown <= 32 + (len("Hm.") if came == 1 else 0)
        text = f"{opens}{gap * 100}</think>{call}{gap * 32}"
        assert read_text(text).outcome == read_text(list(text)).outcome
        assert read_text(text).calls == [("read", {"path": "a"})]  # the one before `</think>` was a thought


def test_a_block_longer_than_a_call_may_be_is_text() -> None:
    """Proves: assembly:bounded. No more is held than of a call that comes as one."""
    text = f'<tool_call>{{"name": "read", "arguments": {{"path": "{"x" * MAX_BLOCK_CHARACTERS}"}}}}</tool_call> so'
    assert (read_text(text).states, read_text(text).text) == ([], text)
    found = CallFinder(tools=TOOLS)
    for at in range(0, len(text), 2**18):
        for frame in found.take([TextDelta(text[at : at + 2**18])]):
            assert not isinstance(frame, CallForming) or frame.characters <= MAX_BLOCK_CHARACTERS


def test_words_without_a_marker_are_read_by_nobody() -> None:
    """Proves: ordinary text costs no reading, and its frames are the very same."""
    found = CallFinder(tools=())
    found.take([TextDelta("Some ")])
    frames: list[Frame] = [TextDelta("words, and more of them")]
    assert found.take(frames) is frames and read_characters(["some words " * 1000] * 10) == 0


@pytest.mark.parametrize("reaches_ended", [True, False])
def test_a_call_in_a_text_that_may_have_lost_a_piece_never_runs(reaches_ended: bool) -> None:
    """Proves: assembly:lost-piece holds for it, though what arrived is whole."""
    block = WRITERS["qwen3-coder"]([("write_file", {"path": "a", "content": "b c"})])
    loss = Lost(Repair("unreadable", "event", "lost"), reaches_ended)
    found = read_text(block[60:], before=[TextDelta(block[:60]), loss])
    assert (found.states, found.calls, found.response.lost) == (["lost"], [], True)


def test_a_response_that_begins_anew_forgets_the_calls_of_the_first_beginning() -> None:
    """Proves: a gateway that falls back to another model says everything again."""
    block = WRITERS["hermes"]([("read", {"path": "a"})])
    before: list[Frame] = [Started(), TextDelta(f"{block} and"), Started()]
    assert read_text(block, before=before).calls == [("read", {"path": "a"})]


def test_halves_of_characters_in_a_call_are_joined() -> None:
    """Proves: servers that cut a character in two send its halves as escapes in two pieces."""
    block = '<tool_call>{"name": "read", "arguments": {"path": "\ud83d\ude42"}}</tool_call>'
    assert read_text(list(block)).calls == read_text(block).calls == [("read", {"path": "\U0001f642"})]


def steps_of(pieces: Iterable[str]) -> int:
    """Calls of functions of this project while a text is read."""
    steps = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal steps
        steps += event == "call" and "turnwise" in frame.f_code.co_filename

    sys.setprofile(count)
    try:
        read_text(pieces)
    finally:
        sys.setprofile(None)
    return steps


@pytest.mark.costly
@each(
    ("opening", "shape", "most"),
    [
        ('<tool_call>{"name":"read","arguments":{"items":', "[", 1),
        ('<tool_call>{"name":"read","arguments":{"items":[', "1,", 4),
        ('<tool_call>{"name":"read","arguments":{', '"k":1,', 3),
        ("[", "read(path='a', count=1), ", 24),
        ("[read(items=[", "1, ", 8),
    ],
    ids=["lists in lists", "numbers", "keys", "calls in Python", "numbers in Python"],
)
@each("size", [20_000, 400])
def test_a_call_made_to_be_slow_takes_few_steps_a_character(opening: str, shape: str, most: int, size: int) -> None:
    """Proves: linear with a small constant, all readings together. JSON that is cut was read by a second, slower reader."""
    text = opening + shape * (20_000 // len(shape))
    assert steps_of([text[at : at + size] for at in range(0, len(text), size)]) <= most * len(text)


def test_a_mistake_far_before_its_last_bracket_ends_the_call() -> None:
    """Proves: what is behind a call that is written wrongly is looked at for its end so far, and then it is words again."""
    wrong = '[TOOL_CALLS][{"name": "read", "arguments": {"path": bad, "items": [%s]}}]'
    near, far = (read_text(f"{wrong % ('[],' * times)} I am done.") for times in (2_000, 3_000))
    assert (near.states, near.text) == (["invalid"], " I am done.")
    assert far.states == ["invalid"] and far.text.startswith(' bad, "items"') and far.text.endswith("I am done.")


@pytest.mark.parametrize(
    "text", ["[read x\N{GRINNING FACE} y", "{x\N{GRINNING FACE} y", "[read(path=x\N{GRINNING FACE})]"]
)
def test_a_character_that_comes_in_halves_is_whole_behind_what_is_no_call(text: str) -> None:
    """Proves: an answer that turns out to be no call keeps the half that it ended with at that moment."""
    halves = text.replace("\N{GRINNING FACE}", "\ud83d\ude00")
    at = halves.index("\ude00")
    assert read_text([halves[:at], halves[at:]], unmarked=True).text == text
