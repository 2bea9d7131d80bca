"""Why a response ended, why a turn ended, and what went wrong: closed sets of words."""

from enum import StrEnum
from typing import Literal

import msgspec


class FinishReason(StrEnum):
    """Why a response ended. Every provider's own word maps to one of these (docs/finish-reasons.md)."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"  # the provider wants its content back to go on
    ERROR = "error"
    CUT = "cut"  # the stream ended without saying why


class StopReason(StrEnum):
    """Why a run ended. `answered` is the ordinary end; the table in docs/outcomes.md explains the others."""

    ANSWERED = "answered"
    STEP_LIMIT = "step_limit"
    BUDGET = "budget"
    TIME_LIMIT = "time_limit"
    LOOP = "loop"
    WAITING = "waiting"
    CANCELLED = "cancelled"
    REFUSED = "refused"
    PROVIDER_FAILED = "provider_failed"
    JOURNAL_FAILED = "journal_failed"
    GIVEN_UP = "given_up"  # its process died again and again


class FaultKind(StrEnum):
    """What kind of failure it was. The retry rules decide by it."""

    UNREACHABLE = "unreachable"  # no connection: name, route, TLS, refused
    TIMEOUT = "timeout"  # one of turnwise's deadlines passed: connect, first event or idle
    DISCONNECTED = "disconnected"  # the connection broke before the response was whole
    AUTH = "auth"  # 401, 403: key missing, wrong or without rights
    NOT_FOUND = "not_found"  # 404: model or path unknown there
    BAD_REQUEST = "bad_request"  # 400, 422 and other 4xx: the request is at fault
    CONTEXT_OVERFLOW = "context_overflow"  # the prompt does not fit the model's window
    RATE_LIMITED = "rate_limited"  # 429
    QUOTA = "quota"  # paid quota used up; waiting does not help
    OVERLOADED = "overloaded"  # 503, 529
    SERVER = "server"  # other 5xx, an error object without a better word
    PROTOCOL = "protocol"  # what arrived is not this family's format
    TOO_LARGE = "too_large"  # larger than turnwise's byte limits


BindingFault = Literal["", "stale", "not_taken"]
"""What a refusal says about thinking that is bound to what stood before it. `stale`: something before it has changed.
`not_taken`: the server does not know the request field that has stale thinking left out."""


class Fault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed request, as data.

    `message` is the provider's own text if there is one, without secrets. `retry_after_s` is the wait in seconds that
    the provider asks for.
    """

    kind: FaultKind
    message: str
    status: int | None = None  # HTTP status, None where none arrived
    code: str | None = None  # the provider's own error code or type
    retry_after_s: float | None = None  # seconds to wait, as the provider asks
    retry_at_s: float | None = (
        None  # the same as a date, seconds since 1970: who has a clock makes `retry_after_s` of it
    )
    should_retry: bool | None = None  # what the provider says about a retry; it counts more than the kind
    request_id: str | None = None
    binding: BindingFault = ""  # a refusal of thinking that is bound to what stood before it
    valid_thinking: int | None = (
        None  # `stale`: so many thinking blocks of the request stand before the first stale one
    )


# The kinds of repair that the chair looks at; all others are for people.
ADAPTED = "adapted"  # a setting did not go to its model as it was set
CALL_NOT_MADE = "call_not_made"  # a call stood in the reasoning or in a refusal
CALL_NOT_READ = "call_not_read"  # the model made a call that its server could not read
NO_FINISH_REASON = "no_finish_reason"  # the API's own end mark came, but no finish reason

# Why a call that stood in the text is not run, as `ToolCall.reason` begins: it never arrived as a call.
WRITTEN_WRONGLY = "written into the text, and not as a call is written"
BESIDE_OWN_CALLS = "written into the text of a response that has calls of its own"


# Why a call counts as cut whose last piece began with all before it (`ToolCall.reason`). Nothing can be added to it.
TWO_READINGS = (
    "the last piece is a whole object that begins with all before it: it may be all of the arguments or a part"
)

# What stands for arguments past their limit while a response is decoded, and how `ToolCall.reason` begins then. No model writes
# U+FDD0, which is no character.
LONG_ARGUMENTS = '{"\ufdd0":"longer than a call may be"}'
TOO_LONG = "longer than a call may be"


class Repair(msgspec.Struct, frozen=True):
    """turnwise mended something in what it received.

    `kind` is a word from a closed list, `where` names the call or chunk, and `what` says what was done.
    """

    kind: str
    where: str
    what: str
