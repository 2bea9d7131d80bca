"""The sentences of the docs that promise something about money, files and time, and the tests that show them.

`docs_sentences.toml` is the list: a table for each sentence under the name of its page, with `says` (the sentence as it stands
there, line breaks as spaces) and `tests` (`FILE::NAME` below tests/), or, where no test can show it, `because` (it is advice, a
definition, or tells what somebody else does).

Which sentences have to be on it, `promises_of` decides: those of SECTIONS (headings of a page; None: all of it) in plain
paragraphs and lists that have a figure outside of code, or one of WORDS. Tables are not looked through, as they say less in
more places: their cells may be listed all the same. To renew the list after a change of a page, run the tests of
test_docs_sentences.py: they print what is gone, and what is new as it would stand in the file.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import msgspec

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
LIST = TESTS / "docs_sentences.toml"

SECTIONS: dict[str, tuple[str, ...] | None] = {
    "docs/overview.md": ("At the terminal",),
    "docs/billing.md": None,
    "docs/limits.md": (
        "Files of settings",
        "What a request asks for",
        "When the prompt grows too long",
        "Limits of tokens and time",
        "What money allows",
        "What sub-agents may do",
        "Calls of one response",
    ),
    "docs/deadlines.md": (
        "Deadlines and retries",
        "A request",
        "A connection left open",
        "Which deadline comes first",
        "Another attempt",
        "A lost piece",
    ),
    "docs/tools.md": ("What they read", "What they write", "Paths", "Taking back"),
    "docs/cli.md": ("Exit codes", "Files"),
    "docs/library.md": ("Sub-agents", "When a provider fails", "Limits", "Room"),
    "docs/sandbox.md": ("Environment", "Time, processes, output"),
    "docs/scripts.md": ("Limits", "How it can end"),
    "docs/gateway.md": ("The file", "Doors", "Keys", "Bounds", "The report", "Ending"),
}
WORDS = re.compile(r"\b(never|always|at most|at least|exactly|no more than|nothing|nobody|every|each)\b", re.IGNORECASE)
MIN_WORDS = 5  # shorter ones are headings of a list

_CODE = re.compile(r"```.*?```", re.DOTALL)
_ITEM = re.compile(r"^\s*(?:[-*]|\d+\.)\s+")
# A full stop ends a sentence where a capital, a figure or a mark of emphasis follows; `etc.` and `e.g.` are not our words.
_END = re.compile(r'(?<=[.!?])["*)`]*\s+(?=["*`(\[]*[A-Z0-9])')
_ASIDE = re.compile(r"`[^`]*`|\]\([^)]*\)")  # code, and where links lead


class Sentence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    says: str
    tests: tuple[str, ...] = ()
    because: str = ""


def listed() -> dict[str, tuple[Sentence, ...]]:
    """Page -> its sentences on the list."""
    return msgspec.convert(tomllib.loads(LIST.read_text(encoding="utf-8")), dict[str, tuple[Sentence, ...]])


def text_of(page: str) -> str:
    """The page's text with one space between words, as sentences are compared."""
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def promises_of(page: str) -> Iterator[str]:
    """The sentences of a page that have to be on the list."""
    for heading, paragraph in _paragraphs((ROOT / page).read_text(encoding="utf-8")):
        wanted = SECTIONS[page]
        if wanted is not None and heading not in wanted:
            continue
        for sentence in _END.split(paragraph):
            plain = _ASIDE.sub("", sentence)
            if len(sentence.split()) >= MIN_WORDS and (WORDS.search(plain) or re.search(r"\d", plain)):
                yield sentence.strip()


def as_listed(page: str, sentence: str) -> str:
    """The lines that put a sentence on the list, without its tests."""
    return f"[[{json.dumps(page)}]]\nsays = {json.dumps(sentence, ensure_ascii=False)}\ntests = []\n"


def _paragraphs(text: str) -> Iterator[tuple[str, str]]:
    """Each paragraph and item of a list, on one line, with its heading. Neither code nor tables."""
    heading, lines = "", list[str]()
    for line in [*_CODE.sub("\n\n", text).splitlines(), ""]:
        is_break = not line.strip() or line.startswith(("#", "|", "<!--")) or _ITEM.match(line) is not None
        if is_break and lines:
            yield heading, " ".join(lines)
            lines = []
        if line.startswith("#"):
            heading = line.strip("# ")
        elif line.strip() and not line.startswith(("|", "<!--")):
            lines.append(_ITEM.sub("", line).strip())
