"""Messages as the conventions write them: JSON text, without keys, and of a bounded size."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from turnwise.vocab import File, Message, Part, ProviderItem, Reasoning, Refusal, Text, ToolCall, ToolResult, ToolSpec

MOST_OF_A_TEXT = 16_384  # characters; a whole file in a result is the exporter's largest attribute else
MOST_OF_AN_ATTRIBUTE = (
    262_144  # bytes; each request's span has its whole prompt, so a long run would grow with its square
)
MOST_OF_A_NAME = 256  # characters of a name or an id: endpoints and models write these, too
LONGEST_KEY = 4_096  # characters: a key that begins before a cut ends in these

Item = dict[str, object]
Source = TypeVar("Source")


class Contents:
    """Writes contents for attributes. `scrub` removes the key from a text."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        self._scrub = scrub

    def text(self, text: str) -> str:
        """The text without keys; of a longer one its beginning, and how much is missing."""
        shown = scrubbed(text, most=MOST_OF_A_TEXT, scrub=self._scrub)
        return shown if len(text) <= MOST_OF_A_TEXT else f"{shown} ... ({len(text) - MOST_OF_A_TEXT} more characters)"

    def messages(self, messages: Sequence[Message]) -> str:
        """The newest parts of the messages, as many as there is room for."""
        room = _Room()
        kept = [self._message(one, parts=room.newest(self._part, one.parts)) for one in reversed(messages)]
        return _json([one for one in reversed(kept) if one["parts"]])

    def answer(self, message: Message, *, finish: str) -> str:
        """One message of the model, with the reason why it ended."""
        return _json(
            [{**self._message(message, parts=_Room().first(self._part, message.parts)), "finish_reason": finish}]
        )

    def instructions(self, texts: Sequence[Text]) -> str:
        """The system prompt."""
        return _json(_Room().first(self._part, texts))

    def tools(self, tools: Sequence[ToolSpec]) -> str:
        """What the model was told of the tools."""
        return _json(_Room().first(self._tool, tools))

    def result(self, result: ToolResult) -> str:
        """What the model reads of a call."""
        return self.text("\n".join([one.text if isinstance(one, Text) else "(a file)" for one in result.content]))

    def _message(self, message: Message, *, parts: list[Item]) -> Item:
        return {"role": message.role, "parts": parts}

    def _tool(self, tool: ToolSpec) -> Item:
        return {"type": "function", "name": self._name(tool.name), "description": self.text(tool.description)}

    def _part(self, part: Part) -> Item:
        match part:
            case Text(text=text) | Refusal(text=text):
                return {"type": "text", "content": self.text(text)}
            case Reasoning(text=text):
                return {"type": "reasoning", "content": self.text(text)}
            case ToolCall():
                arguments = self.text(part.arguments)
                return {
                    "type": "tool_call",
                    "id": self._name(part.id),
                    "name": self._name(part.name),
                    "arguments": arguments,
                }
            case ToolResult():
                return {"type": "tool_call_response", "id": self._name(part.call_id), "response": self.result(part)}
            case File():
                return {"type": "file", "mime_type": self._name(part.media_type)}
            case ProviderItem(kind=kind):
                return {"type": "provider_item", "kind": self._name(kind)}

    def _name(self, name: str) -> str:
        return scrubbed(name, most=MOST_OF_A_NAME, scrub=self._scrub)


class _Room:
    """What is left of one attribute. It ends with the first item for which there is no room."""

    def __init__(self) -> None:
        self._left = MOST_OF_AN_ATTRIBUTE

    def first(self, write: Callable[[Source], Item], sources: Iterable[Source]) -> list[Item]:
        kept: list[Item] = []
        for source in sources:
            if self._left <= 0:
                break
            item = write(source)
            self._left -= len(msgspec.json.encode(item)) + _BESIDE
            if self._left > 0:
                kept.append(item)
        return kept

    def newest(self, write: Callable[[Source], Item], sources: Sequence[Source]) -> list[Item]:
        self._left -= _BESIDE
        return self.first(write, reversed(sources))[::-1]


_BESIDE = 64  # bytes around a part or a message: its role, commas, brackets


def scrubbed(text: str, *, most: int, scrub: Callable[[str], str]) -> str:
    """No more than the first `most` characters, without keys and without the half of one at the cut."""
    if len(text) <= most:
        return scrub(text)[:most]
    cut = text[: most + LONGEST_KEY]
    shown = scrub(cut)
    return (shown if cut == text else shown[: max(len(shown) - LONGEST_KEY, 0)])[:most]


def _json(items: Sequence[Item]) -> str:
    return msgspec.json.encode(items).decode()
