"""Room in a turn: what its prompt has grown to, what gives way before the next request, what a provider told of its limits.

Everything here is a function of the turn's events, so a replay plans the same (promise cut:budget). The rules decide
(`rules/budget.py`, `rules/compaction.py`, `rules/result_size.py`); this keeps what they need from one request to the next.
"""

from collections.abc import Sequence

import msgspec

from turnwise.rules.answer_room import fit_answer
from turnwise.rules.budget import (
    GUESSED_DENSITY,
    LOWER_EFFORT,
    ModelLimits,
    OutputBudget,
    PromptSize,
    answer_floor,
    grown,
    measured,
    message_bytes,
    part_bytes,
    prompt_capacity,
    request_bytes,
    split_output,
    tokens_in,
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
    left_out,
    plan,
    resized,
    weighed,
)
from turnwise.rules.limits import ANSWER_WORDS_TOKENS
from turnwise.rules.result_size import MIN_RESULT_BYTES, READ_RESULT, read_back, result_limit, shorten
from turnwise.rules.told_limits import corrected, read_told, recounted, refused, tells_of_prompt, with_less_room
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
# What a prompt that nobody has counted may be longer than it is taken for (the JSON around messages, a denser script), where no
# request is left after a refusal.
SPARE_TOKENS = 128
SPARE_SHARE = 8
# Purposes whose request is the turn's history and little else, so that its count is the prompt's.
COUNTS_HISTORY = frozenset({"step", "retry", "answer"})
TELLING = frozenset({FaultKind.CONTEXT_OVERFLOW, FaultKind.BAD_REQUEST, FaultKind.QUOTA})
# One error may tell of the window and the next of the output limit; one without figures takes some rounds from the window that
# is assumed to a small one. Each has to change something; a request that is answered begins the count anew.
MAX_CORRECTIONS = 6
# What an overflow without figures leaves of the prompt, the first time and on: a window that was known is missed by little,
# one that was not by much.
REFUSED_PERCENT = (90, 75, 50)
LEAST_PROMPT_TOKENS = 1024  # refused for its size, nothing is left to learn: no model's window is so small
# A refusal in words that nobody knows, of a prompt larger than all that went through: less than this fits any window.
UNSAID_TOKENS = 4096
UNSAID_PERCENT = 50
UNSAID_STATUSES = frozenset({400, 413, 422})
# Tokens of a prompt that is guessed to be too long, by the most bytes a token that text has, and by the usual ones.
LONGEST_BYTES_A_TOKEN = 8
USUAL_BYTES_A_TOKEN = 4


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The history as it is, while the answer's request carries less of it in `fitted` messages."""

    messages: tuple[Message, ...]
    sizes: tuple[int, ...]
    prompt: PromptSize
    gave_way: bool
    fitted: int


class Room(msgspec.Struct, kw_only=True):
    """The turn's view of its own size. With `ends` nothing gives way any more, and the next request is the forced answer."""

    prompt: PromptSize
    before_bytes: int  # what stands before the messages
    sizes: list[int] = []  # of the messages, as far as they were weighed
    sums: list[int] = []  # of the sizes up to each of them
    originals: dict[str, ToolResult] = {}  # whole results that history has shortened, by call id
    gone: tuple[Message, ...] = ()  # messages that history has summarised or shortened, as they were
    planned: Summarise | None = None  # the request at hand asks for this summary
    ends: str = ""
    changed: bool = False  # since the last request: it begins otherwise
    gave_way: bool = False  # history is no longer all that was said
    corrections: int = 0  # since a request was last answered
    refusals: int = 0  # of these, those without figures
    overflowed: bool = False  # the provider refused a prompt of this turn
    must_shrink: bool = False  # it did just now, and did not say by how much
    no_news: bool = False  # it did, and what it said changed nothing but that
    stuck: bool = False  # and nothing could be made smaller: no further request
    unproven: ModelLimits | None = None  # the limits before refusals that no answer has followed yet
    unanswered: Summarise | None = None  # the request for this summary was refused
    largest_bytes: int = 0  # of the prompts that went through in this turn
    unsaid: Fault | None = None  # words that nobody knows, taken for an overflow
    tried_unsaid: bool = False  # once a turn
    whole: Whole | None = None  # the messages hold less than the history, for the answer's request

    @classmethod
    def of(cls, config: TurnConfig) -> "Room":
        before = request_bytes(system=config.system, tools=[offer.spec for offer in config.tools])
        return cls(prompt=PromptSize(added_bytes=before), before_bytes=before)

    @property
    def left_out(self) -> tuple[Message, ...]:
        """What was said and does not stand in the messages any more as it was said."""
        return self.gone if self.whole is None else (*self.gone, *self.whole.messages)

    # results

    def enter(
        self, results: Sequence[ToolResult], *, told: Sequence[ToolResult], config: TurnConfig
    ) -> list[ToolResult]:
        """The results as history takes them: of bounded size, with the words that the guard added (`told`) whole."""
        if config.room != "compact":
            return list(told)
        largest = max(map(part_bytes, results), default=0)
        if largest <= MIN_RESULT_BYTES:
            return list(told)
        limit = result_limit(self._capacity_by_guess(config), results=len(results))
        if largest <= limit:
            return list(told)
        handle = handle_of(config)
        entered: list[ToolResult] = []
        for result, noted in zip(results, told, strict=True):
            short = shorten(result, limit_bytes=limit, handle=handle)
            if short is result:
                entered.append(noted)
                continue
            self.originals[result.call_id] = result
            words = noted.content[len(result.content) :]
            entered.append(msgspec.structs.replace(short, content=(*short.content, *words)))
        return entered

    def read(self, planned: Sequence[PlannedCall], *, config: TurnConfig) -> dict[str, ToolResult]:
        """The results of those calls that read a shortened result: the turn knows them itself."""
        calls = [plan for plan in planned if plan.call.name == READ_RESULT.name]
        if not calls or not reads_results(config):
            return {}
        page = max(
            MIN_PAGE_BYTES, result_limit(self._capacity_by_guess(config), results=len(planned)) - PAGE_FRAME_BYTES
        )
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
        if len(self.sizes) < len(messages):
            sizes = [message_bytes(message) for message in messages[len(self.sizes) :]]
            self.sizes += sizes
            self.prompt = grown(self.prompt, added_bytes=sum(sizes))

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

    def begin_step(self) -> None:
        """The step before was answered: whatever is refused from now on is another matter."""
        self.corrections, self.refusals, self.unsaid, self.unproven = 0, 0, None, None

    def make_room(
        self, messages: list[Message], *, prepared: StepPrepared, config: TurnConfig, paused: bool, may_ask: bool
    ) -> bool:
        """Shorten what is to be shortened in `messages`; true where a summary has to be asked for.

        Where neither helps `ends` says so; where the window is only assumed the prompt goes out as it is.
        """
        self.weigh(messages)
        overflowed, self.must_shrink = self.must_shrink, False
        no_news, self.no_news = self.no_news, False
        if config.room != "compact" or paused:  # nothing may come between a pause and what goes on with it
            self.stuck = self.stuck or no_news
            return False
        settings = prepared.settings or config.settings
        capacity = prompt_capacity(config.model_limits, settings=settings)
        if self.prompt.tokens <= capacity and not (overflowed or no_news):  # as nearly always
            self.unanswered = None
            return self.planned is not None
        planned = plan(
            messages,
            sizes=self.sizes,
            prompt=self.prompt,
            capacity_tokens=capacity,
            window_tokens=window_of(config.model_limits),
            input_tokens=config.model_limits.max_input_tokens,
            output_tokens=config.model_limits.max_output_tokens,
            handle=handle_of(config),
            overflowed=overflowed or no_news,
            may_summarise=may_ask and not self.ends,
        )
        unanswered, self.unanswered = self.unanswered, None
        match planned:
            case Fits():
                pass
            case Shorten(messages=after, shortened=ids):
                self._keep(ids, messages=messages)
                self._replace(messages, after=after)
            case Summarise():
                self.planned, self.changed = planned, planned.asks != tuple(messages)
            case CannotShrink() if unanswered is not None and self.unsaid is None:
                self.planned = unanswered
                self.take_summary(messages, response=None)
            case CannotShrink(why=why):
                self.stuck = no_news
                # A guess is cautious: what is too long by it may fit, and its request's answer will tell.
                if no_news or (knows_window(config.model_limits) and self.prompt.is_counted):
                    self.ends = self.ends or f"The conversation had grown too long: {why}."
        return self.planned is not None

    def fit(
        self, messages: list[Message], *, config: TurnConfig, own: Sequence[str], most_tokens: int | None = None
    ) -> bool:
        """Leave out of `messages` what the answer has no room for beside its `own` texts, in the window and within `most_tokens`
        (ANSWER_WORDS_TOKENS of those are counted already); false where that is not possible or not wanted. The history is whole
        again once the turn ends (`put_back`)."""
        if config.room != "compact" or self.unsaid is not None:
            return False
        self.put_back(messages)
        self.weigh(messages)
        limits, settings = config.model_limits, config.settings
        own_bytes = message_bytes(Message("user", tuple([Text(text) for text in own])))
        own_tokens = tokens_in(own_bytes, density=self.prompt.density)
        largest = window_of(limits) - answer_floor(limits, settings=settings)
        if limits.max_input_tokens is not None:
            largest = min(largest, limits.max_input_tokens)
        for capacity in (prompt_capacity(limits, settings=settings), largest):
            tokens = capacity - own_tokens
            if most_tokens is not None:
                tokens = min(tokens, most_tokens - max(own_tokens - ANSWER_WORDS_TOKENS, 0))
            limit_bytes = tokens * self.prompt.bytes // max(1, self.prompt.tokens) - self.before_bytes
            fitted = fit_answer(messages, sizes=self.sizes, limit_bytes=limit_bytes)
            if fitted is not None:
                break
        else:
            return False
        whole = Whole(
            messages=tuple(messages),
            sizes=tuple(self.sizes),
            prompt=self.prompt,
            gave_way=self.gave_way,
            fitted=len(fitted.messages),
        )
        gone = self.gone
        self._replace(messages, after=fitted.messages)
        self.gone = gone
        self.whole, self.stuck = whole, False
        return True

    def put_back(self, messages: list[Message]) -> None:
        """Make `messages` the whole history again, with what has come since."""
        whole, self.whole = self.whole, None
        if whole is None:
            return
        self.weigh(messages)
        came, sizes = messages[whole.fitted :], self.sizes[whole.fitted :]
        messages[:] = [*whole.messages, *came]
        self.sizes, self.sums = [*whole.sizes, *sizes], []
        self.prompt, self.gave_way = grown(whole.prompt, added_bytes=sum(sizes)), whole.gave_way

    def budget(
        self, settings: Settings, *, config: TurnConfig, trailing: Sequence[str], is_last: bool = False
    ) -> Settings | None:
        """The settings with what the model can still give; None where that is too little for an answer.

        A prompt that is too long only by our guess goes out, once: the provider's count, or its refusal, tells. Not where no
        request is left after a refusal (`is_last`).
        """
        if config.room == "off":
            return settings
        if self.stuck:
            return None
        limits = config.model_limits
        size = self.prompt
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
            return with_budget(settings, budget=found)
        if not knows_window(limits) and not is_last:
            return settings
        if not size.is_counted and not self.overflowed and not is_last:
            usual = split_output(limits, settings=settings, prompt_tokens=size.bytes // USUAL_BYTES_A_TOKEN)
            if isinstance(usual, OutputBudget):
                return with_budget(settings, budget=usual)
            least = answer_floor(limits, settings=settings)
            if size.bytes // LONGEST_BYTES_A_TOKEN + least <= window_of(limits):
                return msgspec.structs.replace(settings, max_output_tokens=least, reasoning_tokens=None)
        self.ends = self.ends or NO_ROOM
        return None

    def counted(self, usage: Usage, *, asking: Asking | None, config: TurnConfig) -> TurnConfig:
        """What a response says of the prompt's true size, and of limits that are wider than was thought."""
        if config.room == "off" or asking is None:
            return config
        if asking.purpose in COUNTS_HISTORY:
            self.largest_bytes = max(self.largest_bytes, self.prompt.bytes)
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
            said = judge_summary(text_of(response.message), finish=response.finish, planned=planned, lost=response.lost)
        if said is None:
            self.ends, said, planned = NO_SUMMARY, LEFT_OUT, left_out(planned)
        else:
            self.begin_step()
        self._keep(planned.shortened, messages=messages)
        self._replace(messages, after=apply_summary(planned=planned, summary=said))

    # what a provider tells

    def learn(self, fault: Fault, *, config: TurnConfig, output_tokens: int | None = None) -> TurnConfig | None:
        """The configuration to ask once more with, where the error is about room and something can be changed: the limits, the
        prompt, or the `output_tokens` that were asked for.

        An overflow of a request for a summary makes the next one smaller, and what it was refused for is said of its part.
        """
        if config.room == "off" or fault.kind not in TELLING or self.corrections >= MAX_CORRECTIONS:
            return None
        told = read_told(fault.message)
        compacts = config.room == "compact"
        is_overflow = compacts and (fault.kind is FaultKind.CONTEXT_OVERFLOW or tells_of_prompt(told))
        is_unsaid = told is None and not is_overflow and compacts and self._may_be_too_long(fault, config=config)
        if told is None and not (is_overflow or is_unsaid):
            return None
        before, limits, asked_bytes = self.prompt, config.model_limits, self._asked_bytes()
        if told is not None:
            limits = corrected(limits, told=told)
            self.prompt = recounted(self.prompt, told=told, asked_bytes=asked_bytes)
        is_news = limits != config.model_limits or self.prompt != before
        if not is_news:
            if not (is_overflow or is_unsaid):
                return None
            asked = self.prompt.tokens
            if asked_bytes is not None:
                asked = asked * asked_bytes // max(1, self.prompt.bytes)
            percent = REFUSED_PERCENT[min(self.refusals, len(REFUSED_PERCENT) - 1)]
            smaller = refused(limits, prompt_tokens=asked, percent=UNSAID_PERCENT if is_unsaid else percent)
            if prompt_capacity(smaller, settings=config.settings) < LEAST_PROMPT_TOKENS:
                if self.refusals or not is_overflow or output_tokens is None or limits.context_window_tokens is None:
                    return None
                # so small a prompt was refused for the output that was asked for with it: half of that, once
                smaller = with_less_room(limits, prompt_tokens=asked, output_tokens=output_tokens)
            self.unproven, limits = self.unproven or limits, smaller
            self.refusals += 1
        self.unanswered, self.planned = self.planned, None
        self.overflowed = self.overflowed or is_overflow or is_unsaid
        if is_unsaid:
            self.unsaid, self.tried_unsaid = fault, True
        fits = self.prompt.tokens <= prompt_capacity(limits, settings=config.settings)
        self.must_shrink = is_overflow and fits and self.prompt == before
        self.no_news = not is_news
        self.corrections += 1
        return with_limits(config, limits=limits)

    def without_refusals(self, config: TurnConfig) -> TurnConfig:
        """The configuration with the limits as they were before refusals without figures, unless an answer came since: less
        was no help, so it was not for the size, and the next turn is not to suffer for it."""
        return config if self.unproven is None else with_limits(config, limits=self.unproven)

    def _asked_bytes(self) -> int | None:
        """The bytes of the request for a summary that is at hand; None where the request at hand holds the whole prompt."""
        if self.planned is None:
            return None
        messages = sum([message_bytes(message) for message in self.planned.asks])
        return self.before_bytes + messages + message_bytes(Message("user", (Text(self.planned.instruction),)))

    def _may_be_too_long(self, fault: Fault, *, config: TurnConfig) -> bool:
        """Whether words that nobody knows may mean that: the prompt is larger than any that went through, and the window is not
        known or half of it taken. To try less, once a turn, is cheaper than a session that can never go on."""
        if self.tried_unsaid or fault.kind is not FaultKind.BAD_REQUEST or fault.status not in UNSAID_STATUSES:
            return False
        limits, tokens = config.model_limits, self.prompt.tokens
        is_large = not knows_window(limits) or tokens * 2 > window_of(limits)
        return is_large and tokens >= UNSAID_TOKENS and self.prompt.bytes > self.largest_bytes

    def _capacity_by_guess(self, config: TurnConfig) -> int:
        """The largest prompt, in tokens of three bytes, where this conversation's have fewer."""
        capacity = prompt_capacity(config.model_limits, settings=config.settings)
        return capacity * GUESSED_DENSITY // self.prompt.density

    def _keep(self, ids: Sequence[str], *, messages: Sequence[Message]) -> None:
        wanted = frozenset(ids) - self.originals.keys()
        for message in messages:
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in wanted:
                    self.originals[part.call_id] = part

    def _replace(self, messages: list[Message], *, after: Sequence[Message]) -> None:
        kept = set(map(id, after))
        self.gone += tuple([message for message in messages if id(message) not in kept])
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
    same = limits is config.model_limits or limits == config.model_limits
    return config if same else msgspec.structs.replace(config, model_limits=limits)
