"""A check of a transport or a server, without a command line and with a clock that moves when nothing else does."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from turnwise.base.clock import Clock, SystemClock
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import Transport
from turnwise.lab import Lab, Script
from turnwise.lab.endpoint_check.judging import Judgement, judge
from turnwise.lab.endpoint_check.probes import PROBES, Probe, SoFar
from turnwise.lab.endpoint_check.running import Course, EndpointCheck
from turnwise.testing import FakeClock
from turnwise.wire.profiles import Profile, builtin_profiles

BASES = {"gemini": "/v1beta", "anthropic_messages": ""}
QUIET_PASSES = 400  # of the event loop: what is not done by then waits for the clock
TIMEOUT_S = 60.0


def profile_of(family: str) -> Profile:
    return builtin_profiles()[family]


class _Threads(ThreadPoolExecutor):
    """Work beside the loop takes as long as it takes: meanwhile no clock runs."""

    def __init__(self) -> None:
        super().__init__()
        self.at_work: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self.at_work.add(future)
        future.add_done_callback(self.at_work.discard)
        return future


async def check_lab(name: str, *, family: str = "openai_chat", scripts: Sequence[Script] = ()) -> Course:
    """A whole check of one script of the lab, in memory."""
    return await check_transport(Lab(scripts).transport(), profile=profile_of(family), model=name)


async def check_transport(
    transport: Transport,
    *,
    profile: Profile,
    model: str = "a-model",
    probes: Sequence[Probe] = PROBES,
    clock: FakeClock | None = None,
) -> Course:
    clock = clock or FakeClock()
    checking = check_with(transport, profile=profile, model=model, clock=clock)
    threads = _Threads()
    asyncio.get_running_loop().set_default_executor(threads)  # the loop ends it
    task = asyncio.create_task(checking.run(probes))
    passes, seen = 0, 0
    while not task.done():
        await asyncio.sleep(0)
        passes, seen = (passes + 1, seen) if checking.course.requests == seen else (0, checking.course.requests)
        if threads.at_work:
            passes = 0
        elif passes > QUIET_PASSES and clock.delays:
            await clock.advance(clock.delays[0])
            passes = 0
    return task.result()


async def check_server(
    base_url: str, *, family: str, model: str, max_output_tokens: int = 40, probes: Sequence[Probe] = PROBES
) -> Judgement:
    """A whole check of a server on a socket, with the system's clock."""
    async with AiohttpTransport() as transport:
        checking = check_with(
            transport, profile=profile_of(family), model=model, base_url=base_url, refresh=transport.close
        )
        course = checking.course
        course.so_far = msgspec.structs.replace(course.so_far, max_output_tokens=max_output_tokens)
        return judged(await checking.run(probes))


def check_with(
    transport: Transport,
    *,
    profile: Profile,
    model: str = "a-model",
    base_url: str | None = None,
    clock: Clock | None = None,
    timeout_s: float = TIMEOUT_S,
    refresh: Callable[[], Awaitable[None]] | None = None,
) -> EndpointCheck:
    return EndpointCheck(
        Endpoint(profile=profile, base_url=base_url or f"http://lab{BASES.get(profile.family, '/v1')}"),
        so_far=SoFar(model=model),
        transport=transport,
        clock=clock or SystemClock(),
        timeout_s=timeout_s,
        tell=lambda _: None,
        refresh=refresh,
    )


def judged(course: Course) -> Judgement:
    return judge(course.observations, profile=course.endpoint.profile, learned=course.learned, stopped=course.stopped)
