"""git commands that are judged harmless show no secret: real git runs them over small trees (promise safe:judged).

`git diff a b` compares any two folders where git takes no repository, or where one of them lies outside of it. Which of the
two it does depends on the folder, its owner, settings and links, so git itself is the judge here.
"""

import os
import random
import subprocess
from pathlib import Path

import pytest

from judged_shell import Room, doings, is_harmless, missing_tools
from thoroughness import rounds
from waits import HANG_S

CANARY = "canary-of-a-secret"
DRAWN = len(rounds(900, check=300))
WATCHED = 60
ME = "-c user.name=a -c user.email=a@b"
# Each makes one tree below the workspace, with secrets that git does not track in `x` and `y`, and a file for each name of `f`.
SECRETS = f"mkdir -p x y sub && echo {CANARY} >x/.env && echo {CANARY} >y/.env && echo {CANARY} >x/key.pem"
COMMITTED = (
    f"git init -q -b main . && echo f >f && echo main >main && git add f main && git {ME} commit -qm m && {SECRETS}"
)
TREES = {
    "plain": f"{SECRETS} && echo 1 >f && mkdir -p deep/x && echo {CANARY} >deep/x/.env",
    "r": f"{COMMITTED} && echo 2 >>f && echo HEAD >HEAD",
    "version": f"{COMMITTED} && git config core.repositoryformatversion 99",
    "extended": f"{COMMITTED} && git config extensions.objectformat sha1",
    "bare": f"{COMMITTED} && git config core.bare true",
    "packed": f"{COMMITTED} && ln -s ../x/.env .git/packed-refs",
    "shallow": f"{COMMITTED} && ln -s ../x/.env .git/shallow",
    "grafts": f"{COMMITTED} && mkdir -p .git/info && ln -s ../../x/.env .git/info/grafts",
    "borrowed": f"{COMMITTED} && ln -s ../../../x/.env .git/objects/info/alternates",
    "rebased": f"{COMMITTED} && mkdir .git/rebase-merge && ln -s ../../x/.env .git/rebase-merge/head-name",
    "tracked": f"git init -q . && echo 1 >.env && git add .env && git {ME} commit -qm m && echo {CANARY} >>.env && {SECRETS}",
    "staged": f"git init -q . && echo 1 >.env && git add .env && git {ME} commit -qm m",
    "nested": f"{COMMITTED} && cd sub && {COMMITTED}",
    "mirror": f"git init -q --bare . && {SECRETS}",
    "worktree": f"git -C ../r worktree add -q --detach ../worktree && {SECRETS}",
    "owned": f"{COMMITTED} && ([ $(id -u) != 0 ] || chown -R 1234 .git)",
}
WORKSPACES = ("work", "work/r", "work/plain", "work/tracked", "repository/inner")
FOLDERS = [*TREES, "r/x", "r/sub", "plain/deep", "linked", "nosuch", ".", "..", "x", "sub", "inner"]
BEFORE = [
    "{}", "{}", "cd {d} && {}", "cd {d} && {}", "cd {d} && {}", "cd {d}; {}", "cd {d}; {}", "(cd {d}; {})",
    "(cd {d} && {})", "bash -c 'cd {d} && {}'", "cd {d} && cd {e} && {}", "cd {d}; cd {e}; {}", "cd {d} || true; {}",
    "cd {d} & {}", "(cd {d} & {})", "ls && cd {d} && {}", "ls {d} || cd {e} && {}", "cd {d} && ls; {}",
    "if cd {d}; then {}; fi", "git -C {d} status; {}", "cd {d} && git status; {}", "cd {d} && cd .. && {}",
    "cd {d} | {}", "(cd {d}) && {}", "! cd {d} && {}", "cd {d} <nosuch && {}",
]  # fmt: skip
COMMANDS = [
    "git diff", "git diff", "git diff", "git diff --stat", "git diff --", "git diff -w -U1", "git diff HEAD",
    "git diff --cached", "git diff -S one", "git diff -S x", "git diff --abbrev", "git diff -U 1",
    "git --no-pager diff", "git diff -p HEAD --", "git log", "git log -p", "git log --oneline --", "git status",
    "git status -s", "git status -v", "git status -vv", "git status --verbose --verbose", "git show",
    "git show HEAD --", "git blame", "git ls-files", "git ls-files -o", "git shortlog -s HEAD", "git branch -a",
    "git describe --always --dirty", "git rev-list --count HEAD", "git diff -O../plain/f", "git diff --no-index",
    "git grep canary", "git grep --no-index canary", "git blame --contents", "git cat-file -p", "git archive HEAD",
    "git diff --ext-diff", "git log --all", "diff", "rg canary",
]  # fmt: skip
OPERANDS = [
    ".", "..", "x", "y", "../x", "../y", "../plain", "../plain/x", "../r", "../r/x", "plain", "plain/x", "r/x", "f",
    "main", "HEAD", "HEAD~0", "main..HEAD", "{w}/plain/x", "{w}/r/y", "{w}/r", "sub/../../plain/y", "sub/../x",
    "../../work/plain", "linked/x", "x/*", "../*", "'*'", ":/", "':(top)x'", "/dev/null", "-", "./x/../y", "sub",
    "inner", "../inner", "~", "~/../work/plain/x", "x/",
]  # fmt: skip
ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}


def make_trees(top: Path) -> None:
    """All trees in `work`, a link to one, and a repository of which the workspace is a part."""
    trees = {f"work/{name}": script for name, script in TREES.items()}
    trees["repository"] = (
        f"mkdir inner && {COMMITTED} && echo {CANARY} >>f && cd inner && echo 1 >f && {SECRETS} && git add f && echo 2 >f"
    )
    (top / "home").mkdir(parents=True)
    for name, script in trees.items():
        (top / name).mkdir(parents=True)
        alone = {**ENVIRONMENT, "HOME": str(top / "home")}
        subprocess.run(
            ["bash", "-ec", script], cwd=top / name, env=alone, check=True, capture_output=True, timeout=HANG_S
        )
    (top / "work" / "linked").symlink_to("r")


def drawn_line(source: random.Random, *, work: Path) -> str:
    command = " ".join([source.choice(COMMANDS), *source.choices(OPERANDS, k=source.choice([0, 1, 2, 2, 2, 2, 3]))])
    folders = {"d": source.choice(FOLDERS), "e": source.choice(FOLDERS)}
    before = source.choice(BEFORE)
    if "bash -c" in before:
        command = command.replace("'", '"')
    return before.format(command.replace("{w}", str(work)), **folders)


def shown(lines: list[str], *, work: Path, home: Path) -> list[bool]:
    """Of each line whether a real bash shows the canary."""
    mark = "=end-of-a-line="
    script = "\n".join(f'timeout 5 bash --norc -c "$L{at}" </dev/null 2>&1; echo {mark}' for at in range(len(lines)))
    named = {f"L{at}": line for at, line in enumerate(lines)}
    ran = subprocess.run(
        ["bash", "--norc"],
        input=script.encode(),
        cwd=work,
        env={**ENVIRONMENT, "HOME": str(home), **named},
        capture_output=True,
        timeout=10 * HANG_S,
        check=False,
    )
    outputs = ran.stdout.split(f"{mark}\n".encode())
    assert len(outputs) == len(lines) + 1
    return [CANARY.encode() in output for output in outputs[:-1]]


@pytest.mark.costly
@pytest.mark.promise("safe:judged")
def test_a_git_command_that_is_judged_harmless_shows_no_secret(tmp_path: Path) -> None:
    """Issue 39: `cd r; git diff ../a ../b` showed `.env`. Many of the drawn lines show a secret, and many are judged harmless."""
    top = tmp_path.resolve()
    make_trees(top)
    source = random.Random(39)
    showed = harmless = 0
    for workspace in WORKSPACES:
        room = Room(top=top, work=top / workspace)
        lines = [drawn_line(source, work=room.work) for _ in range(DRAWN // len(WORKSPACES))]
        shows = shown(lines, work=room.work, home=top / "home")
        allowed = [is_harmless(line, room=room) for line in lines]
        assert [line for line, one, bad in zip(lines, allowed, shows, strict=True) if one and bad] == [], workspace
        showed, harmless = showed + sum(shows), harmless + sum(allowed)
    assert showed > DRAWN // 50
    assert harmless > DRAWN // 10


@pytest.mark.costly
@pytest.mark.promise("safe:judged")
@pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "all are there")
def test_a_git_command_that_is_judged_harmless_opens_nothing_outside(tmp_path: Path) -> None:
    """No secret and no file outside, whatever of it is shown; `strace` says what was opened."""
    top = tmp_path.resolve() / "room"
    make_trees(top)
    room, source = Room(top=top, work=top / "work"), random.Random(40)
    lines: list[str] = []
    while len(lines) < WATCHED:
        line = drawn_line(source, work=room.work)
        if "--dirty" not in line and is_harmless(line, room=room):  # it refreshes the index, as `git status` does
            lines.append(line)
    found = [
        (lines[number], did)
        for number, did in doings(lines, room=room, log=tmp_path.resolve() / "log", can_write=False)
    ]
    assert found == []
