"""What a call's result says where the turn itself writes it, word by word: who denied it, what had run, what to do (issue 18:
mutants that no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from tables import each
from turn.playing import ASK, CONFIG, READ, WRITE, Played, call, play, results_in, says
from turn.test_script_phase import SCRIPT, SCRIPTED, script
from turn.test_verdicts import ATTENDED, HELD, QUESTION, answers
from turnwise.rules.advice import DECIDE_YOURSELF, GO_ON_WITHOUT
from turnwise.rules.permission_facts import ShellFacts
from turnwise.rules.permissions import PermissionRule
from turnwise.turn.config import Approval, ToolOffer
from turnwise.turn.events import (
    CallsInspected,
    Command,
    Event,
    HookOutcome,
    HooksRan,
    Interrupted,
    ResponseReceived,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFunction,
    ScriptResult,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn
from turnwise.vocab import File, Opaque, Text, ToolResult, ToolSpec


def result_of(played: Played, id: str) -> tuple[str, bool]:
    """The text of a call's result, and whether it is an error."""
    (found,) = [
        part
        for message in played.result.messages
        for part in message.parts
        if isinstance(part, ToolResult) and part.call_id == id
    ]
    return results_in(played.result.messages)[id], found.is_error


# what a person decided


DENIED = [
    ("person", "", "because the user denied it."),
    ("person", "not there", "because the user denied it. They said: not there"),
    ("program", "", "because the program that runs this turn denied it."),
    ("program", " \n", "because the program that runs this turn denied it."),
    ("program", "never", "because the program that runs this turn denied it. They said: never"),
    ("default", "", "because nobody answered, so the call is denied."),
    (
        "failed",
        "KeyError: 'a'",
        "because the program that asks the user failed (KeyError: 'a'), so the call is denied.",
    ),
]


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(("by", "text", "why"), DENIED)
def test_a_denial_says_who_denied_it_and_what_they_said(by: str, text: str, why: str) -> None:
    """Proves: in the one place where the model reads why its call did not run."""
    no = Approval(call_id="a", verdict="deny", by=by, text=text)  # type: ignore[arg-type]
    played = play([says(call("a", "write")), says("So.")], config=HELD, answer=answers(no))
    assert result_of(played, "a") == (f"Denied: `write` was not run, {why} {GO_ON_WITHOUT}", True)


@pytest.mark.promise("wait:ask")
@pytest.mark.parametrize(
    ("verdict", "by", "text", "said"),
    [
        ("allow", "person", "blue", "blue"),
        ("allow", "person", " \n", f"The user does not want to answer this. {DECIDE_YOURSELF}"),
        ("deny", "person", "blue", f"The user does not want to answer this. {DECIDE_YOURSELF}"),
        ("deny", "program", "", f"The user does not want to answer this. {DECIDE_YOURSELF}"),
        ("deny", "default", "", f"The user gave no answer. {DECIDE_YOURSELF}"),
        (
            "deny",
            "failed",
            "no",
            f"The question did not reach the user, because the program that asks them failed. {DECIDE_YOURSELF}",
        ),
    ],
)
def test_a_question_is_answered_in_the_words_of_the_user_or_says_why_not(
    verdict: str, by: str, text: str, said: str
) -> None:
    """Proves: only an answer that says something is one; it is no error of the call."""
    answer = Approval(call_id="q", verdict=verdict, by=by, text=text)  # type: ignore[arg-type]
    asked = call("q", "ask_user", '{"question":"Which?"}')
    played = play([says(asked), says("So.")], config=HELD, answer=answers(answer))
    assert result_of(played, "q") == (said, False)


def test_a_question_that_nobody_can_answer_says_so_and_is_no_error() -> None:
    """Proves: where nobody is there the model is told to decide."""
    config = replace(HELD, policy=replace(ATTENDED, attended=False))
    played = play([says(call("q", "ask_user", "{}")), says("So.")], config=config)
    assert result_of(played, "q") == (f"There is nobody to ask in this run. {DECIDE_YOURSELF}", False)


@pytest.mark.parametrize(
    ("arguments", "subject", "options"),
    [
        ('{"question":"Which?","options":["red","blue"]}', "Which?", ("red", "blue")),
        ('{"question":"Which?"}', "Which?", ()),
        ("{}", "", ()),
        ('{"question":3}', '{"question":3}', ()),
        ('{"options":"red"}', '{"options":"red"}', ()),
    ],
)
def test_a_question_is_put_as_far_as_it_can_be_read(arguments: str, subject: str, options: tuple[str, ...]) -> None:
    """Proves: of arguments of another shape the person sees the text itself."""
    asked = replace(QUESTION, spec=replace(QUESTION.spec, parameters="{}"))
    later = Approval(call_id="q", verdict="later")
    played = play([says(call("q", "ask_user", arguments))], config=replace(HELD, tools=(asked,)), answer=answers(later))
    (ask,) = played.result.asks
    assert (ask.kind, ask.subject, ask.options, ask.arguments) == ("question", subject, options, arguments)


@pytest.mark.parametrize(("parts", "more"), [(1, ""), (20, ""), (21, "; and 1 more"), (1_030, "; and 1,010 more")])
def test_an_ask_names_the_first_twenty_reasons_and_counts_the_others(parts: int, more: str) -> None:
    """Proves: nothing hides behind the first, and a person can read it."""
    write = replace(WRITE, inspected=True)

    def answer(command: Command) -> Event:
        found = answers(Approval(call_id="a", verdict="later"))(command)
        if not hasattr(found, "facts"):
            return found
        (facts,) = found.facts  # type: ignore[union-attr]
        outside = [
            replace(facts.paths[0], given=f"/etc/{nth}", resolved=f"/etc/{nth}", inside=False) for nth in range(parts)
        ]
        return replace(found, facts=(replace(facts, paths=tuple(outside)),))  # type: ignore[type-var]

    played = play([says(call("a", "write"))], config=replace(HELD, tools=(READ, write)), answer=answer)
    (ask,) = played.result.asks
    whys = ask.why.removesuffix(more).split("; ")
    assert len(whys) == min(parts, 20) == len(set(whys)) and ask.why.endswith(more)
    assert f"`/etc/{min(parts, 20) - 1}`" in whys[-1]


@pytest.mark.parametrize(
    ("hint", "how"),
    [
        ("use {tool} ({effect})[ with {options}], or ask", "use write (write) with --allow write, or ask"),
        ("[never {tool}] {effect}", "[never write] write"),
        ("[a {options} b][c {options} d]", "a --allow write bc --allow write d"),
    ],
)
def test_a_denial_of_the_rules_names_what_would_allow_it_in_the_words_of_the_face(hint: str, how: str) -> None:
    """Proves: the tool, its effect, the options and the reason stand in it."""
    rules = (PermissionRule(verdict="deny", tool="write"),)
    config = replace(HELD, policy=replace(ATTENDED, rules=rules), allow_hint=hint)
    played = play([says(call("a", "write")), says("So.")], config=config, answer=answers())
    why = "`write` has the effect `write` (default says `deny`)"
    text = f"Denied: `write` was not run. {why}. Only the user can allow it: {how}. {GO_ON_WITHOUT}"
    assert result_of(played, "a") == (text, True)


def test_a_denial_leaves_the_options_out_where_none_would_help() -> None:
    """Proves: of what nobody can see, and without a place for them."""
    hint = "look at {tool} again[ with {options}]"
    config = replace(HELD, tools=(READ, replace(WRITE, inspected=True)), allow_hint=hint)
    config = replace(config, policy=replace(ATTENDED, attended=False))
    played = play([says(call("a", "write")), says("So.")], config=config, answer=lambda _: CallsInspected(facts=()))
    text, _ = result_of(played, "a")
    assert "Only the user can allow it: look at write again. " in text
    assert text.startswith(
        "Denied: `write` was not run. `write`: turnwise could not look at what the call touches; nobody is there"
    )


def test_a_denial_begins_its_reason_with_a_capital_and_keeps_those_within_it() -> None:
    """Proves: of a command that a rule denies."""
    rules = (PermissionRule(verdict="deny", tool="write", where="RULES.toml"),)
    config = replace(HELD, tools=(READ, replace(WRITE, inspected=True)), policy=replace(ATTENDED, rules=rules))

    def answer(command: Command) -> Event:
        found = answers()(command)
        if not isinstance(found, CallsInspected):
            return found
        shell = replace(found.facts[0], shell=ShellFacts(parsed=False, problem="it sets `IFS`"))
        return CallsInspected(facts=(shell,))

    text, _ = result_of(play([says(call("a", "write")), says("So.")], config=config, answer=answer), "a")
    assert text.startswith("Denied: `write` was not run. The command cannot be judged: it sets `IFS` (RULES.toml")


# what hooks decided


def hooks(*outcomes: HookOutcome) -> tuple[Played, list[Command]]:
    """A step of two calls whose hooks before and after tools do this."""
    seen: list[Command] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, RunHooks)
        seen.append(command)
        at = {"before_tool": "before", "after_tool": "after"}[command.point]
        return HooksRan(outcomes=tuple([one for one in outcomes if one.by.startswith(at)]))

    config = replace(CONFIG, hooks=("before_tool", "after_tool"))
    return play([says(call("a"), call("b")), says("Done.")], config=config, answer=answer), seen


def given(text: str) -> ToolResult:
    return ToolResult(call_id="other", name="other", content=(Text(text),))


@each(
    ("outcomes", "text", "is_error"),
    [
        (
            [HookOutcome(by="before", call_id="a", denied="no")],
            f"Denied by the hook `before`: no. {GO_ON_WITHOUT}",
            True,
        ),
        (
            [HookOutcome(by="before", call_id="a", denied="")],
            f"Denied by the hook `before`: no reason was given. {GO_ON_WITHOUT}",
            True,
        ),
        ([HookOutcome(by="before", call_id="a", result=given("mine"))], "mine", False),
        (
            [
                HookOutcome(by="before", call_id="a", denied="no"),
                HookOutcome(by="before 2", call_id="a", denied="nor I"),
            ],
            f"Denied by the hook `before`: no. {GO_ON_WITHOUT}",
            True,
        ),
        (
            [
                HookOutcome(by="before", call_id="a", result=given("mine")),
                HookOutcome(by="before 2", call_id="a", arguments='{"path":3}'),
            ],
            "mine",
            False,
        ),
        ([HookOutcome(by="before", call_id="a"), HookOutcome(by="after", call_id="a")], "did a", False),
        (
            [HookOutcome(by="after", call_id="a", denied="secret")],
            "The tool ran, but the hook `after` withholds its result: secret",
            True,
        ),
        ([HookOutcome(by="after", call_id="a", result=given("[hidden]"))], "[hidden]", False),
        (
            [
                HookOutcome(by="after", call_id="nobody", denied="no"),
                HookOutcome(by="after", call_id="a", result=given("one")),
                HookOutcome(by="after 2", call_id="a", result=given("two")),
            ],
            "two",
            False,
        ),
    ],
)
def test_a_hook_decides_about_its_own_call_alone(outcomes: list[HookOutcome], text: str, is_error: bool) -> None:
    """Proves: before a tool the first word counts, after it the last; the call beside it is as it was."""
    played, seen = hooks(*outcomes)
    assert result_of(played, "a") == (text, is_error)
    assert result_of(played, "b") == ("did b", False)
    before = any(one.by.startswith("before") and (one.denied is not None or one.result) for one in outcomes)
    assert [[plan.call.id for plan in ran] for ran in played.ran] == [["b"] if before else ["a", "b"]]
    assert [command.point for command in seen if isinstance(command, RunHooks)] == ["before_tool", "after_tool"]


def test_arguments_that_a_hook_spoiled_are_told_and_the_call_does_not_run() -> None:
    """Proves: as those of a model are; changed ones that fit run, and other hooks see them no less."""
    spoiled = HookOutcome(by="before", call_id="a", arguments='{"path":3}')
    changed = HookOutcome(by="before 2", call_id="b", arguments='{"path":"c"}')
    played, _ = hooks(spoiled, changed)
    text, is_error = result_of(played, "a")
    words = "Not run: the hook `before` changed the arguments, and they are not usable now. "
    assert is_error and text.startswith(words) and "path" in text.removeprefix(words)
    assert [[(plan.call.id, plan.arguments) for plan in ran] for ran in played.ran] == [[("b", '{"path":"c"}')]]


# programs that did not come to their end


WHY = {
    "cancel": "Cancelled by the user in the middle of this program.",
    "deadline": "The turn's time was up in the middle of this program.",
    "journal": "The run's journal failed in the middle of this program.",
    "lost": "The run was interrupted in the middle of this program.",
}
NOTHING, ONE, TWICE = (), ("read",), ("read", "read", "write")


@pytest.mark.promise("wait:cancel", "step:every-call-answered")
@each("kind", WHY)
@each(
    ("ran", "at_hand", "said"),
    [
        (NOTHING, NOTHING, " No call had run."),
        (NOTHING, ONE, " No call had run, and `read` may have run in part."),
        (ONE, NOTHING, " 1 call had run (`read`)."),
        (TWICE, NOTHING, " 3 calls had run (`read` x2, `write`)."),
        (TWICE, TWICE, " 3 calls had run (`read` x2, `write`), and `read` x2, `write` may have run in part."),
    ],
)
def test_a_program_that_was_cut_off_says_what_had_run(
    kind: str, ran: tuple[str, ...], at_hand: tuple[str, ...], said: str
) -> None:
    """Proves: by tool and number, and what may have run in part; a warning stands behind it where anything has."""
    turn, _ = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s"), script("t"))))
    for tools, ends in ((ran, True), (at_hand, False)):
        calls = tuple([call(f"{ends}/{nth}", tool) for nth, tool in enumerate(tools)])
        if calls:
            assert isinstance(turn.receive(ScriptCalled(call_id="s", calls=calls)), RunTools)
        if calls and ends:
            results = [ToolResult(call_id=one.id, name=one.name, content=(Text("x"),)) for one in calls]
            turn.receive(ToolsFinished(results=tuple(results)))
    if kind != "lost":
        turn.receive(Interrupted(kind=kind, started=None))  # type: ignore[arg-type]
    texts = results_in(turn.left_behind())
    beware = " What they did stands: look before you repeat any of it." if ran or at_hand else ""
    assert texts["s"] == WHY[kind] + said + beware
    assert texts["t"].startswith("Not run: ")


def test_a_program_reads_results_as_text_and_is_told_of_files() -> None:
    """Proves: parts stand on lines of their own; a picture is named and not shown."""
    turn, _ = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    turn.receive(ScriptCalled(call_id="s", calls=(call("s/1"),)))
    content = (Text("one"), Text("two"), File(media_type="image/png", data=b"x"))
    result = ToolResult(call_id="s/1", name="read", content=content, is_error=True)
    command = turn.receive(ToolsFinished(results=(result,)))
    assert isinstance(command, RunScript)
    text = "one\ntwo\n[a file, image/png: a program cannot look at it]"
    assert command.results == (ScriptResult(call_id="s/1", text=text, is_error=True),)


def test_a_call_that_a_program_repeats_is_told_so_in_its_result() -> None:
    """Proves: the words that the program reads, and through it the model."""
    turn, _ = Turn.start(TurnStarted(config=SCRIPTED, input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    for nth in range(5):
        command = turn.receive(ScriptCalled(call_id="s", calls=(call(f"s/{nth}"),)))
        if isinstance(command, RunTools):
            result = ToolResult(call_id=f"s/{nth}", name="read", content=(Text("same"),))
            command = turn.receive(ToolsFinished(results=(result,)))
    assert isinstance(command, RunScript) and command.ran == ("read",) * 4
    text = (
        "Not run again: the program has made this same call of `read` over and over, and the result was the same each time. "
        "It will not change by being repeated."
    )
    assert command.results == (ScriptResult(call_id="s/4", text=text, is_error=True),)


PARAMETERS = [
    ('{"type":"object","properties":{"b":{"type":"string"},"a":{}}}', ("b", "a")),
    ('{"type":"object"}', ()),
    ("true", ()),
]


@pytest.mark.parametrize(("schema", "parameters"), PARAMETERS)
def test_the_functions_of_a_program_have_the_parameters_of_their_tools_in_order(
    schema: str, parameters: tuple[str, ...]
) -> None:
    """Proves: a schema of another shape leaves keywords alone; a tool of free form has one; the client's and the provider's
    own tools have no function."""
    tools = (
        replace(READ, spec=replace(READ.spec, parameters=schema)),
        ToolOffer(spec=ToolSpec(name="patch", free_form=True)),
        ToolOffer(spec=ToolSpec(name="client"), client_side=True),
        ToolOffer(spec=ToolSpec(name="search", opaque=Opaque("openai_responses", '{"type":"web_search"}'))),
        SCRIPT,
    )
    turn, _ = Turn.start(TurnStarted(config=replace(SCRIPTED, tools=tools, room="compact"), input=(ASK,)))
    command = turn.receive(ResponseReceived(number=1, response=says(script("s"))))
    assert isinstance(command, RunScript)
    assert command.functions == (
        ScriptFunction(name="read", tool="read", parameters=parameters),
        ScriptFunction(name="patch", tool="patch", parameters=("input",), free_form=True),
    )
