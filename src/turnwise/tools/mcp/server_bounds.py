"""How much an MCP server may send, and how long turnwise waits for it."""

from collections import deque

import msgspec

from turnwise.base.clock import Clock

MAX_MESSAGE_BYTES = 32 * 1024 * 1024  # an image of 20 MiB in base64, and what stands around it
MAX_TOOLS = 128  # as many as the large providers take in one request
MAX_PAGES = 50
MAX_DESCRIPTION = 4096  # characters; those of the largest known servers have 3,000
MAX_TOOL_NAME = 256  # characters of a tool's, a prompt's or an argument's own name; the protocol advises 128
MAX_ARGUMENTS = 50  # of a prompt: a person types them
MAX_PROMPT = 256 * 1024  # characters of a prompt that is filled in: 60,000 tokens
MAX_SCHEMA = 32 * 1024
MAX_DEPTH = 100  # of a schema: levels of JSON
MAX_LISTING = 256 * 1024  # of all tools of one server: 60,000 tokens that each request would carry
MAX_STDERR = 4096
UNASKED = 10_000  # messages that answer nothing (notifications, requests, lines that are no message)
UNASKED_BYTES = 64 * 1024 * 1024
WITHIN_S = 10.0

STARTING_S = 120.0  # a package manager may have to fetch the server first
LISTING_S = 30.0
REFRESH_S = 5.0  # a list that has changed is asked for again at the start of a turn
CLOSE_INPUT_S = 1.0  # a server is to end when its input ends
TERM_S = 0.5
KILLED_S = 2.0
RESTARTS = 3
RESTARTS_WITHIN_S = 300.0
FIRST_PAUSE_S = 0.5  # doubled with each restart


class McpFailure(Exception):
    """A server failed; the text says how, in words for a person. It holds nothing of a header or of a variable's value.

    `is_final`: to start it again would change nothing.
    """

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class UnaskedMeter:
    """Counts what a server sends without having been asked. `count` raises McpFailure for a flood."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = clock.monotonic()
        self._messages = self._bytes = 0

    def count(self, size: int, *, messages: int = 1) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._began_s > WITHIN_S:
            self._began_s, self._messages, self._bytes = now_s, 0, 0
        self._messages += messages
        self._bytes += size
        if self._messages > UNASKED or self._bytes > UNASKED_BYTES:
            raise McpFailure(
                f"it sent {self._messages:,} messages ({self._bytes:,} bytes) that nobody had asked for within "
                f"{WITHIN_S:g} s, so it was ended"
            )


class RestartBudget:
    """How often a server is started again: at most `RESTARTS` times in `RESTARTS_WITHIN_S` seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun: deque[float] = deque(maxlen=RESTARTS)

    @property
    def is_left(self) -> bool:
        """Whether it would be started again now."""
        return len(self._recent()) < RESTARTS

    def next_pause(self) -> float | None:
        """The seconds to wait before it is started again; None where it is not."""
        if not self.is_left:
            return None
        pause_s = FIRST_PAUSE_S * 2 ** len(self._recent())
        self._begun.append(self._clock.monotonic())
        return pause_s

    def _recent(self) -> list[float]:
        now_s = self._clock.monotonic()
        return [one for one in self._begun if now_s - one < RESTARTS_WITHIN_S]


class Tail:
    """The last `MAX_STDERR` bytes of what was written, for the sentence that says why a server ended."""

    def __init__(self) -> None:
        self._end = b""

    def take(self, output: bytes) -> None:
        self._end = (self._end + output)[-MAX_STDERR:]

    @property
    def bytes(self) -> bytes:
        return self._end


class LineCutter(msgspec.Struct):
    """Cuts a stream of bytes into lines. `take` raises McpFailure for a line of more than `limit` bytes."""

    limit: int = MAX_MESSAGE_BYTES
    parts: list[bytes] = []
    size: int = 0

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that are whole now."""
        *whole, rest = piece.split(b"\n")
        lines: list[bytes] = []
        for line in whole:
            self._keep(line)
            lines.append(b"".join(self.parts))
            self.parts, self.size = [], 0
        self._keep(rest)
        return lines

    def _keep(self, piece: bytes) -> None:
        self.size += len(piece)
        if self.size > self.limit:
            raise McpFailure(f"it sent a message of more than {self.limit:,} bytes, so it was ended")
        if piece:
            self.parts.append(piece)
