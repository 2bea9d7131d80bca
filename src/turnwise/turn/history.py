"""The history of a turn: what its requests carry, what it adds to the session, and how much that is.

It grows at its end, but for three changes: older messages give way (a summary, shortened results), a pause is reduced to its
text, results are joined to those that were handed in. It is not copied, as that would make a long turn quadratic.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec

from turnwise.rules.budget import PromptSize, grown, measured, message_bytes
from turnwise.rules.compaction import resized, weighed
from turnwise.turn.approvals import OneAsk
from turnwise.turn.pending_calls import joined_results, under_known_ids, with_asks
from turnwise.vocab import Message, Text, ToolResult, Usage
from turnwise.vocab.hidden_characters import says_something


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """The history as it is, while the answer's request carries less of it in `fitted` messages."""

    messages: tuple[Message, ...]
    sizes: tuple[int, ...]
    prompt: PromptSize
    gave_way: bool
    fitted: int


class History(msgspec.Struct, kw_only=True):
    """`messages` is what requests carry, healed once and then appended to; `added` what this turn brings to the session.

    Messages are weighed when somebody asks: `sizes` are the bytes of the first of them, `sums` those up to each, and `prompt` is
    the size of these with system and tools, of which `before_bytes` stand before the messages.
    """

    messages: list[Message]
    added: list[Message]
    call_ids: set[str]
    prompt: PromptSize
    before_bytes: int
    sizes: list[int] = []
    sums: list[int] = []
    known_as: dict[str, str] = {}  # the ids that the session knows, of calls whose ids healing changed
    originals: dict[str, ToolResult]  # whole results that were shortened, by call id
    gone: tuple[Message, ...] = ()  # messages that were summarised or shortened, as they were
    inbox: tuple[Message, ...] = ()  # words in mid-turn that no request carries yet
    paused: bool = False  # the last message is the provider's paused content
    changed: bool = False  # since the last request: the next one begins otherwise
    gave_way: bool = False  # it is no longer all that was said
    whole: Whole | None = None  # the messages hold less than the history, for the answer's request

    @property
    def left_out(self) -> tuple[Message, ...]:
        """What was said and does not stand in the messages any more as it was said."""
        return self.gone if self.whole is None else (*self.gone, *self.whole.messages)

    def open(
        self, messages: Sequence[Message], *, added: Sequence[Message], known_as: Mapping[str, str], is_shorter: bool
    ) -> None:
        """The turn begins with these messages. `is_shorter`: the last one is not as it was weighed."""
        if is_shorter:
            self._forget(len(self.messages) - 1)
        self.messages[:] = messages
        self.added[:] = added
        self.known_as.update(known_as)

    # what it weighs

    def weigh(self) -> None:
        """Take in the messages that came since."""
        if len(self.sizes) < len(self.messages):
            sizes = [message_bytes(message) for message in self.messages[len(self.sizes) :]]
            self.sizes += sizes
            self.prompt = grown(self.prompt, added_bytes=sum(sizes))

    def bytes_from(self, place: int) -> int:
        """The bytes of the messages from `place` on: those that came since are weighed, the others known by their sum."""
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
        """The provider has told the prompt's size when it refused it."""
        self.prompt = prompt

    # its end

    def append(self, message: Message, *, paused: bool = False) -> None:
        """`paused`: the provider wants it back to go on."""
        self.messages.append(message)
        self.added.append(message)
        self.paused = paused

    def append_results(self, message: Message) -> None:
        """Behind those that were handed in for other calls of the same response they are one message with them."""
        known = under_known_ids(message, known_as=self.known_as)
        if self.messages[-1].role != "tool":
            self.append(message)
            self.added[-1] = known
            return
        self.added.append(known)
        handed_in = self._take_last()
        self.messages.append(joined_results(handed_in, message, asked=self.messages[-1]))

    def settle_pause(self) -> None:
        """A paused response that nothing will continue keeps its text only: what the provider had begun cannot be ended."""
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
        """The weights of what stands behind so many messages."""
        sizes = self.sizes[:kept]
        if len(sizes) < len(self.sizes):
            self.prompt = weighed(self.prompt, sizes=self.sizes, sizes_now=sizes)
            self.sizes = sizes
            del self.sums[kept:]

    # words in mid-turn, ids, marks

    def take_ids(self, ids: Collection[str]) -> None:
        self.call_ids.update(ids)

    def put_by(self, messages: Sequence[Message]) -> None:
        """Keep words for the next request."""
        self.inbox = (*self.inbox, *messages)

    def read_inbox(self) -> None:
        """Take up the words that came in mid-turn."""
        inbox, self.inbox = self.inbox, ()
        for message in inbox:
            self.append(message)

    def mark(self, asks: Sequence[OneAsk]) -> None:
        """Say what was shown of the calls that wait for a person (promise wait:ask): nobody else can tell that they have not
        run."""
        self.messages[:] = with_asks(self.messages, asks=asks)
        self.added[:] = with_asks(self.added, asks=asks)

    # what gives way

    def keep_whole(self, originals: Mapping[str, ToolResult]) -> None:
        """Results that stand shortened in the history from their first day on."""
        self.originals.update(originals)

    def give_way(self, after: Sequence[Message], *, shortened: Sequence[str]) -> None:
        """These messages stand for all until now; those of the results in them that were `shortened` (ids of calls) are kept
        whole aside."""
        wanted = frozenset(shortened) - self.originals.keys()
        for message in self.messages:
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in wanted:
                    self.originals[part.call_id] = part
        kept = set(map(id, after))
        self.gone += tuple([message for message in self.messages if id(message) not in kept])
        self._replace(after)

    def fit(self, after: Sequence[Message]) -> None:
        """The answer's request carries these messages only, until `put_back`."""
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
        """Make `messages` the whole history again, with what has come since."""
        whole, self.whole = self.whole, None
        if whole is None:
            return
        self.weigh()
        came, sizes = self.messages[whole.fitted :], self.sizes[whole.fitted :]
        self.messages[:] = [*whole.messages, *came]
        self.sizes, self.sums = [*whole.sizes, *sizes], []
        self.prompt, self.gave_way = grown(whole.prompt, added_bytes=sum(sizes)), whole.gave_way

    def goes_out(self, *, changed: bool = False) -> None:
        """A request leaves with it; or (`changed`) one that does not begin with all of it is about to."""
        self.changed = changed

    def _replace(self, after: Sequence[Message]) -> None:
        sizes = resized(self.sizes, before=self.messages, after=after)
        self.prompt = weighed(self.prompt, sizes=self.sizes, sizes_now=sizes)
        self.sizes, self.sums = sizes, []
        self.messages[:] = after
        self.changed = self.gave_way = True
