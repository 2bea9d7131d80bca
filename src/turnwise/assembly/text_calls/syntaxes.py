"""The marked syntaxes: by what each begins, and the reader of what follows. The readers name their sources."""

import re
from functools import cache, partial

import msgspec

from turnwise.assembly.text_calls import braced_calls, harmony, json_calls, tagged_calls, tags
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
    is_frame: bool = False  # no call: the mark stands between parts of a message, and is not shown

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
    "longcat": ("</longcat_tool_call>", "</longcat_arg_value>"),
    "seed": ("</seed:tool_call>", "</function>", "</parameter>"),
    "minimax": tagged_calls.INVOKE.closing("</minimax:tool_call>"),
    "function_calls": tagged_calls.INVOKE.closing("</function_calls>"),
    "dsml": (
        *tagged_calls.DSML.closing("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
        *tagged_calls.DSML_SPACED.closing("</｜DSML｜ calls>"),
    ),
    "step": tagged_calls.STEP.closing("<｜tool_calls_end｜>", "<｜tool_call_end｜>"),
    "gemma": ("<tool_call|>", '<|"|>', "<end_function_call>", "<escape>"),
    "xtml": tagged_calls.XTML.closing("<|close|>tools<|sep|>"),
}

# Here a marker and a tool's name are all that tells a call from words about it.
BEGUN_BY_A_NAME = frozenset({"qwen3-coder", "glm", "mistral", "llama"})


def _elements(name: str, marker: str, end: str, *, written: tagged_calls.Elements) -> Syntax:
    reader = partial(tagged_calls.invokes, written=written, end=end)
    return Syntax(name=name, marker=marker, reader=reader, ends=(end,))


def _objects(name: str, marker: str, *ends: str, is_keyed: bool = False) -> Syntax:
    return Syntax(name=name, marker=marker, reader=partial(json_calls.objects, ends=ends, is_keyed=is_keyed), ends=ends)


def _braced(name: str, marker: str, end: str, *, mark: str) -> Syntax:
    return Syntax(name=name, marker=marker, reader=partial(braced_calls.call, mark=mark, end=end), ends=(end,))


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
    *[
        _elements("dsml", f"<｜DSML｜{outer}>", f"</｜DSML｜{outer}>", written=tagged_calls.DSML)
        for outer in ("function_calls", "tool_calls")
    ],
    _elements("dsml", "<｜DSML｜ calls>", "</｜DSML｜ calls>", written=tagged_calls.DSML_SPACED),
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
    _elements("minimax", "<minimax:tool_call>", "</minimax:tool_call>", written=tagged_calls.INVOKE),
    _elements("step", "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", written=tagged_calls.STEP),
    _elements("xtml", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>", written=tagged_calls.XTML),
    Syntax(
        name="function_calls",
        marker="<function_calls>",
        reader=json_calls.function_calls,
        ends=("</function_calls>",),
    ),
    Syntax(
        name="longcat",
        marker="<longcat_tool_call>",
        reader=json_calls.longcat,
        ends=("</longcat_tool_call>",),
    ),
    Syntax(
        name="seed",
        marker="<seed:tool_call>",
        reader=partial(tagged_calls.qwen_coder, wrapped=True, end="</seed:tool_call>"),
        ends=("</seed:tool_call>",),
    ),
    _braced("gemma", "<|tool_call>", "<tool_call|>", mark='<|"|>'),
    _braced("gemma", "<start_function_call>", "<end_function_call>", mark="<escape>"),
    _objects("tool_calls", "<tool_calls>", "</tool_calls>"),
    _objects("granite", "<|tool_call|>", "<|/tool_call|>", *tags.TOKENS),
    _objects("nemotron", "<TOOLCALL>", "</TOOLCALL>"),
    _objects("command", "<|START_ACTION|>", "<|END_ACTION|>"),
    _objects("apertus", "<|tools_prefix|>", "<|tools_suffix|>", is_keyed=True),
    _objects("internlm", "<|action_start|><|plugin|>", "<|action_end|>"),
    *[Syntax(name="harmony", marker=marker, reader=harmony.call, ends=harmony.ENDS) for marker in harmony.BEGINNINGS],
    Syntax(name="lfm", marker="<|tool_call_start|>", reader=json_calls.lfm, ends=("<|tool_call_end|>",)),
)
# Not the beginning of a call: behind it another message of harmony may begin.
ENDS_OF_MESSAGES = tuple(
    [Syntax(name="harmony", marker=marker, reader=harmony.end, ends=(marker,)) for marker in harmony.ENDS]
)
# These begin a call where nothing came before: a message whose first mark stands in the prompt, and Phi-4-mini's list.
RECIPIENT = Syntax(name="harmony", marker="to=functions.", reader=harmony.call, ends=harmony.ENDS)
FUNCTOOLS = Syntax(
    name="phi", marker="functools", reader=partial(json_calls.objects, ends=tags.TOKENS), ends=(), closes=("]",)
)
# Kimi K3's marks around an answer (its chat template).
FRAMES = tuple(
    [
        Syntax(name="xtml", marker=marker, reader=harmony.end, ends=(marker,), is_frame=True)
        for marker in (
            *("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|close|>message<|sep|>"),
            '<|open|>message role="assistant"<|sep|>',
        )
    ]
)
BY_MARKER = {one.marker: one for one in SYNTAXES}
BY_MARK = BY_MARKER | {one.marker: one for one in ENDS_OF_MESSAGES + FRAMES}
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
