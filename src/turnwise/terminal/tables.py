"""Tables of figures for a terminal: thousands of lines are quick, and a figure is never cut short.

`rich` takes most of a millisecond for each line, 5 s of CPU for 5,000 sessions.
"""

import shutil
from collections.abc import Iterator, Sequence
from typing import Literal, TextIO

import msgspec
from rich.cells import cell_len, chop_cells

from turnwise.coding_agent.text import style

GAP = 2  # columns between columns
LEAST_NAME = 16  # columns: a narrower name would be folded at every word
MOST_NAME = 44
WIDTH_OF_A_FILE = 120


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column. Where there is no room for all, the one of the greatest `rank` goes first; 0 stays."""

    name: str
    cells: Sequence[str]
    rank: int = 0
    align: Literal["left", "right"] = "right"
    style: str = ""


def width_of(stream: TextIO) -> int:
    """Columns of the terminal; what is no terminal has enough for all."""
    return shutil.get_terminal_size().columns if stream.isatty() else WIDTH_OF_A_FILE


def fitting(name: Column, columns: Sequence[Column], *, width: int) -> list[Column]:
    """The columns that have room beside the name, in order."""
    kept = list(columns)
    least = min(max([len(name.name), *map(cell_len, name.cells)]), LEAST_NAME)
    while least + sum([_width(one) + GAP for one in kept]) > width:
        last = max(kept, key=lambda one: one.rank, default=None)
        if last is None or not last.rank:
            break
        kept.remove(last)
    return kept


def lines_of_table(name: Column, columns: Sequence[Column], *, width: int, stream: TextIO) -> Iterator[str]:
    """The head and a line for each row. A name that has no room stands whole above its figures, to be read and copied: it is
    broken only where it is wider than the terminal."""
    widths = [_width(one) for one in columns]
    room = max(width - sum(widths) - GAP * len(widths), cell_len(name.name))
    room = min(room, MOST_NAME, max([cell_len(name.name), *map(cell_len, name.cells)]))
    head = [_aligned(one.name, one, width=size) for one, size in zip(columns, widths, strict=True)]
    for line in _joined(name.name, head, room=room, width=width):
        yield style(line, "bold", stream=stream)
    for number, cell in enumerate(name.cells):
        figures = [
            _styled(_aligned(one.cells[number], one, width=size), one, stream=stream)
            for one, size in zip(columns, widths, strict=True)
        ]
        yield from _joined(cell, figures, room=room, width=width)


def _joined(name: str, figures: Sequence[str], *, room: int, width: int) -> Iterator[str]:
    size = cell_len(name)
    beside = (" " * GAP).join([" " * room, *figures]).rstrip()
    if beside and size > max(room, len(beside) - len(beside.lstrip()) - GAP):  # empty cells are room, too
        yield from chop_cells(name, width) if size > width else [name]
        yield beside
    else:
        yield name + beside[size:]


def _width(column: Column) -> int:
    return max([len(column.name), *map(len, column.cells)])


def _aligned(cell: str, column: Column, *, width: int) -> str:
    return cell.rjust(width) if column.align == "right" else cell.ljust(width)


def _styled(cell: str, column: Column, *, stream: TextIO) -> str:
    return style(cell, column.style, stream=stream) if column.style and cell.strip() else cell
