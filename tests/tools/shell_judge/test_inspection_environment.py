"""Variables before a command: only those that are known to be harmless pass, whatever is allowed."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from tables import each
from turnwise.rules.permission_facts import HARMLESS_NAMES
from turnwise.rules.permissions import PermissionKind, PermissionRule
from waits import HANG_S

ALLOWED = (
    *SHELL_ALLOWED,
    *[PermissionRule(verdict="allow", tool="bash", command=(name, "*"), source="user") for name in ("node", "npm")],
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("environment").resolve())


@pytest.mark.promise("safe:judged")
@each(
    "name",
    "NODE_V8_COVERAGE NODE_PATH OPENSSL_CONF SSLKEYLOGFILE GNUPGHOME GCOV_PREFIX LLVM_PROFILE_FILE FOO XYZ _".split(),
)
@each("form", ["{}=x node a.js", "env {}=x node a.js", "export {}=x", "npm test && {}=x npm test"])
def test_an_unknown_variable_is_asked_about_before_an_allowed_command(name: str, form: str, project: Path) -> None:
    """Issue 13, line 6: it may make the program load or write a file."""
    assert verdict_on(form.format(name), project=project, rules=ALLOWED) == "ask"
    assert verdict_on("node a.js", project=project, rules=ALLOWED) == "allow"


@each("name", sorted(HARMLESS_NAMES))
def test_a_harmless_variable_passes_with_a_plain_value(name: str, project: Path) -> None:
    """And asks with one that may name a file or is known only when it runs."""
    assert verdict_on(f"{name}=1 node a.js", project=project, rules=ALLOWED) == "allow"
    assert verdict_on(f"{name}=../x node a.js", project=project, rules=ALLOWED) == "ask"
    assert verdict_on(f"{name}=$X node a.js", project=project, rules=ALLOWED) == "ask"


@each(
    ("command", "inherited", "expected"),
    [
        ("FOO=x; ls", "", "allow"),
        ("FOO=x; ls", "FOO", "ask"),
        ("for FOO in a b; do ls; done", "", "allow"),
        ("for FOO in a b; do ls; done", "FOO", "ask"),
        ("read FOO; ls", "FOO", "ask"),
        ("printf -v FOO x; ls", "FOO", "ask"),
        ("ls ${FOO:=x}", "FOO", "ask"),
        ("unset FOO; ls", "FOO", "ask"),
        ("CI=1; ls", "CI", "allow"),
    ],
)
def test_a_variable_of_the_shell_counts_where_programs_inherit_it(
    command: str, inherited: str, expected: PermissionKind, project: Path
) -> None:
    """bash hands on each variable that it found in its environment, with its new value."""
    environment = {inherited: "1"} if inherited else {}
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED, environment=environment) == expected


def _evaluated_by_bash() -> list[str]:
    """The names, of all that stand in the program, whose new value the shell on this machine evaluates when it is assigned.
    Tails of names count too: a linker keeps `RANDOM` within `SRANDOM`."""
    found = {one.decode() for one in re.findall(rb"[A-Z][A-Z_0-9]{2,30}(?=\0)", Path(BASH).read_bytes())}
    names = sorted({name[at:] for name in found for at in range(len(name) - 2) if not name[at].isdigit()})
    tried = "".join(f"( {name}='a[$(echo {name} >&7)]' ) 2>/dev/null\n" for name in names)
    script = 'exec 7>&1 1>/dev/null; eval "$(cat)"'
    result = subprocess.run(
        [BASH, "--norc", "-c", script], input=tried.encode(), capture_output=True, timeout=HANG_S, check=False
    )
    return result.stdout.decode().split()


BASH = shutil.which("bash") or ""


@pytest.mark.promise("safe:judged")
@pytest.mark.skipif(not BASH, reason="bash is not installed")
def test_what_bash_evaluates_when_it_is_assigned_is_asked_about(project: Path) -> None:
    """Issue 13, line 1: `RANDOM='a[$(rm x)]'` runs `rm`. A real bash says which of the names in its own program are so."""
    names = _evaluated_by_bash()
    assert "RANDOM" in names
    for name in names:
        for form in (
            "{}='a[$(touch x)]'",
            "{}+='a[$(touch x)]'",
            "x='a[$(touch y)]'; {}=x",
            "for {} in 'a[$(touch x)]'; do :; done",
        ):
            command = form.format(name)
            assert verdict_on(command, project=project, rules=()) == "ask", command
            assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "ask", command


@pytest.mark.parametrize("command", ["SECONDS=0", "OPTIND=1; ls", "RANDOM=42 && echo $RANDOM"])
def test_a_number_for_a_variable_of_the_shell_is_not_asked_about(command: str, project: Path) -> None:
    """Scripts set them so; a number evaluates to itself."""
    assert verdict_on(command, project=project, rules=()) == verdict_on(
        command.replace("RANDOM", "X"), project=project, rules=()
    )
