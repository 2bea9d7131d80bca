"""Which paths the words of a script may name, in the folders where their command may run."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from urllib.parse import unquote

import msgspec

from turnwise.rules.permission_facts import SETTING, Access, Assignment, CommandFact, PathFact, Word
from turnwise.rules.read_only_commands import COUNTS, is_known, own_texts, searched_texts
from turnwise.tools.sandbox.environment import PrivateFolder
from turnwise.tools.shell_judge.paths import Paths, Search
from turnwise.tools.shell_judge.word_spelling import Spelled, plain
from turnwise.tools.shell_judge.wrappers import CommandWords

# Words that name no file: text of a command, and words for which nothing is there. They do not count as secret files.


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


# How much of a script is looked at. What is larger cannot be judged, and asks.


MAX_SCRIPT_CHARS = 64 * 1024  # nobody reads more of it before saying yes
MAX_COMMANDS = 300
MAX_LOOKUPS = 4000  # of paths, some 20 us each
MAX_SEARCHES = 8  # of folders, for files that a search would show
MAX_DEPTH = 48
MAX_SCRIPTS = 8  # one in another
MAX_GUESSES_NESTED = 4  # what may run, in what may run
MAX_PLACES = 4
MAX_VALUES = 50  # that a variable may have, and words that they make
MAX_SUPPOSED = 2000  # commands among the words of programs that are not known


class TooMuch(Exception):
    """A script goes past a bound; the text says which."""


# What the words of a command may name: paths, variables, folders that are searched.


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


# Where `cd` leads what comes after it.
#
# bash takes `..` off the path that it came by, a program off the path that is there: behind a link `cd ..` leads to where the
# link stands, `cat ../x` to where it leads (bash manual, `cd -L`).


Places = tuple[str, ...] | None
"""The folders in which a command may run; None: any."""


class Stand(msgspec.Struct, frozen=True):
    """`places`, and whether one of them may have been reached by a link. `arrived` are those where one stands if the move
    succeeds. `doubt` says why it is not known where one stands."""

    places: Places
    linked: bool = False
    doubt: str = ""
    arrived: Places = None


def joined(places: Collection[str] | None, others: Collection[str] | None) -> Places:
    """The folders of both; None where those are too many."""
    if places is None or others is None:
        return None
    found = tuple(sorted({*places, *others}))
    return found if len(found) <= MAX_PLACES else None


def moved(
    words: CommandWords,
    *,
    stand: Stand,
    surely: bool,
    look_up: Callable[[str, str, bool], PathFact],
    may_enter: Callable[[str], bool],
) -> Stand:
    """Where one stands after `cd` with these words. `surely`: it runs in any case. `look_up` takes a path, the folder that it is
    relative to, and whether its `~` counts; `may_enter` tells of a path whether `cd` to it succeeds."""
    nowhere = Stand(None, linked=stand.linked, doubt="where it leads is known only when it runs")
    operands = [word for word in words if not (word.literal and word.text in ("-L", "-P", "--"))]
    if stand.places is None or len(operands) != 1:
        return nowhere
    (target,) = operands
    if not target.literal or target.is_glob or target.text.startswith("-") or not target.text:
        return nowhere
    facts = [look_up(target.text, place, target.has_tilde) for place in stand.places]
    if not all(fact.resolved and "//" not in fact.resolved for fact in facts):
        return nowhere
    if ".." in target.text.split("/"):
        apart = any(look_up(fact.lexical, "/", False).resolved != fact.resolved for fact in facts)
        if apart or (stand.linked and not target.text.startswith("/")):
            return nowhere
    linked = stand.linked or any(fact.lexical != fact.resolved for fact in facts)
    arrived = joined((), [fact.resolved for fact in facts])
    # as it is spelled: `no_such/..` is no folder, though what it comes to is one
    sure = surely and all(may_enter(os.path.join(place, target.text)) for place in stand.places)  # noqa: PTH118
    return Stand(arrived if sure else joined(arrived, stand.places), linked=linked, arrived=arrived)


# Words that begin with `$TMPDIR`: the value is known where turnwise itself sets it.
_NAMED = re.compile(r'(")?\$(?:TMPDIR|\{TMPDIR\})((?:/[\w.+@%-]+)*/?)(?(1)")')
_PLAIN_PATH = re.compile(r"(?:/[\w.+@%-]+)+")  # the shell neither splits nor expands it


def filled_in(word: Spelled, *, private: PrivateFolder | None, within: tuple[str, ...]) -> Spelled:
    """The word with `$TMPDIR` at its beginning filled in; as it was, where another command could have changed the variable.

    A script that assigns the variable is asked about for that.
    """
    found = None if private is None or word.literal or within else _NAMED.fullmatch(word.text)
    if private is None or found is None or _PLAIN_PATH.fullmatch(private.names[0]) is None:
        return word
    return plain(private.names[0] + found[2])


class WordPaths:
    """Of one script: how much of the file system it makes the judge look at is bounded, and what its variables hold is kept."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._lookups = 0
        self._held: dict[tuple[str, Search], str] = {}
        self._values: dict[str, list[str]] = {}  # of variables, as far as the script spells them out

    def look_up(self, text: str, *, place: str, access: Access = "read", tilde: bool = False) -> PathFact:
        """The fact of a path relative to the folder `place`. Raises TooMuch."""
        self._lookups += 1
        if self._lookups > MAX_LOOKUPS:
            raise TooMuch("it names too many paths")
        return self._paths.fact(text, place=place, access=access, tilde=tilde)

    def word(self, word: Spelled, *, places: Places, operand: bool) -> Word:
        """The fact of a word of a command that runs in one of `places`. Not `operand`: it is the command's name."""
        if not word.literal:
            paths = (*suspects(word.text), *self._substituted(word.text, places=places)) if operand else ()
            return Word(word.text, literal=False, paths=paths, veiled=word.veiled)
        if word.is_glob:
            return self._glob(word, places=places) if operand else Word(word.text, literal=False)
        return Word(word.text, paths=self._candidates(word, places=places) if operand else ())

    def _substituted(self, text: str, *, places: Places) -> tuple[PathFact, ...]:
        """What the word may name where variables hold what the script has given them so far."""
        texts = possible_texts(text, values=self._values)
        facts = [self.look_up(one, place=place) for one in texts if one for place in places or ()]
        return tuple(dict.fromkeys(facts))

    def keep_values(self, name: str, *, values: CommandWords, places: Places) -> None:
        """Later words may hold these for the variable. It may have been given something unknown besides."""
        known = [value.text for value in values if value.literal and "\0" not in value.text]
        for value in values:
            if value.is_glob:
                for place in places or ():
                    known += self._paths.expand(value.segments(), place=place) or []
        kept = self._values.setdefault(name, [])
        kept += [value for value in dict.fromkeys(known) if value not in kept][: MAX_VALUES - len(kept)]

    def _candidates(self, word: Spelled, *, places: Places) -> tuple[PathFact, ...]:
        """Every part of the word that may be a path: all of it, what follows `=`, `:`, `@`, or the letter of an option."""
        if len(word.text) > MAX_SCRIPT_CHARS // 8:
            return ()
        tilde = word.has_tilde or ("~" in word.text and "u" in word.marks)
        facts: dict[PathFact, None] = {}
        for text in path_texts(word.text):
            if places is None and not text.startswith("/") and not (tilde and text.startswith("~")):
                facts[PathFact(given=text)] = None
                continue
            for place in places or (self._paths.workspace,):
                fact = self.look_up(text, place=place, tilde=tilde)
                if "\n" in fact.resolved and not os.path.lexists(fact.resolved):
                    continue  # a text of several lines that no file is named after
                if not self._paths.is_unreachable(fact) or (text == word.text and fact.inside):
                    facts[fact] = None
        return tuple(facts)

    def _glob(self, word: Spelled, *, places: Places) -> Word:
        facts: list[PathFact] = []
        names = self.matches(word, places=places)
        if names is None or word.text.startswith("-"):
            return Word(word.text, literal=False, veiled=True)
        for place, name in names:
            if name.startswith("-"):
                return Word(word.text, literal=False)  # a file's name that would be taken for an option
            facts.append(self.look_up(name, place=place))
        return Word(word.text, paths=tuple(dict.fromkeys(facts)), glob=True)

    def matches(self, word: Spelled, *, places: Places) -> list[tuple[str, str]] | None:
        """Folders and names in them that bash may put in the place of a glob, the glob itself where nothing matches; None where
        they cannot be known."""
        if places is None or word.has_tilde:
            return None
        found: list[tuple[str, str]] = []
        for place in places:
            absolute = word.text.startswith("/")
            names = self._paths.expand(word.segments(), place="/" if absolute else place)
            if names is None:
                return None
            if absolute:
                names = [f"/{name.lstrip('/')}" for name in names]
            # Brackets are taken for more than they may match.
            itself = [word.text] if word.has_brackets or not names else []
            found += [(place, name) for name in (*names, *itself)]
        return found

    def searched(self, word: Word, *, search: Search) -> Word:
        """The word with what a search of the folders that it names would show."""
        facts = [msgspec.structs.replace(fact, holds=self.held((fact.resolved,), search=search)) for fact in word.paths]
        return msgspec.structs.replace(word, paths=tuple(facts))

    def held(self, places: Places, *, search: Search) -> str:
        """What a search of the folders would show that is secret. Each is looked through once."""
        if places is None:
            return "an unknown folder"
        for place in places:
            if (place, search) not in self._held:
                if len(self._held) >= MAX_SEARCHES:
                    raise TooMuch("it searches too many folders")
                inside = self._paths.contains(place) and self._paths.is_folder(place)
                self._held[place, search] = self._paths.secret_below(place, search=search) if inside else ""
            if self._held[place, search]:
                return self._held[place, search]
        return ""
