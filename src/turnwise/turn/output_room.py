"""How much the answer to the next request may hold, and whether that limit ended the last one."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.rules.arguments import Unsound, judge_call
from turnwise.rules.budget import OutputBudget, answer_floor, grown, message_bytes, split_output, window_of, with_budget
from turnwise.rules.truncation import Cut, fills_half, hands_out_objects
from turnwise.turn.config import TurnConfig
from turnwise.turn.history import History
from turnwise.turn.room import NO_ROOM, Room, knows_window
from turnwise.turn.turn_state import Known
from turnwise.vocab import Message, Response, Settings, Text, calls_of

# What a prompt that nobody has counted may be longer than it is taken for (the JSON around messages, a denser script), where no
# request is left after a refusal.
SPARE_TOKENS = 128
SPARE_SHARE = 8
# Tokens of a prompt that is guessed to be too long, by the most bytes a token that text has, and by the usual ones.
LONGEST_BYTES_A_TOKEN = 8
USUAL_BYTES_A_TOKEN = 4


class BudgetedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with what the model can still give; None where that is too little for an answer."""

    settings: Settings | None
    ends: str = ""


def budget(
    room: Room,
    settings: Settings,
    *,
    history: History,
    config: TurnConfig,
    trailing: Sequence[str],
    is_last: bool,
) -> BudgetedRequest:
    """What the next request may ask for.

    A prompt that is too long only by our guess goes out, once: the provider's count, or its refusal, tells. Not where no
    request is left after a refusal (`is_last`).
    """
    if config.room == "off":
        return BudgetedRequest(settings=settings)
    if room.stuck:
        return BudgetedRequest(settings=None)
    limits = config.model_limits
    size = history.prompt
    if trailing:
        added = sum([message_bytes(Message("user", (Text(text),))) for text in trailing])
        size = grown(size, added_bytes=added)
    found = split_output(
        limits,
        settings=settings,
        prompt_tokens=size.tokens,
        usual_tokens=config.default_max_tokens,
        spare_tokens=SPARE_TOKENS + size.tokens // SPARE_SHARE if is_last and not size.is_counted else 0,
    )
    if isinstance(found, OutputBudget):
        return BudgetedRequest(settings=with_budget(settings, budget=found))
    if not knows_window(limits) and not is_last:
        return BudgetedRequest(settings=settings)
    if not size.is_counted and not room.overflowed and not is_last:
        usual = split_output(limits, settings=settings, prompt_tokens=size.bytes // USUAL_BYTES_A_TOKEN)
        if isinstance(usual, OutputBudget):
            return BudgetedRequest(settings=with_budget(settings, budget=usual))
        least = answer_floor(limits, settings=settings)
        if size.bytes // LONGEST_BYTES_A_TOKEN + least <= window_of(limits):
            return BudgetedRequest(settings=replace(settings, max_output_tokens=least, reasoning_tokens=None))
    return BudgetedRequest(settings=None, ends=room.ends or NO_ROOM)


def says_limit(response: Response, known: Known, *, cut: Cut | None, limit_tokens: int | None) -> bool:
    """Whether the output limit is the likelier reason why a stream ended without a word. An object comes in one piece:
    one without what its schema demands was left so by the model, not by the connection."""
    if cut is not None and (cut.limited or fills_half(cut, limit_tokens=limit_tokens)):
        return True
    calls = calls_of(response.message)
    offer = known.offers.get(calls[-1].name) if calls else None
    if offer is None or not hands_out_objects(known.config.family, streamed=True):
        return False
    verdict = judge_call(
        calls[-1], tools={offer.spec.name: offer.spec}, finish=response.finish, limit_tokens=limit_tokens
    )
    return isinstance(verdict, Unsound) and verdict.kind == "schema_mismatch"
