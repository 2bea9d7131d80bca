"""A script: what the lab says, step by step, as a small TOML file. `docs/lab.md` shows the format with an example."""

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.errors import CallerError
from turnwise.vocab import FinishReason
from turnwise.vocab.wording import in_ticks

FaultName = Literal[
    "status",
    "html",
    "error-in-stream",
    "reset",
    "eof",
    "stall",
    "pings",
    "endless-line",
    "random-bytes",
    "invalid-utf8",
    "torn-event",
    "sent-twice",
]
FaultPoint = Literal["headers", "start", "text", "arguments", "finish"]
Habit = Literal[
    "repeats",
    "restarts",
    "fences",
    "apologises",
    "adds",
    "ignores",
    "nothing",
    "calls",
    "insists",
    "unescapes",
    "half-escapes",
    "skips-character",
    "skips-word",
    "skips-line",
    "stutters",
    "respells",
    "reflows",
    "curls",
    "wraps",
]
Binding = Literal["", "refuses", "drops", "uncontrolled"]
GenerationName = Literal[
    "",
    "claude-opus-4-7",
    "claude-opus-5",
    "claude-opus-5-5",
    "claude-sonnet-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
    "claude-fable-5",
    "claude-fable-5-1",
    "claude-fable-5-2",
    "gpt-5.6",
    "gpt-6-luna",
    "gpt-6-astra",
    "gpt-6.1-sol",
    "gpt-6.2-sol",
]
PLACEHOLDER = re.compile(r"\{([a-z_]+)(?: ([a-z0-9_]+)-([a-z0-9_]+))?\}")
BUILTIN_WORDS = frozenset({"n", "result", "results", "example", "lines"})


class ScriptError(CallerError):
    """A script file cannot be used; the text says which, and why."""


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One call. Without an `id` the lab makes one that is new in its conversation. `cut_after` counts characters of the
    arguments' JSON after which the output limit falls. `or_any`: where no tool of that name is on offer, the first one
    that is, with arguments made up from its schema."""

    name: str
    arguments: dict[str, object] = {}
    id: str | None = None
    cut_after: int | None = None
    or_any: bool = False


class ScriptedItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An item of one family that goes out verbatim (a server-side tool's call, say)."""

    family: str
    kind: str
    json: str


class ScriptedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong. `after` counts pieces of the stream that are sent before it does; `at` is a place in it instead: not
    even headers are sent, headers only, the middle of the text or of the arguments, or behind the finish reason. `text` and
    `calls` are said in place of the step's own by the response that fails. `headers` go out with a refusal; `retry_delay` is
    Google's `RetryInfo`."""

    kind: FaultName
    after: int = 0
    at: FaultPoint | None = None
    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    headers: dict[str, str] = {}
    retry_delay: str | None = None
    status: int = 500
    message: str = "The lab was told to fail here."
    code: str | None = None
    retry_after_s: float | None = None


class ScriptedStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One response.

    `take` looks for each of its patterns in the results at hand and keeps the first group under its name; where one is
    not found, the step says `otherwise` and calls nothing. `asked`: the step is for a turn whose question this pattern is
    found in, and comes at once, whatever its place; those of one pattern come one after the other. `continues`: a text of
    this step does not end the turn, what the user says next belongs to it. `wire` is the stream of a family, line by line, in
    place of what its encoder writes
    (see `wire.py`); `calls` then say what it means. `faults` are met by the first, second ... receipt of the very same
    request; the one after them is answered well. `fault` is met by all.
    """

    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    items: tuple[ScriptedItem, ...] = ()
    finish: FinishReason | None = None
    take: dict[str, str] = {}
    otherwise: str = ""
    asked: str = ""
    continues: bool = False
    wire: dict[str, str] = {}
    fault: ScriptedFault | None = None
    faults: tuple[ScriptedFault, ...] = ()


class Writer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What it wants to write, and how it behaves. `size` is in bytes; `thinks` are tokens of reasoning before each response;
    `escapes`: everything but ASCII as JSON escapes; `half`: what is left of a character that the limit cut;
    `limit`: its own of output tokens, whatever is asked for. `finish` is what it claims where it was cut: `none` ends the
    stream there, `missing` says everything else that a stream ends with. `tool` is the call it writes a file with, for agents
    whose tools are other ones: `{path}` and `{content}` in its arguments stand for what the words say. It does not write pieces.
    `faults` are met as those of a step by requests that it answers with a call; the same words make the same request."""

    writes: Literal["file", "two-files", "beside-read", "patch", "patch-text", "answer"] = "file"
    tool: ScriptedCall | None = None
    path: str = "big.txt"
    size: int = 40_000
    seed: int = 1
    escapes: bool = False
    thinks: int = 0
    finish: Literal["true", "tool_calls", "stop", "none", "missing"] = "true"
    habits: tuple[Habit, ...] = ()
    repeats: int = 40  # characters
    half: Literal["", "\ufffd"] = ""
    piece: int = 24  # characters that its streams send at a time
    together: bool = False  # writes its calls side by side, as vLLM and others may, so that a limit cuts each of them
    limit: int | None = None
    faults: tuple[ScriptedFault, ...] = ()
    objects: bool = False  # hands out what was whole of a cut call as an object, whatever its API does


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`obeys` says when a step's calls give way to `forced` (else the last step's text): `none`, when tool choice is none
    or no tool is on offer; `no-tools`, only when none is on offer; `never`. `nudges` counts each further text of the user
    within a turn as one response before it (an empty one leaves no other trace). `requests` is what a turn that does as
    it is asked takes; `continuations` are the requests that a client makes besides, where it asks for the rest of a call that was
    cut and its API gives the prefix; `promises` are those that the script's shape belongs to.

    `recall` looks for patterns in what stands in the request in the user's name (summaries too), and keeps the last match's
    first group under its name, or `forgotten` where there is none: the model knows nothing else. Where the user's last text
    fits `summarises` it writes a summary, an extract of what it is given. `window_tokens` and `output_tokens` are its limits:
    a request past them is refused as its API refuses it. `caches`: prompts are kept as the provider's docs say it, from
    `cache_least_tokens` on where that is said. `binds`: its thinking holds only behind what it was thought on. Stale thinking is
    refused unless the request asks to drop it (`refuses`), dropped in silence (`drops`), or refused in any case, by a server that
    does not know how to be asked (`uncontrolled`). Responses always drop it. `generation`: what the model of that
    name refuses is refused."""

    name: str
    title: str
    steps: tuple[ScriptedStep, ...] = ()
    writer: Writer | None = None  # in the place of steps: it writes a large file, or answer
    parameters: dict[str, str | int] = {}
    obeys: Literal["none", "no-tools", "never"] = "none"
    forced: str = ""
    nudges: bool = False
    recall: dict[str, str] = {}
    forgotten: str = "(I do not know)"
    summarises: str = ""
    window_tokens: int | None = None
    output_tokens: int | None = None
    prefill: bool = True
    caches: bool = True
    cache_least_tokens: int | None = None
    binds: Binding = ""
    generation: GenerationName = ""
    families: tuple[str, ...] = ()
    healthy: bool = True
    requests: int | None = None
    continuations: int = 0
    promises: tuple[str, ...] = ()

    def speaks(self, family: str) -> bool:
        return not self.families or family in self.families

    @property
    def thinks(self) -> bool:
        return any(step.reasoning for step in self.steps) or (self.writer is not None and self.writer.thinks > 0)

    def with_parameters(self, changed: Mapping[str, str | int]) -> "Script":
        """Raises ScriptError for a parameter that the script does not have."""
        unknown = sorted(set(changed) - set(self.parameters))
        if unknown:
            known = in_ticks(self.parameters) or "none"
            raise ScriptError(f"script `{self.name}` has no parameter `{unknown[0]}`; it has {known}")
        return replace(self, parameters={**self.parameters, **changed})


def parse_script(text: str, *, name: str) -> Script:
    """TOML -> script. Raises ScriptError saying what is wrong where."""
    try:
        script = msgspec.convert({"name": name, **tomllib.loads(text)}, Script)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ScriptError(f"script `{name}`: {error}") from None
    if bool(script.steps) is (script.writer is not None):
        raise ScriptError(f"script `{name}` has " + ("steps and a writer" if script.steps else "no steps"))
    if script.steps and all(step.asked for step in script.steps):
        raise ScriptError(f"script `{name}` has steps for questions only: add one for every other turn")
    for number, step in enumerate(script.steps, start=1):
        known = BUILTIN_WORDS | set(script.parameters) | set(script.recall) | set(step.take)
        said = [step.text, step.reasoning, step.otherwise, *(f"{call.name}{call.arguments}" for call in step.calls)]
        unknown = sorted({word for text in said for word in words_of(text)} - known)
        if unknown:
            raise ScriptError(
                f"script `{name}`, step {number}: `{{{unknown[0]}}}` is no parameter and nothing that it takes"
            )
    return script


def words_of(text: str) -> set[str]:
    return {found.group(1) for found in PLACEHOLDER.finditer(text)}


def load_scripts(folder: Path) -> dict[str, Script]:
    """Every `*.toml` in `folder`, by its name. Raises ScriptError for one that cannot be used."""
    return {
        path.stem: parse_script(path.read_text(encoding="utf-8"), name=path.stem)
        for path in sorted(folder.glob("*.toml"))
    }


def builtin_scripts() -> dict[str, Script]:
    """The scripts that ship with turnwise, by name."""
    return dict(_read_builtin_scripts())


@cache  # each `Lab` asks for them, and reading them takes longer than most turns
def _read_builtin_scripts() -> dict[str, Script]:
    folder = resources.files("turnwise.lab").joinpath("scripts")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {
        name: parse_script(file.read_text(encoding="utf-8"), name=name)
        for file in files
        for name in [file.name.removesuffix(".toml")]
    }


def by_name(scripts: Iterable[Script]) -> dict[str, Script]:
    return {script.name: script for script in scripts}


def numbered_lines(first: int, last: int) -> str:
    """The text that `{lines first-last}` stands for: easy to make, easy to find a missing piece in."""
    return "".join([f"line {number:05d}: the quick brown fox\n" for number in range(first, last + 1)])


def fill(text: str, *, values: Mapping[str, str | int]) -> str:
    """Put the values in the place of `{name}`, and numbered lines in that of `{lines a-b}`."""

    def value(found: re.Match[str]) -> str:
        word, first, last = found.group(1), found.group(2), found.group(3)
        if word == "lines" and first:
            return numbered_lines(int(values.get(first, first)), int(values.get(last, last)))
        return str(values.get(word, found.group(0)))

    return PLACEHOLDER.sub(value, text)
