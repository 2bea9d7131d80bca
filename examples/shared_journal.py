"""Two processes share a journal: one is stopped in the middle of a turn, the other continues it under the same key."""

import asyncio
import subprocess
import sys
import tempfile

from models import says
from turnwise import Agent, Journal, tool
from turnwise.testing import call

is_first = len(sys.argv) > 1
hangs = asyncio.Event()


@tool(effect="write")
async def pay(invoice: int) -> str:
    """Pay an invoice."""
    print("paying invoice", invoice, flush=True)
    return "paid"


@tool(idempotent=True)
async def archive() -> str:
    """Put the invoice away; twice does no harm."""
    if is_first:
        hangs.set()
        await asyncio.Event().wait()
    return "archived"


async def serve(path: str) -> None:
    script = says(call("pay", invoice=7), call("archive")) if is_first else says("Paid and archived.")
    with Journal(path) as journal:
        agent = Agent(script, tools=[pay, archive], journal=journal)
        turn = agent.start("Pay invoice 7 and archive it.", session="invoices", key="invoice-7")
        if is_first:
            await hangs.wait()
            return  # the server is stopped: `asyncio.run` cancels what is under way
        print((await turn).text, journal.find_session("invoices").turns[0].status)


if is_first:
    asyncio.run(serve(sys.argv[1]))
    print("the first process was stopped")
else:
    place = f"{tempfile.mkdtemp()}/turns.db"
    subprocess.run([sys.executable, __file__, place], check=True)
    asyncio.run(serve(place))
