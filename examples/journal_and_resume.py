"""Keep turns in a file, and finish a turn whose process died: finished calls are not run again."""

import asyncio
import os
import subprocess
import sys
import tempfile

from models import says
from turnwise import Agent, Journal, tool
from turnwise.testing import call

dies = len(sys.argv) > 1


@tool(effect="write")
def book(seat: int) -> str:
    """Book a seat."""
    print("booking seat", seat, flush=True)
    return "booked"


@tool(idempotent=True)
def mail() -> str:
    """Mail the ticket; mailing it twice does no harm."""
    if dies:
        os._exit(1)
    return "mailed"


path = sys.argv[1] if dies else f"{tempfile.mkdtemp()}/turns.db"
model = says(call("book", seat=7), call("mail")) if dies else says("Booked and mailed.")
with Journal(path) as journal:
    agent = Agent(model, tools=[book, mail], journal=journal)
    if dies:
        agent.run_sync("Book seat 7 and mail me the ticket.")
    print("the first process ended with", subprocess.call([sys.executable, __file__, path]))
    print(asyncio.run(agent.resume(journal.sessions()[0].id)).text)
