"""Minding one child: its asks, and what it spent, whatever becomes of it."""

import asyncio
from collections.abc import Sequence

import pytest

from turnwise.agent.models import open_endpoint, read_model
from turnwise.errors import CallerError
from turnwise.running.approvals import Approver, Asking
from turnwise.running.children import Minder
from turnwise.running.runner import Runner
from turnwise.running.runner_config import RunnerMeans
from turnwise.running.tools import ChildOrder
from turnwise.running.watcher_events import RequestStarted
from turnwise.testing import FakeClock, ScriptedTransport
from turnwise.turn.config import Approval, ChildReport, TurnResult
from turnwise.vocab import NO_USAGE, StopReason, ToolCall
from waits import HANG_S

DONE = TurnResult(
    text="done", stop_reason=StopReason.ANSWERED, complete=True, steps=1, requests=1, usage=NO_USAGE, messages=()
)


def minded(clock: FakeClock, *, approver: Approver | None = None) -> tuple[Minder, list[ChildReport], Runner]:
    reports: list[ChildReport] = []
    order = ChildOrder(
        call=ToolCall(id="a", name="task", arguments="{}"),
        arguments={},
        grant=None,
        timeout_s=900.0,
        settle_s=0.5,
        parent_turn="t",
        path=(),
        approver=approver,
        watch=None,
        report=reports.append,
    )
    endpoint = open_endpoint(read_model("openai_chat:m"), base_url="http://127.0.0.1:1", api_key="k", api_key_env=None)
    runner = Runner(RunnerMeans(endpoint=endpoint, transport=ScriptedTransport([]), clock=clock))
    return Minder(order, name="worker", session_id="c", clock=clock, idle_s=60.0), reports, runner


@pytest.mark.promise("wait:child")
async def test_a_child_that_still_waits_for_an_answer_is_not_silent() -> None:
    """Proves: two asks below one child stand side by side; when one is answered the other one's time still counts."""
    clock = FakeClock()
    answered = {"short": asyncio.Event(), "long": asyncio.Event()}

    async def approver(asking: Asking) -> Sequence[Approval]:
        await answered[asking.path[-1]].wait()
        return ()

    minder, _, runner = minded(clock, approver=approver)
    inner = minder.approver
    assert inner is not None

    async def turn() -> TurnResult:
        asks = [Asking(asks=(), deadline_s=300.0, path=("worker", name)) for name in answered]
        await asyncio.gather(*[inner(one) for one in asks])
        return DONE

    run = asyncio.create_task(minder.run(runner, turn()))
    await clock.advance(1.0)
    answered["short"].set()
    await clock.advance(200.0)  # longer than it may be silent
    assert not run.done()
    answered["long"].set()
    assert await asyncio.wait_for(run, HANG_S) == "done"


@pytest.mark.promise("wait:child", "end:budget")
async def test_a_child_that_breaks_reports_what_it_spent() -> None:
    """Proves: a mistake of the caller's in a child is raised, and its requests still count against its parent's limits."""
    minder, reports, runner = minded(FakeClock())

    async def turn() -> TurnResult:
        minder.watch(RequestStarted(number=1, step=1, purpose="step", model="m"))
        raise CallerError("the journal cannot be written")

    with pytest.raises(CallerError):
        await minder.run(runner, turn())
    assert reports == [ChildReport(call_id="a", session_id="c", stop_reason=None, requests=1)]
