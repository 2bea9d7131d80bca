"""Sends the probes of `turnwise check --rules` one after the other, and tells a refusal from every other failure."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.base.clock import Clock, sleep
from turnwise.endpoints.endpoints import Endpoint, build_http_request
from turnwise.endpoints.exchange import Exchange
from turnwise.endpoints.transport import Transport
from turnwise.lab.endpoint_check.probes import BYTES_A_TOKEN, MAX_WAITS, Estimate, usd_of
from turnwise.lab.endpoint_check.rule_probes import (
    RULE_TOKENS,
    AskedSoFar,
    RuleAnswer,
    RuleProbe,
    bodies_of,
    conversation,
    plain_body,
    row_fields,
    tells_anything,
)
from turnwise.lab.endpoint_check.running import CONNECT_S, HOPELESS, IDLE_S, LIMITS, wait_s_of
from turnwise.rules.pricing import PriceRow
from turnwise.turn.config import Deadlines
from turnwise.turn.events import ResponseReceived, SendRequest
from turnwise.vocab import Fault, FaultKind, Request, Usage
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import Profile

LIMIT_PROBES = ("max-tokens", "max-completion-tokens")  # a plain request, with the one field that a server may not know
CONTROLS = 5  # plain requests behind the probes: a server that refuses one request in five is found out
MAX_UNKNOWN = 3  # answers in a row that say nothing of a rule, before the rest is not sent
CHAT_PATH = "/chat/completions"
CONVERSATION, CONTROL = "conversation", "control"
# A reasoning model that had no room for an answer (OpenAI): it has taken the request.
NO_ROOM = "model output limit was reached"


class AskedRule(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one probe; `words` are the server's own where it did not take it."""

    name: str
    title: str
    answer: RuleAnswer
    words: str = ""


class RuleCourse(msgspec.Struct, kw_only=True):
    """The progress of the questions. `usages` has None for a request whose usage is unknown. `holds`: whether the server took a
    conversation as turnwise writes it with this row; None: it was not asked. `refused_plain`: a plain request that it
    finally refused."""

    profile: Profile
    so_far: AskedSoFar
    asked: list[AskedRule]
    usages: list[Usage | None]
    waits: int = 0
    stopped: bool = False
    holds: AskedRule | None = None
    refused_plain: AskedRule | None = None

    @property
    def requests(self) -> int:
        return len(self.usages)

    @property
    def has_answered(self) -> bool:
        """Where nothing was taken, a refusal says nothing: what is refused may be all requests."""
        return any(one.answer == "taken" for one in self.asked)

    @property
    def is_conclusive(self) -> bool:
        """Whether its refusals are about the requests: a server that refuses what it has taken before may refuse anything."""
        return self.has_answered and self.refused_plain is None


def estimate_rules(probes: Sequence[RuleProbe], *, model: str, row: PriceRow | None) -> Estimate:
    """Probes that are sent only behind a refusal are among those that it may add, and so are the plain requests at the end. The
    conversation is as large as the largest."""
    bodies = bodies_of(probes, model=model)
    sizes = [len(body) for body in bodies] + [len(bodies[0])] * CONTROLS + [2 * max(map(len, bodies))] * (1 + MAX_WAITS)
    usages = [Usage(input_tokens=-(-size // BYTES_A_TOKEN), output_tokens=RULE_TOKENS) for size in sizes]
    taken = AskedSoFar(model=model, answers={probe.name: "taken" for probe in probes})
    usual = 1 + sum([probe.when(taken) for probe in probes])
    return Estimate(
        requests=usual,
        more=len(usages) - usual,
        input_tokens=sum([usage.input_tokens for usage in usages]),
        output_tokens=sum([usage.output_tokens for usage in usages]),
        usd=usd_of(usages, row=row),
    )


class ServerRulesCheck:
    """Runs the probes. `tell` is called with the title of each before it is sent, `refresh` as `EndpointCheck` calls it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        model: str,
        transport: Transport,
        clock: Clock,
        timeout_s: float,
        tell: Callable[[str], object],
        refresh: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.course = RuleCourse(
            profile=endpoint.profile, so_far=AskedSoFar(model=model, answers={}), asked=[], usages=[]
        )
        self._endpoint = endpoint
        self._transport = transport
        self._clock = clock
        self._timeout_s = timeout_s
        self._tell = tell
        self._refresh = refresh

    async def run(self, probes: Sequence[RuleProbe]) -> RuleCourse:
        """A cancellation (Ctrl-C) ends it with what was found until then."""
        try:
            await self._run(probes)
        except asyncio.CancelledError:
            self.course.stopped = True
        return self.course

    async def _run(self, probes: Sequence[RuleProbe]) -> None:
        course = self.course
        for probe in probes:
            if not tells_anything(probe, course.so_far):
                course.asked.append(AskedRule(name=probe.name, title=probe.title, answer="not_asked"))
                continue
            self._tell(probe.title)
            body = probe.build(course.so_far)
            fault = await self._send(msgspec.json.encode(body), is_stream=body.get("stream") is True)
            answer = answer_of(fault)
            course.asked.append(AskedRule(name=probe.name, title=probe.title, answer=answer, words=_words(fault)))
            course.so_far = replace(course.so_far, answers={**course.so_far.answers, probe.name: answer})
            if _is_hopeless(course, fault):
                return
        if course.has_answered and any(one.answer == "refused" for one in course.asked):
            await self._ask_again()
        if not course.is_conclusive:
            return
        title = "a conversation by this row"
        self._tell(title)
        profile = replace(course.profile, **row_fields(course.so_far))
        asked = conversation(course.so_far, profile=profile)
        fault = await self._send(self._endpoint.family.encode_request(asked, profile).body, is_stream=False)
        course.holds = AskedRule(name=CONVERSATION, title=title, answer=answer_of(fault), words=_words(fault))

    async def _ask_again(self) -> None:
        """Sends what the server has taken before, until it is refused."""
        course, title = self.course, "a plain request once more"
        self._tell(title)
        for _ in range(CONTROLS):
            fault = await self._send(msgspec.json.encode(plain_body(course.so_far)), is_stream=False)
            if answer_of(fault) == "refused":
                course.refused_plain = AskedRule(name=CONTROL, title=title, answer="refused", words=_words(fault))
                return

    async def _send(self, body: bytes, *, is_stream: bool) -> Fault | None:
        """Asked again where the server asks to wait, for as long as waiting is left."""
        while True:
            fault = await self._send_once(body, is_stream=is_stream)
            wait_s = wait_s_of(fault)
            if wait_s is None or self.course.waits >= MAX_WAITS:
                return fault
            self.course.waits += 1
            await sleep(self._clock, seconds=wait_s)

    async def _send_once(self, body: bytes, *, is_stream: bool) -> Fault | None:
        if self._refresh is not None:
            await self._refresh()
        deadlines = Deadlines(
            connect_s=min(CONNECT_S, self._timeout_s),
            first_event_s=self._timeout_s,
            idle_s=min(IDLE_S, self._timeout_s),
            total_s=2 * self._timeout_s,
        )
        request = Request(model=self.course.so_far.model, messages=(), stream=is_stream)
        order = SendRequest(number=1, step=1, purpose="step", request=request, deadlines=deadlines)
        exchange = Exchange(
            order, endpoint=self._endpoint, transport=self._transport, clock=self._clock, on_frames=None, limits=LIMITS
        )
        path = (self._endpoint.profile.path or CHAT_PATH).replace("{model}", request.model)
        call = HttpCall(path=path, body=body)
        self.course.usages.append(None)
        event = await exchange.run(build_http_request(self._endpoint, call, connect_s=deadlines.connect_s))
        if isinstance(event, ResponseReceived):
            self.course.usages[-1] = event.response.usage
            return event.response.fault
        self.course.usages[-1] = Usage() if event.fault.kind is FaultKind.BAD_REQUEST else None
        return event.fault


def answer_of(fault: Fault | None) -> RuleAnswer:
    """A refusal is what the server says of the request itself: a key, a quota or a busy server says nothing of a rule."""
    if fault is None or NO_ROOM in fault.message:
        return "taken"
    return "refused" if fault.kind is FaultKind.BAD_REQUEST else "unknown"


def _words(fault: Fault | None) -> str:
    return "" if fault is None else fault.message


def _is_hopeless(course: RuleCourse, fault: Fault | None) -> bool:
    if not course.has_answered and fault is not None and fault.kind in HOPELESS:
        return True
    if not course.has_answered and len(course.asked) >= len(LIMIT_PROBES):
        return True
    last = [one for one in course.asked if one.answer != "not_asked"][-MAX_UNKNOWN:]
    return len(last) == MAX_UNKNOWN and all(one.answer == "unknown" for one in last)
