"""Calls of one response that go different ways do not change each other's way (issue 18: mutants that no test noticed).

Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from tables import each
from turn.playing import ASK, call, play, results_in, says
from turn.test_cut_call_check import NOBODY, ON, PREFIX, by_limit, cut, deny, inspected
from turn.test_script_phase import SCRIPTED, done_, script
from turnwise.turn.config import OneAsk, ScriptLimits
from turnwise.turn.events import ResponseReceived, RunScript, RunTools, ScriptCalled, ToolsFinished, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.turn.programs import asks_of
from turnwise.vocab import Message, ToolCall


@pytest.mark.promise("cut:complete-sibling", "step:every-call-answered")
def test_a_denied_cut_call_leaves_the_results_of_others_as_they_are() -> None:
    """Proves: what the turn answers itself and what has no tool keep their own words beside a call that the rules deny."""
    config = replace(ON, room="compact", policy=replace(NOBODY, rules=(deny("publish"),)))
    back = call("r", "read_result", '{"call_id":"nothing"}')
    first = by_limit(back, call("u", "nothing"), cut("a", "publish"))
    played = play([first, says("Done.")], config=config, answer=inspected)
    texts = results_in(played.result.messages)
    assert played.ran == [] and list(texts) == ["r", "u", "a"]
    assert [id for id, text in texts.items() if text.startswith("Denied: ")] == ["a"]
    assert "`nothing`" in texts["u"] and "`nothing`" in texts["r"] and texts["r"] != texts["u"]


@each(
    ("arguments", "looked_at"),
    [
        (PREFIX, '{"path": "notes.txt"}'),
        (
            '{"path":"notes.txt","text":["a",1],"more":true,"text":"The quick brown fox jum',
            '{"path": "notes.txt", "text": ["a", 1], "more": true}',
        ),
        ('{"text":"The quick brown fox jumps over the lazy dog, again and again, and aga', ""),
        ("", ""),
        ("[1,2", ""),
        ('{3:"a","path":"b","text":"The quick brown fox jumps over the lazy dog, and again', ""),
        ('{"path" "b","text":"The quick brown fox jumps over the lazy dog, again and agai', ""),
        (' \n\t{ "path" : "b" , "text" : "The quick brown fox jumps over the lazy dog, an', '{"path": "b"}'),
    ],
)
def test_only_what_arrived_whole_of_a_cut_call_is_looked_at(arguments: str, looked_at: str) -> None:
    """Proves: nothing is looked at where no parameter is whole."""
    turn, _ = Turn.start(TurnStarted(config=ON, input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=by_limit(cut("a", prefix=arguments))))
    seen = command.calls[0].arguments if hasattr(command, "calls") else ""
    assert seen == looked_at


@pytest.mark.parametrize(("took_s", "stop"), [(100.0, ""), (101.0, "it had taken 101 s, and 100 s is the limit")])
def test_a_program_may_take_its_time_to_the_second(took_s: float, stop: str) -> None:
    """Proves: what has taken as long as the limit goes on."""
    config = replace(SCRIPTED, script_limits=ScriptLimits(wall_s=100.0))
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s")), at_s=1.0))
    ran = turn.receive(ScriptCalled(call_id="s", calls=(call("s/1"),), at_s=2.0))
    assert isinstance(ran, RunTools)
    command = turn.receive(ToolsFinished(results=(done_(ran.calls[0]),), at_s=1.0 + took_s))
    assert isinstance(command, RunScript) and command.stop == stop


def marked(id: str, digest: str = "") -> ToolCall:
    return call(id, asked=digest)


@pytest.mark.promise("wait:ask")
def test_what_waits_for_a_person_is_listed_with_the_newest_ask_of_each_call() -> None:
    """Proves: an ask of now stands before the mark in the history; a call without either waits for somebody else."""
    pending = tuple([call(id) for id in ("a", "b", "c")])
    history = (ASK, Message("assistant", (marked("a", "old"), marked("b", "shown"), marked("c"))))
    now = OneAsk(call=pending[0], arguments="{}", subject="read", digest="new")
    before = replace(now, digest="older")
    listed = asks_of(pending, asks=(before, now), messages=history)
    shown = OneAsk(call=pending[1], arguments=pending[1].arguments, subject="read", digest="shown")
    assert listed == (now, shown)
    assert asks_of((), asks=(now,), messages=history) == ()
