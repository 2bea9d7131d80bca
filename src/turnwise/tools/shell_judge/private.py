"""Words that begin with `$TMPDIR`: the value is known where turnwise itself sets it."""

import re

from turnwise.tools.sandbox.scratch import PrivateFolder
from turnwise.tools.shell_judge.word_spelling import Spelled, plain

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
