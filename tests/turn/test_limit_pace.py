"""The limits of a turn: the last request that they allow is the answer."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import CONFIG, READ, Played, call, cut, done, play, says
from turn.test_carried_state import lines_of
from turnwise.errors import CallerError
from turnwise.rules.answer_room import SYNTHESIS
from turnwise.rules.continuation import hold_back
from turnwise.rules.limits import AllOf, Limit, MaxRequests, MaxSteps, MaxTokens, MaxWallTime
from turnwise.rules.prompt_room import ModelLimits
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import (
    Command,
    Event,
    PlannedCall,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.machine import Turn, replay
from turnwise.turn.turn_spending import Pacing
from turnwise.vocab import FinishReason, Message, ProviderItem, Response, Settings, StopReason, Text, ToolResult, Usage


def limited(limits: Limit, **more: object) -> TurnConfig:
    return replace(CONFIG, limits=limits, **more)


def counted(response: Response, input: int, output: int) -> Response:
    return replace(response, usage=Usage(input_tokens=input, output_tokens=output))


def ends(played: Played) -> tuple[int, StopReason, bool]:
    return played.result.requests, played.result.stop_reason, played.result.complete


def choices(played: Played) -> list[object]:
    return [sent.request.tool_choice for sent in played.requests]


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("requests", [1, 2, 5])
def test_the_last_request_of_the_limit_is_the_answer(requests: int) -> None:
    """Exactly so many, with the synthesis asked for in the last; the first ones are untouched."""
    script = [says(call(f"c{n}")) for n in range(1, requests)]
    played = play([*script, says("So far.")], config=limited(MaxRequests(requests)))
    assert ends(played) == (requests, StopReason.BUDGET, False)
    assert choices(played) == [*["auto"] * (requests - 1), "none"]
    assert played.requests[-1].request.messages[-1] == Message("user", (Text(SYNTHESIS),))
    assert played.result.text == "So far."


@pytest.mark.promise("end:budget", "end:early")
def test_a_turn_that_stays_within_its_limits_is_untouched() -> None:
    """Its requests are those of a turn without limits."""
    script = [says(call("a")), says("Done.")]
    generous = MaxRequests(5) | MaxTokens(100_000) | MaxWallTime(600) | MaxSteps(9)
    within, free = play(script, config=limited(generous)), play(script)
    assert [sent.request for sent in within.requests] == [sent.request for sent in free.requests]
    assert within.result == free.result


@pytest.mark.promise("end:budget", "end:cap")
def test_the_request_beyond_the_cap_stays_within_the_limits() -> None:
    """A disobeyed last step is asked once more only where that can be afforded; else the answer is ours."""
    config = limited(MaxRequests(3), max_steps=2)
    played = play([says(call("a")), says(call("b")), says("Sorry.")], config=config)
    assert ends(played) == (3, StopReason.STEP_LIMIT, False)
    disobeyed = play([says(call("a")), says(call("b"))], config=limited(MaxRequests(2)))
    assert ends(disobeyed) == (2, StopReason.BUDGET, False)
    assert disobeyed.result.origin == "local" and "did a" in disobeyed.result.text
    empty = play([says(call("a")), says("")], config=limited(MaxRequests(2)))
    assert ends(empty) == (2, StopReason.BUDGET, False)


@pytest.mark.promise("end:budget")
def test_tokens_left_decide_by_what_a_step_has_cost() -> None:
    """Prompts of 5,000 and more: the third request is the answer, as after a third step there would be room for none."""
    script = [
        counted(says(call("a")), 5_000, 100),
        counted(says(call("b")), 5_200, 100),
        counted(says("So."), 5_400, 50),
    ]
    played = play(script, config=limited(MaxTokens(20_000)))
    assert ends(played) == (3, StopReason.BUDGET, False)
    assert choices(played) == ["auto", "auto", "none"]
    assert played.result.usage.input_tokens + played.result.usage.output_tokens <= 20_000


@pytest.mark.promise("end:budget", "end:never-empty")
def test_where_not_even_the_answer_can_be_afforded_it_is_ours() -> None:
    """A result that alone is more than the limit, and a first prompt that is."""

    def long(plan: PlannedCall) -> ToolResult:
        return replace(done(plan), content=(Text("x" * 90_000),))

    played = play([counted(says(call("a")), 500, 50)], config=limited(MaxTokens(10_000)), run=long)
    assert ends(played) == (1, StopReason.BUDGET, False)
    assert (played.result.origin, played.result.steps) == ("local", 1)
    assert played.result.text.startswith("The limit of 10,000 tokens leaves no room for another step (550 used).")
    nothing = play([], config=limited(MaxTokens(100)))
    assert ends(nothing) == (0, StopReason.BUDGET, False)
    assert nothing.result.text.strip()


def timed(script: Sequence[tuple[Response, float]], *, config: TurnConfig, tools_s: float) -> Played:
    """Each response comes the given seconds after its request, and tools take `tools_s`."""
    started = TurnStarted(config=config, input=(Message("user", (Text("go"),)),))
    turn, command = Turn.start(started)
    events: list[Event] = [started]
    requests: list[SendRequest] = []
    at_s = 0.0
    for response, seconds in script:
        assert isinstance(command, SendRequest)
        requests.append(command)
        at_s += seconds
        events.append(ResponseReceived(number=command.number, response=response, at_s=at_s))
        command = turn.receive(events[-1])
        if hasattr(command, "calls"):
            at_s += tools_s
            events.append(ToolsFinished(results=tuple([done(plan) for plan in command.calls]), at_s=at_s))  # type: ignore[union-attr]
            command = turn.receive(events[-1])
    assert turn.result is not None
    assert replay(events)[-1] == command
    return Played(requests, [], turn.result, events, turn)


@pytest.mark.promise("end:budget")
def test_time_for_the_answer_is_kept_by_what_requests_took() -> None:
    """60 s, steps of 10 + 5 s: at 45 s a step and an answer would end at 70, so the fourth request is the answer."""
    script = [(says(call(f"c{n}")), 10.0) for n in range(3)]
    played = timed([*script, (says("In time."), 10.0)], config=limited(MaxWallTime(60)), tools_s=5.0)
    assert ends(played) == (4, StopReason.TIME_LIMIT, False)
    assert choices(played)[2:] == ["auto", "none"]


@pytest.mark.promise("end:budget")
def test_an_answer_that_may_come_too_late_is_still_asked_for() -> None:
    """The driver ends the turn when the time is up; until then there is a chance. After it there is none."""
    late = timed([(says(call("a")), 10.0), (says("Quick."), 2.0)], config=limited(MaxWallTime(25)), tools_s=10.0)
    assert ends(late) == (2, StopReason.TIME_LIMIT, False)
    assert late.result.text == "Quick."
    over = timed([(says(call("a")), 10.0)], config=limited(MaxWallTime(25)), tools_s=30.0)
    assert ends(over) == (1, StopReason.TIME_LIMIT, False)
    assert over.result.text.startswith("The limit of 25 s leaves no time for another step (40 s passed).")


@pytest.mark.promise("end:budget", "cut:continued")
def test_a_call_is_gone_on_with_only_while_there_is_time_for_the_answer() -> None:
    """100 s, requests of 10 s: a call that is cut again and again is given up at 90 s, and the answer still comes."""
    text = '{"path":"' + "".join([f"{number:04} " for number in range(200)])
    ends_at = [100 + 50 * number for number in range(9)]
    script = [(replace(says(cut("a", text[: ends_at[0]])), finish=FinishReason.LENGTH), 10.0)]
    for before, after in pairwise(ends_at):
        held = hold_back(text[:before], kind="json")
        assert held is not None
        script.append((says(text[before - len(held.held) : after], finish=FinishReason.LENGTH), 10.0))
    played = timed(
        [*script, (says("In time."), 10.0)], config=limited(MaxWallTime(100), recover="continue"), tools_s=0.0
    )
    assert [sent.purpose for sent in played.requests] == ["step", *["continue"] * 8, "step"]
    assert (ends(played), played.result.text) == ((10, StopReason.TIME_LIMIT, False), "In time.")


@pytest.mark.promise("end:budget")
def test_limits_compose() -> None:
    """Either one stops, or only both together."""
    script = [counted(says(call(f"c{n}")), 1_000, 10) for n in range(1, 6)]
    both = play([*script[:4], says("So.")], config=limited(MaxRequests(5) & MaxTokens(4_000)))
    assert ends(both) == (5, StopReason.BUDGET, False)
    either = play([*script[:2], says("So.")], config=limited(MaxRequests(3) | MaxTokens(1_000_000)))
    assert ends(either) == (3, StopReason.BUDGET, False)


@pytest.mark.promise("end:budget")
def test_a_pause_before_the_answer_keeps_its_text_only() -> None:
    """As before the last step of the cap."""
    script = [says("Looking.", finish=FinishReason.PAUSE), says(" Found.")]
    played = play(script, config=limited(MaxRequests(2), **of_family("anthropic_messages")))
    assert ends(played) == (2, StopReason.BUDGET, False)
    assert played.result.text == "Looking. Found."
    assert played.requests[-1].request.messages[-1].role == "user"


@pytest.mark.promise("cut:text-continued", "end:budget")
def test_a_cut_response_is_gone_on_with_as_far_as_the_limits_allow() -> None:
    """The text of the one allowed request stands, flagged as incomplete; a cut call leaves room for the answer."""
    whole = " ".join([f"word {number}" for number in range(200)])
    held = hold_back(whole[:900], kind="text")
    assert held is not None
    script = [says(whole[:900], finish=FinishReason.LENGTH), says(held.held + whole[900:])]
    alone = play(script[:1], config=limited(MaxRequests(1), recover="continue", tools=()))
    assert (ends(alone), alone.result.text) == ((1, StopReason.ANSWERED, False), whole[:900])
    both = play(script, config=limited(MaxRequests(2), recover="continue", tools=()))
    assert (ends(both), both.result.text) == ((2, StopReason.ANSWERED, True), whole)


def asked(played: Played) -> list[tuple[int | None, int | None]]:
    """What each request allowed: output, and reasoning of it."""
    found = [sent.request.settings for sent in played.requests]
    return [(one.max_output_tokens, one.reasoning_tokens) for one in found]


KNOWN = ModelLimits(context_window_tokens=200_000, max_output_tokens=64_000)


@pytest.mark.promise("end:budget")
def test_each_request_asks_for_no_more_than_its_limit_leaves() -> None:
    """A step half of what two prompts and the least answer leave, as its response is read again; the answer all of it."""
    script = [counted(says(call("a")), 2_000, 500), counted(says(call("b")), 2_600, 500), says("So.")]
    for room in ("compact", "budget", "off"):
        config = limited(MaxTokens(13_600), room=room, model_limits=KNOWN, tools=(READ,))
        played = play(script, config=config)
        steps = [tokens for tokens, _ in asked(played)]
        assert choices(played) == ["auto", "auto", "none"]
        assert steps[0] is not None and 5_500 < steps[0] <= (13_600 - 1_000) // 2
        # 11,100 left; its prompt 2,500 and what the result takes
        assert steps[1] is not None and 2_500 <= steps[1] <= (11_100 - 2 * 2_500 - 1_000) // 2
        # 8,000 left; its prompt 3,100 and what the result and the synthesis take
        assert steps[2] is not None and 4_700 <= steps[2] <= 8_000 - 3_100


@pytest.mark.promise("end:budget")
def test_reasoning_of_a_bounded_answer_leaves_room_for_its_words() -> None:
    """A budget that no longer fits shrinks, and goes where its least would not fit; the user's own ceiling stands."""

    def last(tokens: int, settings: Settings) -> tuple[int | None, int | None]:
        config = limited(MaxTokens(tokens, "output"), room="off", settings=settings)
        script = [counted(says(call("a")), 100, 1_000), says("So.")]
        return asked(play(script, config=config))[-1]

    assert last(2_900, Settings(reasoning_tokens=8_000)) == (1_900, None)
    assert last(5_900, Settings(reasoning_tokens=8_000, max_output_tokens=16_000)) == (3_900, 3_900 - 1_024)
    assert last(2_000, Settings(max_output_tokens=500)) == (500, None)


def test_a_high_limit_stays_unsaid_where_nobody_knows_what_the_model_can_give() -> None:
    """A server refuses more than its model's own; what every model takes is said."""
    assert asked(play([says("Hi.")], config=limited(MaxTokens(100_000), room="compact"))) == [(None, None)]
    ((low, _),) = asked(play([says("Hi.")], config=limited(MaxTokens(6_000), room="compact")))
    assert low is not None and low < 6_000


@pytest.mark.promise("end:budget", "cut:text-continued")
def test_what_goes_on_with_a_cut_answer_stays_within_the_limit() -> None:
    """The word to go on is counted; the model could give far more."""
    whole = " ".join([f"word {number}" for number in range(200)])
    held = hold_back(whole[:900], kind="text")
    assert held is not None
    script = [
        counted(says(whole[:900], finish=FinishReason.LENGTH), 1_000, 900),
        counted(says(held.held + whole[900:]), 2_000, 400),
    ]
    config = limited(MaxTokens(6_000), recover="continue", tools=(), room="compact", model_limits=KNOWN)
    played = play(script, config=config)
    assert (ends(played), played.result.text) == ((2, StopReason.ANSWERED, True), whole)
    first, second = [tokens for tokens, _ in asked(played)]
    assert first is not None and 5_000 < first < 6_000
    assert second is not None and 1_500 <= second <= 6_000 - 1_900 - 1_900


@pytest.mark.parametrize("limits", [MaxRequests(0), MaxTokens(5) | MaxWallTime(-1), AllOf(())])
def test_a_limit_that_allows_nothing_is_refused(limits: Limit) -> None:
    """Before anything is sent."""
    with pytest.raises(CallerError, match="`limits`"):
        play([], config=limited(limits))


def test_a_response_out_of_turn_changes_nothing_of_the_time() -> None:
    """What is refused leaves no trace."""
    turn, _ = Turn.start(TurnStarted(config=CONFIG, input=(Message("user", (Text("go"),)),)))
    before = turn.known.spending.pacing
    with pytest.raises(Exception, match="came while request 1"):
        turn.receive(ResponseReceived(number=2, response=says("x"), at_s=9.0))
    assert turn.known.spending.pacing == before


def served(command: Command, *, counts: bool) -> Event:
    """A step of a model that never ends, from a provider that counts its tokens or does not."""
    match command:
        case SendRequest(number=number):
            response = says(call(f"c{number:04}", arguments=f'{{"path":"{number:04}"}}'))
            return ResponseReceived(number=number, response=counted(response, 500, 50) if counts else response)
        case RunTools(calls=planned):
            return ToolsFinished(results=tuple([done(plan) for plan in planned]))
        case _:
            raise AssertionError(command)


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("room", ["compact", "off"])
@pytest.mark.parametrize("counting", [0, 3, 400])
def test_a_step_within_limits_costs_the_same_however_long_the_turn(counting: int, room: str) -> None:
    """Proves: what the next prompt costs is asked several times a step, and no time by walking the history, also where the
    provider counts no tokens, or stops counting after some requests."""
    limits = MaxTokens(1_000_000_000) | MaxRequests(1_000)
    config = limited(limits, room=room, max_steps=1_000, model_limits=ModelLimits(context_window_tokens=4_000_000))
    turn, command = Turn.start(TurnStarted(config=config, input=(Message("user", (Text("go"),)),)))
    cost: list[int] = []
    for number in range(400):

        def step(counts: bool = number < counting) -> None:
            nonlocal command
            command = turn.receive(served(turn.receive(served(command, counts=counts)), counts=counts))

        if number % 100 in (50, 51):
            cost.append(lines_of(step))
        else:
            step()
    assert max(cost) - min(cost) < min(cost) // 20, cost


@pytest.mark.parametrize("family", ["openai_chat", "anthropic_messages"])
def test_what_a_prompt_costs_is_what_its_messages_weigh(family: str) -> None:
    """Proves: the running sum is that of the messages as they stand, also after a pause of which only the text is left."""
    item = ProviderItem(
        "anthropic_messages", "server_tool_use", '{"type":"server_tool_use","query":"' + "q" * 900 + '"}'
    )
    config = limited(MaxTokens(100_000), **of_family(family), room="compact", max_steps=3)
    played = play([says(call("a")), says("Looking.", item, finish=FinishReason.PAUSE), says("So.")], config=config)
    turn = played.turn
    known = turn.known.prompt_tokens
    anew = Pacing().prompt_tokens(replace(turn.known.history, sizes=[], sums=[], changed=False))
    assert known == anew > 100
