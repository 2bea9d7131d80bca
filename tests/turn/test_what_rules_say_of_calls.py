"""What the rules say of calls, each for itself: cut ones before more of them is bought, whole ones before they run (issue 18:
mutants that no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from turn.playing import call, play, results_in, says
from turn.test_cut_call_check import NOBODY, ON, PEOPLE, PREFIX, allow, by_limit, cut, deny, inspected, purposes
from turn.test_verdicts import ATTENDED, HELD, answers
from turn.test_verdicts import allow as yes
from turnwise.rules.permission_facts import CallFacts, CommandFact, ShellFacts, Word
from turnwise.rules.permissions import Policy
from turnwise.rules.read_only_commands import JudgedPrograms
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import Ask, Asked, CallsInspected, Command, Event, InspectCalls
from turnwise.vocab import ToolSpec

SCHEMA = '{"type":"object","properties":{"command":{"type":"string"}}}'
SHELL = ToolOffer(spec=ToolSpec(name="shell", parameters=SCHEMA), effect="execute", inspected=True)
COMMAND = '{"command":"ls -la notes && cat notes/today.txt notes/tomorrow.txt notes/someday.tx'
REST = 'notes/tomorrow.txt notes/someday.txt"}'
NO_PATH_YET = '{"text":"The quick brown fox jumps over the lazy dog, and aga'


# cut calls


@pytest.mark.promise("cut:split", "step:every-call-answered")
def test_a_cut_call_that_the_rules_allow_is_not_answered_with_the_denial_of_another() -> None:
    """Proves: both were cut, one is denied, and the other is asked for in smaller pieces."""
    policy = replace(NOBODY, rules=(deny("publish"), allow("write")))
    first = by_limit(cut("a", "publish"), cut("b", prefix=PREFIX.replace("fox", "cat")))
    played = play([first, says("Ok.")], config=replace(ON, recover="split", policy=policy), answer=inspected)
    texts = results_in(played.result.messages)
    assert texts["a"].startswith("Denied: `publish` was not run.")
    assert texts["b"].startswith("Not run: the arguments of this call of `write` were cut off")


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize("tool", ["write", "publish"])
def test_a_cut_call_that_no_more_is_bought_of_is_not_judged(tool: str) -> None:
    """Proves: with recovery off nothing is bought, so nothing is looked at either, and the model reads that its call was cut."""
    config = replace(ON, recover="off", policy=replace(NOBODY, rules=(deny("*"),)))
    seen: list[Command] = []

    def answer(command: Command) -> Event:
        seen.append(command)
        return inspected(command)

    played = play([by_limit(cut("a", tool)), says("Ok.")], config=config, answer=answer)
    assert (seen, played.ran) == ([], [])
    assert results_in(played.result.messages)["a"].startswith("Not run: the arguments of this call")


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize(
    ("policy", "bought"),
    [
        (replace(PEOPLE, rules=(deny("shell"),)), False),
        (replace(PEOPLE, rules=(deny("shell"), allow("shell", command=("ls", "*")))), True),
        (replace(PEOPLE, rules=(deny("shell"), allow("shell", path="*.txt"))), True),
        (replace(PEOPLE, rules=(deny("shell"), allow("write", command=("ls", "*")))), False),
        (replace(PEOPLE, rules=(allow("shell"), deny("shell"))), False),
    ],
)
def test_a_tool_that_is_denied_but_for_some_commands_is_judged_once_its_command_is_known(
    policy: Policy, bought: bool
) -> None:
    """Proves: a rule about commands or paths of the same tool may allow what is still to come; a rule about the tool alone says
    all that it says at once."""
    config = replace(ON, tools=(*ON.tools, SHELL), policy=policy)
    script = [by_limit(cut("a", "shell", COMMAND)), *([says(REST)] if bought else []), says("Ok.")]
    played = play(script, config=config, answer=inspected)
    assert purposes(played) == ["step", *(["continue"] if bought else []), "step"]


# whole calls


@pytest.mark.parametrize("mixed", [True, False])
def test_a_command_runs_with_the_programs_that_it_was_judged_with(mixed: bool) -> None:
    """Proves: where the model can write into a folder of PATH, the names lead to the files that they led to by then."""
    programs = (("ls", "/usr/bin/ls"),)
    command = CommandFact(words=(Word("ls"),), text="ls", programs=programs if mixed else ())

    def answer(order: Command) -> Event:
        assert isinstance(order, InspectCalls)
        (plan,) = order.calls
        shell = ShellFacts(commands=(command,), mixed_path=mixed)
        return CallsInspected(facts=(CallFacts(call_id=plan.call.id, tool="shell", effect="execute", shell=shell),))

    config = replace(ON, tools=(SHELL,), policy=replace(NOBODY, rules=(allow("shell"),)))
    played = play([says(call("a", "shell", '{"command":"ls"}')), says("Ok.")], config=config, answer=answer)
    ((plan,),) = played.ran
    assert plan.programs == (JudgedPrograms(names=programs, only_apart=True) if mixed else None)


@pytest.mark.promise("wait:ask")
def test_an_answer_for_something_else_does_not_keep_the_next_one_from_being_remembered() -> None:
    """Proves: of two asks the first is answered for what it does not show, the second for itself and always. Calls like
    the second are not asked about again."""
    asked: list[list[str]] = []

    def answer(command: Command) -> Event:
        if isinstance(command, Ask):
            asked.append([one.call.id for one in command.asks])
            return Asked(approvals=(yes("a", digest="of another ask", always=True), yes("b", always=True)))
        return answers()(command)

    publish = replace(HELD.tools[1], spec=replace(HELD.tools[1].spec, name="publish"))
    config = replace(HELD, tools=(*HELD.tools, publish))
    both = says(call("a", "publish"), call("b", "write"))
    played = play([both, says(call("c", "write")), says("Done.")], config=config, answer=answer)
    assert asked == [["a", "b"]]
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["b"], ["c"]]
    policy = played.turn.known.config.policy
    assert policy is not None and policy.rules != ATTENDED.rules
    assert [rule.tool for rule in policy.rules] == ["write"]
