"""Fields of a request's body that have no word in the shared vocabulary, on their way to another family's API.

One table a family: `rules` in its `relay_facts.py`. A field that stands in none is told and left out: a field that came later
than this code must neither stop a client nor vanish in silence.
"""

from collections.abc import Iterator

import msgspec

from turnwise.relay.refusals import RequestRefused
from turnwise.relay.terms import not_carried
from turnwise.vocab import Opaque, Repair, Request
from turnwise.wire.json_fields import UNREADABLE, Fields, compact_text, encode, is_object, read_fields, string_of
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import TOLD, RelayFacts, relay_facts

NOTHING_SAID = frozenset({"null", "false", "[]", "{}", '""'})
"""Values that ask for nothing, in any field; but an empty object may switch a tool on (`web_search_options`)."""


def carry_extra(request: Request, *, source: FamilyName, target: FamilyName) -> tuple[Opaque | None, list[Repair]]:
    """The further fields of a body as `target` says them, and what it cannot say. Raises RequestRefused."""
    own, other = relay_facts(source), relay_facts(target)
    carried: dict[str, object] = {}
    told: list[Repair] = []
    fields = {} if request.extra is None else read_fields(request.extra.json)
    for name, raw in walk(fields, parents=own.parents):
        rule = own.rules.get(name, TOLD)
        text = compact_text(raw)
        place = other.takes.get(rule.means)
        if rule.ours or text in rule.harmless or (text in NOTHING_SAID and not (rule.refuses and text == "{}")):
            continue
        if _is_json_mode(name, raw, source=own):
            place, raw = _json_mode(name, target=other)
        elif request.output is not None and name in ("response_format", "text.format"):
            rule = TOLD  # the schema itself goes; what else stands beside it (`description`) does not
        elif name == "include":
            _refuse_logprobs(raw)
        if place is not None:
            _put_at(carried, place, raw)
        elif rule.refuses:
            raise RequestRefused(f"`{name}` cannot be carried to {other.title}, which serves this model", field=name)
        else:
            told.append(not_carried(name, because=f"{other.title} does not have it"))
    return (Opaque(target, encode(carried).decode()) if carried else None), told


def walk(fields: Fields, *, parents: frozenset[str], above: str = "") -> Iterator[tuple[str, msgspec.Raw]]:
    """The fields by dotted names; the objects named by `parents` are taken apart."""
    for key, raw in fields.items():
        name = above + key
        if name in parents and is_object(raw):
            yield from walk(read_fields(raw), parents=parents, above=f"{name}.")
        else:
            yield name, raw


def _put_at(fields: dict[str, object], place: str, raw: msgspec.Raw) -> None:
    parent, _, key = place.rpartition(".")
    below = fields.setdefault(parent, {}) if parent else fields
    assert isinstance(below, dict)
    below[key] = raw


def _is_json_mode(name: str, raw: msgspec.Raw, *, source: RelayFacts) -> bool:
    place, value = source.json_mode or ("", b"")
    if name != place:
        return False
    if not is_object(raw):
        return bytes(raw) == value
    return string_of(read_fields(raw), "type") == "json_object"


def _json_mode(name: str, *, target: RelayFacts) -> tuple[str, msgspec.Raw]:
    if target.json_mode is None:
        raise RequestRefused(
            f"`{name}` asks for JSON without a schema, which {target.title} does not have: give a schema", field=name
        )
    place, value = target.json_mode
    return place, msgspec.Raw(value)


def _refuse_logprobs(raw: msgspec.Raw) -> None:
    try:
        words = msgspec.json.decode(raw, type=list[str])
    except UNREADABLE:
        return
    if "message.output_text.logprobs" in words:
        raise RequestRefused("`include` asks for `logprobs`, which cannot be carried", field="include")
