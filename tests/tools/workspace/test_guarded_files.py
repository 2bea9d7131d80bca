"""Every tool that can show or write a file goes by the one table of guarded names."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import IN_HOME, LATER, OPEN, SECRETS
from tables import each
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, judge_permission
from turnwise.tools.sandbox.sandbox_choice import secret_paths
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import SearchArguments, search

NEEDLE = "xyzzy"
ALLOWED = tuple(PermissionRule(verdict="allow", effect=effect) for effect in ("read", "write", "execute"))


def lay_out(root: Path, names: tuple[str, ...]) -> None:
    """A file of each name; one in a folder that another has made a file goes without."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_dir():
            path.write_text(f"{NEEDLE}\n")


def verdict(facts: CallFacts, *, root: Path, home: Path | None = None) -> str:
    policy = Policy(rules=ALLOWED, workspace=str(root), home=str(home or root.parent), attended=True)
    return judge_permission(facts, policy=policy).kind


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(
    "with_ripgrep", [False, pytest.param(True, marks=pytest.mark.skipif(not shutil.which("rg"), reason="no rg"))]
)
@pytest.mark.parametrize("upper", [False, True], ids=["as written", "in capitals"])
async def test_search_shows_no_line_of_a_secret(upper: bool, with_ripgrep: bool, tmp_path: Path) -> None:
    """Issue 13, line 2: 26 of 29 secret-like files were shown. Also with a glob, and from a folder in between; what is no
    secret is found."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").touch()
    names = tuple([name.upper() if upper else name for name in SECRETS if not name.startswith(".git/")])
    lay_out(tmp_path, names)
    lay_out(tmp_path / "deep", names)
    (tmp_path / "a.txt").write_text(NEEDLE)
    workspace = WorkspacePaths(tmp_path)

    async def lines(*, path: str = ".", glob: str = "") -> str:
        given = SearchArguments(pattern=NEEDLE, path=path, glob=glob)
        return await search(workspace, given, with_ripgrep=with_ripgrep)

    assert await lines() == f"a.txt:1: {NEEDLE}"
    assert await lines(path="deep") == await lines(glob="*e*") == await lines(path="deep", glob="*.pem") == "no match"
    assert NEEDLE in await lines(path=f"deep/{names[0]}")  # named: a call with a verdict of its own


async def test_search_shows_what_is_there_to_be_read(tmp_path: Path) -> None:
    """Templates, public halves, sources."""
    names = tuple([name for name in OPEN if "worktrees" not in name])
    lay_out(tmp_path, names)
    found = await search(WorkspacePaths(tmp_path), SearchArguments(pattern=NEEDLE))
    assert {line.partition(":")[0] for line in found.split("\n")} == set(names)


async def test_search_in_the_home_folder_spares_what_is_secret_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some folders are secret right in a home folder only."""
    monkeypatch.setenv("HOME", str(tmp_path))
    lay_out(tmp_path, IN_HOME)
    lay_out(tmp_path / "work", IN_HOME)
    found = await search(WorkspacePaths(tmp_path), SearchArguments(pattern=NEEDLE))
    assert {line.partition(":")[0] for line in found.split("\n")} == {f"work/{name}" for name in IN_HOME}


def calls_that_show(name: str) -> Iterator[tuple[str, str, dict[str, object]]]:
    for tool in ("read", "list", "search"):
        yield tool, "read", {"path": name, "pattern": "x"}
    yield "lookup", "read", {"file_path": name}
    for command in (
        "cat {}",
        "cat < {}",
        "head -1 ./{}",
        "cat x/../{}",
        "sort {} | wc",
        "for i in 1; do tail {}; done",
    ):
        yield "bash", "execute", {"command": command.format(f"'{name}'" if "#" in name or "~" in name else name)}


def calls_that_write(name: str) -> Iterator[tuple[str, str, dict[str, object]]]:
    yield "write", "write", {"path": name, "content": "x"}
    yield "edit", "write", {"path": name, "old": "a", "new": "b"}
    yield "multi_edit", "write", {"path": name, "edits": [{"old": "a", "new": "b"}]}
    for patch in (
        f"*** Add File: {name}\n+x\n",
        f"*** Update File: a.txt\n*** Move to: {name}\n",
        f"*** Delete File: {name}\n",
    ):
        yield "apply_patch", "write", {"patch": f"*** Begin Patch\n{patch}*** End Patch"}
    yield "save", "write", {"target": name}
    quoted = f"'{name}'"
    for command in (
        f"echo x > {quoted}",
        f"echo x >> {quoted}",
        f"cp a.txt {quoted}",
        f"tee {quoted}",
        f"touch {quoted}",
    ):
        yield "bash", "execute", {"command": command}


@pytest.mark.costly
@pytest.mark.promise("safe:named")
@each("name", SECRETS)
def test_every_tool_asks_before_it_shows_or_writes_a_secret(name: str, tmp_path: Path) -> None:
    """Issue 13, done when 3: though reading, writing and the shell are allowed in general; in any case, and through a link. Each
    file is there: a bare word that names nothing is no secret that a command reads."""
    work = (tmp_path / "work").resolve()
    lay_out(work, (name, name.upper()))
    (work / "x").mkdir()
    (work / "plain").symlink_to(work / name)
    for spelled in (name, name.upper(), "plain"):
        calls = [*calls_that_show(spelled), *calls_that_write(spelled)]
        asked = [
            (tool, arguments) for tool, effect, arguments in calls if _verdict(tool, effect, arguments, work) == "allow"
        ]
        assert asked == []


@pytest.mark.costly
@pytest.mark.promise("safe:named")
@each("name", LATER)
def test_every_tool_asks_before_it_writes_what_runs_later(name: str, tmp_path: Path) -> None:
    """Issue 13, line 8: in spite of `--allow write` and `--allow bash`. Reading them is as free as it was."""
    work = (tmp_path / "work").resolve()
    lay_out(work, (name,))
    (work / "plain").symlink_to(work / name)
    for spelled in (name, name.upper(), "plain"):
        calls = [each for each in calls_that_write(spelled) if spelled != "plain" or each[0] != "apply_patch"]
        assert [each for each in calls if _verdict(*each, work) == "allow"] == []
    assert _verdict("read", "read", {"path": name}, work) == ("ask" if name in SECRETS else "allow")


def test_ordinary_files_are_written_as_before(tmp_path: Path) -> None:
    """What `--allow write` is for."""
    work = tmp_path.resolve()
    for name in OPEN:
        assert _verdict("write", "write", {"path": name, "content": "x"}, work) == "allow", name
        assert _verdict("read", "read", {"path": name}, work) == "allow", name


def _verdict(tool: str, effect: str, arguments: dict[str, object], work: Path) -> str:
    facts = inspect_call(
        "1", tool=tool, effect=effect, arguments=arguments, workspace=work, home=work.parent, environment={}
    )
    return verdict(facts, root=work)


@pytest.mark.promise("safe:named")
def test_the_sandbox_hides_what_the_table_names_in_a_home_folder(tmp_path: Path) -> None:
    """One table: what has a secret name right in the home folder, and the places that have a name of their own."""
    names = tuple(
        [name for name in (*SECRETS, *IN_HOME) if "/" not in name or name.startswith((".config/", ".aws", ".ssh"))]
    )
    names += (
        ".mozilla/firefox/x/key4.db",
        ".config/BraveSoftware/x",
        ".local/share/keyrings/x",
        ".cargo/credentials",
        ".m2/settings.xml",
    )
    lay_out(tmp_path, (*names, "notes.txt", ".bashrc", ".cargo/bin/cargo", ".config/other/x"))
    hidden = secret_paths(home=tmp_path)
    seen = {
        name for name in (*names, "notes.txt") if not any((tmp_path / name).is_relative_to(path) for path in hidden)
    }
    assert seen == {"notes.txt"}
    assert not any(
        (tmp_path / name).is_relative_to(path) for path in hidden for name in (".bashrc", ".cargo/bin", ".config/other")
    )
