"""Syntaxes whose arguments stand between tags, as bare text: XML in looks only, because nothing in them is escaped.

A value ends at a closing tag that is followed by what may follow a value. A value that shows whole pairs of these tags keeps
them. What cannot be told apart (a value that closes everything itself) leaves closing tags behind; then the call does not count.
"""

import re

from turnwise.assembly.text_calls.block_cursor import NAME, Beyond, Cursor, Wrong
from turnwise.assembly.text_calls.values import ANY_TYPE, STRING, Members, as_json

_MOST_OF_TAG = 200  # characters of a tag that is not whole yet


class Tags:
    """What a value is closed by, and what may follow it."""

    __slots__ = ("_ends_call", "_next", "_steps", "close")

    def __init__(self, *, opens: str, close: str, follows: str, ends_call: str, begins_next: str) -> None:
        self.close = close
        self._next = (begins_next, ends_call)
        self._ends_call = re.compile(rf"{re.escape(close)}\s*{re.escape(ends_call)}")
        self._steps = re.compile(rf"(?P<open>{opens})|{re.escape(close)}\s*(?P<end>(?={follows}))?")

    def end_of(self, text: str, at: int) -> tuple[int, int] | None:
        """Where the value that begins here ends, and where its closing tag does; None where the text ends first."""
        depth = 0
        for step in self._steps.finditer(text, at):
            if step.group("open"):
                depth += 1
            elif depth:
                depth -= 1
            elif step.group("end") is not None:
                return step.start(), step.start() + len(self.close)
        return None

    def end_before_cut(self, text: str, at: int) -> tuple[int, int] | None:
        """The same where the text ends between the closing tag and the end of the next one; None where the value goes on."""
        depth = 0
        last: int | None = None
        for step in self._steps.finditer(text, at):
            if step.group("open"):
                depth += 1
            elif depth:
                depth -= 1
            else:
                last = step.start()
        if depth or last is None:
            return None
        end = last + len(self.close)
        rest = text[end:].lstrip()
        is_next = any(tag.startswith(rest) or self._is_open(rest, tag) for tag in self._next)
        return (last, end) if is_next else None

    def _is_open(self, rest: str, tag: str) -> bool:
        return not tag.endswith(">") and rest.startswith(tag) and len(rest) <= _MOST_OF_TAG and "\n" not in rest

    def is_closed_within(self, value: str) -> bool:
        """Whether the value holds a closing tag without its opening one: a parameter was closed there, and the rest
        does not belong to it."""
        depth = 0
        for step in self._steps.finditer(value):
            if step.group("open"):
                depth += 1
            elif not depth:
                return True
            else:
                depth -= 1
        return False

    def opens_too_much(self, text: str, at: int) -> bool:
        """Whether the value that begins here opens a tag that is not closed, though the call ends behind it."""
        depth = 0
        for step in self._steps.finditer(text, at):
            depth = depth + 1 if step.group("open") else max(0, depth - 1)
        return depth > 0 and self._ends_call.search(text, at) is not None


QWEN = Tags(
    opens=r"<parameter=[^>\n]{1,128}>",
    close="</parameter>",
    follows=r"<parameter=[^>\n]{1,128}>|</function>",
    ends_call="</function>",
    begins_next="<parameter=",
)


def _pairs(prefix: str) -> Tags:
    return Tags(
        opens=rf"<{prefix}arg_value>",
        close=f"</{prefix}arg_value>",
        follows=rf"<{prefix}arg_key>|</{prefix}tool_call>",
        ends_call=f"</{prefix}tool_call>",
        begins_next=f"<{prefix}arg_key>",
    )


GLM, LONGCAT = _pairs(""), _pairs("longcat_")


class Elements:
    """How a syntax writes calls as elements with attributes: `opens` and `shuts` stand around an element's name."""

    __slots__ = (
        "after",
        "before",
        "call",
        "head_end",
        "key",
        "opens",
        "parameter",
        "shuts",
        "tags",
        "tool",
        "unescapes",
    )

    def __init__(
        self,
        *,
        opens: str = "<",
        shuts: str = "</",
        head_end: str = ">",
        call: str = "invoke",
        parameter: str = "parameter",
        tool: str = "name",
        key: str = "name",
        before: str = "",
        after: str = "",
        unescapes: bool = False,
    ) -> None:
        self.opens, self.shuts, self.head_end = opens, shuts, head_end
        self.call, self.parameter, self.tool, self.key = call, parameter, tool, key
        self.before, self.after = before, after  # what stands around each call besides
        self.unescapes = unescapes  # attributes hold `&amp;` and `&quot;`
        next_one, end = f"{opens}{parameter} {key}=", f"{shuts}{call}{head_end}"
        rest = r"[^>\n]{1,160}>" if head_end == ">" else rf"[^\n]{{1,160}}?{re.escape(head_end)}"
        self.tags = Tags(
            opens=re.escape(next_one) + rest,
            close=f"{shuts}{parameter}{head_end}",
            follows=f"{re.escape(next_one)}|{re.escape(end)}",
            ends_call=end,
            begins_next=next_one,
        )

    def closing(self, *ends: str) -> tuple[str, ...]:
        """The marks that a value leaves behind which closes its own call."""
        return (*ends, f"{self.shuts}{self.call}{self.head_end}", self.tags.close)


INVOKE = Elements()
DSML = Elements(opens="<｜DSML｜", shuts="</｜DSML｜")
DSML_SPACED = Elements(opens="<｜DSML｜ ", shuts="</｜DSML｜ ")
STEP = Elements(
    opens="<steptml:",
    shuts="</steptml:",
    before="<｜tool_call_begin｜>function<｜tool_sep｜>",
    after="<｜tool_call_end｜>",
)
XTML = Elements(
    opens="<|open|>",
    shuts="<|close|>",
    head_end="<|sep|>",
    call="call",
    parameter="argument",
    tool="tool",
    key="key",
    unescapes=True,
)


def qwen_coder(cursor: Cursor, *, wrapped: bool, end: str = "</tool_call>") -> None:
    """`<function=NAME>` with `<parameter=KEY>` and a value on lines of its own.

    Sources: Qwen3-Coder's chat template; vLLM `qwen3coder_tool_parser.py` (one line break at each end of a value is the
    template's; the tag `<tool_call>` may be missing).
    """
    if wrapped:
        cursor.space()
        cursor.expects("<function=")
    cursor.begin_call(_tool_name(cursor, before=">"))
    members = cursor.begin_members()
    while True:
        cursor.space()
        if cursor.takes("</function>"):
            break
        cursor.expects("<parameter=")
        key = cursor.until(">").strip()
        value = _value(cursor, QWEN, key=key, members=members)
        _add(cursor, members, key=key, value=_without_line_breaks(value))
    cursor.end_call(members.text)
    if not wrapped:
        behind = cursor.at
        cursor.space()
        if cursor.is_at_end:
            raise Beyond(is_enough=True)
        if not cursor.takes("</tool_call>", is_enough=True):
            cursor.at = behind
        return
    cursor.space()
    cursor.expects(end, is_enough=True)


def qwen_coder_alone(cursor: Cursor) -> None:
    """Behind `<function=`."""
    qwen_coder(cursor, wrapped=False)


def glm(cursor: Cursor, *, prefix: str = "", tags: Tags = GLM) -> None:
    """The tool's name, then pairs of `<arg_key>` and `<arg_value>`, which may have a prefix.

    Sources: the chat templates of GLM-4.5 and GLM-4.7 (no line breaks); vLLM `glm4_moe_tool_parser.py`.
    """
    cursor.begin_call(cursor.tool_name())
    members = cursor.begin_members()
    while True:
        cursor.space()
        if cursor.takes_one_of(f"</{prefix}tool_call>"):
            break
        cursor.expects(f"<{prefix}arg_key>")
        key = cursor.until(f"</{prefix}arg_key>").strip()
        cursor.space()
        cursor.expects(f"<{prefix}arg_value>")
        _add(cursor, members, key=key, value=_value(cursor, tags, key=key, members=members))
    cursor.end_call(members.text)


_NO_KEY = frozenset("<>\n")  # a parameter's name holds none of them; a tag that is not closed does
_LOOSE_NAME = re.compile(rf"""["']?(?P<name>{NAME.pattern})(?:["']|[ \t]*[,({{]|\Z)""")
# Each parameter may say whether it is a string (DSML), or its type (XTML).
_TYPE = re.compile(r"""\s(?:string\s*=\s*["']?(?P<is_string>true|false)|type\s*=\s*"(?P<type>[a-z]+)")""")


def invokes(cursor: Cursor, *, written: Elements, end: str) -> None:
    """`<invoke name=..>` with `<parameter name=..>`, or elements that are written in another way.

    Sources: MiniMax-M2's chat template and `docs/tool_calling_guide.md`, vLLM `minimax_m2_tool_parser.py`; DeepSeek-V3.2
    `encoding/encoding_dsv32.py`, vLLM `deepseekv32_tool_parser.py`, SGLang's detector of V4 (`<invoke name=".."/>`); Step-3 in
    vLLM `step3_tool_parser.py`; Kimi-K3's chat template.
    """
    while True:
        cursor.space()
        if cursor.calls and cursor.takes(end, is_enough=True):
            return
        cursor.expects(f"{written.before}{written.opens}{written.call} ", is_enough=bool(cursor.calls))
        head = cursor.until(written.head_end)
        cursor.begin_call(_named(head.removesuffix("/"), written.tool))
        members = cursor.begin_members()
        if not head.endswith("/"):
            _parameters(cursor, members, written)
        if written.after:
            cursor.space()
            cursor.expects(written.after)
        cursor.end_call(members.text)


def _parameters(cursor: Cursor, members: Members, written: Elements) -> None:
    """All of them, and what closes the call."""
    while True:
        cursor.space()
        if cursor.takes(written.tags.close.replace(written.parameter, written.call)):
            return
        cursor.expects(f"{written.opens}{written.parameter} ")
        head = cursor.until(written.head_end)
        if not head.startswith(f"{written.key}="):
            raise Wrong(f"`{written.key}` was expected at the beginning of a parameter's tag")
        key = _named(head, written.key)
        if written.unescapes:
            key = key.replace("&quot;", '"').replace("&amp;", "&")
        value = _value(cursor, written.tags, key=key, members=members)
        told = _TYPE.search(head)
        types = None
        if told is not None:
            is_string = told.group("is_string") == "true" or told.group("type") == "string"
            types = STRING if is_string else ANY_TYPE - STRING
        _add(cursor, members, key=key, value=value, types=types)


def _named(head: str, attribute: str) -> str:
    found = re.findall(rf"""\b{attribute}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", head)
    names = [one for groups in found for one in groups if one]
    if len(names) != 1:
        raise Wrong("a name was expected" if not names else "two names stand in one tag")
    return names[0].strip()


def _tool_name(cursor: Cursor, *, before: str) -> str:
    """The name up to a mark; one that no tool begins with is wrong at once."""
    try:
        head = cursor.until(before, most=128).strip()
    except Beyond:
        head = cursor.text[cursor.at :].strip()
        if not cursor.tools.may_begin(head) and not _may_be_told(cursor, head):
            cursor.refuse_name(head)
        raise
    if not cursor.tools.has(head) and _may_be_told(cursor, head, is_whole=True):
        raise Wrong("the tool's name has to stand there as it is, and nothing else")
    return head


def _may_be_told(cursor: Cursor, head: str, *, is_whole: bool = False) -> bool:
    """Whether a tool's name stands there, in quotation marks, or with arguments behind it."""
    found = _LOOSE_NAME.match(head)
    name = "" if found is None else found.group("name")
    if found is None or (not is_whole and found.end() == found.end("name") == len(head)):
        return head in ("", '"', "'") or cursor.tools.may_begin(name)
    return cursor.tools.has(name) and (found.end() < len(head) or found.group() != name or not is_whole)


def _value(cursor: Cursor, tags: Tags, *, key: str, members: Members) -> str:
    start = cursor.at
    ends = tags.end_of(cursor.text, start)
    if ends is None:
        if cursor.is_final and tags.opens_too_much(cursor.text, start):
            # Either a closing tag is missing, and the next parameter is no part of this value, or the value names a tag.
            raise Wrong(f"the parameter `{key[:64]}` is not closed, or a tag in it is not")
        ends = tags.end_before_cut(cursor.text, start)
    if ends is None:
        types = cursor.tools.parameters_of(cursor.name).types(key)
        is_closed = tags.close in cursor.text[start:] and tags.is_closed_within(cursor.text[start:])
        if "string" in types and types != ANY_TYPE and not is_closed:
            so_far = _without_beginning_of(tags.close, cursor.text[start:])
            # Qwen's template puts the value on lines of its own.
            cursor.arguments = members.with_open(key, _without_first_break(so_far) if tags is QWEN else so_far)
        raise Beyond
    cursor.at = ends[1]
    value = cursor.text[start : ends[0]]
    if tags.close in value and tags.is_closed_within(value):
        raise Wrong(f"behind `{tags.close}` of the parameter `{key[:64]}` stands what may not stand there")
    return value


def _without_beginning_of(close: str, text: str) -> str:
    """The text without an end that may be the beginning of its closing tag, with the line break before it."""
    for length in range(min(len(close), len(text)), 0, -1):
        if close.startswith(text[-length:]):
            text = text[:-length]
            break
    return text.removesuffix("\n")


def _without_first_break(text: str) -> str:
    """The beginning of a value without the template's line break, and without the half of one that it ends with."""
    if text == "\r" or text.startswith("\r\n"):
        return text.removeprefix("\r\n").removesuffix("\r")
    return text.removeprefix("\n")


def _without_line_breaks(value: str) -> str:
    """The value without the template's line breaks; the first one shows how lines end."""
    line_break = "\r\n" if value.startswith("\r\n") else "\n"
    return value.removeprefix(line_break).removesuffix(line_break)


def _add(cursor: Cursor, members: Members, *, key: str, value: str, types: frozenset[str] | None = None) -> None:
    if not key or not _NO_KEY.isdisjoint(key):
        raise Wrong("a parameter has no name")
    if members.has(key):
        raise Wrong(f"the parameter `{key[:64]}` is named twice")
    parameters = cursor.tools.parameters_of(cursor.name)
    members.add(
        key,
        as_json(
            value,
            types=parameters.types(key) if types is None else types,
            fits=lambda text: parameters.fits(key, value=text),
        ),
    )
