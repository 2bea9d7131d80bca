"""Programs in the chair: their calls take the way of all calls, and the history knows one result."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turn.drawn import OFFERS, starts
from turn.judged import Judged
from turn.playing import ASK, CONFIG, PATH, READ, SCRIPT, WRITE, Played, call, play, results_in, says, session_messages
from turnwise.errors import TurnwiseBug
from turnwise.rules.limits import MaxRequests
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.turn.config import Approval, ScriptLimits, ToolOffer
from turnwise.turn.events import (
    Ask,
    Asked,
    Command,
    Event,
    HookOutcome,
    HooksRan,
    Interrupted,
    PlannedCall,
    ResponseReceived,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    ScriptFunction,
    ScriptResult,
    SendRequest,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.turn.outcomes import NO_TIME, UNKNOWN_OUTCOME
from turnwise.vocab import FinishReason, Message, Response, StopReason, Text, ToolCall, ToolResult, ToolSpec, calls_of

SCRIPTED = msgspec.structs.replace(CONFIG, tools=(*CONFIG.tools, SCRIPT))
READ_FUNCTION = ScriptFunction(name="read", tool="read", parameters=("path",))
WRITE_FUNCTION = ScriptFunction(name="write", tool="write", parameters=("path",))


def script(id: str) -> ToolCall:
    return call(id, "script", '{"program":"go()"}')


def program(*batches: tuple[ToolCall, ...], at_s: float = 0.0) -> Callable[[Command], Event]:
    """The driver of a program that makes these calls, one batch after the other, and prints the results' texts."""
    coming = list(batches)
    heard: list[ScriptResult] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, RunScript)
        heard.extend(command.results)
        if coming and not command.stop:
            return ScriptCalled(call_id=command.call.id, calls=coming.pop(0), at_s=at_s)
        text = command.stop or "; ".join([f"{one.text}{'!' if one.is_error else ''}" for one in heard])
        return ScriptFinished(call_id=command.call.id, text=text)

    return answer


def commands_of(played: Played) -> list[Command]:
    turn, command = Turn.start(TurnStarted(config=played.events[0].config, input=(ASK,)))  # type: ignore[union-attr]
    return [command, *[turn.receive(event) for event in played.events[1:]]]


@pytest.mark.promise("bill:saved", "step:one-request")
def test_the_calls_of_a_program_run_and_one_request_carries_one_result() -> None:
    """Proves: plain calls first, then the program; its calls are in the events and not in the history."""
    inner = (call("s/1"), call("s/2", "write"))
    played = play([says(script("s"), call("p")), says("Done.")], config=SCRIPTED, answer=program(inner, (call("s/3"),)))
    assert [[plan.call.id for plan in batch] for batch in played.ran] == [["p"], ["s/1", "s/2"], ["s/3"]]
    assert played.ran[1][1] == PlannedCall(call=inner[1], arguments=PATH, timeout_s=5.0, exclusive=True)
    assert len(played.requests) == 2
    assert results_in(played.result.messages) == {"s": "did s/1; did s/2; did s/3", "p": "did p"}
    assert played.result.repairs == ()
    assert [one.id for message in played.result.messages for one in calls_of(message)] == ["s", "p"]
    first, second = [one for one in commands_of(played) if isinstance(one, RunScript)][:2]
    assert first == RunScript(
        step=1,
        call=script("s"),
        program="go()",
        functions=(READ_FUNCTION, WRITE_FUNCTION),
        limits=ScriptLimits(),
    )
    assert second == msgspec.structs.replace(
        first,
        results=(ScriptResult(call_id="s/1", text="did s/1"), ScriptResult(call_id="s/2", text="did s/2")),
        ran=("read", "write"),
    )


def test_what_may_not_run_raises_in_the_program() -> None:
    """Proves: unknown tools, arguments that do not fit, effects that are not allowed, the client's tools and programs in
    programs come back as errors, and nothing of them has run."""
    inner = (
        call("s/1", "nothing"),
        call("s/2", arguments="{}"),
        call("s/3", "write"),
        call("s/4", "client", "{}"),
        call("s/5", "script", '{"program":"1"}'),
    )
    config = msgspec.structs.replace(SCRIPTED, allowed=("none", "read"))
    played = play([says(script("s")), says("Done.")], config=config, answer=program(inner, (call("s/6"),)))
    assert [[plan.call.id for plan in batch] for batch in played.ran] == [["s/6"]]
    texts = results_in(played.result.messages)["s"].split("; ")
    assert len([text for text in texts if text.endswith("!")]) == 5
    assert texts[-1] == "did s/6"


def test_a_program_that_repeats_a_call_without_end_is_told() -> None:
    """Proves: the loop guard holds inside, for the program alone."""
    batches = [(call(f"s/{number}"),) for number in range(1, 7)]
    played = play(
        [says(script("s")), says(call("p")), says("Done.")],
        config=SCRIPTED,
        answer=program(*batches),
        run=lambda plan: ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("same"),)),
    )
    assert [[plan.call.id for plan in batch] for batch in played.ran] == [["s/1"], ["s/2"], ["s/3"], ["s/4"], ["p"]]
    assert results_in(played.result.messages)["s"].count("over and over") == 2


def test_a_program_may_look_after_three_jobs_in_rotation() -> None:
    """Proves: each of them as often as one job alone, though nothing of them has changed yet."""
    batches = [(call(f"s/{number}", arguments=f'{{"path":"{"abc"[number % 3]}"}}'),) for number in range(12)]
    played = play(
        [says(script("s")), says("Done.")],
        config=SCRIPTED,
        answer=program(*batches),
        run=lambda plan: ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("running"),)),
    )
    assert len(played.ran) == 12
    assert "over and over" not in results_in(played.result.messages)["s"]


def test_its_time_is_limited_but_for_what_a_person_takes_to_answer() -> None:
    """Proves: `wall_s` counts tools and the interpreter, an ask stands outside of it; past it the program is stopped."""
    rules = (PermissionRule(verdict="ask", tool="write"), PermissionRule(verdict="allow", tool="read"))
    config = msgspec.structs.replace(
        SCRIPTED, policy=Policy(rules=rules, attended=True), script_limits=ScriptLimits(wall_s=100.0)
    )
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s")), at_s=1.0))
    command = turn.receive(ScriptCalled(call_id="s", calls=(call("s/1", "write"),), at_s=2.0))
    assert isinstance(command, Ask) and [(ask.call.id, ask.can_wait) for ask in command.asks] == [("s/1", False)]
    command = turn.receive(Asked(approvals=(Approval(call_id="s/1", verdict="allow"),), at_s=302.0))
    assert isinstance(command, RunTools)
    command = turn.receive(ToolsFinished(results=(done_(command.calls[0]),), at_s=303.0))
    assert isinstance(command, RunScript) and command.stop == ""
    command = turn.receive(ScriptCalled(call_id="s", calls=(call("s/2"),), at_s=304.0))
    assert isinstance(command, RunTools)
    command = turn.receive(ToolsFinished(results=(done_(command.calls[0]),), at_s=404.0))
    assert isinstance(command, RunScript) and command.stop == "it had taken 103 s, and 100 s is the limit"


def done_(plan: PlannedCall) -> ToolResult:
    return ToolResult(call_id=plan.call.id, name=plan.call.name, content=(Text("did it"),))


def test_hooks_see_the_calls_inside_and_the_program_itself() -> None:
    """Proves: a hook before tools may deny a call of a program, one after tools sees the program's own result."""
    config = msgspec.structs.replace(SCRIPTED, hooks=("before_tool", "after_tool"))
    inside = program((call("s/1"), call("s/2", "write")))
    seen: list[tuple[str, list[str]]] = []

    def answer(command: Command) -> Event:
        if not isinstance(command, RunHooks):
            return inside(command)
        seen.append((command.point, [plan.call.id for plan in command.calls]))
        denied = [HookOutcome(by="guard", call_id="s/2", denied="not now")] if command.point == "before_tool" else []
        return HooksRan(outcomes=tuple(denied))

    played = play([says(script("s")), says("Done.")], config=config, answer=answer)
    assert seen == [
        ("before_tool", ["s"]),
        ("before_tool", ["s/1", "s/2"]),
        ("after_tool", ["s/1"]),
        ("after_tool", ["s"]),
    ]
    assert "Denied by the hook `guard`: not now" in results_in(played.result.messages)["s"]


def test_children_of_a_program_draw_on_the_limits() -> None:
    """Proves: a sub-agent that a program starts gets its share before it is spent, as any other."""
    task = ToolOffer(spec=ToolSpec(name="task", parameters='{"type":"object"}'), child=True)
    config = msgspec.structs.replace(SCRIPTED, tools=(task, SCRIPT), limits=MaxRequests(4))
    played = play([says(script("s")), says("Done.")], config=config, answer=program((call("s/1", "task", "{}"),)))
    assert [plan.grant for plan in played.ran[0]] == [MaxRequests(2)]


@pytest.mark.parametrize("started", [None, ("s/1",)])
def test_an_interrupt_while_its_calls_run_says_what_had_run(started: tuple[str, ...] | None) -> None:
    """Proves: one result for the program, with what had run and what may have (of calls that had begun, where the journal says
    which); none for calls that the history lacks."""
    done = ToolResult(call_id="s/1", name="read", content=(Text("text"),))
    interrupted = Interrupted(kind="cancel", results=(done,), started=started)
    played = play(
        [says(script("s"), script("t"), call("c", "client", "{}")), interrupted],
        config=SCRIPTED,
        answer=program((call("s/1"), call("s/2", "write"))),
    )
    assert played.result.stop_reason is StopReason.CANCELLED
    at_work = "" if started else ", and `write` may have run in part"
    assert results_in(played.result.messages) == {
        "s": f"Cancelled by the user in the middle of this program. 1 call had run (`read`){at_work}. "
        "What they did stands: look before you repeat any of it.",
        "t": "Not run: cancelled by the user before this call had started.",
        "c": "Not run: cancelled by the user before this call had started.",
    }
    assert played.result.repairs == ()


@pytest.mark.promise("keep:crash")
@pytest.mark.parametrize("ended", [True, False])
def test_calls_whose_outcome_is_unknown_or_that_had_no_time_are_not_among_those_that_had_run(ended: bool) -> None:
    """Proves: a program that is cut off names a call that an earlier process left as one that may have run, and one that the
    turn's time did not reach not at all; the driver is told the same, whether all three had ended or the turn ended before."""
    turn, _ = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    calls = (call("s/1"), call("s/2", "write"), call("s/3", "write"))
    turn.receive(ScriptCalled(call_id="s", calls=calls))
    texts = ("text", UNKNOWN_OUTCOME, NO_TIME)
    results = [
        ToolResult(call_id=one.id, name=one.name, content=(Text(text),), is_error=text != "text")
        for one, text in zip(calls, texts, strict=True)
    ]
    if ended:
        order = turn.receive(ToolsFinished(results=tuple(results)))
        assert isinstance(order, RunScript) and order.ran == ("read",)
    else:
        for one in results:
            turn.receive(ToolEnded(result=one))
    turn.receive(Interrupted(kind="cancel", started=tuple([one.id for one in calls])))
    assert results_in(turn.left_behind()) == {
        "s": "Cancelled by the user in the middle of this program. 1 call had run (`read`), and `write` may have run in part. "
        "What they did stands: look before you repeat any of it.",
    }


def test_a_kill_before_the_program_began_says_so() -> None:
    """Proves: with a plain call at work beside it, the call may have run and the program has not."""
    started = TurnStarted(config=SCRIPTED, input=(ASK,))
    response = ResponseReceived(number=1, response=says(script("s"), call("p")))
    assert results_in(session_messages([[started, response]])) == {
        "s": "Not run: the run was interrupted before this call had started.",
        "p": "The run was interrupted before a result was recorded. The tool may or may not have run: look before you "
        "repeat it.",
    }


def test_word_of_another_program_is_a_bug() -> None:
    """Proves: a driver that mixes programs up is told at once."""
    turn, _ = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    with pytest.raises(TurnwiseBug, match="`t`, which is not at hand"):
        turn.receive(ScriptFinished(call_id="t", text=""))


def test_a_step_that_offers_less_gives_programs_less() -> None:
    """Proves: the functions of a program are the tools on offer in its step."""
    config = msgspec.structs.replace(SCRIPTED, tools=(READ, WRITE, SCRIPT), max_steps=1)
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    forced = turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    assert not isinstance(forced, RunScript), "the last step runs no program"


programs = st.builds(
    Response,
    message=st.lists(
        st.builds(
            ToolCall,
            id=st.sampled_from(["a", "b", "x:1"]),
            name=st.just("script"),
            arguments=st.sampled_from(['{"program":"go()"}', '{"program":"on()"}', '{"program":"go()"}', "{}"]),
        )
        | st.builds(
            ToolCall,
            id=st.just("c"),
            name=st.sampled_from(["read", "ask_client", "task"]),
            arguments=st.just('{"a":1}'),
        ),
        min_size=1,
        max_size=3,
    ).map(lambda some: Message("assistant", tuple(some))),
    finish=st.just(FinishReason.TOOL_CALLS),
)


class Scripted(Judged):
    """A turn whose model mostly writes programs."""

    def step(self) -> None:
        if isinstance(self.command, SendRequest) and self.data.draw(st.integers(0, 3)):
            self.take(ResponseReceived(number=self.command.number, response=self.data.draw(programs)))
        else:
            super().step()


@pytest.mark.costly
@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(started=starts, data=st.data())
def test_every_sequence_with_programs_ends_with_all_calls_answered(started: TurnStarted, data: st.DataObject) -> None:
    """Proves: whatever programs call and whenever they are interrupted, nothing runs twice or unjudged, each call of the
    history has one result, and the journal leads to the same commands."""
    config = msgspec.structs.replace(
        started.config, tools=(*OFFERS, SCRIPT), tool_choice="auto", max_steps=4, room="off"
    )
    Scripted(msgspec.structs.replace(started, config=config), data=data, busy=True).play()
