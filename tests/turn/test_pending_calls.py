"""Taking up what an earlier run left pending, and words that come in between."""

import msgspec
import pytest
from msgspec.structs import replace

from families import of_family
from pairing import pairing_faults
from tables import each
from turn.playing import ASK, CONFIG, READ, Played, call, done, play, results_in, says
from turnwise.errors import CallerError
from turnwise.rules.history import check_input, waiting_calls
from turnwise.turn.config import Approval
from turnwise.turn.events import (
    Event,
    FinishTurn,
    HooksRan,
    Interrupted,
    MessageArrived,
    PlannedCall,
    ResponseReceived,
    RunHooks,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import Turn, fold_session, replay
from turnwise.vocab import Message, Response, StopReason, Text, ToolResult

WORD = Message("user", (Text("and hurry"),))
PENDING = (ASK, Message("assistant", (call("a"), call("c", "client"))))
YES = Approval(call_id="a", verdict="allow")


def handed_in(id: str) -> Message:
    return Message("tool", (ToolResult(call_id=id, name="client", content=(Text("from the client"),)),))


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_results_handed_in_beside_an_approval_stand_with_the_others() -> None:
    """Proves: one message with all results, in the order of the calls, and the user's word behind it."""
    played = play([says("Done.")], input=(handed_in("c"), WORD), earlier=PENDING, approvals=(YES,))
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a"]]
    *_, asking, results, word = played.requests[0].request.messages
    assert asking == PENDING[1] and word == WORD
    assert [part.call_id for part in results.parts if isinstance(part, ToolResult)] == ["a", "c"]
    assert pairing_faults(played.requests[0].request, family="openai_chat") == ()


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_an_approval_that_comes_after_the_session_went_on_is_void() -> None:
    """Proves: its call has a result by then; it does not run behind later messages, and a caller is told so."""
    earlier = (*PENDING, WORD, Message("assistant", (Text("Without it, then."),)))
    played = play([says("Done.")], input=(ASK,), earlier=earlier, approvals=(YES,))
    assert played.ran == []
    assert pairing_faults(played.requests[0].request, family="openai_chat") == ()
    with pytest.raises(
        CallerError, match=r"`a` any more, as the session has gone on without it; .* waits for: nothing"
    ):
        check_input((ASK,), history=earlier, approved=["a"])
    check_input((ASK,), history=PENDING, approved=["a"])


@pytest.mark.promise("wait:ask")
def test_an_approval_follows_a_call_whose_id_was_mended() -> None:
    """Proves: a session that moves to a family with other ids takes the answer along."""
    earlier = (ASK, Message("assistant", (call("x:1"),)))
    config = replace(CONFIG, **of_family("anthropic_messages"))
    yes = replace(YES, call_id="x:1")
    played = play([says("Done.")], config=config, input=(), earlier=earlier, approvals=(yes,))
    ((plan,),) = played.ran
    assert plan.call.id.startswith("x_1_") and plan.call.name == READ.spec.name
    assert [repair.kind for repair in played.result.repairs] == ["call_id"]
    assert pairing_faults(played.requests[0].request, family="anthropic_messages") == ()


def test_a_word_in_mid_request_runs_no_hook_again() -> None:
    """Proves: the request at hand goes on, and the hooks before requests see the next one only."""
    config = replace(CONFIG, hooks=("before_request",))
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    assert isinstance(command, RunHooks)
    sent = turn.receive(HooksRan())
    assert isinstance(sent, SendRequest)
    assert turn.receive(MessageArrived(message=WORD)) is sent
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    held = turn.receive(ToolsFinished(results=()))
    assert isinstance(held, RunHooks) and held.request is not None
    assert held.request.request.messages[-1] == WORD


def test_words_are_made_fit_for_the_family() -> None:
    """Proves: blank text, which Anthropic refuses, does not come into a request by a word in between."""
    config = replace(CONFIG, **of_family("anthropic_messages"))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(MessageArrived(message=Message("user", (Text(" \n"),))))
    turn.receive(MessageArrived(message=Message("user", (Text(""), *WORD.parts))))
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    command = turn.receive(ToolsFinished(results=()))
    assert isinstance(command, SendRequest)
    assert [message for message in command.request.messages if message.role == "user"] == [ASK, WORD]


def test_a_word_of_a_killed_turn_stays_in_its_session() -> None:
    """Proves: nobody was told that it was not taken up, so the session keeps it behind the results."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(call("a"))))
    turn.receive(MessageArrived(message=WORD))
    assert [message.role for message in turn.left_behind()] == ["user", "assistant", "tool", "user"]
    assert turn.left_behind()[-1] == WORD


def test_a_call_that_ran_is_never_told_as_not_run() -> None:
    """Proves: behind hooks after tools, a call whose result was not reported may have run, also when the turn ends there."""
    config = replace(CONFIG, hooks=("after_tool",))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    ran = turn.receive(ResponseReceived(number=1, response=says(call("a"), call("b"))))
    assert isinstance(ran, RunTools)
    held = turn.receive(ToolsFinished(results=(done(ran.calls[0]),)))
    assert isinstance(held, RunHooks)
    turn.receive(Interrupted(kind="cancel"))
    texts = [part.content for message in turn.added for part in message.parts if isinstance(part, ToolResult)]
    assert texts == [
        (Text("did a"),),
        (Text("No result was reported for this call. The tool may or may not have run."),),
    ]


TWO = (ASK, Message("assistant", (call("x:1"), call("y:1"), call("c:1", "client"))))


@pytest.mark.promise("wait:ask", "keep:replay", "step:every-call-answered")
def test_what_waits_keeps_the_ids_that_its_session_knows() -> None:
    """A session moves to a family that mends ids and is answered one by one there: each call runs once, under ids that the
    listing, the answers and the history share."""
    config = replace(CONFIG, **of_family("anthropic_messages"))
    imported = TurnStarted(config=config, input=(), history=TWO, approvals=(yes("x:1"),), keeps_waiting=True)
    first = play_started(imported)
    assert first.result.stop_reason is StopReason.WAITING and not first.requests
    assert [one.id for one in first.result.pending] == ["y:1", "c:1"]
    assert [one.call.id for one in first.result.asks] == ["y:1"]
    so_far = fold_session([first.events])
    assert [one.id for one in waiting_calls(so_far.carried.messages)] == ["y:1", "c:1"]
    answers = TurnStarted(config=config, input=(handed_in("c:1"),), approvals=(yes("y:1"),), keeps_waiting=True)
    second = play_started(answers, says("Done."), earlier=so_far.carried)
    ran = [plan.call.id for plans in (*first.ran, *second.ran) for plan in plans]
    assert len(ran) == len(set(ran)) == 2
    request = second.requests[0].request
    assert pairing_faults(request, family="anthropic_messages") == ()
    assert list(results_in(request.messages).values()) == [f"did {ran[0]}", f"did {ran[1]}", "from the client"]
    assert replay(second.events, earlier=so_far.carried)[-1] == second.turn.at_hand


def test_a_journal_of_before_is_read_as_it_was_written() -> None:
    """There an unanswered call was dropped, and a denial counted only where a rule asked: its events are still a legal
    sequence, and its session goes on."""
    old = play([says("Done.")], input=(), earlier=TWO, approvals=(yes("x:1"),))
    assert old.result.stop_reason is StopReason.ANSWERED and len(old.requests) == 1
    read = [msgspec.json.decode(msgspec.json.encode(event), type=Event) for event in old.events]
    assert replay(read, earlier=TWO)[-1] == old.turn.at_hand


@pytest.mark.promise("wait:ask", "keep:replay")
def test_a_turn_killed_anywhere_leaves_open_what_nobody_answered() -> None:
    """After every event of a run that answers one of three calls: the others wait, and the answered one has a result."""
    started = TurnStarted(config=CONFIG, input=(WORD,), history=TWO, approvals=(yes("x:1"),), keeps_waiting=True)
    events = play_started(started).events
    for length in range(1, len(events) + 1):
        so_far = fold_session([events[:length]])
        assert [one.id for one in waiting_calls(so_far.messages)] == ["y:1", "c:1"]
        assert list(results_in(so_far.messages)) == ["x:1"]
        after = TurnStarted(config=CONFIG, input=(handed_in("c:1"),), approvals=(yes("y:1"),), keeps_waiting=True)
        done_ = play_started(after, says("Done."), earlier=so_far.carried)
        words = [message for message in done_.requests[0].request.messages if message == WORD]
        # The result of a run that ended says that it was not read.
        assert len(words) == (0 if length == len(events) else 1)


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_the_words_of_a_killed_turn_stand_behind_the_results_that_it_waited_for() -> None:
    """The next turn begins with them and with the last results: once between the call and its result, they had to be moved."""
    killed = TurnStarted(config=CONFIG, input=(WORD,), history=PENDING, approvals=(YES,), keeps_waiting=True)
    so_far = fold_session([[killed]])
    assert so_far.carried.words == (WORD,)
    then = Message("user", (Text("what came of it?"),))
    after = TurnStarted(config=CONFIG, input=(handed_in("c"), then), keeps_waiting=True)
    played = play_started(after, says("Done."), earlier=so_far.carried)
    session = fold_session([[killed], played.events]).messages
    assert [one.role for one in session] == ["user", "assistant", "tool", "tool", "user", "user", "assistant"]
    assert list(results_in(session)) == ["a", "c"] and [session[4], session[5]] == [WORD, then]
    assert played.requests[0].request.messages[-2:] == (WORD, then)
    assert played.result.repairs == ()


def yes(id: str) -> Approval:
    return Approval(call_id=id, verdict="allow")


def play_started(started: TurnStarted, *script: Response, earlier: Carried | None = None) -> Played:
    """The shortest driver, for a whole `started`."""
    turn, command = Turn.start(started, earlier=() if earlier is None else earlier)
    events: list[Event] = [started]
    requests: list[SendRequest] = []
    ran: list[tuple[PlannedCall, ...]] = []
    coming = list(script)
    while not isinstance(command, FinishTurn):
        match command:
            case SendRequest(number=number):
                requests.append(command)
                event: Event = ResponseReceived(number=number, response=coming.pop(0))
            case RunTools(calls=planned):
                ran.append(planned)
                event = ToolsFinished(results=tuple([done(plan) for plan in planned]))
            case _:
                raise AssertionError(command)
        events.append(event)
        command = turn.receive(event)
    return Played(requests, ran, command.result, events, turn)


@pytest.mark.promise("wait:ask", "step:every-call-answered")
@each("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
@each("ids", [("a", "a"), ("a", "b", "a"), ("b", "a", "a", "b"), ("", "")])
def test_of_two_open_calls_with_one_id_the_first_alone_can_wait(ids: tuple[str, ...], family: str) -> None:
    """Proves: an id names one call. In an imported history the second call of an id waited on under the id of the first, so a
    result had answered what was pending and nobody could answer it any more (seed 3002 of the drawn sessions)."""
    calls = [call(id, arguments=f'{{"path":"{nth}"}}') for nth, id in enumerate(ids)]
    history = (ASK, Message("assistant", tuple(calls)))
    names = list(dict.fromkeys(ids))
    first = {one.id: one for one in reversed(calls)}
    assert waiting_calls(history) == tuple([first[id] for id in names])
    config = replace(CONFIG, **of_family(family))
    approvals = (Approval(call_id=ids[0], verdict="allow"),)
    started = TurnStarted(config=config, input=(), history=history, approvals=approvals, keeps_waiting=True)
    turn, command = Turn.start(started)
    assert isinstance(command, RunTools)
    assert [plan.arguments for plan in command.calls] == [first[ids[0]].arguments]
    finished = ToolsFinished(results=tuple([done(plan) for plan in command.calls]))
    ended = turn.receive(finished)
    events: list[Event] = [started, finished]
    left = names[1:]
    if left:
        assert isinstance(ended, FinishTurn)
        assert [one.id for one in ended.result.pending] == left
        answered = [part.call_id for one in ended.result.messages for part in one.parts if isinstance(part, ToolResult)]
        assert answered == [ids[0]]
    else:
        assert isinstance(ended, SendRequest) and pairing_faults(ended.request, family=family) == ()
    carried = fold_session([events]).carried
    assert [one.id for one in waiting_calls(carried.messages)] == left
    if left:
        again = replace(started, history=(), approvals=(Approval(call_id=left[0], verdict="allow"),))
        _, then = Turn.start(again, earlier=carried)
        assert isinstance(then, RunTools)
        assert [plan.arguments for plan in then.calls] == [first[left[0]].arguments]
