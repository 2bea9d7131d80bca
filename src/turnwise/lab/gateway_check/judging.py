"""What the two readers make of a gateway's answer to one case."""

from collections.abc import Callable

import msgspec

from turnwise.lab.cases import FAILING_CASES, REFUSED_CASES, SILENT_CASES, MeantAnswer
from turnwise.lab.gateway_check.asking import GatewayAnswer
from turnwise.lab.readers.naive import read_naively
from turnwise.lab.readers.reader_result import BrokenRule, CaseVerdict, StreamReading, ToldError, difference
from turnwise.lab.readers.strict_chat import read_chat
from turnwise.lab.readers.strict_gemini import read_gemini
from turnwise.lab.readers.strict_messages import read_messages
from turnwise.lab.readers.strict_responses import read_responses
from turnwise.wire.profiles import FamilyName

# A client that takes nothing but what the family's API sends, and the errors of each family.
_READ: dict[str, Callable[[bytes], StreamReading]] = {
    "openai_chat": read_chat,
    "openai_responses": read_responses,
    "anthropic_messages": read_messages,
    "gemini": read_gemini,
}


class _ErrorBody(msgspec.Struct, frozen=True):
    error: ToldError


def read_strictly(body: bytes, *, family: str) -> StreamReading:
    """Raises BrokenRule for what this family's API would not send."""
    return _READ[family](body)


def told_error(body: bytes) -> str | None:
    """The message of an error's body, which all four families put in one place; None where it is no such body. Gemini's may
    stand in an array."""
    try:
        if body.lstrip()[:1] == b"[":
            several = msgspec.json.decode(body, type=list[_ErrorBody])
            return several[0].error.message if several else None
        return msgspec.json.decode(body, type=_ErrorBody).error.message
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


class ReaderVerdict(msgspec.Struct, frozen=True):
    """`why` is empty where the answer is right."""

    verdict: CaseVerdict
    why: str = ""


class CaseFound(msgspec.Struct, frozen=True, kw_only=True):
    """One case in one family of clients. `upstream` is the family in which the lab was asked; None: it was not asked."""

    case: str
    family: FamilyName
    upstream: FamilyName | None
    strict: ReaderVerdict
    naive: ReaderVerdict

    @property
    def is_broken(self) -> bool:
        """Where the upstream fails, one error is a good answer, too."""
        good = {"right", "error"} if self.upstream_fails else {"right"}
        return not {self.strict.verdict, self.naive.verdict} <= good

    @property
    def upstream_fails(self) -> bool:
        return self.case in (*FAILING_CASES, *REFUSED_CASES, *SILENT_CASES)


def judge_case(
    case: str,
    answer: GatewayAnswer,
    *,
    family: FamilyName,
    upstream: FamilyName | None,
    meant: MeantAnswer | None,
) -> CaseFound:
    """`meant` is None where nothing right can be had."""

    def judged(read: Callable[[bytes], StreamReading]) -> ReaderVerdict:
        return _judged(answer, read=read, family=family, meant=meant)

    is_stream = answer.content_type.partition(";")[0].strip().lower() == "text/event-stream"
    strict = judged(lambda body: read_strictly(body, family=family))
    if answer.status == 200 and not answer.failure and not is_stream:
        strict = ReaderVerdict("crash", f"the answer is of type `{answer.content_type}` and no stream")
    naive = judged(lambda body: read_naively(body, family=family))
    return CaseFound(case=case, family=family, upstream=upstream, strict=strict, naive=naive)


def _judged(
    answer: GatewayAnswer, *, read: Callable[[bytes], StreamReading], family: FamilyName, meant: MeantAnswer | None
) -> ReaderVerdict:
    if answer.failure:
        return ReaderVerdict("crash", answer.failure)
    if answer.status != 200:
        told = told_error(answer.body)
        if told is None:
            return ReaderVerdict("crash", f"status {answer.status} without an error of this API")
        return ReaderVerdict("error", f"status {answer.status}: {told}")
    try:
        reading = read(answer.body)
    except BrokenRule as broken:
        return ReaderVerdict("crash", str(broken))
    except (msgspec.DecodeError, ValueError, LookupError) as error:
        return ReaderVerdict("crash", f"{type(error).__name__}: {error}")
    if reading.error:
        return ReaderVerdict("error", reading.error)
    why = difference(reading, meant, has_ids=family != "gemini")
    return ReaderVerdict("wrong", why) if why else ReaderVerdict("right")
