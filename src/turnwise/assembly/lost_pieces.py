"""What of a response may not have arrived (promise assembly:lost-piece).

A decoder says that an event could not be read; this room decides which blocks may have lost a piece with it. A call that may
have lost a piece never counts as complete, unless the provider says the whole call again. It does not count as truncated
either: a damaged text is no prefix that could be continued.
"""

from collections.abc import Collection

from turnwise.assembly.blocks import OpenBlock
from turnwise.assembly.tool_calls import OpenCall
from turnwise.vocab import Lost

LOST_CALL = "an event of the stream could not be read, and it may have been a piece of this call"


class Losses:
    """The losses of one response. `any` holds once there was one, `remain` while something may be missing."""

    __slots__ = ("_follow", "_gap", "_loose", "_missing", "_torn", "any")

    def __init__(self) -> None:
        self.any = False
        self._gap = False  # a loss that no block can be named for
        self._loose = False  # a loss on a wire that may send pieces of a block after its end
        self._missing: set[str] = set()  # blocks that may miss a piece
        self._torn: set[str] = set()  # blocks that miss half of a character
        self._follow: set[str] = set()  # calls that began after a loss

    @property
    def remain(self) -> bool:
        return self._gap or bool(self._missing or self._torn)

    def lose(self, frame: Lost, *, blocks: Collection[OpenBlock]) -> None:
        """Whatever is still open may miss a piece; where nothing is, what was lost cannot be named."""
        reached = [block.key for block in blocks if frame.reaches_ended or not (block.ended or block.final)]
        self._missing.update(reached)
        self.any = True
        self._loose = self._loose or frame.reaches_ended
        self._gap = self._gap or frame.reaches_ended or not reached

    def tear(self, key: str) -> None:
        """Half of a character arrived in the block, and the other half did not."""
        self._torn.add(key)

    def begin_call(self, key: str) -> None:
        if self.any:
            self._follow.add(key)

    def say_again(self, key: str) -> None:
        """The provider has said the whole block."""
        self._missing.discard(key)
        self._torn.discard(key)
        self._follow.discard(key)

    def restate(self) -> None:
        """The provider has said or listed everything: no block is missing that it did not speak of."""
        self._gap = False

    def reach(self, block: OpenBlock, call: OpenCall) -> bool:
        """Whether a piece of the call may be lost, whatever its arguments look like.

        A call without a name that began after a loss has lost its beginning. So may a call whose pieces were found by guess:
        they may belong to the call that the loss hid.
        """
        key = block.key
        return key in self._missing or (key in self._follow and (not call.name or call.guessed))

    def is_torn(self, block: OpenBlock) -> bool:
        return block.key in self._torn

    def doubt(self, block: OpenBlock) -> bool:
        """Whether the call may have begun in a loss, so that something has to show that its beginning is there. Where the
        wire names its blocks, and no piece comes after a block's end, its name shows it."""
        return self._loose and block.key in self._follow
