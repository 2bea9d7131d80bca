"""A program that is run again after a crash asks for the same calls: nothing that it can see is another one the second time."""

import re
from pathlib import Path
from typing import Any

import pytest

from agent.test_resumed_runs import Crash, agent_of, results_of
from tables import each
from turnwise import Journal, tool
from turnwise.base.clock import SystemClock
from turnwise.testing import ScriptedModel
from turnwise.testing.scripted_model import call

CLOCK = SystemClock()
PROGRAMS = {
    "the time": "import time\ndo(name=str(time.time()))\ndo(name=str(time.monotonic() - time.perf_counter()))\n"
    "do(name=str(time.time_ns()))\nprint(time.strftime('%Y'))",
    "the date": "import datetime\ndo(name=str(datetime.datetime.now()))\ndo(name=str(datetime.date.today()))\n"
    "do(name=str(datetime.datetime.now(datetime.timezone.utc)))",
    "random numbers": "import random\nfor n in range(3):\n    do(name=str(random.random()))",
    "the order of sets": "for one in {'a', 'bb', 'ccc', 4, 5.5, (6, 'x')}:\n    do(name=str(one))",
    "hashes": "for one in ('a', (1, 'b'), 2.5):\n    do(name=str(hash(one)))",
    "sleeps": "import asyncio, time\nwoke = []\nasync def one(name, seconds):\n    await asyncio.sleep(seconds)\n"
    "    woke.append(name)\nasync def all_of():\n"
    "    await asyncio.gather(one('a', 0.02), one('b', 0.01), one('c', 0.0100001), one('d', 0.01))\n"
    "await all_of()\nfor name in woke:\n    do(name=name)\ntime.sleep(0.01)\ndo(name=str(time.time()))",
    "what is left of a time": "import time\nend = time.time() + 3600\nfor _ in range(4):\n    time.sleep(0.01)\n"
    "    do(name=str(end - time.time()))",
}


class World:
    """Copies the journal while the call with that number runs. `did` are the names of the calls."""

    def __init__(self, crash: Crash, *, dies_at: int) -> None:
        self.did: list[str] = []
        self._crash = crash
        self._dies_at = dies_at

    def agent(self, journal: Journal, *replies: Any) -> Any:
        @tool(effect="write", idempotent=True)
        async def do(name: str) -> str:
            """Do it."""
            self.did.append(name)
            if len(self.did) == self._dies_at:
                self._crash.now()
            return f"did {name}"

        return agent_of(ScriptedModel([*replies]), journal, clock=CLOCK, tools=[do], script=True)


@pytest.mark.costly
@pytest.mark.promise("keep:crash")
@each("dies_at", [1, 2, 3])
@each("program", PROGRAMS.values(), ids=PROGRAMS)
async def test_a_program_that_is_run_again_asks_for_the_same_calls(tmp_path: Path, program: str, dies_at: int) -> None:
    """Proves: whatever it computes its calls from, those that had ended are not made again, and it comes to its end."""
    crash = Crash(tmp_path)
    world = World(crash, dies_at=dies_at)
    with Journal(crash.path, clock=CLOCK) as journal:
        first = await world.agent(journal, [call("script", program=program)], "Done.").run("Go.")
    before = world.did[:]
    assert "failed" not in results_of(first)[0], results_of(first)
    assert crash.left is not None, before
    again = World(crash, dies_at=-1)
    with crash.journal(CLOCK) as left:
        result = await again.agent(left, "Done.").resume(left.sessions()[0].id)
    (told,) = results_of(result)
    assert "other calls" not in told and "failed" not in told
    times = re.compile(r"[0-9.:-]{3,}")  # of calls behind the crash: those read a clock that has gone on
    assert [times.sub("", one) for one in before[: dies_at - 1] + again.did][-1] == times.sub("", before[-1])
    assert len(set(before[: dies_at - 1]) & set(again.did)) == 0
