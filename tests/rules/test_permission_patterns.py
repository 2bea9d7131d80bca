"""Patterns of rules in their plain form: what is written in another way means the same, and never nothing (issue 13, 14)."""

import os
import re
import shlex
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.errors import CallerError
from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permissions import Policy, judge_permission, plain_path
from turnwise.settings.permission_files import parse_rule
from turnwise.tools.shell_judge import inspect_call

WORKSPACE, HOME = "/w", "/h"
NAMES = st.sampled_from(["customers", "src", "a b", ".env", "x.py", "...", "été", "a~b", "$x", "-rf"])


def verdict(pattern: str, *, path: str, kind: str = "deny") -> str:
    """What becomes of writing `path` under this one rule."""
    rule = parse_rule({kind: "*", "path": pattern}, source="user", where="here")
    inside = path == WORKSPACE or path.startswith(f"{WORKSPACE}/")
    fact = PathFact(given=path, resolved=path, lexical=path, inside=inside, access="write")
    facts = CallFacts(call_id="1", tool="write", effect="write", paths=(fact,))
    return judge_permission(facts, policy=Policy(rules=(rule,), workspace=WORKSPACE, home=HOME, attended=True)).kind


@each(
    ("written", "plain"),
    [
        ("customers//**", "customers/**"),
        ("customers/./**", "customers/**"),
        ("./customers/**", "customers/**"),
        ("customers/", "customers/**"),
        ("customers", "**/customers/**"),
        ("./customers", "customers/**"),
        ("a/**/**/b", "a/**/b/**"),
        (".", "./**"),
        ("**", "./**"),
        ("//etc//hosts", "/etc/hosts/**"),
        ("~/", "~/**"),
    ],
)
def test_a_prohibition_is_read_in_its_plain_form(written: str, plain: str) -> None:
    """Proves: the examples of the issue, and the others of their class; that of a folder holds for all below it."""
    assert plain_path(written, where="here", widely=True) == plain
    assert plain_path(plain, where="here", widely=True) == plain


@pytest.mark.parametrize(
    ("pattern", "path"),
    [("./x", "/w/a/x"), ("x", "/w/x/below"), ("src/*.py", "/w/src/a.py/below"), (".env", "/w/.env/below")],
)
def test_a_permission_stays_as_narrow_as_it_was_written(pattern: str, path: str) -> None:
    """Proves: nothing is added to what is allowed; `./x` is the one right in the workspace."""
    assert verdict(pattern, path=path, kind="allow") == "ask"


roots = st.sampled_from(["", "", "./", "/", "~/"])
lists_of_segments = st.lists(NAMES | st.sampled_from(["*", "**", "?", "*.py", "a*", "?b"]), min_size=1, max_size=4)
noises = st.sampled_from(["", "", "/", "./", "/./", "//"])
between = st.sampled_from(["x", "x/y"])
all_below = st.sampled_from(["", "deep", "deep/er.txt"])


@st.composite
def written_paths(draw: st.DrawFn) -> tuple[str, str]:
    """A pattern with noise, and a path that it plainly means: as `normpath` reads it, with something for each wildcard."""
    root = draw(roots)
    segments = draw(lists_of_segments)
    written, meant = "", ""
    for at, segment in enumerate(segments):
        noise = draw(noises) if at or root else ""
        written += noise + segment + "/"
        filled = segment.replace("**", draw(between) if segment == "**" else "*")
        meant += filled.replace("*", "z").replace("?", "q") + "/"
    if not draw(st.booleans()):
        written = written.rstrip("/")
    below = draw(all_below)
    home = {"/": "/", "~/": f"{HOME}/"}.get(root, f"{WORKSPACE}/")
    return root + written, os.path.normpath(home + meant + below)


@pytest.mark.costly
@settings(max_examples=examples(1500), deadline=None, derandomize=True)
@given(pair=written_paths())
@example(pair=("customers//**", "/w/customers/a.csv"))
@example(pair=("**", "/w"))
@example(pair=("a/**/**/b", "/w/a/b"))
@example(pair=("./!x", "/w/!x"))
def test_a_prohibition_matches_what_was_plainly_written(pair: tuple[str, str]) -> None:
    """Proves: whatever the noise (`//`, `/./`, a trailing slash), the path that it means is denied, and so is all below it."""
    written, meant = pair
    assume(not re.search(r"^[ $!]|(?<!\\) $", written))
    assert verdict(written, path=meant) == "deny", (written, meant)
    assert verdict(written, path=meant.upper()) == "deny"


@settings(max_examples=examples(1500), deadline=None, derandomize=True)
@given(written=st.text(alphabet="ab/.*?\\ ~[]{}!$\0\n-", min_size=1, max_size=9))
def test_every_pattern_that_is_accepted_matches_something(written: str) -> None:
    """Proves: a pattern is refused with its place, or there is a path that it matches; none protects nothing."""
    try:
        rule = parse_rule({"deny": "*", "path": written}, source="user", where="`f`: `rules[0]`")
    except CallerError as error:
        assert str(error).startswith("`f`: `rules[0]`: `path` ")
        return
    assert rule.path is not None
    assert plain_path(rule.path, where="", widely=True) == rule.path
    filled = re.sub(r"\\(.)|\*+|\?", lambda found: found[1] or "z", written)
    root = HOME + filled[1:] if re.match(r"~(/|$)", written) else os.path.join(WORKSPACE, filled)  # noqa: PTH118
    assert verdict(written, path=os.path.normpath(root).replace("//", "/")) == "deny"


WORDS = st.text(alphabet="abA1=-_./:@%+,^ '\"*?[]{}~#!$;|&<>()\\\n\t", min_size=1, max_size=6)


@settings(max_examples=examples(800), deadline=None, derandomize=True)
@given(words=st.lists(WORDS, min_size=1, max_size=3))
@example(words=["A=1", "x"])
@example(words=["git", "push", "**"])
def test_a_denied_command_is_denied_as_it_was_written(words: list[str]) -> None:
    """Proves: for every list of words that is accepted, the command of these words, quoted for a shell, is denied."""
    try:
        rule = parse_rule({"deny": "bash", "command": words}, source="user", where="here")
    except CallerError as error:
        assert str(error).startswith("here: `command` ")
        return
    meant = [re.sub(r"\\(.)|\*+|\?", lambda found: found[1] or "@", word, flags=re.DOTALL) for word in words]
    script = shlex.join(meant)
    facts = inspect_call("1", tool="bash", effect="execute", arguments={"command": script}, workspace=Path("/nowhere"))
    policy = Policy(rules=(rule,), workspace="/nowhere", home=HOME, attended=True, unattended="allow")
    found = judge_permission(facts, policy=policy)
    assert found.kind == "deny" or (facts.shell is not None and not facts.shell.parsed), (words, script, found)
