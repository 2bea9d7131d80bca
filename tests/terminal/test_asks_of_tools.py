"""What a tool asks while it runs, at the terminal: shown as the tool's own question, and answered in words or by a number."""

import io
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from turnwise.coding_agent.asked_calls import AskSurroundings
from turnwise.rules.permissions import Policy
from turnwise.running.approvals import Asking
from turnwise.running.watcher_events import AskClosed, AskOpened
from turnwise.terminal.screen import describe_event
from turnwise.terminal.terminal_asks import TerminalApprover
from turnwise.testing import FakeClock
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.turn.config import Approval, OneAsk
from turnwise.vocab import ToolCall

CALL = ToolCall(id="a", name="paint", arguments="{}")
ASK = OneAsk(
    call=CALL,
    arguments="{}",
    subject="Which colour?\x1b[2J",
    kind="question",
    why="there are two pots",
    options=("red", "blue"),
    can_wait=False,
    by="tool",
)


class Said:
    """Stands in for the terminal: it keeps what is said, and answers with what was typed."""

    def __init__(self, typed: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._typed = list(typed)

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        yield

    def call(self, why: str) -> None:
        """Nobody looks elsewhere."""

    def say(self, line: str, *, as_it_is: bool = False) -> None:
        self.lines.append(line)

    async def line(
        self, question: Callable[[], str], *, default: str = "", ticks: bool = False, fresh: bool = False
    ) -> str:
        self.lines.append(question())
        return self._typed.pop(0)


async def answered(typed: Sequence[str], folder: Path) -> tuple[Sequence[Approval], str]:
    terminal = Said(typed)

    async def inspect(calls: Any) -> Any:
        raise AssertionError("a question is no call to be judged")

    approver = TerminalApprover(
        cast("Any", terminal),
        policy=Policy(attended=True),
        around=AskSurroundings(offers={}, inspect=inspect, workspace=WorkspacePaths(folder), clock=FakeClock()),
        stop=lambda: None,
        before_command=lambda: None,
    )
    return await approver(Asking(asks=(ASK,), deadline_s=30.0, path=("helper",))), "\n".join(terminal.lines)


@pytest.mark.parametrize(
    ("typed", "verdict", "text"),
    [(["2"], "allow", "blue"), (["none of them"], "allow", "none of them"), (["9", ""], "deny", "")],
)
async def test_a_tools_question_is_answered(typed: Sequence[str], verdict: str, text: str, tmp_path: Path) -> None:
    """It names the tool, who leads to it, the reason and the options; control characters are spelled out."""
    (answer,), shown = await answered(typed, tmp_path)
    assert (answer.verdict, answer.text) == (verdict, text)
    assert "paint asks (asked by helper):" in shown and "the model" not in shown
    assert "asked because: there are two pots" in shown and "2. blue" in shown
    assert "(30 s, then denied)" in shown and "\x1b[2J" not in shown


def test_watchers_lines_name_the_question_and_the_answer() -> None:
    """On the screen of a run."""
    opened = AskOpened(CALL, "Which colour?\x1b[2J", ("red",), 30.0)
    closed = AskClosed(CALL, Approval(call_id="a", verdict="allow", text="red"))
    told = [describe_event(one, stream=io.StringIO()) for one in (opened, closed)]
    assert told == ["· paint asks: Which colour?<U+001B>[2J", "· paint was answered: allow (person) red"]
