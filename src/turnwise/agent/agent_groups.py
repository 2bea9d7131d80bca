"""The four groups of options that an agent takes beside model, tools, instructions, output type and limits.

A group is a plain dict that a type checker knows: `Agent("openai:gpt-6.1-sol", recovery={"recover": "split"})`. A run may give
the same groups; its options replace the agent's, one by one.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypedDict

import msgspec

from turnwise.agent.schemas import OutputCheck
from turnwise.base.clock import Clock
from turnwise.endpoints.transport import Transport
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.journal.prices import Prices
from turnwise.rules.permissions import Policy
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.recovery import Recover
from turnwise.rules.retries import RetryPolicy
from turnwise.running.approvals import Approver
from turnwise.running.grants import Inspector
from turnwise.running.hooks import Hook
from turnwise.running.runner_config import StepPreparer
from turnwise.settings.options import rows
from turnwise.telemetry.telemetry import Telemetry
from turnwise.turn.approvals import ResumeTerms
from turnwise.turn.config import CallsInText, Deadlines, Effect, RoomPolicy, ScriptLimits
from turnwise.turn.events import StepPrepared, TurnStarted
from turnwise.vocab import Cache, Message, Settings, Text, ToolChoice

OpeningSource = Callable[[Sequence[Message]], Awaitable[Sequence[Text]]]
"""Returns texts to put before a turn's user message. It gets the earlier messages of the session."""


class EndpointOptions(TypedDict, total=False):
    """Where the model is, and how turnwise asks it.

    - `base_url`: endpoint URL, if it is not the provider's default.
    - `api_key`, `api_key_env`: the key, or the name of the variable that holds it. Default: the provider's usual
      variable.
    - `settings`: temperature, output limit and so on. A run's settings replace the agent's, field by field.
    - `extra`: further fields that turnwise adds to the body of each request.
    - `stream`: with False the provider sends each response in one piece. Default: True.
    - `cache`: `auto` asks the provider to keep the prompt in its cache for the provider's usual time. `1h` asks for an hour
      (OpenAI: up to a day). `off` does not ask. Default: `auto`.
    - `tool_choice`, `parallel_tool_calls`: whether the model must, may or must not call tools, and whether it may call
      several at once.
    - `batch_hint`: adds a sentence to the instructions; it asks the model to make independent calls in one response.
      Default: False.
    - `prepare_step`: a function that may change one step. It takes a `StepView` and returns `StepChanges` or None.
    - `opening`: an async function that returns texts to put before each turn's user message.
    - `model_limits`: context window and output limit in tokens. Set this if turnwise's values are missing or wrong.
    - `transport`: an object that sends the requests in place of HTTP. In tests: a `ScriptedModel` or a `Recording`.
    """

    base_url: str | None
    api_key: str | None
    api_key_env: str | None
    settings: Settings
    extra: Mapping[str, object] | None
    stream: bool
    cache: Cache
    tool_choice: ToolChoice
    parallel_tool_calls: bool | None
    batch_hint: bool
    prepare_step: StepPreparer | None
    opening: OpeningSource | None
    model_limits: ModelLimits | None
    transport: Transport | None


class RecoveryOptions(TypedDict, total=False):
    """What happens if a request fails, a response is cut, or a prompt gets too long.

    - `recover`: what turnwise does if the output limit cuts a response. `continue`: the model continues from the cut.
      `split`: turnwise asks for smaller pieces in place of a cut call. `off`: turnwise makes no further request for it.
      Default: `continue`.
    - `calls_in_text`: whether a call that the model wrote into its text counts. `auto`: only if the endpoint's server may
      leave calls in the text. `on`: always, even if the answer is only a code block or a JSON object. `off`: never. Default:
      `auto`.
    - `retry`: how often a failed request is sent again, and for how long.
    - `fallbacks`: other models of the same endpoint. They are asked in this order after a model has failed.
    - `room`: `compact` limits large tool results (the tool `read_result` reads the rest), shortens old results and
      summarises old messages when room runs out. `budget` only adapts the requested output to the room. `off` does
      neither. Default: `compact`.
    - `output_checks`: functions that take a value of the output type and may refuse it by raising. The model reads the
      error and answers again.
    - `deadlines`: seconds for each wait.
    """

    recover: Recover
    calls_in_text: CallsInText
    retry: RetryPolicy
    fallbacks: Sequence[str]
    room: RoomPolicy
    output_checks: Sequence[OutputCheck]
    deadlines: Deadlines


class SafetyOptions(TypedDict, total=False):
    """What may run, who is asked first, and how far it may go.

    - `allowed`: effects of tools that may run. A call of another effect is answered with a message. Default: all.
    - `allow_hint`: how a person allows such a call, in words for the model.
    - `policy`: permission rules. They allow a call, deny it, or ask the `approver`.
    - `approver`: your function that answers asks. If it does not answer an ask in time, the call is denied. An approver
      needs a policy with `attended=True`, of this agent or of a sub-agent, unless one of them has an `McpServer`.
    - `inspect`: your function that finds the paths and commands of a call, so that rules about these can judge it. It gets
      the calls of tools with `ToolOffer(inspected=True)`.
    - `hooks`: functions that see calls, results and requests, and may change or deny them.
    - `script`: offers the model a tool to which it gives a small program that calls the other tools. `auto` does so if the
      provider bills by the request. Default: `auto`.
    - `script_limits`: how much one such program may use.
    - `max_subagents`, `max_subagent_requests`: how many sub-agents a run may start, and how many requests they may make
      together. Sub-agents of sub-agents count, too. None removes the limit.
    """

    allowed: Sequence[Effect]
    allow_hint: str | None
    policy: Policy | None
    approver: Approver | None
    inspect: Inspector | None
    hooks: Sequence[Hook]
    script: Literal["auto"] | bool
    script_limits: ScriptLimits
    max_subagents: int | None
    max_subagent_requests: int | None


class ObservationOptions(TypedDict, total=False):
    """Where runs are recorded, and how they are priced.

    - `journal`: keeps every turn, so that you can continue a session or resume a crashed turn: `Journal("turns.db")`.
    - `folder`: the folder under which the journal lists a session. Default: the current folder.
    - `prices`: your own prices, which replace turnwise's prices.
    - `telemetry`: OpenTelemetry's spans and metrics of each run: `Telemetry()`. Needs `turnwise[otel]`.
    - `clock`: a clock for tests, such as `FakeClock`.
    """

    journal: Journal | None
    folder: Path | str | None
    prices: Prices
    telemetry: Telemetry | None
    clock: Clock | None


GROUPS: dict[str, type] = {
    "endpoint": EndpointOptions,
    "recovery": RecoveryOptions,
    "safety": SafetyOptions,
    "observation": ObservationOptions,
}
# option -> the group that has it
GROUP_OF: dict[str, str] = {name: group for group, kind in GROUPS.items() for name in kind.__annotations__}


def written_in_group(name: str, value: str = "...") -> str:
    """How to write an option of a group in Python: `endpoint={"base_url": ...}`."""
    return f'{GROUP_OF[name]}={{"{name}": {value}}}'


# Whether values have their declared types. The journal must not write what it cannot read again.


_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError)
_read = msgspec.msgpack.Decoder(tuple[Message, ...]).decode
# A Message has about three objects. Python collects garbage once 700 more objects than before are alive.
AT_ONCE = 100


def check_plain(value: TurnStarted | StepPrepared | ResumeTerms, *, what: str) -> None:
    """Raise CallerError that names a field of the wrong type."""
    if isinstance(value, TurnStarted) and value.history and are_plain(value.history):
        value = msgspec.structs.replace(value, history=())
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=type(value))
    except _ERRORS as error:
        raise CallerError(f"{what}: {error}") from error


def are_plain(messages: Sequence[Message]) -> bool:
    """Whether all fields of the messages have their types. For a long history this takes half the time of a check by JSON.

    False says only that they may be wrong: JSON can read some values that this check does not know. Whatever this check accepts
    reads well from JSON, too: a message has no numbers, and its texts and bytes are alike in both.
    """
    try:
        for start in range(0, len(messages), AT_ONCE):
            _read(msgspec.msgpack.encode(messages[start : start + AT_ONCE]))
    except _ERRORS:
        return False
    return True


# The settings of requests: their check, and how a run's settings replace those of its agent.


def read_settings(settings: object, *, what: str = "`settings`") -> Settings:
    """Return the settings unchanged. Raises CallerError for a value that no model accepts."""
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
    """The agent's settings, replaced by each field of `given` that is not the default."""
    usual = Settings()
    said = {
        name: value for name in Settings.__struct_fields__ if (value := getattr(given, name)) != getattr(usual, name)
    }
    return msgspec.structs.replace(settings, **said)
