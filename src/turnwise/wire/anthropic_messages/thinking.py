"""How a model of the Messages API is asked to think: by effort, by a budget, or not at all; and what becomes of its thinking
when it goes back: newer models bind it to all that stood before it."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.vocab import Fault, FaultKind, Message, Reasoning, Repair, ToolCall
from turnwise.vocab.wording import each_counted
from turnwise.wire.anthropic_messages.parts import own_fields
from turnwise.wire.family import BETA_HEADER, HttpCall
from turnwise.wire.generations import generation_of, plain_name
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    bytes_of,
    is_null,
    is_object,
    printable,
    quote,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.profiles import MAX_PARTS, Profile

Way = Literal["adaptive", "budget", "none"]

# Beginnings of the names of models that know no adaptive thinking, first found first. Sources: AWS docs, "Adaptive thinking"
# ("older models (Claude Sonnet 4.5, Claude Opus 4.5, etc.) ... require thinking.type: enabled with budget_tokens"); API docs,
# "Extended thinking", supported models (the first is Claude Sonnet 3.7). Whatever is newer, or unknown, is adaptive.
OLDER_MODELS: tuple[tuple[str, Way], ...] = (
    ("claude-3-7", "budget"),
    ("claude-3", "none"),
    ("claude-2", "none"),
    ("claude-instant", "none"),
    ("claude-opus-4-0", "budget"),
    ("claude-opus-4-1", "budget"),
    ("claude-opus-4-2025", "budget"),
    ("claude-opus-4-5", "budget"),
    ("claude-sonnet-4-0", "budget"),
    ("claude-sonnet-4-2025", "budget"),
    ("claude-sonnet-4-5", "budget"),
    ("claude-haiku-4-5", "budget"),
)
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_DROPS = b'{"prefix_mismatch_behavior":"drop_block"}'
_STALE = re.compile(r"^messages\.(\d+)\.content\.(\d+)\b.*bound to a different conversation", re.DOTALL)
# The beta itself is refused, too: by the API's words, and by Amazon Bedrock's behind a proxy (BerriAI/litellm#16561).
_NOT_TAKEN = re.compile(
    r"block_binding.*(extra inputs|not permitted|unknown|unexpected|unsupported)"
    rf"|unexpected value\(s\).*{BINDING_BETA}|\binvalid beta flag\b",
    re.DOTALL | re.IGNORECASE,
)
_BARE = re.compile(r"claude-(?:opus|sonnet|haiku)-4")  # what comes later has a number behind it


def way_of(model: str, profile: Profile) -> Way:
    """How the model is asked to think."""
    if profile.reasoning_request == "budget":
        return "budget"
    name = plain_name(model)
    if _BARE.fullmatch(name):
        return "budget"
    for beginning, way in OLDER_MODELS:
        if name.startswith(beginning):
            return way
    return "adaptive"


def binds_thinking(model: str) -> bool:
    """Whether the model refuses thinking behind a prefix that has changed (API docs, "Preserved thinking")."""
    row = generation_of(model, "claude")
    return row is not None and row.binds


def show(fields: dict[str, bytes]) -> None:
    """Asks, in an encoded body, for thinking as readable text, unless the body says itself what is shown, thinking is off, or a
    call is forced without it. `summarized` and not `updates`, which shows no reasoning: that needs a beta, which servers between
    us and the model refuse."""
    thinking = _thinking_in(fields)
    if thinking is None or "display" in thinking or (not thinking and _forces_call(fields)):
        return
    if thinking.get("type", b'"adaptive"') in (b'"adaptive"', b'"enabled"'):
        fields["thinking"] = write_object({"type": b'"adaptive"', **thinking, "display": b'"summarized"'})


def ask_to_drop(fields: dict[str, bytes]) -> bool:
    """Asks, in an encoded body, that stale thinking is left out and not refused. False where nothing was changed: the body has
    the caller's own setting, thinking is off, which takes none, or it is not asked for and a call is forced: the setting would
    ask for it, and "Thinking may not be enabled when tool_choice forces tool use"."""
    thinking = _thinking_in(fields)
    if (
        thinking is None
        or "block_binding" in thinking
        or thinking.get("type") == b'"disabled"'
        or (not thinking and _forces_call(fields))
    ):
        return False
    fields["thinking"] = write_object({"type": b'"adaptive"', **thinking, "block_binding": _DROPS})
    return True


def _thinking_in(fields: Mapping[str, bytes]) -> dict[str, bytes] | None:
    """None where it cannot be read."""
    raw = msgspec.Raw(fields.get("thinking", b"null"))
    try:
        return {} if is_null(raw) else bytes_of(read_fields(raw))
    except UNREADABLE:
        return None


def _forces_call(fields: Mapping[str, bytes]) -> bool:
    choice = msgspec.Raw(fields.get("tool_choice", b"null"))
    return is_object(choice) and string_of(read_fields(choice), "type") in ("any", "tool")


def with_beta(
    fields: dict[str, bytes], headers: tuple[tuple[str, str], ...], *, beta: str = BINDING_BETA
) -> tuple[tuple[str, str], ...]:
    """The headers with a beta: as a rule the one that the setting for stale thinking needs. Amazon Bedrock reads betas from the
    body (anthropic-python 2.14, lib/bedrock/_client.py)."""
    if b"bedrock" not in fields.get("anthropic_version", b""):
        return *headers, (BETA_HEADER, beta)
    betas = read_items(fields.get("anthropic_beta", b"[]"))
    fields["anthropic_beta"] = write_array([*[bytes(one) for one in betas], quote(beta)])
    return headers


def dropping(call: HttpCall, *, model: str) -> HttpCall | None:
    """An encoded call that asks for stale thinking to be left out; None for a model that does not bind, or beside a setting."""
    fields = bytes_of(read_fields(call.body))
    if not binds_thinking(model) or not ask_to_drop(fields):
        return None
    return HttpCall(
        path=call.path, body=write_object(fields), headers=with_beta(fields, call.headers), method=call.method
    )


def with_binding(fault: Fault, /, *, model: str, body: bytes, asked: bool) -> Fault:
    """The fault with what it says of bound thinking, if it refuses a request to a model that binds. `asked`: turnwise asked for
    stale thinking to be left out. A caller's own setting says what should happen, so nothing is read from a refusal then."""
    if fault.status != 400 or fault.kind is not FaultKind.BAD_REQUEST or not binds_thinking(model):
        return fault
    if asked and _NOT_TAKEN.search(fault.message):
        return replace(fault, binding="not_taken")
    found = _STALE.search(fault.message)
    if found is None or is_set_by_caller(body, asked=asked):
        return fault
    return replace(fault, binding="stale", valid_thinking=_thinking_before(body, int(found[1]), int(found[2])))


def is_set_by_caller(body: bytes, *, asked: bool) -> bool:
    """Whether the body says itself what happens to stale thinking. `asked`: turnwise may have said it."""
    try:
        thinking = read_fields(body).get("thinking")
        setting = None if thinking is None or not is_object(thinking) else read_fields(thinking).get("block_binding")
    except UNREADABLE:
        return False
    return setting is not None and not (asked and bytes(setting) == _DROPS)


def _thinking_before(body: bytes, message: int, block: int) -> int:
    """How many thinking blocks stand before that one; 0 where the body does not have it."""
    count = 0
    try:
        messages = read_items(read_fields(body)["messages"])[: message + 1]
        for at, raw in enumerate(messages):
            content = read_fields(raw)["content"]
            blocks = read_items(content) if bytes(memoryview(content)[:1]) == b"[" else []
            count += sum(is_thinking(read_fields(one)) for one in (blocks[:block] if at == message else blocks))
    except (KeyError, *UNREADABLE):
        return 0
    return count


def is_thinking(block: Fields) -> bool:
    return string_of(block, "type") in ("thinking", "redacted_thinking")


def without_thinking(call: HttpCall, *, leaves_out: Callable[[int, str], bool]) -> tuple[HttpCall, list[str]] | None:
    """An encoded call without the thinking that `leaves_out` picks, and the seals of that; None where it picks none. It is asked
    of each block with the number of those before it, and with its seal: the signature, or the data of redacted thinking."""
    fields = dict(read_fields(call.body))
    seen, seals, messages = 0, list[str](), list[bytes]()
    for raw in read_items(fields["messages"]):
        message = read_fields(raw)
        content = message.get("content")
        if content is None or bytes(memoryview(content)[:1]) != b"[":
            messages.append(bytes(raw))
            continue
        kept: list[bytes] = []
        for one in read_items(content):
            block = read_fields(one) if is_object(one) else {}
            if is_thinking(block):
                seal = string_of(block, "signature") or string_of(block, "data") or ""
                seen += 1
                if leaves_out(seen - 1, seal):
                    seals.append(seal)
                    continue
            kept.append(bytes(one))
        if kept:
            messages.append(write_object({**message, "content": write_array(kept)}))
    fields["messages"] = msgspec.Raw(write_array(messages))
    return (HttpCall(path=call.path, body=write_object(fields), headers=call.headers), seals) if seals else None


def input_repairs(fields: Fields) -> list[Repair]:
    """What a response's `input_transformations` tell: thinking that its model was not shown, or was shown though stale."""
    raw = fields.get("input_transformations")
    if not raw or is_null(raw):
        return []
    try:
        told = [read_fields(one) for one in read_items(raw)[:MAX_PARTS]]
    except UNREADABLE:
        return []
    dropped, allowed = (_of_type(told, type) for type in ("thinking_dropped", "thinking_mismatch_allowed"))
    found: list[Repair] = []
    if dropped:
        what = f"the provider left thinking out of the prompt: {_counted(dropped)}"
        found.append(Repair("thinking_dropped", _first_of(dropped), what))
    if allowed:
        what = f"the provider let stale thinking stay in the prompt: {_counted(allowed)}"
        found.append(Repair("thinking_stale", _first_of(allowed), what))
    return found


def _of_type(entries: Sequence[Fields], type: str) -> list[Fields]:
    return [one for one in entries if string_of(one, "type") == type]


def _first_of(entries: Sequence[Fields]) -> str:
    return printable(string_of(entries[0], "path") or "messages")


def _counted(entries: Sequence[Fields]) -> str:
    return each_counted([printable(string_of(one, "reason") or "no reason") for one in entries])


def may_think_by_budget(messages: Sequence[Message]) -> bool:
    """False where the current turn began with calls and no thinking of this API's: another family's model made them, or thinking
    was off. The API answers 400 then ("Expected `thinking` or `redacted_thinking`, but found `tool_use` ... To avoid this
    requirement, disable `thinking`"). With adaptive thinking it asks for none (API docs, "Adaptive thinking")."""
    answer: list[Message] = []
    for at in range(len(messages) - 1, -1, -1):
        message = messages[at]
        # What a user says behind results goes in one message with them, and the turn goes on.
        if message.role == "user" and (at == 0 or messages[at - 1].role != "tool"):
            break
        if message.role == "assistant":
            answer.append(message)
    if not answer or not any(isinstance(part, ToolCall) for message in answer for part in message.parts):
        return True
    return any(_is_signed(part) for part in answer[-1].parts if isinstance(part, Reasoning))


def _is_signed(part: Reasoning) -> bool:
    own = own_fields(part.opaque)
    return "signature" in own or "data" in own
