"""Sessions with the lab: every script that ships and those of rooms, in four families, by our own runner and without a network.

What happened is read out of a journal. The clock jumps, but for programs: their worker lives by the machine's clock, so the
times of such a turn are left out of its events.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from families import of_family
from lab.failing import DEADLINES, FAMILIES, settled
from turnwise.agent.agent_setup import with_script
from turnwise.base.clock import SystemClock
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Circuits
from turnwise.journal.journal import Journal
from turnwise.lab import Lab, builtin_scripts, load_scripts
from turnwise.lab.script import Script
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.running.runner import Runner
from turnwise.running.runner_config import EndpointRecovery, RunnerMeans
from turnwise.running.tools import Arguments, Tool
from turnwise.testing import FakeClock
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import Event, TurnStarted
from turnwise.turn.machine import fold_session
from turnwise.vocab import Message, OutputSchema, Settings, Text, ToolSpec
from turnwise.wire.profiles import builtin_profiles
from waits import HANG_S

ROOM = Path(__file__).resolve().parents[1] / "lab" / "room"
ANY = '{"type":"object","properties":{}}'
COUNT = '{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"],"additionalProperties":false}'
SAID = ("Please. My cat is called Mia. Begin with part-001.txt", "What are they called?", "Once more, please.")
PARTS = 12
WINDOW = ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000)
LIMIT_TOKENS = 6_000  # of a writer's output: a file of 40 KB takes two responses


class LabSession(NamedTuple):
    name: str
    turns: tuple[tuple[Event, ...], ...]


def scripts_of_lab() -> dict[str, Script]:
    return {**builtin_scripts(), **{f"room/{name}": script for name, script in load_scripts(ROOM).items()}}


def lab_sessions(wanted: Callable[[str], bool] = lambda _: True) -> Iterator[LabSession]:
    """Every script in every family that it speaks, streamed; as whole bodies its first turn alone."""
    for name, script in scripts_of_lab().items():
        for family in FAMILIES:
            if not script.speaks(family):
                continue
            for stream in (True, False):
                told = f"{name} {family} {'stream' if stream else 'body'}"
                if wanted(told):
                    said = SAID if stream and script.writer is None else SAID[:1]
                    yield LabSession(told, asyncio.run(_session(script, family=family, stream=stream, said=said)))


class LabFiles:
    """The files of a session, in memory, and tools for them that say the same on every machine."""

    def __init__(self) -> None:
        self._files = {
            "notes.txt": "title: lab\nstatus: draft\n",
            "todo.txt": "nothing\n",
            "calc.py": "def sub(a, b):\n    return a - b\n",
            **{f"{name}.txt": f"about {name}\n" for name in "abcdefghij"},
        }
        for number in range(1, PARTS + 1):
            after = f"the next part is part-{number + 1:03d}.txt\n" if number < PARTS else "this is the last part\n"
            self._files[f"part-{number:03d}.txt"] = f"part {number}\n" + "A line of it, and more. \n" * 600 + after
        self._checks = 0

    def tools(self) -> tuple[Tool, ...]:
        functions = {
            "read": self._read,
            "write": self._write,
            "edit": self._edit,
            "list": self._list,
            "search": self._search,
            "bash": self._bash,
            "note": self._note,
            "status": self._status,
            "apply_patch": self._patch,
        }
        made = [Tool(offer=_offer(name), function=function) for name, function in functions.items()]
        return (*made, Tool(offer=ToolOffer(spec=ToolSpec(name="ask_user"), client_side=True)))

    async def _read(self, arguments: Arguments) -> str:
        return self._files.get(str(arguments.get("path")), "(no such file)")

    async def _write(self, arguments: Arguments) -> str:
        self._files[str(arguments.get("path"))] = str(arguments.get("content"))
        return f"wrote {len(str(arguments.get('content')))} characters"

    async def _edit(self, arguments: Arguments) -> str:
        path = str(arguments.get("path"))
        before = self._files.get(path, "")
        if str(arguments.get("old")) not in before:
            raise ValueError("the old text is not in it")
        self._files[path] = before.replace(str(arguments.get("old")), str(arguments.get("new")))
        return "edited"

    async def _list(self, _: Arguments) -> list[str]:
        return sorted(self._files)

    async def _search(self, arguments: Arguments) -> str:
        return f"notes.txt: something about {arguments.get('pattern')}"

    async def _bash(self, _: Arguments) -> str:
        return "2 passed" if "return a + b\n" in self._files["calc.py"] else "1 failed"

    async def _note(self, arguments: Arguments) -> str:
        return f"noted {arguments.get('text')}"

    async def _status(self, _: Arguments) -> str:
        self._checks += 1
        return f"{self._checks} of 9; look again for check {self._checks + 1}" if self._checks < 9 else "all done"

    async def _patch(self, arguments: Arguments) -> str:
        return f"patched by {len(str(arguments))} characters"


def _offer(name: str) -> ToolOffer:
    spec = ToolSpec(name=name, parameters=ANY, description=f"The tool {name}.", free_form=name == "apply_patch")
    changes = name in ("write", "edit", "apply_patch")
    return ToolOffer(spec=spec, effect="write" if changes else "read", exclusive=changes, repeatable=name == "status")


async def _session(
    script: Script, *, family: str, stream: bool, said: tuple[str, ...]
) -> tuple[tuple[Event, ...], ...]:
    journals: list[tuple[Event, ...]] = []
    is_scripted = script.name.startswith("script-")
    tools = with_script(LabFiles().tools(), scripted=is_scripted)
    lab = Lab(scripts=[script])
    for number, words in enumerate(said):
        config = lab_config(script, family=family, stream=stream, tools=tools)
        config = msgspec.structs.replace(config, turn_id=f"t{number}")
        started = TurnStarted(config=config, input=(Message("user", (Text(words),)),), keeps_waiting=True)
        events = await _turn(lab, started, tools=tools, journals=journals, jumps=not is_scripted)
        journals.append(events)
    return tuple(journals)


def lab_config(script: Script, *, family: str, stream: bool, tools: tuple[Tool, ...]) -> TurnConfig:
    is_writer = script.writer is not None
    return TurnConfig(
        session_id="s",
        turn_id="t",
        model=script.name,
        tools=tuple([tool.offer for tool in tools]),
        stream=stream,
        max_steps=20 if script.window_tokens or script.name == "long-session" else 8,
        deadlines=DEADLINES,
        retry=RetryPolicy(),
        **of_family(family),
        profile=family,
        recover="continue",
        judges_cut=True,
        room="compact",
        output=OutputSchema(schema=COUNT) if script.name == "structured-output" else None,
        settings=Settings(max_output_tokens=LIMIT_TOKENS if is_writer else None),
        model_limits=WINDOW if script.window_tokens or script.name == "long-session" else ModelLimits(),
        cache="auto",
        default_max_tokens=builtin_profiles()[family].sent_max_tokens,
    )


async def _turn(
    lab: Lab, started: TurnStarted, *, tools: tuple[Tool, ...], journals: list[tuple[Event, ...]], jumps: bool
) -> tuple[Event, ...]:
    clock = FakeClock()
    profile = builtin_profiles()[started.config.family]
    own_clock = clock if jumps else SystemClock()
    runner = Runner(
        RunnerMeans(
            endpoint=Endpoint(profile=profile, base_url="http://lab.invalid"),
            transport=lab.transport(),
            tools=tools,
            clock=own_clock,
            recovery=EndpointRecovery(circuits=Circuits(clock=own_clock), jitter=lambda: 0.5),
        )
    )
    with Journal(None, clock=clock) as journal:
        pen = journal.begin_turn(turn_id="t", session_id="s", folder="/here", title="go")
        running = runner.run(started, earlier=fold_session(journals).carried, journal=pen)
        if jumps:
            await settled(running, clock=clock)
            return tuple(journal.events("t"))
        await asyncio.wait_for(running, HANG_S)
        return tuple([_without_time(event) for event in journal.events("t")])


def _without_time(event: Event) -> Event:
    return msgspec.structs.replace(event, at_s=0.0) if "at_s" in event.__struct_fields__ else event
