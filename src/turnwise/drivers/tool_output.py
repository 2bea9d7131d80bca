"""What a tool returned -> the result that the model reads: text of bounded size, or files."""

from typing import cast

import msgspec

from turnwise.vocab import File, Text, ToolCall, ToolResult

# About 16,000 tokens: more drowns a context window; the head and the tail are kept because both tell what happened.
MAX_TEXT_CHARACTERS = 64 * 1024
MAX_FILE_BYTES = 20 * 1024 * 1024  # what the large providers take in one request
ERROR_CHARACTERS = 4 * 1024
NOTHING = "(no output)"  # some APIs refuse an empty result


def result_of(call: ToolCall, value: object) -> ToolResult:
    """The value as a result. Never raises: what cannot become JSON is an error result that says so."""
    match value:
        case Text() | File():
            parts: list[object] = [value]
        case list() | tuple() if any(isinstance(item, Text | File) for item in cast("list[object]", value)):
            parts = list(cast("list[object]", value))
        case _:
            parts = [value]
    content: list[Text | File] = []
    for part in parts:
        if isinstance(part, File):
            if len(part.data or b"") > MAX_FILE_BYTES:
                return error_result(call, f"`{call.name}` returned a file of {len(part.data or b'')} bytes: too large")
            content.append(part)
            continue
        try:
            text = part if isinstance(part, Text) else Text(_text_of(part))
        except Exception as error:  # noqa: BLE001 (the value is a stranger's: its serialiser may raise anything)
            why = cut_middle(str(error), limit=ERROR_CHARACTERS)
            return error_result(
                call,
                f"`{call.name}` ran, but what it returned (`{type(part).__name__}`) cannot be turned into JSON: {why}",
            )
        content.append(text)
    return _result(call, tuple(_within_size(content)), is_error=False)


def error_result(call: ToolCall, text: str) -> ToolResult:
    return _result(call, (Text(cut_middle(_clean(text), limit=MAX_TEXT_CHARACTERS)),), is_error=True)


def cut_middle(text: str, *, limit: int) -> str:
    """The text, or its head and tail with a note between them that says how much is left out."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out:,} characters left out ...]\n{text[-half:]}"


def _result(call: ToolCall, content: tuple[Text | File, ...], *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=content, is_error=is_error, free_form=call.free_form)


def _within_size(content: list[Text | File]) -> list[Text | File]:
    """Texts share the limit in equal parts, so the last one is not lost to the first."""
    texts = sum(isinstance(part, Text) for part in content)
    limit = MAX_TEXT_CHARACTERS // max(1, texts)
    return [
        part
        if isinstance(part, File)
        else msgspec.structs.replace(part, text=cut_middle(_clean(part.text), limit=limit))
        for part in content
    ]


def _clean(text: str) -> str:
    """Not empty, and without lone surrogates (file names that are no UTF-8 bring them): JSON cannot carry those."""
    if not text:
        return NOTHING
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text


def _text_of(value: object) -> str:
    match value:
        case None:
            return ""
        case str():
            return value
        case bytes() | bytearray():
            return value.decode("utf-8", "replace")
        case _:
            return msgspec.json.encode(value, enc_hook=_plain).decode()


def _plain(value: object) -> object:
    """Types that msgspec does not know: pydantic models, named by what they can do, and other ways to a plain value."""
    for name, options in (("model_dump", {"mode": "json"}), ("to_dict", {}), ("tolist", {})):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method(**options)
    raise TypeError(f"`{type(value).__name__}` has no JSON form; return a str, a JSON-able value, a Text or a File")
