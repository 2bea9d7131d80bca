r"""Names of files as text: a name is bytes, and an ask, a journal, a provider and a line of output take text alone.

What is no UTF-8, and what would begin a line or drive a terminal, is shown as `\xe9`. A backslash that looks like the beginning
of that is shown as `\x5c`, so no two names are shown alike, and what is shown leads back to the name.
"""

import re
import unicodedata

_CODES = r"x(?:0[1-9a-f]|1[0-9a-f]|5c|7f|[89a-f][0-9a-f])"  # no `/`, no NUL, and no letter that needs none
_SHOWN = re.compile(rf"(?:\\{_CODES})+")
_HIDDEN = re.compile(f"[\x01-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|\\\\(?={_CODES})")


_NO_TEXT = re.compile("/([^/]*[\ud800-\udfff][^/]*)")


def is_text(text: str) -> bool:
    """Whether it can be written as UTF-8: a byte of a name that cannot be decoded is half of a surrogate pair here."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def json_text(text: str) -> str:
    """A text for JSON, which cannot carry the bytes of a name: they are shown. Any other half of a pair becomes `?`."""
    return re.sub("[\udc80-\udcff]", lambda found: _bytes_of(found[0]), text).encode(errors="replace").decode()


def shown_name(path: str) -> str:
    """A name or path in one line of text; the very same where all of it is plain."""
    return _HIDDEN.sub(lambda found: _bytes_of(found[0]), path)


def given_name(text: str) -> str:
    """The name or path that is shown so."""
    if "\\x" not in text:
        return text
    return _SHOWN.sub(lambda found: bytes.fromhex(found[0].replace("\\x", "")).decode("utf-8", "surrogateescape"), text)


def marked(path: str) -> str:
    """A resolved path with its names that are no UTF-8 as they are shown, each behind two slashes: no path of a real file is
    equal to it."""
    return _NO_TEXT.sub(lambda found: f"//{shown_name(found[1])}", path)


def unmarked(path: str) -> str:
    """The path that was marked."""
    return re.sub("//([^/]*)", lambda found: f"/{given_name(found[1])}", path)


def spelled_name(name: str) -> str:
    """The same name with the bytes of all letters that are no ASCII: for a name that looks like another one."""
    return "".join([shown_name(char) if char.isascii() else _bytes_of(char) for char in name])


def looks_like(name: str, other: str) -> bool:
    """Whether two names differ in nothing but how their letters are composed."""
    return name != other and unicodedata.normalize("NFC", name) == unicodedata.normalize("NFC", other)


def _bytes_of(text: str) -> str:
    return "".join([f"\\x{byte:02x}" for byte in text.encode("utf-8", "surrogateescape")])
