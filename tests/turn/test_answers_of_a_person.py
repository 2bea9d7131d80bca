"""A person's further answers: other arguments, more steps, wider rules; and calls that nobody is asked about."""

import msgspec
import pytest

from turn.playing import ASK, CONFIG, call
from turn.test_machine import received, result
from turnwise.rules.limits import MaxRequests
from turnwise.rules.permission_facts import CallFacts, PathFact
from turnwise.rules.permissions import PermissionRule, Policy, all_edits_rule
from turnwise.turn.config import Approval, ToolOffer, TurnConfig
from turnwise.turn.events import (
    Ask,
    Asked,
    CallsInspected,
    Command,
    Event,
    FinishTurn,
    HookOutcome,
    HooksRan,
    InspectCalls,
    RunHooks,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, replay
from turnwise.vocab import Message, Text, ToolSpec, text_of

SCHEMA = '{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}'
EDIT = ToolOffer(spec=ToolSpec(name="edit", parameters=SCHEMA), effect="write", inspected=True)
POLICY = Policy(workspace="/w", home="/h", attended=True)
EDITS = msgspec.structs.replace(CONFIG, tools=(EDIT,), allowed=("none", "read", "write"), policy=POLICY)


class Playing:
    """A turn with its events, so that it can be replayed."""

    def __init__(self, config: TurnConfig) -> None:
        self.events: list[Event] = [TurnStarted(config=config, input=(ASK,))]
        self.turn, self.command = Turn.start(self.events[0])  # type: ignore[arg-type]

    def does(self, *events: Event) -> Command:
        for event in events:
            self.events.append(event)
            self.command = self.turn.receive(event)
        assert replay(self.events)[-1] == self.command
        return self.command


def edits(*paths: str) -> Event:
    return received(1, *[call(name, "edit", f'{{"path":"{name}"}}') for name in paths])


def facts(*paths: str, fails: str = "", state: str = "") -> CallsInspected:
    return CallsInspected(facts=tuple([one(path, fails=fails, state=state) for path in paths]))


def one(path: str, *, id: str = "", fails: str = "", state: str = "", resolved: str = "") -> CallFacts:
    resolved = resolved or f"/w/{path}"
    fact = PathFact(given=path, resolved=resolved, lexical=resolved, inside=resolved.startswith("/w/"), access="write")
    return CallFacts(call_id=id or path, tool="edit", effect="write", paths=(fact,), fails=fails, state=state)


def result_texts(command: Command) -> list[str]:
    assert isinstance(command, SendRequest)
    (last,) = [message for message in command.request.messages if message.role == "tool"]
    return [text_of(Message("user", part.content)) for part in last.parts]  # type: ignore[union-attr]


def test_an_edited_call_is_judged_and_shown_anew_and_runs_as_it_was_edited() -> None:
    """Proves: nobody decides on what was not shown; the other answer stands; the model reads which call it was; a replay
    gives the same commands."""
    play = Playing(EDITS)
    asked = play.does(edits("a", "b"), facts("a", "b"))
    assert isinstance(asked, Ask) and [ask.call.id for ask in asked.asks] == ["a", "b"]
    changed = Approval(call_id="a", verdict="allow", arguments='{"path":"c"}', digest=asked.asks[0].digest)
    allowed = Approval(call_id="b", verdict="allow", digest=asked.asks[1].digest)
    looks = play.does(Asked(approvals=(changed, allowed)))
    assert isinstance(looks, InspectCalls) and [plan.arguments for plan in looks.calls] == [
        '{"path":"c"}',
        '{"path":"b"}',
    ]
    again = play.does(CallsInspected(facts=(one("c", id="a"), one("b"))))
    assert isinstance(again, Ask) and [(ask.call.id, ask.arguments) for ask in again.asks] == [("a", '{"path":"c"}')]
    runs = play.does(Asked(approvals=(Approval(call_id="a", verdict="allow", digest=again.asks[0].digest),)))
    assert isinstance(runs, RunTools) and [plan.arguments for plan in runs.calls] == ['{"path":"c"}', '{"path":"b"}']
    told = result_texts(play.does(ToolsFinished(results=(result("a", "done", "edit"), result("b", "done", "edit")))))
    assert told == ['[The user changed this call before it ran. What follows is about: {"path":"c"}]\ndone', "done"]


@pytest.mark.parametrize(
    ("arguments", "digest", "said"),
    [
        ('{"path":1}', "", "the user changed the arguments, and they are not usable now"),
        ('{"path":', "", "the user changed the arguments, and they are not usable now"),
        ('{"path":"c"}', "of something else", "would no longer do what the user was shown"),
    ],
)
def test_an_edit_that_cannot_stand_runs_nothing(arguments: str, digest: str, said: str) -> None:
    """Proves: neither unfit arguments nor an answer to something else reaches a tool."""
    play = Playing(EDITS)
    play.does(edits("a"), facts("a"))
    command = play.does(Asked(approvals=(Approval(call_id="a", verdict="allow", arguments=arguments, digest=digest),)))
    assert said in result_texts(command)[0]


def test_hooks_see_an_edited_call() -> None:
    """Proves: what a hook forbids, an edit does not bring back; a hook is not asked twice about the other calls."""
    play = Playing(msgspec.structs.replace(EDITS, hooks=("before_tool",)))
    play.does(edits("a", "b"), HooksRan(), facts("a", "b"))
    command = play.does(
        Asked(
            approvals=(
                Approval(call_id="a", verdict="allow", arguments='{"path":"c"}'),
                Approval(call_id="b", verdict="allow"),
            )
        )
    )
    assert isinstance(command, RunHooks) and [plan.arguments for plan in command.calls] == ['{"path":"c"}']
    play.does(HooksRan(outcomes=(HookOutcome(by="guard", call_id="a", denied="not c"),)))
    runs = play.does(CallsInspected(facts=(one("b"),)))
    assert isinstance(runs, RunTools) and [plan.call.id for plan in runs.calls] == ["b"]


def test_all_edits_of_the_session_cover_the_rest_but_nothing_guarded() -> None:
    """Proves: the answer holds in later steps; guarded files, files outside and what a rule asks about are asked about."""
    asks = PermissionRule(verdict="ask", path="kept/**", source="user")
    play = Playing(msgspec.structs.replace(EDITS, policy=msgspec.structs.replace(POLICY, rules=(asks,))))
    play.does(edits("a"), facts("a"))
    play.does(Asked(approvals=(Approval(call_id="a", verdict="allow", always=True, scope="edits"),)))
    play.does(ToolsFinished(results=(result("a", "done", "edit"),)))
    assert play.turn.known.config.policy == msgspec.structs.replace(POLICY, rules=(asks, all_edits_rule("/w")))
    names = ("src/b", ".env", "kept/c", ".git/hooks/x")
    play.does(received(2, *[call(f"2{name}", "edit", f'{{"path":"{name}"}}') for name in (*names, "/etc/x")]))
    found = [one(name, id=f"2{name}") for name in names]
    command = play.does(CallsInspected(facts=(*found, one("/etc/x", id="2/etc/x", resolved="/etc/x"))))
    assert isinstance(command, Ask) and [ask.call.id for ask in command.asks] == [
        f"2{name}" for name in (".env", "kept/c", ".git/hooks/x", "/etc/x")
    ]


def test_nobody_is_asked_about_a_call_that_would_fail() -> None:
    """Proves: the model is told why; a call before it on the same file may mend it, so then a person is asked; nothing is told of
    a guarded file."""
    play = Playing(EDITS)
    command = play.does(edits("a"), facts("a", fails="`old` is not in `a`"))
    assert result_texts(command) == [
        "Not run: `edit` would fail as things are, so the user was not asked about it: `old` is not in `a`"
    ]
    for found in (
        (one("a"), one("b", resolved="/w/a", fails="no")),
        (one("a"), one("b", resolved="/w/.env", fails="no")),
    ):
        command = Playing(EDITS).does(edits("a", "b"), CallsInspected(facts=found))
        assert isinstance(command, Ask) and len(command.asks) == 2
    command = Playing(EDITS).does(edits("a", "b"), CallsInspected(facts=(one("a"), one("b", fails="no"))))
    assert isinstance(command, Ask) and [ask.call.id for ask in command.asks] == ["a"]


def reads(number: int) -> list[Event]:
    return [
        received(number, call(f"{number}", "read")),
        ToolsFinished(results=(result(f"{number}", f"text {number}"),)),
    ]


STEPS = msgspec.structs.replace(CONFIG, max_steps=3, policy=Policy(attended=True, more_steps=3))


@pytest.mark.parametrize("limits", [None, MaxRequests(100)], ids=["steps alone", "beside another limit"])
def test_the_last_step_is_asked_about_and_a_yes_gives_as_many_again(limits: MaxRequests | None) -> None:
    """Proves: the figures are those of the turn; after a yes the next step has its tools; without one it is the forced answer."""
    config = msgspec.structs.replace(STEPS, limits=limits)
    play = Playing(config)
    asked = play.does(*reads(1), *reads(2))
    assert isinstance(asked, Ask) and asked.asks[0].kind == "steps"
    assert asked.asks[0].subject == "2 steps, 2 requests" and asked.deadline_s == config.deadlines.ask_s
    for approvals in (
        (),
        (Approval(call_id="steps-3", verdict="deny"),),
        (Approval(call_id="steps-3", verdict="later"),),
    ):
        other = Playing(config)
        other.does(*reads(1), *reads(2))
        forced = other.does(Asked(approvals=approvals))
        assert isinstance(forced, SendRequest) and forced.request.tool_choice == "none"
    more = play.does(Asked(approvals=(Approval(call_id="steps-3", verdict="allow"),)))
    assert isinstance(more, SendRequest) and more.request.tool_choice != "none"
    asked = play.does(*reads(3), *reads(4), *reads(5))
    assert isinstance(asked, Ask) and asked.asks[0].subject == "5 steps, 5 requests"
    assert asked.asks[0].arguments == '{"more":6}'
    last = play.does(Asked())
    assert isinstance(last, SendRequest) and last.request.tool_choice == "none"
    ends = play.does(received(6, Text("all read")))
    assert isinstance(ends, FinishTurn) and ends.result.steps == 6


@pytest.mark.parametrize(
    "policy",
    [
        None,
        Policy(attended=True),
        Policy(attended=False, more_steps=3),
    ],
)
def test_no_other_turn_is_asked_about_its_steps(policy: Policy | None) -> None:
    """Proves: other faces keep their limit, and so does a run that nobody attends."""
    command = Playing(msgspec.structs.replace(STEPS, policy=policy)).does(*reads(1), *reads(2))
    assert isinstance(command, SendRequest) and command.request.tool_choice == "none"


def test_a_limit_that_more_steps_do_not_lift_is_not_asked_about() -> None:
    """Proves: nobody says yes in vain."""
    config = msgspec.structs.replace(STEPS, limits=MaxRequests(3), max_steps=5)
    command = Playing(config).does(*reads(1), *reads(2))
    assert isinstance(command, SendRequest) and command.request.tool_choice == "none"
