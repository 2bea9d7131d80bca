"""Text as a terminal shows it: without the sequences that set colours, erase lines or name links, also where a tool spells them.

Sources: ECMA-48, 5.4 (control sequences); xterm's "Control Sequences" (OSC); `cat -v` for `^[`.
"""

import re

import msgspec

_BEGINS = re.compile(r"[\x1b\x9b]|\^\[|\\e|\\0?33")
_SEQUENCE = re.compile(
    r"""
    (?: \x1b | \^\[ | \\e | \\0?33 )
    (?: \[ [0-?]{0,48} [ -/]{0,4} [@-~]
      | \] [^\x07\x1b\\\^\n]{0,1024} (?: \x07 | \^G | (?: \x1b | \^\[ | \\e | \\0?33 ) \\ )
      | [()*+] [0-9A-Za-z]
      | [=>78] )
    | \x9b [0-?]{0,48} [ -/]{0,4} [@-~]
    """,
    re.VERBOSE,
)


class ShownText(msgspec.Struct, frozen=True):
    """`text` without sequences. Character `n` of it is `places[n]` of the original; `seams` are where sequences stood."""

    text: str
    places: list[int]
    seams: tuple[int, ...] = ()


def may_drive_terminal(text: str) -> bool:
    return _BEGINS.search(text) is not None


def as_shown(text: str) -> ShownText:
    pieces: list[str] = []
    places: list[int] = []
    seams: list[int] = []
    at = 0
    for found in _SEQUENCE.finditer(text):
        pieces.append(text[at : found.start()])
        places += range(at, found.start())
        at = found.end()
        seams.append(len(places))
    pieces.append(text[at:])
    places += range(at, len(text))
    return ShownText("".join(pieces), places, tuple(seams))
