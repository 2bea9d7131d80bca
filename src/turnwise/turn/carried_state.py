"""What a session's turns hand on to one another, so that none begins with what an earlier one had summarised.

Beside the messages it is the work that is done on them already: they are healed, weighed and counted once, not in every turn.
"""

from collections.abc import Sequence

import msgspec

from turnwise.rules.bound_thinking import NOTHING_STALE, StaleThinking
from turnwise.rules.budget import ModelLimits, PromptSize, grown, request_bytes
from turnwise.rules.compaction import weighed
from turnwise.rules.history import Healed, heal
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import TurnStarted
from turnwise.turn.history import History
from turnwise.turn.request_plan import Sent
from turnwise.vocab import Message, Repair, ServerLesson, Text, ToolResult, ToolSpec, calls_of, new_tool, new_tools_in

CHANGED_SYSTEM = Text(
    "The instructions have changed. From now on those of this message hold in place of all earlier ones.\n\n",
    note="instructions",
)
NO_SYSTEM = Text("The instructions have been removed. None of the earlier ones hold any more.\n\n", note="instructions")


class LeftHistory(msgspec.Struct, frozen=True, kw_only=True):
    """How a turn left its history: `messages` as its next request would have carried them, healed for `config`.

    `sizes` are the bytes of the first of them, `prompt` the size of these with system and tools. `given_limits` are the
    model's limits that the turn began with; those of `config` hold what its provider told since.
    """

    messages: Sequence[Message]
    sizes: Sequence[int]
    prompt: PromptSize
    config: TurnConfig
    given_limits: ModelLimits

    def is_healed_for(self, config: TurnConfig) -> bool:
        return (self.config.family, self.config.tools) == (config.family, config.tools)

    def is_counted_for(self, config: TurnConfig) -> bool:
        before = self.config
        return self.is_healed_for(config) and (before.model, before.system) == (config.model, config.system)


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """What the next turn of a session starts from.

    `messages` are all that were said, until a turn makes room: then what its summaries and shortened results left of them.
    `originals` are the whole results of shortened ones, by call id; `gone` are the messages that gave way, as they were.
    `call_ids` are those that the session has used, the ones of messages that are gone too. `gave_way`: some are. Without
    `left` the messages are healed and weighed anew. `words` are the user's of a turn that was killed while calls waited:
    behind them these could not be answered any more, so the next turn begins with them. `sent` is the last request that left;
    `changed`: the next one begins otherwise than with its messages, because room was made. `adapted` is what the session was told
    of settings that do not go to their model as they were set, `told_system` the instructions that stand behind messages.
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
        """The configuration with what earlier turns learned of stale thinking and of what a server refuses, and with the limits
        that the provider told one of them, where it is the same model's."""
        if config.stale_thinking == NOTHING_STALE:
            config = config.without_stale(self.stale_thinking)
        if self.lessons:
            config = config.with_lessons(self.lessons)
        # Instructions that move change the prefix, which costs the reasoning behind them: after a summary there is none.
        before = None if self.sent is None else self.sent.request
        if config.system_in_input and before is not None and not self.gave_way and before.model == config.model:
            config = config.with_system_in_input(before.system_in_input)
        if before is not None and before.model == config.model:
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
        """Whether the instructions of before go out again, and what changed of them behind the messages."""
        before = None if self.sent is None else self.sent.request
        return config.system_in_input and before is not None and before.system_in_input and before.model == config.model

    @property
    def _first_system(self) -> tuple[Text, ...]:
        return () if self.sent is None else self.sent.request.system

    def with_system(self, started: TurnStarted, *, config: TurnConfig) -> TurnStarted:
        """What the next turn starts with: other instructions than the model knows are told behind the messages, where those of
        before stay (`config` is fitted), and where the messages hold some that were told so."""
        first = self._first_system if self._keeps_system(config) else None
        known = first if self.told_system is None else self.told_system
        if known is None or known == started.config.system:
            return started
        now = started.config.system
        return _behind_results(started, (Message("system", (CHANGED_SYSTEM, *now) if now else (NO_SYSTEM,)),))

    def _appends(self, config: TurnConfig) -> bool:
        before = None if self.sent is None else self.sent.request
        return config.appends_tools and before is not None and before.model == config.model

    def with_tools(self, started: TurnStarted, *, config: TurnConfig) -> TurnStarted:
        """What the next turn starts with: tools that the last turn did not have are told behind the messages, where the model
        takes them there (`config` is fitted) and those that it had are the same."""
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
        """What the next turn starts with: `words` are part of its input, behind the results that it begins with."""
        return _behind_results(started, self.words) if self.words else started

    def begin(self, new: Sequence[Message], *, config: TurnConfig) -> tuple[Healed, History]:
        """The messages with `new` behind them as `config` may send them, and the history of a turn that starts with them.

        What a turn left healed and weighed stays as it is up to the last of the user's messages: what is open stands
        behind that.
        """
        before_bytes = request_bytes(system=config.system, tools=[offer.spec for offer in config.tools])
        prompt = PromptSize(added_bytes=before_bytes)
        left = self.left
        if left is None or not left.is_healed_for(config):
            taken = self.call_ids - _ids_in(self.messages) if self.gave_way else ()
            healed = heal((*self.messages, *new), family=config.family, taken_ids=taken)
            return healed, self._history(healed, prompt=prompt, before_bytes=before_bytes)
        before = left.messages
        start = next((at for at in range(len(before) - 1, -1, -1) if before[at].role == "user"), 0)
        behind = before[start:]
        taken = self.call_ids - _ids_in(behind)
        healed = heal((*behind, *new), family=config.family, taken_ids=taken)
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
    """The turn's input with these words in front of what it says, and behind the results that it begins with."""
    given = started.input
    at = next((place for place, message in enumerate(given) if message.role != "tool"), len(given))
    return msgspec.structs.replace(started, input=(*given[:at], *words, *given[at:]))


def _may_append(config: TurnConfig, new: tuple[ToolSpec, ...], *, had: tuple[ToolSpec, ...]) -> bool:
    """Claude takes some of a provider's own tools in front alone, and behind no tool in front none without reading all anew (API
    docs, "Define tools in a message")."""
    return config.family != "anthropic_messages" or (bool(had) and all(spec.opaque is None for spec in new))


def _in_order(offers: tuple[ToolOffer, ...], *, before: tuple[ToolOffer, ...]) -> tuple[ToolOffer, ...]:
    """Those of `before` in their order, and the others behind them."""
    places = {offer.spec.name: place for place, offer in enumerate(before)}
    return tuple(sorted(offers, key=lambda offer: places.get(offer.spec.name, len(places))))


def _specs(offers: tuple[ToolOffer, ...]) -> tuple[ToolSpec, ...]:
    return tuple([offer.spec for offer in offers])


def carried_of(earlier: "Sequence[Message] | Carried") -> Carried:
    if isinstance(earlier, Carried):
        return earlier
    return Carried(messages=tuple(earlier), told_system=told_system_in(earlier))


def told_system_in(messages: Sequence[Message]) -> tuple[Text, ...] | None:
    """The instructions that were told last behind messages; None: none were."""
    for message in reversed(messages):
        if message.role == "system" and message.parts and message.parts[0] in (CHANGED_SYSTEM, NO_SYSTEM):
            return tuple([part for part in message.parts[1:] if isinstance(part, Text)])
    return None


def _same_beginning(before: Sequence[Message], *, messages: Sequence[Message]) -> int:
    """How many of the messages `before` stand at the beginning of `messages`: healing keeps the ones that it does not change."""
    for place, (old, new) in enumerate(zip(before, messages, strict=False)):
        if old is not new:
            return place
    return min(len(before), len(messages))


def _ids_in(messages: Sequence[Message]) -> set[str]:
    return {call.id for message in messages for call in calls_of(message)}
