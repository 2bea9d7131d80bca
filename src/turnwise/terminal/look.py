"""`turnwise look --usage`: the page of a gateway, for one's own machine."""

import asyncio
import contextlib
import os
import signal
import sys

import click
import msgspec

from turnwise.base.clock import SystemClock
from turnwise.base.extras import require_extras
from turnwise.journal.journal import Journal, journal_path
from turnwise.terminal.command_options import json_option
from turnwise.terminal.failures import Failure, as_one_line, complain
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say

LOOK_EPILOG = """\b
Examples:
  turnwise look --usage
  turnwise look --usage --port 8486

The page shows what you have sent and what it cost, on 127.0.0.1 alone. The address that is printed opens it once, within this
command's life; nothing can be changed there. Ctrl-C ends it. Exit codes: 0 ended; 2 wrong use, a journal that cannot be read, the
extra is missing."""


@click.command("look", cls=EndsWithLine, epilog=LOOK_EPILOG)
@click.option("--usage", "is_usage", is_flag=True, help="What you have sent, what it cost, and what was mended.")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="0 takes a free one. [default: 0]")
@json_option("Print the address as one JSON line.")
def look_command(is_usage: bool, port: int, as_json: bool) -> None:
    """Look at your usage in a browser."""
    if not is_usage:
        raise Failure("say what to look at: `turnwise look --usage`")
    with as_one_line():
        require_extras("gateway")
        from turnwise.gateway.accounts import logging_to

        with Journal.open_to_read(journal_path(os.environ), clock=SystemClock()) as journal:
            for note in journal.notes:
                complain(note)
            with logging_to(sys.stderr, as_json=False, quiet=True):
                asyncio.run(_serve(journal, port=port, as_json=as_json))


async def _serve(journal: Journal, *, port: int, as_json: bool) -> None:
    """Until Ctrl-C or SIGTERM."""
    from turnwise.gateway.client_bounds import Bounds
    from turnwise.gateway.page import PageApp
    from turnwise.gateway.page_access import OnceAccess
    from turnwise.gateway.page_server import served
    from turnwise.gateway.page_views import PageViews
    from turnwise.gateway.serve import BoundSocket

    now = SystemClock().now
    access, ended, loop = OnceAccess(now=now), asyncio.Event(), asyncio.get_running_loop()
    listening = BoundSocket("127.0.0.1", port)
    app = PageApp(PageViews(journal.gateway.store, now=now, book=None), access=access, bounds=Bounds())
    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, ended.set)
    async with served(app, listening, bounds=Bounds()):
        # Behind `#`, so that no browser sends it, and no log or history of another program has it.
        url = f"{listening.url}/#once={access.key}"
        if as_json:
            say(msgspec.json.encode({"url": url}).decode(), stream=sys.stdout, as_it_is=True)
        else:
            say(f"your usage, until Ctrl-C: {url}", stream=sys.stdout)
        sys.stdout.flush()
        await ended.wait()
