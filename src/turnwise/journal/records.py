"""What a driver writes down beside a turn's events, and how records look as text."""

from collections.abc import Iterable
from typing import get_args

import msgspec
from msgspec.structs import replace

from turnwise.turn.approvals import Approval
from turnwise.turn.commands import Purpose
from turnwise.turn.events import Event, TurnStarted
from turnwise.vocab import NO_TRAITS
from turnwise.wire.family import MODULES, family


class RequestSent(msgspec.Struct, frozen=True, kw_only=True, tag="request_sent"):
    """A request is about to leave. The hash stands for the body: the history in it is in the journal already. If it never left,
    the `request_failed` or `interrupted` after it says that it was not sent."""

    number: int
    purpose: Purpose
    url: str  # without its query
    body_sha256: str
    body_bytes: int


class ToolsStarted(msgspec.Struct, frozen=True, kw_only=True, tag="tools_started"):
    """A call is about to run (journals before version 8: all calls of a step); without a result after it, it may have run, or
    not, or in part. A call of the step without such a record has not run."""

    step: int
    call_ids: tuple[str, ...]


class AskAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="ask_answered"):
    """One of several asks was answered while the others wait: it is not asked again. The `asked` behind it holds it, too."""

    approval: Approval


class ScriptBegan(msgspec.Struct, frozen=True, kw_only=True, tag="script_began"):
    """The program of the call `call_id` begins; its clock says `time` then (UTC, seconds since 1970). Run again after a crash it
    reads the same times."""

    call_id: str
    time: float


BesideEvents = RequestSent | ToolsStarted | AskAnswered | ScriptBegan
JournalRecord = Event | BesideEvents
KINDS = {kind: str(kind.__struct_config__.tag) for kind in get_args(JournalRecord)}

encode_record = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JournalRecord).decode


def decode_record(text: str | bytes) -> JournalRecord:
    """Raises msgspec.MsgspecError for what is no record."""
    return with_traits(_decode(text))


def with_traits(record: JournalRecord) -> JournalRecord:
    """The beginning of a turn with what its family takes and says, where a journal of before has the family's name alone."""
    if type(record) is not TurnStarted or record.config.traits != NO_TRAITS or record.config.family not in MODULES:
        return record
    return replace(record, config=replace(record.config, traits=family(record.config.family).traits))


class JournalEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a turn in its place. `time` is UTC, seconds since 1970."""

    seq: int
    time: float
    record: JournalRecord


def events_of(entries: Iterable[JournalEntry]) -> list[Event]:
    """Those alone that rebuild the turn."""
    return [one.record for one in entries if not isinstance(one.record, BesideEvents)]


def begun_calls(entries: Iterable[JournalEntry]) -> frozenset[str]:
    """The ids of the calls whose start was recorded: no other call of the turn can have run."""
    return frozenset([id for one in entries if isinstance(one.record, ToolsStarted) for id in one.record.call_ids])
