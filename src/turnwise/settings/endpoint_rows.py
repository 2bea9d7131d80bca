"""The user's own endpoints: `[endpoints.NAME]` of their `turnwise.toml`, with the keys of `wire/profiles.toml`.

`NAME:MODEL` is then a model like any other. A project's file may not have such a table: it could say where requests go, and whose
key goes with them. `turnwise check --rules` writes a row.
"""

import os
import re
from collections.abc import Iterable, Mapping

import msgspec

from turnwise.errors import CallerError
from turnwise.settings.settings import Layer, is_table, user_layer
from turnwise.wire.profiles import Profile, builtin_profiles

ENDPOINTS = "endpoints"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # it stands before the colon of a model


def known_profiles(env: Mapping[str, str] | None = None) -> Mapping[str, Profile]:
    """turnwise's own rows, and the user's. Raises CallerError where the user's cannot be read."""
    return {**builtin_profiles(), **own_profiles(env)}


def own_profiles(env: Mapping[str, str] | None = None) -> Mapping[str, Profile]:
    """The rows of the user's file alone."""
    layer = user_layer(os.environ if env is None else env)
    return {} if layer is None else endpoint_rows([layer])


def endpoint_rows(layers: Iterable[Layer]) -> dict[str, Profile]:
    """The rows of these files. Raises CallerError in one line, with file and key."""
    found: dict[str, Profile] = {}
    for layer in layers:
        if ENDPOINTS not in layer.table:
            continue
        named = layer.named(ENDPOINTS)
        if layer.source == "project":
            raise CallerError(
                f"{named}: a project's file cannot say where requests go: put it into your own turnwise.toml"
            )
        table = layer.table[ENDPOINTS]
        if not is_table(table):
            raise CallerError(f"{named} is no table: write `[{ENDPOINTS}.NAME]` and its keys below")
        found |= {name: _row(name, row, named=f"{named}.{name}") for name, row in table.items()}
    return found


def _row(name: str, row: object, *, named: str) -> Profile:
    if name in builtin_profiles():
        raise CallerError(f"{named}: turnwise has an endpoint of this name: give yours another one")
    if not _NAME.fullmatch(name):
        raise CallerError(f"{named}: a name has letters, digits, `.`, `_` and `-`")
    if not is_table(row):
        raise CallerError(f"{named} is no table: write `[{ENDPOINTS}.{name}]` and its keys below")
    try:
        found = msgspec.convert({**row, "name": name}, Profile)
    except msgspec.ValidationError as error:
        raise CallerError(f"{named}: {error}; correct it, or take it out") from None
    if wrong := _wrong_in(found):
        raise CallerError(f"{named}.{wrong}; correct it, or take it out")
    return found


def _wrong_in(row: Profile) -> str:
    """The first value of which the type says too little; empty: all can be used."""
    try:
        re.compile(row.tool_names)
    except re.error as error:
        return f"tool_names is no regular expression: {error}"
    try:
        msgspec.json.decode(row.body or "{}", type=dict[str, object])
    except msgspec.DecodeError as error:
        return f"body is no JSON object: {error}"
    return "" if "auto" in row.tool_choices else "tool_choices lacks `auto`"
