"""A call as a tool shows it, with something of the tool's own between its lines, read as it was written.

Text between two marks of the syntax itself, where the syntax has only a line's end, is the tool's. The same text is left out
between all lines. If any line is shown otherwise, the tool's part cannot be told, and the call is not read.
"""

import re

_NAME = r"(?:[A-Za-z_][\w.:-]*)?"
_TAG = re.compile(
    r"(?P<value><parameter=[^<>\n]{1,128}>|<arg_(?:key|value)>|<(?:｜DSML｜)?parameter name=[^<>\n]{1,160}>)"
    r"|(?P<closed></(?:｜DSML｜)?parameter>|</arg_(?:key|value)>)"
    rf"|(?P<call><tool_call>{_NAME}|</tool_call>|</?function(?:=[^<>\n]{{1,128}})?>|</?(?:｜DSML｜)?invoke(?: [^<>\n]{{1,160}})?>"
    r"|</?minimax:tool_call>|</?｜DSML｜(?:function|tool)_calls>"
    rf"|<｜tool▁call▁begin｜>function<｜tool▁sep｜>{_NAME}|```json|```<｜tool▁call▁end｜>)"
)
_WORDS = re.compile(r"tool.?call|function|parameter|invoke|arg_|DSML|name=")
_MOST_TAGS = 2_000  # of one call
_MOST_BETWEEN = 600  # characters between two lines
_MOST_KINDS = 4  # ways in which one tool parts lines
_PIECES = re.compile(r"\d+|[ \t\r]*\n\s*|[ \t\r]+|[^\d\s]+")
_BLANKS = r"[ \t\r]{0,200}"  # of a row of many blanks no more are read at each of them
_SEEN = "\x1e"
_JSON_BEGINS = re.compile(r"[\[{](?=[ \t]*(?:\"|\{|\Z|[\r\n]))")


def as_written(text: str, *, end: int) -> str | None:
    """The call that begins the text and ends at `end`, without what a tool shows between its lines; None where that is not
    known."""
    shown = text[:end]
    if "\n" not in shown:
        return None
    between = _between_lines(shown)
    if not between:
        return None
    parts = re.compile("|".join(sorted(map(_pattern, between), key=len, reverse=True)))
    written = parts.sub(_SEEN, shown.replace(_SEEN, " "))
    return None if "\n" in written else written.replace(_SEEN, "\n")


def _between_lines(shown: str) -> set[str]:
    """What stands between the marks of the call; nothing where a value may hold such marks."""
    kinds: dict[str, str] = {}
    last, is_value = None, False
    for count, tag in enumerate(_TAG.finditer(shown)):
        if count == _MOST_TAGS or (is_value != (tag["closed"] is not None)):
            return set()
        if last is not None and not is_value:
            gap = shown[last : tag.start()]
            pieces = _around_json(gap) if "{" in gap or "[" in gap else [gap]
            for piece in pieces:
                if len(piece) > _MOST_BETWEEN:
                    return set()
                if "\n" in piece:
                    kinds.setdefault(re.sub(r"\d+", "0", "".join(piece.split(" "))), piece)
        last, is_value = tag.end(), tag["value"] is not None
    between = list(kinds.values())
    if len(between) > _MOST_KINDS or any(_WORDS.search(one) is not None for one in between):
        return set()
    # One that holds another has a line in it, such as a tag that a line's end has parted.
    patterns = [re.compile(_pattern(one)) for one in between]
    is_whole = [
        len(parts.findall(one)) <= (one is other)
        for one in between
        for other, parts in zip(between, patterns, strict=True)
    ]
    return set(between) if all(is_whole) else set()


def _around_json(gap: str) -> list[str]:
    """What stands before and behind the JSON between two marks."""
    begin, end = _JSON_BEGINS.search(gap, gap.find("\n") + 1), max(gap.rfind("}"), gap.rfind("]"))
    return [gap] if begin is None or end <= begin.start() else [gap[: begin.start()], gap[end + 1 :]]


def _pattern(piece: str) -> str:
    """Finds the same with other numbers and other blanks."""
    return "".join([_of(one) for one in _PIECES.findall(piece)])


def _of(piece: str) -> str:
    if "\n" in piece:
        return _BLANKS + rf"\n{_BLANKS}" * piece.count("\n")
    if piece.isspace():
        return _BLANKS
    return r"\d+" if piece[0].isdigit() else re.escape(piece)
