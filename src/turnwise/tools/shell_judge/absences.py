"""Words that name no file: text of a command, and words for which nothing is there. They do not count as secret files."""

import os
import re
from collections.abc import Sequence

import msgspec

from turnwise.rules.known_programs import is_known
from turnwise.rules.permission_facts import CommandFact, PathFact, Word
from turnwise.rules.text_words import own_texts, searched_texts

MAX_CHECKED = 200  # words that name nothing, looked for in the folders that their command names


def mark_absences(commands: Sequence[CommandFact]) -> tuple[CommandFact, ...]:
    """The same commands; paths of words that name no file are marked.

    What another command of the script may make is not absent, and what the script hands on may name a file. So most of this
    holds only where all other commands read, and where every word is known.
    """
    literal = all(word.literal for command in commands for word in command.words)
    writing = [at for at, command in enumerate(commands) if not command.guessed and not _leaves_files(command)]
    budget = MAX_CHECKED
    found: list[CommandFact] = []
    for at, command in enumerate(commands):
        others_read = all(other == at for other in writing)
        if command.guessed or command.carries or not any(word.paths for word in command.words[1:]) or budget <= 0:
            found.append(command)
            continue
        budget -= len(command.words)
        found.append(_marked(command, literal=literal, others_read=others_read))
    return _with_carriers(found)


def _leaves_files(command: CommandFact) -> bool:
    """Whether it makes no file. What a search may show does not matter for that."""
    if not command.words and command.redirections:
        return True
    words = tuple(
        msgspec.structs.replace(
            word, paths=tuple([msgspec.structs.replace(path, holds="") if path.holds else path for path in word.paths])
        )
        for word in command.words
    )
    return is_known(msgspec.structs.replace(command, words=words, place_holds=""))


def _marked(command: CommandFact, *, literal: bool, others_read: bool) -> CommandFact:
    words = command.words
    own, searched = own_texts(words), searched_texts(words)
    reads = literal and others_read and bool(searched) and _leaves_files(command)
    folders = {path.resolved for word in words for path in word.paths if path.resolved and os.path.isdir(path.resolved)}  # noqa: PTH112
    marked: list[Word] = [words[0]]
    for at, word in enumerate(words[1:], start=1):
        missing = _is_missing(word, folders=folders)
        absent = (
            (at in own and (literal or missing))
            or (at in searched and (reads or (literal and missing and words[0].text in ("echo", "printf"))))
            or (
                missing
                and literal
                and others_read
                and not words[at - 1].text.startswith("-")
                and not re.search(r"[*?\[]", word.text)
            )
        )
        marked.append(_absent(word) if absent and word.paths else word)
    return msgspec.structs.replace(command, words=tuple(marked))


def _is_missing(word: Word, *, folders: set[str]) -> bool:
    """Whether it is a bare word, and nothing of that name is where the command may look."""
    if not word.paths or word.glob or not word.literal or not _is_bare(word.text):
        return False
    if any(path.given != word.text or not path.resolved for path in word.paths):
        return False
    places = {path.lexical for path in word.paths} | {f"{folder}/{word.text}" for folder in folders}
    return not any(os.path.lexists(place) for place in places)


def _is_bare(text: str) -> bool:
    return "/" not in text and text[:1] not in (".", "~", "-", "@")


def _absent(word: Word) -> Word:
    paths: list[PathFact] = [msgspec.structs.replace(path, absent=True) for path in word.paths]
    return msgspec.structs.replace(word, paths=tuple(paths))


def _with_carriers(commands: list[CommandFact]) -> tuple[CommandFact, ...]:
    """`timeout 5 grep secret f`: the words of the carrier are those of what it runs."""
    bare = [word for command in commands if not command.carries and not command.guessed for word in command.words[1:]]
    absent = {word.text for word in bare if any(path.absent for path in word.paths)}
    absent -= {word.text for word in bare if word.paths and not all(path.absent for path in word.paths)}
    if not absent:
        return tuple(commands)
    return tuple(
        msgspec.structs.replace(
            command, words=tuple([_absent(word) if word.text in absent else word for word in command.words])
        )
        if command.carries
        else command
        for command in commands
    )
