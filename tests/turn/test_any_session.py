"""No session of any turns breaks: waiting ones, those that take calls up, killed ones, and what comes after them."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turn.drawn import OFFERS, policies, starts
from turn.drawn_events import draw_approvals
from turn.judged import Judged, results_of
from turnwise.rules.history import waiting_calls
from turnwise.rules.permissions import Policy
from turnwise.turn.config import Approval, TurnConfig
from turnwise.turn.events import Event, TurnStarted
from turnwise.turn.machine import SessionSoFar, fold_session
from turnwise.vocab import Message, Text, ToolResult

TURNS = 4


def at_work(config: TurnConfig, *, policy: Policy) -> TurnConfig:
    """A turn in which calls run if somebody allows it; without that hardly a drawn one gets as far as a question."""
    return msgspec.structs.replace(
        config,
        tools=OFFERS,
        allowed=("none", "read", "write", "execute"),
        tool_choice="auto",
        limits=None,
        max_steps=8,
        policy=msgspec.structs.replace(policy, attended=True),
    )


def next_turn(
    data: st.DataObject, *, before: Judged, so_far: SessionSoFar, config: TurnConfig, number: int
) -> TurnStarted:
    """A user's word; behind a turn that left calls waiting mostly with answers to them, some or all, true or stale."""
    word = Message("user", (Text(f"turn {number}"),))
    keeps = before.started.keeps_waiting
    plain = TurnStarted(config=config, input=(word,), keeps_waiting=keeps)
    pending = waiting_calls(so_far.carried.messages)
    if not pending or not (before.has_ended or keeps) or not data.draw(st.integers(0, 4)):
        return plain
    asks = so_far.asks
    approvals = draw_approvals(data, asks)
    approvals += [Approval(call_id=one.call.id, verdict="allow") for one in asks if data.draw(st.booleans())]
    asked = {one.call.id for one in asks}
    handed_in = tuple(
        [
            ToolResult(call_id=call.id, name=call.name, content=(Text(f"client {call.id}"),))
            for call in pending
            if call.id not in asked and data.draw(st.integers(0, 3))
        ]
    )
    input = (Message("tool", handed_in),) if handed_in else ()
    if not input or data.draw(st.booleans()):
        input = (*input, word)
    return msgspec.structs.replace(plain, input=input, approvals=tuple(approvals))


@pytest.mark.costly
@pytest.mark.promise("step:every-call-answered", "keep:replay", "wait:ask")
@settings(max_examples=examples(250), deadline=None, derandomize=True)
@given(started=starts, policy=policies, data=st.data())
def test_any_session_of_waiting_resumed_and_killed_turns_holds(
    started: TurnStarted, policy: Policy, data: st.DataObject
) -> None:
    """Each turn is judged as one alone; no call runs twice or has two results in the whole session, those that are asked
    for later run when they are allowed, and the fold is what the turns added."""
    config = at_work(started.config, policy=policy)
    started = msgspec.structs.replace(started, config=config, keeps_waiting=data.draw(st.integers(0, 4)) > 0)
    journals: list[list[Event]] = []
    ran: list[str] = []
    whole: list[Message] = []
    said = 0
    for number in range(TURNS):
        earlier = fold_session(journals).carried
        judged = Judged(started, data=data, earlier=earlier, busy=True, said=said)
        killed = data.draw(st.integers(0, 4)) == 0
        while not judged.has_ended and not (killed and data.draw(st.integers(0, 9)) == 0):
            judged.step()
        if judged.has_ended:
            judged.check_end()
        ran += judged.ran
        said += len(judged.words)
        journals.append(judged.events)
        whole += [*started.history, *judged.turn.left_behind()]
        folded = fold_session(journals)
        assert list(folded.messages) == whole
        check_session(whole, ran=ran)
        if not judged.has_ended:
            judged.check_words_in([*judged.turn.added, *folded.carried.words])
        started = next_turn(data, before=judged, so_far=folded, config=config, number=number)


def check_session(messages: list[Message], *, ran: list[str]) -> None:
    assert len(ran) == len(set(ran)), "a call ran twice"
    said = [one.call_id for message in messages for one in results_of(message) if did(one)]
    assert max(Counter(said).values(), default=1) == 1, "two results for one call"
    assert set(said) <= set(ran), "a result of what did not run"


def did(one: ToolResult) -> bool:
    return any(isinstance(part, Text) and part.text.startswith("did ") for part in one.content)
