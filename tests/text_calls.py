"""Calls as models write them into text, one writer a syntax, and a response read from such a text.

The writers follow the models' chat templates, not our readers.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from turnwise.assembly.response import Assembler
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import (
    ArgumentsState,
    Finished,
    FinishReason,
    Frame,
    Message,
    Response,
    TextDelta,
    ToolSpec,
    calls_of,
    text_of,
)

Arguments = Mapping[str, object]
Call = tuple[str, Arguments]

PARAMETERS = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "content": {"type": ["string", "null"]},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "force": {"type": "boolean"},
        "options": {"type": "object"},
        "items": {"type": "array"},
    },
}
NAMES = ("read", "write_file", "list", "a.b-c", "get_weather")
TOOLS = tuple([ToolSpec(name=name, parameters=json.dumps(PARAMETERS)) for name in NAMES])


def as_text(value: object) -> str:
    """A value between tags: a string as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def hermes(calls: Sequence[Call]) -> str:
    return "\n".join(
        [f"<tool_call>\n{json.dumps({'name': name, 'arguments': given})}\n</tool_call>" for name, given in calls]
    )


def qwen_coder(calls: Sequence[Call]) -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join([f"<parameter={key}>\n{as_text(value)}\n</parameter>\n" for key, value in given.items()])
        blocks.append(f"<tool_call>\n<function={name}>\n{members}</function>\n</tool_call>")
    return "\n".join(blocks)


def mistral_list(calls: Sequence[Call]) -> str:
    return "[TOOL_CALLS]" + json.dumps([{"name": name, "arguments": given} for name, given in calls])


def mistral_named(calls: Sequence[Call]) -> str:
    return "".join([f"[TOOL_CALLS]{name}[ARGS]{json.dumps(given)}" for name, given in calls])


def mistral_ids(calls: Sequence[Call]) -> str:
    return "".join([f"[TOOL_CALLS]{name}[CALL_ID]abcdefghi[ARGS]{json.dumps(given)}" for name, given in calls])


def llama_json(calls: Sequence[Call]) -> str:
    return "<|python_tag|>" + "; ".join([json.dumps({"name": name, "parameters": given}) for name, given in calls])


def python_list(calls: Sequence[Call]) -> str:
    written = [f"{name}({', '.join([f'{key}={value!r}' for key, value in given.items()])})" for name, given in calls]
    return f"[{', '.join(written)}]"


def lfm(calls: Sequence[Call]) -> str:
    return f"<|tool_call_start|>{python_list(calls)}<|tool_call_end|>"


def deepseek_v3(calls: Sequence[Call]) -> str:
    written = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json.dumps(given)}\n```<｜tool▁call▁end｜>"
        for name, given in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "\n".join(written) + "<｜tool▁calls▁end｜>"


def deepseek_v31(calls: Sequence[Call]) -> str:
    written = [
        f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{json.dumps(given)}<｜tool▁call▁end｜>" for name, given in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "".join(written) + "<｜tool▁calls▁end｜>"


def _dsml(calls: Sequence[Call], outer: str) -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join(
            [
                f'<｜DSML｜parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{as_text(value)}'
                "</｜DSML｜parameter>\n"
                for key, value in given.items()
            ]
        )
        blocks.append(f'<｜DSML｜invoke name="{name}">\n{members}</｜DSML｜invoke>\n')
    return f"<｜DSML｜{outer}>\n{''.join(blocks)}</｜DSML｜{outer}>"


def dsml(calls: Sequence[Call]) -> str:
    return _dsml(calls, "function_calls")


def dsml_v4(calls: Sequence[Call]) -> str:
    return _dsml(calls, "tool_calls")


def kimi(calls: Sequence[Call]) -> str:
    written = [
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{json.dumps(given)}<|tool_call_end|>"
        for n, (name, given) in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(written) + "<|tool_calls_section_end|>"


def glm(calls: Sequence[Call]) -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join(
            [f"<arg_key>{key}</arg_key>\n<arg_value>{as_text(value)}</arg_value>\n" for key, value in given.items()]
        )
        blocks.append(f"<tool_call>{name}\n{members}</tool_call>")
    return "\n".join(blocks)


def glm_47(calls: Sequence[Call]) -> str:
    return glm(calls).replace("\n<arg_", "<arg_").replace("\n</tool_call>", "</tool_call>")


def minimax(calls: Sequence[Call]) -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join([f'<parameter name="{key}">{as_text(value)}</parameter>\n' for key, value in given.items()])
        blocks.append(f'<invoke name="{name}">\n{members}</invoke>\n')
    return f"<minimax:tool_call>\n{''.join(blocks)}</minimax:tool_call>"


def harmony(calls: Sequence[Call]) -> str:
    written = [
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(given)}<|call|>"
        for name, given in calls
    ]
    return "<|start|>assistant".join(written)


WRITERS: dict[str, Callable[[Sequence[Call]], str]] = {
    "hermes": hermes,
    "qwen3-coder": qwen_coder,
    "mistral, list": mistral_list,
    "mistral, names": mistral_named,
    "mistral, ids": mistral_ids,
    "llama": llama_json,
    "lfm": lfm,
    "deepseek v3": deepseek_v3,
    "deepseek v3.1": deepseek_v31,
    "dsml": dsml,
    "dsml v4": dsml_v4,
    "kimi": kimi,
    "glm": glm,
    "minimax": minimax,
    "harmony": harmony,
}
# Those in which nothing escapes a value, so that one that holds the syntax's own closing marks cannot always be told.
TAGGED = frozenset({"qwen3-coder", "dsml", "dsml v4", "glm", "minimax"})


class Reading:
    """A response read from text, and what watchers were shown of it."""

    def __init__(self, response: Response, shown: Sequence[Frame]) -> None:
        self.response = response
        self.shown = shown

    @property
    def calls(self) -> list[Call]:
        """The calls that may run."""
        return [
            (call.name, json.loads(call.arguments))
            for call in calls_of(self.response.message)
            if call.state is ArgumentsState.COMPLETE
        ]

    @property
    def states(self) -> list[str]:
        return [call.state.value for call in calls_of(self.response.message)]

    @property
    def text(self) -> str:
        return text_of(self.response.message)

    @property
    def shown_text(self) -> str:
        return "".join([frame.text for frame in self.shown if isinstance(frame, TextDelta)])

    @property
    def outcome(self) -> object:
        """Everything but how it came in pieces."""
        return self.response.message, self.response.finish, self.shown_text, self.response.repairs


def read_text(
    pieces: Iterable[str] | str,
    *,
    reason: FinishReason | None = FinishReason.STOP,
    tools: Sequence[ToolSpec] = TOOLS,
    earlier: Sequence[Message] = (),
    unmarked: bool = False,
    leading: bool = False,
    before: Sequence[Frame] = (),
    after: Sequence[Frame] = (),
) -> Reading:
    """What becomes of a text that comes in these pieces."""
    found = CallFinder(tools=tools, earlier=earlier, unmarked=unmarked, leading=leading)
    assembler = Assembler(tool_names=frozenset([tool.name for tool in tools]))
    shown: list[Frame] = []
    came: list[Frame] = [*before, *[TextDelta(piece) for piece in ([pieces] if isinstance(pieces, str) else pieces)]]
    came += after
    if reason is not None:
        came.append(Finished(reason, reason.value))
    for frame in came:
        shown += assembler.receive_all(found.take([frame]))
    shown += assembler.receive_all(found.finish())
    return Reading(assembler.finish(), shown)
