"""Which command patterns match a command: over its parsed words, never over its text.

A permission is matched narrowly (each word where the pattern has it), a prohibition widely (whatever the path of the
program, options before the subcommand, words known only later).
"""

import re
from enum import Enum

from turnwise.rules.linear_globs import Glob, word_glob
from turnwise.rules.permission_facts import CommandFact, Word
from turnwise.rules.writing_options import writes_or_runs

_WILDCARD = re.compile(r"(?<!\\)(?:\\\\)*[*?]")

_SUBSTITUTES = re.compile(r"\$\(|`|\A.{200}", re.DOTALL)  # a long word is shown in part


class Match(Enum):
    NO = 0
    MAYBE = 1
    """A word known only when it runs could make it match."""
    YES = 2


def matches_narrowly(pattern: tuple[str, ...], *, command: CommandFact) -> bool:
    """Word for word. A last `*` stands for any further words, also for those known only when the command runs, but not for an
    option with which the command writes or runs something: a permission has to spell that out."""
    words = command.words
    if not words or not words[0].literal:
        return False
    if pattern == ("*",):
        return True
    open_end = len(pattern) > 1 and pattern[-1] == "*"
    tokens = pattern[:-1] if open_end else pattern
    if len(words) < len(tokens) or (len(words) > len(tokens) and not open_end):
        return False
    if not all(_fits(token, word=word) for token, word in zip(tokens, words, strict=False)):
        return False
    if _is_commit(words) and any(not word.literal and _SUBSTITUTES.search(word.text) for word in words):
        return False  # a message stays for good: what a command puts into it has to be looked at
    spelt = [at < len(tokens) and _spells(tokens[at]) for at in range(len(words))]
    return not writes_or_runs(words, spelt=spelt)


def _is_commit(words: tuple[Word, ...]) -> bool:
    return words[0].text.rpartition("/")[2] == "git" and any(word.text == "commit" for word in words)


def _spells(token: str) -> bool:
    """Whether the token says at least which option it is: `--output=*`."""
    wildcard = _WILDCARD.search(token)
    return wildcard is None or "=" in token[: wildcard.start()]


def matches_widely(pattern: tuple[str, ...], *, command: CommandFact) -> Match:
    """As a prohibition is meant: `rm *` also is `/bin/rm x`, `git push *` also `git -C . push`."""
    words = command.words
    if not words:
        return Match.NO
    if not words[0].literal:
        return Match.MAYBE
    name = words[0].text
    names = {name, name.replace("\\", "/").rpartition("/")[2]}
    if not any(_compiled(pattern[0]).fits(one.casefold()) for one in names):
        return Match.NO
    return _rest(pattern[1:], words=words[1:])


def _rest(pattern: tuple[str, ...], *, words: tuple[Word, ...]) -> Match:
    """Positions at which the tokens so far may have ended, moved on token by token: linear in words times tokens."""
    if not pattern:
        return Match.YES  # a prohibition of `rm` is one of `rm x`
    sure = {0}
    maybe = set[int]()
    for at, token in enumerate(pattern):
        if token == "*" and at == len(pattern) - 1:
            break
        sure, maybe = _after(token, words=words, sure=sure, maybe=maybe)
    if sure:
        return Match.YES
    return Match.MAYBE if maybe else Match.NO


def _after(token: str, *, words: tuple[Word, ...], sure: set[int], maybe: set[int]) -> tuple[set[int], set[int]]:
    found_sure, found_maybe = set[int](), set[int]()
    for start in sorted(sure | maybe):
        at = start
        while at < len(words):
            word = words[at]
            if not word.literal:
                found_maybe.update(range(at, len(words) + 1))  # it may be any number of words
                break
            if word.glob and _may_name(word.text, token=token):
                found_maybe.add(at + 1)
            if _compiled(token).fits(word.text.casefold()):
                (found_sure if start in sure else found_maybe).add(at + 1)
            elif _is_short_for(word.text.casefold(), option=token.casefold()):
                found_maybe.add(at + 1)
            if token.startswith("-"):
                at += 1
                continue  # options stand in any order
            # The value of an option may be passed over, too; any other word ends the search.
            if not word.text.startswith("-") and (at == start or not words[at - 1].text.startswith("-")):
                break
            at += 1
    return found_sure, found_maybe


def _is_short_for(text: str, *, option: str) -> bool:
    """Whether a program may take the text for the option: abbreviated (`--har`), or with others in one word (`-qD`)."""
    if text.startswith("--"):
        return len(text) > 2 and option.startswith(text.partition("=")[0])
    letters = option[1:]
    return text.startswith("-") and letters.isalnum() and option[0] == "-" and set(letters) <= set(text[1:])


def _may_name(glob: str, *, token: str) -> bool:
    """Whether bash may put a file's name in the place of the word that the token matches: `pu*` for `push`."""
    if re.search(r"[*?]", token):
        return True
    start, end = glob.find("["), glob.rfind("]")
    loose = f"{glob[:start]}*{glob[end + 1 :]}" if 0 <= start < end else glob
    return _compiled(loose).fits(token.casefold())


def _fits(token: str, *, word: Word) -> bool:
    if not word.literal:
        return token == "*"
    return word_glob(token).fits(word.text)


def _compiled(token: str) -> Glob:
    return word_glob(token.casefold())
