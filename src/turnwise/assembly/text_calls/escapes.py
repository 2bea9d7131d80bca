"""A text without its escapes, so that the same words compare equal however a tool or a server has written them.

Bytes in any notation first become the characters of the same number; where these are UTF-8, they are read as such. Two texts that
say the same are changed in the same way, so it does no harm if something is read that was no escape.
"""

import html
import re
import unicodedata

_ROUNDS = 4  # escapes of different kinds within each other; those of one kind are read at once
_COLOURS = re.compile(r"\x1b(?:\[[0-9;:?]*[A-Za-z]|\][^\x07\x1b]*(?:\x07|\x1b\\?))")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]+")
_UNSEEN_IN_CODES = re.compile("[\u200b-\u200f\u2060\ufeff]+")  # a soft hyphen may be a byte of UTF-8
_HALVES = re.compile(r"[\ud800-\udfff]")
_UTF8 = re.compile("[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
# `cat -v`: M-^A is byte 0x81, M-b is 0xe2. A backslash may be doubled. One byte alone is no UTF-8.
_META = re.compile(r"M-(?:\^\\{1,16}|\^[@-_?]|\\{1,16}|[ -~])(?:M-(?:\^\\{1,16}|\^[@-_?]|\\{1,16}|[ -~]))+")
_META_BYTE = re.compile(r"M-(\^?)(\\+|.)")
_CARETS = re.compile(r"\^[IJKLM]")
_SLASHES = re.compile(r"\\{2,}")
_CODES = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|[ux]\{([0-9a-fA-F]{1,6})\}|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})"
    r"|([0-3][0-7]{2})|N\{([A-Za-z0-9 -]{1,99})\})"
)
_BREAKS = re.compile(r"\\[nr]|\r\n?")
_BLANKS = re.compile(r"\\[abeftv]")
_LONE_SLASHES = re.compile(r"\\(?![0-9A-Za-z])")
_AMPERSANDS = re.compile(r"&(?:amp;)+")
_PERCENTS = re.compile(r"%(?:25)+")
_PERCENT_CODES = re.compile(r"%(?:u([0-9a-fA-F]{4})|([0-9a-fA-F]{2}))")
# Quoted-printable. `=12` and its like also stand in code, so only what no code has is read.
_EQUALS = re.compile(r"=(?:3D)+")
_BROKEN_BYTES = re.compile(r"=\r?\n(?==[89A-F][0-9A-F])")
_EQUALS_CODES = re.compile(r"=([89A-F][0-9A-F])")
_EQUALS_BLANKS = re.compile(r"=(?:20|09)(?=\r?$)", re.MULTILINE)
# As `less` and R show what they cannot draw.
_POINTED = re.compile(r"<(?:U\+([0-9a-fA-F]{4,6})|([89a-fA-F][0-9a-fA-F]))>")
# Codes of ASCII's letters, digits and lower line, and of the marks that begin or end another escape. Bytes that are no ASCII hide
# no name, and a code of a blank or of a bracket stands in many plain texts.
_HEX = r"(?:2[356]|3[0-9ab]|[46][1-9a-f]|[57][0-9abdf])"
_HIDING = re.compile(
    rf"\\(?:u00|[ux]\{{0{{0,4}}|U000000|x){_HEX}|\\N\{{|\\(?:043|045|046|0[67][0-7]|1[0-7]{{2}})"
    rf"|%(?:25)*(?:u00)?{_HEX}|&(?:amp;)*(?:#|lowbar|UnderBar)|<U\+0{{0,4}}{_HEX}>|[\xad\u200b-\u200f\u2060\ufeff]",
    re.IGNORECASE,
)
_NEAR = 1_000  # characters around an escape in which the rest of a name may stand


def hidden_parts(text: str) -> str:
    """The parts of the text where escapes, or characters that nobody sees, may keep a name from being found."""
    parts: list[str] = []
    begin = end = 0
    for found in _HIDING.finditer(text):
        if found.start() - _NEAR > end:
            parts.append(text[begin:end])
            begin = found.start() - _NEAR
        end = found.end() + _NEAR
    parts.append(text[begin:end])
    return "\n".join(parts)


def without_escapes(text: str) -> str:
    for _ in range(_ROUNDS):
        before, text = text, _read_once(text)
        if text == before:
            break
    return text


def _read_once(text: str) -> str:
    if not text.isascii():  # before the rest, because these may stand within an escape
        text = _UNSEEN_IN_CODES.sub("", text)
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    if "M-" in text:  # before the backslashes, because one may belong to it
        text = _META.sub(_of_meta, text)
    if "\\" in text or "\r" in text:
        text = _LONE_SLASHES.sub("", _without_backslashes(text))
    if "&" in text:
        text = html.unescape(_AMPERSANDS.sub("&", text))
    if "%" in text:
        text = _PERCENT_CODES.sub(_of_code, _PERCENTS.sub("%", text))
    if "=" in text:
        text = _EQUALS_BLANKS.sub("", _BROKEN_BYTES.sub("", _EQUALS.sub("=", text)))
        text = _EQUALS_CODES.sub(_of_code, text)
    if "<" in text:
        text = _POINTED.sub(_of_code, text)
    if "^" in text:
        text = _CARETS.sub(" ", text)
    if text.isascii():
        return text
    if _HALVES.search(text) is not None:
        text = text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")
    return _UNSEEN.sub("", _UTF8.sub(_of_bytes, text))


def _without_backslashes(text: str) -> str:
    text = _CODES.sub(_of_backslash, _SLASHES.sub(r"\\", text))
    return _BLANKS.sub(" ", _BREAKS.sub("\n", text))


def _of_backslash(found: re.Match[str]) -> str:
    if (octal := found[5]) is not None:
        return chr(int(octal, 8))
    if (name := found[6]) is not None:
        try:
            return unicodedata.lookup(name)
        except KeyError:
            return found[0]
    return _of_code(found)


def _of_code(found: re.Match[str]) -> str:
    code = int(next(filter(None, found.groups())), 16)
    return chr(code) if code <= 0x10FFFF else ""


def _of_bytes(found: re.Match[str]) -> str:
    return found[0].encode("latin-1").decode(errors="replace")


def _of_meta(found: re.Match[str]) -> str:
    """What the bytes say; the same text where they are no UTF-8, such as the names of keys."""
    codes = [ord(key[0]) ^ (0x40 if caret else 0) for caret, key in _META_BYTE.findall(found[0])]
    try:
        return bytes([0x80 | code for code in codes]).decode()
    except UnicodeDecodeError:
        return found[0]
