"""What messages are made of."""

from collections.abc import Iterable, Sequence


def each_counted(words: Sequence[str]) -> str:
    """Each of the words once, with how often it comes."""
    return ", ".join([f"{words.count(word)} x {word}" for word in dict.fromkeys(words)])


def in_ticks(names: Iterable[str], *, between: str = ", ") -> str:
    """The names in backticks."""
    return between.join([f"`{name}`" for name in names])
