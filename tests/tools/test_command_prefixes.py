"""Commands that begin like one that a person allowed: which beginning is offered, what it covers,
and that a real bash runs what
was judged."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.base.programs import ProgramSearch
from turnwise.rules.command_prefixes import BEGINNINGS
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission, rules_in_scope
from turnwise.tools.shell_judge.call_facts import inspect_call
from waits import HANG_S

PROGRAMS = "mkdir touch git ruff pytest make npm python mytool rm sh env sudo find mv cp uv strace taskset".split()


class Desk:
    """A workspace, programs that only write down how they were called, and a judge."""

    def __init__(self, top: Path) -> None:
        self.work, self.programs, self.log = top / "work", top / "programs", top / "log"
        for folder in (self.work / "src", self.work / ".git/hooks", self.programs):
            folder.mkdir(parents=True)
        for name, text in (("HEAD", "ref: refs/heads/main\n"), ("config", "[core]\n\tbare = false\n")):
            (self.work / ".git" / name).write_text(text)
        for name in ("objects", "refs"):
            (self.work / ".git" / name).mkdir()
        for name in PROGRAMS:
            (self.programs / name).write_text(f'#!/bin/bash\nprintf "%s\\n" "{name}" "$@" "=" >>"{self.log}"\n')
            (self.programs / name).chmod(0o755)
        self.path = str(self.programs)
        self.search = ProgramSearch(self.path, workspace=str(self.work))
        self.policy = Policy(workspace=str(self.work), home=str(top / "home"), attended=True)

    def facts(self, line: str, *, confined: bool = False) -> CallFacts:
        return inspect_call(
            "1",
            tool="bash",
            effect="execute",
            arguments={"command": line},
            workspace=self.work,
            home=Path(self.policy.home),
            environment={"PATH": self.path},
            programs=self.search,
            is_confined=confined,
        )

    def rules(self, line: str, *, confined: bool = False) -> tuple[PermissionRule, ...]:
        return rules_in_scope(self.facts(line, confined=confined), policy=self.policy, scope="prefix")

    def prefix(self, line: str, *, confined: bool = False) -> tuple[str, ...]:
        rules = self.rules(line, confined=confined)
        return (rules[0].command or ()) if rules else ()

    def allows(self, line: str, *, rules: Sequence[PermissionRule], confined: bool = False) -> bool:
        policy = msgspec.structs.replace(self.policy, rules=(*self.policy.rules, *rules))
        return judge_permission(self.facts(line, confined=confined), policy=policy).kind == "allow"

    def ran(self, line: str) -> list[list[str]]:
        """The programs that a real bash runs, each with its arguments."""
        self.log.write_bytes(b"")
        subprocess.run(
            ["/bin/bash", "--norc", "--noprofile", "-c", line],
            cwd=self.work,
            env={"PATH": self.path, "HOME": str(self.work)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=HANG_S,
            check=False,
        )
        calls = self.log.read_bytes().decode(errors="replace").split("\n=\n")
        return [call.split("\n") for call in calls if call]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    return Desk(tmp_path_factory.mktemp("desk").resolve())


@pytest.mark.parametrize(
    ("line", "alone", "confined"),
    [
        ("mkdir -p src/new", ("mkdir", "*"), ("mkdir", "*")),
        ("git add src", ("git", "add", "*"), ("git", "add", "*")),
        ("pytest -q", (), ("pytest", "*")),
        ("python -m pytest tests", (), ("python", "-m", "pytest", "*")),
        ("make test", (), ("make", "*")),
        ("npm test", (), ("npm", "test", "*")),
        ("git commit -m 'one two'", (), ("git", "commit", "*")),
        ("mytool build", (), ("mytool", "build", "*")),
        ("python script.py", (), ("python", "script.py", "*")),
        ("uv run pytest -q", (), ("uv", "run", "pytest", "*")),
        ("uv run mytool build", (), ("uv", "run", "mytool", "build", "*")),
        ("uv run src/a.py", (), ("uv", "run", "src/a.py", "*")),
        *[
            (line, (), ())
            for line in (
                "rm src/a", "mv src/a src/b", "cp src/a src/b", "kill 5", "taskset 3 rm", "strace rm x", "uv run rm",
                "uv run mytool", "npm exec rm x", "uv run sh x.sh",
                "python -c 'print(1)'", "sh build.sh", "env A=1 make", "xargs rm", "ssh host ls", "git push", "git co main",
                "git -c alias.add=!x add src", "find . -exec rm {} +", "sudo make", "A=1 pytest", "pytest > out.txt",
                "pytest | tail", "pytest; true", "pytest &", "pytest $X", "pytest $(x)", "pytest --cov-config=x",
                "pytest @more",
                "mkdir -m 777 x", "mkdir ../x", "mkdir .git/hooks/x", "touch .env", "rm -r src", "make 'CC=x y'",
                "pytest -p no:x",
                "pytest <<E\nx\nE", "(pytest)", "! pytest", "pytest\nrm x", "pytest # x", "cd src && pytest", "mytool",
            )
        ],
    ],
)  # fmt: skip
def test_a_beginning_is_offered_where_its_words_say_what_runs(
    desk: Desk, line: str, alone: tuple[str, ...], confined: tuple[str, ...]
) -> None:
    """Proves (issue 46): code of the folder needs a sandbox; what the judge does not know has no beginning at all."""
    assert (desk.prefix(line), desk.prefix(line, confined=True)) == (alone, confined)


@pytest.mark.parametrize(
    ("line", "covered"),
    [
        ("pytest -x tests/test_a.py", True),
        ("pytest -k 'one and two' --maxfail=1", True),
        ("'pytest' \"-q\"", True),
        *[
            (line, False)
            for line in (
                "pytest -p evil", "pytest -qp evil", "pytest --rootdir=/x", "pytest --root=/x", "pytest -- -p evil",
                "pytest -c x",
                "pytest ../other", "pytest /etc/x", "pytest .env", "pytest -kx -", "pytest -o a=b", "CI=1 pytest", "pytest&",
                "pytest;", "pytest 2>&1", "pytest >x", "pytest -q\nrm x", "pytest $IFS-p", "pytest${IFS}x", "pyte\u0455t",
                "py.test",
                "./pytest", "pytest *", "pytest {a,b}", "pytest ~", "pytest -k", "pytest \u202e", "pytest --maxfail",
                "exec pytest",
                "pytest -n -p", "pytest `x`", "pytest $'\\x2dp'x*", "pytest <x", "coproc pytest", "function pytest { rm x; }",
                "pytest --pdb", "pytest --pdbcls=a:b",
            )
        ],
    ],
)  # fmt: skip
def test_what_a_beginning_covers(desk: Desk, line: str, covered: bool) -> None:
    """Proves (issue 46): plain words and listed options; anything else is asked about. Without the sandbox nothing of it holds,
    nor where somebody has a rule against it."""
    rules = desk.rules("pytest -q", confined=True)
    assert desk.allows(line, rules=rules, confined=True) is covered
    assert not desk.allows(line, rules=rules)
    asks = PermissionRule(verdict="ask", tool="bash", command=("pytest", "*"), source="user")
    assert not desk.allows(line, rules=(asks, *rules), confined=True)


HEADS = ["mkdir", "touch", "git add", "git branch", "ruff check"]
BEFORE = [
    "",
    "",
    "",
    "",
    "A=1 ",
    "PATH=. ",
    "env ",
    "sudo ",
    "time ",
    "! ",
    "exec ",
    "(",
    "\\",
    "'",
    "git -c alias.add=!touch ",
]
PIECES = [
    "src/new", "src", "new", "-p", "-v", "-A", "--parents", "--all", "'a b'", '"x y"', "-pv", "--", "-", "-m", "--mode=777",
    "--pare",
    "-f", "$IFS", "${IFS}x", "$(touch made)", "`touch made`", ";touch made", "& touch made", "&& touch made", "| sh",
    ">made", "2>made",
    "<x", "<<E\nx\nE", "\ntouch made", "# c", "{a,b}", "*", "?", "~", "\\\n", "$'\\x3b'", "a\\;touch", "@list", "a=b",
    "\u0441", "\u202e", "<(touch made)", "&>made", ">|made", "|&touch made", "a[$(touch made)]=1", "--output=made", "\r",
    "'\n'", "\"$(touch made)\"", "'$(touch made)'", "\\$x", "''", "!x", "[x]", "-D", "--fix",
]  # fmt: skip


@settings(max_examples=150, deadline=None, database=None)
@given(
    head=st.sampled_from(HEADS),
    typed=st.sampled_from(HEADS),
    before=st.sampled_from(BEFORE),
    pieces=st.lists(st.sampled_from(PIECES), max_size=4),
    joint=st.sampled_from([" ", " ", " ", "  ", "\t", ""]),
)
def test_a_real_bash_runs_what_was_judged(
    desk: Desk, head: str, typed: str, before: str, pieces: list[str], joint: str
) -> None:
    """Proves (issue 46): of a line that a beginning covers, bash runs one program, with the words of the beginning first, and
    with no option that is not listed."""
    line = before + joint.join([typed, *pieces])
    if desk.allows(line, rules=()) or not desk.allows(line, rules=desk.rules(f"{head} src")):
        return
    words = typed.split()
    listed = BEGINNINGS[typed]
    ran = desk.ran(line)
    assert [call[: len(words)] for call in ran] == [words], line
    options = [word for word in ran[0][len(words) :] if word.startswith("-")]
    letters, names = set(listed.flags + listed.valued), listed.long | listed.long_valued
    assert all(one.partition("=")[0] in names if one[:2] == "--" else set(one[1:]) <= letters for one in options), line
    assert not os.path.exists(desk.work / "made"), line  # noqa: PTH110
