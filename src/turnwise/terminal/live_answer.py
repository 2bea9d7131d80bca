"""An answer at a terminal, while it comes. Finished blocks are rendered, once; the current block is shown as plain text until it
is finished, and is then replaced by its rendering.

Text above the current block is never touched. The block is replaced only if all of its rows can still be erased: it is not as
tall as the terminal, the terminal has the same size, and nothing else was written since. Otherwise it stays as it is, as plain
text, to its end. Code and tables are rendered in parts before they get so tall.
"""

import os
from collections.abc import Callable, Sequence
from typing import TextIO

from turnwise.terminal.rendering import LOOKED_AT, MAX_CHARACTERS, Blocks, MarkdownBlock, Page, Renderer, is_plain
from turnwise.terminal.rows import Rows

MOST_ROWS = 60  # of a block that is replaced: a taller one would scroll away while it is read
SPARE_ROWS = 3  # of the terminal: the waiting line is below, and the last row may be half visible


class LiveAnswer:
    """Writes to `out`, a terminal; `size` gives its size. The text is clean: its only control characters are line ends and
    tabs."""

    def __init__(self, out: TextIO, *, size: Callable[[], os.terminal_size]) -> None:
        self._out = out
        self._size_now = size
        self._size = size()
        self._blocks = Blocks()
        self._render = Renderer()
        self._rows = Rows(width=self._width)
        self._line: list[str] = []  # of the current line
        self._unshown: list[str] = []  # of the current block
        self._estimate = 0  # rows of its whole lines
        self._frozen = False  # the current block stays as it is shown
        self._erasable = True  # the rows that `_rows` has counted can be erased

    @property
    def row(self) -> str:
        """The text in the current row; empty: the next word begins a row."""
        return self._rows.row

    def write(self, text: str) -> None:
        out: list[str] = []
        if (size := self._size_now()) != self._size:
            self._resize(size, out)
        first, *more = text.split("\n")
        self._take(first)
        for piece in more:
            self._end_line(out)
            self._take(piece)
        self._show(out)
        if self._rows.count >= self._most_rows or self._blocks.size > MAX_CHARACTERS:
            self._freeze(out)
        self._put(out)

    def pause(self, *, keeps_word: bool = False) -> None:
        """Something else is about to be written below. Afterwards the cursor is at the left. `keeps_word`: a word that may
        continue comes whole below that."""
        out: list[str] = []
        if self._blocks.kind is not None or self._line:
            self._freeze(out)
        if not keeps_word:
            out.append(self._rows.flush())
        if self._rows.row:
            out.append("\n")
        if keeps_word:
            self._rows.leave_row()
        else:
            self._rows.restart(width=self._width)
        self._put(out)

    def leave_row(self) -> None:
        """Something else has begun a row below: the text in the current row stays there."""
        out: list[str] = []
        self._freeze(out)
        self._rows.leave_row()
        self._put(out)

    def close(self) -> None:
        """The text has ended, and so has its last block."""
        out: list[str] = []
        if (size := self._size_now()) != self._size:
            self._resize(size, out)
        if any(self._line):
            self._end_line(out)
        done = self._blocks.close()
        if self._frozen:
            self._show(out)
        elif done:
            self._replace(done, out)
        out.append(self._rows.flush())
        if self._rows.row:
            out.append("\n")
        self._begin_block()
        self._put(out)

    @property
    def _width(self) -> int:
        """One column stays free: at some terminals a full row would break by itself."""
        return max(1, self._size.columns - 1)

    @property
    def _most_rows(self) -> int:
        return min(self._size.lines - SPARE_ROWS, MOST_ROWS)

    def _take(self, piece: str) -> None:
        if piece:
            self._unshown.append(piece)
            self._line.append(piece)

    def _end_line(self, out: list[str]) -> None:
        line = "".join(self._line)
        self._line.clear()
        self._unshown.append("\n")
        done = self._blocks.take(line)
        if self._frozen:
            self._take_frozen_line(done, out)
            return
        self._estimate += 1 + len(line) // self._width
        if not done and self._is_tall():
            done = self._blocks.cut()
        if done:
            self._replace(done, out)

    def _is_tall(self) -> bool:
        """Whether to render a part of the current code or table now: if it grew further, it could no longer be replaced."""
        return self._estimate >= max(1, self._most_rows - 4) or self._blocks.size > MAX_CHARACTERS // 2

    def _replace(self, done: Sequence[MarkdownBlock], out: list[str]) -> None:
        """Put the finished blocks in the place of the current block."""
        first, *more = done
        if is_plain(first) and not self._blocks.lines and all(block.kind == "blank" for block in more):
            self._show(out)  # its rendering would look the same
            out.append(self._rows.flush())
            if self._rows.row:
                out.append("\n")
        else:
            self._erase(out)
            for block in done:
                self._write_block(block, out)
        self._begin_block()

    def _take_frozen_line(self, done: Sequence[MarkdownBlock], out: list[str]) -> None:
        """A line has ended while the current block stays as it is shown. Only the row of this line may be erased."""
        below = bool(done[1:]) or bool(
            done and self._blocks.lines
        )  # the line does not belong to the block that has ended
        if below and self._erasable:
            self._erase(out)
            for block in done[1:]:
                self._write_block(block, out)
            self._begin_block()
            return
        self._show(out)
        out.append(self._rows.flush())
        self._blocks.forget()
        self._blocks.cut()
        self._begin_block(frozen=self._blocks.kind not in (None, "fence", "table"))

    def _begin_block(self, *, frozen: bool = False) -> None:
        """The cursor is at the left. The lines of the current block are not shown yet, unless it is `frozen`."""
        lines = [] if frozen else self._blocks.lines
        self._unshown = [f"{line}\n" for line in lines]
        self._estimate = sum([1 + len(line) // self._width for line in lines])
        self._rows.restart(width=self._width)
        self._frozen, self._erasable = frozen, True

    def _write_block(self, block: MarkdownBlock, out: list[str]) -> None:
        lines = self._render(block, page=Page(width=self._width))
        self._rows.restart(width=self._width)
        if lines is None:
            out += (self._rows.write(block.text), self._rows.flush(), "\n")
        else:
            out += [f"{line}\n" for line in lines]
        self._rows.restart(width=self._width)

    def _show(self, out: list[str]) -> None:
        if self._unshown:
            out.append(self._rows.write("".join(self._unshown)))
            self._unshown.clear()

    def _erase(self, out: list[str]) -> None:
        if not self._rows.is_empty:
            # row by row: if everything from the top of the window on is erased (CSI J), tmux keeps it in its history
            out.append("\r\x1b[2K" + "\x1b[1A\x1b[2K" * self._rows.count)
        self._rows.restart(width=self._width)

    def _freeze(self, out: list[str]) -> None:
        """The shown part of the current block stays."""
        self._show(out)
        self._frozen, self._erasable = True, False
        self._blocks.forget()
        self._line = ["".join(self._line)[:LOOKED_AT]]  # only this much of it is looked at

    def _resize(self, size: os.terminal_size, out: list[str]) -> None:
        self._size = size
        if self._blocks.kind is not None or self._line:
            self._freeze(out)
        self._rows.width = self._width

    def _put(self, out: list[str]) -> None:
        if text := "".join(out):
            self._out.write(text)
            self._out.flush()
