"""Serving one editor until it closes its end, or the process is told to end."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import acp
from acp.agent.connection import AgentSideConnection
from acp.interfaces import Agent

from turnwise.drivers.clock import Clock, ends_in_time
from turnwise.drivers.journal.journal import Journal
from turnwise.drivers.own_pipes import ended_by_signals, library_is_silent
from turnwise.faces.acp.pipe import EditorPipe, own_pipes
from turnwise.faces.acp.service import SETTLE_S, EditorService
from turnwise.faces.cli.options import Given


async def serve(*, given: Given, journal: Journal, clock: Clock, env: Mapping[str, str]) -> None:
    """On this process's own pipes. Raises CallerError where they are none."""
    pipe = await own_pipes(clock=clock)
    with ended_by_signals(pipe.end):
        await serve_over(pipe, given=given, journal=journal, clock=clock, env=env)


async def serve_over(pipe: EditorPipe, *, given: Given, journal: Journal, clock: Clock, env: Mapping[str, str]) -> None:
    """Until the pipe ends; then open turns are cancelled, and have a moment to end in."""
    service = EditorService(given=given, journal=journal, clock=clock, env=env)
    connection = AgentSideConnection(cast("Agent", service), pipe, listening=False, use_unstable_protocol=True)
    with library_is_silent(str(Path(acp.__file__).parent)):
        try:
            await connection.listen()
        finally:
            await service.close()
            # it waits for its tasks without a limit
            closing = asyncio.ensure_future(connection.close())
            await ends_in_time(
                cast("asyncio.Task[object]", closing), clock=clock, timeout_s=SETTLE_S, settle_s=SETTLE_S
            )
