"""Options of git are read as git reads them: an abbreviation destroys what the whole option destroys."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tables import each
from turnwise.rules.git_commands import git_destroys, read_git
from turnwise.rules.permission_facts import CallFacts, CommandFact, ShellFacts, Word
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from waits import HANG_S

GIT = shutil.which("git")
DESTRUCTIVE = [
    ("reset", "--hard"),
    ("reset", "--merge"),
    ("push", "--force"),
    ("push", "--force-with-lease"),
    ("push", "--mirror"),
    ("push", "--delete"),
    ("push", "--prune"),
    ("checkout", "--force"),
    ("switch", "--discard-changes"),
    ("switch", "--force"),
    ("branch", "--delete"),
    ("branch", "--force"),
    ("tag", "--delete"),
    ("fetch", "--prune"),
    ("worktree", "--force"),
]


def words(*texts: str) -> list[Word]:
    return [Word(text) for text in texts]


@each(("subcommand", "option"), DESTRUCTIVE)
def test_every_beginning_of_an_option_that_destroys_is_taken_for_it(subcommand: str, option: str) -> None:
    """gitcli(7): long options may be abbreviated; the next version may make a shorter beginning unique."""
    for length in range(3, len(option) + 1):
        assert git_destroys(words(subcommand, option[:length], "x")), option[:length]


@pytest.mark.skipif(GIT is None, reason="needs git")
@pytest.mark.parametrize(("subcommand", "option"), [pair for pair in DESTRUCTIVE if pair[0] in ("reset", "branch")])
def test_git_takes_some_beginnings_for_the_option(subcommand: str, option: str, tmp_path: Path) -> None:
    """The judge of the judge: what git accepts as an abbreviation is what the test above is about."""
    assert GIT is not None

    def git(*arguments: str) -> str:
        ran = subprocess.run(
            [GIT, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False
        )
        return ran.stderr

    git("init", "-q")
    assert "unknown option" in git(subcommand, "--no-such-option")
    assert "unknown option" not in git(subcommand, option[:-1])


@pytest.mark.promise("safe:judged")
@each(
    "line",
    [
        "send-pack --force origin main",
        "send-pack --mirror origin",
        "fetch-pack --prune",
        "submodule deinit x",
        "submodule update --force",
        "notes remove HEAD",
        "notes prune",
        "notes add --force -m x",
        "notes add -f -m x",
        "refs delete x",
        "worktree remove x",
        "sparse-checkout set src",
        "symbolic-ref --delete HEAD",
        "maintenance run",
        "switch -fC x",
    ],
)
def test_less_usual_subcommands_destroy_as_well(line: str) -> None:
    """Proves: what they destroy is not in any commit, or is in no commit any more."""
    assert git_destroys(words(*line.split()))


@pytest.mark.parametrize(
    ("line", "subcommand", "at"),
    [
        ("log", "log", 0),
        ("-C x log", "log", 2),
        ("--git-dir=x --work-tree y log", "log", 3),
        ("-c a.b=log -P status", "status", 3),
        ("--config-env a.b=C status", "status", 2),
        ("--version", "", 0),
        ("--no-such log", "", 0),
    ],
)
def test_the_subcommand_is_found_behind_gits_own_options(line: str, subcommand: str, at: int) -> None:
    """git(1): these options are not abbreviated, and their values are words of their own."""
    found = read_git(line.split())
    assert (found.subcommand, found.at) == (subcommand, at)


@each(
    ("line", "pattern", "expected"),
    [
        ("git reset --har", "git reset --hard *", "ask"),
        ("git reset -q --har", "git reset --hard *", "ask"),
        ("npm install --glob", "npm install --global *", "ask"),
        ("npm install x --global", "npm install --global *", "deny"),
        ("tool -qf x", "tool -f *", "ask"),
        ("tool -xfz", "tool -fx *", "ask"),
        ("tool x -f", "tool -f *", "deny"),
        ("tool -q x", "tool -f *", "allow"),
        ("tool --force", "tool -f *", "allow"),
    ],
)
def test_a_prohibition_of_an_option_holds_for_its_short_forms(line: str, pattern: str, expected: str) -> None:
    """Issue 13, line 12: also behind other words, as programs take options in any order."""
    rules = (
        PermissionRule(verdict="allow", effect="execute"),
        PermissionRule(verdict="deny", tool="bash", command=tuple(pattern.split()), source="user"),
    )
    command = CommandFact(words=tuple(words(*line.split())), text=line)
    facts = CallFacts(call_id="1", tool="bash", effect="execute", shell=ShellFacts(commands=(command,)))
    policy = Policy(rules=rules, workspace="/w", home="/h", attended=True)
    found = judge_permission(facts, policy=policy).kind
    assert found == ("ask" if git_destroys(command.words[1:]) and line.startswith("git") else expected)


@each(
    ("line", "expected"),
    [
        ("reflog", False),
        ("reflog show -5", False),
        ("reflog expire --all", True),
        ("reflog delete x", True),
        ("restore --staged x", False),
        ("restore --staged --worktree x", True),
        ("restore x", True),
        ("clean -n", False),
        ("clean -nd", False),
        ("clean --dry-run", False),
        ("clean --dry-run --quiet -d", False),
        ("clean --quiet", True),
        ("clean -fd", True),
        ("clean -e -n -f", True),
        ("clean -en -f", True),
        ("clean -n --no-dry-run -f", True),
        ("clean -f -- -n", True),
    ],
)
def test_what_only_shows_or_unstages_destroys_nothing(line: str, expected: bool) -> None:
    """Issue 13, line 25 of its tester: a dry run is one only where no other option takes it back or for its value."""
    assert git_destroys(words(*line.split())) is expected
