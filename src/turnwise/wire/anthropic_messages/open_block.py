"""A block of a message while it is coming."""

from turnwise.wire.json_fields import Fields


class OpenBlock:
    """A block that began and has not ended. `held` is the `input` that came whole with its start, "" where none did; None
    once deltas bring it."""

    __slots__ = ("block", "fields", "held", "is_item", "pieces", "told")

    def __init__(self, fields: Fields, *, block: str, is_item: bool) -> None:
        self.fields = fields
        self.block = block
        self.is_item = is_item
        self.held: str | None = ""
        self.pieces: list[str] = []
        self.told = False  # the item's PartDone is out

    def take_deltas(self) -> None:
        """Deltas bring the input: what came with the start does not count."""
        self.held = None
