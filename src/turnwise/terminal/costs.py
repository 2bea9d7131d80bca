"""Costs and tokens in JSON: null if no part of a sum is known."""

from typing import cast

import msgspec

from turnwise.journal.ledger import COUNTS
from turnwise.journal.ledger_queries import Total
from turnwise.rules.pricing import Cost


def json_of(value: object) -> object:
    """What `msgspec` is to encode for it: with `usd` null where the price of no request is known, as 0 would be a price,
    and tokens where those of no request are. `at_least` stands there only for requests that are priced in part."""
    match value:
        case Cost():
            usd = None if value.is_unknown else value.usd
            told = {"usd": usd, "requests": value.requests, "unknown": value.unknown}
            return {**told, "at_least": value.at_least} if value.at_least else told
        case Total() if value.tells_nothing:
            told = {name: getattr(value, name) for name in value.__struct_encode_fields__}
            return {name: None if name in COUNTS else json_of(one) for name, one in told.items()}
        case msgspec.Struct():
            return {name: json_of(getattr(value, name)) for name in value.__struct_encode_fields__}
        case list():
            return [json_of(one) for one in cast("list[object]", value)]
        case _:
            return value
