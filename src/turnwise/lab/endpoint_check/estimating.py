"""What a check will send and spend at most, before it sends anything."""

from collections.abc import Sequence
from decimal import Decimal

import msgspec

from turnwise.agent.formatting import many, usd_said
from turnwise.endpoints.endpoints import Endpoint
from turnwise.lab.endpoint_check.probes import OTHER_WAYS, Probe, SoFar
from turnwise.rules.pricing import Priced, PriceRow, price_of
from turnwise.vocab import Message, Request, Usage

BYTES_A_TOKEN = 3  # of UTF-8, as for a prompt whose usage is not known yet: rather too many tokens than too few
OWN_CALL_BYTES = (
    4096  # that the model's own call may add to a request that goes on from it; with more, an invented one is sent
)
MAX_WAITS = 3  # times that a server which asks to wait is asked again


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """`more` are the requests that a refusal or a busy server may add; the tokens and the money count them. `usd` is None
    where no price is known."""

    requests: int
    more: int
    input_tokens: int
    output_tokens: int
    usd: Decimal | None


def estimate(probes: Sequence[Probe], *, so_far: SoFar, endpoint: Endpoint, row: PriceRow | None) -> Estimate:
    """A probe that may be refused counts once more for each other way to ask it; a wait counts as the largest probe."""
    asked = [_usage_of(probe, so_far=so_far, endpoint=endpoint) for probe in probes]
    again = [usage for probe, usage in zip(probes, asked, strict=True) for _ in OTHER_WAYS.get(probe.name, ())] + [
        max(asked, key=lambda usage: usage.input_tokens + usage.output_tokens)
    ] * MAX_WAITS
    return Estimate(
        requests=len(asked),
        more=len(again),
        input_tokens=sum([usage.input_tokens for usage in asked + again]),
        output_tokens=sum([usage.output_tokens for usage in asked + again]),
        usd=usd_of(asked + again, row=row),
    )


def _usage_of(probe: Probe, *, so_far: SoFar, endpoint: Endpoint) -> Usage:
    request = probe.build(so_far)
    size = _size_of(request, endpoint=endpoint) + (OWN_CALL_BYTES if probe.needs_call else 0)
    return Usage(input_tokens=-(-size // BYTES_A_TOKEN), output_tokens=request.settings.max_output_tokens or 0)


def is_counted(said: Message, *, probes: Sequence[Probe], model: str, endpoint: Endpoint) -> bool:
    """Whether the requests that go on from this message are no larger than the estimate says."""
    for probe in probes:
        counted = _size_of(probe.build(SoFar(model=model)), endpoint=endpoint) + OWN_CALL_BYTES
        if probe.needs_call and _size_of(probe.build(SoFar(model=model, said=said)), endpoint=endpoint) > counted:
            return False
    return True


def _size_of(request: Request, *, endpoint: Endpoint) -> int:
    return len(endpoint.family.encode_request(request, endpoint.profile).body)


def usd_of(usages: Sequence[Usage], *, row: PriceRow | None) -> Decimal | None:
    """What they cost together; None where no price is known."""
    total = Decimal(0)
    for usage in usages:
        price = price_of(usage, row=row)
        if not isinstance(price, Priced):
            return None
        total += price.usd
    return total


def estimate_said(told: Estimate) -> str:
    """One line: requests, tokens, money."""
    money = "no price is known" if told.usd is None else f"{usd_said(told.usd)} at most" if told.usd else "free"
    return (
        f"{many(told.requests, 'request')} (up to {told.more} more, if the server refuses a field or asks to wait), "
        f"about {told.input_tokens:,} tokens in and {told.output_tokens:,} out at most; {money}"
    )
