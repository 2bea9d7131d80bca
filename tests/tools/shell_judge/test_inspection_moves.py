"""Where `cd` leads, compared with bash, which takes `..` off the path that it came by."""

import itertools
import subprocess
from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from turnwise.rules.permissions import PermissionKind
from turnwise.tools.shell_judge.paths import Paths
from turnwise.tools.shell_judge.shell import inspect_script
from waits import HANG_S

TARGETS = [
    "..", ".", "low", "low/..", "low/../..", "low/in", "up", "up/..", "up/low", "there", "there/..", "there/in/..", "flat/deep",
    "flat/deep/..", "./flat/../up", "-P low/..", "-P up", "../flat", "flat//deep/./..", "nothing", "nothing/..", "notes.txt/..",
    "no/../flat", "low/no/../in", "flat/no/../..",
]  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Links that lead deeper, higher and beside where they stand."""
    project = make_project(tmp_path.resolve())
    for name in ("flat/deep/in", "one/two"):
        (project / name).mkdir(parents=True)
    (project / "low").symlink_to("flat/deep")
    (project / "one" / "two" / "up").symlink_to("../..")
    (project / "one" / "there").symlink_to("../flat/deep")
    (project / "up").symlink_to("one/two/up")
    (project / "there").symlink_to("one/there")
    (project / "key.pem").touch()
    (project / "shut").mkdir(mode=0)
    (project / "one" / "key").symlink_to("../.env")
    (project / "looks_fine").symlink_to(".env")
    return project


@pytest.mark.costly
@pytest.mark.promise("safe:judged")
def test_bash_stands_where_the_judge_says_after_any_two_moves(project: Path) -> None:
    """Issue 13, "Done when" 2: behind a link `cd ..` leads to where the link stands, and `cat key` there showed a secret."""
    moves = itertools.product((";", " &&"), TARGETS, TARGETS)
    lines = [f"cd {first}{join} cd {second}{join}" for join, first, second in moves]
    script = "\n".join(f"({line} pwd -P) 2>/dev/null || echo nowhere" for line in lines)
    ran = subprocess.run(
        ["bash"], input=script, cwd=project, env={}, capture_output=True, text=True, timeout=HANG_S, check=False
    )
    stood = ran.stdout.splitlines()
    assert len(stood) == len(lines)
    known = 0
    for line, place in zip(lines, stood, strict=True):
        last = inspect_script(f"{line} ls", paths=Paths(project, home="/home/u")).commands[-1]
        places = last.places or (str(project),)
        assert place in (*places, "nowhere") or places == ("",), line
        known += places != ("",)
    assert known > len(lines) // 3  # a judge that knows of no place would be right, too


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd one/there/.. && cat key", "ask"),
        ("cd one/there; cd ..; cat key", "ask"),
        ("cd low/../..; ls", "ask"),
        ("cd low; cd ../..; ls", "ask"),
        ("bash -c 'cd low; cd ../..; ls'", "ask"),
        ("(cd one/there; cd ..; cat key)", "ask"),
        ("cd flat/deep; cd ../..; cat notes.txt", "allow"),
        ("cd no_such/../flat; cat key.pem", "ask"),
        ("cd notes.txt/../flat; cat key.pem", "ask"),
        ("cd shut; cat key.pem", "ask"),
        ("cd flat <no_such; cat key.pem", "ask"),
        ("cd flat 3<no_such; cat key.pem", "ask"),
        ("cd flat <&9; cat key.pem", "ask"),
        ("{ cd flat; } <no_such; cat key.pem", "ask"),
        ("(cd flat <no_such; cat key.pem)", "ask"),
        ("eval 'cd flat' <no_such; cat key.pem", "ask"),
        ("if true; then cd flat; fi <no_such; cat key.pem", "ask"),
        ("time cd one; cat key", "ask"),
        ("time -p command cd one; cat key", "ask"),
        ("\\time cd flat; cat key.pem", "ask"),
        ("sh -c 'builtin cd src; ls'", "ask"),
        ("bash -r -c 'cd src; ls'", "ask"),
        ("ls | time command cd src", "ask"),
        ("ls | time cd src", "ask"),
        ("trap ls DEBUG; ls", "ask"),
        ("ls | time -p cat notes.txt", "allow"),
        ("trap ls EXIT; ls", "allow"),
        ("bash -rc 'cd src; ls'", "ask"),
        ("cd src >/dev/null; cat a.py", "allow"),
        ("time ls; cat notes.txt", "allow"),
        ("cd low; ls", "allow"),
        ("cd low; cat ../../notes.txt", "allow"),
        ("cd src; cd ..; ls", "allow"),
        ("cd flat/deep/..; ls", "allow"),
        ("(cd flat & cat looks_fine)", "ask"),
        ("(cd flat & ls)", "allow"),
        ("cd flat && cat looks_fine", "allow"),
        ("cd flat && cd deep && cat ../looks_fine", "allow"),
        ("cd flat && ls; cat looks_fine", "allow"),
        ("cd flat && # there\ncat looks_fine", "allow"),
        ("cd flat || cat looks_fine", "ask"),
        ("ls || cd flat && cat looks_fine", "ask"),
        ("! cd flat && cat looks_fine", "ask"),
        ("cd flat <no_such && cat looks_fine", "ask"),
        ("cd flat & cat looks_fine", "ask"),
        ("cd flat && ls & cat looks_fine", "ask"),
        ("cd shut && ls; cat looks_fine", "ask"),
        ("ls && cd flat; cat looks_fine", "ask"),
    ],
)
def test_a_move_back_over_a_link_is_asked_about(command: str, expected: PermissionKind, project: Path) -> None:
    """It is known only when it runs where the next command looks; moves without links stay as they were judged."""
    assert verdict_on(command, project=project) == expected


def test_moves_are_not_asked_about_where_commands_are_allowed(project: Path) -> None:
    """What they read behind it is."""
    for command in ("cd low/..; make", "cd -", "pushd src; make; popd", "cd $X && make"):
        assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "allow"
    assert verdict_on("cd one/there/..; cat $X/.env", project=project, rules=SHELL_ALLOWED) == "ask"


@pytest.mark.promise("safe:judged")
def test_a_workspace_that_is_named_by_a_link_may_be_left_by_two_ways(project: Path, tmp_path: Path) -> None:
    """bash started in the link takes `..` off the link's path: what is called like the workspace there is another folder."""
    (tmp_path / "link").symlink_to(project)
    (last,) = inspect_script("cd ..", paths=Paths(project, home="/home/u")).commands
    assert last.doubt == ""
    (last,) = inspect_script("cd ..", paths=Paths(tmp_path / "link", home="/home/u")).commands
    assert "known only when it runs" in last.doubt
    (last,) = inspect_script("cd ..", paths=Paths(project, home="/home/u"), environment=["PWD"]).commands
    assert "known only when it runs" in last.doubt
