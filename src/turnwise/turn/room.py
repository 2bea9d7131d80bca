"""Room in a turn: what its prompt has grown to, what gives way before the next request, what a provider told of its limits.

Everything here is a function of the turn's events, so a replay plans the same (promise cut:budget). The rules decide
(`rules/budget.py`, `rules/compaction.py`, `rules/result_size.py`); this keeps what they need from one request to the next.
"""

from collections.abc import Sequence

import msgspec

from turnwise.rules.budget import (
    LOWER_EFFORT,
    BudgetTooSmall,
    ModelLimits,
    PromptSize,
    grown,
    measured,
    message_bytes,
    prompt_capacity,
    request_bytes,
    split_output,
    window_of,
    with_budget,
    witnessed,
)
from turnwise.rules.compaction import (
    LEFT_OUT,
    CannotShrink,
    Fits,
    Shorten,
    Summarise,
    apply_summary,
    judge_summary,
    plan,
    resized,
    weighed,
)
from turnwise.rules.result_size import READ_RESULT, read_back, result_limit, shorten
from turnwise.rules.told_limits import corrected, read_told, recounted, refused
from turnwise.turn.asking import Asking, build_request
from turnwise.turn.commands import PlannedCall
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import StepPrepared
from turnwise.vocab import (
    Fault,
    FaultKind,
    Message,
    Request,
    Response,
    Settings,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
    text_of,
)

READ_OFFER = ToolOffer(spec=READ_RESULT, effect="none")
NO_SUMMARY = "The conversation had grown too long, and no summary of its earlier part could be had."
NO_ROOM = "The conversation has grown too long for the model: what is left of its window is too little for an answer."
# A page of a result, its framing and the line that says how to go on included, is no larger than a result may be.
PAGE_FRAME_BYTES = 256
MIN_PAGE_BYTES = 1024
# Purposes whose request is the turn's history and little else, so that its count is the prompt's.
COUNTS_HISTORY = frozenset({"step", "retry", "answer"})
TELLING = frozenset({FaultKind.CONTEXT_OVERFLOW, FaultKind.BAD_REQUEST, FaultKind.QUOTA})
# One error may tell of the window and the next of the output limit; more than that is no correction.
MAX_CORRECTIONS = 3


class Room(msgspec.Struct, kw_only=True):
    """The turn's view of its own size. With `ends` nothing gives way any more, and the next request is the forced answer."""

    prompt: PromptSize
    before_bytes: int  # what stands before the messages
    sizes: list[int] = []  # of the messages, as far as they were weighed
    sums: list[int] = []  # of the sizes up to each of them
    originals: dict[str, ToolResult] = {}  # whole results that history has shortened, by call id
    planned: Summarise | None = None  # the request at hand asks for this summary
    ends: str = ""
    changed: bool = False  # since the last request: it begins otherwise
    gave_way: bool = False  # history is no longer all that was said
    corrections: int = 0
    overflowed: bool = False  # the provider refused a prompt of this turn
    must_shrink: bool = False  # it did just now, and did not say by how much

    @classmethod
    def of(cls, config: TurnConfig) -> "Room":
        before = request_bytes(system=config.system, tools=[offer.spec for offer in config.tools])
        return cls(prompt=PromptSize(added_bytes=before), before_bytes=before)

    # results

    def enter(
        self, results: Sequence[ToolResult], *, told: Sequence[ToolResult], config: TurnConfig
    ) -> list[ToolResult]:
        """The results as history takes them: of bounded size, with the words that the guard added (`told`) whole."""
        if config.room != "compact":
            return list(told)
        capacity = prompt_capacity(config.model_limits, settings=config.settings)
        limit = result_limit(capacity, results=len(results))
        entered: list[ToolResult] = []
        for result, noted in zip(results, told, strict=True):
            short = shorten(result, limit_bytes=limit, handle=handle_of(config))
            if short is result:
                entered.append(noted)
                continue
            self.originals[result.call_id] = result
            words = noted.content[len(result.content) :]
            entered.append(msgspec.structs.replace(short, content=(*short.content, *words)))
        return entered

    def read(self, planned: Sequence[PlannedCall], *, config: TurnConfig) -> dict[str, ToolResult]:
        """The results of those calls that read a shortened result: the turn knows them itself."""
        calls = [plan for plan in planned if plan.call.name == handle_of(config)]
        if not calls:
            return {}
        capacity = prompt_capacity(config.model_limits, settings=config.settings)
        page = max(MIN_PAGE_BYTES, result_limit(capacity, results=len(planned)) - PAGE_FRAME_BYTES)
        found: dict[str, ToolResult] = {}
        for one in calls:
            text, wrong = read_back(one.arguments, originals=self.originals, page_bytes=page)
            found[one.call.id] = ToolResult(
                call_id=one.call.id, name=one.call.name, content=(Text(text),), is_error=wrong
            )
        return found

    # the next request

    def weigh(self, messages: Sequence[Message]) -> None:
        """Take in the messages that came since."""
        for message in messages[len(self.sizes) :]:
            self.sizes.append(message_bytes(message))
            self.prompt = grown(self.prompt, added_bytes=self.sizes[-1])

    def bytes_from(self, place: int, *, messages: Sequence[Message]) -> int:
        """The bytes of the messages from `place` on: those that came since are weighed, the others known by their sum."""
        self.weigh(messages)
        for size in self.sizes[len(self.sums) :]:
            self.sums.append(size + (self.sums[-1] if self.sums else 0))
        if place >= len(self.sums):
            return 0
        return self.sums[-1] - (self.sums[place - 1] if place else 0)

    def forget_last(self, messages: Sequence[Message]) -> None:
        """The last of the messages was taken back; these are left."""
        kept = self.sizes[: len(messages)]
        if len(kept) < len(self.sizes):
            self.prompt = weighed(self.prompt, sizes=self.sizes, sizes_now=kept)
            self.sizes = kept
            del self.sums[len(kept) :]

    def make_room(
        self, messages: list[Message], *, prepared: StepPrepared, config: TurnConfig, paused: bool, may_ask: bool
    ) -> bool:
        """Shorten what is to be shortened in `messages`; true where a summary has to be asked for.

        Where neither helps `ends` says so; where the window is only assumed the prompt goes out as it is.
        """
        self.weigh(messages)
        if config.room != "compact" or paused:  # nothing may come between a pause and what goes on with it
            return False
        settings = prepared.settings or config.settings
        overflowed, self.must_shrink = self.must_shrink, False
        planned = plan(
            messages,
            sizes=self.sizes,
            prompt=self.prompt,
            capacity_tokens=prompt_capacity(config.model_limits, settings=settings),
            window_tokens=window_of(config.model_limits),
            handle=handle_of(config),
            overflowed=overflowed,
            may_summarise=may_ask and not self.ends,
        )
        match planned:
            case Fits():
                pass
            case Shorten(messages=after, shortened=ids):
                self._keep(ids, messages=messages)
                self._replace(messages, after=after)
            case Summarise():
                self.planned, self.changed = planned, planned.asks != tuple(messages)
            case CannotShrink(why=why):
                # A guess is cautious: what is too long by it may fit, and its request's answer will tell.
                is_counted = self.prompt.measured_bytes * 2 > self.prompt.bytes
                if knows_window(config.model_limits) and is_counted:
                    self.ends = self.ends or f"The conversation had grown too long: {why}."
        return self.planned is not None

    def budget(self, settings: Settings, *, config: TurnConfig, trailing: Sequence[str]) -> Settings | None:
        """The settings with what the model can still give; None where that is too little for an answer."""
        if config.room == "off":
            return settings
        added = sum([message_bytes(Message("user", (Text(text),))) for text in trailing])
        tokens = grown(self.prompt, added_bytes=added).tokens
        found = split_output(config.model_limits, settings=settings, prompt_tokens=tokens)
        if isinstance(found, BudgetTooSmall):
            if not knows_window(config.model_limits):
                return settings
            self.ends = self.ends or NO_ROOM
            return None
        return with_budget(settings, budget=found)

    def counted(self, usage: Usage, *, asking: Asking | None, config: TurnConfig) -> TurnConfig:
        """What a response says of the prompt's true size, and of limits that are wider than was thought."""
        if config.room == "off" or asking is None:
            return config
        if asking.purpose in COUNTS_HISTORY:
            self.prompt = measured(self.prompt, usage=usage)
        return with_limits(config, limits=witnessed(config.model_limits, usage=usage))

    # summaries

    def summary_request(self, config: TurnConfig, *, prepared: StepPrepared, tools: tuple[ToolSpec, ...]) -> Request:
        """The request for the summary: the same prefix, no tool to call, as little reasoning as there can be."""
        assert self.planned is not None
        own = prepared.settings or config.settings
        settings = msgspec.structs.replace(
            own,
            max_output_tokens=min(self.planned.max_tokens, own.max_output_tokens or self.planned.max_tokens),
            reasoning_tokens=None,
            reasoning_effort=LOWER_EFFORT[own.reasoning_effort] if own.reasoning_effort else None,
        )
        request = build_request(
            config,
            messages=self.planned.asks,
            trailing=(self.planned.instruction,),
            tools=tools,
            prepared=msgspec.structs.replace(prepared, settings=settings),
            forced=True,
            disobeyed=False,
            has_called=True,
        )
        return msgspec.structs.replace(request, output=None)

    def take_summary(self, messages: list[Message], *, response: Response | None) -> None:
        """Put the summary in the place of what it stands for; where there is none of use, a word that it is missing."""
        assert self.planned is not None
        planned, self.planned = self.planned, None
        said = None
        if response is not None and response.fault is None:
            said = judge_summary(text_of(response.message), finish=response.finish, planned=planned)
        if said is None:
            self.ends, said = NO_SUMMARY, LEFT_OUT
        self._replace(messages, after=apply_summary(messages, planned=planned, summary=said))

    # what a provider tells

    def learn(self, fault: Fault, *, config: TurnConfig) -> TurnConfig | None:
        """The configuration to ask once more with, where the error is about room and something can be changed."""
        if config.room == "off" or fault.kind not in TELLING or self.corrections >= MAX_CORRECTIONS:
            return None
        told = read_told(fault.message)
        overflow = fault.kind is FaultKind.CONTEXT_OVERFLOW
        if (overflow and self.overflowed) or (told is None and (not overflow or config.room != "compact")):
            return None
        before, limits = self.prompt, config.model_limits
        if told is None:
            limits = refused(limits, prompt_tokens=self.prompt.tokens)
        else:
            limits = corrected(limits, told=told)
            self.prompt = recounted(self.prompt, told=told)
        self.overflowed = self.overflowed or overflow
        fits = self.prompt.tokens <= prompt_capacity(limits, settings=config.settings)
        self.must_shrink = overflow and config.room == "compact" and fits and self.prompt == before
        if limits == config.model_limits and self.prompt == before and not self.must_shrink:
            return None
        self.corrections += 1
        return with_limits(config, limits=limits)

    def _keep(self, ids: Sequence[str], *, messages: Sequence[Message]) -> None:
        wanted = frozenset(ids) - self.originals.keys()
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in wanted:
                    self.originals[part.call_id] = part

    def _replace(self, messages: list[Message], *, after: Sequence[Message]) -> None:
        sizes = resized(self.sizes, before=messages, after=after)
        self.prompt = weighed(self.prompt, sizes=self.sizes, sizes_now=sizes)
        self.sizes, self.sums = sizes, []
        messages[:] = after
        self.changed = self.gave_way = True


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
    return msgspec.structs.replace(config, tools=(*config.tools, READ_OFFER))


def knows_window(limits: ModelLimits) -> bool:
    return limits.context_window_tokens is not None or limits.max_input_tokens is not None


def with_limits(config: TurnConfig, *, limits: ModelLimits) -> TurnConfig:
    return config if limits == config.model_limits else msgspec.structs.replace(config, model_limits=limits)
