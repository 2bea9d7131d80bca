"""The one table of names: which files are secret, which run later by themselves, and that there is no second one."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import IN_HOME, LATER, OPEN, SECRETS
from tables import each
from turnwise.rules import guarded_names
from turnwise.rules.guarded_names import is_secret, runs_later
from turnwise.rules.permission_facts import PathFact
from turnwise.rules.permission_paths import guard_of

SOURCE = Path(guarded_names.__file__).parents[1]
HOME = "/home/me"


@pytest.mark.promise("safe:named")
@each("name", SECRETS)
def test_a_secret_is_known_wherever_it_stands(name: str) -> None:
    """Issue 13, line 2: relative, below a folder, absolute."""
    assert is_secret(name) and is_secret(f"deep/{name}") and is_secret(f"{HOME}/work/{name}")


@pytest.mark.parametrize("name", IN_HOME)
def test_some_folders_are_secret_in_a_home_folder_only(name: str) -> None:
    """A project's `.claude` is there to be read, the user's holds conversations."""
    assert is_secret(f"{HOME}/{name}", home=HOME) and is_secret(f"~/{name}")
    assert not is_secret(f"{HOME}/work/{name}", home=HOME) and not is_secret(name, home=HOME)


@pytest.mark.promise("safe:named")
@each("name", LATER)
def test_what_runs_later_by_itself_is_known_wherever_it_stands(name: str) -> None:
    """Issue 13, line 8: shells, editors, interpreters, git's hooks, servers and assistants read it without being told."""
    assert runs_later(name) and runs_later(f"deep/{name}") and runs_later(f"{HOME}/work/{name}", home=HOME)


@each("name", OPEN)
def test_templates_sources_and_ordinary_files_are_open(name: str) -> None:
    """What is asked about needlessly is approved unread. A `Makefile` or a test runs where somebody runs it, like any source."""
    for path in (name, f"deep/{name}", f"{HOME}/work/{name}"):
        assert not is_secret(path, home=HOME) and not runs_later(path, home=HOME)


@pytest.mark.promise("safe:named")
@given(name=st.sampled_from([*SECRETS, *LATER]), upper=st.lists(st.booleans(), min_size=1, max_size=40))
def test_case_makes_no_difference(name: str, upper: list[bool]) -> None:
    """On macOS and Windows `.ENV` is `.env`."""
    spelled = "".join([each.upper() if upper[at % len(upper)] else each for at, each in enumerate(name)])
    assert (is_secret(spelled), runs_later(spelled)) == (is_secret(name), runs_later(name))


@each(
    "spelling",
    [
        "./.env",
        "a/../.env",
        ".env/.",
        "x\\.env",
        ".e\u200dnv",
        "\uff0eenv",
        ".config/./gh/x",
        ".config/x/../gh/y",
        ".ssh/../a",
    ],
)
def test_spelling_makes_no_difference(spelling: str) -> None:
    """`.` and `..`, backslashes, characters that HFS+ ignores. What passes through a secret folder counts as lying in it."""
    assert is_secret(spelling)


@given(path=st.text(), home=st.text())
def test_any_text_can_be_looked_up(path: str, home: str) -> None:
    """Names come from strangers."""
    assert isinstance(is_secret(path, home=home), bool) and isinstance(runs_later(path, home=home), bool)


def test_what_is_both_is_secret_to_readers_and_guarded_from_writers() -> None:
    """`.envrc` holds tokens and is run by direnv."""
    fact = PathFact(given=".envrc", resolved="/w/.envrc", lexical="/w/.envrc", inside=True)
    assert guard_of(fact, access="read") == guard_of(fact, access="write") == "secret"


@pytest.mark.costly
@pytest.mark.promise("safe:named")
def test_there_is_no_second_table() -> None:
    """A fact stands once: no other file of the house lists two names of secrets, or three of what runs later, in one constant or
    one collection of constants. (Folders of version control are named for other reasons.)"""
    secrets = {*guarded_names.SECRET_NAMES, *guarded_names.SECRET_FOLDERS, *guarded_names.SECRET_ENDINGS}
    secrets |= {*guarded_names.SECRET_STEMS, *guarded_names.SECRET_PLACES, *guarded_names.SECRET_OF_SYSTEM}
    secrets -= {
        "secret",
        "secrets",
        "credential",
        "credentials",
        ".secret",
        ".secrets",
        ".key",
        ".token",
        ".password",
        ".env",
    }
    secrets -= {"access_token", "refresh_token", "auth_token"}
    later = {*guarded_names.LATER_NAMES, *guarded_names.LATER_FOLDERS, *guarded_names.LATER_ENDINGS}
    later -= {".git", ".hg", ".svn", ".jj", ".bzr", "head", ".direnv", "turnwise.toml", "pyproject.toml"}
    found: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        if path != Path(guarded_names.__file__):
            for node in ast.walk(ast.parse(path.read_text())):
                words = {word.strip("*/`,;()").casefold() for text in _texts(node) for word in text.split()}
                if len(words & secrets) > 1 or len(words & later) > 2:
                    found.append(
                        f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}: {words & (secrets | later)}"
                    )
    assert found == []


def _texts(node: ast.AST) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return [each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        case ast.Dict(keys=keys):
            return [each.value for each in keys if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        case _:
            return []
