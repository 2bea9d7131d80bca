"""A whole streamed response -> what was said, as the runner reads it."""

from collections.abc import Iterable

from turnwise.assembly.response_reading import ResponseReader
from turnwise.vocab import Response
from turnwise.wire.family import Family
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits, Profile


def read_stream(
    chunks: Iterable[bytes],
    *,
    family: Family,
    profile: Profile,
    limits: Limits = DEFAULT_LIMITS,
    tool_names: frozenset[str] = frozenset(),
    taken_ids: frozenset[str] = frozenset(),
    id_prefix: str = "call",
) -> Response:
    reader = ResponseReader(
        family, profile=profile, limits=limits, tool_names=tool_names, taken_ids=taken_ids, id_prefix=id_prefix
    )
    for chunk in chunks:
        reader.feed(chunk)
    return reader.finish()
