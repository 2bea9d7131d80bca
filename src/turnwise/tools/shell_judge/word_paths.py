"""Which paths the words of a script may name, in the folders where their command may run."""

import os
import re

import msgspec

from turnwise.rules.permission_facts import Access, PathFact, Word
from turnwise.tools.sandbox.scratch import PrivateFolder
from turnwise.tools.shell_judge import arguments
from turnwise.tools.shell_judge import script_limits as bounds
from turnwise.tools.shell_judge.folder_changes import Places
from turnwise.tools.shell_judge.paths import Paths
from turnwise.tools.shell_judge.searches import Search
from turnwise.tools.shell_judge.word_spelling import Spelled, plain
from turnwise.tools.shell_judge.wrappers import CommandWords

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
        if self._lookups > bounds.MAX_LOOKUPS:
            raise bounds.TooMuch("it names too many paths")
        return self._paths.fact(text, place=place, access=access, tilde=tilde)

    def word(self, word: Spelled, *, places: Places, operand: bool) -> Word:
        """The fact of a word of a command that runs in one of `places`. Not `operand`: it is the command's name."""
        if not word.literal:
            paths = (*arguments.suspects(word.text), *self._substituted(word.text, places=places)) if operand else ()
            return Word(word.text, literal=False, paths=paths, veiled=word.veiled)
        if word.is_glob:
            return self._glob(word, places=places) if operand else Word(word.text, literal=False)
        return Word(word.text, paths=self._candidates(word, places=places) if operand else ())

    def _substituted(self, text: str, *, places: Places) -> tuple[PathFact, ...]:
        """What the word may name where variables hold what the script has given them so far."""
        texts = arguments.possible_texts(text, values=self._values)
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
        kept += [value for value in dict.fromkeys(known) if value not in kept][: bounds.MAX_VALUES - len(kept)]

    def _candidates(self, word: Spelled, *, places: Places) -> tuple[PathFact, ...]:
        """Every part of the word that may be a path: all of it, what follows `=`, `:`, `@`, or the letter of an option."""
        if len(word.text) > bounds.MAX_SCRIPT_CHARS // 8:
            return ()
        tilde = word.has_tilde or ("~" in word.text and "u" in word.marks)
        facts: dict[PathFact, None] = {}
        for text in arguments.path_texts(word.text):
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
                if len(self._held) >= bounds.MAX_SEARCHES:
                    raise bounds.TooMuch("it searches too many folders")
                inside = self._paths.contains(place) and self._paths.is_folder(place)
                self._held[place, search] = self._paths.secret_below(place, search=search) if inside else ""
            if self._held[place, search]:
                return self._held[place, search]
        return ""
