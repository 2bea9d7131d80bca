"""Room for the next request: what gives way before it, and how much its answer may hold.

Everything here is a function of the turn's events, so a replay plans the same (promise cut:budget). The rules decide
(`rules/prompt_room.py`, `rules/compaction.py`); this module keeps what they need from one request to the next.
`turn/step_request.py` reads what a provider's errors tell about its limits.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.rules.answer_room import fit_answer
from turnwise.rules.compaction import (
    LEFT_OUT,
    MIN_RESULT_BYTES,
    READ_RESULT,
    CannotShrink,
    PromptFits,
    Shorten,
    Summarise,
    apply_summary,
    judge_summary,
    left_out,
    plan,
    read_back,
    result_limit,
    shorten_result,
)
from turnwise.rules.limits import ANSWER_WORDS_TOKENS
from turnwise.rules.prompt_room import (
    GUESSED_DENSITY,
    LOWER_EFFORT,
    ModelLimits,
    PromptSize,
    answer_floor,
    message_bytes,
    part_bytes,
    prompt_capacity,
    tokens_in,
    window_of,
)
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import PlannedCall, StepPrepared
from turnwise.turn.history import History
from turnwise.turn.request_plan import build_request
from turnwise.vocab import Fault, Message, Request, Response, Text, ToolResult, ToolSpec, text_of

# Results of bounded size: how much of a long result the history takes, and the tool that reads the rest (promise cut:budget).
READ_OFFER = ToolOffer(spec=READ_RESULT, effect="none")
# A page of a result, with its frame and the line that says how to continue, is not larger than a result may be.
PAGE_FRAME_BYTES = 256
MIN_PAGE_BYTES = 1024


class Entered(msgspec.Struct, frozen=True, kw_only=True):
    """Results as the history takes them, and by call id the results whose whole form is kept elsewhere."""

    results: tuple[ToolResult, ...]
    originals: dict[str, ToolResult] = {}


def entered(
    results: Sequence[ToolResult], *, told: Sequence[ToolResult], config: TurnConfig, prompt: PromptSize
) -> Entered:
    """The results in bounded size; the texts that the guard added (`told`) stay whole."""
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
        short = shorten_result(result, limit_bytes=limit, handle=handle)
        if short is result:
            kept.append(noted)
            continue
        originals[result.call_id] = result
        words = noted.content[len(result.content) :]
        kept.append(msgspec.structs.replace(short, content=(*short.content, *words)))
    return Entered(results=tuple(kept), originals=originals)


def read(planned: Sequence[PlannedCall], *, config: TurnConfig, history: History) -> dict[str, ToolResult]:
    """The results of calls that read a shortened result: the turn itself knows them."""
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
    """Whether turnwise's own `read_result` is on offer."""
    return READ_OFFER in config.tools


def handle_of(config: TurnConfig) -> str | None:
    return READ_RESULT.name if reads_results(config) else None


def with_own_tools(config: TurnConfig) -> TurnConfig:
    """The configuration with turnwise's `read_result` beside the user's tools: from the first request on, because a later tool
    would change the prefix. A user's tool with the same name wins."""
    names = [offer.spec.name for offer in config.tools]
    if config.room != "compact" or not names or READ_RESULT.name in names:
        return config
    return config.with_tools((*config.tools, READ_OFFER))


def _capacity_by_guess(config: TurnConfig, *, prompt: PromptSize) -> int:
    """The largest prompt, in tokens of three bytes, if this conversation has fewer bytes a token."""
    capacity = prompt_capacity(config.model_limits, settings=config.settings)
    return capacity * GUESSED_DENSITY // prompt.density


NO_SUMMARY = "The conversation had grown too long, and no summary of its earlier part could be had."
NO_ROOM = "The conversation has grown too long for the model: what is left of its window is too little for an answer."


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """What the turn knows about the room of its model. With `ends`, nothing gives way any more, and the next request is the
    forced answer."""

    ends: str = ""
    planned: Summarise | None = None  # the current request asks for this summary
    corrections: int = 0  # since a request was last answered
    refusals: int = 0  # those among them without figures
    overflowed: bool = False  # the provider refused a prompt of this turn
    must_shrink: bool = False  # it did just now, and did not say by how much
    no_news: bool = False  # it did, and what it said changed nothing else
    stuck: bool = False  # and nothing could be made smaller: no further request
    unproven: ModelLimits | None = None  # the limits before refusals, while no answer has followed the refusals
    unanswered: Summarise | None = None  # the request for this summary was refused
    largest_bytes: int = 0  # of the prompts that were accepted in this turn
    unsaid: Fault | None = None  # unknown words, treated as an overflow
    tried_unsaid: bool = False  # once a turn
    cap_tokens: int | None = None  # the server's own output limit, if it is below what was asked for

    def begin_step(self) -> "Room":
        """The last step was answered: a refusal from now on has another cause."""
        if not (self.corrections or self.refusals) and self.unsaid is None and self.unproven is None:
            return self
        return replace(self, corrections=0, refusals=0, unsaid=None, unproven=None)

    def ended(self, why: str) -> "Room":
        return replace(self, ends=why)

    def fitted(self) -> "Room":
        """The answer's request carries less, so it may leave."""
        return replace(self, stuck=False) if self.stuck else self

    def refused(self, limits: ModelLimits) -> "Room":
        """A request was refused without figures; `limits` are those that were known before."""
        return replace(self, unproven=self.unproven or limits, refusals=self.refusals + 1)

    def learned(self, *, is_overflow: bool, unsaid: Fault | None, must_shrink: bool, is_news: bool) -> "Room":
        """An error told about room: the next request is different. `unsaid` are unknown words, treated as an overflow."""
        return replace(
            self,
            unanswered=self.planned,
            planned=None,
            overflowed=self.overflowed or is_overflow or unsaid is not None,
            unsaid=unsaid or self.unsaid,
            tried_unsaid=unsaid is not None or self.tried_unsaid,
            must_shrink=must_shrink,
            no_news=not is_news,
            corrections=self.corrections + 1,
        )

    def under_cap(self, tokens: int | None) -> "Room":
        return self if tokens == self.cap_tokens else replace(self, cap_tokens=tokens)

    def went_through(self, prompt_bytes: int) -> "Room":
        return self if prompt_bytes <= self.largest_bytes else replace(self, largest_bytes=prompt_bytes)

    def without_refusals(self, config: TurnConfig) -> TurnConfig:
        """The configuration with the limits from before refusals without figures, unless an answer came since. Smaller requests
        did not help, so size was not the cause, and the next turn keeps the old limits."""
        return config if self.unproven is None else config.with_limits(self.unproven)


class GiveWay(msgspec.Struct, frozen=True, kw_only=True):
    """The new content of the history, and which results (by call id) it holds shortened."""

    messages: Sequence[Message]
    shortened: Sequence[str] = ()


class RoomMade(msgspec.Struct, frozen=True, kw_only=True):
    """The room that was made. With `asks`, a summary must be requested first; `changed`: that request begins differently."""

    room: Room
    gives_way: GiveWay | None = None
    asks: Summarise | None = None
    changed: bool = False


def make_room(room: Room, *, history: History, prepared: StepPrepared, config: TurnConfig, may_ask: bool) -> RoomMade:
    """Shorten old content, or plan a summary.

    If neither helps, `ends` says so; if the window is only assumed, the prompt is sent as it is.
    """
    history.weigh()
    overflowed, no_news = room.must_shrink, room.no_news
    if overflowed or no_news:
        room = replace(room, must_shrink=False, no_news=False)
    if config.room != "compact" or history.paused:  # a pause must be followed at once by its continuation
        return RoomMade(room=replace(room, stuck=True) if no_news else room)
    limits = config.model_limits
    capacity = prompt_capacity(limits, settings=prepared.settings or config.settings)
    unanswered = room.unanswered
    if unanswered is not None:
        room = replace(room, unanswered=None)
    if history.prompt.tokens <= capacity and not (overflowed or no_news):  # the usual case
        return RoomMade(room=room)
    planned = plan(
        history.messages,
        sizes=history.sizes,
        prompt=history.prompt,
        capacity_tokens=capacity,
        window_tokens=window_of(limits),
        input_tokens=limits.max_input_tokens,
        output_tokens=limits.max_output_tokens,
        handle=handle_of(config),
        overflowed=overflowed or no_news,
        may_summarise=may_ask and not room.ends,
    )
    match planned:
        case PromptFits():
            return RoomMade(room=room)
        case Shorten(messages=after, shortened=ids):
            return RoomMade(room=room, gives_way=GiveWay(messages=after, shortened=ids))
        case Summarise():
            changed = planned.asks != tuple(history.messages)
            return RoomMade(room=replace(room, planned=planned), asks=planned, changed=changed)
        case CannotShrink() if unanswered is not None and room.unsaid is None:
            return summarised(room, planned=unanswered, response=None)
        case CannotShrink(why=why):
            ends = room.ends
            # An estimate is cautious: a prompt that seems too long may fit, and the reply to its request will tell.
            if no_news or (knows_window(limits) and history.prompt.is_counted):
                ends = ends or f"The conversation had grown too long: {why}."
            return RoomMade(room=replace(room, stuck=no_news, ends=ends))


def summarised(room: Room, *, planned: Summarise, response: Response | None) -> RoomMade:
    """Replace the summarised messages by the summary; without a usable summary, by a note that it is missing."""
    said = None
    if response is not None and response.fault is None:
        said = judge_summary(text_of(response.message), finish=response.finish, planned=planned, lost=response.lost)
    if said is None:
        room, said, planned = replace(room, ends=NO_SUMMARY, planned=None), LEFT_OUT, left_out(planned)
    else:
        room = replace(room.begin_step(), planned=None)
    after = apply_summary(planned=planned, summary=said)
    return RoomMade(room=room, gives_way=GiveWay(messages=after, shortened=planned.shortened))


def summary_request(
    planned: Summarise, *, config: TurnConfig, prepared: StepPrepared, tools: tuple[ToolSpec, ...]
) -> Request:
    """The request for the summary: the same prefix, no tool to call, as little reasoning as possible."""
    own = prepared.settings or config.settings
    settings = replace(
        own,
        max_output_tokens=min(planned.max_tokens, own.max_output_tokens or planned.max_tokens),
        reasoning_tokens=None,
        reasoning_effort=LOWER_EFFORT[own.reasoning_effort] if own.reasoning_effort else None,
    )
    request = build_request(
        config,
        messages=planned.asks,
        trailing=(planned.instruction,),
        tools=tools,
        prepared=replace(prepared, settings=settings),
        forced=True,
        disobeyed=False,
        has_called=True,
    )
    return replace(request, output=None)


def may_fit(room: Room, *, config: TurnConfig) -> bool:
    """Whether the answer's request may carry less than the history."""
    return config.room == "compact" and room.unsaid is None


def fitting(
    history: History, *, config: TurnConfig, own: Sequence[str], most_tokens: int | None = None
) -> Sequence[Message] | None:
    """The part of the whole history that leaves room for the answer and its `own` texts, in the window and within `most_tokens`
    (ANSWER_WORDS_TOKENS of those are already counted). None if that is impossible."""
    history.weigh()
    limits, settings, prompt = config.model_limits, config.settings, history.prompt
    own_bytes = message_bytes(Message("user", tuple([Text(text) for text in own])))
    own_tokens = tokens_in(own_bytes, density=prompt.density)
    largest = window_of(limits) - answer_floor(limits, settings=settings)
    if limits.max_input_tokens is not None:
        largest = min(largest, limits.max_input_tokens)
    for capacity in (prompt_capacity(limits, settings=settings), largest):
        tokens = capacity - own_tokens
        if most_tokens is not None:
            tokens = min(tokens, most_tokens - max(own_tokens - ANSWER_WORDS_TOKENS, 0))
        limit_bytes = tokens * prompt.bytes // max(1, prompt.tokens) - history.before_bytes
        fitted = fit_answer(history.messages, sizes=history.sizes, limit_bytes=limit_bytes)
        if fitted is not None:
            return fitted.messages
    return None


def knows_window(limits: ModelLimits) -> bool:
    return limits.context_window_tokens is not None or limits.max_input_tokens is not None
