"""Compaction: what gives way when the prompt leaves too little room, and what stays.

In order of what is lost: old tool results are shortened; everything between the first user message and the last steps is
replaced by a summary, for which one request of purpose `compact` is made; the user's longest messages keep their beginning
and end, all but the newest; both; the results of the last steps are shortened, too; and where the turn cannot go on
otherwise, the newest of the user's messages, unless it is the one to answer now. What does not fit into one request for a
summary is summarised in several, one after the other, the oldest part first.
Calls and their results stay together. All of it is a function of the messages and their sizes: linear, the same on replay.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from turnwise.rules.prompt_room import (
    BYTES_A_TOKEN,
    PART_BYTES,
    PromptSize,
    message_bytes,
    part_bytes,
    shrunk,
    tokens_in,
)
from turnwise.rules.schema import decode_strictly
from turnwise.vocab import File, FinishReason, Message, Text, ToolResult, ToolSpec, new_tools_in, tells_instructions
from turnwise.vocab.hidden_characters import says_something

# Tool results of bounded size: limited when they enter, shortened when they are old, and read back by page.
#
# A shortened result keeps its head, its tail and a handle: the id of its call, by which the tool `read_result` gives the rest.
# The whole result is an event of the turn's journal, so it is available wherever the turn is; nothing is stored twice.


READ_RESULT = ToolSpec(
    name="read_result",
    description=(
        "Read a part of an earlier tool result that was shortened to save room. The shortened result names its call_id."
    ),
    parameters=(
        '{"type":"object","properties":{"call_id":{"type":"string","description":"As the shortened result says"},'
        '"offset":{"type":"integer","minimum":0,"description":"The first character to read; 0 is the beginning"},'
        '"limit":{"type":"integer","minimum":1,"description":"How many characters to read"}},'
        '"required":["call_id"],"additionalProperties":false}'
    ),
)

GONE = (
    "The whole result of a call `{id}` is not at hand: what stands in this conversation is all that is left of it. If you "
    "need the rest, call the tool itself again."
)

# Results of one step may take this much of the largest prompt together: the newest step stays untouched, so one step
# must not be able to fill the window.
STEP_SHARE = 4
# A small window should not cut a result that would have been no trouble.
MIN_RESULT_BYTES = 2048
# An old result keeps about a screen of head and tail; what matters of it is mostly in the model's own words by then.
OLD_RESULT_BYTES = 1200
# A result is worth shortening where it is at least this much longer.
WORTH_BYTES = 2 * OLD_RESULT_BYTES
# In place of a handle: the answer is asked for, and no tool can be called.
NO_CALL = ""


class ReadResultArguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    call_id: str
    offset: int = 0
    limit: int | None = None


def result_limit(capacity_tokens: int, *, results: int) -> int:
    """The bytes that one of so many results of a step may have when it enters a history of `capacity_tokens` at most."""
    together = capacity_tokens * BYTES_A_TOKEN // STEP_SHARE
    return max(MIN_RESULT_BYTES, together // max(1, results))


def shorten_result(result: ToolResult, *, limit_bytes: int, handle: str | None) -> ToolResult:
    """The result within `limit_bytes`, a note about the rest not counted; itself where it fits.

    Texts share the limit in proportion; a file that does not fit is named in its place. `handle` is the tool that reads the
    rest; None where there is none, NO_CALL where no tool can be called any more.
    """
    size = part_bytes(result)
    if size <= limit_bytes:
        return result
    texts = sum([part_bytes(part) for part in result.content if isinstance(part, Text)])
    content = tuple(
        [
            _cut(part, limit_bytes=limit_bytes * part_bytes(part) // texts, call_id=result.call_id, handle=handle)
            if isinstance(part, Text)
            else Text(f"({part.media_type}, left out to save room)")
            for part in result.content
        ]
    )
    shortened = msgspec.structs.replace(result, content=content)
    return shortened if part_bytes(shortened) < size else result


def _cut(part: Text, *, limit_bytes: int, call_id: str, handle: str | None) -> Text:
    text = part.text
    size = part_bytes(part) - PART_BYTES
    if size <= limit_bytes:
        return part
    half = limit_bytes * len(text) // size // 2
    left_out = len(text) - 2 * half
    how = "; call the tool again if you need them" if handle is None else ""
    if handle:
        how = f'; call `{handle}` with {{"call_id": "{call_id}", "offset": {half}}} to read them'
    tail = text[len(text) - half :]
    cut = msgspec.structs.replace(
        part, text=f"{text[:half]}\n[... {left_out} of {len(text)} characters left out to save room{how} ...]\n{tail}"
    )
    # A heading beside a long text is no longer than the note.
    return cut if part_bytes(cut) < part_bytes(part) else part


def read_back(arguments: str, *, originals: Mapping[str, ToolResult], page_bytes: int) -> tuple[str, bool]:
    """What `read_result` answers, and whether it is an error. `originals` are whole results by the id of their call."""
    try:
        decode_strictly(arguments)
        given = msgspec.json.decode(arguments, type=ReadResultArguments)
    except ValueError as error:
        return f"The arguments of `{READ_RESULT.name}` do not fit: {error}", True
    original = originals.get(given.call_id)
    if original is None:
        return GONE.format(id=given.call_id), True
    texts = [part.text if isinstance(part, Text) else _named(part) for part in original.content]
    text = "\n".join(texts)
    start = max(0, given.offset)
    if start >= len(text):
        return f"The result of `{given.call_id}` has {len(text)} characters only.", True
    page = len(text[start : start + page_bytes]) * page_bytes // max(1, len(text[start : start + page_bytes].encode()))
    page = min(max(1, page), page_bytes)
    end = min(len(text), start + page, start + (given.limit if given.limit and given.limit > 0 else page))
    if end == len(text):
        return text[start:end], False
    return f"{text[start:end]}\n[characters {start} to {end} of {len(text)}; go on with offset={end}]", False


def _named(part: File) -> str:
    return f"({part.media_type})"


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
# A request for a summary that is not the last request once more is built to fill no more than this much of the room: how dense
# its part of the history is, nobody has counted.
ASK_PERCENT = 90

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

MORE_FOLLOWS = (
    " What came after is not shown here and will be summarised next: write of what is above only, and do not guess "
    "the rest."
)


class PromptFits(msgspec.Struct, frozen=True):
    """Nothing to do: the prompt leaves the reserve."""


class Shorten(msgspec.Struct, frozen=True, kw_only=True):
    """`messages` stand in place of the old ones. `shortened` are the ids of calls whose results were cut; the user's longest
    messages may have been, too."""

    messages: tuple[Message, ...]
    shortened: tuple[str, ...]
    size: PromptSize


class Summarise(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the messages from `first` up to `end` (not included) by a summary, except those in `kept`.

    `asks` are the messages of the request of purpose `compact`: those of the last request, so that the provider's cache
    holds for all of them, or with results shortened where they would not fit; then `instruction` as a user-role text.
    Tools and system stay, tool choice is none. `replaced_bytes` is what the summary has to be shorter than. `base` are the
    messages that the summary goes into, those that have to give way beside it shortened already: `shortened` are the ids of the
    calls whose results were cut for it. The last steps begin at `tail`; before it `kept_to_tail` stay where no summary can be
    had of anything (`left_out`).
    """

    first: int
    end: int
    kept: tuple[int, ...]
    asks: tuple[Message, ...]
    instruction: str
    max_tokens: int
    replaced_bytes: int
    base: tuple[Message, ...]
    shortened: tuple[str, ...]
    tail: int
    kept_to_tail: tuple[int, ...]


class CannotShrink(msgspec.Struct, frozen=True, kw_only=True):
    """What has to stay is too large by itself: force the answer. `why` is for people."""

    why: str


CompactionVerdict = PromptFits | Shorten | Summarise | CannotShrink


class Variant(msgspec.Struct, frozen=True, kw_only=True):
    """The messages with some of them shortened, their sizes, and the ids of the calls whose results were."""

    messages: tuple[Message, ...]
    sizes: Sequence[int]
    ids: tuple[str, ...] = ()
    users: bool = False  # messages of the user were, too


class _Case(msgspec.Struct, frozen=True, kw_only=True):
    """What every variant is judged by, in bytes but for the two in tokens."""

    messages: Sequence[Message]
    sizes: Sequence[int]
    prompt: PromptSize
    capacity_tokens: int
    window_tokens: int
    input_tokens: int | None
    output_tokens: int | None
    handle: str | None
    tail: int
    before_bytes: int  # what stands before the messages
    refused: bool

    def in_bytes(self, tokens: int) -> int:
        """So many tokens of this prompt, in its bytes: by its own measure, not by the cautious three bytes."""
        return tokens * self.prompt.bytes // max(1, self.prompt.tokens)

    def share(self, percent: int) -> int:
        return self.in_bytes(self.capacity_tokens * percent // 100)


def plan(
    messages: Sequence[Message],
    *,
    sizes: Sequence[int],
    prompt: PromptSize,
    capacity_tokens: int,
    window_tokens: int,
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    handle: str | None = None,
    overflowed: bool = False,
    may_summarise: bool = True,
) -> CompactionVerdict:
    """What to do before the next request. `sizes` are the bytes of each message (`message_bytes`), `prompt` the size of all.

    `input_tokens` limits a prompt beside `window_tokens`, which hold prompt and output together, and `output_tokens` a summary.
    `overflowed`: the provider refused the prompt, whatever its size seems to be. `handle` names the tool that reads
    shortened results back. `may_summarise` is false once a summary of this very history failed. Where nothing brings enough
    it is what brings most, if that is worth it: the next request is smaller then, though no step more may fit.
    """
    if prompt.tokens <= capacity_tokens and not overflowed:
        return PromptFits()
    case = _Case(
        messages=messages,
        sizes=sizes,
        prompt=prompt,
        capacity_tokens=capacity_tokens,
        window_tokens=window_tokens,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        handle=handle,
        tail=tail_start(messages, sizes=sizes, prompt=prompt, capacity_tokens=capacity_tokens),
        before_bytes=prompt.bytes - sum(sizes),
        refused=overflowed,
    )
    # What a refused prompt seems to take says nothing, but that less of it is better.
    enough = case.in_bytes(min(capacity_tokens, prompt.tokens) * (100 - MIN_GAIN_PERCENT) // 100)
    least = prompt.bytes * (100 - MIN_GAIN_PERCENT) // 100 + 1
    best: CompactionVerdict = CannotShrink(why="nothing that could be shortened is left")
    for variant in _variants(case):
        found: list[tuple[int, Shorten | Summarise]] = []
        if variant.ids or variant.users:
            now = case.before_bytes + sum(variant.sizes)
            size = shrunk(prompt, bytes_now=now)
            found.append((now, Shorten(messages=variant.messages, shortened=variant.ids, size=size)))
        if may_summarise and not (found and found[0][0] <= enough):
            found += _summaries(case, variant=variant)
        for now, planned in found:
            if now <= enough:
                return planned
            if now < least:
                least, best = now, planned
    return best


def apply_summary(*, planned: Summarise, summary: str) -> tuple[Message, ...]:
    """The messages with the summary in place of what it stands for; the user's own before it, in their order."""
    messages = planned.base
    kept = [messages[index] for index in planned.kept]
    note = Message("user", (Text(f"{SUMMARY_HEAD}\n{summary.strip()}"),))
    return (*messages[: planned.first], *kept, note, *messages[planned.end :])


def left_out(planned: Summarise) -> Summarise:
    """What `LEFT_OUT` stands in place of: all that was to be summarised, the parts that were still to come as well."""
    return msgspec.structs.replace(planned, end=planned.tail, kept=planned.kept_to_tail)


def judge_summary(text: str, *, finish: FinishReason, planned: Summarise, lost: bool = False) -> str | None:
    """The summary to use, or None where there is none that is of use: then force the answer, with `LEFT_OUT` in its place.

    A summary that its own limit cut, or that lost a piece on the way, is kept and says so: it holds what mattered most to
    the model.
    """
    said = text.strip()
    if finish not in (FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOOL_CALLS) or not says_something(said):
        return None
    if finish is FinishReason.LENGTH:
        said += "\n[The summary was cut here by its limit.]"
    if lost:
        said += "\n[A piece of this summary was lost on the way: names and figures in it may be damaged.]"
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


def last_step(messages: Sequence[Message]) -> int:
    """Where the last step, or what the model is to answer, begins."""
    start = len(messages) - 1
    while start > 0 and messages[start].role == "tool":
        start -= 1
    return start


def behind_first_user(messages: Sequence[Message]) -> int:
    """The place behind the first of the user's messages; 0 where there is none."""
    return next((index + 1 for index, message in enumerate(messages) if message.role == "user"), 0)


def tail_start(messages: Sequence[Message], *, sizes: Sequence[int], prompt: PromptSize, capacity_tokens: int) -> int:
    """Where the last steps begin. A step is an assistant's message with the results of its calls: never cut in two.

    The last message stays with what it belongs to, however large; further steps as far as there is room for them.
    """
    room = capacity_tokens * TAIL_PERCENT // 100 * prompt.bytes // max(1, prompt.tokens)
    start = last_step(messages)
    taken = sum(sizes[start:])
    steps = 1 if messages[start].role == "assistant" else 0
    for index in range(start - 1, -1, -1):
        taken += sizes[index]
        if steps == KEEP_STEPS or taken > room:
            break
        if messages[index].role == "assistant":
            start, steps = index, steps + 1
    return start


def users_that_stay(
    messages: Sequence[Message], *, sizes: Sequence[int], first: int, end: int, room: int
) -> tuple[int, ...]:
    """The user's messages between `first` and `end` that stay: all of them, or as many of the newest as fit into `room`
    bytes. The instructions that were told last hold: they stay in any case. New tools need not be told any more: behind a summary
    all go in front."""
    kept: list[int] = []
    newest: int | None = None
    holds = -1  # where the instructions were told last
    for index in range(end - 1, first - 1, -1):
        message = messages[index]
        if message.role not in ("user", "system") or is_summary(message) or new_tools_in(message):
            continue
        if newest is None and message.role == "user":
            newest = index  # what the turn is about: stays in any case
        elif holds < 0 and tells_instructions(message):
            holds = index
        elif sizes[index] > room:
            room = room if newest is None else -1  # none that is older
            continue
        room -= sizes[index]
        kept.append(index)
    return tuple(reversed(kept))


# what gives way


def _variants(case: _Case) -> Iterator[Variant]:
    """The history with ever more of it shortened."""
    target = case.share(TARGET_PERCENT)
    old = shorten_results(
        Variant(messages=tuple(case.messages), sizes=case.sizes),
        places=range(case.tail),
        excess=case.prompt.bytes - target,
        limit_bytes=OLD_RESULT_BYTES,
        handle=case.handle,
    )
    yield old
    limit = max(MIN_RESULT_BYTES, case.share(LONG_USER_PERCENT))
    newest = max([index for index, message in enumerate(case.messages) if message.role == "user"], default=0)
    users = shorten_users(old, limit_bytes=limit, whole=newest)
    if users is not old:
        yield users
    new = range(case.tail, len(case.messages))
    results = sum([isinstance(part, ToolResult) for index in new for part in case.messages[index].parts])
    last = shorten_results(
        users,
        places=new,
        excess=case.prompt.bytes,
        limit_bytes=max(MIN_RESULT_BYTES, case.share(TAIL_PERCENT) // max(1, results)),
        handle=case.handle,
    )
    if last is not users:
        yield last
    # What the turn is about gives way only where it would end otherwise, and never while it is what the model is to answer.
    all_users = shorten_users(last, limit_bytes=limit, whole=len(case.messages) - 1)
    if all_users is not last:
        yield all_users


def shorten_results(
    variant: Variant,
    *,
    places: range,
    excess: int,
    limit_bytes: int,
    handle: str | None,
    worth_bytes: int = WORTH_BYTES,
) -> Variant:
    """The results at these places shortened, the oldest first, until `excess` bytes are freed; a result of fewer than
    `worth_bytes` stays."""
    messages, sizes, ids = list(variant.messages), list(variant.sizes), list(variant.ids)
    freed = 0
    for index in places:
        if freed >= excess:
            break
        if messages[index].role != "tool":
            continue
        was = messages[index].parts
        parts = [
            shorten_result(part, limit_bytes=limit_bytes, handle=handle)
            if isinstance(part, ToolResult) and part_bytes(part) >= max(worth_bytes, limit_bytes)
            else part
            for part in was
        ]
        gains = [
            part_bytes(old) - part_bytes(new) if new is not old else 0 for old, new in zip(was, parts, strict=True)
        ]
        if sum(gains) <= 0:
            continue
        ids += [part.call_id for part, gain in zip(was, gains, strict=True) if gain and isinstance(part, ToolResult)]
        freed += sum(gains)
        messages[index], sizes[index] = Message("tool", tuple(parts)), sizes[index] - sum(gains)
    if not freed:
        return variant
    return msgspec.structs.replace(variant, messages=tuple(messages), sizes=sizes, ids=tuple(dict.fromkeys(ids)))


def shorten_users(variant: Variant, *, limit_bytes: int, whole: int) -> Variant:
    """The user's messages within so many bytes each. The one at `whole` stays, and so does the last message: it is what the
    model is to answer now."""
    messages, sizes = list(variant.messages), list(variant.sizes)
    for index, message in enumerate(variant.messages[:-1]):
        if index == whole or message.role != "user" or sizes[index] <= limit_bytes or is_summary(message):
            continue
        texts = sum([part_bytes(part) for part in message.parts if isinstance(part, Text)])
        parts = [
            _cut_text(part, limit_bytes=limit_bytes * part_bytes(part) // texts) if isinstance(part, Text) else part
            for part in message.parts
        ]
        cut = Message("user", tuple(parts))
        if (size := message_bytes(cut)) < sizes[index]:
            messages[index], sizes[index] = cut, size
    if sizes == list(variant.sizes):
        return variant
    return msgspec.structs.replace(variant, messages=tuple(messages), sizes=sizes, users=True)


def _cut_text(part: Text, *, limit_bytes: int) -> Text:
    size, text = part_bytes(part), part.text
    if size <= limit_bytes:
        return part
    half = limit_bytes * len(text) // size // 2
    note = USER_LEFT_OUT.format(left_out=len(text) - 2 * half, all=len(text))
    return msgspec.structs.replace(part, text=f"{text[:half]}\n{note}\n{text[len(text) - half :]}")


# summaries


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one request for a summary is about: the messages up to `end`, as it shows them."""

    end: int
    asks: tuple[Message, ...]


def _summaries(case: _Case, *, variant: Variant) -> list[tuple[int, Summarise]]:
    """The summary of this variant's middle, and what the prompt is then; none where none can be asked for. Of a middle that is
    summarised in several the first part is asked for now, and the size is that after the last."""
    messages, sizes, tail = variant.messages, variant.sizes, case.tail
    first = behind_first_user(messages)
    if first >= tail:
        return []
    max_tokens = min(MAX_SUMMARY_TOKENS, max(MIN_SUMMARY_TOKENS, case.capacity_tokens * SUMMARY_PERCENT // 100))
    if case.output_tokens is not None:
        max_tokens = min(max_tokens, case.output_tokens)
    instruction = SUMMARISE.format(words=max_tokens * 2 // 3)
    room = case.window_tokens - max_tokens - tokens_in(_summary_bytes(instruction + MORE_FOLLOWS))
    room = room if case.input_tokens is None else min(room, case.input_tokens)
    # A token of our own output is of the same kind as the prompt's.
    summary_bytes = case.in_bytes(max_tokens)
    part = _Part(end=tail, asks=tuple(case.messages))
    if case.prompt.tokens > room or case.refused:
        limit = case.in_bytes(min(room, case.capacity_tokens) * ASK_PERCENT // 100) - case.before_bytes
        found = _part(
            variant, first=first, tail=tail, limit_bytes=limit, least_bytes=2 * summary_bytes + case.share(USER_PERCENT)
        )
        if found is None:
            return []
        part = found
    users = case.share(USER_PERCENT)
    stay = kept = users_that_stay(messages, sizes=sizes, first=first, end=tail, room=users)
    if part.end < tail:
        kept = users_that_stay(messages, sizes=sizes, first=first, end=part.end, room=users)
    rest = {one.call_id for message in messages[part.end :] for one in message.parts if isinstance(one, ToolResult)}
    planned = Summarise(
        first=first,
        end=part.end,
        kept=kept,
        asks=part.asks,
        instruction=instruction + (MORE_FOLLOWS if part.end < tail else ""),
        max_tokens=max_tokens,
        replaced_bytes=sum(sizes[first : part.end]) - sum([sizes[index] for index in kept]),
        base=messages,
        shortened=tuple([id for id in variant.ids if id in rest]),
        tail=tail,
        kept_to_tail=stay,
    )
    if part.end < tail and planned.replaced_bytes < 2 * summary_bytes:
        return []
    left = sum(sizes[:first]) + sum([sizes[index] for index in stay]) + sum(sizes[tail:])
    return [(case.before_bytes + left + summary_bytes, planned)]


def _part(variant: Variant, *, first: int, tail: int, limit_bytes: int, least_bytes: int) -> _Part | None:
    """What fits into one request: all but the last steps, which stay anyway; else the oldest part, up to the end of a step,
    where a summary of it saves something; else the newest, with a word about what is missing. None where not even that."""
    messages, sizes = variant.messages, variant.sizes
    taken, end = sum(sizes[:first]), first
    for index in range(first, tail):
        taken += sizes[index]
        if taken > limit_bytes:
            break
        if messages[index + 1].role != "tool":
            end = index + 1
    if end == tail or sum(sizes[first:end]) >= least_bytes:
        return _Part(end=end, asks=messages[:end])
    total, start = sum(sizes[:tail]), first
    while start < tail and (total > limit_bytes or messages[start].role == "tool"):
        total -= sizes[start]
        start += 1
    if total > limit_bytes or start == tail:
        return None
    note = Message("user", (Text(BEGINNING_LEFT_OUT),))
    return _Part(end=tail, asks=(*messages[:first], note, *messages[start:tail]))


def _summary_bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + len(SUMMARY_HEAD) + 2 * PART_BYTES
