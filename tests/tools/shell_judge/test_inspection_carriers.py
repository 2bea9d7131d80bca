"""What a program that the judge does not know may run: prohibitions reach it, everyday commands stay allowed."""

from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from tables import each
from turnwise.rules.permissions import PermissionRule

PROHIBITIONS = tuple(
    PermissionRule(verdict="deny", tool="bash", command=pattern, source="user")
    for pattern in (("rm", "*"), ("git", "push", "*"))
)
CARRIED = [
    "x86_64 rm y",
    "i386 rm y",
    "uname26 rm y",
    "setpriv --reuid 1 rm y",
    "ssh-agent rm y",
    "npm exec -- rm y",
    "npm x rm y",
    "pnpm exec rm y",
    "yarn exec rm y",
    "sg GROUP -c 'rm y'",
    "choom -n 1 -- rm y",
    "start-stop-daemon --start --exec /bin/rm -- y",
    "/lib64/ld-linux-x86-64.so.2 /bin/rm y",
    "gosu x rm y",
    "tini -- rm y",
    "dumb-init rm y",
    "dbus-launch rm y",
    "systemd-inhibit rm y",
    "hyperfine 'rm y'",
    "nodemon --exec 'rm y'",
    "split --filter='rm y' f",
    "tar -cf x --checkpoint-action=exec='rm y' f",
    "tar --checkpoint-action=exec=rm f",
    "rsync -e rm a b",
    "rsync -e 'rm y' a b",
    "rsync -erm a b",
    "man -P rm ls",
    "git grep -Orm x",
    "git grep --open-files-in-pager=rm x",
    "git-push origin",
    "/usr/lib/git-core/git-push",
    "git send-pack origin",
    "declare -i x; x='a[$(rm y)]'",
    "setpriv sh -c 'setpriv rm y'",
    "setpriv env X=1 git -C . push",
    "pnpm dlx rm y",
    "unknown 'a; rm y'",
]
EVERYDAY = [
    "npm test",
    "npm run build",
    "git commit -m 'rm old files'",
    "echo rm",
    "cargo run -- rm",
    "make clean",
    "python3 manage.py test",
    "pytest -k rm",
    "gh pr create --title 'rm old' --body 'it is a -> b'",
    "ruff format src",
    "mix format",
    "terraform init",
    "npm init",
    'prog "it\'s a text"',
    "prog 'see > /etc/x'",
    "prog -x",
    "docker ps",
    "uv init",
    "rsync -av src/ sub/",
    "tar czf a.tgz src",
    "unknown a b",
    "go test ./...",
    "grep -rn rm src",
    "ls | grep rm",
    "sed -n 's/rm/x/p' README.md",
    "./run.sh test",
    "for i in 1 2 3; do prog $i; done",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("carriers").resolve())


@each("command", CARRIED)
def test_a_prohibition_reaches_what_an_unknown_program_may_run(command: str, project: Path) -> None:
    """Issue 13, line 15 of its tester: a list of the programs that run others is never whole."""
    assert verdict_on(command, project=project, rules=(*SHELL_ALLOWED, *PROHIBITIONS)) == "deny"


@each("command", EVERYDAY)
def test_an_everyday_command_stays_allowed_beside_prohibitions(command: str, project: Path) -> None:
    """Text, files and subcommands that have a denied name, or look like a script, deny nothing."""
    assert verdict_on(command, project=project, rules=(*SHELL_ALLOWED, *PROHIBITIONS)) == "allow"


@pytest.mark.parametrize("command", ["setpriv rm -rf y", "choom -- mkfs x", "gosu x git reset --hard"])
def test_what_an_unknown_program_may_destroy_is_asked_about(command: str, project: Path) -> None:
    """Also where the shell is allowed in general."""
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "ask"
