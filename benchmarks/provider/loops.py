"""The replies of a whole tool loop: so many steps that each ask for one call or several, then the answer."""

import msgspec

from provider.streams import encoded
from turnwise.vocab import FinishReason, Text, ToolCall

TOOL = "look"
ANSWER = "All of it is looked up."


def loop_replies(family_name: str, *, steps: int, calls: int = 1) -> list[bytes]:
    """Each call has an id and arguments of its own: nobody may take it for a repetition."""
    found = [
        encoded(
            family_name,
            [
                ToolCall(id=f"call_{step}_{number}", name=TOOL, arguments=_arguments(step, number=number))
                for number in range(calls)
            ],
            finish=FinishReason.TOOL_CALLS,
            number=step,
        )
        for step in range(1, steps + 1)
    ]
    return [*found, encoded(family_name, [Text(ANSWER)], finish=FinishReason.STOP, number=steps + 1)]


def _arguments(step: int, *, number: int) -> str:
    return msgspec.json.encode({"key": f"item {step}-{number}"}).decode()
