"""What `turnwise submit`, `status`, `answer` and `cancel` do, as functions of the library."""

import asyncio

import pytest

from flat_agents import flat_agent
from turnwise import (
    Approval,
    Journal,
    PermissionRule,
    Policy,
    answer_asks,
    cancel_turns,
    open_asks,
    submit_turn,
    tool,
    turn_status,
    watch_session,
)
from turnwise.errors import CallerError
from turnwise.running.watcher_events import TurnFinished
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.workers.worker import Worker
from waits import HANG_S


@pytest.mark.promise("keep:machines", "wait:ask")
async def test_a_program_submits_follows_answers_and_cancels(postgres_dsn: str) -> None:
    """Proves: a turn is submitted, waits for a person, goes on with the answer, and is followed to its end; another is cancelled
    before it begins; what can only be narrowed is checked before it is sent."""
    paid: list[int] = []

    @tool(effect="write")
    def pay(sum: int) -> str:
        """Pay."""
        paid.append(sum)
        return "paid"

    Journal(postgres_dsn).close()  # its tables are there
    model = ScriptedModel([call("pay", sum=7), "Paid."])
    asks = Policy(rules=(PermissionRule(verdict="ask", tool="pay"),), attended=True)
    clerk = flat_agent("openai_chat:m", base_url=BASE_URL, transport=model, tools=[pay], policy=asks)
    with pytest.raises(CallerError, match="`limits` has no `most_cost`"):
        await submit_turn(postgres_dsn, "Pay.", agent="clerk", limits={"most_cost": 1})
    with pytest.raises(CallerError, match="`limits`"):
        await submit_turn(postgres_dsn, "Pay.", agent="clerk", limits={"max_steps": 1.5})
    session = await submit_turn(postgres_dsn, "Pay 7.", agent="clerk", limits={"max_steps": 5}, labels={"user": "42"})
    other = await submit_turn(postgres_dsn, "Nobody runs this.", agent="other")
    assert await cancel_turns(postgres_dsn, other) == 1
    worker = Worker(postgres_dsn, agents={"clerk": clerk})
    working = asyncio.ensure_future(worker.run())
    try:
        async with asyncio.timeout(HANG_S):
            status = ""
            while status != "waiting":
                (found,) = await turn_status(postgres_dsn, session)
                status = found.status
            (ask,) = (await open_asks(postgres_dsn, session)).asked.asks
            answer = Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest)
            assert await answer_asks(postgres_dsn, session, [answer]) == 0
            seen = [event.seen async for event in watch_session(postgres_dsn, session)]
        assert isinstance(seen[-1], TurnFinished) and seen[-1].result.text == "Paid." and paid == [7]
        assert {(one.agent, one.status, one.stop_reason) for one in await turn_status(postgres_dsn)} == {
            ("clerk", "done", "answered"),
            ("other", "done", "cancelled"),
        }
    finally:
        worker.stop()
        await working
