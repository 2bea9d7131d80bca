"""The public surface is a short list, pinned here; importing has no side effect and stays light."""

import ast
import inspect
import subprocess
import sys

import turnwise

PUBLIC = """
Agent AgentTool Approval AskClosed AskOpened Asking AttemptDiscarded BadTool Budget BudgetSpent CallAnswered
CallerError ChangeArguments ChangeResult ChildSeen Deadlines Deny DepsFactory EndpointOptions ExportedHistory Fault
FaultKind File FinishReason FrameSeen FunctionTool Hook ImportedHistory Journal MaxCost MaxRequests MaxSteps MaxTokens
MaxToolCalls MaxWallTime Message MethodsOf MissingKey ModelFault ModelLimits NamedTool ObservationOptions OneAsk
OutputMismatch PermissionRule Policy Prices ProviderFault ReasoningDelta RecoveryOptions Repair RequestAboutToLeave
RequestFinished RequestStarted RetryPolicy RunContext RunFinished RunInterrupted RunResult RunStream SafetyOptions
ScriptLimits SessionKey Settings StepChanges StepStarted StepView StopReason Subagents Text TextDelta Tool
ToolAboutToRun ToolCall ToolFault ToolFinished ToolProgress ToolRan ToolResult ToolSpec ToolStarted Toolset TurnEnded
TurnwiseBug TurnwiseError UnknownModel UnknownOption Usage Workspace __version__ approved filtered messages_from
messages_to prefixed read_prices tool
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
