"""What one request to an upstream may cost at most, before it leaves: its part of the budgets of its client."""

import functools
import re
from decimal import Decimal

import msgspec

from turnwise.gateway.client_limits import LimitedClient
from turnwise.journal.ledger import LedgerEntry, tells_tokens
from turnwise.journal.prices import Prices
from turnwise.journal.request_budgets import BudgetAsk, RequestPart
from turnwise.rules.pricing import can_project, projected_usd, tokens_usd
from turnwise.rules.prompt_room import message_bytes, request_bytes
from turnwise.settings.catalogue import find_limits
from turnwise.vocab import Request

# On the safe side of the three bytes by which turnwise guesses elsewhere: dense text (numbers, base64) has up to half a token a
# byte, and no provider's own words around a prompt are longer than the second figure.
BYTES_A_TOKEN = 2
OWN_WORDS_TOKENS = 256
SHORT_BYTES = 64 * 1024  # a body up to here counts whole; in a longer one pictures count as pictures
UNKNOWN_OUTPUT = 65_536  # if neither client nor route names a limit, and the model's own is unknown

_CHOICES = re.compile(rb'"n"\s*:\s*(\d{1,4})')  # answers to one request (Chat Completions)
_WITHOUT_OUTPUT = re.compile(r"embed|rerank|moderation")


def prompt_tokens(request: Request | None, *, sent_bytes: int) -> int:
    """At most so many tokens has the prompt."""
    size = sent_bytes
    if request is not None and sent_bytes > SHORT_BYTES:
        size = min(
            size,
            request_bytes(system=request.system, tools=request.tools) + sum(map(message_bytes, request.messages)),
        )
    return size // BYTES_A_TOKEN + OWN_WORDS_TOKENS


def output_tokens(request: Request | None, *, body: bytes, model: str, profile: str, path: str = "") -> int:
    """At most so many tokens are generated: what the request says, else what the model can, times the answers it asks for."""
    most = None if request is None else request.settings.max_output_tokens
    if most is None and request is None and _WITHOUT_OUTPUT.search(path.lower()):
        return 0
    if most is None:
        limits = find_limits(model, profile=profile)
        most = (limits.max_output_tokens if limits is not None else None) or UNKNOWN_OUTPUT
    choices = max([int(found) for found in _CHOICES.findall(body)], default=1) if b'"n"' in body else 1
    return most * max(choices, 1)


def part_of(
    entry: LedgerEntry,
    asks: tuple[BudgetAsk, ...],
    *,
    id: str,
    holder: str,
    client: LimitedClient,
    prices: Prices,
    tokens: tuple[int, int],
    asked: tuple[str, ...] = (),
    asked_hour: bool = False,
) -> RequestPart:
    """`tokens` are those of prompt and answer at most."""
    ahead = functools.partial(
        _most_usd, entry, client=client, prices=prices, tokens=tokens, asked=asked, asked_hour=asked_hour
    )
    by_rate = None if client.unknown_price == "refuse" else functools.partial(_by_rate, rate=client.unknown_price)
    return RequestPart(
        id=id, holder=holder, asks=asks, tokens=sum(tokens), usd=ahead, usd_of=by_rate, model=entry.model
    )


def _most_usd(
    entry: LedgerEntry,
    *,
    client: LimitedClient,
    prices: Prices,
    tokens: tuple[int, int],
    asked: tuple[str, ...],
    asked_hour: bool,
) -> Decimal | None:
    """None: no price is known, and the client's rule is to refuse that."""
    row = prices.find(entry.model, profile=entry.provider, at_s=entry.started)
    if row is None or not can_project(row):
        return None if client.unknown_price == "refuse" else _at_rate(client.unknown_price, *tokens)
    if asked or asked_hour:
        row = msgspec.structs.replace(row, asked_terms=asked, asks_hour=asked_hour or row.asks_hour)
    return projected_usd(row, input_tokens=tokens[0], output_tokens=tokens[1])


def _by_rate(entry: LedgerEntry, *, rate: str) -> Decimal | None:
    """What the ledger has no price for, at the client's rate; None where its tokens are not known either."""
    usage = entry.usage
    if usage is None or not tells_tokens(entry):
        return None
    return _at_rate(rate, usage.input_tokens, usage.output_tokens)


def _at_rate(rate: str, input_tokens: int, output_tokens: int) -> Decimal:
    of_prompt, of_answer = rate.split("/")
    return tokens_usd((input_tokens, Decimal(of_prompt)), (output_tokens, Decimal(of_answer)))
