"""An endpoint that failed again and again is left alone for a while, across turns."""

import msgspec
import pytest

from lab.failing import turn
from turnwise.endpoints.transport import Circuits
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedFault, ScriptedStep
from turnwise.rules.retries import OPEN_CODE, CircuitPolicy, RetryPolicy
from turnwise.testing import FakeClock
from turnwise.turn.config import Fallback
from turnwise.vocab import Fault, FaultKind, StopReason

DOOR = ("http://here", "m")
BUSY = Fault(kind=FaultKind.OVERLOADED, message="busy", status=503)


async def test_it_opens_after_so_many_failures_lets_one_through_and_closes_with_an_answer() -> None:
    """Another door, another circuit; time is the clock's."""
    clock = FakeClock()
    circuits = Circuits(clock=clock, policy=CircuitPolicy(failures=2, open_s=30))
    circuits.saw(DOOR, fault=BUSY)
    assert circuits.ask(DOOR) is None
    circuits.saw(DOOR, fault=BUSY)
    closed = circuits.ask(DOOR)
    assert closed is not None
    assert (closed.kind, closed.code, closed.should_retry) == (FaultKind.OVERLOADED, OPEN_CODE, False)
    assert closed.message == (
        "not asked: 2 attempts in a row have failed, the next may go out in 30 s. The last failure: overloaded (HTTP 503)"
    )
    assert circuits.ask(("http://here", "other")) is None
    await clock.advance(30)
    assert circuits.ask(DOOR) is None  # the one that looks
    assert circuits.ask(DOOR) is not None  # and no other beside it
    circuits.saw(DOOR, fault=BUSY)
    assert circuits.ask(DOOR) is not None
    await clock.advance(30)
    assert circuits.ask(DOOR) is None
    circuits.saw(DOOR, fault=None)
    assert circuits.ask(DOOR) is None


@pytest.mark.promise("run:own-state")
def test_an_open_circuit_quotes_nothing_that_was_said_to_another_run() -> None:
    """Proves: a provider's error may quote a prompt, and every run of the agent meets the circuit. What kind of failure it was
    is told; our own words about a server that cannot be reached are, too."""
    quoting = Fault(kind=FaultKind.SERVER, message="cannot answer `a user's words`", status=500)
    away = Fault(kind=FaultKind.UNREACHABLE, message="no connection to `here`: Connection refused")
    for fault, told in ((quoting, "server (HTTP 500)"), (away, away.message)):
        circuits = Circuits(clock=FakeClock(), policy=CircuitPolicy(failures=1))
        circuits.saw(DOOR, fault=fault)
        met = circuits.ask(DOOR)
        assert met is not None and met.message.endswith(f"The last failure: {told}")


def test_only_the_endpoints_failures_in_a_row_count() -> None:
    """A limit of rates is an answer of a healthy endpoint, and so is a refusal of our key."""
    for other in (None, Fault(kind=FaultKind.AUTH, message="no"), Fault(kind=FaultKind.BAD_REQUEST, message="no")):
        circuits = Circuits(clock=FakeClock(), policy=CircuitPolicy(failures=2))
        for fault in (BUSY, other, BUSY):
            circuits.saw(DOOR, fault=fault)
        assert circuits.ask(DOOR) is None, other
    circuits = Circuits(clock=FakeClock(), policy=CircuitPolicy(failures=2))
    for _ in range(5):
        circuits.saw(DOOR, fault=Fault(kind=FaultKind.RATE_LIMITED, message="slow"))
    assert circuits.ask(DOOR) is None


@pytest.mark.promise("wait:retry", "bill:wire")
async def test_a_turn_at_an_open_circuit_fails_at_once_without_a_request() -> None:
    """The count stays the server's own; a fallback is asked all the same; later one request goes through."""
    clock = FakeClock()
    circuits = Circuits(clock=clock, policy=CircuitPolicy(failures=4, open_s=30))
    down = Script(
        name="down", title="", steps=(ScriptedStep(text="Up.", faults=(ScriptedFault(kind="status", status=500),) * 4),)
    )
    well = Script(name="well", title="", steps=(ScriptedStep(text="Here."),))
    lab = Lab([down, well])

    async def run(**more: object) -> tuple[StopReason, str, int, int]:
        ended = await turn(
            lab, down, family="openai_chat", stream=True, clock=clock, circuits=circuits, retry=RetryPolicy(), **more
        )
        return ended.result.stop_reason, ended.result.text, ended.result.requests, ended.received

    first = await run()
    assert (first[0], first[2:]) == (StopReason.PROVIDER_FAILED, (4, 4))
    second = await run()
    assert (second[0], second[2:]) == (StopReason.PROVIDER_FAILED, (0, 0))
    assert "not asked: 4 attempts in a row have failed" in second[1]
    assert await run(fallbacks=(Fallback(model="well"),)) == (StopReason.ANSWERED, "Here.", 1, 1)
    await clock.advance(30)
    assert await run() == (StopReason.ANSWERED, "Up.", 1, 1)
    assert msgspec.json.decode(lab.requests[-1].body)["model"] == "down"
