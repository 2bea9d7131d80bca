"""Scripted steps: the programs of a response, which call tools as functions, one program after the other.

A program's calls come back like any other calls. Here is what a program may call, how it reads the results, and what the model is
told about a program that did not finish.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from turnwise.rules.compaction import READ_RESULT
from turnwise.rules.history import ORPHAN_CALL, error_result, open_calls, place_of, waiting_calls
from turnwise.rules.loops import LoopVerdict
from turnwise.turn.config import Approval, OneAsk, ToolOffer, settled
from turnwise.turn.events import PlannedCall, ScriptFunction, ScriptResult, TurnStarted
from turnwise.vocab import File, Message, Part, Repair, Text, ToolCall, ToolResult, ToolSpec, calls_of

# The function names of tools in a program. Names of Python and of the program's prelude are taken: `list(path="src")` would run
# Python's `list`, and say nothing.
PRELUDE = ("asyncio", "json", "math", "re")  # imported before a program begins: models leave it out
KEYWORDS = frozenset(
    "False None True and as assert async await break class continue def del elif else except finally for from global if import "
    "in is lambda nonlocal not or pass raise return try while with yield".split()
)
# Names of Python 3.14, whatever Python runs here: a tool's name is the same everywhere. Programs need these names, so the tool
# gets another one.
BUILTINS = frozenset(
    "Ellipsis NotImplemented abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod "
    "compile complex copyright credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr "
    "globals hasattr hash help hex id input int isinstance issubclass iter len license list locals map max memoryview min "
    "next object oct open ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str "
    "sum super tuple type vars zip "
    "ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError "
    "BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError "
    "ConnectionResetError DeprecationWarning EOFError EncodingWarning EnvironmentError Exception ExceptionGroup "
    "FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError ImportError ImportWarning "
    "IndentationError IndexError InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError "
    "ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError PendingDeprecationWarning "
    "PermissionError ProcessLookupError PythonFinalizationError RecursionError ReferenceError ResourceWarning RuntimeError "
    "RuntimeWarning StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError SystemExit TabError TimeoutError "
    "TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError UnicodeTranslateError UnicodeWarning "
    "UserWarning ValueError Warning WindowsError ZeroDivisionError".split()
)
TAKEN = KEYWORDS | BUILTINS | frozenset(PRELUDE)


def function_names(tools: Sequence[str]) -> dict[str, str]:
    """The function name of each of these tools, in their order: its own name if that is valid and free, otherwise one with `_`. A
    tool that can have its own name has it, whatever the others are called."""
    own = frozenset([tool for tool in tools if _fitting(tool) == tool])
    names: dict[str, str] = {}
    taken = set(own)
    for tool in tools:
        name = _fitting(tool)
        if tool not in own:
            while name in taken:
                name += "_"
            taken.add(name)
        names[tool] = name
    return names


def _fitting(tool: str) -> str:
    name = re.sub(r"\W", "_", tool, flags=re.ASCII)
    if not name or name[0].isdigit():
        name = f"_{name}"
    return f"{name}_" if name in TAKEN or name.startswith("__") else name


PROGRAM = "program"  # the argument with the text
LEFT_FOR_LATER = (
    "Denied: the user left this for later, and a program cannot wait that long. Nothing of this call was run. "
    "If it is needed, call the tool by itself, not in a program."
)
ENDED_BY = {
    "cancel": "Cancelled by the user in the middle of this program.",
    "deadline": "The turn's time was up in the middle of this program.",
    "tool": "The turn ended in the middle of this program, because a tool failed.",
    "journal": "The run's journal failed in the middle of this program.",
    "lost": "The run was interrupted in the middle of this program.",
}


class _Arguments(msgspec.Struct):
    text: str = msgspec.field(name=PROGRAM)


def program_of(plan: PlannedCall) -> str:
    """The text of a program, whose arguments have been checked."""
    return msgspec.json.decode(plan.arguments, type=_Arguments).text


def is_callable(offer: ToolOffer) -> bool:
    """Whether programs may call this tool. They may not call tools that the client or the provider runs, or start another
    program."""
    is_ours = offer.spec.name != READ_RESULT.name and offer.spec.opaque is None
    return is_ours and not offer.script and not offer.client_side


def functions_of(offers: Mapping[str, ToolOffer], *, names: Collection[str]) -> tuple[ScriptFunction, ...]:
    """The functions of a program for the tools in `names`, in the order of the offers. A tool's function name does not depend on
    the other tools of a step, because the model has read it once, in the description."""
    tools = [tool for tool, offer in offers.items() if is_callable(offer)]
    called = function_names(tools)
    return tuple([_function(offers[tool].spec, name=called[tool]) for tool in tools if tool in names])


def _function(spec: ToolSpec, *, name: str) -> ScriptFunction:
    parameters = ("input",) if spec.free_form else _parameters(spec.parameters)
    return ScriptFunction(name=name, tool=spec.name, parameters=parameters, free_form=spec.free_form)


class _Schema(msgspec.Struct):
    properties: dict[str, msgspec.Raw] = {}


def _parameters(schema: str) -> tuple[str, ...]:
    try:
        return tuple(msgspec.json.decode(schema, type=_Schema).properties)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):  # a schema of another shape: then by keyword only
        return ()


def script_results(results: Sequence[ToolResult]) -> tuple[ScriptResult, ...]:
    """Results as a program gets them: text."""
    return tuple([ScriptResult(call_id=one.call_id, text=_text(one), is_error=one.is_error) for one in results])


def _text(result: ToolResult) -> str:
    return "\n".join([part.text if isinstance(part, Text) else _file(part) for part in result.content])


def _file(file: File) -> str:
    return f"[a file, {file.media_type}: a program cannot look at it]"


def looped(calls: Sequence[ToolCall], *, verdict: LoopVerdict) -> dict[str, ToolResult]:
    """The results of the calls that a program repeats without end."""
    return {
        call.id: error_result(
            call,
            text=f"Not run again: the program has made this same call of `{call.name}` over and over, and the result was the "
            "same each time. It will not change by being repeated.",
        )
        for call in calls
        if call.id in verdict.remembered
    }


def cut_off(plan: PlannedCall, *, kind: str, ran: Sequence[str], at_hand: Sequence[str]) -> ToolResult:
    """The result of a program that did not finish: it must not run as a whole again."""
    made = f"{_calls(len(ran))} had run ({counted(ran)})" if ran else "No call had run"
    running = f", and {counted(at_hand)} may have run in part" if at_hand else ""
    beware = "" if not ran and not at_hand else " What they did stands: look before you repeat any of it."
    return error_result(plan.call, text=f"{ENDED_BY[kind]} {made}{running}.{beware}")


def counted(names: Sequence[str]) -> str:
    """`read` twice and `edit` once: "`read` x2, `edit`"."""
    return ", ".join(
        [f"`{name}`" + (f" x{names.count(name)}" if names.count(name) > 1 else "") for name in dict.fromkeys(names)]
    )


def _calls(number: int) -> str:
    return "1 call" if number == 1 else f"{number} calls"


# Takes up calls that an earlier run left pending: which calls, and where their results go.
#
# A run may answer some of them and leave the others. A call with an answer runs at once, or has its result; a call without one
# keeps waiting. No request leaves before every call of the step has a result.


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn that takes up calls starts with. `new` are the messages before the results of `calls`, `words` those after
    them. Without `calls` nothing is taken up. `known_as` holds the session's ids of calls whose ids healing changed."""

    new: tuple[Message, ...]
    words: tuple[Message, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    approvals: tuple[Approval, ...] = ()
    added: tuple[Message, ...] = ()  # the part of the turn's input that is in `new`
    known_as: dict[str, str] = {}


def taken_up(started: TurnStarted, *, earlier: Sequence[Message]) -> Resumed:
    """The pending calls of the last message, if only results follow it and `started` answers one of the calls, by an approval or
    by its result: all calls without a result, or (if `keeps_waiting` is off) those with an approval. A session that has continued
    without the calls has given them a result, so a later approval is void."""
    plain = Resumed(new=(*started.history, *started.input), added=started.input)
    if not started.approvals and not (started.keeps_waiting and any(_results(message) for message in started.input)):
        return plain
    asking = max([place for place, message in enumerate(started.input) if _asks(message)], default=-1) + 1
    before, behind = started.input[:asking], started.input[asking:]
    results = [Message("tool", kept) for message in behind if (kept := _results(message))]
    added = (*before, *results)
    new = (*started.history, *added)
    answered = {approval.call_id for approval in started.approvals}
    calls = waiting_calls((*earlier, *new))
    if started.keeps_waiting:
        answered |= {result.call_id for message in results for result in _results(message)}
        waited = waiting_calls((*earlier, *started.history, *before))
        calls = calls if any(call.id in answered for call in waited) else ()
    else:
        calls = tuple([call for call in calls if call.id in answered])
    if not calls:
        return plain
    words = [
        Message("user" if message.role == "tool" else message.role, kept)
        for message in behind
        if (kept := _others(message))
    ]
    return Resumed(new=new, words=tuple(words), calls=calls, approvals=started.approvals, added=added)


def with_asks(messages: Sequence[Message], *, asks: Sequence[OneAsk]) -> tuple[Message, ...]:
    """The history of a paused run. Its waiting calls are marked with what was shown of them."""
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
    """What was shown of the waiting calls, by their ids: as the paused result listed them, or as the marks in the history say."""
    marked = {call.id: call.asked for call in waiting_calls(messages) if call.asked}
    return {**marked, **{ask.call.id: ask.digest for ask in asks}}


def asks_of(pending: Sequence[ToolCall], *, asks: Sequence[OneAsk], messages: Sequence[Message]) -> tuple[OneAsk, ...]:
    """The asks of those `pending` calls that wait for a person: the newest of `asks`, otherwise as far as the history's marks
    tell. A run that ends before it has judged the calls has no asks of its own, but still waits for the answers."""
    newest = {ask.call.id: ask for ask in asks}
    marked = {call.id: call for call in waiting_calls(messages) if call.asked} if pending else {}
    found: list[OneAsk] = []
    for call in pending:
        if call.id in newest:
            found.append(newest[call.id])
        elif call.id in marked:
            digest = marked[call.id].asked
            found.append(OneAsk(call=call, arguments=call.arguments, subject=call.name, digest=digest))
    return tuple(found)


def asked_ids(messages: Sequence[Message], *, asks: Sequence[OneAsk]) -> frozenset[str]:
    """The ids of the open calls that wait for a person, or that did so until the session continued without them."""
    marked = [call.id for call in open_calls(messages) if call.asked]
    return frozenset([*marked, *[ask.call.id for ask in asks]])


def under_healed_ids(resumed: Resumed, *, healed: Sequence[Message], given: Sequence[Message]) -> Resumed:
    """The calls and their approvals under the names and ids that healing gave them. Otherwise the calls are as they came
    (`given`): in the history, the arguments of a cut call are emptied."""
    # From the end: healing may have joined the message with the one before it.
    before, after = reversed(_last_calls(given)), reversed(_last_calls(healed))
    wanted = {call.id for call in resumed.calls}
    found: dict[str, tuple[ToolCall, ToolCall]] = {}
    for old, new in list(zip(before, after, strict=False))[::-1]:
        if old.id in wanted:  # if several calls have one id, it is the first, as in `open_calls`
            found.setdefault(old.id, (old, new))
    ids = {id: new.id for id, (_, new) in found.items()}
    calls = [msgspec.structs.replace(old, id=new.id, name=new.name, asked="") for old, new in found.values()]
    approvals = [
        msgspec.structs.replace(one, call_id=ids[one.call_id]) for one in resumed.approvals if one.call_id in ids
    ]
    known_as = {new.id: old.id for old, new in found.values() if old.id != new.id}
    return msgspec.structs.replace(resumed, calls=tuple(calls), approvals=tuple(approvals), known_as=known_as)


def left_alone(calls: Sequence[ToolCall], *, offers: Mapping[str, ToolOffer]) -> frozenset[str]:
    """The ids of the calls that nobody here can decide: the client's calls, and calls of missing tools."""
    return frozenset([call.id for call in calls if call.name not in offers or offers[call.name].client_side])


def with_undecided(approvals: Sequence[Approval], *, calls: Sequence[ToolCall]) -> tuple[Approval, ...]:
    """The answers to these calls. A call without an answer keeps waiting."""
    answers = settled(approvals)
    return tuple([answers.get(call.id) or Approval(call_id=call.id, verdict="later", by="default") for call in calls])


def undecided(approvals: Sequence[Approval]) -> frozenset[str]:
    """The ids of the calls that were left for later."""
    return frozenset([id for id, approval in settled(approvals).items() if approval.verdict == "later"])


def under_known_ids(message: Message, *, known_as: Mapping[str, str]) -> Message:
    """The message of results as the session holds it."""
    if not known_as:
        return message
    parts = [
        msgspec.structs.replace(part, call_id=known_as.get(part.call_id, part.call_id))
        if isinstance(part, ToolResult)
        else part
        for part in message.parts
    ]
    return Message(message.role, tuple(parts))


def still_waiting(asks: Sequence[OneAsk], *, messages: Sequence[Message]) -> tuple[OneAsk, ...]:
    """The newest ask of each waiting call, in the order of the calls."""
    newest = {ask.call.id: ask for ask in asks}
    return tuple([newest[call.id] for call in waiting_calls(messages) if call.id in newest]) if newest else ()


def reopened(messages: Sequence[Message], *, calls: Sequence[ToolCall]) -> list[Message]:
    """The healed messages without the results that healing gave these calls, because the calls are about to run."""
    ids = {call.id for call in calls}
    opened = list(messages)
    if ids and opened[-1].role == "tool":
        last = opened.pop()
        kept = tuple([part for part in last.parts if not (isinstance(part, ToolResult) and part.call_id in ids)])
        if kept:
            opened.append(last if len(kept) == len(last.parts) else Message("tool", kept))
    return opened


def repairs_but_reopened(repairs: Sequence[Repair], *, calls: Sequence[ToolCall]) -> list[Repair]:
    """The repairs of healing, without those for results that `reopened` took away: the calls get their own results."""
    places = {place_of(call) for call in calls}
    return [repair for repair in repairs if repair.kind != ORPHAN_CALL or repair.where not in places]


def joined_results(first: Message, second: Message, *, asked: Message) -> Message:
    """One message of both, its results in the order of the calls: some were handed in, the others have just come."""
    results = {one.call_id: one for one in (*_results(first), *_results(second))}
    return Message("tool", tuple([results[call.id] for call in calls_of(asked) if call.id in results]))


def _asks(message: Message) -> bool:
    return message.role == "assistant" and bool(calls_of(message))


def _last_calls(messages: Sequence[Message]) -> tuple[ToolCall, ...]:
    return tuple(calls_of(next(message for message in reversed(messages) if message.role != "tool")))


def _results(message: Message) -> tuple[ToolResult, ...]:
    return tuple([part for part in message.parts if isinstance(part, ToolResult)]) if message.role == "tool" else ()


def _others(message: Message) -> tuple[Part, ...]:
    if message.role != "tool":
        return message.parts
    return tuple([part for part in message.parts if not isinstance(part, ToolResult)])
