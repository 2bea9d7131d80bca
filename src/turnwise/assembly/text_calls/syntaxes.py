"""The marked syntaxes: by what each begins, and the reader of what follows. The readers name their sources."""

import re
from functools import cache

import msgspec

from turnwise.assembly.text_calls import harmony, json_calls, tagged_calls
from turnwise.assembly.text_calls.block_cursor import Reader

# Blocks of one response that are looked at as calls; the rest is text. The turn machine runs fewer.
MAX_BLOCKS = 256


class Syntax(msgspec.Struct, frozen=True, kw_only=True):
    """`marker` begins a block. `ends` are the marks by which a block that is no whole call ends, `closes` those by which a whole
    one may end besides."""

    name: str
    marker: str
    reader: Reader
    ends: tuple[str, ...]
    closes: tuple[str, ...] = ()

    @property
    def may_end(self) -> re.Pattern[str]:
        return _one_of(self.ends + self.closes)


@cache
def _one_of(marks: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, marks)))


# In these syntaxes a value may close its own call. Then these marks stand behind it without their beginning.
CLOSING = {
    "qwen3-coder": ("</tool_call>", "</function>", "</parameter>"),
    "glm": ("</tool_call>", "</arg_value>"),
    "minimax": ("</minimax:tool_call>", "</invoke>", "</parameter>"),
    "dsml": ("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>", "</｜DSML｜invoke>", "</｜DSML｜parameter>"),
}

# Here a marker and a tool's name are all that tells a call from words about it.
BEGUN_BY_A_NAME = frozenset({"qwen3-coder", "glm", "mistral", "llama"})

SYNTAXES = (
    Syntax(
        name="tool_call",  # Hermes, Qwen, Qwen3-Coder, GLM: what follows tells
        marker="<tool_call>",
        reader=json_calls.tool_call,
        ends=("</tool_call>",),
    ),
    Syntax(
        name="qwen3-coder",
        marker="<function=",
        reader=json_calls.function_tag,
        ends=("</function>",),
        closes=("</tool_call>",),
    ),
    Syntax(name="mistral", marker="[TOOL_CALLS]", reader=json_calls.mistral, ends=(), closes=("]", "}")),
    Syntax(
        name="llama",
        marker="<|python_tag|>",
        reader=json_calls.llama,
        ends=("<|eom_id|>", "<|eot_id|>"),
        closes=("}", ")", "]"),
    ),
    Syntax(name="pythonic", marker="<|python_start|>", reader=json_calls.llama_4, ends=("<|python_end|>",)),
    Syntax(
        name="deepseek",
        marker="<｜tool▁calls▁begin｜>",
        reader=json_calls.deepseek,
        ends=("<｜tool▁calls▁end｜>",),
    ),
    Syntax(
        name="dsml",
        marker="<｜DSML｜function_calls>",
        reader=tagged_calls.dsml,
        ends=("</｜DSML｜function_calls>",),
    ),
    Syntax(
        name="dsml",
        marker="<｜DSML｜tool_calls>",
        reader=tagged_calls.dsml_v4,
        ends=("</｜DSML｜tool_calls>",),
    ),
    Syntax(
        name="kimi",
        marker="<|tool_calls_section_begin|>",
        reader=json_calls.kimi,
        ends=("<|tool_calls_section_end|>",),
    ),
    Syntax(
        name="kimi",
        marker="<|tool_call_section_begin|>",
        reader=json_calls.kimi,
        ends=("<|tool_call_section_end|>",),
    ),
    Syntax(
        name="minimax",
        marker="<minimax:tool_call>",
        reader=tagged_calls.minimax,
        ends=("</minimax:tool_call>",),
    ),
    *[Syntax(name="harmony", marker=marker, reader=harmony.call, ends=harmony.ENDS) for marker in harmony.BEGINNINGS],
    Syntax(name="lfm", marker="<|tool_call_start|>", reader=json_calls.lfm, ends=("<|tool_call_end|>",)),
)
# Not the beginning of a call: behind it another message of harmony may begin.
ENDS_OF_MESSAGES = tuple(
    [Syntax(name="harmony", marker=marker, reader=harmony.end, ends=(marker,)) for marker in harmony.ENDS]
)
BY_MARKER = {one.marker: one for one in SYNTAXES}
BY_MARK = BY_MARKER | {one.marker: one for one in ENDS_OF_MESSAGES}
LONGEST_END = max([len(mark) for one in SYNTAXES for mark in one.ends])
LONGEST_MARKER = max(map(len, BY_MARKER))
MARKERS = re.compile("|".join(map(re.escape, sorted(BY_MARKER, key=len, reverse=True))))
# The same, and the ends of messages.
MARKS = re.compile("|".join(map(re.escape, sorted(BY_MARK, key=len, reverse=True))))
# Every beginning of a mark, the whole one left out.
BEGINNINGS = frozenset([mark[:length] for mark in BY_MARK for length in range(1, len(mark))])


def held_from(text: str) -> int:
    """Where an end of the text begins that may be the beginning of a mark; its length where there is none."""
    for at in range(max(0, len(text) - LONGEST_MARKER + 1), len(text)):
        if text[at] in "<[" and text[at:] in BEGINNINGS:
            return at
    return len(text)
