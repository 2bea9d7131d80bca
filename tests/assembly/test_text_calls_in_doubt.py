"""Calls in a text that are not surely whole: none of them runs, and no words of the answer are lost (issue 16, section A)."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import TAGGED, TOOLS, WRITERS, Call, read_text
from thoroughness import examples
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import FinishReason, Message, PartDone, Text, TextDelta, calls_of

# All that stands behind a value, by syntax.
CLOSES = {name: WRITERS[name]([("read", {"path": "@"})]).partition("@")[2] for name in TAGGED}
each_tagged = pytest.mark.parametrize("syntax", sorted(TAGGED))
pieces_of_prose = st.sampled_from(
    (
        *(
            "`",
            "``",
            "```\n",
            "\n",
            "\n\n",
            "    ",
            "> ",
            "- ",
            "Ends with ",
            " and begins with ",
            ".",
            "~~~\n",
            "read",
            "{",
        ),
        *(
            "<tool_call>",
            "<function=read>",
            "<function=x>",
            "<minimax:tool_call>",
            "<｜DSML｜function_calls>",
            "<think>",
        ),
        *("<tool_call>read", '<invoke name="read">', "[TOOL_CALLS]", "<|python_tag|>", "</tool_call>", "</function>"),
    )
)
prose = st.lists(pieces_of_prose, max_size=6).map("".join)


@each_tagged
@settings(max_examples=examples(60), deadline=None)
@given(before=prose, after=prose, in_one=st.booleans())
def test_a_value_that_closes_its_call_never_runs_cut_off(syntax: str, before: str, after: str, in_one: bool) -> None:
    """Proves: whatever stands around the closing marks in the value, a call runs with all of it or not at all."""
    closes = CLOSES[syntax].replace("\n", "") if in_one else CLOSES[syntax]
    asked = [("write_file", {"path": "a.md", "content": f"Docs: {before}{closes}{after} end"})]
    text = WRITERS[syntax](asked)
    found = read_text(text)
    assert found.calls in ([], asked)
    assert read_text([text[at : at + 3] for at in range(0, len(text), 3)]).calls == found.calls


@each_tagged
@each(
    ("before", "after"),
    [
        ("A call ends with `", "`.\nMore."),
        ("Ends:\n```\n", "\n```\nMore"),
        ("Ends with ", "\nand begins with <tool_call>."),
        ("Ends with ", "\nand begins with <tool_call>\n<function=read>"),
        ("Ends with ", "\nand begins with <tool_call>\n<function=NAME>\n<parameter=KEY>"),
    ],
)
def test_closing_marks_in_code_or_beside_a_marker_leave_the_call_in_doubt(syntax: str, before: str, after: str) -> None:
    """Proves: what the documentation of a syntax says is written whole or not at all; the model is told why."""
    asked = [("write_file", {"path": "a.md", "content": f"{before}{CLOSES[syntax]}{after}"})]
    found = read_text(WRITERS[syntax](asked))
    assert found.calls == [] and set(found.states) == {"invalid"}
    assert read_text(list(WRITERS[syntax](asked))).outcome == found.outcome


@each_tagged
def test_a_call_of_a_tool_that_is_not_on_offer_leaves_the_one_before_it_alone(syntax: str) -> None:
    """Proves: a block that follows at once and is whole is none of the first call's value."""
    first, other = ("read", {"path": "a"}), ("format_disk", {"path": "b"})
    found = read_text(f"{WRITERS[syntax]([first])}\n{WRITERS[syntax]([other])}")
    assert found.calls == [first]


@each(
    "text",
    [
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n<parameter=content>\nb\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=write_file>\n<parameter=path>\na\n</parameter>\n<parameter=content>\nb\n</function>\n</tool_call>",
        "<tool_call>\n<function=write_file>\n<parameter=path\na\n</parameter>\n<parameter=content>\nb\n</parameter>\n</function>\n"
        "</tool_call>",
        "<tool_call>write_file\n<arg_key>path</arg_key>\n<arg_value>a\n<arg_key>content</arg_key>\n<arg_value>b</arg_value>\n"
        "</tool_call>",
        "<tool_call>write_file\n<arg_key>path<arg_value>a</arg_value>\n<arg_key>content</arg_key>\n<arg_value>b</arg_value>\n"
        "</tool_call>",
        '<minimax:tool_call><invoke name="write_file"><parameter name="path">a<parameter name="content">b</parameter></invoke>'
        "</minimax:tool_call>",
        '<minimax:tool_call><invoke name="write_file"><parameter name="path" name="content">a</parameter></invoke>'
        "</minimax:tool_call>",
        '<｜DSML｜tool_calls><｜DSML｜invoke name="write_file"><｜DSML｜parameter name="path" string="true">a'
        '<｜DSML｜parameter name="content" string="true">b</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜tool_calls>',
    ],
)
def test_a_call_with_a_tag_that_is_not_closed_is_told_as_written_wrongly(text: str) -> None:
    """Proves: the next parameter never becomes part of a value; the words and the call behind it stay."""
    call = WRITERS["qwen3-coder"]([("read", {"path": "a"})])
    for after, calls in ((" It is done.", []), (f"\n{call}", [("read", {"path": "a"})])):
        found = read_text(text + after)
        assert (found.calls, found.states[0], found.text.strip()) == (calls, "invalid", "" if calls else after.strip())
        assert read_text(list(text + after)).outcome == found.outcome


WRAPPED = {
    "hermes": ("<tool_call>\n", "\n</tool_call>"),
    "mistral": ("[TOOL_CALLS][", "]"),
    "lfm": ("<|tool_call_start|>[", "]<|tool_call_end|>"),
    "llama": ("<|python_tag|>", "<|eom_id|>"),
}
AFTER_A_NAME = {
    "kimi": (
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>",
        "<|tool_call_end|><|tool_calls_section_end|>",
    ),
    "deepseek": (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>read<｜tool▁sep｜>",
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    ),
    "harmony": ("<|channel|>commentary to=functions.read<|message|>", "<|call|>"),
    "mistral": ("[TOOL_CALLS]read[ARGS]", ""),
}


@each("syntax", WRAPPED)
@each(
    "call",
    [
        '{"name": "read", "path": "a"}',
        '{"name": "read", "args": {"path": "a"}}',
        '{"name": "read", "input": {"path": "a"}}',
        '{"name": "read", "arguments": {}, "arguments": {"path": "a"}}',
        '{"name": "read", "arguments": {}, "parameters": {"path": "a"}}',
        '{"name": "list", "name": "read", "arguments": {"path": "a"}}',
        '{"name": "read", "arguments": {"path": "a", "path": "b"}}',
        '{"name": "read", "arguments": {"options": {"a": 1, "a": 2}}}',
        '{"type": "function", "arguments": {"path": "a"}, "function": {"name": "read"}}',
    ],
)
def test_a_call_whose_arguments_would_be_dropped_does_not_run(syntax: str, call: str) -> None:
    """Proves: only known keys, each once; the model is told, and a call beside it in the list is not lost."""
    opens, closes = WRAPPED[syntax]
    found = read_text(opens + call + closes)
    assert (found.calls, found.states, found.text) == ([], ["invalid"], "")
    assert read_text(list(opens + call + closes)).outcome == found.outcome


@pytest.mark.parametrize("syntax", AFTER_A_NAME)
def test_arguments_that_name_a_key_twice_do_not_run(syntax: str) -> None:
    """Proves: the same where the arguments stand alone."""
    opens, closes = AFTER_A_NAME[syntax]
    found = read_text(f'{opens}{{"path": "a", "path": "b"}}{closes}')
    assert (found.calls, found.states) == ([], ["invalid"])


@each(
    "call",
    [
        '{"name": "read", "arguments": {"path": "a"}, "id": "1", "type": "function", "index": 0}',
        '{"type": "function", "id": "1", "function": {"name": "read", "arguments": {"path": "a"}}}',
        '{"function": "read", "parameters": {"path": "a"}}',
    ],
)
@each("syntax", WRAPPED)
def test_what_says_nothing_about_a_call_may_stand_in_it(syntax: str, call: str) -> None:
    """Proves: ids and types are no arguments."""
    opens, closes = WRAPPED[syntax]
    assert read_text(opens + call + closes).calls == [("read", {"path": "a"})]


def test_a_list_within_tool_call_tags_is_read() -> None:
    """Proves: it is as certain as one object; before, it was shown and nobody was told."""
    text = '<tool_call>[{"name": "read", "arguments": {"path": "a"}}, {"name": "list", "arguments": {}}]</tool_call>'
    assert read_text(text).calls == [("read", {"path": "a"}), ("list", {})] == read_text(list(text)).calls


each_syntax = each("syntax", sorted(WRITERS))
LAST = frozenset({"llama"})  # its calls are the rest of the message


@each_syntax
@each(
    ("before", "after"),
    [
        ("I could: ", " but need not.\n</think>\n\nIt is 4."),
        ("", "\n</think>\n\nIt is 4."),
        ("Well. <think>I could: ", " but need not.</think> It is 4."),
        ("Well. <think>I could: ", " but need not.</think> It is 4 <think>indeed</think>."),
        ("I could: ", " or <think>not</think>. [/THINK] It is 4."),
        ("<think>It says </think>, so I could: ", " but need not.\n</think>\n\nIt is 4."),
    ],
)
def test_a_call_before_a_lone_end_of_reasoning_does_not_run(syntax: str, before: str, after: str) -> None:
    """Proves: templates put `<think>` into the prompt, so that reasoning comes as text; a call behind it runs."""
    if syntax in LAST:
        return
    call = WRITERS[syntax]([("read", {"path": "a"})])
    found = read_text(f"{before}{call}{after}")
    assert (found.calls, found.states) == ([], ["invalid"])
    assert read_text(list(f"{before}{call}{after}")).outcome == found.outcome
    found = read_text(f"{before}{call}{after}\n{call}")
    assert (found.calls, found.states) == ([("read", {"path": "a"})], ["invalid", "complete"])


@each_syntax
@each(
    ("before", "after"),
    [
        ("", ""),
        ("Use `<think>` so. ", ""),
        ("Well. <think>So.</think> ", ""),
        ("I see</think> ", " Well."),
        ("", " <think>I wait.</think> Well."),
    ],
)
def test_a_call_outside_of_reasoning_runs(syntax: str, before: str, after: str) -> None:
    """Proves: marks of reasoning before the call, or in pairs behind it, mean nothing to it."""
    call = WRITERS[syntax]([("read", {"path": "a"})])
    if not (after and syntax in LAST):
        assert read_text(f"{before}{call}{after}").calls == [("read", {"path": "a"})]


def test_a_text_that_is_said_again_as_a_whole_keeps_its_doubts() -> None:
    """Proves: only the calls before the closing mark are in doubt, in pieces and in the whole text after them."""
    call = WRITERS["hermes"]([("read", {"path": "a"})])
    text = f"I could: {call} but need not.\n</think>\n\nNow: {call} and wait."
    for cut in range(0, len(text), 7):
        found = read_text(text[:cut], after=[TextDelta(text[cut:], "text"), PartDone("text", Text(text))])
        assert (found.calls, found.states) == ([("read", {"path": "a"})], ["invalid", "complete"])


@each(
    "text",
    [
        "Qwen writes <function=read> and then the parameters. This is the rest of my long answer.",
        "GLM begins with <tool_call>list followed by arg_key tags. The rest is important.\n\nAnother paragraph.",
        "Set `x`. The tag <function=list> ... </function> wraps it. More text.",
        "The tag <function=list></function> wraps it.",
        "Mistral writes [TOOL_CALLS]read then JSON. The rest of the answer matters.",
        "Llama writes <|python_tag|>read and then a call.",
        "The format is <tool_call>list</tool_call>.",
        "The format is <tool_call>list</tool_call> or <tool_call>read</tool_call>, too.",
    ],
)
def test_words_about_a_syntax_that_name_a_tool_are_words(text: str) -> None:
    """Proves: no text of an answer is lost, nothing runs, and no error goes to the model."""
    found = read_text(text)
    assert (found.states, found.text, found.shown_text) == ([], text, text)
    for at in range(len(text)):
        assert read_text([text[:at], text[at:]]).outcome == found.outcome
    assert read_text(list(text)).outcome == found.outcome


@pytest.mark.costly
@each(
    "block",
    [
        '<|python_tag|>{"name": "read", "parameters": {"path": "a"}}',
        '<|python_tag|>read.call(path="x")',
        "[TOOL_CALLS]read[ARGS]{...}",
        '[TOOL_CALLS][{"name": "read", "arguments": {"path": "a" "b"}}]',
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>{...}",
        '<tool_call>{"name": "read", "arguments": {...}}',
        '<tool_call>{"name": "read", "arguments": {}}',
        '<tool_call>\n{"name": "read", "arguments": {"path": "a"}\n</tool_call>',
        "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>",
        '<minimax:tool_call><invoke name="read"><parameter name="path">a</invoke></minimax:tool_call>',
        "<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a</tool_call>",
    ],
)
@each("after", [" is the form. The rest matters.", "\n\nI look at it.\n\nSo (as I said) [it] is."])
def test_words_behind_a_call_that_is_written_wrongly_are_kept(block: str, after: str) -> None:
    """Proves: the block is told, and ends where its marks or brackets do; the answer goes on behind it."""
    found = read_text(f"Here: {block}{after}")
    assert (found.calls, found.states, found.text) == ([], ["invalid"], f"Here: {after}")
    for at in range(len(f"Here: {block}{after}")):
        assert read_text([f"Here: {block}{after}"[:at], f"Here: {block}{after}"[at:]]).outcome == found.outcome
    assert read_text(list(f"Here: {block}{after}")).outcome == found.outcome


READ = '{"name": "read", "arguments": {"path": "a"}}'


@pytest.mark.parametrize(
    ("text", "calls", "states", "arguments"),
    [
        ("[write_file(path='a', content='hel", [], ["truncated"], '{"path":"a"'),
        ("[read(path='a'), write_file(path='b", [("read", {"path": "a"})], ["complete", "truncated"], "{"),
        (
            f'[TOOL_CALLS][{READ}, {{"name": "write_file", "arguments": {{"path": "b',
            [("read", {"path": "a"})],
            ["complete", "truncated"],
            '{"path": "b',
        ),
        (
            f'<|tool_call_start|>[{READ}, {{"name": "write_file", "arguments": {{"path": "b',
            [("read", {"path": "a"})],
            ["complete", "truncated"],
            '{"path": "b',
        ),
    ],
)
def test_a_cut_list_names_the_call_that_was_cut(
    text: str, calls: list[Call], states: list[str], arguments: str
) -> None:
    """Proves: cut:named. The calls before it are whole and run, and no markup is shown as an answer."""
    found = read_text(text, reason=FinishReason.LENGTH)
    last = calls_of(found.response.message)[-1]
    assert (found.calls, found.states, found.text) == (calls, states, "")
    assert (last.name, last.arguments) == ("write_file", arguments)
    assert read_text(list(text), reason=FinishReason.LENGTH).outcome == found.outcome


def test_json_that_is_an_answer_is_told_as_cut_only_if_it_was() -> None:
    """Proves: with `on`, a cut object that names a tool is a cut call; one that ended so is text, and so is a link."""
    text = '{"name": "read", "arguments": {"path": "a'
    assert read_text(text, unmarked=True, reason=FinishReason.LENGTH).states == ["truncated"]
    for whole, unmarked in ((text, True), (text, False), ("[read](http", False), ("[read", False)):
        found = read_text(whole, unmarked=unmarked, reason=FinishReason.STOP)
        assert (found.states, found.text) == ([], whole)


def late_words(block: str, *, earlier: Sequence[Message] = ()) -> int:
    """How many characters of the words behind the block are the most that waited, in pieces of four."""
    text = block + " I wrote the file and go on to tell why, in many words, without a mark." * 50
    found = CallFinder(tools=TOOLS, earlier=earlier)
    shown, late = 0, 0
    for at in range(0, len(text), 4):
        frames = found.take([TextDelta(text[at : at + 4])])
        shown += sum([len(frame.text) for frame in frames if isinstance(frame, TextDelta)])
        late = max(late, at + 4 - len(block) - max(0, shown - (len(block) if earlier else 0)))
    return late


@pytest.mark.costly
@each_syntax
@each("lines", [100, 400])
def test_words_behind_a_long_call_flow_on_at_once(syntax: str, lines: int) -> None:
    """Proves: readings in vain do not use up those that the end needs; a quoted block is shown as soon as it ends, too."""
    if syntax in LAST:
        return
    block = WRITERS[syntax]([("write_file", {"path": "a", "content": "x = f(1); y = [2, {3: 4}]\n" * lines})])
    # Any bracket may end a call of Mistral's, so its end may have to wait, for a share of its length.
    most = len(block) // 4 if syntax.startswith("mistral") else 64
    assert late_words(block) <= most
    assert late_words(block, earlier=[Message("user", (Text(block),))]) <= most


HARMONY = '<|channel|>commentary to=functions.read<|message|>{"path": "a"}<|call|>'


@pytest.mark.parametrize(
    ("text", "calls", "words"),
    [
        (f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{HARMONY}", 1, "I look."),
        ("<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>4.<|return|>", 0, "4."),
        (
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|>"
            f"<|start|>assistant<|channel|>analysis<|message|>So.<|end|><|start|>assistant{HARMONY}",
            1,
            "I look.",
        ),
        (
            f"{HARMONY}<|start|>assistant<|channel|>final<|message|>A <b> `<|end|>` <|e.<|return|>",
            1,
            "A <b> `<|end|>` <|e.",
        ),
        (
            "It writes <|channel|>commentary<|message|>I look.<|end|> so.",
            0,
            "It writes <|channel|>commentary<|message|>I look.<|end|> so.",
        ),
    ],
)
def test_marks_between_the_messages_of_harmony_are_not_shown(text: str, calls: int, words: str) -> None:
    """Proves: a preamble and an answer are words; who writes about the marks keeps them."""
    found = read_text(text)
    assert (found.calls, found.text, found.shown_text) == ([("read", {"path": "a"})] * calls, words, words)
    for at in range(len(text)):
        assert read_text([text[:at], text[at:]]).outcome == found.outcome
    assert read_text(list(text)).outcome == found.outcome


@pytest.mark.parametrize("text", ['<function=read>{"path": "a"}</function>', '<function=read>\n{"path": "a"}\n'])
def test_json_between_function_tags_is_read(text: str) -> None:
    """Proves: Llama 3.1's own calls; before, they were told as wrong ones of Qwen3-Coder."""
    found = read_text(text)
    assert (found.calls, found.text) == ([("read", {"path": "a"})], "")
    assert "written as llama" in found.response.repairs[0].what
    assert read_text(list(text)).outcome == found.outcome
    assert read_text(text[:20], reason=FinishReason.LENGTH).states == ["truncated"]
