"""Which commands only read, word for word: everything else is asked about.

Mutants that no test noticed.
"""

import shlex

import pytest

from tables import each
from turnwise.rules.permission_commands import destroys
from turnwise.rules.permission_facts import CommandFact, PathFact, Word
from turnwise.rules.read_only_commands import is_reading


def command(line: str) -> CommandFact:
    """Each word but the name and options leads to a file of the workspace."""
    name, *rest = shlex.split(line)
    return CommandFact(words=(Word(name), *[_word(text) for text in rest]), text=line)


def _word(text: str) -> Word:
    if text.startswith("-"):
        return Word(text)
    return Word(text, paths=(PathFact(given=text, resolved=f"/w/{text}", lexical=f"/w/{text}", inside=True),))


@pytest.mark.promise("safe:judged")
@each(
    ("line", "reads"),
    [
        ("cd src", True),
        ("cd -", False),  # wherever it was before
        ("cd -P", False),
        ("cd", False),
        ("cd src sub", False),
        ("date", True),
        ("date -u", True),
        ("date --utc", True),
        ("date -R", True),
        ("date -I", True),
        ("date +%Y", True),
        ("date -s +1day", False),
        ("date 01010101", False),
        ("test -f a", True),
        ("test -v a", False),
        ("[ -f a ]", True),
        ("[ -f a", False),
        ("[", False),
        ("[ -v a ]", False),
        ("printf '%s' a", True),
        ("printf '%n' a", False),
        ("seq -w 1 9", True),
        ("seq -s , 1 9", True),
        ("head -5 -q a", True),
        ("head -z a", True),
        ("head -x a", False),
        ("file --brief a", True),
        ("file -b a", True),
        ("file -m a a", False),
        ("file --compile a", False),
        ("df -h", True),
        ("df --output=x", False),
        ("jq -r .a a", True),
        ("jq -f a b", False),
        ("jq 'env' a", False),
        ("git shortlog -ns", True),
        ("git shortlog --output=x", False),
        ("git branch", True),
        ("git branch -a", True),
        ("git branch new", False),
        ("git branch -D new", False),
        ("strings a", True),
        ("strings @a", False),
    ],
)
def test_a_command_reads_if_each_of_its_words_is_known_to(line: str, reads: bool) -> None:
    """Proves: what changes something, runs something else or leads nobody knows where is not among them."""
    assert is_reading(command(line)) is reads


@pytest.mark.promise("safe:judged")
@each(
    ("line", "expected"),
    [
        ("cargo yank --version 1.0.0 x", True),
        ("cargo YANK x", True),
        ("cargo test", False),
        ("truncate --size 0 a", True),
        ("truncate --siz=0 a", True),
        ("truncate -s0 a", True),
        ("npm unpublish x", True),
        ("npm publish", False),
        ("kubectl delete pod x", True),
        ("gh repo delete x", True),
        ("redis-cli flushall", True),
        ("kill -1 1", True),
        ("kill 1", False),
    ],
)
def test_what_cannot_be_brought_back_is_known_by_its_words(line: str, expected: bool) -> None:
    """Proves: also with other words between them, and whatever the case of a subcommand."""
    assert destroys(command(line)) is expected
