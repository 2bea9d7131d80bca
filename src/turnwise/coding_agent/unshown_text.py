"""What of a turn's end a person at a terminal has not seen yet: text that was streamed is not shown a second time."""

from collections.abc import Collection

import msgspec

from turnwise.rules.advice import for_people
from turnwise.rules.last_step import read_local_answer, results_said
from turnwise.turn.config import TurnResult
from turnwise.turn.endings import ENDED, HAD_ARRIVED, SAY_NOTHING
from turnwise.vocab import StopReason

_CANCELLED = ENDED["cancel"][1]  # the line below the answer says so too


class ShownTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What stands on the screen of this turn: `at_hand` of the last response, `before` of those before it, `results` the ids
    of calls whose result stands there whole. `notes`: the line that says how the turn ended comes there too."""

    at_hand: str = ""
    before: str = ""
    results: Collection[str] = ()
    notes: bool = True

    def has(self, text: str) -> bool:
        wanted = text.strip()
        return wanted in self.at_hand or wanted in self.before or wanted in self.before + self.at_hand

    def ends_with(self, text: str) -> bool:
        return self.at_hand.strip() == text.strip() or (
            not self.at_hand and self.before.rstrip().endswith(text.strip())
        )


class Unseen(msgspec.Struct, frozen=True):
    """`rest` goes on right behind the response at hand, `answer` is another text of the model's; `own` is turnwise's."""

    rest: str = ""
    answer: str = ""
    own: str = ""


def unseen(result: TurnResult, *, shown: ShownTurn) -> Unseen:
    if result.origin == "local":
        return _of_local_answer(result, shown=shown)
    if shown.ends_with(result.text):
        return Unseen()
    if result.stop_reason is StopReason.REFUSED and _has_lines(result.text, shown=shown):
        return Unseen()
    return Unseen(answer=result.text)


def _of_local_answer(result: TurnResult, *, shown: ShownTurn) -> Unseen:
    if result.stop_reason is StopReason.REFUSED:
        own, _, arrived = result.text.partition(HAD_ARRIVED)
        return Unseen(own=own if _has_lines(arrived, shown=shown) else result.text)
    parts = read_local_answer(result.text, messages=result.messages, left_out=SAY_NOTHING)
    rest, said = _rest_of(parts.said, shown=shown)
    why = "" if parts.why == _CANCELLED and shown.notes else parts.why
    results = tuple([one for one in parts.results if one.call_id not in shown.results])
    own = msgspec.structs.replace(parts, why=why, said=said, results=()).text
    return Unseen(rest=rest, own=for_people(f"{own}{results_said(results)}".strip()))


def _rest_of(said: str, *, shown: ShownTurn) -> tuple[str, str]:
    """Of what the model had said: the rest of the response at hand, or all of it if nothing of it is on the screen."""
    if shown.has(said):
        return "", ""
    begun = shown.at_hand.lstrip()
    return (said[len(begun) :], "") if begun and said.startswith(begun) else ("", said)


def _has_lines(text: str, *, shown: ShownTurn) -> bool:
    return shown.has(text) or all(shown.has(line) for line in text.splitlines())
