"""Shells that do not read a script as bash does, and what the grammar loses."""

from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from tables import each
from turnwise.rules.permissions import PermissionKind, PermissionRule

NO_RM = (*SHELL_ALLOWED, PermissionRule(verdict="deny", tool="bash", command=("rm", "*"), source="user"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("shells").resolve())


BASH_ONLY = [
    "[[ x || ./run.sh == b ]]",
    "[[ a > src/a.py ]]",
    "cat {notes.txt,run.sh}",
    "cat $'notes.txt'",
    'cat $"notes.txt"',
    "cat notes.tx[^a]",
    "cat <<<x",
    "ls &>/dev/null",
    "function ls { :; }; ls",
    "(( x ))",
    "ls |& cat",
    "uniq notes.txt 10>/dev/null",
    "cat 12</dev/null",
    "ls .?",
    "cat src/.*",
    "wc -l 10<notes.txt 123<notes.txt",
]


@pytest.mark.promise("safe:judged")
@each("script", BASH_ONLY)
@each(
    "shell",
    ["sh -c '{}'", "dash -c '{}'", "env sh -c '{}'", "sh <<'E'\n{}\nE\n", "sh -c \"eval '{}'\"", "/bin/sh -c '{}'"],
)
def test_what_a_plain_shell_reads_otherwise_is_asked_about(script: str, shell: str, project: Path) -> None:
    """Issue 13, line 1: dash takes `[[` for a program and `>` behind it for a file; the judge reads bash's grammar. Of two
    digits before `>` dash makes an argument: `uniq` writes to the file `10`."""
    if "'" in script and "'{}'" in shell:
        script = script.replace("'", "'\\''")
    if '"' in script and '"' in shell:
        script = script.replace('"', '\\"')
    command = shell.format(script)
    assert verdict_on(command, project=project) == "ask"
    assert verdict_on(command, project=project, rules=NO_RM) == "ask"


@each(
    "command",
    [
        "sh -c 'ls src && cat notes.txt 2>&1 | wc -l'",
        "sh -c '[ -f notes.txt ] && echo yes'",
        "sh -c '{ ls; }; (cat notes.txt)'",
        "sh -c 'ls notes.* src/*.p?'",
        "sh -c 'ls no_such 2>/dev/null 3</dev/null | head -n 10'",
        "dash -c 'for f in a b; do echo $f; done' >&2",
        "bash -c '[[ -f notes.txt ]]'",
        "bash -eu -o pipefail -c 'ls {src,.}'",
        "bash -lc ls",
    ],
)
def test_what_both_read_alike_is_not_asked_about_for_that(command: str, project: Path) -> None:
    """Everyday scripts stay as they were judged."""
    assert verdict_on(command, project=project, rules=NO_RM) == "allow"


@pytest.mark.promise("safe:judged")
@each(
    "command",
    [
        "bash -k -c 'ls PATH=src'",
        "bash -kc 'cat notes.txt LD_PRELOAD=./evil.so'",
        "bash -c -k 'ls PATH=src'",
        "bash -o keyword -c 'ls PATH=src'",
        "bash -eo keyword -c 'ls PATH=src'",
        "bash -k <<E\nls PATH=src\nE\n",
        "bash +B -c 'cat {notes.txt,run.sh}'",
        "bash +o braceexpand -c 'cat {notes.txt,run.sh}'",
        "bash -f -c 'cat *'",
        "bash -fc 'cat *'",
        "bash -H -c 'echo !!'",
        "bash -ic ls",
        "bash -m -c ls",
        "bash -mc ls",
        "bash -c -m ls",
        "bash -em <<E\nls\nE\n",
        "bash -O dotglob -c 'cat *'",
    ],
)
def test_an_option_that_changes_how_a_script_is_read_is_asked_about(command: str, project: Path) -> None:
    """Issue 13, line 1: with `-k` every word that looks like an assignment is one, wherever it stands."""
    assert verdict_on(command, project=project) == "ask"
    assert verdict_on(command, project=project, rules=NO_RM) == "ask"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat - <<'E'\nx\nE\n", "allow"),
        ("cat -<<'E'\nx\nE\n", "allow"),
        ("cat notes.txt - <<E | wc -l\nx\nE\n", "allow"),
        ("cat - <<'E'; cat .env\nx\nE\n", "ask"),
        ("cat .env - <<'E'\nx\nE\n", "ask"),
        ("echo ' - << ' && cat - <<'E'\nx\nE\n", "allow"),
        ("python3 - <<'E'\nprint(1)\nE\n", "ask"),
    ],
)
def test_a_dash_before_a_here_document_is_a_word(command: str, expected: PermissionKind, project: Path) -> None:
    """The grammar loses it, and all such commands were asked about, whatever was allowed."""
    assert verdict_on(command, project=project) == expected
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == ("ask" if ".env" in command else "allow")
