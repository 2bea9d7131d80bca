"""Calls written as Python: `[f(a=1), g(b="x")]`, keyword arguments with literal values only.

Sources: Llama 3.2's and Llama 4's chat templates ("zero-shot function calling"), LFM2's; vLLM `pythonic_tool_parser.py`. Nothing
is evaluated: `literals.py` reads the values, and what is no literal is no call.
"""

import re

from turnwise.assembly.text_calls.block_cursor import NAME, Beyond, Cursor, Wrong
from turnwise.assembly.text_calls.values import Members, is_json, quoted

# Literals of Python, read as JSON text: the value is the one that `ast.literal_eval` finds.
#
# What Python does not read is no literal here either. There are three exceptions, because models write them and they can be read
# in one way only: a line break in a short string, and JSON's `true`, `false` and `null`. What JSON cannot say (bytes, sets,
# infinite numbers, halves of characters, keys that are no text) is no literal. Tuples become lists.
#
# Sources: the Python Language Reference, "Lexical analysis", sections "Literals" and "String literal concatenation".


MAX_DEPTH = 32
_MAX_BASED = 256  # digits of a number that is not decimal
_WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_WORD = re.compile(r"[A-Za-z]+")
# What most values are, and is in JSON as it is in Python. What follows shows that nothing else belongs to it.
_PLAIN = re.compile(
    r"""(?:'(?P<single>[ !#-&(-\[\]-~]*+)'|"(?P<double>[ !#-\[\]-~]*+)"|(?P<number>0|-?[1-9][0-9]{0,17}+))"""
    r"(?=[ \t\r\n]*+[,)\]}:])"
)
_OPENING = re.compile(r"""([rRuU]?)(\"\"\"|'''|"|')""")
_PREFIXES = "rRuU"
# What a string takes as it is, by its mark: up to an escape or its end. A raw string has no escapes.
_BODY = {
    mark: rf"[^\\{mark}\0]++" if len(mark) == 1 else rf"[^\\{mark[0]}\0]++|{mark[0]}(?!{mark[1:]})"
    for mark in ("'", '"', "'''", '"""')
}
_RUNS = {mark: re.compile(rf"(?:{body})*+") for mark, body in _BODY.items()}
_RAW_RUNS = {mark: re.compile(rf"(?:{body}|\\[^\0])*+", re.DOTALL) for mark, body in _BODY.items()}
_ESCAPES = re.compile(
    r"""(?:\\(?:[\\'"abfnrtv]|[0-3][0-7]{0,2}|[4-7][0-7]?(?![0-7])|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}"""
    r"|N\{[A-Za-z0-9 -]{1,128}\}))++"
)
_CUT_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|N(?:\{[A-Za-z0-9 -]{0,128})?)?\Z")
_OTHER_ESCAPES = "01234567xuUN\0"  # of these Python knows no other forms
_BREAK = re.compile(r"\r\n?|\n")

_NUMBER_RUN = re.compile(r"[A-Za-z0-9_.+-]*+")
_DIGITS = r"[0-9](?:_?[0-9])*+"
_INTEGER = re.compile(r"[+-]?(?:0(?:_?0)*+|[1-9](?:_?[0-9])*+)")
_FLOAT = re.compile(
    rf"(?P<sign>[+-]?)(?P<whole>{_DIGITS})?(?:\.(?P<fraction>{_DIGITS})?)?(?P<exponent>[eE][+-]?{_DIGITS})?"
)
_BASED = re.compile(r"[+-]?0(?:[xX](?:_?[0-9a-fA-F])++|[oO](?:_?[0-7])++|[bB](?:_?[01])++)")


def literal(cursor: Cursor, *, depth: int = 0) -> str:
    """The literal that begins here, as JSON text. Something has to follow it."""
    if (plain := _PLAIN.match(cursor.text, cursor.at)) is not None:
        cursor.at = plain.end()
        return plain.group() if plain.lastgroup == "number" else f'"{plain.group(plain.lastgroup or 0)}"'
    if depth > MAX_DEPTH:
        raise Wrong("nested too deeply")
    first = cursor.peek()
    if first in "'\"":
        return quoted(_text(cursor))
    if first in "[(":
        return _sequence(cursor, end="]" if first == "[" else ")", depth=depth)
    if first == "{":
        return _mapping(cursor, depth=depth)
    if (word := _WORD.match(cursor.text, cursor.at)) is not None:
        if word.end() == len(cursor.text):
            raise Beyond
        if _OPENING.match(cursor.text, cursor.at) is not None:
            return quoted(_text(cursor))
        if word.group() not in _WORDS:
            raise Wrong("a value that is no literal")
        cursor.at = word.end()
        return _WORDS[word.group()]
    return _number(cursor)


def _sequence(cursor: Cursor, *, end: str, depth: int) -> str:
    """A list or a tuple. What stands alone between parentheses, without a comma, is itself."""
    cursor.at += 1
    items: list[str] = []
    is_itself = end == ")"
    while cursor.next() != end:
        items.append(literal(cursor, depth=depth + 1))
        if cursor.next() != end:
            cursor.expects(",")
            is_itself = False
    cursor.at += 1
    return items[0] if is_itself and items else f"[{','.join(items)}]"


def _mapping(cursor: Cursor, *, depth: int) -> str:
    cursor.at += 1
    members = Members()
    while cursor.next() != "}":
        if not _begins_text(cursor):
            raise Wrong("a key that is no text")
        key = _text(cursor)
        if members.has(key):
            raise Wrong("a key stands twice")
        cursor.expects(":")
        cursor.next()
        members.add(key, literal(cursor, depth=depth + 1))
        if cursor.next() != "}":
            cursor.expects(",")
    cursor.at += 1
    return members.text


# strings


def _begins_text(cursor: Cursor) -> bool:
    if cursor.peek() in _PREFIXES and cursor.at + 1 == len(cursor.text):
        raise Beyond
    return _OPENING.match(cursor.text, cursor.at) is not None


def _text(cursor: Cursor) -> str:
    """A string, or several side by side, which are one. The cursor stands before what follows."""
    pieces: list[str] = []
    while _begins_text(cursor):
        _string(cursor, pieces)
        cursor.next()
    text = "".join(pieces)
    try:
        # Two escapes may make one character. Python keeps them apart, and its JSON joins them.
        return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise Wrong("a half of a surrogate pair stands alone") from None


def _string(cursor: Cursor, pieces: list[str]) -> None:
    opening = _OPENING.match(cursor.text, cursor.at)
    assert opening is not None
    prefix, mark = opening.groups()
    if opening.end() + 1 == len(cursor.text) and cursor.text.endswith(mark[0] * 2):
        raise Beyond  # an empty string, or the beginning of three marks
    if len(mark) == 1 and cursor.text.startswith(mark, opening.end()):
        cursor.at = opening.end() + 1
        return
    cursor.at = opening.end()
    run = (_RAW_RUNS if prefix in ("r", "R") else _RUNS)[mark]
    while True:
        found = run.match(cursor.text, cursor.at)
        if found is not None:
            piece = found.group()
            pieces.append(_BREAK.sub("\n", piece) if "\r" in piece else piece)
            cursor.at = found.end()
        if cursor.peek() != "\\":
            cursor.expects(mark)
            return
        if run is _RAW_RUNS[mark]:
            raise Beyond if cursor.at + 1 == len(cursor.text) else Wrong("no such character")
        pieces.append(_escape(cursor))


def _escape(cursor: Cursor) -> str:
    """What the escapes that begin here stand for."""
    found = _ESCAPES.match(cursor.text, cursor.at)
    if found is not None:
        cursor.at = found.end()
        try:
            return found.group().encode().decode("unicode_escape")
        except UnicodeDecodeError:
            raise Wrong("no such character") from None
    if _CUT_ESCAPE.match(cursor.text, cursor.at) is not None:
        raise Beyond
    if (broken := _BREAK.match(cursor.text, cursor.at + 1)) is not None:  # the string goes on in the next line
        cursor.at = broken.end()
        return ""
    if cursor.text[cursor.at + 1] in _OTHER_ESCAPES:
        raise Wrong("no such escape")
    cursor.at += 2
    return cursor.text[cursor.at - 2 : cursor.at]


# numbers


def _number(cursor: Cursor) -> str:
    run = cursor.run(_NUMBER_RUN)
    if run in ("+", "-"):
        run += _behind_sign(cursor)
    text = _integer(run) or _float(run)
    if text is None or not is_json(text):
        raise Wrong("a value that is no literal")
    return text


def _behind_sign(cursor: Cursor) -> str:
    """The number behind a sign and what may stand between them: blanks and parentheses. Python takes no second sign there."""
    depth = 0
    while cursor.next() == "(" and depth < MAX_DEPTH:
        cursor.at, depth = cursor.at + 1, depth + 1
    run = "" if cursor.peek() in "+-" else cursor.run(_NUMBER_RUN)
    for _ in range(depth):
        cursor.next()
        cursor.expects(")")
    return run


def _integer(run: str) -> str | None:
    if _INTEGER.fullmatch(run) is not None:
        text = run.removeprefix("+").replace("_", "")
        return "0" if not text.strip("-0") else text
    if _BASED.fullmatch(run) is not None and len(run) <= _MAX_BASED:
        return str(int(run, 0))
    return None


def _float(run: str) -> str | None:
    found = _FLOAT.fullmatch(run)
    if found is None:
        return None
    sign, whole, fraction, exponent = found.groups()
    if (whole or fraction) is None or ("." not in run and exponent is None):
        return None
    text = f"{(whole or '').replace('_', '').lstrip('0') or '0'}.{fraction or '0'}{exponent or ''}"
    return f"{sign.removeprefix('+')}{text.replace('_', '')}"


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:[.-][A-Za-z_][A-Za-z0-9_]*)*")
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_NAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*+)=(?=[^ \t\r\n])")  # an argument as most write it
_RUN = re.compile(r"[A-Za-z0-9_.-]*+")  # of what a name may hold


def calls(cursor: Cursor) -> None:
    """A list of calls."""
    cursor.expects("[")
    while True:
        cursor.space()
        call(cursor)
        cursor.space()
        if cursor.takes("]"):
            return
        cursor.expects(",")


def call(cursor: Cursor) -> None:
    cursor.begin_call(_take_name(cursor))
    cursor.space()
    cursor.expects("(")
    _members(cursor)


def built_in(cursor: Cursor) -> None:
    """`NAME.call(query="..")`, as Llama 3.1 calls its built-in tools."""
    name = _take_name(cursor)
    cursor.begin_call(name.removesuffix(".call"))
    cursor.space()
    cursor.expects("(")
    _members(cursor)


def alone(cursor: Cursor) -> None:
    """A list of calls, and nothing else."""
    calls(cursor)
    cursor.space()


def code(cursor: Cursor) -> None:
    """Calls on lines of their own, within `print(..)` or not, or a list of them: what stands in a `tool_code` fence (Gemma)."""
    cursor.space()
    if cursor.peek() == "[":
        alone(cursor)
        return
    while True:
        is_printed = cursor.text.startswith("print(", cursor.at)
        if is_printed:
            cursor.at += len("print(")
            cursor.space()
        call(cursor)
        cursor.space()
        if is_printed:
            cursor.expects(")")
            cursor.space()
        if cursor.is_at_end or cursor.peek() == "`":
            return


def _take_name(cursor: Cursor) -> str:
    if not (cursor.peek().isalpha() or cursor.peek() == "_"):
        raise Wrong("a tool's name was expected")
    name = cursor.run(_RUN)
    if _NAME.fullmatch(name) is None:
        raise Wrong("a tool's name was expected")
    return name


def _members(cursor: Cursor) -> None:
    """Keyword arguments up to the closing parenthesis."""
    members = cursor.begin_members()
    while cursor.next() != ")":
        key = _take_key(cursor)
        if members.has(key):
            raise Wrong(f"the argument `{key[:64]}` is named twice")
        members.add(key, literal(cursor))
        if cursor.next() != ")":
            cursor.expects(",")
    cursor.at += 1
    cursor.end_call(members.text)


def _take_key(cursor: Cursor) -> str:
    """The name of an argument; the cursor is behind its `=`."""
    if (found := _NAMED.match(cursor.text, cursor.at)) is not None:
        cursor.at = found.end()
        return found.group(1)
    found = _KEY.match(cursor.text, cursor.at)
    if found is None:
        raise Wrong("an argument without a name")
    cursor.at = found.end()
    cursor.next()
    cursor.expects("=")
    cursor.next()
    return found.group()


def begins_call(text: str) -> str | None:
    """The name of the call that a list begins with, as far as it is there; None where it begins otherwise."""
    found = NAME.match(text, 1) if text.startswith("[") else None
    return None if found is None else found.group()
