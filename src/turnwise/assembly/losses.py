"""What of a response may not have arrived (promise assembly:lost-piece).

A decoder says that an event could not be read; this room decides which blocks may have lost a piece with it. A call that may
have lost one never counts as complete, unless the provider says the whole call again.
"""

from collections.abc import Collection

from turnwise.assembly.blocks import Block
from turnwise.assembly.ends import SILENT
from turnwise.assembly.tool_calls import OpenCall
from turnwise.vocab import Lost

LOST_CALL = "an event of the stream could not be read, and it may have been a piece of this call"


class Losses:
    """The losses of one response. `remain` is true while something may be missing."""

    __slots__ = ("_follow", "_gap", "_loose", "_missing")

    def __init__(self) -> None:
        self._gap = False  # a loss that no block can be named for
        self._loose = False  # a loss on a wire that may send pieces of a block after its end
        self._missing: set[str] = set()  # blocks that may miss a piece
        self._follow: set[str] = set()  # calls that began after a loose loss

    @property
    def remain(self) -> bool:
        return self._gap or bool(self._missing)

    def lose(self, frame: Lost, *, blocks: Collection[Block]) -> None:
        """Whatever is still open may miss a piece; where nothing is, what was lost cannot be named."""
        reached = [block.key for block in blocks if frame.reaches_ended or not (block.ended or block.final)]
        self._missing.update(reached)
        self._loose = self._loose or frame.reaches_ended
        self._gap = self._gap or frame.reaches_ended or not reached

    def begin_call(self, key: str) -> None:
        if self._loose:
            self._follow.add(key)

    def say_again(self, key: str) -> None:
        """The provider has said the whole block."""
        self._missing.discard(key)
        self._follow.discard(key)

    def restate(self) -> None:
        """The provider has said or listed everything: no block is missing that it did not speak of."""
        self._gap = False

    def reach(self, block: Block, call: OpenCall) -> bool:
        """Whether a piece of the call may be lost.

        A call that began after a loss may miss its beginning where the wire does not name its blocks. An object that holds
        something cannot: no proper ending of a JSON object is a JSON object, so its beginning is there.
        """
        if not self.remain:
            return False
        if block.key in self._missing or not call.name:
            return True
        if block.key not in self._follow:
            return False
        return call.wire_id is None or call.free_form or call.text.joined().strip() in SILENT
