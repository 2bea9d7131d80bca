"""What toolsets tell of themselves in a run: a server that did not start, or that died. The result keeps it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Protocol, runtime_checkable

from turnwise.agent.tools import Toolset
from turnwise.agent.toolsets import WrappedToolset
from turnwise.running.watcher_events import ToolsetNoted, Watch

MOST = 50  # one that dies over and over says the same


@runtime_checkable
class TellingToolset(Protocol):
    """A toolset that has something to tell: `shortcomings` is what a turn that begins now should know."""

    @property
    def shortcomings(self) -> Sequence[str]: ...

    def heard_by(self, tell: Callable[[str], object], /) -> AbstractContextManager[None]: ...


class RunNotes:
    """The notes of one run, in order, each once."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._tell: Watch | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def take(self, text: str) -> None:
        """One more; whoever watches is told."""
        if text in self._texts or len(self._texts) >= MOST:
            return
        self._texts.append(text)
        if self._tell is not None:
            self._tell(ToolsetNoted(text))

    def begin(self, tell: Watch) -> None:
        """`tell` is told what there is already, and what comes."""
        self._tell = tell
        for text in self._texts:
            tell(ToolsetNoted(text))


def listening(toolsets: Sequence[Toolset], *, stack: AsyncExitStack) -> RunNotes | None:
    """The notes of those that have any, until `stack` is left. None: no toolset tells anything."""
    inner = [one.innermost if isinstance(one, WrappedToolset) else one for one in toolsets]
    telling = [one for one in inner if isinstance(one, TellingToolset)]
    if not telling:
        return None
    notes = RunNotes()
    for one in telling:
        for text in one.shortcomings:
            notes.take(text)
        stack.enter_context(one.heard_by(notes.take))
    return notes


def may_ask(toolsets: Sequence[Toolset]) -> bool:
    """Whether tools of them may ask a person in the middle of a call."""
    inner = [one.innermost if isinstance(one, WrappedToolset) else one for one in toolsets]
    return any(isinstance(one, TellingToolset) for one in inner)
