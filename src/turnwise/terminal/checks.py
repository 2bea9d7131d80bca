"""The checks of `turnwise doctor`: each thing that a run needs, its state, and what to do about it."""

import contextlib
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import click
import msgspec

from turnwise._version import __version__
from turnwise.agent.formatting import many
from turnwise.agent.models import ON_THE_COMMAND_LINE, open_endpoint, read_model
from turnwise.base.clock import SystemClock
from turnwise.base.extras import missing_extras
from turnwise.base.programs import ProgramSearch
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.choice import Choice, NoModel, choose
from turnwise.coding_agent.hook_commands import read_hooks
from turnwise.coding_agent.left_turns import how_they_go_on, interrupted_rows
from turnwise.coding_agent.mcp_servers import named_servers
from turnwise.coding_agent.model_names import key_line, keys_at_hand, look_around, offered_by, shown_url
from turnwise.coding_agent.permissions import policy_of_run
from turnwise.coding_agent.repository import settings_of_run
from turnwise.coding_agent.text import clean_line, style
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.local_servers import is_own_machine
from turnwise.errors import CallerError, JournalDamaged, JournalFailed, MissingKey, ProviderFault
from turnwise.journal.file import refuse_misplaced
from turnwise.journal.journal import Journal, journal_path
from turnwise.journal.prices import prices_of_layers
from turnwise.running.tools import Tool
from turnwise.settings.catalogue import ModelEnd
from turnwise.settings.settings import Layer, Merged, RunSettings, read_layers
from turnwise.terminal.failures import FAILED, write_ascii_json
from turnwise.terminal.rows import say
from turnwise.tools.sandbox import find_sandbox
from turnwise.vocab import FaultKind
from turnwise.vocab.wording import in_ticks
from turnwise.wire.profiles import key_owner

LITTLE_BYTES = 1024**3
TOO_LITTLE_BYTES = 16 * 1024**2
CheckStatus = Literal["ok", "note", "stops"]
MARKS: dict[CheckStatus, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("!", "yellow"), "stops": ("✗", "red")}
_MENDS = "`turnwise sessions rescue` puts what can be read into a new file, and keeps the damaged one"
_CANNOT_BE_REACHED = frozenset({FaultKind.UNREACHABLE, FaultKind.TIMEOUT, FaultKind.DISCONNECTED})


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`stops`: no run can begin like this; `note`: a run can begin, but with less. `advice` says what to do."""

    name: str
    status: CheckStatus
    found: str
    advice: str = ""


def check_all(
    folder: Path, *, model: str | None, base_url: str | None, api_key_env: str | None, offline: bool
) -> list[Check]:
    """All checks, in the order in which a run needs them."""
    merged: Merged | None = None  # what a run would use, if it can be read, whatever else is wrong in the files
    try:
        layers = read_layers(folder, env=os.environ)
        merged = settings_of_run(layers, last=None, given=RunSettings())
        settings = Check(name="settings", status="ok", found=_read_tables(layers, folder=folder))
    except CallerError as error:
        settings = Check(name="settings", status="stops", found=str(error), advice="correct that file")
    asked = _Asked(model=model, base_url=base_url, api_key_env=api_key_env, merged=merged)
    about_model, needs_no_key = _model(asked, offline=offline)
    checks = [_python(), settings, _keys(needs_no_key=needs_no_key), *about_model]
    checks.append(_sandbox(folder))
    checks.append(_program("rg", name="ripgrep", without="the tool search works without it, slower", folder=folder))
    checks.append(_program("git", name="git", without="the model is not told git's state", folder=folder))
    checks.append(_mcp(folder))
    checks += _state()
    return checks


def check_agents(given: Sequence[str]) -> list[Check]:
    """Of each agent (`NAME=MODULE:AGENT`) the tools whose calls nobody can judge after a crash. Raises CallerError."""
    if not given:
        return []
    from turnwise.agent.agent import inside
    from turnwise.terminal.worker import load_agents

    return [_tools_of(name, inside(agent).known_below()) for name, agent in load_agents(given).items()]


def _tools_of(agent: str, tools: Sequence[Tool]) -> Check:
    acting = [one for one in tools if one.function is not None and one.offer.effect in ("write", "execute")]
    open_ended = sorted({one.name for one in acting if not one.offer.idempotent and one.reconcile is None})
    if not open_ended:
        found = f"{many(len(tools), 'tool')}, and after a crash each call can be judged"
        return Check(name=f"agent {agent}", status="ok", found=found)
    return Check(
        name=f"agent {agent}",
        status="note",
        found=f"after a crash nobody can tell whether these tools have run: {', '.join(open_ended)}",
        advice="give them `@tool(reconcile=...)`, or `idempotent=True` if they hand `context.call_key` to their service",
    )


def _python() -> Check:
    system = f"{platform.system()} {platform.machine()}"
    return Check(
        name="Python",
        status="ok",
        found=f"{platform.python_version()} ({sys.executable}) on {system}; turnwise {__version__}",
    )


def _read_tables(layers: Sequence[Layer], *, folder: Path) -> str:
    """Read everything else that a run reads from files, and say which files. Raises CallerError."""
    prices_of_layers(layers, env=os.environ)
    policy_of_run(layers, folder=folder, home=Path.home(), attended=True, allow=())
    read_hooks(layers, folder=folder, env=os.environ)
    read = [f"{layer.path}: left out, it {layer.left_out}" if layer.left_out else str(layer.path) for layer in layers]
    return ", ".join(read) or "no turnwise.toml, which none needs"


def _keys(*, needs_no_key: bool) -> Check:
    try:
        found = keys_at_hand(os.environ)
    except CallerError as error:
        return Check(name="keys", status="stops", found=str(error), advice="`turnwise auth add` stores a key again")
    if found:
        return Check(name="keys", status="ok", found="; ".join([key_line(key) for key in found]))
    none = "no provider's key in the environment, and none is stored"
    if needs_no_key:
        return Check(name="keys", status="ok", found=f"{none}, and the model's endpoint needs none")
    advice = "`turnwise auth add` stores one, or set ANTHROPIC_API_KEY or another, unless your model needs none"
    return Check(name="keys", status="note", found=none, advice=advice)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the options say about the model, and what the files say: None if they cannot be read."""

    model: str | None
    base_url: str | None
    api_key_env: str | None
    merged: Merged | None

    @property
    def settings(self) -> RunSettings:
        return RunSettings() if self.merged is None else self.merged.settings

    def source_of(self, choice: Choice) -> str:
        """The source of its address; empty: it is the provider's own address."""
        if self.base_url:
            return "--base-url"
        if os.environ.get("TURNWISE_BASE_URL"):
            return "TURNWISE_BASE_URL"
        if self.merged is not None and choice.base_url == self.settings.base_url:
            return self.merged.origins.get("base_url", "")
        return "TURNWISE_LOCAL_PORTS" if choice.base_url else ""


def _model(asked: _Asked, *, offline: bool) -> tuple[list[Check], bool]:
    """The model that a run would use, with its endpoint; and whether it needs no key."""

    def stops(found: str, advice: str) -> tuple[list[Check], bool]:
        return [Check(name="model", status="stops", found=found, advice=advice)], False

    try:
        choice = choose(
            asked.model,
            base_url=asked.base_url,
            api_key_env=asked.api_key_env,
            last=None,
            env=os.environ,
            settings=asked.settings,
        )
    except NoModel:
        if asked.merged is None:
            return stops("not known, as the settings cannot be read", "correct that file first, or name one with -m")
        return stops("none is chosen", _what_to_choose(offline=offline))
    except MissingKey as error:
        return stops(str(error), "set it, or choose another model with -m")
    except CallerError as error:
        return stops(str(error), "choose a model with -m PROVIDER:NAME")
    needs_no_key = not read_model(choice.model).profile.key_required
    model = Check(name="model", status="ok", found=choice.model)
    if ending := choice.ending(now_s=SystemClock().now()):
        advice = f"choose another with -m; `turnwise models {choice.model.partition(':')[0]}` lists them"
        model = Check(name="model", status="note", found=ending, advice=advice)
    return [model, _endpoint(choice, source=asked.source_of(choice), offline=offline)], needs_no_key


def _what_to_choose(*, offline: bool) -> str:
    options = () if offline else look_around(os.environ).options
    way = f"for example -m {options[0]}" if options else "-m PROVIDER:NAME"
    return f"{way}, or TURNWISE_MODEL; `turnwise` at a terminal lets you choose and remembers it"


def _endpoint(choice: Choice, *, source: str, offline: bool) -> Check:
    named = read_model(choice.model)
    endpoint = open_endpoint(named, base_url=choice.base_url, api_key_env=choice.api_key_env, ways=ON_THE_COMMAND_LINE)
    url = shown_url(endpoint)
    if offline:
        return Check(name="endpoint", status="ok", found=f"{url}, not asked: --offline")
    clock = SystemClock()
    began_s = clock.monotonic()
    try:
        models = run_to_end(offered_by(endpoint))
    except CallerError as error:
        return Check(name="endpoint", status="ok", found=f"{url}, not asked: {error}")
    except ProviderFault as error:
        return _failed(error, endpoint=endpoint, variable=choice.api_key_env, source=source)
    took = f"{url} answers in {clock.monotonic() - began_s:.1f} s"
    offered = {model.name: model for model in models}
    one = offered.get(named.name) or offered.get(f"{named.name}:latest")  # Ollama's name for a model without a tag
    if one is not None and one.ends is not None:
        end = ModelEnd(on=one.ends).said(now_s=clock.now())
        advice = f"choose another of `turnwise models {named.profile.name}`"
        return Check(name="endpoint", status="note", found=f"{took}; by its list the model {end}", advice=advice)
    if one is not None:
        return Check(name="endpoint", status="ok", found=f"{took} and offers the model")
    return Check(
        name="endpoint",
        status="note",
        found=f"{took}; its list of {many(len(offered), 'model')} is without `{named.name}`",
        advice=f"if a run fails, choose one of `turnwise models {named.profile.name}`",
    )


def _failed(error: ProviderFault, *, endpoint: Endpoint, variable: str | None, source: str) -> Check:
    kind, found = error.fault.kind, f"{shown_url(endpoint)}: {error}"
    if kind is FaultKind.AUTH:
        names = variable or " or ".join(endpoint.profile.api_key_env) or "a variable, and name it with --api-key-env"
        if endpoint.key is not None and endpoint.key.origin:
            names = f"turnwise: `turnwise auth add {key_owner(endpoint.profile).name}`"
        return Check(name="endpoint", status="stops", found=found, advice=f"put a key that holds into {names}")
    if kind in _CANNOT_BE_REACHED:
        is_local = endpoint.profile.billing == "free" or is_own_machine(endpoint.base_url)
        address = f"correct its address, which is from {source}" if source else "give its address with --base-url"
        network = "check the network and HTTPS_PROXY" + (f"; the address is from {source}" if source else "")
        advice = f"is the server running? Start it, or {address}" if is_local else network
        return Check(name="endpoint", status="stops", found=found, advice=advice)
    advice = "not every endpoint lists its models, so a run may work; if it fails in the same way, correct the base URL"
    return Check(name="endpoint", status="note", found=found, advice=advice)


def _sandbox(folder: Path) -> Check:
    try:
        sandbox = find_sandbox(workspace=folder)
    except CallerError as error:
        return Check(name="sandbox", status="stops", found=str(error))
    found = sandbox.said(workspace=folder)
    if sandbox.kind == "none":
        advice = "install bubblewrap (`bwrap`), or use Linux 5.13 or later with Landlock"
        return Check(name="sandbox", status="note", found=found, advice=advice)
    if not sandbox.bounded:
        advice = "mount /proc, so that turnwise can see what commands take up"
        return Check(name="sandbox", status="note", found=found, advice=advice)
    return Check(name="sandbox", status="ok", found=found)


def _mcp(folder: Path) -> Check:
    try:
        servers = named_servers(folder, files=())
    except CallerError as error:
        return Check(name="MCP", status="note", found=str(error), advice="correct that entry")
    named = in_ticks([one.name for one in servers]) or "no servers are named"
    install = missing_extras("mcp")
    if not install:
        return Check(name="MCP", status="ok", found=named)
    missing = f"{named}; the extra is not installed"
    if not servers:
        return Check(name="MCP", status="ok", found=missing)
    return Check(name="MCP", status="note", found=missing, advice=f"runs go without them: {install}")


def _program(program: str, *, name: str, without: str, folder: Path) -> Check:
    path = ProgramSearch(os.environ.get("PATH"), workspace=str(folder)).first_apart(program)
    if path:
        return Check(name=name, status="ok", found=path)
    return Check(
        name=name,
        status="note",
        found=f"`{program}` is not on PATH outside of this folder",
        advice=f"install {name}: {without}",
    )


def _how_left_ones_go_on(path: Path) -> str:
    """How to continue left turns. Empty if there are none, or if the sessions cannot be listed: then the journal's check says
    why."""
    with Journal(path, clock=SystemClock()) as journal, contextlib.suppress(JournalFailed):
        left = interrupted_rows(journal)
        return how_they_go_on(left) if left else ""
    return ""


def _state() -> Iterator[Check]:
    path = journal_path(os.environ)
    above = next(place for place in (path.parent, *path.parent.parents) if place.exists())
    way = "make it writable, or set TURNWISE_STATE_DIR to another folder"
    try:
        refuse_misplaced(path)
        if path.exists():
            advice = _how_left_ones_go_on(path)
            yield Check(name="state", status="ok", found=str(path.parent), advice=advice)
            yield _journal(path)
        elif above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            yield Check(name="state", status="ok", found=f"{path.parent}; the first run makes it")
        else:
            yield Check(name="state", status="stops", found=f"{path.parent} cannot be made in {above}", advice=way)
    except JournalDamaged as error:
        yield Check(name="state", status="stops", found=str(error), advice=_MENDS)
    except (CallerError, OSError) as error:
        yield Check(name="state", status="stops", found=f"{path}: {error}", advice=way)
    yield _disk(above)


def _journal(path: Path) -> Check:
    """Check every page of the journal; no run does that."""
    clock = SystemClock()
    with Journal.open_to_read(path, clock=clock) as journal:
        if journal.is_whole():
            return Check(name="journal", status="ok", found=f"{path} is whole")
    with Journal.open_rescued(path, clock=clock) as rescued:
        return Check(name="journal", status="stops", found="; ".join(rescued.notes), advice=_MENDS)


def _disk(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name="disk", status="note", found=f"{folder}: {error.strerror}")
    found = f"{free / 1024**3:.1f} GiB free for sessions and saved files"
    if free >= LITTLE_BYTES:
        return Check(name="disk", status="ok", found=found)
    status: CheckStatus = "note" if free >= TOO_LITTLE_BYTES else "stops"
    advice = "make room, or set TURNWISE_STATE_DIR to a folder on another disk"
    return Check(name="disk", status=status, found=found, advice=advice)


def show_checks(checks: Sequence[Check], *, as_json: bool) -> int:
    """Print the checks on standard output; return the exit code."""
    stops = [check for check in checks if check.status == "stops"]
    if as_json:
        told = [{"advice": "", **msgspec.to_builtins(check)} for check in checks]
        write_ascii_json({"turnwise": __version__, "ok": not stops, "checks": told})
        return FAILED if stops else 0
    width = max([len(check.name) for check in checks])
    for check in checks:
        mark, colour = MARKS[check.status]
        say(f"{style(mark, colour)} {check.name.ljust(width)}  {clean_line(check.found)}", stream=sys.stdout)
        if check.advice:
            say(f"{' ' * (width + 4)}→ {clean_line(check.advice)}", stream=sys.stdout)
    notes = len([check for check in checks if check.status == "note"])
    beside = f"; {many(notes, 'thing')} to look at above, marked `{MARKS['note'][0]}`" if notes else ""
    end = f"{many(len(stops), 'thing')} to mend before a run can begin" if stops else f"a run can begin{beside}"
    click.echo(style(end, "red" if stops else "green", "bold"))
    return FAILED if stops else 0
