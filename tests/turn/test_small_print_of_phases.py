"""What phases do at their edges, and what they never wait for (issue 18: mutants that no test noticed)."""

from decimal import Decimal

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, call, cut, done, play, says
from turn.test_continuing import ON, cut_by_limit, cut_call
from turn.test_cost_so_far import STEP
from turn.test_retrying import BUSY
from turn.test_verdicts import HELD, allow, answers
from turnwise.errors import TurnwiseBug
from turnwise.rules.history import Healed
from turnwise.rules.limits import MaxRequests, MaxSteps, MaxTokens, Spent
from turnwise.rules.reservations import Place, Used
from turnwise.rules.retries import RetryPolicy
from turnwise.rules.schema import refused_output
from turnwise.turn.attempt import Allowed, Attempt
from turnwise.turn.call_sorting import TakenUp
from turnwise.turn.calls_phase import Calls
from turnwise.turn.config import ChildReport, TurnConfig
from turnwise.turn.events import (
    MessageArrived,
    OutputChecked,
    PlannedCall,
    RequestFailed,
    ResponseReceived,
    SendRequest,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.turn.next_phase import Answer
from turnwise.turn.outcomes import Corrects, Over
from turnwise.turn.turn_spending import NextRequest, Pacing
from turnwise.turn.turn_state import ChildrenPaid, Fit, Known, Paced, Replaced, WordsPutBy
from turnwise.vocab import FinishReason, Message, Request, Text

REQUEST = Request(model="m", messages=(ASK,))
PLAIN = Allowed(plain=True, answers=True)


def begun(config: TurnConfig = CONFIG, *, history: tuple[Message, ...] = ()) -> Known:
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,), history=history))
    return turn.known


def planned(id: str) -> PlannedCall:
    return PlannedCall(call=call(id), arguments="{}", timeout_s=1.0)


def test_an_answer_that_its_type_refuses_is_kept_while_it_is_corrected() -> None:
    """Proves: the text stands where no better one comes."""
    known = begun()
    answer = Answer(text="Twelve.", finish=FinishReason.STOP, partial=False, lost=False, json='"Twelve."')
    move = answer.receive(OutputChecked(problems=("no number",)), known)
    assert move.then == Over(Corrects(text="Twelve.", correction=refused_output(("no number",))))


def test_a_phase_that_gets_what_it_does_not_wait_for_says_so() -> None:
    """Proves: a mistake of ours is not taken for an answer."""
    known = begun()
    assert known.asking is not None
    with pytest.raises(TurnwiseBug, match="calls do not wait for WaitOver"):
        Calls(source=TakenUp(calls=(), approvals=())).receive(WaitOver(), known)
    with pytest.raises(TurnwiseBug, match="a request at `sent` waits for its event"):
        Attempt(request=REQUEST, own=0, purpose="step", asking=known.asking, allowed=PLAIN, stage="sent").go(known)


@pytest.mark.promise("end:budget")
def test_an_answer_behind_which_words_came_takes_nothing_from_the_next_one() -> None:
    """Proves: the second answer stands alone, whole."""
    turn, command = Turn.start(TurnStarted(config=CONFIG, input=(ASK,)))
    turn.receive(MessageArrived(message=Message("user", (Text("And now?"),))))
    assert isinstance(command, SendRequest)
    turn.receive(ResponseReceived(number=1, response=says("First.")))
    assert not turn.known.words.said_lost
    turn.receive(ResponseReceived(number=2, response=says("Second.")))
    assert turn.result is not None
    assert (turn.result.text, turn.result.complete) == ("Second.", True)


def test_a_message_that_became_shorter_is_weighed_again_and_no_other() -> None:
    """Proves: the weights of the others stand."""
    history = begun(history=(Message("user", (Text("One."),)), Message("assistant", (Text("Two."),)))).history
    history.weigh()
    before = list(history.sizes)
    history.open(history.messages[:], added=history.added[:], known_as={}, is_shorter=True)
    assert history.sizes == before[:-1]


def test_a_prompt_is_not_counted_where_no_limit_asks() -> None:
    """Proves: it is 0, as the property says."""
    assert begun().prompt_tokens == 0


@pytest.mark.promise("end:budget")
def test_a_prompt_that_was_made_to_fit_the_limits_sets_the_pace() -> None:
    """Proves: what had stopped the step allows the answer now."""
    long = tuple([Message("user" if n % 2 == 0 else "assistant", (Text("word " * 400),)) for n in range(20)])
    known = begun(history=long)
    known.apply(Replaced(config=replace(CONFIG, room="compact", limits=MaxTokens(8_000))))
    known.apply(Paced(known.judged()))
    assert known.spending.pacing.pace == "stop"
    known.apply(Fit(own=(), limits=True))
    assert (known.fits, known.spending.pacing.pace) == (True, "answer")


def test_words_in_mid_turn_take_the_ids_of_their_calls() -> None:
    """Proves: no later call gets one of them."""
    known = begun()
    known.apply(WordsPutBy(Healed(messages=(), repairs=(), call_ids=frozenset({"theirs"}))))
    assert "theirs" in known.history.call_ids


@pytest.mark.promise("bill:plans")
def test_a_request_of_a_step_that_was_billed_puts_nothing_at_stake() -> None:
    """Proves: a plan by step bills a step once."""
    coming = NextRequest(spent=Spent(), prompt_tokens=10, price=STEP)
    staked = [Pacing().at_stake(REQUEST, own=0, coming=replace(coming, is_billed=billed)) for billed in (False, True)]
    assert staked == [Decimal("0.10"), Decimal(0)]


@pytest.mark.promise("safe:bounded")
def test_a_sub_agent_that_did_not_end_has_used_its_whole_place() -> None:
    """Proves: it may go on, so what it was given is gone."""
    known = begun()
    plan = replace(planned("a"), place=Place(subagents=2, requests=5))
    known.apply(ChildrenPaid((ChildReport(call_id="a", session_id="s", stop_reason=None, requests=1),), {"a": plan}))
    assert known.spending.used == Used(subagents=3, requests=5)


@pytest.mark.promise("end:budget")
def test_a_cut_call_is_not_continued_where_no_step_is_left_after_it() -> None:
    """Proves: with one more request the limits would leave none for the answer, which comes in a step of its own."""
    script = [says(cut("a"), finish=FinishReason.LENGTH), says("So.")]
    played = play(script, config=replace(CONFIG, limits=MaxSteps(1) & MaxRequests(2)))
    assert [(sent.step, sent.purpose) for sent in played.requests] == [(1, "step"), (2, "step")]
    assert (played.result.text, played.ran) == ("So.", [])


@pytest.mark.promise("end:budget")
def test_a_continuation_that_failed_is_not_tried_again_where_no_step_is_left() -> None:
    """Proves: once more would take the request that the answer needs, which comes in a step of its own."""
    config = replace(ON, retry=RetryPolicy(), limits=MaxSteps(1) & MaxRequests(3))
    script = [cut_by_limit(cut_call("a")), RequestFailed(number=2, fault=BUSY), says("So.")]
    played = play(script, config=config, answer=lambda _: WaitOver())
    assert [(sent.step, sent.purpose) for sent in played.requests] == [(1, "step"), (1, "continue"), (2, "step")]
    assert (played.result.text, played.ran) == ("So.", [])


def test_what_is_allowed_always_twice_is_remembered_once() -> None:
    """Proves: the second answer adds no rule that the first one has."""
    script = [says(call("a", "write"), call("b", "write")), says("Done.")]
    played = play(script, config=HELD, answer=answers(allow("a", always=True), allow("b", always=True)), run=done)
    policy = played.turn.known.config.policy
    assert policy is not None and len(policy.rules) == 1
