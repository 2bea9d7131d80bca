"""What `turnwise mcp add` and `remove` change in the user's `turnwise.toml`: one table. All else stays, byte for byte."""

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.settings.settings import is_table, user_file
from turnwise.settings.user_settings import PRIVATE

_HEADER = re.compile(r"[ \t]*\[")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def add_server(name: str, table: Mapping[str, object], *, env: Mapping[str, str]) -> Path:
    """Put `[mcp.NAME]` at the end of the user's file, which is made if it is missing; gives its path. Raises CallerError where
    the file names such a server already, or cannot be read or written."""
    path = user_file(env)
    before = _text_of(path)
    if name in _servers(before, path=path):
        raise CallerError(f"`{path}` has a server `{name}` already: `turnwise mcp remove {name}`, or change it there")
    gap = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    text = before + gap + "\n".join([f"[mcp.{name}]", *_lines(table)]) + "\n"
    if _servers(text, path=path).get(name) != table:
        raise CallerError(f"`{path}` cannot take the table: write it there yourself")
    _write(path, text)
    return path


def remove_server(name: str, *, env: Mapping[str, str]) -> Path:
    """Take `[mcp.NAME]` and its tables out of the user's file; gives its path. Raises CallerError where it has no such server."""
    path = user_file(env)
    before = _text_of(path)
    servers = _servers(before, path=path)
    if name not in servers:
        known = ", ".join([f"`{one}`" for one in servers]) or "none"
        raise CallerError(f"`{path}` has no server `{name}`; there are {known}")
    own = re.compile(rf"[ \t]*\[mcp\.{re.escape(name)}(?:\.[^\]]*)?\]")
    kept: list[str] = []
    is_in = False
    for line in before.splitlines(keepends=True):
        if _HEADER.match(line):
            is_in = own.match(line) is not None
        if not is_in:
            kept.append(line)
    text = "".join(kept)
    if _servers(text, path=path) != {key: value for key, value in servers.items() if key != name}:
        raise CallerError(f"`{path}` says `{name}` in a way that only a person can take out: do it there")
    _write(path, text)
    return path


def _servers(text: str, *, path: Path) -> Mapping[str, object]:
    try:
        table = tomllib.loads(text).get("mcp", {})
    except tomllib.TOMLDecodeError as error:
        raise CallerError(f"`{path}`: {error}; correct it there") from None
    return table if is_table(table) else {}


def _lines(table: Mapping[str, object]) -> Sequence[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _value(value: object) -> str:
    if is_table(value):
        inner = ", ".join([f"{_key(key)} = {_value(one)}" for key, one in value.items()])
        return f"{{ {inner} }}"
    return json.dumps(value, ensure_ascii=False)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(f"`{path}` cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _write(path: Path, text: str) -> None:
    real = Path(os.path.realpath(path))
    try:
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else PRIVATE
    except OSError as error:
        raise CallerError(f"`{path}` cannot be written: {error.strerror or error}") from None
    with in_place_of(real, mode=mode) as descriptor:
        os.write(descriptor, text.encode())
