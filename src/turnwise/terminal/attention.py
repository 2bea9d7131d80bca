"""What calls a person back to the terminal: a bell, a notice (OSC 9), and the title of the window.

They hold turnwise's own words and the folder's name, nothing of a model's. Nothing is written with `--plain`, with TERM=dumb, and
where standard error is no terminal.
"""

import os
import re
import sys
from pathlib import Path

from turnwise.base.clock import Clock, Timer
from turnwise.coding_agent.text import shortened, visible_line
from turnwise.settings.options import Notify

UNSEEN_S = 10.0  # without a key: nobody is there, if the terminal does not say so itself
FOCUS_ON, FOCUS_OFF = "\x1b[?1004h", "\x1b[?1004l"
_FOCUS = re.compile(r"\x1b\[([IO])")
_KEEP_TITLE, _OLD_TITLE = "\x1b[22;2t", "\x1b[23;2t"


class Attention:
    """Of one session in `folder`. `seen` is told what the terminal sends."""

    def __init__(self, folder: Path, *, notify: Notify | None, plain: bool, clock: Clock) -> None:
        self._name = shortened(visible_line(folder.name), limit=40)
        self._notify = notify or "both"
        self._clock = clock
        self._is_on = sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not plain
        self._has_focus: bool | None = None  # None: the terminal has not told yet
        self._key_s = clock.monotonic()
        self._later: Timer | None = None

    def begin(self) -> None:
        self._write(_KEEP_TITLE)
        self.title("")

    def end(self) -> None:
        self._forget()
        self._write(_OLD_TITLE)

    def title(self, state: str) -> None:
        said = " · ".join([one for one in ("turnwise", self._name, state) if one])
        self._write(f"\x1b]2;{said}\x07")

    def watch(self, on: bool) -> None:
        """A turn has the terminal, which tells from now on whether it has the focus, if it can; or not any more."""
        if on:
            self.title("works")
        if self._notify != "off":
            self._write(FOCUS_ON if on else FOCUS_OFF)

    def seen(self, keys: str) -> str:
        """The keys without what the terminal tells of its focus."""
        for found in _FOCUS.finditer(keys):
            self._has_focus = found[1] == "I"
        rest = _FOCUS.sub("", keys)
        if rest or self._has_focus:
            self._forget()
        if rest:
            self._key_s = self._clock.monotonic()
        return rest

    def call(self, why: str) -> None:
        """Call the person now if the terminal has no focus. If it does not tell: once there was no key for a while."""
        self._forget()
        self.title(why)
        if self._has_focus is None:
            wait_s = self._key_s + UNSEEN_S - self._clock.monotonic()
            self._later = self._clock.call_later(max(0.0, wait_s), lambda: self._ring(why))
        elif not self._has_focus:
            self._ring(why)

    def _ring(self, why: str) -> None:
        if self._notify in ("bell", "both"):
            self._write("\x07")
        if self._notify in ("osc9", "both"):
            self._write(f"\x1b]9;turnwise {why} in {self._name}\x07")

    def _forget(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _write(self, text: str) -> None:
        if self._is_on:
            sys.stderr.write(text)
            sys.stderr.flush()
