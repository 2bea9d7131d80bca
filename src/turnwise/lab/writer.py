"""A model that wants to write a large file, for tests of what happens where the output limit falls.

It counts tokens (4 bytes of what it generates each), stops at exactly the limit that the request asks for, is cut there in the
way of its family's API, and goes on from the text that the request shows it as its own: where a byte of that is wrong, what
follows is wrong too. Its habits say how it misbehaves while going on. Like every script it remembers nothing: what is written
already it reads from the calls and results in the request.

How each API hands out a call that its limit cut. Chat Completions and Responses: the raw text so far, streamed and not
(OpenAI API reference, `length` and `incomplete`). Anthropic's stream: a parameter is held back until it is whole, unless the
tool asks for `eager_input_streaming` (docs.anthropic.com, "Fine-grained tool streaming"); its body, and Gemini: an object
with the keys that happened to be whole, unless its stream is asked for pieces (`families/gemini.py`).
"""

import json
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.lab.families.family import CallSeen, Conversation, SentMessage
from turnwise.lab.raw import Raw, dig, dump, parse, table, text
from turnwise.lab.replies import BYTES_A_TOKEN, LabReply, LabRequest, TokenRoom, filled, signed, tokens
from turnwise.lab.script import Habit, Writer
from turnwise.lab.strict import JUDGES, asked_output, first_count
from turnwise.rules.advice import asks_for_pieces
from turnwise.vocab import ArgumentsState, FinishReason, Message, Part, Response, Text, ToolCall, Usage
from turnwise.vocab.parts import in_common

# How the scripted writer misbehaves while it continues its own text.
#
# It knows only the text that it wants to write and how much of it the request shows. It never sees what the other side held
# back. With some habits it writes something that cannot be joined, with others something that must not be joined: the file's
# own text in place of JSON text, or a text without the piece right behind the shown one.


_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u....|.)", re.DOTALL)
_STUTTER = 12  # characters said twice


def misbehave(whole: str, *, shown: str, habits: Collection[Habit], repeats: int) -> str:
    """What it says to go on with `whole` behind `shown`, of which it says `repeats` characters again where it repeats."""
    rest = whole[len(shown) :] if whole.startswith(shown) else f"(not what I wrote){whole[len(shown) :]}"
    again = shown[-repeats:] if repeats else ""
    for habit in ("skips-character", "skips-word", "skips-line"):
        if habit in habits:
            rest = _skip(rest, habit=habit)
    if "stutters" in habits:
        rest = rest[:_STUTTER] + rest
    if "restarts" in habits:
        rest = (again if "repeats" in habits else "") + shown + rest
    elif "respells" in habits:
        rest = respelt(_whole_escapes(again) + rest)
    elif "reflows" in habits:
        rest = re.sub(r"\s+|\\n", " ", again) + rest
    elif "repeats" in habits:
        rest = again + rest
    if "unescapes" in habits:
        rest = own_text(rest)
    elif "half-escapes" in habits:
        rest = own_text(rest.replace("\\n", "\\\\n"))
    if "curls" in habits:
        rest = rest.replace('\\"', "“")
    if "wraps" in habits:
        rest = json.dumps({"continuation": rest}, ensure_ascii=False)
    if "fences" in habits:
        rest = f"```json\n{rest}\n```"
    if "adds" in habits:
        rest = f"{rest}\n\nThat is the whole file."
    if "apologises" in habits:
        rest = f"Sorry for the interruption. Here is the rest:\n{rest}"
    return rest


def own_text(rest: str) -> str:
    """What the escapes in a piece of JSON text stand for: the file's own text, and the end of the arguments behind it."""
    return _ESCAPES.sub(_unescaped, rest)


def respelt(rest: str) -> str:
    r"""The same JSON text with other escapes: `\u00E9` for é and é for `\u00e9`, `\/` for /."""
    found = _ESCAPES.sub(lambda one: _unescaped(one) if one[0][1] in "u/" and _is_plain(one) else one[0], rest)
    if found != rest:
        return found
    spelt = [character if character.isascii() else _codes(character) for character in rest]
    return re.sub(r"\\(?:.)|/", lambda one: "\\/" if one[0] == "/" else one[0], "".join(spelt))


def _skip(rest: str, *, habit: Habit) -> str:
    """The rest without its first character, or without all up to and including the next end of a word or line."""
    if habit == "skips-character":
        return _ESCAPES.sub("", rest, count=1) if _ESCAPES.match(rest) else rest[1:]
    ends = re.search(r"\\n|\n" if habit == "skips-line" else r"[^\w\\]+", rest)
    return rest if ends is None else rest[ends.end() :]


def _whole_escapes(again: str) -> str:
    """It begins to repeat in front of an escape, not in the middle of one."""
    return re.sub(r"\A[^\w\s]*[0-9a-fA-Fu]*", "", again)


def _is_plain(one: re.Match[str]) -> bool:
    value = _unescaped(one)
    return value.isprintable() and value not in '"\\'


def _unescaped(one: re.Match[str]) -> str:
    try:
        return text(parse(f'"{one[0]}"'))
    except ValueError:  # half a character
        return one[0]


def _codes(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join([f"\\u{units[place : place + 2].hex().upper()}" for place in range(0, len(units), 2)])


# The patches by which a scripted writer writes a file: the format of openai/codex, as the tool `apply_patch` takes it.
#
# The first patch adds the file, later ones add lines at its end. A patch has whole lines only, so the wanted text ends with a
# line break, and has no carriage returns: the format cannot say them.
BEGIN, END = "*** Begin Patch", "*** End Patch"


def as_lines(content: str) -> str:
    """The text as a patch can write it."""
    return content.replace("\r", "").removesuffix("\n") + "\n"


def patch_adding(lines: Iterable[str], *, path: str, exists: bool) -> str:
    """The patch that makes the file of these lines, or adds them at its end. Lines come without their breaks."""
    header = f"*** Update File: {path}\n@@" if exists else f"*** Add File: {path}"
    return "\n".join([BEGIN, header, *[f"+{line}" for line in lines], END])


def added_text(patch: str) -> str:
    """What such a patch adds."""
    return "".join([f"{line[1:]}\n" for line in patch.split("\n") if line.startswith("+")])


PIECE_SHARE = 0.7  # of the limit that a piece takes once it was told to write pieces
A_LITTLE = 40  # tokens of thinking where little is asked for
OWN_BEGINNING = 16  # characters by which it knows a text as its own
HUNK_CHARACTERS = 1500
# The result of a call that was not run says so first (rules/arguments.py). A reader of results has no other sign of it.
NOT_DONE = "Not run"
DENIED = "Denied: "
BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
CLAIMS = {
    "true": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "stop": FinishReason.STOP,
    "none": FinishReason.CUT,
    "missing": FinishReason.CUT,
}
PHRASES = (
    "for index in range(count):\n    total += values[index]  # \"sum\" of 'all'\n",
    "Füße, Äpfel und größere Öfen: naïve cafés. ",
    "😀 👩‍👩‍👧 🇩🇪 ",
    'path = "C:\\\\temp\\\\new" or r"\\d+\\u00e4"\t\r\n',
    "=" * 300 + "\n",
    " " * 200,
    "The quick brown fox jumps over the lazy dog. ",
    "3.14159265358979, -1.5e-10, 1000000, ",
    "日本語のテキスト。",
    "```python\nprint('hello')\n```\n",
    '{"key": [1, 2, {"nested": "}]}"}]}\n',
)


class WantedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call it wants to make: `ends` are the places in the arguments' JSON where each key's value ends."""

    name: str
    json: str
    ends: tuple[int, ...]


@lru_cache(maxsize=64)
def file_text(size: int, *, seed: int = 1) -> str:
    """The wanted text: `size` bytes of code, prose, escapes, emoji, runs and numbers, the same for the same seed."""
    chance = Random(seed)
    pieces: list[str] = []
    left = size
    while left > 0:
        piece = (
            chance.choice(PHRASES) if chance.random() < 0.5 else f"item_{chance.randrange(10**9)} = {chance.random()}\n"
        )
        if len(piece.encode()) > left:
            piece = "." * left
        pieces.append(piece)
        left -= len(piece.encode())
    return "".join(pieces)


def files_of(writer: Writer) -> dict[str, str]:
    """Every file it wants to write, by path."""
    files = {writer.path: file_text(writer.size, seed=writer.seed)}
    if writer.writes == "two-files":
        files[f"second-{writer.path}"] = file_text(writer.size, seed=writer.seed + 1)
    return files


def room_of(body: Raw) -> TokenRoom:
    """The limits in a request of any family: each family's names are honoured."""
    judges = JUDGES.values()
    budget = first_count(body, [path for judge in judges for path in judge.budgets])
    words = {text(dig(body, *path)).lower() for judge in judges for path in judge.efforts}
    if words & {"minimal", "low"}:
        budget = A_LITTLE
    if "none" in words or "disabled" in [dig(body, *judge.unthinking) for judge in judges]:
        budget = 0
    return TokenRoom(output=asked_output(body), thinking=budget)


def writer_reply(writer: Writer, asked: LabRequest) -> LabReply:
    """What the writer says to this request."""
    conversation, family, room = asked.conversation, asked.family, asked.room
    if writer.limit is not None:
        room = replace(room, output=min(writer.limit, room.output or writer.limit))
    plays_pieces = family.plays_pieces if asked.streamed and conversation.eager else None
    if plays_pieces is not None:
        writer = replace(writer, escapes=False)  # values have no spelling there
    made = sum(1 for one in conversation.said if one.role == "assistant") + 1
    wanted, said = intention(writer, conversation=conversation, limit_tokens=room.output)
    thinking = "thinking " * (writer.thinks * BYTES_A_TOKEN // 9 + 1) if writer.thinks else ""
    if room.thinking is not None:
        thinking = thinking[: room.thinking * BYTES_A_TOKEN]
    pen = Pen(bytes_left=None if room.output is None else room.output * BYTES_A_TOKEN, half=writer.half)
    parts: list[Part] = []
    if thinking:
        thinking = pen.write(thinking)
        parts.append(family.thought(thinking, made, conversation.sealed))
    if said and (kept := pen.write(said)):
        parts.append(Text(kept))
    pens = pen.shared(len(wanted)) if writer.together else [pen] * len(wanted)
    for number, (call, own) in enumerate(zip(wanted, pens, strict=True), start=1):
        form = "object" if writer.objects else asked.cut_form(call.name)
        part = cut_call(call, id=f"call_{made}_{number}", pen=own, form=form)
        if part is not None:
            parts.append(signed(part, parts=parts, family=family))
    used = [pen, *pens] if writer.together else [pen]
    is_cut = any(one.cut for one in used)
    written = tokens(sum([one.written for one in used]))
    generated = written if room.output is None else min(written, room.output)
    response = Response(
        message=Message("assistant", tuple(parts)),
        finish=finish_of(writer, parts=parts, cut=is_cut),
        usage=Usage(
            input_tokens=tokens(asked.prompt_bytes),
            output_tokens=generated,
            reasoning_tokens=min(tokens(len(thinking.encode())), generated),
        ),
        id=f"lab-writer-{made}",
        model="writer",
    )
    return LabReply(
        response=response,
        step=made,
        wire=None if plays_pieces is None else plays_pieces(response, writer.piece),
        fault=writer.faults[asked.receipt] if wanted and asked.receipt < len(writer.faults) else None,
        ends_unsaid=is_cut and writer.finish == "missing",
        piece=writer.piece,
    )


def finish_of(writer: Writer, *, parts: list[Part], cut: bool) -> FinishReason:
    """The truth, or for a cut response what the writer was told to claim."""
    if cut:
        return CLAIMS[writer.finish]
    return FinishReason.TOOL_CALLS if any(isinstance(part, ToolCall) for part in parts) else FinishReason.STOP


class Pen:
    """Writes until the limit. `cut` once something did not fit."""

    def __init__(self, *, bytes_left: int | None, half: str) -> None:
        self.left = bytes_left
        self.half = half
        self.written = 0
        self.cut = False

    def shared(self, calls: int) -> list["Pen"]:
        """Pens that have an equal part of what is left each."""
        part = None if self.left is None else self.left // max(calls, 1)
        return [Pen(bytes_left=part, half=self.half) for _ in range(calls)]

    def write(self, said: str) -> str:
        """As much of it as fits. Half a character at the end is dropped, or replaced as some servers do."""
        body = said.encode()
        if self.left is not None and len(body) > self.left:
            self.cut = True
            body, whole = body[: self.left], body
            said = body.decode("utf-8", "ignore")
            if self.half and len(said.encode()) < len(body) < len(whole):
                said += self.half
        self.written += len(body)
        self.left = None if self.left is None else self.left - len(body)
        return said


def cut_call(call: WantedCall, *, id: str, pen: Pen, form: Literal["text", "held", "object"]) -> ToolCall | None:
    """The call as far as it was written, as the API hands it out; None where it had not begun."""
    if pen.left is not None and pen.left <= 0:
        pen.cut = True
        return None
    pen.write(call.name)
    kept = pen.write(call.json)
    if not pen.cut:
        return ToolCall(id=id, name=call.name, arguments=call.json)
    if form == "text":
        return ToolCall(id=id, name=call.name, arguments=kept, state=ArgumentsState.TRUNCATED)
    whole = call.json[: max((end for end in call.ends if end <= len(kept)), default=1)]
    if form == "held":
        return ToolCall(id=id, name=call.name, arguments=whole, state=ArgumentsState.TRUNCATED)
    return ToolCall(id=id, name=call.name, arguments=whole + "}")


# what it wants


def intention(
    writer: Writer, *, conversation: Conversation, limit_tokens: int | None
) -> tuple[tuple[WantedCall, ...], str]:
    """The calls it wants to make now, and the text it wants to say before them."""
    shown, earlier = shown_text(conversation.said)
    if shown:
        calls, said = plan(writer, said=earlier, limit_tokens=limit_tokens)
        # It goes on in the spelling that it is shown: an API that hands out values has spelt them its own way.
        plainly, _ = plan(replace(writer, escapes=False), said=earlier, limit_tokens=limit_tokens)
        own = [call.json for call in (*calls, *plainly)] or [said]
        whole = max(own, key=lambda one: shared(one, shown))
        if shared(whole, shown) >= min(OWN_BEGINNING, len(shown)) and shown != said:
            return continue_text(writer, whole=whole, shown=shown, calls=calls)
    calls, said = plan(writer, said=conversation.said, limit_tokens=limit_tokens)
    if calls and (conversation.forbids or not conversation.tools):
        return (), "That is as far as I came."
    return calls, said


def shown_text(said: tuple[SentMessage, ...]) -> tuple[str, tuple[SentMessage, ...]]:
    """The assistant's text that the request ends with, but for what the user says about it, and what came before it."""
    place = len(said) - 1
    if place > 0 and said[place].role == "user":
        place -= 1
    last = said[place] if said else SentMessage(role="user")
    if last.role != "assistant" or last.calls or not last.texts:
        return "", said
    return last.texts[-1], said[:place]


def continue_text(
    writer: Writer, *, whole: str, shown: str, calls: tuple[WantedCall, ...]
) -> tuple[tuple[WantedCall, ...], str]:
    """The rest of `whole` behind `shown`, as its habits have it."""
    if "nothing" in writer.habits:
        return (), ""
    if "ignores" in writer.habits:
        return (), "I have written the file. Is there anything else that I can do for you?"
    if "calls" in writer.habits:
        return calls, ""
    return (), misbehave(whole, shown=shown, habits=writer.habits, repeats=writer.repeats)


def shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    if other.startswith(one) or one.startswith(other):
        return min(len(one), len(other))
    return in_common(one, other)


def plan(
    writer: Writer, *, said: tuple[SentMessage, ...], limit_tokens: int | None
) -> tuple[tuple[WantedCall, ...], str]:
    """What is still to do, going by the results so far."""
    if writer.writes == "answer":
        return (), file_text(writer.size, seed=writer.seed).strip()
    if denied := [call.name for call, result in answered(said) if result.startswith(DENIED)]:
        return (), f"I may not use `{denied[0]}`, so nothing more is written."
    done = [(call, table(parse(call.arguments))) for call, result in answered(said) if NOT_DONE not in result]
    pieces = "insists" not in writer.habits and any(asks_for_pieces(result) for _, result in answered(said))
    if writer.writes == "patch":
        calls = plan_patch(writer, done=done, limit_tokens=limit_tokens if pieces else None)
    elif writer.writes == "patch-text":
        calls = plan_patch_text(writer, done=done, limit_tokens=limit_tokens if pieces else None)
    else:
        calls = plan_files(writer, done=done, limit_tokens=limit_tokens if pieces else None)
        if writer.writes == "beside-read" and calls and not any(call.name == "read" for call, _ in done):
            calls = (wanted_call("read", arguments={"path": "notes.txt"}, writer=writer), *calls)
    return calls, "" if calls else f"{' and '.join(files_of(writer))} written."


def answered(said: tuple[SentMessage, ...]) -> list[tuple[CallSeen, str]]:
    """Every call with its result. Results come in call order; Gemini's need no ids."""
    found: list[tuple[CallSeen, str]] = []
    for asked, after in pairwise(said):
        if asked.calls and after.role == "results":
            found += [(call, result.content) for call, result in zip(asked.calls, after.results, strict=False)]
    return found


def plan_files(
    writer: Writer, *, done: list[tuple[CallSeen, dict[str, Raw]]], limit_tokens: int | None
) -> tuple[WantedCall, ...]:
    """A call for each unfinished file; in pieces, one call for the next piece. A file that went wrong begins again."""
    calls: list[WantedCall] = []
    if writer.tool is not None:
        return tuple([call for call in own_calls(writer) if not was_made(call, done=done)])
    for path, content in files_of(writer).items():
        written = ""
        for call, arguments in done:
            if call.name == "write" and text(arguments.get("path")) == path:
                written = (written if arguments.get("append") is True else "") + text(arguments.get("content"))
        if written == content:
            continue
        start = len(written) if content.startswith(written) else 0
        rest = content[start:]
        if limit_tokens is not None:
            rest = fitting(rest, writer=writer, limit_tokens=limit_tokens)
        append = {"append": True} if start else {}
        calls.append(wanted_call("write", arguments={"path": path, "content": rest, **append}, writer=writer))
    return tuple(calls[:1] if limit_tokens is not None else calls)


def own_calls(writer: Writer) -> list[WantedCall]:
    """A call of the agent's own tool for each file."""
    assert writer.tool is not None
    return [
        wanted_call(
            writer.tool.name,
            arguments=filled(writer.tool.arguments, values={"path": path, "content": content}),
            writer=writer,
        )
        for path, content in files_of(writer).items()
    ]


def was_made(call: WantedCall, *, done: list[tuple[CallSeen, dict[str, Raw]]]) -> bool:
    """A client may add arguments of its own, and leave none out."""
    wanted = table(parse(call.json)).items()
    return any(
        one.name == call.name and all(arguments.get(key) == value for key, value in wanted) for one, arguments in done
    )


def plan_patch(
    writer: Writer, *, done: list[tuple[CallSeen, dict[str, Raw]]], limit_tokens: int | None
) -> tuple[WantedCall, ...]:
    """One call with all hunks that are missing; in pieces, as many as fit. Closed early, the array would still be valid."""
    content = file_text(writer.size, seed=writer.seed)
    hunks = [
        {
            "path": writer.path,
            "line": 1 + content.count("\n", 0, start),
            "new": content[start : start + HUNK_CHARACTERS],
        }
        for start in range(0, len(content), HUNK_CHARACTERS)
    ]
    applied = "".join([dump(arguments).decode() for _, arguments in done])
    missing = [hunk for hunk in hunks if dump(hunk["new"]).decode() not in applied]
    if limit_tokens is not None:
        allowed, first = int(limit_tokens * BYTES_A_TOKEN * PIECE_SHARE), missing
        missing = first[:1]
        while len(missing) < len(first) and len(spelt(first[: len(missing) + 1], writer=writer)) <= allowed:
            missing = first[: len(missing) + 1]
    return (wanted_call("apply_patch", arguments={"edits": missing}, writer=writer),) if missing else ()


def plan_patch_text(
    writer: Writer, *, done: list[tuple[CallSeen, dict[str, Raw]]], limit_tokens: int | None
) -> tuple[WantedCall, ...]:
    """One patch with all lines that are missing; in pieces, with as many as fit."""
    content = as_lines(file_text(writer.size, seed=writer.seed))
    written = "".join([added_text(text(arguments.get("patch"))) for _, arguments in done])
    if written == content:
        return ()
    start = len(written) if content.startswith(written) else 0
    lines = content[start:].removesuffix("\n").split("\n")
    count = len(lines)
    if limit_tokens is not None:
        allowed = int(limit_tokens * BYTES_A_TOKEN * PIECE_SHARE)
        sizes = accumulate([len(spelt(f"+{line}\n", writer=writer).encode()) for line in lines])
        count = max(1, sum(size <= allowed for size in sizes))
    patch = patch_adding(lines[:count], path=writer.path, exists=start > 0)
    return (wanted_call("apply_patch", arguments={"patch": patch}, writer=writer),)


def fitting(rest: str, *, writer: Writer, limit_tokens: int) -> str:
    """The longest beginning whose JSON takes no more than its share of the limit."""
    allowed = int(limit_tokens * BYTES_A_TOKEN * PIECE_SHARE)
    sizes = range(1, min(len(rest), allowed) + 1)
    fit = bisect_right(sizes, allowed, key=lambda size: len(spelt(rest[:size], writer=writer).encode()))
    return rest[: max(1, fit)]


def wanted_call(name: str, *, arguments: dict[str, object], writer: Writer) -> WantedCall:
    """The call with its JSON as this writer spells it."""
    pieces: list[str] = []
    ends: list[int] = []
    length = 0
    for number, (key, value) in enumerate(arguments.items()):
        pieces.append(f'{"," if number else "{"}"{key}":{spelt(value, writer=writer)}')
        length += len(pieces[-1])
        ends.append(length)
    return WantedCall(name=name, json="".join(pieces) + "}", ends=tuple(ends))


def spelt(value: object, *, writer: Writer) -> str:
    """The value as JSON, as this writer spells it."""
    plain = dump(value).decode()
    return BEYOND_ASCII.sub(lambda found: escaped(found[0]), plain) if writer.escapes else plain


@lru_cache(maxsize=4096)  # its text says the same things again and again
def escaped(beyond: str) -> str:
    units = beyond.encode("utf-16-be")
    return "".join([f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2)])
