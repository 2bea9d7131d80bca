"""What follows from a settled response: calls, an answer, one more step, or an end."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.answer_room import EMPTY_AGAIN, GO_ON, NOT_RUN_LAST_STEP
from turnwise.rules.schema import OutputFits, judge_output, refused_output
from turnwise.turn.call_sorting import FromResponse
from turnwise.turn.events import CheckOutput, Event, OutputChecked
from turnwise.turn.fault_counts import Tally
from turnwise.turn.outcomes import (
    CALL_LEFT_OVER,
    LOST_A_PIECE,
    MADE_TO_ANSWER,
    NO_OUTPUT,
    NOT_RUN_FAULT,
    NOT_RUN_REFUSED,
    PLAIN_WISH,
    UNFINISHED,
    Begin,
    BeginCalls,
    Corrects,
    Ended,
    Ends,
    Fails,
    GoesOn,
    GoOn,
    Leaving,
    Left,
    Move,
    Over,
    Wish,
    reason_of,
    refused_text,
)
from turnwise.turn.request_plan import as_last
from turnwise.turn.settled_response import Reading, recorded
from turnwise.turn.turn_state import Appended, Change, Known, PauseSettled, Repaired, Replaced, affords_step, mended
from turnwise.turn.verdicts import Barred
from turnwise.vocab import CALL_NOT_READ, FinishReason, ProviderItem, StopReason, Text
from turnwise.vocab.hidden_characters import says_something


# The answer: the output schema judges it, and the type behind the schema. It is accepted, or the model is asked again.
class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An answer that came with `finish`. `partial`: the model was made to answer. If the answer `lost` a piece on the way, it is
    not an output, and the model could not correct that. `is_markup`: it holds a call that could not be read. `json` fits the
    schema, and the type behind it is about to check it."""

    text: str
    finish: FinishReason
    partial: bool
    lost: bool
    is_markup: bool = False
    json: str = ""

    def go(self, known: Known) -> Move:
        if self.lost:
            return self._accept(known, output=None, lacks=LOST_A_PIECE)
        wanted = None if known.asking is None else known.asking.output
        if wanted is None:
            lacks = CALL_LEFT_OVER if self.is_markup else ""
            return self._accept(known, output=None, lacks=UNFINISHED.get(self.finish, lacks))
        verdict = judge_output(self.text, output=wanted, finish=self.finish)
        if isinstance(verdict, OutputFits):
            changes = (Repaired(verdict.repairs),)
            if known.config.checks_output and wanted == known.config.output:
                return Move(replace(self, json=verdict.json), changes, CheckOutput(step=known.step, json=verdict.json))
            return self._accept(known, output=verdict.json, lacks=UNFINISHED.get(self.finish, ""), changes=changes)
        if self._may_correct(known):
            return Move(self, (), Over(Corrects(text=self.text, correction=verdict.correction)))
        return self._accept(known, output=None, lacks=UNFINISHED.get(self.finish, NO_OUTPUT))

    def receive(self, event: Event, known: Known) -> Move:
        """The output type has checked the answer."""
        if not isinstance(event, OutputChecked):
            raise TurnwiseBug(f"an answer does not wait for {type(event).__name__}")
        problems = event.problems
        if not problems:
            return self._accept(known, output=self.json, lacks=UNFINISHED.get(self.finish, ""))
        if self._may_correct(known):
            return Move(self, (), Over(Corrects(text=self.text, correction=refused_output(problems))))
        changes = (mended("output_refused", "answer", "; ".join(problems)),)
        return self._accept(known, output=None, lacks=UNFINISHED.get(self.finish, NO_OUTPUT), changes=changes)

    def hear(self, outcome: object, known: Known) -> Move:
        raise TurnwiseBug("an answer begins no phase")

    def leave(self, leaving: Leaving, known: Known, told: object) -> Left:
        return Left()

    def _may_correct(self, known: Known) -> bool:
        return known.tally.corrections < known.config.max_output_corrections and not known.is_forced

    def _accept(self, known: Known, *, output: str | None, lacks: str, changes: tuple[Change, ...] = ()) -> Move:
        """Accept the text as the answer; `lacks` says what is missing from it, if anything."""
        if known.history.inbox and not self.partial and not known.is_forced and affords_step(known):
            return Move(self, (*changes, Replaced(words=known.words.answered())), Over(GoesOn()))
        lacks = lacks or (MADE_TO_ANSWER if self.partial else "")
        reason = reason_of(known, partial=self.partial)
        end = Ended(reason=reason, text=self.text, complete=not lacks, output=output, lacks=lacks)
        return Move(self, changes, Over(end))


EMPTY_TWICE = "The model gave two empty responses in a row, so there is no answer of its own."
EMPTY_LAST = "The model gave an empty response in the last step."
CALLED_LAST = "The model called a tool in the last step, where none is allowed."
NOT_WHOLE = "The response did not arrive whole, so there is no answer of the model's own."


class BeyondCap(msgspec.Struct, frozen=True, kw_only=True):
    """There is no answer, and `why`: the model is asked once more, beyond the cap if necessary."""

    why: str
    wish: Wish
    disobeyed: bool = False


class Follows(msgspec.Struct, frozen=True):
    then: Begin | BeginCalls | Over | BeyondCap
    changes: Sequence[Change] = ()


def follows(found: Reading, *, known: Known, barred: tuple[Barred, ...], gave_up: str) -> Follows:
    """What follows from the response. Its `barred` calls were cut, and the rules deny them; `gave_up` says why there was no
    further attempt."""
    adopted, response = found.adopted, found.response
    match found.kind:
        case "called":
            source = FromResponse(adopted=adopted, response=response, asking=found.asking, barred=barred)
            return Follows(BeginCalls(source), (Appended(adopted.message),))
        case "said":
            answer = Answer(
                text=found.text,
                finish=response.finish,
                partial=found.asking.partial,
                lost=found.lost,
                is_markup=any(one.kind == CALL_NOT_READ for one in response.repairs),
            )
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
    """The model called a tool although none was allowed: it does not run, and the response's text is kept if there is one."""
    changes = recorded(found.adopted, calls_answer=NOT_RUN_LAST_STEP)
    if says_something(found.text):
        answer = Answer(text=found.text, finish=found.response.finish, partial=True, lost=found.lost)
        return Follows(Begin(answer), changes)
    return Follows(BeyondCap(why=CALLED_LAST, wish=Wish(purpose="answer"), disobeyed=True), changes)


def _paused(found: Reading, *, known: Known) -> Follows:
    """Send the content back so that the model continues. Before a forced answer only its text is sent: an instruction must not
    follow a server-side tool without a result."""
    goes_last = known.config.traits.pause_goes_back_last
    message = as_last(found.adopted.message) if goes_last else found.adopted.message
    told = Replaced(words=known.words.paused(found.text, lost=found.lost))
    needs_word = not goes_last and not known.config.accepts_prefill
    wish = Wish(note=GO_ON) if needs_word else PLAIN_WISH
    return Follows(Over(GoOn(wish)), (told, Appended(message, paused=True)))


def _lost_all(found: Reading, *, known: Known) -> Follows:
    """The model's text did not arrive: ask again as for an empty response, but no more often than for any lost piece."""
    if not known.tally.may_ask_for_lost:
        return Follows(Over(Ends(why=NOT_WHOLE)))
    return _empty(found, known=known, tally=known.tally.lost_in(known.step), note=EMPTY_AGAIN)


def _empty(found: Reading, *, known: Known, tally: Tally, note: str) -> Follows:
    """Ask once more, as a step or as the one additional request; then turnwise itself answers (promise end:never-empty)."""
    tally = tally.after("empty")
    changes: tuple[Change, ...] = (PauseSettled(), Replaced(tally=tally))
    parts = found.adopted.message.parts
    if any(isinstance(part, ProviderItem) or (isinstance(part, Text) and says_something(part.text)) for part in parts):
        # a server-side tool's work without a text about it, or a text beside an unreadable call
        changes = (*changes, Appended(found.adopted.message))
    if tally.empties > 1:
        return Follows(Over(Ends(why=EMPTY_TWICE)), changes)
    wish = Wish(note=note, purpose="answer")
    if known.is_forced:
        return Follows(BeyondCap(why=EMPTY_LAST, wish=wish), changes)
    return Follows(Over(GoOn(wish)), changes)
