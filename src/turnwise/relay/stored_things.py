"""What is stored at the provider, and how a request names it: with the gateway's key each client could use what is another's."""

import functools
import json
import re
from collections.abc import Iterator
from typing import cast

import msgspec

from turnwise.relay.refusals import RequestRefused
from turnwise.vocab import ProviderItem, Request
from turnwise.wire.json_fields import Fields
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import STORED, Pairs, RelayFacts, relay_facts


def _as_written(name: str) -> str:
    """A pattern for the key in a body: `fileUri` may be `file_uri`, and `audio.id` begins with `audio`."""
    return re.sub("[A-Z]", lambda capital: f"_?[{capital[0]}{capital[0].lower()}]", name.partition(".")[0])


@functools.cache
def _written(family: FamilyName) -> re.Pattern[bytes]:
    """A value without a match has none of the keys: most are not walked through. A key may be written with escapes."""
    return re.compile("|".join([r"\\u00", *map(_as_written, relay_facts(family).stored.names)]).encode())


def refuse_stored(family: FamilyName, fields: Fields) -> None:
    """Raises RequestRefused for what only a route of one client may ask: a field of the body, or a name inside one."""
    facts = relay_facts(family)
    for given, raw in fields.items():
        found = facts.stored.fields.get(facts.spelling(given))
        if found is not None and found.says(raw):
            raise RequestRefused(f"`{given}` is not served here: {found.why}", field=given)
        if (name := _stored_name(raw, of=given, family=family)) is not None:
            raise RequestRefused(f"`{name}` in `{given}` is not served here: {STORED}", field=given)


def refuse_references(request: Request) -> None:
    """Raises RequestRefused for items of which only the id was sent."""
    for message in request.messages:
        for part in message.parts:
            if type(part) is ProviderItem and part.kind == "item_reference":
                raise RequestRefused(f"`item_reference` in `input` is not served here: {STORED}", field="input")


def _stored_name(raw: msgspec.Raw, *, of: str, family: FamilyName) -> str | None:
    """The first key within a field's value that names something stored; None where there is none."""
    facts = relay_facts(family)
    if facts.spelling(of) in facts.stored.free or bytes(memoryview(raw)[:1]) not in (b"{", b"["):
        return None
    text = bytes(memoryview(raw))
    if _written(family).search(text) is None:
        return None
    try:
        value: object = json.loads(text, object_pairs_hook=tuple, parse_int=str)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"`{of}` cannot be read: {error}", field=of) from None
    return next(_names_within(value, facts=facts), None)


def _names_within(value: object, *, facts: RelayFacts) -> Iterator[str]:
    """An object in `value` is `Pairs`. Depth is bounded by `check_size`."""
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _names_within(item, facts=facts)
    elif isinstance(value, tuple):
        pairs = cast("Pairs", value)
        yield from facts.stored.references(pairs)
        for given, inner in pairs:
            if facts.spelling(given) not in facts.stored.free:
                yield from _names_within(inner, facts=facts)
