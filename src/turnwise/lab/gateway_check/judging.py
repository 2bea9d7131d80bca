"""What the two readers make of a gateway's answer to one case."""

from collections.abc import Callable
from typing import Literal

import msgspec

from turnwise.lab.cases import FAILING_CASES, REFUSED_CASES, SILENT_CASES, MeantAnswer
from turnwise.lab.gateway_check.asking import GatewayAnswer
from turnwise.lab.readers.naive import read_naively
from turnwise.lab.readers.reader_result import BrokenRule, StreamReading, ToldError, counted
from turnwise.lab.readers.strict_chat import read_chat
from turnwise.lab.readers.strict_gemini import read_gemini
from turnwise.lab.readers.strict_messages import read_messages
from turnwise.lab.readers.strict_responses import read_responses
from turnwise.wire.profiles import FamilyName

CaseVerdict = Literal["right", "wrong", "error", "crash"]

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


def difference(reading: StreamReading, meant: MeantAnswer | None, *, has_ids: bool) -> str:
    """What is wrong in one sentence; empty where the answer is right. `has_ids`: each call of this family has one."""
    if not reading.ended:
        return "the answer just stops"
    if meant is None:
        return "it looks like an answer, though the upstream gave none"
    if reading.text != meant.text:
        return f"the text is `{_short(reading.text)}` and not `{_short(meant.text)}`"
    if len(reading.calls) != len(meant.calls):
        return f"{counted(len(reading.calls), 'call')} and not {len(meant.calls)}"
    for (_, name, arguments), (meant_name, meant_arguments) in zip(reading.calls, meant.calls, strict=True):
        if name != meant_name:
            return f"a call's name is `{_short(name)}` and not `{meant_name}`"
        if _value(arguments) != meant_arguments:
            return f"the arguments of `{name}` are `{_short(arguments)}`"
    ids = [one for one, _, _ in reading.calls]
    if has_ids and not all(ids):
        return "a call has no id"
    if len(set(filter(None, ids))) != len(list(filter(None, ids))):
        return "two calls have one id"
    if reading.finish != meant.finish and {reading.finish, meant.finish} != {"stop", "refused"}:
        return f"the finish reason says `{reading.finish}` and not `{meant.finish}`"
    return ""


def _value(arguments: str) -> object:
    try:
        return msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return BrokenRule  # equal to no arguments


def _short(words: str) -> str:
    return words if len(words) <= 60 else f"{words[:59]}…"
