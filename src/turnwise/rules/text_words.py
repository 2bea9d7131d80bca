"""Which words of a command are text for it and never name a file: a pattern, a message, the name of a branch or of a script.

Sources: the table of readers, and the manual pages of the other commands.
"""

import re
from collections.abc import Sequence

from turnwise.rules.permission_facts import Word
from turnwise.rules.read_only_commands import READERS, ReadingCommand, option_takes

_MATCHING = frozenset("-name -iname -path -ipath -wholename -iwholename -regex -iregex".split())
# The options of a subcommand whose value is text; the value is the next word, or joined.
_GIT_TEXTS = {
    **dict.fromkeys(("log", "show", "diff", "shortlog", "rev-list"), r"-[SG]|--(?:grep|author|committer)"),
    **dict.fromkeys(("commit", "tag", "merge", "notes"), r"-[aqsvnpe]*m|--message|--author"),
    "stash": r"-[ukqap]*m|--message",
    "checkout": r"-[qtl]*[bB]|--orphan",
    "switch": r"-[qt]*[cC]|--create|--orphan",
}
_SCRIPT_RUNNERS = frozenset("npm pnpm yarn bun".split())
_KINDS = re.compile(r"get|describe|create|delete|edit")
_GREP_FLAGS = re.compile(r"-[nilwEFPIcohv]+|--(?:line-number|ignore-case|word-regexp|count|files-with-matches)")


def searched_texts(words: Sequence[Word]) -> frozenset[int]:
    """Where the words stand that a command looks for or says. What it says may name a file for another command."""
    if not words or not words[0].literal:
        return frozenset()
    if words[0].text == "find":
        return frozenset([at + 1 for at, word in enumerate(words[:-1]) if word.text in _MATCHING])
    reader = READERS.get(words[0].text)
    if reader is None:
        return frozenset()
    if reader.speaks:
        return frozenset(range(1, len(words)))
    return _patterns(words, reader=reader) if reader.patterns else frozenset()


def own_texts(words: Sequence[Word]) -> frozenset[int]:
    """Where the words stand that are text for the command, and that nothing else gets from it."""
    texts = [word.text for word in words]
    if len(texts) < 3 or not words[0].literal:
        return frozenset()
    match texts[0]:
        case "git" if texts[1] == "grep":
            at = next((at for at in range(2, len(texts)) if _GREP_FLAGS.fullmatch(texts[at]) is None), 0)
            return frozenset() if texts[at].startswith("-") else frozenset({at})
        case "git" if texts[1] == "branch":
            return frozenset([at for at in range(2, len(texts)) if not texts[at].startswith("-")])
        case "git" if texts[1] in _GIT_TEXTS:
            return _values(texts, options=_GIT_TEXTS[texts[1]])
        case "pytest":
            return _values(texts, options="-k")
        case "python" | "python3" if texts[1] == "-m":
            return frozenset([2, *(_values(texts, options="-k") if texts[2] == "pytest" else ())])
        case name if name in _SCRIPT_RUNNERS and texts[1] in ("run", "run-script"):
            return frozenset({2})
        case "kubectl" if _KINDS.fullmatch(texts[1]):
            return frozenset({2})
        case _:
            return frozenset()


def _values(texts: Sequence[str], *, options: str) -> frozenset[int]:
    found: set[int] = set()
    for at, text in enumerate(texts):
        if text == "--":
            break
        option = re.match(options, text)
        if option is not None and option.end() == len(text):
            found.add(at + 1)
        elif option is not None and at not in found and (text[:2] != "--" or text[option.end()] == "="):
            found.add(at)
    return frozenset(found)


def _patterns(words: Sequence[Word], *, reader: ReadingCommand) -> frozenset[int]:
    """Of options that are not listed nothing is known, so nothing is taken for text beside them."""
    operands: list[int] = []
    values: list[int] = []
    at, ended = 1, False
    while at < len(words):
        text = words[at].text
        at += 1
        if ended or not text.startswith("-") or text == "-":
            operands.append(at - 1)
            continue
        if text == "--":
            ended = True
            continue
        taken = option_takes(text, reader=reader)
        if taken is None:
            return frozenset()
        if "e" in reader.valued and re.match(r"--regexp|-[^-]*e", text):
            values.append(at if taken else at - 1)
        at += taken
    return frozenset(values or operands[: reader.patterns])
