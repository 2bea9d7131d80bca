"""The prompt of a run: the words of the command line, what is piped in, and the files that `@file` names."""

import asyncio
import io
import os
import re
import select
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from turnwise.coding_agent.text import clean_line
from turnwise.errors import CallerError, ToolFault
from turnwise.rules.limits import BYTES_A_TOKEN
from turnwise.rules.permissions import Policy, judge_permission
from turnwise.rules.prompt_room import ModelLimits
from turnwise.running.run_context import Inspector
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import ReadArguments, left_out, read
from turnwise.turn.events import PlannedCall
from turnwise.vocab import File, Text, ToolCall
from turnwise.vocab.file_names import given_name

MAX_INPUT_BYTES = 4 * 1024 * 1024  # of what comes on standard input, and of an output schema
LARGE_BYTES = 64 * 1024  # from there on its tokens are said, too
PATIENCE_S = 3.0  # with a pipe in which nothing comes
STDIN = "-"
NOTE_OF_INPUT = "standard input"  # what the message says of such a text, which is not the person's own words
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
    prompt = prompt_of(words)
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
    piped = Text(f"\n\nFrom standard input ({size}):\n\n{text}", note=NOTE_OF_INPUT)
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


def prompt_of(words: Sequence[str]) -> str | None:
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


# `@file` in what a person typed: the file goes with the prompt, by the rules of the tool `read`.


MAX_FILES = 20  # of one prompt
MAX_MISSING = 5  # that are named: a pasted text may hold many
NOTE_OF_FILE = "file"  # what the message says of such a text, which is not the person's own words
# Not within a word: `ada@example.com` names no file. A name with blanks is quoted, or has a backslash before each.
MENTION = re.compile(r"""(?<![\w@./\\-])@(?:"([^"\n]+)"|'([^'\n]+)'|((?:\\.|[^\s"'`,;()\[\]{}<>|\\])+))""")
_LAST = ".:!?"  # the end of a sentence rather than of a name
# By which a word is known as a file that should be there. Decorators have none of them (`@app.get`, `@pytest.fixture`).
ENDINGS = frozenset(
    """bash bat bmp c cc cfg conf cpp cs css csv dart diff docx env erl ex exs gif go gql gradle h hpp hs htm html ini ipynb java
    jpeg jpg js json jsonl jsx kt lock log lua md mjs ml patch pdf php pl png proto ps1 py pyi r rb rs rst scala scss sh sql
    svelte svg swift tex tf toml ts tsv tsx txt vue webp xlsx xml yaml yml zig zip""".split()
)

PromptPart = str | Text | File


async def with_files(
    typed: str,
    *,
    workspace: WorkspacePaths,
    inspect: Inspector,
    policy: Policy,
    tell: Callable[[str], object],
) -> list[PromptPart]:
    """The text as it was typed, and behind it each file that it names. `tell` is given what was put in, what not, and why."""
    parts: list[PromptPart] = [typed]
    names = named_files(typed, workspace=workspace)
    for name in names[:MAX_FILES]:
        shown = clean_line(name)
        if why := await _forbidden(name, inspect=inspect, policy=policy):
            tell(f"not put in: {shown} ({why}); the model may ask to read it")
            continue
        try:
            content = await asyncio.to_thread(read, workspace, ReadArguments(path=name), whole=True)
        except ToolFault as fault:
            tell(f"not put in: {clean_line(str(fault))}")
            continue
        missing = left_out(content) if isinstance(content, str) else ""
        tell(f"put in: {shown} (only {missing}; the model may read more)" if missing else f"put in: {shown}")
        if isinstance(content, str):
            parts.append(Text(f"\n\nThe file `{name}`, which the user has put in:\n\n{content}", note=NOTE_OF_FILE))
        else:
            parts += [
                Text(f"\n\n{part.text}", note=NOTE_OF_FILE) if isinstance(part, Text) else part for part in content
            ]
    if len(names) > MAX_FILES:
        tell(f"not put in: {len(names) - MAX_FILES} more; a prompt takes {MAX_FILES} files")
    lost = missing_files(typed, workspace=workspace)
    for name in lost[:MAX_MISSING]:
        tell(f"not put in: {clean_line(name)}: there is no such file")
    if len(lost) > MAX_MISSING:
        tell(f"not put in: {len(lost) - MAX_MISSING} more that are not there")
    return parts


def named_files(typed: str, *, workspace: WorkspacePaths) -> list[str]:
    """The paths behind each `@`, once each, in order. A word that names nothing in the folder (`@decorator`) is no path."""
    found: dict[str, None] = {}
    for match in MENTION.finditer(typed):
        for name in _readings(match):
            if _is_there(name, workspace=workspace):
                found[name] = None
                break
    return list(found)


def missing_files(typed: str, *, workspace: WorkspacePaths) -> list[str]:
    """Words behind `@` that look like paths and lead nowhere, once each, in order.

    Many words behind `@` are no paths: people, decorators, packages (`@alice`, `@app.get("/")`, `@types/node`). A word counts
    that ends as files do, or begins as only paths do, or with a folder that is there.
    """
    found: dict[str, None] = {}
    for match in MENTION.finditer(typed):
        readings = _readings(match)
        is_called = typed[match.end() : match.end() + 1] == "("
        if is_called or any(_is_there(name, workspace=workspace) for name in readings):
            continue
        if _looks_like_path(readings[-1], workspace=workspace):
            found[readings[-1]] = None
    return list(found)


def _looks_like_path(name: str, *, workspace: WorkspacePaths) -> bool:
    if "@" in name or "://" in name:  # a package with its version, an address
        return False
    above, _, last = name.rpartition("/")
    stem, _, ending = last.rpartition(".")
    if stem and ending.lower() in ENDINGS:
        return not name.startswith("/") or _is_there(above, workspace=workspace)
    if name.startswith(("./", "../", "~/")):
        return True
    first = name.partition("/")[0]
    return bool(first) and "/" in name and _is_there(first, workspace=workspace)


def _readings(match: re.Match[str]) -> Sequence[str]:
    """The name itself, and, unless it is quoted, without what may end the sentence. A name of bytes stands as it is shown."""
    if quoted := match[1] or match[2]:
        return [quoted]
    name = re.sub(r"\\(.)", r"\1", match[3])
    as_shown = [match[3]] if given_name(match[3]) != match[3] else []
    return [reading for reading in dict.fromkeys([*as_shown, name, name.rstrip(_LAST)]) if reading]


def _is_there(name: str, *, workspace: WorkspacePaths) -> bool:
    try:
        return (workspace.root / Path(given_name(name)).expanduser()).exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no home
        return False


async def _forbidden(name: str, *, inspect: Inspector, policy: Policy) -> str:
    """Why `read` would not be allowed to show it at once; empty where it would."""
    arguments = msgspec.json.encode({"path": name}).decode()
    call = ToolCall(id="mention", name="read", arguments=arguments)
    (facts,) = await inspect((PlannedCall(call=call, arguments=arguments, timeout_s=0.0),))
    verdict = judge_permission(facts, policy=policy)
    return "" if verdict.kind == "allow" else clean_line(verdict.why or "the rules do not allow it")
