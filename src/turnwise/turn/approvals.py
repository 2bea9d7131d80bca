"""What a person is asked before calls run, and the answers: plain data of commands, events and results."""

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule
from turnwise.vocab import ToolCall


class OneAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A decision that a person has to make.

    - `kind`: `approval` of a call, or a `question`. `by` says whether the `model` asks the question or a running
      `tool`.
    - `call` is the call in question; `arguments` are its complete JSON text (or free-form text).
    - `subject`: for an approval, the path, command or tool that needs it; for a question, its text.
    - `why` gives the reason in a sentence. `options` are answers to offer.
    - `can_wait`: if False, an ask that is left for later is denied.
    - `digest` identifies everything that the person was shown.
    """

    call: ToolCall
    arguments: str
    subject: str
    kind: Literal["approval", "question"] = "approval"
    why: str = ""
    options: tuple[str, ...] = ()
    can_wait: bool = True
    digest: str = ""
    by: Literal["model", "tool"] = "model"


class AskOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an ask comes from: the turn, its step, and the folder in which the calls would run.

    A turn keeps its id if another process continues it.
    """

    turn_id: str = ""
    step: int = 0
    folder: str = ""


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one ask.

    - `call_id` is the id of the ask's call.
    - `verdict`: `allow`, `deny`, or `later`. `later` leaves the call pending, and the run ends as `waiting`.
    - `text` is the answer to a question, or what the model is told with a denial.
    - `always`: until the turn ends, do not ask again about the same path, command or tool. (The command line keeps such an
      answer for the session.)
    - `digest` is `OneAsk.digest`: the approval allows only what this ask has shown. Without it, the approval is for the ask
      that the approver got, or for the ask in the result that ended as `waiting`.
    - `subject`, if you set it, must equal the subject of the ask; otherwise the approval does not count.
    - `by` says who answered. `failed`: the approver raised or gave an invalid answer, and `text` says what happened.
    """

    call_id: str
    verdict: Literal["allow", "deny", "later"]
    by: Literal["person", "default", "program", "failed"] = "person"
    text: str = ""
    always: bool = False
    subject: str = ""
    digest: str = ""


# The digest of an approval for a call that no paused result listed: it matches nothing.
NOT_LISTED = "not listed"
MARK_LENGTH = 12  # hexadecimal digits; finding a call with the same mark takes 2^48 tries
_WEIGHT = {"allow": 0, "later": 1, "deny": 2}


def digest_of(tool: str, *, arguments: str, facts: CallFacts) -> str:
    """Identifies a call as a person sees it: its tool, its arguments, what it touches and what it would change. Equal in every
    process; the call's id is not part of it."""
    shown = (tool, arguments, msgspec.structs.replace(facts, call_id=""))
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()


def mark_of(asks: Iterable[OneAsk]) -> str:
    """A short name for everything that these asks show. A person who allows them by a command uses it to say what was seen."""
    shown = sorted([(one.digest, one.call.name, one.arguments) for one in asks])
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()[:MARK_LENGTH]


def settled(approvals: Iterable[Approval]) -> dict[str, Approval]:
    """One answer for each call, by its id. If answers contradict each other, a denial wins, then `later`. Any answer replaces a
    default. Of equal answers the first counts."""
    found: dict[str, Approval] = {}
    for one in approvals:
        other = found.get(one.call_id)
        if other is None or _weight(one) > _weight(other):
            found[one.call_id] = one
    return found


def holds(approval: Approval, *, ask: OneAsk) -> bool:
    """Whether the answer belongs to what the ask shows. A refusal always does. Answers in older journals have no digest."""
    if approval.verdict != "allow":
        return True
    return approval.digest in ("", ask.digest) and approval.subject in ("", ask.subject)


def listed(approvals: Iterable[Approval], *, digests: dict[str, str]) -> tuple[Approval, ...]:
    """The approvals, each bound to what was shown: to its own digest, or to the digest that is listed for its call."""
    return tuple(
        [
            one if one.digest else msgspec.structs.replace(one, digest=digests.get(one.call_id) or NOT_LISTED)
            for one in approvals
        ]
    )


def _weight(approval: Approval) -> tuple[bool, int]:
    return approval.by != "default", _WEIGHT[approval.verdict]


# What the resuming caller of a left turn adds to the records, also for the turn's sub-agents.
class ResumeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """`answers` are for asks that were open. The other asks wait `ask_s` seconds (None: the rest of their time). `rules` come
    after those of the turn."""

    answers: tuple[Approval, ...] = ()
    ask_s: float | None = None
    rules: tuple[PermissionRule, ...] = ()

    def answer_to(self, ask: OneAsk) -> Approval | None:
        """The first answer that belongs to what the ask shows."""
        return next((one for one in self.answers if one.call_id == ask.call.id and holds(one, ask=ask)), None)
