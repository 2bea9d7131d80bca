"""What is said to the model: short histories whose manner it imitates, because a model of 135 million parameters does so.

A forced `tool_choice` forces nothing in this server's build, so no test rests on it: a call comes where two calls stand in the
history.
"""

import json
from collections.abc import Iterator, Sequence

from turnwise import Settings
from turnwise.vocab import Message, Part, Text, ToolCall, ToolResult

GREEDY = Settings(max_output_tokens=60, temperature=0)
SHORT = Settings(max_output_tokens=24, temperature=0)
FRUIT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["name", "count"],
    "additionalProperties": False,
}


def said(role: str, *parts: Part) -> Message:
    return Message(role=role, parts=parts)  # pyright: ignore[reportArgumentType]


def calls(name: str, *arguments: dict[str, object], at: str) -> Message:
    return said(
        "assistant",
        *[ToolCall(id=f"{at}{number}", name=name, arguments=json.dumps(each)) for number, each in enumerate(arguments)],
    )


def results(name: str, *texts: str, at: str) -> Message:
    return said(
        "tool",
        *[ToolResult(call_id=f"{at}{number}", name=name, content=(Text(text),)) for number, text in enumerate(texts)],
    )


def rounds(*lines: tuple[str, Sequence[tuple[str, str]], str]) -> Iterator[Message]:
    """For each line: the user asks, the model calls `weather` for each city at once, reads the results and answers."""
    for number, (question, cities, answer) in enumerate(lines):
        at = f"{number}x"
        yield said("user", Text(question))
        yield calls("weather", *[{"city": city} for city, _ in cities], at=at)
        yield results("weather", *[text for _, text in cities], at=at)
        yield said("assistant", Text(answer))


ONE_BY_ONE = list(
    rounds(
        ("Weather in Rome?", [("Rome", "sunny")], "Rome: sunny."),
        ("Weather in Paris?", [("Paris", "rain")], "Paris: rain."),
    )
)
TWO_AT_ONCE = list(
    rounds(
        ("Weather in Rome and Paris?", [("Rome", "sunny"), ("Paris", "rain")], "Rome: sunny. Paris: rain."),
        ("Weather in Bonn and Kyiv?", [("Bonn", "fog"), ("Kyiv", "wind")], "Bonn: fog. Kyiv: wind."),
    )
)
POEMS = [
    *(said("user", Text("Save a poem of the sea.")),),
    calls("save", {"text": "The sea is wide and blue and deep, and the ships go over it by day and by night."}, at="p"),
    results("save", "saved", at="p"),
    said("assistant", Text("Saved.")),
    said("user", Text("Save a poem of the wood.")),
    calls(
        "save", {"text": "The wood is dark and green and still, and deer go through it by day and by night."}, at="q"
    ),
    results("save", "saved", at="q"),
    said("assistant", Text("Saved.")),
]
FRUITS = [
    said("user", Text("Three apples as JSON.")),
    said("assistant", Text('{"name": "apple", "count": 3}')),
    said("user", Text("Five pears as JSON.")),
    said("assistant", Text('{"name": "pear", "count": 5}')),
]


def places(*names: str) -> Iterator[Message]:
    """About 115 tokens for each name."""
    for name in names:
        about = (
            f"{name} has a river, a market and an old bridge. In the north of {name} there are hills, in the south a harbour. "
            f"Its people like music, tea and long walks by the water, and they talk of the weather of {name} all day. "
        )
        yield said("user", Text(f"Tell me about {name}."))
        yield said("assistant", Text(about * 2))


MANY_PLACES = list(places(*"Rome Paris Oslo Lima Bonn Kyiv Cairo Delhi Tokyo".split()))
