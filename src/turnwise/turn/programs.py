"""Scripted steps: the programs of a response, which call tools as functions, one program after the other.

A program's calls come back like any other calls. Here is what a program may call, how it reads the results, and what the model is
told about a program that did not finish.
"""

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from turnwise.rules.compaction import READ_RESULT
from turnwise.rules.history import error_result
from turnwise.rules.loops import LoopVerdict
from turnwise.turn.commands import PlannedCall, ScriptFunction, ScriptResult
from turnwise.turn.config import ToolOffer
from turnwise.vocab import File, Text, ToolCall, ToolResult, ToolSpec

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
