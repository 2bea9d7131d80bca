"""Messages as the conventions write them: JSON text, without keys, and of a bounded size."""

from collections.abc import Callable, Sequence

import msgspec

from turnwise.vocab import File, Message, Part, ProviderItem, Reasoning, Refusal, Text, ToolCall, ToolResult, ToolSpec

MOST_OF_A_TEXT = 16_384  # characters; a whole file in a result is the exporter's largest attribute else
MOST_OF_MESSAGES = 262_144  # each request's span has its whole prompt, so a long run would grow with its square

Item = dict[str, object]


class Contents:
    """Writes contents for attributes. `scrub` removes the key from a text."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        self._scrub = scrub

    def text(self, text: str) -> str:
        """The text without keys; of a longer one its beginning, and how much is missing."""
        shown = self._scrub(text)
        rest = len(shown) - MOST_OF_A_TEXT
        return shown if rest <= 0 else f"{shown[:MOST_OF_A_TEXT]} ... ({rest} more characters)"

    def messages(self, messages: Sequence[Message]) -> str:
        """The newest of the messages, as many as there is room for."""
        kept: list[Item] = []
        room = MOST_OF_MESSAGES
        for message in reversed(messages):
            written = self._message(message)
            room -= len(msgspec.json.encode(written))
            if room < 0 and kept:
                break
            kept.append(written)
        return _json(list(reversed(kept)))

    def answer(self, message: Message, *, finish: str) -> str:
        """One message of the model, with the reason why it ended."""
        return _json([{**self._message(message), "finish_reason": finish}])

    def instructions(self, texts: Sequence[Text]) -> str:
        """The system prompt."""
        return _json([self._part(one) for one in texts])

    def tools(self, tools: Sequence[ToolSpec]) -> str:
        """What the model was told of the tools."""
        return _json(
            [{"type": "function", "name": one.name, "description": self.text(one.description)} for one in tools]
        )

    def result(self, result: ToolResult) -> str:
        """What the model reads of a call."""
        return self.text("\n".join([one.text if isinstance(one, Text) else "(a file)" for one in result.content]))

    def _message(self, message: Message) -> Item:
        return {"role": message.role, "parts": [self._part(part) for part in message.parts]}

    def _part(self, part: Part) -> Item:
        match part:
            case Text(text=text) | Refusal(text=text):
                return {"type": "text", "content": self.text(text)}
            case Reasoning(text=text):
                return {"type": "reasoning", "content": self.text(text)}
            case ToolCall():
                arguments = self.text(part.arguments)
                return {"type": "tool_call", "id": part.id, "name": part.name, "arguments": arguments}
            case ToolResult():
                return {"type": "tool_call_response", "id": part.call_id, "response": self.result(part)}
            case File():
                return {"type": "file", "mime_type": part.media_type}
            case ProviderItem(kind=kind):
                return {"type": "provider_item", "kind": kind}


def _json(items: Sequence[Item]) -> str:
    return msgspec.json.encode(items).decode()
