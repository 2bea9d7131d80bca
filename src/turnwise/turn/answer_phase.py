"""The answer: judged by the wanted schema, and by the type behind it; taken, or asked for once more."""

import msgspec
from msgspec.structs import replace

from turnwise.errors import TurnwiseBug
from turnwise.rules.output import OutputFits, judge_output, refused_output
from turnwise.turn.changes import Change, Repaired, Told, mended
from turnwise.turn.commands import CheckOutput
from turnwise.turn.endings import LOST_A_PIECE, MADE_TO_ANSWER, NO_OUTPUT, UNFINISHED
from turnwise.turn.events import Event, OutputChecked
from turnwise.turn.outcomes import Corrects, GoesOn
from turnwise.turn.phase_moves import Leaving, Left, Move, Over
from turnwise.turn.request_limits import affords_step
from turnwise.turn.turn_end import Ended, reason_of
from turnwise.turn.turn_state import Known
from turnwise.vocab import FinishReason


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An answer that came with `finish`. `partial`: the model was made to answer. One that `lost` a piece on the way is no
    output, and no correction would be the model's to make. `json` fits the schema, while the type behind it looks at it."""

    text: str
    finish: FinishReason
    partial: bool
    lost: bool
    json: str = ""

    def go(self, known: Known) -> Move:
        if self.lost:
            return self._accept(known, output=None, lacks=LOST_A_PIECE)
        wanted = None if known.asking is None else known.asking.output
        if wanted is None:
            return self._accept(known, output=None, lacks=UNFINISHED.get(self.finish, ""))
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
        """The wanted type has looked at the answer."""
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
        """Take the text as the answer; `lacks` says what it is short of, if anything."""
        if known.history.inbox and not self.partial and not known.is_forced and affords_step(known):
            return Move(self, (*changes, Told(known.words.answered())), Over(GoesOn()))
        lacks = lacks or (MADE_TO_ANSWER if self.partial else "")
        reason = reason_of(known, partial=self.partial)
        end = Ended(reason=reason, text=self.text, complete=not lacks, output=output, lacks=lacks)
        return Move(self, changes, Over(end))
