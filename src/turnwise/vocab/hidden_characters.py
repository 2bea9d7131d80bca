"""Characters that a reader does not see: one table for asks, answers, names and results. Each is shown as `<U+200B>`.

Sources: Unicode 15.0, `DerivedCoreProperties.txt` (Default_Ignorable_Code_Point), `emoji-variation-sequences.txt`; a test
compares both with Python's and Perl's own tables, where these know the property.
"""

import re
from functools import lru_cache

# Default_Ignorable_Code_Point: what a program without a glyph for it shows as nothing. Bidirectional controls, tags, fillers,
# joiners and variation selectors are among them.
IGNORABLE = (
    "AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 "
    "1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)
# No property names these: their glyphs are empty (a Braille pattern without dots, a filler, a note without a head), or they
# divide lines, or belong to an annotation that is not shown.
BLANK = "2028-2029 2800 FFF9-FFFB 16FE4 1D159"
# Newline and tab stay; half characters cannot be written at all.
CONTROL = "0-8 B-1F 7F-9F D800-DFFF"

# The characters that have both a text style (U+FE0E) and an emoji style (U+FE0F): behind them alone a selector is no secret.
EMOJI_BASES = (
    "23 2A 30-39 A9 AE 203C 2049 2122 2139 2194-2199 21A9-21AA 231A-231B 2328 23CF 23E9-23EA 23ED-23EF 23F1-23F3 "
    "23F8-23FA 24C2 25AA-25AB 25B6 25C0 25FB-25FE 2600-2604 260E 2611 2614-2615 2618 261D 2620 2622-2623 2626 262A "
    "262E-262F 2638-263A 2640 2642 2648-2653 265F-2660 2663 2665-2666 2668 267B 267E-267F 2692-2697 2699 269B-269C "
    "26A0-26A1 26A7 26AA-26AB 26B0-26B1 26BD-26BE 26C4-26C5 26C8 26CF 26D1 26D3-26D4 26E9-26EA 26F0-26F5 26F7-26FA "
    "26FD 2702 2708-2709 270C-270D 270F 2712 2714 2716 271D 2721 2733-2734 2744 2747 2753 2757 2763-2764 27A1 "
    "2934-2935 2B05-2B07 2B1B-2B1C 2B50 2B55 3030 303D 3297 3299 1F004 1F170-1F171 1F17E-1F17F 1F202 1F21A 1F22F "
    "1F237 1F30D-1F30F 1F315 1F31C 1F321 1F324-1F32C 1F336 1F378 1F37D 1F393 1F396-1F397 1F399-1F39B 1F39E-1F39F "
    "1F3A7 1F3AC-1F3AE 1F3C2 1F3C4 1F3C6 1F3CA-1F3CE 1F3D4-1F3E0 1F3ED 1F3F3 1F3F5 1F3F7 1F408 1F415 1F41F 1F426 "
    "1F43F 1F441-1F442 1F446-1F449 1F44D-1F44E 1F453 1F46A 1F47D 1F4A3 1F4B0 1F4B3 1F4BB 1F4BF 1F4CB 1F4DA 1F4DF "
    "1F4E4-1F4E6 1F4EA-1F4ED 1F4F7 1F4F9-1F4FB 1F4FD 1F508 1F50D 1F512-1F513 1F549-1F54A 1F550-1F567 1F56F-1F570 "
    "1F573-1F579 1F587 1F58A-1F58D 1F590 1F5A5 1F5A8 1F5B1-1F5B2 1F5BC 1F5C2-1F5C4 1F5D1-1F5D3 1F5DC-1F5DE 1F5E1 "
    "1F5E3 1F5E8 1F5EF 1F5F3 1F5FA 1F610 1F687 1F68D 1F691 1F694 1F698 1F6AD 1F6B2 1F6B9-1F6BA 1F6BC 1F6CB "
    "1F6CD-1F6CF 1F6E0-1F6E5 1F6E9 1F6F0 1F6F3"
)


def says_something(text: str) -> bool:
    """Whether a reader sees anything of it: it is more than spaces and characters that do not show."""
    if not text:
        return False
    if any("!" <= char <= "~" for char in text[:64]):  # nearly always, and without the table
        return True
    return _showing().search(text) is not None


def visible(text: str) -> str:
    """The text for a person who is to judge it: whatever does not show as itself, spaces other than the plain one too, is
    spelled out. Line ends (`\\n`) and tabs stay."""
    if text.isascii() and not _hidden().search(text):
        return text
    shown = _hidden().sub(_spelled, text)
    return "".join([char if char in "\n\t" or char.isprintable() else spelled(char) for char in shown])


def visible_line(text: str) -> str:
    """The same on one line: a name cannot look like the line below it."""
    return visible(text).replace("\n", spelled("\n")).replace("\t", spelled("\t"))


def shown(text: str) -> str:
    """The text of a name or a result: hidden characters are spelled out. A line end of Windows is one."""
    return _hidden().sub(_spelled, text.replace("\r\n", "\n"))


def shown_answer(text: str, *, before: str = "") -> str:
    """The same for an answer, where a variation selector stays behind a character that has two styles. `before` is the character
    in front of the text, if it is a piece of one."""
    if text.isascii():
        return shown(text)
    whole = before + text.replace("\r\n", "\n")
    kept = _hidden_in_answers().sub(_spelled, whole)
    return kept[len(_hidden_in_answers().sub(_spelled, before)) :]


def spelled(char: str) -> str:
    code = ord(char)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"<U+{code:04X}>"  # a byte of a file's name


def _spelled(found: re.Match[str]) -> str:
    return spelled(found[0])


@lru_cache(maxsize=1)
def _hidden() -> re.Pattern[str]:
    return re.compile(f"[{_class(CONTROL)}{_class(IGNORABLE)}{_class(BLANK)}]")


@lru_cache(maxsize=1)
def _hidden_in_answers() -> re.Pattern[str]:
    selectors = f"(?<=[{_class(EMOJI_BASES)}])[\ufe0e\ufe0f]"
    return re.compile(f"(?!{selectors}){_hidden().pattern}")


@lru_cache(maxsize=1)
def _showing() -> re.Pattern[str]:
    return re.compile(rf"[^\s{_class(CONTROL)}{_class(IGNORABLE)}{_class(BLANK)}]")


def _class(ranges: str) -> str:
    """The ranges as they stand in a character class."""
    return "".join(["-".join([f"\\U{int(end, 16):08x}" for end in one.split("-")]) for one in ranges.split()])
