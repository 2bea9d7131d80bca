"""However a denied command is joined, wrapped or hidden, it is never allowed; and judging costs in proportion to the text."""

import shlex
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy, judge_permission
from turnwise.tools.shell_judge import inspect_call
from turnwise.tools.shell_judge.paths import Paths
from turnwise.tools.shell_judge.shell import inspect_script

TABLE: dict[str, dict[str, list[str]]] = tomllib.loads(
    Path(__file__).with_name("inspection_cases.toml").read_text(encoding="utf-8")
)
RULES = (
    PermissionRule(verdict="allow", effect="execute", source="user"),
    PermissionRule(verdict="allow", tool="bash", command=("*",), source="user"),
    *[
        PermissionRule(verdict="deny", tool="bash", command=pattern, source="user")
        for pattern in (("rm", "*"), ("curl", "*"), ("git", "push", "*"), ("sudo", "*"))
    ],
)


def is_whole(command: str) -> bool:
    """Whether it can stand before another one: no comment, here-document or `&` would swallow that."""
    return "#" not in command and "<<" not in command and not command.endswith("&")


DENIED = [command for command in TABLE["ruled"]["denied"] if is_whole(command)]
ANYTHING = [
    command
    for name, section in TABLE.items()
    if name not in ("unparsable", "heredocs")
    for column in ("reads", "asks")
    for command in section.get(column, [])
    if is_whole(command)
]
# In them DENIED stands for what is denied, QUOTED for it as one quoted word, ANY for any other command.
JOINS = TABLE["joins"]["ways"]


def put(template: str, *, denied: str, anything: str) -> str:
    return template.replace("ANY", anything).replace("QUOTED", shlex.quote(denied)).replace("DENIED", denied)


def verdict(command: str, *, workspace: Path) -> PermissionKind:
    facts = inspect_call(
        "1",
        tool="bash",
        effect="execute",
        arguments={"command": command},
        workspace=workspace,
        home=workspace,
        environment={},
    )
    policy = Policy(rules=RULES, workspace=str(workspace), home=str(workspace), attended=True)
    return judge_permission(facts, policy=policy).kind


@pytest.mark.promise("safe:judged")
@each("template", JOINS)
def test_no_way_to_join_makes_what_is_denied_allowed(template: str, tmp_path: Path) -> None:
    """Done when 5, one way at a time. Without what is denied in it, the judge is not merely afraid of the way."""
    assert verdict(put(template, denied="curl x", anything="ls"), workspace=tmp_path) != "allow"


@pytest.mark.promise("safe:judged")
@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    denied=st.sampled_from(DENIED),
    anything=st.lists(st.sampled_from(ANYTHING), min_size=1, max_size=3),
    templates=st.lists(st.sampled_from(JOINS), min_size=1, max_size=3),
)
def test_no_joining_makes_what_is_denied_allowed(
    tmp_path: Path, denied: str, anything: list[str], templates: list[str]
) -> None:
    """Done when 5: up to three ways, one in another, with any other commands."""
    command = denied
    for at, template in enumerate(templates):
        command = put(template, denied=command, anything=anything[at % len(anything)])
        if not is_whole(command):
            break
    assert verdict(command, workspace=tmp_path) != "allow"


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from(" \n\t;|&<>(){}[]$`'\"\\#!*?~=abcE1-/."), max_size=60))
def test_any_text_has_facts(tmp_path: Path, text: str) -> None:
    """They come for any text, and the same again."""
    first = inspect_script(text, paths=Paths(tmp_path, home=str(tmp_path)))
    assert first == inspect_script(text, paths=Paths(tmp_path, home=str(tmp_path)))


HUGE = {
    "one word of a megabyte": "ls " + "x" * 1_000_000,
    "commands of a megabyte": "ls; " * 250_000,
    "substitutions of a megabyte": "$(" * 500_000,
    "open brackets": "(" * 30_000,
    "nested substitutions": "echo " + "$(echo " * 5_000,
    "closed substitutions": "echo " + "$(echo " * 2_000 + ")" * 2_000,
    "backquotes": "echo " + "`" * 60_000,
    "here-documents": "cat <<E\n" * 4_000,
    "braces": "{" * 60_000,
    "assignments": "a=1 " * 15_000,
    "quotes": '"' * 60_001,
    "negations": "! " * 30_000 + "ls",
    "wrappers": "env " * 10_000 + "ls",
    "loose wrappers": "watch " * 10_000 + "ls",
    "tests": "[[ " + "( " * 20_000,
    "many paths": "cat " + "a " * 30_000,
    "many commands": "ls;" * 20_000,
}


@pytest.mark.costly
@each("name", list(HUGE))
def test_a_huge_or_deep_command_is_asked_about(name: str, tmp_path: Path) -> None:
    """A command of a megabyte, and those that nest or repeat for ever."""
    assert verdict(HUGE[name], workspace=tmp_path) == "ask"


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, in Python and below it."""
    count = 0

    def on_event(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "piece",
    [
        "cat a.txt b.txt; ",
        "FOO=1 ls $(pwd); ",
        "ls | ",
        "( ls ); ",
        "cat <<E\nx\nE\n",
        "{ ls > a; }; ",
        "f() { ls; }; ",
    ],
)
def test_the_cost_grows_with_the_length_of_the_script(piece: str, tmp_path: Path) -> None:
    """Work is counted, not timed: four times the text takes at most five times the work."""
    paths = Paths(tmp_path, home=str(tmp_path))
    inspect_script(piece * 2 + "true", paths=paths)  # loads the grammar
    short = calls_of(lambda: inspect_script(piece * 20 + "true", paths=paths))
    long = calls_of(lambda: inspect_script(piece * 80 + "true", paths=paths))
    assert long <= 5 * short
