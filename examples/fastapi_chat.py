"""Serve chats with FastAPI: a message is a turn with a key, its text comes as server-sent events, and a person approves."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException, sse
from httpx2 import ASGITransport, AsyncClient

from models import says
from turnwise import Agent, Approval, CallerError, Journal, Policy, ProviderFault, Run, tool
from turnwise.testing import call


@tool(effect="write")
def refund(order: int) -> str:
    """Give the money of an order back."""
    return f"order {order} is refunded"


app = FastAPI()
model, journal = says(call("refund", order=7), "The money is on its way."), Journal(None)  # in your program a path
agent = Agent(model, tools=[refund], journal=journal, policy=Policy(unattended="later"))


async def begun(
    chat: str, key: str, text: str | None = None, id: str = "", digest: str = "", allow: bool = False
) -> Run[str]:
    answer = Approval(call_id=id, digest=digest, verdict="allow" if allow else "deny")
    run = agent.start(text, session=chat, key=key, approvals=[answer] if id else [])
    try:
        await anext(run.events())  # the stream has not begun, so a wrong key or answer still gets a status
    except CallerError as error:
        raise HTTPException(409, str(error)) from None
    return run


@app.put("/{chat}/{key}", response_class=sse.EventSourceResponse)
async def say(run: Annotated[Run[str], Depends(begun)]) -> AsyncIterator[sse.ServerSentEvent]:
    with contextlib.suppress(ProviderFault):  # the last event tells of it
        async for text in run.text():
            yield sse.ServerSentEvent(event="text", data=text)
    result = await run
    for ask in result.asks:
        yield sse.ServerSentEvent(event="ask", data=[ask.call.id, ask.arguments, ask.digest])
    yield sse.ServerSentEvent(event="end", data=[result.stop_reason, result.shown_text])


async def main() -> None:
    async with AsyncClient(transport=ASGITransport(app), base_url="http://chats") as browser:
        asked, again = [await browser.put("/ada/m1?text=Refund order 7.") for _ in range(2)]
        id, arguments, digest = json.loads(asked.text.splitlines()[1].removeprefix("data: "))
        print("may it?", arguments, "one turn:", asked.text == again.text)
        print((await browser.put("/ada/a1", params={"id": id, "digest": digest, "allow": True})).text.strip())
        print("another text under a used key:", (await browser.put("/ada/m1?text=Refund order 8.")).status_code)


asyncio.run(main())
