"""What one run may choose for itself, and how that goes together with what its agent says."""

from collections.abc import Mapping, Sequence
from typing import TypedDict, cast

import msgspec

from turnwise.drivers.running.approvals import Approver
from turnwise.drivers.running.means import StepPreparer
from turnwise.drivers.running.watching import Watch
from turnwise.drivers.settings.options import RunSettings, rows
from turnwise.drivers.tools.tools import Tool
from turnwise.errors import CallerError
from turnwise.faces.agent_options import check_names, check_values
from turnwise.faces.plain import check_plain
from turnwise.faces.schemas import OutputCheck
from turnwise.faces.tools import ToolLike
from turnwise.rules.limits import Limit
from turnwise.rules.permissions import PermissionRule
from turnwise.rules.recovery import Recover
from turnwise.turn.approvals import Approval
from turnwise.turn.config import CallsInText, TurnConfig
from turnwise.turn.resume_terms import ResumeTerms
from turnwise.vocab import Cache, Message, Settings, ToolChoice


class TurnOptions(TypedDict, total=False):
    """Those that a turn's configuration has by the same name: a run's word stands over its agent's."""

    tool_choice: ToolChoice
    parallel_tool_calls: bool
    max_steps: int
    limits: Limit | None
    max_subagents: int | None
    max_subagent_requests: int | None
    recover: Recover
    cache: Cache
    calls_in_text: CallsInText


class RunOptions(TurnOptions, total=False):
    """What one run may choose for itself; everything else is the agent's.

    `history` are earlier messages (`RunResult.history`); with a journal, `session` names the session to continue instead.
    `results` are values by call id, for pending calls of client-side tools; `approvals` answer those that an earlier
    run was asked about and left for later (`RunResult.asks`). Both may leave some out: these wait on. `settings` stand over
    the agent's, field by field. `watch` sees every event. `deps` are what the run's functions find in their `RunContext`.
    """

    history: Sequence[Message]
    session: str
    results: Mapping[str, object]
    tools: Sequence[ToolLike]
    settings: Settings
    deps: object
    output_type: object
    output_checks: Sequence[OutputCheck]
    prepare_step: StepPreparer
    watch: Watch
    approver: Approver
    approvals: Sequence[Approval]


class ResumeOptions(TypedDict, total=False):
    """What a run that goes on after a crash may be given: what a journal cannot hold, answers to what was open (`approvals`), and
    rules that hold behind the turn's own."""

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


def options_of(terms: ResumeTerms) -> ResumeOptions:
    """The options that say the same."""
    options: ResumeOptions = {"approvals": terms.answers, "rules": terms.rules}
    return options if terms.ask_s is None else {**options, "ask_s": terms.ask_s}


def terms_of(options: ResumeOptions) -> ResumeTerms:
    """What they say of what waits, and of what may run. Raises CallerError for what is no approval or no rule."""
    terms = ResumeTerms(
        answers=tuple(options.get("approvals", ())), rules=tuple(options.get("rules", ())), ask_s=options.get("ask_s")
    )
    check_plain(terms, what="the options of `resume`")
    return terms


def check_options(options: Mapping[str, object]) -> None:
    """Raise UnknownOption for a name that is no option of a run, and CallerError for values that cannot be."""
    check_names(options, known=RunOptions.__annotations__, what="a run")
    check_values(options, of=" of the run")
    if "settings" in options:
        read_settings(options["settings"], what="`settings` of the run")


def turn_over(config: TurnConfig, options: RunOptions) -> TurnConfig:
    """The agent's configuration with what a run says of its turn in its place."""
    said = {name: value for name, value in options.items() if name in TurnOptions.__annotations__}
    return msgspec.structs.replace(config, **said)


def turn_options(settings: RunSettings) -> TurnOptions:
    """What the settings say of a turn by the same name (tests/drivers/test_options.py: and with the same type)."""
    said = {name: getattr(settings, name, None) for name in TurnOptions.__annotations__}
    return cast("TurnOptions", {name: value for name, value in said.items() if value is not None})


def check_choice(choice: ToolChoice, *, tools: Sequence[Tool]) -> None:
    """Raise CallerError for a choice that forces a call where no step can have a tool: it would become `auto`."""
    if choice == "required" and not tools:
        raise CallerError(
            '`tool_choice="required"` forces a call of a tool, and there is no tool: give `tools`, or leave it out'
        )


def read_settings(settings: object, *, what: str = "`settings`") -> Settings:
    """Them as they are. Raises CallerError for a value that no model can be asked with."""
    if not isinstance(settings, Settings):
        raise CallerError(f"{what} must be `Settings(...)`, not {type(settings).__name__}")
    try:
        msgspec.convert(msgspec.structs.asdict(settings), Settings)
    except msgspec.ValidationError as error:
        raise CallerError(f"{what}: {error}") from None
    for row in rows():
        value: float | None = getattr(settings, row.option.setting) if row.option.setting and row.bounds else None
        if value is not None and not row.takes(value):
            raise CallerError(f"{what}: `{row.option.setting}` must be a number {row.span}, not {value}")
    return settings


def settings_over(settings: Settings, given: Settings) -> Settings:
    """The agent's settings, with what `given` says (each field that is not the default) in their place."""
    usual = Settings()
    said = {
        name: value for name in Settings.__struct_fields__ if (value := getattr(given, name)) != getattr(usual, name)
    }
    return msgspec.structs.replace(settings, **said)
