"""Patterns of rules, read once: in their plain form, or refused. A pattern that can never match protects nothing."""

import re
from collections.abc import Iterator, Sequence

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.permissions import PermissionRule
from turnwise.rules.shell_words import RESERVED

MAX_PATH_CHARACTERS = 4096  # PATH_MAX of Linux
MAX_COMMAND_CHARACTERS = 4096  # nobody reads more of a rule

# What a backslash may stand before: characters that mean something without it. Anywhere else it is a path of Windows, or a
# regular expression, and would silently vanish.
_ESCAPABLE_IN_PATHS = "\\*?[]{}~!$ "
_ESCAPABLE_IN_WORDS = "\\*?"
_PIECE = re.compile(r"\\(.?)|(.)", re.DOTALL)
_BEGIN_OTHERWISE = ("!", "$", "~", " ")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(?:\[.*\])?\+?=.*", re.DOTALL)
_OPERATORS = frozenset("| || |& & && &> &>> > >> >| < << <<< <> 2> 2>> 2>&1 >&2 1>&2".split())
_NO_NAMES = RESERVED | {"(", ")"}
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_UNREADABLE_IN_TEXT = re.compile(r"""['"\\|&;<>$`]""")


def plain_path(pattern: str, *, where: str, widely: bool) -> str:
    """The pattern without `//`, `.` and what else only changes how it is written. `widely`: it is a prohibition, and that of a
    folder is one of all that is below. Raises CallerError for one that no path could match; `where` names file and key."""
    _refuse_path(pattern, where=where)
    body, root = pattern, ""
    if body.startswith("/"):
        root = "/"
    elif body == "~" or body.startswith("~/"):
        body, root = body[1:], "~/"
    segments = ["**" if re.fullmatch(r"\*{2,}", one) else one for one in body.split("/") if one not in ("", ".")]
    if ".." in segments:
        raise CallerError(f"{where}: `path` holds `..`, and paths are resolved before they are judged: write it out")
    is_folder = pattern.endswith("/") or (not root and not segments)
    if (is_folder or widely) and segments[-1:] != ["**"] and (segments or root != "/" or widely):
        anywhere = not root and len(segments) == 1 and "/" not in pattern
        segments = [*(["**"] if anywhere else []), *segments, "**"]
    segments = [one for at, one in enumerate(segments) if one != "**" or segments[at - 1 : at] != ["**"]]
    is_own = len(segments) == 1 and ("/" in pattern or segments == ["**"] or pattern == ".")
    if not root and (is_own or segments[0].startswith(_BEGIN_OTHERWISE)):
        root = "./"  # without it, a name is one anywhere in the workspace, and these would be read in another way
    text = root + "/".join(segments)
    return text.removesuffix("/") if text == "~/" else text


def plain_command(given: str | Sequence[str], *, where: str) -> tuple[str, ...]:
    """The pattern's words. A text is split at its spaces, so what needs quotes is given as a list. Raises CallerError."""
    if sum(map(len, given)) > MAX_COMMAND_CHARACTERS:
        raise CallerError(f"{where}: `command` has more than {MAX_COMMAND_CHARACTERS} characters: make it shorter")
    if isinstance(given, str):
        if _UNREADABLE_IN_TEXT.search(given):
            raise CallerError(
                f"{where}: `command` has quotes, backslashes or operators; a rule is about one command: "
                "write its words as a list, and one rule for each command"
            )
        if _BRACES.search(given):
            raise CallerError(f"{where}: `command` has braces, which a shell expands: write a rule for each word")
        if any(word.startswith("#") for word in given.split()):
            raise CallerError(f"{where}: `command` has a comment, which a shell leaves out: take it out")
    words = tuple(given.split()) if isinstance(given, str) else tuple(given)
    if not words or not all(words):
        raise CallerError(f"{where}: `command` is neither a text nor a list of words: write `command = 'git push *'`")
    _refuse_words(words, where=where)
    return tuple(["*" if re.fullmatch(r"\*+", word) else word for word in words])


def plain_rule(rule: PermissionRule, *, where: str) -> PermissionRule:
    """The rule with its patterns in their plain form. Raises CallerError."""
    path, command = rule.path, rule.command
    if path is not None and command is not None:
        raise CallerError(f"{where} has `path` and `command`: make two rules of it")
    if command is not None and rule.effect not in (None, "execute"):
        raise CallerError(
            f"{where}: a command has the effect `execute`, and this rule is for `{rule.effect}`: leave `effect` out"
        )
    if path is not None:
        path = plain_path(path, where=where, widely=rule.verdict != "allow")
    if command is not None:
        command = plain_command(command, where=where)
    return rule if (path, command) == (rule.path, rule.command) else _with(rule, path=path, command=command)


def _with(rule: PermissionRule, *, path: str | None, command: tuple[str, ...] | None) -> PermissionRule:
    return msgspec.structs.replace(rule, path=path, command=command)


def _refuse_path(pattern: str, *, where: str) -> None:
    if not pattern.strip():
        raise CallerError(f"{where}: `path` is empty: write `**` for all of the workspace")
    if len(pattern) > MAX_PATH_CHARACTERS:
        raise CallerError(f"{where}: `path` has more than {MAX_PATH_CHARACTERS} characters, and no path has")
    _refuse_characters(pattern, key="path", escapable=_ESCAPABLE_IN_PATHS, where=where)
    plain = re.sub(r"\\.", "x", pattern)
    if re.search(r"[\[\]{}]", plain):
        raise CallerError(
            f"{where}: `path` knows `*`, `**` and `?` only; make a rule for each name, or put a backslash before it"
        )
    if plain != plain.strip():
        raise CallerError(f"{where}: `path` begins or ends with a space: take it out, or put a backslash before it")
    if plain.startswith("~") and plain != "~" and not plain.startswith("~/"):
        raise CallerError(f"{where}: `path` begins with another user's folder: write it out")
    if plain.startswith("!"):
        raise CallerError(
            f"{where}: `path` begins with `!`, and no pattern is turned round: make a rule of its own for it"
        )
    if re.match(r"\$\w", plain):
        raise CallerError(
            f"{where}: `path` begins with a variable, and none is expanded: write it out, or `~/` for home"
        )


def _refuse_words(words: Sequence[str], *, where: str) -> None:
    for word in words:
        _refuse_characters(word, key="command", escapable=_ESCAPABLE_IN_WORDS, where=where, lines=True)
        if word in _OPERATORS:
            raise CallerError(
                f"{where}: `command` has the operator `{word}`; a rule is about one command: write one for each"
            )
    first = words[0]
    if _ASSIGNMENT.fullmatch(first):
        raise CallerError(
            f"{where}: `command` begins with the assignment `{first}`; a rule is about the command behind it: leave it out"
        )
    if first in _NO_NAMES:
        raise CallerError(
            f"{where}: `command` begins with `{first}`, a word of the shell's grammar: name the command itself"
        )
    if re.search(r"\s", first):
        raise CallerError(f"{where}: `command` has spaces in its first word: give each word by itself")


def _refuse_characters(text: str, *, key: str, escapable: str, where: str, lines: bool = False) -> None:
    for escape, escaped, char in _pieces(text):
        if escape and (not escaped or escaped not in escapable):
            shown = f"before `{escaped}`" if escaped else "at its end"
            raise CallerError(
                f"{where}: `{key}` has a backslash {shown}: it takes the next character as it is, so write two for one, and "
                "`/` between folders"
            )
        if not escape and not (lines and char in "\n\t") and not (char.isprintable() or char > "\x9f"):
            raise CallerError(f"{where}: `{key}` has the control character U+{ord(char):04X}: take it out")
        if not escape and "\ud800" <= char <= "\udfff":
            raise CallerError(f"{where}: `{key}` holds something that is no character: write it in UTF-8")


def _pieces(text: str) -> Iterator[tuple[bool, str, str]]:
    """Whether it is an escape, the character that is escaped, the plain character."""
    for found in _PIECE.finditer(text):
        yield found[0][0] == "\\", found[1] or "", found[2] or ""
