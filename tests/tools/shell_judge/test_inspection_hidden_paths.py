"""A word that the judge cannot read may be a path that a rule is about: it is asked about, whatever else is allowed."""

from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from tables import each
from turnwise.rules.permission_facts import SETTING
from turnwise.rules.permissions import PermissionKind, PermissionRule

NO_DATA = (*SHELL_ALLOWED, PermissionRule(verdict="deny", path="data/**", source="user"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("hidden").resolve())


@pytest.mark.promise("safe:judged")
@each(
    ("command", "expected"),
    [
        ("cat data/a.csv", "deny"),
        ("cat {data,x}/a.csv", "deny"),
        ("cat {x,data}/{a,b}.csv", "deny"),
        ("cat dat[a]/a.csv", "deny"),
        ("cat [d]ata/*", "deny"),
        ("cat <[d]ata/a.csv", "deny"),
        ("cp notes.txt {data,x}/new.csv", "deny"),
        ("for f in data/*.csv; do cat $f; done", "deny"),
        ("X=data; cat $X/a.csv", "deny"),
        ("cat $X", "ask"),
        ("cat $X/a.csv", "ask"),
        ("cat $(ls)", "ask"),
        ("ls | xargs cat", "ask"),
        ("cd $X; cat a.csv", "ask"),
        ("cat {a..z}/a.csv", "ask"),
        ("cat ~nobody/x", "ask"),
        ("echo $X", "allow"),
        ('echo "$X" {a..c}', "allow"),
        ("cat notes.txt", "allow"),
        ("cat src/*.py", "allow"),
        ("make test", "allow"),
    ],
)
def test_a_prohibition_of_a_path_holds_for_words_that_may_name_it(
    command: str, expected: PermissionKind, project: Path
) -> None:
    """Issue 13, line 11: the user denies `data/**` and allows the shell otherwise."""
    assert verdict_on(command, project=project, rules=NO_DATA) == expected
    unattended = verdict_on(command, project=project, rules=NO_DATA, attended=False)
    assert unattended == ("allow" if expected == "allow" else "deny")


@pytest.mark.parametrize("command", ["cat {a..z}", "cat .{env,$X}", "cat {a,{b,c}", "cat ~nobody/x", "cat {1..500}"])
def test_a_word_whose_choices_are_too_many_is_denied_where_nobody_is_asked(command: str, project: Path) -> None:
    """Issue 13, line 11: also where the shell is allowed, and what would be asked about is allowed."""
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED, attended=False) == "deny"


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize("command", ["git pu*", "git [p]ush", "git pus?", "git p* origin", "git -C . pu[a-z]h"])
def test_a_glob_that_may_come_to_what_is_denied_is_asked_about(command: str, project: Path) -> None:
    """Issue 13, line 12: bash puts a file's name in its place, and a file called `push` is quickly made."""
    rules = (*SHELL_ALLOWED, PermissionRule(verdict="deny", tool="bash", command=("git", "push", "*"), source="user"))
    assert verdict_on(command, project=project, rules=rules) == "ask"
    assert verdict_on("git add src/*.py", project=project, rules=rules) == "allow"


@pytest.mark.promise("safe:judged")
@each("carrier", ["{}", "command {}", "builtin {}", "\\{}", "'{}'"])
@each("builtin", sorted(SETTING))
def test_what_a_builtin_evaluates_is_held_to_prohibitions(builtin: str, carrier: str, project: Path) -> None:
    """A subscript that runs something (bash manual, Shell Arithmetic), however the builtin is called. Two lists of the builtins
    that set variables had differed: `command declare 'a[$(touch x)]=1'` ran a denied `touch`."""
    rules = (*SHELL_ALLOWED, PermissionRule(verdict="deny", tool="bash", command=("touch", "*"), source="user"))
    command = f"{carrier.format(builtin)} 'a[$(touch made)]=1'"
    assert verdict_on(command, project=project, rules=rules) == "deny"
