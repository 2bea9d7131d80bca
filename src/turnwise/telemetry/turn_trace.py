"""The spans of one turn: `invoke_agent` around it, `chat` for each request, `execute_tool` for each call that runs.

It is told what watchers are told. A `ToolStarted` and a `RequestStarted` come in the context in which the call and the request
then run, so what they start is a child of their span.
"""

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

import msgspec
from opentelemetry.context import Context, attach, create_key, detach, get_current, get_value, set_value
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from turnwise.running.watcher_events import (
    CallAnswered,
    FrameSeen,
    ObservedTurn,
    RequestFinished,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.telemetry import attributes, names
from turnwise.telemetry.attributes import Attributes, Contents
from turnwise.telemetry.instruments import Instruments
from turnwise.turn.commands import RECOVERY, SendRequest
from turnwise.turn.config import TurnResult
from turnwise.vocab import Fault, Response, ToolCall, ToolResult

_RUN = create_key("turnwise-run")
Told = TypeVar("Told")


class OpenSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span that has not ended. `inside` is the context with it, `outside` the one around it; `measured` is what metrics say."""

    span: Span
    outside: Context
    inside: Context
    began_s: float
    measured: Attributes

    @property
    def link(self) -> SpanContext:
        return self.span.get_span_context()


class TurnTrace:
    """Makes the spans of one turn, between the beginning and the end of `around`. Where one cannot be made, that is logged once,
    and the turn and its other spans go on without."""

    def __init__(
        self,
        turn: ObservedTurn,
        *,
        instruments: Instruments,
        agent_name: str,
        has_contents: bool,
        sends_traceparent: bool,
    ) -> None:
        self._turn = turn
        self._clock = turn.clock
        self._instruments = instruments
        self._agent_name = turn.path[-1] if turn.path else agent_name
        self._contents = Contents(turn.scrub) if has_contents else None
        self._sends_traceparent = sends_traceparent
        self._run: OpenSpan | None = None
        self._chat: tuple[OpenSpan, SendRequest] | None = None
        self._before: SpanContext | None = None  # the request before
        self._calls: dict[str, OpenSpan] = {}
        self._asked_by: dict[str, SpanContext] = {}  # call -> the request that brought it
        self._finish = ""  # of the last response
        self._tools = frozenset([offer.spec.name for offer in turn.config.tools])

    @contextlib.contextmanager
    def around(self) -> Generator[None]:
        """The turn runs in it, as a child of the span at hand."""
        self._safely(self._begin, get_current())
        token = None if self._run is None else attach(self._run.inside)
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised:
            error = raised
            raise
        finally:
            if token is not None:
                detach(token)
            self._safely(self._leave, error)

    async def settled(self) -> None:
        """Its spans have ended, if their exporter takes them in time. A run inside another one leaves that to the outer one."""
        above = get_value(_RUN)
        if not (isinstance(above, TurnTrace) and above._run is not None and above._instruments is self._instruments):
            await self._instruments.endings.settled()

    def asked(self, order: SendRequest) -> tuple[tuple[str, str], ...]:
        """A request is about to leave, in this context. Gives the headers that say to which trace it belongs, if wanted."""
        self._safely(self._request_leaves, order)
        if not self._sends_traceparent or self._chat is None:
            return ()
        headers: dict[str, str] = {}
        # The trace alone: baggage is the program's own data, and the endpoint may be anybody's.
        TraceContextTextMapPropagator().inject(headers, self._chat[0].inside)
        return tuple(headers.items())

    def see(self, batch: Sequence[WatcherEvent]) -> None:
        """What watchers are told."""
        for seen in batch:
            if type(seen) is not FrameSeen:
                self._safely(self._saw, seen)

    def _safely(self, do: Callable[[Told], None], told: Told) -> None:
        try:
            do(told)
        except Exception as error:  # noqa: BLE001 (samplers and processors are strangers; the turn must not end by them)
            self._instruments.endings.failed("a span could not be made", error=error)

    def _saw(self, seen: WatcherEvent) -> None:
        match seen:
            case ToolStarted(call=call):
                self._call_starts(call)
            case ToolFinished(result=result):
                self._call_ended(result, goes_on=True)
            case CallAnswered(call=call, result=result):
                self._call_answered(call, result)
            case RequestFinished(response=response, fault=fault, sent=sent):
                self._request_ended(response, fault=fault, sent=sent)
            case TurnFinished(result=result):
                self._ended(result)
            case _:
                pass

    # The run.

    def _begin(self, outside: Context) -> None:
        above = get_value(_RUN, outside)
        links = [_link(above._run.link, "subagent_of")] if isinstance(above, TurnTrace) and above._run else []
        known = attributes.of_run(self._turn, agent_name=self._agent_name)
        run = self._open(f"{names.INVOKE_AGENT} {self._agent_name}".rstrip(), outside=outside, known=known, links=links)
        self._run = msgspec.structs.replace(run, inside=set_value(_RUN, self, run.inside))
        if (contents := self._contents_for(run)) is not None:
            run.span.set_attributes(
                {
                    names.SYSTEM_INSTRUCTIONS: contents.instructions(self._turn.config.system),
                    names.INPUT_MESSAGES: contents.messages(self._turn.input),
                }
            )

    def _ended(self, result: TurnResult) -> None:
        if self._run is None:
            return
        self._close_rest()
        run, self._run = self._run, None
        known = attributes.of_result(result, ledger=self._turn.ledger, turn_id=self._turn.config.turn_id)
        if self._finish:
            known[names.FINISH_REASONS] = [self._finish]
        written: Attributes = {}
        answers = [one for one in result.messages if one.role == "assistant"]
        if answers and (contents := self._contents_for(run)) is not None:
            written[names.OUTPUT_MESSAGES] = contents.answer(answers[-1], finish=self._finish)
        self._close(run, known=known, contents=written, error=attributes.error_of_result(result))

    def _leave(self, error: BaseException | None) -> None:
        """What the end of the turn has not ended: it has raised, or nobody was told any more."""
        self._close_rest()
        run, self._run = self._run, None
        if run is not None:
            self._close(run, error=names.CANCELLED if error is None else type(error).__qualname__)

    def _close_rest(self) -> None:
        if self._chat is not None:
            self._request_ended(None, fault=None, sent=True, goes_on=False)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            self._close(call, error=names.CANCELLED)

    # Requests.

    def _request_leaves(self, order: SendRequest) -> None:
        if self._run is None:
            return
        links: list[Link] = []
        if self._before is not None and (order.retry_of is not None or order.purpose in RECOVERY):
            is_retry = order.retry_of is not None or order.purpose == "retry"
            links.append(_link(self._before, "retry_of" if is_retry else "continues"))
        known = attributes.of_request(order, turn=self._turn)
        chat = self._open(
            f"{names.CHAT} {order.request.model}",
            outside=self._run.inside,
            known=known,
            links=links,
            kind=SpanKind.CLIENT,
        )
        self._chat = (chat, order)
        attach(chat.inside)
        if (contents := self._contents_for(chat)) is not None:
            request = order.request
            chat.span.set_attributes(
                {
                    names.SYSTEM_INSTRUCTIONS: contents.instructions(request.system),
                    names.INPUT_MESSAGES: contents.messages(request.messages),
                    names.TOOL_DEFINITIONS: contents.tools(request.tools),
                }
            )

    def _request_ended(
        self, response: Response | None, *, fault: Fault | None, sent: bool, goes_on: bool = True
    ) -> None:
        """`goes_on`: what follows runs in the context in which the request left."""
        if self._chat is None:
            return
        (chat, order), self._chat = self._chat, None
        if goes_on:
            attach(chat.outside)
        entry = self._turn.ledger.get(self._turn.config.turn_id, order.number) if sent else None
        known: Attributes = {} if sent else {names.SENT: False}
        written: Attributes = {}
        error = "" if response is not None and fault is None else attributes.error_of_entry(entry)
        measured = dict(chat.measured)
        if entry is not None:
            known |= attributes.of_entry(entry)
            if order.request.stream and entry.first_event is not None:
                first_s = entry.first_event - entry.started
                known[names.TIME_TO_FIRST_CHUNK] = first_s
                self._instruments.began(first_s, attributes=measured, context=chat.inside)
        if fault is not None:
            known |= attributes.of_fault(fault)
            error = str(fault.kind)
        if response is not None:
            self._finish = str(response.finish)
            known |= attributes.of_response(response)
            if response.model:
                measured |= self._bounded({names.RESPONSE_MODEL: response.model})
            self._asked_by |= {part.id: chat.link for part in response.message.parts if type(part) is ToolCall}
            if (contents := self._contents_for(chat)) is not None:
                written[names.OUTPUT_MESSAGES] = contents.answer(response.message, finish=self._finish)
        if entry is not None and entry.usage is not None:
            self._instruments.used(entry.usage, attributes=measured, context=chat.inside)
        self._before = chat.link
        self._close(msgspec.structs.replace(chat, measured=measured), known=known, contents=written, error=error)

    # Calls.

    def _call_starts(self, call: ToolCall) -> None:
        if self._run is None:
            return
        asked_by = self._asked_by.get(call.id)
        opened = self._calls[call.id] = self._open(
            f"{names.EXECUTE_TOOL} {call.name}",
            outside=get_current(),
            known=attributes.of_call(call),
            links=[] if asked_by is None else [_link(asked_by, "asked_by")],
        )
        attach(opened.inside)
        if (contents := self._contents_for(opened)) is not None:
            opened.span.set_attribute(names.TOOL_ARGUMENTS, contents.text(call.arguments))

    def _call_ended(self, result: ToolResult, *, goes_on: bool) -> None:
        opened = self._calls.pop(result.call_id, None)
        if opened is None:
            return
        if goes_on:
            attach(opened.outside)
        written: Attributes = {}
        if (contents := self._contents_for(opened)) is not None:
            written[names.TOOL_RESULT] = contents.result(result)
        self._close(opened, contents=written, error=names.TOOL_ERROR if result.is_error else "")

    def _call_answered(self, call: ToolCall, result: ToolResult) -> None:
        """turnwise has answered it: either it was stopped, or it never ran."""
        if call.id in self._calls:
            self._call_ended(result, goes_on=False)
        elif self._run is not None:
            known: Attributes = {names.TOOL_CALL_ID: call.id}
            if self._contents is not None or call.name in self._tools:  # any other name is the model's own text
                known[names.TOOL_NAME] = call.name
            self._run.span.add_event(names.CALL_NOT_RUN, self._bounded(known), timestamp=self._now_ns())

    # Spans.

    def _open(
        self,
        name: str,
        *,
        outside: Context,
        known: Attributes,
        links: Sequence[Link],
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> OpenSpan:
        began_s = self._clock.monotonic()
        known = self._bounded(known)
        span = self._instruments.tracer.start_span(
            name, outside, kind=kind, attributes=known, links=links, start_time=self._now_ns()
        )
        measured = {name: known[name] for name in MEASURED if name in known}
        return OpenSpan(
            span=span,
            outside=outside,
            inside=set_span_in_context(span, outside),
            began_s=began_s,
            measured=measured,
        )

    def _close(
        self,
        opened: OpenSpan,
        *,
        known: Attributes | None = None,
        contents: Attributes | None = None,
        error: str = "",
    ) -> None:
        """`contents` have a size of their own and no key."""
        ended_s, at_ns = self._clock.monotonic(), self._now_ns()
        try:
            opened.span.set_attributes({**self._bounded(known or {}), **(contents or {})})
            measured = dict(opened.measured)
            if error:
                measured[names.ERROR_TYPE] = error
                opened.span.set_attribute(names.ERROR_TYPE, error)
                opened.span.set_status(Status(StatusCode.ERROR))
            self._instruments.ended(ended_s - opened.began_s, attributes=measured, context=opened.inside)
        finally:
            self._instruments.endings.end(opened.span, at_ns=at_ns)

    def _bounded(self, known: Attributes) -> Attributes:
        return attributes.bounded(known, scrub=self._turn.scrub)

    def _contents_for(self, opened: OpenSpan) -> Contents | None:
        """None where nobody asked for contents, or nobody would get them."""
        return self._contents if self._contents is not None and opened.span.is_recording() else None

    def _now_ns(self) -> int:
        return int(self._clock.now() * 1e9)


# What metrics tell apart. Names of sessions, calls and tools are not among it: each value of them would be a series of its own.
MEASURED = (
    names.OPERATION,
    names.PROVIDER,
    names.REQUEST_MODEL,
    names.SERVER_ADDRESS,
    names.SERVER_PORT,
    names.TOOL_NAME,
)


def _link(to: SpanContext, kind: str) -> Link:
    return Link(to, {names.LINK: kind})
