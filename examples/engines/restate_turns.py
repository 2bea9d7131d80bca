"""Run turns on Restate: it holds keys, asks wait there without a process, and the journal is the truth (docs/engines.md)."""

import sys
from typing import Any

import restate
import uvicorn

from turnwise import Agent, Approval, Journal, Policy, tool
from turnwise.testing import ScriptedModel, call
from turnwise.testing.scripted_model import Said
from turnwise.vocab import Request


@tool(effect="write")
def refund(order: int) -> str:
    """Give the money of an order back."""
    print("refunding order", order, flush=True)
    return "done"


def plays(request: Request) -> Said:
    return "Order 7 is refunded." if len(request.messages) > 1 else call("refund", order=7)


turns = restate.VirtualObject("turns")  # an object is a session: its turns run one at a time, in order
model, policy = ScriptedModel([plays] * 1000), Policy(unattended="later")
agent = Agent(model, tools=[refund], policy=policy, journal=Journal(sys.argv[1]))  # a file, or postgresql://...


async def leg(session: str, key: str, answers: list[dict[str, Any]]) -> dict[str, Any]:
    """To the next asks, or to the end. Restate may call it again: it is the same turn."""
    result = await agent.run(session=session, key=key, approvals=[Approval(**one) for one in answers])
    asks = [{"call_id": ask.call.id, "arguments": ask.arguments, "digest": ask.digest} for ask in result.asks]
    return {"text": result.shown_text, "stopped": result.stop_reason, "asks": asks}


@turns.handler()
async def turn(context: restate.ObjectContext, key: str) -> dict[str, Any]:
    ended: dict[str, Any] = await context.get(f"ended {key}") or {}  # the message was sent twice
    number, answers = 0, list[dict[str, Any]]()
    while not ended or ended["asks"]:
        name = f"{key}:{number}" if number else key
        ended = await context.run_typed("leg", leg, session=context.key(), key=name, answers=answers)
        answer_to, answered = context.awakeable(type_hint=list[dict[str, Any]])
        context.set("asks", {"asks": ended["asks"], "answer_to": answer_to})  # for your page
        if ended["asks"]:
            answers, number = await answered, number + 1  # no process waits
    context.set(f"ended {key}", ended)
    return ended


@turns.handler(kind="shared")
async def asks(context: restate.ObjectSharedContext) -> dict[str, Any]:
    return await context.get("asks") or {}


app = restate.app([turns], protocol="request_response")
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning")
