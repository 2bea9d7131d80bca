"""How long the gateway waits for upstreams: `[deadlines]` of gateway.toml, and `deadlines` of a route."""

from typing import Annotated

import msgspec

_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class GatewayDeadlines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds; None where the table names none. `first_event_s` and `next_event_s` are for one attempt at a stream, `whole_s` for
    one at an answer that is no stream. At one upstream no further attempt begins `retry_s` after the first one. `total_s` is for
    all that is done for one request of a client: attempts, waits, fallbacks and continuations."""

    first_event_s: _Seconds | None = None
    next_event_s: _Seconds | None = None
    whole_s: _Seconds | None = None
    retry_s: _Seconds | None = None
    total_s: _Seconds | None = None

    def over(self, wider: "GatewayDeadlines") -> "GatewayDeadlines":
        """These, and those of the wider table that are not among them."""
        own = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        return msgspec.structs.replace(wider, **own)


# The times between events are those of a run: to the first one the endpoint's own (`Profile.first_event_s`), 120 s for most.
DEFAULTS = GatewayDeadlines(
    whole_s=600.0,  # the vendors' own clients wait so long (openai-python and anthropic-python, DEFAULT_TIMEOUT)
    retry_s=150.0,  # an upstream that is silent for 120 s is asked once more
    total_s=1800.0,  # 100,000 tokens at 60 a second
)
