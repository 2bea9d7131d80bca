"""What holds of every turn, however it goes: judged from outside, by what was ordered, reported and added."""

import json
from collections import Counter
from collections.abc import Sequence

import msgspec
from hypothesis import strategies as st

from pairing import pairing_faults
from turn.drawn_events import STRAY, most_requests, next_event
from turn.wire_prefix import Wire, check_prefixes, read_wire
from turnwise.lab.raw import parse
from turnwise.lab.strict import ModelRules
from turnwise.lab.strict import check as judge
from turnwise.rules.answer_room import OUTCOMES
from turnwise.turn.config import Approval, OneAsk, TurnConfig, TurnResult
from turnwise.turn.events import (
    Ask,
    Asked,
    Command,
    Event,
    FinishTurn,
    HooksRan,
    Interrupted,
    MessageArrived,
    RequestFailed,
    ResponseReceived,
    RunHooks,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    Wait,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import Turn, replay
from turnwise.turn.programs import taken_up
from turnwise.turn.step_request import MAX_CORRECTIONS
from turnwise.vocab import ArgumentsState, Fault, Message, Response, StopReason, Text, ToolCall, ToolResult, text_of
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles

MOST_EVENTS = 400
NOTHING_EARLIER = Carried()

# Purposes of requests that nobody would make if nothing were cut.
RECOVERY = frozenset({"continue", "retry"})


class Judged:
    """One turn, told what `data` draws, and judged at every command. `barred` are the calls that a hook or a person kept
    from running, `ran` those that were ordered to run, `reported` those of them whose result came in good order. `said` counts
    the words in between of the session's earlier turns: those of a killed one may come up in this one, so each has a number of
    its own in the session."""

    def __init__(
        self,
        started: TurnStarted,
        *,
        data: st.DataObject,
        earlier: Carried = NOTHING_EARLIER,
        busy: bool = False,
        said: int = 0,
    ) -> None:
        self.busy = busy
        self.said = said
        self.started = started
        self.data = data
        self.earlier = earlier
        self.events: list[Event] = [started]
        self.input = earlier.with_words(started).input
        resumed = taken_up(earlier.with_words(started), earlier=earlier.messages)
        self.handed_in = len(resumed.added)
        self.resumed = resumed.calls
        self.turn, self.command = Turn.start(started, earlier=earlier)
        self.commands = [self.command]
        self.sent: list[SendRequest] = []
        self.first_attempts = 0
        self.barred: set[str] = set()
        self.ran: list[str] = []
        self.finished: set[str] = set()
        self.words: list[Message] = []
        self.refused: set[int] = set()  # requests that the provider refused, by their numbers
        self._ordered(self.command)

    @property
    def result(self) -> TurnResult:
        assert isinstance(self.command, FinishTurn)
        return self.command.result

    @property
    def has_ended(self) -> bool:
        return isinstance(self.command, FinishTurn)

    def step(self) -> None:
        """One event, and what it leads to."""
        self.take(next_event(self.data, self.command, said=self.said + len(self.words), busy=self.busy))

    def take(self, event: Event) -> None:
        self._reported(event)
        self.events.append(event)
        before, self.command = self.command, self.turn.receive(event)
        self.commands.append(self.command)
        if isinstance(event, MessageArrived):
            self.words.append(event.message)
            assert self.command is before, "a word in between lets the command at hand go on"
        else:
            self._ordered(self.command)
        assert len(self.events) < MOST_EVENTS

    def play(self) -> "Judged":
        while not self.has_ended:
            self.step()
        self.check_end()
        return self

    # on the way

    def _reported(self, event: Event) -> None:
        match event, self.command:
            case HooksRan(outcomes=outcomes), RunHooks(point="before_tool"):
                stopped = [one.call_id for one in outcomes if one.denied is not None or one.result is not None]
                self.barred.update(stopped)
            case Asked(approvals=approvals), Ask(asks=asks):
                for ask in asks:
                    given = [one for one in approvals if one.call_id == ask.call.id]
                    if ask.kind == "question" or not allows(given, ask=ask):
                        self.barred.add(ask.call.id)
            case ToolsFinished(), RunTools(calls=planned):
                self.finished.update([plan.call.id for plan in planned])
            case RequestFailed(sent=False) | Interrupted(sent=False), SendRequest():
                self.sent.pop()
            case RequestFailed(number=number) | ResponseReceived(number=number, response=Response(fault=Fault())), _:
                self.refused.add(number)
            case _:
                pass

    def _ordered(self, command: Command) -> None:
        config = self.turn.known.config
        match command:
            case SendRequest(request=request):
                self.sent.append(command)
                self.first_attempts += command.retry_of is None
                pausing = self.turn.known.history.paused and config.family == "anthropic_messages"
                may_end = config.accepts_prefill or pausing
                faults = pairing_faults(request, family=config.family, may_end_with_assistant=may_end)
                assert faults == (), (faults, request.messages)
                assert command.step <= config.max_steps
                if command.step == config.max_steps and config.tools:
                    assert request.tool_choice == "none" or request.tools == ()
            case RunTools():
                self._runs(command)
            case Ask(asks=asks):
                assert asks and config.policy is not None and config.policy.attended
                assert len({ask.call.id for ask in asks}) == len(asks)
                approved = [one for one in self.started.approvals if command.step == 0]
                unbound = {one.call_id for one in approved if not one.digest}
                bound = {(one.call_id, one.digest) for one in approved if one.digest}
                for ask in asks:  # again only where the answer was for something else
                    assert ask.call.id not in unbound or [id for id, _ in bound if id == ask.call.id]
                    assert (ask.call.id, ask.digest) not in bound or [one for one in approved if one.subject]
            case Wait(seconds=seconds):
                assert 0 <= seconds <= max(config.retry.cap_s, config.retry.total_s)
                assert config.retry.attempts > 1
            case _:
                pass

    def _runs(self, command: RunTools) -> None:
        config = self.turn.known.config
        assert command.calls
        for plan in command.calls:
            offer = self.turn.known.offers[plan.call.name]
            assert plan.call.state is ArgumentsState.COMPLETE
            assert offer.effect in config.allowed
            assert not offer.client_side and not offer.asks_user
            assert offer.spec.free_form or isinstance(json.loads(plan.arguments), dict)
            assert plan.call.id not in self.barred, "a hook or a person kept it from running"
            assert plan.call.id not in self.ran, "it ran before"
            assert (plan.grant is None) or offer.child
            self.ran.append(plan.call.id)
            if config.policy is not None and config.policy.rules:
                last = config.policy.rules[-1]
                forbids = last.verdict == "deny" and last.path is None and last.source == "command line"
                assert not forbids or last.tool not in ("*", plan.call.name)
        granted = sum([most_requests(plan.grant) for plan in command.calls if plan.call.name == "task"])
        left = most_requests(config.limits) - spent_requests(self.turn)
        assert granted < left or granted == 0 or left == float("inf")

    # at the end

    def check_end(self) -> None:
        result, turn, config = self.result, self.turn, self.started.config
        assert result.text.strip() or result.stop_reason is StopReason.WAITING
        assert (result.stop_reason, result.complete) in {(row.stop_reason, row.complete) for row in OUTCOMES}
        assert bool(result.why_incomplete) is not result.complete
        assert result.steps <= turn.known.config.max_steps
        assert result.messages == tuple(turn.added)
        pending = [call.id for call in result.pending]
        # What an earlier turn left may wait on when this one is ended.
        ended = result.stop_reason in (StopReason.CANCELLED, StopReason.TIME_LIMIT)
        assert bool(pending) or result.stop_reason is not StopReason.WAITING
        assert not pending or result.stop_reason is StopReason.WAITING or (ended and turn.known.keeps_waiting)
        assert {ask.call.id for ask in result.asks} <= set(pending)
        assert spent_requests(turn) <= most_requests(config.limits)
        self.check_answers()
        self.check_words()
        self.check_bytes()
        self.check_counts()
        self.check_replay()

    def check_answers(self) -> None:
        """Every call of this turn's has exactly one result, but for pending ones; and none that is not its own."""
        own = self.turn.added[self.handed_in :]
        asked = {part.id for message in own for part in message.parts if isinstance(part, ToolCall)}
        answers = [part for message in own for part in results_of(message)]
        answered = Counter([one.call_id for one in answers])
        pending = {call.id for call in self.result.pending}
        assert set(answered.values()) <= {1} and pending.isdisjoint(answered)
        assert asked - pending <= answered.keys()
        taken = (answered.keys() | pending) - asked
        # None, where healing put a message of the user's behind the call: the session has gone on, so an approval is void.
        assert len(taken) in (0, len(self.resumed))
        for one in answers:
            check_answer(one, ran=self.ran, finished=self.finished, barred=self.barred)

    def check_words(self) -> None:
        """No word is lost, none is doubled: it stands in the history, or the result says that it was not read."""
        self.check_words_in([*self.turn.added, *self.result.unread])

    def check_words_in(self, left: Sequence[Message]) -> None:
        """What a user said stands in `left`: in the turn's input, in between, or in a killed turn, whose words come up here.
        The last two stand there exactly as often as they were said."""
        brought = [*self.input, *self.words]
        said, stands = Counter(beginnings_of(brought)), Counter(beginnings_of(left))
        for word in beginnings_of([*self.earlier.words, *self.words]):
            assert stands[word] == said[word], (word, left)
        handed_in = Counter([one for message in brought for one in words_of(message)])
        assert handed_in <= Counter([one for message in left for one in words_of(message)])

    def check_bytes(self) -> None:
        """A strict server of the family takes every body, and what breaks its prefix cache is what the turn said."""
        config = self.started.config
        sent = self.sent
        wires = [wire_of(each, config=config) for each in sent]
        check_prefixes(wires, named=self.result.prefix_changes, is_behind=self.earlier.sent is not None)
        for each, wire in zip(sent, wires, strict=True):
            pauses = config.family == "anthropic_messages" and each.request.messages[-1].role == "assistant"
            judge(config.family, body=parse(wire.body), rules=ModelRules(prefill=config.accepts_prefill or pauses))

    def check_counts(self) -> None:
        """No purpose is asked for more often than its rule allows, and all together no more than the limits."""
        config, sent = self.started.config, self.sent
        asked = [each.purpose for each in sent if each.retry_of is None]
        attempts = config.retry.attempts * (1 + len(config.fallbacks))
        assert [each.number for each in sent] == list(range(1, len(sent) + 1))
        assert self.result.requests == len(sent) <= most_requests(config.limits)
        assert len(sent) <= self.first_attempts * attempts
        assert sum(self.result.requests_by_purpose.values()) == len(sent)
        assert len([one for one in asked if one not in {*RECOVERY, "compact"}]) <= config.max_steps + 1
        assert asked.count("retry") <= config.max_steps * 2 + MAX_CORRECTIONS
        summaries = [each for each in sent if each.purpose == "compact" and each.retry_of is None]
        # What does not fit into one is summarised in several (docs/limits.md), so there may be more of them than steps: each
        # asks for something else, so they come to an end. One that was refused may leave as it was, where what the provider
        # told changed what is taken for the limits and yet not what fits: no more often than a turn learns from refusals.
        asked_for = Counter([what_it_asks(each) for each in summaries])
        assert max(asked_for.values(), default=0) <= 1 + MAX_CORRECTIONS
        answered: set[tuple[str, Sequence[Message]]] = set()
        for each in summaries:
            assert what_it_asks(each) not in answered
            if each.number not in self.refused:
                answered.add(what_it_asks(each))
        assert config.recover != "off" or "continue" not in asked
        assert config.room == "compact" or "compact" not in asked
        assert config.room != "off" or config.recover != "off" or RECOVERY.isdisjoint(asked)

    def check_replay(self) -> None:
        """The journal's events lead to equal commands."""
        assert replay(self.events, earlier=self.earlier) == self.commands
        read = journalled(self.events)
        if read is not None:
            assert replay(read, earlier=self.earlier) == self.commands


def allows(given: Sequence[Approval], *, ask: OneAsk) -> bool:
    """Whether the answers to an ask (or that there is none) let its call run now: somebody allows what was shown, and nobody
    says otherwise."""
    said = [one for one in given if one.by != "default"] or list(given)
    if not said or any(one.verdict != "allow" for one in said):
        return False
    return said[0].subject in ("", ask.subject) and said[0].digest in ("", ask.digest)


def check_answer(one: ToolResult, *, ran: Sequence[str], finished: set[str], barred: set[str]) -> None:
    words = text_of(Message("user", one.content))
    if one.call_id in barred:
        assert not words.startswith("did "), "the call was denied"
        assert STRAY not in words
    if words.startswith("did "):
        assert one.call_id in ran, "nobody ran it"
    if one.call_id in finished:
        assert not words.startswith("Not run"), "it ran"
    assert STRAY not in words or one.call_id not in finished


def results_of(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


def words_of(message: Message) -> list[str]:
    """What a user says in it."""
    if message.role != "user":
        return []
    return [part.text for part in message.parts if isinstance(part, Text) and part.text.strip()]


def what_it_asks(sent: SendRequest) -> tuple[str, Sequence[Message]]:
    return sent.request.model, sent.request.messages


def beginnings_of(messages: Sequence[Message]) -> list[str]:
    """The first thing that is said in each of the user's messages: a word in between has its number there."""
    return [word for message in messages for word in words_of(message)[:1]]


def spent_requests(turn: Turn) -> int:
    return turn.known.spending.requests + sum([child.requests for child in turn.known.spending.children])


def journalled(events: Sequence[Event]) -> list[Event] | None:
    """The events as a journal gives them back; None where half of a surrogate pair is drawn, which none can hold."""
    try:
        return [msgspec.json.decode(msgspec.json.encode(event), type=Event) for event in events]
    except UnicodeEncodeError:
        return None


def wire_of(sent: SendRequest, *, config: TurnConfig) -> Wire:
    """The request as it goes out to an endpoint of these facts."""
    rules = msgspec.structs.replace(
        builtin_profiles()[config.family],
        accepts_prefill=config.accepts_prefill,
        tool_choice_none=config.tool_choice_none,
        default_max_tokens=config.default_max_tokens,
    )
    call = find_family(config.family).encode_request(sent.request, rules)
    return read_wire(config.family, path=call.path, body=call.body)
