"""The history of a turn: what its requests carry, what it adds to the session, and its size.

It grows at its end, with three exceptions: older messages give way (a summary, shortened results), a pause is reduced to its
text, new results join those that were handed in. It is not copied, because copies would make a long turn quadratic.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from turnwise.rules.compaction import resized, weighed
from turnwise.rules.history import NOTHING_STALE, Healed, StaleThinking, heal
from turnwise.rules.prompt_room import ModelLimits, PromptSize, grown, measured, message_bytes, request_bytes
from turnwise.turn.config import OneAsk, ToolOffer, TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.turn.programs import joined_results, under_known_ids, with_asks
from turnwise.turn.request_plan import Sent
from turnwise.vocab import (
    Message,
    Repair,
    Request,
    ServerLesson,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
    new_tool,
    new_tools_in,
)
from turnwise.vocab.hidden_characters import says_something


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The whole history, while the answer's request carries less of it in `fitted` messages."""

    messages: tuple[Message, ...]
    sizes: tuple[int, ...]
    prompt: PromptSize
    gave_way: bool
    fitted: int


class History(msgspec.Struct, kw_only=True):
    """`messages` is what requests carry, healed once and then appended to. `added` is what this turn brings to the session.

    Messages are weighed when somebody asks. `sizes` are the bytes of the first messages, `sums` those up to each of them.
    `prompt` is the size of these messages with system and tools, of which `before_bytes` come before the messages.
    """

    messages: list[Message]
    added: list[Message]
    call_ids: set[str]
    prompt: PromptSize
    before_bytes: int
    sizes: list[int] = []
    sums: list[int] = []
    known_as: dict[str, str] = {}  # the session's ids of calls whose ids healing changed
    originals: dict[str, ToolResult]  # whole results that were shortened, by call id
    gone: tuple[Message, ...] = ()  # messages that were summarised or shortened, in their original form
    inbox: tuple[Message, ...] = ()  # messages in mid-turn that no request carries yet
    paused: bool = False  # the last message is the provider's paused content
    changed: bool = False  # since the last request: the next one begins differently
    gave_way: bool = False  # it is no longer everything that was said
    whole: Whole | None = None  # for the answer's request, the messages hold less than the history

    @property
    def left_out(self) -> tuple[Message, ...]:
        """Messages that are no longer in the history in their original form."""
        return self.gone if self.whole is None else (*self.gone, *self.whole.messages)

    def open(
        self, messages: Sequence[Message], *, added: Sequence[Message], known_as: Mapping[str, str], is_shorter: bool
    ) -> None:
        """The turn begins with these messages. `is_shorter`: the last one has changed since it was weighed."""
        if is_shorter:
            self._forget(len(self.messages) - 1)
        self.messages[:] = messages
        self.added[:] = added
        self.known_as.update(known_as)

    # its weight

    def weigh(self) -> None:
        """Weigh the messages that came since."""
        if len(self.sizes) < len(self.messages):
            sizes = [message_bytes(message) for message in self.messages[len(self.sizes) :]]
            self.sizes += sizes
            self.prompt = grown(self.prompt, added_bytes=sum(sizes))

    def bytes_from(self, place: int) -> int:
        """The bytes of the messages from `place` on. New messages are weighed; the sums of the others are known."""
        self.weigh()
        for size in self.sizes[len(self.sums) :]:
            self.sums.append(size + (self.sums[-1] if self.sums else 0))
        if place >= len(self.sums):
            return 0
        return self.sums[-1] - (self.sums[place - 1] if place else 0)

    def count(self, usage: Usage) -> None:
        """The provider has counted the prompt."""
        self.prompt = measured(self.prompt, usage=usage)

    def recount(self, prompt: PromptSize) -> None:
        """The provider has told the prompt's size while refusing it."""
        self.prompt = prompt

    # its end

    def append(self, message: Message, *, paused: bool = False) -> None:
        """Add a message. `paused`: the provider wants it back in order to continue."""
        self.messages.append(message)
        self.added.append(message)
        self.paused = paused

    def append_results(self, message: Message) -> None:
        """Add results. If the last message holds handed-in results of the same response, they become one message."""
        known = under_known_ids(message, known_as=self.known_as)
        if self.messages[-1].role != "tool":
            self.append(message)
            self.added[-1] = known
            return
        self.added.append(known)
        handed_in = self._take_last()
        self.messages.append(joined_results(handed_in, message, asked=self.messages[-1]))

    def settle_pause(self) -> None:
        """Reduce a paused response that nothing will continue to its text: what the provider had begun cannot be finished."""
        if not self.paused:
            return
        self.paused = False
        parts = self.messages[-1].parts
        kept = tuple([part for part in parts if isinstance(part, Text) and says_something(part.text)])
        if kept == parts:
            return
        self._take_last()
        self.added.pop()
        if kept:
            self.append(Message("assistant", kept))

    def _take_last(self) -> Message:
        last = self.messages.pop()
        self._forget(len(self.messages))
        return last

    def _forget(self, kept: int) -> None:
        """Forget the weights of all messages after so many."""
        sizes = self.sizes[:kept]
        if len(sizes) < len(self.sizes):
            self.prompt = weighed(self.prompt, sizes=self.sizes, sizes_now=sizes)
            self.sizes = sizes
            del self.sums[kept:]

    # messages in mid-turn, ids, marks

    def take_ids(self, ids: Collection[str]) -> None:
        self.call_ids.update(ids)

    def put_by(self, messages: Sequence[Message]) -> None:
        """Keep messages for the next request."""
        self.inbox = (*self.inbox, *messages)

    def read_inbox(self) -> None:
        """Take up the messages that came in mid-turn."""
        inbox, self.inbox = self.inbox, ()
        for message in inbox:
            self.append(message)

    def mark(self, asks: Sequence[OneAsk]) -> None:
        """Record what was shown of the calls that wait for a person (promise wait:ask): otherwise nobody could tell that they did
        not run."""
        self.messages[:] = with_asks(self.messages, asks=asks)
        self.added[:] = with_asks(self.added, asks=asks)

    # what gives way

    def keep_whole(self, originals: Mapping[str, ToolResult]) -> None:
        """Keep the whole form of results that are shortened in the history from the beginning."""
        self.originals.update(originals)

    def give_way(self, after: Sequence[Message], *, shortened: Sequence[str]) -> None:
        """From now on these messages replace all others. The whole form of the results that were `shortened` (ids of calls) is
        kept."""
        wanted = frozenset(shortened) - self.originals.keys()
        for message in self.messages:
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in wanted:
                    self.originals[part.call_id] = part
        kept = set(map(id, after))
        self.gone += tuple([message for message in self.messages if id(message) not in kept])
        self._replace(after)

    def fit(self, after: Sequence[Message]) -> None:
        """The answer's request carries only these messages, until `put_back`."""
        whole = Whole(
            messages=tuple(self.messages),
            sizes=tuple(self.sizes),
            prompt=self.prompt,
            gave_way=self.gave_way,
            fitted=len(after),
        )
        self._replace(after)
        self.whole = whole

    def put_back(self) -> None:
        """Make `messages` the whole history again, with everything that has come since."""
        whole, self.whole = self.whole, None
        if whole is None:
            return
        self.weigh()
        came, sizes = self.messages[whole.fitted :], self.sizes[whole.fitted :]
        self.messages[:] = [*whole.messages, *came]
        self.sizes, self.sums = [*whole.sizes, *sizes], []
        self.prompt, self.gave_way = grown(whole.prompt, added_bytes=sum(sizes)), whole.gave_way

    def goes_out(self, *, changed: bool = False) -> None:
        """A request leaves with it; or (`changed`) a request is about to leave that does not begin with all of it."""
        self.changed = changed

    def _replace(self, after: Sequence[Message]) -> None:
        sizes = resized(self.sizes, before=self.messages, after=after)
        self.prompt = weighed(self.prompt, sizes=self.sizes, sizes_now=sizes)
        self.sizes, self.sums = sizes, []
        self.messages[:] = after
        self.changed = self.gave_way = True


# What a session's turns pass on, so that no turn begins with messages that an earlier turn had summarised.
#
# Beside the messages, this is the work that was done on them: they are healed, weighed and counted once, not in every turn.


CHANGED_SYSTEM = Text(
    "The instructions have changed. From now on those of this message hold in place of all earlier ones.\n\n",
    note="instructions",
)
NO_SYSTEM = Text("The instructions have been removed. None of the earlier ones hold any more.\n\n", note="instructions")


class LeftHistory(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn left its history: `messages` as its next request would have carried them, healed for `config`.

    `sizes` are the bytes of the first messages, `prompt` the size of these with system and tools. `given_limits` are the model's
    limits that the turn began with; those of `config` include what its provider has told since.
    """

    messages: Sequence[Message]
    sizes: Sequence[int]
    prompt: PromptSize
    config: TurnConfig
    given_limits: ModelLimits

    def is_healed_for(self, config: TurnConfig) -> bool:
        before = self.config
        return (before.family, before.traits, before.tools) == (config.family, config.traits, config.tools)

    def is_counted_for(self, config: TurnConfig) -> bool:
        before = self.config
        return self.is_healed_for(config) and (before.model, before.system) == (config.model, config.system)


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What the next turn of a session starts from.

    `messages` are everything that was said, until a turn makes room: then they have its summaries and shortened results.
    `originals` are the whole forms of shortened results, by call id. `gone` are the messages that gave way, in their original
    form. `call_ids` are those that the session has used, also in messages that are gone. `gave_way`: some messages are gone.
    Without `left`, the messages are healed and weighed again. `words` are the user's messages from a turn that was killed while
    calls waited: after them these calls could not be answered any more, so the next turn begins with them. `sent` is the last
    request that left; `changed`: the next one does not begin with its messages, because room was made. `adapted` is what the
    session was told about settings that go to the model in another form. `told_system` are the instructions that come after
    messages.
    """

    messages: Sequence[Message] = ()
    left: LeftHistory | None = None
    originals: dict[str, ToolResult] = {}
    gone: tuple[Message, ...] = ()
    call_ids: frozenset[str] = frozenset()
    gave_way: bool = False
    words: tuple[Message, ...] = ()
    sent: Sent | None = None
    changed: bool = False
    stale_thinking: StaleThinking = NOTHING_STALE
    adapted: frozenset[Repair] = frozenset()
    told_system: tuple[Text, ...] | None = None
    lessons: dict[str, tuple[ServerLesson, ...]] = {}

    def fit(self, config: TurnConfig) -> TurnConfig:
        """The configuration with what earlier turns learned about stale thinking and about a server's refusals. If the model is
        the same, it also has the limits that the provider told an earlier turn."""
        if config.stale_thinking == NOTHING_STALE:
            config = config.without_stale(self.stale_thinking)
        if self.lessons:
            config = config.with_lessons(self.lessons)
        # Moved instructions change the prefix, which costs the reasoning behind them: after a summary there is none.
        before = self._sent_to_same(config)
        if config.system_in_input and before is not None and not self.gave_way:
            config = config.with_system_in_input(before.system_in_input)
        if before is not None:
            config = config.with_thinking_shown(before.shows_thinking)
        if self._keeps_system(config):
            config = config.with_system(self._first_system)
        left = self.left
        if left is not None and self._appends(config):
            config = config.with_tools(_in_order(config.tools, before=left.config.tools))
        if left is None or config.room == "off" or not left.is_counted_for(config):
            return config
        if left.given_limits != config.model_limits or left.config.model_limits == config.model_limits:
            return config
        return config.with_limits(left.config.model_limits)

    def _keeps_system(self, config: TurnConfig) -> bool:
        """Whether the earlier instructions are sent again, with their changes after the messages."""
        before = self._sent_to_same(config)
        return config.system_in_input and before is not None and before.system_in_input

    def _sent_to_same(self, config: TurnConfig) -> Request | None:
        """The last request, if it went to the same model."""
        before = None if self.sent is None else self.sent.request
        return before if before is not None and before.model == config.model else None

    @property
    def _first_system(self) -> tuple[Text, ...]:
        return () if self.sent is None else self.sent.request.system

    def with_system(self, started: TurnStarted, *, config: TurnConfig) -> TurnStarted:
        """What the next turn starts with. If the earlier instructions stay (`config` is fitted), or the messages already hold
        instructions, changed instructions are told after the messages."""
        first = self._first_system if self._keeps_system(config) else None
        known = first if self.told_system is None else self.told_system
        if known is None or known == started.config.system:
            return started
        now = started.config.system
        return _behind_results(started, (Message("system", (CHANGED_SYSTEM, *now) if now else (NO_SYSTEM,)),))

    def _appends(self, config: TurnConfig) -> bool:
        return config.appends_tools and self._sent_to_same(config) is not None

    def with_tools(self, started: TurnStarted, *, config: TurnConfig) -> TurnStarted:
        """What the next turn starts with. Tools that the last turn did not have are told after the messages, if the model accepts
        them there (`config` is fitted) and the earlier tools are the same."""
        left = self.left
        if left is None or not self._appends(config):
            return started
        had, has = _specs(left.config.tools), _specs(config.tools)
        if has[: len(had)] != had or len(has) == len(had) or not _may_append(config, has[len(had) :], had=had):
            return started
        told = new_tools_in(*self.messages)
        new = [spec.name for spec in has[len(had) :] if spec.name not in told]
        return _behind_results(started, (Message("system", tuple(map(new_tool, new))),)) if new else started

    def with_words(self, started: TurnStarted) -> TurnStarted:
        """What the next turn starts with: `words` become part of its input, after the results that it begins with."""
        return _behind_results(started, self.words) if self.words else started

    def begin(self, new: Sequence[Message], *, config: TurnConfig) -> tuple[Healed, History]:
        """The messages followed by `new` as `config` may send them, and the history of a turn that starts with them.

        Messages that a turn left healed and weighed stay unchanged up to the last of the user's messages: what is open comes
        after that.
        """
        before_bytes = request_bytes(system=config.system, tools=[offer.spec for offer in config.tools])
        prompt = PromptSize(added_bytes=before_bytes)
        left = self.left
        if left is None or not left.is_healed_for(config):
            taken = self.call_ids - _ids_in(self.messages) if self.gave_way else ()
            healed = heal((*self.messages, *new), family=config.family, traits=config.traits, taken_ids=taken)
            return healed, self._history(healed, prompt=prompt, before_bytes=before_bytes)
        before = left.messages
        start = next((at for at in range(len(before) - 1, -1, -1) if before[at].role == "user"), 0)
        behind = before[start:]
        taken = self.call_ids - _ids_in(behind)
        healed = heal((*behind, *new), family=config.family, traits=config.traits, taken_ids=taken)
        known = min(len(left.sizes), start + _same_beginning(behind, messages=healed.messages))
        sizes = list(left.sizes[:known])
        if not left.is_counted_for(config):
            prompt = grown(prompt, added_bytes=sum(sizes))
        elif known == len(left.sizes):
            prompt = left.prompt
        else:
            prompt = weighed(left.prompt, sizes=left.sizes, sizes_now=sizes)
        whole = Healed((*before[:start], *healed.messages), healed.repairs, healed.call_ids)
        return whole, self._history(whole, prompt=prompt, before_bytes=before_bytes, sizes=sizes)

    def _history(self, healed: Healed, *, prompt: PromptSize, before_bytes: int, sizes: Sequence[int] = ()) -> History:
        return History(
            messages=list(healed.messages),
            added=[],
            call_ids=set(healed.call_ids),
            prompt=prompt,
            before_bytes=before_bytes,
            sizes=list(sizes),
            originals=dict(self.originals),
            gone=self.gone,
        )


def _behind_results(started: TurnStarted, words: Sequence[Message]) -> TurnStarted:
    """The turn's input with these words before its text, and after the results that it begins with."""
    given = started.input
    at = next((place for place, message in enumerate(given) if message.role != "tool"), len(given))
    return msgspec.structs.replace(started, input=(*given[:at], *words, *given[at:]))


def _may_append(config: TurnConfig, new: tuple[ToolSpec, ...], *, had: tuple[ToolSpec, ...]) -> bool:
    """Claude takes some of a provider's own tools only in front. Without any tool in front, a tool behind the messages makes it
    read everything again (API docs, "Define tools in a message")."""
    return not config.traits.plain_tools_behind or (bool(had) and all(spec.opaque is None for spec in new))


def _in_order(offers: tuple[ToolOffer, ...], *, before: tuple[ToolOffer, ...]) -> tuple[ToolOffer, ...]:
    """The tools of `before` in their old order, then the others."""
    places = {offer.spec.name: place for place, offer in enumerate(before)}
    return tuple(sorted(offers, key=lambda offer: places.get(offer.spec.name, len(places))))


def _specs(offers: tuple[ToolOffer, ...]) -> tuple[ToolSpec, ...]:
    return tuple([offer.spec for offer in offers])


def carried_of(earlier: "Sequence[Message] | Carried") -> Carried:
    if isinstance(earlier, Carried):
        return earlier
    return Carried(messages=tuple(earlier), told_system=told_system_in(earlier))


def told_system_in(messages: Sequence[Message]) -> tuple[Text, ...] | None:
    """The last instructions that were told after messages; None: there are none."""
    for message in reversed(messages):
        if message.role == "system" and message.parts and message.parts[0] in (CHANGED_SYSTEM, NO_SYSTEM):
            return tuple([part for part in message.parts[1:] if isinstance(part, Text)])
    return None


def _same_beginning(before: Sequence[Message], *, messages: Sequence[Message]) -> int:
    """How many of the messages `before` are at the beginning of `messages`: healing keeps the messages that it does not
    change."""
    for place, (old, new) in enumerate(zip(before, messages, strict=False)):
        if old is not new:
            return place
    return min(len(before), len(messages))


def _ids_in(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages for call in calls_of(message)}
