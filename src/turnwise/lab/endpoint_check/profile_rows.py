"""A profile as the TOML of a row, as `profiles.toml` has them; what is written here reads back as the same profile."""

import json
import re
from collections.abc import Sequence
from typing import cast
from urllib.parse import urlsplit

import msgspec

from turnwise.lab.endpoint_check.judging import ProfileChange
from turnwise.wire.profiles import Profile


def profile_with(
    profile: Profile, *, changes: Sequence[ProfileChange], base_url: str, api_key_env: str | None
) -> Profile:
    """The profile with what was seen. At an address of its own it gets a name of its own; the query of the address, which may
    hold a key, is left out."""
    address = base_url.partition("?")[0]
    changed = msgspec.structs.replace(profile, **{change.field: change.value for change in changes})
    if address != profile.base_url:
        changed = msgspec.structs.replace(changed, name=name_of(address), title="", base_url=address)
    if api_key_env:
        changed = msgspec.structs.replace(changed, api_key_env=(api_key_env,))
    return changed


def name_of(address: str) -> str:
    """`https://api.example.com/v1` -> `api-example-com`: a name that can stand before the colon of a model."""
    host = urlsplit(address).netloc.lower().rpartition("@")[2]
    return re.sub(r"[^a-z0-9]+", "-", host).strip("-") or "endpoint"


def write_row(profile: Profile, *, table: str = "") -> str:
    """The row: the family, and every field that differs from the family's own API. `table`: what stands before its name."""
    plain = Profile(name=profile.name, family=profile.family)
    lines = [f"[{table}{_key(profile.name)}]", f"family = {_value(profile.family)}"]
    for field in profile.__struct_fields__:
        value: object = getattr(profile, field)
        if field not in ("name", "family") and value != getattr(plain, field):
            lines.append(f"{field} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    """TOML's basic strings take all that JSON's do; DEL alone has to be escaped besides."""
    match msgspec.to_builtins(value):
        case bool() as flag:
            return str(flag).lower()
        case str() as text:
            return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float() as number:
            return repr(number)
        case None:
            raise AssertionError("TOML has no null: a field that is None is left out")
        case values:
            return _inline(values)


def _inline(values: object) -> str:
    if isinstance(values, list | tuple):
        return f"[{', '.join([_value(one) for one in cast('Sequence[object]', values)])}]"
    pairs = [f"{_value(key)} = {_value(one)}" for key, one in cast("dict[str, object]", values).items()]
    return f"{{ {', '.join(pairs)} }}"
