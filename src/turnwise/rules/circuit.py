"""An endpoint that failed again and again is left alone for a while: asking it would cost time and help nobody.

The state is data and time comes in; whoever sends the requests keeps it, across turns.
"""

import msgspec

from turnwise.rules.retries import TRANSIENT, is_loading
from turnwise.vocab import Fault, FaultKind

# A limit of rates says that the endpoint is well and that we are too many; waiting as long as it asks is the answer to it.
COUNTS_AS_FAILURE = TRANSIENT - {FaultKind.RATE_LIMITED}
OPEN_CODE = "circuit_open"


class CircuitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`failures` in a row open the circuit; `open_s` later one request is let through to see."""

    failures: int = 8  # two requests with all their attempts
    open_s: float = 30.0


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one endpoint and model. `probed_at_s` is when the last request was let through an open circuit. Runs of
    different people share it: of `last` nothing is told that the provider wrote."""

    failures: int = 0
    opened_at_s: float | None = None
    probed_at_s: float | None = None
    last: Fault | None = None


CLOSED = Circuit()


def let_through(circuit: Circuit, *, policy: CircuitPolicy, now_s: float) -> Circuit | Fault:
    """The circuit with this request on its way, or the fault to report in its place."""
    if circuit.opened_at_s is None or circuit.last is None:
        return circuit
    since = circuit.opened_at_s if circuit.probed_at_s is None else circuit.probed_at_s
    left_s = since + policy.open_s - now_s
    if left_s <= 0:
        return msgspec.structs.replace(circuit, probed_at_s=now_s)
    return Fault(
        kind=circuit.last.kind,
        message=f"not asked: {circuit.failures} attempts in a row have failed, the next may go out in {left_s:.0f} s. "
        f"The last failure: {_named(circuit.last)}",
        status=circuit.last.status,
        code=OPEN_CODE,
        should_retry=False,
    )


def after_response(circuit: Circuit, *, fault: Fault | None, policy: CircuitPolicy, now_s: float) -> Circuit:
    """The circuit once a request has ended; an answer of any kind closes it, and so does an error that is ours."""
    if fault is None or (fault.kind not in COUNTS_AS_FAILURE and fault.kind is not FaultKind.RATE_LIMITED):
        return CLOSED
    if fault.kind is FaultKind.RATE_LIMITED or is_loading(fault):
        return msgspec.structs.replace(circuit, opened_at_s=None, probed_at_s=None)
    failures = circuit.failures + 1
    opened = now_s if failures >= policy.failures else None
    return Circuit(failures=failures, opened_at_s=opened, last=fault)


def _named(fault: Fault) -> str:
    """What kind of failure it was. A provider's own text may quote the request, and that was another run's."""
    if fault.kind is FaultKind.UNREACHABLE and fault.status is None:
        return fault.message  # nothing of a request was read there
    return fault.kind.value if fault.status is None else f"{fault.kind.value} (HTTP {fault.status})"
