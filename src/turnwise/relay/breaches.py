"""What each kind of repair says about the provider: the rule that was broken, in our words, and where the specification has it;
and the deviations of a stream that our assembler takes without a word (`Deviations`).

A repair that nobody is to blame for has a row, too: a report names it, and does not put it down to the provider.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

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
from turnwise.wire.family import MODULES
from turnwise.wire.relay_facts import relay_facts

Whose = Literal["provider", "failure", "model", "limit", "gateway"]
"""Who causes it: the provider's server by breaking a rule, a request that failed for a moment, the model's own words, an output
limit, or the gateway and its settings."""

Topic = Literal["calls", "events", "ends", "bodies", "json", "utf8", "sse", "http", "turnwise"]

COMMON_SOURCES: Mapping[str, str] = {
    "json": "RFC 8259, The JavaScript Object Notation",
    "utf8": "RFC 8259, section 8.1, and RFC 3629",
    "sse": "WHATWG HTML standard, Server-sent events",
    "http": "RFC 9110, HTTP semantics, and RFC 9112, section 8",
    "turnwise": "turnwise documentation, The gateway",
}


class Breach(msgspec.Struct, frozen=True):
    """One kind of repair: whose doing it is, and the rule that would make it needless."""

    whose: Whose
    topic: Topic
    rule: str


_ONE_VALUE = "The data of an event is one whole JSON value."
_NAMED = "A call names its function before, or with, its first arguments."
_EVENT = "An event has the shape that the API defines for its type."
_SURROGATE = "An escaped character outside of the basic plane is written as both of its surrogates, in one string."

_RULES: Mapping[tuple[Whose, Topic], Mapping[str, str]] = {
    ("provider", "calls"): {
        "id_missing": "Each tool call has an id, and a result is given back under it.",
        "id_twice": "The ids of tool calls are unique.",
        "same_call_twice": "Each tool call is sent once.",
        "id_churn": "All pieces of a tool call belong to one id, which does not change.",
        "index_strayed": "Each piece of a tool call has the index with which the call began.",
        "index_missing": "Each piece of a tool call has an index, which says whose piece it is.",
        "index_shared": "Each tool call of a response has an index of its own.",
        "index_skipped": "The indices of tool calls are counted from 0, without a gap.",
        "id_repeated": "The id of a call stands in its first piece only.",
        "arguments_object": "The arguments of a call are a string that holds JSON.",
        "arguments_empty": "The arguments of a call are JSON: `{}` where there are none.",
        "name_repeated": "The function's name is sent once, in the first piece of its call.",
        "name_joined": "The function's name is sent whole, in the first piece of its call.",
        "name_grown": "The function's name is sent whole, in the first piece of its call.",
        "name_conflict": "A tool call has one function name.",
        "empty_call": "A tool call has a function name.",
        "cumulative": "Each piece brings only the next part of the arguments; clients join the pieces.",
        "empty_then_real": "The pieces of the arguments, joined, are one JSON object: no `{}` stands before it.",
        "several_objects": "The arguments of a tool call are one JSON object.",
        "null_arguments": "The arguments of a tool call are a JSON object, never null.",
        "double_encoded": "The arguments are a JSON object; they are not a JSON string that holds one.",
        "call_without_end": "A call whose arguments come in parts has a last part.",
        "unreadable_argument": "Each part of a call's arguments names its place and its value.",
        "item_input": "The input of a server tool's call is a JSON object.",
        "call_in_text": "A tool call comes in the field for calls. The server reads it out of the model's text.",
    },
    ("provider", "events"): {
        "index_reused": "Each content block of a message has an index of its own.",
        "start_missing": "A call begins with the event that names it; its pieces follow.",
        "final_item_wins": "The last form of an item is what its pieces add up to, when they are joined.",
        "after_final": "No piece of an item follows the event that ends it.",
        "started_again": "A stream is one response: it begins once.",
        "undecodable_chunk": "Each chunk is a JSON object of the shape that the API defines.",
        "unreadable_event": _EVENT,
        "unreadable_json": "The fields of an event have the types that the API defines.",
        "field_skipped": "The fields of a chunk have the types that the API defines.",
        "content_skipped": "The content of a message is text, or parts of a known type.",
        "event_left_out": _EVENT,
        "event_missing": "The sequence numbers of the events have no gap.",
        "event_repeated": "Each event is sent once, and its sequence number stands once.",
        "end_mark_missing": "The last event of a stream is the end mark of its API.",
        "goes_on_after_end": "Nothing follows the end of the response.",
    },
    ("model", "calls"): {
        "call_not_made": "A tool call comes in the field for calls, not in the reasoning or in a refusal.",
        "call_not_read": "The model writes a call in the form that its server reads.",
    },
    ("provider", "utf8"): {
        "half_surrogates": _SURROGATE,
        "lone_surrogate": _SURROGATE,
        "invalid_utf8": "JSON that is sent between systems is UTF-8.",
    },
    ("provider", "json"): {
        "control_character": "Control characters in a string are escaped.",
        "chunk_skipped": _ONE_VALUE,
        "damaged_event": _ONE_VALUE,
        "damaged_body": "The body is one whole JSON object.",
    },
    ("gateway", "turnwise"): {
        "citations_left_out": "A response has at most 4,096 citations here.",
        "dialect": "A server takes a conversation as its API writes it.",
        "stale_thinking": "A client changes nothing that stands before thinking which it sends back.",
        "thinking_left_out": "Thinking goes back behind the same content that it was thought on. Each block counts.",
        "thinking_dropped": "Thinking goes back behind the same content that it was thought on, so the model reads it.",
        "thinking_stale": "Thinking goes back behind the same content that it was thought on.",
        "more_repairs": "Of one response the first 100 repairs are told.",
        "calls_left_out": "The route gives its clients one call at a time.",
        "not_carried": "The upstream's API does not take this as the client said it.",
        "other_api": "The model takes such a request in the other API of its provider.",
        "stop_served": "The upstream takes no stop sequences here. The gateway ends the answer.",
        "output_capped": "The route caps the output below what the client asked for.",
    },
    ("provider", "bodies"): {
        "body_for_stream": "A request with `stream` is answered with a stream of events.",
        "unreadable_content": "The `content` of a message is an array of blocks.",
        "unreadable_block": "Each block of the content has the shape of its type.",
        "loose_body": "The fields of the response have the types that the API defines.",
    },
    ("provider", "sse"): {
        "chunks_glued": _ONE_VALUE,
        "glued_json": _ONE_VALUE,
        "noise_skipped": "What is no event is a comment: a line that begins with a colon.",
    },
    ("provider", "ends"): {
        "finish_hides_cut": "A response that a limit cut says so in its finish reason.",
        "finish_hides_limit": "A response that a limit cut says so in its finish reason.",
        "finish_hides_calls": "A response with calls ends with the reason for calls.",
        "goes_on_after_finish": "The finish reason stands behind the last word and the last call.",
        "finish_without_calls": "Only a response with calls ends with the reason for calls.",
        "finish_differs": "A response has one finish reason.",
        "unknown_finish": "The finish reason is a word from the list of the API.",
        "no_finish_reason": "A response says why it ended, before the end mark.",
    },
    ("gateway", "ends"): {
        "finish_of_forced_call": "A call that the request forced may end with the reason for answers. The gateway says `calls`.",
    },
    ("provider", "http"): {
        "left_open": "A stream ends with its end mark, and then the server ends the body of the response.",
    },
    ("failure", "http"): {
        "asked_again": "A request failed, was refused for now, or broke off. The gateway asked again.",
    },
    ("limit", "ends"): {
        "continued_call": "A limit cut a call. The gateway asked for the rest of it.",
        "continued_text": "A limit cut a text. The gateway asked for the rest of it.",
        "cut_call_left_out": "A limit cut a call whose arguments are an object: it is left out.",
        "continuation_refused": "A limit cut the response, and it could not be continued.",
    },
    ("model", "turnwise"): {
        "continued_past_end": "A continuation ends where the arguments end.",
        "continued_after_words": "A continuation begins where the text was cut.",
        "continued_in_fence": "A continuation has no code fence around it.",
        "continued_with_overlap": "A continuation repeats nothing of what was there.",
        "forced_call_missing": "A model that cannot be forced to call a tool does so when a sentence asks for it.",
    },
}
"""Whose doing a kind is, and the topic of its rule -> kind -> the rule that would make it needless."""

BREACHES: Mapping[str, Breach] = {
    kind: Breach(whose, topic, rule) for (whose, topic), rules in _RULES.items() for kind, rule in rules.items()
}


def breach_of(kind: str, *, family: str) -> Breach | None:
    """What a repair of this kind says of a provider of this family; None for a kind of another version."""
    excused = relay_facts(family).excused.get(kind) if family in MODULES else None
    return BREACHES.get(kind) if excused is None else Breach("gateway", "calls", excused)


def source_of(breach: Breach, *, family: str) -> str:
    """Where the rule stands."""
    own = relay_facts(family).sources.get(breach.topic) if family in MODULES else None
    return own or COMMON_SOURCES.get(breach.topic, "")


def blames_provider(kind: str, *, family: str) -> bool:
    """Whether a request with such a repair counts as one that the provider did not answer rightly."""
    found = breach_of(kind, family=family)
    return found is not None and found.whose == "provider"


# --- what our assembler takes without a word
#
# An agent loop needs no notice of a call without an index: the call is whole, and that is all. A gateway rewrites it for its
# client, so it tells, as what it does is what a client without it would have had to do. Only streams have these: a body is read
# whole, and the assembler tells what it had to mend.

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
        is_late = self._facts.finish_is_last and self._finish is not None and not self._spoke_late
        if is_late and not SAYING.isdisjoint(map(type, frames)):  # told once: a client may run its calls at the reason
            self._spoke_late = True
            self._note("goes_on_after_finish", "response", "words or calls came behind the finish reason")
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

    def _note_once(self, kind: str, call: _SeenCall, what: str) -> None:
        if kind not in call.told:
            call.told |= {kind}
            self._note(kind, f"call {call.number}", what)

    def _note(self, kind: str, where: str, what: str) -> None:
        if len(self.told) < MOST_TOLD:
            self.told.append(Repair(kind, where, what))
