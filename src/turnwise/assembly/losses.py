"""What of a response may not have arrived (promise assembly:lost-piece).

A decoder says that an event could not be read; this room decides which blocks may have lost a piece with it. A call that may
have lost a piece never counts as complete, unless the provider says the whole call again. It does not count as truncated
either: a damaged text is no prefix that could be continued.
"""

from collections.abc import Collection

from turnwise.assembly.argument_text import Settled, says_nothing
from turnwise.assembly.blocks import Block
from turnwise.assembly.tool_calls import OpenCall
from turnwise.vocab import ArgumentsState, Lost

LOST_CALL = "an event of the stream could not be read, and it may have been a piece of this call"


class Losses:
    """The losses of one response. `remain` is true while something may be missing."""

    __slots__ = ("_follow", "_gap", "_loose", "_missing", "_some")

    def __init__(self) -> None:
        self._some = False  # any loss at all, mended or not
        self._gap = False  # a loss that no block can be named for
        self._loose = False  # a loss on a wire that may send pieces of a block after its end
        self._missing: set[str] = set()  # blocks that may miss a piece
        self._follow: set[str] = set()  # calls that began after a loss

    @property
    def remain(self) -> bool:
        return self._gap or bool(self._missing)

    def lose(self, frame: Lost, *, blocks: Collection[Block]) -> None:
        """Whatever is still open may miss a piece; where nothing is, what was lost cannot be named."""
        reached = [block.key for block in blocks if frame.reaches_ended or not (block.ended or block.final)]
        self._missing.update(reached)
        self._some = True
        self._loose = self._loose or frame.reaches_ended
        self._gap = self._gap or frame.reaches_ended or not reached

    def begin_call(self, key: str) -> None:
        if self._some:
            self._follow.add(key)

    def say_again(self, key: str) -> None:
        """The provider has said the whole block."""
        self._missing.discard(key)
        self._follow.discard(key)

    def restate(self) -> None:
        """The provider has said or listed everything: no block is missing that it did not speak of."""
        self._gap = False

    def reach(self, block: Block, call: OpenCall) -> bool:
        """Whether a piece of the call may be lost, whatever its arguments look like.

        A call without a name that began after a loss has lost its beginning. So may a call whose pieces were found by guess:
        they may belong to the call that the loss hid.
        """
        key = block.key
        return key in self._missing or (key in self._follow and (not call.name or call.guessed))

    def doubt(self, block: Block, call: OpenCall, settled: Settled, *, unmarked: bool) -> bool:
        """Whether a call that began after a loss may have begun in it, as far as its arguments can tell.

        Where the wire names its blocks, and no piece comes after a block's end, its name is its beginning. Elsewhere a server
        may repeat the name with each piece. Then only the arguments show that their beginning is there: no proper ending of a
        JSON object is a JSON object. But a middle can be one, so the response's end must say that nothing was cut off
        (`unmarked`: it does not).
        """
        if not self._loose or block.key not in self._follow:
            return False
        if call.free_form or unmarked or settled.state is not ArgumentsState.COMPLETE:
            return True
        in_pieces = not call.placed and not call.text.came_at_once  # written by a decoder, so they always look whole
        return in_pieces or says_nothing(settled.arguments)
