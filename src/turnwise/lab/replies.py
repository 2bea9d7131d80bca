"""The next response of a script: a function of what was said and of the script, of nothing else."""

import re
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.lab.caches import BYTES_A_TOKEN, CacheUse
from turnwise.lab.families.family import Conversation, LabFamily, SentMessage
from turnwise.lab.raw import Raw, dump, rows, table, text
from turnwise.lab.script import Script, ScriptedCall, ScriptedFault, ScriptedStep, fill
from turnwise.testing.frames import PIECE
from turnwise.vocab import (
    ArgumentsState,
    FinishReason,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Response,
    Text,
    ToolCall,
    Usage,
)

# A model that knows only what stands in the request: what it recalls of the user's words, and the summaries it writes.


QUOTE = 240  # characters of one message of the user: a long one is quoted with its beginning and its end
SHORT_LINE = 160  # of what was called, what came of it, and what the model said itself
USER_SAID = "The user said: "


def user_texts(conversation: Conversation) -> list[str]:
    """What stands in the request in the user's name: a summary of earlier messages too."""
    return [text for one in conversation.said if one.role == "user" for text in one.texts]


def recalled(script: Script, *, conversation: Conversation) -> dict[str, str | int]:
    """Every word that the script recalls: the first group of its pattern's last match in the user's texts, or that it is
    not known."""
    words: dict[str, str | int] = {}
    texts = user_texts(conversation) if script.recall else []
    for name, pattern in script.recall.items():
        found = [match.group(1) for text in texts for match in re.finditer(pattern, text)]
        words[name] = found[-1] if found else script.forgotten
    return words


def asked_step(script: Script, *, turn: tuple[SentMessage, ...], place: int) -> ScriptedStep | None:
    """The step for the question that the turn begins with, where the script has one for it; of several, the one in turn."""
    first = next((one for one in turn if one.role == "user"), None)
    question = first.texts[-1] if first is not None and first.texts else ""
    found = next((step.asked for step in script.steps if step.asked and re.search(step.asked, question)), None)
    steps = [step for step in script.steps if found is not None and step.asked == found]
    return steps[min(place, len(steps) - 1)] if steps else None


def is_asked_for_summary(script: Script, *, conversation: Conversation) -> bool:
    last = conversation.said[-1] if conversation.said else None
    if not script.summarises or last is None or last.role != "user" or not last.texts:
        return False
    return re.search(script.summarises, last.texts[-1]) is not None


def summary_of(conversation: Conversation, *, limit_bytes: int) -> str:
    """An extract of everything but the request for it: the user's words first, then of the rest as much as there is room for,
    the newest first; all of it in the order in which it was said."""
    lines: list[tuple[bool, str]] = []
    results = {result.id: result.content for one in conversation.said for result in one.results}
    for place, one in enumerate(conversation.said):
        texts = one.texts[:-1] if place == len(conversation.said) - 1 else one.texts
        match one.role:
            case "user":
                lines += [(True, line) for text in texts for line in quoted(text)]
            case "assistant":
                lines += [(False, f"I said: {shortened(text, limit=SHORT_LINE)}") for text in texts if text.strip()]
                for call in one.calls:
                    gave = shortened(results.get(call.id, "nothing"), limit=SHORT_LINE)
                    lines.append((False, f"{call.name} {shortened(call.arguments, limit=SHORT_LINE)} gave: {gave}"))
            case "system" | "results":
                pass
    lines = list(dict.fromkeys(lines))
    kept: set[int] = set()
    left = limit_bytes
    by_weight = sorted(range(len(lines)), key=lambda at: (not lines[at][0], at if lines[at][0] else -at))
    for at in by_weight:
        size = len(dump(lines[at][1]))
        if size <= left:
            kept.add(at)
            left -= size
    return "\n".join([lines[at][1] for at in sorted(kept)]) or "Nothing was said yet."


def quoted(text: str) -> list[str]:
    """The user's words on a line; those that an earlier summary quotes as it quotes them."""
    before = [line for line in text.splitlines() if line.startswith(USER_SAID)]
    return before or [USER_SAID + shortened(text, limit=QUOTE)]


def shortened(text: str, *, limit: int) -> str:
    """On one line; its beginning and its end where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit // 2]} ... {line[len(line) - limit // 2 :]}"


OWN_ID = re.compile(r"call_(\d{1,6})_\d+")
MAX_EXAMPLE_DEPTH = 8
SUMMARY_TOKENS = 2000
NO_PLACEHOLDERS = str.maketrans("{}", "()")  # what is quoted must not be filled in


class LabReply(msgspec.Struct, frozen=True, kw_only=True):
    """`step` counts the script's steps from 1; `wire` is the step's own stream for this family, if it has one.
    `piece` are the characters that a stream sends at a time. `ends_unsaid`: a stream without a finish reason ends as others
    do, with its usage."""

    response: Response
    step: int
    wire: str | None = None
    fault: ScriptedFault | None = None
    is_summary: bool = False
    ends_unsaid: bool = False
    piece: int = PIECE


class TokenRoom(msgspec.Struct, frozen=True, kw_only=True):
    """What a request allows: tokens of output, and of thinking."""

    output: int | None
    thinking: int | None


class LabRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as far as an answer depends on it. `receipt` counts the very same requests before it."""

    conversation: Conversation
    family: LabFamily
    streamed: bool
    room: TokenRoom
    prompt_bytes: int
    receipt: int = 0

    def cut_form(self, name: str) -> Literal["text", "held", "object"]:
        """What is handed out of a call of that tool if the output limit cuts it."""
        form = self.family.cut_calls
        if form == "text" or (self.streamed and name in self.conversation.eager):
            return "text"
        return form if self.streamed else "object"


def next_reply(script: Script, asked: LabRequest) -> LabReply:
    """What the script says to this request."""
    conversation = asked.conversation
    turn = this_turn(conversation.said, script=script)
    place = responses_in(turn, script=script)
    steps = [step for step in script.steps if not step.asked]
    step = asked_step(script, turn=turn, place=place) or steps[min(place, len(steps) - 1)]
    summary = is_asked_for_summary(script, conversation=conversation)
    contents = [result.content for one in turn for result in one.results]
    values: dict[str, str | int] = {
        **script.parameters,
        **recalled(script, conversation=conversation),
        "n": place + 1,
        "result": contents[-1] if contents else "",
        "results": "\n".join(contents),
        "example": dump(example_of(conversation.output_schema)).decode(),
    }
    found = taken(step, contents=contents, values=values)
    if summary:
        room = min(asked.room.output or SUMMARY_TOKENS, SUMMARY_TOKENS) * BYTES_A_TOKEN
        step = ScriptedStep(text=summary_of(conversation, limit_bytes=room).translate(NO_PLACEHOLDERS))
    elif step.calls and silenced(script, conversation=conversation):
        step = ScriptedStep(text=script.forced or script.steps[-1].text)
    elif found is None:
        step = ScriptedStep(text=step.otherwise or "What I was looking for is not in the results.")
    fault = step.faults[asked.receipt] if asked.receipt < len(step.faults) else step.fault
    if fault is not None and (fault.text or fault.calls):
        step = replace(step, text=fault.text, calls=fault.calls)
    made = made_before(conversation) + 1
    parts = parts_of(step, asked, values={**values, **(found or {})}, made=made)
    response = Response(
        message=Message("assistant", tuple(parts)),
        finish=step.finish or default_finish(step, family=asked.family),
        usage=usage_of(parts, prompt_bytes=asked.prompt_bytes),
        id=f"lab-{script.name}-{made}",
        model=script.name,
    )
    return LabReply(
        response=response,
        step=place + 1,
        wire=step.wire.get(asked.family.name) if asked.streamed else None,
        fault=fault,
        is_summary=summary,
    )


def this_turn(said: tuple[SentMessage, ...], *, script: Script) -> tuple[SentMessage, ...]:
    """From the user's last message that begins a turn. One that follows results, or a text that the script goes on from,
    is an instruction within the turn."""
    return said[max(_beginnings(said, script=script), default=0) :]


def turns_in(said: tuple[SentMessage, ...], *, script: Script) -> int:
    """How many turns of the user's the conversation shows: what was summarised or left out is not seen."""
    return 1 + len(_beginnings(said, script=script))


def _beginnings(said: tuple[SentMessage, ...], *, script: Script) -> list[int]:
    """Where each turn after the first begins."""
    found: list[int] = []
    before: SentMessage | None = None
    going_on = {fill(step.text, values=script.parameters) for step in script.steps if step.continues}
    for position, one in enumerate(said):
        if one.role == "system":
            continue
        if one.role == "user" and before is not None and before.role == "assistant" and not before.calls:
            found += [position] if "".join(before.texts) not in going_on else []
        before = one
    return found


def responses_in(turn: tuple[SentMessage, ...], *, script: Script) -> int:
    count = sum(1 for one in turn if one.role == "assistant")
    if script.nudges:
        first = next((one for one in turn if one.role == "user"), None)
        for one in turn:
            if one.role == "user":
                count += max(0, len(one.texts) - 1) if one is first else len(one.texts)
    return count


def made_before(conversation: Conversation) -> int:
    """How many responses there were: those that are shown, or more, by our own call ids, where a client left some out to
    save room. An id must not come twice, as OpenAI's Responses refuse it ("Duplicate item found")."""
    shown = sum(1 for one in conversation.said if one.role == "assistant")
    ids = [OWN_ID.fullmatch(call.id) for one in conversation.said for call in one.calls]
    return max([shown, *[int(found[1]) for found in ids if found]])


def silenced(script: Script, *, conversation: Conversation) -> bool:
    match script.obeys:
        case "none":
            return conversation.forbids or not conversation.tools
        case "no-tools":
            return not conversation.tools
        case "never":
            return False


def default_finish(step: ScriptedStep, *, family: LabFamily) -> FinishReason:
    if any(call.cut_after is not None for call in step.calls):
        return FinishReason.LENGTH
    if step.calls:
        return FinishReason.TOOL_CALLS
    return FinishReason.REFUSAL if step.refusal and family.refuses_by_word else FinishReason.STOP


def taken(step: ScriptedStep, *, contents: list[str], values: dict[str, str | int]) -> dict[str, str | int] | None:
    """What the step takes from the results; None where something is not in them."""
    taken: dict[str, str | int] = {}
    for name, pattern in step.take.items():
        sought = fill(pattern, values={**values, **taken})
        found = [match for content in contents if (match := re.search(sought, content))]
        if not found:
            return None
        taken[name] = found[-1].group(1)
    return taken


def parts_of(step: ScriptedStep, asked: LabRequest, *, values: dict[str, str | int], made: int) -> list[Part]:
    parts: list[Part] = []
    family = asked.family
    if step.reasoning:
        parts.append(family.thought(fill(step.reasoning, values=values), made, asked.conversation.sealed))
    if step.text:
        parts.append(Text(fill(step.text, values=values)))
    parts += [ProviderItem(item.family, item.kind, item.json) for item in step.items if item.family == family.name]
    if step.refusal:
        parts.append(Refusal(fill(step.refusal, values=values)))
    for number, call in enumerate(step.calls, start=1):
        made_call = tool_call(call, asked, id=call.id or f"call_{made}_{number}", values=values)
        parts.append(signed(made_call, parts=parts, family=family))
    return parts


def with_signature(reply: LabReply, *, sign_call: Callable[[str], Opaque]) -> LabReply:
    """The first call carries a signature of its own."""
    message = reply.response.message
    first = next((part for part in message.parts if isinstance(part, ToolCall)), None)
    if first is None:
        return reply
    made = replace(first, opaque=sign_call(first.id))
    return with_parts(reply, [made if part is first else part for part in message.parts])


def with_parts(reply: LabReply, parts: Iterable[Part]) -> LabReply:
    message = replace(reply.response.message, parts=tuple(parts))
    return replace(reply, response=replace(reply.response, message=message))


def signed(call: ToolCall, *, parts: list[Part], family: LabFamily) -> ToolCall:
    """Where calls carry the signature of a thought, the first one after it does."""
    thoughts = [part.text for part in parts if isinstance(part, Reasoning)]
    if family.call_signature is None or not thoughts or any(isinstance(part, ToolCall) for part in parts):
        return call
    return replace(call, opaque=family.call_signature(thoughts[0]))


def tool_call(call: ScriptedCall, asked: LabRequest, *, id: str, values: dict[str, str | int]) -> ToolCall:
    name, tools = fill(call.name, values=values), asked.conversation.tools
    if call.or_any and tools and not any(tool.name == name for tool in tools):
        return ToolCall(id=id, name=tools[0].name, arguments=dump(example_of(tools[0].schema)).decode())
    arguments = filled(call.arguments, values=values)
    whole = dump(arguments).decode()
    if call.cut_after is None:
        return ToolCall(id=id, name=name, arguments=whole)
    kept = dump(whole_keys(arguments, within=call.cut_after)).decode()
    match asked.cut_form(name):
        case "text":
            return ToolCall(id=id, name=name, arguments=whole[: call.cut_after], state=ArgumentsState.TRUNCATED)
        case "held":
            return ToolCall(id=id, name=name, arguments=kept[:-1], state=ArgumentsState.TRUNCATED)
        case "object":
            return ToolCall(id=id, name=name, arguments=kept)


def filled(arguments: dict[str, object], *, values: dict[str, str | int]) -> dict[str, object]:
    return {key: fill(value, values=values) if isinstance(value, str) else value for key, value in arguments.items()}


def whole_keys(arguments: dict[str, object], *, within: int) -> dict[str, object]:
    """The leading keys whose values end within that many characters of the object's JSON."""
    kept: dict[str, object] = {}
    for key, value in arguments.items():
        if len(dump({**kept, key: value}).decode()) - 1 > within:
            break
        kept[key] = value
    return kept


def usage_of(parts: list[Part], *, prompt_bytes: int) -> Usage:
    reasoning = sum(len(part.text.encode()) for part in parts if isinstance(part, Reasoning))
    said = sum(len(part.text.encode()) for part in parts if isinstance(part, Text | Refusal))
    called = sum(len((part.name + part.arguments).encode()) for part in parts if isinstance(part, ToolCall))
    return Usage(
        input_tokens=tokens(prompt_bytes),
        output_tokens=tokens(reasoning + said + called),
        reasoning_tokens=tokens(reasoning),
    )


def with_cache_use(reply: LabReply, *, use: CacheUse) -> LabReply:
    """With what came from the cache in its usage, and what went there. Anthropic's object tells how long that is kept."""
    usage = reply.response.usage
    if usage is None or not (use.read or use.written):
        return reply
    read = min(use.read, usage.input_tokens)
    written = min(use.written, usage.input_tokens - read)
    hour = min(use.hour, written)
    kept = {"cache_creation": {"ephemeral_5m_input_tokens": written - hour, "ephemeral_1h_input_tokens": hour}}
    told = replace(
        usage,
        cache_read_tokens=read,
        cache_write_tokens=written,
        provider=dump(kept).decode() if written and use.is_timed else "",
    )
    return replace(reply, response=replace(reply.response, usage=told))


def tokens(count_bytes: int) -> int:
    return -(-count_bytes // BYTES_A_TOKEN)


def example_of(schema: Raw) -> Raw:
    """A value that fits a plain JSON Schema: the first of each choice, one of each list. {} where there is no schema."""
    return {} if schema is None else example(schema, root=schema, depth=0)


def example(schema: Raw, *, root: Raw, depth: int) -> Raw:
    fields = table(schema)
    if depth > MAX_EXAMPLE_DEPTH:
        return None
    if isinstance(fields.get("$ref"), str):
        found = root
        for key in text(fields.get("$ref")).removeprefix("#/").split("/"):
            found = table(found).get(key)
        return example(found, root=root, depth=depth + 1)
    for key in ("const", "default"):
        if key in fields:
            return fields[key]
    if rows(fields.get("enum")):
        return rows(fields.get("enum"))[0]
    for key in ("anyOf", "oneOf", "allOf"):
        if rows(fields.get(key)):
            return example(rows(fields.get(key))[0], root=root, depth=depth + 1)
    type = fields.get("type")
    word = text(rows(type)[0]) if rows(type) else text(type)
    match word.lower():
        case "object":
            properties = table(fields.get("properties"))
            return {name: example(inner, root=root, depth=depth + 1) for name, inner in properties.items()}
        case "array":
            return [example(fields.get("items"), root=root, depth=depth + 1)]
        case "integer" | "number":
            return fields.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "text"
