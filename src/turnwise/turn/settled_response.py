"""What a response that is settled gives: a function, not a phase. The step decides what follows."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from turnwise.rules.history import error_result
from turnwise.rules.last_step import CALL_NOT_MADE_AGAIN, CALL_NOT_READ_AGAIN, EMPTY_AGAIN
from turnwise.turn.changes import Appended, Change, IdsTaken, Repaired, Told
from turnwise.turn.endings import NOT_RUN_CONTINUING, REFUSED, answer_text
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.response_calls import Adopted, adopt
from turnwise.turn.turn_state import Known
from turnwise.vocab import CALL_NOT_MADE, CALL_NOT_READ, FinishReason, Message, Response, calls_of, refusal_of, text_of
from turnwise.vocab.hidden_characters import says_something

NOTES = {CALL_NOT_MADE: CALL_NOT_MADE_AGAIN, CALL_NOT_READ: CALL_NOT_READ_AGAIN}
"""What the model is told of a call that did not come, by the repair that tells of it."""

ReadingKind = Literal["faulted", "refuses", "called", "disobeyed", "paused", "lost all", "empty", "said"]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """A settled response as the turn takes it. `text` is what it says, paused responses before it included; `lost`: a piece of
    that did not arrive. `note` is what the model is told
    where nothing of it is left."""

    kind: ReadingKind
    adopted: Adopted
    response: Response
    asking: RequestTerms
    text: str
    refusal: str
    lost: bool
    note: str

    @property
    def changes(self) -> tuple[Change, ...]:
        """Whatever it is, its repairs and its ids are the turn's."""
        repaired = (Repaired(self.adopted.repairs),) if self.adopted.repairs else ()
        return (*repaired, IdsTaken([call.id for call in self.adopted.calls])) if self.adopted.calls else repaired


def read(response: Response, *, known: Known, asking: RequestTerms) -> Reading:
    """What it gives: of what is there, the first that counts."""
    adopted = adopt(
        response,
        offers=known.offers,
        on_offer=asking.tools,
        taken=known.history.call_ids,
        family=known.config.family,
    )
    text = known.words.said + answer_text(response.message)
    lost = response.lost or known.words.said_lost
    refusal = refusal_of(response.message)
    kinds = {one.kind for one in response.repairs} if response.repairs else ()
    # Words beside such a call are no answer yet; the second time they are all that there is.
    is_unread = CALL_NOT_READ in kinds and not (asking.forced or known.tally.empties)
    return Reading(
        kind=_kind(
            response, adopted=adopted, asking=asking, text="" if is_unread else text, refusal=refusal, lost=lost
        ),
        adopted=adopted,
        response=response,
        asking=asking,
        text=text,
        refusal=refusal,
        lost=lost,
        note=next((note for kind, note in NOTES.items() if kind in kinds), EMPTY_AGAIN),
    )


def _kind(
    response: Response, *, adopted: Adopted, asking: RequestTerms, text: str, refusal: str, lost: bool
) -> ReadingKind:
    if response.fault is not None:
        return "faulted"
    if response.finish in REFUSED or (says_something(refusal) and not adopted.calls):
        return "refuses"
    if adopted.calls:
        return "disobeyed" if asking.forced else "called"
    if response.finish is FinishReason.PAUSE and adopted.message.parts and not asking.forced:
        return "paused"
    if says_something(text):
        return "said"
    return "lost all" if lost else "empty"


def recorded(adopted: Adopted, *, calls_answer: str) -> Sequence[Change]:
    """A response whose calls, if any, do not run."""
    changes: list[Change] = []
    if adopted.message.parts:
        changes.append(Appended(adopted.message))
    if adopted.calls:
        results = [error_result(call, text=calls_answer) for call in calls_of(adopted.message)]
        changes.append(Appended(Message("tool", tuple(results))))
    return changes


def left_in_history(left: Response, *, known: Known) -> Sequence[Change]:
    """A cut response as far as it came, in the history; none of its calls has run."""
    taken = known.history.call_ids
    adopted = adopt(left, offers=known.offers, on_offer=(), taken=taken, family=known.config.family)
    ids = IdsTaken([call.id for call in adopted.calls])
    told = Told(known.words.cut(text_of(left.message)))
    return ids, told, *recorded(adopted, calls_answer=NOT_RUN_CONTINUING)
