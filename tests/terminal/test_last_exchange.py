"""A continued session shows what it was about: the last exchange, shortened, where and when."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tables import each
from terminal.person import at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise.coding_agent.last_exchange import LastExchange, exchange_line, exchange_lines, when_said
from turnwise.lab import Lab

NOW = datetime(2026, 11, 23, 14, 5, 30, tzinfo=UTC).timestamp()
LONG = script("long", f'[[steps]]\ntext = "The beginning. {"word " * 400}The end."')
HOSTILE = r"a\u001b[2Jb\u202ec"
ANGRY = script("angry", f'[[steps]]\ntext = "{HOSTILE}"')


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    with running_lab([LONG, ANGRY]) as lab:
        yield lab


@pytest.fixture
def lab(module_lab: Lab) -> Lab:
    module_lab.reset()
    return module_lab


@each(
    ("seconds", "said"),
    [
        (-5, "just now, 14:05"),  # a clock that was set back
        (59, "just now, 14:04"),
        (60, "1 minute ago, 14:04"),
        (3599, "59 minutes ago, 13:05"),
        (3600, "1 hour ago, 13:05"),
        (7300, "2 hours ago, 12:03"),
        (15 * 3600, "15 hours ago, yesterday 23:05"),
        (25 * 3600, "1 day ago, yesterday 13:05"),
        (48 * 3600, "2 days ago, 2026-11-21 14:05"),
        (400 * 86_400, "400 days ago, 2025-10-19 14:05"),
    ],
)
def test_a_time_is_said_as_people_say_it(seconds: float, said: str) -> None:
    """How long ago, the time of day, and the day where it is another."""
    assert when_said(NOW - seconds, now_s=NOW, zone=UTC) == said


def test_a_time_is_that_of_the_persons_own_clock() -> None:
    """The zone decides which day it was, too."""
    assert when_said(NOW - 7200, now_s=NOW, zone=timezone(timedelta(hours=11))) == "2 hours ago, yesterday 23:05"


def exchange(**changed: str) -> LastExchange:
    told = {
        "session": "0" * 18 + "3f2a9c1e",
        "folder": "/work",
        "model": "openai:gpt-5",
        "said": "Go.",
        "answered": "Yes.",
    }
    return LastExchange(turns=3, at_s=NOW - 7200, **{**told, **changed})


def test_the_last_exchange_is_shown_with_where_and_when() -> None:
    """Three lines for a session, one for a run."""
    first, *rest = exchange_lines(exchange(), now_s=NOW)
    assert first.startswith("session 3f2a9c1e, 3 turns, in /work with openai:gpt-5; the last 2 hours ago, ")
    assert rest == ["  you: Go.", "  answer: Yes."]
    line = exchange_line(exchange(), now_s=NOW)
    assert line.startswith("continuing 3f2a9c1e (2 hours ago, ")
    assert line.endswith('; openai:gpt-5 in /work): "Go.", answered "Yes."')


@pytest.mark.parametrize(
    ("changed", "said", "in_line"),
    [
        ({"answered": ""}, "  answer: (no answer)", "no answer"),
        (
            {"answered": "", "end": "it was interrupted"},
            "  answer: (no answer, it was interrupted)",
            "(it was interrupted)",
        ),
        ({"end": "it ended by budget"}, "  answer: Yes. (it ended by budget)", '"Yes." (it ended by budget)'),
    ],
)
def test_how_it_ended_is_said_where_it_did_not_end_well(changed: dict[str, str], said: str, in_line: str) -> None:
    """No answer is not an empty one."""
    assert exchange_lines(exchange(**changed), now_s=NOW)[-1] == said
    assert exchange_line(exchange(**changed), now_s=NOW).endswith(in_line)


def test_long_texts_show_their_beginning_and_end_in_whole_words() -> None:
    """However long they are; on one line each."""
    text = "It begins here.\n\n" + "word " * 100_000 + "\nAnd ends there."
    (you, answer) = exchange_lines(exchange(said=text, answered=text), now_s=NOW)[1:]
    assert you.startswith("  you: It begins here. word ") and you.endswith("word …") and len(you) < 220
    assert answer.startswith("  answer: It begins here. word ") and answer.endswith(" word And ends there.")
    assert " word … word " in answer and len(answer) < 400 and "\n" not in answer
    assert len(exchange_line(exchange(said=text, answered=text), now_s=NOW)) < 250


def test_nothing_of_it_drives_the_terminal() -> None:
    """Prompt, answer, folder and model are strangers' words."""
    bad = "a\x1b[2Jb\u202ec\rd"
    told = exchange(said=bad, answered=bad, folder=f"/{bad}", model=f"openai:{bad}")
    for line in (*exchange_lines(told, now_s=NOW), exchange_line(told, now_s=NOW)):
        assert line.isprintable() and "<U+001B>[2J" in line


def test_a_continued_run_shows_it_in_one_line(cli: Cli, lab: Lab, folder: Path) -> None:
    """On standard error, or as a note of the JSON lines; the answer stays alone on standard output."""
    said = "tell me all about it, please, in many words"
    first = cli("run", said, "--json", *at(lab, "long")).events()[-1]
    ran = cli("run", "Again", "-c")
    (line,) = [one for one in ran.err.splitlines() if one.startswith("continuing ")]
    assert line.startswith(f"continuing {first['session'][-8:]} (")
    assert line.endswith(
        f'; openai_chat:long in {folder}): "tell me all about it, please, in many w…", '
        'answered "The beginning. word word word word word…"'
    )
    assert ran.out == f"{first['text']}\n"
    notes = [one["text"] for one in cli("run", "Again", "--session", first["session"], "--json").events()[:1]]
    assert notes[0].startswith("continuing ") and '"Again"' in notes[0]
    assert "continuing" not in cli("run", "Anew", *at(lab, "long")).err


def test_an_answer_that_was_cut_is_shown_from_its_beginning(cli: Cli, lab: Lab) -> None:
    """The response that continued it holds its end only."""
    text = cli("run", "Go.", "--json", *at(lab, "cut-text")).events()[-1]["text"]
    line = cli("run", "Again", "-c").err.partition('answered "')[2]
    assert lab.count() > 2 and text.startswith(line[:20])


def test_a_continued_session_begins_with_it(cli: Cli, lab: Lab, folder: Path) -> None:
    """At a terminal, without what would drive it; then `quit` leaves without a request."""
    cli("run", "Hello.", *at(lab, "angry"))
    with at_terminal("--continue", cwd=folder) as person:
        person.sees(f", 1 turn, in {folder} with openai_chat:angry; the last ")
        person.sees("  you: Hello.\n")
        person.sees("  answer: a<U+001B>[2Jb<U+202E>c")
        person.sees("\n>")
        person.types("quit\r")
        person.leaves_by(0)
    assert lab.count() == 1
