"""Shell commands get the verdict that the table `inspection_cases.toml` says. The commands are parsed and judged, never run."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tables import each
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy, judge_permission
from turnwise.tools.shell_judge import inspect_call

TABLE: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("inspection_cases.toml").read_text(encoding="utf-8")
)
EVERYTHING = (PermissionRule(verdict="allow", effect="execute", source="user"),)
PROHIBITIONS = tuple(
    PermissionRule(verdict="deny", tool="bash", command=pattern, source="user")
    for pattern in (("rm", "*"), ("curl", "*"), ("git", "push", "*"), ("sudo", "*"))
)
# Column -> verdicts where somebody is there: by default, and where the shell is allowed in general.
ATTENDED: dict[str, tuple[PermissionKind, PermissionKind]] = {
    "reads": ("allow", "allow"),
    "asks": ("ask", "allow"),
    "guarded": ("ask", "ask"),
    "destroys": ("ask", "ask"),
}


def cases(*columns: str) -> Iterator[tuple[str, str]]:
    for section in TABLE.values():
        for column, commands in section.items():
            if column in columns:
                yield from ((column, command) for command in commands)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the workspace of the table in `work`, its HOME, and something outside of both."""
    top = tmp_path_factory.mktemp("inspected")
    files = {
        "work/src/a.py": "a = 1\n",
        "work/src/b.py": "b = 2\n",
        "work/my file.txt": "spaces\n",
        "work/notes.txt": "notes\n",
        "work/.env": "KEY=1\n",
        "work/key.pem": "pem\n",
        "work/sub/x.txt": "x\n",
        "work/.git/HEAD": "ref: refs/heads/main\n",
        "work/.git/objects/kept": "",
        "work/.git/refs/kept": "",
        "work/.git/config": "[core]\n\tbare = false\n",
        "outside/file.txt": "outside\n",
        "home/.ssh/id_rsa": "key\n",
        "home/.bashrc": "\n",
        "home/plain.txt": "plain\n",
    }
    for name, text in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    links = {"leads_out": "../outside/file.txt", "leads_far": "../outside", "looks_fine.txt": ".env", "inner": "src"}
    for name, target in links.items():
        (top / "work" / name).symlink_to(target)
    return top


def inspected(command: str, *, place: Path) -> CallFacts:
    return inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=place / "work",
        home=place / "home",
        environment={},
    )


def judged(
    command: str, *, place: Path, rules: tuple[PermissionRule, ...] = (), attended: bool = True
) -> PermissionKind:
    policy = Policy(
        rules=rules, workspace=str(place / "work"), home=str(place / "home"), attended=attended, unattended="allow"
    )
    return judge_permission(inspected(command, place=place), policy=policy).kind


@pytest.mark.costly
@each(("column", "command"), list(cases(*ATTENDED)))
def test_a_command_gets_the_verdict_of_the_table(column: str, command: str, place: Path) -> None:
    """Done when 5: by default, and where the user allows the shell in general."""
    found = (judged(command, place=place), judged(command, place=place, rules=EVERYTHING))
    assert found == ATTENDED[column]


@each("command", [command for _, command in cases("destroys")])
def test_what_destroys_is_denied_where_nobody_is_asked(command: str, place: Path) -> None:
    """Also where the shell is allowed and what would be asked about is allowed."""
    assert judged(command, place=place, rules=EVERYTHING, attended=False) == "deny"


@each("command", [*TABLE["unparsable"]["guarded"], "$CMD", "PATH=. ls", "cat notes.txt | bash"])
def test_what_cannot_be_known_is_denied_where_nobody_is_asked(command: str, place: Path) -> None:
    """Also where the shell is allowed and what would be asked about is allowed."""
    assert judged(command, place=place, rules=EVERYTHING, attended=False) == "deny"


@each("command", [command for _, command in cases("denied")])
def test_a_prohibition_reaches_every_part_of_a_command(command: str, place: Path) -> None:
    """The user's rules deny some commands, and allow the shell otherwise."""
    assert judged(command, place=place, rules=(*EVERYTHING, *PROHIBITIONS)) == "deny"


def test_the_table_is_large_enough_and_names_each_command_once() -> None:
    """Done when 5 asks for 150 cases."""
    commands = [command for _, command in cases("reads", "asks", "guarded", "destroys")]
    assert len(commands) >= 150
    assert len(set(commands)) == len(commands)
