"""Taking up calls that an earlier run left pending: which they are, and where their results go."""

from collections.abc import Sequence

import msgspec

from turnwise.rules.history import waiting_calls
from turnwise.turn.approvals import Approval, OneAsk
from turnwise.turn.events import TurnStarted
from turnwise.vocab import Message, Part, ToolCall, ToolResult, calls_of


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn that takes calls up starts with. `new` are the messages that stand before the results of `calls`, `words`
    those that come after them. Without `calls` nothing is taken up."""

    new: tuple[Message, ...]
    words: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    approvals: tuple[Approval, ...] = ()
    added: tuple[Message, ...] = ()  # what of the turn's input is in `new`


def taken_up(started: TurnStarted, *, earlier: Sequence[Message]) -> Resumed:
    """The pending calls that `started` has an approval for: those of the last message, if nothing but results stands behind
    it. A session that has gone on without them has given them a result, so an approval that comes after it is void."""
    plain = Resumed(new=(*started.history, *started.input), added=started.input)
    if not started.approvals:
        return plain
    asking = max([place for place, message in enumerate(started.input) if _asks(message)], default=-1) + 1
    before, behind = started.input[:asking], started.input[asking:]
    results = [Message("tool", kept) for message in behind if (kept := _results(message))]
    added = (*before, *results)
    new = (*started.history, *added)
    answered = {approval.call_id for approval in started.approvals}
    calls = tuple([call for call in waiting_calls((*earlier, *new)) if call.id in answered])
    if not calls:
        return plain
    words = [
        Message("user" if message.role == "tool" else message.role, kept)
        for message in behind
        if (kept := _others(message))
    ]
    return Resumed(new=new, words=tuple(words), calls=calls, approvals=started.approvals, added=added)


def with_asks(messages: Sequence[Message], *, asks: Sequence[OneAsk]) -> tuple[Message, ...]:
    """The history of a paused run, its waiting calls marked with what was shown of them."""
    digests = {ask.call.id: ask.digest for ask in asks}
    waiting = {call.id for call in waiting_calls(messages) if call.id in digests}
    if not waiting:
        return tuple(messages)
    marked = list(messages)
    at = max([place for place, message in enumerate(messages) if _asks(message)])
    parts = [
        msgspec.structs.replace(part, asked=digests[part.id])
        if isinstance(part, ToolCall) and part.id in waiting
        else part
        for part in messages[at].parts
    ]
    marked[at] = msgspec.structs.replace(messages[at], parts=tuple(parts))
    return tuple(marked)


def listed_digests(messages: Sequence[Message], *, asks: Sequence[OneAsk]) -> dict[str, str]:
    """What was shown of the calls that wait, by their ids: as the paused result listed them, or its history is marked."""
    marked = {call.id: call.asked for call in waiting_calls(messages) if call.asked}
    return {**marked, **{ask.call.id: ask.digest for ask in asks}}


def under_healed_ids(resumed: Resumed, *, healed: Sequence[Message], given: Sequence[Message]) -> Resumed:
    """The calls and their approvals under the names and ids that healing gave them. The calls are otherwise as they came
    (`given`): in history the arguments of a cut one are emptied."""
    if not resumed.calls:
        return resumed
    # From the end: healing may have joined the message with the one before it.
    before, after = reversed(_last_calls(given)), reversed(_last_calls(healed))
    wanted = {call.id for call in resumed.calls}
    found = [(old, new) for old, new in zip(before, after, strict=False) if old.id in wanted][::-1]
    ids = {old.id: new.id for old, new in reversed(found)}
    calls = [msgspec.structs.replace(old, id=new.id, name=new.name) for old, new in found]
    approvals = [
        msgspec.structs.replace(one, call_id=ids[one.call_id]) for one in resumed.approvals if one.call_id in ids
    ]
    return msgspec.structs.replace(resumed, calls=tuple(calls), approvals=tuple(approvals))


def reopened(messages: Sequence[Message], *, calls: Sequence[ToolCall]) -> list[Message]:
    """The healed messages without the results that healing gave these calls: they are about to run."""
    ids = {call.id for call in calls}
    opened = list(messages)
    if ids and opened[-1].role == "tool":
        last = opened.pop()
        kept = tuple([part for part in last.parts if not (isinstance(part, ToolResult) and part.call_id in ids)])
        if kept:
            opened.append(last if len(kept) == len(last.parts) else Message("tool", kept))
    return opened


def joined_results(first: Message, second: Message, *, asked: Message) -> Message:
    """One message of both, its results in the order of the calls: half of them were handed in, half have just come."""
    results = {one.call_id: one for one in (*_results(first), *_results(second))}
    return Message("tool", tuple([results[call.id] for call in calls_of(asked) if call.id in results]))


def _asks(message: Message) -> bool:
    return message.role == "assistant" and bool(calls_of(message))


def _last_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    asking = next((message for message in reversed(messages) if message.role != "tool"), None)
    return () if asking is None else tuple(calls_of(asking))


def _results(message: Message) -> tuple[ToolResult, ...]:
    return tuple([part for part in message.parts if isinstance(part, ToolResult)]) if message.role == "tool" else ()


def _others(message: Message) -> tuple[Part, ...]:
    if message.role != "tool":
        return message.parts
    return tuple([part for part in message.parts if not isinstance(part, ToolResult)])
