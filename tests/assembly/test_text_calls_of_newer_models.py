"""What the syntaxes of newer models hold that older ones do not (issue 48, "Calls in text"): strings between marks of their own,
typed elements, keyed objects, messages that begin within the template, and markup that is left over.

The shapes are those of the templates and parsers that docs/calls-in-text.md names.
"""

import json
from collections.abc import Sequence

import pytest

from tables import each
from text_calls import TOOLS, read_text
from turnwise.assembly.response_reading import read_body
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import CALL_NOT_READ, FinishReason, Reasoning, Response, calls_of, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import Profile

CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
K3 = (
    '<|open|>tools<|sep|><|open|>call tool="read" index="1"<|sep|><|open|>argument key="path" type="string"<|sep|>7'
    "<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"
)
HEADER = "to=functions.read<|channel|>commentary <|constrain|>json<|message|>"


def splits(text: str) -> Sequence[list[str]]:
    return [[text], list(text), *[[text[:at], text[at:]] for at in range(1, len(text))]]


def outcomes(text: str) -> set[str]:
    """What becomes of a text, for each way to split it."""
    return {repr(read_text(pieces).outcome) for pieces in splits(text)}


@each(
    ("text", "calls"),
    [
        ('<|tool_call>call:read{a b:<|"|>x, "y"}<|"|>, n:[1.5,{k:<|"|>v<|"|>}], z:None}<tool_call|>',
         [("read", {"a b": 'x, "y"}', "n": [1.5, {"k": "v"}], "z": None})]),
        ("<start_function_call>call:a.b-c{}<end_function_call>", [("a.b-c", {})]),
        ('<｜DSML｜tool_calls>\n<｜DSML｜invoke name="list"/>\n</｜DSML｜tool_calls>', [("list", {})]),
        (K3.replace('"path"', '"q&amp;&quot;"'), [("read", {'q&"': "7"})]),
        (K3.replace('"string"', '"number"'), [("read", {"path": 7})]),
        ('<|tools_prefix|>[{"read": {"path": "a"}}, {"list": {}}]<|tools_suffix|>', [("read", {"path": "a"}), ("list", {})]),
        ("<function_calls>\nread(path='a')\nlist()\n</function_calls>", [("read", {"path": "a"}), ("list", {})]),
        ('functools[{"name": "read", "arguments": {"path": "a"}}]', [("read", {"path": "a"})]),
        ('<|tool_call|>[{"name": "list", "arguments": {}}]<|end_of_text|>', [("list", {})]),
        (f' {HEADER}{{"path": "a"}}', [("read", {"path": "a"})]),
    ],
    ids=["gemma", "function gemma", "self-closing", "escaped key", "typed", "keyed", "lines", "functools", "granite", "harmony"],
)  # fmt: skip
def test_a_call_is_read_with_its_very_arguments(text: str, calls: list[object]) -> None:
    """Proves: names, types, blanks and marks are those of the syntax, at every split, and nothing of it is shown."""
    found = read_text(text)
    assert (found.calls, found.text.strip()) == (calls, "")
    assert len(outcomes(text)) == 1


@each(
    "text",
    [
        '<|tool_call>call:read{path:<|"|>a<|"|>b<|"|>}<tool_call|>',
        '<|tool_call>call:read{path:a}<tool_call|>',
        '<|tool_call>call:read{path:<|"|>a<|"|>,path:<|"|>b<|"|>}<tool_call|>',
        '<|tool_call>call:read{path:<|"|>a<|"|>',
        K3.replace(">7<", "><|close|>argument<|sep|> ends it<"),
        '<|tools_prefix|>[{"read": {"path": "a"}, "list": {}}]<|tools_suffix|>',
        "<function_calls>read(path=name)</function_calls>",
    ],
    ids=["mark in value", "bare value", "twice", "not closed", "closed within", "two keys", "no literal"],
)  # fmt: skip
def test_what_can_be_read_in_two_ways_does_not_run(text: str) -> None:
    """Proves: such a call is told to the model, at every split alike."""
    assert read_text(text).calls == []
    assert len(outcomes(text)) == 1


def test_a_cut_string_between_marks_keeps_its_beginning() -> None:
    """Proves: recovery can go on with a call that the output limit cut within a value."""
    found = read_text(
        '<|tool_call>call:write_file{path:<|"|>a.txt<|"|>,content:<|"|>one\ntwo<|"', reason=FinishReason.LENGTH
    )
    assert [(call.name, call.arguments, call.state.value) for call in calls_of(found.response.message)] == [
        ("write_file", '{"path":"a.txt","content":"one\\ntwo', "truncated")
    ]


def test_marks_around_an_answer_are_not_shown() -> None:
    """Proves: Kimi K3's marks are no words, at every split; where the words are about them, they stay."""
    before = "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Wait.<|close|>response<|sep|>"
    text = f"{before}{K3}<|close|>message<|sep|>"
    found = read_text(text)
    assert (found.calls, found.text) == ([("read", {"path": "7"})], "Wait.")
    assert len(outcomes(text)) == 1
    told = "It writes <|open|>response<|sep|> first."
    assert read_text(told).text == told


def settled(text: str) -> Response:
    finder = CallFinder(tools=TOOLS)
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
    profile = Profile(name="openai_chat", family="openai_chat")
    return read_body(body, family=family("openai_chat"), profile=profile, in_text=finder)[0]


@each(
    ("text", "thought", "answer"),
    [
        ("Plan.</think>Done.", "Plan.", "Done."),
        (f"I look.\n</think>\n\n{CALL}", "I look.", ""),
        ("Plan.[/THINK]Done.", "Plan.", "Done."),
        ("It ends with </think>, as always.", "", "It ends with </think>, as always."),
        ("Use `a</think>b` there.", "", "Use `a</think>b` there."),
        ("<think>a</think>b</think>c", "a", "b</think>c"),
    ],
    ids=["plain", "call", "other mark", "words", "code", "opened"],
)
def test_reasoning_without_its_opening_mark_is_no_answer(text: str, thought: str, answer: str) -> None:
    """Proves: where the template has opened the reasoning, the whole response holds it apart from the answer."""
    response = settled(text)
    parts = [part.text for part in response.message.parts if isinstance(part, Reasoning)]
    assert ("".join(parts), text_of(response.message).strip()) == (thought, answer)


@pytest.mark.parametrize("outer", ["It writes {} and waits.", "It ends with {}, as told.", "It is {}."])
def test_an_example_within_a_sentence_is_words(outer: str) -> None:
    """Proves: an unfenced example of a call runs nothing; behind the end of a sentence, or at the end of a line, it is a call."""
    text = outer.format(CALL.replace("\n", " "))
    assert (read_text(text).states, read_text(text).text) == ([], text)
    assert len(outcomes(text)) == 1
    assert read_text(f"I look. {CALL} and wait").states == read_text(f"I look at {CALL}").states == ["complete"]


@each(
    ("text", "is_told"),
    [
        ('<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>', True),
        ("<|tool_calls_section_begin|> noise <|tool_calls_section_end|>", True),
        ('<|tool_call>call:nope{a:<|"|>x<|"|>}<tool_call|><eos>', True),
        ('<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>\nThat is how.', False),
        ('So: `<tool_call>{"name": "nope", "arguments": {}}</tool_call>`', False),
        (CALL, False),
    ],
    ids=["other tool", "noise", "end mark", "words behind", "code", "call"],
)
def test_markup_that_ends_an_answer_is_told(text: str, is_told: bool) -> None:
    """Proves: nobody takes it for an answer."""
    kinds = [one.kind for one in read_text(text).response.repairs]
    assert (CALL_NOT_READ in kinds) is is_told
    assert len(outcomes(text)) == 1
