"""What a route asks of the requests that go through it, and what one of them is on its way up."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from turnwise.vocab import Repair, Request, ServerLesson
from turnwise.wire.encoded_history import Adapted
from turnwise.wire.family import HttpCall
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import NOT_CARRIED, ClientTool, not_carried, relay_facts


class RouteTerms(msgspec.Struct, frozen=True, kw_only=True):
    """`model` is the upstream's own name, None: as the client says it. `max_output_tokens` lowers what clients ask for, and never
    raises it. `one_call_at_a_time`: the route's clients cannot take parallel calls. `lessons`: what the upstream has refused."""

    model: str | None = None
    max_output_tokens: int | None = None
    one_call_at_a_time: bool = False
    lessons: tuple[ServerLesson, ...] = ()


class UpstreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it goes up. `request` says the same in the vocabulary, for the upstream's family: with more messages it asks
    to go on. `told` is what of the client's request did not get there. `keeps_bytes`: both sides speak one family, so what the
    upstream says can pass as it came. `adds_usage`: the gateway asked for usage in the stream and the client did not, so the
    event that brings nothing else is the gateway's alone. `tools`: what the client calls a tool, by the name that went up, where
    the two differ. `stops`: sequences at which the gateway ends the answer."""

    call: HttpCall
    request: Request
    tools: Mapping[str, ClientTool] = {}
    told: tuple[Repair, ...] = ()
    keeps_bytes: bool = False
    adds_usage: bool = False
    stops: tuple[str, ...] = ()


def told_adapted(adapted: Iterable[Adapted], *, client: FamilyName) -> list[Repair]:
    """What the model would have refused, by the names that a client of the family has for it."""
    names = {**relay_facts(client).setting_names, "prefill": "messages[-1]"}
    return [not_carried(names.get(one.setting, one.setting), because=one.because) for one in adapted]


MOST_NAMES = 20
UNNAMED, MORE = "(other)", "(more)"
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}(?:\[-?\d{1,6}\])?", re.ASCII)


def names_not_carried(told: Iterable[Repair]) -> tuple[str, ...]:
    """The fields that did not reach the upstream as the client said them, each once and `MOST_NAMES` of them: for a header and a
    log. A client may put anything into a key, so only what looks like a field's name is shown."""
    named = [repair.where.strip("`") for repair in told if repair.kind == NOT_CARRIED]
    shown = list(dict.fromkeys([name if _PLAIN_NAME.fullmatch(name) else UNNAMED for name in named]))
    return (*shown[:MOST_NAMES], MORE) if len(shown) > MOST_NAMES else tuple(shown)
