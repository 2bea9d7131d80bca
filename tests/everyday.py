"""A small project, and how commands in it are judged, for tests of the judge. Nothing is run."""

from collections.abc import Sequence
from pathlib import Path

from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy, judge_permission
from turnwise.tools.shell_judge import inspect_call

SHELL_ALLOWED = (PermissionRule(verdict="allow", effect="execute", source="command line"),)
# What a command of each column gets: by default, and where the shell is allowed in general.
COLUMNS: dict[str, tuple[PermissionKind, PermissionKind]] = {
    "reads": ("allow", "allow"),
    "asks": ("ask", "allow"),
    "guarded": ("ask", "ask"),
}
_FILES = {
    "README.md": "# A project\nIt has text.\n",
    "src/app.py": "import os\n\ndef main():\n    print('main')\n",
    "src/util.py": "class Util:\n    pass\n",
    "tests/test_app.py": "def test_one():\n    pass\n",
    "data/a.csv": "a,1\nb,2\n",
    "data/b.csv": "a,3\nb,4\n",
    "package.json": '{"name": "app", "scripts": {"test": "true"}, "dependencies": {}}\n',
    "notes.txt": "line one\nline two\nerror 3\n",
    "my file.txt": "spaces\n",
    "run.sh": "true\n",
    ".env": "KEY=1\n",
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/objects/kept": "",
    ".git/refs/kept": "",
    ".git/config": "[core]\n\tbare = false\n",
}


def make_project(top: Path) -> Path:
    """The folder of the project; beside it lie a home folder with a key, and a folder with a file."""
    for name, text in _FILES.items():
        path = top / "app" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("home/.ssh/id_rsa", "other/file.txt"):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("outside\n")
    return top / "app"


def facts_of(command: str, *, project: Path, environment: dict[str, str] | None = None) -> CallFacts:
    return inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=project,
        home=project.parent / "home",
        environment=environment or {},
    )


def verdict_on(
    command: str,
    *,
    project: Path,
    rules: Sequence[PermissionRule] = (),
    attended: bool = True,
    environment: dict[str, str] | None = None,
) -> PermissionKind:
    """Where nobody is there (`attended=False`), what would be asked about is allowed."""
    home = str(project.parent / "home")
    policy = Policy(rules=tuple(rules), workspace=str(project), home=home, attended=attended, unattended="allow")
    return judge_permission(facts_of(command, project=project, environment=environment), policy=policy).kind
