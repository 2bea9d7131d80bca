"""Calls are looked at only where a verdict needs it, and an error that tells of room costs a request and no step (issue 18:
mutants that no test noticed). Events in, commands out."""

import pytest
from msgspec.structs import replace

from turn.playing import CONFIG, READ, WRITE, call, play, says
from turn.test_room import ROOMY, failed
from turn.test_verdicts import ATTENDED, HELD, allow, answers, facts_of
from turnwise.rules.limits import Limit, MaxRequests, MaxSteps
from turnwise.rules.permissions import Policy
from turnwise.turn.config import Approval
from turnwise.turn.events import Ask, Asked, CallsInspected, Command, Event, InspectCalls
from turnwise.vocab import FaultKind, StopReason

LOOKED_AT = replace(WRITE, inspected=True)


@pytest.mark.parametrize("policy", [None, ATTENDED], ids=["no rules", "rules"])
@pytest.mark.parametrize("inspected", [True, False])
def test_without_rules_nothing_is_looked_at(policy: Policy | None, inspected: bool) -> None:
    """Proves: the facts of a call are asked for where rules judge it, and only of tools that have some."""
    seen: list[str] = []

    def answer(command: Command) -> Event:
        match command:
            case InspectCalls(calls=calls, step=step):
                seen.append(f"{step}: {' '.join([plan.call.id for plan in calls])}")
                return CallsInspected(facts=tuple([facts_of(plan) for plan in calls]))
            case Ask(asks=asks):
                return Asked(approvals=tuple([allow(ask.call.id) for ask in asks]))
            case _:
                raise AssertionError(command)

    config = replace(CONFIG, tools=(READ, LOOKED_AT if inspected else WRITE), policy=policy)
    played = play([says(call("a"), call("b", "write")), says("Done.")], config=config, answer=answer)
    assert seen == (["1: b"] if inspected and policy is not None else [])
    assert [[plan.call.id for plan in planned] for planned in played.ran] == [["a", "b"]]


@pytest.mark.promise("wait:ask")
def test_a_call_that_a_person_was_asked_about_is_looked_at_again_though_the_rules_are_gone() -> None:
    """Proves: the person's word is for what the call would do, whatever rules there are when it is taken up."""
    seen: list[str] = []
    held = replace(HELD, tools=(READ, LOOKED_AT))
    paused = play(
        [says(call("b", "write"))],
        config=held,
        answer=answers(Approval(call_id="b", verdict="later")),
        keeps_waiting=True,
    )
    (ask,) = paused.result.asks

    def answer(command: Command) -> Event:
        assert isinstance(command, InspectCalls)
        seen.extend([plan.call.id for plan in command.calls])
        return CallsInspected(facts=tuple([facts_of(plan) for plan in command.calls]))

    again = play(
        [says("Done.")],
        config=replace(held, policy=None),
        earlier=paused.result.messages,
        input=(),
        approvals=(allow("b", digest=ask.digest),),
        answer=answer,
        keeps_waiting=True,
    )
    assert seen == ["b"]
    assert [[plan.call.id for plan in planned] for planned in again.ran] == [["b"]]
    assert again.result.stop_reason is StopReason.ANSWERED


@pytest.mark.promise("cut:budget", "end:budget")
@pytest.mark.parametrize(
    ("limit", "choices"),
    [
        (None, ["auto", "auto"]),
        (MaxSteps(1), ["none", "none"]),
        (MaxSteps(2), ["auto", "auto"]),
        (MaxSteps(3), ["auto", "auto"]),
        (MaxRequests(1), ["none"]),
        (MaxRequests(2), ["auto", "none"]),
        (MaxRequests(3), ["auto", "auto"]),
    ],
)
def test_a_request_that_tells_of_room_goes_out_again_within_its_step(limit: Limit | None, choices: list[str]) -> None:
    """Proves: it takes a request and no step; where the limit has room for the answer only, it is the answer's."""
    told = "max_tokens: 4000 > 2048, which is the maximum allowed number of output tokens for m"
    refused = failed(1, told, FaultKind.BAD_REQUEST)
    script = [refused, says("Done.")] if len(choices) == 2 else [refused]
    played = play(script, config=replace(ROOMY, limits=limit))
    assert [sent.request.tool_choice for sent in played.requests] == choices
    assert [sent.step for sent in played.requests] == [1] * len(choices)
    assert (
        played.result.stop_reason
        is {
            ("auto", "auto"): StopReason.ANSWERED,
            ("none", "none"): StopReason.STEP_LIMIT,
            ("auto", "none"): StopReason.BUDGET,
            ("none",): StopReason.PROVIDER_FAILED,
        }[tuple(choices)]
    )
