"""How a prompt at the terminal ends without an answer, and turnwise's own pager: it shows a long text page by page, with the
question below it. No other program sees the text or a key."""

import asyncio
import contextlib
import shutil
import signal
from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING

from turnwise.base.clock import Clock
from turnwise.terminal.rows import COLOUR

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent
    from prompt_toolkit.output import Output

# How a prompt at the terminal ends without an answer, and which keys belong to a text that somebody is typing.


PAUSE_S = 0.5  # a typing person leaves 0.1 to 0.3 s between two keys


class PromptStopped(Exception):
    """Ctrl-C at a prompt. The caller decides what it ends. `typed` is the line that it clears."""

    typed = ""


class PromptLeft(Exception):
    """Ctrl-D at an empty prompt, or the terminal is gone."""


class PromptPutAside(Exception):
    """A question needs the screen, so the prompt for a text is gone from it. `typed` is its text."""

    def __init__(self, typed: str) -> None:
        super().__init__(typed)
        self.typed = typed


class TypingPause:
    """Whether a key that comes now continues a text: the last key of that text came less than a pause ago."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s: float | None = None
        self._answered_s: float | None = None

    def typed(self) -> None:
        """A key of a text came just now."""
        self._last_s = self._clock.monotonic()

    def sent(self) -> None:
        """The text was sent, so no key continues it."""
        self._last_s = None

    def answered(self) -> None:
        """A letter has answered a question just now, without Enter."""
        self._answered_s = self._clock.monotonic()

    @property
    def is_short(self) -> bool:
        return self._is_since(self._last_s)

    @property
    def has_just_answered(self) -> bool:
        return self._is_since(self._answered_s)

    def _is_since(self, then_s: float | None) -> bool:
        return then_s is not None and self._clock.monotonic() - then_s < PAUSE_S


# What ends the program from outside becomes a cancellation: the terminal is restored, and the findings are told.


@contextlib.contextmanager
def cancelling() -> Generator[None]:
    """SIGTERM and the end of the terminal cancel the awaited work here, so that the terminal is restored."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` wants it ignored
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


PagerRow = tuple[str, str]  # its style, and its text
MAX_QUESTION_ROWS = 3
SPARE_ROWS = 3  # the answers and the prompt stand below the shown rows
OPENED_KEYS = "space: next, b: back, n: older, p: newer, q: leave"
KEYS = "space: next, b: back, G: end, q: to the question"
COLOURS = {"+": "ansigreen", "-": "ansired", "@": "ansicyan"}


class Pages:
    """The lines as rows of a screen with so many `columns`: a long line takes several rows, no line is cut. It remembers what has
    been on a page, at any width."""

    def __init__(self, lines: Sequence[str], *, coloured: bool) -> None:
        self._lines = [line.expandtabs(8) for line in lines]
        self._coloured = coloured
        self._columns = 0
        self._rows: list[PagerRow] = []
        self._starts: list[int] = []  # where each row begins in the whole text, then the text's end
        self._shown = bytearray(sum(len(line) + 1 for line in self._lines))
        self.top = 0

    @property
    def unshown_lines(self) -> int:
        """Lines with a part that has not been on a page."""
        if 0 not in self._shown:
            return 0
        at = count = 0
        for line in self._lines:
            count += self._shown.find(0, at, at + len(line) + 1) >= 0
            at += len(line) + 1
        return count

    def unshown_said(self, then: str) -> str:
        if not (lines := self.unshown_lines):
            return "all of it has been on the screen"
        left = "1 line has" if lines == 1 else f"{lines:,} lines have"
        return f"{left} not been on the screen yet: `s` shows them page by page; {then}"

    def to_unshown(self, *, columns: int) -> None:
        """The next page begins with the first row that has not been on a page; if there is none, with the first row of all."""
        at = max(self._shown.find(0), 0)
        self.rows(columns=columns)
        self.top = max(bisect_right(self._starts, at) - 1, 0)

    def rows(self, *, columns: int) -> list[PagerRow]:
        if columns != self._columns:
            part = self.top / max(1, len(self._rows))
            self._columns = columns
            self._rows, self._starts, at = [], [], 0
            for line in self._lines:
                for row in self._wrapped(line):
                    self._rows.append(row)
                    self._starts.append(at)
                    at += len(row[1])
                at += 1
            self._starts.append(at)
            self.top = int(part * len(self._rows))
        return self._rows

    def page(self, *, columns: int, height: int) -> list[PagerRow]:
        rows = self.rows(columns=columns)
        self.top = max(0, min(self.top, len(rows) - height))
        first, last = self._starts[self.top], self._starts[min(self.top + height, len(rows))]
        self._shown[first:last] = b"\1" * (last - first)
        return rows[self.top : self.top + height]

    def _wrapped(self, line: str) -> list[PagerRow]:
        from prompt_toolkit.utils import get_cwidth

        style = COLOURS.get(line[:1], "") if self._coloured else ""
        pieces: list[str] = []
        piece, width = "", 0
        for char in line:
            wide = get_cwidth(char)
            if width + wide > max(self._columns, 2):
                pieces.append(piece)
                piece, width = "", 0
            piece, width = piece + char, width + wide
        return [(style, one) for one in (*pieces, piece)]


def plain_lines(lines: Sequence[str]) -> list[str]:
    """The lines without colours."""
    return [COLOUR.sub("", line) for line in lines]


def rows_of(lines: Sequence[str]) -> int:
    """How many rows of the terminal the lines take: one long line may fill the screen."""
    return len(Pages(plain_lines(lines), coloured=False).rows(columns=shutil.get_terminal_size().columns))


def scrolls_away(lines: Sequence[str]) -> bool:
    """Whether a part of the lines leaves the screen before the question below them is there."""
    return rows_of(lines) + SPARE_ROWS > shutil.get_terminal_size().lines


class Shelf:
    """Texts for the pager, with their `titles`. The text `at` this place is open."""

    def __init__(self, texts: Sequence[Pages], *, titles: Sequence[str] = ("",)) -> None:
        self._texts, self._titles = texts, titles
        self.at = 0

    @property
    def pages(self) -> Pages:
        return self._texts[self.at]

    @property
    def title(self) -> str:
        return f"{self._titles[self.at]} ({self.at + 1} of {len(self._texts)})"

    def turn(self, by: int) -> None:
        self.at = max(0, min(len(self._texts) - 1, self.at + by))


async def page(
    shelf: Shelf,
    *,
    question: Callable[[], str],
    keys: str = KEYS,
    input: "Input",
    output: "Output",
    coloured: bool,
) -> None:
    """Show the pages until the person goes back to the question, which stays below them; `n` and `p` turn to the next and to the
    previous text. Raises PromptStopped."""
    from prompt_toolkit.application import Application
    from prompt_toolkit.layout import HSplit, Layout, Window
    from prompt_toolkit.layout.controls import FormattedTextControl

    shelf.pages.to_unshown(columns=output.get_size().columns)

    def asked() -> list[str]:
        size = output.get_size()
        rows = [text for _, text in Pages([question()], coloured=False).rows(columns=size.columns)]
        if len(rows) > MAX_QUESTION_ROWS:
            rows = [*rows[: MAX_QUESTION_ROWS - 1], rows[-1]]
        return rows[: max(1, size.rows - 2)]

    def height() -> int:
        return max(1, output.get_size().rows - len(asked()) - 1)

    def text() -> "StyleAndTextTuples":
        shown = shelf.pages.page(columns=output.get_size().columns, height=height())
        return [(style, f"{row}\n") for style, row in shown]

    def bar() -> "StyleAndTextTuples":
        columns, pages = output.get_size().columns, shelf.pages
        pages.page(columns=columns, height=height())
        count = len(pages.rows(columns=columns))
        unshown = pages.unshown_lines
        rest = f"{unshown:,} unseen; " if unshown else ""
        place = f"{pages.top + 1:,} to {min(count, pages.top + height()):,} of {count:,}; {rest}{keys}"
        strong = "bold" if coloured else ""
        return [*[(strong, f"{row}\n") for row in asked()], ("", place[: columns - 1])]

    application: Application[None] = Application(
        layout=Layout(
            HSplit(
                [
                    Window(FormattedTextControl(text), always_hide_cursor=True),
                    Window(FormattedTextControl(bar), height=lambda: len(asked()) + 1, always_hide_cursor=True),
                ]
            )
        ),
        key_bindings=_keys(shelf, height=height),
        full_screen=True,
        input=input,
        output=output,
        refresh_interval=1.0,
    )
    try:
        await application.run_async(handle_sigint=False, set_exception_handler=False)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            application.renderer.reset(leave_alternate_screen=True)  # restored, also if the time is up
        raise


def _keys(shelf: Shelf, *, height: Callable[[], int]) -> "KeyBindings":
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    def moves(*names: str, by: Callable[[], int]) -> None:
        def move(_: "KeyPressEvent") -> None:
            shelf.pages.top = max(0, shelf.pages.top + by())  # the next page finds the end by itself

        for name in names:
            keys.add(name)(move)

    moves(" ", "f", "pagedown", by=height)
    moves("b", "pageup", by=lambda: -height())
    moves("j", "down", "enter", by=lambda: 1)
    moves("k", "up", by=lambda: -1)
    moves("g", "home", by=lambda: -shelf.pages.top)
    moves("G", "end", by=lambda: 1_000_000_000)

    @keys.add("n")
    def _(_: "KeyPressEvent") -> None:
        shelf.turn(1)

    @keys.add("p")
    def _(_: "KeyPressEvent") -> None:
        shelf.turn(-1)

    def leave(event: "KeyPressEvent") -> None:
        event.app.exit()

    for name in ("q", "Q", "s", "c-d", "c-o"):
        keys.add(name)(leave)

    @keys.add("c-c")
    def _(event: "KeyPressEvent") -> None:
        event.app.exit(exception=PromptStopped())

    return keys
