"""The commands as a whole: help, the demo, the lab's list, and `docs/cli.md`, which names every option."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from terminal.person import at_terminal
from terminal.running import Cli, begin, end
from turnwise._version import __version__
from turnwise.lab import builtin_scripts
from turnwise.rules.answer_room import OUTCOMES
from turnwise.terminal.exit_codes import NOTHING_CHANGED
from turnwise.terminal.group import COMMANDS, group

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def commands(found: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, found
    if isinstance(found, click.Group):
        context = click.Context(found)
        for child in found.list_commands(context):
            command = found.get_command(context, child)
            assert command is not None
            yield from commands(command, f"{name} {child}")


EVERY = dict(commands(group, "turnwise"))


def test_every_command_and_option_stands_in_the_docs() -> None:
    """In the section of its command, in code marks; and no option stands there that is none."""
    sections = {
        part.split("`")[1]: part for part in re.split(r"^## ", PAGE, flags=re.MULTILINE) if part.startswith("`")
    }
    assert sorted(sections) == sorted(name for name in EVERY if name not in ("turnwise", "turnwise sessions"))
    for name, section in sections.items():
        options = [param for param in EVERY[name].params if isinstance(param, click.Option)]
        known = {word for option in options for word in (*option.opts, *option.secondary_opts)}
        rows = re.findall(r"^\| (`-[^|]*`) \|", section, flags=re.MULTILINE)
        assert {word for row in rows for word in re.findall(r"`([^`]*)`", row)} == known, name


def test_every_exit_code_stands_in_the_docs() -> None:
    """The table of stop reasons is drawn from the same data as the program's exit codes."""
    for outcome in OUTCOMES:
        complete = "yes" if outcome.complete else "no"
        assert f"| {outcome.exit_code} | `{outcome.stop_reason}` | {complete} |" in PAGE


def test_a_pipe_into_nothing_is_told_in_one_line_how_it_is_read(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 15: `echo hi | turnwise` printed the whole help."""
    (tmp_path / "hi.txt").write_text("hi")
    with (tmp_path / "hi.txt").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        ran = cli()
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1) and "`turnwise -p`" in ran.err


def test_both_helps_name_every_exit_code_in_the_same_words(cli: Cli) -> None:
    """Issue 15: `run --help` lacked 1, 7 and 70, and the two lists differed."""
    tables = [
        re.findall(r"^ +(\d+)  +(\S.*)$", cli(*args, "--help").out, flags=re.MULTILINE) for args in (("run",), ())
    ]
    assert tables[0] == tables[1]
    assert {int(code) for code, _ in tables[0]} == {1, 2, 70, NOTHING_CHANGED} | {
        outcome.exit_code for outcome in OUTCOMES
    }


@pytest.mark.parametrize("name", [name for name in EVERY if name != "turnwise"])
def test_help_is_there_for_every_command(cli: Cli, name: str) -> None:
    """With -h too, on standard output; it ends with exit code 0 and has no line wider than 120."""
    args = name.split()[1:]
    long, short = cli(*args, "--help"), cli(*args, "-h")
    assert (long.code, long.err, long.out) == (0, "", short.out)
    assert long.out.startswith(f"Usage: {name} ") and max(map(len, long.out.splitlines())) <= 120


def test_turnwise_alone_shows_its_commands(cli: Cli) -> None:
    """On standard error, as it is no answer to anything; --version says which one it is."""
    ran = cli()
    assert (ran.code, ran.out) == (2, "")
    assert all(f"  {name} " in ran.err for name in COMMANDS)
    assert cli("--version") == (0, f"turnwise {__version__}\n", "")


def test_the_console_script_is_a_process_with_an_exit_code(folder: Path) -> None:
    """`python -m turnwise` and the script are the same function."""
    ran = end(begin("rnu", cwd=folder, real=True))
    assert (ran.code, ran.out) == (2, "") and ran.err.startswith("turnwise: no command `rnu`")


def test_the_lab_lists_its_scripts(cli: Cli) -> None:
    """Each with its title."""
    listed = cli("lab", "--list").out
    assert all(name in listed and script.title in listed for name, script in builtin_scripts().items())


@pytest.mark.promise(
    "step:one-request", "step:parallel-together", "end:cap", "assembly:id-every-chunk", "cut:never-run", "cut:continued"
)
def test_the_demo_is_as_promised(cli: Cli) -> None:
    """Five incidents on real HTTP: what turnwise did is right, and its requests are the promised number."""
    ran = cli("demo", "--json")
    rows = ran.events()
    assert (ran.code, ran.err) == (0, "")
    assert [(row["naive"]["requests"], row["turnwise"]["requests"]) for row in rows] == [
        (1, 2),
        (3, 2),
        (3, 3),
        (8, 8),
        (4, 3),
    ]
    assert [row["turnwise"]["wrong"] for row in rows] == [None] * 5


def test_the_demo_is_as_wide_as_columns_says(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: a table in a pipe fits the reader's window where that is known."""
    monkeypatch.setenv("COLUMNS", "72")
    table = cli("demo").out.partition("One turn, live")[0]
    assert max(map(len, table.splitlines())) == 72
    assert table.count("tokens more: what describes") == 4  # and 816 less where a call is cut


def test_the_demo_is_read_in_a_narrow_terminal(folder: Path) -> None:
    """Proves (issue 46): at 40 columns the table was one word wide and 180 rows long."""
    with at_terminal("demo", cwd=folder, columns=40) as person:
        person.leaves_by(0)
    assert max(map(len, person.said.split("\n"))) <= 40 and person.said.count("\n") < 100
    assert person.said.count("✓ turnwise (") == 5 and "All as promised." in person.said


def test_the_demo_shows_a_turn_on_a_real_file(cli: Cli) -> None:
    """The table, then one turn live, then the verdict."""
    ran = cli("demo")
    assert (ran.code, ran.err) == (0, "")
    for text in ("An id in every chunk (Koog)", "notes.txt after: status: done", "3 requests reported, 3 received"):
        assert text in ran.out
    assert ran.out.endswith("All as promised.\n")
