"""What Anthropic's API checks of the marks for its cache, in its own requests and in those of a gateway to it."""

from collections.abc import Iterator

import msgspec

from turnwise.lab.raw import Raw, rows, table, text
from turnwise.lab.strict.verdicts import Rejected

MAX_MARKS = 4
TTLS = ("5m", "1h")
UNMARKED = ("thinking", "redacted_thinking")


class Mark(msgspec.Struct, frozen=True):
    where: str
    mark: Raw
    block: Raw


def marks_of_messages(body: Raw) -> list[Mark]:
    """In the order in which the API reads a prompt: tools, system, messages; the field for the end of the body is the last."""
    return _all_marks(body, own=False)


def marks_of_chat(body: Raw) -> list[Mark]:
    """Of a gateway's request: on tools, on messages, and on their content."""
    return _all_marks(body, own=True)


def _all_marks(body: Raw, *, own: bool) -> list[Mark]:
    """`own`: messages have marks of their own, and no field stands for the system text."""
    fields = table(body)
    found = [*_marks(fields.get("tools"), where="tools")]
    if not own:
        found += _marks(fields.get("system"), where="system")
    for position, message in enumerate(rows(fields.get("messages"))):
        found += _marks(table(message).get("content"), where=f"messages.{position}.content")
        if own:
            found += _own(message, where=f"messages.{position}")
    return [*found, *_top(fields)]


def _top(fields: dict[str, Raw]) -> list[Mark]:
    """The field for the end of the body, with the block that it marks: the last one that may be marked."""
    top = fields.get("cache_control")
    if top is None:
        return []
    contents = [rows(table(message).get("content")) for message in rows(fields.get("messages"))]
    inner = [block for content in contents for block in content if _may_be_marked(block)]
    return [Mark("cache_control", top, inner[-1] if inner else None)]


def _may_be_marked(block: Raw) -> bool:
    type = table(block).get("type")
    return type not in UNMARKED and not (type == "text" and not text(table(block).get("text")))


def _marks(blocks: Raw, *, where: str) -> Iterator[Mark]:
    for index, block in enumerate(rows(blocks)):
        yield from _marks(table(block).get("content"), where=f"{where}.{index}.content")
        yield from _own(block, where=f"{where}.{index}")


def _own(block: Raw, *, where: str) -> Iterator[Mark]:
    mark = table(block).get("cache_control")
    if mark is not None:
        yield Mark(f"{where}.{text(table(block).get('type')) or 'custom'}.cache_control", mark, block)


def check_marks(marks: list[Mark]) -> None:
    """Sources: Anthropic docs, "Prompt caching": limitations, mixing different TTLs, and "Automatic caching", edge cases (a last
    block with another ttl, and four marks beside the field, are answered 400); deer-flow#2448."""
    kept_short = False
    for one in marks:
        ttl = table(one.mark).get("ttl", "5m")
        if table(one.mark).get("type") != "ephemeral":
            raise Rejected(f"{one.where}.type: Input should be 'ephemeral'")
        if ttl not in TTLS:
            raise Rejected(f"{one.where}.ttl: Input should be '5m' or '1h'")
        if ttl == "1h" and kept_short:
            raise Rejected(
                f"{one.where}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note "
                "that blocks are processed in the following order: `tools`, `system`, `messages`."
            )
        kept_short = kept_short or ttl == "5m"
        own = table(one.block).get("cache_control")
        if one.where == "cache_control" and own is not None and table(own).get("ttl", "5m") != ttl:
            raise Rejected(
                "cache_control: the last block already has a cache_control with another ttl than the one at the top level"
            )
        type = table(one.block).get("type")
        if type in UNMARKED:
            raise Rejected(f"{one.where}: Extra inputs are not permitted")
        if type == "text" and not text(table(one.block).get("text")):
            raise Rejected("cache_control cannot be set for empty text blocks")
    if len(marks) > MAX_MARKS:
        raise Rejected(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")
