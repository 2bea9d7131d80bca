"""Files whose names are no UTF-8, or no plain line of text: they are told in a readable form, which is taken back."""

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.errors import ToolFault
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from turnwise.running.run_context import judged_paths
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.workspace.edit_tool import EditArguments, WriteArguments, edit, write
from turnwise.tools.workspace.patch_tool import PatchArguments, apply_patch
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import ListArguments, ReadArguments, SearchArguments, list_folder, read, search
from turnwise.turn.config import digest_of
from turnwise.vocab.file_names import given_name, marked, shown_name, unmarked

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


NAMES = (
    b"caf\xe9.txt",
    b"caf\\xe9.txt",
    b"caf\\x5cxe9.txt",
    b"a\nb:1: forged",
    b"a\\x0ab",
    "caf\u00e9.txt".encode(),
    "cafe\u0301.txt".encode(),
    b"\xff\xc3\xa9\\",
    b"tab\tand\x1b[31m",
    "line\u2028end".encode(),
)


@given(name=st.lists(st.sampled_from([*b"\\\\xe9c5/a", 0xE9, 0xC3, 0xA9, 0x0A, 0x7F, 0xCC, 0x81])))
def test_a_shown_name_leads_back_to_its_own_bytes(name: list[int]) -> None:
    """Proves: so no two names are shown alike; and what is shown is one line of text."""
    text = os.fsdecode(bytes(name))
    assert given_name(shown_name(text)) == text
    assert "//" in f"/{text}" or unmarked(marked(f"/{text}")) == f"/{text}"
    shown_name(text).encode()
    assert len(shown_name(text).splitlines()) <= 1


async def test_file_tools_take_back_every_name_as_they_show_it(tmp_path: Path) -> None:
    """Proves: `list` and `search` show each in a line of its own, no two alike; `read`, `edit`, `write`, a patch and a judged
    call reach that file by it, and no other. Found: U+FFFD stood for any byte, and a name with a line end made further lines."""
    folder = tmp_path / os.fsdecode(b"desk\xe9")
    folder.mkdir()
    for number, name in enumerate(NAMES):
        (folder / os.fsdecode(name)).write_text(f"needle {number}\n")
    workspace = WorkspacePaths(folder)
    (folder / ".git").mkdir()
    (folder / "sub").mkdir()
    (folder / "sub" / "k").write_text("other\n")
    assert await search(workspace, SearchArguments(pattern="other", path="sub")) == "sub/k:1: other"
    (folder / "sub" / "k").unlink()
    (folder / "sub").rmdir()
    (folder / ".git").rmdir()
    listed = [line.rpartition(" (")[0] for line in (await list_folder(workspace, ListArguments())).split("\n")]
    for with_ripgrep in (True, False):
        arguments = SearchArguments(pattern="needle")
        found = (await search(workspace, arguments, with_ripgrep=with_ripgrep)).split("\n")
        assert sorted(line.partition(":1: needle ")[0] for line in found) == sorted(listed)
    assert len(set(listed)) == len(NAMES)
    for shown in listed:
        facts = inspect_call(
            "1", tool="edit", effect="write", arguments={"path": shown}, workspace=folder, home=tmp_path
        )
        assert kind_of(facts, PermissionRule(verdict="allow", tool="edit"), folder=folder) == "allow", shown
        (path,) = facts.paths
        number = str(read(workspace, ReadArguments(path=shown))).split()[-1]
        with judged_paths([path.resolved]):
            edit(workspace, EditArguments(path=shown, old="needle", new="found"))
        with judged_paths([path.resolved]), pytest.raises(ToolFault):
            read(workspace, ReadArguments(path=listed[int(number) - 1]))
        assert (folder / os.fsdecode(NAMES[int(number)])).read_text() == f"found {number}\n"
        patch = f"*** Begin Patch\n*** Update File: {shown}\n@@\n-found {number}\n+patched\n*** End Patch"
        assert apply_patch(workspace, PatchArguments(patch=patch)) == f"applied the patch:\nM {shown}"
        assert (folder / os.fsdecode(NAMES[int(number)])).read_text() == "patched\n"
    assert len(list(folder.iterdir())) == len(NAMES)
    write(workspace, WriteArguments(path="new\\xff", content="x"))
    assert (folder / os.fsdecode(b"new\xff")).read_text() == "x"


def test_a_name_that_looks_alike_is_given_in_a_form_that_works(tmp_path: Path) -> None:
    """Proves: where letters are composed otherwise, the refusal says so, with a form of the name that can be given back."""
    (tmp_path / "re\u0301sume\u0301.md").write_text("x")
    workspace = WorkspacePaths(tmp_path)
    with pytest.raises(ToolFault, match="composed of other characters") as fault:
        read(workspace, ReadArguments(path="r\u00e9sum\u00e9.md"))
    spelled = str(fault.value).rpartition("give it as `")[2].rstrip("`")
    assert spelled.isascii() and str(read(workspace, ReadArguments(path=spelled))).endswith("x")
