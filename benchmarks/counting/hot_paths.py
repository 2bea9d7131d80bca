"""The hot paths, each as work of a given size: `prepare(n)` makes everything that is not to be counted, and gives what is.

Whole runs through public doors wherever there is one, over a transport in memory: no socket, no timer, nothing random.
turnwise is imported by the paths that need it, so that counting the yardstick alone stays quick.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import NamedTuple

from counting.gateway_paths import SHORT, STREAMED, gateway

Work = Callable[[], object]
Prepare = Callable[[int], Work]
FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
WORDS = "The loop goes on until the model has nothing left to ask for. "
TOKEN = 20  # characters of a delta
YARDSTICK = "yardstick"
FOLDER = "TURNWISE_COUNTS_FOLDER"  # where streams are kept from one process to the next


class HotPath(NamedTuple):
    """`sizes` are small, middle and large: the slope between the first two stands against that between the last two."""

    name: str
    unit: str
    prepare: Prepare
    sizes: tuple[int, int, int]


def yardstick(size: int) -> Work:
    """Nothing of ours: it tells one build of Python from another."""

    def run() -> object:
        found: dict[str, list[int]] = {}
        for number in range(size):
            found.setdefault(str(number)[-2:], []).append(number)
        return sorted([(key, sum(values)) for key, values in found.items()])

    return run


def decode(family: str, *, arguments: bool, read_bytes: int = 0) -> Prepare:
    """A streamed response of `size` deltas through `async for` over `Agent.stream`: an event a read, as a slow provider sends
    them, or so many bytes a read, as a socket gives what has been waiting."""

    def prepare(size: int) -> Work:
        from turnwise import Agent, Model, ToolSpec
        from turnwise.testing import Reply, ScriptedTransport

        chunks = streamed(family, deltas=size, arguments=arguments)
        if read_bytes:
            whole = b"".join(chunks)
            chunks = [whole[at : at + read_bytes] for at in range(0, len(whole), read_bytes)]
        agent = Agent(
            Model(
                f"{family}:counted",
                base_url="http://counted.invalid",
                api_key="none",
                transport=ScriptedTransport([Reply(pieces=tuple(chunks))]),
            ),
            tools=[ToolSpec(name="write")],
        )

        async def watch() -> object:
            seen = 0
            result: object = None
            async for event in agent.stream("Go on."):
                seen += 1
                result = event  # the last one
            assert seen > size, "every delta is seen"
            return result

        return in_loop(watch)

    return prepare


def streamed(family: str, *, deltas: int, arguments: bool) -> list[bytes]:
    """The events of a healthy stream as this family's API sends it. Written once: encoding takes longer than what is counted."""
    end = b"\r\n\r\n" if family == "gemini" else b"\n\n"
    folder = os.environ.get(FOLDER)
    kept = None if folder is None else Path(folder, f"{family}-{deltas}-{arguments}.sse")
    if kept is not None and kept.exists():
        written = kept.read_bytes()
    else:
        written = encoded(family, deltas=deltas, arguments=arguments)
        if kept is not None:
            kept.write_bytes(written)
    return [event + end for event in written.split(end) if event]


def encoded(family: str, *, deltas: int, arguments: bool) -> bytes:
    from turnwise.lab.families.gemini import stream_in_pieces
    from turnwise.testing.frames import frames_of
    from turnwise.testing.scripted_model import call, response_of
    from turnwise.vocab import Message, Request, Text
    from turnwise.wire.family import family as find_family

    text = (WORDS * (deltas * TOKEN // len(WORDS) + 1))[: deltas * TOKEN]
    response = response_of([call("write", text=text)] if arguments else text, model="counted")
    if family == "gemini" and arguments:
        lines = stream_in_pieces(response, TOKEN).splitlines()
        return b"".join([b"data: " + line.encode() + b"\r\n\r\n" for line in lines])
    request = Request(model="counted", messages=(Message("user", (Text("Go on."),)),), stream=True)
    encoder = find_family(family).stream_encoder(request)
    return b"".join([*map(encoder.encode, frames_of(response, piece=TOKEN)), encoder.finish()])


def loop(journal: str) -> Prepare:
    """A turn of `size` steps, each with one call of an async tool, and the answer. `journal`: none, memory or file."""

    def prepare(size: int) -> Work:
        from turnwise import Agent, Journal, MaxSteps, Model, tool
        from turnwise.base.clock import SystemClock
        from turnwise.testing import Reply, ScriptedTransport
        from turnwise.testing.scripted_model import call

        @tool
        async def look(place: int) -> str:
            """Look at a place."""
            return f"There is nothing to see at {place}."

        said = [[call("look", id=f"call_{step}", place=step)] for step in range(size)]
        replies = [Reply(pieces=(whole_stream(one),)) for one in [*said, "That is all."]]
        folder = tempfile.TemporaryDirectory() if journal == "file" else None
        path = None if folder is None else Path(folder.name) / "journal.db"

        async def run() -> object:
            pen = None if journal == "none" else Journal(path, clock=SystemClock())
            agent = Agent(
                Model(
                    "openai_chat:counted",
                    base_url="http://counted.invalid",
                    api_key="none",
                    transport=ScriptedTransport(replies),
                ),
                tools=[look],
                limits=MaxSteps(size + 1),
                journal=pen,
            )
            result = await agent.run("Look everywhere.")
            assert (result.steps, result.text) == (size + 1, "That is all.")
            if pen is not None:
                pen.close()
            return result, folder  # the folder goes when nothing holds it any more

        return in_loop(run)

    return prepare


def whole_stream(said: object) -> bytes:
    """A response as one chunk."""
    from turnwise.testing.frames import frames_of
    from turnwise.testing.scripted_model import response_of
    from turnwise.vocab import Message, Request, Text
    from turnwise.wire.family import family

    request = Request(model="counted", messages=(Message("user", (Text("Go on."),)),), stream=True)
    encoder = family("openai_chat").stream_encoder(request)
    return b"".join([*map(encoder.encode, frames_of(response_of(said))), encoder.finish()])


def encode(family: str) -> Prepare:
    """The requests of `size` steps, each with a call and its result more than the one before."""

    def prepare(size: int) -> Work:
        from turnwise.testing.scripted_model import call
        from turnwise.vocab import Message, Request, Text, ToolResult, ToolSpec
        from turnwise.wire.encoded_history import EncodedHistory
        from turnwise.wire.family import family as find_family
        from turnwise.wire.profiles import builtin_profiles

        messages = [Message("user", (Text("Look everywhere."),))]
        for step in range(size):
            asked = call("look", id=f"call_{step}", place=step)
            seen = ToolResult(call_id=asked.id, name="look", content=(Text(f"Nothing at {step}."),))
            messages += [Message("assistant", (asked,)), Message("tool", (seen,))]
        profile = builtin_profiles()[family]
        encode_request = find_family(family).encode_request
        requests = [
            Request(model="counted", messages=tuple(messages[:end]), tools=(ToolSpec(name="look"),), stream=True)
            for end in range(1, len(messages) + 1, 2)
        ]

        def run() -> object:
            history = EncodedHistory()
            return [len(encode_request(request, profile, history=history).body) for request in requests]

        return run

    return prepare


def encode_tools(family: str) -> Prepare:
    """`size` first requests of sessions that offer the same 40 tools: nothing but the tools is known from the one before."""

    def prepare(size: int) -> Work:
        from turnwise.vocab import Message, Request, Text, ToolSpec
        from turnwise.wire.family import family as find_family
        from turnwise.wire.profiles import builtin_profiles

        schema = (
            '{"type":"object","properties":{"place":{"type":"string","description":"Where."}},"required":["place"]}'
        )
        tools = tuple([ToolSpec(name=f"look_{n}", description=f"Look {n}.", parameters=schema) for n in range(40)])
        request = Request(model="counted", messages=(Message("user", (Text("Look."),)),), tools=tools, stream=True)
        profile = builtin_profiles()[family]
        encode_request = find_family(family).encode_request
        return lambda: [len(encode_request(request, profile).body) for _ in range(size)]

    return prepare


def dispatch(kind: str) -> Prepare:
    """`size` calls one after another: arguments decoded and validated, the function run, its result made."""

    def prepare(size: int) -> Work:
        from turnwise import tool
        from turnwise.base.clock import SystemClock
        from turnwise.running.tools import ToolRun
        from turnwise.turn.events import PlannedCall
        from turnwise.vocab import ToolCall

        @tool
        async def look(place: int, carefully: bool = False) -> str:
            """Look at a place."""
            return f"There is nothing to see at {place}."

        @tool(name="look")
        def look_in_thread(place: int, carefully: bool = False) -> str:
            """Look at a place."""
            return f"There is nothing to see at {place}."

        tools = {"look": (look if kind == "async" else look_in_thread).tool}
        clock = SystemClock()
        arguments = '{"place":7,"carefully":true}'
        calls = [
            PlannedCall(
                call=ToolCall(id=f"call_{n}", name="look", arguments=arguments), arguments=arguments, timeout_s=60
            )
            for n in range(size)
        ]

        async def run() -> object:
            results = []
            for planned in calls:
                running = ToolRun((planned,), tools=tools, clock=clock, on_start=lambda _: None)
                results += await running.run()
            assert not any(result.is_error for result in results)
            return results

        return in_loop(run)

    return prepare


def append(journal: str) -> Prepare:
    """`size` events written down, each safe on return (`synchronous=NORMAL`)."""

    def prepare(size: int) -> Work:
        from turnwise import Journal
        from turnwise.base.clock import SystemClock
        from turnwise.turn.events import ToolsFinished
        from turnwise.vocab import Text, ToolResult

        folder = tempfile.TemporaryDirectory() if journal == "file" else None
        path = None if folder is None else Path(folder.name) / "journal.db"
        events = [
            ToolsFinished(results=(ToolResult(call_id=f"call_{n}", name="look", content=(Text("Nothing."),)),))
            for n in range(size)
        ]

        def run() -> object:
            with Journal(path, clock=SystemClock()) as opened:
                pen = opened.begin_turn(turn_id="turn", session_id="session", folder="/", title="counted")
                for event in events:
                    pen.append(event)
            return folder

        return run

    return prepare


def in_loop(main: Callable[[], Coroutine[object, object, object]]) -> Work:
    """In a bare loop: `asyncio.run` shows a whole result to itself where SIGINT is not ignored, as it is in the background."""

    def run() -> object:
        loop = asyncio.new_event_loop()
        try:
            return loop.run_until_complete(main())
        finally:
            loop.close()

    return run


def through_gateway(what: str, *, budgets: bool) -> Prepare:
    def chunks(size: int) -> list[bytes]:
        return streamed("openai_chat", deltas=size, arguments=False)

    return gateway(what, budgets=budgets, streamed=chunks, in_loop=in_loop)


HOT_PATHS = (
    HotPath(YARDSTICK, "number", yardstick, (1000, 2000, 8000)),
    *[
        HotPath(f"decode {family} {what}", "chunk", decode(family, arguments=what == "arguments"), (50, 150, 550))
        for family in FAMILIES
        for what in ("text", "arguments")
    ],
    *[
        HotPath(
            f"decode {family} {what}, 16 KiB a read",
            "chunk",
            decode(family, arguments=what == "arguments", read_bytes=16 * 1024),
            (280, 560, 2240),
        )
        for family in FAMILIES
        for what in ("text", "arguments")
    ],
    HotPath("one growing call", "delta", decode("openai_chat", arguments=True), (250, 500, 6000)),
    *[
        HotPath(f"loop, journal: {journal}", "step", loop(journal), (8, 24, 72))
        for journal in ("none", "memory", "file")
    ],
    *[HotPath(f"encode {family}", "request", encode(family), (8, 24, 104)) for family in FAMILIES],
    *[
        HotPath(f"first request, 40 tools, {family}", "request", encode_tools(family), (8, 24, 104))
        for family in FAMILIES
    ],
    *[HotPath(f"tool call, {kind}", "call", dispatch(kind), (10, 20, 60)) for kind in ("async", "sync")],
    *[HotPath(f"journal append, {where}", "event", append(where), (20, 60, 300)) for where in ("memory", "file")],
    *[
        HotPath(f"gateway, {name}{said}", unit, through_gateway(what, budgets=budgets), sizes)
        for name, unit, what, sizes in (
            ("a chunk", "chunk", STREAMED, (50, 150, 550)),
            ("a short request", "request", SHORT, (5, 15, 45)),
        )
        for budgets, said in ((False, ""), (True, " with budgets"))
    ],
)
