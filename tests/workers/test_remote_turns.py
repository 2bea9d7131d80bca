"""What `turnwise submit`, `status`, `answer` and `cancel` do, as functions of the library."""

import asyncio
from typing import Literal

import pytest

from flat_agents import flat_agent
from turnwise import (
    Agent,
    Approval,
    Journal,
    PermissionRule,
    Policy,
    answer_asks,
    cancel_turns,
    open_asks,
    retry_turns,
    submit_turn,
    tool,
    turn_status,
    watch_session,
)
from turnwise.agent.resume_lookup import read_session
from turnwise.errors import CallerError
from turnwise.running.watcher_events import TurnFinished
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.vocab import Fault, FaultKind, own_text_of
from turnwise.workers.queue import TurnQueue, WorkerTerms
from turnwise.workers.turn_status import TurnWishes, read_wishes
from turnwise.workers.worker import Worker
from waits import HANG_S


@pytest.mark.promise("keep:machines", "wait:ask")
@pytest.mark.parametrize("unattended", ["deny", "later"])
async def test_a_program_submits_follows_answers_and_cancels(
    postgres_dsn: str, unattended: Literal["deny", "later"]
) -> None:
    """Proves: a turn is submitted, waits for a person, goes on with the answer, and is followed to its end; another is cancelled
    before it begins; what can only be narrowed is checked before it is sent. A policy that leaves asks for later waits, too."""
    paid: list[int] = []

    @tool(effect="write")
    def pay(sum: int) -> str:
        """Pay."""
        paid.append(sum)
        return "paid"

    Journal(postgres_dsn).close()  # its tables are there
    model = ScriptedModel([call("pay", sum=7), "Paid."])
    asks = Policy(
        rules=(PermissionRule(verdict="ask", tool="pay"),), attended=unattended == "deny", unattended=unattended
    )
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


async def work_off(dsn: str, agent: Agent, *, session: str) -> None:
    """A worker has ended all turns of the session."""
    worker = Worker(dsn, agents={"clerk": agent})
    working = asyncio.ensure_future(worker.run())
    try:
        async with asyncio.timeout(HANG_S):
            while any(turn.finished is None for turn in await turn_status(dsn, session)):
                pass
    finally:
        worker.stop()
        await working


@pytest.mark.promise("keep:machines")
async def test_a_turn_that_failed_runs_again_before_the_later_ones(postgres_dsn: str) -> None:
    """Proves: where the provider failed, or the agent raised, the turn runs again with its prompt and limits, and before a turn
    that was submitted behind it; a turn that did not fail, or that waits already, is refused with the reason."""
    Journal(postgres_dsn).close()
    down = Fault(kind=FaultKind.BAD_REQUEST, message="No.", status=400)
    model = ScriptedModel([down, "First.", "Second."])
    clerk = flat_agent("openai_chat:m", base_url=BASE_URL, transport=model)
    session = await submit_turn(postgres_dsn, "One.", agent="clerk", limits={"max_steps": 3}, priority=2)
    with pytest.raises(CallerError, match=r"no turn of a session .* has ended"):
        await retry_turns(postgres_dsn, session)
    await work_off(postgres_dsn, clerk, session=session)
    await submit_turn(postgres_dsn, "Two.", agent="clerk", session=session)
    retried = await retry_turns(postgres_dsn, session)
    assert (retried.agent, retried.stop_reason) == ("clerk", "provider_failed")
    with pytest.raises(CallerError, match="waits already to run again"):
        await retry_turns(postgres_dsn, session)
    await work_off(postgres_dsn, clerk, session=session)
    with Journal(postgres_dsn) as journal:
        messages = read_session(journal, journal.find_session(session)).messages
    assert [own_text_of(one) for one in messages][-4:] == ["One.", "First.", "Two.", "Second."]
    with pytest.raises(CallerError, match=r"has not failed \(`answered`\)"):
        await retry_turns(postgres_dsn, session)


def test_a_turn_whose_agent_raised_runs_again(queue: TurnQueue) -> None:
    """Proves: a turn that its worker had to end runs again as often as it is asked for, and as the first of its session."""
    session = queue.submit("Go.", agent="clerk", needs=("x",), wishes=TurnWishes(model="m"))
    queue.submit("Later.", agent="clerk", session=session)
    terms = WorkerTerms(name="w", agents=("clerk",), offers=("x",))
    for _ in range(2):
        claim = queue.claim(terms)
        assert claim is not None and claim.prompt == "Go." and read_wishes(claim.wishes).model == "m"
        queue.fail(claim, problem="the agent raised `KeyError`")
        assert queue.retry(session).problem == "the agent raised `KeyError`"
