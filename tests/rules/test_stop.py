"""The step cap, and what each end means to whoever waits."""

import pytest

from families import traits_of
from turnwise.rules.answer_room import OUTCOMES, exit_code, forbid_tools
from turnwise.rules.limits import MaxSteps, Spent, forecast, pace
from turnwise.vocab import StopReason, ToolSpec


@pytest.mark.promise("end:forced-answer", "end:cap")
@pytest.mark.parametrize("step", [1, 2, 6, 11, 19, 20, 21])
def test_only_the_last_allowed_step_is_the_last(step: int) -> None:
    """gitmost's table: 0, 1, 5, 10, 18, 19 counted from 0."""
    coming = forecast(prompt_tokens=0, longest_output_tokens=0)
    allowed = pace(MaxSteps(20), spent=Spent(steps=step - 1), forecast=coming)
    assert allowed == ("go" if step < 20 else "answer" if step == 20 else "stop")


@pytest.mark.promise("end:reason")
def test_every_stop_reason_has_its_exit_code_and_only_one_is_zero() -> None:
    """One table of stop reason x complete x exit code."""
    assert {row.stop_reason for row in OUTCOMES} == set(StopReason)
    assert len({(row.stop_reason, row.complete) for row in OUTCOMES}) == len(OUTCOMES)
    assert [row.stop_reason for row in OUTCOMES if row.complete or row.exit_code == 0] == [StopReason.ANSWERED]
    assert exit_code(StopReason.ANSWERED, complete=False) == 3
    assert exit_code(StopReason.CANCELLED, complete=False) == 130


@pytest.mark.promise("end:forced-answer")
def test_tools_stay_in_the_request_unless_the_endpoint_or_the_model_makes_that_useless() -> None:
    """Same bytes, tool choice none; dropped by profile or after disobedience, and never on Anthropic for the latter."""
    tools = (ToolSpec(name="read"),)

    def forbidden(means: str, *, disobeyed: bool, family: str) -> tuple[int, object]:
        kept = forbid_tools(
            tools, means="send" if means == "send" else "drop_tools", disobeyed=disobeyed, traits=traits_of(family)
        )
        return len(kept.tools), kept.tool_choice

    assert forbidden("send", disobeyed=False, family="openai_chat") == (1, "none")
    assert forbidden("send", disobeyed=True, family="openai_chat") == (0, "auto")
    assert forbidden("send", disobeyed=True, family="anthropic_messages") == (1, "none")
    assert forbidden("drop_tools", disobeyed=False, family="anthropic_messages") == (0, "auto")
