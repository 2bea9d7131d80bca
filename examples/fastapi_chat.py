"""Serve chats with FastAPI: a message is a turn with a key, its text comes as server-sent events, and a person approves."""

import asyncio
import json
from collections.abc import AsyncIterator

from fastapi import FastAPI, sse
from httpx2 import ASGITransport, AsyncClient

from models import says
from turnwise import Agent, Approval, Journal, Policy, Run, tool
from turnwise.testing import call


@tool(effect="write")
def refund(order: int) -> str:
    """Give the money of an order back."""
    return f"order {order} is refunded"


app = FastAPI()
agent = Agent(
    says(call("refund", order=7), "The money is on its way."),
    tools=[refund],
    journal=Journal(None),  # in your program a path or a database
    policy=Policy(attended=True),
    safety={"approver": lambda asking: [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]},
)


async def events(run: Run[str]) -> AsyncIterator[sse.ServerSentEvent]:
    async for text in run.text():  # raises if the provider failed: then no `end` comes
        yield sse.ServerSentEvent(event="text", data=text)
    for ask in (await run).asks:
        yield sse.ServerSentEvent(event="ask", data=[ask.call.id, ask.arguments, ask.digest])
    yield sse.ServerSentEvent(event="end", data=(await run).shown_text)  # all of it: also for a client that came back


@app.put("/{chat}/messages/{key}", response_class=sse.EventSourceResponse)
async def say(chat: str, key: str, text: str) -> AsyncIterator[sse.ServerSentEvent]:
    async for event in events(agent.start(text, session=chat, key=key)):
        yield event


@app.put("/{chat}/answers/{key}", response_class=sse.EventSourceResponse)
async def approve(chat: str, key: str, id: str, digest: str, allow: bool) -> AsyncIterator[sse.ServerSentEvent]:
    answer = Approval(call_id=id, digest=digest, verdict="allow" if allow else "deny")
    async for event in events(agent.start(session=chat, key=key, approvals=[answer])):
        yield event


async def main() -> None:
    async with AsyncClient(transport=ASGITransport(app), base_url="http://chats") as browser:
        asked, again = [await browser.put("/ada/messages/m1?text=Refund order 7.") for _ in range(2)]
        id, arguments, digest = json.loads(asked.text.splitlines()[1].removeprefix("data: "))
        print("may it?", arguments, "one turn:", asked.text == again.text)
        print((await browser.put("/ada/answers/a1", params={"id": id, "digest": digest, "allow": True})).text.strip())


asyncio.run(main())
