"""The changes that a phase of a turn orders to the values that outlive it. Only `Known.apply` carries them out."""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from turnwise.rules.history import Healed
from turnwise.rules.prompt_room import PromptSize
from turnwise.turn.approvals import OneAsk
from turnwise.turn.commands import PlannedCall, Purpose
from turnwise.turn.config import ChildReport, TurnConfig
from turnwise.turn.events import StepPrepared
from turnwise.turn.fault_counts import Guarding, Tally, Words
from turnwise.turn.limit_pace import Pacing
from turnwise.turn.request_plan import RequestTerms
from turnwise.turn.room import GiveWay, Room
from turnwise.turn.turn_spending import AtStake
from turnwise.vocab import Message, Repair, Request, ToolCall, ToolResult, Usage


class Appended(msgspec.Struct, frozen=True):
    """A message at the end of the history. `paused`: the provider wants it back in order to continue."""

    message: Message
    paused: bool = False


class ResultsAppended(msgspec.Struct, frozen=True):
    message: Message


class KeptWhole(msgspec.Struct, frozen=True):
    """Whole results of which the history holds a shortened form, by call id."""

    originals: Mapping[str, ToolResult]


class PauseSettled(msgspec.Struct, frozen=True):
    """Nothing will continue the pause."""


class InboxRead(msgspec.Struct, frozen=True):
    """The messages that came in mid-turn are taken up."""


class WordsPutBy(msgspec.Struct, frozen=True):
    """Healed messages that came in mid-turn: the next request carries them."""

    healed: Healed


class PutBack(msgspec.Struct, frozen=True):
    """The history is whole again."""


class IdsTaken(msgspec.Struct, frozen=True):
    ids: Collection[str]


class LeftWaiting(msgspec.Struct, frozen=True):
    """Calls that keep waiting, and the asks about them."""

    pending: tuple[ToolCall, ...]
    asks: tuple[OneAsk, ...]


class GaveWay(msgspec.Struct, frozen=True):
    """Older messages give way. `changed` alone: the coming request does not begin with all of the history."""

    to: GiveWay | None
    changed: bool = False


class Fit(msgspec.Struct, frozen=True):
    """Leave out of the prompt what leaves no room for the answer and its `own` texts; `Known.fits` says whether that worked. With
    `limits`, the turn's limits set the room, and the step is judged again."""

    own: tuple[str, ...]
    limits: bool = False


class Recounted(msgspec.Struct, frozen=True):
    """The provider told the size of the prompt when it refused it."""

    prompt: PromptSize


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """New values for old ones; None: the old value stays. `words` are what the model has said outside the history. `config` is
    the configuration as it is known now."""

    config: TurnConfig | None = None
    room: Room | None = None
    guarding: Guarding | None = None
    tally: Tally | None = None
    words: Words | None = None


class StepBegun(msgspec.Struct, frozen=True):
    pacing: Pacing


class StepTakenBack(msgspec.Struct, frozen=True):
    """The limits do not allow the step."""


class Paced(msgspec.Struct, frozen=True):
    pacing: Pacing


class Prepared(msgspec.Struct, frozen=True):
    """What the coming request asks for."""

    prepared: StepPrepared


class Posed(msgspec.Struct, frozen=True):
    """What the coming request allows."""

    asking: RequestTerms


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """A request is sent; its last `own` messages are not part of the history."""

    request: Request
    purpose: Purpose
    own: int
    stake: AtStake | None


class TakenBack(msgspec.Struct, frozen=True):
    """The current request was not sent, so it does not count."""


class Excused(msgspec.Struct, frozen=True):
    """The current request was refused and then corrected, so no limit of requests counts it."""


class Counted(msgspec.Struct, frozen=True):
    """The provider's count for the current request."""

    usage: Usage


class CallsCounted(msgspec.Struct, frozen=True):
    """So many calls are given to their tools."""

    number: int


class ChildrenLeft(msgspec.Struct, frozen=True):
    """Children that were running when the turn ended."""

    children: tuple[ChildReport, ...]


class ChildrenPaid(msgspec.Struct, frozen=True):
    children: Sequence[ChildReport]
    plans: Mapping[str, PlannedCall]


class Reasoned(msgspec.Struct, frozen=True):
    text: str


class Repaired(msgspec.Struct, frozen=True):
    repairs: Sequence[Repair]


Change = (
    Appended
    | ResultsAppended
    | KeptWhole
    | PauseSettled
    | InboxRead
    | WordsPutBy
    | PutBack
    | IdsTaken
    | LeftWaiting
    | GaveWay
    | Fit
    | Recounted
    | Replaced
    | StepBegun
    | StepTakenBack
    | Paced
    | Prepared
    | Posed
    | Sending
    | TakenBack
    | Excused
    | Counted
    | CallsCounted
    | ChildrenLeft
    | ChildrenPaid
    | Reasoned
    | Repaired
)


def mended(kind: str, where: str, what: str) -> Repaired:
    return Repaired((Repair(kind, where, what),))
