"""Calls that a limit of tool calls leaves no place for: which they are, what they are told, and whom nobody asks in vain (issue
18: mutants that no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, PATH, READ, WRITE, Played, call, play, results_in, says
from turn.test_script_phase import SCRIPT, script
from turn.test_verdicts import ATTENDED, HELD, TASK, allow
from turnwise.rules.advice import FINISH, SEND_THE_REST
from turnwise.rules.limits import MaxRequests, MaxToolCalls, Spent
from turnwise.turn.config import Approval
from turnwise.turn.events import Ask, Asked, Command, Event, RunScript, ScriptCalled, ScriptFinished
from turnwise.turn.outcomes import NOTHING_LEFT_FOR_CHILD
from turnwise.turn.programs import LEFT_FOR_LATER
from turnwise.vocab import StopReason

REACHED = f"Not run: the turn's limit of tool calls is reached. {FINISH}"
OUT_OF_LINE = (
    "Not run, and nobody was asked about it: the turn's limit of tool calls leaves room only for calls before it. "
    f"{SEND_THE_REST}"
)
LATER = Approval(call_id="", verdict="later")


def texts(played: Played) -> dict[str, str]:
    return results_in(played.result.messages)


def ran(played: Played) -> list[list[str]]:
    return [[plan.call.id for plan in planned] for planned in played.ran]


@pytest.mark.parametrize(
    ("most", "asked", "told"),
    [
        (1, ["a"], {"b": OUT_OF_LINE, "c": OUT_OF_LINE}),
        (2, ["a", "b"], {"c": OUT_OF_LINE}),
        (3, ["a", "b", "c"], {}),
        (4, ["a", "b", "c"], {}),
    ],
)
def test_only_calls_with_a_place_are_asked_about(most: int, asked: list[str], told: dict[str, str]) -> None:
    """Proves: the first ones are asked about, the others have their result at once, and it says which limit it was."""
    seen: list[str] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, Ask)
        seen.extend([ask.call.id for ask in command.asks])
        return Asked(approvals=tuple([allow(id) for id in seen]))

    calls = says(*[call(id, "write") for id in "abc"])
    played = play([calls, says("So.")], config=replace(HELD, limits=MaxToolCalls(most)), answer=answer)
    assert (seen, ran(played)) == (asked, [asked])
    assert texts(played) == {**{id: f"did {id}" for id in asked}, **told}
    assert played.result.also_spent == Spent(tool_calls=len(asked))


def test_calls_that_need_no_word_take_their_places_first_and_questions_take_none() -> None:
    """Proves: a call before it that runs without a word has its place, and a question to the person has no tool."""
    asked: list[str] = []

    def answer(command: Command) -> Event:
        assert isinstance(command, Ask)
        asked.extend([ask.call.id for ask in command.asks])
        return Asked(approvals=(allow("q"), allow("b"), allow("c")))

    calls = says(call("q", "ask_user", '{"question":"Which?"}'), call("a"), call("b", "write"), call("c", "write"))
    played = play([calls, says("So.")], config=replace(HELD, limits=MaxToolCalls(2)), answer=answer)
    assert (asked, ran(played)) == (["q", "b"], [["a", "b"]])
    assert texts(played)["c"] == OUT_OF_LINE


def test_a_call_behind_the_limit_that_nobody_has_to_allow_is_told_that_it_is_reached() -> None:
    """Proves: all places are taken, and each further call has these words."""
    played = play([says(call("a"), call("b"), call("c")), says("So.")], config=replace(CONFIG, limits=MaxToolCalls(1)))
    assert texts(played) == {"a": "did a", "b": REACHED, "c": REACHED}


@pytest.mark.parametrize(
    ("asked", "runs", "spent"),
    [
        ("ttt", "", 0),
        ("tttr", "d", 1),
        ("tttrt", "d", 1),
        ("tttrtrrr", "dfg", 3),
        ("trttrr", "bef", 3),
        ("rrrtr", "abc", 3),
    ],
)
def test_places_of_sub_agents_that_do_not_start_go_to_the_next_calls(asked: str, runs: str, spent: int) -> None:
    """Proves: of three places those of sub-agents without a share are free again: calls behind the limit run in them, in their
    order, further sub-agents do not, and what nobody takes is not counted."""
    config = replace(CONFIG, tools=(TASK, READ), limits=MaxToolCalls(3) | MaxRequests(2))
    calls = [call(id, "task" if kind == "t" else "read", PATH) for id, kind in zip("abcdefgh", asked, strict=False)]
    played = play([says(*calls), says("So.")], config=config)
    assert ran(played) == ([list(runs)] if runs else [])
    kinds = {one.id: one.name for one in calls}
    assert texts(played) == {
        id: f"did {id}" if id in runs else NOTHING_LEFT_FOR_CHILD if name == "task" and asked != "rrrtr" else REACHED
        for id, name in kinds.items()
    }
    assert (played.result.also_spent, played.result.text) == (Spent(tool_calls=spent), "So.")


def test_a_call_that_waits_and_has_no_place_waits_on_and_nobody_is_asked() -> None:
    """Proves: a call that an earlier run left waiting, and that would be asked about again, keeps waiting where the limit has no
    place for it; the call that was allowed runs."""
    put_off = tuple([replace(LATER, call_id=id) for id in "ab"])
    paused = play(
        [says(call("a", "write"), call("b", "write"))],
        config=HELD,
        answer=lambda _: Asked(approvals=put_off),
        keeps_waiting=True,
    )
    assert (paused.result.stop_reason, [ask.call.id for ask in paused.result.asks]) == (StopReason.WAITING, ["a", "b"])
    first = paused.result.asks[0]
    again = play(
        [],
        config=replace(HELD, limits=MaxToolCalls(1)),
        input=(),
        earlier=paused.result.messages,
        approvals=(allow("a", digest=first.digest), allow("b", digest="of something else")),
        keeps_waiting=True,
    )
    assert ran(again) == [["a"]]
    assert (again.result.stop_reason, [one.id for one in again.result.pending]) == (StopReason.WAITING, ["b"])
    assert [ask.call.id for ask in again.result.asks] == ["b"]
    assert again.result.also_spent == Spent(tool_calls=1)


@pytest.mark.promise("wait:ask", "step:every-call-answered")
def test_what_a_person_puts_off_in_a_program_is_denied_there_and_the_program_goes_on() -> None:
    """Proves: a program cannot wait: its call has a result that says so, the others run, and the turn does not end as waiting."""
    asked: list[bool] = []

    def answer(command: Command) -> Event:
        match command:
            case Ask(asks=asks):
                asked.extend([ask.can_wait for ask in asks])
                return Asked(approvals=tuple([replace(LATER, call_id=ask.call.id) for ask in asks]))
            case RunScript(results=results) if results:
                heard = "; ".join([f"{one.text}{'!' if one.is_error else ''}" for one in results])
                return ScriptFinished(call_id="s", text=heard)
            case _:
                return ScriptCalled(call_id="s", calls=(call("s/1", "write"), call("s/2")))

    config = replace(HELD, tools=(READ, WRITE, SCRIPT), policy=ATTENDED)
    played = play([says(script("s")), says("Done.")], config=config, answer=answer)
    assert (asked, ran(played)) == ([False], [["s/2"]])
    assert texts(played) == {"s": f"{LEFT_FOR_LATER}!; did s/2"}
    assert (played.result.stop_reason, played.result.pending, played.result.asks) == (StopReason.ANSWERED, (), ())
