"""A recorded conversation, played again: a client that sends the recorded requests gets the recorded answers.

Messages, calls and results are compared. NOT_COMPARED is ignored, because correct clients may differ in it.
"""

import difflib
from pathlib import Path

import msgspec

from turnwise.errors import CallerError
from turnwise.lab.families import FAMILIES, RECORDED_AS
from turnwise.lab.families.family import Conversation, SentMessage
from turnwise.lab.raw import Raw, parse, table
from turnwise.testing.recording import RecordedExchange

NOT_COMPARED = {
    "call ids": "each is replaced by its number in the conversation; results have to name the right one",
    "whitespace": "texts of blanks only are left out: one client sends ' ' where another sends nothing",
    "reasoning": "`reasoning_content`, thinking blocks, reasoning items and signatures: many clients do not send them back",
    "item ids and statuses": "`id` and `status` of Responses items",
    "place of the system text": "`instructions`, `system`, a system or developer message: one text",
    "wrapping of results": 'Gemini results are objects: {"output": x}, {"return_value": x} and x are one',
    "everything else": "model, tools, tool choice, sampling, limits, output format",
}
# What the recordings' own README says, and why.
UNREPLAYABLE = {
    "openai-chat-openai-plain-crewAI-TestMaxUsageCountWithNativeToolCalling"
    ".test-max-usage-count-tracked-in-native-tool-calling": "its client sent one result for several parallel calls",
    "gemini-google-plain-pydantic-ai-test-google-instructions-only-with-tool-calls": "it ends in a `final_result` call",
    "openai-responses-openai-stream-mirascope-async-stream": "three conversations in one file",
    "openai-responses-bedrock-mantle-plain-pydantic-ai-test-reused-tool-call-ids-gpt-5-5": "two turns in one file",
}


class ConversationFile(msgspec.Struct, frozen=True):
    family: str
    exchanges: tuple[RecordedExchange, ...]
    streamed: bool = False


class RecordedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """`asked[i]` is what request i said, in comparable form."""

    name: str
    family: str
    streamed: bool
    exchanges: tuple[RecordedExchange, ...]
    asked: tuple[tuple[str, ...], ...]


class Unexpected(Exception):
    """A request that is not among the recorded ones; the text is the difference to the nearest."""


def load_recording(path: Path) -> RecordedConversation:
    """Raises CallerError for a file that is no recorded conversation."""
    try:
        file = msgspec.json.decode(path.read_bytes(), type=ConversationFile)
    except (OSError, msgspec.DecodeError) as error:
        raise CallerError(f"`{path}` is no recorded conversation: {error}") from None
    family = RECORDED_AS.get(file.family, file.family)
    bodies: list[Raw] = [parse(bytes(exchange.request.body)) for exchange in file.exchanges]
    return RecordedConversation(
        name=path.stem,
        family=family,
        streamed=file.streamed,
        exchanges=file.exchanges,
        asked=tuple([comparable(FAMILIES[family].read(table(body))) for body in bodies]),
    )


def find(
    recording: RecordedConversation, *, conversation: Conversation, streamed: bool
) -> tuple[int, RecordedExchange]:
    """The exchange whose request said the same. Raises Unexpected."""
    asked = comparable(conversation)
    for number, recorded in enumerate(recording.asked):
        if recorded == asked:
            if streamed != recording.streamed:
                word = "streamed" if recording.streamed else "not streamed"
                raise Unexpected(f"this conversation was recorded {word}")
            return number, recording.exchanges[number]
    nearest = min(recording.asked, key=lambda recorded: (distance(recorded, asked), len(recorded)))
    lines = difflib.unified_diff(nearest, asked, "recorded", "received", lineterm="", n=1)
    raise Unexpected("no recorded request says this; the nearest differs:\n" + "\n".join(lines))


def distance(recorded: tuple[str, ...], asked: tuple[str, ...]) -> int:
    return -sum(
        block.size for block in difflib.SequenceMatcher(a=recorded, b=asked, autojunk=False).get_matching_blocks()
    )


def comparable(conversation: Conversation) -> tuple[str, ...]:
    """One line for each thing said."""
    system = [text for one in conversation.said if one.role == "system" for text in one.texts]
    lines = [f"system: {spoken}"] if (spoken := words(tuple(system))) else []
    numbers: dict[str, int] = {}
    count = 0
    waiting: list[tuple[int, str]] = []
    for one in conversation.said:
        match one.role:
            case "user":
                lines.append(f"user: {words(one.texts)}" + (f" and {one.files} files" if one.files else ""))
            case "assistant":
                if words(one.texts):
                    lines.append(f"assistant: {words(one.texts)}")
                for call in one.calls:
                    count += 1
                    numbers[call.id] = count
                    waiting.append((count, call.name))
                    lines.append(f"call {count}: {call.name} {call.arguments}")
            case "results":
                lines += results_of(one, numbers=numbers, waiting=waiting)
            case "system":
                pass
    return tuple(lines)


def results_of(one: SentMessage, *, numbers: dict[str, int], waiting: list[tuple[int, str]]) -> list[str]:
    """In call order. A result without an id answers the first call of its name that waits (Gemini)."""
    found: list[tuple[int, str]] = []
    for result in one.results:
        number = numbers.get(result.id) if result.id else None
        if number is None or all(number != open for open, _ in waiting):
            number = next((open for open, name in waiting if name == result.name), 0)
        waiting[:] = [(open, name) for open, name in waiting if open != number]
        found.append((number, unwrapped(result.content)))
    return [f"result {number}: {content}" for number, content in sorted(found)]


def words(texts: tuple[str, ...]) -> str:
    return "\n".join([text for text in texts if text.strip()])


def unwrapped(content: str) -> str:
    """The value inside objects of one key and strings of JSON."""
    value: Raw = content
    for _ in range(4):
        if isinstance(value, str):
            try:
                value = parse(value)
            except msgspec.DecodeError:
                break
        if len(table(value)) == 1:
            (value,) = table(value).values()
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()
