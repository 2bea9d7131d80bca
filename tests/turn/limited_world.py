"""A provider, tools, sub-agents and programs for turns under limits: all that spends of a limit, each by its own truth.

The provider counts four bytes a token, and has a window; its failures pass; whoever asks it for the answer gets one.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

from msgspec.structs import replace

from turn.playing import ASK, CONFIG, Played, call, cut, says
from turn.test_lost_pieces import broken
from turn.test_scripting import SCRIPT
from turnwise.rules.budget import message_bytes
from turnwise.rules.limits import AllOf, AnyOf, Limit, MaxRequests, MaxTokens, Spent, wall_time_s
from turnwise.rules.pricing import PriceRow, TokenPrices
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.commands import Command, FinishTurn, PlannedCall, RunScript, RunTools, SendRequest, Wait
from turnwise.turn.config import ChildReport, ToolOffer, TurnConfig, TurnResult
from turnwise.turn.events import (
    Event,
    Interrupted,
    RequestFailed,
    ResponseReceived,
    ScriptCalled,
    ScriptFinished,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import (
    Fault,
    FaultKind,
    FinishReason,
    Part,
    ProviderItem,
    Response,
    StopReason,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
)

Kind = Literal["reads", "program", "child", "busy", "empty", "cut text", "cut call", "lost", "pause", "unfit"]
CALLING = frozenset({"reads", "program", "child", "cut call"})
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
    count: int = 1
    size: int = 100
    seconds: float = 0.0


class World:
    """Plays the moves against one turn; then the model has finished."""

    def __init__(self, moves: Sequence[Move], *, window: int, request_s: float, summary: str) -> None:
        self._moves = list(_without_silence(moves))
        self._window = window
        self._request_s = request_s
        self._summary = summary
        self._move = Move("reads")
        self._number = 0
        self._rest = ""
        self._program: list[int] = []
        self.now_s = 0.0
        self.refused = 0  # requests that did not fit

    def play(self, config: TurnConfig) -> Played:
        started = TurnStarted(config=config, input=(ASK,))
        turn, command = Turn.start(started)
        events: list[Event] = [started]
        requests: list[SendRequest] = []
        limit_s = None if config.limits is None else wall_time_s(config.limits)
        while not isinstance(command, FinishTurn):
            if isinstance(command, SendRequest):
                requests.append(command)
            event = self._do(command)
            if limit_s is not None and self.now_s > limit_s:
                self.now_s = limit_s
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
                self.now_s += min(self._move.seconds, self._move.seconds if most_s is None else most_s)
                results = tuple([_result(plan, self._move.size) for plan in planned])
                reports = tuple([_report(plan) for plan in planned if plan.call.name == "task"])
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
        tokens = prompt_tokens(command)
        if tokens + (request.settings.max_output_tokens or 0) > self._window:
            self.refused += 1
            fault = Fault(kind=FaultKind.CONTEXT_OVERFLOW, message="too long", status=400)
            return RequestFailed(number=number, fault=fault, at_s=self.now_s)
        purpose = command.retry_of or command.purpose
        if purpose == "continue":
            response = says(self._rest)
        elif purpose == "compact":
            response = says(self._summary)
        elif not request.tools or request.tool_choice == "none":
            response = says('{"n": 1}')
        else:
            found = self._next()
            if found is None:
                fault = Fault(kind=FaultKind.SERVER, message="busy", status=500)
                return RequestFailed(number=number, fault=fault, at_s=self.now_s)
            response = found
        usage = Usage(input_tokens=tokens, output_tokens=message_bytes(response.message) // 4)
        return ResponseReceived(number=number, response=replace(response, usage=usage), at_s=self.now_s)

    def _next(self) -> Response | None:
        """What the model says next; None: it is busy."""
        if not self._moves:
            return says('{"n": 2}')
        self._move = move = self._moves.pop(0)
        self._number += 1
        ids = [f"c{self._number}x{nth}" for nth in range(move.count)]
        match move.kind:
            case "reads":
                return _calls([call(id, arguments=f'{{"path":"{id}"}}') for id in ids])
            case "program":
                self._program = list(range(move.count))
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


def _without_silence(moves: Sequence[Move]) -> Iterator[Move]:
    """No model that says nothing twice in a row: it has no answer."""
    was_silent = False
    for move in moves:
        if move.kind != "empty" or not was_silent:
            yield move
        was_silent = move.kind == "empty" or (was_silent and move.kind not in CALLING)


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
    )


def _leaves(limit: Limit | None) -> Iterator[Limit]:
    if isinstance(limit, AnyOf | AllOf):
        for one in limit.limits:
            yield from _leaves(one)
    elif limit is not None:
        yield limit


def prompt_tokens(command: SendRequest) -> int:
    return sum([message_bytes(one) for one in command.request.messages]) // 4


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
    )
