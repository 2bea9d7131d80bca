"""Compaction: what gives way when the prompt leaves too little room, and what stays.

First old tool results are shortened. Where that is not enough, everything between the first user message and the last
steps is replaced by a summary, for which one request of purpose `compact` is made; the user's own messages stay as they
are. Where even then too much would stay, the user's longest messages keep their beginning and end, all but the last one.
Calls and their results stay together. All of it is a function of the messages and their sizes: linear, the same on replay.
"""

from collections.abc import Sequence

import msgspec

from turnwise.rules.budget import BYTES_A_TOKEN, PART_BYTES, PromptSize, message_bytes, part_bytes, shrunk
from turnwise.rules.result_size import MIN_RESULT_BYTES, OLD_RESULT_BYTES, WORTH_BYTES, shorten
from turnwise.vocab import FinishReason, Message, Text, ToolResult

# A compaction throws the provider's prompt cache away from its first change on, so it makes room for a while: the prompt
# goes down to this share of its capacity where the history allows it.
TARGET_PERCENT = 50
# What it must bring at least; less is no way out, and the answer is forced (Done when 6: never twice without shrinking).
MIN_GAIN_PERCENT = 10
# Steps that stay as they are, and the share of the capacity that they may take; one step stays in any case.
KEEP_STEPS = 3
TAIL_PERCENT = 30
# Of the capacity, for the user's own messages. Past it the middle ones are quoted to the summary, the first and the newest stay.
USER_PERCENT = 20
# Of the capacity, for one long message of the user where nothing else makes room: the first, the newest, what else stays (20),
# the last steps (30) and the summary (10) then fit together.
LONG_USER_PERCENT = 10
# The length of a summary, as a share of the capacity, and at most (Claude Code's and Codex's are about 2,000 tokens).
SUMMARY_PERCENT = 10
MAX_SUMMARY_TOKENS = 4096
MIN_SUMMARY_TOKENS = 256

SUMMARY_HEAD = "[Summary of the earlier part of this conversation, whose messages are left out here to save room]"
LEFT_OUT = "The earlier part of this conversation had to be left out, and no summary of it could be had. Say so where it matters."
USER_LEFT_OUT = "[... {left_out} of {all} characters of this message are left out here to save room ...]"
BEGINNING_LEFT_OUT = "[Some of the oldest messages are left out here: they do not fit.]"
SUMMARISE = (
    "This conversation has become too long for you to be given all of it again. Write a summary that will stand in place of "
    "everything above apart from the user's own messages and your last steps. Do not call a tool and do not answer the user "
    "now. You will go on with the work from the summary alone, so keep, as exactly as they were said: what the user wants "
    "and every rule they set; decisions and their reasons; facts found, with names, paths, numbers, ids and quotes; what was "
    "done and what came of it, failures included; what is open and the next step. Leave out what no longer matters. At most "
    "{words} words, plain text."
)


class Fits(msgspec.Struct, frozen=True):
    """Nothing to do: the prompt leaves the reserve."""


class Shorten(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` stand in place of the old ones. `shortened` are the ids of calls whose results were cut; the user's longest
    messages may have been, too."""

    messages: tuple[Message, ...]
    shortened: tuple[str, ...]
    size: PromptSize


class Summarise(msgspec.Struct, frozen=True, kw_only=True):
    """The messages `first` up to `end` (not included) are to be replaced by a summary, `kept` of them aside.

    `asks` are the messages of the request of purpose `compact`: those of the last request, so that the provider's cache
    holds for all of them, or with results shortened where they would not fit; then `instruction` as a user-role text.
    Tools and system stay, tool choice is none. `replaced_bytes` is what the summary has to be shorter than.
    """

    first: int
    end: int
    kept: tuple[int, ...]
    asks: tuple[Message, ...]
    instruction: str
    max_tokens: int
    replaced_bytes: int


class CannotShrink(msgspec.Struct, frozen=True, kw_only=True):
    """What has to stay is too large by itself: force the answer. `why` is for people."""

    why: str


Plan = Fits | Shorten | Summarise | CannotShrink


def plan(
    messages: Sequence[Message],
    *,
    sizes: Sequence[int],
    prompt: PromptSize,
    capacity_tokens: int,
    window_tokens: int,
    handle: str | None = None,
    overflowed: bool = False,
    may_summarise: bool = True,
) -> Plan:
    """What to do before the next request. `sizes` are the bytes of each message (`message_bytes`), `prompt` the size of all.

    `overflowed`: the provider refused the prompt, whatever its size seems to be. `handle` names the tool that reads
    shortened results back. `may_summarise` is false once a summary of this very history failed.
    """
    if prompt.tokens <= capacity_tokens and not overflowed:
        return Fits()
    before = min(prompt.tokens, capacity_tokens) if overflowed else prompt.tokens
    tail = _tail_start(messages, sizes=sizes, prompt=prompt, capacity_tokens=capacity_tokens)
    enough = _in_bytes(min(capacity_tokens, before) * (100 - MIN_GAIN_PERCENT) // 100, prompt=prompt)
    target = _in_bytes(capacity_tokens * TARGET_PERCENT // 100, prompt=prompt)
    shortened, freed, ids = _shorten_old(messages, end=tail, excess=prompt.bytes - target, handle=handle)
    if ids and prompt.bytes - freed <= enough:
        return Shorten(messages=shortened, shortened=ids, size=shrunk(prompt, bytes_now=prompt.bytes - freed))
    if not may_summarise:
        return CannotShrink(why="a summary of the history could not be had")
    found = _summary_plan(
        messages,
        sizes=sizes,
        shortened=shortened,
        freed=freed,
        tail=tail,
        prompt=prompt,
        enough=enough,
        capacity_tokens=capacity_tokens,
        window_tokens=window_tokens,
        overflowed=overflowed,
    )
    if isinstance(found, Summarise):
        return found
    limit = max(MIN_RESULT_BYTES, _in_bytes(capacity_tokens * LONG_USER_PERCENT // 100, prompt=prompt))
    newest = max([index for index, message in enumerate(messages) if message.role == "user"], default=0)
    for whole in (newest, len(messages) - 1):  # what the turn is about gives way only where nothing else is left
        cut, more = _cut_users(shortened, limit_bytes=limit, whole=whole)
        if more and prompt.bytes - freed - more <= enough:
            return Shorten(messages=cut, shortened=ids, size=shrunk(prompt, bytes_now=prompt.bytes - freed - more))
    return found


def apply_summary(messages: Sequence[Message], *, planned: Summarise, summary: str) -> tuple[Message, ...]:
    """The messages with the summary in place of what it stands for; the user's own before it, in their order."""
    kept = [messages[index] for index in planned.kept]
    note = Message("user", (Text(f"{SUMMARY_HEAD}\n{summary.strip()}"),))
    return (*messages[: planned.first], *kept, note, *messages[planned.end :])


def judge_summary(text: str, *, finish: FinishReason, planned: Summarise) -> str | None:
    """The summary to use, or None where there is none that is of use: then force the answer, with `LEFT_OUT` in its place.

    A summary that its own limit cut is kept and says so: it holds what mattered most to the model.
    """
    said = text.strip()
    if finish not in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS) or not said:
        return None
    if finish is FinishReason.LENGTH:
        said += "\n[The summary was cut here by its limit.]"
    gain = planned.replaced_bytes - _summary_bytes(said)
    return said if gain * 100 >= planned.replaced_bytes * MIN_GAIN_PERCENT else None


def is_summary(message: Message) -> bool:
    """One of ours: it is summarised again in its turn, and not kept as the user's words."""
    first = message.parts[0] if message.parts else None
    return message.role == "user" and isinstance(first, Text) and first.text.startswith(SUMMARY_HEAD)


def resized(sizes: Sequence[int], *, before: Sequence[Message], after: Sequence[Message]) -> list[int]:
    """The sizes of `after`, measuring only what is not one of the messages `before`."""
    known = {id(message): size for message, size in zip(before, sizes, strict=True)}
    return [known[id(message)] if id(message) in known else message_bytes(message) for message in after]


def weighed(prompt: PromptSize, *, sizes: Sequence[int], sizes_now: Sequence[int]) -> PromptSize:
    """The size of the prompt once its messages have these sizes."""
    return shrunk(prompt, bytes_now=prompt.bytes - sum(sizes) + sum(sizes_now))


# what stays


def _tail_start(messages: Sequence[Message], *, sizes: Sequence[int], prompt: PromptSize, capacity_tokens: int) -> int:
    """Where the last steps begin. A step is an assistant's message with the results of its calls: never cut in two.

    The last message stays with what it belongs to, however large; further steps as far as there is room for them.
    """
    room = _in_bytes(capacity_tokens * TAIL_PERCENT // 100, prompt=prompt)
    start = len(messages) - 1
    while start > 0 and messages[start].role == "tool":
        start -= 1
    taken = sum(sizes[start:])
    steps = 1 if messages[start].role == "assistant" else 0
    for index in range(start - 1, -1, -1):
        taken += sizes[index]
        if steps == KEEP_STEPS or taken > room:
            break
        if messages[index].role == "assistant":
            start, steps = index, steps + 1
    return start


def _kept_users(
    messages: Sequence[Message],
    *,
    sizes: Sequence[int],
    first: int,
    end: int,
    prompt: PromptSize,
    capacity_tokens: int,
) -> tuple[int, ...]:
    """The user's messages between `first` and `end` that stay: all of them, or as many of the newest as there is room for."""
    room = _in_bytes(capacity_tokens * USER_PERCENT // 100, prompt=prompt)
    kept: list[int] = []
    newest: int | None = None
    for index in range(end - 1, first - 1, -1):
        message = messages[index]
        if message.role not in ("user", "system") or is_summary(message):
            continue
        if newest is None and message.role == "user":
            newest = index  # what the turn is about: stays in any case
        elif sizes[index] > room:
            if newest is not None:
                break
            continue
        room -= sizes[index]
        kept.append(index)
    return tuple(reversed(kept))


# what gives way


def _shorten_old(
    messages: Sequence[Message], *, end: int, excess: int, handle: str | None
) -> tuple[tuple[Message, ...], int, tuple[str, ...]]:
    """The oldest results shortened first, until `excess` bytes are freed: messages, bytes freed, ids of their calls."""
    out = list(messages)
    freed = 0
    ids: list[str] = []
    for index in range(end):
        if freed >= excess:
            break
        message = messages[index]
        if message.role != "tool":
            continue
        parts = [
            _shorten_result(part, handle=handle) if isinstance(part, ToolResult) else part for part in message.parts
        ]
        for old, new in zip(message.parts, parts, strict=True):
            if new is not old and isinstance(old, ToolResult):
                freed += part_bytes(old) - part_bytes(new)
                ids.append(old.call_id)
        if any(new is not old for old, new in zip(message.parts, parts, strict=True)):
            out[index] = Message("tool", tuple(parts))
    return tuple(out), freed, tuple(ids)


def _shorten_result(result: ToolResult, *, handle: str | None) -> ToolResult:
    if part_bytes(result) < WORTH_BYTES:
        return result
    return shorten(result, limit_bytes=OLD_RESULT_BYTES, handle=handle)


def _cut_users(messages: tuple[Message, ...], *, limit_bytes: int, whole: int) -> tuple[tuple[Message, ...], int]:
    """The user's messages within so many bytes each, and the bytes that this frees. The one at `whole` stays, and so does the
    last message: it is what the model is to answer now."""
    out = list(messages)
    freed = 0
    for index, message in enumerate(messages[:-1]):
        if (
            index == whole
            or message.role != "user"
            or is_summary(message)
            or (size := message_bytes(message)) <= limit_bytes
        ):
            continue
        texts = sum([part_bytes(part) for part in message.parts if isinstance(part, Text)])
        parts = [
            _cut_text(part, limit_bytes=limit_bytes * part_bytes(part) // texts) if isinstance(part, Text) else part
            for part in message.parts
        ]
        cut = Message("user", tuple(parts))
        if (gain := size - message_bytes(cut)) > 0:
            out[index] = cut
            freed += gain
    return tuple(out), freed


def _cut_text(part: Text, *, limit_bytes: int) -> Text:
    size, text = part_bytes(part), part.text
    if size <= limit_bytes:
        return part
    half = limit_bytes * len(text) // size // 2
    note = USER_LEFT_OUT.format(left_out=len(text) - 2 * half, all=len(text))
    return msgspec.structs.replace(part, text=f"{text[:half]}\n{note}\n{text[len(text) - half :]}")


def _summary_plan(
    messages: Sequence[Message],
    *,
    sizes: Sequence[int],
    shortened: tuple[Message, ...],
    freed: int,
    tail: int,
    prompt: PromptSize,
    enough: int,
    capacity_tokens: int,
    window_tokens: int,
    overflowed: bool,
) -> Summarise | CannotShrink:
    first = next((index + 1 for index, message in enumerate(messages) if message.role == "user"), 0)
    if first >= tail:
        return CannotShrink(why="the first message and the last steps leave nothing to summarise")
    kept = _kept_users(messages, sizes=sizes, first=first, end=tail, prompt=prompt, capacity_tokens=capacity_tokens)
    replaced = sum(sizes[first:tail]) - sum([sizes[index] for index in kept])
    max_tokens = min(MAX_SUMMARY_TOKENS, max(MIN_SUMMARY_TOKENS, capacity_tokens * SUMMARY_PERCENT // 100))
    # A token of our own output is of the same kind as the prompt's.
    if prompt.bytes - replaced + _in_bytes(max_tokens, prompt=prompt) > enough:
        return CannotShrink(why="what has to stay is too large by itself")
    instruction = SUMMARISE.format(words=max_tokens * 2 // 3)
    room = window_tokens - max_tokens - -(-_summary_bytes(instruction) // BYTES_A_TOKEN)
    asks: tuple[Message, ...] | None = tuple(messages)
    if prompt.tokens > room or overflowed:
        before = prompt.bytes - sum(sizes)
        fitting = _in_bytes(min(room, capacity_tokens), prompt=prompt) - before
        asks = _fitting(
            shortened, sizes=resized(sizes, before=messages, after=shortened), limit_bytes=fitting, tail=tail
        )
    if asks is None:
        return CannotShrink(why="the history does not fit into one request for its summary")
    return Summarise(
        first=first,
        end=tail,
        kept=kept,
        asks=asks,
        instruction=instruction,
        max_tokens=max_tokens,
        replaced_bytes=replaced,
    )


def _fitting(
    messages: tuple[Message, ...], *, sizes: Sequence[int], limit_bytes: int, tail: int
) -> tuple[Message, ...] | None:
    """What of the messages fits into a request for their summary: all, else without the last steps, which stay anyway,
    else without the oldest steps too; the first message is always there. None where not even that fits."""
    total = sum(sizes)
    if total <= limit_bytes:
        return messages
    total -= sum(sizes[tail:])
    first = next((index + 1 for index, message in enumerate(messages) if message.role == "user"), 0)
    note = Message("user", (Text(BEGINNING_LEFT_OUT),))
    start = first
    while start < tail and (total > limit_bytes or messages[start].role == "tool"):
        total -= sizes[start]
        start += 1
    if total > limit_bytes or start == tail:
        return None
    between = (note,) if start > first else ()
    return (*messages[:first], *between, *messages[start:tail])


def _summary_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + len(SUMMARY_HEAD) + 2 * PART_BYTES


def _in_bytes(tokens: int, *, prompt: PromptSize) -> int:
    """So many tokens of this prompt, in its bytes: by its own measure, not by the cautious three bytes."""
    return tokens * prompt.bytes // max(1, prompt.tokens)
