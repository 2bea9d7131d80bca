"""The calls that pieces go to at the moment."""

from turnwise.assembly.blocks import OpenBlock
from turnwise.assembly.tool_calls import OpenCall


class CallAtHand:
    """The call that the last piece without a block went to, and the index that the piece stood on. `call` is None where the next
    such piece has to be placed anew."""

    __slots__ = ("block", "call", "index")

    def __init__(self) -> None:
        self.block: OpenBlock | None = None
        self.call: OpenCall | None = None
        self.index: int | None = None

    def take(self, block: OpenBlock, call: OpenCall, *, index: int | None) -> None:
        self.block = block
        self.call = call
        self.index = index

    def leave(self) -> None:
        self.block = self.call = self.index = None


class WrittenCalls:
    """Which calls were written to: `last` of all, and those since watchers were shown how the calls stand. `touched` is the same
    as `last` if it is among these."""

    __slots__ = ("_since", "last", "touched")

    def __init__(self) -> None:
        self.last: OpenBlock | None = None
        self.touched: OpenBlock | None = None
        self._since: dict[str, OpenCall] = {}

    def touch(self, block: OpenBlock, call: OpenCall) -> None:
        """The call is being written to."""
        self.last = self.touched = block
        self._since[block.key] = call

    def release(self, key: str) -> None:
        """Watchers were shown how the call of this block stands."""
        self._since.pop(key, None)
        self.touched = None

    def release_all(self) -> dict[str, OpenCall]:
        """Watchers are about to be shown how these calls stand, by block."""
        since, self._since = self._since, {}
        self.touched = None
        return since
