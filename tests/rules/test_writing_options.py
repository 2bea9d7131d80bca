"""A pattern that allows a command does not allow the options with which the command writes or runs something."""

import re
import shlex

import pytest

from tables import each
from turnwise.rules.permission_commands import WRITING
from turnwise.rules.permission_facts import CallFacts, CommandFact, ShellFacts, Word
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy, judge_permission


def judged(line: str, *patterns: str, unknown: str = "") -> PermissionKind:
    rules = tuple(
        PermissionRule(verdict="allow", tool="bash", command=tuple(shlex.split(pattern)), source="command line")
        for pattern in patterns
    )
    words = tuple(Word(word, word != unknown) for word in shlex.split(line))
    facts = CallFacts(
        call_id="1", tool="bash", effect="execute", shell=ShellFacts(commands=(CommandFact(words=words, text=line),))
    )
    return judge_permission(facts, policy=Policy(rules=rules, workspace="/w", home="/h", attended=True)).kind


ALLOWED = [
    ("git log --oneline -5", "git log *"),
    ("git log -p --stat -- src", "git log *"),
    ("git ls-files -o", "git ls-files *"),
    ("git commit -m 'output --exec'", "git commit *"),
    ("git push -o ci.skip", "git push *"),
    ("find . -name x -type f", "find *"),
    ("grep -rno x .", "grep *"),
    ("rg -n x src", "rg *"),
    ("rg --pretty x", "rg *"),
    ("sed -n 1,20p a.txt b.txt", "sed *"),
    ("sed 's/a/b/g; 3d' src/a.py", "sed *"),
    ("sed -e 's|a|b|' -e '/x/d' a.txt", "sed *"),
    ("sort -k2o -t o a.txt", "sort *"),
    ("sort -rn a.txt", "sort *"),
    ("tar -tzf x.tar.gz", "tar *"),
    ("tar xzf x.tar.gz -C out", "tar *"),
    ("curl -sSL https://x -o -", "curl *"),
    ("curl -s -o /dev/null -w '%{http_code}' https://x", "curl *"),
    ("curl -Hfoo:o https://x", "curl *"),
    ("wget -qO- https://x", "wget *"),
    ("wget -q -O - https://x", "wget *"),
    ("pytest -x -q -k 'a and o' -n 2", "pytest *"),
    ("pytest --cov=src --cov-report=term-missing", "pytest *"),
    ("npm test -- --watch=false", "npm test *"),
    ("npm run build", "npm *"),
    ("cargo test -p x", "cargo *"),
    ("go test -run X ./...", "go test *"),
    ("make -j4 test V=1", "make *"),
    ("make test", "make *"),
    ("docker ps -a", "docker *"),
    ("docker logs -f app", "docker logs *"),
    ("awk -F: '{print $1}' a.txt", "awk *"),
    ("awk -v x=1 '$3 > 5 || $1 >= 2 {print $1}' a.txt", "awk *"),
    ("ruff check src", "ruff check *"),
    ("unheard-of --output=x", "unheard-of *"),
    ("sed -n -- 1,20p a.txt", "sed *"),
    ("sed --quiet 1,20p a.txt", "sed *"),
    ("pytest -kspeed -rapo -n2", "pytest *"),
    ("wget -qO- -X a https://x", "wget *"),
]
ASKED = [
    ("git log --output=x", "git log *"),
    ("git log --outp=x", "git log *"),
    ("git log --output x", "git log *"),
    ("git log --ext-diff", "git log *"),
    ("git diff --textconv", "git diff *"),
    ("git show --ext-d", "git *"),
    ("git grep -Oless x", "git grep *"),
    ("git grep --open-files-in-pager=less x", "git grep *"),
    ("git archive -o x HEAD", "git archive *"),
    ("git format-patch -o x HEAD~1", "git format-patch *"),
    ("git rebase -x make main", "git rebase *"),
    ("git clone -u ./x y", "git clone *"),
    ("git fetch --upload-pack=./x", "git fetch *"),
    ("git -c core.pager=./x log", "git *"),
    ("git -C sub log", "git *"),
    ("git -p log", "git *"),
    ("git --exec-path=x log", "git *"),
    ("find . -delete", "find *"),
    ("find . -fprint x", "find *"),
    ("find . -exec touch x ;", "find *"),
    ("rg --pre ./x y", "rg *"),
    ("rg --pre=./x y", "rg *"),
    ("rg -z y", "rg *"),
    ("rg --hostname-bin ./x y", "rg *"),
    ("sed -i s/a/b/ a.txt", "sed *"),
    ("sed -ni s/a/b/ a.txt", "sed *"),
    ("sed --in-place s/a/b/ a.txt", "sed *"),
    ("sed --in s/a/b/ a.txt", "sed *"),
    ("sed 'w out' a.txt", "sed *"),
    ("sed -n '/x/w out' a.txt", "sed *"),
    ("sed 's/a/b/w out' a.txt", "sed *"),
    ("sed 's/a/id/e' a.txt", "sed *"),
    ("sed '1e id' a.txt", "sed *"),
    ("sed -e p -e 'e id' a.txt", "sed *"),
    ("sed '-ee id' a.txt", "sed *"),
    ("sed -f x a.txt", "sed *"),
    ("sort -o x a.txt", "sort *"),
    ("sort -ro x a.txt", "sort *"),
    ("sort --outp=x a.txt", "sort *"),
    ("sort --compress-program=./x a.txt", "sort *"),
    ("tar --to-command=./x -xf x.tar", "tar *"),
    ("tar --to-c ./x -xf x.tar", "tar *"),
    ("tar -xIf ./x x.tar", "tar *"),
    ("tar xIf ./x x.tar", "tar *"),
    ("tar --checkpoint=1 --checkpoint-action=exec=id -cf x.tar .", "tar *"),
    ("curl -o x https://x", "curl *"),
    ("curl -sSLo x https://x", "curl *"),
    ("curl -O https://x/a", "curl *"),
    ("curl --output x https://x", "curl *"),
    ("curl -K x", "curl *"),
    ("curl -w '%output{x}a' https://x", "curl *"),
    ("wget -O x https://x", "wget *"),
    ("wget -qOx https://x", "wget *"),
    ("wget -e use_proxy=1 https://x", "wget *"),
    ("wget --use-askpass=./x https://x", "wget *"),
    ("pytest -p x", "pytest *"),
    ("pytest --basetemp=src", "pytest *"),
    ("pytest --junitxml=x", "pytest *"),
    ("pytest -o addopts=-px", "pytest *"),
    ("pytest --cov-report=html:x", "pytest *"),
    ("npm test --script-shell=./x", "npm test *"),
    ("npm --prefix x test", "npm *"),
    ("npm install -g x", "npm install *"),
    ("cargo test --config x", "cargo *"),
    ("cargo +x test", "cargo *"),
    ("go test -exec ./x ./...", "go test *"),
    ("go build -toolexec=./x", "go build *"),
    ("go build -o x", "go *"),
    ("make SHELL=./x", "make *"),
    ("make -f x", "make *"),
    ("make --eval=x:", "make *"),
    ("make CC='id;'", "make *"),
    ("docker run -v /:/x y", "docker *"),
    ("docker -H x ps", "docker *"),
    ("docker run --privileged y", "docker run *"),
    ("awk '{print > \"x\"}' a.txt", "awk *"),
    ("awk 'BEGIN{system(\"id\")}'", "awk *"),
    ("awk '{print | \"sh\"}' a.txt", "awk *"),
    ("awk -f x a.txt", "awk *"),
    ("gawk -i inplace 1 a.txt", "gawk *"),
    ("ruff check --fix src", "ruff check *"),
    ("ruff check --cache-dir x src", "ruff check *"),
    ("sed -- 'w out' a.txt", "sed *"),
    ("sed --line-length 5 'w out' a.txt", "sed *"),
    ("docker run --env-file x y", "docker run *"),
    ("docker build -f x .", "docker build *"),
    ("/usr/bin/sort -o x a.txt", "/usr/bin/sort *"),
]


@each(("line", "pattern"), ALLOWED)
def test_a_pattern_allows_what_only_shows(line: str, pattern: str) -> None:
    """Issue 13, line 7: the everyday use of an allowed command goes on without asking."""
    assert judged(line, pattern) == "allow"


@each(("line", "pattern"), ASKED)
def test_a_pattern_does_not_allow_options_that_write_or_run(line: str, pattern: str) -> None:
    """Issue 13, line 7; a rule that spells the words out allows them."""
    assert judged(line, pattern) == "ask"
    exact = " ".join(shlex.quote(word.replace("*", r"\*").replace("?", r"\?")) for word in shlex.split(line))
    destroys = line in ("find . -delete", "git clone -u ./x y")
    assert judged(line, pattern, exact) == "allow" or destroys


def test_a_pattern_that_spells_an_option_allows_it_with_any_value() -> None:
    """Somebody has meant it."""
    assert judged("sort -o x a.txt", "sort -o *") == "allow"
    assert judged("git log --output=x", "git log --output=*") == "allow"
    assert judged("git log --output=x", "git log --out*") == "ask"
    assert judged("git log --output=x", "git log --output=x *") == "allow"
    assert judged("sort -r -o x a.txt", "sort -o *") == "ask"


@pytest.mark.parametrize("pattern", ["git log *", "sort *", "find *", "curl *"])
def test_a_word_that_may_come_to_such_an_option_is_not_allowed_by_a_pattern(pattern: str) -> None:
    """`X=--output=file; git log $X`."""
    name = pattern.removesuffix(" *")
    assert judged(f"{name} $X", pattern, unknown="$X") == "ask"
    assert judged(f"{name} src/$X", pattern, unknown="src/$X") == "allow"


def test_the_shell_in_general_allows_them() -> None:
    """`--allow bash` is not a pattern."""
    facts = ShellFacts(commands=(CommandFact(words=(Word("sort"), Word("-o"), Word("x")), text="sort -o x"),))
    call = CallFacts(call_id="1", tool="bash", effect="execute", shell=facts)
    rules = (PermissionRule(verdict="allow", effect="execute"),)
    policy = Policy(rules=rules, workspace="/w", home="/h", attended=True)
    assert judge_permission(call, policy=policy).kind == "allow"


@each("name", [name for name, kind in WRITING.items() if kind.long])
def test_every_beginning_of_a_long_option_counts(name: str) -> None:
    """Programs take abbreviations, and the next version may take a shorter one."""
    for option in WRITING[name].long:
        for length in range(3, len(option) + 1):
            short = option[:length]
            assert judged(f"{name} {short}", f"{name} *") == "ask" or re.fullmatch(WRITING[name].harmless, short), short
