"""A check in order: wait until the gateway answers a healthy stream, then ask for every case in every family."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from turnwise.base.clock import Clock
from turnwise.endpoints.transport import Transport
from turnwise.errors import TurnwiseError
from turnwise.lab.cases import MeantAnswer, meaning_of
from turnwise.lab.gateway_check.asking import CASE, GatewayAsked, LabAsked
from turnwise.lab.gateway_check.judging import CaseFound, judge_case
from turnwise.lab.script import builtin_scripts
from turnwise.wire.profiles import FamilyName

PROBE = "plain-answer"
LOOK_S = 1.0  # between two looks at a gateway that does not answer yet


class NoGateway(TurnwiseError):
    """The gateway does not answer a healthy stream in any family that was asked for."""


class CheckTeller(Protocol):
    def waiting(self, why: str) -> None: ...

    def asking(self, number: int, total: int, case: str, family: FamilyName) -> None: ...


class GatewayCourse(msgspec.Struct, kw_only=True):
    """What was found so far. `left_out`: families in which the gateway does not answer a healthy stream, and why."""

    found: list[CaseFound] = []
    left_out: dict[FamilyName, str] = {}
    is_stopped: bool = False


class GatewayChecking:
    """Asks one gateway, one question after the other, so that the lab can play each case."""

    def __init__(
        self, gateway: GatewayAsked, lab: LabAsked, *, transport: Transport, clock: Clock, tell: CheckTeller
    ) -> None:
        self._gateway = gateway
        self._lab = lab
        self._transport = transport
        self._clock = clock
        self._tell = tell

    async def run(
        self, cases: Sequence[str], *, families: Sequence[FamilyName], wait_s: float, course: GatewayCourse
    ) -> None:
        """Fill the `course`. Raises NoGateway, and CallerError where the lab is gone."""
        upstreams = await self._reached(families, wait_s=wait_s, course=course)
        scripts = builtin_scripts()
        todo: list[tuple[str, FamilyName]] = [
            (case, family)
            for case in cases
            for family, upstream in upstreams.items()
            if upstream is None or scripts[case].speaks(upstream)
        ]
        meanings = {case: meaning_of(scripts[case]) for case in cases}
        for number, (case, family) in enumerate(todo, start=1):
            self._tell.asking(number, len(todo), case, family)
            course.found.append(await self._try(case, family=family, meant=meanings[case]))

    async def _reached(
        self, families: Sequence[FamilyName], *, wait_s: float, course: GatewayCourse
    ) -> dict[FamilyName, FamilyName | None]:
        """The families that work, each with the one in which the gateway asks the lab."""
        until = self._clock.monotonic() + wait_s
        meant = meaning_of(builtin_scripts()[PROBE])
        while True:
            found = [await self._try(PROBE, family=family, meant=meant) for family in families]
            works: dict[FamilyName, FamilyName | None] = {one.family: one.upstream for one in found if _works(one)}
            left_out: dict[FamilyName, str] = {one.family: _told_of(one) for one in found if one.family not in works}
            if works:
                course.left_out = left_out
                return works
            reasons = _joined(left_out)
            if self._clock.monotonic() >= until:
                raise NoGateway(f"the gateway does not pass on the lab's healthy stream: {reasons}")
            self._tell.waiting(reasons)
            await asyncio.sleep(LOOK_S)

    async def _try(self, case: str, *, family: FamilyName, meant: MeantAnswer | None) -> CaseFound:
        await self._lab.forget()
        if CASE not in self._gateway.model:
            await self._lab.play(case)
        answer = await self._gateway.ask(case, family=family, transport=self._transport)
        upstream = await self._lab.heard_in()
        return judge_case(case, answer, family=family, upstream=upstream, meant=meant)


def _works(found: CaseFound) -> bool:
    return found.naive.verdict == "right" and found.upstream is not None


def _told_of(found: CaseFound) -> str:
    if found.naive.verdict == "right":
        return "the answer is right, but this lab was not asked: another one is the upstream"
    asked = "" if found.upstream is not None else ", and the lab was not asked"
    return f"{found.naive.why}{asked}"


def _joined(left_out: Mapping[FamilyName, str]) -> str:
    """Each reason once."""
    by_reason: dict[str, list[str]] = {}
    for family, why in left_out.items():
        by_reason.setdefault(why, []).append(family)
    if len(by_reason) == 1:
        return next(iter(by_reason))
    return "; ".join([f"{', '.join(names)}: {why}" for why, names in by_reason.items()])
