"""What follows from a response that is settled: calls, an answer, one more step, or an end."""

from collections.abc import Sequence

import msgspec

from turnwise.rules.last_step import EMPTY_AGAIN, GO_ON, NOT_RUN_LAST_STEP
from turnwise.turn.answer_phase import Answer
from turnwise.turn.call_sorting import FromResponse
from turnwise.turn.changes import Appended, Change, PauseSettled, Tallied, Told
from turnwise.turn.cut_call_check import Barred
from turnwise.turn.endings import NOT_RUN_FAULT, NOT_RUN_REFUSED, refused_text
from turnwise.turn.fault_counts import Tally
from turnwise.turn.outcomes import PLAIN_WISH, GoOn, Wish
from turnwise.turn.phase_moves import Begin, BeginCalls, Over
from turnwise.turn.request_plan import PAUSE_GOES_BACK_LAST, as_last
from turnwise.turn.settled_response import Reading, recorded
from turnwise.turn.turn_end import Ended, Ends, Fails
from turnwise.turn.turn_state import Known
from turnwise.vocab import ProviderItem, StopReason, Text
from turnwise.vocab.hidden_characters import says_something

EMPTY_TWICE = "The model gave two empty responses in a row, so there is no answer of its own."
EMPTY_LAST = "The model gave an empty response in the last step."
CALLED_LAST = "The model called a tool in the last step, where none is allowed."
NOT_WHOLE = "The response did not arrive whole, so there is no answer of the model's own."


class BeyondCap(msgspec.Struct, frozen=True, kw_only=True):
    """There is no answer, and `why`: it is asked for once more, beyond the cap if need be."""

    why: str
    wish: Wish
    disobeyed: bool = False


class Follows(msgspec.Struct, frozen=True):
    then: Begin | BeginCalls | Over | BeyondCap
    changes: Sequence[Change] = ()


def follows(found: Reading, *, known: Known, barred: tuple[Barred, ...], gave_up: str) -> Follows:
    """`barred` are calls of it that were cut, and that the rules deny; `gave_up` says why there was no further attempt."""
    adopted, response = found.adopted, found.response
    match found.kind:
        case "called":
            source = FromResponse(adopted=adopted, response=response, asking=found.asking, barred=barred)
            return Follows(BeginCalls(source), (Appended(adopted.message),))
        case "said":
            answer = Answer(text=found.text, finish=response.finish, partial=found.asking.partial, lost=found.lost)
            return Follows(Begin(answer), recorded(adopted, calls_answer=NOT_RUN_LAST_STEP))
        case "faulted":
            assert response.fault is not None
            fails = Fails(fault=response.fault, arrived=found.text, gave_up=gave_up)
            return Follows(Over(fails), recorded(adopted, calls_answer=NOT_RUN_FAULT))
        case "refuses":
            said, ours = refused_text(response, refusal=found.refusal, text=found.text)
            why = (response.explanation or "").strip()
            end = Ended(reason=StopReason.REFUSED, text=said, lacks=why, local=ours)
            return Follows(Over(end), recorded(adopted, calls_answer=NOT_RUN_REFUSED))
        case "disobeyed":
            return _disobeyed(found)
        case "paused":
            return _paused(found, known=known)
        case "lost all":
            return _lost_all(found, known=known)
        case "empty":
            return _empty(found, known=known, tally=known.tally, note=found.note)


def _disobeyed(found: Reading) -> Follows:
    """The model called a tool where none was allowed: not executed, its text kept if there is one."""
    changes = recorded(found.adopted, calls_answer=NOT_RUN_LAST_STEP)
    if says_something(found.text):
        answer = Answer(text=found.text, finish=found.response.finish, partial=True, lost=found.lost)
        return Follows(Begin(answer), changes)
    return Follows(BeyondCap(why=CALLED_LAST, wish=Wish(purpose="answer"), disobeyed=True), changes)


def _paused(found: Reading, *, known: Known) -> Follows:
    """Send the content back to go on. Before a forced answer only its text: a server-side tool that has no result yet
    may not be followed by an instruction."""
    goes_last = known.config.family in PAUSE_GOES_BACK_LAST
    message = as_last(found.adopted.message) if goes_last else found.adopted.message
    told = Told(known.words.paused(found.text, lost=found.lost))
    needs_word = not goes_last and not known.config.accepts_prefill
    wish = Wish(note=GO_ON) if needs_word else PLAIN_WISH
    return Follows(Over(GoOn(wish)), (told, Appended(message, paused=True)))


def _lost_all(found: Reading, *, known: Known) -> Follows:
    """What the model said did not arrive: ask on as for an empty response, but no oftener than for any lost piece."""
    if not known.tally.may_ask_for_lost:
        return Follows(Over(Ends(why=NOT_WHOLE)))
    return _empty(found, known=known, tally=known.tally.lost_in(known.step), note=EMPTY_AGAIN)


def _empty(found: Reading, *, known: Known, tally: Tally, note: str) -> Follows:
    """Ask once more, as a step or as the one extra request; then answer ourselves (promise end:never-empty)."""
    tally = tally.after("empty")
    changes: tuple[Change, ...] = (PauseSettled(), Tallied(tally))
    parts = found.adopted.message.parts
    if any(isinstance(part, ProviderItem) or (isinstance(part, Text) and says_something(part.text)) for part in parts):
        # a server-side tool's work without a word about it, or words beside a call that could not be read
        changes = (*changes, Appended(found.adopted.message))
    if tally.empties > 1:
        return Follows(Over(Ends(why=EMPTY_TWICE)), changes)
    wish = Wish(note=note, purpose="answer")
    if known.is_forced:
        return Follows(BeyondCap(why=EMPTY_LAST, wish=wish), changes)
    return Follows(Over(GoOn(wish)), changes)
