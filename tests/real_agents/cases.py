"""What a model wants an agent to do, and how its stream is broken: one script of the lab for each agent and case.

Each agent has tools of its own, so a script is made with the name and the arguments of the agent's tool. In every case the model
wants files, and the case is right if they have the wanted content in the end.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from turnwise.lab.script import Script, ScriptedCall, ScriptedFault, ScriptedStep, Writer
from turnwise.lab.writer import file_text

PIECE = 12  # characters of arguments that a chunk has: each call comes in several
LARGE_BYTES, CAP_TOKENS = 40_000, 8_000
LARGE = "large.md"  # Claude Code takes the blanks from the ends of lines, but not in this kind of file
SHORT, SHORT_BYTES = "short.md", 2_000
SMALL = {"first.txt": "The first file.\n", "second.txt": "The second file.\n"}
DONE = "The files are written."
Call = Callable[[str, str], ScriptedCall]  # the call that writes a file: of its path and its content


class Case(NamedTuple):
    title: str
    files: Mapping[str, str]
    script: Callable[[Call, bool], Script]  # of the call, and whether the agent takes one a response


def call_pieces(call: ScriptedCall) -> list[str]:
    arguments = msgspec.json.encode(call.arguments).decode()
    return [arguments[start : start + PIECE] for start in range(0, len(arguments), PIECE)]


def chunk(*, name: str | None = None, arguments: str = "", **fields: object) -> str:
    """A chunk with one piece of a call, as a line of the lab's scripts."""
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    kind = {} if name is None else {"type": "function"}
    return msgspec.json.encode({"tool_calls": [{**fields, **kind, "function": function}]}).decode()


def one_index(calls: list[ScriptedCall]) -> list[str]:
    """Each call on index 0, its id and name in its first chunk alone."""
    return [
        line
        for number, call in enumerate(calls, start=1)
        for line in (
            chunk(index=0, id=f"call_{number}", name=call.name),
            *[chunk(index=0, arguments=piece) for piece in call_pieces(call)],
        )
    ]


def no_index(calls: list[ScriptedCall]) -> list[str]:
    """Told apart by their ids."""
    return [
        line
        for number, call in enumerate(calls, start=1)
        for line in (
            chunk(id=f"call_{number}", name=call.name),
            *[chunk(id=f"call_{number}", arguments=piece) for piece in call_pieces(call)],
        )
    ]


def no_ids(calls: list[ScriptedCall]) -> list[str]:
    return [
        line
        for index, call in enumerate(calls)
        for line in (
            chunk(index=index, name=call.name),
            *[chunk(index=index, arguments=piece) for piece in call_pieces(call)],
        )
    ]


def id_in_every_chunk(calls: list[ScriptedCall]) -> list[str]:
    return [
        line
        for index, call in enumerate(calls)
        for line in (
            chunk(index=index, id=f"call_{index + 1}", name=call.name),
            *[chunk(index=index, id=f"call_{index + 1}", arguments=piece) for piece in call_pieces(call)],
        )
    ]


def two_files(write: Call, one_call: bool, *, lines: Callable[[list[ScriptedCall]], list[str]]) -> Script:
    """With `one_call` the model makes the second call again, as a model does that sees only its first one answered."""
    calls = [write(path, content) for path, content in SMALL.items()]
    wire = "\n".join([*lines(calls), "finish tool_calls", "usage", "done"])
    first = ScriptedStep(calls=tuple(calls), wire={"openai_chat": wire})
    again = (ScriptedStep(calls=(calls[1],)),) if one_call else ()
    return Script(
        name="two-files", title="writes two files", steps=(first, *again, ScriptedStep(text=DONE)), forced=DONE
    )


def in_text(write: Call, _one_call: bool) -> Script:
    call = write(*next(iter(SMALL.items())))
    said = msgspec.json.encode({"name": call.name, "arguments": call.arguments}).decode()
    steps = (ScriptedStep(text=f"<tool_call>\n{said}\n</tool_call>"), ScriptedStep(text=DONE))
    return Script(name="in-text", title="writes its call into the text", steps=steps)


def large_file(write: Call, _one_call: bool) -> Script:
    writer = Writer(tool=write("{path}", "{content}"), path=LARGE, size=LARGE_BYTES, limit=CAP_TOKENS, piece=400)
    return Script(name="large-file", title="writes a large file", writer=writer, prefill=False)


def failing_once(write: Call, *, fault: ScriptedFault) -> Script:
    """Fails the first time that it is asked to write; it can continue what it is shown."""
    writer = Writer(tool=write("{path}", "{content}"), path=SHORT, size=SHORT_BYTES, faults=(fault,))
    return Script(name="failing", title="writes a file, and fails the first time", writer=writer, prefill=False)


# Gemini's API sends a call whole or not at all.
NOTHING_TO_GO_ON = frozenset({("large-file", "gemini")})
FIRST = dict([next(iter(SMALL.items()))])
CASES = {
    "one-index": Case(
        "two parallel calls on one index",
        SMALL,
        lambda write, one_call: two_files(write, one_call, lines=one_index),
    ),
    "no-index": Case(
        "two parallel calls without an index",
        SMALL,
        lambda write, one_call: two_files(write, one_call, lines=no_index),
    ),
    "no-ids": Case(
        "two parallel calls without ids", SMALL, lambda write, one_call: two_files(write, one_call, lines=no_ids)
    ),
    "id-in-every-chunk": Case(
        "two parallel calls, the id in every chunk",
        SMALL,
        lambda write, one_call: two_files(write, one_call, lines=id_in_every_chunk),
    ),
    "in-text": Case("a call written as text", FIRST, in_text),
    "large-file": Case(
        "a 40 KB file by a model that stops after 8,000 tokens",
        {LARGE: file_text(LARGE_BYTES)},
        large_file,
    ),
    "drop": Case(
        "the connection breaks in mid-call, once",
        {SHORT: file_text(SHORT_BYTES)},
        lambda write, _one_call: failing_once(write, fault=ScriptedFault(kind="reset", at="arguments")),
    ),
    "stall": Case(
        "the stream falls silent in mid-call, once",
        {SHORT: file_text(SHORT_BYTES)},
        lambda write, _one_call: failing_once(write, fault=ScriptedFault(kind="stall", at="arguments")),
    ),
}
