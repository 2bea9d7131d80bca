"""What a provider's stream says otherwise than its API's reference, and our assembler takes without a word.

An agent loop needs no notice of a call without an index: the call is whole, and that is all. A gateway writes it anew for its
client, so it tells, as what it does is what a client without it would have had to do. Only streams have these: a body is read
whole, and the assembler tells what it had to mend.
"""

from collections.abc import Sequence

import msgspec

from turnwise.vocab import (
    Finished,
    FinishReason,
    Frame,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    Repair,
    Response,
    TextDelta,
    ToolCall,
    ToolCallDelta,
)
from turnwise.wire.relay_facts import relay_facts

MOST_TOLD = 50  # of one response
SAYING = frozenset([TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta, PartDone])
"""The frames in which a model says something."""


class _SeenCall(msgspec.Struct):
    """One call so far: its id, whether it has arguments, and what was told of it."""

    number: int
    id: str | None
    has_arguments: bool = False
    told: frozenset[str] = frozenset()


class Deviations:
    """Give it each event's bytes with the frames as they stood on the wire, then the whole response (`added_to`).

    `forces_call`: the request left the model no choice but to call, which changes the finish reason of some APIs.
    """

    def __init__(self, family: str, *, forces_call: bool) -> None:
        self.told: list[Repair] = []
        self._facts = relay_facts(family)
        self._forces_call = forces_call
        self._mark = self._facts.end_mark
        self._by_index: dict[int, _SeenCall] = {}
        self._calls: list[_SeenCall] = []  # of Chat Completions, in order
        self._nameless = 0  # of those, but for the last one: how many have no id
        self._has_calls = False
        self._finish: FinishReason | None = None
        self._has_ended = False
        self._goes_on = False
        self._spoke_late = False

    def take(self, event: bytes, frames: Sequence[Frame]) -> None:
        if not frames:
            self._take_silent(event)
            return
        if self._facts.finish_is_last and self._finish is not None and not SAYING.isdisjoint(map(type, frames)):
            self._note_behind_finish()
        for frame in frames:
            match frame:
                case ToolCallDelta():
                    self._has_calls = True
                    if self._facts.indexed_calls:
                        self._take_call(frame)
                case PartDone(part=ToolCall()):
                    self._has_calls = True
                case Finished(reason=reason):
                    self._finish = reason
                case _:
                    pass

    def added_to(self, response: Response) -> Response:
        """The response with what was found among its repairs."""
        self._judge_end(response)
        return msgspec.structs.replace(response, repairs=(*response.repairs, *self.told)) if self.told else response

    # -- events ------------------------------------------------------------------------------------------------------

    def _take_silent(self, event: bytes) -> None:
        """An event without a frame: the end mark, or something behind it."""
        if self._mark and not self._has_ended and self._mark in event:
            self._has_ended = True
        elif not self._goes_on and self._is_behind_end(event):
            self._goes_on = True
            self._note("goes_on_after_end", "stream", "events came behind the end of the response")

    def _is_behind_end(self, event: bytes) -> bool:
        if b"data:" not in event:
            return False
        if self._mark:
            return self._has_ended
        is_harmless = self._facts.knows_done and b"[DONE]" in event  # its clients know that mark
        return self._finish is not None and not is_harmless

    def _take_call(self, frame: ToolCallDelta) -> None:
        """A piece of a call of Chat Completions, whose index says which."""
        known = self._calls[-1] if self._calls else None
        if frame.index is not None:
            known = self._by_index.get(frame.index)
        begins = bool(frame.name) and (known is None or (bool(frame.id) and frame.id != known.id))
        if frame.index is None and frame.name and frame.id is None:
            begins = True  # nothing tells it from the call before but its name
        if begins:
            known = self._begin(frame, before=known)
        if known is None:
            return  # a piece without a beginning: the assembler tells of it
        self._judge_piece(frame, known, begins=begins)

    def _begin(self, frame: ToolCallDelta, *, before: _SeenCall | None) -> _SeenCall:
        call = _SeenCall(len(self._calls), frame.id)
        if self._calls and self._calls[-1].id is None:
            self._nameless += 1
        self._calls.append(call)
        if frame.index is None:
            self._note("index_missing", f"call {call.number}", "it came without an index")
            return call
        if before is not None:
            self._note("index_shared", f"call {call.number}", f"it came on the index of call {before.number}")
        elif frame.index > call.number and not self._nameless:
            self._note("index_skipped", f"call {call.number}", f"it came on index {frame.index}")
        self._by_index[frame.index] = call
        return call

    def _judge_piece(self, frame: ToolCallDelta, call: _SeenCall, *, begins: bool) -> None:
        call.has_arguments = call.has_arguments or bool(frame.arguments)
        if frame.whole:
            self._note_once("arguments_object", call, "its arguments came as an object in place of a text")
        if not begins and frame.index is not None and frame.id and frame.id == call.id:
            self._note_once("id_repeated", call, "its id stood in a later piece as well")

    # -- the end -----------------------------------------------------------------------------------------------------

    def _judge_end(self, response: Response) -> None:
        if self._finish is None or response.fault is not None:
            return
        finish, self._finish = self._finish, None
        for call in self._calls:
            if not call.has_arguments and finish is FinishReason.TOOL_CALLS:
                self._note("arguments_empty", f"call {call.number}", "it has no arguments, not even an empty object")
        if finish is FinishReason.STOP and self._has_calls and self._facts.calls_finish:
            kind = "finish_of_forced_call" if self._forces_call else "finish_hides_calls"
            self._note(kind, "response", "the finish reason is the one for answers, and there are calls")
        if self._mark and not self._has_ended:
            self._note("end_mark_missing", "stream", f"`{self._mark.decode()}` did not come")

    def _note_behind_finish(self) -> None:
        """Once. A client may run its calls when the reason comes."""
        if not self._spoke_late:
            self._spoke_late = True
            self._note("goes_on_after_finish", "response", "words or calls came behind the finish reason")

    def _note_once(self, kind: str, call: _SeenCall, what: str) -> None:
        if kind not in call.told:
            call.told |= {kind}
            self._note(kind, f"call {call.number}", what)

    def _note(self, kind: str, where: str, what: str) -> None:
        if len(self.told) < MOST_TOLD:
            self.told.append(Repair(kind, where, what))
