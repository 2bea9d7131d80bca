"""What the wire of one answer shows beside the repairs: names of `meanings`, in the order of that table. Pure."""

from collections.abc import Iterator, Sequence

from turnwise.lab.endpoint_check.observed import Observed
from turnwise.vocab import (
    ArgumentsState,
    FaultKind,
    Finished,
    FinishReason,
    Frame,
    Reasoning,
    Response,
    ToolCallDelta,
    calls_of,
)

CHAT = "openai_chat"
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
    if family == CHAT:
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
