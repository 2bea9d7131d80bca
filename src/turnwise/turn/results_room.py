"""Results of bounded size: what history takes of a long one, and the tool that reads the rest (promise cut:budget)."""

from collections.abc import Sequence

import msgspec

from turnwise.rules.budget import GUESSED_DENSITY, PromptSize, part_bytes, prompt_capacity
from turnwise.rules.result_size import MIN_RESULT_BYTES, READ_RESULT, read_back, result_limit, shorten
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.history import History
from turnwise.vocab import Text, ToolResult

READ_OFFER = ToolOffer(spec=READ_RESULT, effect="none")
# A page of a result, its framing and the line that says how to go on included, is no larger than a result may be.
PAGE_FRAME_BYTES = 256
MIN_PAGE_BYTES = 1024


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """Results as history takes them, and those of them that are kept whole aside, by call id."""

    results: tuple[ToolResult, ...]
    originals: dict[str, ToolResult] = {}


def entered(
    results: Sequence[ToolResult], *, told: Sequence[ToolResult], config: TurnConfig, prompt: PromptSize
) -> Entered:
    """The results of bounded size, with the words that the guard added (`told`) whole."""
    largest = max(map(part_bytes, results))
    if config.room != "compact" or largest <= MIN_RESULT_BYTES:
        return Entered(results=tuple(told))
    limit = result_limit(_capacity_by_guess(config, prompt=prompt), results=len(results))
    if largest <= limit:
        return Entered(results=tuple(told))
    handle = handle_of(config)
    kept: list[ToolResult] = []
    originals: dict[str, ToolResult] = {}
    for result, noted in zip(results, told, strict=True):
        short = shorten(result, limit_bytes=limit, handle=handle)
        if short is result:
            kept.append(noted)
            continue
        originals[result.call_id] = result
        words = noted.content[len(result.content) :]
        kept.append(msgspec.structs.replace(short, content=(*short.content, *words)))
    return Entered(results=tuple(kept), originals=originals)


def read(planned: Sequence[PlannedCall], *, config: TurnConfig, history: History) -> dict[str, ToolResult]:
    """The results of those calls that read a shortened result: the turn knows them itself."""
    calls = [plan for plan in planned if plan.call.name == READ_RESULT.name]
    if not calls or not reads_results(config):
        return {}
    limit = result_limit(_capacity_by_guess(config, prompt=history.prompt), results=len(planned))
    page = max(MIN_PAGE_BYTES, limit - PAGE_FRAME_BYTES)
    found: dict[str, ToolResult] = {}
    for one in calls:
        text, wrong = read_back(one.arguments, originals=history.originals, page_bytes=page)
        found[one.call.id] = ToolResult(call_id=one.call.id, name=one.call.name, content=(Text(text),), is_error=wrong)
    return found


def reads_results(config: TurnConfig) -> bool:
    """Whether our `read_result` is on offer."""
    return READ_OFFER in config.tools


def handle_of(config: TurnConfig) -> str | None:
    return READ_RESULT.name if reads_results(config) else None


def with_own_tools(config: TurnConfig) -> TurnConfig:
    """The configuration with our `read_result` beside the user's tools: from the first request on, as a tool that came
    later would change the prefix. A tool of the user's that has its name wins."""
    names = [offer.spec.name for offer in config.tools]
    if config.room != "compact" or not names or READ_RESULT.name in names:
        return config
    return config.with_tools((*config.tools, READ_OFFER))


def _capacity_by_guess(config: TurnConfig, *, prompt: PromptSize) -> int:
    """The largest prompt, in tokens of three bytes, where this conversation's have fewer."""
    capacity = prompt_capacity(config.model_limits, settings=config.settings)
    return capacity * GUESSED_DENSITY // prompt.density
