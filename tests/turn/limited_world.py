"""A provider, tools, sub-agents and programs for turns under limits: all that spends of a limit, each by its own truth.

The provider counts four bytes a token, and has a window. Its failures pass. A request for the answer gets one, unless the
`trouble` of the world says otherwise.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

from msgspec.structs import replace

from turn.playing import ASK, CONFIG, SCRIPT, Played, call, cut, says
from turn.test_lost_pieces import broken
from turnwise.rules.limits import (
    AllOf,
    AnyOf,
    Limit,
    MaxRequests,
    MaxTokens,
    MaxToolCalls,
    MaxWallTime,
    Spent,
    wall_time_s,
)
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.prompt_room import message_bytes, request_bytes
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import ChildReport, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    Interrupted,
    PlannedCall,
    RequestFailed,
    ResponseReceived,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    Wait,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Part,
    ProviderItem,
    Request,
    Response,
    StopReason,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
)

Kind = Literal["reads", "program", "child", "busy", "empty", "cut text", "cut call", "lost", "pause", "unfit"]
# What becomes of a request for the answer, a continuation or a summary: it is done, refused for a moment, or brings nothing.
Trouble = Literal["", "busy", "empty", "call"]
TASK = ToolOffer(spec=ToolSpec(name="task"), child=True)
LIMITED = replace(
    CONFIG,
    tools=(*CONFIG.tools, TASK, SCRIPT),
    room="compact",
    recover="continue",
    retry=RetryPolicy(attempts=50, cap_s=1.0, total_s=10_000.0),
    max_steps=40,
)
STORY = "The quick brown fox jumps over the lazy dog, again and aga"
STORY_REST = "jumps over the lazy dog, again and again, and then it sleeps."
READ_BEGUN = '{"path":"a/rather/long/path/that/goes/on/and/on/until/it/is/cu'
READ_REST = 'goes/on/and/on/until/it/is/cut/%s"}'
BY_TOKEN = PriceRow(plan="tokens", source="test", tokens=(TokenPrices(input=Decimal(3), output=Decimal(15)),))
BY_REQUEST = PriceRow(plan="request", source="test", request_usd=Decimal("0.01"))


class Move(NamedTuple):
    """What one step of the model does: so many calls, whose results have so many bytes and take so many seconds."""

    kind: Kind
    calls: int = 1
    size: int = 100
    seconds: float = 0.0


class World:
    """Plays the moves against one turn; then the model has finished."""

    def __init__(
        self,
        moves: Sequence[Move],
        *,
        window: int,
        request_s: float,
        summary: str,
        trouble: Sequence[Trouble] = (),
    ) -> None:
        self._moves = list(moves)
        self._trouble = list(trouble)
        self._window = window
        self._request_s = request_s
        self._summary = summary
        self._move = Move("reads")
        self._number = 0
        self._rest = ""
        self._program: list[int] = []
        self.now_s = 0.0
        self.refused = 0  # requests that did not fit
        self.silent = 0  # requests in a row, up to the last one, that brought neither an answer nor calls that may run
        self.last_prompt_tokens = 0
        self.tool_calls = 0  # of tools that ran, those of programs and sub-agents included

    def play(self, config: TurnConfig) -> Played:
        started = TurnStarted(config=config, input=(ASK,))
        turn, command = Turn.start(started)
        events: list[Event] = [started]
        requests: list[SendRequest] = []
        limit_s = None if config.limits is None else wall_time_s(config.limits)
        while not isinstance(command, FinishTurn):
            if isinstance(command, SendRequest):
                requests.append(command)
            silent = self.silent
            event = self._do(command)
            if limit_s is not None and self.now_s > limit_s:
                self.now_s, self.silent = limit_s, silent
                event = Interrupted(kind="deadline")
            events.append(event)
            command = turn.receive(event)
        return Played(requests, [], command.result, events, turn)

    def _do(self, command: Command) -> Event:
        match command:
            case SendRequest():
                self.now_s += self._request_s
                return self._reply(command)
            case RunTools(calls=planned, most_s=most_s):
                grants = [one for plan in planned for one in _leaves(plan.grant)]
                times = [float(one.seconds) for one in grants if isinstance(one, MaxWallTime)]
                self.now_s += min((self._move.seconds, *times, *(() if most_s is None else (most_s,))))
                results = tuple([_result(plan, self._move.size) for plan in planned])
                reports = tuple([_report(plan) for plan in planned if plan.call.name == "task"])
                self.tool_calls += len(planned) + sum([report.also_spent.tool_calls for report in reports])
                return ToolsFinished(results=results, children=reports, at_s=self.now_s)
            case RunScript():
                return self._go_on(command)
            case Wait(seconds=seconds):
                self.now_s += seconds
                return WaitOver(at_s=self.now_s)
            case _:
                raise AssertionError(command)

    def _go_on(self, command: RunScript) -> Event:
        if self._program and not command.stop:
            nth = self._program.pop()
            inner = call(f"{command.call.id}/{nth}", arguments=f'{{"path":"{command.call.id}{nth}"}}')
            return ScriptCalled(call_id=command.call.id, calls=(inner,), at_s=self.now_s)
        return ScriptFinished(call_id=command.call.id, text="x" * self._move.size, at_s=self.now_s)

    def _reply(self, command: SendRequest) -> Event:
        request, number = command.request, command.number
        tokens = self.last_prompt_tokens = prompt_tokens(command)
        if tokens + (request.settings.max_output_tokens or 0) > self._window:
            self.refused += 1
            fault = Fault(kind=FaultKind.CONTEXT_OVERFLOW, message="too long", status=400)
            return RequestFailed(number=number, fault=fault, at_s=self.now_s)
        found = self._said(command)
        if found is None:
            self.silent += 1
            fault = Fault(kind=FaultKind.SERVER, message="busy", status=500)
            return RequestFailed(number=number, fault=fault, at_s=self.now_s)
        if not found.lost:  # what a lost piece leaves is neither an answer nor silence
            self.silent = 0 if _brings_something(found, request=request) else self.silent + 1
        usage = Usage(input_tokens=tokens, output_tokens=message_bytes(found.message) // 4)
        return ResponseReceived(number=number, response=replace(found, usage=usage), at_s=self.now_s)

    def _said(self, command: SendRequest) -> Response | None:
        """What the model says; None: it is busy."""
        request = command.request
        purpose = command.retry_of or command.purpose
        is_for_step = purpose not in ("continue", "compact") and request.tools and request.tool_choice != "none"
        if is_for_step:
            return self._next()
        match self._trouble.pop(0) if self._trouble else "":
            case "busy":
                return None
            case "empty":
                return says("")
            case "call":
                return _calls([call(f"t{command.number}", arguments='{"path":"t"}')])
            case _:
                pass
        if purpose == "continue":
            return says(self._rest)
        return says(self._summary if purpose == "compact" else '{"n": 1}')

    def _next(self) -> Response | None:
        """What the model says next; None: it is busy."""
        if not self._moves:
            return says('{"n": 2}')
        self._move = move = self._moves.pop(0)
        self._number += 1
        ids = [f"c{self._number}x{nth}" for nth in range(move.calls)]
        match move.kind:
            case "reads":
                return _calls([call(id, arguments=f'{{"path":"{id}"}}') for id in ids])
            case "program":
                self._program = list(range(move.calls))
                return _calls([call(ids[0], "script", '{"program":"go()"}')])
            case "child":
                return _calls([call(id, "task", f'{{"prompt":"{id}"}}') for id in ids])
            case "busy":
                return None
            case "empty":
                return says("")
            case "cut text":
                self._rest = STORY_REST
                return says(STORY, finish=FinishReason.LENGTH)
            case "cut call":
                self._rest = READ_REST % ids[0]
                return says(cut(ids[0], READ_BEGUN), finish=FinishReason.LENGTH)
            case "lost":
                return replace(says(broken(ids[0])), lost=True)
            case "pause":
                item = ProviderItem(family="openai_chat", kind="search", json='{"type":"search"}')
                return says("Looking.", item, finish=FinishReason.PAUSE)
            case "unfit":
                return says("no JSON at all")


def _brings_something(response: Response, *, request: Request) -> bool:
    if any(isinstance(part, Text) and part.text for part in response.message.parts):
        return True
    return bool(request.tools) and request.tool_choice != "none" and bool(calls_of(response.message))


def _calls(parts: Sequence[Part]) -> Response:
    return says(*parts, finish=FinishReason.TOOL_CALLS)


def _result(plan: PlannedCall, size: int) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("word " * (size // 5)),))


def _report(plan: PlannedCall) -> ChildReport:
    """A sub-agent that spends all that it may."""
    requests = min([one.requests for one in _leaves(plan.grant) if isinstance(one, MaxRequests)], default=3)
    tokens = min([one.tokens for one in _leaves(plan.grant) if isinstance(one, MaxTokens)], default=3_000)
    return ChildReport(
        call_id=plan.call.id,
        session_id="c",
        stop_reason=StopReason.ANSWERED,
        requests=min(requests, 6),
        usage=Usage(input_tokens=min(tokens, 9_000)),
        also_spent=Spent(
            tool_calls=min([one.calls for one in _leaves(plan.grant) if isinstance(one, MaxToolCalls)], default=0)
        ),
    )


def _leaves(limit: Limit | None) -> Iterator[Limit]:
    if isinstance(limit, AnyOf | AllOf):
        for one in limit.limits:
            yield from _leaves(one)
    elif limit is not None:
        yield limit


def prompt_tokens(command: SendRequest) -> int:
    request = command.request
    before = request_bytes(system=request.system, tools=request.tools)
    return (before + sum([message_bytes(one) for one in request.messages])) // 4


def spent(result: TurnResult, *, elapsed_s: float) -> Spent:
    """What the turn and its sub-agents have spent, by the world's own count."""
    usage = result.usage
    for child in result.children:
        usage += child.usage
    return Spent(
        steps=result.steps,
        requests=result.requests + sum([child.requests for child in result.children]),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        elapsed_s=elapsed_s,
        cost_usd=result.charged_usd or Decimal(0),
        tool_calls=result.also_spent.tool_calls,
    )
