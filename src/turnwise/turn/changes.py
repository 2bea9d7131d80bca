"""What a phase of a turn orders to be changed of the values that outlive it. `Known.apply` alone carries it out."""

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
    """A message at the end of the history; `paused`: the provider wants it back to go on."""

    message: Message
    paused: bool = False


class ResultsAppended(msgspec.Struct, frozen=True):
    message: Message


class KeptWhole(msgspec.Struct, frozen=True):
    """Results of which the history takes a shortened one, by call id."""

    originals: Mapping[str, ToolResult]


class PauseSettled(msgspec.Struct, frozen=True):
    """Nothing will go on with the pause."""


class InboxRead(msgspec.Struct, frozen=True):
    """The words that came in mid-turn are taken up."""


class WordsPutBy(msgspec.Struct, frozen=True):
    """Words that came in mid-turn, healed: the next request carries them."""

    healed: Healed


class PutBack(msgspec.Struct, frozen=True):
    """The history is whole again."""


class IdsTaken(msgspec.Struct, frozen=True):
    ids: Collection[str]


class LeftWaiting(msgspec.Struct, frozen=True):
    """Calls that wait on, and what was asked about them."""

    pending: tuple[ToolCall, ...]
    asks: tuple[OneAsk, ...]


class GaveWay(msgspec.Struct, frozen=True):
    """Older messages give way; `changed` alone: the coming request does not begin with all of the history."""

    to: GiveWay | None
    changed: bool = False


class Fit(msgspec.Struct, frozen=True):
    """Leave out of the prompt what the answer has no room for beside its `own` texts; `Known.fits` says whether that went. With
    `limits` it is what the turn's limits leave no room for, and the step is judged anew."""

    own: tuple[str, ...]
    limits: bool = False


class Recounted(msgspec.Struct, frozen=True):
    """The provider told the size of the prompt that it refused."""

    prompt: PromptSize


class Replaced(msgspec.Struct, frozen=True, kw_only=True):
    """Values that stand in the place of those before; None: that one stays. `words` are what the model has said beside the
    history, `config` is the configuration as it is known by now."""

    config: TurnConfig | None = None
    room: Room | None = None
    guarding: Guarding | None = None
    tally: Tally | None = None
    words: Words | None = None


class StepBegun(msgspec.Struct, frozen=True):
    pacing: Pacing


class StepTakenBack(msgspec.Struct, frozen=True):
    """The limits do not allow it."""


class Paced(msgspec.Struct, frozen=True):
    pacing: Pacing


class Prepared(msgspec.Struct, frozen=True):
    """What is asked for in the coming request."""

    prepared: StepPrepared


class Posed(msgspec.Struct, frozen=True):
    """What the coming request allows."""

    asking: RequestTerms


class Sending(msgspec.Struct, frozen=True, kw_only=True):
    """A request leaves; its last `own` messages are no part of the history."""

    request: Request
    purpose: Purpose
    own: int
    stake: AtStake | None


class TakenBack(msgspec.Struct, frozen=True):
    """The request at hand has not left, so it does not count."""


class Excused(msgspec.Struct, frozen=True):
    """The request at hand was refused and is mended, so no limit of requests counts it."""


class Counted(msgspec.Struct, frozen=True):
    """What the provider counted of the request at hand."""

    usage: Usage


class CallsCounted(msgspec.Struct, frozen=True):
    """So many calls are given to their tools."""

    number: int


class ChildrenLeft(msgspec.Struct, frozen=True):
    """Children that were at work when the turn ended."""

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
