"""Variables before a command: only those that are known to be harmless pass, whatever is allowed."""

from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from turnwise.rules.environment_names import HARMLESS_NAMES
from turnwise.rules.permissions import Kind, PermissionRule

ALLOWED = (
    *SHELL_ALLOWED,
    *[PermissionRule(verdict="allow", tool="bash", command=(name, "*"), source="user") for name in ("node", "npm")],
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_project(tmp_path_factory.mktemp("environment").resolve())


@pytest.mark.promise("safe:judged")
@pytest.mark.parametrize(
    "name",
    "NODE_V8_COVERAGE NODE_PATH OPENSSL_CONF SSLKEYLOGFILE GNUPGHOME GCOV_PREFIX LLVM_PROFILE_FILE FOO XYZ _".split(),
)
@pytest.mark.parametrize("form", ["{}=x node a.js", "env {}=x node a.js", "export {}=x", "npm test && {}=x npm test"])
def test_an_unknown_variable_is_asked_about_before_an_allowed_command(name: str, form: str, project: Path) -> None:
    """Issue 13, line 6: it may make the program load or write a file."""
    assert verdict_on(form.format(name), project=project, rules=ALLOWED) == "ask"
    assert verdict_on("node a.js", project=project, rules=ALLOWED) == "allow"


@pytest.mark.parametrize("name", sorted(HARMLESS_NAMES))
def test_a_harmless_variable_passes_with_a_plain_value(name: str, project: Path) -> None:
    """And asks with one that may name a file or is known only when it runs."""
    assert verdict_on(f"{name}=1 node a.js", project=project, rules=ALLOWED) == "allow"
    assert verdict_on(f"{name}=../x node a.js", project=project, rules=ALLOWED) == "ask"
    assert verdict_on(f"{name}=$X node a.js", project=project, rules=ALLOWED) == "ask"


@pytest.mark.parametrize(
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
    command: str, inherited: str, expected: Kind, project: Path
) -> None:
    """bash hands on each variable that it found in its environment, with its new value."""
    environment = {inherited: "1"} if inherited else {}
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED, environment=environment) == expected
