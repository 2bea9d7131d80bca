"""What single models refuse that their API takes from older ones, and what a body says in its place (promise heal:generation).

One row per model. A model without a row loses nothing: its provider says what it refuses. Every Claude model in the table refuses
thinking budgets, temperature, top_p and top_k other than the default, and an assistant's message at the end; it takes the efforts
up to `max`. What has no other form (an old version of a tool) is left for the provider to refuse by its name.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Message, NamedTool, Request, Text, ToolChoice
from turnwise.wire.encoded_history import Adapted
from turnwise.wire.json_fields import (
    UNREADABLE,
    bytes_of,
    is_null,
    is_object,
    quote,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)

Off = Literal["taken", "to_high", "between_tools", "left_out"]
"""`thinking: disabled` is taken; is taken beside effort `high` and below; is asked for as `between_tools`, up to `high`; or is
refused: then it is left out, and the effort is `low`."""


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What the models whose names begin so take. `binds`: they refuse thinking behind a prefix that has changed. `moves_text`:
    what they say between calls comes as thinking, which is empty unless it is asked for ("Thinking", "Progress updates between
    tool calls", 2026-11). `source`: the page, and when it was read."""

    names: tuple[str, ...]
    source: str
    off: Off = "taken"
    forced: bool = True  # a tool choice that forces a call
    binds: bool = False
    moves_text: bool = False
    told_behind: bool = False  # Claude: takes changed instructions and new tools behind the messages
    none: bool = True  # GPT: effort `none`, and temperature and top_p beside it
    chat_max: bool = True  # GPT: effort `max` in Chat Completions


GENERATIONS = (
    Generation(names=("claude-opus-4-7",), source='Claude docs, "Migrating to Claude Opus 4.7", 2026-11'),
    Generation(
        names=("claude-opus-4-8",), source='Claude docs, "Migrating to Claude Opus 4.7", 2026-11', told_behind=True
    ),
    Generation(
        names=("claude-opus-5",),
        source='Claude docs, "What\'s new in Claude Opus 5", 2026-11',
        off="to_high",
        told_behind=True,
    ),
    Generation(
        names=("claude-opus-5-5",),
        source='Claude docs, "What\'s new in Claude Opus 5.5", 2026-11',
        off="left_out",
        forced=False,
        binds=True,
        moves_text=True,
        told_behind=True,
    ),
    Generation(names=("claude-sonnet-5",), source='Claude docs, "Migrating to Claude Sonnet 5", 2026-11'),
    Generation(
        names=("claude-sonnet-5-5",),
        source='Claude docs, "What\'s new in Claude Sonnet 5.5", 2026-11',
        off="between_tools",
        forced=False,
        binds=True,
        moves_text=True,
        told_behind=True,
    ),
    Generation(
        names=("claude-haiku-5-5",),
        source='Claude docs, "What\'s new in Claude Haiku 5.5", 2026-11',
        binds=True,
        told_behind=True,
    ),
    Generation(
        names=("claude-fable-5", "claude-mythos-5"),
        source='Claude docs, "Claude Fable 5 migration guide", 2026-11',
        off="left_out",
        moves_text=True,
        told_behind=True,
    ),
    Generation(
        names=("claude-fable-5-1", "claude-fable-5-2", "claude-mythos-5-2"),
        source='Claude docs, "What\'s new in Claude Fable 5.1" and "5.2", 2026-11',
        off="left_out",
        forced=False,
        binds=True,
        moves_text=True,
        told_behind=True,
    ),
    Generation(  # AWS docs, "Preserved thinking": it binds and does not check
        names=("claude-mythos-5-1",),
        source='Claude docs, "What\'s new in Claude Fable 5.1", 2026-11',
        off="left_out",
        forced=False,
        moves_text=True,
        told_behind=True,
    ),
    Generation(
        names=("gpt-5.6", "gpt-6-sol", "gpt-6-luna", "gpt-6.1-terra"),
        source='OpenAI docs, "Models" and "Deployment checklist", 2026-11',
    ),
    Generation(
        names=("gpt-6-astra", "gpt-6.1-sol", "gpt-6.2-astra", "gpt-6.2-sol"),
        source='OpenAI docs, "Models" and "Deployment checklist", 2026-11; max in Chat Completions: litellm-docs#1173',
        none=False,
        chat_max=False,
    ),
)
_BY_NAME = {name: row for row in GENERATIONS for name in row.names}
# A further number would be another model (`claude-opus-5-7` of `claude-opus-5`); a date or a word is a version of this one.
_NAME = re.compile(rf"(?:{'|'.join(map(re.escape, sorted(_BY_NAME, reverse=True)))})(?!\.?\d|-\d{{1,2}}(?!\d))")
KEPT_MODELS = 256  # names that were looked up; a process asks a few
_GPT_EFFORTS = {"none": "low", "minimal": "low", "max": "xhigh"}  # where a model does not have them
# As a model that knows effort alone understands a budget: the other way round in `EFFORT_BUDGETS`.
_BUDGETS = ((2048, "low"), (8192, "medium"), (16384, "high"))
_TOP_EFFORTS = ("xhigh", "max")

GO_ON = (
    "Your last message stopped at its end as it stands above. Go on from its last character: say only what follows, and repeat "
    "nothing of it."
)


def plain_name(model: str) -> str:
    """Names may have a vendor before them, and dots or `@` for dashes (Bedrock, Vertex AI, OpenRouter)."""
    at = model.find("claude-")
    return model.rpartition("/")[2] if at < 0 else re.sub(r"[.@:]", "-", model[at:])


@lru_cache(maxsize=KEPT_MODELS)
def generation_of(model: str, maker: Literal["claude", "gpt"]) -> Generation | None:
    """None for a model that the table does not know, or another maker's."""
    found = _NAME.match(plain_name(model))
    return _BY_NAME[found[0]] if found is not None and found[0].startswith(maker) else None


def moves_text(model: str) -> bool:
    """Whether what a Claude model says between its calls comes as thinking, empty unless it is asked for."""
    row = generation_of(model, "claude")
    return row is not None and row.moves_text


def tells_behind(model: str) -> bool:
    """Whether a Claude model takes changed instructions and new tools behind the messages."""
    row = generation_of(model, "claude")
    return row is not None and row.told_behind


def softens(model: str, choice: ToolChoice) -> bool:
    """Whether the model refuses to be forced to this call, so that it is asked in words."""
    if choice != "required" and not isinstance(choice, NamedTool):
        return False
    row = generation_of(model, "claude")
    return row is not None and not row.forced


# --- Claude


def in_words(request: Request) -> tuple[Request, list[Adapted]]:
    """The request with a sentence at its end for what a Claude model takes in words alone."""
    row = generation_of(request.model, "claude")
    if row is None:
        return request, []
    choice = request.tool_choice if request.tools and softens(request.model, request.tool_choice) else "auto"
    prefills = bool(request.messages) and request.messages[-1].role == "assistant"
    said, told = _sentences(
        prefills, forces=choice != "auto", tool=choice.name if isinstance(choice, NamedTool) else None
    )
    if not said:
        return request, []
    messages = (*request.messages, Message("user", tuple([Text(one) for one in said])))
    cache = request.cache and replace(request.cache, passing=request.cache.passing + 1)
    wanted = request.tool_choice if choice == "auto" else "auto"
    return replace(request, messages=messages, cache=cache, tool_choice=wanted), told


def _sentences(prefills: bool, *, forces: bool, tool: str | None) -> tuple[list[str], list[Adapted]]:
    said, told = list[str](), list[Adapted]()
    if prefills:
        said.append(GO_ON)
        told.append(
            Adapted("prefill", "the model does not go on with a message of the assistant; a sentence asks for it")
        )
    if forces:
        said.append(f"Call the tool `{tool}` now." if tool else "Call one of your tools now.")
        told.append(Adapted("tool_choice", "the model cannot be forced to call a tool; a sentence asks for the call"))
    return said, told


def adapt_claude(fields: dict[str, bytes], row: Generation) -> list[Adapted]:
    """Changes, in the encoded fields of a Messages body, what the model refuses. The messages are `say_in_words`' own."""
    told = _adapt_thinking(fields, row)
    for name in ("temperature", "top_p", "top_k"):
        raw = fields.get(name)
        if raw is not None and (name == "top_k" or not _is_one(raw)) and raw != b"null":
            del fields[name]
            told.append(Adapted(name, "the model takes the default alone"))
    return told


def say_in_words(fields: dict[str, bytes], row: Generation) -> list[Adapted]:
    """As `in_words`, for the encoded fields of a Messages body."""
    messages, choice = _items(fields.get("messages")), _object(fields.get("tool_choice"))
    prefills = bool(messages) and is_object(messages[-1]) and _word(_object(messages[-1]), "role") == "assistant"
    type = _word(choice, "type")
    forces = not row.forced and type in ("any", "tool")
    said, told = _sentences(prefills, forces=forces, tool=_word(choice, "name") if type == "tool" else None)
    if forces:
        choice.pop("name", None)
        fields["tool_choice"] = write_object({**choice, "type": b'"auto"'})
    if said:
        blocks = [write_object({"type": b'"text"', "text": quote(one)}) for one in said]
        last = write_object({"role": b'"user"', "content": write_array(blocks)})
        fields["messages"] = write_array([*messages, last])
    return told


def _adapt_thinking(fields: dict[str, bytes], row: Generation) -> list[Adapted]:
    thinking, config = _object(fields.get("thinking")), _object(fields.get("output_config"))
    effort = _word(config, "effort")
    wanted = effort
    match _word(thinking, "type"):
        case "enabled":
            budget = thinking.pop("budget_tokens", b"")
            thinking["type"] = b'"adaptive"'
            wanted = effort or _effort_of(budget)
            because = "the model takes no thinking budget; an effort stands for it"
        case "disabled" if row.off == "between_tools":
            thinking["type"] = b'"between_tools"'
            wanted = "high" if effort in _TOP_EFFORTS else effort
            because = "the model thinks at least between its calls"
        case "disabled" if row.off == "left_out":
            thinking, wanted, because = {}, "low", "the model's thinking cannot be turned off; its effort is low"
        case "disabled" if row.off == "to_high" and effort in _TOP_EFFORTS:
            wanted, because = "high", "the model's thinking can be turned off beside effort high and below"
        case _:
            return []
    fields.pop("thinking", None)
    if thinking:
        fields["thinking"] = write_object(thinking)
    if wanted != effort and wanted is not None:
        fields["output_config"] = write_object({**config, "effort": quote(wanted)})
    return [Adapted("reasoning", because)]


def _effort_of(budget: bytes) -> str:
    try:
        tokens = msgspec.json.decode(budget, type=int)
    except UNREADABLE:
        return "high"
    return next((effort for most, effort in _BUDGETS if tokens <= most), "xhigh")


# --- GPT


def adapt_gpt(fields: dict[str, bytes], row: Generation, *, is_chat: bool) -> list[Adapted]:
    """Changes, in the encoded fields of a body of OpenAI's, what the model refuses."""
    told = list[Adapted]()
    reasoning = {"effort": fields.get("reasoning_effort", b"null")} if is_chat else _object(fields.get("reasoning"))
    effort = _word(reasoning, "effort")
    lacks = ["minimal", *([] if row.none else ["none"]), *(["max"] if is_chat and not row.chat_max else [])]
    if effort is not None and effort in lacks:
        other = _GPT_EFFORTS[effort]
        told.append(Adapted("reasoning", f"the model has no effort {effort}; it is {other}"))
        if is_chat:
            fields["reasoning_effort"] = quote(other)
        else:
            fields["reasoning"] = write_object({**reasoning, "effort": quote(other)})
    if effort == "none" and row.none:
        return told
    for name in ("temperature", "top_p", "top_logprobs", "logprobs"):
        raw = fields.get(name)
        if raw is not None and not _is_one(raw) and raw not in (b"null", b"false"):
            del fields[name]
            told.append(Adapted(name, "the model takes the default alone while it reasons"))
    return told


# --- encoded values


def _word(fields: Mapping[str, bytes], key: str) -> str | None:
    return string_of({key: msgspec.Raw(fields[key])}, key) if key in fields else None


def _object(raw: bytes | None) -> dict[str, bytes]:
    if raw is None or not is_object(raw):
        return {}
    try:
        return bytes_of(read_fields(raw))
    except UNREADABLE:
        return {}


def _items(raw: bytes | None) -> list[bytes]:
    if raw is None or is_null(msgspec.Raw(raw)):
        return []
    try:
        return [bytes(one) for one in read_items(raw)]
    except UNREADABLE:
        return []


def _is_one(raw: bytes) -> bool:
    return raw in (b"1", b"1.0")
