"""What tools are called as functions of a program. A name that Python or the program's own beginning has taken is another's:
`list(path="src")` would run Python's `list`, and say nothing."""

import re
from collections.abc import Sequence

PRELUDE = ("asyncio", "json", "math", "re")  # imported before a program begins: models leave it out
KEYWORDS = frozenset(
    "False None True and as assert async await break class continue def del elif else except finally for from global if import "
    "in is lambda nonlocal not or pass raise return try while with yield".split()
)
# Of Python 3.14, whatever runs here: a tool's name is the same everywhere. Programs need these, so the tool gives way.
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
    """The function of each of these tools, in their order: its own name where Python can say it and nobody has it, else with
    `_`. A tool that can have its own name has it, whatever the others are called."""
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
