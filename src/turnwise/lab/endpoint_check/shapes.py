"""What the wire of one answer shows beside the repairs: names of `meanings`, in the order of that table. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from turnwise.assembly.json_text import KINDS
from turnwise.lab.families import FAMILIES
from turnwise.vocab import (
    CALL_NOT_READ,
    NO_FINISH_REASON,
    ArgumentsState,
    Fault,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Reasoning,
    Request,
    Response,
    ToolCallDelta,
    calls_of,
)

# What one request showed, as data. Nothing here is judged.


BodyLook = Literal["stream", "json", "html", "other", "nothing"]


class Marks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the bytes of the answer show beside its frames. `comments` are comment lines of the stream, `has_done` is the
    end mark `[DONE]`. `is_doubled`: the same bytes came a second time."""

    status: int | None = None
    content_type: str = ""
    look: BodyLook = "nothing"
    size_bytes: int = 0
    comments: int = 0
    has_done: bool = False
    is_doubled: bool = False


class Observed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One probe's answer. `events` are the frames as the decoder read them, before assembly, those of one event together.
    `answered`: a response came, whole or not; else `fault` says why not. `waited` counts the times that the server asked to wait
    before it answered. `is_steady`: pieces came until the time was up. `other_api` is the family whose answer it is, if it is not
    this one."""

    probe: str
    request: Request
    events: tuple[tuple[Frame, ...], ...] = ()
    response: Response | None = None
    answered: bool = False
    fault: Fault | None = None
    marks: Marks = Marks()
    seconds: float = 0.0
    first_event_s: float | None = None
    taken_ids: frozenset[str] = frozenset()
    waited: int = 0
    is_steady: bool = False
    other_api: str = ""


class LearnedField(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoint refused a request (`why`, in its own words) and took it with another value of the profile."""

    field: str
    value: object
    why: str


# What ends a stream from outside of it.
OF_THE_WAY = frozenset(
    {FaultKind.TIMEOUT, FaultKind.DISCONNECTED, FaultKind.UNREACHABLE, FaultKind.PROTOCOL, FaultKind.TOO_LARGE}
)


def shapes_of(observed: Observed, *, family: str) -> list[str]:
    """All that this answer shows: repairs, ways of writing, losses, its fault."""
    if observed.fault is not None and observed.fault.kind is FaultKind.PROTOCOL and observed.marks.look != "stream":
        return list(_fault_of(observed))  # what a decoder missed in a web page says nothing
    found = list(_ways_of(observed, family=family))
    response = observed.response
    if response is not None:
        found += [repair.kind for repair in response.repairs]
        found += _losses_of(observed, response)
    found += _fault_of(observed)
    return list(dict.fromkeys(found))


def _ways_of(observed: Observed, *, family: str) -> Iterator[str]:
    marks, response = observed.marks, observed.response
    frames = [frame for event in observed.events for frame in event]
    if marks.comments and not (observed.fault is not None and observed.fault.kind is FaultKind.PROTOCOL):
        yield "comments"
    if response is not None and any(isinstance(part, Reasoning) for part in response.message.parts):
        yield "reasoning"
    if observed.answered:
        yield from _ways_of_bodies(observed)
    if response is not None and calls_of(response.message) and _says_stop(frames):
        yield "stop_with_calls"
    if marks.look != "stream":
        return
    finished = [place for place, frame in enumerate(frames) if isinstance(frame, Finished)]
    if FAMILIES[family].has_indexes:
        yield from _ways_of_calls([frame for frame in frames if isinstance(frame, ToolCallDelta)])
        yield from _ways_of_events(observed.events)
        if finished and not marks.has_done:
            yield "no_done"
    if marks.is_doubled and finished:  # else it is a stream of two equal events that breaks off
        yield "sent_twice"
    if len(finished) > 1:
        yield "finish_twice"
    if finished and any(isinstance(frame, ToolCallDelta) for frame in frames[finished[0] + 1 :]):
        yield "late_pieces"
    ids = {frame.id for frame in frames if isinstance(frame, ToolCallDelta) and frame.id}
    if ids & observed.taken_ids:
        yield "id_reused"


def _ways_of_bodies(observed: Observed) -> Iterator[str]:
    """A stream where a body was asked for, or the reverse; or one under a wrong name."""
    look, is_asked = observed.marks.look, observed.request.stream
    if look == "json" and is_asked:
        yield "body_for_stream"
    if look == "stream":
        if not is_asked:
            yield "stream_for_body"
        if observed.marks.content_type != "text/event-stream":
            yield "wrong_type"


def _says_stop(frames: Sequence[Frame]) -> bool:
    return any(isinstance(frame, Finished) and frame.reason is FinishReason.STOP for frame in frames)


def _ways_of_calls(deltas: Sequence[ToolCallDelta]) -> Iterator[str]:
    """How the pieces of calls name the call that they belong to."""
    if not deltas:
        return
    ids = [delta.id for delta in deltas if delta.id]
    brings = [delta for delta in deltas if not delta.id and delta.arguments]
    if brings and ids:
        yield "id_first_only"
    if len(ids) > len(set(ids)) and not any(delta.name for delta in deltas[1:] if delta.id in ids[:1]):
        yield "id_every_chunk"
    if any(delta.id == "" or delta.name == "" for delta in deltas if not (delta.id and delta.name)):
        yield "empty_later"
    if all(delta.index is None for delta in deltas):
        yield "no_index"
    indexes = [delta.index for delta in deltas if delta.index is not None]
    if indexes and min(indexes) > 0:
        yield "index_from_one"
    if _share_an_index(deltas):
        yield "shared_index"
    if _come_in_turn(deltas):
        yield "interleaved"
    if any(delta.whole for delta in deltas):
        yield "object_arguments"
    elif not any(delta.arguments for delta in deltas):
        yield "missing_arguments" if all(delta.arguments is None for delta in deltas) else "empty_arguments"


def _share_an_index(deltas: Sequence[ToolCallDelta]) -> bool:
    """Two calls with names of their own begin on one index."""
    first: dict[int, str] = {}
    for delta in deltas:
        if delta.index is None or not delta.id or not delta.name:
            continue
        if first.setdefault(delta.index, delta.id) != delta.id:
            return True
    return False


def _come_in_turn(deltas: Sequence[ToolCallDelta]) -> bool:
    """A piece of one call comes after another one has begun."""
    order: list[object] = []
    for delta in deltas:
        key = delta.id if delta.id and _share_an_index(deltas) else delta.index
        if key is None or (order and order[-1] == key):
            continue
        if key in order:
            return True
        order.append(key)
    return False


def _ways_of_events(events: Sequence[Sequence[Frame]]) -> Iterator[str]:
    for event in events:
        named = [frame for frame in event if isinstance(frame, ToolCallDelta) and frame.name]
        if len(named) > 1:
            yield "calls_in_one_event"
        if named and any(frame.arguments for frame in named) and any(isinstance(frame, Finished) for frame in event):
            yield "whole_call"


def _losses_of(observed: Observed, response: Response) -> Iterator[str]:
    if response.lost:
        yield "lost_piece"
    is_said = observed.fault is not None or response.finish in (FinishReason.LENGTH, FinishReason.CUT)
    states = {call.state for call in calls_of(response.message)}
    if ArgumentsState.TRUNCATED in states and not is_said:
        yield "call_cut"
    if ArgumentsState.INVALID in states:
        yield "call_invalid"


def _fault_of(observed: Observed) -> Iterator[str]:
    fault, marks = observed.fault, observed.marks
    if observed.other_api:
        yield "other_api"
        return
    if fault is None:
        if observed.response is not None and observed.response.finish is FinishReason.CUT:
            yield "broke_off"
        return
    has_begun = observed.response is not None and bool(observed.response.message.parts)
    match fault.kind:
        case FaultKind.TIMEOUT if has_begun:
            yield "too_slow" if observed.is_steady else "fell_silent"
        case FaultKind.DISCONNECTED if has_begun:
            yield "broke_off"
        case FaultKind.PROTOCOL if marks.look == "html":
            yield "html"
        case FaultKind.PROTOCOL if marks.look == "json":
            yield "other_json"
        case kind:
            if marks.look == "stream" and kind not in OF_THE_WAY:
                yield "error_in_stream"
            yield str(kind)


# The one table of what a check can see: each thing with its weight and its words.
#
# Its keys are the kinds of repairs (assembly's and the decoders'), the kinds of faults, and what `shapes` and `judging` find
# beside them. A repair without a row is told by its own name.


Weight = Literal["usual", "healed", "lacks", "broken"]
ORDER: tuple[Weight, ...] = ("usual", "healed", "lacks", "broken")
WEIGHTS: Mapping[Weight, str] = MappingProxyType(
    {
        "usual": "worth knowing",
        "healed": "is wrong; turnwise reads it whole",
        "lacks": "is missing; a run works without it",
        "broken": "does not work",
    }
)


class Meaning(msgspec.Struct, frozen=True):
    weight: Weight
    words: str


_USUAL: dict[str, str] = {
    # Ways of writing a stream. turnwise reads all of them; many clients read only the first that they met.
    "comments": "comment lines stand between the events of the stream",
    "id_first_only": "the id of a call stands in its first piece only, as OpenAI's own API writes it",
    "id_every_chunk": "the id of a call stands in every piece of it",
    "whole_call": "a call comes whole, in one piece",
    "calls_in_one_event": "several calls stand in one event",
    "interleaved": "the pieces of two calls come in turn",
    "reasoning": "the model's reasoning comes in fields of its own",
    # What decoders mend or report lost. Whether something was lost is said by `lost_piece`.
    "thinking_dropped": "the provider left earlier thinking out of the prompt",
    "thinking_stale": "the provider showed the model thinking that something before it no longer fits",
    # What the model does, or the server in its name.
    "any_key": "no key is needed",
}
_HEALED: dict[str, str] = {
    # Ways of writing a stream. turnwise reads all of them; many clients read only the first that they met.
    "empty_arguments": "a call without arguments says an empty text in place of {}",
    "missing_arguments": "a call without arguments says null or nothing in place of {}",
    "object_arguments": "arguments come as a JSON object in place of a text",
    "empty_later": "later pieces of a call repeat its id or name as an empty text or null",
    "no_index": "pieces of calls come without an index",
    "shared_index": "several calls share one index",
    "index_from_one": "the index of the first call is not 0",
    "late_pieces": "pieces come after the finish reason",
    "finish_twice": "the finish reason comes more than once",
    "stop_with_calls": "the finish reason says `stop` although the model calls a tool",
    "no_done": "the stream ends without its end mark `[DONE]`",
    "sent_twice": "the whole stream comes a second time behind its end",
    "id_reused": "a new call has the id of a call before it",
    # What decoders mend or report lost. Whether something was lost is said by `lost_piece`.
    NO_FINISH_REASON: "the response ends without a finish reason",
    "unknown_finish": "the finish reason is a word that the API does not have",
    CALL_NOT_READ: "the server could not read a call that the model made; turnwise asks again",
    "body_for_stream": "a whole body comes where a stream was asked for",
    "stream_for_body": "a stream comes where a whole body was asked for",
    "wrong_type": "a stream comes under another content type than text/event-stream",
    "left_open": "the connection stays open after the answer, without an end mark",
    "noise_skipped": "words that are no event stand in the stream",
    "chunks_glued": "several JSON values stand in one event",
    "glued_json": "several JSON values stand in one event",
    "field_skipped": "a field has another type than the API gives it",
    "content_skipped": "a piece of content has a form that the API does not have",
    "loose_body": "the body has fields of other types than the API gives them",
    "event_repeated": "an event comes twice",
    "index_reused": "a block has the index of another one",
    "item_input": "a block brings its input at its start and not in pieces",
    "invalid_utf8": "bytes of the answer are no UTF-8",
    "control_character": "raw control characters stand inside of JSON texts",
    "lone_surrogate": "half of a character stands alone",
    "damaged_body": "the body is damaged",
    "damaged_event": "an event is damaged",
    "chunk_skipped": "an event is no JSON",
    "event_left_out": "an event has a form that the API does not have",
    "event_missing": "an event of the stream is missing",
    "start_missing": "the start of a block or call is missing",
    "call_without_end": "a call begins and does not end",
    "undecodable_chunk": "a chunk is no JSON",
    "unreadable_argument": "a piece of a call's arguments cannot be read",
    "unreadable_block": "a block of the answer cannot be read",
    "unreadable_content": "the content of the answer cannot be read",
    "unreadable_event": "an event is no JSON",
    "unreadable_json": "an event is no JSON",
    "more_repairs": "more was mended than is told",
    "output_fence": "the JSON answer stands in a code fence",
    # What the model does, or the server in its name.
    "call_in_text": (
        "the model writes its tool call into the text; turnwise reads it there if `calls_in_text` is on for the endpoint"
    ),
    "disobeyed": "the model calls a tool although tools are forbidden; turnwise does not run it",
    "asked_to_wait": "the server asked to wait, and answered then",
    "refused_field": "the server refuses a field, and takes the request without it",
}
_LACKING: dict[str, str] = {
    # What the model does, or the server in its name.
    "no_room": "reasoning takes all of the output limit, so no text is left",
    "call_unasked": "the model calls a tool that was not offered",
    "no_call": "the model answers in words and does not call the tool",
    "misfit": "the arguments of the call do not fit the tool's schema",
    "one_call": "the model makes one call where two were asked for",
    "output_misfit": "the answer does not fit the JSON Schema; turnwise asks again",
    "no_usage": "no tokens are counted, so cost is unknown",
    "no_cache": "the same prompt is not read from a cache, or the server does not say so",
    "any_model": "a model that does not exist is answered all the same",
    "odd_refusal": "the refusal has a status that means something else",
}
_BROKEN: dict[str, str] = {
    # What is lost.
    "lost_piece": "a piece of the answer did not arrive; a call that it may belong to does not run",
    "call_cut": "a call stops in the middle, and no output limit was reached",
    "call_invalid": "the arguments of a call are no JSON",
    "broke_off": "the answer breaks off in the middle",
    "fell_silent": "the answer begins and then nothing more comes",
    "error_in_stream": "an error comes in the middle of the stream",
    "html": "a web page comes in place of an answer",
    "too_slow": "pieces come until the time is up, and the answer is not whole then",
    "other_api": "the answer is one of another API",
    "other_json": "JSON comes that is no answer of this API",
    # What the model does, or the server in its name.
    "empty_answer": "the answer is empty",
    "cut_early": "the finish reason says that the output limit was reached, and it was not",
    "filtered": "a content filter stops a harmless request",
    "declined": "the model refuses a harmless request",
    "limit_ignored": "the output limit is not kept",
    "limit_unsaid": "the output limit cuts the answer, and the finish reason does not say so",
}
_FAULTS: dict[FaultKind, str] = {
    FaultKind.UNREACHABLE: "no connection",
    FaultKind.TIMEOUT: "no answer in time",
    FaultKind.DISCONNECTED: "the connection breaks before the answer is whole",
    FaultKind.AUTH: "the key is missing, wrong or without rights",
    FaultKind.NOT_FOUND: "the model or the path does not exist there",
    FaultKind.BAD_REQUEST: "the request is refused",
    FaultKind.CONTEXT_OVERFLOW: "the prompt does not fit the model's window",
    FaultKind.RATE_LIMITED: "too many requests",
    FaultKind.QUOTA: "the quota is used up",
    FaultKind.OVERLOADED: "the server is overloaded or still loading",
    FaultKind.SERVER: "the server fails",
    FaultKind.PROTOCOL: "what comes is no answer of this API",
    FaultKind.TOO_LARGE: "the answer is longer than turnwise reads",
}
_WORDS: Mapping[Weight, Mapping[str, str]] = {
    "usual": _USUAL,
    "healed": KINDS | _HEALED,
    "lacks": _LACKING,
    "broken": _BROKEN | {str(kind): words for kind, words in _FAULTS.items()},
}
MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {name: Meaning(weight, words) for weight, named in _WORDS.items() for name, words in named.items()}
)


def meaning_of(seen: str) -> Meaning:
    """What it means; a repair that has no row is told by its own name."""
    return MEANINGS.get(seen) or Meaning("healed", seen.replace("_", " "))
