"""Is this text whole JSON, cut JSON, or no JSON at all, and where? Never guesses, never repairs.

`classify` judges a whole text: the strict decoder first, the scanner only where that refuses. Neither builds what the text says:
small values take Python thirty times their bytes. `JsonScanner` takes a text
in pieces and knows after each whether it can still become JSON; it is the only judge of "whole yet?" while a call
streams in, and reads each character once however often it is asked.
"""

import re
from enum import Enum, auto
from typing import Literal

import msgspec

from turnwise.vocab import Repair

# The closed list of repairs that assembly makes, how each is recorded, and the mending of characters that came in halves.
#
# A repair is data, not a log line: `kind` from KINDS, `where` names the call or part, `what` says in words what was done.
# Decoders record theirs with `Mended` frames; those kinds stand with their families.


SLICE_CHARACTERS = 16 * 1024  # of a long text that are encoded at once
_WIDE = re.compile("[\U00010000-\U0010ffff]")

KINDS: dict[str, str] = {
    "id_missing": "a call came without an id and got a generated one",
    "id_twice": "a call's id was taken already and was replaced by a generated one",
    "same_call_twice": "a call that came again with the same id, name and arguments was taken once",
    "id_churn": "the id of one call changed from piece to piece; the first was kept",
    "index_strayed": "a piece without id and name stood on an unknown index and was given to the call at hand",
    "name_repeated": "a name that came again with later pieces was taken once",
    "name_joined": "a name that came in several pieces was joined",
    "name_grown": "a name that came longer from piece to piece was taken in its last form",
    "name_conflict": "a second name for one call was dropped",
    "empty_call": "a call without name and arguments was dropped",
    "cumulative": "arguments that came more than once were taken once",
    "empty_then_real": "an empty object beside the real arguments was dropped",
    "several_objects": "several whole objects stood in one call; the tool's schema has to decide",
    "null_arguments": "arguments that said null were read as none",
    "double_encoded": "arguments that were a JSON string holding JSON were unpacked",
    "half_surrogates": "halves of a character that came apart were joined or replaced",
    "final_item_wins": "the provider's final form of a part differed from its pieces and was taken",
    "after_final": "a piece that came after the final form of its part was dropped",
    "citations_left_out": "of more citations than any answer has, the first ones were kept",
    "started_again": "a second beginning discarded what had come before",
    "call_in_text": "a call that stood in the text was read from it",
    "call_not_made": "a call stood in reasoning or in a refusal and was not made",
    "finish_hides_cut": "a call was cut although the finish reason did not say so",
    "finish_hides_limit": "the output limit was reached although the finish reason did not say so",
    "finish_without_calls": "the finish reason spoke of tool calls and there were none",
    "finish_differs": "several finish reasons came and the gravest was taken",
}


def repair(kind: str, *, where: str, what: str = "") -> Repair:
    """A record of one repair; `what` is the list's own sentence unless a better one is given."""
    return Repair(kind, where, what or KINDS[kind])


def join_halves(text: str, *, pending: str) -> tuple[str, str]:
    """Join characters that came as two surrogate halves in two pieces.

    `pending` is the half that the piece before ended with. Returns the text that is whole now and the new pending half;
    a half whose other one never came becomes U+FFFD, because no encoder takes it.
    """
    text = pending + text
    last = text[-1:]
    pending = last if "\ud800" <= last <= "\udbff" else ""
    return whole_characters(text[: len(text) - len(pending)]), pending


def lost_halves(text: str) -> bool:
    """Whether a half stands in the text whose other one does not."""
    return whole_characters(text).count("\ufffd") > text.count("\ufffd")


def whole_characters(text: str) -> str:
    """The text, the very same where nothing is wrong with it; surrogate halves are joined or replaced."""
    if text.isascii() or _utf8_length(text) is not None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def size_if_whole(text: str) -> int | None:
    """Bytes of the text in UTF-8; None where halves of characters are in it."""
    return len(text) if text.isascii() else _utf8_length(text)


def _utf8_length(text: str) -> int | None:
    """Counted in slices: Python takes four bytes for each character of some texts, and as much again to encode them."""
    try:
        if len(text) <= SLICE_CHARACTERS:
            return len(text.encode())
        return sum([len(text[at : at + SLICE_CHARACTERS].encode()) for at in range(0, len(text), SLICE_CHARACTERS)])
    except UnicodeEncodeError:
        return None


def narrow(text: str) -> str | bytes:
    """A text that is JSON if this one is, and costs less to look at: a long one with other characters in ASCII's place.

    The decoder looks at UTF-8, which Python writes into a buffer of three bytes for each character and then keeps beside the
    text. No character outside of ASCII means anything to JSON, so a question mark stands for each. Raises UnicodeEncodeError
    where half of a character stands alone, as the decoder would.
    """
    if len(text) <= SLICE_CHARACTERS or text.isascii():
        return text
    for at in range(0, len(text), SLICE_CHARACTERS):
        text[at : at + SLICE_CHARACTERS].encode()
    return text.encode("ascii", "replace")


def byte_length(text: str) -> int:
    """Bytes of the text in UTF-8, halves of characters included."""
    if text.isascii():
        return len(text)
    size = _utf8_length(text)
    return len(text.encode("utf-8", "surrogatepass")) if size is None else size


def is_wide(text: str) -> bool:
    """Whether Python keeps the text with four bytes for each character: one outside of the basic plane is enough."""
    return _WIDE.search(text) is not None


MAX_PATH_CHARS = 200  # a path is for people; deeper ones are shown from their end

# What a JSON string may hold between its quotes, in one run (RFC 8259, section 7). Possessive: never backtracks. Characters
# between escapes are taken together, which costs a tenth of one alternative for each.
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+')
_CUT_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?")
_SPACE = re.compile(r"[ \t\n\r]*+")
_DIGITS = re.compile(r"[0-9]*+")
_LITERALS = {"t": "true", "f": "false", "n": "null"}
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_decode = msgspec.json.Decoder(msgspec.Raw).decode
# What a number that is too large for a double, or for an integer, has somewhere; and strings and numbers of which it can be one.
# The pattern begins with a digit, so that text without digits is passed over quickly.
_MAY_BE_HUGE = re.compile(r"[0-9](?:[eE]\+?[0-9]{3}|[0-9]{299})")
_STRING_OR_NUMBER = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][0-9.eE+-]{4,}+', re.DOTALL)

JsonKind = Literal["object", "list", "string", "number", "boolean", "null"]
_KINDS: dict[str, JsonKind] = {"{": "object", "[": "list", '"': "string", "t": "boolean", "f": "boolean", "n": "null"}


class Complete(msgspec.Struct, frozen=True):
    """Strictly valid JSON. `kind` is what the outermost value is."""

    kind: JsonKind


class Truncated(msgspec.Struct, frozen=True, kw_only=True):
    """A proper prefix of valid JSON. `path` names the value that was cut, `inside` what it is, `chars` how much of that
    value had arrived; `total_chars` of the whole text."""

    path: str
    inside: str
    chars: int
    total_chars: int

    @property
    def reason(self) -> str:
        return f"cut inside the {self.inside} at `{self.path}` after {self.chars} characters"


class Invalid(msgspec.Struct, frozen=True, kw_only=True):
    """No continuation makes it valid JSON. `position` counts characters from 0."""

    path: str
    position: int
    why: str

    @property
    def reason(self) -> str:
        return f"not valid JSON at `{self.path}`, character {self.position}: {self.why}"


JsonVerdict = Complete | Truncated | Invalid


def classify(text: str) -> JsonVerdict:
    """Tell whole JSON from cut JSON from no JSON. Linear in the text; nesting of any depth is survived."""
    try:
        check_strictly(text)
        return Complete(_KINDS.get(text.lstrip()[:1], "number"))
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError) as error:
        refused = str(error)
    scanner = JsonScanner()
    scanner.feed(text)
    verdict = scanner.verdict()
    # The grammar allows what the decoder does not take: numbers past a double, halves of surrogate pairs, nesting past
    # its stack. Nothing but the decoder's own yes may run, so these are invalid.
    return Invalid(path="$", position=0, why=_say(refused)) if verdict is None else verdict


def check_strictly(text: str) -> None:
    """Raises what the strict decoder would raise where the text is no JSON that it can read, but builds nothing."""
    _decode(narrow(text))
    if _MAY_BE_HUGE.search(text):
        for found in _STRING_OR_NUMBER.finditer(text):
            if not text.startswith('"', found.start()):
                msgspec.json.decode(found.group())


def _say(refused: str) -> str:
    if "recursion" in refused:
        return "nested too deeply"
    if "out of range" in refused:
        return "a number is too large"
    return "a half of a surrogate pair stands alone" if "surrogate" in refused or "truncated" in refused else refused


class _At(Enum):
    VALUE = auto()
    VALUE_OR_CLOSE = auto()  # just inside `[`
    KEY = auto()
    KEY_OR_CLOSE = auto()  # just inside `{`
    COLON = auto()
    COMMA_OR_CLOSE = auto()
    STRING = auto()
    KEY_STRING = auto()
    NUMBER = auto()
    LITERAL = auto()
    DONE = auto()  # the outermost value is whole


_INSIDE = {_At.STRING: "string", _At.NUMBER: "number", _At.LITERAL: "literal"}

# The number grammar as a table: state -> class of character -> state. Ends are allowed in the upper-case states.
_NUMBER = {
    "minus": {"0": "ZERO", "1-9": "INT"},
    "ZERO": {".": "dot", "e": "exp"},
    "INT": {"0": "INT", "1-9": "INT", ".": "dot", "e": "exp"},
    "dot": {"0": "FRACTION", "1-9": "FRACTION"},
    "FRACTION": {"0": "FRACTION", "1-9": "FRACTION", "e": "exp"},
    "exp": {"0": "EXPONENT", "1-9": "EXPONENT", "sign": "sign"},
    "sign": {"0": "EXPONENT", "1-9": "EXPONENT"},
    "EXPONENT": {"0": "EXPONENT", "1-9": "EXPONENT"},
}
_NUMBER_CLASS = {"0": "0", ".": ".", "e": "e", "E": "e", "+": "sign", "-": "sign"} | dict.fromkeys("123456789", "1-9")
_NUMBER_START = {"-": "minus", "0": "ZERO"} | dict.fromkeys("123456789", "INT")


class JsonScanner:
    """A JSON grammar machine that is fed pieces. `viable` falls once and for good when no continuation can be valid;
    `whole` holds while the text so far is one whole value (spaces around it allowed)."""

    __slots__ = (
        "_at",
        "_carry",
        "_error",
        "_key",
        "_levels",
        "_literal",
        "_number",
        "_opened_at",
        "_position",
        "_value_at",
    )

    def __init__(self) -> None:
        self._at = _At.VALUE
        self._levels: list[str | int] = []  # one entry a level: the current key, or the element's number
        self._opened_at: list[int] = []
        self._key: list[str] = []
        self._carry = ""  # the beginning of an escape that a piece's end cut
        self._literal = ""  # what is still missing of true, false or null
        self._number = ""
        self._position = 0
        self._value_at = 0  # where the current value or token began
        self._error: Invalid | None = None

    @property
    def viable(self) -> bool:
        return self._error is None

    @property
    def whole(self) -> bool:
        if self._error is not None:
            return False
        return self._at is _At.DONE or (self._at is _At.NUMBER and not self._levels and self._number.isupper())

    def feed(self, piece: str) -> bool:
        """Read on; returns `viable`."""
        if self._error is not None:
            return False
        text = self._carry + piece
        self._position -= len(self._carry)
        self._carry = ""
        at = 0
        while at < len(text) and self._error is None:
            at = self._step(text, at)
        self._position += at
        return self._error is None

    def verdict(self) -> Truncated | Invalid | None:
        """Where it stands; None where the text is whole by the grammar."""
        if self._error is not None:
            return self._error
        if self.whole:
            return None
        inside = _INSIDE.get(self._at)
        if inside is not None:
            return self._truncated(inside, self._levels, self._value_at)
        if self._at is _At.VALUE and not self._levels:
            return self._truncated("value", [], self._position)
        if self._at in (_At.VALUE, _At.COLON):  # a key without its value
            return self._truncated("value", self._levels, self._position)
        kind = "object" if isinstance(self._levels[-1], str) else "array"
        return self._truncated(kind, self._levels[:-1], self._opened_at[-1])

    def _truncated(self, inside: str, levels: list[str | int], since: int) -> Truncated:
        return Truncated(path=_path(levels), inside=inside, chars=self._position - since, total_chars=self._position)

    def _step(self, text: str, at: int) -> int:
        """Read one token, or as much of it as the text holds, from `at`; return where reading goes on."""
        match self._at:
            case _At.STRING | _At.KEY_STRING:
                return self._read_string(text, at)
            case _At.NUMBER:
                return self._read_number(text, at)
            case _At.LITERAL:
                return self._read_literal(text, at)
            case _:
                pass
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        if at == len(text):
            return at
        char = text[at]
        match self._at:
            case _At.VALUE:
                self._begin_value(char, at)
            case _At.VALUE_OR_CLOSE:
                if char == "]":
                    self._close()
                else:
                    self._begin_value(char, at)
            case _At.KEY | _At.KEY_OR_CLOSE:
                if char == '"':
                    self._key = []
                    self._at = _At.KEY_STRING
                elif char == "}" and self._at is _At.KEY_OR_CLOSE:
                    self._close()
                else:
                    self._fail(at, "a key in double quotes was expected")
            case _At.COLON:
                if char == ":":
                    self._at = _At.VALUE
                else:
                    self._fail(at, "a colon was expected after the key")
            case _At.COMMA_OR_CLOSE:
                self._after_value(char, at)
            case _:
                self._fail(at, "text follows the end of the value")
        return at + 1

    def _begin_value(self, char: str, at: int) -> None:
        self._value_at = self._position + at
        if char == '"':
            self._at = _At.STRING
            self._value_at += 1
        elif char == "{":
            self._opened_at.append(self._value_at)
            self._levels.append("")
            self._at = _At.KEY_OR_CLOSE
        elif char == "[":
            self._opened_at.append(self._value_at)
            self._levels.append(0)
            self._at = _At.VALUE_OR_CLOSE
        elif char in _NUMBER_START:
            self._number = _NUMBER_START[char]
            self._at = _At.NUMBER
        elif char in _LITERALS:
            self._literal = _LITERALS[char][1:]
            self._at = _At.LITERAL
        else:
            self._fail(at, "a value was expected")

    def _after_value(self, char: str, at: int) -> None:
        level = self._levels[-1]
        if isinstance(level, str):
            if char == ",":
                self._at = _At.KEY
            elif char == "}":
                self._close()
            else:
                self._fail(at, "a comma or `}` was expected")
        elif char == ",":
            self._levels[-1] = level + 1
            self._at = _At.VALUE
        elif char == "]":
            self._close()
        else:
            self._fail(at, "a comma or `]` was expected")

    def _close(self) -> None:
        self._levels.pop()
        self._opened_at.pop()
        self._end_value()

    def _end_value(self) -> None:
        self._at = _At.COMMA_OR_CLOSE if self._levels else _At.DONE

    def _read_string(self, text: str, at: int) -> int:
        run = _STRING_RUN.match(text, at)
        end = run.end() if run else at
        if self._at is _At.KEY_STRING:
            self._key.append(text[at:end])
        if end == len(text):
            return end
        if text[end] == '"':
            if self._at is _At.KEY_STRING:
                self._levels[-1] = "".join(self._key)
                self._at = _At.COLON
            else:
                self._end_value()
            return end + 1
        cut = _CUT_ESCAPE.match(text, end)
        if cut and cut.end() == len(text):
            self._carry = text[end:]
            return len(text)
        self._fail(end, "no such escape" if text[end] == "\\" else "a control character must be escaped")
        return end

    def _read_number(self, text: str, at: int) -> int:
        while at < len(text):
            following = _NUMBER[self._number].get(_NUMBER_CLASS.get(text[at], ""))
            if following is None:
                if self._number.isupper():
                    self._end_value()
                else:
                    self._fail(at, "a digit was expected in the number")
                return at
            self._number = following
            at += 1
            if following.isupper() and following != "ZERO":
                run = _DIGITS.match(text, at)
                at = run.end() if run else at
        return at

    def _read_literal(self, text: str, at: int) -> int:
        had = min(len(self._literal), len(text) - at)
        if text[at : at + had] != self._literal[:had]:
            self._fail(at, "a value was expected")
            return at
        self._literal = self._literal[had:]
        if not self._literal:
            self._end_value()
        return at + had

    def _fail(self, at: int, why: str) -> None:
        self._error = Invalid(path=_path(self._levels), position=self._position + at, why=why)


def _path(levels: list[str | int]) -> str:
    """`$.files[2].content`. Very deep ones are shown from their end."""
    steps = [
        f"[{level}]" if isinstance(level, int) else f".{level}" if _PLAIN_KEY.fullmatch(level) else f'["{level}"]'
        for level in (levels if len(levels) <= MAX_PATH_CHARS else levels[-MAX_PATH_CHARS:])
        if level != ""
    ]
    path = "".join(steps)
    return f"${path}" if len(path) <= MAX_PATH_CHARS else f"$...{path[-MAX_PATH_CHARS:]}"
