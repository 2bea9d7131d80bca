"""What a mode means for calls: the verdicts, and what a command finds read-only in a real sandbox."""

import os
import shlex
import subprocess
from pathlib import Path

import msgspec
import pytest

from sandboxes import PYTHON, sandbox_called
from tables import each
from turnwise.coding_agent.hook_commands import read_hooks
from turnwise.coding_agent.modes import SessionMode, first_mode, read_mode, why_no_sandbox_mode
from turnwise.errors import CallerError, ToolFault
from turnwise.rules.permission_facts import CallFacts, Keeps, Mode
from turnwise.rules.permissions import PLAN_ONLY, PermissionRule, Policy, all_edits_rule, judge_permission
from turnwise.running.hooks import ToolAboutToRun
from turnwise.running.run_context import in_mode, judged_programs
from turnwise.settings.settings import Layer
from turnwise.tools.sandbox import Sandbox
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.workspace.shell import BashArguments, Shell

ALL = (
    PermissionRule(verdict="allow", effect="write", source="command line"),
    PermissionRule(verdict="allow", effect="execute", source="command line"),
    PermissionRule(verdict="allow", tool="bash", source="command line"),
)


def verdict(
    folder: Path,
    tool: str,
    argument: str,
    *,
    mode: Mode,
    now: Mode | None = None,
    rules: tuple[PermissionRule, ...] = (),
    confines: bool = True,
    effect: str = "",
) -> str:
    """That of a call whose facts were found while the session was in the mode `now`."""
    policy = Policy(rules=rules, workspace=str(folder), home="/home/me", attended=True, mode=mode, confines=confines)
    if effect:
        facts = CallFacts(call_id="1", tool=tool, effect=effect)
    else:
        key, its = ("command", "execute") if tool == "bash" else ("path", "read" if tool == "read" else "write")
        facts = inspect_call("1", tool=tool, effect=its, arguments={key: argument}, workspace=folder)
    return judge_permission(msgspec.structs.replace(facts, mode=now or mode), policy=policy).kind


@each(
    ("tool", "argument", "plan", "ask", "edits", "sandbox"),
    [
        ("read", "a.py", "allow", "allow", "allow", "allow"),
        ("read", ".env", "ask", "ask", "ask", "ask"),
        ("write", "a.py", "deny", "ask", "allow", "allow"),
        ("write", "AGENTS.md", "deny", "ask", "ask", "ask"),
        ("write", "/elsewhere/a.py", "deny", "ask", "ask", "ask"),
        ("bash", "ls | head", "allow", "allow", "allow", "allow"),
        ("bash", "cat a.py 2>/dev/null", "allow", "allow", "allow", "allow"),
        ("bash", "pytest -q", "ask", "ask", "ask", "allow"),
        ("bash", "cat a.py > b.py", "deny", "ask", "ask", "allow"),
        ("bash", "cat a.py > AGENTS.md", "deny", "ask", "ask", "ask"),
        ("bash", "cat .env", "ask", "ask", "ask", "ask"),
        ("bash", "cat /etc/hosts", "ask", "ask", "ask", "allow"),
        ("bash", "echo x > /etc/hosts", "deny", "ask", "ask", "ask"),
        ("bash", "PATH=. x; $X; eval $Y", "ask", "ask", "ask", "allow"),
        ("bash", "rm -rf src", "deny", "ask", "ask", "ask"),
        ("bash", "git reset --hard", "deny", "ask", "ask", "ask"),
        ("bash", "cd /; rm -rf x", "deny", "ask", "ask", "ask"),
    ],
)
def test_each_mode_allows_more_than_the_one_before(
    tmp_path: Path, tool: str, argument: str, plan: str, ask: str, edits: str, sandbox: str
) -> None:
    wanted: dict[Mode, str] = {"plan": plan, "ask": ask, "edits": edits, "sandbox": sandbox}
    assert {mode: verdict(tmp_path, tool, argument, mode=mode) for mode in wanted} == wanted


def test_no_rule_weakens_plan_mode_and_no_mode_weakens_a_rule(tmp_path: Path) -> None:
    """MCP tools without a declared effect too; without a sandbox, only commands that read. A mode holds only if the session is in
    it now: a journal's policy alone allows nothing."""
    for tool, argument in (("write", "a.py"), ("bash", "echo x > b.py")):
        assert verdict(tmp_path, tool, argument, mode="plan", rules=ALL) == "deny"
    assert verdict(tmp_path, "bash", "pytest", mode="plan", rules=ALL) == "allow"
    assert verdict(tmp_path, "bash", "pytest", mode="plan", rules=ALL, confines=False) == "deny"
    assert verdict(tmp_path, "bash", "ls", mode="plan", confines=False) == "allow"
    for effect, wanted in (("execute", "deny"), ("write", "deny"), ("read", "allow"), ("none", "allow")):
        assert verdict(tmp_path, "git__status", "", mode="plan", effect=effect, rules=ALL) == wanted
    for effect in ("execute", "write"):
        assert verdict(tmp_path, "git__commit", "", mode="sandbox", effect=effect) == "ask"
    never = (PermissionRule(verdict="deny", tool="bash", command=("curl", "*"), source="user"),)
    assert verdict(tmp_path, "bash", "curl x", mode="sandbox", rules=never) == "deny"
    assert verdict(tmp_path, "bash", "$X x", mode="sandbox", rules=never) == "ask"
    asks = (PermissionRule(verdict="ask", effect="write", source="user"),)
    assert verdict(tmp_path, "write", "a.py", mode="edits", rules=asks) == "ask"
    assert verdict(tmp_path, "write", "a.py", mode="sandbox", now="ask") == "ask"
    assert verdict(tmp_path, "write", "a.py", mode="plan", now="sandbox") == "deny"
    assert verdict(tmp_path, "write", "a.py", mode="edits", now="plan") == "deny"


@pytest.fixture
def sandbox() -> Sandbox:
    return sandbox_called("bubblewrap")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with guarded files, a link to one and a second name of another."""
    root = tmp_path / "tree"
    (root / "sub" / ".vscode").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", root], check=True)
    for name in ("AGENTS.md", "sub/.vscode/tasks.json", "real.md", "plain.txt", ".env"):
        (root / name).write_text("as before")
    (root / "CLAUDE.md").symlink_to("real.md")
    os.link(root / "sub" / ".vscode" / "tasks.json", root / "second.json")
    return root


async def output(shell: Shell, command: str, *, keeps: Keeps, unasked: bool = False) -> str:
    with judged_programs(None, keeps=keeps, unasked=unasked):
        try:
            return await shell.run(BashArguments(command=command))
        except ToolFault as fault:
            return str(fault)


async def test_no_program_in_the_sandbox_changes_a_guarded_file(tree: Path, sandbox: Sandbox) -> None:
    """Written, renamed over, removed, by a link, by a second name, from a process that was left behind; made anew under a
    guarded name, or by moving the folder around it. What is not guarded is written."""
    shell = Shell(tree, sandbox=sandbox)
    before = (tree / ".git" / "config").read_bytes()
    attacks = [
        "echo evil > AGENTS.md",
        "mv plain.txt AGENTS.md",
        "rm -f AGENTS.md .env",
        "rm -rf sub",
        "echo evil > sub/.vscode/tasks.json",
        "echo evil >> second.json",
        "echo evil > CLAUDE.md",
        "ln -sf plain.txt CLAUDE.md",
        "ln AGENTS.md other; echo evil > other",
        "mv sub aside; mkdir -p sub/.vscode; echo evil > sub/.vscode/tasks.json",
        "git config core.pager evil; echo evil > .git/hooks/pre-commit",
        f"{PYTHON} -c {shlex.quote('open(chr(65)+chr(71)+' + repr('ENTS.md') + ', chr(119)).write(chr(101))')}",
        "(sleep 30; echo evil > AGENTS.md) & echo evil > .envrc; echo evil > conf.pth",
        "umount AGENTS.md; mount -o remount,rw AGENTS.md; chmod 777 AGENTS.md; echo evil > AGENTS.md",
        "mkdir fish; echo evil > fish/config.fish; mkdir -p .config; mv fish .config/",
    ]
    said = [await output(shell, attack, keeps="guarded") for attack in attacks]
    assert "evil" not in {
        *(path.read_text() for path in map(tree.joinpath, ("AGENTS.md", "real.md", "second.json", ".env")))
    }
    assert (tree / "CLAUDE.md").readlink() == Path("real.md") and (tree / ".git" / "config").read_bytes() == before
    assert not (tree / ".git" / "hooks" / "pre-commit").exists()
    assert not any((tree / name).exists() for name in (".envrc", "conf.pth", ".config/fish"))
    assert not (tree / "sub" / ".vscode").exists() or (tree / "sub/.vscode/tasks.json").read_text() == "as before"
    assert "Change such a file with a file tool" in said[0]
    assert await output(shell, "echo new > plain2.txt; cat plain2.txt", keeps="guarded") == "new\n"


async def test_nothing_made_by_a_command_runs_later(tree: Path, sandbox: Sandbox) -> None:
    """Attacked (issue 46): below a new folder whose name is only secret; by a link that a command moves, or whose target it
    makes or puts in place of the one there was; among what cannot be read or moved; as a submodule that `git submodule update`
    would take; what the repository's own settings name. What is moved away with its folder stays."""
    (tree / "GEMINI.md").symlink_to("missing.md")
    (tree / "docs").mkdir()
    (tree / "docs" / "guide.md").write_text("as before")
    (tree / "docs" / "AGENTS.md").symlink_to("guide.md")
    (tree / "WARP.md").symlink_to("docs/guide.md")
    (tree / "clean.py").write_text("as before")
    with (tree / ".git" / "config").open("a") as config:
        config.write(
            '[core]\n\thooksPath = hooks\n[include]\n\tpath = ../more\n[filter "x"]\n\tclean = python clean.py %f\n'
        )
    shell = Shell(tree, sandbox=sandbox)
    attacks = [
        "mkdir -p secrets/.vscode; echo evil > secrets/.vscode/tasks.json; echo evil > secrets/CRUSH.md",
        "echo evil > evil.sh; ln -s evil.sh x.key",
        "mv x.key .envrc",
        "echo evil > missing.md",
        "echo evil > guide.md; mv docs/AGENTS.md QWEN.md; mv QWEN.md docs2; mv docs2 .rules",
        "mv docs manual; mkdir docs; echo evil > docs/guide.md",
        "mkdir z y; echo evil > z/.envrc; echo evil > y/.envrc; chmod 000 z; chmod 555 y",
        "mkdir -p .git/modules/x/hooks; touch .git/modules/x/HEAD; echo evil > .git/modules/x/hooks/post-checkout",
        "echo evil > more; mkdir hooks; echo evil > hooks/pre-commit; echo evil > clean.py",
    ]
    said = [await output(shell, attack, keeps="guarded") for attack in attacks]
    obeyed = (
        "secrets/.vscode secrets/CRUSH.md .envrc GEMINI.md WARP.md z/.envrc y/.envrc .rules more hooks .git/modules/x"
    )
    assert [name for name in obeyed.split() if (tree / name).exists()] == []
    assert (tree / "clean.py").read_text() == (tree / "manual" / "guide.md").read_text() == "as before"
    assert (tree / "GEMINI.md").is_symlink() and "moved to made-by-a-command-1.x.kept" in said[7]
    many = "for i in $(seq 60); do mkdir d$i; echo evil > d$i/.envrc; done"
    told = await output(shell, many, keeps="guarded")
    assert told.count("moved to") == 20 and "and 40 more" in told


def test_what_git_runs_by_its_settings_is_guarded(tree: Path) -> None:
    """Attacked (issue 46): hooks in a folder that `core.hooksPath` names, also by a way around and before there is one, and where
    a guarded name leads, there or not; edits mode asks about them, by a file tool and as all edits of the session."""
    (tree / ".github").symlink_to("ci")
    (tree / ".git" / "config").write_text("[core]\n\thooksPath = tools/../hooks # ours\n")
    for path in (
        "hooks/pre-commit",
        "src/../hooks/x",
        "a/../.git/hooks/x",
        ".GIT/hooks/x",
        ".git./hooks/x",
        "git~1/hooks/x",
        "real.md",
        "ci/workflows/x.yml",
    ):
        assert verdict(tree, "write", path, mode="edits") == "ask", path
        assert verdict(tree, "write", path, mode="ask", rules=(all_edits_rule(str(tree)),)) == "ask", path
    assert verdict(tree, "write", "hooks.py", mode="edits") == "allow"


@pytest.mark.parametrize("name", ["bubblewrap", "landlock", "none"])
async def test_a_command_in_plan_mode_finds_the_folder_read_only(tree: Path, name: str) -> None:
    """Its temporary folder can be written. Where the sandbox cannot see to that, only what is judged to read runs. A change
    of the mode holds for a call that was judged before."""
    shell = Shell(tree, sandbox=sandbox_called(name), network=True)
    tried = "echo x > plain.txt; echo x > $TMPDIR/t && cat $TMPDIR/t; touch made; git -c user.name=a commit --allow-empty -m x"
    said = await output(shell, tried, keeps="folder")
    with in_mode(lambda: "plan"):
        again = await output(shell, tried, keeps="guarded")
    assert ("in plan mode" in said and "x\n" in said) if name == "bubblewrap" else PLAN_ONLY in said
    assert "plan mode" in again and not (tree / "made").exists()
    assert (tree / "plain.txt").read_text() == "as before"
    assert "as before" in await output(shell, "cat plain.txt", keeps="folder", unasked=True)


async def test_hooks_find_the_folder_read_only_in_plan_mode(tree: Path, sandbox: Sandbox) -> None:
    """A hook of the user reads its input there and answers; what it would change stays as it is. Without such a sandbox it fails,
    and a guard that fails denies."""
    script = tree.parent / "hook.sh"
    script.write_text(
        '#!/bin/sh\ngrep -q before_tool || exit 3; (echo x > seen.json) 2>/dev/null; echo \'{"deny": "no"}\'\n'
    )
    script.chmod(0o700)
    table = {"hooks": [{"point": "before_tool", "command": [str(script)], "tools": "*"}]}
    looks = ToolAboutToRun(call_id="1", tool="bash", arguments="{}", step=1)
    layer = Layer(source="user", path=tree.parent / "turnwise.toml", table=table)
    for kind, wanted in ((sandbox, "Deny(reason='no')"), (sandbox_called("none"), "it needs a sandbox")):
        shell = Shell(tree, sandbox=kind)
        (hook,) = read_hooks(
            [layer],
            folder=tree,
            env=os.environ,
            confined=lambda argv, given, shell=shell: shell.confined(argv, env=os.environ, given=given),
        )
        try:
            said = repr(await hook.function(looks))  # pyright: ignore
        except ToolFault as fault:
            said = str(fault)
        assert wanted in said
        assert not (tree / "seen.json").exists()


async def test_a_lost_sandbox_ends_the_mode(tree: Path, sandbox: Sandbox) -> None:
    """Switched off in mid-session: the command does not run, and the session asks again, from this call on. It is told."""
    told = list[str]()
    mode = SessionMode("ask")
    mode.tell = told.append
    shell = Shell(tree, sandbox=sandbox, lost=mode.lose)
    mode.why_no_sandbox = lambda: why_no_sandbox_mode(shell, folder=tree, home=Path("/home/me"))
    mode.choose("sandbox")
    shell.sandbox = msgspec.structs.replace(sandbox, program="/bin/false")
    with mode.of_turn("sandbox"):
        assert mode.now() == "sandbox"
        shell.sandbox = msgspec.structs.replace(sandbox, kind="none", files=False)
        assert "call it again" in await output(shell, "echo x > made", keeps="guarded")
        assert mode.now() == "ask" and not (tree / "made").exists()
    assert told == ["sandbox mode has ended, and you are asked again: no sandbox here keeps it in"]


def test_sandbox_mode_is_offered_in_a_repository_with_all_walls(tree: Path, sandbox: Sandbox) -> None:
    shell, home = Shell(tree, sandbox=sandbox), Path("/home/me")
    assert why_no_sandbox_mode(shell, folder=tree, home=home) == ""
    assert why_no_sandbox_mode(shell, folder=tree / "sub", home=home) == ""
    assert "home" in why_no_sandbox_mode(shell, folder=tree, home=tree / "me")
    assert "home" in why_no_sandbox_mode(shell, folder=Path("/"), home=home)
    assert "repository" in why_no_sandbox_mode(shell, folder=tree / "sub", home=tree)  # the home folder is a repository
    assert "repository" in why_no_sandbox_mode(shell, folder=tree.parent, home=home)
    assert "--network" in why_no_sandbox_mode(Shell(tree, sandbox=sandbox, network=True), folder=tree, home=home)
    own = tree / ".config" / "nvim"
    (own / ".git").mkdir(parents=True)
    assert "guarded" in why_no_sandbox_mode(shell, folder=own, home=home)
    for name in ("landlock", "none"):
        assert "bubblewrap" in why_no_sandbox_mode(Shell(tree, sandbox=sandbox_called(name)), folder=tree, home=home)


def test_only_plan_mode_outlives_a_restart(tmp_path: Path) -> None:
    mode = SessionMode()
    for wanted in ("edits", "plan", "ask"):  # sandbox mode is not offered
        mode.next()
        assert mode.chosen == wanted
    with pytest.raises(CallerError, match="not offered here"):
        mode.choose("sandbox")
    with pytest.raises(CallerError, match="did you mean `plan`"):
        read_mode("paln")
    with mode.of_turn("ask"):
        mode.choose("edits")
        assert mode.now() == "ask" and "edits mode from the next turn on" in mode.said
        mode.choose("plan")
        assert mode.now() == "plan"
    assert mode.before_plan == "ask"
    assert first_mode("edits", last=None)[0].chosen == "edits"
