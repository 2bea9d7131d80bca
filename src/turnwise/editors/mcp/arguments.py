"""What a client may say of a run: read, bounded, and never more than the server was started with."""

from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import cast

import msgspec

from turnwise.coding_agent.folder import MAX_PATH, foreign_folder
from turnwise.coding_agent.text import visible_line
from turnwise.errors import CallerError
from turnwise.rules.permission_paths import is_inside
from turnwise.rules.permissions import PermissionRule
from turnwise.settings.options import MOST, OptionRow, RunSettings, rows_from
from turnwise.settings.settings import read_usd

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
