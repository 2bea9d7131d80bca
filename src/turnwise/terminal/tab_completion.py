"""What Tab completes in a session: `/` commands at the beginning of a line, models behind `/model`, and paths behind `@`.
At the first start: models."""

import os
import re
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from turnwise.coding_agent.text import visible_line

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer

MAX_SHOWN = 200
_MENTION = re.compile(r"""(?<![\w@./\\-])@((?:\\.|[^\s"'`,;()\[\]{}<>|\\])*)$""")
_MODEL = re.compile(r"/model +(\S*)")
_BLANKS = re.compile(r"""([\s"'`,;()\[\]{}<>|\\])""")


class Models(Protocol):
    """Of the session: `ask` for those of the provider at hand, then `begun` gives the names that begin so."""

    async def ask(self) -> None: ...

    def begun(self, begun: str) -> Iterable[str]: ...


def endings(
    line: str,
    *,
    commands: Collection[str],
    folder: Path,
    others: Collection[str] = (),
    models: Callable[[str], Iterable[str]] = lambda _: (),
) -> list[tuple[str, int]]:
    """What may stand in place of the end of `line`, and how many of its characters that replaces. `others` are other names of
    `commands`, for those who know only them."""
    if model := _MODEL.fullmatch(line):
        return [(name, len(model[1])) for name in list(models(model[1]))[:MAX_SHOWN]]
    if line.startswith("/") and " " not in line:
        found = [name for name in commands if name.startswith(line)]
        return [(name, len(line)) for name in found or [other for other in others if other.startswith(line)]]
    mention = _MENTION.search(line)
    return [] if mention is None else [(name, len(mention[1])) for name in _paths(mention[1], folder=folder)]


def _paths(begun: str, *, folder: Path) -> Iterator[str]:
    """Names in the folder that `begun` leads to, as they are to be typed; hidden ones where a dot was typed."""
    above, _, name = re.sub(r"\\(.)", r"\1", begun).rpartition("/")
    try:
        with os.scandir(folder / Path(above).expanduser() if above or not begun.startswith("/") else "/") as entries:
            found = sorted(
                [
                    f"{entry.name}/" if entry.is_dir() else entry.name
                    for entry in entries
                    if entry.name.startswith(name) and (name or not entry.name.startswith("."))
                ]
            )
    except (OSError, ValueError, RuntimeError):
        return
    head = f"{above}/" if above or begun.startswith("/") else ""
    for path in found[:MAX_SHOWN]:
        if path.isprintable():
            yield _BLANKS.sub(r"\\\1", head + path)


def completer(
    *,
    commands: Mapping[str, str],
    others: Mapping[str, str],
    folder: Path,
    models: Models,
    prompts: Callable[[], Mapping[str, str]] = dict,
) -> "Completer":
    """Of `commands` with what each is for, and of the `prompts` that MCP servers offer now; `others` says which command another
    name stands for."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Typed(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            line = document.current_line_before_cursor
            known = {**prompts(), **commands}
            for text, replaced in endings(line, commands=known, others=others, folder=folder, models=models.begun):
                meaning = visible_line(known.get(others.get(text, text), ""))
                yield Completion(text, start_position=-replaced, display=visible_line(text), display_meta=meaning)

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent
        ) -> AsyncGenerator[Completion]:
            if _MODEL.fullmatch(document.current_line_before_cursor):
                await models.ask()
            for completion in self.get_completions(document, complete_event):
                yield completion

    return Typed()


def model_completer(begun: Callable[[str], Iterable[str]]) -> "Completer":
    """Where a model alone is typed: `begun` gives those that begin so."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class TypedModel(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            line = document.text_before_cursor
            for name in [] if " " in line else list(begun(line))[:MAX_SHOWN]:
                yield Completion(name, start_position=-len(line), display=visible_line(name))

    return TypedModel()
