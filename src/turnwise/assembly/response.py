"""Frames -> one whole `Response`. Feed frames with `receive`, then `finish()` once the stream has ended."""

from collections.abc import Sequence

from turnwise.vocab import Frame, Response

MiB = 1024 * 1024


class Assembler:
    """Collects one response. Deterministic: the same frames give the same response, ids included.

    `tool_names` are the names on offer (they decide where a name could be read in two ways). `taken_ids` are call ids
    that the session has used already; `id_prefix` begins the ids made for calls that came without one or with a taken
    one. `call_bytes` bounds the arguments of one call, `response_bytes` the whole.
    """

    def __init__(
        self,
        *,
        tool_names: frozenset[str] = frozenset(),
        taken_ids: frozenset[str] = frozenset(),
        id_prefix: str = "call",
        call_bytes: int = 8 * MiB,
        response_bytes: int = 64 * MiB,
    ) -> None: ...

    def receive(self, frame: Frame) -> Sequence[Frame]:
        """Take one frame; return the healed frames for whoever watches. Every ToolCallDelta among them has its `block`."""
        ...

    def finish(self) -> Response:
        """The stream has ended: the whole response, with every call's state settled."""
        ...
