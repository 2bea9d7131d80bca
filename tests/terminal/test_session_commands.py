"""What is a command in a session, and what is words for the model; what `/usage` says (issue 15)."""

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import to_plain_text

from tables import each
from terminal.person import CTRL_C, CTRL_D, at_terminal
from terminal.running import at, running_lab
from turnwise.agent.formatting import PRICE_WANTED, PURPOSES, purposes_said
from turnwise.coding_agent.last_exchange import SessionSpent
from turnwise.journal.journal import SessionRow
from turnwise.rules.pricing import Cost
from turnwise.terminal.conversation import session_lines
from turnwise.terminal.words import COMMANDS, OTHER_NAMES, command_of, completer, is_command_in_passing, unknown_said
from turnwise.turn.events import Purpose


class NoModels:
    async def ask(self) -> None: ...

    def begun(self, begun: str) -> Iterable[str]:
        return ()


@each(
    ("line", "command"),
    [
        ("/usage", ("/usage", "")),
        (" /model gpt-5 ", ("/model", "gpt-5")),
        ("/cost", ("/usage", "")),
        ("/clear", ("/new", "")),
        ("?", ("/help", "")),
        ("help", ("/help", "")),
        ("exit", ("/quit", "")),
        ("/exit now", ("/quit", "now")),
        ("help me with this", None),
        ("? why", None),
        ("quit smoking", None),
        ("Go on.", None),
        ("", None),
    ],
)
def test_a_line_is_a_command_or_words(line: str, command: tuple[str, str] | None) -> None:
    """Proves: a word alone may be a command, a sentence that begins with it is none."""
    assert command_of(line) == command
    assert is_command_in_passing(line) == (command is not None)


@pytest.mark.parametrize("line", ["/etc/hosts is wrong", "// a comment", "/* one */", "/", "/quit\nsmoking"])
def test_what_may_be_pasted_in_mid_turn_is_no_command_then(line: str) -> None:
    """Proves: a path, a comment or several lines end no turn."""
    assert not is_command_in_passing(line)


def test_every_other_name_stands_for_a_command() -> None:
    """Proves: names that other programs taught lead somewhere; `/resume` says how."""
    assert set(OTHER_NAMES.values()) <= set(COMMANDS)
    assert "turnwise --continue" in unknown_said("/resume") and "--session" in unknown_said("/resume")
    assert "did you mean `/cost`?" in unknown_said("/cots")
    assert "`turnwise auth add` stores a key" in unknown_said("/login")


def test_a_command_for_the_shell_is_sent_to_no_model() -> None:
    """Proves (issue 46): in Claude Code `!git diff` runs it; here it cost a request. A blank before it makes it text."""
    assert command_of("!git diff") == ("!", "") and "Ctrl-Z leads to your shell" in unknown_said("!")
    assert command_of(" !important wins") is None


def test_a_slash_shows_the_commands_that_begin_so(folder: Path) -> None:
    """Proves (issue 46): as in other agents, without Tab; no server is asked for models before Tab."""
    with running_lab() as lab, at_terminal(*at(lab, "plain-answer"), cwd=folder, columns=80) as person:
        person.sees("\n>")
        person.types("/u")
        person.sees("/undo")
        person.types("sage\r")
        person.sees("0 turns, 0 requests")
        person.sees(">")
        person.types("/model plain")
        person.sees("/model plain")
        person.types(f"{CTRL_C}{CTRL_D}")
        person.leaves_by(0)
    assert not lab.requests


def test_tab_shows_every_command_with_its_meaning(tmp_path: Path) -> None:
    """Proves: also what a name of another program means here."""
    typed = completer(commands=COMMANDS, others=OTHER_NAMES, folder=tmp_path, models=NoModels())
    for begun, wanted in (("/", COMMANDS), ("/cl", {"/clear": COMMANDS["/new"]})):
        found = [*typed.get_completions(Document(begun), CompleteEvent())]
        assert {one.text: to_plain_text(one.display_meta) for one in found} == wanted


def test_tab_completes_prompts_of_servers(tmp_path: Path) -> None:
    """As soon as the server has said them; control characters of what they are for are spelled out."""
    prompts: dict[str, str] = {}
    typed = completer(
        commands=COMMANDS, others=OTHER_NAMES, folder=tmp_path, models=NoModels(), prompts=lambda: prompts
    )
    assert not [*typed.get_completions(Document("/gi"), CompleteEvent())]
    prompts["/git:review"] = "Review\x1b[2J"
    (found,) = typed.get_completions(Document("/gi"), CompleteEvent())
    assert (found.text, to_plain_text(found.display_meta)) == ("/git:review", "Review<U+001B>[2J")


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (Cost(usd=Decimal("0.02"), requests=2), ["cost $0.0200"]),
        (Cost(usd=Decimal("0.02"), requests=2, unknown=1), ["cost at least $0.0200, 1 request unknown", PRICE_WANTED]),
        (Cost(requests=1, unknown=1), ["cost unknown", PRICE_WANTED]),
        (Cost(), []),
    ],
)
def test_usage_says_what_it_cost(cost: Cost, said: list[str]) -> None:
    """Proves: in the words of the line under each answer and of `turnwise usage`."""
    assert SessionSpent(cost=cost).lines()[2:] == said


def test_what_requests_were_for_is_said_in_words() -> None:
    """`2 requests: 2 step` stood there (from a newcomer's trial). Each purpose that there is has its words."""
    assert purposes_said({"step": 2, "continue": 1, "compact": 3}) == "2 steps, 1 continuation, 3 summaries"
    assert purposes_said({"step": 1, "of-tomorrow": 2}) == "1 step, 2 of-tomorrow"
    assert {*PURPOSES} == {*get_args(Purpose)}


def test_sessions_are_listed_with_their_times() -> None:
    rows = [
        SessionRow(
            id=f"{number:08d}",
            folder="/w",
            title="fix it",
            created=0.0,
            updated=updated,
            turns=number,
            status=None,
            stop_reason=None,
            complete=None,
        )
        for number, updated in ((1, 86_400.0 * 3), (2, 0.0))
    ]
    first, second = session_lines(rows, here="00000002", now_s=86_400.0 * 3)
    assert first.startswith("  00000001  1 turn    just now, ") and first.endswith("  fix it")
    assert second.startswith("  00000002  2 turns   3 days ago, 19") and second.endswith("  fix it (this one)")
    assert first.index("fix") == second.index("fix")
