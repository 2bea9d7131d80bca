"""`turnwise compare`: the same prompt with several models, or under several plans, side by side.

Models run one at a time, so timings do not affect each other. They may read the folder and change nothing, so each finds it
as the one before did.
"""

import csv
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TextIO, Unpack

import click
import msgspec
from rich.console import Console
from rich.table import Table

from turnwise.agent.formatting import UNKNOWN, many, usd_said
from turnwise.agent.results import RunResult
from turnwise.base.clock import Clock, SystemClock
from turnwise.base.threads import quickest_loop, run_to_end
from turnwise.coding_agent.interruptible_run import InterruptibleRun
from turnwise.coding_agent.options import NOTHING_GIVEN, Given
from turnwise.coding_agent.prompts import read_prompt
from turnwise.coding_agent.text import clean_line, has_colour, shortened
from turnwise.coding_agent.workplace import Workplace, furnish, inspected
from turnwise.errors import CallerError
from turnwise.journal import ledger
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.ledger import OK, LedgerEntry, cost_of
from turnwise.journal.prices import read_prices
from turnwise.rules.answer_room import exit_code
from turnwise.rules.pricing import Cost, Fate, Priced, PriceRow, Unknown, cost_of_prices, price_of
from turnwise.rules.provider_tool_costs import billed_apart
from turnwise.running.tools import Tool
from turnwise.running.watcher_events import FrameSeen, RequestFinished, RequestStarted, WatcherEvent
from turnwise.terminal.command_options import FOLDER, complete_models, json_option, options_of_compare
from turnwise.terminal.exit_codes import CANCELLED
from turnwise.terminal.failures import USAGE, as_one_line, write_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.terminal.single_run import Stop
from turnwise.terminal.usage import json_of, short_cost
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import (
    CallForming,
    FaultKind,
    PartDone,
    ReasoningDelta,
    RefusalDelta,
    StopReason,
    TextDelta,
    ToolCallDelta,
)

COMPARE_EPILOG = """\b
Examples:
  turnwise compare -m openai:gpt-6.1-sol -m anthropic:claude-sonnet-5 "what does this project do?"
  turnwise compare -m groq:openai/gpt-oss-120b --plan request=0.01 --plan tokens=0.59/0.79 "hello"
  turnwise compare -m openai:gpt-6.1-sol -m ollama:qwen3:8b --max-cost 0.10 --json "find the bug" | jq .runs
  turnwise compare -m openai:gpt-6.1-sol -m openai:gpt-6.1-terra --no-tools --csv "hello" > compared.csv

The models may read the folder (read, list, search) and change nothing. Each run is a session of its own: `turnwise sessions show
ID` shows its answer, and `turnwise usage` counts it. A plan makes no requests: it prices the requests that were made.
Exit codes: 0 if all answers are complete; otherwise the highest of the runs' own (see `turnwise run --help`); 130 if you cancel,
with the results so far."""

INSTRUCTIONS = """You work in a folder on the user's machine, with tools that read, list and search its files; you cannot change \
anything. Look before you answer: read what the question is about. When you are done, say what you found."""

UNBROKEN = 1_000  # characters of a line in a file
CONTENT = (TextDelta, ReasoningDelta, RefusalDelta, ToolCallDelta, CallForming, PartDone)


class ModelRun(msgspec.Struct, frozen=True, kw_only=True):
    """One model's turn. Times are in seconds: `first_token_s` from the first request to the first piece of its response,
    `seconds` for the whole turn. `plans` are the costs under the requested plans; None is unknown. `error` says why there was no
    turn at all."""

    model: str
    exit_code: int
    stop_reason: StopReason | None = None
    complete: bool = False
    error: str | None = None
    requests: int = 0
    steps: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: Cost = Cost()
    plans: dict[str, Decimal | None] = {}
    first_token_s: float | None = None
    seconds: float = 0.0
    session: str = ""
    text: str = ""


class ModelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints; money is decimals as text. `not_run` are models whose turn did not come."""

    prompt: str
    runs: list[ModelRun]
    not_run: list[str]
    currency: str = "USD"


@click.command(cls=EndsWithLine, epilog=COMPARE_EPILOG)
@click.argument("words", metavar="[PROMPT]", nargs=-1)
@click.option("-n", "--no-stdin", is_flag=True, help="Leave standard input alone, as `ssh -n` does.")
@click.option(
    "-m",
    "--model",
    "models",
    multiple=True,
    metavar="MODEL",
    shell_complete=complete_models,
    help="PROVIDER:NAME. Repeatable.",
)
@click.option(
    "--plan",
    "plans",
    multiple=True,
    metavar="PLAN",
    help="Also price the runs by this plan: `request=0.01`, `step=0.02`, `tokens=IN/OUT` (per million), `free`. Repeatable.",
)
@click.option("--base-url", metavar="URL", help="Endpoint URL, for all models. [env: TURNWISE_BASE_URL]")
@click.option("--api-key-env", metavar="NAME", help="The variable that holds the key, for all models.")
@options_of_compare
@click.option("--cwd", type=FOLDER, help="Work in this folder.")
@click.option("--system", metavar="TEXT", help="Instructions in place of turnwise's own.")
@click.option("--no-agents-md", is_flag=True, help="Do not read AGENTS.md of the folder as instructions.")
@click.option("--no-stream", is_flag=True, help="Ask for whole responses instead of streams.")
@click.option("--no-tools", is_flag=True, help="Do not let the models read files.")
@json_option("Everything as one JSON object, the answers included.")
@click.option("--csv", "as_csv", is_flag=True, help="The lines of the table as CSV.")
def compare_command(
    words: tuple[str, ...],
    no_stdin: bool,
    models: tuple[str, ...],
    plans: tuple[str, ...],
    no_tools: bool,
    as_json: bool,
    as_csv: bool,
    **options: Unpack[Given],
) -> None:
    """Give PROMPT to several models, one after the other, and show for each: requests, tokens, cost, time, outcome.

    What is piped in goes with the prompt; `-` alone reads the prompt from there. Nothing in the folder is changed.
    """
    with as_one_line():
        if as_json and as_csv:
            raise CallerError("give either --json or --csv, not both")
        if not models:
            raise CallerError("no model: give --model PROVIDER:NAME, once for each that shall be compared")
        rows = read_plans(plans)
        asked = read_prompt(words, goes_on=False, tell=note, wanted="none" if no_stdin else "auto")
        clock = SystemClock()
        with Journal(journal_path(os.environ), clock=clock) as journal:
            given: Given = {
                **NOTHING_GIVEN,
                **options,
                "system": INSTRUCTIONS if options["system"] is None else options["system"],
                "no_environment": True,  # each model gets the same prompt
            }
            # all models are checked before the first one runs: a wrong name or a missing key then costs nothing
            places = [
                furnish(
                    {**given, "model": model},
                    journal=journal,
                    clock=clock,
                    attended=False,
                )
                for model in models
            ]
            comparing = compare(places, asked.texts, plans=rows, tools=not no_tools, clock=clock)
            compared = run_to_end(comparing, new_loop=quickest_loop)
        if as_json:
            write_json(json_of(compared))
        elif as_csv:
            write_csv(compared.runs, plans=rows, stream=sys.stdout)
        else:
            show(compared.runs, plans=rows, stream=sys.stdout)
        if compared.not_run:
            note(f"not run: {', '.join([clean_line(model) for model in compared.not_run])}")
    sys.exit(CANCELLED if compared.not_run else max(run.exit_code for run in compared.runs))


def read_plans(plans: Sequence[str]) -> dict[str, PriceRow]:
    """Rows of prices by the plan's own text. Raises CallerError for text that is not a plan."""
    rows: dict[str, PriceRow] = {}
    for text in plans:
        kind, _, price = text.partition("=")
        match kind:
            case "free" if not price:
                row: dict[str, object] = {"free": True}
            case "request" | "step":
                row = {kind: price}
            case "tokens" if price.count("/") == 1:
                row = dict(zip(("input", "output"), price.split("/"), strict=True))
            case _:
                raise CallerError(
                    f"--plan: `{text}` is no plan: write `request=0.01`, `step=0.02`, `tokens=1.25/10` "
                    "(US dollars per million tokens of prompts and responses) or `free`"
                )
        rows |= read_prices({text: row}, named="--plan", source="--plan")
    return rows


async def compare(
    places: Sequence[Workplace], prompt: Sequence[str], *, plans: dict[str, PriceRow], tools: bool, clock: Clock
) -> ModelComparison:
    """Run all models in order. Ctrl-C ends the current one, and no other begins."""
    importlib.import_module("aiohttp")  # loading it takes 0.3 s, which would count for the first model's first request
    runs: list[ModelRun] = []
    for number, place in enumerate(places, start=1):
        head = f"{number}/{len(places)} {clean_line(place.choice.model)}"
        run = await run_one(place, prompt, plans=plans, tools=tools, clock=clock, head=head)
        runs.append(run)
        note(f"{head}: {outcome_of(run)}, {many(run.requests, 'request')}, {run.seconds:.1f} s")
        if run.stop_reason is StopReason.CANCELLED:
            break
    return ModelComparison(
        prompt="\n\n".join(prompt), runs=runs, not_run=[place.choice.model for place in places[len(runs) :]]
    )


async def run_one(
    place: Workplace, prompt: Sequence[str], *, plans: dict[str, PriceRow], tools: bool, clock: Clock, head: str
) -> ModelRun:
    watch = _Watch(clock, head=head)
    began = clock.monotonic()
    try:
        run = InterruptibleRun()
        with Stop(run, face=None).heeded():
            offered = read_only(place) if tools else ()
            result = await run.to_end(place.agent.start(prompt, tools=offered, watch=watch))
    except CallerError as error:
        return ModelRun(model=place.choice.model, exit_code=USAGE, error=str(error))
    finally:
        watch.close()
    return run_of(
        result,
        model=place.choice.model,
        plans=plans,
        apart=watch.apart,
        first_token_s=watch.first_token_s,
        seconds=clock.monotonic() - began,
    )


def read_only(place: Workplace) -> tuple[Tool, ...]:
    """The tools of the folder that change nothing, with the rules of the folder."""
    return tuple(
        [inspected(tool) for tool in workspace_tools(place.workspace) if tool.offer.effect in ("none", "read")]
    )


def run_of(
    result: RunResult,
    *,
    model: str,
    plans: dict[str, PriceRow],
    first_token_s: float | None,
    seconds: float,
    apart: Mapping[int, str],
) -> ModelRun:
    usage = result.own.usage
    return ModelRun(
        model=model,
        exit_code=exit_code(result.stop_reason, complete=result.complete),
        stop_reason=result.stop_reason,
        complete=result.complete,
        error=None if result.fault is None else result.fault.message,
        requests=len(result.ledger),
        steps=result.steps,
        input_tokens=usage.input_tokens,
        cached_tokens=usage.cache_read_tokens,
        output_tokens=usage.output_tokens,
        cost=cost_of(result.ledger),
        plans={name: cost_under(row, entries=result.ledger, apart=apart).exact_usd for name, row in plans.items()},
        first_token_s=first_token_s,
        seconds=seconds,
        session=result.session,
        text=result.shown_text,
    )


def _fate_of(entry: LedgerEntry) -> Fate:
    """What the ledger tells about its end: an error as an answer, or a connection that was silent or broke."""
    if entry.outcome == OK:
        return "whole"
    if entry.first_event is not None:
        return "broken"
    if entry.outcome == FaultKind.PROTOCOL:
        return "empty"
    is_silent = entry.outcome in (None, ledger.CANCELLED, ledger.DISCARDED, FaultKind.TIMEOUT, FaultKind.DISCONNECTED)
    return "unheard" if is_silent else "refused"


def cost_under(row: PriceRow, *, entries: Sequence[LedgerEntry], apart: Mapping[int, str]) -> Cost:
    """What these requests would have cost at other prices. `apart` says by number of request what its response used that costs
    more than tokens."""
    prices: list[Priced | Unknown] = []
    billed: dict[tuple[str, int], int] = {}
    for entry in entries:
        fate = _fate_of(entry)
        step = entry.turn, entry.step
        price = price_of(
            entry.usage, row=row, fate=fate, billed_in_step=billed.get(step, 0), apart=apart.get(entry.number, "")
        )
        prices.append(price)
        billed[step] = billed.get(step, 0) + bool(isinstance(price, Priced) and price.usd)
    return cost_of_prices(prices)


class _Watch:
    """Times the first piece of a response, and shows progress at a terminal."""

    def __init__(self, clock: Clock, *, head: str) -> None:
        self._clock = clock
        self._head = head
        self._sent: float | None = None
        self.first_token_s: float | None = None
        self.apart: dict[int, str] = {}  # by request: the tools in its response that the provider itself ran
        self._models: dict[int, str] = {}
        console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._status = console.status(head) if sys.stderr.isatty() else None
        if self._status is not None:
            self._status.start()

    def __call__(self, seen: WatcherEvent) -> None:
        match seen:
            case RequestFinished(number=number, response=response) if response is not None:
                self.apart[number] = billed_apart(response, model=self._models.get(number, ""))
            case RequestStarted(number=number, model=model):
                self._models[number] = model
                self._sent = self._clock.monotonic() if self._sent is None else self._sent
                if self._status is not None:
                    self._status.update(f"{self._head}: request {number}")
            case FrameSeen(frame=frame) if isinstance(frame, CONTENT):
                if self.first_token_s is None and self._sent is not None:
                    self.first_token_s = self._clock.monotonic() - self._sent
            case _:
                pass

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()


def outcome_of(run: ModelRun) -> str:
    if run.stop_reason is None or run.stop_reason is StopReason.PROVIDER_FAILED:
        return f"failed: {shortened(run.error or 'nobody said why', limit=160)}"
    return str(run.stop_reason) if run.complete else f"{run.stop_reason}, incomplete"


def show(runs: Sequence[ModelRun], *, plans: dict[str, PriceRow], stream: TextIO) -> None:
    console = Console(
        file=stream,
        no_color=not has_colour(stream),
        force_terminal=has_colour(stream),
        width=None if stream.isatty() else UNBROKEN,
        highlight=False,
        emoji=False,
        markup=False,
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", overflow="fold", max_width=40)
    for name in ("requests", "tokens in", "cached", "tokens out", "cost", *plans, "first token", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("session", no_wrap=True)
    for run in runs:
        outcome = "failed" if run.stop_reason in (None, StopReason.PROVIDER_FAILED) else outcome_of(run)
        table.add_row(
            clean_line(run.model),
            f"{run.requests:,}",
            f"{run.input_tokens:,}",
            f"{run.cached_tokens:,}",
            f"{run.output_tokens:,}",
            short_cost(run.cost) if run.requests else "",
            *[_under(run, plan=name) for name in plans],
            "" if run.first_token_s is None else f"{run.first_token_s:.2f} s",
            f"{run.seconds:.1f} s",
            outcome,
            run.session[-8:],
        )
    console.print(table)


def _under(run: ModelRun, *, plan: str) -> str:
    """Empty if no request was sent."""
    usd = run.plans.get(plan)
    return "" if not run.requests else UNKNOWN if usd is None else usd_said(usd)


def write_csv(runs: Sequence[ModelRun], *, plans: dict[str, PriceRow], stream: TextIO) -> None:
    """Write the runs as CSV. An empty cell is an unknown price, or a time that was not measured."""
    writer = csv.writer(stream, lineterminator="\n")
    head = "model requests steps input_tokens cached_tokens output_tokens usd requests_of_unknown_price".split()
    writer.writerow([*head, *plans, "first_token_s", "seconds", "stop_reason", "complete", "session"])
    for run in runs:
        known = "" if run.cost.exact_usd is None else f"{run.cost.exact_usd:f}"
        under = ["" if (usd := run.plans.get(name)) is None else f"{usd:f}" for name in plans]
        writer.writerow(
            [
                *(
                    clean_line(run.model),
                    run.requests,
                    run.steps,
                    run.input_tokens,
                    run.cached_tokens,
                    run.output_tokens,
                ),
                *(known, run.cost.unknown, *under),
                "" if run.first_token_s is None else round(run.first_token_s, 3),
                *(round(run.seconds, 3), run.stop_reason or "error", str(run.complete).lower(), run.session),
            ]
        )


def note(line: str) -> None:
    say(line)
