"""What the files say of permissions becomes ordered rules, and what they say wrongly an error with file and key."""

import os
from pathlib import Path

import pytest

from tables import each
from turnwise.errors import CallerError
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.settings.permission_files import _KEYS as PERMISSION_KEYS
from turnwise.settings.permission_files import policy_of, read_rules
from turnwise.settings.settings import Layer, SettingsSource, read_layers


def layer(*, source: SettingsSource = "user", **permissions: object) -> Layer:
    return Layer(source=source, table={"permissions": permissions}, path=Path("/p/turnwise.toml"))


def test_rules_keep_their_order_and_know_where_they_stand() -> None:
    """Every key of a rule, and both ways to write a command."""
    found = read_rules(
        layer(
            rules=[
                {"allow": "bash", "command": "npm  test *"},
                {"ask": "bash", "command": ["git", "push", "two words"]},
                {"deny": "*", "path": "secret/**"},
                {"allow": "*", "effect": "write"},
            ]
        )
    )
    where = "`/p/turnwise.toml`: `permissions.rules[{}]`"
    assert found == (
        PermissionRule(
            verdict="allow", tool="bash", command=("npm", "test", "*"), source="user", where=where.format(0)
        ),
        PermissionRule(
            verdict="ask", tool="bash", command=("git", "push", "two words"), source="user", where=where.format(1)
        ),
        PermissionRule(verdict="deny", tool="*", path="secret/**", source="user", where=where.format(2)),
        PermissionRule(verdict="allow", tool="*", effect="write", source="user", where=where.format(3)),
    )


@each(
    ("rule", "said"),
    [
        ("bash", "is no table"),
        ({"command": "ls"}, "needs one of `allow`, `ask` and `deny`, and has 0"),
        ({"allow": "a", "deny": "b"}, "needs one of `allow`, `ask` and `deny`, and has 2"),
        ({"alow": "bash"}, "did you mean `allow`?"),
        ({"allow": "bash", "comand": "ls"}, "did you mean `command`?"),
        ({"allow": ""}, "`allow` is no text"),
        ({"allow": 1}, "`allow` is no text"),
        ({"allow": "*", "effect": "writes"}, "it is one of none, read, write, execute"),
        ({"allow": "bash", "command": "ls", "path": "x"}, "make two rules of it"),
        ({"deny": "bash", "command": "rm && ls"}, "a rule is about one command"),
        ({"deny": "bash", "command": "git commit -m 'x y'"}, "write its words as a list"),
        ({"deny": "bash", "command": []}, "neither a text nor a list of words"),
        ({"deny": "bash", "command": ["ls", 1]}, "neither a text nor a list of words"),
        ({"deny": "*", "path": "*.{pem,key}"}, "knows `*`, `**` and `?` only"),
        ({"deny": "*", "path": "[ab].txt"}, "knows `*`, `**` and `?` only"),
        ({"deny": "*", "path": "../x"}, "paths are resolved before they are judged"),
        ({"deny": "*", "path": "~other/x"}, "another user's folder"),
        ({"deny": "*", "path": "a/../b"}, "paths are resolved before they are judged"),
        ({"deny": "*", "path": "secret\\keys"}, "a backslash before `k`"),
        ({"deny": "*", "path": "secret\\"}, "a backslash at its end"),
        ({"deny": "*", "path": " secret/**"}, "begins or ends with a space"),
        ({"deny": "*", "path": "secret\0"}, "the control character U+0000"),
        ({"deny": "*", "path": "sec\nret"}, "the control character U+000A"),
        ({"deny": "*", "path": "!src/**"}, "no pattern is turned round"),
        ({"deny": "*", "path": "$HOME/notes/**"}, "none is expanded"),
        ({"deny": "*", "path": "x" * 5000}, "more than 4096 characters"),
        ({"deny": "*", "path": ""}, "`path` is no text"),
        ({"deny": "bash", "command": "A=1 x"}, "begins with the assignment `A=1`"),
        ({"deny": "bash", "command": ["A[0]+=1", "x"]}, "begins with the assignment"),
        ({"deny": "bash", "command": ["git push", "*"]}, "spaces in its first word"),
        ({"deny": "bash", "command": ["cd", "x", "&&", "rm"]}, "has the operator `&&`"),
        ({"deny": "bash", "command": ["make", "2>&1"]}, "has the operator `2>&1`"),
        ({"deny": "bash", "command": ["grep", "\\d"]}, "a backslash before `d`"),
        ({"deny": "bash", "command": "! git push"}, "a word of the shell's grammar"),
        ({"deny": "bash", "command": "rm {a,b}"}, "which a shell expands"),
        ({"deny": "bash", "command": "rm x # all"}, "has a comment"),
        ({"deny": "*", "effect": "read", "command": "x"}, "a command has the effect `execute`"),
    ],
)
def test_a_wrong_rule_is_refused_with_file_and_key(rule: object, said: str) -> None:
    """A rule that would hold nowhere is worse than none."""
    with pytest.raises(CallerError) as caught:
        read_rules(layer(rules=[rule]))
    assert str(caught.value).startswith("`/p/turnwise.toml`: `permissions.rules[0]`")
    assert said in str(caught.value)


@each(
    ("given", "said"),
    [
        (layer(rules={}), "`/p/turnwise.toml`: `permissions.rules` is no list"),
        (layer(rules=[{"allow": "x"}] * 501), "has 501 rules, more than 500"),
        (layer(rule=[]), "`/p/turnwise.toml`: `permissions.rule`: no such setting; did you mean `rules`?"),
        (layer(unattended="ask"), "`permissions.unattended` is `ask`; it is `allow` or `deny`"),
        (layer(trusted_folders="~"), "`permissions.trusted_folders` is no list"),
        (layer(trusted_folders=["x"]), "`x` is no folder; begin it with `/` or `~/`"),
        (layer(source="project", unattended="allow"), "a project cannot say this"),
        (layer(source="project", trusted_folders=["/"]), "a project cannot say this"),
        (Layer(source="user", table={"permissions": 1}, path=Path("/p/turnwise.toml")), "is no table"),
    ],
)
def test_a_wrong_table_is_refused_with_file_and_key(given: Layer, said: str) -> None:
    """Also what only the user's own file may say."""
    with pytest.raises(CallerError) as caught:
        policy_of([given], workspace=Path("/p"), home=Path("/h"), attended=True)
    assert said in str(caught.value)


def test_the_policy_of_a_folder_has_all_rules_in_the_order_of_their_sources(tmp_path: Path) -> None:
    """User, project, session, command line; the project is trusted because the user's file says so. Read from real files."""
    home, work = tmp_path / "home", tmp_path / "home" / "ours" / "work"
    (work / "sub").mkdir(parents=True)
    (work / ".git").mkdir()
    own = home / "own.toml"
    own.write_text(
        '[permissions]\nunattended = "allow"\ntrusted_folders = ["~/ours"]\nrules = [{ deny = "bash", command = "rm *" }]\n'
    )
    (work / "pyproject.toml").write_text('[[tool.turnwise.permissions.rules]]\nallow = "write"\npath = "src/**"\n')
    session = PermissionRule(verdict="allow", tool="a", source="session")
    line = PermissionRule(verdict="allow", tool="b", source="command line")
    found = policy_of(
        reversed(read_layers(work / "sub", env={"TURNWISE_CONFIG": str(own)})),
        workspace=work / "sub",
        home=home,
        attended=False,
        session_rules=[session],
        command_line_rules=[line],
    )
    assert found == Policy(
        rules=(
            PermissionRule(
                verdict="deny",
                tool="bash",
                command=("rm", "*"),
                source="user",
                where=f"`{own}`: `permissions.rules[0]`",
            ),
            PermissionRule(
                verdict="allow",
                tool="write",
                path="src/**",
                source="project",
                where=f"`{work / 'pyproject.toml'}`: `tool.turnwise.permissions.rules[0]`",
            ),
            session,
            line,
        ),
        workspace=os.path.realpath(work / "sub"),
        home=os.path.realpath(home),
        unattended="allow",
        trusts_project=True,
    )


@pytest.mark.parametrize("key", sorted(PERMISSION_KEYS))
def test_a_project_may_say_nothing_of_permissions_but_rules(key: str) -> None:
    """For every key of the table that there is: whatever a new one means, a folder from elsewhere cannot say it, unless this
    test learns that it may. Rules of a project that is not trusted only narrow what is allowed."""
    given = layer(source="project", **{key: []})
    if key == "rules":
        policy_of([given], workspace=Path("/p"), home=Path("/h"), attended=True)
        return
    with pytest.raises(CallerError, match="a project cannot say this"):
        policy_of([given], workspace=Path("/p"), home=Path("/h"), attended=True)


@pytest.mark.parametrize("trusted", [[], ["/p/other"], ["/p/proj"], ["/p/project/below"]])
def test_a_project_that_no_trusted_folder_holds_is_not_trusted(trusted: list[str]) -> None:
    """A folder whose name merely begins alike, or that lies below, does not make it so."""
    project = Layer(source="project", table={}, path=Path("/p/project/turnwise.toml"))
    own = layer(trusted_folders=trusted)
    found = policy_of([own, project], workspace=Path("/p/project"), home=Path("/h"), attended=True)
    assert not found.trusts_project


def test_a_link_into_a_trusted_folder_is_followed_before_it_is_believed(tmp_path: Path) -> None:
    """A name inside a trusted folder that leads elsewhere is not trusted."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "ours" / "link").symlink_to(tmp_path / "elsewhere")
    project = Layer(source="project", table={}, path=tmp_path / "ours" / "link" / "turnwise.toml")
    own = layer(trusted_folders=[str(tmp_path / "ours")])
    assert not policy_of([own, project], workspace=tmp_path, home=tmp_path, attended=True).trusts_project
