"""What to do about a provider that failed: one line of advice, with the command that shows more."""

import shlex

import msgspec

from turnwise.faces.cli.choice import Choice
from turnwise.vocab import Fault, FaultKind

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
