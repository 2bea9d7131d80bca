"""What the judge calls harmless only reads: a real bash runs it, and strace tells what it did (promise safe:judged).

`scripts/judge.py` does the same with as many lines as one has time for.
"""

import itertools
from pathlib import Path

import pytest

from drawn_commands import Drawer
from judged_shell import escapes, is_harmless, make_room, missing_tools
from turnwise.tools.shell_judge.grammar import LEAVES, PARTS, parse

DRAWN = 5_000  # the rarest kind comes some ten times
RUN = 60
needs_tools = pytest.mark.skipif(bool(missing_tools()), reason=missing_tools() or "all are there")


@pytest.mark.costly
def test_the_drawn_lines_have_every_kind_and_every_field_of_the_grammar() -> None:
    """Issue 13, "Done when" 2: from all of the grammar; kinds and fields are those of the judge's own table."""
    drawer = Drawer(0)
    kinds: set[str] = set()
    fields: set[str | None] = set()
    for _ in range(DRAWN):
        nodes = [parse(drawer.line())[0]]
        while nodes:
            node = nodes.pop()
            kinds.add(node.type)
            fields.update(node.field_name_for_child(at) for at in range(node.child_count))
            nodes += node.children
    assert (set(PARTS) | LEAVES) <= kinds
    assert {field for parts in PARTS.values() for field in parts if field} <= fields


def test_the_same_seed_draws_the_same_lines() -> None:
    """So that what a run found can be found again."""
    first, second = Drawer(7), Drawer(7)
    assert [first.line() for _ in range(200)] == [second.line() for _ in range(200)]


@pytest.mark.costly
def test_a_fair_share_of_the_drawn_lines_is_judged_harmless(tmp_path: Path) -> None:
    """Issue 13, "Done when" 2: before the judge was made stricter, 192 of these 1,000 were; a fifth less is too afraid."""
    room, drawer = make_room(tmp_path / "room"), Drawer(2)
    harmless = sum(is_harmless(drawer.line(), room=room) for _ in range(1_000))
    assert harmless >= 0.8 * 192


@pytest.mark.promise("safe:judged")
@needs_tools
def test_lines_that_are_judged_harmless_only_read(tmp_path: Path) -> None:
    """No file is opened for writing, no secret and nothing outside is read, nothing else is run."""
    room, drawer = make_room(tmp_path.resolve() / "room"), Drawer(1)
    lines = (line for line in iter(drawer.line, None) if is_harmless(line, room=room))
    assert escapes(list(itertools.islice(lines, RUN)), room=room, log=tmp_path.resolve() / "log") == []


@needs_tools
@pytest.mark.parametrize(
    ("line", "did"),
    [
        ("cat .env", "reads the secret"),
        ("cat <.env", "reads the secret"),
        ("cat looks_fine.txt", "reads the secret"),
        ("cat leads_out", "outside"),
        ("ls ..", "outside"),
        ("head -n 1 /etc/hostname", "reads /etc/hostname"),
        (": >>notes.txt", "for writing"),
        (": 2>>notes.txt", "for writing"),
        ("rm no_such", "runs"),
        ("mkdir src", "mkdir"),
        ("chmod 644 notes.txt", "chmod"),
        ("ls | tee no/such", "runs"),
        ("python3 -c 1", "runs"),
        ("cat </dev/tcp/127.0.0.1/9", "AF_INET"),
    ],
)
def test_what_does_more_than_reading_is_seen(line: str, did: str, tmp_path: Path) -> None:
    """The judge of the judge, with lines that are not harmless; each is told beside harmless ones."""
    room = make_room(tmp_path.resolve() / "room")
    (found,) = escapes(["ls", line, "cat notes.txt"], room=room, log=tmp_path.resolve() / "log")
    assert (found.line, did in found.did) == (line, True)
