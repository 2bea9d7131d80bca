"""What runs tell Python's `logging`, and what they keep to themselves."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from flat_agents import flat_agent
from turnwise import Approval, Asking, Policy, RetryPolicy, ToolFault, tool
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.vocab import Fault, FaultKind

BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy with the secret", status=503)
RUNS, CONTENT = logging.getLogger("turnwise.runs"), logging.getLogger("turnwise.content")


@tool(effect="write")
def note(text: str) -> str:
    """Note."""
    raise ToolFault(f"no room for {text}")


def agent_of(script: list[Any], **options: Any) -> Any:
    return flat_agent("openai_chat:m", base_url="http://x", transport=ScriptedModel(script), tools=[note], **options)


@pytest.fixture
def content() -> Iterator[None]:
    before = CONTENT.level
    CONTENT.setLevel(logging.DEBUG)
    yield
    CONTENT.setLevel(before)


async def noted(caplog: pytest.LogCaptureFixture, *, level: int) -> list[tuple[int, str]]:
    clock = FakeClock()

    def approve(asking: Asking) -> list[Approval]:
        return [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in asking.asks]

    agent = agent_of(
        [BUSY, call("note", text="my secret"), "The secret is noted."],
        policy=Policy(attended=True),
        approver=approve,
        clock=clock,
        retry=RetryPolicy(attempts=2),
    )
    with caplog.at_level(level):
        run = agent.start("Note my secret.")
        while not run.has_ended:
            await clock.advance(0.1)
        await run
    return [
        (one.levelno, one.getMessage()) for one in caplog.records if one.name in ("turnwise.runs", "turnwise.content")
    ]


@pytest.mark.promise("run:tool-fault")
async def test_a_run_is_logged_at_fitting_levels_and_without_content(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: beginning, end and asks at INFO, a retry at WARNING, requests and tools at DEBUG; no prompt, argument, result or
    answer, nor a provider's words, though the root logger takes everything."""
    lines = await noted(caplog, level=logging.DEBUG)
    said = "\n".join([text for _, text in lines])
    assert "secret" not in said
    of = {level: [text.partition(": ")[2] for one, text in lines if one == level] for level in (10, 20, 30)}
    assert [text.partition(":")[0] for text in of[logging.INFO]] == [
        "begins",
        "asks about 1 calls (note), for 300 s",
        "ends",
    ]
    assert of[logging.INFO][-1].startswith("ends: answered; 2 steps, 3 requests, cost unknown, ")
    (retry,) = of[logging.WARNING]
    assert retry.startswith("request 1 is given up (overloaded, 503); the next one leaves in ")
    assert [text.split(" ")[0] for text in of[logging.DEBUG]].count("request") == 6
    assert any(text.startswith("tool note ended with an error after") for text in of[logging.DEBUG])
    assert all(getattr(one, "turnwise_turn", "") for one in caplog.records if one.name == "turnwise.runs")


async def test_content_is_logged_where_the_program_asks_for_it(caplog: pytest.LogCaptureFixture, content: None) -> None:
    """Proves: a level of its own logger is the switch."""
    said = "\n".join([text for _, text in await noted(caplog, level=logging.DEBUG)])
    for text in (
        "Note my secret.",
        '{"text":"my secret"}',
        "no room for my secret",
        "The secret is noted.",
        "busy with",
    ):
        assert text in said


async def test_a_run_without_a_reader_makes_no_line_and_no_event(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: with the level of warnings, Python's default, only the retry is written; with none, nothing."""
    lines = await noted(caplog, level=logging.WARNING)
    assert [level for level, _ in lines] == [logging.WARNING]
    caplog.clear()
    assert await noted(caplog, level=logging.CRITICAL) == []


async def test_a_log_that_raises_ends_no_run() -> None:
    """Proves: a filter of the program's that fails costs lines, and nothing else."""

    def broken(_: logging.LogRecord) -> bool:
        raise RuntimeError("no log today")

    before = RUNS.level
    RUNS.addFilter(broken)
    RUNS.setLevel(logging.DEBUG)
    try:
        assert (await agent_of([call("note", text="a"), "So."]).run("Go.")).text == "So."
    finally:
        RUNS.removeFilter(broken)
        RUNS.setLevel(before)
