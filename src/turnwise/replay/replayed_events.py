"""What a watcher would have been told of a recorded turn: the same events as while it ran, whole responses in place of pieces."""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from turnwise.endpoints.transport import CacheRefusals
from turnwise.errors import UnreadableTurn
from turnwise.journal.journal import JournalEntry, TurnRow, WrittenPlace, WrittenRecord
from turnwise.journal.turn_writer import AskAnswered, Noted, RequestSent, ScriptBegan, ToolsStarted, decode_record
from turnwise.replay.playback import Played, SessionPlayer, TurnPlayer, step_of
from turnwise.replay.session_file import RecordedSession, RecordedTurn
from turnwise.running.watcher_events import (
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    StepStarted,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    WatcherEvent,
)
from turnwise.turn.attempt import LOST_PIECE
from turnwise.turn.config import Approval, OneAsk, settled
from turnwise.turn.events import (
    Ask,
    Asked,
    Command,
    Event,
    FinishTurn,
    Interrupted,
    MessageArrived,
    RequestFailed,
    ResponseReceived,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    SendRequest,
    ToolEnded,
    ToolsFinished,
    Wait,
)
from turnwise.turn.machine import SessionFold
from turnwise.vocab import (
    Frame,
    Reasoning,
    ReasoningDelta,
    Refusal,
    RefusalDelta,
    Response,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    own_text_of,
)


class PersonSpoke(msgspec.Struct, frozen=True, kw_only=True):
    """What no watcher is told, because the person was present: each ask with its answer (None: nobody answered, so the default
    held), or words in mid-turn. `path` names the sub-agents down to the one that asked."""

    asked: tuple[tuple[OneAsk, Approval | None], ...] = ()
    words: str = ""
    path: tuple[str, ...] = ()


class SeenAgain(NamedTuple):
    """What was told, or heard, and when: UTC, seconds since 1970."""

    time: float
    seen: WatcherEvent | PersonSpoke


class SubAgent(NamedTuple):
    call_id: str
    told: Iterator[SeenAgain]


class TurnTeller:
    """Tells a turn as `Runner` did. A sub-agent's part stands between the beginning and the end of its parent's call."""

    def __init__(self, player: TurnPlayer, *, players: list[SessionPlayer], path: tuple[str, ...] = ()) -> None:
        self._player = player
        self._players = players
        self._path = path
        self._step = 0
        self._told = 0  # messages that the turn has added, whose results were told
        self._unanswered: dict[str, ToolCall] = {}
        self._began: dict[str, float] = {}  # calls that have started, by id
        self._sent_s: float | None = None  # when the current request left
        self._was_sent = False  # the last request was told as started
        # Those that have not been told.
        self._children = [(call_id, child) for call_id, child in player.recorded.children]
        self._working: list[SubAgent] = []  # those at work

    def tell(self, *, until_step: int | None = None) -> Iterator[SeenAgain]:
        """All of it, or up to the beginning of the step behind `until_step`."""
        for played in self._player.play():
            yield from self.tell_one(played)
            if until_step is not None and step_of(played.after) > until_step:
                return
        yield from self._told_by_children(None)

    def tell_one(self, played: Played) -> Iterator[SeenAgain]:
        """What one record told."""
        time, record = played.entry.time, played.entry.record
        match record:
            case RequestSent():
                yield from self._at(time, self._request_started(played.before, time=time))
            case ToolsStarted(call_ids=ids):
                yield from self._at(time, self._tools_started(played.before, ids=ids, time=time))
            case AskAnswered() | ScriptBegan() | Noted():
                pass
            case event:
                yield from self._told_by_children(event, until=time)
                yield from self._at(time, self._event(event, before=played.before, time=time))
                yield from self._at(time, self._followed(event, command=played.after, time=time))

    def _at(self, time: float, told: Iterator[WatcherEvent | PersonSpoke]) -> Iterator[SeenAgain]:
        for seen in told:
            yield SeenAgain(time, seen)

    def _enter(self, step: int) -> Iterator[WatcherEvent]:
        if step != self._step:
            self._step = step
            yield StepStarted(step)

    def _request_started(self, command: Command | None, *, time: float) -> Iterator[WatcherEvent]:
        if not isinstance(command, SendRequest):
            return
        self._sent_s, self._was_sent = time, True
        yield from self._enter(command.step)
        yield RequestStarted(
            number=command.number,
            step=command.step,
            purpose=command.purpose,
            model=command.request.model,
            retry_of=command.retry_of,
        )

    def _tools_started(self, command: Command | None, *, ids: tuple[str, ...], time: float) -> Iterator[WatcherEvent]:
        if not isinstance(command, RunTools):
            return
        for plan in command.calls:
            if plan.call.id in ids and plan.call.id not in self._began:
                self._began[plan.call.id] = time
                yield ToolStarted(plan.call)
                self._begin_children(plan.call)

    def _event(self, event: Event, *, before: Command | None, time: float) -> Iterator[WatcherEvent | PersonSpoke]:
        match event:
            case ResponseReceived(number=number, response=response):
                yield from _frames(number, response)
                yield RequestFinished(number, response, response.fault, self._request_took(time))
            case RequestFailed(number=number, fault=fault, partial=partial, sent=sent):
                if self._sent_s is None:  # its endpoint is left alone for a while: nothing left
                    self._was_sent = False
                    yield from self._enter(step_of(before))
                    return
                yield from _frames(number, partial)
                yield RequestFinished(number, None, fault, self._request_took(time), sent=sent)
            case ToolEnded(result=result):
                yield from self._finished((result,), time=time)
            case ToolsFinished(results=results):
                yield from self._finished(results, time=time)
            case Interrupted(results=results, partial=partial):
                if isinstance(before, SendRequest):
                    yield from _frames(before.number, partial)
                yield from self._finished(results, time=time)
            case Asked(approvals=approvals) if isinstance(before, Ask):
                given = settled(approvals)
                yield PersonSpoke(asked=tuple([(ask, given.get(ask.call.id)) for ask in before.asks]), path=self._path)
            case MessageArrived(message=message):
                yield PersonSpoke(words=own_text_of(message), path=self._path)
            case ScriptCalled(calls=calls):
                self._unanswered |= {inner.id: inner for inner in calls}
            case ScriptFinished(call_id=call_id, text=text, is_error=is_error) if isinstance(before, RunScript):
                result = ToolResult(call_id=call_id, name=before.call.name, content=(Text(text),), is_error=is_error)
                yield from self._finished((result,), time=time)
            case _:
                pass

    def _request_took(self, time: float) -> float:
        began, self._sent_s = self._sent_s, None
        return 0.0 if began is None else max(0.0, time - began)

    def _finished(self, results: tuple[ToolResult, ...], *, time: float) -> Iterator[WatcherEvent]:
        """Those of calls that had started; the others are told as the turn's own."""
        for result in results:
            if result.call_id in self._began:
                began = self._began.pop(result.call_id)
                self._unanswered.pop(result.call_id, None)
                yield ToolFinished(result, max(0.0, time - began))

    def _followed(self, event: Event, *, command: Command | None, time: float) -> Iterator[WatcherEvent]:
        """What follows from the event at once."""
        yield from self._discarded(event, command=command)
        yield from self._answered()
        match command:
            case RunScript(call=call, results=results):
                if call.id not in self._began:
                    self._began[call.id] = time
                    yield ToolStarted(call)
                for result in results:
                    if inner := self._unanswered.pop(result.call_id, None):
                        said = (Text(result.text),)
                        answer = ToolResult(call_id=inner.id, name=inner.name, content=said, is_error=result.is_error)
                        yield CallAnswered(inner, answer)
            case FinishTurn(result=result):
                yield TurnFinished(result)
            case _:
                pass

    def _discarded(self, event: Event, *, command: Command | None) -> Iterator[WatcherEvent]:
        given_up = isinstance(command, Wait) or (isinstance(command, SendRequest) and command.retry_of is not None)
        if not (given_up and self._was_sent and isinstance(event, ResponseReceived | RequestFailed)):
            return
        seconds = command.seconds if isinstance(command, Wait) else 0.0
        fault = event.fault if isinstance(event, RequestFailed) else event.response.fault
        if isinstance(event, ResponseReceived) and event.response.lost:
            fault = fault or LOST_PIECE
        yield AttemptDiscarded(number=event.number, fault=fault, retry_in_s=seconds)

    def _answered(self) -> Iterator[WatcherEvent]:
        if self._player.turn is None:
            return
        added = self._player.turn.added
        told, self._told = self._told, len(added)
        for message in added[told:]:
            for part in message.parts:
                if type(part) is ToolCall:
                    self._unanswered[part.id] = part
                elif type(part) is ToolResult and (call := self._unanswered.pop(part.call_id, None)):
                    yield CallAnswered(call, part)

    def _begin_children(self, call: ToolCall) -> None:
        mine = [child for call_id, child in self._children if call_id == call.id]
        self._children = [(call_id, child) for call_id, child in self._children if call_id != call.id]
        for child in mine:
            self._working.append(
                SubAgent(call.id, tell_child(child, call=call, players=self._players, path=self._path))
            )

    def _told_by_children(self, event: Event | None, *, until: float = 0.0) -> Iterator[SeenAgain]:
        """What the sub-agents did before an event that ends their calls: side by side, as their times say."""
        match event:
            case ToolEnded(result=result):
                ended = [one for one in self._working if one.call_id == result.call_id]
            case ToolsFinished() | Interrupted() | None:
                ended = self._working
            case _:
                return
        self._working = [one for one in self._working if one not in ended]
        yield from heapq.merge(*[one.told for one in ended], key=lambda told: told.time)


def tell_child(
    session: RecordedSession, *, call: ToolCall, players: list[SessionPlayer], path: tuple[str, ...]
) -> Iterator[SeenAgain]:
    """A sub-agent's session as its parent's watcher saw it. It is played with it, and `players` gets its player."""
    player = SessionPlayer(session)
    players.append(player)
    path = (*path, agent_of(call))
    for turn in player.turns():
        for time, seen in TurnTeller(turn, players=players, path=path).tell():
            is_told = isinstance(seen, ChildSeen | PersonSpoke)
            yield SeenAgain(time, seen if is_told else ChildSeen(call.id, path, seen))


def agent_of(call: ToolCall) -> str:
    """Whose session a call began: the agent that it names, else the tool's name."""
    try:
        said = msgspec.json.decode(call.arguments, type=dict[str, msgspec.Raw]).get("agent")
        return call.name if said is None else msgspec.json.decode(said, type=str)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return call.name


def _frames(number: int, response: Response | None) -> Iterator[WatcherEvent]:
    """The words of a response, a piece for each part: the journal has no smaller ones."""
    if response is None:
        return
    for place, part in enumerate(response.message.parts):
        frame: Frame | None = None
        match part:
            case Text(text=text) if text:
                frame = TextDelta(text, block=f"text{place}")
            case Reasoning(text=text) if text:
                frame = ReasoningDelta(text, block=f"reasoning{place}")
            case Refusal(text=text) if text:
                frame = RefusalDelta(text, block=f"refusal{place}")
            case _:
                pass
        if frame is not None:
            yield FrameSeen(number, frame)


# A session while it is written: what a watcher would have been told of each new record.


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What one record of a session told. `number` is the record's own in its session, from 1: several events may have it. `time`
    is UTC, seconds since 1970."""

    number: int
    turn: str
    time: float
    seen: WatcherEvent | PersonSpoke


class SessionFollower:
    """Takes the records of a session one after the other, from the first. Raises UnreadableTurn for one of a newer version."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._fold = SessionFold()
        self._refusals = CacheRefusals()
        self._player: TurnPlayer | None = None
        self._teller: TurnTeller | None = None
        self._turns = 0
        self.place = WrittenPlace()  # of the last record
        self.number = 0  # of that record

    def take(self, written: WrittenRecord) -> list[SessionEvent]:
        """What it told."""
        try:
            record = decode_record(written.body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UnreadableTurn(
                f"session `{self._session}` cannot be followed here: {error}; it is damaged, or from a newer turnwise"
            ) from None
        if self._player is None or written.place.turn != self.place.turn:
            self._begin(written)
        player, teller = self._player, self._teller
        assert player is not None and teller is not None, "a turn has begun"
        self.place = written.place
        self.number += 1
        entry, before = JournalEntry(seq=written.place.seq, time=written.time, record=record), player.command
        player.take(entry)
        if player.is_refused:
            raise UnreadableTurn(
                f"session `{self._session}` cannot be followed here: this version makes no turn of its records"
            )
        told = teller.tell_one(Played(entry=entry, before=before, after=player.command))
        return [SessionEvent(number=self.number, turn=written.turn_id, time=one.time, seen=one.seen) for one in told]

    def _begin(self, written: WrittenRecord) -> None:
        before = self._player
        if before is not None and before.turn is not None and before.started is not None:
            self._fold.take(before.turn, started=before.started)
        self._turns += 1
        row = TurnRow(
            id=written.turn_id,
            session=self._session,
            status="running",
            created=written.time,
            finished=None,
            stop_reason=None,
            complete=None,
        )
        self._player = TurnPlayer(
            RecordedTurn(row=row, entries=()),
            number=self._turns,
            session=self._session,
            earlier=self._fold.carried,
            refusals=self._refusals,
            compares=False,
        )
        self._teller = TurnTeller(self._player, players=[])
