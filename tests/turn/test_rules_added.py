"""Rules that are added in mid-turn: they hold behind the turn's own, and what was asked is judged by them."""

import msgspec
import pytest

from turn.playing import ASK, CONFIG, call
from turn.test_machine import received
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.turn.events import Ask, Asked, RulesAdded, RunTools, SendRequest, TurnStarted
from turnwise.turn.machine import Turn

ASKS = Policy(
    rules=(PermissionRule(verdict="ask", tool="read"), PermissionRule(verdict="ask", tool="write")), attended=True
)
ALLOWS = RulesAdded(rules=(PermissionRule(verdict="allow", tool="read"),), at_s=9.0)
CONFIGURED = msgspec.structs.replace(CONFIG, policy=ASKS)


def turn_at_calls(*names: str, config=CONFIGURED) -> Turn:
    turn, _ = Turn.start(TurnStarted(config=config, input=(ASK,)))
    turn.receive(received(1, *[call(f"{number}", name) for number, name in enumerate(names)]))
    return turn


@pytest.mark.promise("keep:crash")
def test_calls_that_were_asked_about_run_where_the_new_rules_allow_them() -> None:
    """Proves: nobody is asked any more where nothing else is to be decided."""
    command = turn_at_calls("read", "read").receive(ALLOWS)
    assert isinstance(command, RunTools) and [plan.call.id for plan in command.calls] == ["0", "1"]


def test_asks_that_the_new_rules_do_not_settle_remain() -> None:
    """Proves: the others are left out, and run with what is then allowed."""
    turn = turn_at_calls("read", "write")
    command = turn.receive(ALLOWS)
    assert isinstance(command, Ask) and [ask.call.id for ask in command.asks] == ["1"]
    command = turn.receive(Asked())
    assert isinstance(command, RunTools) and [plan.call.id for plan in command.calls] == ["0"]


@pytest.mark.parametrize("policy", [ASKS, None], ids=["rules", "none"])
def test_any_other_command_goes_on(policy: Policy | None) -> None:
    """Proves: a request at hand is the same one; the next calls are judged by the rules; a turn without rules asks nobody as
    before."""
    turn, command = Turn.start(TurnStarted(config=msgspec.structs.replace(CONFIG, policy=policy), input=(ASK,)))
    assert isinstance(command, SendRequest) and turn.receive(ALLOWS) is command
    assert isinstance(turn.receive(received(1, call("a", "read"))), RunTools)
