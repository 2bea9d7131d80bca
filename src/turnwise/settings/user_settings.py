"""What turnwise itself writes into the user's `turnwise.toml`: the model that they chose, and its address. All else stays."""

import json
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.base.whole_files import in_place_of
from turnwise.errors import CallerError
from turnwise.settings.settings import MAX_FILE_BYTES, is_table, user_file
from turnwise.vocab.json_values import without
from turnwise.vocab.wording import in_ticks

PRIVATE = 0o600


def remember_model(model: str, *, base_url: str | None = None, env: Mapping[str, str]) -> Path:
    """Put `model = "..."`, and below it its `base_url`, in front of the user's file, which is made if it is missing; gives its
    path.

    A first line is outside of every table, so the rest of the file stays as it is, byte for byte. A file that is a link stays
    one. Raises CallerError where the file says one of them already, cannot be read or cannot be written, and for an address
    with a query.
    """
    path = user_file(env)
    before = _text_of(path)
    if base_url is not None and "?" in base_url:
        raise CallerError("the address has a query, which may hold a key: give -m and --base-url each time")
    said = {"model": model, **({} if base_url is None else {"base_url": base_url})}
    lines = lines_of(model, base_url=base_url)
    end = "\r\n" if _has_windows_lines(before) else "\n"
    text = "".join([f"{line}{end}" for line in lines]) + before
    try:
        table = tomllib.loads(before)
        for key in ("model", "base_url"):
            if key in table:
                raise CallerError(f"`{path}` has a `{key}` already: change it there")
        is_whole = tomllib.loads(text) == {**said, **table}
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CallerError(f"`{path}`: {error}; correct it there") from None
    if not is_whole:
        raise CallerError(f"`{path}` cannot take the line; write {_quoted(lines)} into it yourself")
    try:
        _write(path, text)
    except UnicodeError as error:
        raise CallerError(f"`{path}` cannot be written: {error}") from None
    return path


def lines_of(model: str, *, base_url: str | None) -> list[str]:
    """What stands in the file for them."""
    said = {"model": model, "base_url": base_url}
    return [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in said.items() if value is not None]


def _quoted(lines: Sequence[str]) -> str:
    return in_ticks(lines, between=" and ")


def _text_of(path: Path) -> str:
    content = read_of_user(path, max_bytes=MAX_FILE_BYTES)
    if isinstance(content, LeftOut):
        raise CallerError(f"`{path}` {content.why}")
    if path.exists() and not path.is_file():  # the null device takes the place of a file, and keeps nothing
        raise CallerError(f"`{path}` is no regular file")
    try:
        return (content or b"").decode()
    except UnicodeDecodeError as error:
        raise CallerError(f"`{path}` is not UTF-8 (byte {error.start})") from None


def _has_windows_lines(text: str) -> bool:
    return text.partition("\n")[0].endswith("\r")


# What `turnwise mcp add` and `remove` change in the user's `turnwise.toml`: one table. All else stays, byte for byte.


_HEADER = re.compile(r"[ \t]*\[")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def add_server(name: str, table: Mapping[str, object], *, env: Mapping[str, str]) -> Path:
    """Put `[mcp.NAME]` at the end of the user's file, which is made if it is missing; gives its path. Raises CallerError where
    the file names such a server already, or cannot be read or written."""
    path = user_file(env)
    before = _toml_of(path)
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
    before = _toml_of(path)
    servers = _servers(before, path=path)
    if name not in servers:
        known = in_ticks(servers) or "none"
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
    if _servers(text, path=path) != without(servers, (name,)):
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


def _toml_of(path: Path) -> str:
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
    with in_place_of(real, mode=mode) as file:
        file.write(text.encode())
