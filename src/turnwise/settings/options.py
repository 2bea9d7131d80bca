"""The options of a run, a row each: name, type, where it may come from, what a project may say, what a session keeps, and words.

The command line, `turnwise.toml`, `turnwise compare`, what a session keeps, the checks of what Python gives, and the tables in
docs/ are made from these rows. A new option is a row here, and its use. A new limit is a row here, too; the head of the leaves in
`rules/limits.py` names its other places.
"""

import functools
import math
import types
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Annotated, Literal, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from turnwise.errors import CallerError, UnknownOption
from turnwise.rules.limits import AnyOf, Leaf, Limit, MaxCost, MaxRequests, MaxTokens, MaxToolCalls, MaxWallTime
from turnwise.rules.recovery import Recover
from turnwise.rules.reservations import MAX_SUBAGENT_REQUESTS, MAX_SUBAGENTS
from turnwise.rules.retries import RetryPolicy
from turnwise.settings.catalogue import LimitRow
from turnwise.turn.config import MAX_STEPS, CallsInText, TurnConfig
from turnwise.vocab import Cache, Effort, Settings
from turnwise.vocab.json_values import without_nones

# What a commit of the journal survives: the death of the process, or that of the machine, too.
#
# In a file of its own, because the table of options needs the words and not SQLite.


Durability = Literal["normal", "full"]


def check_durability(durability: str, *, others: Iterable[str]) -> None:
    """Raise CallerError for a word that is neither, or for options that `Journal` does not have."""
    for name in others:
        hint = "Did you mean `durability`?" if name == "synchronous" else "The options are: clock, durability"
        raise UnknownOption(f"`{name}` is no option of `Journal`. {hint}")
    if durability not in get_args(Durability):
        words = " or ".join([f'"{word}"' for word in get_args(Durability)])
        raise CallerError(f"`durability` must be {words}, not {durability!r}")


Notify = Literal["bell", "osc9", "both", "off"]  # how a session at a terminal calls a person who looks elsewhere

MOST_STEPS = 10_000  # more is a slip of the keyboard
MOST = 10**12  # of requests, tokens, seconds: the journal cannot hold what is not finite
Steps = Annotated[int, msgspec.Meta(ge=1, le=MOST_STEPS)]
Count = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
CountOrNone = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=MOST)]
Temperature = Annotated[float, msgspec.Meta(ge=0)]
Probability = Annotated[float, msgspec.Meta(ge=0, le=1)]
Seed = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # what every API takes that takes one
Attempts = Annotated[int, msgspec.Meta(ge=0, le=20)]

# `agent` and `run`: Python's, under the same name and with the same type. `compare` is `turnwise compare`.
OptionSource = Literal["agent", "run", "command line", "compare", "file", "environment"]
PYTHON: tuple[OptionSource, ...] = ("agent", "run")
TERMINAL: tuple[OptionSource, ...] = ("command line", "compare")
# What the file of a project may do, which may have come from elsewhere: say it like the user's own, lower what that says, switch
# off what that switches on, or not say it at all.
Project = Literal["says", "lowers", "switches off", "never"]


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """What a row says beside name and type. `help` is for the command line and `page` for docs/. `flags` stand in place of
    `--name`. `limit` is the limit that the amount makes, and `setting` the field of `Settings` that has it: a session keeps both.
    `kept` is what else a session's last turn had; `is_of_model`: it is kept with the session's own model alone. `python` is how
    Python says it, where not by the same name, as a limit or as a setting. `default` is what holds where nobody says it, as
    people read it; that of a number is the number. `kept_only` says to readers of the pages when a session keeps what is no
    setting of the run."""

    help: str = ""
    page: str = ""
    sources: tuple[OptionSource, ...]
    project: Project = "says"
    why_never: str = ""
    python: str = ""
    flags: tuple[str, ...] = ()
    metavar: str = ""
    default: str = ""
    limit: type[Leaf] | None = None
    setting: str = ""
    kept: Callable[[TurnConfig], object] | None = None
    kept_only: str = ""
    is_of_model: bool = False


class RunSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one source says of a run; None is not said."""

    model: Annotated[
        str | None,
        Option(
            help="PROVIDER:NAME, or FAMILY:NAME with --base-url. [env: TURNWISE_MODEL]",
            page="`PROVIDER:NAME` (`openai:gpt-6.1-sol`, `ollama:qwen3:8b`), or `FAMILY:NAME` with `--base-url`; families: "
            "`openai_chat`, `openai_responses`, `anthropic_messages`, `gemini`, `gemini_interactions`, `ollama_chat`, "
            "`cohere_chat`",
            sources=("agent", "command line", "file", "environment"),
            flags=("-m", "--model"),
        ),
    ] = None
    base_url: Annotated[
        str | None,
        Option(
            help="Endpoint URL, if it is not the provider's default. [env: TURNWISE_BASE_URL]",
            page="endpoint URL, if it is not the provider's default",
            sources=("agent", "command line", "file", "environment"),
            project="never",
            why_never="a project's file cannot say where your key goes: give --base-url, set TURNWISE_BASE_URL, or write it "
            "below `model` in your own turnwise.toml",
            metavar="URL",
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        Option(
            help="The variable that holds the key.",
            page="name of the variable that holds the key; otherwise the provider's usual one (`OPENAI_API_KEY` ...)",
            sources=("agent", "command line"),
            metavar="NAME",
        ),
    ] = None
    max_steps: Annotated[
        Steps | None,
        Option(
            help="At most N model steps; the last one must answer.",
            page="at most this many model steps. The last one may call no tool and must answer. If the model "
            "still calls a tool or says "
            "nothing, turnwise asks once more",
            sources=(*PYTHON, *TERMINAL, "file"),
            project="lowers",
            metavar="N",
            default=f"{MAX_STEPS}",
            kept=lambda last: last.max_steps,
        ),
    ] = None
    max_requests: Annotated[
        Count | None,
        Option(
            help="At most N HTTP requests; the last one is the answer.",
            page="at most this many HTTP requests of any kind (steps, continuations, retries). The last one is "
            "reserved for the answer",
            sources=(*TERMINAL, "file"),
            project="lowers",
            metavar="N",
            limit=MaxRequests,
        ),
    ] = None
    max_tokens: Annotated[
        Count | None,
        Option(
            help="At most N tokens: prompts and answers of all requests.",
            page="at most this many tokens, prompts and answers of all requests together. No step begins that "
            "would leave no room for the answer. Coming requests are estimated from earlier ones, so the "
            "last answer can go a little beyond",
            sources=(*TERMINAL, "file"),
            project="lowers",
            metavar="N",
            limit=MaxTokens,
        ),
    ] = None
    max_cost: Annotated[
        Decimal | None,
        Option(
            help="At most this many US dollars; the model's price must be known.",
            page="at most this many US dollars, sub-agents included; the last affordable request is used for the "
            "answer. The price of the model must be known ([more](limits.md#what-money-allows))",
            sources=(*TERMINAL, "file"),
            project="lowers",
            metavar="USD",
            limit=MaxCost,
        ),
    ] = None
    max_time: Annotated[
        Seconds | None,
        Option(
            help="At most this many seconds, the answer included.",
            page="at most this many seconds. Time for the answer is reserved: tools are stopped before it. When "
            "the time is up, the answer is what has arrived",
            sources=(*TERMINAL, "file"),
            project="lowers",
            metavar="SECONDS",
            limit=MaxWallTime,
        ),
    ] = None
    max_tool_calls: Annotated[
        Count | None,
        Option(
            help="At most N tool calls; then the model must answer.",
            page="at most this many tool calls that run, those of programs and sub-agents included. Further calls"
            " do not run, and the model is asked for its answer ([what "
            "counts](limits.md#limits-of-tool-calls))",
            sources=(*TERMINAL, "file"),
            project="lowers",
            metavar="N",
            limit=MaxToolCalls,
        ),
    ] = None
    max_output_tokens: Annotated[
        Count | None,
        Option(
            help="At most N tokens in one response, reasoning included.",
            page="at most this many tokens in one response, reasoning included",
            sources=(*TERMINAL, "file"),
            project="lowers",
            metavar="N",
            setting="max_output_tokens",
        ),
    ] = None
    context_window: Annotated[
        Count | None,
        Option(
            help="The model's limit for prompt and answer together, in tokens. Set this if turnwise's value is missing or wrong.",
            page="the model's limit for prompt and answer together, in tokens. Set this if turnwise's value is missing or wrong; "
            "[more of limits](limits.md)",
            sources=TERMINAL,
            python='`Model("...", limits=ModelLimits(context_window_tokens=...))`',
            metavar="N",
            kept_only="with its model, if nothing else says it",
        ),
    ] = None
    recover: Annotated[
        Recover | None,
        Option(
            help="If the output limit cuts a response: continue it, ask for smaller pieces, or do nothing.",
            page="if the output limit cuts a response: `continue` (continue it, [how](cut-turn.md)), `split` (do not continue "
            "a cut call; ask for smaller pieces), `off` (no request is made for it)",
            sources=(*PYTHON, *TERMINAL, "file"),
            default="continue",
            kept=lambda last: last.recover,
        ),
    ] = None
    cache: Annotated[
        Cache | None,
        Option(
            help="Whether the provider is asked to keep the prompt in its cache.",
            page="whether the provider is asked to keep the prompt in its cache: `auto`: for its usual time; "
            "`1h`: for an hour, which costs more to write; `off`: do not ask ([what it "
            "saves](billing.md#prompt-caches))",
            sources=(*PYTHON, *TERMINAL, "file"),
            project="never",
            why_never="a project's file cannot say what costs more to write: give --cache, or write it in your own turnwise.toml",
            default="auto",
            # sessions of before know nothing of it, and look as if they had it off: they have no `marks_cache` either
            kept=lambda last: last.cache if last.cache != "off" or last.marks_cache else None,
        ),
    ] = None
    websocket: Annotated[
        bool | None,
        Option(
            help="Ask over one WebSocket, if the API has one (OpenAI's Responses API).",
            page="ask over one WebSocket for a session, which sends only what is new with each step; for the Responses API "
            "([how it works](websocket.md))",
            sources=("agent", *TERMINAL, "file"),
            flags=("--websocket/--no-websocket",),
            project="never",
            why_never="a project's file cannot say how your provider is reached: give --websocket, or write it in your own "
            "turnwise.toml",
        ),
    ] = None
    calls_in_text: Annotated[
        CallsInText | None,
        Option(
            help="Whether a call that the model wrote into its text counts.",
            page="whether a call that the model wrote into its text counts: `auto`: if the server may leave it "
            "there; `on`: always, also a bare JSON call; `off`: never ([how](calls-in-text.md))",
            sources=(*PYTHON, *TERMINAL, "file"),
            project="never",
            why_never="a project's file cannot make calls of what the model quotes: give --calls-in-text, or write it in your "
            "own turnwise.toml",
            default="auto",
            kept=lambda last: last.calls_in_text,
        ),
    ] = None
    retries: Annotated[
        Attempts | None,
        Option(
            help="How often a failed request is sent again.",
            page="how often a failed request is sent again ([when, and after what wait](deadlines.md))",
            sources=TERMINAL,
            python='`recovery={"retry": RetryPolicy(attempts=...)}`',
            metavar="N",
            default=f"{RetryPolicy().attempts - 1}",
            kept=lambda last: last.retry.attempts - 1,
        ),
    ] = None
    fallback: Annotated[
        tuple[str, ...] | None,
        Option(
            help="Another model of the endpoint, for when a model fails. Repeatable.",
            page="another model of the same endpoint. After a model has failed, the next one is used for the rest"
            " of the run. Repeatable, in order",
            sources=TERMINAL,
            python='`recovery={"fallbacks": [...]}`',
            metavar="NAME",
            kept=lambda last: tuple([one.model for one in last.fallbacks]) or None,
            is_of_model=True,
        ),
    ] = None
    script: Annotated[
        bool | None,
        Option(
            help="Let the model write small programs that make many tool calls in one request.",
            page="let the model write small programs that make many tool calls in one request "
            "([programs](scripted-steps.md)). For this run only",
            sources=TERMINAL,
            python='`safety={"script": True}`, `safety={"script": False}`',
            flags=("--script/--no-script",),
            default="where the plan bills by the request",
        ),
    ] = None
    temperature: Annotated[
        Temperature | None,
        Option(
            help="Sampling temperature; 0 gives the most predictable answers.",
            page="sampling temperature; 0 gives the most predictable answers. Unless set, the provider's values "
            "hold for this and the next three options. A session keeps them, unless you give another "
            "`--model`",
            sources=TERMINAL,
            metavar="T",
            setting="temperature",
            is_of_model=True,
        ),
    ] = None
    top_p: Annotated[
        Probability | None,
        Option(
            help="Sample from the likeliest tokens that make up this probability.",
            page="sample from the likeliest tokens that together have this probability",
            sources=TERMINAL,
            metavar="P",
            setting="top_p",
            is_of_model=True,
        ),
    ] = None
    seed: Annotated[
        Seed | None,
        Option(
            help="Seed for sampling, if the API accepts one.",
            page="seed for sampling, if the API accepts one",
            sources=TERMINAL,
            metavar="N",
            setting="seed",
            is_of_model=True,
        ),
    ] = None
    effort: Annotated[
        Effort | None,
        Option(
            help="How much the model reasons, if the API accepts it.",
            page="how much the model reasons, [in each API's words](limits.md#how-reasoning-is-asked-for)",
            sources=TERMINAL,
            setting="reasoning_effort",
            is_of_model=True,
        ),
    ] = None
    max_subagents: Annotated[
        CountOrNone | None,
        Option(
            help="At most N sub-agents, with those below them.",
            page="at most this many sub-agents in a turn, with those below them",
            sources=(*PYTHON, "command line", "file"),
            project="lowers",
            metavar="N",
            default=f"{MAX_SUBAGENTS}",
            kept=lambda last: last.max_subagents,
        ),
    ] = None
    max_subagent_requests: Annotated[
        CountOrNone | None,
        Option(
            help="At most N HTTP requests of all sub-agents together.",
            page="at most this many HTTP requests of all sub-agents of a turn together. Each reserves its last "
            "one for its answer",
            sources=(*PYTHON, "command line", "file"),
            project="lowers",
            metavar="N",
            default=f"{MAX_SUBAGENT_REQUESTS}",
            kept=lambda last: last.max_subagent_requests,
        ),
    ] = None
    durability: Annotated[
        Durability | None,
        Option(
            help="What the journal survives: a killed process, or a power failure, too.",
            page="what the journal survives. `normal`: a killed process; `full`: a power failure, too. `full` waits for the "
            "disk before each request and each tool ([what may be lost](journal.md#durability))",
            sources=("command line", "file"),
            project="never",
            why_never="a project's file cannot say how safely your journal is kept: give --durability, or write it in your own "
            "turnwise.toml",
            python="`Journal(durability=...)`",
            default="normal",
        ),
    ] = None
    environment: Annotated[
        bool | None,
        Option(
            page="`false`: do not tell the model [where it works](cli.md#what-the-model-is-told)",
            sources=("file",),
            project="switches off",
            default="true",
        ),
    ] = None
    notify: Annotated[
        Notify | None,
        Option(
            page="how a session calls you at a question or at the end of a turn, while its terminal has no focus: `bell`, "
            "`osc9` (a notice of the desktop), `both`, `off` ([terminal](cli.md#what-calls-you))",
            sources=("file",),
            project="never",
            why_never="a project's file cannot ring at your terminal: write it in your own turnwise.toml",
            default="both",
        ),
    ] = None
    terminal: Annotated[
        Literal["editor"] | None,
        Option(
            page="`editor`: run commands in the editor's terminal, without a sandbox ([editors](acp.md#commands-in-the-editor))",
            sources=("file",),
            project="never",
            why_never="a project's file cannot take commands out of the sandbox: write it in your own turnwise.toml",
            default="turnwise's sandbox",
        ),
    ] = None
    model_limits: Annotated[
        dict[str, LimitRow],
        Option(
            page="a table: [what models take](limits.md#what-models-take)",
            sources=("file",),
            python='`Model("...", limits=ModelLimits(...))`',
        ),
    ] = {}


class OptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """An option with its name and type. `kind` is what a value of it is; `bounds` are those of a number."""

    name: str
    type: object  # as it stands in RunSettings, None included
    kind: object
    bounds: msgspec.Meta | None
    option: Option

    @property
    def flags(self) -> tuple[str, ...]:
        """As the command line takes it."""
        return self.option.flags or (f"--{self.name.replace('_', '-')}",)

    def takes(self, value: float) -> bool:
        """Whether a number is within the bounds. `nan` and what is not finite never is."""
        bounds = self.bounds or msgspec.Meta()
        if not math.isfinite(value) or (bounds.gt is not None and value <= bounds.gt):
            return False
        return (bounds.ge is None or value >= bounds.ge) and (bounds.le is None or value <= bounds.le)

    @property
    def span(self) -> str:
        """The bounds as people read them: `from 1 to 10,000`; empty where there are none."""
        bounds = self.bounds
        if bounds is None:
            return ""
        least = f"more than {bounds.gt:g}" if bounds.gt is not None else f"from {bounds.ge:,}"
        return least if bounds.le is None or bounds.le >= MOST else f"{least} to {bounds.le:,}"

    @property
    def usual_amount(self) -> int | float | Decimal | None:
        """The number that holds where nobody says one; None where none does, or it is no number."""
        if not self.option.default or not (self.kind is int or self.kind is float or self.kind is Decimal):
            return None
        return msgspec.convert(self.option.default, self.kind, strict=False)

    @property
    def choices(self) -> tuple[str, ...]:
        """The words that it may be, where it is one of a few."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    def is_from(self, *sources: OptionSource) -> bool:
        return any(source in self.option.sources for source in sources)


@functools.cache
def rows() -> tuple[OptionRow, ...]:
    """All of them, in the order of the table."""
    hints = get_type_hints(RunSettings, include_extras=True)
    return tuple([_row(name, hints[name]) for name in RunSettings.__struct_fields__])


def rows_from(*sources: OptionSource) -> tuple[OptionRow, ...]:
    """Those that may come from one of these."""
    return tuple([row for row in rows() if row.is_from(*sources)])


def rows_of_limits() -> tuple[OptionRow, ...]:
    """Those that a limit of a turn is made of, its steps included."""
    return tuple([row for row in rows() if row.option.limit is not None or row.name == "max_steps"])


def _row(name: str, hint: object) -> OptionRow:
    said, option = cast("tuple[object, Option]", get_args(hint))
    kind, bounds = said, None
    if get_origin(said) in (Union, types.UnionType):
        (kind,) = [one for one in get_args(said) if one is not types.NoneType]
    if get_origin(kind) is Annotated:
        kind, bounds = cast("tuple[object, msgspec.Meta]", get_args(kind))
    return OptionRow(name=name, type=said, kind=kind, bounds=bounds, option=option)


def kept_by(last: TurnConfig, *, is_same_model: bool) -> RunSettings:
    """What a session keeps of its `last` turn. The model is not among it: it goes together with an address and a key."""
    found: dict[str, object] = {}
    for row in rows():
        option = row.option
        if option.is_of_model and not is_same_model:
            continue
        if option.setting:
            found[row.name] = getattr(last.settings, option.setting)
        elif option.kept is not None:
            found[row.name] = option.kept(last)
    return msgspec.structs.replace(settings_in(last.limits), **found)


def settings_over(before: Settings, settings: RunSettings) -> Settings:
    """The settings of a model's requests, with what a run says of them in its place."""
    said = {row.option.setting: getattr(settings, row.name) for row in rows() if row.option.setting}
    return msgspec.structs.replace(before, **without_nones(said))


def limits_in(settings: RunSettings) -> list[Limit]:
    """The limits that the settings name, in the order of the table."""
    return [
        row.option.limit(getattr(settings, row.name))
        for row in rows()
        if row.option.limit is not None and getattr(settings, row.name) is not None
    ]


def settings_in(limit: Limit | None) -> RunSettings:
    """What of a limit settings could have named."""
    named = [found for one in beside(limit) if (found := _named(one)) is not None]
    return msgspec.structs.replace(RunSettings(), **dict(named))


def beside(limit: Limit | None) -> tuple[Limit, ...]:
    """The limits of which each stops by itself."""
    if limit is None:
        return ()
    return limit.limits if isinstance(limit, AnyOf) else (limit,)


def _named(limit: Limit) -> tuple[str, object] | None:
    """The setting that makes this very limit, and its amount; None where none does."""
    amount = getattr(limit, limit.__struct_fields__[0])
    for row in rows():
        make = row.option.limit
        if make is not None and isinstance(limit, make) and make(amount) == limit:
            return row.name, amount
    return None
