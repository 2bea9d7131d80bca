"""The options of one run, and those of a resumed turn."""

from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

from turnwise.agent.agent_groups import (
    GROUP_OF,
    EndpointOptions,
    ObservationOptions,
    RecoveryOptions,
    SafetyOptions,
    check_plain,
    read_settings,
)
from turnwise.agent.agent_options import check_groups, check_names, check_values
from turnwise.agent.agent_setup import AgentOptions
from turnwise.agent.budgets import Budget
from turnwise.agent.run_input import Instruction, check_history
from turnwise.agent.schemas import OutputCheck
from turnwise.agent.tools import ToolLike
from turnwise.errors import CallerError
from turnwise.journal.session_rows import read_labels
from turnwise.rules.limits import Limit
from turnwise.rules.permissions import PermissionRule
from turnwise.running.approvals import Approver
from turnwise.running.runner_config import StepPreparer
from turnwise.running.tools import Tool
from turnwise.running.watcher_events import Watch
from turnwise.settings.options import RunSettings, rows_from
from turnwise.turn.approvals import Approval, ResumeTerms
from turnwise.vocab import Message, ToolChoice


class RunOptions(TypedDict, total=False):
    """Options of one run. Type checkers also know `deps` and `output_type`, which `run`, `run_sync` and `stream` take.

    - `history`: earlier messages (`RunResult.history`). With a journal, `session` names the session to continue
      instead.
    - `results`: values by call id, for pending calls of tools that your program runs itself.
    - `approvals`: answers to asks that an earlier run left for later (`RunResult.asks`). `results` and `approvals` may
      leave some calls out; those stay pending.
    - `watch`: a function that gets every event.
    - `labels`: texts by name that a new session keeps (`{"user": "42"}`). A `DepsFactory` gets them in every run of the
      session; later runs may leave them out.

    The other options replace the agent's for this run: `limits` as a whole, the four dicts option by option. If the run
    names a model of another provider, the agent's URL and key are not used.
    """

    history: Sequence[Message]
    session: str
    results: Mapping[str, object]
    approvals: Sequence[Approval]
    watch: Watch
    labels: Mapping[str, str]
    model: str
    tools: Sequence[ToolLike]
    instructions: Instruction | Sequence[Instruction]
    limits: Limit | Budget | None
    endpoint: EndpointOptions
    recovery: RecoveryOptions
    safety: SafetyOptions
    observation: ObservationOptions


class TypedRunOptions(RunOptions, total=False):
    """The options of a run, with those whose types depend on the agent and the result."""

    deps: object
    output_type: object


class ResumeOptions(TypedDict, total=False):
    """Options of `Agent.resume`: values that a journal cannot hold, and answers to open asks.

    - `approvals` answer open asks. `ask_s` is how many seconds the approver has for the other open asks.
    - `rules` are permission rules that are added after the turn's own.
    - `take_over=True` says that the process that ran the turn is gone. turnwise sees that by itself if the process ran since
      this machine's last boot, in the same container. If it lives all the same, it writes nothing more to the journal.
    """

    tools: Sequence[ToolLike]
    deps: object
    output_type: object
    output_checks: Sequence[OutputCheck]
    prepare_step: StepPreparer
    watch: Watch
    approver: Approver
    approvals: Sequence[Approval]
    rules: Sequence[PermissionRule]
    ask_s: float
    take_over: bool


def options_of(terms: ResumeTerms) -> ResumeOptions:
    """The options of `resume` with the same meaning."""
    options: ResumeOptions = {"approvals": terms.answers, "rules": terms.rules}
    return options if terms.ask_s is None else {**options, "ask_s": terms.ask_s}


def terms_of(options: ResumeOptions) -> ResumeTerms:
    """What the options say about waiting calls, and about what may run. Raises CallerError for a value that is not an approval or
    a rule."""
    terms = ResumeTerms(
        answers=tuple(options.get("approvals", ())), rules=tuple(options.get("rules", ())), ask_s=options.get("ask_s")
    )
    check_plain(terms, what="the options of `resume`")
    return terms


def check_options(options: Mapping[str, object]) -> None:
    """Raise UnknownOption for a name that is not an option of a run, and CallerError for impossible values."""
    check_names(options, known=TypedRunOptions.__annotations__, what="a run")
    check_values(options, of=" of the run")
    check_groups(options, of=" of the run")
    at = cast("EndpointOptions", options.get("endpoint", {}))
    if "settings" in at:
        read_settings(at["settings"], what="`settings` of the run")
    read_labels(options.get("labels", {}))
    check_history(options.get("history", ()), what="`history`")


def groups_of(settings: RunSettings) -> AgentOptions:
    """The settings that are options of a group, by group (tests/settings/test_options.py checks that the types are the same)."""
    groups: dict[str, dict[str, object]] = {}
    for row in rows_from("run"):
        value = getattr(settings, row.name)
        if value is not None and row.name in GROUP_OF:
            groups.setdefault(GROUP_OF[row.name], {})[row.name] = value
    return cast("AgentOptions", groups)


def check_choice(choice: ToolChoice, *, tools: Sequence[Tool]) -> None:
    """Raise CallerError for a choice that forces a call if no step can have a tool: it would become `auto`."""
    if choice == "required" and not tools:
        raise CallerError(
            '`tool_choice="required"` forces a call of a tool, and there is no tool: give `tools`, or leave it out'
        )
