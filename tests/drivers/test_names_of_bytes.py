"""Files whose names are no UTF-8: they are told in a readable form, and what is told reaches no other file."""

import os
from pathlib import Path

import msgspec
import pytest

from turnwise.drivers.tools.inspection import inspect_call
from turnwise.drivers.tools.workspace.editing import EditArguments, edit
from turnwise.drivers.tools.workspace.listing import ListArguments, list_folder
from turnwise.drivers.tools.workspace.paths import WorkspacePaths
from turnwise.drivers.tools.workspace.reading import ReadArguments, read
from turnwise.drivers.tools.workspace.searching import SearchArguments, search
from turnwise.errors import ToolFault
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from turnwise.turn.approvals import digest_of

NAME = b"\xff\xfename"


@pytest.fixture(name="folder")
def a_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("needle\n")
    (folder / os.fsdecode(NAME)).write_text("needle\n")
    (folder / "sub" / os.fsdecode(b"d\xff")).mkdir()
    (folder / "sub" / os.fsdecode(b"d\xff") / ".env").write_text("needle\n")
    (tmp_path / os.fsdecode(b"out\xff")).write_text("needle\n")
    return folder


def facts_of(command: str, *, folder: Path) -> CallFacts:
    return inspect_call(
        "1", tool="bash", effect="execute", arguments={"command": command}, workspace=folder, home=folder.parent
    )


def kind_of(facts: CallFacts, *rules: PermissionRule, folder: Path) -> str:
    policy = Policy(
        workspace=str(folder.resolve()), home=str(folder.parent.resolve()), attended=True, rules=tuple(rules)
    )
    return judge_permission(facts, policy=policy).kind


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat notes.txt > new.txt", "ask"),
        ("cat *", "allow"),
        ("ls *", "allow"),
        ("wc -l *", "allow"),
        ("cat -- ./*name", "allow"),
        ("cat $'\\xff\\xfename'", "ask"),
        ("cat < *name", "allow"),
        ("echo x > $'\\xffnew'", "ask"),
        ("rm *", "ask"),
        ('for f in *; do cat "$f"; done', "ask"),
        ("X=*; echo $X", "ask"),
        ("cat sub/*/.env", "ask"),
        ("rg needle sub/*", "ask"),
        ("cat ../out*", "ask"),
        ("cd sub/$'d\\xff' && cat .env", "ask"),
    ],
)
def test_a_command_on_such_names_is_judged_and_kept(command: str, expected: str, folder: Path) -> None:
    """As on any other name: nothing crashes, and nothing hides in it (issue 13, line 12 of the hostile tester)."""
    facts = facts_of(command, folder=folder)
    kept = msgspec.json.decode(msgspec.json.encode(facts), type=CallFacts)
    assert kept == facts
    assert digest_of("bash", arguments="{}", facts=kept) == digest_of("bash", arguments="{}", facts=facts)
    assert kind_of(facts, folder=folder) == expected


def test_a_link_to_such_a_name_outside_is_asked_about(folder: Path) -> None:
    """Though its own name is plain."""
    (folder / "link").symlink_to(folder.parent / os.fsdecode(b"out\xff"))
    assert kind_of(facts_of("cat link", folder=folder), folder=folder) == "ask"


def test_a_prohibition_holds_for_such_names(folder: Path) -> None:
    """By the folder above them and by what of the name is text."""
    for pattern in ("**", "*name", "./*name"):
        deny = PermissionRule(verdict="deny", path=pattern)
        assert kind_of(facts_of("cat *", folder=folder), deny, folder=folder) == "deny"


def test_the_escaped_form_is_the_name_of_nothing(folder: Path) -> None:
    """A rule for it does not open the file, and the path of a real file never equals it."""
    outside = folder.parent / os.fsdecode(b"out\xff")
    told = str(folder.parent.resolve() / "out\\\\xff")
    allow = PermissionRule(verdict="allow", path=told)
    assert kind_of(facts_of("cat ../out*", folder=folder), allow, folder=folder) == "ask"
    assert outside.exists()
    (fact,) = facts_of("cat *name", folder=folder).shell.commands[0].words[1].paths[:1]  # pyright: ignore[reportOptionalMemberAccess]
    assert fact.given == "\\xff\\xfename" and "//" in fact.resolved


def test_a_secret_stays_one(folder: Path) -> None:
    """By the part of the name that is text."""
    (folder / "sub" / os.fsdecode(b"\xff.pem")).touch()
    assert kind_of(facts_of("cat sub/*.pem", folder=folder), folder=folder) == "ask"


async def test_file_tools_tell_such_names_and_do_not_reach_them_by_what_they_told(folder: Path) -> None:
    """`list` and `search` show them; what they show is no path."""
    workspace = WorkspacePaths(folder)
    listed = await list_folder(workspace, ListArguments())
    found = await search(workspace, SearchArguments(pattern="needle"))
    (shown,) = [line.split()[0] for line in listed.split("\n") if "name" in line]
    (matched,) = [line.partition(":")[0] for line in found.split("\n") if "name" in line]
    (listed + found).encode()
    for name in (shown, matched, "\\xff\\xfename"):
        with pytest.raises(ToolFault) as fault:
            read(workspace, ReadArguments(path=name))
        str(fault.value).encode()
        with pytest.raises(ToolFault) as fault:
            edit(workspace, EditArguments(path=name, old="needle", new="x"))
        str(fault.value).encode()
    assert (folder / os.fsdecode(NAME)).read_text() == "needle\n"
