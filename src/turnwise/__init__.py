"""turnwise: the tool loop of LLM agents. Every call whole, one step one request, and a turn that ends with an answer.

    from turnwise import Agent, tool

The names below are the public ones; each is loaded when it is first used, so importing turnwise costs next to nothing.
"""

from turnwise._version import __version__

# Type checkers take it for true. `typing` itself would be loaded before the command line can hear Ctrl-C (terminal/main.py).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from turnwise.agent.agent import Agent
    from turnwise.agent.agent_options import Model, ObservationOptions, RecoveryOptions, SafetyOptions, StepOptions
    from turnwise.agent.budgets import Budget
    from turnwise.agent.children import AgentTool, Subagents
    from turnwise.agent.deps import DepsFactory, SessionKey
    from turnwise.agent.followed_session import watch_session
    from turnwise.agent.histories import ExportedHistory, ImportedHistory, messages_from, messages_to
    from turnwise.agent.history_json import messages_from_json
    from turnwise.agent.mcp_servers import McpServer
    from turnwise.agent.results import RunFinished, RunInterrupted, RunResult
    from turnwise.agent.runs import Run, RunStream, run_so_far
    from turnwise.agent.tools import FunctionTool, Toolset, tool
    from turnwise.agent.toolsets import MethodsOf, approved, filtered, prefixed
    from turnwise.agent.workspace import Workspace
    from turnwise.errors import (
        BadTool,
        BudgetSpent,
        CallerError,
        KeyReused,
        LimitReached,
        MissingKey,
        ModelFault,
        NothingToResume,
        OutputMismatch,
        ProviderFault,
        RunCancelled,
        RunFailed,
        RunRefused,
        RunStopped,
        SessionBusy,
        SessionLeft,
        ToolFault,
        TurnwiseBug,
        TurnwiseError,
        UnknownModel,
        UnknownOption,
    )
    from turnwise.journal.journal import Journal
    from turnwise.journal.prices import Prices, read_prices
    from turnwise.rules.limits import MaxCost, MaxRequests, MaxSteps, MaxTokens, MaxToolCalls, MaxWallTime
    from turnwise.rules.permissions import PermissionRule, Policy
    from turnwise.rules.prompt_room import ModelLimits
    from turnwise.rules.retries import RetryPolicy
    from turnwise.running.approvals import Asking
    from turnwise.running.hooks import (
        ChangeArguments,
        ChangeResult,
        Deny,
        Hook,
        RequestAboutToLeave,
        ToolAboutToRun,
        ToolRan,
        TurnEnded,
    )
    from turnwise.running.run_context import RunContext
    from turnwise.running.tools import Tool
    from turnwise.running.watcher_events import (
        AskClosed,
        AskOpened,
        AttemptDiscarded,
        CallAnswered,
        ChildSeen,
        FilesChanged,
        FrameSeen,
        RequestFinished,
        RequestStarted,
        RunNoted,
        StepStarted,
        ToolFinished,
        ToolProgress,
        ToolsetNoted,
        ToolStarted,
    )
    from turnwise.telemetry.telemetry import Telemetry
    from turnwise.turn.config import Approval, Deadlines, OneAsk, ScriptLimits
    from turnwise.turn.events import PrepareStep as StepView
    from turnwise.turn.events import StepPrepared as StepChanges
    from turnwise.vocab import (
        Fault,
        FaultKind,
        File,
        FinishReason,
        Message,
        NamedTool,
        ReasoningDelta,
        Repair,
        Settings,
        StopReason,
        Text,
        TextDelta,
        ToolCall,
        ToolResult,
        ToolSpec,
        Usage,
    )
    from turnwise.workers.remote_turns import (
        answer_asks,
        cancel_turns,
        open_asks,
        queue_totals,
        retry_turns,
        submit_turn,
        turn_status,
    )

_ROOMS = {
    "turnwise.running.approvals": ("Asking",),
    "turnwise.running.hooks": (
        "ChangeArguments",
        "ChangeResult",
        "Deny",
        "Hook",
        "RequestAboutToLeave",
        "ToolAboutToRun",
        "ToolRan",
        "TurnEnded",
    ),
    "turnwise.journal.journal": ("Journal",),
    "turnwise.journal.prices": ("Prices", "read_prices"),
    "turnwise.telemetry.telemetry": ("Telemetry",),
    "turnwise.running.tools": ("Tool",),
    "turnwise.running.run_context": ("RunContext",),
    "turnwise.running.watcher_events": (
        "AskClosed",
        "AskOpened",
        "AttemptDiscarded",
        "CallAnswered",
        "ChildSeen",
        "FilesChanged",
        "FrameSeen",
        "RequestFinished",
        "RequestStarted",
        "RunNoted",
        "StepStarted",
        "ToolFinished",
        "ToolProgress",
        "ToolsetNoted",
        "ToolStarted",
    ),
    "turnwise.errors": (
        "BadTool",
        "BudgetSpent",
        "CallerError",
        "KeyReused",
        "LimitReached",
        "MissingKey",
        "ModelFault",
        "NothingToResume",
        "OutputMismatch",
        "ProviderFault",
        "RunCancelled",
        "RunFailed",
        "RunRefused",
        "RunStopped",
        "SessionBusy",
        "SessionLeft",
        "ToolFault",
        "TurnwiseBug",
        "TurnwiseError",
        "UnknownModel",
        "UnknownOption",
    ),
    "turnwise.agent.agent": ("Agent",),
    "turnwise.agent.agent_options": ("Model", "ObservationOptions", "RecoveryOptions", "SafetyOptions", "StepOptions"),
    "turnwise.agent.budgets": ("Budget",),
    "turnwise.agent.children": ("AgentTool", "Subagents"),
    "turnwise.agent.histories": ("ExportedHistory", "ImportedHistory", "messages_from", "messages_to"),
    "turnwise.agent.history_json": ("messages_from_json",),
    "turnwise.agent.deps": ("DepsFactory", "SessionKey"),
    "turnwise.agent.followed_session": ("watch_session",),
    "turnwise.agent.mcp_servers": ("McpServer",),
    "turnwise.agent.results": ("RunFinished", "RunInterrupted", "RunResult"),
    "turnwise.agent.runs": ("Run", "RunStream", "run_so_far"),
    "turnwise.agent.tools": ("FunctionTool", "Toolset", "tool"),
    "turnwise.agent.toolsets": ("MethodsOf", "approved", "filtered", "prefixed"),
    "turnwise.agent.workspace": ("Workspace",),
    "turnwise.rules.prompt_room": ("ModelLimits",),
    "turnwise.rules.limits": ("MaxCost", "MaxRequests", "MaxSteps", "MaxTokens", "MaxToolCalls", "MaxWallTime"),
    "turnwise.rules.permissions": ("PermissionRule", "Policy"),
    "turnwise.rules.retries": ("RetryPolicy",),
    "turnwise.turn.config": ("Approval", "Deadlines", "OneAsk", "ScriptLimits"),
    "turnwise.turn.events": ("StepChanges=StepPrepared", "StepView=PrepareStep"),
    "turnwise.vocab": (
        "Fault",
        "FaultKind",
        "File",
        "FinishReason",
        "Message",
        "NamedTool",
        "ReasoningDelta",
        "Repair",
        "Settings",
        "StopReason",
        "Text",
        "TextDelta",
        "ToolCall",
        "ToolResult",
        "ToolSpec",
        "Usage",
    ),
    "turnwise.workers.remote_turns": (
        "answer_asks",
        "cancel_turns",
        "open_asks",
        "queue_totals",
        "retry_turns",
        "submit_turn",
        "turn_status",
    ),
}
# public name -> (module, the name there)
_PLACES = {
    name: (module, inner or name)
    for module, names in _ROOMS.items()
    for name, _, inner in (text.partition("=") for text in names)
}

# Names from before, and of other libraries: what to write.
_ELSEWHERE = {
    "EndpointOptions": 'Give `Model("...", base_url=..., settings=...)` as the model of the agent, and `StepOptions` as `steps=`',
    "BinaryContent": 'Give `File(media_type="image/png", data=...)` in the prompt',
    "DeferredToolRequests": "Give `policy=Policy(...)` to the agent; `result.asks` has the calls that wait",
    "ImageUrl": 'Give `File(media_type="image/png", url=...)` in the prompt',
    "ModelRetry": "Raise `ToolFault(text)` in a tool, and `ValueError(text)` in an output check: the model reads the text",
    "ModelSettings": "Write `Settings(...)`",
    "RunContextWrapper": "Write `RunContext[Deps]`",
    "Runner": "Write `agent.run(...)`, `agent.run_sync(...)` or `agent.stream(...)`",
    "UsageLimits": "Give `limits=MaxRequests(...) | MaxTokens(...)` to the agent or the run",
    "function_tool": "Write `@tool`",
}

__all__ = [
    "Agent",
    "AgentTool",
    "Approval",
    "AskClosed",
    "AskOpened",
    "Asking",
    "AttemptDiscarded",
    "BadTool",
    "Budget",
    "BudgetSpent",
    "CallAnswered",
    "CallerError",
    "ChangeArguments",
    "ChangeResult",
    "ChildSeen",
    "Deadlines",
    "Deny",
    "DepsFactory",
    "ExportedHistory",
    "Fault",
    "FaultKind",
    "File",
    "FilesChanged",
    "FinishReason",
    "FrameSeen",
    "FunctionTool",
    "Hook",
    "ImportedHistory",
    "Journal",
    "KeyReused",
    "LimitReached",
    "MaxCost",
    "MaxRequests",
    "MaxSteps",
    "MaxTokens",
    "MaxToolCalls",
    "MaxWallTime",
    "McpServer",
    "Message",
    "MethodsOf",
    "MissingKey",
    "Model",
    "ModelFault",
    "ModelLimits",
    "NamedTool",
    "NothingToResume",
    "ObservationOptions",
    "OneAsk",
    "OutputMismatch",
    "PermissionRule",
    "Policy",
    "Prices",
    "ProviderFault",
    "ReasoningDelta",
    "RecoveryOptions",
    "Repair",
    "RequestAboutToLeave",
    "RequestFinished",
    "RequestStarted",
    "RetryPolicy",
    "Run",
    "RunCancelled",
    "RunContext",
    "RunFailed",
    "RunFinished",
    "RunInterrupted",
    "RunNoted",
    "RunRefused",
    "RunResult",
    "RunStopped",
    "RunStream",
    "SafetyOptions",
    "ScriptLimits",
    "SessionBusy",
    "SessionKey",
    "SessionLeft",
    "Settings",
    "StepChanges",
    "StepOptions",
    "StepStarted",
    "StepView",
    "StopReason",
    "Subagents",
    "Telemetry",
    "Text",
    "TextDelta",
    "Tool",
    "ToolAboutToRun",
    "ToolCall",
    "ToolFault",
    "ToolFinished",
    "ToolProgress",
    "ToolRan",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "Toolset",
    "ToolsetNoted",
    "TurnEnded",
    "TurnwiseBug",
    "TurnwiseError",
    "UnknownModel",
    "UnknownOption",
    "Usage",
    "Workspace",
    "__version__",
    "answer_asks",
    "approved",
    "cancel_turns",
    "filtered",
    "messages_from",
    "messages_from_json",
    "messages_to",
    "open_asks",
    "prefixed",
    "queue_totals",
    "read_prices",
    "retry_turns",
    "run_so_far",
    "submit_turn",
    "tool",
    "turn_status",
    "watch_session",
]


# Type checkers see the imports above alone, so that a name that does not exist is an error to them.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        import importlib

        if name in _ELSEWHERE:  # `from turnwise import` shows the words of no other error
            raise ImportError(f"turnwise has no `{name}`. {_ELSEWHERE[name]}", name=__name__)
        if name not in _PLACES:
            raise AttributeError(f"module `turnwise` has no attribute `{name}`")
        module, inner = _PLACES[name]
        found: object = getattr(importlib.import_module(module), inner)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
