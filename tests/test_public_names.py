"""The public surface is a short list, pinned here; importing has no side effect and stays light."""

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import turnwise
import turnwise.testing
from plain_language import hard_words, notes_in
from turnwise.terminal.group import group

ROOT = Path(__file__).resolve().parents[1]

PUBLIC = """
Agent AgentTool Approval AskClosed AskOpened Asking AttemptDiscarded BadTool Budget BudgetSpent CallAnswered
CallerError ChangeArguments ChangeResult ChildSeen Deadlines Deny DepsFactory ExportedHistory Fault FaultKind File
FilesChanged FinishReason FrameSeen FunctionTool Hook ImportedHistory Journal KeyReused LimitReached MaxCost MaxRequests MaxSteps
MaxTokens MaxToolCalls MaxWallTime McpServer Message MethodsOf MissingKey Model ModelFault ModelLimits NamedTool
NothingToResume ObservationOptions OneAsk OutputMismatch PermissionRule Policy Prices ProviderFault ReasoningDelta
RecoveryOptions Repair RequestAboutToLeave RequestFinished RequestStarted RetryPolicy Run RunCancelled RunContext
RunFailed RunFinished RunInterrupted RunNoted RunRefused RunResult RunStopped RunStream SafetyOptions ScriptLimits
SessionBusy SessionKey SessionLeft Settings StepChanges StepOptions StepStarted StepView StopReason Subagents
Telemetry Text TextDelta Tool ToolAboutToRun ToolCall ToolFault ToolFinished ToolProgress ToolRan ToolResult ToolSpec
ToolStarted Toolset ToolsetNoted TurnEnded TurnwiseBug TurnwiseError UnknownModel UnknownOption Usage Workspace
__version__ answer_asks approved cancel_turns filtered messages_from messages_from_json messages_to open_asks prefixed
queue_totals read_prices retry_turns run_so_far submit_turn tool turn_status watch_session
"""


def test_the_public_names_are_these() -> None:
    """A name is added or taken away on purpose only, and every one can be had."""
    assert sorted(turnwise.__all__) == sorted(PUBLIC.split())
    assert all(getattr(turnwise, name) is not None for name in turnwise.__all__)


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_importing_loads_nothing_heavy() -> None:
    """Neither `import turnwise` nor `from turnwise import Agent, tool` loads a web client, pydantic, griffe or rich."""
    heavy = "{'aiohttp', 'pydantic', 'griffe', 'rich', 'jsonschema_rs', 'click', 'logging.config'}"
    for statement in ("import turnwise", "from turnwise import Agent, tool"):
        program = f"{statement}\nimport sys\nprint(sorted({heavy} & set(sys.modules)))"
        assert run(program) == "[]", statement


def test_an_unknown_name_says_so() -> None:
    """`turnwise.agnet` is an AttributeError that names it."""
    try:
        turnwise.agnet  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
    except AttributeError as error:
        assert "`agnet`" in str(error)
    else:
        raise AssertionError("no error")


def test_no_type_checker_sees_the_function_that_loads_names() -> None:
    """With a `__getattr__` in sight, any import from turnwise would be an `object` to it, and a misspelt one no error."""
    at_the_top = [
        node for node in ast.parse(inspect.getsource(turnwise)).body if isinstance(node, ast.FunctionDef | ast.If)
    ]
    assert "__getattr__" not in [node.name for node in at_the_top if isinstance(node, ast.FunctionDef)]
    hidden = [
        ast.unparse(node.test) for node in at_the_top if isinstance(node, ast.If) and "__getattr__" in ast.unparse(node)
    ]
    assert hidden == ["not TYPE_CHECKING"]


def public_values() -> Iterator[tuple[str, object]]:
    """Each public name, and each public method and property of a public class, with its value."""
    for room in (turnwise, turnwise.testing):
        for name in room.__all__:
            value = getattr(room, name)
            if name == "__version__":
                continue
            yield name, value
            if isinstance(value, type) and not typing.is_typeddict(value):
                yield from [(f"{name}.{member}", one) for member, one in members_of(value)]


def members_of(kind: type) -> Iterator[tuple[str, object]]:
    for one in kind.__mro__:
        if one.__module__.startswith("turnwise"):
            for name, value in vars(one).items():
                if name[0] != "_" and (inspect.isroutine(value) or isinstance(value, property)):
                    yield name, value


def own_docstring(value: object) -> str:
    """Not one that is inherited, nor the signature that a dataclass would have in its place."""
    match value:
        case type():
            found: object = vars(value).get("__doc__")
        case property():
            found = value.__doc__
        case classmethod() | staticmethod():
            found = value.__func__.__doc__
        case _:
            found = getattr(value, "__doc__", None)
    return found if isinstance(found, str) else ""


def test_every_public_name_and_member_has_a_docstring_of_its_own() -> None:
    """Structs, dicts of options, errors, methods and properties included: the reference page is made of them."""
    missing = [name for name, value in public_values() if len(own_docstring(value).split()) < 3]
    assert missing == []
    assert len(list(public_values())) > 150


def test_every_docstring_begins_with_a_sentence() -> None:
    """It begins with a capital or a name in backticks, and its first paragraph ends as a sentence or with what it lists."""
    strange = [
        name
        for name, value in public_values()
        for first in [own_docstring(value).strip().split("\n\n")[0]]
        if not re.match(r"[A-Z`]|turnwise", first) or first[-1] not in ".:"
    ]
    assert strange == []


def test_public_docstrings_read_easily() -> None:
    """None has the wording that STYLE's table replaces, or wording like it."""
    found = [f"{name}: {one}" for name, value in public_values() for one in hard_words(own_docstring(value))]
    assert found == []


def test_every_docstring_and_comment_reads_easily() -> None:
    """Those of private functions too: a contributor reads them first. None has the wording that STYLE's table replaces."""
    source = Path(turnwise.__file__).parent
    found = [
        f"{path.relative_to(source).as_posix()}:{line}: {one}"
        for path in sorted(source.rglob("*.py"))
        for line, text in sorted(notes_in(path.read_text(encoding="utf-8")))
        for one in hard_words(text)
    ]
    assert found == []


def test_docstrings_and_comments_are_found_with_their_lines() -> None:
    """Docstrings of modules, classes, functions and values; comments of several lines as one; no other string."""
    source = (
        '"""One."""\nA = 1\n"""Two."""\n# Three,\n# whole.\nB = "not this"  # four\n# five\n\n# six\n'
        'class C:\n    """Seven."""\n    def f(self) -> str:\n        """Eight.\n\n        More."""\n        return "nor this"\n'
    )
    notes = {line: " ".join(text.split()) for line, text in notes_in(source)}
    assert notes == {
        1: "One.",
        3: "Two.",
        4: "Three, whole.",
        6: "four",
        7: "five",
        9: "six",
        11: "Seven.",
        13: "Eight. More.",
    }


PLAIN_PAGES = ("library", "reference", "crashes", "tools", "losses", "workers", "limits", "scripted-steps")


@pytest.mark.parametrize("page", ["README.md", *[f"docs/{name}.md" for name in PLAIN_PAGES]])
def test_pages_of_the_library_read_easily(page: str) -> None:
    """README, tutorial, reference and the pages that were rewritten have none of that wording."""
    assert hard_words((ROOT / page).read_text(encoding="utf-8")) == []


def test_help_of_the_command_line_reads_easily() -> None:
    """The help of every command and option has none of that wording."""
    found = [f"{name}: {one}" for name, text in help_texts() for one in hard_words(text)]
    assert found == []


def help_texts() -> Iterator[tuple[str, str]]:
    """Each command's help and each option's, by the words that lead to the command."""
    names = group.context_settings[
        "help_option_names"
    ]  # click keeps a command's help option: that of its first context
    waiting: list[tuple[str, click.Command]] = [("turnwise", group)]
    while waiting:
        name, command = waiting.pop()
        context = click.Context(command, help_option_names=names)
        yield name, command.get_help(context)
        if isinstance(command, click.Group):
            found = [(one, command.get_command(context, one)) for one in command.list_commands(context)]
            waiting += [(f"{name} {one}", command) for one, command in found if command is not None]


@pytest.mark.parametrize(
    "sentence",
    [
        "it is gone on with where it was cut",
        "an invalid limit, or one that is none",
        "a price that nobody knows of",
        "Nor is it hidden.",
        "over both stand the session",
        "where turnwise knows\nit not",
        "the call at\nhand",
        "A pen is made anew.",
        "Within it, a tool has no time.",
        "To be called in the loop's thread.",
    ],
)
def test_hard_wording_is_found_across_lines_and_capitals(sentence: str) -> None:
    """What the tests above look for is seen; code blocks and plain sentences are not meant."""
    assert hard_words(sentence) != []
    assert hard_words(f"Plain words.\n```py\n{sentence}\n```\nEvery limit reserves one request for the answer.") == []
