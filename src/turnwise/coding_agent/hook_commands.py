"""Hooks that are commands, out of the user's `turnwise.toml`: JSON on standard input, JSON on standard output.

    [[hooks]]
    point = "before_tool"
    command = ["python3", "/home/me/no-force-push.py"]
    tools = "bash"
    timeout_s = 5

It reads an object with `point` and what the point looks at. It says nothing (an empty output, or `{}`), or one of
`{"deny": "why"}`, `{"arguments": {...}}`, `{"result": ...}`. Exit code 2 denies with what it wrote; another one but 0 is a
failure of the hook. A project's file brings no hooks: they are programs, and a folder may have come from elsewhere.
"""

import contextlib
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, cast, get_args

import msgspec

from turnwise.base.processes import run_group
from turnwise.errors import CallerError, ToolFault
from turnwise.running.hooks import (
    ChangeArguments,
    ChangeResult,
    Deny,
    Hook,
    HookStage,
    Looks,
    RequestAboutToLeave,
    Says,
    ToolAboutToRun,
    ToolRan,
    TurnEnded,
)
from turnwise.settings.catalogue import with_near_field
from turnwise.settings.settings import Layer
from turnwise.tools.sandbox import Wrapped
from turnwise.wire.json_fields import UNREADABLE

DENIED = 2
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_SAID_CHARACTERS = 2000
LONGEST_S = 3600.0  # the turn has the deadline; this only has to end


Confined = Callable[[Sequence[str], bytes], Wrapped | None]
"""What to start instead of a hook's command with this input; None: the command itself. Raises ToolFault."""


def _as_it_is(_command: Sequence[str], _given: bytes) -> None:
    return None


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    point: HookStage
    command: Annotated[list[str], msgspec.Meta(min_length=1)]
    tools: str = "*"
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=600)] | None = None
    name: str = ""


class _Said(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    deny: str | msgspec.UnsetType | None = msgspec.UNSET
    arguments: dict[str, object] | msgspec.UnsetType = msgspec.UNSET
    result: object = msgspec.UNSET


def read_hooks(
    layers: Sequence[Layer], *, folder: Path, env: Mapping[str, str], confined: Confined = _as_it_is
) -> list[Hook]:
    """The hooks of the user's file; they run in `folder` with this environment. `confined` gives what is started for one in
    plan mode. Raises CallerError with file and key."""
    found: list[Hook] = []
    for layer in layers:
        rows = layer.table.get("hooks")
        if rows is None:
            continue
        if layer.source == "project":
            raise CallerError(
                f"{layer.named('hooks')}: a project's file brings no hooks, as they are programs that run unasked; "
                "put them into your own turnwise.toml"
            )
        if not isinstance(rows, list):
            raise CallerError(f"{layer.named('hooks')}: write each hook as a table of its own, `[[hooks]]`")
        for number, row in enumerate(cast("list[object]", rows), 1):
            try:
                found.append(_hook(msgspec.convert(row, _Row), folder=folder, env=env, confined=confined))
            except msgspec.ValidationError as error:
                why = with_near_field(error, rows=(_Row,))
                raise CallerError(
                    f"{layer.named('hooks')}, number {number}: {why}; points are {', '.join(get_args(HookStage))}"
                ) from None
    return found


def _hook(row: _Row, *, folder: Path, env: Mapping[str, str], confined: Confined) -> Hook:
    name = row.name or Path(row.command[0]).name

    async def call(looks: Looks) -> Says:
        return await _call(row, name=name, looks=looks, folder=folder, env=env, confined=confined)

    return Hook(point=row.point, function=call, name=name, tools=row.tools, timeout_s=row.timeout_s)


async def _call(
    row: _Row, *, name: str, looks: Looks, folder: Path, env: Mapping[str, str], confined: Confined
) -> Says:
    output: list[bytes] = []
    size = 0

    def keep(piece: bytes) -> None:
        nonlocal size
        size += len(piece)
        if size <= MAX_OUTPUT_BYTES:
            output.append(piece)

    given = msgspec.json.encode({"point": row.point, **_shown(looks)})
    run = functools.partial(run_group, cwd=folder, timeout_s=LONGEST_S, on_output=keep)
    wrapped = confined(row.command, given)
    try:
        if wrapped is None:
            code = await run(row.command, env=env, given=given)
        else:
            code = await run(
                wrapped.argv,
                env=wrapped.env,
                descriptors=wrapped.descriptors,
                layers=wrapped.layers,
                watches=wrapped.watches,
            )
    except OSError as error:
        raise ToolFault(f"`{name}` cannot be started: {error.strerror}") from error
    finally:
        for descriptor in () if wrapped is None else wrapped.descriptors:
            os.close(descriptor)
    # `\xff` is no JSON: nothing is changed in silence.
    text = b"".join(output).decode("utf-8", "backslashreplace").strip()
    if code == DENIED:
        return Deny(text[:MAX_SAID_CHARACTERS] or "it gave no reason")
    if code:
        raise ToolFault(f"`{name}` ended with exit code {code}: {text[:200]}")
    if size > MAX_OUTPUT_BYTES:
        raise ToolFault(f"`{name}` wrote more than {MAX_OUTPUT_BYTES} bytes")
    if not text:
        return None
    try:
        said = msgspec.json.decode(text, type=_Said)
    except UNREADABLE as error:
        raise ToolFault(f"`{name}` wrote something else than the JSON that a hook says: {error}") from error
    if said.deny is not msgspec.UNSET:
        return Deny(said.deny or "it gave no reason")
    if said.arguments is not msgspec.UNSET:
        return ChangeArguments(said.arguments)
    return None if said.result is msgspec.UNSET else ChangeResult(said.result)


def _shown(looks: Looks) -> dict[str, object]:
    """What a command reads. Arguments are an object where they are one."""
    match looks:
        case ToolAboutToRun() | ToolRan():
            shown = cast("dict[str, object]", msgspec.to_builtins(looks))
            with contextlib.suppress(*UNREADABLE):  # a free-form tool's text
                shown["arguments"] = msgspec.json.decode(looks.arguments)
            return shown
        case RequestAboutToLeave():
            return {"number": looks.number, "step": looks.step, "purpose": looks.purpose, "model": looks.model}
        case TurnEnded(result=result):
            return {
                "text": result.text,
                "stop_reason": result.stop_reason,
                "complete": result.complete,
                "steps": result.steps,
                "requests": result.requests,
            }
