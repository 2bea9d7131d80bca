"""What 'always in this session' allows afterwards: what a person was shown, by real facts of real calls, and nothing else."""

from pathlib import Path

import pytest

from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permissions import (
    Policy,
    judge_permission,
    naming_rules,
    session_rules,
)
from turnwise.tools.shell_judge import inspect_call


@pytest.fixture(name="folder")
def a_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "desk"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.py", "b.py", ".env", "*.py"):
        (folder / name).write_text("x")
    (tmp_path / ".bashrc").write_text("x")
    return folder


def facts_of(command: str, *, folder: Path) -> CallFacts:
    return inspect_call(
        "1", tool="bash", effect="execute", arguments={"command": command}, workspace=folder, home=folder.parent
    )


def policy_in(folder: Path) -> Policy:
    return Policy(workspace=str(folder.resolve()), home=str(folder.parent.resolve()), attended=True)


def verdict_after(shown: str, then: str, *, folder: Path) -> str:
    """What becomes of `then` once somebody said 'always' to `shown`."""
    policy = policy_in(folder)
    asked = facts_of(shown, folder=folder)
    assert judge_permission(asked, policy=policy).kind == "ask"
    rules = session_rules(asked, policy=policy)
    assert rules
    remembering = Policy(workspace=policy.workspace, home=policy.home, attended=True, rules=rules)
    assert judge_permission(asked, policy=remembering).kind == "allow"
    return judge_permission(facts_of(then, folder=folder), policy=remembering).kind


@pytest.mark.parametrize(
    ("shown", "then", "expected"),
    [
        ("cat ~/.bashrc", "echo evil >> ~/.bashrc", "ask"),
        ("cat ~/.bashrc", "head -n 1 ~/.bashrc", "allow"),
        ("cat .env", "echo evil > .env", "ask"),
        ("cat .git/config", "echo evil > .git/config", "ask"),
        ("cat /etc/hosts", "cat a.py >> /etc/hosts", "ask"),
        ("cat < ~/.bashrc", "cat a.py > ~/.bashrc", "ask"),
        ("echo x >> ~/.bashrc", "echo y > ~/.bashrc", "allow"),
        ("echo x >> ~/.bashrc", "cat ~/.bashrc", "ask"),
        ("echo x > .env", "cat .env", "ask"),
        # a program with an input does what the input says
        ("python3", "echo 'import os' | python3", "ask"),
        ("python3", "python3 <<'E'\nimport os\nE", "ask"),
        ("python3", "python3 <<<'import os'", "ask"),
        ("python3", "python3 < a.py", "ask"),
        ("python3", "{ python3; } < a.py", "ask"),
        ("python3", "cat <<E | python3\nimport os\nE", "ask"),
        ("python3", "exec < a.py; python3", "ask"),
        ("python3", "echo x | bash -c 'python3'", "ask"),
        ("python3", "echo x | timeout 5 python3", "ask"),
        ("python3", "echo x | { true; python3; }", "ask"),
        ("python3", "while read x; do python3; done < a.py", "ask"),
        ("python3", "python3 2>&1", "allow"),
        ("python3", "python3 | head", "allow"),
        # the same words elsewhere are another command
        ("make test", "cd sub && make test", "ask"),
        ("make test", "cd $X && make test", "ask"),
        ("make test", "env -C sub make test", "ask"),
        ("cd sub && make test", "make test", "ask"),
        ("cd sub && make test", "cd sub && make test | tail", "allow"),
        # a star that was quoted is that star
        ("rm '*.py'", "rm *.py", "ask"),
        ("make '[ab].py'", "make [ab].py", "ask"),
        ("make '*.py'", "make '*.py'", "allow"),
    ],
)
def test_an_answer_holds_for_what_was_shown(shown: str, then: str, expected: str, folder: Path) -> None:
    """Reading is not writing, and equal words are not an equal command: issue 13, line 9."""
    assert verdict_after(shown, then, folder=folder) == expected


@pytest.mark.parametrize("shown", ["echo 1 | python3", "python3 <<'E'\n1\nE", "python3 < a.py", "rm *.py"])
def test_what_words_do_not_tell_is_asked_about_each_time(shown: str, folder: Path) -> None:
    """No rule says it, so 'always' is not offered; `--allow` is still told by name to those who want that."""
    facts = facts_of(shown, folder=folder)
    assert session_rules(facts, policy=policy_in(folder)) == ()
    assert naming_rules(facts, policy=policy_in(folder))


def test_an_answer_about_a_tool_is_none_about_paths_and_commands(folder: Path) -> None:
    """A call without paths was shown; a later one that names some shows them first."""
    policy = policy_in(folder)
    bare = CallFacts(call_id="1", tool="sync", effect="write")
    rules = session_rules(bare, policy=policy)
    remembering = Policy(workspace=policy.workspace, home=policy.home, attended=True, rules=rules)
    assert judge_permission(bare, policy=remembering).kind == "allow"
    at = str(folder.resolve() / "a.py")
    path = PathFact(given="a.py", resolved=at, lexical=at, inside=True, access="write")
    for other in (
        CallFacts(call_id="1", tool="sync", effect="write", paths=(path,)),
        CallFacts(call_id="1", tool="sync", effect="execute", paths=(path,)),
        CallFacts(call_id="1", tool="sync", effect="execute", shell=facts_of("make", folder=folder).shell),
    ):
        assert judge_permission(other, policy=remembering).kind == "ask"


def test_a_link_that_leads_elsewhere_later_is_asked_about(folder: Path) -> None:
    """The words of an allowed command are the same, but the file that was shown is not."""
    (folder / "link").symlink_to("a.py")
    policy = policy_in(folder)
    rules = session_rules(facts_of("make link", folder=folder), policy=policy)
    (folder / "link").unlink()
    (folder / "link").symlink_to(".env")
    remembering = Policy(workspace=policy.workspace, home=policy.home, attended=True, rules=rules)
    assert judge_permission(facts_of("make link", folder=folder), policy=remembering).kind == "ask"
