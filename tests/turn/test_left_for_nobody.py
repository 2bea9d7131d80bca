"""Calls that nobody can decide, allow or run any more, and what their results say.

Mutants that no test noticed. Events in, commands out.
"""

from itertools import permutations

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, READ, WRITE, call, done, play, results_in, says
from turn.test_continuing import ON, PREFIX, REST, cut_by_limit, cut_call, purposes
from turn.test_script_phase import SCRIPTED, script
from turn.test_single_ends import CALLS, at_work, result
from turn.test_verdicts import ATTENDED, HELD, QUESTION, TASK, allow, answers, texts
from turnwise.rules.limits import MaxRequests, MaxWallTime, Spent
from turnwise.turn.config import Approval, ToolOffer, settled
from turnwise.turn.events import (
    Ask,
    Asked,
    ResponseReceived,
    RunScript,
    RunTools,
    ScriptCalled,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import NOT_RECORDED, NOTHING_LEFT_FOR_CHILD, unrecorded
from turnwise.turn.verdicts import NOBODY_THERE
from turnwise.vocab import Repair, StopReason, Text, ToolResult, ToolSpec

OTHERWISE = '{"type":"object","properties":{"file":{"type":"string"}},"required":["file"],"additionalProperties":false}'


def test_a_question_in_a_turn_without_rules_has_nobody_to_answer_it() -> None:
    """Proves: a question has no tool behind it, so it never runs. The model is told to decide by itself."""
    config = replace(CONFIG, tools=(READ, QUESTION))
    played = play([says(call("q", "ask_user", '{"question":"Which one?"}'), call("a")), says("So.")], config=config)
    assert [[plan.call.id for plan in planned] for planned in played.ran] == [["a"]]
    assert texts(played) == {"q": NOBODY_THERE, "a": "did a"}


@pytest.mark.promise("wait:ask")
def test_an_allowed_call_that_does_not_fit_its_tool_any_more_is_told_so_and_others_wait_on() -> None:
    """Proves: what a person has decided is over, with a result. A call that nobody has decided keeps waiting: another run may
    know the tool as it was."""
    later = [Approval(call_id=id, verdict="later") for id in "bc"]
    calls = says(call("b", "write"), call("c", "write"))
    first = play([calls], config=HELD, answer=answers(*later), keeps_waiting=True)
    config = replace(HELD, tools=(READ, replace(WRITE, spec=replace(WRITE.spec, parameters=OTHERWISE))))
    yes = allow("b", digest=first.result.asks[0].digest)
    again = play([], config=config, earlier=first.result.messages, input=(), approvals=(yes,), keeps_waiting=True)
    assert (again.ran, again.result.stop_reason) == ([], StopReason.WAITING)
    assert [one.id for one in again.result.pending] == ["c"]
    told = texts(again)
    assert list(told) == ["b"] and told["b"].startswith("Not run: the arguments do not fit the parameters of `write`.")


@pytest.mark.promise("cut:continued", "cut:split")
def test_each_of_two_calls_that_were_continued_in_vain_is_not_continued_again() -> None:
    """Proves: both were joined and did not fit their tool. Calls that begin like either of them would not fit as well."""
    both = '{"type":"object","properties":{"text":{"type":"string"}},"required":["text","name"]}'
    config = replace(ON, tools=(ToolOffer(spec=ToolSpec(name="write", parameters=both), effect="write"),))
    other, other_rest = PREFIX.replace("fox", "cat"), REST.replace("sleeps", "purrs")
    again = [cut_by_limit(cut_call("c")), cut_by_limit(cut_call("d", other))]
    first = cut_by_limit(cut_call("a"), cut_call("b", other))
    played = play([first, says(REST), says(other_rest), *again, says("Done.")], config=config)
    assert purposes(played) == ["step", "continue", "continue", "step", "step", "step"]
    assert played.ran == []


@pytest.mark.promise("end:budget")
def test_sub_agents_that_do_not_begin_count_for_nothing() -> None:
    """Proves: where no limit counts calls there are no places to give back."""
    config = replace(CONFIG, tools=(TASK, READ), limits=MaxRequests(2))
    played = play([says(call("a", "task", "{}"), call("b", "task", "{}")), says("So.")], config=config)
    assert texts(played) == {"a": NOTHING_LEFT_FOR_CHILD, "b": NOTHING_LEFT_FOR_CHILD}
    assert played.result.also_spent == Spent()


@pytest.mark.promise("end:budget", "wait:ask")
@pytest.mark.parametrize(("after_s", "runs"), [(0.0, False), (-1.0, True)])
def test_a_sub_agent_does_not_begin_when_its_person_took_all_of_its_time(after_s: float, runs: bool) -> None:
    """Proves: the calls of a step have one deadline. At its end a sub-agent could do nothing."""
    task = replace(TASK, effect="write")
    config = replace(CONFIG, tools=(task, READ), limits=MaxWallTime(100), policy=ATTENDED)
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    ask = turn.receive(ResponseReceived(number=1, response=says(call("a", "task", "{}")), at_s=1.0))
    assert isinstance(ask, Ask)
    assert ask.deadline_s == pytest.approx(89.1)
    command = turn.receive(Asked(approvals=(allow("a"),), at_s=1.0 + ask.deadline_s + after_s))
    assert isinstance(command, RunTools) is runs
    if not runs:
        assert results_in(turn.added) == {"a": NOTHING_LEFT_FOR_CHILD}


@pytest.mark.promise("step:every-call-answered")
def test_a_result_that_was_told_before_stands_though_all_results_are_told_again() -> None:
    """Proves: the first result of a call counts, and the others are left out with a repair."""
    turn, _ = at_work()
    turn.receive(ToolEnded(result=result(CALLS[0], "first")))
    turn.receive(ToolsFinished(results=tuple([result(one, "again") for one in CALLS])))
    assert list(results_in(turn.added).values()) == ["first c0", "again c1", "again c2"]
    assert [one.where for one in turn.known.record.repairs if one.kind == "stray_result"] == ["call c0"]


@pytest.mark.promise("step:every-call-answered")
def test_a_result_of_no_call_of_a_program_is_left_out_with_a_repair() -> None:
    """Proves: as among the calls of a response. The program gets the results of its own calls."""
    turn, command = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    running = turn.receive(ScriptCalled(call_id="s", calls=(call("s/1"),)))
    assert isinstance(running, RunTools)
    stray = ToolResult(call_id="zz", name="read", content=(Text("of another"),))
    command = turn.receive(ToolsFinished(results=(done(running.calls[0]), stray)))
    assert isinstance(command, RunScript)
    assert [(one.call_id, one.text) for one in command.results] == [("s/1", "did s/1")]
    assert [(one.kind, one.where) for one in turn.known.record.repairs] == [("stray_result", "call zz")]


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize(
    ("text", "stands"), [("It is done.", "It is done."), (" ", "The turn could not be recorded: full.")]
)
def test_the_answer_of_a_turn_that_could_not_be_recorded_stands(text: str, stands: str) -> None:
    """Proves: it may be whole, so it is shown; where there is none the reason stands in its place. No call waits."""
    ended = play([says(call("c", "client", "{}"))]).result
    result = unrecorded(replace(ended, text=text), why="full")
    assert (result.text, result.stop_reason, result.complete) == (stands, StopReason.JOURNAL_FAILED, False)
    assert (result.pending, result.asks, result.why_incomplete) == ((), (), "the turn could not be recorded: full")
    assert result.repairs[-1] == Repair(NOT_RECORDED, "journal", "full")


@pytest.mark.promise("wait:ask")
def test_of_any_two_answers_to_a_call_the_more_cautious_one_counts() -> None:
    """Proves: in either order. A denial wins over later, later over an approval, and a default gives way to any answer."""
    rows = [
        ("deny", "person"),
        ("later", "person"),
        ("allow", "person"),
        ("deny", "default"),
        ("later", "default"),
        ("allow", "default"),
    ]
    cautious = [Approval(call_id="a", verdict=verdict, by=by) for verdict, by in rows]  # type: ignore[arg-type]
    for one, other in permutations(cautious, 2):
        first = min(one, other, key=cautious.index)
        assert settled([one, other]) == {"a": first}
