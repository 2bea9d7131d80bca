"""The prompt of a run: the words of the command line, and what is piped in beside them."""

import io
import os
import select
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Literal, TextIO

import msgspec

from turnwise.coding_agent.text import clean_line
from turnwise.errors import CallerError
from turnwise.rules.budget import ModelLimits
from turnwise.rules.limits import BYTES_A_TOKEN
from turnwise.vocab import Text

MAX_INPUT_BYTES = 4 * 1024 * 1024  # of what comes on standard input, and of an output schema
LARGE_BYTES = 64 * 1024  # from there on its tokens are said, too
PATIENCE_S = 3.0  # with a pipe in which nothing comes
STDIN = "-"
NOTE = "standard input"  # what the message says of such a text, which is not the person's own words
GO_ON = "Go on where you left off."  # the model is told, where nobody says anything
_PIECE = 64 * 1024

Input = Literal["auto", "none"]
"""What is done about standard input that is no terminal: it goes with the prompt, or is left alone (`-n`)."""


class CliPrompt(msgspec.Struct, frozen=True):
    """What the model is asked: `typed` by a person, or taken from elsewhere whole (`given`)."""

    typed: str = ""
    given: tuple[Text, ...] = ()

    @property
    def texts(self) -> list[str]:
        return [text for text in (self.typed, *[part.text for part in self.given]) if text]


GOES_ON = CliPrompt(given=(Text(GO_ON),))


def read_prompt(
    words: Sequence[str],
    *,
    goes_on: bool,
    tell: Callable[[str], object],
    wanted: Input = "auto",
) -> CliPrompt:
    """What the model is asked: the prompt, then what was piped in. `tell` is given what the user is to know.

    Raises CallerError where there is nothing to ask, or it is no text.
    """
    prompt = _prompt_of(words)
    waits = STDIN in words
    if waits and wanted == "none":
        raise CallerError("`-` reads standard input, and -n leaves it alone: give one of them")
    if prompt is None and not waits and not goes_on:
        raise CallerError("no PROMPT: write what the model shall do, or `-` to read it from standard input")
    if prompt is not None and not prompt.strip():
        raise CallerError("the prompt is empty: write what the model shall do")
    if prompt is None and waits:
        text = _text_of(_read_all())
        if not text.strip():
            raise CallerError("the prompt on standard input is empty: write what the model shall do")
        return CliPrompt(given=(Text(text),))
    said = GOES_ON if prompt is None else CliPrompt(typed=prompt)
    if wanted == "none":
        return said
    given = _read_all() if waits else read_piped(sys.stdin, patience_s=PATIENCE_S, tell=tell)
    if not given.strip():
        return said
    text = _text_of(given)
    size = f"{len(given):,} bytes"
    weight = f", about {most_tokens(text):,} tokens at most" if len(given) > LARGE_BYTES else ""
    tell(f"standard input goes with the prompt: {size}{weight} (-n leaves it alone)")
    piped = Text(f"\n\nFrom standard input ({size}):\n\n{text}", note=NOTE)
    return msgspec.structs.replace(said, given=(*said.given, piped))


def most_tokens(text: str) -> int:
    """How many tokens a text has at most, to two digits: nobody can count them without asking the model."""
    count = len(text.encode()) // BYTES_A_TOKEN
    unit = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit


def beyond_window(prompt: CliPrompt, *, model: str, limits: ModelLimits) -> str | None:
    """A line for a prompt that is larger than the model takes, if that is known."""
    takes = [most for most in (limits.max_input_tokens, limits.context_window_tokens) if most is not None]
    count = most_tokens("".join(prompt.texts))
    if not takes or count <= min(takes):
        return None
    return (
        f"the prompt has about {count:,} tokens at most, and {clean_line(model)} takes {min(takes):,}: it may not fit; give "
        "less, or put it into a file and let the model search it"
    )


def _prompt_of(words: Sequence[str]) -> str | None:
    """The prompt itself, without `-`. Raises CallerError for one that has come in pieces."""
    said = [word for word in words if word != STDIN]
    if len(said) > 1:
        whole = shlex.quote(" ".join(said)) if len(" ".join(said)) <= 200 else '"..."'
        raise CallerError(f"the PROMPT has come as {len(said)} words: put it in quotes: {clean_line(whole)}")
    return said[0] if said else None


def read_piped(stream: TextIO, *, patience_s: float, tell: Callable[[str], object]) -> bytes:
    """What is piped in, to its end. Nothing where it is a terminal, or where nothing comes in time, which `tell` is told."""
    try:
        if stream.isatty():
            return b""
        descriptor = stream.fileno()
    except (io.UnsupportedOperation, OSError, ValueError):  # a stand-in, or closed
        return b""
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(1000 * patience_s):
        tell(f"nothing came on standard input within {patience_s:g} seconds: going on without it (`-` waits for it)")
        return b""
    given = bytearray()
    told = False
    while True:
        if given and not told and not waiting.poll(1000 * patience_s):
            tell(f"reading standard input to its end: {len(given):,} bytes so far (Ctrl-C leaves)")
            told = True
        try:
            piece = os.read(descriptor, _PIECE)
        except OSError:  # a folder, or what a background process may not read
            return bytes(given)
        given += piece
        if not piece or len(given) > MAX_INPUT_BYTES:
            return bytes(given)


def _read_all() -> bytes:
    return sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)


def _text_of(given: bytes) -> str:
    if len(given) > MAX_INPUT_BYTES:
        raise CallerError(
            f"standard input is longer than {MAX_INPUT_BYTES:,} bytes: put it into a file and name the file in the prompt"
        )
    try:
        return given.decode()
    except UnicodeDecodeError as error:
        raise CallerError(
            f"standard input is not UTF-8 (byte {error.start}): put it into a file and name the file, or give -n"
        ) from error
