"""A recorded turn through today's machine, record by record: what it orders, and where that is not what was recorded."""

from collections.abc import Collection, Iterator
from itertools import chain
from typing import Literal, assert_never

import msgspec

from turnwise.endpoints.endpoints import BodyHash
from turnwise.endpoints.transport import CacheRefusals, Refused, narrowed_by
from turnwise.journal.journal import JournalEntry
from turnwise.journal.turn_writer import KINDS, AskAnswered, Noted, RequestSent, ScriptBegan, ToolsStarted
from turnwise.replay.session_file import RecordedSession, RecordedTurn
from turnwise.settings.endpoint_rows import known_profiles
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import (
    Ask,
    CheckOutput,
    Command,
    Event,
    FinishTurn,
    InspectCalls,
    MessageArrived,
    PrepareStep,
    Purpose,
    RequestFailed,
    RulesAdded,
    RunHooks,
    RunScript,
    RunTools,
    SendRequest,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
    Wait,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionFold, Turn
from turnwise.turn.request_plan import asked_of_cache
from turnwise.vocab import Request, ToolChoice
from turnwise.wire.encoded_history import EncodedHistory
from turnwise.wire.family import HttpCall
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import Profile

# The bodies of a turn's requests, encoded again: their hashes tell whether today's code would send the same. What an endpoint may
# have refused before this session began; its journal does not hold that.
EARLIER_REFUSALS: tuple[tuple[Refused, ...], ...] = (("all",), ("hour",), ("top",), ("hour", "top"))


class Body(msgspec.Struct, frozen=True, kw_only=True):
    sha256: str
    size_bytes: int


class Bodies:
    """Encodes the requests of one turn in order, as `Sender` does: without a key, as the key is no part of a body."""

    def __init__(self, config: TurnConfig, *, refusals: CacheRefusals) -> None:
        self._profile = known_profiles().get(config.profile)
        self._plain: ToolChoice = config.tool_choice
        self._refusals = refusals
        self._history = EncodedHistory()
        self._hash = BodyHash()
        self._purpose: Purpose | None = None
        self._last: tuple[Request, Profile, HttpCall] | None = None

    def encode(self, command: SendRequest) -> Iterator[Body] | None:
        """The body, then the others that it may have been if the endpoint had refused marks or keys for its cache. None if nobody
        here knows the endpoint's profile. Call it once for each request that left."""
        if self._profile is None:
            return None
        asked = self._asked(command)
        request, profile = self._refusals.narrowed(asked, self._profile, door=_door(asked))
        call = find_family(profile.family).encode_request(request, profile, history=self._history)
        self._last = request, profile, call
        body = Body(sha256=self._hash.sha256_of(call), size_bytes=len(call.body))
        return chain((body,), self._others(asked, profile=self._profile))

    def saw(self, event: RequestFailed) -> None:
        """A failure may say that the endpoint does not take what was asked of its cache: the next request asks for less."""
        if self._last is not None:
            request, profile, call = self._last
            self._refusals.saw(event.fault, request=request, profile=profile, call=call, door=_door(request))

    def _asked(self, command: SendRequest) -> Request:
        before, self._purpose = self._purpose, command.purpose
        return asked_of_cache(command.request, purpose=command.purpose, before=before, plain=self._plain)

    def _others(self, request: Request, *, profile: Profile) -> Iterator[Body]:
        for refused in EARLIER_REFUSALS if request.cache is not None else ():
            less, narrow = narrowed_by(refused, request=request, profile=profile)
            call = find_family(narrow.family).encode_request(less, narrow)
            yield Body(sha256=BodyHash().sha256_of(call), size_bytes=len(call.body))


def _door(request: Request) -> tuple[str, str]:
    """One endpoint's: a session's turns may go to several, and a model's name tells them apart well enough."""
    return "", request.model


DifferenceKind = Literal["request", "body", "tools", "event", "end"]
"""`request`: number or purpose. `body`: the same request with other bytes. `tools`: other calls. `event`: today's turn cannot
take it. `end`: another end, or none."""
SHOWN_SHA = 12  # characters of a hash: enough to tell two apart


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where today's code decides otherwise. `turn` counts the session's turns from 1, `record` is the number of the turn's
    record; 0 for its end. `recorded` and `now` are both sides, in words."""

    session: str
    turn: int
    record: int
    kind: DifferenceKind
    recorded: str
    now: str


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """One record, the command that was current when it came, and the one that is current now. Before the turn began, there is
    neither."""

    entry: JournalEntry
    before: Command | None
    after: Command | None


class TurnPlayer:
    """One turn of a session. `differences` are those of its records by now; `bodies_compared` counts the requests whose bytes
    were encoded again, `bodies_unknown` those of which nobody here can."""

    def __init__(
        self,
        recorded: RecordedTurn,
        *,
        number: int,
        session: str,
        earlier: Carried,
        refusals: CacheRefusals,
        compares: bool = True,
    ) -> None:
        self.recorded = recorded
        self.number = number
        self.started: TurnStarted | None = None
        self.turn: Turn | None = None
        self.command: Command | None = None
        self.commands = 0
        self.differences: list[Difference] = []
        self.bodies_compared = 0
        self.bodies_unknown = 0
        self.is_refused = False  # an event came that today's turn does not take: what comes after it proves nothing
        self._is_over = False
        self._session = session
        self._earlier = earlier
        self._refusals = refusals
        self._compares = compares
        self._bodies: Bodies | None = None
        self._at_hand: list[Body] = []  # what the current request may have been sent as, as far as it was looked at
        self._more: Iterator[Body] | None = None
        self._encoded: Command | None = None  # the request that these are of
        self._left = iter(recorded.entries)
        self._ended: set[str] = set()  # calls of the current command that have results
        self._begun: set[str] = set()  # all calls that have started

    @property
    def begun(self) -> Collection[str] | None:
        """The ids of the calls that had started by now. None if they are unknown, because a damaged journal has lost
        records."""
        return None if self.recorded.row.has_lost_records else self._begun

    def play(self) -> Iterator[Played]:
        """What is left of the turn, and at its end the comparison of the end itself."""
        for entry in self._left:
            if self.is_refused:
                return
            before = self.command
            self.take(entry)
            if not self.is_refused:
                yield Played(entry=entry, before=before, after=self.command)
        if not (self.is_refused or self._is_over):
            self._is_over = True
            self._compare_end()

    def take(self, entry: JournalEntry) -> None:
        """Compare one record, or have the machine receive it."""
        match entry.record:
            case RequestSent() as sent:
                self._compare_request(entry, sent=sent)
            case ToolsStarted() as tools:
                self._begun.update(tools.call_ids)
                self._compare_tools(entry, call_ids=tools.call_ids)
            case AskAnswered() | ScriptBegan() | Noted():
                pass  # `asked` has the answer, too; a program's clock is the driver's
            case event:
                self._receive(entry, event=event)

    def _receive(self, entry: JournalEntry, *, event: Event) -> None:
        before = self.command
        if isinstance(event, ToolsFinished) and isinstance(before, RunTools):
            self._compare_results(entry, command=before, event=event)
        try:
            if self.turn is not None:
                self.command = self.turn.receive(event)
            elif isinstance(event, TurnStarted):
                self.turn, self.command = Turn.start(event, earlier=self._earlier)
                self.started = event
                self._bodies = Bodies(event.config, refusals=self._refusals)
            else:
                raise ValueError("a turn begins with `turn_started`")
        except Exception as error:  # noqa: BLE001 (a file of a stranger's may hold any event; the session goes on)
            self.is_refused = True
            said = f"{said_of(before)}; {error}" if before is not None else str(error)
            self._differs(entry.seq, "event", recorded=f"`{KINDS[type(event)]}`", now=said)
            return
        if isinstance(event, RequestFailed) and event.sent and self._bodies is not None:
            self._bodies.saw(event)
        if isinstance(event, ToolEnded):
            self._ended.add(event.result.call_id)
        elif not isinstance(event, MessageArrived | RulesAdded):
            self.commands += 1
            self._ended.clear()

    def _compare_request(self, entry: JournalEntry, *, sent: RequestSent) -> None:
        command = self.command
        if not isinstance(command, SendRequest) or (command.number, command.purpose) != (sent.number, sent.purpose):
            self._differs(entry.seq, "request", recorded=_request(sent.number, sent.purpose), now=said_of(command))
            return
        if not self._compares:
            return
        body = self.body_at(0)
        if body is None or not sent.body_sha256:
            self.bodies_unknown += 1
            return
        self.bodies_compared += 1
        if self.matching_body(sent) is not None:
            return
        of = _request(sent.number, sent.purpose)
        self._differs(
            entry.seq,
            "body",
            recorded=f"{of} with {sent.body_bytes:,} bytes, SHA-256 {sent.body_sha256[:SHOWN_SHA]}",
            now=f"the same with {body.size_bytes:,} bytes, SHA-256 {body.sha256[:SHOWN_SHA]}",
        )

    def matching_body(self, sent: RequestSent) -> int | None:
        """Which body of the current request was sent; None if none of them."""
        place = 0
        while (body := self.body_at(place)) is not None:
            if body.sha256 == sent.body_sha256:
                return place
            place += 1
        return None

    def body_at(self, place: int) -> Body | None:
        """The body of the current request: 0 is the one of today's code, the others go to an endpoint that refused something."""
        command = self.command
        if self._bodies is None or not isinstance(command, SendRequest):
            return None
        if self._encoded is not command:
            self._encoded, self._at_hand, self._more = command, [], self._bodies.encode(command)
        while self._more is not None and len(self._at_hand) <= place:
            if (body := next(self._more, None)) is None:
                self._more = None
            else:
                self._at_hand.append(body)
        return self._at_hand[place] if place < len(self._at_hand) else None

    def _compare_tools(self, entry: JournalEntry, *, call_ids: tuple[str, ...]) -> None:
        """Calls may be started one by one: each record names some of those that were ordered."""
        command = self.command
        ordered = [plan.call.id for plan in command.calls] if isinstance(command, RunTools) else []
        if not isinstance(command, RunTools) or not set(call_ids) <= set(ordered):
            self._differs(entry.seq, "tools", recorded=f"starts {_calls(call_ids)}", now=said_of(command))

    def _compare_results(self, entry: JournalEntry, *, command: RunTools, event: ToolsFinished) -> None:
        ordered = [plan.call.id for plan in command.calls]
        given = self._ended | {result.call_id for result in event.results}
        if given != set(ordered):
            self._differs(entry.seq, "tools", recorded=f"results of {_calls(sorted(given))}", now=said_of(command))

    def _compare_end(self) -> None:
        row, command = self.recorded.row, self.command
        if row.status not in ("done", "waiting") or row.stop_reason is None:
            return
        recorded = _end(str(row.stop_reason), complete=bool(row.complete))
        if recorded != (now := said_of(command)):
            self._differs(0, "end", recorded=recorded, now=now)

    def _differs(self, record: int, kind: DifferenceKind, *, recorded: str, now: str) -> None:
        self.differences.append(
            Difference(session=self._session, turn=self.number, record=record, kind=kind, recorded=recorded, now=now)
        )


class SessionPlayer:
    """A session, turn by turn. `played` are the turns by now."""

    def __init__(self, session: RecordedSession) -> None:
        self.session = session
        self.played: list[TurnPlayer] = []

    def turns(self) -> Iterator[TurnPlayer]:
        """Each turn, for the caller to play; the rest of it is played before the next one is given."""
        fold = SessionFold()
        refusals = CacheRefusals()
        for number, recorded in enumerate(self.session.turns, start=1):
            player = TurnPlayer(
                recorded, number=number, session=self.session.row.id, earlier=fold.carried, refusals=refusals
            )
            self.played.append(player)
            yield player
            for _ in player.play():
                pass
            if player.turn is not None and player.started is not None:
                fold.take(player.turn, started=player.started, begun=player.begun)

    @property
    def differences(self) -> list[Difference]:
        return [one for player in self.played for one in player.differences]


def step_of(command: Command | None) -> int:
    """The step that a command belongs to; 0 for one that belongs to none (`Wait`, the end)."""
    return getattr(command, "step", 0)


def said_of(command: Command | None) -> str:
    """What a turn orders, in words."""
    match command:
        case None:
            return "nothing: the turn has not begun"
        case SendRequest(number=number, purpose=purpose):
            return _request(number, purpose)
        case RunTools(calls=calls):
            return f"starts {_calls([plan.call.id for plan in calls])}"
        case Wait(number=number, seconds=seconds):
            return f"waits {seconds:g} s for another attempt at request {number}"
        case RunScript(call=call):
            return f"runs the program of {call.id}"
        case InspectCalls(calls=calls):
            return f"inspects {_calls([plan.call.id for plan in calls])}"
        case Ask(asks=asks):
            return f"asks about {_calls([one.call.id for one in asks])}"
        case RunHooks(point=point):
            return f"runs the hooks of `{point}`"
        case PrepareStep(step=step):
            return f"prepares step {step}"
        case CheckOutput():
            return "checks the output"
        case FinishTurn(result=result):
            return _end(str(result.stop_reason), complete=result.complete)
        case _:
            assert_never(command)


def _request(number: int, purpose: str) -> str:
    return f"request {number} ({purpose})"


def _calls(ids: "list[str] | tuple[str, ...]") -> str:
    return ", ".join(ids) or "no call"


def _end(reason: str, *, complete: bool) -> str:
    return f"ends the turn: {reason}{'' if complete else ', incomplete'}"
