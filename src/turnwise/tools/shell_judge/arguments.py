"""What the words of a command may name: paths, variables, folders that are searched."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from urllib.parse import unquote

import msgspec

from turnwise.rules.permission_facts import Assignment, PathFact
from turnwise.rules.read_only_commands import COUNTS
from turnwise.rules.shell_words import SETTING
from turnwise.tools.shell_judge.script_limits import MAX_VALUES
from turnwise.tools.shell_judge.word_spelling import Spelled
from turnwise.tools.shell_judge.wrappers import CommandWords

SHOWN_CHARS = 400
MAX_JOINED = 8  # letters of options before a value that is joined to them
NAME = re.compile(r"([A-Za-z_]\w*)(?:\[.*\]|\+?=.*)?", re.DOTALL)


_FILE_ADDRESS = re.compile(r"file:(?://[^/]*)?(/.*)", re.IGNORECASE | re.DOTALL)


def assigned(word: Spelled) -> Assignment:
    name, _, value = word.text.partition("=")
    return Assignment(name.rstrip("+"), value[:SHOWN_CHARS], word.literal)


def exported(assignments: Iterable[Assignment], *, names: Collection[str] | None = None) -> tuple[Assignment, ...]:
    """The same, marked as seen by programs: all, or those of `names`."""
    return tuple(
        msgspec.structs.replace(one, exported=True) if names is None or one.name in names else one
        for one in assignments
    )


def set_by(name: str, *, words: CommandWords) -> list[Assignment]:
    """The variables that a builtin sets, by the words that name them."""
    if name not in SETTING:
        return []
    if name == "printf" and not any(COUNTS.search(word.text) for word in words):
        named = [after for word, after in pairwise(words) if word.text == "-v"]
    else:
        named = list(words[1:])
    return [Assignment(found[1], "", False) for word in named if (found := NAME.fullmatch(word.text))]


def suspects(text: str) -> tuple[PathFact, ...]:
    """Parts of a word known only when it runs that show what it may name: `$HOME/.ssh/key`, `{a,.env}`, `~root/x`."""
    parts = [part for part in re.split(r"""[{},\s'"=:]+""", text) if part]
    return tuple(PathFact(given=part) for part in dict.fromkeys(parts) if "/" in part or "." in part or part[0] == "~")


def possible_texts(text: str, *, values: Mapping[str, Sequence[str]]) -> list[str]:
    """What the word may be where variables have these values; nothing where one is not known."""
    texts = [""]
    for part in re.split(r"(\$\w+|\$\{\w+\})", text.replace('"', "")):
        name = part.strip("${}") if part.startswith("$") else ""
        known = values.get(name) if name else [part]
        if known is None or len(texts) * len(known) > MAX_VALUES:
            return []
        texts = [head + value for head in texts for value in known]
    return texts


def path_texts(text: str) -> tuple[str, ...]:
    """Parts of a word that may be paths, in no other order than found."""
    texts: dict[str, None] = {}
    if not text.startswith("-") or text == "-":
        texts[text] = None
    elif not text.startswith("--") and len(text) > 2:
        for joined in range(2, min(len(text), MAX_JOINED)):  # `-sTfile`: the letters before it are options of their own
            texts[text[joined:].removeprefix("@")] = None
        if "/" in text:
            texts[text[text.index("/") :]] = None
    if address := _FILE_ADDRESS.search(text):
        named = unquote(address[1])
        texts["/" if re.search(r"[{}\[\]]", named) else named] = None  # curl puts several in their place
    if "://" not in text:
        for part in re.split(r"[=:,]", text)[1:]:
            texts[part.removeprefix("@")] = None
    if text.startswith("@") and len(text) > 1:
        texts[text[1:]] = None
    return tuple(one for one in texts if one)
