"""A whole response object, or an error object, as the frames that a stream of it would have given."""

import msgspec

from turnwise.vocab import Fault, Faulted, FaultKind, Frame, Lost, Mended, Repair, Started
from turnwise.wire.faults import no_response
from turnwise.wire.json_fields import UNREADABLE, Fields, is_object, read_fields
from turnwise.wire.limits import Limits
from turnwise.wire.many_items import told_long_calls, too_much
from turnwise.wire.openai_responses.faults import fault_of
from turnwise.wire.openai_responses.fields import text_at
from turnwise.wire.openai_responses.healing import check_text, heal
from turnwise.wire.openai_responses.items import TooManyItems
from turnwise.wire.openai_responses.open_response import OpenResponse

EXPECTED = "a response of the Responses API"


def read_body(body: bytes, *, limits: Limits) -> list[Frame]:
    body = told_long_calls(body, limits=limits)
    if (fault := too_much(body, call_bytes=limits.call_bytes)) is not None:
        return [Faulted(fault)]
    frames: list[Frame] = []
    try:
        check_text(body)
        _take_body(read_fields(body), frames, is_certain=True)
    except UNREADABLE:
        return _read_damaged(body)
    return frames


def _read_damaged(body: bytes) -> list[Frame]:
    """What can be read of it is kept. Where something is lost, no call and no text of it counts as whole."""
    healed = heal(body)
    is_lost = healed.is_lossy or len(healed.objects) > 1  # only the first is read
    kind = "damaged_body" if len(healed.objects) > 1 else healed.kind(lost="damaged_body", mended="loose_body")
    repair = Repair(kind, "response", healed.what)
    told: Frame = Lost(repair) if is_lost else Mended(repair)
    frames: list[Frame] = []
    try:
        if not healed.objects:
            raise msgspec.DecodeError("no object")
        _take_body(read_fields(healed.objects[0]), frames, is_certain=not is_lost)
    except UNREADABLE:
        return [told, Faulted(no_response(body, expected=EXPECTED))]
    return [*frames, told]


def _take_body(response: Fields, frames: list[Frame], *, is_certain: bool) -> None:
    if "output" not in response and "status" not in response:
        error = response.get("error")
        if error is None and "message" not in response and "detail" not in response:
            raise msgspec.DecodeError("no response object")
        fault = fault_of(read_fields(error) if error is not None and is_object(error) else response)
        frames.append(Faulted(fault))
        return
    frames.append(Started(id=text_at(response, "id"), model=text_at(response, "model")))
    whole = OpenResponse()
    try:
        whole.take_output(response, frames, is_certain=is_certain)
    except TooManyItems as error:
        frames.append(Faulted(Fault(kind=FaultKind.TOO_LARGE, message=str(error))))
    whole.take_end(response, "completed", frames)
