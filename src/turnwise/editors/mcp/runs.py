"""One run that a client asked for: its arguments, its turn, what the client is told meanwhile, and its result."""

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import cast

import msgspec
from mcp_types import CallToolResult, TextContent

from turnwise.agent.formatting import many
from turnwise.agent.results import RunResult
from turnwise.agent.run_setup import RunOptions
from turnwise.agent.runs import Run
from turnwise.base.clock import Clock
from turnwise.coding_agent.asked_calls import MAX_TITLE, title_of
from turnwise.coding_agent.model_names import another_model
from turnwise.coding_agent.options import Given
from turnwise.coding_agent.repository import MAX_PATH, foreign_folder, settings_of_run
from turnwise.coding_agent.run_events import DeniedCall, FailedModel, denied_in, describe_end, result_fields
from turnwise.coding_agent.run_servers import servers_of_run
from turnwise.coding_agent.text import clean_answer, clean_line, shortened, visible_line
from turnwise.coding_agent.workplace import FaceTerms, Workplace, furnish
from turnwise.editors.mcp.client_asks import ClientApprover, Questions
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal
from turnwise.rules.answer_room import FAILED, exit_code
from turnwise.rules.permission_paths import is_inside
from turnwise.rules.permissions import PermissionRule
from turnwise.running.watcher_events import (
    AskOpened,
    AttemptDiscarded,
    ChildSeen,
    RequestStarted,
    RunNoted,
    ToolProgress,
    ToolsetNoted,
    ToolStarted,
    WatcherEvent,
)
from turnwise.settings.options import MOST, OptionRow, RunSettings, rows_from
from turnwise.settings.settings import Layer, read_layers, read_usd
from turnwise.vocab import StopReason

# What a client may say of a run: read, bounded, and never more than the server was started with.


MAX_PROMPT = 1024 * 1024  # characters: as many as the largest window takes
MAX_NAME = 200  # of a model
READ_ONLY, AS_STARTED = "read-only", "as-started"
PERMISSIONS: Mapping[str, tuple[PermissionRule, ...]] = {
    READ_ONLY: (
        PermissionRule(verdict="deny", effect="write", source="command line", where="the client's `permissions`"),
        PermissionRule(verdict="deny", effect="execute", source="command line", where="the client's `permissions`"),
    ),
    AS_STARTED: (),
}
# Options of the start that loosen what a run may do. A client that names one is told who can set it.
SET_AT_START = frozenset(
    """allow ask_timeout network no_sandbox mcp base_url api_key_env system no_agents_md root allow_model sandbox env""".split()
)


class RunWish(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `run`. `limits` holds those that were given."""

    prompt: str
    folder: Path
    model: str | None = None
    permissions: str = AS_STARTED
    limits: RunSettings = RunSettings()


def limit_rows() -> tuple[OptionRow, ...]:
    """The limits that a client may lower: those that a project's file may lower, too."""
    return tuple([row for row in rows_from("command line") if row.option.project == "lowers"])


def run_schema(models: Sequence[str]) -> dict[str, object]:
    """The JSON Schema of the arguments. `models` are those that a client may choose."""
    properties: dict[str, object] = {
        "prompt": {"type": "string", "minLength": 1, "maxLength": MAX_PROMPT, "description": "What is to be done."},
        "folder": {
            "type": "string",
            "maxLength": MAX_PATH,
            "description": "Where: the path of a folder in the server's root, relative to it or absolute. Default: the root.",
        },
        "permissions": {
            "enum": list(PERMISSIONS),
            "default": AS_STARTED,
            "description": "`read-only`: nothing is written and no command runs. `as-started`: what the server's start allows.",
        },
        **{row.name: _limit_schema(row) for row in limit_rows()},
    }
    if models:
        properties["model"] = {"enum": list(models), "description": "Another model than the server's own."}
    return {"type": "object", "properties": properties, "required": ["prompt"], "additionalProperties": False}


def _limit_schema(row: OptionRow) -> dict[str, object]:
    bounds = row.bounds
    least = {} if bounds is None or bounds.ge is None else {"minimum": bounds.ge}
    above = {} if bounds is None or bounds.gt is None else {"exclusiveMinimum": bounds.gt}
    kind = "integer" if row.kind is int else "number"
    said = f"{row.option.help} Not more than the server allows."
    return {"type": kind, **least, **above, "description": said}


def read_run(
    arguments: Mapping[str, object], *, root: Path, models: Collection[str], env: Mapping[str, str]
) -> RunWish:
    """Raises CallerError that names the argument and says what to do."""
    limits = {row.name: row for row in limit_rows()}
    known = {"prompt", "folder", "permissions", "model", *limits}
    for name in arguments:
        if name in SET_AT_START or name.replace("-", "_") in SET_AT_START:
            raise CallerError(
                f"`{name}` is set where the server starts (`turnwise mcp serve --help`), and a client cannot change it: leave "
                "it out"
            )
        if name not in known:
            raise CallerError(
                f"`{visible_line(name[:40])}` is no argument of `run`: there are {', '.join(sorted(known))}"
            )
    prompt = _text(arguments.get("prompt"), name="prompt", most=MAX_PROMPT)
    if not prompt.strip():
        raise CallerError("`prompt` is empty: say what is to be done")
    folder = _text(arguments.get("folder", "."), name="folder", most=MAX_PATH)
    permissions = _text(arguments.get("permissions", AS_STARTED), name="permissions", most=MAX_NAME)
    if permissions not in PERMISSIONS:
        raise CallerError(
            f"`permissions` is `{visible_line(permissions)}`: a client can only lower them, to `{READ_ONLY}`; what more is "
            "allowed is said where the server starts (`--allow`)"
        )
    model = arguments.get("model")
    if model is not None and _text(model, name="model", most=MAX_NAME) not in models:
        there = f"there are {', '.join(models)}" if models else "the server's start offers none (`--allow-model`)"
        raise CallerError(f"`model` is `{visible_line(str(model))}`, which a client may not choose: {there}")
    given = {name: _limit(arguments[name], row=row) for name, row in limits.items() if arguments.get(name) is not None}
    return RunWish(
        prompt=prompt,
        folder=foreign_folder(folder, name="folder", env=env, below=root),
        model=cast("str | None", model),
        permissions=permissions,
        limits=msgspec.structs.replace(RunSettings(), **given),
    )


def may_swap(outer: RunWish, inner: RunWish) -> bool:
    """Whether a run of the first can move the second's folder away and put a link there, which would lead that run elsewhere."""
    if outer.permissions == READ_ONLY or outer.folder == inner.folder:
        return False
    return is_inside(str(inner.folder), folder=str(outer.folder))


def lowered(most: RunSettings, *, wish: RunSettings) -> dict[str, object]:
    """The client's limits, by their names. `most` is what holds where it says nothing. Raises CallerError for one above that."""
    rows = [row for row in limit_rows() if getattr(wish, row.name) is not None]
    for row in rows:
        value, said = getattr(wish, row.name), getattr(most, row.name)
        allowed = row.usual_amount if said is None else said
        if allowed is not None and value > allowed:
            raise CallerError(
                f"`{row.name}` is {value:,}, more than the {allowed:,} that this server allows: lower it, or leave it out"
            )
    return {row.name: getattr(wish, row.name) for row in rows}


def _limit(value: object, *, row: OptionRow) -> int | float | Decimal:
    what = ", ".join(["a whole number" if row.kind is int else "a number", *([row.span] if row.span else [])])
    if isinstance(value, float) and value.is_integer() and row.kind is int:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int if row.kind is int else int | float):
        raise CallerError(f"`{row.name}` is {what}")
    if abs(value) > MOST or not row.takes(value):
        raise CallerError(f"`{row.name}` is {what}")
    if row.kind is Decimal:
        try:
            return read_usd(value)
        except ValueError as error:
            raise CallerError(f"`{row.name}`: {error}") from None
    return float(value) if row.kind is float else value


def _text(value: object, *, name: str, most: int) -> str:
    if not isinstance(value, str):
        raise CallerError(f"`{name}` is missing: give a text" if value is None else f"`{name}` is no text: give one")
    if len(value) > most:
        raise CallerError(f"`{name}` has {len(value):,} characters, more than {most:,}: shorten it")
    return value


# What a client is told while a run works: one line at a time, the latest, and only where it wants any.


TellClient = Callable[[float, str], Awaitable[None]]
"""Tells the client a number, which grows, and a line."""


class Progress:
    """Watches a run. Between two lines that are sent, only the latest is kept: a slow client holds nothing up."""

    def __init__(self) -> None:
        self._report: TellClient | None = None
        self._line = ""
        self._steps = 0
        self._task: asyncio.Task[None] | None = None

    def report_to(self, report: TellClient | None) -> None:
        """From now on; None: to nobody."""
        self._report = report
        if report is not None:
            self._send_soon()

    def see(self, seen: WatcherEvent) -> None:
        if line := line_of(seen):
            self._line = line
            self._steps += 1
            self._send_soon()

    async def flush(self) -> None:
        while self._task is not None:
            await asyncio.wait((self._task,))

    def _send_soon(self) -> None:
        if self._task is None and self._report is not None and self._line:
            self._task = asyncio.create_task(self._send())

    async def _send(self) -> None:
        try:
            with contextlib.suppress(ConnectionError):
                while self._line and self._report is not None:
                    line, self._line = self._line, ""
                    await self._report(float(self._steps), line)
        finally:
            self._task = None


def line_of(seen: WatcherEvent, *, path: tuple[str, ...] = ()) -> str:
    """Empty for what needs no line."""
    match seen:
        case ChildSeen(path=names, seen=inner):
            return line_of(inner, path=names)
        case RequestStarted(number=number, step=step):
            said = f"step {step}: request {number}"
        case ToolStarted(call=call):
            return title_of(call, path=path)
        case ToolProgress(line=line):
            said = line
        case AskOpened(call=call):
            said = f"asking about {call.name}"
        case AttemptDiscarded(retry_in_s=retry_in_s):
            said = f"the request failed and is sent again in {retry_in_s:g} s"
        case ToolsetNoted(text=text) | RunNoted(text=text):
            said = text
        case _:
            return ""
    return shortened(" › ".join([*path, said]), limit=MAX_TITLE)


AGAIN = "turnwise mcp serve"
ALLOW_HINT = (
    "start `turnwise mcp serve` [with `{options}`, or ]for a client that can ask its user (elicitation); what is said here "
    "cannot allow it"
)
READ_ONLY_HINT = f"the client leaves `permissions` out, or gives `{AS_STARTED}`; what is said here cannot allow it"


class ServeMeans(msgspec.Struct, frozen=True, kw_only=True):
    """What all runs of a server have in common. `given` are the options of its start; `root` is a resolved folder, and `models`
    are those that a client may choose."""

    given: Given
    root: Path
    models: tuple[str, ...]
    journal: Journal
    clock: Clock
    env: Mapping[str, str]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended. `said` is how it ended, in words; `notes` are lines about the run itself."""

    result: RunResult
    said: str
    denied: Sequence[DeniedCall]
    notes: Sequence[str]


class ServedRun:
    """`token` names it to its client alone. `start` begins it; its task then goes on whether or not a call listens."""

    def __init__(self, wish: RunWish, *, means: ServeMeans, asks: bool) -> None:
        self.token = secrets.token_urlsafe(24)
        self.questions = Questions(means.clock)
        self.progress = Progress()
        self.is_attended_to = False  # a call listens
        self.wish = wish
        self._means = means
        self._asks = asks
        self._denied: list[DeniedCall] = []
        self._notes: list[str] = []
        self._has_begun = False  # a step of the turn; before that, MCP servers are started
        self._is_cancelled = False
        self._run: Run | None = None
        self._task: asyncio.Task[Served] | None = None

    @property
    def task(self) -> asyncio.Task[Served]:
        assert self._task is not None, "it has been started"
        return self._task

    def start(self) -> None:
        """Raises CallerError where there is nothing to run with; then nothing was sent."""
        place = self._furnished()
        self._notes += place.notes
        self._task = asyncio.create_task(self._serve(place))

    def cancel(self) -> None:
        """The run ends soon, with what it has; if nothing has begun, it ends without a result."""
        self._is_cancelled = True
        if self._run is not None:
            self._run.interrupt()
            if not self._has_begun:
                self._run.cancel()

    async def _serve(self, place: Workplace) -> Served:
        options: RunOptions = {"watch": self._see}
        if self._asks:
            approver = ClientApprover(
                place.around_asks, policy=place.policy, questions=self.questions, note=self._notes.append
            )
            options["safety"] = {"approver": approver}
        self._run = place.agent.start(self.wish.prompt, **options)
        if self._is_cancelled:
            self._run.cancel()
        result = await self._run
        said = "answered" if result.complete else describe_end(result, asked=FailedModel(choice=place.choice))
        return Served(
            result=result, said=clean_line(said), denied=tuple(self._denied), notes=(*self._notes, *result.notes)
        )

    def _see(self, seen: WatcherEvent) -> None:
        if (denied := denied_in(seen)) is not None:
            self._denied.append(denied)
        self._has_begun = self._has_begun or not isinstance(seen, ToolsetNoted)
        self.progress.see(seen)

    def _furnished(self) -> Workplace:
        means, wish = self._means, self.wish
        given: Given = {**means.given, "cwd": wish.folder, "go_on": False, "session": None}
        layers = read_layers(wish.folder, env=means.env)
        most = settings_of_run(layers, last=None, given=given["settings"]).settings
        if given["model"] is None and not means.env.get("TURNWISE_MODEL"):
            given = self._with_own_model(given, layers=layers, named=most.model)
        given["settings"] = msgspec.structs.replace(given["settings"], **lowered(most, wish=wish.limits))
        place = self._place(given)
        if wish.model is not None and wish.model != place.choice.model:
            given = another_model(wish.model, given=given, choice=place.choice, offered=(), again=AGAIN)
            place = self._place(given)
        return place

    def _with_own_model(self, given: Given, *, layers: Sequence[Layer], named: str | None) -> Given:
        """With the model of the user's own file: a project's file cannot choose another one, nor can a client by writing it.
        `named` is the model of all files. Raises CallerError where the project alone names one."""
        own = settings_of_run([one for one in layers if one.source == "user"], last=None, given=RunSettings()).settings
        if own.model == named:
            return given
        if own.model is None:
            raise CallerError(
                f"only the folder's file names a model, `{visible_line(str(named))}`, and it cannot choose: name one where the "
                "server starts (`-m`)"
            )
        self._notes.append(f"the folder's file names the model `{named}`, which is left out: the server's own is used")
        address = given["base_url"] or self._means.env.get("TURNWISE_BASE_URL") or own.base_url
        return {**given, "model": own.model, "base_url": address}

    def _place(self, given: Given) -> Workplace:
        means, permissions = self._means, self.wish.permissions
        hint = READ_ONLY_HINT if permissions == READ_ONLY else ALLOW_HINT
        return furnish(
            given,
            journal=means.journal,
            clock=means.clock,
            attended=self._asks,
            servers=servers_of_run(given, asks=None, clock=means.clock),
            face=FaceTerms(rules=PERMISSIONS[permissions], allow_hint=hint),
        )


# What a call of `run` or `decode` gives back: the same once as data, with a schema, and once as text.


MAX_DENIED = 100  # that are listed one by one
MAX_NOTES = 50

_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_TOKENS = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")


def _object(properties: dict[str, object], *, required: list[str] | None = None) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": required or list(properties)}


def _list_of(item: dict[str, object]) -> dict[str, object]:
    return {"type": "array", "items": item}


RUN_OUTPUT = _object(
    {
        "answer": {**_TEXT, "description": "The model's answer, or why there is none."},
        "outcome": {**_TEXT, "description": "How the run ended, in words."},
        "stop_reason": {"enum": [reason.value for reason in StopReason]},
        "complete": {
            "type": "boolean",
            "description": "false: the answer rests on less than the model wanted to know.",
        },
        "why_incomplete": _TEXT,
        "fault": {"type": ["object", "null"], "description": "How the provider failed."},
        "exit_code": {**_COUNT, "description": "What `turnwise run` would have ended with."},
        "requests": {**_COUNT, "description": "HTTP requests of the run and its sub-agents."},
        "usage": {
            **_object({name: dict(_COUNT) for name in _TOKENS}),
            "description": "Tokens of the run without its sub-agents; `children` has theirs.",
        },
        "cost_usd": {
            "type": ["string", "null"],
            "description": "US dollars of all requests, sub-agents' and failed ones too. null: a price is not known.",
        },
        "known_cost_usd": {**_TEXT, "description": "The part of it whose prices are known."},
        "session": {**_TEXT, "description": "For `turnwise sessions show` and `turnwise run --session`."},
        "denied": _list_of(
            _object({"path": _list_of(dict(_TEXT)), "name": dict(_TEXT), "why": dict(_TEXT)}),
        ),
        "denied_in_all": _COUNT,
        "children": _list_of({"type": "object"}),
        "notes": _list_of(dict(_TEXT)),
    }
)

DECODE_OUTPUT = _object(
    {
        "text": _TEXT,
        "reasoning": _TEXT,
        "refusal": _TEXT,
        "tool_calls": _list_of(
            _object(
                {
                    "id": dict(_TEXT),
                    "name": dict(_TEXT),
                    "arguments_raw": dict(_TEXT),
                    "arguments": {"description": "null unless `state` is `complete`."},
                    "state": dict(_TEXT),
                }
            )
        ),
        "finish_reason": {"type": ["string", "null"]},
        "provider_finish_reason": {"type": ["string", "null"]},
        "usage": {"type": ["object", "null"]},
        "error": {"type": ["object", "null"]},
        "repairs": _list_of(_object({"kind": dict(_TEXT), "where": dict(_TEXT), "what": dict(_TEXT)})),
        "repairs_in_all": _COUNT,
    },
    required=["text", "reasoning", "tool_calls", "finish_reason", "error", "repairs", "repairs_in_all"],
)


def failed(why: str) -> CallToolResult:
    """A result that says what was wrong and what to do."""
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


def run_result(served: Served) -> CallToolResult:
    """The run's result; an error where it came to no answer, with its bill all the same."""
    result = served.result
    fields = result_fields(result, denied=served.denied[:MAX_DENIED])
    data = {
        "answer": result.shown_text,
        "outcome": served.said,
        **{
            name: fields[name]
            for name in ("stop_reason", "complete", "why_incomplete", "fault", "usage", "cost_usd", "session")
        },
        "exit_code": exit_code(result.stop_reason, complete=result.complete),
        "requests": result.cost.requests,
        "known_cost_usd": result.cost.usd,
        "denied": fields["denied"],
        "denied_in_all": len(served.denied),
        "children": fields["children"],
        "notes": served.notes[:MAX_NOTES],
    }
    is_error = result.stop_reason in FAILED
    answer = clean_answer(result.shown_text)  # a client may show the text at a terminal; the data have every character
    lines = [f"{served.said}: {answer}" if is_error else answer, f"[turnwise] {_line_of(served)}"]
    if served.denied:
        names = ", ".join(dict.fromkeys([visible_line(" › ".join([*one.path, one.name])) for one in served.denied]))
        lines.append(f"[turnwise] denied, and not run: {names}. {visible_line(served.denied[0].why)}")
    lines += [f"[turnwise] {visible_line(note)}" for note in served.notes[:MAX_NOTES]]
    return _result(data, text="\n\n".join(lines), is_error=is_error)


def decode_result(data: dict[str, object], *, is_stream: bool, family: str) -> CallToolResult:
    """What the stream holds; an error where it is no stream of that family."""
    text = msgspec.json.encode(data).decode()
    if not is_stream:
        text = f"this is no stream of `{visible_line(family)}`, or its beginning is missing: {text}"
    return _result(data, text=text, is_error=not is_stream)


def _line_of(served: Served) -> str:
    result = served.result
    cost = "cost unknown" if result.cost_usd is None else f"{result.cost_usd} US dollars"
    end = result.stop_reason.value if result.complete else f"{result.stop_reason.value}, not complete"
    return f"{end}; {many(result.cost.requests, 'request')}, {cost}; session {result.session}"


def _result(data: dict[str, object], *, text: str, is_error: bool) -> CallToolResult:
    plain = cast("dict[str, object]", msgspec.json.decode(msgspec.json.encode(data)))
    # half of a surrogate pair cannot be sent
    content = TextContent(type="text", text=text.encode(errors="replace").decode())
    return CallToolResult(content=[content], structured_content=plain, is_error=is_error)
