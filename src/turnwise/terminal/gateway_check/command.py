"""`turnwise gateway check` in order: start the lab, say how to set the gateway, wait for it, ask, show."""

import asyncio
import contextlib
import difflib
import os
import sys
from collections.abc import AsyncGenerator
from typing import Self

import msgspec
from rich.console import Console

from turnwise.agent.models import find_profile
from turnwise.base.clock import SystemClock
from turnwise.base.own_loop import run_to_end
from turnwise.coding_agent.text import shortened, style
from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import find_key
from turnwise.errors import CallerError
from turnwise.lab import Lab
from turnwise.lab.cases import SILENT_CASES, checked_cases
from turnwise.lab.gateway_check.asking import CASE, GatewayAsked, LabAsked
from turnwise.lab.gateway_check.checking import GatewayChecking, GatewayCourse, NoGateway
from turnwise.terminal.exit_codes import CANCELLED, NOT_THERE
from turnwise.terminal.failures import Failure
from turnwise.terminal.gateway_check.showing import show, write_json
from turnwise.terminal.lines import say
from turnwise.terminal.outside_signals import cancelling
from turnwise.wire.profiles import FamilyName

FAMILIES: tuple[FamilyName, ...] = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
BROKEN = 1
MOST_REASON = 400


class GatewayCheckRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for on the command line."""

    url: str
    families: tuple[FamilyName, ...] = ()
    key_env: str | None = None
    model: str = CASE
    port: int = 0
    lab_url: str | None = None
    cases: tuple[str, ...] = ()
    wait_s: float = 0.0
    timeout_s: float = 30.0
    as_json: bool = False


def check_gateway(wanted: GatewayCheckRequest) -> int:
    """The exit code. Raises CallerError for wrong use, Failure where the gateway is not there."""
    known = (*checked_cases(), *SILENT_CASES)
    unknown = [case for case in wanted.cases if case not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=3)
        meant = f"did you mean {' or '.join([f'`{name}`' for name in near])}? " if near else ""
        raise CallerError(f"there is no case `{unknown[0]}`; {meant}all of them: {', '.join(known)}")
    key = find_key(find_profile("openai_chat"), env=os.environ, api_key_env=wanted.key_env) if wanted.key_env else None
    gateway = GatewayAsked(url=wanted.url, key=key, model=wanted.model, timeout_s=wanted.timeout_s)
    shown = gateway.endpoint("anthropic_messages")  # an address that is none is told before anything starts
    course = GatewayCourse()
    try:
        run_to_end(_run(wanted, gateway=gateway, course=course))
    except NoGateway as error:
        reason = shortened(shown.scrub(str(error)), limit=MOST_REASON)
        raise Failure(f"`{shown.base_url.partition('?')[0]}`: {reason}", exit_code=NOT_THERE) from None
    code = CANCELLED if course.is_stopped else BROKEN if any(one.is_broken for one in course.found) else 0
    if wanted.as_json:
        write_json(course, url=shown.base_url.partition("?")[0], exit_code=code)
    else:
        show(course)
    return code


async def _run(wanted: GatewayCheckRequest, *, gateway: GatewayAsked, course: GatewayCourse) -> None:
    with cancelling():
        try:
            await _ask(wanted, gateway=gateway, course=course)
        except asyncio.CancelledError:
            course.is_stopped = True


async def _ask(wanted: GatewayCheckRequest, *, gateway: GatewayAsked, course: GatewayCourse) -> None:
    # The lab is on this machine: no proxy stands before it.
    async with _lab(wanted) as lab_url, AiohttpTransport() as transport, AiohttpTransport(env={}) as direct:
        lab = LabAsked(lab_url, transport=direct)
        await lab.play(None)
        _say_setting(lab_url, model=wanted.model)
        with _Telling(gateway.url) as telling:
            checking = GatewayChecking(gateway, lab, transport=transport, clock=SystemClock(), tell=telling)
            try:
                await checking.run(
                    wanted.cases or checked_cases(),
                    families=wanted.families or FAMILIES,
                    wait_s=wanted.wait_s,
                    course=course,
                )
            finally:
                if CASE not in wanted.model:
                    await lab.play(None)


@contextlib.asynccontextmanager
async def _lab(wanted: GatewayCheckRequest) -> AsyncGenerator[str]:
    if wanted.lab_url is not None:
        yield wanted.lab_url.rstrip("/")
        return
    async with Lab(port=wanted.port) as lab:
        yield lab.url


def _say_setting(lab: str, *, model: str) -> None:
    name = "the client's, unchanged" if model == CASE else f"`{model}`, as the client sends it"
    say("The lab is the upstream. Set in your gateway:")
    say(f"  base URL  {lab}/v1  (Chat Completions and Responses; Anthropic: {lab}, Gemini: {lab}/v1beta)")
    say(f"  model     {name}")
    say("  key       any text")


class _Telling:
    """At a terminal one line that says what happens now; elsewhere each new reason for waiting has a line."""

    def __init__(self, url: str) -> None:
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._status = console.status("") if sys.stderr.isatty() else None
        self._url = url
        self._last = ""

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def waiting(self, why: str) -> None:
        line = f"waiting for {self._url} ({shortened(why, limit=100)})"
        if self._status is not None:
            self._status.update(line)
        elif line != self._last:
            say(style(line, "dim", stream=sys.stderr))
        self._last = line

    def asking(self, number: int, total: int, case: str, family: FamilyName) -> None:
        if self._status is not None:
            self._status.update(f"{number}/{total} {case}, {family}")
