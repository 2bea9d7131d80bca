"""A check in order: wait until the gateway answers a healthy stream, then ask for every case in every family."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec

from turnwise.agent.models import find_profile
from turnwise.base.clock import Clock
from turnwise.endpoints.endpoints import Endpoint, Secret, build_http_request
from turnwise.endpoints.transport import HttpRequest, Transport, read_bounded
from turnwise.errors import CallerError, ProviderFault, TurnwiseError
from turnwise.lab.families import FAMILIES, route
from turnwise.lab.families.family import BrokenRule, StreamReading, ToldError, counted
from turnwise.lab.provider import Provider
from turnwise.lab.raw import Raw, dig, parse, rows, table, text
from turnwise.lab.script import Script, ScriptedCall, builtin_scripts
from turnwise.vocab import Message, Request, Settings, Text, ToolSpec
from turnwise.wire.profiles import FamilyName

# Which scripts of the lab show what a client makes of a stream, and what each of them means.


HEALTHY_CASES = ("plain-answer", "parallel-calls", "reasoning-and-calls", "read-edit-answer", "refusal")
# What the upstream sends is no whole response, or not at once. A client gets the right answer or one error.
FAILING_CASES = (
    "fault-endless-line",
    "fault-error-in-stream",
    "fault-html",
    "fault-invalid-utf8",
    "fault-once-error-in-stream",
    "fault-once-reset",
    "fault-once-torn-event",
    "fault-random-bytes",
    "fault-reset",
    "fault-sent-twice",
    "fault-torn-event",
)
# Nothing right can be had of these: every attempt fails.
HOPELESS_CASES = {
    "fault-endless-line": "no line of the upstream ends",
    "fault-error-in-stream": "the upstream reports an error each time",
    "fault-html": "the upstream answers with a web page",
    "fault-invalid-utf8": "each attempt garbles a piece of the answer in another way than the text can show",
    "fault-random-bytes": "the upstream sends bytes without sense",
    "fault-reset": "the connection breaks each time, before a word that could be continued",
}
# Scripts about something else than the shape of one stream.
_OTHER_SUBJECTS = ("fault-", "cut-", "loop-", "writer-", "retry-")
# The upstream refuses with a status, always or once: no stream begins, or the second attempt has it.
REFUSED_CASES = ("fault-401", "fault-429", "fault-500", "fault-529", "fault-once-429", "fault-once-503")
# Only the gateway's own deadlines end these, so they are tried where they are named.
SILENT_CASES = ("fault-silence", "fault-stall")
TOOL_NAMES = ("read", "write", "list", "note", "edit", "search")
CHAT_PATH = "/v1/chat/completions"
QUESTION = "Please. Begin with part-001.txt"


class MeantAnswer(NamedTuple):
    """What a client is to get: text, each call's name and arguments, and one word for the end (`calls`, `stop`, `refused`)."""

    text: str
    calls: tuple[tuple[str, object], ...]
    finish: str


def malformed_cases() -> tuple[str, ...]:
    """The response is whole, though its stream is not as the API sends it."""
    scripts = builtin_scripts().items()
    return tuple([name for name, script in scripts if not script.healthy and not name.startswith(_OTHER_SUBJECTS)])


def all_cases() -> tuple[str, ...]:
    """Those in which the upstream sends a stream to its end, or breaks it off."""
    return (*malformed_cases(), *FAILING_CASES, *HEALTHY_CASES)


def checked_cases() -> tuple[str, ...]:
    """What a gateway is tried with unless cases are named."""
    return (*malformed_cases(), *FAILING_CASES, *REFUSED_CASES, *HEALTHY_CASES)


def meaning_of(script: Script) -> MeantAnswer | None:
    """What the script means: not streamed, the lab says it well. Where no request gets a whole answer, the calls that a broken
    response was to hold; None where nothing right can be had."""
    if script.name in HOPELESS_CASES:
        return None
    provider = Provider(scripts={script.name: script}, caches=False)
    body = msgspec.json.encode(_question(script.name))
    asked = route(CHAT_PATH)
    assert asked is not None
    for number in (1, 2):  # a failure that happens once is over then
        outgoing, kept = provider.answer(asked, target=CHAT_PATH, body=body, number=number)
        if outgoing.status == 200 and kept.fault in (None, "sent-twice"):
            return _meant(parse(b"".join(outgoing.pieces)))
    step = script.steps[0] if script.steps else None
    calls = () if step is None or step.fault is None else step.fault.calls or step.calls
    return MeantAnswer("", tuple([_call(one) for one in calls]), "calls") if calls else None


def _question(model: str) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    return {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": schema}} for name in TOOL_NAMES],
    }


def _meant(body: Raw) -> MeantAnswer:
    choice = rows(table(body).get("choices"))[0]
    calls = tuple(
        [
            (text(dig(call, "function", "name")), parse(text(dig(call, "function", "arguments")) or "{}"))
            for call in rows(dig(choice, "message", "tool_calls"))
        ]
    )
    refusal = text(dig(choice, "message", "refusal"))
    said = text(dig(choice, "message", "content")) + refusal
    return MeantAnswer(said, calls, "calls" if calls else "refused" if refusal else "stop")


def _call(call: ScriptedCall) -> tuple[str, object]:
    return call.name, call.arguments


# The two ends of a check: the gateway that is asked, and the lab that answers behind it.


CASE = "{case}"  # in the name of a model
CONNECT_S = 10.0
MOST_BYTES = 32 * 1024 * 1024
LIMIT_TOKENS = 6_000
_ANY = '{"type":"object","properties":{}}'
_VERSIONS = ("/v1", "/v1beta")


class GatewayAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All that came back for one question. `failure`: the connection failed, or no end came in time."""

    status: int = 0
    content_type: str = ""
    body: bytes = b""
    failure: str = ""


class GatewayAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway, and how it is asked. `model` may hold `{case}`, for the name of the lab's script."""

    url: str
    key: Secret | None
    model: str
    timeout_s: float

    def endpoint(self, family: FamilyName) -> Endpoint:
        """Raises CallerError for an invalid address."""
        base = self.url.rstrip("/")
        for version in _VERSIONS:
            base = base.removesuffix(version)
        return Endpoint(profile=find_profile(family), base_url=base + FAMILIES[family].base_path, key=self.key)

    async def ask(self, case: str, *, family: FamilyName, transport: Transport) -> GatewayAnswer:
        """One question with tools, as a client of this family sends it; the answer is a stream."""
        endpoint = self.endpoint(family)
        request = Request(
            model=self.model.replace(CASE, case),
            messages=(Message("user", (Text(QUESTION),)),),
            tools=tuple([ToolSpec(name=name, parameters=_ANY) for name in TOOL_NAMES]),
            stream=True,
            settings=Settings(max_output_tokens=LIMIT_TOKENS),
        )
        call = endpoint.family.encode_request(request, endpoint.profile)
        sent = build_http_request(endpoint, call, connect_s=min(CONNECT_S, self.timeout_s))
        try:
            async with asyncio.timeout(self.timeout_s), transport.send(sent) as reply:
                body = await read_bounded(reply.chunks, most_bytes=MOST_BYTES)
                return GatewayAnswer(status=reply.status, content_type=reply.headers.get("content-type", ""), body=body)
        except ProviderFault as error:
            return GatewayAnswer(failure=endpoint.scrub(error.fault.message))
        except TimeoutError:
            return GatewayAnswer(failure=f"no end within {self.timeout_s:g} s")


class LabAsked:
    """A lab that runs, told by its own paths what to play. Raises CallerError where there is no lab."""

    def __init__(self, url: str, *, transport: Transport) -> None:
        self._url = url.rstrip("/")
        self._transport = transport

    async def forget(self) -> None:
        """Steps that fail at first do so again."""
        await self._send("DELETE", "/_lab/requests")

    async def play(self, case: str | None) -> None:
        """This script for every request, whatever model it names; None: the model's name chooses."""
        await self._send("PUT", "/_lab/playing", body=msgspec.json.encode({"script": case}))

    async def heard_in(self) -> FamilyName | None:
        """The family of the last request since `forget`."""
        listed = msgspec.json.decode(await self._send("GET", "/_lab/requests"), type=_Listed)
        return listed.requests[-1].family if listed.requests else None

    async def _send(self, method: str, path: str, *, body: bytes = b"") -> bytes:
        request = HttpRequest(url=f"{self._url}{path}", headers=(), body=body, method=method, connect_s=CONNECT_S)
        try:
            async with asyncio.timeout(CONNECT_S), self._transport.send(request) as reply:
                answer = await read_bounded(reply.chunks, most_bytes=MOST_BYTES)
        except (ProviderFault, TimeoutError) as error:
            raise CallerError(f"no lab at `{self._url}`: {error or 'no answer'}") from None
        if reply.status >= 300:
            raise CallerError(f"no lab of this version at `{self._url}`: status {reply.status} for {method} {path}")
        return answer


class _Heard(msgspec.Struct, frozen=True):
    family: FamilyName


class _Listed(msgspec.Struct, frozen=True):
    requests: list[_Heard]


# What the two readers make of a gateway's answer to one case.


CaseVerdict = Literal["right", "wrong", "error", "crash"]


class _ErrorBody(msgspec.Struct, frozen=True):
    error: ToldError


def told_error(body: bytes) -> str | None:
    """The message of an error's body, which all four families put in one place; None where it is no such body. Gemini's may
    stand in an array."""
    try:
        if body.lstrip()[:1] == b"[":
            several = msgspec.json.decode(body, type=list[_ErrorBody])
            return several[0].error.message if several else None
        return msgspec.json.decode(body, type=_ErrorBody).error.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class ReaderVerdict(msgspec.Struct, frozen=True):
    """`why` is empty where the answer is right."""

    verdict: CaseVerdict
    why: str = ""


class CaseFound(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one family of clients. `upstream` is the family in which the lab was asked; None: it was not asked."""

    case: str
    family: FamilyName
    upstream: FamilyName | None
    strict: ReaderVerdict
    naive: ReaderVerdict

    @property
    def is_broken(self) -> bool:
        """Where the upstream fails, one error is a good answer, too."""
        good = {"right", "error"} if self.upstream_fails else {"right"}
        return not {self.strict.verdict, self.naive.verdict} <= good

    @property
    def upstream_fails(self) -> bool:
        return self.case in (*FAILING_CASES, *REFUSED_CASES, *SILENT_CASES)


def judge_case(
    case: str,
    answer: GatewayAnswer,
    *,
    family: FamilyName,
    upstream: FamilyName | None,
    meant: MeantAnswer | None,
) -> CaseFound:
    """`meant` is None where nothing right can be had."""

    def judged(read: Callable[[bytes], StreamReading]) -> ReaderVerdict:
        return _judged(answer, read=read, family=family, meant=meant)

    is_stream = answer.content_type.partition(";")[0].strip().lower() == "text/event-stream"
    strict = judged(FAMILIES[family].read_strictly)
    if answer.status == 200 and not answer.failure and not is_stream:
        strict = ReaderVerdict("crash", f"the answer is of type `{answer.content_type}` and no stream")
    naive = judged(FAMILIES[family].read_naively)
    return CaseFound(case=case, family=family, upstream=upstream, strict=strict, naive=naive)


def _judged(
    answer: GatewayAnswer, *, read: Callable[[bytes], StreamReading], family: FamilyName, meant: MeantAnswer | None
) -> ReaderVerdict:
    if answer.failure:
        return ReaderVerdict("crash", answer.failure)
    if answer.status != 200:
        told = told_error(answer.body)
        if told is None:
            return ReaderVerdict("crash", f"status {answer.status} without an error of this API")
        return ReaderVerdict("error", f"status {answer.status}: {told}")
    try:
        reading = read(answer.body)
    except BrokenRule as broken:
        return ReaderVerdict("crash", str(broken))
    except (msgspec.DecodeError, ValueError, LookupError) as error:
        return ReaderVerdict("crash", f"{type(error).__name__}: {error}")
    if reading.error:
        return ReaderVerdict("error", reading.error)
    why = difference(reading, meant, has_ids=FAMILIES[family].has_ids)
    return ReaderVerdict("wrong", why) if why else ReaderVerdict("right")


def difference(reading: StreamReading, meant: MeantAnswer | None, *, has_ids: bool) -> str:
    """What is wrong in one sentence; empty where the answer is right. `has_ids`: each call of this family has one."""
    if not reading.ended:
        return "the answer just stops"
    if meant is None:
        return "it looks like an answer, though the upstream gave none"
    if reading.text != meant.text:
        return f"the text is `{_short(reading.text)}` and not `{_short(meant.text)}`"
    if len(reading.calls) != len(meant.calls):
        return f"{counted(len(reading.calls), 'call')} and not {len(meant.calls)}"
    for (_, name, arguments), (meant_name, meant_arguments) in zip(reading.calls, meant.calls, strict=True):
        if name != meant_name:
            return f"a call's name is `{_short(name)}` and not `{meant_name}`"
        if _value(arguments) != meant_arguments:
            return f"the arguments of `{name}` are `{_short(arguments)}`"
    ids = [one for one, _, _ in reading.calls]
    if has_ids and not all(ids):
        return "a call has no id"
    if len(set(filter(None, ids))) != len(list(filter(None, ids))):
        return "two calls have one id"
    if reading.finish != meant.finish and {reading.finish, meant.finish} != {"stop", "refused"}:
        return f"the finish reason says `{reading.finish}` and not `{meant.finish}`"
    return ""


def _value(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return BrokenRule  # equal to no arguments


def _short(words: str) -> str:
    return words if len(words) <= 60 else f"{words[:59]}…"


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
