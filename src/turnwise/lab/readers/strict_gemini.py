"""Gemini's stream, read strictly. Source: Google's API reference, "GenerateContentResponse"."""

import msgspec

from turnwise.lab.readers.reader_result import StreamReading
from turnwise.lab.readers.strict_events import error_in, events_of, rule, shaped

_REFUSED = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")
_OTHER = ("LANGUAGE", "OTHER", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS")
_FINISH = {"STOP": "stop", "MAX_TOKENS": "length", **dict.fromkeys(_REFUSED, "refused"), **{one: one for one in _OTHER}}


class StrictFunctionCall(msgspec.Struct, frozen=True):
    name: str
    id: str = ""
    args: dict[str, object] = {}


class StrictPart(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    thought: bool = False
    function_call: StrictFunctionCall | None = None


class StrictParts(msgspec.Struct, frozen=True):
    parts: list[StrictPart] = []
    role: str = "model"


class StrictCandidate(msgspec.Struct, frozen=True, rename="camel"):
    content: StrictParts = StrictParts()
    finish_reason: str | None = None
    index: int = 0


class StrictFeedback(msgspec.Struct, frozen=True, rename="camel"):
    block_reason: str | None = None


class StrictAnswer(msgspec.Struct, frozen=True, rename="camel"):
    candidates: list[StrictCandidate] = []
    prompt_feedback: StrictFeedback = StrictFeedback()


def read_gemini(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    answer = _GeminiAnswer()
    for event in events_of(body):
        rule(not answer.error, "something follows the error")
        answer.error = error_in(event.data)
        if not answer.error:
            answer.add(shaped(event.data, as_type=StrictAnswer))
    return answer.reading()


class _GeminiAnswer:
    """What has come of one answer."""

    def __init__(self) -> None:
        self.error = ""
        self._text = ""
        self._calls: list[tuple[str, str, str]] = []
        self._finish = ""

    def add(self, answer: StrictAnswer) -> None:
        if answer.prompt_feedback.block_reason:
            self._finish = "SAFETY"
        for candidate in answer.candidates:
            rule(candidate.index == 0, f"there is a candidate {candidate.index}, though one was asked for")
            rule(candidate.content.role == "model", f"the role is `{candidate.content.role}`")
            rule(not (self._finish and candidate.content.parts), "something follows the finish reason")
            for part in candidate.content.parts:
                self._text += "" if part.thought else part.text or ""
                if (call := part.function_call) is not None:
                    rule(bool(call.name), "a call has no name")
                    self._calls.append((call.id, call.name, msgspec.json.encode(call.args).decode()))
            self._finish = candidate.finish_reason or self._finish

    def reading(self) -> StreamReading:
        if not self.error:
            rule(bool(self._finish), "the stream has no finish reason")
            rule(self._finish in _FINISH, f"there is no finish reason `{self._finish}`")
            ids = [one for one, _, _ in self._calls if one]
            rule(len(set(ids)) == len(ids), "two calls have one id")
        word = "" if self.error else _FINISH[self._finish]
        return StreamReading(self._text, self._calls, "calls" if self._calls and word == "stop" else word, self.error)
