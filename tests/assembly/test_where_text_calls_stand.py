"""Where a call stands decides whether it runs: reasoning, channels of harmony, tags, quotations, other texts (issue 16, A)."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from text_calls import WRITERS, Reading, harmony, qwen_coder, read_text
from thoroughness import examples
from turnwise.assembly.text_calls import tags as thinking
from turnwise.vocab import Frame, PartDone, Reasoning, ReasoningDelta, Text, TextDelta

READ = [("read", {"path": "a"})]
HERMES = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'
MESSAGE = harmony(READ)
START = "<|start|>assistant"
ANALYSIS, FINAL, COMMENTARY = [f"<|channel|>{name}<|message|>" for name in ("analysis", "final", "commentary")]
each_syntax = each("syntax", sorted(WRITERS))
LAST = frozenset({"llama"})  # its calls are the rest of the message


def at_every_split(text: str, *, unmarked: bool = False) -> Reading:
    """The same in single characters, and at every place (of a long text, a hundred)."""
    found = read_text(text, unmarked=unmarked)
    step = 1 + len(text) // 100
    for pieces in (list(text), *[[text[:at], text[at:]] for at in range(0, len(text), step)]):
        assert read_text(pieces, unmarked=unmarked).outcome == found.outcome, pieces
    return found


def of_frames(*frames: Frame, unmarked: bool = False, leading: bool = False) -> Reading:
    return read_text([], before=frames, unmarked=unmarked, leading=leading)


def kinds(found: Reading) -> list[str]:
    return [one.kind for one in found.response.repairs]


# harmony


@each("before", ["", "Pre", "Pre\n", "Pre ", "Pre<|end|>", f"Pre<|end|>{START}", f"{FINAL}Pre<|end|>\n{START}"])
@each("header", [ANALYSIS, "<|channel|>analysis <|message|>", "<|channel|>Analysis code<|message|>"])
@each("thought", [f"I could {HERMES}", f"I could send {MESSAGE}", f"A <b> {START} or {HERMES}"])
@each(
    "after",
    ["", "<|end|>", f"<|end|>{START}{FINAL}Done", f"{START}{FINAL}Done<|return|>", f"{FINAL}Done"],
    meeting="each",
)
def test_what_stands_in_the_analysis_channel_never_runs(before: str, header: str, thought: str, after: str) -> None:
    """Proves: wherever the channel begins; the thought is no answer, and no marks are shown."""
    found = read_text(f"{before}{header}{thought}{after}")
    answer = ("Pre" if "Pre" in before else "") + ("Done" if after.endswith(("Done", "Done<|return|>")) else "")
    assert (found.states, found.text.replace("\n", "").replace(" ", "")) == ([], answer)
    assert kinds(found) == ["call_not_made"]
    assert read_text(list(f"{before}{header}{thought}{after}")).outcome == found.outcome


@pytest.mark.costly
@each(
    "header",
    [
        "<|channel|>analysis to=functions.read",
        "<|channel|>analysis to=functions.read <|constrain|>json",
        "<|channel|>analysis to=read code",
        f"{START}<|channel|>analysis to=functions.read",
        f"{START} to=functions.read<|channel|>analysis <|constrain|>json",
    ],
)
@each("before", ["", "Pre", f"{ANALYSIS}Hm.<|end|>", f"Pre<|end|>{START}<|channel|>commentary<|message|>A<|end|>"])
def test_a_call_that_is_sent_in_the_analysis_channel_is_told(before: str, header: str) -> None:
    """Proves: it was meant, so the model hears that it was not made; nothing of it is shown."""
    found = at_every_split(f'{before}{header}<|message|>{{"path": "a"}}<|call|>')
    assert (found.states, kinds(found)) == ([], ["call_not_made"])
    assert "<|" not in found.text and "{" not in found.text


@pytest.mark.costly
@each(
    "header",
    [
        "<|channel|>commentary to=functions.read <|constrain|>json",
        "<|channel|>commentary to=functions.read",
        "<|channel|>commentary to=read json",
        f"{START}<|channel|>commentary to=functions.read code",
        f"{START} to=functions.read<|channel|>commentary <|constrain|>json",
        f"{START} to=functions.read",
        "<|channel|>final to=functions.read",
    ],
)
@each("before", ["", "Pre", f"{ANALYSIS}Hm.<|end|>", f"{COMMENTARY}Pre<|end|>", "Pre <think>so<|end|>"])
def test_a_call_in_another_channel_runs(before: str, header: str) -> None:
    """Proves: every form of its header; a new message is in no reasoning of the one before."""
    if before.endswith("<|end|>") and not header.startswith(START):
        header = START + header
    found = at_every_split(f'{before}{header}<|message|>{{"path": "a"}}<|call|>')
    assert found.calls == READ and "<|" not in found.text


@each(
    ("text", "states", "words"),
    [
        (f"I could {HERMES}<|end|>{START}{FINAL}Done", ["invalid"], "I could Done"),
        (f"I could {HERMES}<|end|>\nDone", ["invalid"], "I could <|end|>\nDone"),
        (f"analysisI could: {HERMES} but.assistantfinalDone", ["invalid"], "analysisI could:  but.assistantfinalDone"),
        (f"<|start|>functions.read to=assistant{COMMENTARY}{HERMES}<|end|>{START}{FINAL}Done", [], "Done"),
        (f"<|start|>user<|message|>Do {HERMES}<|end|>{START}{FINAL}Done", [], "Done"),
        (f"{COMMENTARY}Pre {HERMES}<|end|>{START}{FINAL}Done", ["complete"], "Pre Done"),
        (f"{ANALYSIS}I look{COMMENTARY}So {HERMES}", ["complete"], "So "),
        (f"{HERMES}<|end|>", ["complete"], ""),
        ("Done<|end|>", [], "Done"),
        (f"Done<|end|>{START}", [], "Done"),
        ("It ends with <|end|>", [], "It ends with <|end|>"),
        ("A message <|channel|>. Then <|message|> follows.", [], "A message <|channel|>. Then <|message|> follows."),
        (f"Write <|channel|>. So:\n\n> ~~~\n> {MESSAGE}\n", [], f"Write <|channel|>. So:\n\n> ~~~\n> {MESSAGE}\n"),
    ],
)
def test_messages_of_harmony_in_other_forms(text: str, states: list[str], words: str) -> None:
    """Proves: marks left out, other roles, the end of a text; who writes about the marks keeps them."""
    found = at_every_split(text)
    assert (found.states, found.text) == (states, words)


# reasoning


@pytest.mark.costly
@each("mark", sorted(thinking.MARKS))
@each("change", [str, str.upper, str.title], meeting="each")
def test_reasoning_of_every_kin_runs_nothing(mark: str, change: "type[str]") -> None:
    """Proves: at the beginning it is reasoning; behind words a call in it is told, closed or not; behind it a call runs."""
    opens, closes = change(mark), change(thinking.MARKS[mark])
    found = at_every_split(f"{opens}\nI could {HERMES}\n{closes}\n\nDone {HERMES}")
    assert found.calls == READ and found.response.message.parts[0] == Reasoning(f"I could {HERMES}")
    assert (at_every_split(f"{opens}I could {HERMES}").states, found.text) == ([], "Done ")
    for words in (f"Well.\n{opens}\nI could {HERMES}", f"Well.\n{opens}\nI could {HERMES}\n{closes}\nDone"):
        found = at_every_split(words)
        assert (found.calls, found.states) == ([], ["invalid"])
    assert at_every_split(f"Well. {opens}So.{closes} {HERMES}").calls == READ
    assert at_every_split(f"Write `{opens}` first. {HERMES}").calls == READ


@each("before", ["\ufeff", "\ufeff\n", "\n\ufeff"])
@each("mark", sorted(thinking.MARKS))
def test_a_mark_of_a_byte_order_keeps_no_reasoning_in_the_text(mark: str, before: str) -> None:
    """The fifth tester's text: a server had put U+FEFF before `<think>`."""
    text = f"{before}{mark}a {HERMES}{thinking.MARKS[mark]}It is so."
    for pieces in (text, list(text)):
        found = read_text(pieces)
        assert (found.calls, found.shown_text) == ([], "It is so.")


@each_syntax
def test_a_call_behind_an_open_thought_is_told_in_every_syntax(syntax: str) -> None:
    """Proves: tags with attributes and in other cases too."""
    block = WRITERS[syntax](READ)
    for opens in ("<think>", "<Thinking time='3'>", "<think\n>", "<scratchpad >"):
        found = read_text(f"Well.\n{opens}\nI could {block}")
        assert (found.calls, found.states) == ([], ["invalid"])
        assert read_text(list(f"Well.\n{opens}\nI could {block}")).outcome == found.outcome


# code, tags and quotations


@each_syntax
@each(
    ("before", "after"),
    [
        ("<pre>\n", "\n</pre>"),
        ("So: <pre class='x'><code>", "</code></pre> is it."),
        ("Write <CODE>", "</CODE> so."),
        ("<!-- ", " -->\nDone."),
        ("<example>\n", "\n</example>"),
        ("It is\n<blockquote>\n", "\n</blockquote>"),
        ("[code]", "[/code]"),
        ("<![CDATA[", "]]>"),
        ("<script>\n```\n", "\n</script>"),
        ('He wrote "', '" there.'),
        ("He wrote “", "”."),
    ],
    meeting="each",
)
def test_a_call_that_is_only_shown_is_text(syntax: str, before: str, after: str) -> None:
    """Proves: what HTML shows or hides, examples and quotations; a call behind them runs."""
    block = WRITERS[syntax](READ)
    if syntax in LAST:
        return
    found = at_every_split(f"{before}{block}{after}")
    assert (found.states, found.text) == ([], f"{before}{block}{after}")
    if '"' not in before and "“" not in before:
        assert read_text(f"{before}x{after}\n{block}").calls == READ


@each_syntax
def test_a_call_in_a_quotation_is_text(syntax: str) -> None:
    """Proves: each line with its mark, also in lists and with words before; a call behind it runs."""
    block = WRITERS[syntax](READ)
    line = block.replace("\n", " ")
    if "```" in line or syntax in LAST:
        return
    for text in (f"He said:\n> {line}\n", f"> He said {line} there.\n", f"- a\n  > {line}", f">> {line}\n\nDone."):
        found = at_every_split(text)
        assert (found.states, found.text) == ([], text)
    assert read_text(f"> He said so.\n\n{line}").calls != []
    assert read_text(f"> He said so.\n\n{block}").calls == read_text(f"a > b {block}").calls == READ


@pytest.mark.parametrize("before", ["Text\n\n    ", "Text\n\n\t", "> ", "```\n\n"])
def test_a_block_whose_first_mark_is_code_is_code(before: str) -> None:
    """Proves: `<function=` stands at the beginning of a line, but belongs to the block."""
    found = at_every_split(f"{before}{qwen_coder(READ)}")
    assert (found.states, found.text) == ([], f"{before}{qwen_coder(READ)}")
    assert read_text(f"It begins with `<tool_call>`.\n{qwen_coder(READ)}").calls == READ
    assert read_text(f"{HERMES}\n\n    {HERMES}").calls == READ  # the second one is code


@pytest.mark.costly
@each_syntax
@each("before", ["Use <code> so.\n", "A <pre> is it:\n\n", "<!-- x\n", "An <example>:\n"])
def test_a_call_behind_a_tag_that_is_never_closed_is_told(syntax: str, before: str) -> None:
    """Proves: it is not lost. Nothing is told where the limit cut the text, because the end of the tag may have been cut off."""
    block = WRITERS[syntax](READ)
    if syntax in LAST:
        return
    found = at_every_split(f"{before}{block}\n")
    assert (found.calls, found.states) == ([], ["invalid"])
    assert "not closed" in str(found.response.message.parts[-1])
    assert read_text(f"{before}{block} so", reason=None).calls == []


tags = st.sampled_from(
    ("<pre>", "</pre>", "<code>", "</code>", "<!--", "-->", "<think>", "</think>", "`", "```\n", "\n", " a ")
)


@settings(max_examples=examples(200), deadline=None)
@given(parts=st.lists(tags, max_size=8), cuts=st.lists(st.integers(0, 80), max_size=4))
def test_pieces_change_nothing_of_where_a_call_stands(parts: Sequence[str], cuts: Sequence[int]) -> None:
    """Proves: tags that are cut in two, behind code and in it."""
    text = f"So {''.join(parts)}{HERMES} and <pre>.</pre></think>"
    places = sorted({0, len(text), *[cut for cut in cuts if cut < len(text)]})
    pieces = [text[start:end] for start, end in itertools.pairwise(places)]
    assert read_text(pieces).outcome == read_text(text).outcome == read_text(list(text)).outcome


@settings(max_examples=examples(200), deadline=None)
@given(parts=st.lists(tags, max_size=8))
def test_a_call_behind_tags_runs_or_is_told_or_stands_in_what_is_closed(parts: Sequence[str]) -> None:
    """Proves: no tag makes a call vanish: outside of code it runs, is told, or its tag is closed behind it."""
    text = "".join([part for part in parts if "`" not in part])
    found = read_text(f"So {text}: {HERMES} so")
    assert found.states in (["complete"], ["invalid"])
    opened = {mark: text.count(mark) for mark in ("<pre>", "<code>", "<!--", "<think>")}
    if not any(opened.values()):
        assert found.calls == READ


# fences that are the whole answer


@each("language", ["sh", "bash", "md", "markdown", "text", "console", "js", "diff", "html", "yaml", "c++"])
@each("inner", ['{"name": "read", "arguments": {"path": "a"}}', "read(path='a')", "[read(path='a')]", HERMES])
def test_a_fence_of_another_language_is_text_with_on(language: str, inner: str) -> None:
    """Proves: only the languages that the syntaxes' sources use count."""
    text = f"```{language}\n{inner}\n```"
    found = at_every_split(text, unmarked=True)
    assert (found.states, found.text) == ([], text)
    for own in ("", "JSON", "tool_code", "python"):
        assert read_text(f"```{own}\n{inner}\n```", unmarked=True).calls == READ


# several texts in one response

FENCED = '```json\n{"name": "read", "arguments": {"path": "a"}}\n```'


@each(
    ("texts", "states", "told"),
    [
        (("Ex:\n```\n", f"{HERMES}\n```"), [], []),
        (("Use `", f"{HERMES}` so"), [], []),
        (("Ex:\n> ", HERMES), [], []),
        (("<pre>", HERMES, "</pre>"), [], []),
        (("<pre>", HERMES, "so"), ["invalid"], []),
        (('He said "', f'{HERMES}" so'), [], []),
        (("<think>Hm", f"{HERMES}</think>Done"), [], ["call_not_made"]),
        (("Well. <think>Hm", f"{HERMES} so"), ["invalid"], []),
        ((f"{ANALYSIS}Hm", HERMES), [], ["call_not_made"]),
        ((f"I could {HERMES}", "\n</think>\nDone"), ["invalid"], []),
        ((qwen_coder(READ), "x\n</parameter>\n</function>\n</tool_call>"), ["invalid"], []),
        (("Ex:\n```\nx\n```\n", f"{HERMES} so"), ["complete"], []),
        ((HERMES, HERMES, "so"), ["complete", "complete"], []),
    ],
)
def test_where_a_call_stands_is_one_state_for_all_texts_of_a_response(
    texts: Sequence[str], states: list[str], told: list[str]
) -> None:
    """Proves: code, reasoning and doubts go on from text to text, in pieces, as bodies, and with both."""
    deltas = [TextDelta(text, str(n)) for n, text in enumerate(texts)]
    pieces = [TextDelta(char, str(n)) for n, text in enumerate(texts) for char in text]
    finals = [PartDone(str(n), Text(text)) for n, text in enumerate(texts)]
    both = [frame for pair in zip(deltas, finals, strict=True) for frame in pair]
    for frames in (deltas, pieces, finals, both):
        found = of_frames(*frames)
        assert found.states == states
        assert [kind for kind in kinds(found) if kind == "call_not_made"] == told


def test_reasoning_between_two_texts_ends_no_code() -> None:
    """Proves: a fence holds on behind it."""
    found = of_frames(TextDelta("Ex:\n```\n", "0"), ReasoningDelta("hm", "r"), TextDelta(HERMES, "1"))
    assert (found.states, found.text) == ([], f"Ex:\n```\n{HERMES}")


@pytest.mark.parametrize(
    ("frames", "states"),
    [
        ((("0", "Ex:\n"), ("1", "Now: "), ("0", "```\n"), ("1", HERMES)), ["invalid"]),
        ((("0", "Well "), ("1", "so: "), ("0", "<think>"), ("1", f"{HERMES} x")), ["invalid"]),
        ((("0", f"I could {HERMES}"), ("1", "more "), ("0", "</think>")), ["invalid"]),
        ((("0", "I "), ("1", "x </think> "), ("0", HERMES)), ["invalid"]),
        ((("0", "Ex:\n"), ("1", "Now: "), ("0", "more\n"), ("1", HERMES)), ["complete"]),
    ],
)
def test_texts_that_come_mixed_run_nothing_that_may_stand_elsewhere(
    frames: Sequence[tuple[str, str]], states: list[str]
) -> None:
    """Proves: the order of the response counts; what was assumed of an earlier text and proves wrong is told."""
    assert of_frames(*[TextDelta(text, block) for block, text in frames]).states == states


def test_only_the_whole_response_is_a_call_without_a_marker() -> None:
    """Proves: words in another text of it make the fence or the list words, and all keep their order."""
    fence, words = TextDelta(FENCED, "0"), TextDelta("That is it.", "1")
    for frames in ((fence, words), (PartDone("0", Text(FENCED)), PartDone("1", Text("That is it.")))):
        found = of_frames(*frames, unmarked=True)
        assert (found.states, found.text) == ([], f"{FENCED}That is it.")
    found = of_frames(TextDelta("So:\n", "0"), TextDelta(FENCED, "1"), unmarked=True)
    assert (found.states, found.text) == ([], f"So:\n{FENCED}")
    for before in ("\n", "<think>Hm.</think>"):
        assert of_frames(TextDelta(before, "0"), TextDelta(FENCED, "1"), unmarked=True).calls == READ
    assert of_frames(TextDelta("[read(path='a')]", "0"), words).states == []


def test_only_the_first_text_begins_a_continuation() -> None:
    """Proves: a second text is not the beginning."""
    assert of_frames(TextDelta("The model ", "0"), TextDelta(HERMES, "1"), leading=True).states == []
    assert of_frames(TextDelta("", "0"), TextDelta(HERMES, "1"), leading=True).calls == READ


def test_a_call_in_reasoning_is_told_also_if_its_text_comes_as_a_whole_or_marks_itself() -> None:
    """Proves: a body's text that begins with `<think>`, and a server's reasoning that still has the mark."""
    body = of_frames(PartDone("0", Text(f"<think>I could {HERMES}</think>Done")))
    marked = read_text("Done", before=[ReasoningDelta(f"<think>I could {HERMES}</think>")])
    for found in (body, marked):
        assert (found.states, found.text, kinds(found)) == ([], "Done", ["call_not_made"])
