"""Where a text that is not in a file nearly stands, and what differs."""

import difflib
import re
import unicodedata

SHOWN_CHARACTERS = 2000
SHOWN_LINES = 12
COMPARED_LINES = 4000  # comparing two lines takes time quadratic in their length
COMPARED_CHARACTERS = 160
NEAREST = 3
LIKENESS = 0.6
_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)


def near_misses(text: str, old: str) -> str:
    """What the caller most likely got wrong, with the lines as they are."""
    plain, wanted = text.replace("\r\n", "\n"), old.replace("\r\n", "\n")
    if _NUMBERED.match(wanted) and _NUMBERED.sub("", wanted) in plain:
        return "It is there without the line numbers: leave them out of `old`."
    if said := composed_otherwise(plain, wanted):
        return said
    lines, sought = plain.split("\n"), wanted.strip("\n").split("\n")
    bare, bare_sought = [_bare(line) for line in lines], [_bare(line) for line in sought]
    for start in range(len(lines) - len(sought) + 1):
        if bare[start] == bare_sought[0] and bare[start : start + len(sought)] == bare_sought:
            found = lines[start : start + len(sought)]
            differs = _white_space(found, sought, first=start + 1)
            return (
                f"Lines {start + 1} to {start + len(sought)} differ from it in white space only"
                f"{f' ({differs})' if differs else ''}. They are exactly:\n{_shown(found)}"
            )
    return _nearest(lines, sought)


def _nearest(lines: list[str], sought: list[str]) -> str:
    """The lines that are most like the most telling line of what was sought, with those that would stand around them."""
    place = max(range(len(sought)), key=lambda number: len(sought[number].strip()))
    telling = sought[place].strip()[:COMPARED_CHARACTERS]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(telling)
    scored: list[tuple[float, int]] = []
    for number, line in enumerate(lines[:COMPARED_LINES]):
        matcher.set_seq1(line.strip()[:COMPARED_CHARACTERS])
        if (
            min(matcher.real_quick_ratio(), matcher.quick_ratio()) >= LIKENESS
            and (ratio := matcher.ratio()) >= LIKENESS
        ):
            scored.append((-ratio, number))
    best = sorted(scored)[:NEAREST]
    if not telling or not best:
        return "Nothing in it is like that. Read the file again: it may have changed."
    start = max(0, best[0][1] - place)
    window = lines[start : start + len(sought)]
    others = ", ".join(str(number + 1) for _, number in best[1:])
    span = f"line is {start + 1}" if len(window) == 1 else f"lines are {start + 1} to {start + len(window)}"
    also = f" (also like it: line {others})" if others else ""
    return f"The nearest {span}{also}:\n{_shown(window)}\nRead the file again around it."


def composed_otherwise(text: str, wanted: str) -> str:
    """Where it stands but for how letters are composed of characters (Unicode, annex 15), in a form that can be given back."""
    if text.isascii() and wanted.isascii():
        return ""
    whole, sought = composed(text), composed(wanted)
    at = whole.find(sought)
    if at < 0:
        return ""
    first, count = whole.count("\n", 0, at), sought.count("\n") + 1
    pairs = list(zip(text.split("\n")[first : first + count], wanted.split("\n"), strict=True))
    at = next((at for at, (there, given) in enumerate(pairs) if given not in there), 0)
    number, (there, given) = first + at + 1, pairs[at]
    return (
        f"It stands in line {number}, but with letters that are composed of other characters (composed and decomposed Unicode"
        f" letters look the same). With escapes for them as in JSON, the line is `{escaped(there)}`, and what you gave is"
        f" `{escaped(given)}`: give the characters of the file."
    )


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def escaped(text: str) -> str:
    """With `\\u0301` for each character that is no ASCII, in UTF-16 as in JSON."""
    units = [one if one.isascii() else one.encode("utf-16-be", "surrogatepass") for one in text[:SHOWN_CHARACTERS]]
    return "".join(
        one if isinstance(one, str) else "".join(f"\\u{one[at : at + 2].hex()}" for at in range(0, len(one), 2))
        for one in units
    )


def _bare(line: str) -> str:
    return "".join(line.split())


def _white_space(found: list[str], sought: list[str], *, first: int) -> str:
    """Names the first line that differs, and how."""
    for number, (there, given) in enumerate(zip(found, sought, strict=True), start=first):
        if there == given:
            continue
        if _indent(there) != _indent(given):
            return f"line {number} is indented by {_named(_indent(there))}, `old` by {_named(_indent(given))}"
        if there.rstrip() == given.rstrip():
            return f"line {number} ends with {_named(_tail(there))}, `old` with {_named(_tail(given))}"
        return f"line {number} has other white space between its words"
    return ""


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _tail(line: str) -> str:
    return line[len(line.rstrip()) :]


def _named(blank: str) -> str:
    """How many tabs, spaces and others."""
    counts = {"tab": blank.count("\t"), "space": blank.count(" ")}
    counts["other blank"] = len(blank) - sum(counts.values())
    return " and ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in counts.items() if count) or "nothing"


def _shown(lines: list[str]) -> str:
    text = "\n".join(lines[:SHOWN_LINES])[:SHOWN_CHARACTERS]
    return text + (f"\n[... and {len(lines) - SHOWN_LINES} more lines]" if len(lines) > SHOWN_LINES else "")
