"""Syntaxes whose arguments are a JSON object."""

import re
from collections.abc import Iterable
from typing import NoReturn

import msgspec

from turnwise.assembly.text_calls import pythonic, tagged_calls
from turnwise.assembly.text_calls.block_cursor import NAME, Beyond, Cursor, Wrong
from turnwise.assembly.text_calls.pythonic import literal
from turnwise.assembly.text_calls.tags import TOKENS
from turnwise.assembly.text_calls.values import names_twice

_ARGUMENT_KEYS = ("arguments", "parameters")
# What may stand beside them, and says nothing about the call.
_BESIDE = frozenset({"id", "type", "index", "call_id", "tool_call_id"})
_FUNCTION = re.compile(r"([^>\n]{1,128})>\s*(?=\{)")
# The beginning of an object that names its tool first, as all templates write it.
_NAMED = re.compile(
    r"""\{\s*(["'])(?:tool_call_id\1\s*:\s*\1[^"'\\]*\1\s*,\s*\1tool_)?name\1\s*:\s*\1(?P<name>[^"'\\]*)\1(?:\s*,\s*\1(?:arguments|parameters)\1\s*:\s*)?"""
)
# What may stand between Mistral's marker and the arguments, though it is wrong.
_HEAD = re.compile(r"[^\n{<]{0,140}?\[ARGS\]\s*(?=\{)")
_CUT_HEAD = re.compile(r"[^\n{<]{0,140}?(?:\[ARGS\]\s*)?\Z")
# Strings of Python or JSON, the last one perhaps without its end.
_STRINGS = re.compile(r"""'(?:[^'\\]|\\.)*+(?:'|\Z)|"(?:[^"\\]|\\.)*+(?:"|\Z)""", re.DOTALL)


def tool_call(cursor: Cursor) -> None:
    """Behind `<tool_call>`: Hermes writes JSON, Qwen3-Coder `<function=`, GLM the tool's name.

    Sources: the chat templates of Hermes 2 Pro and Qwen2.5 (`<tool_call>\\n{"name": .., "arguments": ..}\\n</tool_call>`), of
    Qwen3-Coder and of GLM-4.5; vLLM `hermes_tool_parser.py`.
    """
    cursor.space()
    first = cursor.peek()
    if first == "{":
        cursor.syntax = "hermes"
        hermes(cursor)
    elif first == "[":  # some write a list there
        cursor.syntax = "hermes"
        list_of_calls(cursor)
        cursor.space()
        cursor.expects("</tool_call>", is_enough=True)
    elif first == "<":
        cursor.syntax = "qwen3-coder"
        tagged_calls.qwen_coder(cursor, wrapped=True)
    else:
        cursor.syntax = "glm"
        tagged_calls.glm(cursor)


def function_tag(cursor: Cursor) -> None:
    """Behind `<function=`: Llama 3.1 writes JSON between the tags, Qwen3-Coder parameters.

    Source: Llama 3.1's model card, "User-defined custom tool calling".
    """
    head = _FUNCTION.match(cursor.text, cursor.at)
    if head is None:
        tagged_calls.qwen_coder_alone(cursor)
        return
    cursor.syntax = "llama"
    cursor.begin_call(head.group(1).strip())
    cursor.at = head.end()
    arguments(cursor)
    cursor.space()
    cursor.expects("</function>", is_enough=True)


def hermes(cursor: Cursor, *, outer: str = "tool_call") -> None:
    """One object, or several in one block (Ollama's own template writes them so). What is no JSON may be a Python dict.

    Source: Hermes-Function-Calling `utils.py`, which reads with `json.loads`, and with `ast.literal_eval` where that fails.
    """
    while True:
        object_call(cursor, or_python=True)
        cursor.space()
        if cursor.takes(f"</{outer}>", is_enough=True):
            return
        if cursor.peek() == "<":
            if cursor.takes(f"<{outer}>", is_enough=True):  # the next one begins, and this one was not closed
                cursor.at -= len(f"<{outer}>")
                return
            raise Wrong(f"`</{outer}>` was expected")
        if cursor.peek() != "{":
            raise Wrong(f"`</{outer}>` was expected")


def longcat(cursor: Cursor) -> None:
    """Behind `<longcat_tool_call>`: as Hermes or as GLM writes, with that prefix.

    Sources: vLLM `longcat_tool_parser.py`; texts of LongCat-Flash in public reports.
    """
    cursor.space()
    if cursor.peek() == "{":
        cursor.syntax = "hermes"
        hermes(cursor, outer="longcat_tool_call")
    else:
        tagged_calls.glm(cursor, prefix="longcat_", tags=tagged_calls.LONGCAT)


def objects(cursor: Cursor, *, ends: tuple[str, ...], is_keyed: bool = False) -> None:
    """A list of objects or several of them, up to a mark; `is_keyed`: an object is a name and its arguments.

    Sources: the chat templates of Granite 3, Phi-4-mini, Nemotron Nano v2, Command R7B, Apertus, Apriel and MiniMax-M1; vLLM
    `granite_tool_parser.py`, `hunyuan_a13b_tool_parser.py`, `jamba_tool_parser.py` and `internlm2_tool_parser.py`.
    """
    cursor.space()
    if cursor.peek() == "[":
        list_of_calls(cursor, is_keyed=is_keyed)
    else:
        while cursor.peek() == "{":
            object_call(cursor)
            cursor.space()
            if cursor.is_at_end:
                raise Beyond(is_enough=True)
    cursor.space()
    if not cursor.takes_one_of(*ends, is_enough=True):
        raise Wrong(f"`{ends[0]}` was expected")


def function_calls(cursor: Cursor) -> None:
    """Behind `<function_calls>`: Python calls, one a line, a list of objects, or `<invoke name=..>`.

    Sources: OLMo 3's chat template and vLLM `olmo3_tool_parser.py` (lines); the prompts of Anthropic's first tools (`<invoke`).
    """
    end = "</function_calls>"
    cursor.space()
    first = cursor.peek()
    if first == "<":
        cursor.syntax = "function_calls"
        tagged_calls.invokes(cursor, written=tagged_calls.INVOKE, end=end)
        return
    cursor.syntax = "olmo"
    if first in "[{":
        objects(cursor, ends=(end,))
        return
    while not cursor.calls or not cursor.takes(end, is_enough=True):
        pythonic.call(cursor)
        cursor.space()


def mistral(cursor: Cursor) -> None:
    """Behind `[TOOL_CALLS]`: a list of objects, or a name with `[CALL_ID]` and `[ARGS]`.

    Sources: mistral-common's instruct tokenizers (v3: the list; v11: `name[CALL_ID]id[ARGS]{..}`; v13: `name[ARGS]{..}`);
    vLLM `mistral_tool_parser.py`, which also reads `name{..}`.
    """
    cursor.space()
    if cursor.peek() == "[":
        list_of_calls(cursor)
        return
    if cursor.peek() == "{":
        object_call(cursor)
        raise Wrong("the calls are no list")
    if NAME.match(cursor.text, cursor.at) is None:
        _refuse_head(cursor)
    cursor.begin_call(cursor.tool_name())
    if cursor.peek() not in "[{ \t\r\n":
        _refuse_head(cursor)
    if cursor.takes("[CALL_ID]"):
        if not cursor.until("[ARGS]", most=64).strip().replace("-", "").replace("_", "").isalnum():
            raise Wrong("a call's id was expected")
    elif cursor.peek() == "[":
        cursor.expects("[ARGS]")
    cursor.space()
    if cursor.peek() != "{":
        _refuse_head(cursor)
    arguments(cursor)


def _refuse_head(cursor: Cursor) -> NoReturn:
    """Something else stands where the name or `[ARGS]` belongs. What stands behind `[ARGS]` is a value nevertheless."""
    head = _HEAD.match(cursor.text, cursor.at)
    if head is not None:
        cursor.at = head.end()
        _arguments_text(cursor)
    elif not cursor.is_final and _CUT_HEAD.match(cursor.text, cursor.at) is not None:
        raise Beyond
    raise Wrong("`[ARGS]` was expected behind a tool's name")


def llama(cursor: Cursor) -> None:
    """Behind `<|python_tag|>`: objects with `parameters`, apart by `;`, a list of Python calls, or a built-in tool's call.

    Sources: Llama 3.1's chat template and model card ("JSON based tool calling", "built-in tools"); vLLM `llama_tool_parser.py`.
    """
    cursor.space()
    first = cursor.peek()
    if first == "[":
        pythonic.calls(cursor)
    elif first == "{":
        while True:
            object_call(cursor)
            cursor.space()
            if cursor.is_at_end:
                raise Beyond(is_enough=True)
            if not cursor.takes(";"):
                break
            cursor.space()
    else:
        pythonic.built_in(cursor)
    cursor.space()
    if not cursor.takes_one_of(*TOKENS, is_enough=True):
        raise Wrong("the end of the message was expected")


def llama_4(cursor: Cursor) -> None:
    """Behind `<|python_start|>`: a list of Python calls.

    Sources: Llama 4's chat template; vLLM `llama4_pythonic_tool_parser.py`, which takes both marks away.
    """
    cursor.space()
    pythonic.calls(cursor)
    cursor.space()
    if not cursor.takes_one_of(*TOKENS, is_enough=True):
        raise Wrong("`<|python_end|>` was expected")


def deepseek(cursor: Cursor) -> None:
    """Behind `<｜tool▁calls▁begin｜>`: V3 and R1 write `function`, the name and a fence of JSON, V3.1 the name and JSON.

    Sources: the chat templates of DeepSeek-V3-0324, R1-0528 and V3.1; vLLM `deepseekv3_tool_parser.py`,
    `deepseekv31_tool_parser.py`.
    """
    while True:
        cursor.space()
        if cursor.calls and cursor.takes("<｜tool▁calls▁end｜>", is_enough=True):
            return
        cursor.expects("<｜tool▁call▁begin｜>", is_enough=bool(cursor.calls))
        head = cursor.until("<｜tool▁sep｜>").strip()
        if head == "function" and head not in cursor.tools.names:
            cursor.begin_call(cursor.until("\n").strip())
            cursor.space()
            cursor.expects("```json")
            cursor.space()
            text = _arguments_text(cursor)
            cursor.space()
            cursor.expects("```")
        else:
            cursor.begin_call(head)
            cursor.space()
            text = _arguments_text(cursor)
        cursor.space()
        cursor.expects("<｜tool▁call▁end｜>")
        cursor.end_call(text)


def kimi(cursor: Cursor) -> None:
    """Behind `<|tool_calls_section_begin|>`: `functions.NAME:0`, and JSON.

    Sources: Kimi-K2's chat template and `docs/tool_call_guidance.md`; vLLM `kimi_k2_tool_parser.py`, which also knows the
    singular of the section's marks.
    """
    ends = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
    while True:
        cursor.space()
        if cursor.calls and cursor.takes_one_of(*ends, is_enough=True):
            return
        cursor.expects("<|tool_call_begin|>", is_enough=bool(cursor.calls))
        id = cursor.until("<|tool_call_argument_begin|>").strip()
        cursor.begin_call(re.sub(r":\d+$", "", id).removeprefix("functions."))
        cursor.space()
        text = _arguments_text(cursor)
        cursor.space()
        cursor.expects("<|tool_call_end|>")
        cursor.end_call(text)


def lfm(cursor: Cursor) -> None:
    """Behind `<|tool_call_start|>`: a list of Python calls, or of objects.

    Sources: LFM2's chat template and model card; vLLM `lfm2_tool_parser.py`.
    """
    cursor.space()
    if re.match(r"\[\s*\{", cursor.text[cursor.at : cursor.at + 64]):
        list_of_calls(cursor)
    else:
        pythonic.calls(cursor)
    cursor.space()
    cursor.expects("<|tool_call_end|>", is_enough=True)


def bare(cursor: Cursor) -> None:
    """An object, several, or a list of them, and nothing else (Llama 3, Qwen2.5-Coder; only with `on`)."""
    cursor.space()
    if cursor.peek() == "[":
        list_of_calls(cursor, strict=True)
    else:
        while True:
            object_call(cursor, strict=True)
            cursor.space()
            if cursor.is_at_end or cursor.peek() not in ";{":
                break
            if cursor.takes(";"):
                cursor.space()
    cursor.space()


# pieces


def object_call(cursor: Cursor, *, strict: bool = False, or_python: bool = False, is_keyed: bool = False) -> None:
    """`{"name": .., "arguments": {..}}`, or `parameters`; `strict`: and no other member but `id` and `type`; `or_python`: it may
    be a dict of Python; `is_keyed`: it is `{NAME: {..}}`."""
    start = cursor.at
    try:
        text = cursor.json_value()
    except Beyond:
        _name_call(cursor, start)
        raise
    except Wrong as wrong:
        if not or_python:
            _name_call(cursor, start)
            raise
        text = _python_object(cursor, start, wrong)
    if is_keyed:
        _refuse_doubled(text)
        members = _members_of(msgspec.Raw(text.encode()))
        if len(members) != 1:
            raise Wrong("the object names no tool")
        name, given = next(iter(members.items()))
        text = msgspec.json.encode({"name": name, "arguments": given}).decode()
    _take_object(cursor, text, strict=strict)


def _name_call(cursor: Cursor, start: int) -> None:
    """The object that begins there is not whole: take the tool that it names, if any, and the arguments so far."""
    if (named := _NAMED.match(cursor.text, start, cursor.reached)) is not None:
        cursor.begin_call(named.group("name"))
        rest = cursor.text[named.end() :]
        cursor.arguments = rest if rest.startswith("{") and named.group(1) == '"' else ""


def _python_object(cursor: Cursor, start: int, wrong: Wrong) -> str:
    """The dict of Python that begins there, as JSON text. Only what Python reads itself, and reads as JSON does, is one: no line
    break within a string, and no `\\/`."""
    cursor.at, is_cut = start, False
    text = ""
    try:
        text = literal(cursor)
    except Beyond:
        is_cut, cursor.at = True, len(cursor.text)
    except Wrong:
        pass
    cursor.reached = max(cursor.reached, cursor.at)
    strings = _STRINGS.findall(cursor.text, start, cursor.at)
    is_python = all("\n" not in one and "\\/" not in one for one in strings)
    if text and is_python:
        return text
    _name_call(cursor, start)
    if is_cut and is_python:
        cursor.arguments = ""
        raise Beyond
    raise wrong


def list_of_calls(cursor: Cursor, *, strict: bool = False, is_keyed: bool = False) -> None:
    cursor.expects("[")
    cursor.space()
    while not cursor.takes("]"):
        if cursor.peek() != "{":
            raise Wrong("no list of calls")
        object_call(cursor, strict=strict, is_keyed=is_keyed)
        cursor.space()
        if cursor.peek() != "]":
            cursor.expects(",")
            cursor.space()
            if cursor.peek() == "]":
                raise Wrong("no list of calls")


def arguments(cursor: Cursor) -> None:
    """An object; the call is whole with it."""
    cursor.end_call(_arguments_text(cursor))


def _arguments_text(cursor: Cursor) -> str:
    start = cursor.at
    if cursor.peek() != "{":
        raise Wrong("the arguments are no JSON object")
    try:
        text = cursor.json_value()
    except Beyond:
        cursor.arguments = cursor.text[start:]
        raise
    _refuse_doubled(text)
    return text


def _take_object(cursor: Cursor, text: str, *, strict: bool) -> None:
    members = _members_of(msgspec.Raw(text.encode()))
    nested = members.get("function")
    if nested is not None and "name" not in members and bytes(nested)[:1] == b"{":
        name = _string(_members_of(nested).get("name"))
        if name is not None:
            cursor.begin_call(name)
        _refuse_doubled(text)
        _refuse_unknown(members.keys() - {"function"})
        _take_object(cursor, bytes(nested).decode(), strict=strict)
        return
    name = _string(members.pop("name", None) or members.pop("function", None) or members.pop("tool_name", None))
    if name is None:
        raise Wrong("the object names no tool")
    cursor.begin_call(name)
    _refuse_doubled(text)
    given = [members.pop(key) for key in _ARGUMENT_KEYS if key in members]
    _refuse_unknown(members.keys())
    if len(given) > 1 or (strict and not (given and _holds_object(given[0]))):
        raise Wrong("the object is no call")
    found = bytes(given[0]).decode() if given else "{}"
    if found[:1] not in '{"n':
        raise Wrong("the arguments are no JSON object")
    cursor.end_call(found)


def _holds_object(given: msgspec.Raw) -> bool:
    """Whether these are arguments as an object, or as a string that holds one."""
    text = _string(given)
    return (bytes(given).decode() if text is None else text.lstrip())[:1] == "{"


def _members_of(object: msgspec.Raw) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(object, type=dict[str, msgspec.Raw])
    except msgspec.MsgspecError:
        raise Wrong("no JSON object") from None


def _refuse_unknown(keys: Iterable[str]) -> None:
    """An unknown member may hold the arguments under another name. Without it the call would mean something else."""
    unknown = sorted(set(keys) - _BESIDE)
    if unknown:
        raise Wrong(f"`{unknown[0][:64]}` stands beside the name and the arguments")


def _refuse_doubled(text: str) -> None:
    try:
        is_doubled = names_twice(text)
    except RecursionError:
        raise Wrong("nested too deeply") from None
    if is_doubled:
        raise Wrong("a key stands twice")


def _string(raw: msgspec.Raw | None) -> str | None:
    if raw is None or bytes(raw)[:1] != b'"':
        return None
    return msgspec.json.decode(raw, type=str)
