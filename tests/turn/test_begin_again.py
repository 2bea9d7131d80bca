"""What a step begins with after refusals, requests that never left, and calls of an earlier run.

Mutants that no test noticed (issue 18). Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, done, play, says
from turn.test_cut_call_check import NOBODY, ON, PREFIX, allow, by_limit, cut, inspected
from turn.test_learned_room import PAIR, UNKNOWN, less_output, outputs, step
from turn.test_pending_calls import PENDING, WORD, YES, handed_in
from turn.test_room import ROOMY
from turn.test_script_phase import SCRIPT, SCRIPTED, script
from turnwise.rules.limits import MaxWallTime
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import (
    RequestFailed,
    ResponseReceived,
    RunScript,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import Fault, FaultKind, FinishReason, StopReason, ToolSpec

BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)


@pytest.mark.promise("cut:budget")
def test_after_a_step_with_refusals_six_are_heard_again() -> None:
    """Proves: nothing is left of the count, to the last one."""
    again = [less_output(number, 4_000 - 100 * number) for number in range(3, 9)]
    played = play([less_output(1, 3_900), step(0), *again, says("Done.")], config=ROOMY)
    assert outputs(played)[2:] == [3_900, 3_700, 3_600, 3_500, 3_400, 3_300, 3_200]
    assert (played.result.text, played.result.complete) == ("Done.", True)


@pytest.mark.promise("cut:budget", "step:prefix-stable", "wait:retry")
def test_a_summary_is_named_at_the_first_request_that_left_with_it() -> None:
    """Proves: the one before it never left, so its provider has seen nothing of it; and it is named once."""
    limits = ModelLimits(context_window_tokens=30_000, max_output_tokens=4_000)
    config = replace(UNKNOWN, model_limits=limits, retry=RetryPolicy())
    unsent = RequestFailed(number=2, fault=Fault(kind=FaultKind.DISCONNECTED, message="refused"), sent=False)
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)), earlier=PAIR * 10)
    events = [ResponseReceived(number=1, response=says("What was said.")), unsent, WaitOver()]
    for event in [*events, ResponseReceived(number=2, response=step(0))]:
        command = turn.receive(event)
    assert isinstance(command, RunTools)
    turn.receive(ToolsFinished(results=tuple([done(plan) for plan in command.calls])))
    turn.receive(ResponseReceived(number=3, response=says("So.")))
    assert turn.result is not None and turn.result.prefix_changes == ("request 2: compaction",)
    assert turn.result.requests_by_purpose == {"compact": 1, "step": 2}


@pytest.mark.promise("end:budget")
def test_calls_of_an_earlier_run_are_no_step_that_others_are_measured_by() -> None:
    """Proves: what they took is spent, and says nothing of the first step."""
    config = replace(CONFIG, limits=MaxWallTime(30))
    earlier = (PENDING[0], replace(PENDING[1], parts=PENDING[1].parts[:1]))
    turn, ran = Turn.start(TurnStarted(config=config, input=(), approvals=(YES,)), earlier=earlier)
    assert isinstance(ran, RunTools)
    command = turn.receive(ToolsFinished(results=tuple([done(plan) for plan in ran.calls]), at_s=20.0))
    assert isinstance(command, SendRequest) and command.request.tool_choice == "auto"


@pytest.mark.promise("wait:ask", "step:history-healed")
def test_what_a_turn_adds_begins_with_the_results_that_were_handed_in() -> None:
    """Proves: the session gets them, then those of the calls that ran, then the user's words and the answer."""
    played = play([says("Done.")], input=(handed_in("c"), WORD), earlier=PENDING, approvals=(YES,))
    first, *_, word, answer = played.result.messages
    assert (first, word, answer.parts) == (handed_in("c"), WORD, says("Done.").message.parts)


@pytest.mark.promise("cut:complete-sibling", "step:every-call-answered")
def test_a_cut_call_that_no_rule_of_ours_is_about_is_not_denied_by_one() -> None:
    """Proves: neither a tool that is not there nor one of the client's is judged by the rules."""
    client = ToolOffer(spec=ToolSpec(name="publish", parameters="{}"), client_side=True, effect="write")
    config = replace(ON, tools=(client, ON.tools[2]), policy=replace(NOBODY, rules=(allow("read"),)))
    unknown = play([by_limit(cut("a", "nothing")), says("So.")], config=config, answer=inspected)
    assert [sent.purpose for sent in unknown.requests] == ["step", "step"]
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=by_limit(cut("a", "publish", PREFIX))))
    assert isinstance(command, SendRequest) and command.purpose == "continue"


@pytest.mark.promise("wait:retry")
def test_a_response_that_broke_off_to_the_end_says_why_it_was_not_asked_for_again() -> None:
    """Proves: the words stand behind the provider's own, as where no response came."""
    broken = says("Lost", finish=FinishReason.ERROR, fault=BUSY)
    config = replace(CONFIG, retry=RetryPolicy(attempts=2))
    played = play([broken, broken], config=config, answer=lambda _: WaitOver())
    failed = play([RequestFailed(number=n, fault=BUSY) for n in (1, 2)], config=config, answer=lambda _: WaitOver())
    assert played.result.stop_reason is StopReason.PROVIDER_FAILED
    assert played.result.fault == failed.result.fault != BUSY
    assert played.result.fault is not None and played.result.fault.message.startswith("busy. ")


def test_a_tool_whose_name_means_something_in_a_program_is_called_otherwise_there() -> None:
    """Proves: a word of the language and a name that the interpreter keeps for itself get one more character."""
    names = ("class", "print", "__init__", "read")
    tools = tuple([ToolOffer(spec=ToolSpec(name=name)) for name in names])
    turn, _ = Turn.start(TurnStarted(config=replace(SCRIPTED, tools=(*tools, SCRIPT)), input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    assert isinstance(command, RunScript)
    assert [one.name for one in command.functions] == ["class_", "print_", "__init___", "read"]
    assert [one.tool for one in command.functions] == list(names)
