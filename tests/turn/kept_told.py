"""What a turn is told by a model that mostly makes sense: so a drawn turn gets as far as one of a real model.

Each request is answered by what fits it: the rest of a cut response to a continuation, an answer where no tool may be called, a
summary where one is asked for, calls under new ids else; and now and then by anything.
"""

import json
from typing import Any

import msgspec
from hypothesis import strategies as st

from turn.drawn import SIZES, TOLD, faults
from turn.drawn_events import draw_approvals, jitters, next_event
from turnwise.turn.events import (
    Ask,
    Asked,
    CheckOutput,
    Command,
    Event,
    OutputChecked,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    StepPrepared,
    ToolsFinished,
)
from turnwise.vocab import (
    CALL_NOT_MADE,
    NO_FINISH_REASON,
    ArgumentsState,
    Citation,
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Response,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    text_of,
)

REPORT = "".join([f"Line {n} of the report tells of hive {n * 7} and its {n * 13} bees. " for n in range(1, 40)])
WRITTEN = json.dumps({"path": "report.txt", "content": REPORT})
READ_MORE = json.dumps({"a": 1, "more": REPORT})
LONG_TEXTS = (REPORT, WRITTEN, READ_MORE)
SEAM = 30  # characters that stand once in a long text
ITEMS = {
    "anthropic_messages": (
        "server_tool_use",
        '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}',
    ),
    "openai_responses": ("web_search_call", '{"type":"web_search_call","id":"ws_1","status":"completed"}'),
    "openai_chat": ("search", '{"type":"search"}'),
    "gemini": ("executableCode", '{"executableCode":{"language":"PYTHON","code":"1"}}'),
}
ANYBODY = ("person", "person", "default", "program", "failed")
MANY = 140  # calls in one response: more than it may hold
wide_times = st.sampled_from([0.0, 0.5, 1.0, 1.0, 4.0, 4.0, 12.0, 30.0])
# What a stubborn model says over and over.
HABITS = (
    *"again alike cut_again crumbs pause empty ate lost fault silent wrong capped whole".split(),
    "cut call",
    "cut text",
)
KINDS = (
    *["calls"] * 12,
    *["cut call"] * 3,
    *["cut text"] * 2,
    *["answer"] * 2,
    *"again mixed pause empty ate lost refusal fault unmade silent whole wrong capped full refused_beside many".split(),
)
ANSWERS = ("Done: all is read.", '{"a":1}', '```json\n{"a":2}\n```', '{"a":"no number"}', REPORT)
wide_faults = st.builds(
    Fault,
    kind=st.sampled_from(FaultKind),
    message=st.sampled_from(["overloaded", "Loading model", *TOLD]),
    status=st.sampled_from([None, 400, 408, 429, 500, 503, 529]),
    retry_after_s=st.sampled_from([None, None, 2.0, 100.0]),
    should_retry=st.sampled_from([None, None, True, False]),
)
wide_usages = st.builds(
    Usage,
    input_tokens=st.sampled_from([100, 900, 2_900, 20_000]),
    output_tokens=st.sampled_from([1, 100, 900]),
    reasoning_tokens=st.sampled_from([0, 0, 50]),
    cache_read_tokens=st.sampled_from([0, 0, 80]),
    cache_write_tokens=st.sampled_from([0, 0, 20]),
    provider=st.sampled_from(["", '{"cost":0.01}', '{"cost":null}']),
)


def next_told(data: Any, command: Command, said: int) -> Event:
    """What a model, a person and tools say of `command`; now and then anything."""
    if isinstance(command, CheckOutput):
        problems = data.draw(st.sampled_from([(), (), ("`a` is too small",)]))
        return OutputChecked(problems=problems, at_s=data.draw(wide_times))
    if data.draw(st.integers(0, 11)) == 0:
        return with_price(data, next_event(data, command, said=said))
    match command:
        case SendRequest():
            return _replied(data, command)
        case RunTools(calls=planned) if data.draw(st.integers(0, 3)):
            text = data.draw(st.sampled_from(["", *SIZES, REPORT * 8]))
            sound = [_result(plan.call, text=text, varies=data.draw(st.booleans())) for plan in planned]
            event = next_event(data, command, said=said)
            reports = event.children if isinstance(event, ToolsFinished) else ()
            return ToolsFinished(results=tuple(sound), children=reports, at_s=data.draw(wide_times))
        case Ask(asks=asks) if data.draw(st.booleans()):
            given = [one for one in draw_approvals(data, asks) if one.digest in ("", *[ask.digest for ask in asks])]
            given = [msgspec.structs.replace(one, by=data.draw(st.sampled_from(ANYBODY))) for one in given]
            return Asked(approvals=tuple(given), at_s=data.draw(wide_times))
        case _:
            return with_price(data, next_event(data, command, said=said))


def with_price(data: Any, event: Event) -> Event:
    """A model that only `prepare_step` names comes with its price, as a face looks it up; and with settings of its own."""
    if not isinstance(event, StepPrepared):
        return event
    settings = data.draw(
        st.sampled_from([None, None, Settings(max_output_tokens=200), Settings(reasoning_tokens=1_024)])
    )
    return msgspec.structs.replace(event, settings=settings)


def _result(call: ToolCall, *, text: str, varies: bool) -> ToolResult:
    """Some tools say the same each time, which the guard of loops looks at."""
    words = f"did {call.id}" if varies else "did as always"
    more = [File(media_type="image/png", file_id="file-1")] if text == SIZES[-1] else [Text(text)] if text else []
    return ToolResult(call_id=call.id, name=call.name, content=(Text(words), *more))


def _replied(data: Any, command: SendRequest) -> Event:
    jitter, at_s, number = data.draw(jitters), data.draw(wide_times), command.number
    if data.draw(st.integers(0, 14)) == 0:
        fault = data.draw(st.one_of(faults, wide_faults))
        sent, is_answer = data.draw(st.integers(0, 3)) > 0, data.draw(st.booleans())
        partial = _response(data, command, kind="cut text") if sent and data.draw(st.booleans()) else None
        return RequestFailed(
            number=number, fault=fault, partial=partial, at_s=at_s, jitter=jitter, sent=sent, is_answer=is_answer
        )
    return ResponseReceived(
        number=number, response=_response(data, command, kind=_kind(data, command)), at_s=at_s, jitter=jitter
    )


def _kind(data: Any, command: SendRequest) -> str:
    request = command.request
    purpose = command.retry_of or command.purpose
    if data.draw(st.integers(0, 9)) == 0:
        return data.draw(st.sampled_from(KINDS))
    if purpose == "continue" and "crumbs" in data.habits:
        return "crumbs"
    if data.habits and data.draw(st.integers(0, 4)) and purpose not in ("continue", "compact"):
        return data.draw(st.sampled_from(data.habits))
    if purpose == "continue":
        return data.draw(st.sampled_from([*["rest"] * 5, *["some rest"] * 3, "lost rest", "called rest", "calls"]))
    if purpose == "compact":
        return data.draw(st.sampled_from(["summary", "summary", "empty"]))
    if not request.tools or request.tool_choice == "none":
        return data.draw(st.sampled_from(["answer", "answer", "answer", "cut text", "ate", "empty", "calls"]))
    return data.draw(st.sampled_from(KINDS))


def _response(data: Any, command: SendRequest, *, kind: str) -> Response:
    usage = data.draw(st.one_of(st.none(), wide_usages))
    parts, finish, more = _parts(data, command, kind=kind)
    if kind == "ate":
        usage = Usage(input_tokens=500, output_tokens=900, reasoning_tokens=900)
    if kind == "capped":  # a server that ends at a cap of its own
        usage = Usage(input_tokens=500, output_tokens=40)
    if kind == "full":
        usage = Usage(input_tokens=8_000, output_tokens=1_000)
    return Response(message=Message("assistant", tuple(parts)), finish=finish, usage=usage, **more)


def _parts(data: Any, command: SendRequest, *, kind: str) -> tuple[list[Part], FinishReason, dict[str, Any]]:
    """What the response says, why it ended, and its other fields."""
    number = command.number
    stop, length = FinishReason.STOP, FinishReason.LENGTH
    match kind:
        case "calls" | "again" | "alike" | "mixed" | "whole" | "wrong" | "refused_beside" | "many":
            return _with_calls(data, command, kind=kind)
        case "cut call" | "capped" | "full":
            name, whole = data.draw(st.sampled_from([("save", WRITTEN), ("note", WRITTEN), ("read", READ_MORE)]))
            at = data.draw(st.sampled_from([12, 100, 400, 900]))
            cut = ToolCall(
                id=f"k{number}", name=name, arguments=whole[:at], state=ArgumentsState.TRUNCATED, reason="cut"
            )
            beside = [_call(data, command, nth=0)] if data.draw(st.integers(0, 2)) == 0 else []
            finish = data.draw(st.sampled_from([length, length, stop, FinishReason.CUT]))
            return [Text("Writing."), *beside, cut], finish, {}
        case "cut_again":  # each time elsewhere
            at = 60 + data.draw(st.integers(0, 40))
            cut = ToolCall(
                id=f"k{number}", name="note", arguments=WRITTEN[:at], state=ArgumentsState.TRUNCATED, reason="cut"
            )
            return [cut], length, {}
        case "crumbs":
            return [Text(_rest(command, most=110) if command.purpose == "continue" else REPORT[:200])], length, {}
        case "cut text":
            return [Text(REPORT[: data.draw(st.sampled_from([20, 200, 700]))])], length, {}
        case "rest" | "some rest":
            return [Text(_rest(command, most=2_000 if kind == "rest" else 250))], stop if kind == "rest" else length, {}
        case "lost rest":
            return [Text(_rest(command, most=2_000))], stop, {"lost": True}
        case "called rest":
            return [Text(_rest(command, most=90)), _call(data, command, nth=0)], FinishReason.TOOL_CALLS, {}
        case "summary":
            return [Text(f"SUMMARY {number}: parts were read, all is well.")], stop, {}
        case "pause":
            family = "anthropic_messages" if command.request.extra is None else command.request.extra.family
            item = ProviderItem(family, *ITEMS[family])
            return [Text("Looking."), item], FinishReason.PAUSE, {}
        case "empty":
            item = ProviderItem("openai_responses", *ITEMS["openai_responses"])
            return data.draw(st.sampled_from([[], [Text(" ")], [Reasoning("hm")], [item]])), stop, {}
        case "ate":
            return [Reasoning("Let me think. " * 40)], length, {}
        case "lost":
            broken = ToolCall(id=f"l{number}", name="read", arguments='{"a":', state=ArgumentsState.LOST)
            parts = data.draw(
                st.sampled_from([[Text("Look"), broken], [Text("Half a")], [], [broken, _call(data, command, nth=0)]])
            )
            return parts, FinishReason.TOOL_CALLS if broken in parts else stop, {"lost": True}
        case "refusal":
            parts = data.draw(
                st.sampled_from([[Refusal("I will not.")], [Text("No.")], [Refusal("No."), Text("Not that.")]])
            )
            finish = data.draw(st.sampled_from([FinishReason.REFUSAL, FinishReason.CONTENT_FILTER, stop]))
            return parts, finish, {"explanation": data.draw(st.sampled_from([None, "It is against the rules."]))}
        case "fault":
            said: list[Part] = data.draw(st.sampled_from([[], [Text("So f")]]))
            return said, FinishReason.ERROR, {"fault": data.draw(wide_faults)}
        case "unmade":
            return (
                [Reasoning("read(a=1)")],
                stop,
                {"repairs": (Repair(CALL_NOT_MADE, "reasoning", "a call stood in it"),)},
            )
        case "silent":
            repairs = data.draw(st.sampled_from([(), (Repair(NO_FINISH_REASON, "stream", "none came"),)]))
            closed = data.draw(st.booleans())
            return [Text(REPORT[:60])], FinishReason.CUT, {"repairs": repairs, "is_closed": closed}
        case _:
            return _answer(data, command.request.output), stop, {}


def _answer(data: Any, output: OutputSchema | None) -> list[Part]:
    if output is not None and data.draw(st.booleans()):
        return [Text(f'{{"a":{data.draw(st.integers(0, 9))}}}')]
    said = data.draw(st.sampled_from(ANSWERS))
    source = Citation(family="openai_chat", raw="{}", url="https://example.org")
    return [Reasoning("I know."), Text(said, citations=data.draw(st.sampled_from([(), (), (source,)])))]


def _with_calls(data: Any, command: SendRequest, *, kind: str) -> tuple[list[Part], FinishReason, dict[str, Any]]:
    calls = [_call(data, command, nth=nth) for nth in range(data.draw(st.sampled_from([1, 1, 1, 2, 3, 5])))]
    parts: list[Part] = [Text(data.draw(st.sampled_from(["", "Looking."]))), *calls]
    finish, more = FinishReason.TOOL_CALLS, {}
    match kind:
        case "again":  # the very same call, step for step
            parts = [ToolCall(id=f"s{command.number}", name="read", arguments='{"a":7}')]
        case "alike":  # two calls in turn
            parts = [ToolCall(id=f"s{command.number}", name="read", arguments=f'{{"a":{command.number % 2}}}')]
        case "mixed":
            parts.append(Reasoning("And one more."))
            finish = FinishReason.STOP
        case "whole":  # handed out whole, and the limit fell behind it or in it
            written = json.dumps({"path": "w.txt", "content": REPORT[:300]})
            call = ToolCall(id=f"w{command.number}", name="note", arguments=written)
            parts, finish, more = [call], FinishReason.LENGTH, {"may_hide_cut": (call.id,)}
        case "wrong":
            parts = [
                ToolCall(id=f"x{command.number}", name="read", arguments='{"a":"no"}'),
                ToolCall(id=f"y{command.number}", name="raed", arguments="{}"),
                ToolCall(
                    id=f"z{command.number}",
                    name="read",
                    arguments='{"a":1}{"a":2}',
                    state=ArgumentsState.INVALID,
                    alternatives=('{"a":1}', '{"a":2}'),
                ),
            ]
        case "many":
            parts = [ToolCall(id=f"n{command.number}x{n}", name="read", arguments="{}") for n in range(MANY)]
        case "refused_beside":
            parts = [Refusal("Not all of it."), *calls]
        case _:
            pass
    return parts, finish, more


def _call(data: Any, command: SendRequest, *, nth: int) -> ToolCall:
    """A call that fits one of the tools on offer, under an id of its own: mostly one that nobody has to be asked about."""
    id = f"c{command.number}x{nth}"
    names = [tool.name for tool in command.request.tools] or ["read"]
    name = data.draw(st.sampled_from([*names, *(["read"] * 3 if "read" in names else [])]))
    value = data.draw(st.integers(0, 99))
    match name:
        case "script":
            arguments = json.dumps({"program": f"print({value})"})
        case "save" | "note":
            arguments = json.dumps({"path": f"{value}.txt", "content": "bees"})
        case "patch":
            return ToolCall(id=id, name=name, arguments=f"*** {value}", free_form=True)
        case "task":
            arguments = json.dumps({"a": value})
        case "delegate":
            arguments = json.dumps({"agent": ("reader", "writer", "nobody", 5)[value % 4], "a": value})
        case "ask_user":
            arguments = json.dumps({"question": ("Which one?", 7)[value % 2], "options": ["a", "b"]})
        case "read_result":
            ids = [
                part.call_id
                for message in command.request.messages
                for part in message.parts
                if isinstance(part, ToolResult)
            ]
            arguments = json.dumps(
                {
                    "call_id": data.draw(st.sampled_from([*ids, "nobody"])),
                    "offset": data.draw(st.sampled_from([0, 50, 90_000])),
                }
            )
        case _:
            arguments = json.dumps({"a": value})
    return ToolCall(id=id, name=name, arguments=arguments)


def _rest(command: SendRequest, *, most: int) -> str:
    """What comes after the text that the request shows the model, as one that goes on from there would write it."""
    shown = [
        json.dumps(text_of(message)) + _arguments_of(message) + text_of(message)
        for message in command.request.messages[-3:]
    ]
    text = "\n".join(shown)
    for whole in LONG_TEXTS:
        for at in range(len(whole), SEAM - 1, -1):
            if whole[at - SEAM : at] in text:
                return whole[at : at + most]
    return REPORT[-200:]


def _arguments_of(message: Message) -> str:
    return "".join([part.arguments for part in message.parts if isinstance(part, ToolCall)])
