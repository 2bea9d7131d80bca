"""How a turn ended, in words; of a provider that failed, one line of advice with the command that shows more."""

import shlex

import msgspec

from turnwise.agent.results import RunResult
from turnwise.coding_agent.choice import Choice
from turnwise.coding_agent.text import clean, shortened, visible_line
from turnwise.vocab import Fault, FaultKind, StopReason

MESSAGE = 100  # characters of a provider's own message that are told

# What a user may look at first, by what kind of failure the provider showed.
REMEDIES = {
    FaultKind.UNREACHABLE: "check the address (--base-url), and that the server runs",
    FaultKind.TIMEOUT: "try again later, or check the address (--base-url)",
    FaultKind.DISCONNECTED: "run it again with --continue",
    FaultKind.AUTH: "check the key, and that it may use this model (--api-key-env names its variable)",
    FaultKind.BAD_REQUEST: "check that the model and the API family fit together (--model)",
    FaultKind.CONTEXT_OVERFLOW: "start a new session, or ask for less at once",
    FaultKind.RATE_LIMITED: "wait, then run it again with --continue",
    FaultKind.QUOTA: "look at the account's plan and limits",
    FaultKind.OVERLOADED: "wait, then run it again with --continue",
    FaultKind.SERVER: "run it again with --continue",
    FaultKind.PROTOCOL: "check the address and the API family (--base-url, --model)",
    FaultKind.TOO_LARGE: "check the address and the API family (--base-url, --model)",
}


class FailedModel(msgspec.Struct, frozen=True, kw_only=True):
    """Which model of which endpoint failed, and whether `/model` can be typed."""

    choice: Choice
    in_session: bool = False


def describe_end(result: RunResult, *, asked: FailedModel) -> str:
    match result.stop_reason:
        case StopReason.WAITING:
            approved = {ask.call.id for ask in result.asks}
            calls = ", ".join([visible_line(call.name) for call in result.pending if call.id not in approved])
            wanted = [*(["an approval"] if approved else []), *([f"results of: {calls}"] if calls else [])]
            return f"waiting for {' and '.join(wanted)}"
        case StopReason.CANCELLED:
            return "cancelled"
        case StopReason.GIVEN_UP:
            return result.why_incomplete
        case StopReason.REFUSED:
            return "refused"
        case StopReason.PROVIDER_FAILED:
            return f"the provider failed: {remedy(result.fault, asked=asked)}"
        case StopReason.JOURNAL_FAILED:
            return "not recorded: the journal could not be written, so the session does not hold this turn's end"
        case StopReason.ANSWERED:
            why = f": {result.why_incomplete}" if result.why_incomplete else ""
            return f"answered from incomplete data{why}"
        case other:
            return f"answered from incomplete data: {other}"


def describe_fault(fault: Fault) -> str:
    status = f" ({fault.status})" if fault.status is not None else ""
    return f"{fault.kind}{status}, {shortened(clean(fault.message), limit=MESSAGE)}"


def remedy(fault: Fault | None, *, asked: FailedModel) -> str:
    if fault is not None and fault.kind is FaultKind.NOT_FOUND:
        return _not_found(fault, asked=asked)
    return REMEDIES[FaultKind.SERVER if fault is None else fault.kind]


def _not_found(fault: Fault, *, asked: FailedModel) -> str:
    """The model comes first where the server spoke of it."""
    lists = f"`{listing_line(asked.choice)}` lists the models there"
    way = "`/model` shows some, `/model NAME` takes one" if asked.in_session else lists
    said = fault.message.partition(" (asked for ")[0].lower()  # the URL may hold the name, too
    name = asked.choice.model.partition(":")[2].lower()
    if name in said or "model" in said:
        return f"check the model's name: {way}"
    return f"check the address (--base-url), then the model's name: {way}"


def listing_line(choice: Choice) -> str:
    """What lists the models of its endpoint. A query of the address may hold a key, and is left out."""
    words = ["turnwise", "models", choice.model.partition(":")[0]]
    if choice.base_url:
        words += ["--base-url", choice.base_url.partition("?")[0]]
    if choice.api_key_env:
        words += ["--api-key-env", choice.api_key_env]
    return shlex.join(words)
