"""A cut call that the rules will deny: they are asked before more of it is bought (issue 14, 7)."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from families import of_family
from thoroughness import examples
from turn.playing import ASK, CONFIG, Played, call, play, results_in, says
from turnwise.rules.advice import asks_for_pieces
from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.rules.prompt_room import ModelLimits
from turnwise.tools.shell_judge import inspect_call
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import (
    CallsInspected,
    Command,
    Event,
    HooksRan,
    InspectCalls,
    Interrupted,
    ResponseReceived,
    TurnStarted,
)
from turnwise.turn.machine import Turn, replay
from turnwise.turn.verdicts import whole_parameters
from turnwise.vocab import ArgumentsState, FinishReason, Response, ToolCall, ToolSpec

SCHEMA = '{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}}}'
WRITE = ToolOffer(spec=ToolSpec(name="write", parameters=SCHEMA), effect="write", inspected=True)
PLAIN = ToolOffer(spec=ToolSpec(name="publish", parameters=SCHEMA), effect="write")
READ = ToolOffer(spec=ToolSpec(name="read", parameters=SCHEMA), effect="read", inspected=True)
PREFIX = '{"path":"notes.txt","text":"The quick brown fox jumps over the lazy dog, again and aga'
REST = 'jumps over the lazy dog, again and again, and then it sleeps."}'
NOBODY = Policy(workspace="/w", home="/h")
ON = replace(CONFIG, recover="continue", judges_cut=True, tools=(WRITE, PLAIN, READ), policy=NOBODY)


def cut(id: str, name: str = "write", prefix: str = PREFIX) -> ToolCall:
    return call(id, name, prefix, state=ArgumentsState.TRUNCATED, reason="cut")


def by_limit(*calls: ToolCall) -> Response:
    return says(*calls, finish=FinishReason.LENGTH)


def inspected(command: Command) -> Event:
    """The facts as the workspace's own inspector finds them; hooks change nothing."""
    if not isinstance(command, InspectCalls):
        return HooksRan()
    facts: list[CallFacts] = []
    for plan in command.calls:
        path = json.loads(plan.arguments).get("path")
        found = (PathFact(given=path, resolved=f"/w/{path}", lexical=f"/w/{path}", inside=True, access="write"),)
        effect = "read" if plan.call.name == "read" else "write"
        access = [replace(one, access=effect) for one in found] if path else []
        facts.append(CallFacts(call_id=plan.call.id, tool=plan.call.name, effect=effect, paths=tuple(access)))
    return CallsInspected(facts=tuple(facts))


def purposes(played: Played) -> list[str]:
    return [request.purpose for request in played.requests]


def deny(tool: str, **more: Any) -> PermissionRule:
    return PermissionRule(verdict="deny", tool=tool, **more)


def allow(tool: str, **more: Any) -> PermissionRule:
    return PermissionRule(verdict="allow", tool=tool, **more)


PEOPLE = replace(NOBODY, attended=True)
DENIED = [
    ("publish", PREFIX, NOBODY),  # nobody is there to be asked, and its arguments do not matter
    ("publish", PREFIX, replace(PEOPLE, rules=(deny("publish"),))),
    ("write", PREFIX, NOBODY),  # `path` is whole
    ("write", PREFIX, replace(PEOPLE, rules=(allow("write"), deny("write", path="*.txt")))),
    ("write", '{"text":"The quick brown fox jumps over the lazy dog, and aga', replace(PEOPLE, rules=(deny("w*"),))),
]


@pytest.mark.promise("cut:continued", "keep:replay", "step:every-call-answered")
@pytest.mark.parametrize(("tool", "prefix", "policy"), DENIED)
def test_a_cut_call_that_the_rules_deny_is_not_bought(tool: str, prefix: str, policy: Policy) -> None:
    """No request for its rest: its result is the denial, in the words of any other."""
    config = replace(ON, policy=policy)
    played = play([by_limit(cut("a", tool, prefix)), says("As you like.")], config=config, answer=inspected)
    assert purposes(played) == ["step", "step"] and played.ran == []
    words = results_in(played.result.messages)["a"]
    assert words.startswith(f"Denied: `{tool}` was not run.") and not asks_for_pieces(words)
    assert replay(played.events)[-1] == played.turn.at_hand


UNDECIDED = [
    ("publish", PREFIX, PEOPLE),
    ("publish", PREFIX, replace(NOBODY, unattended="allow")),
    ("write", PREFIX, replace(NOBODY, rules=(allow("write", path="*.txt"),))),
    ("write", '{"text":"The quick brown fox jumps over the lazy dog, and aga', NOBODY),
    (
        "write",
        '{"text":"The quick brown fox jumps over the lazy dog, and aga',
        replace(PEOPLE, rules=(deny("write"), allow("write", path="*.txt"))),
    ),
]


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize(("tool", "prefix", "policy"), UNDECIDED)
def test_a_cut_call_that_nothing_decides_yet_is_continued(tool: str, prefix: str, policy: Policy) -> None:
    """A person may allow it, a rule allows its path, or the parameter that decides has not arrived."""
    turn, _ = Turn.start(TurnStarted(config=replace(ON, policy=policy), input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=by_limit(cut("a", tool, prefix))))
    if isinstance(command, InspectCalls):
        command = turn.receive(inspected(command))
    assert getattr(command, "purpose", "") == "continue"


@pytest.mark.promise("cut:complete-sibling")
def test_whole_calls_and_cut_ones_that_may_run_are_not_held_up_by_a_denied_one() -> None:
    """The denied call costs nothing, the other cut one is continued, and the whole one runs beside it."""
    config = replace(ON, policy=replace(NOBODY, rules=(allow("publish"), allow("read"))))
    first = by_limit(call("r", "read", '{"path":"a"}'), cut("a"), cut("b", "publish"))
    played = play([first, says(REST), says("Done.")], config=config, answer=inspected)
    assert purposes(played) == ["step", "continue", "step"]
    assert [[plan.call.id for plan in ran] for ran in played.ran] == [["r", "b"]]
    words = results_in(played.result.messages)
    assert words["a"].startswith("Denied: ") and words["b"] == "did b" and words["r"] == "did r"


def test_hooks_that_may_change_the_path_come_first() -> None:
    """Only what the tool alone decides is denied before them."""
    with_hooks = replace(ON, hooks=("before_tool",))
    played = play([by_limit(cut("a")), says(REST), says("Ok.")], config=with_hooks, answer=inspected)
    assert purposes(played) == ["step", "continue", "step"]
    played = play([by_limit(cut("a", "publish")), says("Ok.")], config=with_hooks, answer=inspected)
    assert purposes(played) == ["step", "step"]


def test_a_denied_call_is_not_asked_for_again_with_more_room() -> None:
    """Of an object there is no rest to buy, but the whole response: nor is that bought."""
    limits = ModelLimits(max_output_tokens=8_000)
    config = replace(
        ON,
        **of_family("gemini"),
        stream=False,
        default_max_tokens=1_000,
        model_limits=limits,
    )
    whole = call("a", "publish", '{"path":"notes.txt"}')
    played = play([by_limit(whole), says("Ok.")], config=config, answer=inspected)
    assert purposes(played) == ["step", "step"] and played.ran == []
    allowed = replace(config, policy=replace(NOBODY, rules=(allow("publish"),)))
    again = play([by_limit(whole), says(whole), says("Ok.")], config=allowed, answer=inspected)
    assert purposes(again) == ["step", "retry", "step"]


@pytest.mark.promise("step:every-call-answered")
def test_a_turn_that_ends_while_its_cut_call_is_looked_at_answers_it() -> None:
    """Cancelled, or killed: the call has a result that says that it was not run."""
    for killed in (False, True):
        turn, _ = Turn.start(TurnStarted(config=ON, input=(ASK,)))
        assert isinstance(turn.receive(ResponseReceived(number=1, response=by_limit(cut("a")))), InspectCalls)
        if not killed:
            turn.receive(Interrupted(kind="cancel"))
        assert results_in(turn.left_behind())["a"].startswith("Not run: ")


def test_journals_of_before_are_read_as_they_were_written() -> None:
    """There the rest of such a call was bought: the same events are still a legal sequence."""
    before = replace(ON, judges_cut=False)
    played = play([by_limit(cut("a")), says(REST), says("Ok.")], config=before, answer=inspected)
    assert purposes(played) == ["step", "continue", "step"] and played.ran == []


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(given=st.dictionaries(st.text(max_size=6), values, max_size=4), data=st.data())
def test_parameters_count_only_when_they_are_whole(given: dict[str, object], data: st.DataObject) -> None:
    """Whatever the place of the cut: what is found is a beginning of the parameters, each with its own value."""
    text = json.dumps(given, indent=data.draw(st.sampled_from([None, 2])))
    found = whole_parameters(text[: data.draw(st.integers(0, len(text)))])
    members = list((json.loads(found) if found else {}).items())
    assert members == list(given.items())[: len(members)]
    assert json.loads(whole_parameters(text) or "{}") == given


def test_a_whole_path_is_found_before_a_cut_text() -> None:
    """What the workspace's inspector makes of it is the path that the call names."""
    arguments = json.loads(whole_parameters(PREFIX))
    facts = inspect_call("a", tool="write", effect="write", arguments=arguments, workspace="/tmp")
    assert [path.given for path in facts.paths] == ["notes.txt"]
