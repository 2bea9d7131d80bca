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


def hermes(calls: Sequence[Call], *, outer: str = "tool_call") -> str:
    written = [json.dumps({"name": name, "arguments": given}) for name, given in calls]
    return "\n".join([f"<{outer}>\n{one}\n</{outer}>" for one in written])


def qwen_coder(calls: Sequence[Call], *, outer: str = "tool_call") -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join([f"<parameter={key}>\n{as_text(value)}\n</parameter>\n" for key, value in given.items()])
        blocks.append(f"<{outer}>\n<function={name}>\n{members}</function>\n</{outer}>")
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


def _dsml(calls: Sequence[Call], outer: str, *, mark: str = "｜DSML｜") -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join(
            [
                f'<{mark}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">{as_text(value)}'
                f"</{mark}parameter>\n"
                for key, value in given.items()
            ]
        )
        blocks.append(f'<{mark}invoke name="{name}">\n{members}</{mark}invoke>\n')
    return f"<{mark}{outer}>\n{''.join(blocks)}</{mark}{outer}>"


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


def glm(calls: Sequence[Call], *, prefix: str = "") -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join(
            [
                f"<{prefix}arg_key>{key}</{prefix}arg_key>\n<{prefix}arg_value>{as_text(value)}</{prefix}arg_value>\n"
                for key, value in given.items()
            ]
        )
        blocks.append(f"<{prefix}tool_call>{name}\n{members}</{prefix}tool_call>")
    return "\n".join(blocks)


def glm_47(calls: Sequence[Call]) -> str:
    return glm(calls).replace("\n<arg_", "<arg_").replace("\n</tool_call>", "</tool_call>")


def minimax(calls: Sequence[Call], *, outer: str = "minimax:tool_call") -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join([f'<parameter name="{key}">{as_text(value)}</parameter>\n' for key, value in given.items()])
        blocks.append(f'<invoke name="{name}">\n{members}</invoke>\n')
    return f"<{outer}>\n{''.join(blocks)}</{outer}>"


def harmony(calls: Sequence[Call]) -> str:
    written = [
        f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{json.dumps(given)}<|call|>"
        for name, given in calls
    ]
    return "<|start|>assistant".join(written)


def dsml_v41(calls: Sequence[Call]) -> str:
    return _dsml(calls, "calls", mark="｜DSML｜ ")


def step(calls: Sequence[Call]) -> str:
    blocks: list[str] = []
    for name, given in calls:
        members = "".join(
            [f'<steptml:parameter name="{key}">{as_text(value)}</steptml:parameter>\n' for key, value in given.items()]
        )
        head = f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">'
        blocks.append(f"{head}\n{members}</steptml:invoke><｜tool_call_end｜>\n")
    return f"<｜tool_calls_begin｜>\n{''.join(blocks)}<｜tool_calls_end｜>"


def invokes(calls: Sequence[Call]) -> str:
    return minimax(calls, outer="function_calls")


def xtml(calls: Sequence[Call]) -> str:
    kinds = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
    written: list[str] = []
    for number, (name, given) in enumerate(calls, 1):
        members = "".join(
            [
                f'<|open|>argument key="{key}" type="{kinds.get(type(value), "null")}"<|sep|>{as_text(value)}'
                "<|close|>argument<|sep|>"
                for key, value in given.items()
            ]
        )
        written.append(f'<|open|>call tool="{name}" index="{number}"<|sep|>{members}<|close|>call<|sep|>')
    return f"<|open|>tools<|sep|>{''.join(written)}<|close|>tools<|sep|>"


def seed(calls: Sequence[Call]) -> str:
    return qwen_coder(calls, outer="seed:tool_call")


def longcat(calls: Sequence[Call]) -> str:
    return hermes(calls, outer="longcat_tool_call")


def longcat_pairs(calls: Sequence[Call]) -> str:
    return glm(calls, prefix="longcat_")


def _braces(value: object, mark: str) -> str:
    match value:
        case str():
            return f"{mark}{value}{mark}"
        case dict():
            return f"{{{','.join([f'{key}:{_braces(one, mark)}' for key, one in value.items()])}}}"
        case list():
            return f"[{','.join([_braces(one, mark) for one in value])}]"
        case _:
            return json.dumps(value)


def gemma(calls: Sequence[Call]) -> str:
    mark = '<|"|>'
    return "".join([f"<|tool_call>call:{name}{_braces(dict(given), mark)}<tool_call|>" for name, given in calls])


def function_gemma(calls: Sequence[Call]) -> str:
    begin, end = "<start_function_call>", "<end_function_call>"
    return "".join([f"{begin}call:{name}{_braces(dict(given), '<escape>')}{end}" for name, given in calls])


def _objects(calls: Sequence[Call]) -> str:
    return json.dumps([{"name": name, "arguments": given} for name, given in calls])


def tool_calls(calls: Sequence[Call]) -> str:
    return f"<tool_calls>{_objects(calls)}</tool_calls>"


def lines_of_objects(calls: Sequence[Call]) -> str:
    written = [json.dumps({"name": name, "arguments": given}) for name, given in calls]
    return "<tool_calls>\n" + "\n".join(written) + "\n</tool_calls>"


def phi(calls: Sequence[Call]) -> str:
    return f"<|tool_call|>{_objects(calls)}<|/tool_call|>"


def nemotron(calls: Sequence[Call]) -> str:
    return f"<TOOLCALL>{_objects(calls)}</TOOLCALL>"


def command(calls: Sequence[Call]) -> str:
    written = [
        json.dumps({"tool_call_id": str(number), "tool_name": name, "parameters": given})
        for number, (name, given) in enumerate(calls)
    ]
    return "<|START_ACTION|>[\n    " + ",\n    ".join(written) + "\n]<|END_ACTION|>"


def apertus(calls: Sequence[Call]) -> str:
    return f"<|tools_prefix|>{json.dumps([{name: given} for name, given in calls])}<|tools_suffix|>"


def internlm(calls: Sequence[Call]) -> str:
    written = [json.dumps({"name": name, "parameters": given}) for name, given in calls]
    return f"<|action_start|><|plugin|>\n{chr(10).join(written)}<|action_end|>"


def olmo(calls: Sequence[Call]) -> str:
    lines = "\n".join([python_list([call])[1:-1] for call in calls])
    return f"<function_calls>{lines}</function_calls>"


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
    "dsml v4.1": dsml_v41,
    "step": step,
    "function_calls": invokes,
    "xtml": xtml,
    "seed": seed,
    "longcat": longcat,
    "longcat, pairs": longcat_pairs,
    "gemma": gemma,
    "function gemma": function_gemma,
    "tool_calls": tool_calls,
    "tool_calls, lines": lines_of_objects,
    "phi": phi,
    "nemotron": nemotron,
    "command": command,
    "apertus": apertus,
    "internlm": internlm,
    "olmo": olmo,
}
# Those in which nothing escapes a value, so that one that holds the syntax's own closing marks cannot always be told.
TAGGED = frozenset(
    [
        *("qwen3-coder", "dsml", "dsml v4", "glm", "minimax", "dsml v4.1", "step", "function_calls", "xtml", "seed"),
        *("longcat, pairs", "gemma", "function gemma"),
    ]
)
# What closes a value there.
CLOSE = {
    "qwen3-coder": "</parameter>",
    "glm": "</arg_value>",
    "longcat, pairs": "</longcat_arg_value>",
    "minimax": "</parameter>",
    "function_calls": "</parameter>",
    "seed": "</parameter>",
    "gemma": '<|"|>',
    "function gemma": "<escape>",
    "step": "</steptml:parameter>",
    "xtml": "<|close|>argument<|sep|>",
    "dsml": "</｜DSML｜parameter>",
    "dsml v4": "</｜DSML｜parameter>",
    "dsml v4.1": "</｜DSML｜ parameter>",
}


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
