"""History that a strict server of every family accepts: each call with exactly one result, right after it, in call order.

Healed once when a turn starts; what the turn appends afterwards is made fit piece by piece (`fit_call`, `fit_result`,
`fit_parts`), so no step walks the whole history. Every change to what was given is recorded as a `Repair`.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from turnwise.errors import CallerError
from turnwise.vocab import (
    ArgumentsState,
    FamilyTraits,
    Fault,
    File,
    Message,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Request,
    Role,
    Text,
    ToolCall,
    ToolResult,
    calls_of,
)
from turnwise.vocab.wording import in_ticks

ID_PRINT_CHARACTERS = 8

NO_RESULT = "There is no result for this call: none was ever reported. The tool may or may not have run."
NOT_DECIDED = (
    "Not run: this call waited for the user to decide about it, and the conversation went on without a decision."
)
BEGINNING_MISSING = "(The beginning of this conversation is not at hand.)"
NO_OUTPUT = "(no output)"
ORPHAN_CALL = "orphan_call"

_COMPLETE = ArgumentsState.COMPLETE  # an enum's member takes longer to find than a name
_pattern = lru_cache(re.compile)
_read_object = msgspec.json.Decoder(dict[str, object]).decode


class Healed(msgspec.Struct, frozen=True):
    messages: tuple[Message, ...]
    repairs: tuple[Repair, ...]
    call_ids: frozenset[str]


def heal(messages: Sequence[Message], *, family: str, traits: FamilyTraits, taken_ids: Collection[str] = ()) -> Healed:
    """Repair `messages` deterministically; what is sound stays equal. Linear in the messages.

    `family` is the name of the API that they go to, `traits` what it takes. `taken_ids` are call ids of messages that stand
    before these and were healed for the same family.
    """
    if (sound := _ids_of_sound(messages, family=family, traits=traits, taken_ids=taken_ids)) is not None:
        return Healed(tuple(messages), (), sound)
    repairs: list[Repair] = []
    results = _results_by_call(messages)
    call_ids = set(taken_ids)
    healed: list[Message] = []
    used = 0
    for index, message in enumerate(messages):
        parts = _own_parts(message, index=index, repairs=repairs)
        role = "user" if message.role == "tool" else message.role
        files: tuple[Part, ...] = ()
        if role == "system" and traits.refuses_system_files:
            files = tuple([part for part in parts if isinstance(part, File)])
            parts = tuple([part for part in parts if not isinstance(part, File)]) if files else parts
        if role != "assistant":
            kept = fit_parts(parts, family=family, traits=traits, role=role)
            if kept:
                healed.append(message if (role, kept) == (message.role, message.parts) else Message(role, kept))
            elif not message.parts:
                repairs.append(Repair("empty_message", f"message {index}", f"left out an empty {message.role} message"))
            if files:
                healed.append(Message("user", files))
                what = f"moved {len(files)} files of a system message into a user message"
                repairs.append(Repair("misplaced_part", f"message {index}", what))
            continue
        calls = [part for part in parts if isinstance(part, ToolCall)]
        answers = [results[index, position] for position in range(len(calls))] if calls else []
        used += sum([answer is not None for answer in answers])
        fitted = _fit_calls(parts, traits=traits, taken=call_ids, index=index, repairs=repairs)
        kept = fit_parts(fitted, family=family, traits=traits, role="assistant")
        if not kept:
            repairs.append(Repair("empty_message", f"message {index}", "left out an assistant message without content"))
            continue
        if traits.joins_neighbours and healed and healed[-1].role == "assistant":
            healed[-1] = Message("assistant", (*healed[-1].parts, *kept))
            repairs.append(Repair("joined_message", f"message {index}", "joined with the assistant message before it"))
        else:
            healed.append(message if kept == message.parts else Message("assistant", kept))
        if calls:
            healed.append(
                _answers(calls_of(healed[-1]), found=answers, messages=messages, index=index, repairs=repairs)
            )
    orphans = sum([isinstance(part, ToolResult) for message in messages for part in message.parts]) - used
    if orphans:
        repairs.append(
            Repair("orphan_result", "history", f"left out {orphans} results that no call of the history asked for")
        )
    if traits.begins_with_user:
        _begin_with_user(healed, repairs=repairs)
    return Healed(tuple(healed), tuple(repairs), frozenset(call_ids))


def _ids_of_sound(
    messages: Sequence[Message], *, family: str, traits: FamilyTraits, taken_ids: Collection[str]
) -> frozenset[str] | None:
    """The ids in use after these messages, if no repair changes any of them; None if something may have to be repaired.

    Most histories are sound, and a long one costs: the usual parts are known by their type, the others are looked at closely.
    """
    ids: list[str] = []
    names: set[str] = set()
    waiting: Sequence[ToolCall] = ()  # the calls of the message before
    before = ""  # the role of the message before; those of the system do not count
    for message in messages:
        role, parts = message.role, message.parts
        if type(parts) is not tuple or not parts:
            return None
        if role == "tool":
            if not waiting or not _answer_all(waiting, results=parts):
                return None
            waiting, before = (), role
            continue
        if waiting or (role == "assistant" == before and traits.joins_neighbours):
            return None
        calls: Sequence[ToolCall] = ()
        if role == "assistant":
            calls = [part for part in parts if type(part) is ToolCall]
        if len(calls) != len(parts) and not (
            _are_usual(parts, calls=calls) or _stay(parts, role=role, family=family, traits=traits)
        ):
            return None
        for call in calls:
            if call.state is not _COMPLETE or call.alternatives:
                return None
            if not call.free_form and not _is_object(call.arguments):
                return None
            ids.append(call.id)
            names.add(call.name)
        if role != "system":
            if not before and role != "user" and traits.begins_with_user:
                return None
            before = role
        waiting = calls
    used = frozenset(ids)
    if waiting or len(used) < len(ids) or not used.isdisjoint(taken_ids):
        return None
    if "" in names:
        return None
    return used.union(taken_ids) if _fit(used, traits=traits) else None


def _fit(ids: Collection[str], *, traits: FamilyTraits) -> bool:
    """Whether each is an id that the family takes as it is."""
    limit, refused = traits.id_characters, traits.refused_in_ids
    are_short = limit is None or not ids or len(max(ids, key=len)) <= limit
    if are_short and "" not in ids and (not refused or not _pattern(refused).search("".join(ids))):  # all at one look
        return True
    return all(id and id == _fit_id(id, traits=traits) for id in ids)


def _are_usual(parts: tuple[Part, ...], *, calls: Sequence[ToolCall]) -> bool:
    """Whether there is nothing beside the calls but texts that say something."""
    usual = len(calls)
    for part in parts:
        if type(part) is Text and part.text.strip():
            usual += 1
    return usual == len(parts)


def _stay(parts: tuple[Part, ...], *, role: Role, family: str, traits: FamilyTraits) -> bool:
    """Whether a message of this role, which is no tool's, may hold them all."""
    if role == "system" and traits.refuses_system_files and any(isinstance(part, File) for part in parts):
        return False
    own = _own_parts(Message(role, parts), index=0, repairs=[])
    return own == parts and fit_parts(parts, family=family, traits=traits, role=role) is parts


def _answer_all(calls: Sequence[ToolCall], *, results: tuple[Part, ...]) -> bool:
    """Whether these are the calls' own results, one for each, in their order, each with something to say."""
    if len(calls) != len(results):
        return False
    for place, call in enumerate(calls):
        result = results[place]
        if type(result) is not ToolResult or result.call_id != call.id or result.name != call.name:
            return False
        if result.free_form != call.free_form or not result.content:
            return False
        for part in result.content:
            if type(part) is Text and not part.text.strip():
                return False
    return True


class _Found(msgspec.Struct, frozen=True):
    result: ToolResult
    index: int  # of the message it stood in
    place: int  # among all results of the history


def _results_by_call(messages: Sequence[Message]) -> dict[tuple[int, int], _Found | None]:
    """(message, position among its calls) -> the result that answers it.

    An id that occurs again in a later message answers the latest call before it; a result that stands before every call
    of its id answers the first one. Within one message the n-th call of an id takes the n-th result; more are left over.
    """
    found: dict[str, list[_Found]] = {}
    asked: dict[str, list[tuple[int, int]]] = {}
    place = 0
    for index, message in enumerate(messages):
        position = 0
        for part in message.parts:
            if isinstance(part, ToolResult):
                found.setdefault(part.call_id, []).append(_Found(part, index, place))
                place += 1
            elif isinstance(part, ToolCall) and message.role == "assistant":
                asked.setdefault(part.id, []).append((index, position))
                position += 1
    answers: dict[tuple[int, int], _Found | None] = {}
    for id, calls in asked.items():
        results = found.get(id, [])
        taken = 0
        early = [result for result in results if result.index < calls[0][0]]
        late = results[len(early) :]
        for number, call in enumerate(calls):
            while taken < len(late) and late[taken].index < call[0]:
                taken += 1  # left over from a call before
            following = [other[0] for other in calls[number + 1 : number + 2]]
            # Two calls of one id in one message share what comes until the next message that uses the id.
            end = _next_message(calls, number=number) if following else None
            if taken < len(late) and (end is None or late[taken].index < end):
                answers[call] = late[taken]
                taken += 1
            else:
                answers[call] = early.pop(0) if early and call[0] == calls[0][0] else None
    _pair_by_place(answers, messages=messages)
    return answers


def _pair_by_place(answers: dict[tuple[int, int], _Found | None], *, messages: Sequence[Message]) -> None:
    """Where the results right behind a message are as many as its calls without one, they belong to these, in order: a
    client that mixed up the ids."""
    used = {answer.place for answer in answers.values() if answer is not None}
    unanswered: dict[int, list[tuple[int, int]]] = {}
    for call in sorted(answers):
        if answers[call] is None:
            unanswered.setdefault(call[0], []).append(call)
    if not unanswered:
        return
    place = 0
    places: list[list[_Found]] = []
    for index, message in enumerate(messages):
        places.append([])
        for part in message.parts:
            if isinstance(part, ToolResult):
                places[-1].append(_Found(part, index, place))
                place += 1
    for index, calls in unanswered.items():
        left = [found for found in _results_behind(index, messages=messages, places=places) if found.place not in used]
        if len(left) == len(calls):
            answers.update(zip(calls, left, strict=True))
            used.update([found.place for found in left])


def _results_behind(index: int, *, messages: Sequence[Message], places: list[list[_Found]]) -> list[_Found]:
    found: list[_Found] = []
    for behind in range(index + 1, len(messages)):
        if messages[behind].role != "tool":
            break
        found += places[behind]
    return found


def _next_message(calls: list[tuple[int, int]], *, number: int) -> int | None:
    here = calls[number][0]
    return next((index for index, _ in calls[number + 1 :] if index != here), None)


def _own_parts(message: Message, *, index: int, repairs: list[Repair]) -> tuple[Part, ...]:
    """The parts that may stand in a message of this role; results go where their calls are."""
    if message.role == "assistant":
        own = tuple([part for part in message.parts if not isinstance(part, ToolResult)])
    else:
        own = tuple([part for part in message.parts if isinstance(part, Text | File | ProviderItem)])
    strays = len(message.parts) - len(own) - sum([isinstance(part, ToolResult) for part in message.parts])
    if strays:
        what = f"left out {strays} parts that a {message.role} message cannot hold"
        repairs.append(Repair("misplaced_part", f"message {index}", what))
    if message.role == "tool" and own:
        repairs.append(Repair("misplaced_part", f"message {index}", "moved what is no result into a user message"))
    return own


def _fit_calls(
    parts: tuple[Part, ...],
    *,
    traits: FamilyTraits,
    taken: set[str],
    index: int,
    repairs: list[Repair],
) -> tuple[Part, ...]:
    fitted: list[Part] = []
    for part in parts:
        if isinstance(part, ToolCall):
            id = unique_id(part.id, taken=taken, traits=traits)
            if id != part.id:
                repairs.append(Repair("call_id", f"message {index}", f"call `{part.id}` is now `{id}`"))
            taken.add(id)
            part, mended = fit_call(part if id == part.id else msgspec.structs.replace(part, id=id))
            repairs += mended
        fitted.append(part)
    return tuple(fitted)


def _answers(
    calls: Sequence[ToolCall],
    *,
    found: Sequence[_Found | None],
    messages: Sequence[Message],
    index: int,
    repairs: list[Repair],
) -> Message:
    """One tool message with a result for each call, in call order."""
    end = index + 1
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    for call, given, answer in zip(calls, calls_of(messages[index]), found, strict=True):
        if answer is None:
            repairs.append(Repair(ORPHAN_CALL, place_of(call), "added a result that says that there is none"))
        elif answer.result.call_id != given.id:
            repairs.append(
                Repair("result_id", place_of(call), f"took the result of `{answer.result.call_id}` for its own")
            )
        elif not index < answer.index < end:
            repairs.append(Repair("result_moved", place_of(call), "moved the result behind its call"))
    places = [answer.place for answer in found if answer is not None]
    if places != sorted(places):
        repairs.append(Repair("result_order", f"message {index}", "put the results into the order of the calls"))
    results = [
        fit_result(answer.result, call=call)
        if answer
        else error_result(call, text=NOT_DECIDED if call.asked else NO_RESULT)
        for call, answer in zip(calls, found, strict=True)
    ]
    answered = Message("tool", tuple(results))
    # The same object where nothing changed, so that whatever is cached by message stays good.
    return messages[index + 1] if end > index + 1 and messages[index + 1] == answered else answered


def place_of(call: ToolCall) -> str:
    """Where a repair says that it was made. Healed calls of a history have an id each."""
    return f"call {call.id}"


def _begin_with_user(messages: list[Message], *, repairs: list[Repair]) -> None:
    first = next((index for index, message in enumerate(messages) if message.role != "system"), None)
    if first is not None and messages[first].role != "user":
        messages.insert(first, Message("user", (Text(BEGINNING_MISSING),)))
        repairs.append(Repair("no_first_user", "history", "put a user message in front, which this family insists on"))


def unique_id(id: str, *, taken: Collection[str], also: Collection[str] = (), traits: FamilyTraits) -> str:
    """`id` as the family takes it, with a number behind it where it is empty or taken (in either collection)."""
    wanted = _fit_id(id, traits=traits)
    if wanted and wanted not in taken and wanted not in also:
        return wanted
    number = 2 if wanted else 1
    wanted = wanted or "call"
    while (numbered := _numbered(wanted, number=number, traits=traits)) in taken or numbered in also:
        number += 1
    return numbered


def _fit_id(id: str, *, traits: FamilyTraits) -> str:
    """What has to change gets the id's own print behind it, so that two ids that differ stay different, in any order."""
    refused, limit = traits.refused_in_ids, traits.id_characters
    if (limit is None or len(id) <= limit) and not (refused and _pattern(refused).search(id)):
        return id
    fit = _pattern(refused).sub("_", id) if refused else id
    limit = len(fit) if limit is None else limit
    carried = traits.carried_in_ids
    if (fit == id and len(fit) <= limit) or (carried and carried in id):
        return id
    print_of = hashlib.blake2b(id.encode(errors="surrogatepass")).hexdigest()[:ID_PRINT_CHARACTERS]
    return f"{fit[: limit - ID_PRINT_CHARACTERS - 1]}_{print_of}"


def _numbered(id: str, *, number: int, traits: FamilyTraits) -> str:
    end = f"_{number}"
    limit = traits.id_characters
    return id + end if limit is None else id[: limit - len(end)] + end


def fit_call(call: ToolCall) -> tuple[ToolCall, tuple[Repair, ...]]:
    """The call as it goes back to the model: arguments that servers can parse, and a name. A name that a server refuses changes
    while a request is written (`wire/tool_names.py`)."""
    is_sound = call.state is ArgumentsState.COMPLETE and (call.free_form or _is_object(call.arguments))
    if is_sound and not call.alternatives and call.name:
        return call, ()
    repairs: list[Repair] = []
    changes: dict[str, object] = {}
    if not is_sound:
        if not call.free_form:
            changes["arguments"] = "{}"
            repairs.append(Repair("arguments_emptied", place_of(call), f"{call.state}: goes back as {{}}"))
        changes |= {"state": ArgumentsState.COMPLETE, "reason": None, "alternatives": ()}
    elif call.alternatives:
        changes["alternatives"] = ()
    if not call.name:
        changes["name"] = "unknown_tool"
        repairs.append(Repair("call_name", place_of(call), f"goes back as `{changes['name']}`"))
    return (msgspec.structs.replace(call, **changes) if changes else call), tuple(repairs)


def _is_object(arguments: str) -> bool:
    try:
        _read_object(arguments)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        return False
    return True


def fit_result(result: ToolResult, *, call: ToolCall) -> ToolResult:
    """The result of exactly this call, never without content."""
    content = tuple([part for part in result.content if type(part) is File or part.text.strip()])
    is_its_own = (result.call_id, result.name, result.free_form) == (call.id, call.name, call.free_form)
    if is_its_own and content and len(content) == len(result.content):
        return result
    fitted = msgspec.structs.replace(
        result, call_id=call.id, name=call.name, free_form=call.free_form, content=content or (Text(NO_OUTPUT),)
    )
    return result if fitted == result else fitted


def error_result(call: ToolCall, *, text: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=(Text(text),), is_error=True, free_form=call.free_form)


def fit_parts(parts: tuple[Part, ...], *, family: str, traits: FamilyTraits, role: str) -> tuple[Part, ...]:
    """Without the parts that this family's servers refuse; empty if nothing is left to send."""
    takes_blanks = not traits.refuses_blank_text
    kept = [
        part
        for part in parts
        if not (type(part) is Text or type(part) is Refusal)
        or (part.text if takes_blanks else part.text.strip())
        or (part.opaque is not None and part.opaque.family == family)
    ]
    if role == "assistant" and traits.refuses_trailing_reasoning:
        while kept and isinstance(kept[-1], Reasoning):
            kept.pop()
    # an item of another family is left out by this one's encoder
    if all(type(part) is Reasoning or (type(part) is ProviderItem and part.family != family) for part in kept):
        kept = []
    return parts if len(kept) == len(parts) else tuple(kept)


def open_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The calls of the last message with calls that have no result yet. Of several calls with one id it is the first: an
    answer names a call by its id, so nobody can answer the others, and healing gives them a result."""
    results: set[str] = set()
    for message in reversed(messages):
        if message.role == "assistant" and (calls := calls_of(message)):
            first: dict[str, ToolCall] = {}
            for call in calls:
                first.setdefault(call.id, call)
            return tuple([call for call in first.values() if call.id not in results])
        results |= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
    return ()


def waiting_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    """The open calls that can still run: nothing but results stands behind them. A session that has gone on without them
    has given them a result, and a second one would come after later messages."""
    last = next((message for message in reversed(messages) if message.role != "tool"), None)
    return open_calls(messages) if last is not None and last.role == "assistant" and calls_of(last) else ()


def check_input(
    input: Sequence[Message],
    *,
    history: Sequence[Message],
    approved: Collection[str] = (),
    client_side: Collection[str] = (),
    asked: Collection[str] = (),
) -> None:
    """Raise CallerError unless `input` can start a turn after `history`: something to send, and answers that fit what waits.
    Calls that are `approved` (or denied) now wait for an approval, those that it hands results in for do not: `asked` are the
    ids of the former, `client_side` the names of tools whose calls are the latter. What has no answer waits on. A user's
    message alone goes on without them."""
    undecided = {call.id: call for call in waiting_calls(history)}
    left = {call.id for call in open_calls(history)} - undecided.keys()
    if stray := [id for id in approved if id not in undecided]:
        raise CallerError(_waits_not(stray, left=left, waited_for=list(undecided)))
    if elsewhere := [id for id in approved if id not in asked and undecided[id].name in client_side]:
        raise CallerError(
            f"`{elsewhere[0]}` waits for a result of the client-side tool `{undecided[elsewhere[0]].name}`, not for an "
            "approval: hand it in with `results`"
        )
    if not approved and not any(message.parts for message in input):
        raise CallerError("there is nothing to send: give a message, or the results of the pending calls")
    given = [part.call_id for message in input for part in message.parts if isinstance(part, ToolResult)]
    if not given:
        return
    if told := [id for id in given if id in asked and id in undecided]:
        raise CallerError(
            f"`{told[0]}` waits for an approval of the user, not for a result: answer it with `approvals`, and the tool runs here"
        )
    if both := [id for id in given if id in approved]:
        raise CallerError(f"`{both[0]}` has an approval and a result: give one of them")
    waited_for = [id for id in undecided if id not in asked]
    # Calls that the input itself brings along are answered there.
    known = {*waited_for, *(call.id for message in input for call in calls_of(message))}
    unknown = [id for id in given if id not in known]
    if unknown:
        raise CallerError(_waits_not(unknown, left=left, waited_for=waited_for))
    if len(given) != len(set(given)):
        raise CallerError("two results for one call: hand in one for each")


def _waits_not(ids: Sequence[str], *, left: Collection[str], waited_for: Sequence[str]) -> str:
    """What is said to answers for `ids`; those in `left` waited until the session went on without them."""
    names = in_ticks(ids)
    gone_on = " any more, as the session has gone on without it" if ids[0] in left else ""
    return f"no pending call has the id {names}{gone_on}; the session waits for: {', '.join(waited_for) or 'nothing'}"


# Thinking that its model refuses because something before it has changed (promise step:bound-thinking).
#
# First the provider is asked to leave such thinking out: it knows best which is stale. Where it does not know the setting, all
# thinking from the first stale block on is left out of requests; what is thought afterwards goes back as usual. Nothing is asked
# before a refusal: older accounts may keep thinking that newer ones lose. Source: Claude docs, "Fix a thinking block bound to a
# different conversation" ("Send this setting on every later request in that conversation").


PRINT_BYTES = 9  # of a block; of a million blocks no two have the same, for all practical purposes


class StaleThinking(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a session has learned. `drops`: its requests ask the provider to leave stale thinking out. `not_taken`: the provider
    does not know that setting. `left_out` are the prints of thinking that turnwise leaves out itself."""

    drops: bool = False
    not_taken: bool = False
    left_out: tuple[str, ...] = ()


NOTHING_STALE = StaleThinking()


def learned(
    known: StaleThinking, *, fault: Fault, request: Request, family: str, refused: int | None
) -> StaleThinking | None:
    """What to send the same request with once more; None where the refusal is about something else, or nothing is left to try.

    `refused`: so many blocks stood before the first stale one, as an earlier refusal of the very same messages told.
    """
    match fault.binding:
        case "stale" if not known.drops and not known.not_taken:
            return replace(known, drops=True)
        case "stale":
            more = _prints_behind(request.messages, valid=fault.valid_thinking or 0, family=family)
        case "not_taken" if known.drops:
            more = () if refused is None else _prints_behind(request.messages, valid=refused, family=family)
        case _:
            return None
    left_out = (*known.left_out, *[one for one in more if one not in known.left_out])
    if known.not_taken and left_out == known.left_out:
        return None
    return StaleThinking(drops=False, not_taken=True, left_out=left_out)


def fitted(request: Request, *, known: StaleThinking, family: str) -> Request:
    """The request as it goes out."""
    if known.drops:
        request = replace(request, drops_stale_thinking=True)
    if not known.left_out:
        return request
    stale = frozenset(known.left_out)
    messages = [_without(message, stale=stale, family=family) for message in request.messages]
    return replace(request, messages=tuple(messages))


def said_of(known: StaleThinking) -> str:
    """What was done about a refusal, for people."""
    if known.drops:
        return "refused thinking behind something that has changed: sent again, the provider leaves stale thinking out"
    return f"refused thinking behind something that has changed: sent again without it ({len(known.left_out)} blocks so far)"


def _without(message: Message, *, stale: frozenset[str], family: str) -> Message:
    if message.role != "assistant":
        return message
    kept = tuple([part for part in message.parts if _print_of(part, family=family) not in stale])
    return message if len(kept) == len(message.parts) else Message(message.role, kept)


def _prints_behind(messages: Sequence[Message], *, valid: int, family: str) -> tuple[str, ...]:
    prints = [_print_of(part, family=family) for message in messages for part in message.parts]
    return tuple([one for one in prints if one][valid:])


def _print_of(part: object, *, family: str) -> str:
    """Of thinking that goes back to its API; empty for any other part."""
    if type(part) is not Reasoning or part.opaque is None or part.opaque.family != family:
        return ""
    return hashlib.blake2b(part.opaque.json.encode(), digest_size=PRINT_BYTES).hexdigest()
