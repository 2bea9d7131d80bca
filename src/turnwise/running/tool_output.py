"""What a tool returned -> the result that the model reads: text of bounded size, or files."""

import contextlib
import json
import logging
import math
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence, Set, ValuesView
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import PurePath
from typing import TypeVar, cast
from uuid import UUID

import msgspec

from turnwise.errors import ToolFault
from turnwise.vocab import File, Text, ToolCall, ToolResult

# About 16,000 tokens: more would drown a context window. The head and the tail are kept, because both tell what happened.
MAX_TEXT_CHARACTERS = 64 * 1024
MAX_PARTS = 100  # texts share the limit: with fewer than 600 characters each, they would say nothing
MAX_FILE_BYTES = 20 * 1024 * 1024  # what the large providers accept in one request
MAX_NOTE_CHARACTERS = 20 * 1024  # of all notes beside the texts together: notes do not shorten a result
ERROR_CHARACTERS = 4 * 1024
NOTHING = "(no output)"  # some APIs refuse an empty result
TOOL_FAILED = "the tool failed. It may have done a part of its work. Try other arguments, or go on without it."
MAX_NAME_CHARACTERS = 80  # of the name of an exception's class: it goes to the model

_log = logging.getLogger("turnwise.tools")


class NotShowable(Exception):
    """A tool ran, and JSON cannot carry what it returned. The text is for the model; the cause is for the tool's author."""


class RaisedBelow(Exception):
    """A tool of a sub-agent raised `error`, and that ended the sub-agent's run."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class FailedCall(msgspec.Struct, frozen=True):
    """A call that ended with an exception which is a fault of the tool: what the model reads, and the exception."""

    result: ToolResult
    error: BaseException
    is_told: bool = False  # a sub-agent's tool raised it: log and notes have it

    @property
    def said(self) -> str:
        """What a person reads of it: tool, class and place, and nothing of the exception's own text."""
        place = _place_of(self.error)
        return f"the tool `{self.result.name}` raised {class_name(self.error)}{f' at {place}' if place else ''}"


def result_of(call: ToolCall, value: object, *, whole_bytes: int | None = None) -> ToolResult:
    """What `shown_result` gives. Never raises: a value that cannot become JSON gives an error result that says so."""
    try:
        return shown_result(call, value, whole_bytes=whole_bytes)
    except NotShowable as error:
        return error_result(call, str(error))


def shown_result(call: ToolCall, value: object, *, whole_bytes: int | None = None) -> ToolResult:
    """The value as a result, its texts cut to a length that a model can read. With `whole_bytes` the texts are whole, and the
    result is an error if they are longer. Raises NotShowable."""
    if type(value) is str and whole_bytes is None:  # most tools return just this
        return _result(call, (Text(cut_middle(_clean(value), limit=MAX_TEXT_CHARACTERS)),), is_error=False)
    given = [value] if not _holds_parts(value) else list(cast("list[object]", value))
    parts, left_out = _few(given) if whole_bytes is None else (given, 0)
    content: list[Text | File] = []
    for part in parts:
        try:
            content.append(_part_of(part))
        except BaseException as error:
            why = str(error) if isinstance(error, _NoJson) else class_name(error)
            raise NotShowable(
                f"`{call.name}` ran, but what it returned (`{type(part).__name__}`) cannot be turned into JSON: {why}"
            ) from error
    file_bytes = sum([len(part.data or b"") + len(part.url or "") for part in content if isinstance(part, File)])
    if file_bytes > MAX_FILE_BYTES:
        return error_result(call, f"`{call.name}` returned files of {file_bytes} bytes: too large")
    if whole_bytes is not None:
        return _whole(call, content, limit_bytes=whole_bytes)
    if left_out:
        content.insert(len(content) // 2, Text(f"[... {left_out:,} parts left out ...]"))
    return _result(call, tuple(_within_size(content)), is_error=False)


def failure_of(call: ToolCall, error: BaseException) -> ToolResult | FailedCall:
    """What became of a call whose tool raised, whatever it raised: `sys.exit()`, a panic of a Rust extension, or an exception
    whose own text fails. Never raises.

    The model reads the words of a ToolFault, because the tool has chosen them. Of any other exception it reads only the class,
    because the text may hold what the provider must not get: the log has it, with the traceback. Promise run:tool-fault.
    """
    if isinstance(error.__cause__, StopIteration) and _is_of_python(error):
        error = error.__cause__
    if faults := _faults_in(error):  # the run's log has it as a call that failed: nothing here is for the tool's author
        return error_result(call, "\n".join([fault_words(one) for one in faults]))
    if isinstance(
        error, KeyboardInterrupt
    ):  # a second Ctrl-C, where the first one is being obeyed: no fault of the tool
        return error_result(call, f"{class_name(error)}: {TOOL_FAILED}")
    if isinstance(error, RaisedBelow):
        error = error.error
        return FailedCall(error_result(call, f"{class_name(error)}: {TOOL_FAILED}"), error, is_told=True)
    if isinstance(error, NotShowable):
        failed = FailedCall(error_result(call, str(error)), error.__cause__ or error)
    else:
        failed = FailedCall(error_result(call, f"{class_name(error)}: {TOOL_FAILED}"), error)
    log_failure(failed.said, error=failed.error)
    return failed


def _is_of_python(error: BaseException) -> bool:
    """Whether Python has made it of a StopIteration that left a coroutine or a generator (PEP 479)."""
    said = error.args[0] if type(error) is RuntimeError and error.args else None
    return type(said) is str and said.endswith(" raised StopIteration")


def _faults_in(error: BaseException) -> list[ToolFault]:
    """The ToolFault, or those of a group that holds nothing else; otherwise none."""
    if type(error) in (ExceptionGroup, BaseExceptionGroup):
        found = [_faults_in(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions]
        return [one for faults in found for one in faults] if all(found) else []
    return [error] if isinstance(error, ToolFault) else []


def cancelled_itself(call: ToolCall, error: BaseException) -> FailedCall:
    """What became of a call whose tool was cancelled by nobody of us: it awaited what had been cancelled, or cancelled itself."""
    failed = FailedCall(error_result(call, f"`{call.name}` cancelled itself"), error)
    log_failure(failed.said, error=error)
    return failed


def log_failure(said: str, *, error: BaseException) -> None:
    """Log an exception of a tool with its traceback. Never raises: a call that waits for its end would wait for ever."""
    with contextlib.suppress(Exception):  # a filter or a handler of the program's may raise
        _log.error("%s", said, exc_info=(type(error), error, error.__traceback__))


def traceback_of(error: BaseException, *, scrub: Callable[[str], str] = str) -> str:
    """The traceback with the exception's text, for the log: `scrub` removes the endpoint's key."""
    return scrub("".join(traceback.format_exception(error))).rstrip()


def class_name(error: BaseException) -> str:
    """The name of its class, in characters that a journal can hold."""
    return _whole_characters(type(error).__name__[:MAX_NAME_CHARACTERS])


def _place_of(error: BaseException) -> str:
    """Where it was raised: `shop.py:12`, in the tool's own code if that can be told; empty if it has no traceback."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [one for one in frames if not one[0].startswith(_OTHERS) and "site-packages" not in one[0]]
    file, line = (own or frames or [("", 0)])[-1]
    return _whole_characters(f"{PurePath(file).name}:{line}") if file else ""


_OTHERS = tuple([str(PurePath(one).parent) for one in (str(PurePath(__file__).parent), traceback.__file__)])


def journalable(text: object) -> str:
    """A foreign text without characters that JSON cannot carry; empty if it is not a text."""
    return _clean(text) if isinstance(text, str) and text else ""


def error_result(call: ToolCall, text: str) -> ToolResult:
    return _result(call, (Text(cut_middle(_clean(text), limit=MAX_TEXT_CHARACTERS)),), is_error=True)


def cut_middle(text: str, *, limit: int) -> str:
    """The text, or its head and tail with a note between them that says how much is missing."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[len(text) - half :]}"


def fault_words(error: BaseException) -> str:
    """The exception's own text. Its `__str__` may raise: it is code of the tool."""
    try:
        return cut_middle(str.__str__(str(error)), limit=ERROR_CHARACTERS)
    except BaseException as worse:  # noqa: BLE001 (whatever it raises, the call must have its result)
        return f"(its message cannot be shown: {type(worse).__name__})"


def _holds_parts(value: object) -> bool:
    """Whether a list contains a part: then all its items are parts. `isdisjoint` and `map` stay in C: a list of 5,000,000 takes
    0.13 s, with a loop 1.4 s."""
    return isinstance(value, list | tuple) and not _PARTS.isdisjoint(map(type, cast("list[object]", value)))


_PARTS = frozenset([Text, File])
PartType = TypeVar("PartType", Text, File)


def _few(parts: list[object]) -> tuple[list[object], int]:
    """The first and last parts, and how many between them are left out."""
    if len(parts) <= MAX_PARTS:
        return parts, 0
    half = MAX_PARTS // 2
    return parts[:half] + parts[-half:], len(parts) - 2 * half


def _part_of(value: object) -> Text | File:
    """One part that can be recorded. Raises whatever the foreign value raises."""
    match value:
        # structs do not check their fields, and the journal would fail on them later
        case Text():
            return msgspec.structs.replace(_checked(msgspec.structs.replace(value, text="")), text=_exact(value.text))
        case File():
            content = value.data if value.data is None or type(value.data) is bytes else bytes(memoryview(value.data))
            return msgspec.structs.replace(_checked(msgspec.structs.replace(value, data=None)), data=content)
        case _:
            return Text(_text_of(value))


def _checked(part: PartType) -> PartType:
    return msgspec.json.decode(msgspec.json.encode(part), type=type(part))


def _exact(text: str) -> str:
    """The text as a plain `str`: for msgspec, a subclass (numpy's, markupsafe's) is not a text."""
    return str.__str__(text)


def _result(call: ToolCall, content: tuple[Text | File, ...], *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=content, is_error=is_error, free_form=call.free_form)


def _within_size(content: list[Text | File]) -> list[Text | File]:
    """Texts share the limit in equal parts, so that the first does not push out the last. Notes share a limit of their own."""
    notes = sum(isinstance(part, Text) and part.note != "" for part in content)
    texts = sum(isinstance(part, Text) for part in content) - notes
    beside = sum([len(part.text) for part in content if isinstance(part, Text) and part.note])
    note_limit = MAX_NOTE_CHARACTERS if beside <= MAX_NOTE_CHARACTERS else MAX_NOTE_CHARACTERS // notes
    limits = (MAX_TEXT_CHARACTERS // max(1, texts), note_limit)
    return [
        part
        if isinstance(part, File)
        else msgspec.structs.replace(part, text=cut_middle(_clean(part.text), limit=limits[part.note != ""]))
        for part in content
    ]


def _whole(call: ToolCall, content: list[Text | File], *, limit_bytes: int) -> ToolResult:
    cleaned = [
        part if isinstance(part, File) else msgspec.structs.replace(part, text=_clean(part.text)) for part in content
    ]
    text_bytes = sum([len(part.text.encode()) for part in cleaned if isinstance(part, Text)])
    if text_bytes > limit_bytes:
        return error_result(
            call,
            f"`{call.name}` ran, but its result has {text_bytes:,} bytes, and a program can take {limit_bytes:,} of this "
            "call: ask for less of it, or for fewer at once",
        )
    return _result(call, tuple(cleaned), is_error=False)


def _clean(text: str) -> str:
    """A text that is not empty. Lone surrogates (from file names that are not UTF-8) are written as `\\udce9`: JSON cannot carry
    them, and a `?` in their place would be another name."""
    return _whole_characters(text) if text else NOTHING


def _whole_characters(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def _text_of(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return _exact(value)
        case bytes() | bytearray() | memoryview():
            return _as_text(cast("bytes", value))
        case _:
            return _json_of(value)


def _as_text(value: bytes) -> str:
    return bytes(value).decode("utf-8", "backslashreplace")  # as `_clean` does: no byte silently becomes another one


def _json_of(value: object) -> str:
    """The value as JSON. JSON cannot write NaN and infinity, bytes, or halves of characters. msgspec writes `null` for the first,
    base64 for the second and fails on the last, so they become text: `"NaN"`, `"-Infinity"`, `"\\\\xff"`, `"\\\\udce9"`. Keys
    that are the same text in JSON (`1` and `"1"`) are refused."""
    try:
        written = msgspec.json.encode(value, enc_hook=_plain)
        plain: object = msgspec.to_builtins(value, enc_hook=_plain, builtin_types=(bytes, bytearray, memoryview))
        _STRICT.encode(plain)
    except (ValueError, TypeError):  # also a lone surrogate
        plain = msgspec.to_builtins(value, enc_hook=_plain, builtin_types=(bytes, bytearray, memoryview))
        written = msgspec.json.encode(_spelled(plain))
    if len(msgspec.json.encode(msgspec.json.decode(written))) != len(written):
        json.loads(written, object_pairs_hook=_check_keys)
    return written.decode()


class _NoJson(ValueError, TypeError):
    """turnwise's own words on a value that has no JSON form."""


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _NoJson(f"two keys are the same text in JSON: `{key}`")
        seen.add(key)


_STRICT = json.JSONEncoder(allow_nan=False, check_circular=False)


def _spelled(plain: object) -> object:
    """The plain value with text for what JSON cannot carry. Without recursion: it may be as deep as JSON goes."""
    holder = [plain]
    todo: list[list[object] | dict[object, object]] = [holder]

    def leaf(item: object) -> object:
        match item:
            case float() if not math.isfinite(item):
                return "NaN" if math.isnan(item) else "Infinity" if item > 0 else "-Infinity"
            case str():
                return _whole_characters(item)
            case bytes() | bytearray() | memoryview():
                return _as_text(cast("bytes", item))
            case tuple():
                item = list(cast("tuple[object, ...]", item))
            case _:
                pass
        if isinstance(item, list | dict):
            todo.append(cast("list[object] | dict[object, object]", item))
        return cast("object", item)

    while todo:
        one = todo.pop()
        if isinstance(one, list):
            one[:] = [leaf(item) for item in one]
            continue
        found = {leaf(key): leaf(item) for key, item in one.items()}
        if len(found) < len(one):
            raise _NoJson("two keys are the same text once their lone surrogates or bytes are written out")
        one.clear()
        one.update(found)
    return holder[0]


def _plain(value: object) -> object:
    """A plain value for types that msgspec does not know: pydantic models, recognised by their methods, and others; subclasses of
    types that it knows, paths, collections."""
    for name, options in (("model_dump", {"mode": "json"}), ("to_dict", {}), ("tolist", {})):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method(**options)
    match value:
        case date() | time():
            return value.isoformat()
        case timedelta():
            return timedelta(value.days, value.seconds, value.microseconds)
        case str():
            return _exact(value)
        case PurePath() | UUID() | Decimal():
            return str(value)
        case Sequence() | Set() | ValuesView():
            return list(cast("Collection[object]", value))
        case Mapping():
            return dict(cast("Mapping[object, object]", value))
        case _:
            raise _NoJson(
                f"`{type(value).__name__}` has no JSON form; return a str, a JSON-able value, a Text or a File"
            )
