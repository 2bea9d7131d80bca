"""What a provider sent, with its content removed, so that a user can show it to others.

An example keeps what a specification speaks of: the order of events, the keys that the four families define, types, indices,
lengths, and which ids and names are the same. Everything that a model, a person or a program wrote is replaced: texts by their
length, ids, names and unknown keys by placeholders, the arguments of calls by how many keys they have. What is not known to be
harmless is replaced, too: the tables below say what may stay.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import msgspec

from turnwise.wire.json_fields import read_values
from turnwise.wire.sse import BOM

EXAMPLE_BYTES = 2_048
MOST_EVENT_BYTES = 16 * 1024  # of an event that is looked into; of a longer one only the length is told
FIRST_EVENTS = 3  # of the calls of a response: what was wrong with them may be found only at the end
LAST_EVENTS = 3
MOST_KINDS = 100  # of one response
MOST_DEPTH = 10
MOST_ITEMS = 6
MOST_FIELDS = 24
MOST_NUMBER = 10_000_000  # indices and counts are below it; a longer number may be somebody's

KEYS = frozenset(
    """accepted_prediction_tokens annotations arguments audio audio_tokens block blockReason cache_creation
    cache_creation_input_tokens cache_read_input_tokens cached_tokens cachedContentTokenCount candidates
    candidatesTokenCount candidatesTokensDetails choices citations code completion_tokens completion_tokens_details
    content content_block content_index created created_at createTime delta encrypted_content error event
    finish_reason finishMessage finishReason function function_call functionCall id incomplete_details index input
    input_tokens input_tokens_details item item_id logprobs message modality model modelVersion name object
    obfuscation output output_index output_tokens output_tokens_details parallel_tool_calls param part partial_json
    partialArgs parts part_index promptFeedback promptTokenCount promptTokensDetails prompt_tokens
    prompt_tokens_details reason reasoning reasoning_content reasoning_details reasoning_tokens refusal
    rejected_prediction_tokens request_id response responseId response_id role safetyRatings sequence_number
    server_tool_use service_tier signature status stop_reason stop_sequence summary summary_index
    system_fingerprint text thinking thought thoughtSignature thoughtsTokenCount tokenCount tool_calls call_id
    total_tokens totalTokenCount toolUsePromptTokenCount type usage usageMetadata willContinue args""".split()
)
"""Keys of responses that the references of the four families define. Others may be a user's."""

IDS = frozenset("id call_id item_id request_id response_id responseId tool_use_id".split())
NAMES = frozenset({"name"})
WORDS_AT = frozenset(
    "type role object finish_reason finishReason stop_reason status reason blockReason modality event".split()
)
"""Keys whose value is a word of the API, if it is one of these."""
WORDS = frozenset(
    """assistant user model tool system developer function tool_use server_tool_use text thinking redacted_thinking
    message error ping input_json_delta text_delta thinking_delta signature_delta citations_delta message_start
    message_delta message_stop content_block_start content_block_delta content_block_stop function_call
    custom_tool_call reasoning output_text refusal summary_text reasoning_text response list
    chat.completion chat.completion.chunk response.created response.in_progress response.completed
    response.incomplete response.failed response.queued response.output_item.added response.output_item.done
    response.content_part.added response.content_part.done response.output_text.delta response.output_text.done
    response.refusal.delta response.refusal.done response.function_call_arguments.delta
    response.function_call_arguments.done response.custom_tool_call_input.delta
    response.custom_tool_call_input.done response.reasoning_summary_part.added
    response.reasoning_summary_part.done response.reasoning_summary_text.delta
    response.reasoning_summary_text.done response.reasoning_text.delta response.reasoning_text.done
    response.reasoning.delta response.reasoning.done
    in_progress completed incomplete failed queued cancelled max_output_tokens
    stop length tool_calls content_filter end_turn max_tokens stop_sequence pause_turn
    STOP MAX_TOKENS SAFETY RECITATION OTHER MALFORMED_FUNCTION_CALL UNEXPECTED_TOOL_CALL TEXT""".split()
)
NUMBERS = frozenset(
    "index output_index content_index summary_index part_index sequence_number code".split()
) | frozenset([key for key in KEYS if key.endswith(("_tokens", "TokenCount"))])
ARGUMENTS = frozenset("arguments input partial_json delta".split())
"""Keys of arguments as text. One that says `{}` is shown as it is: some servers send that before the real arguments."""
OPAQUE = frozenset("args arguments input partialArgs safetyRatings logprobs".split())
"""Objects and lists below these keys are not looked into: their keys are a tool's, or there are too many of them."""

_LINE_END = re.compile(r"\r\n|\n|\r")


class KeptEvent(msgspec.Struct, frozen=True):
    """One event of a stream, or a whole body (`number` 0). Of a long one only its `size` is kept."""

    number: int
    raw: bytes
    size: int


def kept_event(number: int, raw: bytes) -> KeptEvent:
    return KeptEvent(number, raw if len(raw) <= MOST_EVENT_BYTES else b"", len(raw))


class Witness:
    """Keeps the events of one response in which something was mended, and those that its calls began with."""

    def __init__(self) -> None:
        self._number = 0
        self._last: list[bytes] = []
        self._calls: list[KeptEvent] = []
        self._found: dict[str, tuple[KeptEvent, ...]] = {}
        self._body: KeptEvent | None = None

    def saw(self, event: bytes, *, has_call: bool) -> None:
        """The next event has come."""
        self._number += 1
        last = self._last
        last.append(event)
        if len(last) > LAST_EVENTS:
            del last[0]
        if has_call and len(self._calls) < FIRST_EVENTS:
            self._calls.append(kept_event(self._number, event))

    def saw_words(self, latest: Sequence[bytes], *, number: int) -> None:
        """As `saw` for each of so many events without a call in them, of which these are the `latest`."""
        self._number += number
        self._last = [*self._last, *latest[-LAST_EVENTS:]][-LAST_EVENTS:]

    def found(self, kinds: Iterable[str]) -> None:
        """Of these kinds something was found in the last event. The first event of each kind counts."""
        for kind in kinds:
            if kind not in self._found and len(self._found) < MOST_KINDS:
                self._found[kind] = self._around()

    def saw_body(self, body: bytes) -> None:
        """The response was no stream."""
        self._body = kept_event(0, body)

    def events(self, kind: str) -> tuple[KeptEvent, ...]:
        """Those around a repair of this kind: the events with which the calls began, and the last ones up to the repair."""
        if self._body is not None:
            return (self._body,)
        return self._found.get(kind) or self._around()

    def _around(self) -> tuple[KeptEvent, ...]:
        first = self._number - len(self._last) + 1
        latest = [kept_event(first + at, raw) for at, raw in enumerate(self._last)]
        return (*[one for one in self._calls if one.number < first], *latest)


def example_of(events: Sequence[KeptEvent]) -> str:
    """Their structure, at most EXAMPLE_BYTES of plain ASCII. Nothing that somebody wrote is in it."""
    shapes = _Shapes()
    lines: list[str] = []
    before = 0
    for event in events:
        if before and event.number > before + 1:
            lines.append(f"... {event.number - before - 1} events")
        before = event.number
        lines += _lines_of(event, shapes=shapes)
    text = "\n".join(lines)
    return text if len(text) <= EXAMPLE_BYTES else f"{text[: EXAMPLE_BYTES - 4]} ..."


def _lines_of(event: KeptEvent, *, shapes: "_Shapes") -> Iterator[str]:
    if not event.raw:
        yield f"<{'event' if event.number else 'body'} of {event.size} bytes>"
        return
    text = event.raw.removeprefix(BOM).decode("utf-8", "replace")
    if not event.number:
        yield shapes.json_in(text)
        return
    data: list[str] = []
    for line in _LINE_END.split(text):
        field, colon, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data" and colon:
            data.append(value)
        elif field == "event":
            yield f"event: {value.strip() if value.strip() in WORDS else _text(value)}"
        elif field in ("id", "retry") and colon:
            yield f"{field}: {_text(value)}"
        elif not field and colon:
            yield f": {_text(value)}"
        elif line.strip():
            yield f"<a line of {len(line)} characters that is no field>"
    if data:
        said = "\n".join(data)
        yield f"data: {'[DONE]' if said.strip() == '[DONE]' else shapes.json_in(said)}"


class _Shapes:
    """The placeholders of one example: the same id gets the same one in all of its events."""

    def __init__(self) -> None:
        self._placeholders: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._texts: dict[str, list[str]] = {}  # by key: the texts before

    def json_in(self, text: str) -> str:
        """What of the text is JSON, and how much is not."""
        values, end = read_values(text)
        shown = [json.dumps(self._shape(value, key="", depth=0)) for value in values]
        if (rest := len(text[end:].strip())) or not shown:
            shown.append(f"<{rest} characters that are no JSON>")
        return " ".join(shown)

    def _shape(self, value: object, *, key: str, depth: int) -> object:
        match value:
            case None | bool():
                return value
            case int():
                return value if key in NUMBERS and abs(value) < MOST_NUMBER else "<number>"
            case float():
                return "<number>"
            case str():
                return self._shape_of_text(value, key=key)
            case dict():
                return self._shape_of_object(cast("dict[str, object]", value), key=key, depth=depth)
            case list():
                return self._shape_of_list(cast("list[object]", value), key=key, depth=depth)
            case _:
                return "<value>"

    def _shape_of_object(self, fields: dict[str, object], *, key: str, depth: int) -> object:
        if fields and (key in OPAQUE or depth >= MOST_DEPTH):
            return f"<object with {_many(len(fields), 'key')}>"
        shown: dict[str, object] = {}
        for name, value in list(fields.items())[:MOST_FIELDS]:
            known = name in KEYS
            label = name if known else self._placeholder("key", name)
            shown[label] = self._shape(value, key=name if known else "", depth=depth + 1 if known else MOST_DEPTH)
        if len(fields) > MOST_FIELDS:
            shown[f"<and {len(fields) - MOST_FIELDS} more keys>"] = None
        return shown

    def _shape_of_list(self, items: list[object], *, key: str, depth: int) -> object:
        if items and (key in OPAQUE or depth >= MOST_DEPTH):
            return f"<list of {len(items)}>"
        shown = [self._shape(item, key=key, depth=depth + 1) for item in items[:MOST_ITEMS]]
        return [*shown, f"<and {len(items) - MOST_ITEMS} more>"] if len(items) > MOST_ITEMS else shown

    def _shape_of_text(self, text: str, *, key: str) -> str:
        if not text:
            return ""
        if key in WORDS_AT and text in WORDS:
            return text
        if key in IDS:
            return self._placeholder("id", text)
        if key in NAMES:
            return self._placeholder("name", text)
        if key in ARGUMENTS and text == "{}":
            return text
        return self._compared(text, key=key)

    def _compared(self, text: str, *, key: str) -> str:
        """Its length, and whether it repeats an earlier text of the same key."""
        before = self._texts.setdefault(key, [])
        shown = _text(text)
        if text in before:
            shown = f"<the same {_many(len(text), 'character')} again>"
        elif begun := max([len(one) for one in before if text.startswith(one)], default=0):
            shown = f"<{_many(len(text), 'character')} that begin with the {begun} before>"
        before.append(text)
        return shown

    def _placeholder(self, what: str, text: str) -> str:
        found = self._placeholders.get((what, text))
        if found is None:
            number = self._counts[what] = self._counts.get(what, 0) + 1
            found = self._placeholders[what, text] = f"{what}-{number}"
        return found


def _text(text: str) -> str:
    return f"<{_many(len(text), 'character')}>"


def _many(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
