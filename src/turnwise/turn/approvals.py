"""What a person is asked before calls run, and what they answer: plain data of commands, events and results."""

import hashlib
from collections.abc import Iterable
from typing import Literal

import msgspec

from turnwise.rules.permission_facts import CallFacts
from turnwise.vocab import ToolCall


class OneAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to decide. For an `approval`, `subject` is the path, command or tool that decided that it is asked, and
    `why` says so in a sentence; for a `question` of the model's, `subject` is its text and `options` are answers that it
    offers. `by`: a question is the model's, or one of a `tool` at work, whose call `call` is. `arguments` are complete JSON
    text (or free-form text). One that cannot wait is denied if it is left for later. `digest` stands for all that was shown:
    `digest_of` the call."""

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
    """Which turn asks, in which of its steps, and the folder in which the calls would run. A turn keeps its id when another
    process goes on with it."""

    turn_id: str = ""
    step: int = 0
    folder: str = ""


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one ask. `text` is the answer to a question, or what the model is told beside a denial. `always`: calls
    like this one are not asked again in this session. `later` leaves the call pending, and the run ends as `waiting`.

    `digest` is that of the answered ask: an approval allows what was shown, and nothing else. Without a digest it is for the
    ask that the approver was given, or for the one that the paused result listed. `subject`, if given, must be the ask's too.
    `by="failed"`: the approver raised or answered nonsense, and `text` says what happened."""

    call_id: str
    verdict: Literal["allow", "deny", "later"]
    by: Literal["person", "default", "program", "failed"] = "person"
    text: str = ""
    always: bool = False
    subject: str = ""
    digest: str = ""


# Of an approval for a call that no paused result listed: it is the digest of nothing.
NOT_LISTED = "not listed"
_WEIGHT = {"allow": 0, "later": 1, "deny": 2}


def digest_of(tool: str, *, arguments: str, facts: CallFacts) -> str:
    """Stands for a call as a person sees it: its tool, its arguments, what it touches and what it would change. Equal in every
    process; the call's id is no part of it."""
    shown = (tool, arguments, msgspec.structs.replace(facts, call_id=""))
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()


def settled(approvals: Iterable[Approval]) -> dict[str, Approval]:
    """One answer for each call, by its id. Of contradicting ones a denial wins, then `later`; a default gives way to any answer;
    of equal ones the first counts."""
    found: dict[str, Approval] = {}
    for one in approvals:
        other = found.get(one.call_id)
        if other is None or _weight(one) > _weight(other):
            found[one.call_id] = one
    return found


def holds(approval: Approval, *, ask: OneAsk) -> bool:
    """Whether the answer is for what the ask shows. A refusal always is; answers in journals of before have no digest."""
    if approval.verdict != "allow":
        return True
    return approval.digest in ("", ask.digest) and approval.subject in ("", ask.subject)


def listed(approvals: Iterable[Approval], *, digests: dict[str, str]) -> tuple[Approval, ...]:
    """The approvals, each bound to what was shown: its own digest, or the one that is listed for its call."""
    return tuple(
        [
            one if one.digest else msgspec.structs.replace(one, digest=digests.get(one.call_id) or NOT_LISTED)
            for one in approvals
        ]
    )


def _weight(approval: Approval) -> tuple[bool, int]:
    return approval.by != "default", _WEIGHT[approval.verdict]
