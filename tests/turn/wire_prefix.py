"""What two requests of a turn have in common, judged by the bytes that went out and by nothing else (done-when 7)."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from turnwise.turn.request_plan import PREFIX_EXCEPTIONS

MESSAGES = {
    "openai_chat": "messages",
    "openai_responses": "input",
    "anthropic_messages": "messages",
    "gemini": "contents",
    "ollama_chat": "messages",
    "cohere_chat": "messages",
    "gemini_interactions": "input",
}
PIECES = {"anthropic_messages": "content", "gemini": "parts"}
SYSTEM = ("system", "instructions", "systemInstruction", "system_instruction")
# Where the body says in which form the answer is wanted.
OUTPUT = ("response_format", "text", "output_config.format", "generationConfig.responseMimeType")
OUTPUT += ("generationConfig.responseJsonSchema",)
# What may stand before the messages.
STATIC = frozenset({"model", "tools", *SYSTEM, "store", "include"})
# What would have to be read again at full price if it got lost: nothing of it may stand in what is for one request only.
DEAR = (b'"tool_calls"', b'"tool_call_id"', b'"function_call', b'"tool_use"', b'"tool_result"', b'"functionCall"')
DEAR += (b'"functionResponse"', b'"thinking"', b'"reasoning"', b'"thought"')
THINKING = ("thinking", "reasoning", "reasoning_effort")
ONE_OF = ("compaction", "paused content", "last message")


class Wire(NamedTuple):
    """One request: its path, its body without cache marks and as it was `sent`, its fields in order, and its messages as the
    smallest pieces that providers cache by: Anthropic's content blocks, Gemini's parts (it caches by tokens), the others'
    messages and items. `ends` are the places in the body behind each of them."""

    path: str
    body: bytes
    sent: bytes
    head: dict[str, bytes]
    tail: dict[str, bytes]
    system: tuple[bytes, ...]
    blocks: tuple[bytes, ...]
    ends: tuple[int, ...]


# What no provider compares: they move on from request to request.
MARKS = re.compile(rb',"cache_control":\{"type":"ephemeral"(?:,"ttl":"1h")?\}')

# The choice of a tool as a sentence, where the server refuses its field (Chat Completions): no message, and behind all of them.
CHOICE = re.compile(
    rb'\{"role":"user","content":"'
    rb'(?:Answer in text now, without calling a tool|Call (?:the tool `\w+`|one of the tools) now)\."\}'
)


def read_wire(family: str, *, path: str, body: bytes) -> Wire:
    sent, body = body, MARKS.sub(b"", body)
    fields = {key: bytes(raw) for key, raw in msgspec.json.decode(body, type=dict[str, msgspec.Raw]).items()}
    keys = list(fields)
    at = keys.index(MESSAGES[family])
    head = {key: fields[key] for key in keys[:at]}
    assert head.keys() <= STATIC, "what changes stands before the messages"
    assert not {"model", "tools", *SYSTEM} & set(keys[at:]), "what stays the same stands behind the messages"
    place = len(b",".join(_pair(key, value) for key, value in head.items()))
    blocks: list[bytes] = []
    ends: list[int] = []
    for raw in msgspec.json.decode(fields[keys[at]], type=list[msgspec.Raw]):
        start = body.index(bytes(raw), place)
        place = start + len(bytes(raw))
        for number, piece in enumerate(_pieces(bytes(raw), family=family)):
            start = body.index(piece, start)
            blocks.append(_told_by(bytes(raw), piece, number=number) if family in PIECES else piece)
            ends.append(start + len(piece))
            start = ends[-1]
    if blocks and CHOICE.fullmatch(blocks[-1]):
        del blocks[-1], ends[-1]
    leading = next((n for n, block in enumerate(blocks) if _role(block) not in ("system", "developer")), len(blocks))
    system = (*[head[key] for key in SYSTEM if key in head], *blocks[:leading])
    return Wire(
        path=path,
        body=body,
        sent=sent,
        head=head,
        tail={key: fields[key] for key in keys[at + 1 :]},
        system=system,
        blocks=tuple(blocks[leading:]),
        ends=tuple(ends[leading:]),
    )


def _pair(key: str, value: bytes) -> bytes:
    return msgspec.json.encode(key) + b":" + value


def _pieces(message: bytes, *, family: str) -> list[bytes]:
    field = PIECES.get(family)
    if field is None:
        return [message]
    content = msgspec.json.decode(message, type=dict[str, msgspec.Raw])[field]
    return [bytes(block) for block in msgspec.json.decode(content, type=list[msgspec.Raw])]


def _told_by(content: bytes, part: bytes, *, number: int) -> bytes:
    """The part with its role and its place in the message: without the one the user's words are the model's, without the
    other the end of a message between two parts is overlooked."""
    role = msgspec.json.decode(content, type=dict[str, msgspec.Raw]).get("role", msgspec.Raw(b"null"))
    return b'{"role":%b,"number":%d,"part":%b}' % (bytes(role), number, part)


def _role(block: bytes) -> object:
    return msgspec.json.decode(block, type=dict[str, object]).get("role")


def changes_between(before: Wire, *, after: Wire) -> frozenset[str]:
    """What of PREFIX_EXCEPTIONS the bytes show; of a loss among the messages only that there is one ("messages")."""
    found: set[str] = set()
    if (before.path, before.head.get("model")) != (after.path, after.head.get("model")):
        found.add("model")
    if before.head.get("tools") != after.head.get("tools"):
        found.add("tools")
    if before.system != after.system or _output(before) != _output(after):
        found.add("output")
    marks = before.sent.count(b"cache_control"), after.sent.count(b"cache_control")
    if min(marks) > 0 and max(marks) > 1:  # one is the user's own, or all of a request that nothing reads
        if any(before.tail.get(name) != after.tail.get(name) for name in ("tool_choice", "parallel_tool_calls")):
            found.add("tool choice")
        if any(before.tail.get(name) != after.tail.get(name) for name in THINKING):
            found.add("thinking")
    if lost_blocks(before, after=after):
        found.add("messages")
    if found.isdisjoint(("model", "tools")) and before.system == after.system:
        # The bytes themselves, whatever the fields look like.
        kept = len(before.blocks) - len(lost_blocks(before, after=after))
        end = before.ends[kept - 1] if kept else 0
        assert after.body[:end] == before.body[:end], (before.body, after.body)
        assert before.head == after.head
    return frozenset(found)


def lost_blocks(before: Wire, *, after: Wire) -> tuple[bytes, ...]:
    """What the first request's messages end with and the second one's do not begin with."""
    pairs = zip(before.blocks, after.blocks, strict=False)
    same = next((n for n, (old, new) in enumerate(pairs) if old != new), min(len(before.blocks), len(after.blocks)))
    return before.blocks[same:]


def _output(wire: Wire) -> tuple[bytes | None, ...]:
    found: list[bytes | None] = []
    for name in OUTPUT:
        key, _, inner = name.partition(".")
        value = wire.tail.get(key)
        if inner and value is not None:
            raw = msgspec.json.decode(value, type=dict[str, msgspec.Raw]).get(inner)
            value = None if raw is None else bytes(raw)
        found.append(value)
    return tuple(found)


def check_prefixes(wires: Sequence[Wire], *, named: Sequence[str], is_behind: bool = False) -> None:
    """Every byte-level break is named, everything named is a byte-level break, and neither is counted twice. `is_behind`: a turn
    before it has sent something, so its first request may break that one's prefix (test_causes_of_prefix_changes.py)."""
    by_request = [
        [change.split(": ")[1] for change in named if change.startswith(f"request {number}: ")]
        for number in range(1, len(wires) + 1)
    ]
    assert sum([len(own) for own in by_request]) == len(named)
    assert not by_request or by_request[0] == [] or is_behind
    for number, (before, after, own) in enumerate(zip(wires, wires[1:], by_request[1:], strict=False), start=2):
        assert set(own) <= PREFIX_EXCEPTIONS.keys()
        seen = {"messages" if name in ONE_OF else name for name in own}
        assert len(seen) == len(own), own
        shown = changes_between(before, after=after)
        if "compaction" in own and _output(before) == _output(after):
            shown -= {"output"}  # what stood before a system message of the history may be gone, so it leads now
        assert seen == shown, (number, own, shown, before.body, after.body)
        if "last message" in own:
            lost = lost_blocks(before, after=after)
            assert not any(dear in block for block in lost for dear in DEAR), (number, lost)
