"""What is said where the model did not say it: results of calls that did not run, and the ends without an answer."""

from turnwise.rules.last_step import NOT_RUN_LAST_STEP
from turnwise.turn.continuing import NOT_RUN_CONTINUING
from turnwise.vocab import Fault, FinishReason, Response, StopReason

NOT_REPORTED = "No result was reported for this call. The tool may or may not have run."
NOT_RUN_REFUSED = "Not run: the response that asked for it was refused or filtered."
NOT_RUN_FAULT = "Not run: the provider failed before its response was whole."
LOST = (
    "The run was interrupted before a result was recorded. The tool may or may not have run: look before you repeat it."
)
INTERRUPTED = {
    "cancel": "Cancelled by the user before a result was there. The tool may have run in part.",
    "deadline": "The turn's time was up before a result was there. The tool may have run in part.",
}
NOT_STARTED = {
    "cancel": "Not run: cancelled by the user before this call had started.",
    "deadline": "Not run: the turn's time was up before this call had started.",
}
ENDED = {
    "cancel": (StopReason.CANCELLED, "The turn was cancelled before there was an answer."),
    "deadline": (StopReason.TIME_LIMIT, "The turn's time was up before there was an answer."),
}
# Results that no tool has returned and that say nothing about the work: an answer of ours does not list them.
SAY_NOTHING = frozenset({NOT_RUN_LAST_STEP, NOT_RUN_REFUSED, NOT_RUN_FAULT, NOT_RUN_CONTINUING, *NOT_STARTED.values()})


def why_failed(fault: Fault) -> str:
    status = f" ({fault.status})" if fault.status is not None else ""
    return f"The provider failed{status}, {fault.kind}: {fault.message or 'it did not say why'}"


def refused_text(response: Response, *, refusal: str, text: str) -> tuple[str, bool]:
    """The answer of a refused or filtered response, and whether it is ours."""
    said = "\n".join([part for part in (refusal.strip(), text.strip()) if part])
    if response.finish is FinishReason.CONTENT_FILTER:
        word = f" (`{response.provider_finish}`)" if response.provider_finish else ""
        own = f"The provider's content filter stopped the answer{word}."
        return f"{own}\n\nWhat had arrived: {said}" if said else own, True
    if said:
        return said, False
    return "The model refused to answer and gave no reason.", True
