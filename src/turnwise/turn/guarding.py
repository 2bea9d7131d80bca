"""The loop guard's place in a turn: it judges the calls of a step before they run and looks at their results afterwards."""

from collections.abc import Mapping, Sequence

import msgspec

from turnwise.rules.loops import Loop, LoopGuard, Verdict, remembered_result, word
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer
from turnwise.vocab import Message, Text, ToolCall, ToolResult

# More results with a note than a loop can have before it ends the turn.
MAX_NOTED = 8


class Guarding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the guard knows, and what it said of the calls at hand. With `ends` the next request is the forced answer."""

    guard: LoopGuard = LoopGuard()
    judged: Verdict | None = None
    ends: Loop | None = None
    noted: tuple[str, ...] = ()  # calls whose result ends with words of ours

    def judge(self, calls: Sequence[ToolCall]) -> "Guarding":
        """`calls` as the model wrote them: in history the arguments of a cut one are emptied."""
        return msgspec.structs.replace(self, judged=self.guard.before(calls))

    def answers(
        self, planned: Sequence[PlannedCall], *, messages: Sequence[Message], offers: Mapping[str, ToolOffer]
    ) -> dict[str, ToolResult]:
        """The results of those calls that do not run, as they have run before and gave the same each time."""
        remembered = self.judged.remembered if self.judged is not None else {}
        calls = [plan.call for plan in planned if plan.call.id in remembered]
        if not calls:
            return {}
        wanted = {remembered[call.id] for call in calls}
        earlier = {
            part.call_id: self._without_note(part)
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResult) and part.call_id in wanted
        }
        return {
            call.id: remembered_result(
                call, earlier=earlier[found], changes=offers[call.name].effect not in ("none", "read")
            )
            for call in calls
            if (found := remembered[call.id]) in earlier
        }

    def close(
        self, results: Sequence[ToolResult], *, offers: Mapping[str, ToolOffer]
    ) -> tuple["Guarding", tuple[ToolResult, ...]]:
        """The guard that knows the judged step too, and its results, the last with a word to a model that repeats itself."""
        if self.judged is None or not results:
            return msgspec.structs.replace(self, judged=None), tuple(results)
        spared = frozenset([name for name, offer in offers.items() if offer.repeatable])
        guard, loop = self.guard.after(self.judged, results=results, spared=spared)
        closed = msgspec.structs.replace(self, guard=guard, judged=None, ends=self.judged.ends)
        if loop is None:
            return closed, tuple(results)
        last = results[-1]
        told = msgspec.structs.replace(last, content=(*last.content, Text(word(loop))))
        noted = (*self.noted, last.call_id)[-MAX_NOTED:]
        return msgspec.structs.replace(closed, noted=noted), (*results[:-1], told)

    def _without_note(self, result: ToolResult) -> ToolResult:
        if result.call_id not in self.noted:
            return result
        return msgspec.structs.replace(result, content=result.content[:-1])
