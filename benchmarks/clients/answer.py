"""Shows one answer of Markdown, delta by delta: as turnwise does at a terminal, or as it is."""

import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TypedDict

from turnwise.running.watcher_events import FrameSeen, RequestStarted, TurnFinished
from turnwise.terminal.screen import Screen
from turnwise.turn.config import TurnResult
from turnwise.vocab import StopReason, TextDelta, Usage

SECTION = """## Part {number}

The **second** run reads `notes.txt` and finds that the status is a *draft*; see [the guide](https://example.org/guide) for what
comes next. Nothing else has changed since the last one, and all tests pass.

- The first thing to do is small.
- The second one takes `three` steps:
  1. look
  2. change
  3. look again

| file | what it says | lines |
|---|---|--:|
| `notes.txt` | status: draft | 12 |
| `todo.txt` | nothing yet | 1 |

```python
def is_done(status: str) -> bool:
    \"\"\"Whether nothing is left to do.\"\"\"
    return status == "done"
```

> It is better to look twice.

"""


class Task(TypedDict):
    system: str
    piece: int
    shares: dict[str, int]  # case -> deltas


class Terminal(StringIO):
    """Says that it is one; what it is given goes to /dev/null at each flush."""

    def __init__(self) -> None:
        super().__init__()
        self._null = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 (as long as the process)

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        return self._null.write(text)

    def flush(self) -> None:
        self._null.flush()


def text_of(characters: int) -> str:
    number, parts, size = 0, list[str](), 0
    while size < characters:
        number += 1
        parts.append(SECTION.replace("{number}", str(number)))
        size += len(parts[-1])
    return "".join(parts)[:characters]


def cpu_of(deltas: int, *, piece: int, system: str) -> float:
    """CPU seconds a delta."""
    text = text_of(deltas * piece)
    pieces = [text[at : at + piece] for at in range(0, len(text), piece)]
    terminal = Terminal()
    with redirect_stdout(terminal):
        began = time.process_time()
        if system == "printing raw":
            for one in pieces:
                terminal.write(one)
                terminal.flush()
        else:
            show(Screen(notes=StringIO(), plain=system != "turnwise", size=lambda: os.terminal_size((100, 40))), pieces)
        return (time.process_time() - began) / len(pieces)


def show(screen: Callable[[object], None], pieces: list[str]) -> None:
    screen(RequestStarted(number=1, step=1, purpose="step", model="m"))
    for one in pieces:
        screen(FrameSeen(number=1, frame=TextDelta(text=one)))
    screen(
        TurnFinished(
            TurnResult(
                text="".join(pieces),
                stop_reason=StopReason.ANSWERED,
                complete=True,
                steps=1,
                requests=1,
                usage=Usage(),
                messages=(),
            )
        )
    )


def main() -> None:
    given: Task = json.loads(sys.argv[1])
    os.environ.pop("NO_COLOR", None)
    os.environ["TERM"] = "xterm"
    cpu_of(200, piece=given["piece"], system=given["system"])  # warm: what is loaded once is loaded
    found: dict[str, object] = {"version": importlib.metadata.version("turnwise")}
    for case, deltas in given["shares"].items():
        found[case] = cpu_of(deltas, piece=given["piece"], system=given["system"])
    print(json.dumps(found))


main()
