"""Reasoning that stands at the beginning of a text, between marks of its own.

Sources: the chat templates of DeepSeek-R1, Qwen3, GLM-4.5 and MiniMax-M2 (`<think>`), Magistral (`[THINK]`), Seed-OSS
(`<seed:think>`), Kimi-VL (`◁think▷`), Command A (`<|START_THINKING|>`), and harmony's `analysis` channel; the others are seen
from models that were told to write them.
"""

import re

MARKS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<mm:think>": "</mm:think>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel|>analysis<|message|>": "<|end|>",
    "<|start|>assistant<|channel|>analysis<|message|>": "<|end|>",
}
# What an answer may begin with that is no part of it: harmony's marks of what the user sees, the answer or words before a call.
ANSWER_MARKS = (
    "<|start|>assistant<|channel|>final<|message|>",
    "<|channel|>final<|message|>",
    "<|start|>assistant<|channel|>commentary<|message|>",
    "<|channel|>commentary<|message|>",
)
# By which a message of harmony ends; another may begin behind it.
_MESSAGE_ENDS = ("<|end|>", "<|return|>")
MESSAGE_END = re.compile("|".join(map(re.escape, _MESSAGE_ENDS)))
_ALL = (*MARKS, *ANSWER_MARKS)
# Pairs that nothing but reasoning has.
PAIRS = {opens: close for opens, close in MARKS.items() if close != "<|end|>"}
PAIRS_BY_CLOSE = {close: opens for opens, close in PAIRS.items()}
PAIR_MARKS = re.compile("|".join(map(re.escape, [*PAIRS, *PAIRS_BY_CLOSE])))


def opening(text: str) -> str | None:
    """The mark that the text begins with; the empty text where it may yet become one, None where it does not."""
    for mark in _ALL:
        if text.startswith(mark):
            return mark
    return "" if any(mark.startswith(text) for mark in _ALL) else None


def held_from(text: str, *, close: str) -> int:
    """Where an end of the text begins that may be the beginning of the closing mark."""
    for at in range(max(0, len(text) - len(close) + 1), len(text)):
        if close.startswith(text[at:]):
            return at
    return len(text)


def held_before_message_end(text: str) -> int:
    """Where an end of the text begins that may be the beginning of a message's end."""
    return min(held_from(text, close=one) for one in _MESSAGE_ENDS)


def is_harmony(mark: str) -> bool:
    return mark.endswith("<|message|>")
