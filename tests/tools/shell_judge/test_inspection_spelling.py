"""Words as the judge reads them, compared with what a real bash makes of them."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tables import each
from turnwise.rules.allowances import allowing_options
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, PermissionVerdict, Policy, judge_permission
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.shell_judge.grammar import parse
from turnwise.tools.shell_judge.paths import Paths
from turnwise.tools.shell_judge.word_spelling import Spelled, spell_words
from waits import HANG_S

BASH = shutil.which("bash")
NAMES = [
    ".env",
    ".e",
    "a",
    "b",
    "ab",
    "a,b",
    "x.py",
    "-n",
    "[a]",
    "{a,b}",
    "a b",
    "1",
    "2",
    "]",
    "A",
    "env",
    "!",
    "^",
    "é",
    "éü",
    "aé",
]
WORDS = 4000
ALPHABET = [
    *"abA12.,,{{}}[]*?!^-~\\'\"e",
    "é",
    "??",
    "..",
    "{1..3}",
    "{a,",
    "[!",
    "[a-b]",
    ".env",
    "[[:alpha:]]",
    "x.py",
]


def drawn_words(*, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(ALPHABET, k=draw.randint(1, 9))) for _ in range(WORDS)]


def read_word(text: str) -> tuple[Spelled, ...] | None:
    """As an argument of a command; None where the judge is not certain of it, or it is not one word of the grammar."""
    root, problem = parse(f"p {text}")
    command = root.children[0] if root.children else None
    if problem or command is None or command.type != "command" or len(command.children) != 2:
        return None
    words = spell_words(command.children[1])
    return words if all(word.literal and not word.has_tilde for word in words) else None


@pytest.mark.costly
@pytest.mark.promise("safe:judged")
@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(("seed", "locale"), [(0, "C.UTF-8"), (1, "C.UTF-8"), (2, "C")])
def test_braces_and_brackets_come_to_what_bash_makes_of_them(seed: int, locale: str, tmp_path: Path) -> None:
    """Issue 13, line 11: where the judge is certain of a word, bash agrees; a glob may match less than the judge says. In the
    locale `C` a wildcard takes a byte, so `??` finds `é`."""
    for name in NAMES:
        (tmp_path / name).write_text("")
    certain = {text: words for text in drawn_words(seed=seed) if (words := read_word(text)) is not None}
    script = "p() { printf '%s\\0' \"$@\" $'\\n'; }\n" + "".join(f"p {text}\n" for text in certain)
    assert BASH is not None
    ran = subprocess.run(
        [BASH, "--norc", "-c", script], cwd=tmp_path, capture_output=True, timeout=HANG_S, check=False,
        env={"PATH": os.defpath, "LC_ALL": locale},
    )  # fmt: skip
    assert ran.stderr == b""
    paths = Paths(tmp_path, home=str(tmp_path))
    found = [line.rstrip("\0").split("\0") for line in ran.stdout.decode().split("\n\0")[:-1]]
    assert len(found) == len(certain)
    for (text, words), got in zip(certain.items(), found, strict=True):
        if any(word.is_glob for word in words):
            may_be = {word.text for word in words}
            for word in words:
                may_be.update(paths.expand(word.segments(), place=str(tmp_path)) or [])
            assert set(got) <= may_be | {""}, text
        else:
            assert [one for one in got if one] == [word.text for word in words if word.text], text
    assert sum(len(words) > 1 for words in certain.values()) > 50
    assert sum(word.is_glob for words in certain.values() for word in words) > 50


DOCUMENT = """git commit -m "$(cat <<'EOF'
Say $(rm x) and `rm y`

    as it is: "\\"
EOF
)\""""
ASKED = {
    "expanded": DOCUMENT.replace("'EOF'", "EOF"),
    "an operand": DOCUMENT.replace("cat ", "cat a.txt "),
    "standard input": DOCUMENT.replace("cat ", "cat - "),
    "an option": DOCUMENT.replace("cat ", "cat -n "),
    "another program": DOCUMENT.replace("cat ", "tac "),
    "an assignment": DOCUMENT.replace("cat ", "A=1 cat "),
    "a pipe": DOCUMENT.replace("<<'EOF'", "<<'EOF' | tee a.txt"),
    "a redirection": DOCUMENT.replace("<<'EOF'", "<<'EOF' >a.txt"),
    "an operand behind": DOCUMENT.replace("<<'EOF'", "<<'EOF' a.txt"),
    "two documents": DOCUMENT.replace("<<'EOF'", "<<'EOF' <<'EOF'").replace("EOF\n)", "EOF\nEOF\n)"),
    "a command behind": DOCUMENT.replace("EOF\n)", "EOF\ndate)"),
    "a command before": DOCUMENT.replace("cat ", "date; cat "),
    "in the background": DOCUMENT.replace("<<'EOF'", "<<'EOF' &"),
    "not quoted": DOCUMENT.replace('"$(', "$(").removesuffix('"'),
    "backquotes": 'git commit -m "`cat a.txt`"',
    "a substitution beside text": 'git commit -m "on $(date)"',
    "a long one": f'git commit -m "{"x" * 300} $(date)"',
    "redefined": f"cat() {{ date; }}; {DOCUMENT}",
    "another path": f"PATH=. {DOCUMENT}",
}


def of_commit(command: str, *, work: Path) -> tuple[CallFacts, PermissionVerdict]:
    facts = inspect_call(
        "1", tool="bash", effect="execute", arguments={"command": command}, workspace=work, home=work.parent
    )
    rule = PermissionRule(verdict="allow", tool="bash", command=("git", "commit", "*"))
    policy = Policy(rules=(rule,), workspace=str(work), home=str(work.parent), attended=True)
    return facts, judge_permission(facts, policy=policy)


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        (DOCUMENT, 'Say $(rm x) and `rm y`\n\n    as it is: "\\"'),
        (DOCUMENT.replace("'EOF'", '"EOF"'), 'Say $(rm x) and `rm y`\n\n    as it is: "\\"'),
        ("git commit -m \"$(cat <<-'E'\n\tone\n\t\n\tE\n)\"", "one"),
        ("git commit -m \"$(cat <<'E'\nE\n)\"", ""),
    ],
    ids=["quoted", "in double quotes", "without its tabs", "empty"],
)
def test_a_message_in_a_quoted_document_is_the_text_that_bash_makes_of_it(
    command: str, message: str, tmp_path: Path
) -> None:
    """`git commit *` allows it, as it does the same text in quotes. Bash itself says what the text is."""
    facts, verdict = of_commit(command, work=tmp_path)
    assert verdict.kind == "allow", verdict
    assert facts.shell is not None
    (commit,) = [one for one in facts.shell.commands if one.words[0].text == "git"]
    assert (commit.words[-1].text, commit.words[-1].literal) == (message, True)
    shown = subprocess.run(
        ["bash", "-c", command.replace("git commit -m", "printf %s", 1)], capture_output=True, check=True, text=True
    )
    assert shown.stdout == message


@pytest.mark.promise("safe:named")
@each("command", ASKED.values(), ids=ASKED)
def test_any_other_substitution_in_a_commit_is_asked_about(command: str, tmp_path: Path) -> None:
    """A rule for `git commit *` does not say what the message is."""
    (tmp_path / "a.txt").write_text("a")
    assert of_commit(command, work=tmp_path)[1].kind == "ask"


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ('git commit -m "add x"', "--allow 'bash(git commit -m *)'"),
        (DOCUMENT, "--allow 'bash(git commit -m *)'"),
        ('git add a && git commit -m "add x"', "--allow 'bash(git add a)' --allow 'bash(git commit -m *)'"),
        ("ls && git commit -m 'add x'", "--allow 'bash(git commit -m *)'"),
        ("make 'a b'; make 'a c'", "--allow 'bash(make *)'"),
        ("npm test", "--allow 'bash(npm test)'"),
        ("$X y", ""),
    ],
)
def test_a_denial_advises_what_is_as_narrow_as_the_need(command: str, advice: str, tmp_path: Path) -> None:
    """Not the whole shell where the beginning of the command can be said; what needs no permission is not named."""
    facts = inspect_call(
        "1", tool="bash", effect="execute", arguments={"command": command}, workspace=tmp_path, home=tmp_path.parent
    )
    policy = Policy(workspace=str(tmp_path), home=str(tmp_path.parent))
    assert allowing_options(facts, policy=policy) == advice
