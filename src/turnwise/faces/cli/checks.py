"""What `turnwise doctor` looks at: each thing that a run needs, how it is, and what to do about it."""

import json
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
from turnwise.drivers.clock import SystemClock
from turnwise.drivers.endpoints import Endpoint
from turnwise.drivers.hook_commands import read_hooks
from turnwise.drivers.journal import Journal, journal_path
from turnwise.drivers.own_loop import run_to_end
from turnwise.drivers.prices import prices_of_layers
from turnwise.drivers.programs import Programs
from turnwise.drivers.sandbox import find_sandbox
from turnwise.drivers.settings import RunSettings, read_layers
from turnwise.errors import CallerError, MissingKey, ProviderFault
from turnwise.faces.cli.choice import Choice, NoModel, choose
from turnwise.faces.cli.failures import FAILED
from turnwise.faces.cli.folder import settings_of_run
from turnwise.faces.cli.found import key_line, keys_in, look_around, offered_by
from turnwise.faces.cli.lines import say
from turnwise.faces.cli.permissions import policy_of_run
from turnwise.faces.cli.text import clean, style
from turnwise.faces.models import ON_THE_COMMAND_LINE, open_endpoint, read_model
from turnwise.faces.saying import many
from turnwise.vocab import FaultKind

LITTLE_BYTES = 1024**3
TOO_LITTLE_BYTES = 16 * 1024**2
Status = Literal["ok", "note", "stops"]
MARKS: dict[Status, tuple[str, str]] = {"ok": ("✓", "green"), "note": ("!", "yellow"), "stops": ("✗", "red")}
_CANNOT_BE_REACHED = frozenset({FaultKind.UNREACHABLE, FaultKind.TIMEOUT, FaultKind.DISCONNECTED})


class Check(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`stops`: no run can begin like this; `note`: one can, with less. `advice` says what to do."""

    name: str
    status: Status
    found: str
    advice: str = ""


def check_all(
    folder: Path, *, model: str | None, base_url: str | None, api_key_env: str | None, offline: bool
) -> list[Check]:
    """All checks, in the order in which a run needs them."""
    checks = [_python()]
    settings = RunSettings()
    try:
        settings, said = _read_settings(folder)
        checks.append(Check(name="settings", status="ok", found=said))
    except CallerError as error:
        checks.append(Check(name="settings", status="stops", found=str(error), advice="correct that file"))
    checks.append(_keys())
    checks += _model(model, base_url=base_url, api_key_env=api_key_env, settings=settings, offline=offline)
    checks.append(_sandbox(folder))
    checks.append(_program("rg", name="ripgrep", without="the tool search works without it, slower", folder=folder))
    checks.append(_program("git", name="git", without="the model is not told git's state", folder=folder))
    checks += _state()
    return checks


def _python() -> Check:
    system = f"{platform.system()} {platform.machine()}"
    return Check(
        name="Python",
        status="ok",
        found=f"{platform.python_version()} ({sys.executable}) on {system}; turnwise {__version__}",
    )


def _read_settings(folder: Path) -> tuple[RunSettings, str]:
    """All that a run reads of files. Raises CallerError."""
    layers = read_layers(folder, env=os.environ)
    settings = settings_of_run(layers, last=None, given=RunSettings()).settings
    prices_of_layers(layers, env=os.environ)
    policy_of_run(layers, folder=folder, home=Path.home(), attended=True, allow=())
    read_hooks(layers, folder=folder, env=os.environ)
    read = [f"{layer.path}: left out, it {layer.left_out}" if layer.left_out else str(layer.path) for layer in layers]
    return settings, ", ".join(read) or "no turnwise.toml, which none needs"


def _keys() -> Check:
    found = keys_in(os.environ)
    if not found:
        advice = "set one, for example ANTHROPIC_API_KEY, unless your model needs none; `turnwise models` names them"
        return Check(name="keys", status="note", found="no provider's key in the environment", advice=advice)
    return Check(name="keys", status="ok", found="; ".join([key_line(key) for key in found]))


def _model(
    model: str | None, *, base_url: str | None, api_key_env: str | None, settings: RunSettings, offline: bool
) -> Iterator[Check]:
    """The model that a run would take, and its endpoint."""
    try:
        choice = choose(model, base_url=base_url, api_key_env=api_key_env, last=None, env=os.environ, settings=settings)
    except NoModel:
        yield Check(name="model", status="stops", found="none is chosen", advice=_what_to_choose(offline=offline))
        return
    except MissingKey as error:
        yield Check(name="model", status="stops", found=str(error), advice="set it, or choose another model with -m")
        return
    except CallerError as error:
        yield Check(name="model", status="stops", found=str(error), advice="choose a model with -m PROVIDER:NAME")
        return
    yield Check(name="model", status="ok", found=choice.model)
    yield _endpoint(choice, offline=offline)


def _what_to_choose(*, offline: bool) -> str:
    options = () if offline else look_around(os.environ).options
    way = f"for example -m {options[0]}" if options else "-m PROVIDER:NAME"
    return f"{way}, or TURNWISE_MODEL; `turnwise` at a terminal lets you choose and remembers it"


def _endpoint(choice: Choice, *, offline: bool) -> Check:
    named = read_model(choice.model)
    endpoint = open_endpoint(named, base_url=choice.base_url, api_key_env=choice.api_key_env, ways=ON_THE_COMMAND_LINE)
    url = _shown(endpoint)
    if offline:
        return Check(name="endpoint", status="ok", found=f"{url}, not asked: --offline")
    clock = SystemClock()
    began_s = clock.monotonic()
    try:
        models = run_to_end(offered_by(endpoint))
    except CallerError as error:
        return Check(name="endpoint", status="ok", found=f"{url}, not asked: {error}")
    except ProviderFault as error:
        return _failed(error, endpoint=endpoint, variable=choice.api_key_env)
    took = f"{url} answers in {clock.monotonic() - began_s:.1f} s"
    offered = {model.name for model in models}
    if named.name in offered or f"{named.name}:latest" in offered:  # Ollama's name for one without a tag
        return Check(name="endpoint", status="ok", found=f"{took} and offers the model")
    return Check(
        name="endpoint",
        status="note",
        found=f"{took}; its list of {many(len(offered), 'model')} is without `{named.name}`",
        advice=f"if a run fails, choose one of `turnwise models {named.profile.name}`",
    )


def _shown(endpoint: Endpoint) -> str:
    """Its address without the query, which may hold a key."""
    return endpoint.scrub(endpoint.base_url.partition("?")[0])


def _failed(error: ProviderFault, *, endpoint: Endpoint, variable: str | None) -> Check:
    kind, found = error.fault.kind, f"{_shown(endpoint)}: {error}"
    if kind is FaultKind.AUTH:
        names = variable or " or ".join(endpoint.profile.api_key_env) or "a variable, and name it with --api-key-env"
        return Check(name="endpoint", status="stops", found=found, advice=f"put a key that holds into {names}")
    if kind in _CANNOT_BE_REACHED:
        own = endpoint.profile.billing == "free"
        advice = "start the server, or give its address with --base-url" if own else "check the network and HTTPS_PROXY"
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
    return Check(name="sandbox", status="ok", found=found)


def _program(program: str, *, name: str, without: str, folder: Path) -> Check:
    path = Programs(os.environ.get("PATH"), workspace=str(folder)).first_apart(program)
    if path:
        return Check(name=name, status="ok", found=path)
    return Check(
        name=name,
        status="note",
        found=f"`{program}` is not on PATH outside of this folder",
        advice=f"install {name}: {without}",
    )


def _state() -> Iterator[Check]:
    path = journal_path(os.environ)
    above = next(place for place in (path.parent, *path.parent.parents) if place.exists())
    way = "make it writable, or set TURNWISE_STATE_DIR to another folder"
    try:
        if path.exists():
            Journal.open(path, clock=SystemClock()).close()
            yield Check(name="state", status="ok", found=str(path.parent))
        elif above.is_dir() and os.access(above, os.W_OK | os.X_OK):
            yield Check(name="state", status="ok", found=f"{path.parent}; the first run makes it")
        else:
            yield Check(name="state", status="stops", found=f"{path.parent} cannot be made in {above}", advice=way)
    except (CallerError, OSError) as error:
        yield Check(name="state", status="stops", found=f"{path}: {error}", advice=way)
    yield _disk(above)


def _disk(folder: Path) -> Check:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return Check(name="disk", status="note", found=f"{folder}: {error.strerror}")
    found = f"{free / 1024**3:.1f} GiB free for sessions and saved files"
    if free >= LITTLE_BYTES:
        return Check(name="disk", status="ok", found=found)
    status: Status = "note" if free >= TOO_LITTLE_BYTES else "stops"
    advice = "make room, or set TURNWISE_STATE_DIR to a folder on another disk"
    return Check(name="disk", status=status, found=found, advice=advice)


def show_checks(checks: Sequence[Check], *, as_json: bool) -> int:
    """On standard output; the exit code."""
    stops = [check for check in checks if check.status == "stops"]
    if as_json:
        told = [{"advice": "", **msgspec.to_builtins(check)} for check in checks]
        click.echo(json.dumps({"turnwise": __version__, "ok": not stops, "checks": told}))
        return FAILED if stops else 0
    width = max([len(check.name) for check in checks])
    for check in checks:
        mark, colour = MARKS[check.status]
        say(f"{style(mark, colour)} {check.name.ljust(width)}  {_line(check.found)}", stream=sys.stdout)
        if check.advice:
            say(f"{' ' * (width + 4)}→ {_line(check.advice)}", stream=sys.stdout)
    notes = len([check for check in checks if check.status == "note"])
    beside = f"; {many(notes, 'thing')} to look at above, marked `{MARKS['note'][0]}`" if notes else ""
    end = f"{many(len(stops), 'thing')} to mend before a run can begin" if stops else f"a run can begin{beside}"
    click.echo(style(end, "red" if stops else "green", "bold"))
    return FAILED if stops else 0


def _line(text: str) -> str:
    return " ".join(clean(text).split())
