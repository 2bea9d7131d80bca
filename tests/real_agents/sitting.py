"""A person sits at an agent's terminal: sees its screen, knows its questions, and answers each by the fewest keys.

The screen is pyte's, because the agents' full-screen programs ask for more of a terminal than `tests/emulator.py` knows.
"""

import asyncio
import codecs
import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from real_agents import places

COLUMNS, LINES = 120, 50
STILL_S = 0.4  # a screen that does not change for so long waits for its person, or for its model
AGAIN_S = 20.0  # a person whose answer seems lost gives it again
LOST_S = 8.0
QUIET_S, LONGEST_S = 120.0, 900.0
PYTE = places.INSTALLED / "pyte"
# What programs ask a terminal, and what an ordinary one says.
REPORTS = (
    (b"\x1b[6n", "\x1b[{row};{column}R"),
    (b"\x1b[?u", "\x1b[?0u"),
    (b"\x1b[>0q", "\x1bP>|xterm(390)\x1b\\"),
    (b"\x1b[14t", "\x1b[4;1000;1200t"),
    (b"\x1b]4;0;?", "\x1b]4;0;rgb:0000/0000/0000\x1b\\"),
    (b"\x1b[c", "\x1b[?62;22c"),
    (b"\x1b]10;?", "\x1b]10;rgb:dddd/dddd/dddd\x1b\\"),
    (b"\x1b]11;?", "\x1b]11;rgb:1111/1111/1111\x1b\\"),
)
UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1bP.*?\x1b\\|\x1b_.*?\x1b\\", re.DOTALL)


class Question(NamedTuple):
    """`pattern` is looked for in the last `rows` rows with text. `keys` are the fewest that say yes, one a string; `all_keys`
    those that say yes for more than this call. A `first` one comes before the first prompt, and is counted by itself."""

    pattern: str
    keys: tuple[str, ...]
    all_keys: tuple[str, ...] = ()
    first: bool = False
    rows: int = LINES

    def is_on(self, screen: str) -> bool:
        shown = [line for line in screen.splitlines() if line.strip()][-self.rows :]
        return re.search(self.pattern, "\n".join(shown)) is not None


class Asked(NamedTuple):
    """One question: when, since the prompt was sent; what was pressed; the screen."""

    at_s: float
    keys: tuple[str, ...]
    first: bool
    screen: str


class Sat(NamedTuple):
    """`how`: `done`, `asked` (if the first question ends it), `hang` or `over` (the program ended)."""

    how: str
    seconds: float
    asked: tuple[Asked, ...]
    screen: str


def screen_of() -> tuple[Any, Any]:
    """Raises ImportError if pyte is not there: `side_by_side.py --setup` installs it."""
    sys.path.append(str(PYTE))
    import pyte  # pyright: ignore[reportMissingImports]

    screen = pyte.Screen(COLUMNS, LINES)
    return screen, pyte.Stream(screen)


class Sitting:
    """`async with Sitting(words, ...) as sitting`. Everything that the program wrote is in `record`, with its times."""

    def __init__(self, words: Sequence[str], *, env: Mapping[str, str], work: Path, live: Path | None = None) -> None:
        self._words, self._env, self._work, self._live = words, env, work, live
        self._screen, self._stream = screen_of()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.record: list[tuple[float, bytes]] = []
        self._moved = self._began = time.monotonic()
        self._over = False

    async def __aenter__(self) -> "Sitting":
        end, theirs = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))

        def lead() -> None:
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        self._end = end
        self._process = await asyncio.create_subprocess_exec(
            *self._words,
            env=dict(self._env),
            cwd=self._work,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            preexec_fn=lead,
        )
        os.close(theirs)
        asyncio.get_running_loop().add_reader(end, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._end)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        os.close(self._end)

    def _read(self) -> None:
        try:
            piece = os.read(self._end, 65536)
        except OSError:  # Linux: the other end is closed
            piece = b""
        if not piece:
            self._over = True
            asyncio.get_running_loop().remove_reader(self._end)
            return
        self.record.append((time.monotonic() - self._began, piece))
        before = self.shown
        self._stream.feed(self._decoder.decode(UNKNOWN.sub(b"", piece)))
        for wanted, report in REPORTS:
            if wanted in piece:
                cursor = self._screen.cursor
                os.write(self._end, report.format(row=cursor.y + 1, column=cursor.x + 1).encode())
        if self.shown != before:
            self._moved = time.monotonic()

    @property
    def shown(self) -> str:
        return "\n".join([line.rstrip() for line in self._screen.display])

    def types(self, text: str) -> None:
        os.write(self._end, text.encode())

    def show_live(self, line: str) -> None:
        """The screen as a file that a person can look at meanwhile."""
        if self._live is not None:
            self._live.write_text(f"{line}\n{self.shown}\n", encoding="utf-8")

    async def still(self) -> None:
        """Until the screen shows what it will, or moves all the time (a clock)."""
        until = time.monotonic() + 3 * STILL_S
        while time.monotonic() - self._moved < STILL_S and time.monotonic() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    async def sit(
        self,
        questions: Sequence[Question],
        *,
        ready: str,
        opening: Sequence[str],
        prompt: str,
        done: str,
        count: Callable[[], int],
        for_all: bool = False,
        stops_at_question: bool = False,
    ) -> Sat:
        """Answers what comes, presses the `opening` keys and types the prompt once `ready` is there, and answers until `done` is
        on the screen. `count` is that of the model's requests: each answered call brings a new one."""
        asked: list[Asked] = []
        sent: float | None = None
        entered, requests_before = 0.0, 0
        answered: tuple[Question, int, float] | None = None
        while True:
            await asyncio.sleep(0.05)
            now = time.monotonic()
            since = now - (sent if sent is not None else self._began)
            if self._over or now - self._moved > QUIET_S or since > LONGEST_S:
                return Sat("over" if self._over else "hang", since, tuple(asked), self.shown)
            screen = self.shown
            self.show_live(f"{since:.0f} s, {count()} requests, {len(asked)} questions")
            if sent is not None and re.search(done, screen):
                return Sat("done", since, tuple(asked), screen)
            found = next((one for one in questions if one.is_on(screen)), None)
            if found is None:
                answered = None
                if sent is None and re.search(ready, screen):
                    await self.still()
                    if any(one.is_on(self.shown) for one in questions):
                        continue
                    for text in (*opening, prompt):
                        self.types(text)
                        await self.still()
                    self.types("\r")
                    sent = entered = time.monotonic()
                    requests_before = count()
                elif sent is not None and count() == requests_before and now - entered > LOST_S:
                    self.types("\r")  # a program that was still starting has not taken it
                    entered = now
                continue
            if answered is not None and answered[0] is found:
                _, requests, at = answered
                if count() == requests and now - at < AGAIN_S:
                    continue
            await self.still()
            if not found.is_on(self.shown):
                continue
            keys = found.all_keys if for_all and found.all_keys else found.keys
            asked.append(Asked(since, keys, sent is None, self.shown))
            if stops_at_question and sent is not None:
                return Sat("asked", since, tuple(asked), self.shown)
            answered = (found, count(), time.monotonic())
            for key in keys:
                self.types(key)
                await asyncio.sleep(0.1)
