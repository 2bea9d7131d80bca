"""What the user's files say: `turnwise.toml` of the user, and the one of the project that a folder belongs to.

It stands among the drivers, not at the command line, because every face reads the same files, and so do the rooms that
have a table of their own in them (permissions).
"""

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Literal, TypeGuard

import msgspec

from turnwise.base.unasked_files import LeftOut, read_of_user, read_unasked
from turnwise.errors import CallerError
from turnwise.settings.catalogue import LimitRow, read_rows, rows_over
from turnwise.settings.options import Durability, RunSettings, rows, rows_from
from turnwise.vocab.wording import in_ticks

FILE = "turnwise.toml"
PYPROJECT = "pyproject.toml"
MAX_FILE_BYTES = 1024 * 1024  # a file of settings is a page; this is somebody else's, or a mistake
MOST_USD = Decimal(1_000_000)
MOST_USD_PLACES = 12  # as fine as prices may be
# What a project may lower and not raise: a folder from elsewhere must not spend what the user would not.
CAPS = frozenset([row.name for row in rows() if row.option.project == "lowers"])
# What of it holds where the user says nothing; the others are not limited then, so any amount lowers them.
USUAL = {row.name: row.usual_amount for row in rows() if row.name in CAPS and row.usual_amount is not None}
# What a project may switch off and not on: it must not have told what the user does not tell.
SWITCHES = frozenset([row.name for row in rows() if row.option.project == "switches off"])
# What people may look for in a file, and why it is not there.
NOT_IN_A_FILE = {
    "api_key_env": "a file cannot say whose key is sent: give --api-key-env",
    "api_key": "keys do not belong into files: set the provider's variable, or name another with --api-key-env",
    "allow": "what is allowed is said anew for each run: give --allow",
}

SettingsSource = Literal["user", "project", "session", "command line"]


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one source, as they stand there: nothing is checked yet. `path` is the file; None if the source is not a
    file.

    `project` is a folder that may have come from elsewhere: it must not widen what the user allows, say where requests go
    or whose key they take. Who reads a table of it decides by `source`. `left_out` says why the file was not read; its table
    is empty then.
    """

    source: SettingsSource
    table: Mapping[str, object]
    path: Path | None = None
    left_out: str = ""

    def named(self, key: str) -> str:
        """How an error names a key of this layer, with the file: "`/p/pyproject.toml`: `tool.turnwise.model`"."""
        if self.path is None:
            return f"{self.source}: `{key}`"
        return f"`{self.path}`: `{'tool.turnwise.' if self.path.name == PYPROJECT else ''}{key}`"


class SourceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The checked settings of one source. `origin` is how people call it: the file's path, where it is one."""

    source: SettingsSource
    origin: str
    settings: RunSettings


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """What holds, and whose word it is: the `origin` of each key that anybody set. A row of model limits is a key of its
    own, `model_limits.NAME`."""

    settings: RunSettings
    origins: Mapping[str, str]


def merge(*sources: SourceSettings) -> Merged:
    """The settings of all sources, the weakest first: the later word holds, key by key, and of a row of model limits figure
    by figure. Only a project's CAPS are no higher than the user's, or than the default where the user's file does not have them,
    and its SWITCHES not on where the user's are off. With another model the address of the one before is gone."""
    values: dict[str, object] = {}
    models: dict[str, LimitRow] = {}
    origins: dict[str, str] = {}
    for said in sources:
        for key, value in _set_in(said.settings).items():
            before = values.get(key)
            most = USUAL.get(key) if before is None else before
            is_raised = _is_number(value) and _is_number(most) and value > most
            is_on_again = key in SWITCHES and before is False
            if said.source == "project" and (is_on_again or (key in CAPS and is_raised)):
                continue
            if key == "model" and value != before:
                values.pop("base_url", None)
                origins.pop("base_url", None)
            values[key], origins[key] = value, said.origin
        models = rows_over(models, said.settings.model_limits)
        origins |= {f"model_limits.{name}": said.origin for name in said.settings.model_limits}
    settings = msgspec.structs.replace(RunSettings(), **values, model_limits=models)
    return Merged(settings=settings, origins=origins)


def check_layer(layer: Layer, *, also: Collection[str] = ()) -> SourceSettings:
    """The settings of a layer, each checked. `also` are keys that the caller reads itself.

    Raises CallerError in one line, with file and key: a key that nobody reads would be thought to hold.
    """
    known = {row.name: row for row in rows_from("file")}
    values: dict[str, object] = {}
    for key, value in layer.table.items():
        if key in also:
            continue
        if key not in known:
            raise CallerError(f"{layer.named(key)}: {_why_not(key, known=[*known, *also])}")
        row = known[key]
        if layer.source == "project" and row.option.project == "never":
            raise CallerError(f"{layer.named(key)}: {row.option.why_never}")
        if key == "model_limits":
            values[key] = read_rows(value, named=layer.named(key))
            continue
        if row.choices and value not in row.choices:
            *some, last = [f"`{one}`" for one in row.choices if one]
            among = f"{', '.join(some)} or {last}" if some else last
            raise CallerError(f"{layer.named(key)} must be {among}; correct it, or take it out")
        try:
            values[key] = read_usd(value) if row.kind is Decimal else msgspec.convert(value, row.type)
        except (msgspec.ValidationError, ValueError) as error:
            raise CallerError(f"{layer.named(key)}: {error}; correct it, or take it out") from None
    if "base_url" in values and "model" not in values:
        raise CallerError(
            f"{layer.named('base_url')} is the address of `model`, which is missing: write both, or take it out"
        )
    settings = msgspec.structs.replace(RunSettings(), **values)
    return SourceSettings(source=layer.source, origin=str(layer.path or layer.source), settings=settings)


def durability_of(layers: Iterable[Layer]) -> Durability:
    """How the files want the journal kept; nothing else in them is looked at. Raises CallerError."""
    said = [
        msgspec.structs.replace(layer, table={key: layer.table[key] for key in layer.table if key == "durability"})
        for layer in layers
    ]
    return merge(*[check_layer(layer) for layer in said]).settings.durability or "normal"


def read_usd(value: object) -> Decimal:
    """A limit of money as it was written: a text, or a number of TOML, of which a float is taken as it is shown. Raises
    ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"`{value}` is no amount: write US dollars, 0.50")
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"`{value}` is no amount: write US dollars, 0.50") from None
    if not amount.is_finite() or not 0 < amount <= MOST_USD:
        raise ValueError(f"`{value}` is no limit: write US dollars, more than 0 and at most {MOST_USD:,}")
    if amount != round(amount, MOST_USD_PLACES):
        raise ValueError(f"`{value}` has more than {MOST_USD_PLACES} places")
    return amount


def _is_number(value: object) -> TypeGuard[int | float | Decimal]:
    return isinstance(value, int | float | Decimal)


def _set_in(settings: RunSettings) -> dict[str, object]:
    keys = [name for name in settings.__struct_fields__ if name != "model_limits"]
    return {key: value for key in keys if (value := getattr(settings, key)) is not None}


def _why_not(key: str, *, known: Collection[str]) -> str:
    if key in NOT_IN_A_FILE:
        return NOT_IN_A_FILE[key]
    for row in rows():
        if row.name == key:
            return f"a file cannot say it: give {row.flags[-1].partition('/')[0]}"
    return f"no such setting; {near_hint(key, known=known)}"


def near_hint(key: str, *, known: Collection[str]) -> str:
    """The name that was meant, or all that there are."""
    near = difflib.get_close_matches(key, known, n=1)
    return f"did you mean `{near[0]}`?" if near else f"there are {in_ticks(known)}"


def read_layers(folder: Path, *, env: Mapping[str, str]) -> tuple[Layer, ...]:
    """The layers that there are, the weakest first: the user's file, then the project's.

    The user's is the one that TURNWISE_CONFIG names, else `turnwise/turnwise.toml` in XDG_CONFIG_HOME, else in ~/.config.
    The project's is the nearest `turnwise.toml`, or `[tool.turnwise]` of a `pyproject.toml`, from `folder` up to the root
    of its repository (where `.git` is); outside of one `folder` alone is looked at. Raises CallerError in one line, with
    the file and what to do.
    """
    own = user_file(env)
    layers: list[Layer] = []
    if (of_user := user_layer(env)) is not None:
        layers.append(of_user)
    above = project_folders(folder)
    for place in above:
        found = _read_project(place, user_file=own, root=above[-1])
        if found is not None:
            layers.append(found)
        if found is not None and not found.left_out:
            break
    return tuple(layers)


def user_layer(env: Mapping[str, str]) -> Layer | None:
    """What the user's own file says; None where there is none. Raises CallerError as `read_layers`."""
    path = user_file(env)
    table = _read_own(path, must_be=bool(env.get("TURNWISE_CONFIG")))
    return None if table is None else Layer(source="user", table=table, path=path)


def is_table(value: object) -> TypeGuard[dict[str, object]]:
    """Whether a value that was read from TOML is a table: its keys are texts."""
    return isinstance(value, dict)


def user_file(env: Mapping[str, str]) -> Path:
    """The user's own file of settings, whether it is there or not."""
    if named := env.get("TURNWISE_CONFIG"):
        return Path(named).expanduser()
    return user_folder(env) / FILE


def user_folder(env: Mapping[str, str]) -> Path:
    """Where the user's files lie: `turnwise` in XDG_CONFIG_HOME, else in ~/.config."""
    return _xdg_folder(env, variable="XDG_CONFIG_HOME", usual=".config")


def state_folder(env: Mapping[str, str]) -> Path:
    """Where turnwise keeps what it wrote itself, the journal too: TURNWISE_STATE_DIR, else `turnwise` in XDG_STATE_HOME, else in
    ~/.local/state."""
    if own := env.get("TURNWISE_STATE_DIR"):
        return Path(own).expanduser()
    return _xdg_folder(env, variable="XDG_STATE_HOME", usual=".local/state")


def _xdg_folder(env: Mapping[str, str], *, variable: str, usual: str) -> Path:
    base = env.get(variable)
    # "If an implementation encounters a relative path [...] it should [...] ignore it" (XDG Base Directory Specification).
    folder = Path(base) if base and Path(base).is_absolute() else Path.home() / usual
    return folder / "turnwise"


MCP_TABLE, MCP_FILE = "mcp", ".mcp.json"  # of a settings file, and a project's own file for the servers alone


def names_mcp_servers(folder: Path, *, layers: Iterable[Layer]) -> bool:
    """Whether one of these files, or a project's `.mcp.json`, may name MCP servers."""
    return any(MCP_TABLE in layer.table for layer in layers) or any(
        os.path.lexists(place / MCP_FILE) for place in project_folders(folder)
    )


def project_folders(folder: Path) -> list[Path]:
    """Where a project's own files are looked for, the nearest first: from `folder` up to the root of its repository.

    Without a repository there is no saying whose the folders above are: /tmp is everybody's.
    """
    above = [folder, *folder.parents]
    for count, place in enumerate(above, start=1):
        if (place / ".git").exists():
            return above[:count]
    return [folder]


def _read_own(path: Path, *, must_be: bool) -> Mapping[str, object] | None:
    text = _text(read_of_user(path, max_bytes=MAX_FILE_BYTES), path=path)
    if text is None:
        if must_be:
            raise CallerError(f"TURNWISE_CONFIG names `{path}`, which does not exist: create it, or unset the variable")
        return None
    return _parse(text, path=path)


def _read_project(place: Path, *, user_file: Path, root: Path) -> Layer | None:
    """`root` is the outermost folder that belongs to the project: a link may lead there."""
    path = place / FILE
    if not _is_same(path, user_file):
        text = _text(read_unasked(path, within=root, max_bytes=MAX_FILE_BYTES), path=path)
        if text is not None:
            return Layer(source="project", table=_parse(text, path=path), path=path)
    path = place / PYPROJECT
    content = read_unasked(path, within=root, max_bytes=MAX_FILE_BYTES)
    if isinstance(content, LeftOut):  # somebody else's file: its faults are no error of ours
        return None if content.is_too_long else Layer(source="project", table={}, path=path, left_out=content.why)
    try:
        text = _text(content, path=path)
    except CallerError:
        return None
    # Most have no table of ours, and are not parsed for it. One that has is ours to complain of.
    if text is None or "turnwise" not in text:
        return None
    import tomllib

    try:
        tools = tomllib.loads(text).get("tool")
    except tomllib.TOMLDecodeError as error:
        if "[tool.turnwise" in text:
            raise CallerError(f"`{path}`: {error}; correct it there") from None
        return None
    table = tools.get("turnwise") if is_table(tools) else None
    if table is None:
        return None
    if not is_table(table):
        raise CallerError(f"`{path}`: `tool.turnwise` is no table: write `[tool.turnwise]` and its keys below")
    return Layer(source="project", table=table, path=path)


def _parse(text: str, *, path: Path) -> Mapping[str, object]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CallerError(f"`{path}`: {error}; correct it there") from None
    except RecursionError:
        raise CallerError(f"`{path}` is nested too deeply: settings are keys and tables of keys") from None


def _text(content: bytes | LeftOut | None, *, path: Path) -> str | None:
    """None where there is no file. Raises CallerError where it was left out: what it forbids would be missed in silence."""
    match content:
        case None:
            return None
        case LeftOut(is_too_long=True):
            raise CallerError(f"`{path}` has more than {MAX_FILE_BYTES} bytes: that is no file of settings")
        case LeftOut(why=why):
            raise CallerError(f"`{path}` {why}: put the settings into a file there, or take it away")
        case bytes():
            try:
                return content.decode()
            except UnicodeDecodeError as error:
                raise CallerError(f"`{path}` is not UTF-8 (byte {error.start}): save it as UTF-8") from None


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:
        return False


# The `[sessions]` table of the user's file: what `turnwise sessions prune` keeps unless it is told otherwise.


KEY = "sessions"
_SPAN = re.compile(r"([0-9]{1,6})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class KeepRule(msgspec.Struct, frozen=True, kw_only=True):
    """A session goes if it was not used for `older_than_s` seconds, and is not among the `keep` latest. None says nothing."""

    older_than_s: float | None = None
    keep: int | None = None


def read_span(text: str) -> float:
    """The seconds of `90d`, `12w`, `24h`. Raises ValueError for other text."""
    found = _SPAN.fullmatch(text)
    if found is None:
        raise ValueError(f"`{text}` is no time: write a number and h, d or w (24h, 90d, 12w)")
    return int(found[1]) * _SECONDS[found[2]]


def read_keep_rule(layers: Iterable[Layer]) -> KeepRule:
    """What the user's file says. Raises CallerError for an unknown key, an impossible value, and a project's table: a folder from
    elsewhere must not choose which of your sessions are deleted."""
    rule = KeepRule()
    for layer in layers:
        if KEY not in layer.table:
            continue
        table, named = layer.table[KEY], layer.named(KEY)
        if layer.source != "user":
            raise CallerError(f"{named}: which sessions are kept is the user's to say: put it into your own file")
        if not is_table(table):
            raise CallerError(f"{named} is no table: write `[{KEY}]`, and its keys below")
        if unknown := sorted(table.keys() - {"older_than", "keep"}):
            raise CallerError(f"{named}.{unknown[0]}: no such setting; there are `older_than` and `keep`")
        keep, older = table.get("keep"), table.get("older_than")
        if keep is not None and (type(keep) is not int or keep < 0):
            raise CallerError(f"{layer.named(f'{KEY}.keep')} is `{keep}`: write a number of sessions, 0 or more")
        try:
            older_s = None if older is None else read_span(str(older))
        except ValueError as error:
            raise CallerError(f"{layer.named(f'{KEY}.older_than')}: {error}") from None
        rule = KeepRule(older_than_s=older_s, keep=keep if isinstance(keep, int) else None)
    return rule
