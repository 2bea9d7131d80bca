"""Text is not taken for a secret file, and a secret file is not taken for text."""

from pathlib import Path

import pytest

from everyday import SHELL_ALLOWED, make_project, verdict_on
from tables import each

TEXTS = [
    "grep -rn process.env src",
    "grep -rn process.env .",
    "grep -e process.env f",
    "cd src && grep -rn process.env .",
    "timeout 5 grep -rn process.env src",
    "rg process.env src",
    "grep -n secret f",
    "git grep -n process.env",
    "git log -S process.env",
    "git log -Sprocess.env",
    "git log --grep=process.env",
    "ls | grep secret",
    "jq .token x.json",
    "jq -r .token x.json",
    "echo secret",
    "echo prod.env",
    "echo secret; make",
    "find . -name '*.pem'",
    "find . -name .env",
    "git commit -m secret",
    "git add . && git commit -m 'Remove prod.env'",
    "git checkout -b secrets",
    "git switch -c secrets",
    "npm run secrets",
    "npm ci && npm run secrets",
    "make secrets",
    "pytest -k secret",
    "kubectl get secret",
]
SECRETS = [
    "cat .env",
    "cat prod.env",
    "cat README.md .env",
    "cat ~/.ssh/id_rsa",
    "cat config/secrets.yml",
    "cp prod.env x",
    "dd if=other.pem",
    "git commit -F prod.env",
    "grep -f prod.env f",
    "grep -e x prod.env",
    "grep x prod.env -e y",
    # what the script makes, or hands on, may be the file
    "git stash pop && cat other.pem",
    "echo .env | tar -cT -",
    "echo prod.env | xargs cat",
    "echo .env | xargs cat",
    "find . -name .env | xargs cat",
    "find . -name '*.pem' -exec cat {} +",
    "cat $(find . -name .env)",
    'npm() { cat "$2"; }; npm run .env',
    # it lies in a folder that the command names
    "tar -C cfg -cf - dev.env",
    "tar -cf x --directory=cfg dev.env",
    "make -C cfg dev.env",
    "env -C cfg cat dev.env",
    "rg '' -g dev.env",
    "rg '' -g '*.env'",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = make_project(tmp_path_factory.mktemp("absences").resolve())
    for name in ("prod.env", "cfg/dev.env", "x.json", "f"):
        (found / name).parent.mkdir(exist_ok=True)
        (found / name).write_text("{}")
    return found


@each("command", TEXTS)
def test_text_is_not_taken_for_a_secret_file(command: str, project: Path) -> None:
    """Issue 13, line 18 of its tester: patterns, messages and names for which no file is there run where the shell is allowed."""
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "allow"


@each("command", SECRETS)
def test_a_secret_file_is_asked_about_however_it_is_named(command: str, project: Path) -> None:
    """What is there, what the script may make, and what it hands on to another command."""
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "ask"


@pytest.mark.parametrize("command", ["touch crontab", "touch mise.toml", "cp f turnwise.toml", "tee usercustomize.py"])
def test_a_word_for_which_nothing_is_there_may_name_what_runs_later(command: str, project: Path) -> None:
    """Only the question about secrets is passed over for such a word."""
    assert verdict_on(command, project=project, rules=SHELL_ALLOWED) == "ask"
